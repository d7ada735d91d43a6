package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// A job directory that is replaced as a whole, with its module, or that is missing for a while.

// exchanged is a site whose job directory is reached through the link current, which each revision replaces. Permanent files
// are outside.
func exchanged(t *testing.T) (s *site.Site, revision func(name, text string)) {
	t.Helper()
	site.NotShort(t)
	root := t.TempDir()
	t.Setenv("ELTRAIN_DATA_DIR", filepath.Join(root, "home", "run"))
	s = site.NewLocalIn(t, programs, filepath.Join(root, "current", "jobs"))
	t.Cleanup(s.Clean)
	before := ""
	return s, func(name, text string) {
		t.Helper()
		tree := filepath.Join(root, "trees", name)
		for file, content := range map[string]string{
			"jobs/job.hcl": fmt.Sprintf("eltrain {\n  state \"file\" { path = %q }\n}\nmodule \"m\" { source = \"../base\" }\n%s",
				filepath.Join(root, "home", "eltrain.state"), site.Nodes("n1", "n2")),
			"base/base.hcl": strings.Replace(text, "stop_grace", fmt.Sprintf("working_dir = %q\n    stop_grace", root), 1),
		} {
			path := filepath.Join(tree, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(root, "home"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("trees", name), filepath.Join(root, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")); err != nil {
			t.Fatal(err)
		}
		if before != "" {
			if err := os.RemoveAll(filepath.Join(root, "trees", before)); err != nil {
				t.Fatal(err)
			}
		}
		before = name
	}
}

func TestModulesOfAnExchangedDirectoryAreFollowed(t *testing.T) {
	s, revision := exchanged(t)
	text := sleeper("s", 2, "cpu = 1")
	revision("1", text)
	m := s.Watch()
	site.Until(t, "the job", func() bool {
		jobs, _ := s.Jobs()
		for _, j := range jobs {
			s.Job = strings.TrimPrefix(j.Address, "job.")
		}
		return len(jobs) > 0
	})
	world := s.AwaitWorld(2, 1)
	for i, next := range []string{"2", "3"} {
		revision(next, strings.Replace(text, "echo step 1", fmt.Sprintf("echo revision %s; echo step 1", next), 1))
		world = s.AwaitWorld(2, world.Generation+1)
		if n := world.Slot("worker[0]").Incarnation; n != i+2 {
			t.Errorf("revision %s: incarnation %d", next, n)
		}
	}
	// Only the module.
	base := filepath.Join(s.Dir, "..", "base", "base.hcl")
	edited, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base, []byte(strings.Replace(string(edited), "revision 3", "revision 4", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	world = s.AwaitWorld(2, world.Generation+1)

	// Missing, and back.
	current := filepath.Dir(s.Dir)
	if err := os.Rename(current, current+".away"); err != nil {
		t.Fatal(err)
	}
	m.AwaitOutput("The configuration has errors; the last valid one stays in effect")
	if err := os.Rename(current+".away", current); err != nil {
		t.Fatal(err)
	}
	m.AwaitOutput("Resolved: The configuration has errors")
	s.Undisturbed(world, s.AwaitWorld(2, world.Generation))
}

// If permanent files would be replaced with the job files, the master warns at its start.
func TestADirectoryBehindALinkIsWarnedOf(t *testing.T) {
	s := newSite(t, map[string]string{"job.hcl": sleeper("s", 1, "cpu = 0.1"), "nodes.hcl": site.Nodes("n1")})
	real := s.Dir
	s.Dir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, s.Dir); err != nil {
		t.Fatal(err)
	}
	defer func() { s.Dir = real }()
	m := s.Watch()
	m.AwaitOutput("The job directory is a symbolic link")
	m.AwaitOutput(".eltrain and eltrain.state stay in the old directory")
	s.AwaitWorld(1, 1)
}

func TestAPlainApplyHoldsBackWhatIsMoreThanAllowedAndDoesTheRest(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"job.hcl": sleeper("s", 2, "cpu = 0.5"), "other.hcl": sleeper("other", 1, "cpu = 0.1"), "nodes.hcl": site.Nodes("n1", "n2")})
	s.Must("apply", "-auto-approve")
	before := s.Status()
	if err := os.Remove(filepath.Join(s.Dir, "job.hcl")); err != nil {
		t.Fatal(err)
	}
	s.Write("other.hcl", sleeper("other", 2, "cpu = 0.1"))
	out, code := s.Run("apply", "-auto-approve", "-max-destroy=1")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	const held = "The files would remove or replace 2 slots of it, 2 in all, which is more than -max-destroy=1 allows"
	site.Has(t, out, "Plan: 1 to add, 1 to change, 0 to destroy.", "job.s is Degraded", held)
	s.Undisturbed(before, s.Status())
	site.Has(t, s.Must("events"), "withheld job.s: "+held)
	if n := len(s.Of("other").Status().Slots); n != 2 {
		t.Errorf("job other has %d slots", n)
	}
	// A plain apply without the bound does it.
	site.Has(t, s.Must("apply", "-auto-approve"), "Apply complete! Resources: 0 added, 0 changed, 2 destroyed.")
	if j := s.Status(); j.Address != "" {
		t.Errorf("job s is %s", j.Phase)
	}
	// With -prune=false the job is left alone, and not even Degraded.
	s.Write("other.hcl", sleeper("third", 1, "cpu = 0.1"))
	s.Must("apply", "-auto-approve", "-prune=false")
	if j := s.Of("other").Status(); j.Phase != "Running" || !j.Healthy {
		t.Errorf("job other is %s, %v", j.Phase, j.Reasons)
	}
}
