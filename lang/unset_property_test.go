package lang

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// example is a configuration of one file; the files that it refers to are in dir.
type example struct {
	name, src, dir string
}

// examplesOf returns the configurations of the tests, valid and invalid, and those in the docs.
func examplesOf(t testing.TB) []example {
	t.Helper()
	calls := inJob("") + "locals {\n"
	for _, name := range slices.Sorted(maps.Keys(functionCalls)) {
		calls += "  of_" + name + " = " + functionCalls[name][0] + "\n"
	}
	out := []example{{"full", full, "testdata/sketch"}, {"unset", everyKind, "testdata/teams"}, {"functions", calls + "}\n", "testdata/sketch"}}
	for _, pattern := range []string{"testdata/*/*.hcl", "testdata/*/*/*.hcl", "../examples/*/*.hcl", "../examples/*/*/*.hcl"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, example{path, string(src), filepath.Dir(path)})
		}
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range hclInPages.FindAllStringSubmatch(string(src), -1) {
			out = append(out, example{fmt.Sprintf("%s[%d]", path, i), block[1], "testdata/sketch"})
		}
	}
	return out
}

var hclInPages = regexp.MustCompile("(?s)```hcl\n(.*?)```")

// fixed lists the arguments that take no values, and the blocks that must be constant.
var (
	fixedArguments = []string{"source", "depends_on", "ignore_changes", "from", "to", "iterator", "type"}
	fixedBlocks    = []string{"variable", "moved", "removed"}
)

// constants returns the expressions in a file without references, which could be replaced by variables.
func constants(src string) (found []hcl.Range) {
	file, diags := hclsyntax.ParseConfig([]byte(src), "job.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return nil
	}
	var walk func(body *hclsyntax.Body)
	walk = func(body *hclsyntax.Body) {
		for _, attr := range body.Attributes {
			if slices.Contains(fixedArguments, attr.Name) {
				continue
			}
			hclsyntax.VisitAll(attr.Expr, func(n hclsyntax.Node) hcl.Diagnostics {
				switch n := n.(type) {
				case *hclsyntax.LiteralValueExpr:
					if n.Val.Type() == cty.String {
						return nil // part of a template, not an expression of its own
					}
				case *hclsyntax.TemplateExpr, *hclsyntax.TupleConsExpr, *hclsyntax.ObjectConsExpr:
				default:
					return nil
				}
				expr := n.(hclsyntax.Expression)
				if _, diags := expr.Value(nil); diags.HasErrors() || len(expr.Variables()) > 0 {
					return nil
				}
				r := expr.Range()
				text := string(r.SliceBytes([]byte(src)))
				if _, diags := hclsyntax.ParseExpression([]byte(text), "", hcl.InitialPos); diags.HasErrors() || strings.Contains(text, "<<") {
					return nil
				}
				found = append(found, r)
				return nil
			})
		}
		for _, b := range body.Blocks {
			if !slices.Contains(fixedBlocks, b.Type) {
				walk(b.Body)
			}
		}
	}
	walk(file.Body.(*hclsyntax.Body))
	slices.SortFunc(found, func(a, b hcl.Range) int { return a.Start.Byte - b.Start.Byte })
	return found
}

// parameterised is a configuration with some of its constants replaced by variables.
type parameterised struct {
	src      string
	bare     string   // the same without the defaults of some variables, and with all else at the same position
	declared string   // with a default
	required string   // some of them without a default
	taken    []string // the variables without a default, and their values
}

// parameterise replaces some constants by variables, and leaves some of those without a value.
func parameterise(src string, rnd *rand.Rand) parameterised {
	p := parameterised{}
	density := []float64{0.02, 0.1, 0.5}[rnd.IntN(3)]
	var b strings.Builder
	at := 0
	for i, r := range constants(src) {
		if r.Start.Byte < at || rnd.Float64() > density {
			continue
		}
		text := src[r.Start.Byte:r.End.Byte]
		before := src[:r.Start.Byte]
		if trimmed := strings.TrimRight(before, " \t"); strings.HasSuffix(trimmed, "${") || strings.HasSuffix(trimmed, "%{") {
			continue
		}
		name := fmt.Sprintf("unset%d", i)
		head := fmt.Sprintf("variable %q {\n", name)
		if ty := typeOf(text); ty != "" && rnd.IntN(2) == 0 {
			head += "  type = " + ty + "\n"
		}
		if rnd.IntN(4) == 0 {
			head += "  sensitive = true\n"
		}
		if rnd.IntN(4) == 0 {
			head += "  nullable = false\n"
		}
		p.declared += head + "  default = " + text + "\n}\n"
		if rnd.IntN(3) > 0 {
			p.required += head + "}\n"
			p.taken = append(p.taken, name+" = "+text)
		} else {
			p.required += head + "  default = " + text + "\n}\n"
		}
		b.WriteString(src[at:r.Start.Byte] + "(var." + name + ")")
		at = r.End.Byte
	}
	p.src = b.String() + src[at:]
	bare := []byte(p.src)
	found := defaults(p.src)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if rnd.IntN(2) > 0 {
			continue
		}
		was := bare[found[name].Start.Byte:found[name].End.Byte]
		p.taken = append(p.taken, name+": "+string(was))
		for i, c := range was {
			if c != '\n' {
				was[i] = ' '
			}
		}
	}
	p.bare = string(bare)
	return p
}

// defaults returns the ranges of the defaults of a file's variables.
func defaults(src string) map[string]hcl.Range {
	file, diags := hclsyntax.ParseConfig([]byte(src), "job.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		return nil
	}
	found := map[string]hcl.Range{}
	for _, b := range file.Body.(*hclsyntax.Body).Blocks {
		if attr := b.Body.Attributes["default"]; attr != nil && b.Type == "variable" && len(b.Labels) == 1 {
			found[b.Labels[0]] = attr.SrcRange
		}
	}
	return found
}

// typeOf returns a type constraint for a constant; "" if none is needed.
func typeOf(text string) string {
	expr, diags := hclsyntax.ParseExpression([]byte(text), "", hcl.InitialPos)
	if diags.HasErrors() {
		return ""
	}
	val, _ := expr.Value(nil)
	switch ty := val.Type(); {
	case val.IsNull():
		return ""
	case ty == cty.String:
		return "string"
	case ty == cty.Number:
		return "number"
	case ty == cty.Bool:
		return "bool"
	case ty.IsTupleType() && val.LengthInt() > 0:
		return "list(any)"
	}
	return ""
}

// errorsOf returns the errors by text and position.
func errorsOf(diags hcl.Diagnostics) map[string]*hcl.Diagnostic {
	out := map[string]*hcl.Diagnostic{}
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			out[fmt.Sprintf("%s at %s", d.Summary, subject(d))] = d
		}
	}
	return out
}

// checkUnset checks the rule on one configuration: without some values there are no errors that do not occur with
// them.
func checkUnset(t *testing.T, e example, seed uint64) (unset int) {
	t.Helper()
	p := parameterise(e.src, rand.New(rand.NewPCG(seed, 0)))
	o := options()
	o.BaseDir = e.dir
	load := func(src, variables string) (*Config, hcl.Diagnostics) {
		l := newLoader(o)
		l.meter.limit = maxSteps / 10
		return l.run(map[string][]byte{"job.hcl": []byte(src), "variables.hcl": []byte(variables)})
	}
	_, diags := load(p.src, p.declared)
	want := errorsOf(diags)
	cfg, diags := load(p.bare, p.required)
	for key, d := range errorsOf(WithoutUnset(diags)) {
		if want[key] == nil && !strings.Contains(key, "variables.hcl") {
			t.Errorf("%s, %d: without values there is a new error, %s: %s\nunset:\n%s\n%s", e.name, seed, key, d.Detail, strings.Join(p.taken, "\n"), p.bare)
		}
	}
	// Callers that display a configuration must work without values, too.
	if !WithoutUnset(diags).HasErrors() {
		cfg.ValueReferences()
		for i := range cfg.Jobs {
			_, diags := cfg.Evaluate("job." + cfg.Jobs[i].Name)
			_ = diags // an instance would have another address
		}
		cfg.Secrets()
	}
	return len(p.taken)
}

// Any constants of the examples become variables without a value: nothing panics, and there are no new errors.
func TestNoErrorComesOfAMissingValue(t *testing.T) {
	t.Parallel()
	rounds := uint64(60)
	if testing.Short() {
		rounds = 5
	}
	for _, e := range examplesOf(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			taken := 0
			for seed := range rounds {
				taken += checkUnset(t, e, seed)
				if t.Failed() {
					return
				}
			}
			if found := len(constants(e.src)); found > 5 && taken == 0 {
				t.Errorf("of %d constants none was made a variable", found)
			}
		})
	}
}

// FuzzUnset checks the same rule on any text.
func FuzzUnset(f *testing.F) {
	for i, e := range examplesOf(f) {
		if len(e.src) < 8<<10 {
			f.Add([]byte(e.src), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, seed uint64) {
		checkUnset(t, example{"fuzz", string(src), "testdata/teams"}, seed)
	})
}
