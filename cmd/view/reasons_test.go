package view

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// said returns reasons with verbatim texts.
func said(texts ...string) []job.Reason {
	reasons := make([]job.Reason, len(texts))
	for i, text := range texts {
		reasons[i] = job.Because(job.Verbatim, "message", text)
	}
	return reasons
}

func TestEveryCodeHasOneSentence(t *testing.T) {
	known := codes(t)
	for code, constant := range known {
		if sentences[code] == nil {
			t.Errorf("%s, %q, has no sentence", constant, code)
		}
	}
	for code := range sentences {
		if known[code] == "" {
			t.Errorf("the sentence of %q is for no constant", code)
		}
	}
	for code := range headlines {
		if sentences[code] == nil {
			t.Errorf("%q has a headline and no sentence", code)
		}
	}
}

func TestThePageOfReasonsListsEveryCode(t *testing.T) {
	known, page := codes(t), documented(t)
	for code := range known {
		if _, listed := page[code]; !listed {
			t.Errorf("docs/reasons.md does not list %q", code)
		}
	}
	for code, args := range page {
		if known[code] == "" {
			t.Errorf("docs/reasons.md lists %q, which is not a code", code)
			continue
		}
		full := job.Reason{Code: code, Args: map[string]string{}}
		for _, name := range args {
			full.Args[name] = "2"
		}
		text := sentences[code](full, []string{"a part"})
		if text == "" || strings.Contains(text, "${") {
			t.Errorf("with the arguments of docs/reasons.md the sentence of %q is %q", code, text)
		}
	}
}

// The arguments are those in the scenarios of the planner and of the loop.
func TestThePageOfReasonsListsEveryArgument(t *testing.T) {
	page := documented(t)
	reason := regexp.MustCompile(`\b([a-z]+(?:_[a-z]+)*)\(((?:[a-z_]+=(?:"(?:[^"\\]|\\.)*"|[^\s()]+) ?)+)\)`)
	argument := regexp.MustCompile(`([a-z_]+)=(?:"(?:[^"\\]|\\.)*"|\S+)`)
	seen := 0
	for _, pattern := range []string{"../../plan/testdata/*.txt", "../../apply/testdata/scenarios/*.txt", "../../providers/sim/testdata/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no scenarios as %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range reason.FindAllStringSubmatch(string(text), -1) {
				args, listed := page[job.Code(found[1])]
				for _, arg := range argument.FindAllStringSubmatch(found[2], -1) {
					if seen++; listed && !slices.Contains(args, arg[1]) {
						t.Errorf("docs/reasons.md does not list the argument %s of %s", arg[1], found[1])
					}
				}
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d arguments were looked at", seen)
	}
}

// A newer master may give a reason that this version does not know.
func TestAnUnknownCodeIsShownAsItIs(t *testing.T) {
	if got, want := Sentence(job.Because("phase_of_the_moon", "phase", "full")), "phase_of_the_moon(phase=full)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// documented returns the arguments of each code that docs/reasons.md lists.
func documented(t *testing.T) map[job.Code][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(page), "\n## ") // after the common part
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.*) \\| (.*) \\|$")
	name := regexp.MustCompile("`([a-z_]+)`")
	listed := map[job.Code][]string{}
	for _, cells := range row.FindAllStringSubmatch(tables, -1) {
		code := job.Code(cells[1])
		if _, twice := listed[code]; twice {
			t.Errorf("docs/reasons.md lists %q twice", code)
		}
		listed[code] = []string{}
		for _, arg := range name.FindAllStringSubmatch(cells[3], -1) {
			listed[code] = append(listed[code], arg[1])
		}
	}
	return listed
}

// codes returns all constants of the type job.Code, by value.
func codes(t *testing.T) map[job.Code]string {
	t.Helper()
	causes := constants(t, "../../job/record.go", "Cause", nil)
	all := map[job.Code]string{}
	for _, file := range []string{"../../job/reason.go", "../../plan/codes.go", "../../apply/codes.go", "../../detect/codes.go", "../../scaling/codes.go", "reasons.go"} {
		found := constants(t, file, "Code", causes)
		if len(found) == 0 {
			t.Fatalf("%s has no code", file)
		}
		for _, constant := range slices.Sorted(maps.Keys(found)) {
			code := job.Code(found[constant])
			if all[code] != "" {
				t.Errorf("%s and %s are both %q", all[code], constant, code)
			}
			all[code] = file + ": " + constant
		}
	}
	return all
}

// constants returns the constants of a type in a file, by name. A constant may be converted from one of others, as
// job.Code(job.LeaseLost).
func constants(t *testing.T, path, kind string, others map[string]string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	of := func(e ast.Expr) bool {
		if s, selected := e.(*ast.SelectorExpr); selected {
			e = s.Sel
		}
		name, named := e.(*ast.Ident)
		return named && name.Name == kind
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Names) != 1 || len(spec.Values) != 1 {
			return true
		}
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			if spec.Type != nil && of(spec.Type) {
				found[spec.Names[0].Name], err = strconv.Unquote(value.Value)
			}
		case *ast.CallExpr:
			if s, selected := value.Args[0].(*ast.SelectorExpr); selected && of(value.Fun) {
				found[spec.Names[0].Name] = others[s.Sel.Name]
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
