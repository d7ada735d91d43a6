package eltrain_test

import (
	"go/ast"
	"go/types"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// clock lists the functions that read the clock or wait.
var clock = []string{
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.Tick", "time.NewTicker",
	"context.WithTimeout", "context.WithTimeoutCause", "context.WithDeadline", "context.WithDeadlineCause", "(*" + module + "internal/hang.Wait).Hung",
}

// clocked lists the tests of tiers 1 and 2 that may use them, by file or by file and function, with the reason.
var clocked = map[string]string{
	"lang/fuzz_test.go FuzzParse":                  "the fuzzer itself bounds no input",
	"lang/importer/property_test.go FuzzManifests": "the fuzzer itself bounds no input",
}

// Tests of tiers 1 and 2 do not sleep and use no clock except that of a synctest bubble; nor does the simulator.
func TestPureTestsAskNoClock(t *testing.T) {
	used := map[string]bool{}
	for _, tier := range []string{"pure", "deterministic", "mixed"} {
		visit(t, tier, func(c code) {
			if name := c.uses(); slices.Contains(clock, name) {
				for _, place := range []string{c.file, c.place} {
					used[place] = true
					if clocked[place] != "" {
						return
					}
				}
				t.Errorf("%s uses %s", c.place, name)
			}
		})
	}
	for allowed := range clocked {
		if !used[allowed] {
			t.Errorf("%s no longer uses the clock: remove it from the list", allowed)
		}
	}
}

// Tests of tier 4 assert outcomes, measure no durations, and share one control plane.
func TestContractTestsMeasureNoTime(t *testing.T) {
	visit(t, "contract", func(c code) {
		switch name := c.uses(); name {
		case "time.Since", "time.Until", module + "testbed.Start", module + "testbed.New":
			t.Errorf("%s uses %s", c.place, name)
		}
		if call, is := c.node.(*ast.CallExpr); is && c.function(call) == "(time.Time).Sub" && c.calls(c.trace(call), "time.Now") {
			t.Errorf("%s measures a time: %s", c.place, types.ExprString(call))
		}
	})
}

// All waits in tiers 3 and 4 have the same timeout: hang.Bound.
func TestWaitsHaveOneBound(t *testing.T) {
	waits := []string{"time.After", "time.NewTimer", "time.AfterFunc", "context.WithTimeout", "context.WithTimeoutCause", "(time.Time).Add"}
	for _, tier := range []string{"adapters", "contract", "modules"} {
		data := map[ast.Node]bool{} // values of fields
		visit(t, tier, func(c code) {
			if field, is := c.node.(*ast.KeyValueExpr); is {
				data[field.Value] = true
			}
			call, is := c.node.(*ast.CallExpr)
			if name := c.function(c.node); !is || data[call] || !slices.Contains(waits, name) || name == "(time.Time).Add" && !c.calls(within(call.Fun), "time.Now") {
				return
			}
			if other := c.otherBound(call.Args); other != "" {
				t.Errorf("%s: %s: the bound is %s", c.place, types.ExprString(call.Fun), other)
			}
		})
	}
}

// otherBound returns a part of a bound that is neither hang.Bound, nor below a second, nor a time of the product.
func (c *checked) otherBound(args []ast.Expr) string {
	is := func(e ast.Expr) bool { d, is := c.duration(e); return is && d == hang.Bound }
	for _, a := range args {
		if t := c.info.TypeOf(a); t == nil || t.String() != "time.Duration" {
			continue
		}
		for _, e := range c.trace(a) {
			_, computed := e.(*ast.BinaryExpr)
			if d, constant := c.duration(e); constant && d >= time.Second && d != hang.Bound && !slices.ContainsFunc(within(e), c.ofProduct) ||
				computed && !constant && slices.ContainsFunc(c.trace(e), is) {
				return types.ExprString(e)
			}
		}
	}
	return ""
}

// The gate finds tier 5's tests by the name of the function that calls soak.Only.
func TestOnlyTestsCallSoakOnly(t *testing.T) {
	for _, tier := range []string{"pure", "deterministic", "adapters", "contract"} {
		visit(t, tier, func(c code) {
			if c.uses() == only {
				t.Errorf("%s calls soak.Only and is no test", c.place)
			}
		})
	}
}

// unchecked lists the files of shipped code that may open files by themselves, with the reason.
var unchecked = map[string]string{
	"agent/figures_linux.go":              "the kernel's files",
	"agent/inslot_linux.go":               "the kernel's files",
	"agent/stacks_linux.go":               "the kernel's files",
	"agent/system_linux.go":               "the kernel's files",
	"apply/live.go":                       "a directory",
	"internal/execsocket/socket_linux.go": "a directory",
	"providers/local/config.go":           "the kernel's files",
	"providers/local/exec.go":             "devices",
	"providers/local/limits.go":           "the kernel's files",
	"providers/local/process.go":          "the kernel's files",
	"providers/local/stop.go":             "the kernel's files",
	"state/file/process_linux.go":         "the kernel's files",
	"cmd/eltrain-agent/copy.go":           "its own program",
	"cmd/eltrain/import.go":               "named by the user, who may name a pipe: <(kubectl get ...)",
	"cmd/eltrain/init.go":                 "a new file",
	"cmd/eltrain/statepush.go":            "named by the user, who may name a pipe",
	"cmd/output/lines.go":                 "named by the user, who may name a pipe",
	"cmd/shells/settings.go":              "the user's own files",
	"internal/atomicfile/atomicfile.go":   "a directory",
	"internal/regular/regular.go":         "the rule itself",
}

// Shipped code opens files by internal/regular.
func TestFilesAreOpenedAsRegularFiles(t *testing.T) {
	used := map[string]bool{}
	for _, pkg := range list(t) {
		dir, ours := strings.CutPrefix(pkg.ImportPath, module)
		if room := strings.Split(dir, "/")[0]; !ours || room != "cmd" && !slices.Contains(below, room) || load(dir)[0].imports("testing") || dir == "internal/trainlog" {
			continue
		}
		c := load(dir)[0]
		for _, f := range c.files {
			file := position(f)
			ast.Inspect(f, func(n ast.Node) bool {
				id, is := n.(*ast.Ident)
				if !is || strings.HasSuffix(file, "_test.go") || !slices.Contains([]string{"os.Open", "os.OpenFile", "os.ReadFile"}, c.function(id)) {
					return true
				}
				if used[file] = true; unchecked[file] == "" {
					t.Errorf("%s: use internal/regular instead of %s", fset.Position(id.Pos()), c.function(id))
				}
				return true
			})
		}
	}
	for file := range unchecked {
		if !used[file] {
			t.Errorf("%s opens no file anymore: remove it from the list", file)
		}
	}
}

// gate returns what scripts/gate.sh prints.
func gate(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("./scripts/gate.sh", args...).Output()
	if err != nil {
		t.Fatalf("gate.sh %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

const only = module + "internal/soak.Only"
