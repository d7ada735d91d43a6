package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/eltrain/eltrain/cmd/shells"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
)

// completions returns what the built eltrain offers a shell for a line.
func completions(t *testing.T, dir, line string) []string {
	t.Helper()
	cmd := exec.Command(binary, "eltrain", "", "eltrain") // bash also passes these arguments
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), completionLine+"="+line)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || problems.Len() > 0 {
		t.Fatalf("%q: %v\n%s", line, err, problems.String())
	}
	words := strings.Fields(string(out))
	slices.Sort(words)
	return words
}

func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"job.hcl": `job "a" { role "w" { command = ["true"] } }`, "prod.vars": "", "nodes/rack.txt": "", "nodes/.hidden": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remember(t, filepath.Join(dir, workspace.DefaultState))
	for line, want := range map[string]string{
		"eltrain pl":                             "plan",
		"eltrain prov":                           "providers",
		"eltrain providers ":                     "schema",
		"eltrain agen":                           "", // an internal command
		"eltrain -install":                       "-install-autocomplete",
		"eltrain plan -detailed":                 "-detailed-exitcode",
		"eltrain plan -":                         "*-out *-var *-var-file *-help *-no-color",
		"eltrain validate ":                      "",
		"eltrain plan -var-file p":               "prod.vars",
		"eltrain plan -var-file=p":               "prod.vars",
		"eltrain plan --var-file p":              "prod.vars",
		"eltrain plan -var ":                     "",
		"eltrain plan -out=no":                   "nodes/ nodes/rack.txt",
		"eltrain plan -out=job.h":                "job.hcl",
		"eltrain -ch":                            "-chdir= -chdir=../ -chdir=nodes/",
		"eltrain -chdir=n":                       "nodes/",
		"eltrain --chdir=n":                      "nodes/",
		"eltrain -chdir=nodes/ plan -out=r":      "rack.txt",
		"eltrain graph -plan j":                  "job.hcl",
		"eltrain status j":                       "job.a job.big",
		"eltrain signal USR":                     "USR1 USR2",
		"eltrain drain n":                        "n1 n2",
		"eltrain signal SIGHU":                   "SIGHUP",
		"eltrain signal USR1 job.b":              "job.big",
		"eltrain logs 'job.big.ps[":              "job.big.ps[0]", // already in quotes
		"eltrain logs job.b":                     "job.big",
		"eltrain logs job.big":                   "job.big job.big.ps job.big.worker",
		"eltrain logs job.big.ps":                `job.big.ps job.big.ps\[0\]`,
		"eltrain logs -f job.big.worker[1":       `job.big.worker\[1\]`,
		"eltrain -chdir=" + dir + " logs job.bi": "job.big",
		"eltrain -chdir=/missing/at/all logs j":  "",
		"eltrain frobnicate -":                   "*-help *-version",
	} {
		at := dir
		if strings.Contains(line, "-chdir="+dir) {
			at = os.TempDir()
		}
		got := completions(t, at, line)
		if strings.HasPrefix(want, "*") {
			for word := range strings.FieldsSeq(want) {
				if !slices.Contains(got, word[1:]) {
					t.Errorf("%q: %v has no %s", line, got, word[1:])
				}
			}
			continue
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", line, got, want)
		}
	}
}

// Text after the cursor is ignored. The cursor is counted in characters.
func TestCompletionIsAtTheCursor(t *testing.T) {
	t.Chdir(directoryWith(t, map[string]string{"é1.vars": "", "é2.vars": "", "é1.old": ""}))
	for _, c := range []struct{ before, behind, want string }{
		{"eltrain va", " -json", "validate\n"},
		{"eltrain plan -var-file é1.v", "", "é1.vars\n"},
		{"eltrain plan -var-file é1.v", "x", "é1.vars\n"},
	} {
		s := newScreenless("", completionLine+"="+c.before+c.behind, completionPoint+"="+strconv.Itoa(utf8.RuneCountInString(c.before)))
		if code := s.run(nil); code != exitDone || s.out.String() != c.want {
			t.Errorf("%q|%q: code %d, %q, want %q", c.before, c.behind, code, s.out.String(), c.want)
		}
	}
}

// bash inserts a completion after the last "="; other shells want the whole word, and quote it.
func TestCompletionIsAsTheShellTakesIt(t *testing.T) {
	t.Chdir(directoryWith(t, map[string]string{"my $1.vars": ""}))
	for _, c := range []struct{ line, bash, others string }{
		{"eltrain plan -var-file=m", `my\ \$1.vars`, "-var-file=my $1.vars"},
		{"eltrain plan -var-file m", `my\ \$1.vars`, "my $1.vars"},
		{`eltrain plan -var-file my\ `, `my\ \$1.vars`, "my $1.vars"},
		{`eltrain plan -var-file "my `, "my $1.vars", "my $1.vars"},
	} {
		for want, setting := range map[string]string{c.bash: "", c.others: shells.Whole + "=1"} {
			if c.bash == c.others {
				setting = ""
			}
			s := newScreenless("", completionLine+"="+c.line, setting)
			if code := s.run(nil); code != exitDone || s.out.String() != want+"\n" {
				t.Errorf("%s with %q: code %d, %q, want %q", c.line, setting, code, s.out.String(), want)
			}
		}
	}
}

// remember writes a state of two jobs.
func remember(t *testing.T, path string) {
	t.Helper()
	store, err := file.New(path, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := store.Lock(t.Context(), state.LockInfo{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	slot := func(role string, index int) job.Slot {
		return job.Slot{Address: job.Address{Job: "big", Role: role, Index: index}, Node: "n1"}
	}
	records := job.Records{
		"a":   {Spec: job.Job{Name: "a"}, UID: "a"},
		"big": {Spec: job.Job{Name: "big", Roles: []job.Role{{Name: "worker"}, {Name: "ps"}}}, UID: "b", Slots: []job.Slot{slot("worker", 0), slot("worker", 1), slot("ps", 0)}},
	}
	stored := state.State{}.Next(records)
	stored.Nodes = []job.NodeRecord{{Provider: "local", Name: "n2"}}
	if err := store.Write(t.Context(), stored, lock); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Every placeholder in a usage has a predictor, or is known not to be completable.
func TestCompletionKnowsTheWordsOfUsages(t *testing.T) {
	known := newScreenless("").predictors()
	free := []string{"COMMAND", "SUBCOMMAND", "LOCK", "ID", "SIZE"}
	for _, c := range allCommands() {
		for _, word := range usageWords(c.usage) {
			if !slices.Contains(free, word) && known[word] == nil {
				t.Errorf("%s: nothing completes %s: add it to predictors", c.name, word)
			}
		}
	}
}

// The files that change are listed, once. Whether they are what shells expect is TestCompletionInShells's.
func TestCompletionIsInstalledAndRemoved(t *testing.T) {
	home := directoryWith(t, map[string]string{".bashrc": ""})
	at := func(home, option string) *screenless {
		s := newScreenless("", "HOME="+home)
		s.run([]string{option})
		return s
	}
	for _, option := range []string{installOption, "-" + uninstallOption} {
		for _, want := range []string{"Changed " + filepath.Join(home, ".bashrc") + ".\nThe next shell that starts uses it.\n", "Nothing to change.\n"} {
			if s := at(home, option); s.out.String() != want || s.err.Len() > 0 {
				t.Errorf("%s: %s%s, want %s", option, &s.out, &s.err, want)
			}
		}
	}
	if s := at(t.TempDir(), installOption); !strings.Contains(s.err.String(), "o settings of bash, zsh or fish") {
		t.Errorf("without a shell: %s", &s.err)
	}
}

// Global options take effect all together or not at all.
func TestGlobalOptions(t *testing.T) {
	for args, want := range map[string]globals{
		"":                             {},
		"-v --help":                    {version: true, help: true},
		"-help plan":                   {help: true},
		"--install-autocomplete":       {install: true},
		"-uninstall-autocomplete -h":   {uninstall: true, help: true},
		"plan -uninstall-autocomplete": {},
	} {
		got, err := readLine(strings.Fields(args), allCommands()).readGlobals()
		if err != nil || got != want {
			t.Errorf("%q gives %+v, %v; want %+v", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"---uninstall-autocomplete":                       "Unknown global flag ---uninstall-autocomplete",
		"-install-autocomplete -bogus":                    "Unknown global flag -bogus",
		"-version -bogus":                                 "Unknown global flag -bogus",
		"-install-autocomplete plan":                      "do not take a command",
		"-install-autocomplete -uninstall-autocomplete":   "cannot be used together",
		"--uninstall-autocomplete --install-autocomplete": "cannot be used together",
	} {
		home := directoryWith(t, map[string]string{".bashrc": ""})
		s := newScreenless("", "HOME="+home)
		if code := s.run(strings.Fields(args)); code != exitError || !strings.Contains(s.err.String(), want) {
			t.Errorf("%q: code %d, %s, want %q", args, code, &s.err, want)
		}
		if text := read(t, filepath.Join(home, ".bashrc")); text != "" {
			t.Errorf("after %q .bashrc is %q", args, text)
		}
	}
}
