package sim_test

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/sim"
)

// hangTime is how long processes hang until detection, which is none of the simulated, is certain of it.
const hangTime = 3 * time.Second

// hang makes an agent's processes hang, and wakes the masters when that is found.
func (w *world) hang(a *sim.Agent) {
	a.Hang()
	w.cluster.After(hangTime, func() {
		w.hangs++
		for _, m := range w.all() {
			if m.leads() {
				m.do(func() { m.step(apply.Woken{}) })
			}
		}
	})
}

// suspect adds to a service's facts what detection says of them.
func (w *world) suspect(facts map[string]elastic.Facts) map[string]elastic.Facts {
	for name, f := range facts {
		s := job.Suspicion{Cause: job.Hang, Generation: f.World.Generation, Ranks: []int{0}, Certain: true}
		for _, a := range w.cluster.Agents() {
			generation, runs := a.Running()
			if since := a.Hung(); a.UID() == f.UID && runs && generation == s.Generation && !since.IsZero() && w.cluster.Now().Sub(since) >= hangTime {
				s.Slots, s.Since = append(s.Slots, a.Slot()), since
			}
		}
		if len(s.Slots) > 0 && !f.World.Broken {
			slices.SortFunc(s.Slots, job.Address.Compare)
			s.Evidence = []job.Reason{job.Because("found", "slot", s.Slots[0].Short())}
			f.Suspicions = []job.Suspicion{s}
			facts[name] = f
		}
	}
	return facts
}
