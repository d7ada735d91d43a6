package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/shells"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/soak"
)

// interactiveShells are those that -install-autocomplete knows, with a user's settings: a prompt, and instead of eltrain a
// function that prints its arguments.
var interactiveShells = []struct{ name, file, settings string }{
	{"bash", ".bashrc", "PS1='ready> '\neltrain() { echo \"<$*>\"; }\n"},
	{"zsh", ".zshrc", "PS1='ready> '\neltrain() { echo \"<$*>\"; }\n"},
	{"fish", ".config/fish/config.fish", "function fish_prompt\n  echo -n 'ready> '\nend\nfunction fish_greeting\nend\nfunction eltrain\n  echo \"<$argv>\"\nend\n"},
}

// In real shells Tab completes commands, options, addresses and files after -install-autocomplete.
func TestCompletionInShells(t *testing.T) {
	soak.Only(t)
	for _, shell := range interactiveShells {
		t.Run(shell.name, func(t *testing.T) {
			path, err := exec.LookPath(shell.name)
			if err != nil {
				if os.Getenv("WITH_SHELLS") != "" {
					t.Fatalf("%s is needed here, `make deps` installs it: %v", shell.name, err)
				}
				t.Skipf("no %s here", shell.name)
			}
			home := t.TempDir()
			dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers, "prod.vars": "", "my é.vars": "", "nodes/a": ""})
			remember(t, filepath.Join(dir, workspace.DefaultState))
			settings := filepath.Join(home, shell.file)
			if err := os.MkdirAll(filepath.Dir(settings), 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, settings, shell.settings)
			// Without it a new fish parses all manual pages in the background, and keeps the terminal open.
			if err := os.MkdirAll(filepath.Join(home, ".local", "share", "fish", "generated_completions"), 0o755); err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(t.TempDir(), "it's my bin", shells.Program)
			if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(binary, program); err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "HISTFILE=", "LANG=C.UTF-8"}
			install := exec.Command(program, "-install-autocomplete")
			install.Dir, install.Env = dir, env
			if out, err := install.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := exec.Command(path, "-i")
			cmd.Dir, cmd.Env = dir, env
			sh := startShell(t, cmd)
			for begun, whole := range map[string]string{
				"prov":                  "providers",
				"plan -detailed":        "plan -detailed-exitcode",
				"plan -var-file pr":     "plan -var-file prod.vars",
				"plan -var-file=pr":     "plan -var-file=prod.vars",
				"plan -var-file my":     "plan -var-file my é.vars",
				"plan -var-file=my\\ é": "plan -var-file=my é.vars",
				"-chdir=no":             "-chdir=nodes/",
				"logs job.bi":           "logs job.big",
				"state pul":             "state pull",
				"-chdir=/ validate -j":  "-chdir=/ validate -json",
			} {
				sh.shows("ready> ")
				sh.types("eltrain " + begun + "\t\r")
				sh.shows("<" + whole + ">")
			}
			sh.shows("ready> ")
			sh.types("exit\r")
			sh.ends()
		})
	}
}

// interactive is a shell at a terminal.
type interactive struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *os.File
	ended  chan struct{} // closed when no process has the terminal open

	mu   sync.Mutex
	text bytes.Buffer // the output since the last match
}

func startShell(t *testing.T, cmd *exec.Cmd) *interactive {
	t.Helper()
	master, slave := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // its own terminal, as shells want it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	sh := &interactive{t: t, cmd: cmd, screen: master, ended: make(chan struct{})}
	go func() {
		defer close(sh.ended)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			sh.mu.Lock()
			sh.text.Write(b[:n])
			sh.mu.Unlock()
			if err != nil { // EIO when the last process releases the terminal
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		<-sh.ended
		master.Close()
	})
	return sh
}

func (sh *interactive) types(text string) {
	sh.t.Helper()
	if _, err := sh.screen.WriteString(text); err != nil {
		sh.t.Fatal(err)
	}
}

// shows waits until the screen has a text after the previous match.
func (sh *interactive) shows(want string) {
	sh.t.Helper()
	found := func() bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		at := strings.Index(sh.text.String(), want)
		if at >= 0 {
			sh.text.Next(at + len(want))
		}
		return at >= 0
	}
	for deadline := time.Now().Add(hang.Bound); !found(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			sh.t.Fatalf("the shell does not show %q, but %q", want, &sh.text)
		}
	}
}

func (sh *interactive) ends() {
	sh.t.Helper()
	select {
	case <-sh.ended:
	case <-time.After(hang.Bound):
		sh.t.Fatal("the shell does not end")
	}
}
