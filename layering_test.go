package eltrain_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/eltrain/eltrain/"

// rooms says which of our packages each room may import, by prefix. What is not listed here is a new room
// and must be given its place.
var rooms = map[string][]string{
	"job":                    {},
	"lang":                   {"job"},
	"lang/importer":          {"job", "lang"},
	"plan":                   {"job"},
	"elastic":                {"job"},
	"agent":                  {"job", "elastic", "internal/atomicfile"}, // elastic: the wire types and the client
	"state":                  {"job", "conditions", "internal/atomicfile"},
	"state/statetest":        {"job", "conditions", "state"},
	"state/memory":           {"job", "state"},
	"state/file":             {"job", "state", "internal/atomicfile"},
	"providers":              {"job"},
	"providers/providertest": {"job", "providers"},
	"providers/podtest":      {"job", "providers", "testbed", "internal/hang"},
	"providers/local":        {"job", "providers", "internal/atomicfile"},
	"providers/sim":          {"job", "providers", "elastic"}, // its agents speak the service's language
	"providers/volcano":      {"job", "providers", "providers/kubernetes", "kube"},
	"providers/kubernetes":   {"job", "providers", "kube"},
	"state/kubernetes":       {"job", "state", "kube"},
	"kube":                   {},
	"internal/atomicfile":    {},
	"internal/trainlog":      {}, // for tests and benchmarks
	"internal/loopback":      {}, // for tests
	"internal/soak":          {}, // for tests
	"internal/hang":          {}, // for tests
	"conditions":             {"job"},
	"apply":                  {"job", "conditions", "plan", "elastic", "providers", "state", "internal/atomicfile"},
	"cmd/view":               {"job", "conditions", "plan", "apply", "state"},
	"cmd/planfile":           {"job", "lang", "plan", "cmd/view", "internal/atomicfile"},
	"cmd/eltrain-agent":      {"job", "agent", "internal/atomicfile"},
	"cmd/eltrain":            {"job", "lang", "plan", "elastic", "agent", "conditions", "apply", "providers", "state", "kube", "cmd/view", "cmd/planfile", "internal/atomicfile"},
	"job/jobtest":            {"job"},
	"examples":               {},
	"deploy":                 {},
	"e2e":                    {"e2e/site", "e2e/heal"},
	"e2e/site":               {"internal/trainlog", "internal/hang"}, // what all of e2e share
	"e2e/heal":               {"e2e/site", "internal/loopback"},
	"e2e/podsite":            {"e2e/site", "e2e/heal", "testbed"}, // what the next three share
	"e2e/faults":             {"testbed", "e2e/site", "e2e/podsite"},
	"e2e/kubernetes":         {"testbed", "e2e/site", "e2e/podsite", "e2e/heal"},
	"e2e/volcano":            {"testbed", "e2e/site", "e2e/podsite", "e2e/heal"},
	"bench/internal/report":  {},
	"bench":                  {"bench/internal", "job", "plan", "elastic", "agent", "lang", "state", "providers", "apply", "testbed", "internal/trainlog"},
}

// unreachable lists what a room must not reach, not even through others: the planner and the language decide
// and read, they ask nobody.
var unreachable = map[string][]string{
	"job":  {"net/http", "os/exec", "k8s.io/"},
	"plan": {"net/http", "os/exec", "k8s.io/"},
	"lang": {"net/http", "os/exec", "k8s.io/"},

	"lang/importer": {"net/http", "os/exec", "k8s.io/"},

	// What these two cost at every start is in docs/decisions.md.
	"cmd/eltrain": {"text/template", "k8s.io/client-go/kubernetes/"},
}

// impure lists what the planner must not import itself: with the same input it gives the same plan.
var impure = []string{"os", "math/rand", "math/rand/v2", "crypto/rand", "context", "sync"}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestImportsRunOneWay(t *testing.T) {
	for _, pkg := range list(t) {
		room, ours := strings.CutPrefix(pkg.ImportPath, module)
		if !ours {
			continue
		}
		allowed, known := rooms[roomOf(room)]
		if !known {
			t.Errorf("%s is in no room that this test knows", room)
			continue
		}
		for _, imported := range pkg.Imports {
			target, ours := strings.CutPrefix(imported, module)
			if ours && !slices.ContainsFunc(allowed, func(a string) bool { return target == a || strings.HasPrefix(target, a+"/") }) {
				t.Errorf("%s imports %s: allowed are %v", room, target, allowed)
			}
		}
		for _, dep := range pkg.Deps {
			for _, bad := range unreachable[room] {
				if dep == bad || strings.HasSuffix(bad, "/") && strings.HasPrefix(dep, bad) {
					t.Errorf("%s reaches %s", room, dep)
				}
			}
		}
		for _, bad := range impure {
			if room == "plan" && slices.Contains(pkg.Imports, bad) {
				t.Errorf("plan imports %s", bad)
			}
		}
	}
}

// The planner never asks the clock: time is an argument.
func TestThePlannerAsksNoClock(t *testing.T) {
	files, err := filepath.Glob("plan/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of plan: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && regexp.MustCompile(`time\.(Now|Since|Until|Sleep|After|New)`).Match(text) {
			t.Errorf("%s asks the clock", file)
		}
	}
}

// The Loop is a value: no clock, goroutine, channel, lock, file or context. Only these files of its room have some.
func TestTheLoopIsAValue(t *testing.T) {
	outside := []string{"driver.go", "lanes.go", "notifier.go", "observer.go", "planner.go", "live.go", "files.go", "gitlock.go", "commit.go", "identity_unix.go"}
	files, err := filepath.Glob("apply/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of apply: %v", err)
	}
	impure := regexp.MustCompile(`"(sync|sync/atomic|context|os|io|net|net/http|math/rand|math/rand/v2)"|time\.(Now|Since|Until|Sleep|After|AfterFunc|New|Tick)|\bgo func|\bchan\b|\bselect \{`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(outside, filepath.Base(file)) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if found := impure.FindString(code); found != "" {
				t.Errorf("%s:%d has %s", file, i+1, found)
			}
		}
	}
}

// No object of apply is what all of it hangs on: at most 20 fields and 40 methods each.
func TestObjectsOfApplyAreSmall(t *testing.T) {
	const mostFields, mostMethods = 20, 40
	files, err := filepath.Glob("apply/*.go")
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]int{}
	count := func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				of := n.Recv.List[0].Type
				if pointer, is := of.(*ast.StarExpr); is {
					of = pointer.X
				}
				methods[of.(*ast.Ident).Name]++
			}
		case *ast.TypeSpec:
			if object, is := n.Type.(*ast.StructType); is && object.Fields.NumFields() > mostFields {
				t.Errorf("%s has %d fields", n.Name, object.Fields.NumFields())
			}
		}
		return true
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, count)
	}
	for name, n := range methods {
		if n > mostMethods {
			t.Errorf("%s has %d methods", name, n)
		}
	}
	if methods["Loop"] == 0 {
		t.Error("no Loop was found")
	}
}

// roomOf finds the room that a package belongs to: itself, or the nearest listed parent.
func roomOf(pkg string) string {
	for p := pkg; ; {
		if _, known := rooms[p]; known {
			return p
		}
		i := strings.LastIndexByte(p, '/')
		if i < 0 {
			return pkg
		}
		p = p[:i]
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	var pkgs []listed
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// spoken are the files below cmd/ that still name a command or a flag of eltrain in a text, with what about. The list only
// gets shorter.
var spoken = map[string]string{
	"elastic/server.go":           "an address in use",
	"job/address.go":              "a key without quotes",
	"job/agentargs.go":            "the agent's own command line, which is parsed here",
	"lang/foreign.go":             "what other languages have in files and eltrain on its command line",
	"lang/importer/elasticjob.go": "what an import leaves out",
	"lang/importer/importer.go":   "an import of nothing",
	"lang/importer/launcher.go":   "what an import leaves out",
	"lang/lang.go":                "a directory without files",
	"lang/variables.go":           "values of variables",
	"state/push.go":               "a state that is none",
}

// The planner gives codes: see job.Reason. Two words in a row are the beginning of a sentence.
func TestThePlannerWritesNoSentence(t *testing.T) {
	files, err := filepath.Glob("plan/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of plan: %v", err)
	}
	for _, path := range files {
		for _, text := range texts(t, path) {
			if !strings.HasSuffix(path, "_test.go") && regexp.MustCompile(`[[:alpha:]]{2,} [[:alpha:]]{2,}`).MatchString(text) {
				t.Errorf("%s has the text %q", path, text)
			}
		}
	}
}

// Only cmd/ speaks to people, so only there a command or a flag of eltrain has its name in a text.
func TestNoCommandIsNamedBelowCmd(t *testing.T) {
	named := commandLine(t)
	found := map[string]bool{}
	for _, pkg := range list(t) {
		room, ours := strings.CutPrefix(pkg.ImportPath, module)
		if !ours || strings.HasSuffix(room, "test") || !slices.Contains(below, strings.Split(room, "/")[0]) {
			continue
		}
		files, err := filepath.Glob(room + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, text := range texts(t, path) {
				name := named.FindString(text)
				if name == "" {
					continue
				}
				found[path] = true
				if spoken[path] == "" {
					t.Errorf("%s names %q in a text: %.80q", path, strings.TrimSpace(name), text)
				}
			}
		}
	}
	for path := range spoken {
		if !found[path] {
			t.Errorf("%s names no command any more: take it off the list", path)
		}
	}
}

// below are the rooms below cmd/.
var below = []string{"job", "lang", "plan", "elastic", "agent", "apply", "providers", "state", "kube", "internal"}

// commandLine finds what a user types: a command of eltrain, or a flag of one. docs/commands.md has the help of all.
func commandLine(t *testing.T) *regexp.Regexp {
	t.Helper()
	var commands, flags []string
	for _, help := range region.FindAllStringSubmatch(read(t, "docs/commands.md"), -1) {
		if help[1] == "commands" {
			for _, command := range regexp.MustCompile("(?m)^\\| .*?`(?:eltrain )?([a-z][a-z -]*[a-z])").FindAllStringSubmatch(help[2], -1) {
				commands = append(commands, command[1])
			}
		}
		for _, flag := range regexp.MustCompile("(?m)^\\| `-([a-z][a-z-]+)").FindAllStringSubmatch(help[2], -1) {
			flags = append(flags, flag[1])
		}
	}
	if len(commands) < 15 || len(flags) < 30 {
		t.Fatalf("docs/commands.md has %d commands and %d flags", len(commands), len(flags))
	}
	return regexp.MustCompile(`\beltrain (` + strings.Join(commands, "|") + `)\b|(^|[^\w-])--?(` + strings.Join(flags, "|") + `)\b`)
}

// texts are the strings of a file, but for the paths and the tags.
func texts(t *testing.T, path string) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
