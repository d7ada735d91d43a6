package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/hang"
)

const consoleJobs = `
variable "n" {
  type    = number
  default = 4
}
variable "token" {
  type      = string
  default   = "hunter22"
  sensitive = true
}
job "gpt" {
  role "worker" {
    replicas   = var.n
    command    = ["python3", "train.py", var.token]
    depends_on = [role.ps]
  }
  role "ps" {
    replicas = ceil(role.worker.replicas / 4)
    command  = ["python3", "ps.py"]
    ranked   = false
  }
}
`

// jobDir makes a directory with a job file the working directory.
func jobDir(t *testing.T, text string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("job.hcl", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestConsoleFromAPipe(t *testing.T) {
	for name, c := range map[string]struct {
		input, out, err string
		args            []string
		code            int
	}{
		"one":           {input: "var.n + 1", out: "5\n"},
		"each line":     {input: "var.n\n\n1 < 2\n", out: "4\ntrue\n"},
		"several lines": {input: "[\n  1,\n  var.n,\n]\n", out: "[\n  1,\n  4,\n]\n"},
		"a job":         {input: "job.gpt.role.ps.replicas\n", out: "1\n"},
		"a variable":    {input: "var.n\n", args: []string{"-var", "n=9"}, out: "9\n"},
		"a secret":      {input: "var.token\nupper(var.token)\njob.gpt.role.worker.command[2]\n", out: strings.Repeat("(sensitive value)\n", 3)},
		"exit":          {input: "1\nexit\nvar.wrong\n", out: "1\n"},
		"help":          {input: "help\n", out: consoleHelp + "\n"},
		"nothing":       {input: ""},
		"an error ends": {input: "1\nvar.m\n2\n", out: "1\n", err: `Did you mean "n"?`, code: exitError},
		"an open end":   {input: "[1,\n", err: "<console-input>", code: exitError},
		"no end":        {input: "[\n" + strings.Repeat("1,\n", 5000), err: "longer than 1000 lines", code: exitError},
		"an argument":   {args: []string{"1"}, err: "not expected", code: exitError},
	} {
		t.Run(name, func(t *testing.T) {
			jobDir(t, consoleJobs)
			s := newScreenless(c.input)
			code := s.run(append([]string{"console"}, c.args...))
			if code != c.code || s.out.String() != c.out || !strings.Contains(s.err.String(), c.err) || c.err == "" && s.err.Len() > 0 {
				t.Errorf("exit code %d, output\n%s\nerrors\n%s", code, s.out.String(), s.err.String())
			}
		})
	}
}

func TestConsoleWantsValidFiles(t *testing.T) {
	jobDir(t, "job \"a\" {\n  role \"w\" {}\n}\n")
	s := newScreenless("1\n")
	if code := s.run([]string{"console"}); code != exitError || s.out.Len() > 0 || !strings.Contains(s.err.String(), "command") {
		t.Errorf("exit code %d, %s%s", code, s.out.String(), s.err.String())
	}
}

// Functions work without any files.
func TestConsoleNeedsNoFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newScreenless("1+1\nmax(3, 4)\n")
	if code := s.run([]string{"console"}); code != exitDone || s.out.String() != "2\n4\n" || s.err.Len() > 0 {
		t.Errorf("exit code %d, %s%s", code, s.out.String(), s.err.String())
	}
}

// At a terminal the console continues after an error, an expression may continue in the next line, and Ctrl-D ends it.
func TestConsoleAtATerminal(t *testing.T) {
	jobDir(t, consoleJobs)
	keys, screen := openTerminal(t)
	defer keys.Close()
	defer screen.Close()
	s := newScreenless("")
	s.streams.In, s.streams.Interactive = screen, true
	s.streams.Out = view.Screen{Writer: io.MultiWriter(&s.out, screen)}
	codes := make(chan int, 1)
	go func() { codes <- s.run([]string{"console"}) }()
	for _, typed := range []string{"var.m\r", "[var.n,\r", "2]\r", "1 +\x7f+ 1\r", "\x04"} {
		readPrompt(t, keys)
		if _, err := keys.WriteString(typed); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case code := <-codes:
		if code != exitDone {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(hang.Bound):
		t.Fatal("Ctrl-D does not end the console")
	}
	if text := s.out.String(); !strings.Contains(text, "[\n  4,\n  2,\n]\n") || !strings.Contains(text, "\n2\n") {
		t.Errorf("it answers\n%s", text)
	}
	if !strings.Contains(s.err.String(), "Unknown variable") {
		t.Errorf("of the mistake it says %q", s.err.String())
	}
}

// readPrompt waits until a prompt is shown.
func readPrompt(t *testing.T, keys *os.File) {
	t.Helper()
	shown := make([]byte, 4096)
	var all strings.Builder
	for !strings.HasSuffix(all.String(), "> ") && !strings.HasSuffix(all.String(), ": ") {
		if err := keys.SetReadDeadline(time.Now().Add(hang.Bound)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
			t.Fatal(err)
		}
		n, err := keys.Read(shown)
		if err != nil {
			t.Fatalf("%v after %q", err, all.String())
		}
		all.Write(shown[:n])
	}
}
