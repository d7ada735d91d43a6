package apply

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers/sim"
)

// An observation in which jobs were renamed is the same for as long as the provider's own is, and the names are.
func TestARenamedObservationIsTheSameUntilSomethingChanges(t *testing.T) {
	c := sim.New("local", jobtest.Epoch, nil)
	if err := c.Launch(t.Context(), job.Launch{UID: "u", Slot: job.Address{Job: "before", Role: "worker"}, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	known := new(names)
	p := &renaming{Provider: c, names: known}
	name := func() (*job.Incarnation, string) {
		t.Helper()
		o, err := p.Observe(t.Context())
		if err != nil || len(o.Incarnations) != 1 {
			t.Fatalf("%+v, %v", o, err)
		}
		return &o.Incarnations[0], o.Incarnations[0].Slot.Job
	}
	called := func(now string) {
		known.set(job.Records{now: {UID: "u", Launched: "before"}})
	}
	first, was := name()
	called("now")
	second, is := name()
	called("now") // as with each turn that stores
	again, _ := name()
	called("later")
	third, later := name()
	c.After(time.Second, func() { c.SetNode(jobtest.Node("n1", jobtest.Cores(1))) })
	c.Advance(jobtest.Epoch.Add(time.Minute), func() {})
	fourth, _ := name()
	if was != "before" || is != "now" || later != "later" || first.Slot.Job != "before" || second.Slot.Job != "now" {
		t.Errorf("it is called %s, %s and %s; then the first %s and the second %s", was, is, later, first.Slot.Job, second.Slot.Job)
	}
	if again != second || third == second || fourth == third {
		t.Error("it is another observation where nothing changed, or the same where something did")
	}
}
