package eltrain_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
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

// rooms says which of our packages each room may import, by prefix. A new room must be added here.
var rooms = map[string][]string{
	"job":                    {},
	"lang":                   {"job", "incident", "progress", "scaling", "signature", "internal/regular", "internal/sourcefiles"},
	"lang/importer":          {"job", "lang"},
	"progress":               {"job", "internal/jsonlist", "internal/literals"},
	"signature":              {"job", "internal/jsonlist", "internal/literals"},
	"incident":               {"job"},
	"goodput":                {"job"},
	"scaling/model":          {},
	"scaling":                {"job"},
	"plan":                   {"job", "incident", "goodput", "scaling", "scaling/model", "signature"},
	"history":                {"job"},
	"detect":                 {"job"},
	"checkpoint":             {"job"},
	"nodecheck":              {"job"},
	"nodecheck/probe":        {"job"},
	"elastic":                {"job", "detect", "history", "nodecheck", "internal/connlimit", "internal/regular"},
	"agent":                  {"job", "elastic", "history", "checkpoint", "nodecheck/probe", "progress", "internal/atomicfile", "internal/execsocket", "internal/logmarks", "internal/regular"}, // elastic: wire types and client
	"state":                  {"job", "conditions", "internal/atomicfile", "internal/regular"},
	"state/statetest":        {"job", "conditions", "state", "internal/hang"},
	"state/memory":           {"job", "state"},
	"state/file":             {"job", "state", "internal/atomicfile", "internal/regular"},
	"providers":              {"job"},
	"providers/providertest": {"job", "providers", "internal/hang", "internal/logmarks"},
	"providers/podtest":      {"job", "providers", "testbed"},
	"providers/local":        {"job", "providers", "internal/atomicfile", "internal/execsocket", "internal/logmarks", "internal/regular"},
	"providers/sim":          {"job", "providers", "elastic", "internal/virtual"}, // its agents use the service's wire types
	"providers/volcano":      {"job", "providers", "providers/kubernetes", "kube"},
	"providers/kubernetes":   {"job", "providers", "kube", "internal/sourcefiles"},
	"state/kubernetes":       {"job", "state", "kube"},
	"kube":                   {},
	"internal/atomicfile":    {},
	"internal/connlimit":     {},
	"internal/execsocket":    {},
	"internal/regular":       {"job"},
	"internal/jsonlist":      {},
	"internal/literals":      {},
	"internal/logmarks":      {"internal/regular"},
	"internal/confine":       {},
	"internal/sourcefiles":   {},
	"internal/garbage":       {},
	"internal/virtual":       {},
	"faults":                 {"job"},
	"outcome":                {"job"},
	"simulate/host":          {"job", "elastic", "apply"},
	"simulate":               {"job", "elastic", "providers", "apply", "scaling/model", "faults", "outcome", "simulate/host", "internal/virtual"},
	"internal/trainlog":      {}, // for tests and benchmarks
	"internal/loopback":      {}, // for tests
	"internal/soak":          {}, // for tests
	"internal/hang":          {}, // for tests
	"internal/filetest":      {}, // for tests
	"internal/trusting":      {}, // for tests
	"conditions":             {"job"},
	"notify":                 {"job", "internal/command", "internal/hang"},
	"sources":                {"job", "internal/command"},
	"internal/command":       {},
	"apply":                  {"job", "conditions", "goodput", "plan", "scaling", "elastic", "history", "providers", "state", "internal/atomicfile", "internal/regular"},
	"cmd/view":               {"job", "signature", "incident", "conditions", "detect", "plan", "scaling", "elastic", "history", "apply", "state"},
	"apply/replay":           {"job", "plan", "state", "apply"},
	"cmd/planfile":           {"job", "lang", "plan", "cmd/view", "internal/atomicfile", "internal/regular"},
	"cmd/workspace":          {"job", "lang", "plan", "apply", "providers", "state", "kube", "cmd/view", "cmd/planfile", "internal/confine", "internal/regular"},
	"cmd/metrics":            {"job", "elastic", "apply", "plan", "conditions", "state", "cmd/view", "internal/connlimit"},
	"cmd/master":             {"job", "lang", "plan", "elastic", "apply", "notify", "providers", "sources", "state", "cmd/metrics", "cmd/view", "cmd/workspace", "internal/regular"},
	"cmd/eltrain-agent":      {"job", "agent", "internal/atomicfile"},
	"cmd/shells":             {"internal/atomicfile"},
	"cmd/output":             {"cmd/view", "internal/regular"},
	"cmd/terminal":           {"providers"},
	"cmd/formatter":          {"lang", "cmd/output", "cmd/view", "internal/atomicfile", "internal/regular"},
	"cmd/ask":                {"job", "plan", "apply", "state", "cmd/view", "cmd/workspace"},
	"cmd/preview":            {"job", "lang", "plan", "apply", "providers", "state", "cmd/view", "cmd/planfile", "cmd/workspace"},
	"cmd/slots":              {"job", "providers", "cmd/logs", "cmd/view", "cmd/workspace"},
	"cmd/foreground":         {"job", "lang", "plan", "apply", "state", "cmd/view", "cmd/logs", "cmd/master", "cmd/preview"},
	"cmd/events":             {"job", "state"},
	"cmd/logs":               {"job", "apply", "conditions", "providers", "cmd/view"},
	"cmd/eltrain":            {"job", "lang", "plan", "agent", "conditions", "apply", "providers", "state", "cmd/view", "cmd/logs", "cmd/planfile", "cmd/workspace", "cmd/master", "cmd/shells", "cmd/output", "cmd/terminal", "cmd/formatter", "cmd/ask", "cmd/preview", "cmd/slots", "cmd/foreground", "cmd/events", "internal/garbage", "internal/regular"},
	"job/jobtest":            {"job"},
	"examples":               {},
	"deploy":                 {},
	"e2e":                    {"e2e/site", "e2e/heal"},
	"e2e/site":               {"internal/trainlog", "internal/hang"}, // shared by all of e2e
	"e2e/heal":               {"e2e/site", "internal/loopback"},
	"e2e/podsite":            {"e2e/site", "e2e/heal", "testbed"}, // shared by the next three
	"e2e/faults":             {"testbed", "e2e/site", "e2e/podsite"},
	"e2e/kubernetes":         {"testbed", "e2e/site", "e2e/podsite", "e2e/heal"},
	"e2e/volcano":            {"testbed", "e2e/site", "e2e/podsite", "e2e/heal"},
	"bench/internal/report":  {},
	"bench":                  {"bench/internal", "job", "plan", "elastic", "agent", "lang", "state", "providers", "apply", "testbed", "internal/trainlog"},
}

// unreachable lists packages that a room must not import even indirectly: the planner and the language do no I/O beyond
// reading files.
var unreachable = map[string][]string{
	"job":      {"net/http", "os/exec", "k8s.io/"},
	"plan":     {"net/http", "os/exec", "k8s.io/"},
	"incident": {"net/http", "os/exec", "k8s.io/"},
	"lang":     {"net/http", "os/exec", "k8s.io/"},

	"detect":    {"net/http", "os/exec", "k8s.io/"},
	"goodput":   {"net/http", "os/exec", "k8s.io/"},
	"progress":  {"net/http", "os/exec", "k8s.io/"},
	"scaling":   {"net/http", "os/exec", "k8s.io/"},
	"signature": {"net/http", "os/exec", "k8s.io/"},

	"scaling/model": {"net/http", "os/exec", "k8s.io/"},

	"checkpoint": {"net/http", "os/exec", "k8s.io/"},
	"nodecheck":  {"net/http", "os/exec", "k8s.io/"},

	"lang/importer": {"net/http", "os/exec", "k8s.io/"},

	// For the cost of these two at startup see docs/decisions.md.
	"cmd/eltrain": {"job", "lang", "plan", "agent", "conditions", "apply", "providers", "state", "cmd/view", "cmd/logs", "cmd/planfile", "cmd/workspace", "cmd/master", "cmd/shells", "cmd/output", "cmd/terminal", "cmd/formatter", "cmd/ask", "cmd/preview", "cmd/slots", "cmd/foreground", "cmd/events", "internal/garbage", "internal/regular"},
}

// impure lists what the planner must not import directly: it must be a pure function.
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

// The planner does not read the clock: time is an argument.
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
			t.Errorf("%s reads the clock", file)
		}
	}
}

// The Loop is a value: no clock, goroutine, channel, lock, file or context. Only the files in outside may use them.
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

// Types of apply have at most 20 fields and 40 methods.
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

// roomOf returns the room of a package: itself, or the nearest listed parent.
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

// The planner and the loop return codes, see job.Reason, not sentences; errors and logs have texts. Two consecutive words count
// as a sentence.
func TestOnlyTheViewWritesSentences(t *testing.T) {
	said := regexp.MustCompile(`\.(Errorf|New|Debug|Info|Warn|Error)$`)
	for _, room := range []string{"plan", "apply", "conditions"} {
		files, err := filepath.Glob(room + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", room, err)
		}
		for _, path := range files {
			for _, text := range texts(t, path, said) {
				if !strings.HasSuffix(path, "_test.go") && regexp.MustCompile(`[[:alpha:]]{2,} [[:alpha:]]{2,}`).MatchString(text) {
					t.Errorf("%s has the text %q", path, text)
				}
			}
		}
	}
}

// Only cmd/ writes texts for users, so only there may strings name commands or flags of eltrain.
func TestNoCommandIsNamedBelowCmd(t *testing.T) {
	named := commandLine(t)
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
			for _, text := range texts(t, path, nil) {
				if name := named.FindString(text); name != "" {
					t.Errorf("%s names %q in a text: %.80q", path, strings.TrimSpace(name), text)
				}
			}
		}
	}
}

// below lists the rooms in the layers below cmd/.
var below = []string{"job", "progress", "signature", "lang", "plan", "history", "scaling", "elastic", "agent", "conditions", "apply", "notify", "providers", "state", "kube", "internal"}

// commandLine returns a pattern for commands and flags of eltrain, which it reads from docs/commands.md and docs/api.md.
func commandLine(t *testing.T) *regexp.Regexp {
	t.Helper()
	var commands, flags []string
	for _, help := range region.FindAllStringSubmatch(read(t, "docs/commands.md")+read(t, "docs/api.md"), -1) {
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

// texts returns the string literals of a file, except import paths, struct tags, and the arguments of calls that match except.
func texts(t *testing.T, path string, except *regexp.Regexp) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.CallExpr:
			return except == nil || !except.MatchString(types.ExprString(n.Fun))
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
