// Package heal is the one suite of what befalls training and its masters, wherever that runs: processes of this machine, pods,
// and gangs of them. It is a table of faults, each with what becomes of whom, and of other cases. A place may add faults that
// only it knows.
//
//	heal.go      where and when each is run
//	fault.go     what is a fault, and what becomes of it: in a calm training, while a master dies, while none runs
//	faults.go    the faults of all places
//	cases.go     what is no fault of a slot: nodes, masters, programs
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

// On is a place as the tests of its package have it.
type On struct {
	Place  Places
	New    func(t *testing.T, nodes int) *site.Site // the example on so many nodes, in a test that runs beside others
	Faults []Fault                                  // that only it knows
	Kept   func(s *site.Site) any                   // gives what outlives every fault; nil where there is no such thing
	Delay  func(s *site.Site)                       // makes the place's own news come late; nil where there is no such thing
}

// Case is something that is tried at some places, in `make test` or only in `make soak`.
type Case struct {
	Name       string
	Gate, Soak Places
	Nodes      int
	Try        func(on On, s *site.Site)
}

// Run tries what `make test` has of a place, Soak what only `make soak` has.
func (on On) Run(t *testing.T) { on.run(t, func(c Case) Places { return c.Gate }) }

// Soak is Run for `make soak`.
func (on On) Soak(t *testing.T) { on.run(t, func(c Case) Places { return c.Soak }) }

// kept is what outlives a fault.
func (on On) kept(s *site.Site) any {
	if on.Kept == nil {
		return nil
	}
	return on.Kept(s)
}

func (on On) run(t *testing.T, where func(Case) Places) {
	t.Parallel() // or nothing else runs beside its cases
	all := slices.Clone(cases)
	for _, f := range slices.Concat(faults, on.Faults) {
		all = append(all,
			Case{Name: f.Name, Gate: f.Gate, Soak: f.Soak, Nodes: f.nodes(), Try: func(on On, s *site.Site) { on.Heals(s, f) }},
			Case{Name: f.Name + ", and the master dies amid healing", Soak: f.Amid, Nodes: 5, Try: f.healsAmid},
			Case{Name: f.Name + " while no master runs", Soak: f.Away, Nodes: 5, Try: f.healsAfter},
			Case{Name: f.Name + ", of which the news come late", Soak: f.Late, Nodes: 5, Try: f.healsLate},
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
