package master

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/lang"
)

// status and events name a line of files that cannot be applied only if the error has one.
func TestTheFirstErrorInBriefNamesALineWhereThereIsOne(t *testing.T) {
	mistake := func(text string) func(dir string) {
		return func(dir string) { filetest.Put(t, filepath.Join(dir, "main.hcl"), text) }
	}
	for name, c := range map[string]struct {
		leave func(dir string)
		told  string
	}{
		"a mistake":             {mistake("job \"s\" {\n  role \"worker\" {\n    replicas = \"two\"\n    command  = [\"true\"]\n  }\n}\n"), " on main.hcl line 3: "},
		"one in the first line": {mistake("job {\n}\n"), " on main.hcl line 1: "},
		"a file without content": {func(dir string) {
			filetest.Put(t, filepath.Join(dir, "x.hcl"), "")
			filetest.Link(t, "main.hcl", filepath.Join(dir, "main.hcl"))
		}, " on main.hcl: "},
		"no directory": {func(dir string) { filetest.Put(t, dir, "") }, " on DIR: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "jobs")
			c.leave(dir)
			t.Chdir(t.TempDir()) // read from another directory, as if it was replaced
			s := &workspace.Directory{Path: dir, Secret: func(...string) {}}
			cfg, diags := s.Load(nil)
			told, want := brief(cfg, view.DiagnoseHCL(diags, cfg.Files)), strings.Replace(c.told, "DIR", dir, 1)
			if !strings.Contains(told, want) {
				t.Errorf("got %q, want %q in it", told, want)
			}
		})
	}
}

func TestTheWebhooksTokenIsForItsOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	const good = "0123456789abcdef"
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		told       string
	}{
		{"good", good + "\n", 0o600, ""},
		{"read-only", good, 0o400, ""},
		{"others may read", good, 0o604, "chmod 600"},
		{"others may write", good, 0o602, "chmod 600"},
		{"its group may write", good, 0o660, "chmod 600"},
		{"short", good[1:], 0o600, "openssl rand"},
		{"empty", " \n", 0o600, "openssl rand"},
		{"large", strings.Repeat("x", maxToken+1), 0o600, "larger than"},
	} {
		filetest.Put(t, path, c.text)
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		token, err := webhookToken(path)
		switch {
		case c.told == "" && (err != nil || token != good):
			t.Errorf("%s: %q, %v", c.name, token, err)
		case c.told != "" && (err == nil || !strings.Contains(err.Error(), c.told) || strings.Contains(err.Error(), good)):
			t.Errorf("%s: %q, %v", c.name, token, err)
		}
		os.Remove(path)
	}
	for _, other := range []string{path, dir} {
		if _, err := webhookToken(other); err == nil {
			t.Errorf("%s is taken for a token", other)
		}
	}
	// The group may read only root's file.
	filetest.Put(t, path, good)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := webhookToken(path); (err == nil) != (os.Getuid() == 0) {
		t.Errorf("mode 0640 under uid %d: %v", os.Getuid(), err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := webhookToken(path); err == nil {
			t.Error("the group of another user's file may read it")
		}
	}
}

func TestEmptied(t *testing.T) {
	files := func(dir string, texts map[string]string) *lang.Config {
		cfg := &lang.Config{Sizes: map[string]int{}, Directories: []string{dir}}
		for name, text := range texts {
			cfg.Sizes[filepath.Join(dir, name)] = len(text)
		}
		return cfg
	}
	before := files("/jobs/one", map[string]string{"a.hcl": "job", "b.hcl": "", "m/c.hcl": "job", "eltrain.vars": "a = 1"})
	// In a directory of another commit, as with git-sync.
	now := files("/jobs/two", map[string]string{"a.hcl": "", "b.hcl": "", "m/c.hcl": "", "eltrain.vars": "", "new.hcl": ""})
	var got []string
	for _, d := range emptied(before, now) {
		got = append(got, d.Summary)
	}
	if !slices.Equal(got, []string{"a.hcl is empty", "eltrain.vars is empty", "m/c.hcl is empty"}) {
		t.Errorf("emptied are %q", got)
	}
	if diags := emptied(before, files("/jobs/two", map[string]string{"a.hcl": "# none any more"})); len(diags) > 0 {
		t.Errorf("a comment and removed files give %v", diags)
	}
}
