package heal

import (
	"slices"
	"syscall"

	"github.com/eltrain/eltrain/e2e/site"
)

// faults are common to all places.
var faults = []Fault{
	{
		Name: "process killed", Gate: Local | Kubernetes | Volcano, MasterDies: Local | Kubernetes, Delayed: Kubernetes,
		Victims: []int{2}, Inject: KillTrainer,
		Cause: "process_killed", Proof: "exit_signal", Ends: Local | Kubernetes,
	},
	{
		Name: "process stopped", Gate: Kubernetes, Soak: Local, MasterDies: Local | Kubernetes, MasterDown: Local,
		Victims: []int{2}, Prepare: hangsSoon, Inject: StopTrainer,
		Cause: "hang", Proof: "rank_stopped",
	},
	{
		Name: "agent killed", Gate: Local | Kubernetes | Volcano, MasterDies: Local | Kubernetes, MasterDown: Kubernetes, Delayed: Kubernetes,
		Victims: []int{1}, Replaced: []int{1}, Inject: KillAgents,
		Cause: "agent_gone", Proof: "agent_gone", Ends: Local | Kubernetes,
	},
	{
		Name: "agent and its process killed", Gate: Local, MasterDies: Local,
		Victims: []int{1}, Replaced: []int{1}, Inject: func(s *site.Site, victims []site.Slot) []int {
			both := []int{s.AgentOf(victims[0]), s.TrainerOf(victims[0])}
			site.Kill(s.T, syscall.SIGKILL, both...)
			return both
		},
		Cause: "agent_gone", Proof: "agent_gone",
	},
	{
		Name: "agent asked to go", Gate: Local | Kubernetes, MasterDies: Local | Kubernetes,
		Victims: []int{3}, Replaced: []int{3}, Inject: func(s *site.Site, victims []site.Slot) []int {
			agent := s.AgentOf(victims[0])
			site.Kill(s.T, syscall.SIGTERM, agent)
			return []int{agent}
		},
		Cause: "agent_left", Proof: "agent_left",
	},
	{
		Name: "agent of rank zero killed", Soak: Local | Kubernetes,
		Victims: []int{0}, Replaced: []int{0}, Inject: KillAgents, Cause: "agent_gone", Ends: Local | Kubernetes,
	},
	{
		Name: "two agents killed at once, one of rank zero", Soak: Local | Kubernetes, MasterDies: Local | Kubernetes,
		Victims: []int{0, 2}, Replaced: []int{0, 2}, Inject: KillAgents, Ends: Local | Kubernetes,
	},
	{
		Name: "process killed, and an agent while the next world forms", Soak: Local | Kubernetes,
		Victims: []int{1, 3}, Replaced: []int{3}, Inject: func(s *site.Site, victims []site.Slot) []int {
			trainer, agent := s.TrainerOf(victims[0]), s.AgentOf(victims[1])
			site.Kill(s.T, syscall.SIGKILL, trainer)
			site.Kill(s.T, syscall.SIGKILL, agent) // while the survivors stop and form the next world
			return []int{trainer, agent}
		}, Ends: Local | Kubernetes,
	},
	{ // It never wakes, and is killed in place.
		Name: "agent and process silent", Gate: Kubernetes, MasterDies: Local, MasterDown: Kubernetes,
		Victims: []int{2}, Replaced: []int{2}, Inject: Silence,
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, OthersTrain: true, Spare: true,
	},
	{ // It wakes to find itself fenced, or was already killed.
		Name: "agent and process silent for a while", Gate: Local,
		Victims: []int{2}, Replaced: []int{2}, Inject: Silence,
		Cause: "lease_lost", Proof: "silent_for_lease", Silent: true, OthersTrain: true, Spare: true, Ends: Local,
		After: Wake,
	},
	{ // Nothing of it may be left: it would count against a queue or a quota.
		Name: "node deleted", Gate: Volcano, MasterDown: Kubernetes, Delayed: Kubernetes,
		Victims: []int{1}, Replaced: []int{1}, Inject: func(s *site.Site, victims []site.Slot) []int {
			s.Delete(victims[0].Node)
			return nil
		},
		Cause: "node_gone", Proof: "node_removed", Spare: true,
		After: func(s *site.Site, h Healed) {
			if pod := "pod/" + h.Victims[0].Name; slices.Contains(s.Left(), pod) {
				s.T.Errorf("%s is there, though its node is not", pod)
			}
		},
	},
}

// KillTrainer kills the training process of a slot.
func KillTrainer(s *site.Site, victims []site.Slot) []int {
	trainer := s.TrainerOf(victims[0])
	site.Kill(s.T, syscall.SIGKILL, trainer)
	return []int{trainer}
}

// StopTrainer stops the training process of a slot.
func StopTrainer(s *site.Site, victims []site.Slot) []int {
	trainer := s.TrainerOf(victims[0])
	site.Kill(s.T, syscall.SIGSTOP, trainer)
	return []int{trainer}
}

// hangsSoon sets the shortest time without progress after which a world hangs.
func hangsSoon(s *site.Site) {
	s.Edit("job.hcl", "detect {", `detect {
    hang {
      floor = "3s"
    }
`)
}

// KillAgents kills agents, all at once. Their training processes die with them.
func KillAgents(s *site.Site, victims []site.Slot) (ends []int) {
	var agents, trainers []int
	for _, slot := range victims {
		agents, trainers = append(agents, s.AgentOf(slot)), append(trainers, s.TrainerOf(slot))
	}
	site.Kill(s.T, syscall.SIGKILL, agents...)
	return append(agents, trainers...)
}

// Silence suspends a slot's agent and training process.
func Silence(s *site.Site, victims []site.Slot) []int {
	both := []int{s.AgentOf(victims[0]), s.TrainerOf(victims[0])}
	site.Kill(s.T, syscall.SIGSTOP, both...)
	return both
}

// Wake resumes what Silence suspended. Its successor must not be disturbed.
func Wake(s *site.Site, h Healed) {
	for _, pid := range []int{h.Ends[1], h.Ends[0]} { // the agent last: once it runs, it ends the other
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed already
	}
	site.AwaitExit(s.T, h.Ends...)
	s.Undisturbed(h.After, s.Now())
}
