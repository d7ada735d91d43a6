package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// secretive is a job that uses its password in every possible way, and prints it when it fails.
const secretive = `
variable "token" {
  type      = string
  sensitive = true
}
variable "pem" {
  type      = string
  sensitive = true
}
variable "pin" {
  type      = number
  sensitive = true
}
variable "unused" {
  type      = string
  sensitive = true
}
job "s" {
  role "worker" {
    replicas   = 2
    command    = ["sh", "-c", "echo step 1 loss 1; while [ ! -e crash ]; do sleep 0.05; done; rm -f crash; echo \"bad token $TOKEN\" >&2; echo \"$PEM\" >&2; exit 3", "--token=${var.token}", var.pin]
    env        = { TOKEN = var.token, PEM = var.pem, HEADER = "Bearer ${var.token}", PIN = var.pin, ROOM = "${slot.index}-${var.token}" }
    stop_grace = "1s"
    resources { cpu = 0.1 }
  }
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  rendezvous { settle = "1s" }
}
`

// ofPrograms reports whether a file has output of training processes, which may contain their secrets.
func ofPrograms(path string) bool {
	return strings.Contains(path, "/.eltrain/logs/") || strings.HasSuffix(path, "/exit.json")
}

// In the whole life of a job eltrain writes no sensitive value: to no file, and in no command's output.
func TestNoSecretIsLeftBehind(t *testing.T) {
	const token, other = "s3cr3t-hunter2", "0ther-hunter3"
	const pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
	hidden := []string{token, other, "MIIEvQIBADANBgkqhkiG9w0B", "AQEFAASCBKcwggSjAgEAAoIB", "never-used-hunter4", "98765432", "filed-hunter5"}
	s := newSite(t, map[string]string{"job.hcl": secretive, "nodes.hcl": site.Nodes("n1", "n2")})
	set := func(value string) {
		t.Setenv("ELTRAIN_VAR_token", value)
		t.Setenv("ELTRAIN_VAR_pem", pem)
		t.Setenv("ELTRAIN_VAR_pin", "98765432")
		t.Setenv("ELTRAIN_VAR_unused", "never-used-hunter4")
	}
	set(token)
	t.Setenv("ELTRAIN_LOG", "debug")
	check := func(what, text string) {
		t.Helper()
		for _, h := range hidden {
			if at := strings.Index(text, h); at >= 0 {
				t.Errorf("%s has %q in it: …%s…", what, h, text[max(0, at-100):min(len(text), at+100)])
			}
		}
	}
	run := func(code int, args ...string) string {
		t.Helper()
		out, got := s.Run(args...)
		if got != code {
			t.Errorf("eltrain %v: exit code %d, want %d\n%s", args, got, code, out)
		}
		check(strings.Join(args, " "), out)
		return out
	}
	files := func(when string) {
		t.Helper()
		filepath.WalkDir(s.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || ofPrograms(path) {
				return nil
			}
			if filepath.Base(path) == "eltrain.vars" {
				return nil
			}
			if text, err := os.ReadFile(path); err == nil {
				check(when+": "+path, string(text))
			}
			return nil
		})
	}

	run(0, "validate", "-json")
	run(0, "plan", "-out=p", "-json-into=lines")
	run(0, "show", "p")
	run(0, "show", "-json", "p")
	run(0, "show", "-markdown", "p")
	files("planned")
	run(0, "apply", "-json", "p")
	run(0, "plan", "-detailed-exitcode")
	files("applied")
	for _, args := range [][]string{{"show"}, {"show", "-json"}, {"state", "pull"}, {"state", "show", "job.s"}, {"state", "show", "job.s.worker[*]"}, {"status"}, {"status", "-json"}, {"console"}, {"graph"}} {
		out := run(0, args...)
		if args[0] == "show" && !strings.Contains(out, "(sensitive value)") {
			t.Errorf("%v does not tell that something is hidden:\n%s", args, out)
		}
	}

	// Another value is a change, and the old one is not shown either.
	set(other)
	site.Has(t, run(2, "plan", "-detailed-exitcode"), "Plan: 2 to add, 0 to change, 2 to destroy.", "(sensitive value)")
	run(2, "plan", "-detailed-exitcode", "-json")
	set(token)

	// A process fails and prints its password: the evidence does not have it.
	m := s.Watch()
	before := s.Await("running", func(j site.Job) bool { return len(j.Running()) == 2 })
	s.Write("crash", "")
	s.Await("healed", func(j site.Job) bool { return len(j.Running()) == 2 && len(j.Incidents) > 0 })
	site.Kill(t, syscall.SIGKILL, before.Slot("worker[1]").AgentPID)
	s.Await("healed again", func(j site.Job) bool { return len(j.Running()) == 2 && len(j.Incidents) > 1 })
	out := run(0, "status", "-json")
	if !strings.Contains(out, "bad token (sensitive value)") {
		t.Errorf("the evidence does not say what the process wrote:\n%s", out)
	}
	run(0, "events")
	run(0, "events", "-json")
	run(0, "logs", "job.s")
	files("healed")
	s.Write("job.hcl", strings.Replace(secretive, "stop_grace = \"1s\"", "stop_grace = \"1s\"\n    nonsense = var.token", 1))
	m.AwaitOutput("nonsense")
	run(1, "plan")
	s.Write("job.hcl", secretive)
	// Nor does an error quote it from a half-edited file.
	for says, vars := range map[string]string{
		"does not match its type number":    "pin = \"filed-hunter5\"\n",
		"Missing newline after argument":    "unused = \"filed-hunter5\" x\n",
		"a constant. A string must be quot": "token = filed-hunter5\n",
	} {
		s.Write("eltrain.vars", vars)
		m.AwaitOutput(says)
		site.Has(t, run(1, "plan"), says, "eltrain.vars line 1")
		site.Has(t, run(1, "plan", "-json"), says)
		site.Has(t, run(1, "validate", "-json"), says)
	}
	s.Write("eltrain.vars", "tokken = \"filed-hunter5\"\n")
	site.Has(t, run(0, "plan", "-json"), "Value for an undeclared variable")
	site.Has(t, run(0, "validate", "-json"), "Value for an undeclared variable")
	files("misspelt")
	s.Write("eltrain.vars", "# none\n")
	set(other)
	text := m.Out.String()
	m.Kill()
	check("the master's output", text)
	run(0, "apply", "-auto-approve")
	files("changed")
	run(0, "destroy", "-auto-approve", "-json")
	files("destroyed")
	run(0, "events")
}

// A kept job that is not declared is not started with the seal of its password.
func TestAValueThatIsNotKnownStartsNothing(t *testing.T) {
	s := newSite(t, map[string]string{"job.hcl": secretive, "nodes.hcl": site.Nodes("n1", "n2")})
	for _, name := range []string{"token", "pem", "unused"} {
		t.Setenv("ELTRAIN_VAR_"+name, "hunter2-"+name)
	}
	t.Setenv("ELTRAIN_VAR_pin", "271828")
	s.Must("apply", "-auto-approve")
	before := s.Status()
	s.Write("job.hcl", "locals {}\n")
	m := s.Watch("-prune=false")
	s.Await("running", func(j site.Job) bool { return len(j.Running()) == 2 })
	site.Kill(t, syscall.SIGKILL, before.Slot("worker[1]").AgentPID)
	m.AwaitOutput("a sensitive value that it was declared with is no longer known")
	s.Write("job.hcl", secretive)
	s.Await("healed", func(j site.Job) bool {
		return len(j.Running()) == 2 && j.Slot("worker[1]").AgentPID != before.Slot("worker[1]").AgentPID
	})
}
