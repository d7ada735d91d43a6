package sim_test

import (
	"fmt"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// A drain is carried out once, at whichever effect the master is killed: the next one continues it, and replies.
func TestADrainOutlivesACrashAtEachEffect(t *testing.T) {
	for _, kind := range kinds {
		for _, when := range []string{"before", "after"} {
			t.Run(kind+" "+when, func(t *testing.T) {
				w := newWorld(t)
				t.Cleanup(w.close)
				cpu, _ := job.Cores(3)
				for _, name := range []string{"n1", "n2"} {
					w.cluster.SetNode(job.Node{Name: name, Capacity: job.Resources{CPU: cpu}})
				}
				if err := w.declare(troubledJob); err != nil {
					t.Fatal(err)
				}
				w.start("a")
				w.happen(t, "run 20s")
				from, to := "n1", "n2"
				if w.slotsOn("n1") == 0 {
					from, to = to, from
				}
				w.happen(t, step("request drain node."+from))
				w.happen(t, step(fmt.Sprintf("fault %s crash %s", kind, when)))
				w.happen(t, "run 10s")
				w.happen(t, "start b")
				w.happen(t, "run 60s")
				asked := w.operators.asked[0]
				if asked.Reply.State != job.Done || w.slotsOn(from) != 0 || w.slotsOn(to) != 3 {
					t.Errorf("the drain is %s, with %d slots on %s and %d on %s\n%s", asked.Reply.State, w.slotsOn(from), from, w.slotsOn(to), to, w.take())
				}
				if g := w.leader().l.Records()["a"].World.Generation; g != 2 {
					t.Errorf("the world was formed again: it is generation %d\n%s", g, w.take())
				}
				w.rest()
				for _, wrong := range w.wrong {
					t.Error(wrong)
				}
			})
		}
	}
}

// slotsOn counts the agents on a node.
func (w *world) slotsOn(node string) (n int) {
	for _, a := range w.cluster.Agents() {
		if a.Node() == node {
			n++
		}
	}
	return n
}
