package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// A watching master, changing files, and interrupts.

func TestEmptiedDirectoryDestroysNothing(t *testing.T) {
	s := sleeping(t)
	m := s.Watch()
	before := s.AwaitWorld(2, 1)
	files := map[string]string{"job.hcl": s.Read("job.hcl"), "nodes.hcl": s.Read("nodes.hcl")}
	// job.hcl goes first and comes back last: without nodes.hcl alone, the job would be planned for this machine's own node.
	goes := []string{"job.hcl", "nodes.hcl"}
	restore := func() {
		for _, name := range slices.Backward(goes) {
			s.Write(name, files[name])
		}
	}
	const kept = "The configuration has errors; the last valid one stays in effect"
	for _, c := range []struct {
		name, told string
		spoil      func(path string) error
	}{
		{"removed", "There is no .hcl file", os.Remove},
		{"cut to nothing", "are empty. To end all jobs, use eltrain destroy.", func(path string) error { return os.Truncate(path, 0) }},
		{"broken", "Invalid", func(path string) error { return os.WriteFile(path, []byte("job \"s\" {"), 0o644) }},
	} {
		m.Out.Reset()
		for _, name := range goes {
			if err := c.spoil(filepath.Join(s.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		m.AwaitOutput(kept)
		if c.name != "broken" {
			m.AwaitOutput(c.told)
		}
		// It continues to heal with the last good configuration, and is Degraded until the files are valid again.
		site.Kill(t, syscall.SIGKILL, before.Slot("worker[0]").PID)
		after := s.Await("healing", func(j site.Job) bool {
			return j.Phase == "Degraded" && len(j.Running()) == 2 && j.WorldSize == 2 && j.Generation > before.Generation && j.Step > 0
		})
		site.Has(t, strings.Join(after.Reasons, " "), kept)
		if after.Slot("worker[1]").AgentPID != before.Slot("worker[1]").AgentPID {
			t.Errorf("%s: an agent was restarted", c.name)
		}
		before = after
		restore()
		m.AwaitOutput("Resolved: " + kept)
		if n := strings.Count(site.Unwrapped(m.Out.String()), "Warning: "+kept); n != 1 {
			t.Errorf("%s: it was reported %d times:\n%s", c.name, n, m.Out)
		}
		s.Undisturbed(before, s.AwaitWorld(2, before.Generation))
	}
	// The files are in force again: an edit has an effect.
	s.Write("job.hcl", strings.Replace(files["job.hcl"], "exec sleep 600", "exec sleep 601", 1))
	s.Await("the edit", func(j site.Job) bool { return runs(s, "sleep 601") == 2 && j.Trains(2, before.Generation+1) })

	// Nor does a command started in such a directory destroy anything.
	m.Interrupt()
	running := s.Processes()
	for _, c := range []struct {
		name  string
		spoil func(path string) error
	}{
		{"removed", os.Remove},
		{"cut to nothing", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
	} {
		for _, name := range goes {
			if err := c.spoil(filepath.Join(s.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"plan"}, {"plan", "-refresh-only"}, {"apply", "-auto-approve"}, {"apply", "-watch", "-auto-approve"}} {
			if out, code := s.Run(args...); code != 1 {
				t.Errorf("%s: eltrain %v: exit code %d\n%s", c.name, args, code, out)
			}
			if now := s.Processes(); !maps.Equal(running, now) {
				t.Errorf("%s: eltrain %v: there ran %v, and now %v", c.name, args, running, now)
			}
		}
	}
	restore()
}

// For a while there is something else in the place of its directory: a loop of links, a file.
func TestWhatIsNoDirectoryInItsPlaceDestroysNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("ELTRAIN_DATA_DIR", filepath.Join(home, "run"))
	s := newSite(t, map[string]string{
		"job.hcl": sleeper("s", 2, "cpu = 1"), "nodes.hcl": site.Nodes("n1", "n2"),
		"eltrain.hcl": fmt.Sprintf("eltrain {\n  state \"file\" { path = %q }\n}\n", filepath.Join(home, "eltrain.state")),
	})
	way := t.TempDir()
	place := func(leave func(at string) error) {
		t.Helper()
		if err := leave(filepath.Join(way, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(way, "next"), filepath.Join(way, "jobs")); err != nil {
			t.Fatal(err)
		}
	}
	real := s.Dir
	back := func(at string) error { return os.Symlink(real, at) }
	place(back)
	s.Dir = filepath.Join(way, "jobs")
	m := s.Watch()
	s.Dir = real // everything else uses the real directory
	before := s.AwaitWorld(2, 1)
	const kept = "The configuration has errors; the last valid one stays in effect"
	for _, c := range []struct {
		name  string
		leave func(at string) error
	}{
		{"a loop of links", func(at string) error { return os.Symlink("jobs", at) }},
		{"a file", func(at string) error { return os.WriteFile(at, []byte("job \"s\" {\n}\n"), 0o644) }},
	} {
		m.Out.Reset()
		place(c.leave)
		m.AwaitOutput("Warning: " + kept)
		broken := s.Await(c.name, func(j site.Job) bool { return j.Phase == "Degraded" })
		site.Has(t, strings.Join(broken.Reasons, " "), kept)
		s.Undisturbed(before, broken)
		place(back)
		m.AwaitOutput("Resolved: " + kept)
		s.Undisturbed(before, s.AwaitWorld(2, before.Generation))
	}
}

// A ConfigMap mount: the files are links into ..data, itself a link that is replaced atomically.
func TestSwappedLinksAreTakenUpEachTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"nodes.hcl": site.Nodes("n1", "n2")})
	version := func(name string, seconds int) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(s.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(sleeper("s", 2, "cpu = 1"), "sleep 600", fmt.Sprint("sleep ", seconds), 1)
		s.Write(filepath.Join(name, "job.hcl"), text)
		if err := os.Symlink(name, filepath.Join(s.Dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(s.Dir, "..data_tmp"), filepath.Join(s.Dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2025_01", 600)
	if err := os.Symlink("..data/job.hcl", filepath.Join(s.Dir, "job.hcl")); err != nil {
		t.Fatal(err)
	}
	s.Watch()
	world := s.AwaitWorld(2, 1)
	for i, name := range []string{"..2025_02", "..2025_03"} {
		version(name, 601+i)
		if err := os.RemoveAll(filepath.Join(s.Dir, []string{"..2025_01", "..2025_02"}[i])); err != nil {
			t.Fatal(err)
		}
		world = s.Await(name, func(j site.Job) bool {
			return runs(s, fmt.Sprint("sleep ", 601+i)) == 2 && j.Trains(2, world.Generation+1)
		})
	}
	// An editor writes another file and renames it, which replaces the link by a file.
	s.Write("job.hcl", strings.Replace(sleeper("s", 2, "cpu = 1"), "sleep 600", "sleep 610", 1))
	s.Await("the editor's file", func(j site.Job) bool { return runs(s, "sleep 610") == 2 && j.Trains(2, world.Generation+1) })
}

func TestEditedCommandReplacesAllAfterACheckpoint(t *testing.T) {
	// No checkpoint is due: the one it resumes from was requested by the signal.
	s := calmDemo(t)
	s.Edit("job.hcl", `"--ckpt-every=20"`, `"--ckpt-every=100000"`)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	s.Edit("job.hcl", "--step-ms=40", "--step-ms=39")
	after := s.AwaitWorld(4, before.Generation+1)
	for _, was := range before.Slots {
		for _, now := range after.Slots {
			if now.Address == was.Address && (now.Incarnation != was.Incarnation+1 || now.AgentPID == was.AgentPID || now.Node == "") {
				t.Errorf("%s was not replaced: %+v -> %+v", was.Address, was, now)
			}
		}
	}
	if after.Generation != before.Generation+1 {
		t.Errorf("generation %d -> %d: all are replaced together", before.Generation, after.Generation)
	}
	if len(after.Incidents) > 0 {
		t.Errorf("an edit is no incident: %+v", after.Incidents)
	}
	s.EndsRight(site.Steps)
	saved, resumed := 0, -1
	for _, e := range s.Events() {
		switch {
		case e.Ev == "ckpt" && e.Step < site.Steps:
			saved = max(saved, e.Step)
		case e.Ev == "ready" && e.Step > 0:
			resumed = e.Step
		}
	}
	// The process is stopped as soon as the checkpoint's file exists, maybe before it printed the line about it.
	if resumed < max(saved, 1) {
		t.Errorf("it resumed after step %d, the newest checkpoint that it reported was at step %d", resumed, saved)
	}
}

func TestEditedSettingsAreTakenUpWithoutARestart(t *testing.T) {
	s := newDemo(t, 4)
	s.SetLease(site.Lenient)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	text := s.Read("job.hcl")
	for old, new := range map[string]string{
		`lease = "15s"`: `lease = "9s"`, "restarts = 10": "restarts = 7", `settle  = "1s"`: `settle = "2s"`,
		`job "mnist" {`: "job \"mnist\" {\n  priority = 3",
	} {
		text = strings.Replace(text, old, new, 1)
	}
	s.Write("job.hcl", text)
	site.Until(s.T, "the new settings", func() bool {
		state := s.Read("eltrain.state")
		return strings.Contains(state, `"9s"`) && strings.Contains(state, `"Restarts": 7`)
	})
	s.Undisturbed(before, s.Status())
	out, code := s.Run("plan", "-detailed-exitcode")
	if code != 0 {
		t.Errorf("plan after that: exit code %d\n%s", code, out)
	}
	s.EndsRight(site.Steps)
	if end := s.Status(); end.Generation != before.Generation || len(end.Incidents) > 0 {
		t.Errorf("it ended in generation %d of %d, with %+v", end.Generation, before.Generation, end.Incidents)
	}
}

func TestRemovedJobIsDestroyedAndOthersAreNot(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{
		"a.hcl": sleeper("a", 2, "cpu = 1"), "b.hcl": sleeper("b", 2, "cpu = 1"),
		"nodes.hcl": site.Nodes("n1", "n2", "n3", "n4"),
	})
	s.Watch()
	a, b := s.Of("a").AwaitWorld(2, 1), s.Of("b").AwaitWorld(2, 1)
	if err := os.Remove(filepath.Join(s.Dir, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	s.Of("a").Await("the end of job a", func(j site.Job) bool { return j.Address == "" })
	for _, slot := range a.Slots {
		site.AwaitExit(s.T, slot.AgentPID)
		site.AwaitExit(s.T, slot.PID)
	}
	s.Undisturbed(b, s.Of("b").Status())
	// A new job of the same name is another job.
	s.Write("a.hcl", sleeper("a", 2, "cpu = 1"))
	if again := s.Of("a").AwaitWorld(2, 1); again.UID == a.UID || again.Generation != 1 {
		t.Errorf("the new job is %s in generation %d, the old one was %s", again.UID, again.Generation, a.UID)
	}
	s.Undisturbed(b, s.Of("b").Status())
}

func TestWaitingJobOfHigherPriorityGetsInByShrinkingAnother(t *testing.T) {
	s := calmDemo(t)
	s.Edit("job.hcl", "min = 2", "min = 3")
	second := strings.Replace(sleeper("second", 2, "cpu = 1"), `job "second" {`, "job \"second\" {\n  priority = 5", 1)
	s.Watch()
	before := s.AwaitWorld(4, 1)
	// Shrunk to its min, the first job leaves one node, and the second needs two.
	s.Write("second.hcl", second)
	s.Of("second").Await("waiting", func(j site.Job) bool {
		return j.Phase == "Pending" && strings.Contains(strings.Join(j.Reasons, " "), "Wanted: 2 worker with 1 cpu each.")
	})
	s.Undisturbed(before, s.Status())
	s.Reconnect("n5")
	in := s.Of("second").AwaitWorld(2, 1)
	if in.Generation != 1 {
		t.Errorf("the second is in generation %d", in.Generation)
	}
	shrunk := s.Await("the shrunk world", func(j site.Job) bool { return j.Phase == "Succeeded" || j.Trains(3, before.Generation+1) })
	if len(shrunk.Incidents) > 0 {
		t.Errorf("a shrink is no incident: %+v", shrunk.Incidents)
	}
	s.EndsRight(site.Steps)
}

func TestRolesStartAndStopInOrder(t *testing.T) {
	t.Parallel()
	// The trap waits only for its own sleep, so the order of the lines is that of the stops.
	role := func(name string, more string) string {
		return fmt.Sprintf(`
  role %q {
    replicas   = 2
    command    = ["sh", "-c", "trap 'sleep 0.2; echo %s stops >> order; exit 0' TERM; echo %s starts >> order; echo step 1 loss 1; while :; do sleep 0.05; done"]
    stop_grace = "10s"
    resources { cpu = 0.1 }
    %s
  }
`, name, name, name, more)
	}
	s := newSite(t, map[string]string{"nodes.hcl": site.Nodes("n1"), "job.hcl": `
job "ordered" {
` + role("worker", "depends_on = [role.ps]") + role("ps", "ranked = false") + role("evaluator", "ranked = false\ndepends_on = [role.worker]") + `
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  rendezvous { settle = "1s" }
}
`})
	s.Must("apply", "-auto-approve")
	order := func() []string { return strings.Split(strings.TrimSpace(s.Read("order")), "\n") }
	site.Until(s.T, "the start of all", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.Dir, "order")) // none before the first
		return strings.Count(string(text), "starts") == 6
	})
	// A role is up when its agents have started their processes, whatever those have done so far. A ranked role is up when its
	// agents run: its world may need the roles that depend on it.
	made := func(role string) (at []int) {
		for pid, args := range s.Processes() {
			if !strings.HasPrefix(args, "sh -c trap 'sleep 0.2; echo "+role+" stops") {
				continue
			}
			if start, err := startOf(pid); err == nil { // a sleep is a short-lived fork of the shell at first
				at = append(at, start)
			}
		}
		slices.Sort(at)
		return at
	}
	if ps, workers := made("ps"), made("worker"); len(ps) < 2 || len(workers) < 2 || ps[1] > workers[0] {
		t.Errorf("the processes of ps were made at %v, those of worker at %v", ps, workers)
	}
	s.Write("order", "")
	s.Must("destroy", "-auto-approve")
	want := []string{"evaluator stops", "evaluator stops", "worker stops", "worker stops", "ps stops", "ps stops"}
	if got := order(); !slices.Equal(got, want) {
		t.Errorf("the order of stops is %q", got)
	}
}

// Slots that were asked to stop are waited for, and killed in the end; slots to be stopped later run on. The next run continues
// from there.
func TestAnInterruptedDestroyEndsWhatItHasBegunToStop(t *testing.T) {
	t.Parallel()
	role := func(name, trap string, more string) string {
		return fmt.Sprintf(`
  role %q {
    command    = ["sh", "-c", "trap '%s' TERM; echo step 1 loss 1; while :; do sleep 0.05; done"]
    stop_grace = "5s"
    resources { cpu = 0.1 }
    %s
  }
`, name, trap, more)
	}
	s := newSite(t, map[string]string{"nodes.hcl": site.Nodes("n1"), "job.hcl": `
job "s" {
` + role("worker", "sleep 0.5; exit 0", "depends_on = [role.ps]") + role("stubborn", ":", "depends_on = [role.ps]\n    ranked = false") + role("ps", "exit 0", "ranked = false") + `
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  rendezvous { settle = "1s" }
}
`})
	s.Must("apply", "-auto-approve")
	m := s.Start("destroy", "-auto-approve")
	m.AwaitOutput("job.s.worker[0]: Destroying...")
	m.AwaitOutput("job.s.stubborn[0]: Destroying...")
	m.Signal(syscall.SIGINT)
	if code := m.Wait(); code != 1 {
		t.Errorf("exit code %d after an interrupt", code)
	}
	out := site.Unwrapped(m.Out.String())
	site.Has(t, out, "Interrupt received.", "job.s.worker[0]: Destruction complete", "job.s.stubborn[0]: Destruction complete", "Destroy was interrupted")
	if strings.Contains(out, "job.s.ps[0]: Destroying") {
		t.Errorf("ps is stopped after the interrupt:\n%s", out)
	}
	trained := func(trap string) (n int) {
		for _, args := range s.Processes() {
			if strings.HasPrefix(args, "sh -c trap '"+trap) {
				n++
			}
		}
		return n
	}
	if left := trained("sleep") + trained(":"); left > 0 {
		t.Errorf("%d processes were left behind: %v", left, s.Processes())
	}
	if trained("exit") == 0 {
		t.Error("ps does not run on")
	}
	if j := s.Status(); j.Phase == "Running" || len(j.Running()) > 1 {
		t.Errorf("status says %s, with %d slots running", j.Phase, len(j.Running()))
	}
	s.Must("destroy", "-auto-approve")
	if j := s.Status(); j.Address != "" || trained("exit") > 0 {
		t.Errorf("after the second destroy there is %+v, %v", j, s.Processes())
	}
}

func TestFirstInterruptLetsJobsRunAndTheSecondEndsAtOnce(t *testing.T) {
	t.Parallel()
	stubborn := strings.Replace(sleeper("s", 2, "cpu = 1"), "echo step 1 loss 1; exec sleep 600", "trap : TERM; echo step 1 loss 1; while :; do sleep 1; done", 1)
	s := newSite(t, map[string]string{"job.hcl": strings.Replace(stubborn, `"5s"`, `"8s"`, 1), "nodes.hcl": site.Nodes("n1", "n2")})
	m := s.Watch()
	before := s.AwaitWorld(2, 1)

	// With nothing in flight the first interrupt ends it: the lock is free, jobs run.
	m.Signal(syscall.SIGINT)
	if code := m.Wait(); code != 0 {
		t.Errorf("exit code %d after one interrupt", code)
	}
	site.Has(t, m.Out.String(), "Interrupt received.", "everything else keeps running")
	s.Must("apply", "-auto-approve") // gets the lock without waiting
	s.Undisturbed(before, s.Status())

	// Two at once, of different kinds, since the system may merge equal signals: the second does not wait for anything.
	m = s.Watch()
	s.AwaitWorld(2, 1)
	s.Write("job.hcl", sleeper("other", 2, "cpu = 1"))
	m.AwaitOutput("job.s.worker[0]: Destroying...")
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT} {
		m.Signal(sig)
	}
	if code := m.Wait(); code != 1 {
		t.Errorf("exit code %d after two interrupts", code)
	}
	site.Has(t, m.Out.String(), "Two interrupts received. Exiting immediately.")
	// The next apply completes it.
	s.Must("apply", "-auto-approve")
	if j := s.Status(); j.Address != "" {
		t.Errorf("job s is still there: %+v", j)
	}
	if j := s.Of("other").Status(); j.Phase != "Running" {
		t.Errorf("job other is %s", j.Phase)
	}
}
