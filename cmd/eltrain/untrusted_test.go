package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/internal/filetest"
)

// checkout makes a repository with a job directory that uses a module beside it, and returns the latter.
func checkout(t *testing.T, hcl string) (dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "repository", "jobs")
	filetest.Put(t, filepath.Join(top, "repository", ".git", "config"), "token")
	filetest.Put(t, filepath.Join(top, "elsewhere", "word.txt"), "secret word")
	filetest.Put(t, filepath.Join(top, "elsewhere", "module", "m.hcl"), `output "x" { value = 1 }`)
	filetest.Put(t, filepath.Join(top, "repository", "base", "b.hcl"), `output "x" { value = file("said.txt") }`)
	filetest.Put(t, filepath.Join(top, "repository", "base", "said.txt"), "hi")
	filetest.Put(t, filepath.Join(dir, "main.hcl"), "module \"base\" { source = \"../base\" }\n"+hcl)
	filetest.Link(t, filepath.Join("..", "..", "elsewhere", "word.txt"), filepath.Join(dir, "linked.txt"))
	filetest.Link(t, filepath.Join("..", "base", "said.txt"), filepath.Join(dir, "inner.txt"))
	t.Chdir(dir)
	return dir
}

// What a pull request can have a pipeline read or run, it can have it show.
func TestUntrustedFilesLeaveNoCheckout(t *testing.T) {
	const widen = "Use -root=PATH"
	for name, c := range map[string]struct {
		hcl     string
		refused string // "" if it is allowed
	}{
		"a file within":            {hcl: `output "o" { value = file("inner.txt") }`},
		"the environment":          {`output "o" { value = file("/proc/self/environ") }`, "main.hcl line 2"},
		"a relative path":          {`output "o" { value = file("../../elsewhere/word.txt") }`, "main.hcl line 2"},
		"a link":                   {`output "o" { value = file("linked.txt") }`, "main.hcl line 2"},
		"a template":               {`output "o" { value = templatefile("linked.txt", {}) }`, "main.hcl line 2"},
		"whether a file is there":  {`output "o" { value = fileexists("/etc/passwd") }`, "main.hcl line 2"},
		"git's directory":          {`output "o" { value = file("../.git/config") }`, "main.hcl line 2"},
		"a module":                 {`module "m" { source = "../../elsewhere/module" }`, "main.hcl line 2"},
		"the state":                {"eltrain {\n  state \"file\" { path = \"../../elsewhere/word.txt\" }\n}", "main.hcl line 3"},
		"a kubeconfig":             {`provider "kubernetes" { kubeconfig = "../../elsewhere/word.txt" }`, "main.hcl line 2"},
		"a caught refusal":         {`output "o" { value = try(file("/etc/passwd"), "none") }`, "Untrusted files"},
		"a doubted refusal":        {`output "o" { value = can(file("linked.txt")) }`, "Untrusted files"},
		"a caught template":        {`output "o" { value = try(templatefile("/etc/passwd", {}), "none") }`, "Untrusted files"},
		"a caught existence":       {`output "o" { value = can(fileexists("/etc/passwd")) ? "one" : "other" }`, "Untrusted files"},
		"a file in a check":        {"check \"c\" {\n  assert {\n    condition     = file(\"/etc/passwd\") == \"\"\n    error_message = \"no\"\n  }\n}", "Untrusted files"},
		"a kubeconfig of the home": {`provider "kubernetes" { kubeconfig = "~/.kube/config" }`, "main.hcl line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			checkout(t, c.hcl)
			for _, command := range [][]string{{"validate"}, {"plan"}} {
				s := newScreenless("", "CI=true")
				code := s.run(command)
				said := strings.Join(strings.Fields(s.err.String()), " ")
				if c.refused == "" && code != exitDone || c.refused != "" && (code != exitError || !strings.Contains(said, c.refused) || !strings.Contains(said, widen)) {
					t.Errorf("%v: exit code %d\n%s", command, code, s.err.String())
				}
				if strings.Contains(said+s.out.String(), "secret word") {
					t.Errorf("%v shows the file", command)
				}
			}
		})
	}
}

func TestWhoTrustsTheFilesSaysSo(t *testing.T) {
	const outside = `output "o" { value = file("linked.txt") }`
	for name, c := range map[string]struct {
		environ string
		args    []string
		code    int
	}{
		"at a terminal":       {"", nil, exitDone},
		"no pipeline":         {"CI=false", nil, exitDone},
		"a pipeline":          {"CI=1", nil, exitError},
		"distrusted":          {"", []string{"-untrusted"}, exitError},
		"a trusting pipeline": {"CI=true", []string{"-untrusted=false"}, exitDone},
		"a further directory": {"CI=true", []string{"-root=../../elsewhere"}, exitDone},
		"a further file":      {"CI=true", []string{"-root=../../elsewhere/word.txt"}, exitDone},
		"another one":         {"CI=true", []string{"-root=../base"}, exitError},
	} {
		t.Run(name, func(t *testing.T) {
			checkout(t, outside)
			s := newScreenless("", c.environ)
			if code := s.run(append([]string{"validate"}, c.args...)); code != c.code {
				t.Errorf("exit code %d\n%s", code, s.err.String())
			}
		})
	}
}

// A link in the place of a file is no way out either.
func TestAnUntrustedLinkForAFileIsNotRead(t *testing.T) {
	dir := checkout(t, "")
	filetest.Link(t, filepath.Join("..", "..", "elsewhere", "word.txt"), filepath.Join(dir, "more.hcl"))
	s := newScreenless("", "CI=true")
	if code := s.run([]string{"validate"}); code != exitError || !strings.Contains(s.err.String(), "more.hcl") || strings.Contains(s.err.String(), "secret word") {
		t.Errorf("exit code %d\n%s", code, s.err.String())
	}
}

// Nor does a command run one that only looks at the state.
func TestAStateOfTheCheckoutRunsNothing(t *testing.T) {
	dir := checkout(t, "eltrain {\n  state \"kubernetes\" {\n    name       = \"s\"\n    kubeconfig = \"kubeconfig\"\n  }\n}\n")
	filetest.Put(t, filepath.Join(dir, "kubeconfig"), `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, touch ran], interactiveMode: Never}}}]
`)
	for _, command := range []string{"status", "logs job.a", "output", "state list", "state pull", "show", "plan"} {
		s := newScreenless("", "CI=true")
		if code := s.run(strings.Fields(command)); code != exitError || !strings.Contains(s.err.String(), "a plugin") {
			t.Errorf("%s: exit code %d\n%s", command, code, s.err.String())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the plugin was run")
	}
}

// The plugin of a kubeconfig is a program that the checkout chooses, and a token file one that it sends to its own server.
func TestAKubeconfigOfTheCheckoutRunsNothing(t *testing.T) {
	const configured = `provider "kubernetes" {
  namespace  = "ml"
  kubeconfig = "kubeconfig"
}
job "a" {
  provider = "kubernetes"
  role "worker" {
    image   = "i"
    command = ["c"]
  }
}
`
	for name, c := range map[string]struct{ user, refused string }{
		"a plugin":   {"exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}", "plugin"},
		"a file":     {"tokenFile: ../../elsewhere/word.txt", "word.txt"},
		"of neither": {"token: t", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkout(t, configured)
			filetest.Put(t, filepath.Join(dir, "kubeconfig"), `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {`+c.user+`}}]
`)
			filetest.Put(t, filepath.Join(dir, "plugin"), "#!/bin/sh\ntouch "+filepath.Join(dir, "ran")+"\n")
			if err := os.Chmod(filepath.Join(dir, "plugin"), 0o755); err != nil {
				t.Fatal(err)
			}
			commands := [][]string{{"validate"}}
			if c.refused != "" { // else they wait for a cluster
				commands = append(commands, []string{"plan"}, []string{"plan", "-destroy"}, []string{"status"}, []string{"logs", "job.a"})
			}
			for _, command := range commands {
				s := newScreenless("", "CI=true")
				code := s.run(command)
				said := strings.Join(strings.Fields(s.err.String()), " ")
				placed := strings.Contains(said, "main.hcl line 4") || command[0] == "status" // its child returns no sources of what it refuses
				if c.refused == "" && code != exitDone || c.refused != "" && (code != exitError || !strings.Contains(said, c.refused) || !placed) {
					t.Errorf("%v: exit code %d\n%s", command, code, s.err.String())
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("the plugin ran")
			}
		})
	}
}
