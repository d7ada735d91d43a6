package eltrain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clock lists the functions of package time that read the clock or wait.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "Tick", "NewTicker"}

// clocked lists the tests of tiers 1 and 2 that may use them, by file or by file and function, with the reason.
var clocked = map[string]string{
	"lang/fuzz_test.go FuzzParse":                  "the fuzzer itself bounds no input",
	"lang/importer/property_test.go FuzzManifests": "the fuzzer itself bounds no input",
}

// Tests of tiers 1 and 2 do not sleep and use no clock except that of a synctest bubble.
func TestPureTestsAskNoClock(t *testing.T) {
	used := map[string]bool{}
	values, ofValues := regexp.MustCompile(gate(t, "values")), map[string]bool{} // files of mixed packages that are in tier 1
	functionsOf(t, "mixed", func(file string, f *ast.FuncDecl) {
		ofValues[file] = ofValues[file] || values.MatchString(f.Name.Name)
	})
	for _, tier := range []string{"pure", "deterministic", "mixed"} {
		functionsOf(t, tier, func(file string, f *ast.FuncDecl) {
			if tier == "mixed" && !ofValues[file] {
				return // in tier 3 alone
			}
			asked := append(uses(f, "time", clock...), uses(f, "context", "WithTimeout", "WithDeadline")...)
			if len(asked) == 0 || len(uses(f, "synctest", "Test"))+len(uses(f, "soak", "Only")) > 0 {
				return
			}
			for _, allowed := range []string{file, file + " " + f.Name.Name} {
				if clocked[allowed] != "" {
					used[allowed] = true
					return
				}
			}
			t.Errorf("%s: %s uses %v", file, f.Name.Name, asked)
		})
	}
	for allowed := range clocked {
		if !used[allowed] {
			t.Errorf("%s no longer uses the clock: remove it from the list", allowed)
		}
	}
}

// Tests of tier 4 assert outcomes and measure no durations.
func TestContractTestsMeasureNoTime(t *testing.T) {
	functionsOf(t, "contract", func(file string, f *ast.FuncDecl) {
		if len(uses(f, "time", "Since")) > 0 && len(uses(f, "soak", "Only"))+len(uses(f, "synctest", "Test")) == 0 {
			t.Errorf("%s: %s measures how long something takes", file, f.Name.Name)
		}
	})
}

// All waits in tiers 3 and 4 have the same timeout: hang.Bound, not a literal.
func TestWaitsHaveOneBound(t *testing.T) {
	number := regexp.MustCompile(`^(\d+ \* )?time\.(Second|Minute|Hour)$`)
	for _, tier := range []string{"adapters", "contract"} {
		functionsOf(t, tier, func(file string, f *ast.FuncDecl) {
			if len(uses(f, "synctest", "Test")) > 0 || len(uses(f, "soak", "Only")) > 0 {
				return
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is || len(call.Args) == 0 {
					return true
				}
				switch name := types.ExprString(call.Fun); name {
				case "time.After", "time.NewTimer", "time.AfterFunc", "context.WithTimeout":
					for _, a := range call.Args {
						if wait := types.ExprString(a); number.MatchString(wait) {
							t.Errorf("%s: %s: %s of %s", file, f.Name.Name, name, wait)
						}
					}
				}
				return true
			})
		})
	}
}

// The gate finds tier 5's tests by the name of the function that calls soak.Only.
func TestOnlyTestsCallSoakOnly(t *testing.T) {
	for _, tier := range []string{"pure", "deterministic", "adapters", "contract"} {
		functionsOf(t, tier, func(file string, f *ast.FuncDecl) {
			if len(uses(f, "soak", "Only")) > 0 && (f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test")) {
				t.Errorf("%s: %s calls soak.Only and is no test", file, f.Name.Name)
			}
		})
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

// functionsOf visits the functions in a tier's test files and in its packages of shared test code.
func functionsOf(t *testing.T, tier string, visit func(file string, f *ast.FuncDecl)) {
	t.Helper()
	for _, dir := range strings.Fields(gate(t, "folders", tier)) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, shared := map[string]*ast.File{}, false // shared: the package has shared test code
		for _, path := range files {
			if parsed[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0); err != nil {
				t.Fatal(err)
			}
			shared = shared || !strings.HasSuffix(path, "_test.go") && slices.ContainsFunc(parsed[path].Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		}
		for _, path := range files {
			if !shared && !strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, d := range parsed[path].Decls {
				if f, is := d.(*ast.FuncDecl); is {
					visit(path, f)
				}
			}
		}
	}
}

// uses returns those of a package's functions that are used below a node, called or as values.
func uses(below ast.Node, pkg string, names ...string) (found []string) {
	ast.Inspect(below, func(n ast.Node) bool {
		if f, is := n.(*ast.SelectorExpr); is && slices.Contains(names, f.Sel.Name) {
			if x, is := f.X.(*ast.Ident); is && x.Name == pkg {
				found = append(found, pkg+"."+f.Sel.Name)
			}
		}
		return true
	})
	return found
}
