package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// homeWith makes a home directory with these files, one of which others may read.
func homeWith(t *testing.T, files map[string]string) string {
	t.Helper()
	home := t.TempDir()
	for name, text := range files {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// atHome runs a program with this home, and returns its output.
func atHome(t *testing.T, home, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "ZDOTDIR=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// holds fails unless a home's files are exactly these.
func holds(t *testing.T, when, home string, want map[string]string) {
	t.Helper()
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(home, name))
		if err != nil || string(got) != text {
			t.Errorf("%s %s is %q, want %q (%v)", when, name, got, text, err)
		}
	}
}

var fishFile = filepath.Join(".config", "fish", "completions", "eltrain.fish")

// -install-autocomplete writes its settings once, however often it is run, and keeps the user's own.
func TestCompletionIsInstalledAndRemoved(t *testing.T) {
	before := map[string]string{
		".bashrc":                  "alias ll='ls -l'\nexport A=1", // no final newline
		".profile":                 "umask 022\n",                  // bash prefers .bashrc
		"dotfiles":                 "setopt autocd\n",
		".config/fish/config.fish": "",
	}
	home := homeWith(t, before)
	if err := os.Symlink("dotfiles", filepath.Join(home, ".zshrc")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Changed " + filepath.Join(home, ".bashrc") + ".\n", "Nothing to change.\n"} {
		out, err := atHome(t, home, binary, "-install-autocomplete")
		if err != nil || !strings.HasPrefix(out, want) || strings.Contains(out, ".profile") {
			t.Fatalf("%v\n%s, want %s", err, out, want)
		}
		holds(t, "installed,", home, map[string]string{
			".bashrc": before[".bashrc"] + "\ncomplete -C " + binary + " eltrain\n", ".profile": before[".profile"],
			"dotfiles": before["dotfiles"] + zshBegins + binary + zshEnds + "\n",
		})
	}
	if text, err := os.ReadFile(filepath.Join(home, fishFile)); err != nil || !strings.Contains(string(text), "    "+binary+"\n") {
		t.Errorf("of fish: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(home, ".zshrc")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf(".zshrc is no longer a link: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(home, ".bashrc")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the permissions of .bashrc: %v, %v", info, err)
	}
	for _, want := range []string{"Changed " + filepath.Join(home, ".bashrc") + ".\n", "Nothing to change.\n"} {
		if out, err := atHome(t, home, binary, "--uninstall-autocomplete"); err != nil || !strings.HasPrefix(out, want) {
			t.Fatalf("%v\n%s, want %s", err, out, want)
		}
		holds(t, "removed,", home, map[string]string{".bashrc": before[".bashrc"] + "\n", "dotfiles": before["dotfiles"]})
	}
	if _, err := os.Stat(filepath.Join(home, fishFile)); !os.IsNotExist(err) {
		t.Errorf("fish has it still: %v", err)
	}
	home = t.TempDir()
	if out, err := atHome(t, home, binary, "-install-autocomplete"); err == nil || !strings.Contains(out, "o settings of bash, zsh or fish") {
		t.Errorf("without a shell: %v\n%s", err, out)
	}
}

// A moved eltrain replaces the old path, and any eltrain removes what another has written, in any file of bash.
func TestCompletionOfAnotherEltrain(t *testing.T) {
	const old = "complete -C '\\''/opt/old bin/eltrain'\\'' eltrain\n"
	zshOld := zshBegins + "'/opt/old bin/eltrain'" + zshEnds + "\n"
	const others = "complete -C /usr/bin/terraform terraform\n"
	files := map[string]string{".bashrc": others + old + "A=1\n" + old, ".profile": old, ".zshrc": zshOld + "A=1\n"}
	home := homeWith(t, files)
	if out, err := atHome(t, home, binary, "-install-autocomplete"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	holds(t, "installed,", home, map[string]string{
		".bashrc": others + "complete -C " + binary + " eltrain\nA=1\n", ".profile": "", ".zshrc": zshBegins + binary + zshEnds + "\nA=1\n",
	})
	home = homeWith(t, files)
	if out, err := atHome(t, home, binary, "-uninstall-autocomplete"); err != nil || strings.Count(out, "Changed ") != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	holds(t, "removed,", home, map[string]string{".bashrc": others + "A=1\n", ".profile": "", ".zshrc": "A=1\n"})
}

// zsh's settings are in ZDOTDIR.
func TestCompletionIsInZdotdir(t *testing.T) {
	home := homeWith(t, map[string]string{".zshrc": "", "zsh/.zshrc": ""})
	cmd := exec.Command(binary, "-install-autocomplete")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "ZDOTDIR="+filepath.Join(home, "zsh"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	holds(t, "installed,", home, map[string]string{".zshrc": "", "zsh/.zshrc": zshBegins + binary + zshEnds + "\n"})
}

// root may run with another user's HOME: that user owns the settings, including new files.
func TestCompletionKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const user, group = 12345, 12346
	home := homeWith(t, map[string]string{".bashrc": "", ".config/fish/config.fish": ""})
	for _, name := range []string{".bashrc", ".config/fish"} {
		if err := os.Chown(filepath.Join(home, name), user, group); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := atHome(t, home, binary, "-install-autocomplete"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{".bashrc", filepath.Dir(fishFile), fishFile} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != user || st.Gid != group {
			t.Errorf("%s is of %d:%d now", name, st.Uid, st.Gid)
		}
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
		home := homeWith(t, map[string]string{".bashrc": ""})
		s := newScreenless("", "HOME="+home)
		if code := s.run(strings.Fields(args)); code != exitError || !strings.Contains(s.err.String(), want) {
			t.Errorf("%q: code %d, %s, want %q", args, code, &s.err, want)
		}
		holds(t, fmt.Sprintf("after %q", args), home, map[string]string{".bashrc": ""})
	}
}
