package heal

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/e2e/site"
)

// shown is where a verb is shown: by a case at places, and by a scenario of the simulator.
type shown struct {
	verb     string // as it is asked: "restart -elsewhere"
	at       string // the name of a case, which Try calls with it
	scenario string // a file of providers/sim/testdata; "" without: the simulator has no such processes, see why
	why      string
}

// verbs are all that operators can ask for, in all flavors, with where each is shown.
var verbs = []shown{
	{verb: "suspend", at: "suspended and resumed", scenario: "suspend.txt"},
	{verb: "suspend -keep", at: "suspended and resumed", scenario: "modes.txt"},
	{verb: "resume", at: "suspended and resumed", scenario: "modes.txt"},
	{verb: "scale", at: "resized, restarted and canceled", scenario: "scale.txt"},
	{verb: "restart", at: "resized, restarted and canceled", scenario: "modes.txt"},
	{verb: "restart -in-place", at: "resized, restarted and canceled", scenario: "modes.txt"},
	{verb: "cancel", at: "resized, restarted and canceled", scenario: "modes.txt"},
	{verb: "restart -elsewhere", at: "restarted elsewhere, inspected and killed", scenario: "modes.txt"},
	{verb: "cancel -force", at: "restarted elsewhere, inspected and killed", scenario: "modes.txt"},
	{verb: "exec", at: "restarted elsewhere, inspected and killed", why: "no request: it runs a command beside real processes"},
	{verb: "stacks", at: "restarted elsewhere, inspected and killed", why: "no request: it reads real processes"},
	{verb: "checkpoint", at: "asked to act", scenario: "acts.txt"},
	{verb: "reload", at: "asked to act", scenario: "acts.txt"},
	{verb: "signal", at: "asked to act", scenario: "acts.txt"},
	{verb: "apply", at: "applied and destroyed beside a watch", scenario: "apply_asked.txt"},
	{verb: "destroy", at: "applied and destroyed beside a watch", scenario: "destroy_asked.txt"},
	{verb: "cordon", at: "nodes cordoned and drained", scenario: "drain.txt"},
	{verb: "uncordon", at: "nodes cordoned and drained", scenario: "drain.txt"},
	{verb: "drain", at: "nodes cordoned and drained", scenario: "drain.txt"},
}

// An apply beside a watch replaces a slot, and a destroy ends the job although the files declare it, until it is restarted.
func appliedAndDestroyed(_ On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Watch()
	before := s.AwaitWorld(3, 1)
	site.Has(s.T, s.Must("apply", "-auto-approve", "-replace=job.mnist.worker[1]"), "Apply complete! Resources: 1 added, 0 changed, 1 destroyed.")
	after := s.AwaitWorld(3, before.Generation+1)
	s.ReplacedOnce(before, after, before.Worker(1))
	if n := len(after.Incidents); n > 0 {
		s.T.Errorf("what was applied is an incident: %+v", after.Incidents)
	}
	s.MakesProgress()

	s.Must("destroy", "-auto-approve")
	site.Until(s.T, "nothing of a destroyed job runs", func() bool { return agents(s) == 0 })
	out, code := s.Run("plan", "-detailed-exitcode")
	if code != 0 {
		s.T.Errorf("a destroyed job has changes:\n%s", out)
	}
	site.Has(s.T, out, "In effect beside the files", "Destroyed by")
	site.Has(s.T, s.Must("restart", "job.mnist"), "done")
	if again := s.AwaitWorld(3, 1); again.UID == before.UID {
		s.T.Error("what was destroyed goes on, instead of another run")
	}
	s.ContinuesRight(long)
}

// New slots stay off a cordoned node, and slots leave a drained one. Where a scheduler chooses the nodes, both are refused, and the
// refusal says what does it there.
func nodesDrained(on On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Watch()
	before := s.AwaitWorld(3, 1)
	last := s.Node(3)
	if on.Place != Local {
		for verb, command := range map[string]string{"cordon": "kubectl cordon " + last, "drain": "kubectl cordon " + last, "uncordon": "kubectl uncordon " + last} {
			out, code := s.Run(verb, last)
			if code != 1 {
				s.T.Errorf("%s: exit code %d: %s", verb, code, out)
			}
			site.Has(s.T, site.Unwrapped(out), "refused", command)
		}
		s.Undisturbed(before, s.Now())
		s.ContinuesRight(long)
		return
	}
	victim := before.On(last)
	site.Has(s.T, s.Must("cordon", "-until=1h", last), "done")
	site.Has(s.T, s.Must("nodes", last), "Cordoned by")
	s.Undisturbed(before, s.Now())
	site.Has(s.T, s.Must("drain", "-reason=a disk is replaced", last), "done")
	drained := s.AwaitWorld(2, before.Generation+1)
	s.Untouched(before, drained, victim)
	site.Has(s.T, s.Must("nodes", last), "Drained by", "a disk is replaced")
	site.Has(s.T, s.Must("uncordon", last), "done")
	grown := s.AwaitWorld(3, drained.Generation+1)
	if grown.On(last).Address == "" {
		s.T.Errorf("no slot is on the node that is in use again: %+v", grown.Slots)
	}
	if n := len(grown.Incidents); n > 0 {
		s.T.Errorf("what operators ask for is an incident: %+v", grown.Incidents)
	}
	s.ContinuesRight(long)
}

// A slot goes to another node, its processes are looked at, and the job is killed without a checkpoint.
func elsewhereAndKilled(on On, s *site.Site) {
	s.SetSteps(long)
	s.NotByLease()
	s.Edit("job.hcl", fmt.Sprintf("--ckpt-every=%d", site.ProgressSteps), "--ckpt-every=1000000") // only those that it is asked for
	s.Watch()
	whole := s.AwaitWorld(3, 1)
	s.Must("scale", "job.mnist.worker=2")
	before := s.AwaitWorld(2, whole.Generation+1)
	victim := before.Ranked(1) // whichever two are left
	site.Has(s.T, s.Must("restart", "-elsewhere", victim.Address), "done")
	after := s.AwaitWorld(2, before.Generation+1)
	s.Replaced(before, after, victim)
	if now := after.At(victim.Address); now.Node == victim.Node {
		s.T.Errorf("%s is on %s again", now.Address, now.Node)
	}
	s.MakesProgress()

	if on.MayExec != nil {
		on.MayExec(s)
	}
	for _, slot := range after.Running() {
		out, code := s.Run("exec", slot.Address, "--", "sh", "-c", `echo "$ELTRAIN_JOB of $WORLD_SIZE"; exit 7`)
		if code != 7 || out != "mnist of 2\n" {
			s.T.Errorf("exec in %s: exit code %d, %q", slot.Address, code, out)
		}
	}
	var stacks struct {
		Slots []struct{ Processes []struct{ Threads []any } }
	}
	s.OK(json.Unmarshal([]byte(s.Must("stacks", "-json", "job.mnist")), &stacks))
	if len(stacks.Slots) != 2 || len(stacks.Slots[0].Processes) == 0 || len(stacks.Slots[0].Processes[0].Threads) == 0 {
		s.T.Errorf("the stacks are not those of all slots: %+v", stacks)
	}
	s.Undisturbed(after, s.Now())

	written := checkpoints(s)
	site.Has(s.T, s.Must("cancel", "-force", "job.mnist"), "done")
	s.Await("canceled", func(j site.Job) bool { return j.Phase == "Canceled" && len(j.Running()) == 0 })
	if n := checkpoints(s); n != written {
		s.T.Errorf("there were %d checkpoints, and %d after it was killed", written, n)
	}
	if n := agents(s); n > 0 {
		s.T.Errorf("it is killed, and %d agents run", n)
	}
}

// agents is how many agents run.
func agents(s *site.Site) int { return strings.Count(fmt.Sprint(s.Processes()), " -slot=") }

// checkpoints is how many checkpoints the training has written.
func checkpoints(s *site.Site) (n int) {
	for _, e := range s.Events() {
		if e.Ev == "ckpt" {
			n++
		}
	}
	return n
}
