package sim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers"
)

// Observe reflects every change, returns the same value while nothing changes, and does not modify earlier values.
func TestObservationsAreValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New("local", jobtest.Epoch, nil)
		c.Schedules = rapid.Bool().Draw(t, "schedules")
		now := jobtest.Epoch
		n := func(what string) int { return rapid.IntRange(0, 2).Draw(t, what) }
		node := func() string { return fmt.Sprintf("n%d", n("node")) }
		launch := func() job.Launch {
			return job.Launch{UID: "u", Slot: job.Address{Job: "a", Role: "worker", Index: n("slot")}, Incarnation: 1 + n("incarnation"), Node: node(), Reserved: jobtest.Cores(1)}
		}
		agents := func(do func(*Agent)) func() {
			return func() {
				if all := c.Agents(); len(all) > 0 {
					do(all[n("agent")%len(all)])
				}
			}
		}
		does := map[string]func(){
			"set":     func() { c.SetNode(jobtest.Node(node(), jobtest.Cores(float64(1+n("cores"))))) },
			"remove":  func() { c.RemoveNode(node()) },
			"crash":   func() { c.CrashNode(node()) },
			"delete":  func() { c.DeleteNode(node()) },
			"cut off": func() { c.NotReady(node()) },
			"ready":   func() { c.Ready(node()) },
			"launch":  func() { c.Launch(t.Context(), launch()) },
			"stop":    func() { l := launch(); c.Stop(t.Context(), l.UID, l.Slot, l.Incarnation, 0) },
			"forget":  func() { c.Forget(t.Context(), "u", "a") },
			"kill":    agents((*Agent).Kill),
			"put out": agents(func(a *Agent) { c.Terminate(a, job.Eviction) }),
			"edit":    agents(func(a *Agent) { a.Edit(job.FieldChange{Path: "image"}) }),
			"wait":    func() { now = now.Add(time.Duration(n("time")) * BindTime); c.Advance(now, func() {}) },
			"nothing": func() {},
		}
		observe := func() *providers.Observation {
			o, err := c.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		text := func(o *providers.Observation) string {
			values := *o
			values.Places = nil
			text, err := json.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		for range 30 {
			last := observe()
			before := text(last)
			what := rapid.SampledFrom([]string{"set", "remove", "crash", "delete", "cut off", "ready", "launch", "launch", "stop", "forget", "kill", "put out", "edit", "wait", "nothing"}).Draw(t, "what")
			does[what]()
			o := observe()
			if fresh := c.observe(); !reflect.DeepEqual(o, fresh) {
				t.Fatalf("after %s it tells\n%s\nand there is\n%s", what, text(o), text(fresh))
			}
			if o != observe() || what == "nothing" && o != last {
				t.Fatalf("after %s, with nothing since, it is another", what)
			}
			if now := text(last); now != before {
				t.Fatalf("after %s the one before is\n%s\nand was\n%s", what, now, before)
			}
		}
	})
}
