package eltrain_test

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// checked is a package, or a package of external tests, with those types that the checks ask for.
type checked struct {
	files    []*ast.File
	info     *types.Info
	pkg      *types.Package
	given    map[types.Object][]ast.Expr // what variables and fields are set to
	declared map[types.Object]*ast.FuncDecl
}

// code is a node of code that runs in real time. place is its file and declaration.
type code struct {
	*checked
	file, place string
	node        ast.Node
}

// visit visits the code of a tier: test files, the packages of shared test code that they import, and all of the simulator.
// It leaves out what only tests of tier 5 or synctest's bubbles reach.
func visit(t *testing.T, tier string, visit func(code)) {
	t.Helper()
	values := regexp.MustCompile(gate(t, "values"))
	ofValues := func(d ast.Decl) bool { f, is := d.(*ast.FuncDecl); return is && values.MatchString(f.Name.Name) }
	dirs := strings.Fields(gate(t, "folders", tier))
	for i := 0; i < len(dirs); i++ {
		for _, c := range load(dirs[i]) {
			var reached []ast.Decl
			ours := func(n ast.Node) bool {
				return strings.HasSuffix(position(n), "_test.go") || tier == "deterministic" || tier != "modules" && c.imports("testing")
			}
			for _, f := range c.files {
				if !ours(f) || tier == "mixed" && !slices.ContainsFunc(f.Decls, ofValues) {
					continue // in tier 3 alone
				}
				for _, d := range f.Decls {
					if f, is := d.(*ast.FuncDecl); !is || f.Name.IsExported() || f.Name.Name == "init" {
						reached = append(reached, d)
					}
				}
			}
			for i := 0; i < len(reached); i++ {
				file, name := position(reached[i]), "its declarations"
				if f, is := reached[i].(*ast.FuncDecl); is {
					name = f.Name.Name
					if f.Recv == nil && strings.HasPrefix(name, "Test") && c.calls(within(f), only) {
						continue
					}
				}
				for _, n := range c.awake(reached[i]) {
					visit(code{c, file, file + " " + name, n})
					if id, is := n.(*ast.Ident); is {
						if f := c.declared[c.info.Uses[id]]; f != nil && ours(f) && !slices.Contains(reached, ast.Decl(f)) {
							reached = append(reached, f)
						}
					}
				}
			}
			for _, imported := range c.pkg.Imports() {
				dir, is := strings.CutPrefix(imported.Path(), module)
				if is && tier != "mixed" && dir != "testbed" && !slices.Contains(dirs, dir) && load(dir)[0].imports("testing") {
					dirs = append(dirs, dir)
				}
			}
		}
	}
}

// awake returns the nodes of a declaration but for what runs in a bubble.
func (c *checked) awake(d ast.Decl) (found []ast.Node) {
	ast.Inspect(d, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is && c.function(call) == "testing/synctest.Test" {
			return false
		}
		found = append(found, n)
		return true
	})
	return found
}

// function returns the full name of the function that is called, or that an identifier stands for elsewhere.
func (c *checked) function(n ast.Node) string {
	switch e := n.(type) {
	case *ast.CallExpr:
		return c.function(e.Fun)
	case *ast.SelectorExpr:
		return c.function(e.Sel)
	case *ast.Ident:
		if f, is := c.info.Uses[e].(*types.Func); is {
			return f.FullName()
		}
	}
	return ""
}

// uses returns the full name of the function that the node, an identifier, stands for.
func (c code) uses() string {
	id, is := c.node.(*ast.Ident)
	if !is {
		return ""
	}
	return c.function(id)
}

func (c *checked) calls(in []ast.Expr, name string) bool {
	return slices.ContainsFunc(in, func(e ast.Expr) bool { return c.function(e) == name })
}

// within returns the expressions of a node.
func within(n ast.Node) (found []ast.Expr) {
	ast.Inspect(n, func(n ast.Node) bool {
		if e, is := n.(ast.Expr); is {
			found = append(found, e)
		}
		return true
	})
	return found
}

// trace returns the expressions of a node, and those that its variables are set to and its functions return, if of the same
// package; of a constant only the whole.
func (c *checked) trace(n ast.Node) (found []ast.Expr) {
	seen := map[types.Object]bool{}
	for todo := []ast.Node{n}; len(todo) > 0; todo = todo[1:] {
		ast.Inspect(todo[0], func(n ast.Node) bool {
			e, is := n.(ast.Expr)
			if is {
				found = append(found, e)
			}
			if id, is := n.(*ast.Ident); is && c.info.Types[id].Value == nil && !seen[c.info.Uses[id]] {
				seen[c.info.Uses[id]] = true
				for _, value := range c.given[c.info.Uses[id]] {
					todo = append(todo, value)
				}
			}
			return !is || c.info.Types[e].Value == nil
		})
	}
	return found
}

// duration returns the value of a constant of that type.
func (c *checked) duration(e ast.Expr) (time.Duration, bool) {
	of := c.info.Types[e]
	if of.Value == nil || of.Type.String() != "time.Duration" {
		return 0, false
	}
	d, _ := constant.Int64Val(of.Value)
	return time.Duration(d), true
}

// ofProduct reports whether an expression is the name of a constant of shipped code.
func (c *checked) ofProduct(e ast.Expr) bool {
	id, _ := e.(*ast.Ident)
	of, is := c.info.Uses[id].(*types.Const)
	if !is {
		return false
	}
	dir, ours := strings.CutPrefix(of.Pkg().Path(), module)
	return ours && dir != "internal/hang" && !strings.HasSuffix(fset.Position(of.Pos()).Filename, "_test.go") && !load(dir)[0].imports("testing")
}

// imports reports whether a file that is no test's imports a package.
func (c *checked) imports(path string) bool {
	return slices.ContainsFunc(c.files, func(f *ast.File) bool {
		return !strings.HasSuffix(position(f), "_test.go") && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
	})
}

var (
	fset   = token.NewFileSet()
	loaded = map[string][]*checked{} // by folder
	std    = importer.ForCompiler(fset, "gc", nil)
)

func position(n ast.Node) string { return fset.Position(n.Pos()).Filename }

// load parses and checks a folder's package and its package of external tests.
func load(dir string) []*checked {
	if found := loaded[dir]; found != nil {
		return found
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		panic(err)
	}
	inside, outside := &checked{}, &checked{}
	loaded[dir] = []*checked{inside, outside}
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			panic(err)
		}
		c := inside
		if strings.HasSuffix(f.Name.Name, "_test") {
			c = outside
		}
		c.files = append(c.files, f)
	}
	for _, c := range loaded[dir] {
		c.check(dir)
	}
	return loaded[dir]
}

// check resolves what is of our own packages and of the few of the standard library that the checks ask for.
func (c *checked) check(dir string) {
	c.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imported{}, Error: func(error) {}}
	c.pkg, _ = config.Check(module+dir, fset, c.files, c.info)
	c.given, c.declared = map[types.Object][]ast.Expr{}, map[types.Object]*ast.FuncDecl{}
	give := func(to, value ast.Expr) {
		if s, is := to.(*ast.SelectorExpr); is {
			to = s.Sel
		}
		if id, is := to.(*ast.Ident); is {
			if of := c.info.ObjectOf(id); of != nil {
				c.given[of] = append(c.given[of], value)
			}
		}
	}
	for _, f := range c.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				c.declared[c.info.Defs[n.Name]] = n
				ast.Inspect(n, func(in ast.Node) bool {
					if result, is := in.(*ast.ReturnStmt); is && len(result.Results) == 1 {
						give(n.Name, result.Results[0])
					}
					return true
				})
			case *ast.KeyValueExpr:
				give(n.Key, n.Value)
			case *ast.AssignStmt:
				for i := range min(len(n.Lhs), len(n.Rhs)) {
					give(n.Lhs[i], n.Rhs[i])
				}
			case *ast.ValueSpec:
				for i := range min(len(n.Names), len(n.Values)) {
					give(n.Names[i], n.Values[i])
				}
			}
			return true
		})
	}
}

// imported implements types.Importer. Packages of others are empty: the errors that this causes are ignored.
type imported struct{}

func (imported) Import(name string) (*types.Package, error) {
	if dir, is := strings.CutPrefix(name, module); is {
		if c := load(dir)[0]; c.pkg != nil {
			return c.pkg, nil
		}
	}
	if slices.Contains([]string{"time", "context", "os", "testing/synctest"}, name) {
		return std.Import(name)
	}
	empty := types.NewPackage(name, path.Base(name))
	empty.MarkComplete()
	return empty, nil
}
