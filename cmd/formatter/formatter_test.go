package formatter

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/internal/filetest"
)

const ugly, pretty = "a=1\nlong   = 2", "a    = 1\nlong = 2\n"

// directory makes a directory with these files.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		filetest.Put(t, path, text)
	}
	return dir
}

// texts returns the content of the files in a directory by name.
func texts(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// Only the language's files of a directory are formatted, those of subdirectories on request. One that does not parse is left, and
// the others are formatted all the same.
func TestFilesOfADirectory(t *testing.T) {
	files := map[string]string{"main.hcl": ugly, "good.hcl": pretty, "eltrain.vars": ugly, "x.auto.vars": ugly, "x.vars": ugly, ".hidden.hcl": ugly, "broken.hcl": "a = {", "sub/below.hcl": ugly}
	for _, c := range []struct {
		name    string
		o       Options
		written []string
		listed  []string
	}{
		{"written", Options{Write: true, List: true}, []string{"eltrain.vars", "main.hcl", "x.auto.vars"}, []string{"eltrain.vars", "main.hcl", "x.auto.vars"}},
		{"with what is below", Options{Write: true, Recursive: true}, []string{"eltrain.vars", "main.hcl", "x.auto.vars", "sub/below.hcl"}, nil},
		{"only found", Options{Check: true, List: true}, nil, []string{"eltrain.vars", "main.hcl", "x.auto.vars"}},
	} {
		dir := directory(t, files)
		var out bytes.Buffer
		f := New(c.o, &out)
		if err := f.Path(dir); err == nil || f.Failed || !f.Changed || len(f.Files) != 1 {
			t.Errorf("%s: %v, failed %t, changed %t, %d files do not parse", c.name, err, f.Failed, f.Changed, len(f.Files))
		}
		want := map[string]string{}
		for name, text := range files {
			want[name] = text
		}
		for _, name := range c.written {
			want[name] = pretty
		}
		for name, text := range want {
			if got := texts(t, dir, name)[name]; got != text {
				t.Errorf("%s: %s is %q, want %q", c.name, name, got, text)
			}
		}
		if got := strings.Fields(strings.ReplaceAll(out.String(), dir+"/", "")); strings.Join(got, " ") != strings.Join(c.listed, " ") {
			t.Errorf("%s: it lists %q, want %q", c.name, got, c.listed)
		}
	}
}

func TestInput(t *testing.T) {
	for o, want := range map[Options]string{
		{Write: true}: pretty,
		{Check: true}: "",
		{Diff: true}:  "--- old/<stdin>\n+++ new/<stdin>\n@@ -1,2 +1,2 @@\n-a=1\n-long   = 2\n+a    = 1\n+long = 2\n",
	} {
		var out bytes.Buffer
		f := New(o, &out)
		if err := f.Input(strings.NewReader(ugly)); err != nil || !f.Changed || out.String() != want {
			t.Errorf("%+v: %v, changed %t, %q, want %q", o, err, f.Changed, out.String(), want)
		}
	}
}

// What cannot be read is a failure, unlike what does not parse.
func TestWhatCannotBeRead(t *testing.T) {
	f := New(Options{Write: true}, new(bytes.Buffer))
	if err := f.Path(filepath.Join(t.TempDir(), "gone")); err == nil || !strings.Contains(err.Error(), "does not exist") || !f.Failed {
		t.Errorf("%v, failed %t", err, f.Failed)
	}
}

// fmt may run as root, in a container for instance, on another user's files, and on links.
func TestLinkModeAndOwnerStay(t *testing.T) {
	dir := directory(t, map[string]string{"real/x": ugly})
	path := filepath.Join(dir, "real/x")
	filetest.Link(t, "real/x", filepath.Join(dir, "main.hcl"))
	owner, group := os.Getuid(), os.Getgid()
	if owner == 0 {
		owner, group = 1234, 2345
	}
	if err := os.Chown(path, owner, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Write: true}, new(bytes.Buffer)).Path(dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	of := info.Sys().(*syscall.Stat_t)
	if int(of.Uid) != owner || int(of.Gid) != group || info.Mode().Perm() != 0o660 {
		t.Errorf("it belongs to %d:%d with %v", of.Uid, of.Gid, info.Mode())
	}
	if target, err := os.Readlink(filepath.Join(dir, "main.hcl")); err != nil || target != "real/x" || texts(t, dir, "real/x")["real/x"] != pretty {
		t.Errorf("main.hcl points to %q, %v, and the file is %q", target, err, texts(t, dir, "real/x"))
	}
}
