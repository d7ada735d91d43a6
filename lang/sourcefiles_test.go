package lang

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/internal/sourcefiles"
	"github.com/eltrain/eltrain/job"
)

// program makes a directory with a role whose source is the given expression, and with files by path.
func program(t *testing.T, source string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["job.hcl"] = "job \"j\" {\n  role \"w\" {\n    command = [\"true\"]\n    source  = " + source + "\n  }\n}\n"
	for path, text := range files {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func sourceOfRole(t *testing.T, dir string) job.Files {
	t.Helper()
	cfg, diags := Load(dir, Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return cfg.Jobs[0].Roles[0].Source
}

// A source has the digest of each file that a pattern matches. Wildcards leave out what no program consists of: hidden files,
// bytecode, and what eltrain itself reads and writes.
func TestSourceHasDigests(t *testing.T) {
	files := func() map[string]string {
		return map[string]string{
			"train.py": "print(1)", "lib/a.py": "a", "lib/deep/b.py": "b", "lib/deep/c.txt": "c", ".env": "x", "lib/.hidden/d.py": "d",
			"lib/__pycache__/a.pyc": "x", "lib/a.pyc": "x", "eltrain.state": "{}", "eltrain.state.backup": "{}", "x.auto.vars": "", "other.py": "o",
		}
	}
	all := files()
	for source, want := range map[string][]string{
		`["train.py"]`:                           {"train.py"},
		`["./train.py"]`:                         {"train.py"},
		`["train.py", "lib/**"]`:                 {"lib/a.py", "lib/deep/b.py", "lib/deep/c.txt", "train.py"},
		`["**"]`:                                 {"lib/a.py", "lib/deep/b.py", "lib/deep/c.txt", "other.py", "train.py"},
		`["*.py"]`:                               {"other.py", "train.py"},
		`["**/*.py", "train.py"]`:                {"lib/a.py", "lib/deep/b.py", "other.py", "train.py"},
		`["{train,other}.py"]`:                   {"other.py", "train.py"},
		`[".env"]`:                               {".env"},
		`[for name in ["train"] : "${name}.py"]`: {"train.py"},
		`[]`:                                     nil,
		`null`:                                   nil,
	} {
		got := sourceOfRole(t, program(t, source, files()))
		var expected job.Files
		for _, path := range want {
			if expected == nil {
				expected = job.Files{}
			}
			expected[path] = sourcefiles.Digest([]byte(all[path]), false)
		}
		if diff := cmp.Diff(expected, got); diff != "" {
			t.Errorf("source = %s: -want +got:\n%s", source, diff)
		}
	}
}

func TestSourceTellsWhatChanged(t *testing.T) {
	dir := program(t, `["train.py", "lib/**"]`, map[string]string{"train.py": "1", "lib/a.py": "a"})
	load := func() job.Job {
		cfg, diags := Load(dir, Options{})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return cfg.Jobs[0]
	}
	before := load()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "train.py"), []byte("2"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "lib/new.py"), nil, 0o644))
	must(os.Chmod(filepath.Join(dir, "lib/a.py"), 0o755))
	after := load()
	of := func(text string, executable bool) string {
		return `"` + sourcefiles.Digest([]byte(text), executable) + `"`
	}
	want := []job.FieldChange{
		{Path: `role.w.source["lib/a.py"]`, Before: of("a", false), After: of("a", true), Change: job.Replaces},
		{Path: `role.w.source["lib/new.py"]`, After: of("", false), Change: job.Replaces},
		{Path: `role.w.source["train.py"]`, Before: of("1", false), After: of("2", false), Change: job.Replaces},
	}
	if diff := cmp.Diff(want, job.Diff(before, after)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if job.Fingerprints(&before, &before.Roles[0])(0) == job.Fingerprints(&after, &after.Roles[0])(0) {
		t.Error("the slots need no replacement")
	}
}

// Roles without a source have the fingerprints that they had before there was one.
func TestNoSourceLeavesFingerprints(t *testing.T) {
	j := mustParse(t, inJob("")).Jobs[0]
	if got, want := job.Fingerprints(&j, &j.Roles[0])(0), "5516588c325a60c3"; got != want {
		t.Errorf("the fingerprint is %s, want %s: an upgrade would replace all slots", got, want)
	}
}

// What a watch has to follow is known: the files, the directories where others may appear, and what is missing.
func TestSourceIsNamed(t *testing.T) {
	dir := program(t, `["train.py", "lib/**", "gone/*.py"]`, map[string]string{"train.py": "", "lib/a.py": "", "lib/deep/b.py": ""})
	cfg, _ := Load(dir, Options{})
	var got []string
	for _, path := range cfg.Named {
		got = append(got, strings.TrimPrefix(path, dir+"/"))
	}
	want := []string{"gone/", "lib", "lib/", "lib/a.py", "lib/deep/", "lib/deep/b.py", "train.py"}
	if !slices.Equal(got, want) {
		t.Errorf("named are %q, want %q", got, want)
	}
}

func TestInvalidSource(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		`["none.py"]`:             `no file matches "none.py"; patterns are relative to the directory of the .hcl file`,
		`["train.py", "none/**"]`: `no file matches "none/**"`,
		`["../x.py"]`:             `"../x.py" leads out of the directory`,
		`["lib/../../x"]`:         `leads out of the directory`,
		`["/etc/passwd"]`:         `"/etc/passwd" is an absolute path`,
		`["lib"]`:                 `"lib" is a directory: write "lib/**"`,
		`["lib/"]`:                `"lib/" names a directory: write "lib/**"`,
		`[""]`:                    `the pattern is empty`,
		`["a["]`:                  `"a[" is not a pattern`,
		`["a//b"]`:                `has an empty part`,
		`["out"]`:                 `"out" is a link that leads out of the directory of the .hcl file`,
		`["o*"]`:                  `"o*" is a link that leads out of the directory of the .hcl file`,
		`["away/secret"]`:         `"away/secret" is a link that leads out of the directory of the .hcl file`,
		`["dangling"]`:            `no file matches "dangling"`,
		`["pipe"]`:                `pipe is not a regular file`,
		`"train.py"`:              `a list of patterns is required`,
		`[sensitive("train.py")]`: `A sensitive value cannot name files`,
		`[null]`:                  `element 0 is null`,
		`["${slot.index}.py"]`:    `slot`,
		`role.w.source`:           `role.w.source is not a value`,
		`["ckpt/*"]`:              `which the training processes write to`,
	} {
		dir := program(t, source, map[string]string{"train.py": "", "lib/a.py": "", "ckpt/step.pt": ""})
		for link, to := range map[string]string{"out": outside, "away": filepath.Dir(outside), "dangling": "nothing"} {
			if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		job := filepath.Join(dir, "job.hcl")
		text, err := os.ReadFile(job)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(job, []byte(strings.TrimSuffix(string(text), "}\n")+"  checkpoint {\n    dir = \"ckpt\"\n  }\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, diags := Load(dir, Options{})
		var details []string
		for _, d := range diags {
			details = append(details, d.Detail)
			if d.Subject == nil || d.Subject.Start.Line != 4 {
				t.Errorf("source = %s: the error is at %v, want it at the pattern", source, d.Subject)
			}
		}
		if len(diags) != 1 || !strings.Contains(details[0], want) {
			t.Errorf("source = %s: %q; want one with %q", source, details, want)
		}
	}
}

// A link within the directory is followed, as where git-sync or a ConfigMap mounts the files.
func TestSourceFollowsLinksWithin(t *testing.T) {
	dir := program(t, `["train.py", "pkg/*.py", "**/*.txt"]`, map[string]string{"..data/train.py": "1", "..data/pkg/a.py": "a", "real/x.txt": "x"})
	for link, to := range map[string]string{"train.py": "..data/train.py", "pkg": "..data/pkg", "loop": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	want := job.Files{
		"train.py": sourcefiles.Digest([]byte("1"), false), "pkg/a.py": sourcefiles.Digest([]byte("a"), false),
		"real/x.txt": sourcefiles.Digest([]byte("x"), false),
	}
	if diff := cmp.Diff(want, sourceOfRole(t, dir)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A module's patterns are relative to its own directory.
func TestSourceInModule(t *testing.T) {
	dir := program(t, `["train.py"]`, map[string]string{"train.py": "module"})
	parent := t.TempDir()
	if err := os.Rename(dir, filepath.Join(parent, "m")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "main.hcl"), []byte("module \"m\" {\n  source = \"./m\"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := job.Files{"train.py": sourcefiles.Digest([]byte("module"), false)}
	if diff := cmp.Diff(want, sourceOfRole(t, parent)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Too much is refused before it is read.
func TestSourceIsBounded(t *testing.T) {
	files := map[string]string{}
	for i := range maxSourceFiles + 1 {
		files["many/"+strings.Repeat("x", i%200+1)+string(rune('a'+i/200))] = ""
	}
	_, diags := Load(program(t, `["many/*"]`, files), Options{})
	if want := "1001 files; the limit is 1000"; len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
		t.Errorf("%v; want %q", diags, want)
	}
	dir := program(t, `["big"]`, map[string]string{"big": ""})
	if err := os.Truncate(filepath.Join(dir, "big"), 1<<40); err != nil {
		t.Fatal(err)
	}
	_, diags = Load(dir, Options{})
	if want := `"big" matches more than 64MiB`; len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
		t.Errorf("%v; want %q", diags, want)
	}
}

// Files that are not trusted cannot have git's own directory read, which may hold a token.
func TestUntrustedSource(t *testing.T) {
	dir, err := filepath.EvalSymlinks(program(t, `[".git/config"]`, map[string]string{".git/config": "token"}))
	if err != nil {
		t.Fatal(err)
	}
	_, diags := Load(dir, Options{Within: []string{dir}})
	if want := ".git/config leads outside of " + dir; len(diags) != 1 || !strings.Contains(diags[0].Detail, want) {
		t.Errorf("%v; want %q", diags, want)
	}
}
