// Package heal is the suite of faults and other cases that every place must pass: processes on this machine, pods, and gangs of
// pods. It is a table of faults with their expected outcomes, and of other cases. A place may add faults of its own.
//
//	heal.go      where and when each is run
//	fault.go     what a fault is, and how it is checked: with a master, while the master dies, while none runs
//	faults.go    the faults common to all places
//	verbs.go     what operators ask for: where each verb is shown, also in the simulator
//	cases.go     cases that are not faults of a slot: nodes, masters, programs
package heal

import (
	"slices"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// Places is a set of places.
type Places uint

// The places.
const (
	Local Places = 1 << iota
	Kubernetes
	Volcano
)

// On runs the suite at a place.
type On struct {
	Place  Places
	New    func(t *testing.T, nodes int) *site.Site // makes the example on this many nodes, in a parallel test
	Faults []Fault                                  // the place's own
	Kept   func(s *site.Site) any                   // returns a value that no fault may change; nil if there is none
	// MayExec makes eltrain a user who may run commands in slots; nil if the usual one may.
	MayExec func(s *site.Site)
	Delay   func(s *site.Site) // delays the place's own reports; nil if it has none
}

// Case is run at some places, in `make test` (Gate) or only in `make soak` (Soak).
type Case struct {
	Name       string
	Gate, Soak Places
	Nodes      int
	Try        func(on On, s *site.Site)
}

// Run runs the place's cases of `make test`.
func (on On) Run(t *testing.T) { on.run(t, func(c Case) Places { return c.Gate }) }

// Soak runs the place's cases of `make soak`.
func (on On) Soak(t *testing.T) { on.run(t, func(c Case) Places { return c.Soak }) }

// kept returns the value that no fault may change.
func (on On) kept(s *site.Site) any {
	if on.Kept == nil {
		return nil
	}
	return on.Kept(s)
}

func (on On) run(t *testing.T, where func(Case) Places) {
	t.Parallel() // otherwise its cases run only beside each other
	all := slices.Clone(cases)
	for _, f := range slices.Concat(faults, on.Faults) {
		all = append(all,
			Case{Name: f.Name, Gate: f.Gate, Soak: f.Soak, Nodes: f.nodes(), Try: func(on On, s *site.Site) { on.Heals(s, f) }},
			Case{Name: f.Name + ", and the master dies while healing", Soak: f.MasterDies, Nodes: 5, Try: f.healsMasterDies},
			Case{Name: f.Name + " while no master runs", Soak: f.MasterDown, Nodes: 5, Try: f.healsMasterDown},
			Case{Name: f.Name + ", with late reports", Soak: f.Delayed, Nodes: 5, Try: f.healsDelayed},
		)
	}
	for _, c := range all {
		if where(c)&on.Place == 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			c.Try(on, on.New(t, c.Nodes))
		})
	}
}
