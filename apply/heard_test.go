package apply

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// A run that does not watch hears the agents that it finds before it says that all is well, and waits for none for ever.
func TestAgentsThatAreFoundAreHeardFirst(t *testing.T) {
	const lease = 15 * time.Second
	for name, c := range map[string]struct {
		phase   job.Phase
		inc     job.Incarnation
		ended   bool // the job
		untold  bool // the service does not know it
		news    time.Duration
		known   time.Duration // when the service came to know it
		elapsed time.Duration
		want    time.Duration // since the run began; 0 is not waited for
	}{
		"it has not reported":               {phase: job.Running, inc: job.Incarnation{State: job.Up}, want: lease + proof},
		"it waited for a world":             {phase: job.Registered, inc: job.Incarnation{State: job.Up}, want: lease + proof},
		"news take longer":                  {phase: job.Running, inc: job.Incarnation{State: job.Up}, news: time.Minute, want: time.Minute + proof},
		"the service came to know it late":  {phase: job.Running, inc: job.Incarnation{State: job.Up}, known: time.Minute, elapsed: lease + proof, want: time.Minute + lease + proof},
		"it never reports":                  {phase: job.Running, inc: job.Incarnation{State: job.Up}, elapsed: lease + proof},
		"it has reported":                   {phase: job.Running, inc: job.Incarnation{State: job.Up, Member: &job.Member{}}},
		"it is gone":                        {phase: job.Running, inc: job.Incarnation{State: job.Gone}},
		"it is being started":               {phase: job.Scheduling, inc: job.Incarnation{State: job.Up}},
		"it ended well":                     {phase: job.Succeeded, inc: job.Incarnation{State: job.Up}},
		"the job is over":                   {phase: job.Running, inc: job.Incarnation{State: job.Up}, ended: true},
		"the service is not to know of it":  {phase: job.Running, inc: job.Incarnation{State: job.Up}, untold: true},
		"its provider shows another number": {phase: job.Running, inc: job.Incarnation{State: job.Up, Number: 1}},
	} {
		b := newBench(t, func(*Options) {})
		b.cluster.can.News = job.Duration(c.news)
		spec := jobtest.Job("a", jobtest.Role("worker", 1))
		spec.Detect.Lease = job.Duration(lease)
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: spec,
			Slots: []job.Slot{{Address: job.Address{Job: "a", Role: "worker"}, Phase: c.phase, Incarnation: 2}}}
		if c.ended {
			rec.Phase = job.JobFailed
		}
		if !c.untold {
			b.sent["a"] = introduced{"u", jobtest.Epoch.Add(c.known)}
		}
		if c.inc.Number == 0 {
			c.inc.Number = 2
		}
		b.live = map[incarnation]*job.Incarnation{incarnationOf("u", rec.Slots[0].Address, c.inc.Number): &c.inc}
		b.now = jobtest.Epoch.Add(c.elapsed)
		until := b.unheard(&plan.Plan{Records: job.Records{"a": rec}})
		if want := jobtest.Epoch.Add(c.want); c.want == 0 && !until.IsZero() || c.want > 0 && !until.Equal(want) {
			t.Errorf("%s: it is waited for until %v", name, until)
		}
	}
}
