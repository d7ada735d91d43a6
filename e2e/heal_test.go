package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/soak"
)

// steps of 40 ms: some 12 seconds of training, enough for a fault and its healing in the middle on a machine that is busy.
const steps = 300

// jobOptions vary the job that these tests run.
type jobOptions struct {
	name     string
	min, max int
	replicas int
	lease    string
	script   string // more arguments
	budget   int
	settle   string
}

// together is a settle time for tests in which all come, and in one world: on a machine that is busy the last of them may
// come later than a short one allows, and is then waited for by nobody.
const together = "60s"

func (o jobOptions) text() string {
	if o.name == "" {
		o.name = "mnist"
	}
	if o.lease == "" {
		o.lease = "15s"
	}
	if o.budget == 0 {
		o.budget = 10
	}
	if o.replicas == 0 {
		o.replicas = o.max
	}
	if o.settle == "" {
		o.settle = "1s"
	}
	return fmt.Sprintf(`
job %q {
  role "worker" {
    replicas   = %d
    command    = ["python3", "train.py", "--steps=%d", "--step-ms=40", "--ckpt-every=20", %s]
    stop_grace = "5s"
    scaling {
      min = %d
      max = %d
    }
    resources { cpu = 1 }
  }
  progress { pattern = "step (?P<step>\\d+) loss (?P<loss>\\S+)" }
  checkpoint {
    dir    = "ckpt-%s"
    signal = "SIGUSR1"
  }
  rendezvous { settle = %q }
  detect { lease = %q }
  heal {
    budget {
      restarts = %d
    }
  }
}
`, o.name, o.replicas, steps, o.script, o.min, o.max, o.name, o.settle, o.lease, o.budget)
}

// nodes declares nodes of one core by name.
func nodes(names ...string) string {
	var b strings.Builder
	b.WriteString("provider \"local\" {\n")
	for _, n := range names {
		fmt.Fprintf(&b, "  node %q {\n    cpu = 1\n  }\n", n)
	}
	b.WriteString("}\n")
	return b.String()
}

func site4(t *testing.T, o jobOptions) *site {
	t.Parallel()
	return newSite(t, map[string]string{"job.hcl": o.text(), "nodes.hcl": nodes("n1", "n2", "n3", "n4")})
}

func agents(j jobStatus) map[string]int {
	pids := map[string]int{}
	for _, s := range j.Slots {
		pids[s.Address] = s.AgentPID
	}
	return pids
}

func TestProcessKilledIsRestartedInPlace(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4, settle: together})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	victim := before.slot("worker[2]")
	kill(t, syscall.SIGKILL, victim.PID)
	after := s.awaitWorld("mnist", 4, before.Generation+1)
	if after.Generation != before.Generation+1 {
		t.Errorf("generation %d -> %d", before.Generation, after.Generation)
	}
	if !maps.Equal(agents(before), agents(after)) {
		t.Errorf("agents %v -> %v: one restart in place keeps all", agents(before), agents(after))
	}
	now := after.slot("worker[2]")
	if now.Incarnation != victim.Incarnation || now.Node != victim.Node || now.Rank != victim.Rank || now.Restarts != victim.Restarts+1 {
		t.Errorf("worker[2] %+v -> %+v", victim, now)
	}
	last := after.Incidents[len(after.Incidents)-1]
	if last.Cause != "process_killed" || last.Action != "restart_in_place" || !slices.Equal(last.Culprits, []string{"job.mnist.worker[2]"}) {
		t.Errorf("incident %+v", last)
	}
	s.endsRight("mnist", steps)
}

func TestAgentKilledWithItsProcessesIsReplaced(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4, settle: together})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	victim := before.slot("worker[1]")
	kill(t, syscall.SIGKILL, victim.AgentPID, victim.PID)
	after := s.awaitWorld("mnist", 4, before.Generation+1)
	now := after.slot("worker[1]")
	if now.Incarnation <= victim.Incarnation || now.Node != victim.Node || now.Rank != victim.Rank {
		t.Errorf("worker[1] %+v -> %+v: its reservation and rank stay", victim, now)
	}
	for _, other := range []string{"worker[0]", "worker[2]", "worker[3]"} {
		if before.slot(other).AgentPID != after.slot(other).AgentPID {
			t.Errorf("the agent of %s was restarted", other)
		}
	}
	s.endsRight("mnist", steps)
}

func TestAgentKilledAloneLeavesNoOrphan(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	victim := before.slot("worker[3]")
	kill(t, syscall.SIGKILL, victim.AgentPID)
	s.gone(victim.PID)
	s.awaitWorld("mnist", 4, before.Generation+1)
	s.endsRight("mnist", steps)
}

func TestAgentAskedToGoSaysSo(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	victim := before.slot("worker[1]")
	kill(t, syscall.SIGTERM, victim.AgentPID)
	after := s.awaitWorld("mnist", 4, before.Generation+1)
	s.gone(victim.AgentPID)
	if last := after.Incidents[len(after.Incidents)-1]; last.Cause != "agent_left" {
		t.Errorf("incident %+v", last)
	}
	s.endsRight("mnist", steps)
}

func TestRankZeroLost(t *testing.T) {
	soak.Only(t)
	s := site4(t, jobOptions{min: 2, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	for _, slot := range before.Slots {
		if slot.Rank == 0 {
			kill(t, syscall.SIGKILL, slot.AgentPID, slot.PID)
		}
	}
	s.awaitWorld("mnist", 4, before.Generation+1)
	s.endsRight("mnist", steps)
}

func TestTwoLostAtOnce(t *testing.T) {
	soak.Only(t)
	s := site4(t, jobOptions{min: 2, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	a, b := before.slot("worker[0]"), before.slot("worker[2]")
	kill(t, syscall.SIGKILL, a.AgentPID, b.AgentPID, a.PID, b.PID)
	s.awaitWorld("mnist", 4, before.Generation+1)
	s.endsRight("mnist", steps)
}

func TestOneLostWhileAWorldForms(t *testing.T) {
	soak.Only(t)
	s := site4(t, jobOptions{min: 2, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	kill(t, syscall.SIGKILL, before.slot("worker[1]").PID)
	// At once after it, while the survivors stop and come together again.
	kill(t, syscall.SIGKILL, before.slot("worker[3]").AgentPID)
	s.awaitWorld("mnist", 4, before.Generation+1)
	s.endsRight("mnist", steps)
}

func TestSilentHostIsGoneAfterItsLease(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4, lease: "2s"})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	victim := before.slot("worker[2]")
	kill(t, syscall.SIGSTOP, victim.AgentPID, victim.PID)
	after := s.await("mnist", "training without the silent host", func(j jobStatus) bool {
		return j.Generation > before.Generation && j.WorldSize >= 2 && slices.ContainsFunc(j.Incidents, func(i struct {
			Cause    string   `json:"cause"`
			Culprits []string `json:"culprits"`
			Action   string   `json:"action"`
			Evidence []string `json:"evidence"`
		}) bool {
			return i.Cause == "lease_lost"
		})
	})
	if now := after.slot("worker[2]"); now.AgentPID == victim.AgentPID && now.Phase == "Running" {
		t.Errorf("the silent agent still counts: %+v", now)
	}
	// It wakes: its old incarnation is fenced off. It may have been ended already.
	syscall.Kill(victim.AgentPID, syscall.SIGCONT)
	syscall.Kill(victim.PID, syscall.SIGCONT)
	s.gone(victim.AgentPID)
	s.gone(victim.PID)
	s.endsRight("mnist", steps)
}

func TestNodeRemovedShrinksAndNodeAddedGrows(t *testing.T) {
	const long = 2 * steps // while nodes come and go
	s := site4(t, jobOptions{min: 2, max: 4, settle: together, script: fmt.Sprintf(`"--steps=%d"`, long)})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	s.write("nodes.hcl", nodes("n1", "n2", "n4"))
	shrunk := s.awaitWorld("mnist", 3, before.Generation+1)
	for _, slot := range shrunk.running() {
		if slot.Node == "n3" {
			t.Errorf("%s still runs on n3", slot.Address)
		}
	}
	ranks := map[string]int{}
	for _, slot := range shrunk.running() {
		ranks[slot.Address] = slot.Rank
	}
	s.write("nodes.hcl", nodes("n1", "n2", "n4", "n5"))
	grown := s.awaitWorld("mnist", 4, shrunk.Generation+1)
	for address, rank := range ranks {
		for _, slot := range grown.Slots {
			if slot.Address == address && slot.Rank != rank {
				t.Errorf("%s had rank %d, and %d after growth", address, rank, slot.Rank)
			}
		}
	}
	s.endsRight("mnist", long)
}

func TestBelowMinItWaitsAndGoesOn(t *testing.T) {
	s := site4(t, jobOptions{min: 4, max: 4})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	s.write("nodes.hcl", nodes("n1", "n2", "n3"))
	s.await("mnist", "waiting below min, with what is wanted and what there is", func(j jobStatus) bool {
		told := strings.Join(j.Reasons, "\n")
		return j.Phase == "Degraded" && len(j.running()) == 0 &&
			strings.Contains(told, "Wanted: 1 worker with 1 cpu each. Available: n1 ")
	})
	s.write("nodes.hcl", nodes("n1", "n2", "n3", "n9"))
	s.awaitWorld("mnist", 4, before.Generation+1)
	s.endsRight("mnist", steps)
}

func TestMasterKilledInTheMiddleOfHealing(t *testing.T) {
	soak.Only(t)
	faults := map[string]func(t *testing.T, j jobStatus){
		"nothing":        func(t *testing.T, j jobStatus) {},
		"process killed": func(t *testing.T, j jobStatus) { kill(t, syscall.SIGKILL, j.slot("worker[2]").PID) },
		"agent killed": func(t *testing.T, j jobStatus) {
			kill(t, syscall.SIGKILL, j.slot("worker[1]").AgentPID, j.slot("worker[1]").PID)
		},
		"agent alone killed": func(t *testing.T, j jobStatus) { kill(t, syscall.SIGKILL, j.slot("worker[1]").AgentPID) },
		"agent asked to go":  func(t *testing.T, j jobStatus) { kill(t, syscall.SIGTERM, j.slot("worker[3]").AgentPID) },
		"two agents killed": func(t *testing.T, j jobStatus) {
			kill(t, syscall.SIGKILL, j.slot("worker[0]").AgentPID, j.slot("worker[3]").AgentPID)
		},
		"silent": func(t *testing.T, j jobStatus) {
			kill(t, syscall.SIGSTOP, j.slot("worker[1]").AgentPID, j.slot("worker[1]").PID)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := site4(t, jobOptions{min: 2, max: 4, lease: "8s"})
			s.watch()
			before := s.awaitWorld("mnist", 4, 1)
			fault(t, before)
			s.kill()
			s.watch()
			if name == "nothing" {
				// Adopted: the very same processes train on.
				after := s.awaitWorld("mnist", 4, 1)
				if after.Generation != before.Generation {
					t.Errorf("generation %d -> %d though nothing failed", before.Generation, after.Generation)
				}
				for _, slot := range before.Slots {
					for _, now := range after.Slots {
						if now.Address == slot.Address && (now.PID != slot.PID || now.AgentPID != slot.AgentPID) {
							t.Errorf("%s: pids %d, %d -> %d, %d", slot.Address, slot.AgentPID, slot.PID, now.AgentPID, now.PID)
						}
					}
				}
			} else {
				s.awaitWorld("mnist", 4, before.Generation+1)
			}
			s.endsRight("mnist", steps)
		})
	}
}

func TestNodeChangesWhileNoMasterRuns(t *testing.T) {
	soak.Only(t)
	const long = 2 * steps // while masters come and go
	s := site4(t, jobOptions{min: 2, max: 4, script: fmt.Sprintf(`"--steps=%d"`, long)})
	s.watch()
	before := s.awaitWorld("mnist", 4, 1)
	s.kill()
	s.write("nodes.hcl", nodes("n1", "n2", "n3"))
	s.watch()
	s.awaitWorld("mnist", 3, before.Generation+1)
	s.kill()
	s.write("nodes.hcl", nodes("n1", "n2", "n3", "n4"))
	s.watch()
	s.awaitWorld("mnist", 4, before.Generation+2)
	s.endsRight("mnist", long)
}

func TestScriptWithABugFailsTheJobWithItsEvidence(t *testing.T) {
	s := site4(t, jobOptions{min: 1, max: 1, budget: 2, script: `"--crash-at=5"`}) // alone: none ends because another did
	s.watch()
	failed := s.await("mnist", "failure", func(j jobStatus) bool { return j.Phase == "Failed" })
	last := failed.Incidents[len(failed.Incidents)-1]
	evidence := strings.Join(last.Evidence, "\n")
	if last.Action != "fail" || last.Cause != "process_failed" || !slices.ContainsFunc(last.Evidence, func(e string) bool { return strings.HasSuffix(e, ": exit code 1") }) ||
		!strings.Contains(evidence, "error file: ") || !strings.Contains(evidence, "output: ") {
		t.Errorf("incident %+v", last)
	}
	if _, code := s.run("status"); code != 1 {
		t.Errorf("status exits with %d for a failed job", code)
	}
	s.signalMaster(syscall.SIGTERM)
	if left := s.processes(); len(left) > 0 {
		t.Errorf("a failed job still runs: %v", left)
	}
	if out, code := s.run("apply", "-auto-approve"); code != 1 || !strings.Contains(out, "exit code 1") {
		t.Errorf("apply: exit code %d\n%s", code, out)
	}
}

func TestMissingCommandFailsAtOnce(t *testing.T) {
	text := strings.ReplaceAll(jobOptions{min: 2, max: 2}.text(), `"python3", "train.py"`, `"no-such-program"`)
	t.Parallel()
	s := newSite(t, map[string]string{"job.hcl": text, "nodes.hcl": nodes("n1", "n2")})
	out, code := s.run("apply", "-auto-approve")
	if code != 1 || !strings.Contains(out, "no-such-program") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if j := s.job("mnist"); j.Phase != "Failed" {
		t.Errorf("the job is %s", j.Phase)
	}
}

func TestOneJobsTroubleLeavesTheOthersAlone(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newSite(t, map[string]string{
		"a.hcl":     jobOptions{name: "a", min: 2, max: 2}.text(),
		"b.hcl":     jobOptions{name: "b", min: 2, max: 2}.text(),
		"nodes.hcl": nodes("n1", "n2", "n3", "n4"),
	})
	s.watch()
	a, b := s.awaitWorld("a", 2, 1), s.awaitWorld("b", 2, 1)
	for round := range 3 {
		now := s.awaitWorld("a", 2, a.Generation+round)
		kill(t, syscall.SIGKILL, now.slot("worker[0]").PID)
		s.awaitWorld("a", 2, a.Generation+round+1)
	}
	after := s.job("b")
	if after.Phase != "Succeeded" {
		was, now := agents(b), agents(after)
		for _, slot := range after.Slots {
			if slot.Phase == "Succeeded" { // the others are about to
				delete(was, slot.Address)
				delete(now, slot.Address)
			}
		}
		if after.Generation != b.Generation || !maps.Equal(now, was) {
			t.Errorf("job b went from generation %d to %d", b.Generation, after.Generation)
		}
	}
	s.endsRight("b", steps)
	if end := s.job("b"); end.Generation != b.Generation {
		t.Errorf("job b ended in generation %d, it began in %d", end.Generation, b.Generation)
	}
	s.endsRight("a", steps)
}

func TestPlainApplyLeavesTrainingToGoOn(t *testing.T) {
	s := site4(t, jobOptions{min: 2, max: 4, settle: together})
	out := s.must("apply", "-auto-approve")
	if !strings.Contains(out, "Apply complete! Resources: 4 added, 0 changed, 0 destroyed.") {
		t.Errorf("apply said:\n%s", out)
	}
	text := s.must("status")
	if !strings.Contains(text, "No master is running") {
		t.Errorf("status said:\n%s", text)
	}
	before := s.job("mnist")
	if len(before.Slots) != 4 {
		t.Fatalf("status: %+v", before)
	}
	if again := s.must("plan", "-detailed-exitcode"); !strings.Contains(again, "No changes.") {
		t.Errorf("the second plan said:\n%s", again)
	}
	s.watch()
	after := s.awaitWorld("mnist", 4, 1)
	if after.Generation != 1 {
		t.Errorf("the next master made generation %d", after.Generation)
	}
	s.endsRight("mnist", steps)
}

// Masters come and go every few hundred milliseconds, between one fault and the next. What the last one finds
// is one job, each of its slots once, and it ends right.
func TestMastersKilledAgainAndAgain(t *testing.T) {
	soak.Only(t)
	s := site4(t, jobOptions{min: 2, max: 4, lease: "5s", budget: 100})
	s.watch()
	s.awaitWorld("mnist", 4, 1)
	for round := range 12 {
		s.kill()
		s.watch()
		if round%3 != 0 {
			time.Sleep(time.Duration(50*(round%4)) * time.Millisecond) // a different moment each round
			continue
		}
		before := s.await("mnist", "training", func(j jobStatus) bool { return len(j.running()) >= 2 || j.Phase == "Succeeded" })
		if r := before.running(); len(r) > 0 {
			syscall.Kill(r[round%len(r)].PID, syscall.SIGKILL)
		}
	}
	s.endsRight("mnist", steps)
	if agents := strings.Count(fmt.Sprint(s.processes()), " agent "); agents > 4 {
		t.Errorf("%d agents for 4 slots: %v", agents, s.processes())
	}
}
