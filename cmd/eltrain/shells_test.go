package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What -install-autocomplete writes is there once however often it is said, and what the user has beside it stays.
func TestCompletionIsInstalledAndRemoved(t *testing.T) {
	home := t.TempDir()
	ours := "complete -C " + binary + " eltrain"
	before := map[string]string{
		".bashrc":  "alias ll='ls -l'\nexport A=1", // its last line has no end
		".profile": "umask 022\n",                  // bash has a better one
		"dotfiles": "setopt autocd\n",
	}
	for name, text := range before {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("dotfiles", filepath.Join(home, ".zshrc")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".config", "fish"), 0o755); err != nil {
		t.Fatal(err)
	}
	fish := filepath.Join(".config", "fish", "completions", "eltrain.fish")
	do := func(args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		for name, text := range want {
			got, err := os.ReadFile(filepath.Join(home, name))
			if err != nil || string(got) != text {
				t.Errorf("%s %s is %q, want %q (%v)", when, name, got, text, err)
			}
		}
	}
	for range 2 {
		if out, err := do("-install-autocomplete"); err != nil || !strings.Contains(out, "next shell") {
			t.Fatalf("%v\n%s", err, out)
		}
		expect("installed,", map[string]string{
			".bashrc": before[".bashrc"] + "\n" + ours + "\n", ".profile": before[".profile"],
			"dotfiles": before["dotfiles"] + zshNeeds + "\ncomplete -o nospace -C " + binary + " eltrain\n",
		})
	}
	if text, err := os.ReadFile(filepath.Join(home, fish)); err != nil || !strings.Contains(string(text), "    "+binary+"\n") {
		t.Errorf("of fish: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(home, ".zshrc")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf(".zshrc is no link any more: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(home, ".bashrc")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the permissions of .bashrc: %v, %v", info, err)
	}
	for range 2 {
		if out, err := do("--uninstall-autocomplete"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		expect("removed,", map[string]string{
			".bashrc": before[".bashrc"] + "\n", "dotfiles": before["dotfiles"] + zshNeeds + "\n",
		})
	}
	if _, err := os.Stat(filepath.Join(home, fish)); !os.IsNotExist(err) {
		t.Errorf("fish has it still: %v", err)
	}
	if out, err := do("-install-autocomplete", "-uninstall-autocomplete"); err == nil || !strings.Contains(out, "opposites") {
		t.Errorf("both at once: %v\n%s", err, out)
	}
	home = t.TempDir()
	if out, err := do("-install-autocomplete"); err == nil || !strings.Contains(out, "no settings of bash, zsh or fish") {
		t.Errorf("without a shell: %v\n%s", err, out)
	}
}
