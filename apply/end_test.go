package apply

import (
	"cmp"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// loopOf is a Loop of one job on provider "local" that begins now and does nothing yet.
func loopOf(spec job.Job) *Loop {
	return New(jobtest.Epoch, Setup{Files: Files{Jobs: []job.Job{spec}}, Providers: []string{"local"}})
}

// A job that has grown is complete once its new slots train.
func TestAFixedRoleThatGrowsIsWaitedFor(t *testing.T) {
	l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
	elastic := jobtest.Role("worker", 2)
	elastic.Scaling = &job.Scaling{Min: 1, Max: 3}
	for name, c := range map[string]struct {
		role  job.Role
		last  job.Phase
		waits []plan.Wait
		want  bool
	}{
		"it starts":                   {jobtest.Role("worker", 3), job.Scheduling, nil, false},
		"it has registered":           {jobtest.Role("worker", 3), job.Registered, nil, false},
		"it trains":                   {jobtest.Role("worker", 3), job.Running, nil, true},
		"it has no room":              {jobtest.Role("worker", 3), job.Pending, []plan.Wait{{Job: "a"}}, true},
		"it is queued for long":       {jobtest.Role("worker", 3), job.Scheduling, []plan.Wait{{Job: "a"}}, true},
		"it is queued":                {jobtest.Role("worker", 3), job.Scheduling, []plan.Wait{{Job: "a", Passing: true}}, false},
		"an elastic one has no place": {elastic, job.Scheduling, nil, true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: jobtest.Job("a", c.role)}
		for i, phase := range []job.Phase{job.Running, job.Running, c.last} {
			rec.Slots = append(rec.Slots, job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Phase: phase})
		}
		if got := l.end.isSettled(l, &plan.Plan{Records: job.Records{"a": rec}, Waits: c.waits}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// An apply is complete once its elastic roles have grown. Slots that the infrastructure keeps waiting may never come, and
// agents that run may never join: the run waits for neither forever.
func TestAnElasticRoleThatGrowsIsWaitedForWithBounds(t *testing.T) {
	l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
	role := jobtest.Role("worker", 2)
	role.Scaling = &job.Scaling{Min: 1, Max: 3}
	spec := jobtest.Job("a", role)
	settle, grace := spec.Rendezvous.Settle.Std(), role.StopGrace.Std()
	for name, c := range map[string]struct {
		phase   job.Phase
		inc     job.Incarnation
		world   job.World
		elapsed time.Duration // since the phase began
		waits   []plan.Wait
		want    bool // settled
	}{
		"its agent runs":                {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up}},
		"its agent is being started":    {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Starting}},
		"it has registered":             {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + plan.Proof - 1},
		"another one waits":             {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, waits: []plan.Wait{{Job: "a"}}},
		"it has joined":                 {phase: job.Running, inc: job.Incarnation{Node: "n1", State: job.Up}, want: true},
		"a scheduler has not placed it": {phase: job.Scheduling, inc: job.Incarnation{State: job.Starting}, want: true},
		"its image cannot be had":       {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Starting, Waiting: "ImagePullBackOff"}, want: true},
		"its agent never registers":     {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + plan.Proof, want: true},
		"it never joins":                {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: settle + plan.Proof, want: true},
		"the others write a checkpoint": {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: grace,
			world: job.World{Generation: 1, Broken: true, Ordered: jobtest.Epoch}},
		"the others never stop": {phase: job.Registered, inc: job.Incarnation{Node: "n1", State: job.Up}, elapsed: grace + settle + plan.Proof,
			world: job.World{Generation: 1, Broken: true, Ordered: jobtest.Epoch}, want: true},
		"it is another incarnation": {phase: job.Scheduling, inc: job.Incarnation{Node: "n1", State: job.Up, Number: 1}, want: true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: spec, World: c.world}
		for i, phase := range []job.Phase{job.Running, job.Running, c.phase} {
			rec.Slots = append(rec.Slots, job.Slot{Address: job.Address{Job: "a", Role: "worker", Index: i}, Phase: phase, Since: jobtest.Epoch})
		}
		last := &rec.Slots[2]
		last.Incarnation = 2
		if c.inc.Number == 0 {
			c.inc.Number = 2
		}
		l.sight.live = map[string]map[incarnation]*job.Incarnation{"u": {incarnationOf("u", last.Address, c.inc.Number): &c.inc}}
		l.now = jobtest.Epoch.Add(c.elapsed)
		if got := l.end.isSettled(l, &plan.Plan{Records: job.Records{"a": rec}, Waits: c.waits}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

func TestAChangeOfALaterWaveIsWaitedForUnlessWhatItDependsOnIsStuck(t *testing.T) {
	l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
	spec := jobtest.Job("a", jobtest.Role("data", 1), jobtest.Role("ps", 1, jobtest.After("data")), jobtest.Role("worker", 1, jobtest.After("ps")), jobtest.Role("evaluator", 1))
	later := plan.Change{Action: plan.Create, Job: "a", UID: "u", Slot: job.Address{Job: "a", Role: "worker"}, Wave: 2}
	for name, c := range map[string]struct {
		wait plan.Wait
		wave int
		last job.Cause
		want bool
	}{
		"it comes up":                 {wave: 2},
		"it is queued":                {wave: 2, wait: plan.Wait{Job: "a", Role: "ps", Passing: true}},
		"it is queued for long":       {wave: 2, wait: plan.Wait{Job: "a", Role: "ps"}, want: true},
		"what it depends on is":       {wave: 2, wait: plan.Wait{Job: "a", Role: "data"}, want: true},
		"another role is":             {wave: 2, wait: plan.Wait{Job: "a", Role: "evaluator"}},
		"the files hold the job back": {wave: 2, wait: plan.Wait{Job: "a", Held: true}},
		"another job is":              {wave: 2, wait: plan.Wait{Job: "b", Role: "ps"}},
		"it may be done now":          {wave: 0, wait: plan.Wait{Job: "a", Role: "ps"}},
		"the job did not come up":     {wave: 2, last: job.RendezvousTimeout, want: true},
	} {
		rec := &job.Record{UID: "u", Phase: job.JobPending, Spec: spec}
		if c.last != "" {
			rec.Incidents = []job.Incident{{Time: l.now, Cause: c.last}}
		}
		later.Wave = c.wave
		p := plan.Plan{Records: job.Records{"a": rec}, Changes: []plan.Change{later}, Waits: []plan.Wait{c.wait}}
		if got := l.end.isSettled(l, &p); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// A run waits for a slot that no node can start for the rendezvous timeout, and no longer.
func TestASlotThatNoNodeStartsIsWaitedForAsLongAsARendezvousMayTake(t *testing.T) {
	const timeout = 10 * time.Minute
	for name, c := range map[string]struct {
		failing, elapsed time.Duration // since the run began
		phase            job.Phase
		want             bool
	}{
		"at once":                {elapsed: timeout - time.Second},
		"for long":               {elapsed: timeout, want: true},
		"for long, it is tried":  {elapsed: timeout, phase: job.Scheduling, want: true},
		"late in the run":        {failing: timeout, elapsed: timeout + time.Minute},
		"since before the run":   {failing: -time.Hour, elapsed: time.Minute},
		"since before, for long": {failing: -time.Hour, elapsed: timeout, want: true},
		"it came up":             {elapsed: timeout, phase: job.Registered},
		"it was given up":        {elapsed: timeout, phase: job.Canceled},
	} {
		l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
		spec := jobtest.Job("a", jobtest.Role("worker", 2))
		spec.Rendezvous.Timeout = job.Duration(timeout)
		address := job.Address{Job: "a", Role: "worker"}
		slot := job.Slot{Address: address, Phase: cmp.Or(c.phase, job.Failing), Cause: job.NodeFailed, Crashes: 2, CrashesSince: l.since.Add(c.failing)}
		if c.phase == job.Registered {
			slot.CrashesSince = time.Time{}
		}
		address.Index = 1
		// Another slot ended later, which does not affect this one.
		rec := &job.Record{UID: "u", Phase: job.JobStarting, Spec: spec, Slots: []job.Slot{slot, {Address: address, Phase: job.Scheduling}},
			Incidents: []job.Incident{{Time: l.since, Cause: job.NodeFailed}, {Time: l.since.Add(c.elapsed), Cause: job.Eviction}}}
		l.files.Jobs = []job.Job{spec}
		l.now = l.since.Add(c.elapsed)
		if got := l.end.isSettled(l, &plan.Plan{Records: job.Records{"a": rec}}); got != c.want {
			t.Errorf("%s: settled is %v", name, got)
		}
	}
}

// A run that does not watch waits for reports of the agents that it finds before it completes, but not forever.
func TestAgentsThatAreFoundAreHeardFirst(t *testing.T) {
	const lease = 15 * time.Second
	for name, c := range map[string]struct {
		phase   job.Phase
		inc     job.Incarnation
		ended   bool // the job
		unknown bool // the service does not know it
		news    time.Duration
		known   time.Duration // when the service came to know it
		elapsed time.Duration
		want    time.Duration // since the run began; 0 is not waited for
	}{
		"it has not reported":               {phase: job.Running, inc: job.Incarnation{State: job.Up}, want: lease + plan.Proof},
		"it waited for a world":             {phase: job.Registered, inc: job.Incarnation{State: job.Up}, want: lease + plan.Proof},
		"news take longer":                  {phase: job.Running, inc: job.Incarnation{State: job.Up}, news: time.Minute, want: time.Minute + plan.Proof},
		"the service came to know it late":  {phase: job.Running, inc: job.Incarnation{State: job.Up}, known: time.Minute, elapsed: lease + plan.Proof, want: time.Minute + lease + plan.Proof},
		"it never reports":                  {phase: job.Running, inc: job.Incarnation{State: job.Up}, elapsed: lease + plan.Proof},
		"it has reported":                   {phase: job.Running, inc: job.Incarnation{State: job.Up, Member: &job.Member{}}},
		"it is gone":                        {phase: job.Running, inc: job.Incarnation{State: job.Gone}},
		"it is being started":               {phase: job.Scheduling, inc: job.Incarnation{State: job.Up}},
		"it ended well":                     {phase: job.Succeeded, inc: job.Incarnation{State: job.Up}},
		"the job is over":                   {phase: job.Running, inc: job.Incarnation{State: job.Up}, ended: true},
		"the service is not to know of it":  {phase: job.Running, inc: job.Incarnation{State: job.Up}, unknown: true},
		"its provider shows another number": {phase: job.Running, inc: job.Incarnation{State: job.Up, Number: 1}},
	} {
		l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
		l.sight.providers["local"].can.News = job.Duration(c.news)
		spec := jobtest.Job("a", jobtest.Role("worker", 1))
		spec.Detect.Lease = job.Duration(lease)
		rec := &job.Record{UID: "u", Phase: job.JobRunning, Spec: spec,
			Slots: []job.Slot{{Address: job.Address{Job: "a", Role: "worker"}, Phase: c.phase, Incarnation: 2}}}
		if c.ended {
			rec.Phase = job.JobFailed
		}
		if !c.unknown {
			l.service.jobs["a"] = knownJob{uid: "u", at: jobtest.Epoch.Add(c.known)}
		}
		if c.inc.Number == 0 {
			c.inc.Number = 2
		}
		l.sight.live = map[string]map[incarnation]*job.Incarnation{"u": {incarnationOf("u", rec.Slots[0].Address, c.inc.Number): &c.inc}}
		l.now = jobtest.Epoch.Add(c.elapsed)
		until := l.end.reportsDue(l, &plan.Plan{Records: job.Records{"a": rec}})
		if want := jobtest.Epoch.Add(c.want); c.want == 0 && !until.IsZero() || c.want > 0 && !until.Equal(want) {
			t.Errorf("%s: waits until %v", name, until)
		}
	}
}

// A run with a scope does not wait for jobs outside it.
func TestABoundedRunDoesNotWaitForWhatItLeavesOut(t *testing.T) {
	l := loopOf(jobtest.Job("a", jobtest.Role("worker", 2)))
	l.files.Jobs = append(l.files.Jobs, jobtest.Job("b", jobtest.Role("worker", 1)))
	p := plan.Plan{Records: job.Records{"a": {Phase: job.JobRunning}, "b": {Phase: job.JobDegraded}}}
	l.files.scope = plan.Scope{Targets: []job.Selector{{Job: "a"}}}
	if !l.end.isSettled(l, &p) {
		t.Error("waits for a job that is out of scope")
	}
	l.files.scope = plan.Scope{}
	if l.end.isSettled(l, &p) {
		t.Error("does not wait for a job that is in scope")
	}
}
