package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
)

// reads is a session that reads dir.
func reads(t *testing.T, dir string) *session {
	t.Helper()
	t.Chdir(dir)
	return &session{streams: view.Standard(), jobPath: dir}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// link creates a link, or replaces one atomically.
func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
}

// Each revision has one number in two files, in a module, and in two files that a job may name. If a read mixed two revisions,
// the job would have no priority.
func TestNoReadingMixesTwoRevisions(t *testing.T) {
	root := t.TempDir()
	revision := func(n int) {
		dir := filepath.Join(root, "trees", fmt.Sprint(n))
		put(t, filepath.Join(dir, "a.hcl"), fmt.Sprintf("locals {\n  a = %d\n}\n", n))
		put(t, filepath.Join(dir, "z.hcl"), fmt.Sprintf("locals {\n  z = %d\n}\n", n))
		put(t, filepath.Join(dir, "a.txt"), fmt.Sprint(n))
		put(t, filepath.Join(dir, "z.txt"), fmt.Sprint(n))
		put(t, filepath.Join(dir, "m", "m.hcl"), fmt.Sprintf("output \"n\" {\n  value = %d\n}\n", n))
		put(t, filepath.Join(dir, "job.hcl"), `
module "m" {
  source = "./m"
}
job "s" {
  priority = local.a == local.z && local.a == module.m.n ? local.a : tonumber("mixed")
  role "worker" {
    command = ["true"]
  }
}
`)
		link(t, filepath.Join("trees", fmt.Sprint(n)), filepath.Join(root, "current"))
		if n > 0 {
			os.RemoveAll(filepath.Join(root, "trees", fmt.Sprint(n-1))) // as git-sync does
		}
	}
	revision(0)
	// Both ways to follow git-sync, by a link and by a directory of links, and a job elsewhere that names files behind the link.
	links := filepath.Join(root, "links")
	for _, name := range []string{"a.hcl", "job.hcl", "z.hcl", "m"} {
		if err := os.MkdirAll(links, 0o755); err != nil {
			t.Fatal(err)
		}
		link(t, filepath.Join(root, "current", name), filepath.Join(links, name))
	}
	named := filepath.Join(root, "named")
	put(t, filepath.Join(named, "job.hcl"), `
job "s" {
  priority = file("../current/a.txt") == file("../current/z.txt") ? tonumber(file("../current/a.txt")) : tonumber("mixed")
  role "worker" {
    command = ["true"]
  }
}
`)
	for _, dir := range []string{filepath.Join(root, "current"), links, named} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s := reads(t, dir)
			stop := make(chan struct{})
			var swapping sync.WaitGroup
			last := 0
			var pause atomic.Int64 // between two exchanges: long enough that some reads complete on any machine
			swapping.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(max(3*time.Millisecond, time.Duration(pause.Load()))):
						last++
						revision(last)
					}
				}
			})
			good := map[int]bool{}
			for begun := time.Now(); time.Since(begun) < 2*time.Second || len(good) < 3 && time.Since(begun) < time.Minute; {
				reading := time.Now()
				cfg, diags := s.load(nil)
				pause.Store(int64(time.Since(reading) / 2))
				for _, d := range diags.Errs() {
					if strings.Contains(d.Error(), "mixed") {
						t.Fatal(d)
					}
				}
				if !diags.HasErrors() {
					good[cfg.Jobs[0].Priority] = true
				}
			}
			close(stop)
			swapping.Wait()
			if len(good) < 3 {
				t.Errorf("only the revisions %v were read, of %d", good, last)
			}
			cfg, diags := s.load(nil)
			if diags.HasErrors() || cfg.Jobs[0].Priority != last {
				t.Errorf("in the end it reads %v, %v", cfg.Jobs, diags)
			}
			revision(0)
		})
	}
}

func TestADirectoryThatIsAnotherByNowIsReadWhereItIs(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"1", "2"} {
		put(t, filepath.Join(root, name, "jobs", "job.hcl"), fmt.Sprintf("variable \"v\" {}\njob \"j%s\" {\n  role \"worker\" {\n    command = [var.v]\n  }\n}\n", name))
		put(t, filepath.Join(root, name, "jobs", "team.vars"), fmt.Sprintf("v = \"of %s\"\n", name))
	}
	link(t, "1", filepath.Join(root, "current"))
	dir := filepath.Join(root, "current", "jobs")
	s := reads(t, dir)
	vars := assignments{{File: "team.vars"}}
	expect := func(name string) {
		t.Helper()
		cfg, diags := s.load(vars)
		if diags.HasErrors() || len(cfg.Jobs) != 1 || cfg.Jobs[0].Name != "j"+name || cfg.Jobs[0].Roles[0].Command[0] != "of "+name {
			t.Errorf("read %v, %v", cfg.Jobs, diags)
		}
	}
	expect("1")
	link(t, "2", filepath.Join(root, "current"))
	if err := os.RemoveAll(filepath.Join(root, "1")); err != nil {
		t.Fatal(err)
	}
	expect("2")

	// Missing, a loop, and back.
	for _, c := range []struct {
		name, told string
		make       func(at string) error
	}{
		{"gone", "The file or directory", os.Remove},
		{"a loop", "too many links", func(at string) error { return os.Symlink("current", at) }},
	} {
		if err := c.make(filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
		cfg, diags := s.load(vars)
		if len(cfg.Jobs) > 0 || !diags.HasErrors() || !strings.Contains(diags.Error(), c.told) && !strings.Contains(diags.Error(), "too many levels of symbolic links") {
			t.Errorf("%s: %v, %v", c.name, cfg.Jobs, diags)
		}
	}
	link(t, "2", filepath.Join(root, "current"))
	expect("2")
}

func TestLoopsOfLinksAreDiagnostics(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "job.hcl"), "module \"m\" {\n  source = \"./m\"\n}\n")
	link(t, "m", filepath.Join(dir, "m"))
	link(t, "b.hcl", filepath.Join(dir, "a.hcl"))
	link(t, "a.hcl", filepath.Join(dir, "b.hcl"))
	_, diags := reads(t, dir).load(nil)
	if len(diags) != 2 { // one of each loop
		t.Fatalf("got %v", diags)
	}
	for i, loop := range []string{`"a.hcl" -> "b.hcl" -> "a.hcl"`, `"m" -> "m"`} {
		if !strings.Contains(diags[i].Detail, loop) {
			t.Errorf("the loop %s is not reported: %v", loop, diags[i])
		}
	}
}

// status and events name a line of files that cannot be applied only if the error has one.
func TestTheFirstErrorInBriefNamesALineWhereThereIsOne(t *testing.T) {
	mistake := func(text string) func(dir string) {
		return func(dir string) { put(t, filepath.Join(dir, "main.hcl"), text) }
	}
	for name, c := range map[string]struct {
		leave func(dir string)
		told  string
	}{
		"a mistake":             {mistake("job \"s\" {\n  role \"worker\" {\n    replicas = \"two\"\n    command  = [\"true\"]\n  }\n}\n"), " on main.hcl line 3: "},
		"one in the first line": {mistake("job {\n}\n"), " on main.hcl line 1: "},
		"a file without content": {func(dir string) {
			put(t, filepath.Join(dir, "x.hcl"), "")
			link(t, "main.hcl", filepath.Join(dir, "main.hcl"))
		}, " on main.hcl: "},
		"no directory": {func(dir string) { put(t, dir, "") }, " on DIR: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "jobs")
			c.leave(dir)
			t.Chdir(t.TempDir()) // read from another directory, as if it was replaced
			s := &session{streams: view.Standard(), jobPath: dir}
			cfg, diags := s.load(nil)
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
		put(t, path, c.text)
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
	put(t, path, good)
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

func TestMaxDestroyTakesANumberOfSlotsAndGoesWithFilesOnly(t *testing.T) {
	s := &session{streams: view.Standard()}
	for _, c := range []struct {
		args []string
		told string
	}{
		{[]string{"-max-destroy=-1", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=all", "-auto-approve"}, "a number of slots from 0"},
		{[]string{"-max-destroy=3", "-destroy", "-auto-approve"}, "-max-destroy cannot be used with -destroy"},
		{[]string{"-max-destroy=3", "plan.bin"}, "-max-destroy cannot be used with a saved plan"},
	} {
		if _, err := parseApply(s, c.args); err == nil || !strings.Contains(err.Error(), c.told) {
			t.Errorf("apply %v: %v", c.args, err)
		}
	}
	a, err := parseApply(s, []string{"-max-destroy=0", "-auto-approve"})
	if err != nil || a.maxDestroy == nil || *a.maxDestroy != 0 {
		t.Errorf("-max-destroy=0: %+v, %v", a.maxDestroy, err)
	}
}
