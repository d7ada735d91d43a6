package heal

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
)

// cases are not faults of a slot.
var cases = []Case{
	{Name: "nodes deleted down to min and below come back", Gate: Local | Kubernetes, Nodes: 4, Try: nodesComeAndGo},
	{Name: "nodes come and go while no master runs", Soak: Local, Nodes: 4, Try: nodesComeAndGoUnseen},
	{Name: "master killed", Gate: Kubernetes | Volcano, Soak: Local, Nodes: 4, Try: masterKilled},
	{Name: "masters killed again and again", Soak: Local | Kubernetes, Nodes: 4, Try: mastersKilled},
	{Name: "plain apply leaves training to go on", Gate: Local | Kubernetes, Nodes: 4, Try: plainApply},
	{Name: "suspended and resumed", Gate: Local | Kubernetes | Volcano, Nodes: 2, Try: suspended},
	{Name: "resized, restarted and canceled", Gate: Local | Kubernetes | Volcano, Nodes: 3, Try: operated},
	{Name: "restarted elsewhere, inspected and killed", Gate: Local | Kubernetes, Nodes: 3, Try: elsewhereAndKilled},
	{Name: "applied and destroyed beside a watch", Gate: Local | Kubernetes | Volcano, Nodes: 3, Try: appliedAndDestroyed},
	{Name: "nodes cordoned and drained", Gate: Local | Kubernetes | Volcano, Nodes: 3, Try: nodesDrained},
	{Name: "asked to act", Gate: Local | Kubernetes | Volcano, Nodes: 2, Try: askedToAct},
	{Name: "script with a bug", Gate: Local | Kubernetes, Nodes: 2, Try: scriptWithABug},
	{Name: "missing command", Gate: Local | Kubernetes, Nodes: 2, Try: missingCommand},
}

func nodesComeAndGo(_ On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.DropBlock("job.hcl", "topology") // so that ranks do not follow nodes
	s.Watch()
	before := s.AwaitWorld(4, 1)
	first := before.On(s.Node(1))
	s.Delete(s.Node(1))
	three := s.AwaitWorld(3, before.Generation+1)
	s.Untouched(before, three, first)
	s.Blamed(three, "node_gone", []site.Slot{first}, s.Node(1))
	s.Delete(s.Node(2))
	two := s.AwaitWorld(2, three.Generation+1)
	s.Delete(s.Node(3))
	s.Await("waiting below min, with what is wanted", func(j site.Job) bool {
		return j.Phase == "Degraded" && j.WorldSize == 0 && len(j.Running()) == 0 && j.Lacks("1", "1 cpu, 256MiB")
	})
	s.Reconnect(s.Node(1))
	s.Reconnect(s.Node(2))
	shrunk := s.AwaitWorld(3, two.Generation+1)
	s.Reconnect(s.Node(3))
	grown := s.AwaitWorld(4, shrunk.Generation+1)
	s.Untouched(shrunk, grown, grown.On(s.Node(3)))
	for _, was := range shrunk.Running() {
		if now := grown.At(was.Address); now.Rank != was.Rank {
			s.T.Errorf("%s had rank %d, and %d after growth", was.Address, was.Rank, now.Rank)
		}
	}
	s.ContinuesRight(long)
}

func nodesComeAndGoUnseen(_ On, s *site.Site) {
	s.SetSteps(long)
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	m.Kill()
	s.Delete(s.Node(4))
	m = s.Watch()
	three := s.AwaitWorld(3, before.Generation+1)
	m.Kill()
	s.Reconnect(s.Node(4))
	s.Watch()
	s.AwaitWorld(4, three.Generation+1)
	s.ContinuesRight(long)
}

// The same processes continue training.
func masterKilled(on On, s *site.Site) {
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	m := s.Watch()
	before := s.AwaitWorld(4, 1)
	kept := on.kept(s)
	for range 2 {
		m.Kill()
		m = s.Watch()
		s.Undisturbed(before, s.AwaitWorld(4, 1))
		if now := on.kept(s); now != kept {
			s.T.Errorf("%v became %v", kept, now)
		}
	}
	s.ContinuesRight(long)
}

// Masters are killed between faults. In the end there is one job, with each slot once, and its losses are right.
func mastersKilled(_ On, s *site.Site) {
	const steps = 4 * site.Steps // enough for all the masters
	s.SetSteps(steps)
	s.SetLease(site.Lenient)
	listen := "-listen=" + loopback.Free(s.T) // the same for all masters: agents may learn of another address late
	m := s.Watch(listen)
	before := s.AwaitWorld(4, 1)
	for round := range 9 {
		m.Kill()
		m = s.Watch(listen)
		if round%3 != 0 {
			time.Sleep(time.Duration(200*(round%5)) * time.Millisecond) // a different moment each round
			continue
		}
		now := s.Await("training", func(j site.Job) bool { return len(j.Running()) == 4 })
		KillTrainer(s, []site.Slot{now.Ranked(round % 4)})
	}
	s.Untouched(before, s.AwaitWorld(4, before.Generation+1))
	if agents := strings.Count(fmt.Sprint(s.Processes()), " -slot="); agents != 4 {
		s.T.Errorf("%d agents for 4 slots: %v", agents, s.Processes())
	}
	s.EndsRight(steps)
	if end := s.Now(); !maps.Equal(incarnations(end), incarnations(before)) {
		s.T.Errorf("the incarnations %v became %v", incarnations(before), incarnations(end))
	}
}

func plainApply(_ On, s *site.Site) {
	s.SetSteps(long)
	s.SetLease(site.Lenient)
	s.Together()
	site.Has(s.T, s.Must("apply", "-auto-approve"), "Apply complete! Resources: 4 added, 0 changed, 0 destroyed.")
	if s.HasMaster() {
		s.T.Error("status says that a master is watching")
	}
	before := s.Now()
	if len(before.Slots) != 4 {
		s.T.Fatalf("status: %+v", before)
	}
	if out, code := s.Run("plan", "-detailed-exitcode"); code != 0 {
		s.T.Errorf("the second plan has changes:\n%s", out)
	}
	s.Watch()
	after := s.AwaitWorld(4, 1)
	s.Undisturbed(before, after)
	if after.Generation != 1 {
		s.T.Errorf("the next master made generation %d", after.Generation)
	}
	s.ContinuesRight(long)
}

// A job that the files or an operator suspend holds nothing, and continues from its checkpoint when it is resumed.
func suspended(_ On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Watch()
	before := s.AwaitWorld(2, 1)
	s.MakesProgress()
	const running, declared = "job \"mnist\" {\n", "job \"mnist\" {\n  suspend = true\n"
	s.Edit("job.hcl", running, declared)
	s.Await("suspended", func(j site.Job) bool { return j.Phase == "Suspended" && len(j.Running()) == 0 })
	if agents := strings.Count(fmt.Sprint(s.Processes()), " -slot="); agents > 0 {
		s.T.Errorf("it is suspended, and %d agents run: %v", agents, s.Processes())
	}
	if out, code := s.Run("plan", "-detailed-exitcode"); code != 0 {
		s.T.Errorf("a suspended job has changes:\n%s", out)
	}
	s.Edit("job.hcl", declared, running)
	s.AwaitWorld(2, before.Generation+1)
	s.MakesProgress()

	// With -keep its agents stay, and its next world has new processes in the same slots.
	trained := s.AwaitWorld(2, before.Generation+1)
	site.Has(s.T, s.Must("suspend", "-keep", "-until=1h", "job.mnist"), "done")
	s.Await("suspended", func(j site.Job) bool { return j.Phase == "Suspended" && len(j.Running()) == 0 })
	if out, code := s.Run("plan", "-detailed-exitcode"); code != 0 {
		s.T.Errorf("a job that is suspended and keeps its slots has changes:\n%s", out)
	}
	site.Has(s.T, s.Must("resume", "job.mnist"), "done")
	kept := s.AwaitWorld(2, before.Generation+2)
	s.Untouched(trained, kept)
	if n := len(kept.Incidents); n > 0 {
		s.T.Errorf("that it was suspended is an incident: %+v", kept.Incidents)
	}

	// Without it a request does the same as the files, and an edit of anything else does not end it.
	site.Has(s.T, s.Must("suspend", "-reason=a test", "job.mnist"), "done")
	s.Await("suspended", func(j site.Job) bool { return j.Phase == "Suspended" && j.Says("a test") })
	site.Has(s.T, s.Must("resume", "job.mnist"), "done")
	s.AwaitWorld(2, before.Generation+3)
	s.ContinuesRight(long)
}

// Operators choose its size, replace a slot, end the job and run it again.
func operated(_ On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Watch()
	whole := s.AwaitWorld(3, 1)
	out, code := s.Run("scale", "job.mnist.worker=9")
	if code != 1 {
		s.T.Errorf("it grows above its maximum: %s", out)
	}
	site.Has(s.T, out, "refused", "4 would be legal")
	site.Has(s.T, s.Must("scale", "-reason=room for others", "job.mnist.worker=2"), "done")
	small := s.AwaitWorld(2, whole.Generation+1)
	if !small.Says("room for others") {
		s.T.Errorf("it does not say why it is small: %v", small.Reasons)
	}
	site.Has(s.T, s.Must("scale", "job.mnist.worker=auto"), "done")
	grown := s.AwaitWorld(3, small.Generation+1)

	site.Has(s.T, s.Must("restart", "job.mnist.worker[1]"), "done")
	restarted := s.AwaitWorld(3, grown.Generation+1)
	s.ReplacedOnce(grown, restarted, grown.Worker(1))
	site.Has(s.T, s.Must("restart", "-in-place", "job.mnist.worker[1]"), "done")
	grown, restarted = restarted, s.AwaitWorld(3, restarted.Generation+1)
	s.Untouched(grown, restarted)
	for _, was := range grown.Running() {
		if restarted.At(was.Address).PID == was.PID {
			s.T.Errorf("the process of %s was not restarted", was.Address)
		}
	}
	if n := len(restarted.Incidents); n > 0 {
		s.T.Errorf("what operators ask for is an incident: %+v", restarted.Incidents)
	}
	s.MakesProgress()

	site.Has(s.T, s.Must("cancel", "job.mnist"), "done")
	s.Await("canceled", func(j site.Job) bool { return j.Phase == "Canceled" && len(j.Running()) == 0 })
	if out, code := s.Run("plan", "-detailed-exitcode"); code != 0 {
		s.T.Errorf("a canceled job has changes:\n%s", out)
	}
	site.Has(s.T, s.Must("restart", "job.mnist"), "done")
	if again := s.AwaitWorld(3, 1); again.UID == whole.UID {
		s.T.Error("what was canceled goes on, instead of another run")
	}
	s.ContinuesRight(long)
}

var savedStep = regexp.MustCompile(`: done: step (\d+), \S*step-\d+\.json`)

// Training processes are asked for a checkpoint, go back to it, and get signals.
func askedToAct(_ On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Together()
	s.Edit("job.hcl", fmt.Sprintf("--ckpt-every=%d", site.ProgressSteps), "--ckpt-every=1000000")
	s.Watch()
	before := s.AwaitWorld(2, 1)
	checkpoint := func() int {
		s.MakesProgress()
		out := s.Must("checkpoint", "job.mnist")
		found := savedStep.FindStringSubmatch(out)
		if found == nil {
			s.T.Fatalf("it does not say which checkpoint there is: %s", out)
		}
		step, _ := strconv.Atoi(found[1])
		return step
	}
	first := checkpoint()
	second := checkpoint()
	if second <= first {
		s.T.Errorf("it says step %d after step %d", second, first)
	}
	s.Undisturbed(before, s.Now())

	out, code := s.Run("reload", "-step=1", "job.mnist")
	if code != 1 {
		s.T.Errorf("it goes back to a checkpoint that is not there: %s", out)
	}
	site.Has(s.T, out, "refused", "there is no checkpoint of step 1")
	s.Undisturbed(before, s.Now())
	site.Has(s.T, s.Must("reload", fmt.Sprintf("-step=%d", second), "job.mnist"), fmt.Sprintf("done: step %d, ", second))
	after := s.AwaitWorld(2, before.Generation+1)
	if n := len(after.Incidents); n > 0 {
		s.T.Errorf("it is an incident: %+v", after.Incidents)
	}
	s.MakesProgress()
	site.Has(s.T, s.Must("logs", "job.mnist.worker[0]"), fmt.Sprintf("begins after step %d", second))

	site.Has(s.T, s.Must("signal", "TERM", "job.mnist.worker[1]"), "signal SIGTERM job.mnist.worker[1]: done")
	healed := s.AwaitWorld(2, after.Generation+1)
	if last := healed.Last(); last.Cause != "process_killed" {
		s.T.Errorf("the incident is %+v", last)
	}
	s.ContinuesRight(long)
}

// The job fails with its evidence once its budget is spent.
func scriptWithABug(_ On, s *site.Site) {
	for old, alone := range map[string]string{"min = 2": "min = 1", "max = 4": "max = 1", "replicas   = var.replicas": "replicas = 1"} {
		s.Edit("job.hcl", old, alone) // a single worker: none fails because another did
	}
	s.Edit("job.hcl", `"--steps=`, `"--crash-at=5", "--steps=`)
	s.Edit("job.hcl", "restarts = 10", "restarts = 2")
	m := s.Watch()
	failed := s.Await("failure", func(j site.Job) bool { return j.Phase == "Failed" })
	last := failed.Last()
	if last.Action != "fail" || last.Cause != "script_error" || !last.Proven("exit_code") || !last.Proven("error_file") || !last.Proven("signature") || !last.Proven("output") {
		s.T.Errorf("the incident is %+v", last)
	}
	site.Has(s.T, strings.Join(last.Evidence, "\n"), "exit code 1", "RuntimeError: crash asked for at step 5")
	if out, code := s.Run("status"); code != 1 {
		s.T.Errorf("status exits with %d for a failed job:\n%s", code, out)
	}
	m.Interrupt()
	site.Until(s.T, "nothing of a failed job runs", func() bool { return len(s.Processes()) == 0 })
}

// The job fails at once, however many restarts it has.
func missingCommand(_ On, s *site.Site) {
	s.Edit("job.hcl", "[var.python,", `["no-such-program",`)
	if out, code := s.Run("apply", "-auto-approve"); code != 1 || !strings.Contains(out, "no-such-program") {
		s.T.Errorf("apply: exit code %d\n%s", code, out)
	}
	j := s.Now()
	if last := j.Last(); j.Phase != "Failed" || last.Cause != "start_failed" || !last.Proven("cannot_start") {
		s.T.Errorf("the job is %s, and the incident %+v", j.Phase, last)
	}
	// The plan names the command too: only the evidence says that it is the cause.
	site.Has(s.T, strings.Join(j.Last().Evidence, "\n"), "no-such-program")
}
