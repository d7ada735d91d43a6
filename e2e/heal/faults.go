package heal

import (
	"slices"
	"syscall"

	"github.com/eltrain/eltrain/e2e/site"
)

// faults are those of all places.
var faults = []Fault{
	{
		Name: "process killed", Gate: Local | Kubernetes | Volcano, Amid: Local | Kubernetes, Late: Kubernetes,
		Struck: []int{2}, Strike: KillTrainer,
		Cause: "process_killed", Proof: "exit_signal", Ends: Local | Kubernetes,
	},
	{
		Name: "agent killed", Gate: Local | Kubernetes | Volcano, Amid: Local | Kubernetes, Away: Kubernetes, Late: Kubernetes,
		Struck: []int{1}, Replaced: []int{1}, Strike: KillAgents,
		Cause: "agent_gone", Proof: "agent_gone", Ends: Local | Kubernetes,
	},
	{
		Name: "agent and its process killed", Gate: Local, Amid: Local,
		Struck: []int{1}, Replaced: []int{1}, Strike: func(s *site.Site, struck []site.Slot) []int {
			both := []int{s.AgentOf(struck[0]), s.TrainerOf(struck[0])}
			site.Kill(s.T, syscall.SIGKILL, both...)
			return both
		},
		Cause: "agent_gone", Proof: "agent_gone",
	},
	{
		Name: "agent asked to go", Gate: Local | Kubernetes, Amid: Local | Kubernetes,
		Struck: []int{3}, Replaced: []int{3}, Strike: func(s *site.Site, struck []site.Slot) []int {
			agent := s.AgentOf(struck[0])
			site.Kill(s.T, syscall.SIGTERM, agent)
			return []int{agent}
		},
		Cause: "agent_left", Proof: "agent_left",
	},
	{
		Name: "agent of rank zero killed", Soak: Local | Kubernetes,
		Struck: []int{0}, Replaced: []int{0}, Strike: KillAgents, Cause: "agent_gone", Ends: Local | Kubernetes,
	},
	{
		Name: "two agents killed at once, one of rank zero", Soak: Local | Kubernetes, Amid: Local | Kubernetes,
		Struck: []int{0, 2}, Replaced: []int{0, 2}, Strike: KillAgents, Ends: Local | Kubernetes,
	},
	{
		Name: "process killed, and an agent while the next world forms", Soak: Local | Kubernetes,
		Struck: []int{1, 3}, Replaced: []int{3}, Strike: func(s *site.Site, struck []site.Slot) []int {
			trainer, agent := s.TrainerOf(struck[0]), s.AgentOf(struck[1])
			site.Kill(s.T, syscall.SIGKILL, trainer)
			site.Kill(s.T, syscall.SIGKILL, agent) // while the survivors stop and come together again
			return []int{trainer, agent}
		}, Ends: Local | Kubernetes,
	},
	{ // What never wakes is ended where it is.
		Name: "agent and process silent", Gate: Kubernetes, Amid: Local, Away: Kubernetes,
		Struck: []int{2}, Replaced: []int{2}, Strike: Silence,
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, Apart: true, Spare: true,
	},
	{ // What wakes is fenced off, or ended already.
		Name: "agent and process silent for a while", Gate: Local,
		Struck: []int{2}, Replaced: []int{2}, Strike: Silence,
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, Apart: true, Spare: true, Ends: Local,
		After: Wake,
	},
	{ // Nothing of it is left, which would count against a queue or a quota.
		Name: "node deleted", Gate: Volcano, Away: Kubernetes, Late: Kubernetes,
		Struck: []int{1}, Replaced: []int{1}, Strike: func(s *site.Site, struck []site.Slot) []int {
			s.Delete(struck[0].Node)
			return nil
		},
		Cause: "node_gone", Proof: "node_removed", Spare: true,
		After: func(s *site.Site, h Healed) {
			if pod := "pod/" + h.Struck[0].Name; slices.Contains(s.Left(), pod) {
				s.T.Errorf("%s is there, though its node is not", pod)
			}
		},
	},
}

// KillTrainer kills the process of a slot.
func KillTrainer(s *site.Site, struck []site.Slot) []int {
	trainer := s.TrainerOf(struck[0])
	site.Kill(s.T, syscall.SIGKILL, trainer)
	return []int{trainer}
}

// KillAgents kills agents, all at once: nothing outlives them.
func KillAgents(s *site.Site, struck []site.Slot) (ends []int) {
	var agents, trainers []int
	for _, slot := range struck {
		agents, trainers = append(agents, s.AgentOf(slot)), append(trainers, s.TrainerOf(slot))
	}
	site.Kill(s.T, syscall.SIGKILL, agents...)
	return append(agents, trainers...)
}

// Silence makes a slot silent, and leaves it there.
func Silence(s *site.Site, struck []site.Slot) []int {
	both := []int{s.AgentOf(struck[0]), s.TrainerOf(struck[0])}
	site.Kill(s.T, syscall.SIGSTOP, both...)
	return both
}

// Wake wakes what was silent. Its successor is not to notice.
func Wake(s *site.Site, h Healed) {
	for _, pid := range []int{h.Ends[1], h.Ends[0]} { // the agent last: once it runs, it ends the other
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been ended already
	}
	site.Gone(s.T, h.Ends...)
	s.Undisturbed(h.After, s.Now())
}
