package eltrain_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/eltrain/eltrain/"

// rooms says which of our packages each room may import, by prefix. What is not listed here is a new room
// and has to be given its place.
var rooms = map[string][]string{
	"job":                    {},
	"lang":                   {"job"},
	"lang/importer":          {"job", "lang"},
	"plan":                   {"job"},
	"elastic":                {"job"},
	"agent":                  {"job", "elastic", "internal/atomicfile"}, // elastic: the wire types and the client
	"state":                  {"job", "internal/atomicfile"},
	"state/statetest":        {"job", "state"},
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
	"apply":                  {"job", "plan", "elastic", "providers", "state", "internal/atomicfile"},
	"cmd/view":               {"job", "plan", "apply", "state"},
	"cmd/planfile":           {"job", "lang", "plan", "cmd/view", "internal/atomicfile"},
	"cmd/eltrain-agent":      {"job", "agent", "internal/atomicfile"},
	"cmd/eltrain":            {"job", "lang", "plan", "elastic", "agent", "apply", "providers", "state", "kube", "cmd/view", "cmd/planfile", "internal/atomicfile"},
	"job/jobtest":            {"job"},
	"examples":               {},
	"deploy":                 {},
	"e2e":                    {"internal/trainlog"},
	"e2e/site":               {"testbed", "internal/trainlog", "internal/hang"}, // what the next three share
	"e2e/faults":             {"testbed", "e2e/site"},
	"e2e/kubernetes":         {"testbed", "e2e/site"},
	"e2e/volcano":            {"testbed", "e2e/site"},
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
