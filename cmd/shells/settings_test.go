package shells

import (
	"os"
	"path/filepath"
	"slices"
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

const program = "/opt/bin/eltrain"

// changeAll changes the settings of a home, with further variables, and returns the names of the files that changed.
func changeAll(t *testing.T, home string, change func(Setting) (bool, error), environ ...string) (changed []string) {
	t.Helper()
	all, err := Settings(program, func(name string) string {
		for _, pair := range append(environ, "HOME="+home) {
			if value, is := strings.CutPrefix(pair, name+"="); is {
				return value
			}
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		does, err := change(s)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := filepath.Rel(home, s.File); does && err == nil {
			changed = append(changed, name)
		}
	}
	return changed
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

// Installing writes the settings once, however often it is run, and keeps the user's own.
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
	for _, want := range [][]string{{".bashrc", ".zshrc", fishFile}, nil} {
		if changed := changeAll(t, home, Setting.Install); !slices.Equal(changed, want) {
			t.Fatalf("it changes %q, want %q", changed, want)
		}
		holds(t, "installed,", home, map[string]string{
			".bashrc": before[".bashrc"] + "\ncomplete -C " + program + " eltrain\n", ".profile": before[".profile"],
			"dotfiles": before["dotfiles"] + zshBegins + program + zshEnds + "\n",
		})
	}
	if text, err := os.ReadFile(filepath.Join(home, fishFile)); err != nil || !strings.Contains(string(text), "    "+program+"\n") {
		t.Errorf("of fish: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(home, ".zshrc")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf(".zshrc is no longer a link: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(home, ".bashrc")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the permissions of .bashrc: %v, %v", info, err)
	}
	for _, want := range [][]string{{".bashrc", ".zshrc", fishFile}, nil} {
		if changed := changeAll(t, home, Setting.Remove); !slices.Equal(changed, want) {
			t.Fatalf("removing changes %q, want %q", changed, want)
		}
		holds(t, "removed,", home, map[string]string{".bashrc": before[".bashrc"] + "\n", "dotfiles": before["dotfiles"]})
	}
	if _, err := os.Stat(filepath.Join(home, fishFile)); !os.IsNotExist(err) {
		t.Errorf("fish has it still: %v", err)
	}
	if changed := changeAll(t, t.TempDir(), Setting.Install); changed != nil {
		t.Errorf("without a shell it changes %q", changed)
	}
	if _, err := Settings(program, func(string) string { return "" }); err == nil {
		t.Error("settings are found without HOME")
	}
}

// A moved eltrain replaces the old path, and any eltrain removes what another has written, in any file of bash.
func TestCompletionOfAnotherEltrain(t *testing.T) {
	const old = "complete -C '\\''/opt/old bin/eltrain'\\'' eltrain\n"
	zshOld := zshBegins + "'/opt/old bin/eltrain'" + zshEnds + "\n"
	const others = "complete -C /usr/bin/terraform terraform\n"
	files := map[string]string{".bashrc": others + old + "A=1\n" + old, ".profile": old, ".zshrc": zshOld + "A=1\n"}
	home := homeWith(t, files)
	changeAll(t, home, Setting.Install)
	holds(t, "installed,", home, map[string]string{
		".bashrc": others + "complete -C " + program + " eltrain\nA=1\n", ".profile": "", ".zshrc": zshBegins + program + zshEnds + "\nA=1\n",
	})
	home = homeWith(t, files)
	if changed := changeAll(t, home, Setting.Remove); len(changed) != 3 {
		t.Fatalf("it changes %q", changed)
	}
	holds(t, "removed,", home, map[string]string{".bashrc": others + "A=1\n", ".profile": "", ".zshrc": "A=1\n"})
}

// zsh's settings are in ZDOTDIR.
func TestCompletionIsInZdotdir(t *testing.T) {
	home := homeWith(t, map[string]string{".zshrc": "", "zsh/.zshrc": ""})
	changeAll(t, home, Setting.Install, "ZDOTDIR="+filepath.Join(home, "zsh"))
	holds(t, "installed,", home, map[string]string{".zshrc": "", "zsh/.zshrc": zshBegins + program + zshEnds + "\n"})
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
	changeAll(t, home, Setting.Install)
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
