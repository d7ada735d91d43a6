package lang

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

var hclInitial = hcl.InitialPos

// doubling returns 40 locals, each twice the size of the one before.
func doubling(first, twice string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "locals {\n  a0 = %s\n", first)
	for i := 1; i <= 40; i++ {
		fmt.Fprintf(&b, "  a%d = %s\n", i, strings.ReplaceAll(twice, "@", fmt.Sprintf("local.a%d", i-1)))
	}
	b.WriteString("}\n")
	return b.String()
}

func expr(e string) string { return "locals { a = " + e + " }\n" }

// bombs are inputs that would exhaust the stack, memory or time of an unbounded evaluation.
var bombs = []struct{ name, src, want string }{
	{"nested lists", expr(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), "Nested too deeply"},
	{"nested parentheses", expr(strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000)), "Nested too deeply"},
	{"nested templates", expr(strings.Repeat(`"${`, 50_000) + "1" + strings.Repeat(`}"`, 50_000)), "Nested too deeply"},
	{"nested blocks", strings.Repeat("a {\n", 100_000) + strings.Repeat("}\n", 100_000), "Nested too deeply"},
	{"nested calls", expr(strings.Repeat("abs(", 100_000) + "1" + strings.Repeat(")", 100_000)), "Nested too deeply"},
	{"long sum", expr("1" + strings.Repeat("+1", 100_000)), "Nested too deeply"},
	{"long negation", expr(strings.Repeat("!", 100_000) + "true"), "Nested too deeply"},
	{"long minus", expr(strings.Repeat("-", 100_000) + "1"), "Nested too deeply"},
	{"long choice", expr(strings.Repeat("true ? 1 : ", 100_000) + "1"), "Nested too deeply"},
	{"long index", expr("local.b" + strings.Repeat("[local.c]", 100_000)), "Nested too deeply"},
	{"long splat", expr("local.b" + strings.Repeat("[*]", 100_000)), "Nested too deeply"},
	{"long attribute splat", expr("local.b" + strings.Repeat(".*", 100_000)), "Nested too deeply"},
	{"nested directives", expr("<<E\n" + strings.Repeat("%{ if true }", 50_000) + strings.Repeat("%{ endif }", 50_000) + "\nE\n"), "Nested too deeply"},
	{"huge number", expr("1e1000000000"), "Number out of range"},
	{"huge number by hand", expr(`"${tonumber("1e1000000000")}"`), "Number out of range"},
	{"huge number in a sum", expr(`"${"1e1000000000" + 1}"`), "Number out of range"},
	{"huge number decoded", expr(`"${jsondecode("1e1000000000")}"`), "Number out of range"},
	{"squares", doubling("10", "@ * @"), "Number out of range"},
	{"doubled text", doubling(`"0123456789"`, `"${@}${@}"`), "Too much to evaluate"},
	{"doubled list", doubling(`["x"]`, `concat(@, @)`), "Too much to evaluate"},
	{"doubled object", doubling(`["x"]`, `[for x in [@, @] : jsonencode(x)]`), "Too much to evaluate"},
	{"doubled structure", doubling(`"x"`, `[@, @]`) + expr("jsonencode(local.a40)"), "Too much to evaluate"},
	{"loops", expr("[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a]]]"), "Too much to evaluate"},
	{"empty loops", expr("[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a if false]]]"), "Too much to evaluate"},
	{"loops in try", expr("try([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : a]]], 1)"), "Too much to evaluate"},
	{"text loops", expr(`"%{ for a in range(1000) }%{ for b in range(1000) }%{ for c in range(1000) }x%{ endfor }%{ endfor }%{ endfor }"`), "Too much to evaluate"},
	{"splats", doubling(`["x"]`, `[@[*], @[*]][*]`), ""},
	{"comparisons", doubling(`["x"]`, `concat(@, @)`) + expr("[for a in range(1000) : [for b in range(1000) : local.a12 == local.a12]]"), "Too much to evaluate"},
	{"choices", expr("[for a in range(1000) : [for b in range(1000) : a > 1 ? range(1000) : [true]]]"), "Too much to evaluate"},
	{"range", expr("range(1000000000)"), "more than 1024"},
	{"format width", expr(`format("%999999999d", 1)`), "a width of 1000 or more"},
	{"format precision", expr(`format("%.999999999f", 1)`), "a width of 1000 or more"},
	{"indent", expr(`indent(999999999, "a\nb")`), "between 0 and 1000"},
	{"replace", doubling(`"aaaaaaaaaa"`, `replace(@, "a", @)`), "Too much to evaluate"},
	{"replace nothing", doubling(`"aaaaaaaaaa"`, `replace(@, "", @)`), "Too much to evaluate"},
	{"join", expr(`join(join("0123456789", range(1000)), [for a in range(1000) : join("0123456789", range(1000))])`), ""},
	{"product", expr("setproduct(range(1000), range(1000), range(1000), range(1000))"), "Too much to evaluate"},
	{"big pattern", expr(`regex(join("", [for a in range(1000) : "(a|b)*"]), "x")`), "longer than 4096"},
	{"nested json", expr(`jsondecode(join("", [for a in range(1000) : "["]))`), "nested more than"},
	{"nested yaml", expr(`yamldecode(join("", [for a in range(1000) : "["]))`), "nested more than"},
	{"nested yaml lists", expr(`yamldecode(join("", [for a in range(1000) : "- "]))`), "nested more than"},
	{"yaml aliases", expr(`yamldecode(join("\n", concat(["a0: &a0 [x,x]"], [for i in range(1, 40) : "a${i}: &a${i} [*a${i - 1}, *a${i - 1}]"])))`), "more than 30 aliases"},
	{"many blocks", "job \"j\" {\n  dynamic \"role\" {\n    for_each = setproduct(range(150), range(150))\n    labels = [\"r${role.key}\"]\n    content {\n      command = [\"x\"]\n    }\n  }\n}\n", "more than 20000 blocks"},
	{"many slots", inRole("env = { A = slot.index }\n    replicas = 1000000000"), "Too many slots"},
	{"many slots by scaling", inRole("env = { A = slot.index }\n    scaling {\n      min = 1\n      max = 1000000000\n    }"), "Too many slots"},
	{"costly slots", inRole("env = { A = jsonencode([for a in range(1000) : slot.index]) }\n    replicas = 100000"), "Too much to evaluate"},
	{"huge resources", "job \"j\" {\n  limits {\n    memory = \"1GiB\"\n  }\n" + strings.Repeat("  role \"@\" {\n    replicas = 2000\n    command = [\"x\"]\n    resources {\n      memory = \"4095PiB\"\n      devices = { a = 9000000000000000000 }\n    }\n  }\n", 1) + "}\n", "Invalid name"},
}

// parseBriefly parses one file with a tenth of the step budget, which proves the same in a tenth of the time.
func parseBriefly(src string) (*Config, hcl.Diagnostics) {
	l := newLoader(options())
	l.meter.limit = maxSteps / 10
	return l.run(map[string][]byte{"job.hcl": []byte(src)})
}

// TestBombs checks that each is rejected, before the package's test timeout.
func TestBombs(t *testing.T) {
	t.Parallel()
	for _, tt := range bombs {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, diags := parseBriefly(tt.src)
			if tt.want == "" {
				return // its size is legal; the test is that it terminates
			}
			for _, d := range diags {
				if strings.Contains(d.Summary+": "+d.Detail, tt.want) {
					return
				}
			}
			var text strings.Builder
			for _, d := range diags {
				fmt.Fprintf(&text, "%s: %.300s\n", d.Summary, d.Detail)
			}
			t.Errorf("want %q, got %d jobs and:\n%s", tt.want, len(cfg.Jobs), text.String())
		})
	}
}

// TestBoundsLeaveRoom checks that realistic generated files are not rejected.
func TestBoundsLeaveRoom(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("locals {\n  hosts = [\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "    { name = \"host-%d\", rack = \"r%d\" },\n", i, i/40)
	}
	b.WriteString("  ]\n  names = [for h in local.hosts : upper(h.name) if h.rack != \"r7\"]\n}\n")
	b.WriteString(inRole("replicas = 20000\n    env = { SHARD = \"${slot.index}/${role.worker.replicas}\", FIRST = local.names[slot.index % 1000] }"))
	cfg := mustParse(t, b.String())
	if got := cfg.Jobs[0].Roles[0].For(19_999).Env["SHARD"]; got != "19999/20000" {
		t.Errorf("SHARD = %q", got)
	}
}

func TestOnlyUTF8(t *testing.T) {
	_, diags := parseText(t, "locals {\n  a = \"\xff\"\n}\n")
	if len(diags) != 1 || diags[0].Summary != "Not UTF-8" || diags[0].Subject.Start.Line != 2 {
		t.Errorf("want one error at line 2, got %v", diags)
	}
}

func TestFilesAreBounded(t *testing.T) {
	big := []byte("# " + strings.Repeat("x", maxFileBytes))
	if _, diags := Parse(map[string][]byte{"job.hcl": big}, options()); !diags.HasErrors() {
		t.Error("a file above the bound was read")
	}
}
