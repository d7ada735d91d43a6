package faults

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// standby starts another master of the same state, in its own directory, that waits for the lock.
func (s *trial) standby() (other *trial, m *site.Master) {
	s.T.Helper()
	in := *s.Site
	in.Site = in.Site.Elsewhere()
	other = &trial{&in}
	m = other.Watch("-lock-timeout=8760h")
	m.AwaitOutput("Acquiring state lock")
	return other, m
}

// replacedOnce checks that each slot has one pod, the victim's slot its second, and that no slot ever had two processes at a
// time.
func (s *trial) replacedOnce(victim corev1.Pod) {
	s.T.Helper()
	for _, problem := range s.notReplacedOnce(victim) {
		s.T.Error(problem)
	}
}

func (s *trial) notReplacedOnce(victim corev1.Pod) (problems []string) {
	s.T.Helper()
	incarnations := map[string]int{}
	for _, p := range s.Pods() {
		incarnations[p.Labels["eltrain.dev/index"]+"/"+p.Labels["eltrain.dev/incarnation"]]++
	}
	want := map[string]int{"0/1": 1, "1/1": 1}
	delete(want, victim.Labels["eltrain.dev/index"]+"/1")
	want[victim.Labels["eltrain.dev/index"]+"/2"] = 1
	if !maps.Equal(incarnations, want) {
		problems = append(problems, fmt.Sprintf("the pods by slot and incarnation are %v, wanted %v", incarnations, want))
	}
	if twice := s.noted("twice"); len(twice) > 0 {
		problems = append(problems, fmt.Sprintf("ran twice at a time: %q", twice))
	}
	return problems
}

// Of two masters one leads and the other waits. When the first is killed the second takes over within the lease,
// finds everything as it was, and heals once what broke meanwhile.
func TestTwoMastersOneLeads(t *testing.T) {
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.counting(workers))
	first := s.Watch()
	before := s.AwaitWorld(workers, 1)
	second, standby := s.standby()

	s.Renewed("main")
	first.Kill()
	s.TakenOver("main")
	standby.AwaitOutput("Watching.")
	second.Await("every agent beats at the second master", func(j site.Job) bool { return j.Phase == "Running" && j.Step > 0 && len(j.Slots) == workers })
	s.trainsUndisturbed(workers)

	// The first comes back and waits, and only the leader heals the next fault.
	again := s.Watch("-lock-timeout=8760h")
	again.AwaitOutput("Acquiring state lock")
	victim := s.Pods()[0]
	s.DeletePod(victim.Name, podsite.AtOnce())
	second.AwaitWorld(workers, before.Generation+1)
	s.replacedOnce(victim)
	again.Kill() // it is waiting, and holds no lock
	standby.Interrupt()
	s.destroyed()
}

// A master that hangs for longer than its lease, and wakes while another is healing, repeats nothing: it finds that it no longer
// leads, and exits.
func TestMasterHangsAndWakes(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	s.Write("job.hcl", settings+provider()+s.counting(workers))
	first := s.Watch()
	before := s.AwaitWorld(workers, 1)
	second, standby := s.standby()

	victim := s.Pods()[0]
	s.Renewed("main")
	first.Signal(syscall.SIGSTOP)
	s.DeletePod(victim.Name, podsite.AtOnce())
	s.TakenOver("main")
	standby.AwaitOutput("Watching.")
	first.Signal(syscall.SIGCONT)
	if code := first.Wait(); code == 0 {
		t.Error("a master that has lost its lock ends as if nothing had been")
	}
	site.Has(t, first.Out.String(), "lock was lost", "jobs keep running")
	second.AwaitWorld(workers, before.Generation+1)
	s.replacedOnce(victim)
	standby.Interrupt()
	s.destroyed()
}
