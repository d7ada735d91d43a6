package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/lang"
)

// reads is a directory to read, which is also the working directory.
func reads(t *testing.T, dir string) *Directory {
	t.Helper()
	t.Chdir(dir)
	return at(dir)
}

// at is a directory to read from another one.
func at(dir string) *Directory { return &Directory{Path: dir, Secret: func(...string) {}} }

// Each revision has one number in two files, in a module, and in two files that a job may name. If a read mixed two revisions,
// the job would have no priority.
func TestNoReadingMixesTwoRevisions(t *testing.T) {
	root := t.TempDir()
	revision := func(n int) {
		dir := filepath.Join(root, "trees", fmt.Sprint(n))
		filetest.Put(t, filepath.Join(dir, "a.hcl"), fmt.Sprintf("locals {\n  a = %d\n}\n", n))
		filetest.Put(t, filepath.Join(dir, "z.hcl"), fmt.Sprintf("locals {\n  z = %d\n}\n", n))
		filetest.Put(t, filepath.Join(dir, "a.txt"), fmt.Sprint(n))
		filetest.Put(t, filepath.Join(dir, "z.txt"), fmt.Sprint(n))
		filetest.Put(t, filepath.Join(dir, "m", "m.hcl"), fmt.Sprintf("output \"n\" {\n  value = %d\n}\n", n))
		filetest.Put(t, filepath.Join(dir, "job.hcl"), `
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
		filetest.Link(t, filepath.Join("trees", fmt.Sprint(n)), filepath.Join(root, "current"))
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
		filetest.Link(t, filepath.Join(root, "current", name), filepath.Join(links, name))
	}
	named := filepath.Join(root, "named")
	filetest.Put(t, filepath.Join(named, "job.hcl"), `
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
				cfg, diags := s.Load(nil)
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
			cfg, diags := s.Load(nil)
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
		filetest.Put(t, filepath.Join(root, name, "jobs", "job.hcl"), fmt.Sprintf("variable \"v\" {}\njob \"j%s\" {\n  role \"worker\" {\n    command = [var.v]\n  }\n}\n", name))
		filetest.Put(t, filepath.Join(root, name, "jobs", "team.vars"), fmt.Sprintf("v = \"of %s\"\n", name))
	}
	filetest.Link(t, "1", filepath.Join(root, "current"))
	dir := filepath.Join(root, "current", "jobs")
	s := reads(t, dir)
	vars := []lang.Assignment{{File: "team.vars"}}
	expect := func(name string) {
		t.Helper()
		cfg, diags := s.Load(vars)
		if diags.HasErrors() || len(cfg.Jobs) != 1 || cfg.Jobs[0].Name != "j"+name || cfg.Jobs[0].Roles[0].Command[0] != "of "+name {
			t.Errorf("read %v, %v", cfg.Jobs, diags)
		}
	}
	expect("1")
	filetest.Link(t, "2", filepath.Join(root, "current"))
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
		cfg, diags := s.Load(vars)
		if len(cfg.Jobs) > 0 || !diags.HasErrors() || !strings.Contains(diags.Error(), c.told) && !strings.Contains(diags.Error(), "too many levels of symbolic links") {
			t.Errorf("%s: %v, %v", c.name, cfg.Jobs, diags)
		}
	}
	filetest.Link(t, "2", filepath.Join(root, "current"))
	expect("2")
}

func TestLoopsOfLinksAreDiagnostics(t *testing.T) {
	dir := t.TempDir()
	filetest.Put(t, filepath.Join(dir, "job.hcl"), "module \"m\" {\n  source = \"./m\"\n}\n")
	filetest.Link(t, "m", filepath.Join(dir, "m"))
	filetest.Link(t, "b.hcl", filepath.Join(dir, "a.hcl"))
	filetest.Link(t, "a.hcl", filepath.Join(dir, "b.hcl"))
	_, diags := reads(t, dir).Load(nil)
	if len(diags) != 2 { // one of each loop
		t.Fatalf("got %v", diags)
	}
	for i, loop := range []string{`"a.hcl" -> "b.hcl" -> "a.hcl"`, `"m" -> "m"`} {
		if !strings.Contains(diags[i].Detail, loop) {
			t.Errorf("the loop %s is not reported: %v", loop, diags[i])
		}
	}
}
