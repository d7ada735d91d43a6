package eltrain_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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
	"plan":                   {"job"},
	"elastic":                {"job"},
	"agent":                  {"job", "elastic"}, // elastic: the wire types and the client
	"state":                  {"job"},
	"state/statetest":        {"job", "state"},
	"state/memory":           {"job", "state"},
	"state/file":             {"job", "state"},
	"providers":              {"job"},
	"providers/providertest": {"job", "providers"},
	"providers/local":        {"job", "providers"},
	"providers/sim":          {"job", "providers", "elastic"}, // its agents speak the service's language
	"apply":                  {"job", "plan", "elastic", "providers", "state"},
	"cmd/view":               {"job", "plan", "apply", "state"},
	"cmd/eltrain":            {"job", "lang", "plan", "elastic", "agent", "apply", "providers", "state", "cmd/view"},
	"job/jobtest":            {"job"},
	"examples":               {},
	"e2e":                    {},
	"bench":                  {"job", "plan", "elastic", "agent", "lang", "state", "providers", "apply"},
}

// forbidden lists what a room must not reach, not even through others: plan and lang decide and read, they
// ask nobody.
var forbidden = map[string][]string{
	"job":  {"net/http", "os/exec", "k8s.io/"},
	"plan": {"net/http", "os/exec", "k8s.io/", "os"},
	"lang": {"net/http", "k8s.io/"},
}

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
			for _, bad := range forbidden[room] {
				if dep == bad && bad != "os" || strings.HasSuffix(bad, "/") && strings.HasPrefix(dep, bad) {
					t.Errorf("%s reaches %s", room, dep)
				}
			}
		}
		if room == "plan" && (slices.Contains(pkg.Imports, "os") || slices.Contains(pkg.Imports, "math/rand")) {
			t.Errorf("plan imports what makes it impure: %v", pkg.Imports)
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
