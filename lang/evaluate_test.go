package lang

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"
)

const consoleFiles = `
variable "n" {
  type    = number
  default = 4
}
variable "token" {
  type      = string
  default   = "hunter22"
  sensitive = true
}
locals { sizes = [var.n, 8] }
job "gpt" {
  limits { cpu = role.worker.replicas * 2 }
  role "worker" {
    replicas = var.n
    command  = ["train", "--token=${var.token}"]
    scaling {
      min = 2
      max = role.ps.replicas * 4
    }
  }
  role "ps" {
    replicas = 2
    command  = ["ps"]
  }
}
job "swept" {
  for_each = toset(["b", "a"])
  role "w" {
    command = ["train"]
    env     = { PEERS = tostring(role.v.replicas) }
  }
  role "v" {
    command    = ["train"]
    depends_on = [role.w]
  }
}
job "never" {
  for_each = toset([])
  role "w" { command = ["train"] }
}
`

func consoleConfig(t *testing.T) *Config {
	t.Helper()
	cfg, diags := Parse(map[string][]byte{"a.hcl": []byte(consoleFiles)}, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg
}

func TestEvaluate(t *testing.T) {
	cfg := consoleConfig(t)
	for src, want := range map[string]cty.Value{
		"1 + var.n":                    cty.NumberIntVal(5),
		"local.sizes[1]":               cty.NumberIntVal(8),
		"job.gpt.role.worker.replicas": cty.NumberIntVal(4),
		`job.swept["a"].role.w.env`:    cty.ObjectVal(map[string]cty.Value{"PEERS": cty.StringVal("1")}),
		`upper("a")`:                   cty.StringVal("A"),
		"[for s in local.sizes : s]":   cty.TupleVal([]cty.Value{cty.NumberIntVal(4), cty.NumberIntVal(8)}),
		"0 == 0 ? 1 : 1 / 0":           cty.NumberIntVal(1), // as the error advises
		"var.token":                    cty.StringVal("hunter22").Mark(Sensitive),
		"job.gpt.role.worker.command":  cty.TupleVal([]cty.Value{cty.StringVal("train"), cty.StringVal("--token=hunter22").Mark(Sensitive)}),
	} {
		got, diags := cfg.Evaluate(src)
		if diags.HasErrors() || !got.RawEquals(want) {
			t.Errorf("%s is %#v, want %#v; %v", src, got, want, diags)
		}
	}
}

func TestEvaluateTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	cfg := consoleConfig(t)
	cfg.loader.meter.limit = maxSteps / 10
	for src, want := range map[string]string{
		"var.m":                      `Did you mean "n"?`,
		"1 +":                        "Missing expression",
		"frobnicate(1)":              "Unknown function",
		"timestamp()":                "always mean the same jobs",
		"role.worker.replicas":       "the console",
		"1 / 0":                      "is 0. Guard it: n == 0 ? ",
		strings.Repeat("[", 100_000): "Nested too deeply",
		"[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]": "Too much to evaluate",
	} {
		_, diags := cfg.Evaluate(src)
		if !diags.HasErrors() || !strings.Contains(diags.Error()+diags[0].Detail, want) {
			t.Errorf("%.40s: %v, want %q", src, diags, want)
		}
		if cfg.Files[ConsoleInput] == nil {
			t.Errorf("%.40s cannot be quoted", src)
		}
	}
	// Earlier errors do not use up the budget, and are not reported again.
	if v, diags := cfg.Evaluate("var.n"); len(diags) > 0 || !v.RawEquals(cty.NumberIntVal(4)) {
		t.Errorf("afterwards var.n is %#v, %v", v, diags)
	}
}

func TestUnfinished(t *testing.T) {
	for src, want := range map[string]bool{
		"1": false, "[": true, "[1,\n2": true, "[1]": false, "f(": true, `"${a`: true, "<<EOT\na\n": true, "<<EOT\na\nEOT\n": false,
		"": false, "]": false, `"["`: false, "1 +": false, strings.Repeat("[", 1000): false,
	} {
		if got := Unfinished(src); got != want {
			t.Errorf("Unfinished(%.20q) is %t", src, got)
		}
	}
}

func TestValueReferences(t *testing.T) {
	cfg := consoleConfig(t)
	want := []ValueReference{
		{Job: "gpt", Argument: "limits.cpu", Of: "worker", Value: "replicas"},
		{Job: "gpt", Role: "worker", Argument: "scaling.max", Of: "ps", Value: "replicas"},
		{Job: "swept-a", Role: "w", Argument: "env", Of: "v", Value: "replicas"},
		{Job: "swept-b", Role: "w", Argument: "env", Of: "v", Value: "replicas"},
	}
	for range 2 { // the call changes nothing
		if diff := cmp.Diff(want, cfg.ValueReferences()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestValueReferencesInModules(t *testing.T) {
	dir := writeTree(t, map[string]string{"main.hcl": `module "m" { source = "./m" }`, "m/m.hcl": `
job "j" {
  role "a" { command = ["x"] }
  dynamic "role" {
    for_each = ["b"]
    labels   = [role.value]
    content {
      command  = ["x"]
      replicas = 2
    }
  }
  role "c" {
    command  = ["x"]
    replicas = role.b.replicas + role.a.replicas + role.b.replicas
  }
}
`})
	cfg, diags := Load(dir, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	want := []ValueReference{
		{Job: "m-j", Role: "c", Argument: "replicas", Of: "a", Value: "replicas"},
		{Job: "m-j", Role: "c", Argument: "replicas", Of: "b", Value: "replicas"},
	}
	if diff := cmp.Diff(want, cfg.ValueReferences()); diff != "" {
		t.Error(diff)
	}
}
