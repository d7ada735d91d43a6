package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/virtual"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/simulate/host"
)

// engine is one simulation.
type engine struct {
	setup    Setup
	clock    *virtual.Clock
	loop     host.Loop
	service  host.Service
	cluster  cluster
	books    books
	declared []job.Job           // that have arrived, and are not over
	jobs     map[string]*running // by UID
	arrivals map[string]*Arrival // by name
	batches  []*batch            // of agents that will do something together
	uids     int
	heard    uint64 // the newest Changes that the Loop was woken for
	hangs    uint64 // found by detection
	stuck    bool
}

// errStuck means that the loop does not come to rest.
var errStuck = errors.New("the simulated loop does not come to rest")

func newEngine(s Setup) *engine {
	e := &engine{setup: s, clock: virtual.New(Epoch), jobs: map[string]*running{}, arrivals: map[string]*Arrival{}}
	e.cluster = newCluster(s.Nodes)
	e.books = newBooks(&s)
	files := s.Files
	files.Jobs = nil
	e.loop = host.Loop{Clock: e.clock, Begin: e.begin, Loop: apply.New(Epoch, apply.Setup{
		Intent: apply.Intent{Watch: true}, Files: files, Providers: []string{Provider}, NewUID: e.newUID, Epoch: 1, Pulse: apply.Rescan,
	})}
	e.service = host.Service{Coordinator: elastic.NewTold(), Clock: e.clock, Wants: map[string]job.Want{}, Told: e.told,
		Propose: func(f apply.Forming) { e.clock.After(0, func() { e.step(f) }) }}
	for i := range s.Arrivals {
		a := &s.Arrivals[i]
		a.Job.Provider = Provider
		e.arrivals[a.Job.Name] = a
		e.books.arrives(a)
	}
	e.schedule()
	return e
}

func (e *engine) newUID(name string) string {
	e.uids++
	return fmt.Sprintf("uid-%d-%s", e.uids, name)
}

// run simulates until the end.
func (e *engine) run(ctx context.Context) error {
	end := Epoch.Add(e.setup.For)
	e.step(apply.Served{Service: providers.Service{URL: "http://simulated"}})
	const often = 1024
	for n := 0; e.clock.Step(end); n++ {
		if n%often == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if e.setup.Progress != nil {
				e.setup.Progress(e.clock.Now().Sub(Epoch))
			}
		}
		if !e.clock.Due() {
			e.settle()
		}
		if e.stuck {
			return errStuck
		}
	}
	e.clock.MoveTo(end)
	return nil
}

// step passes events to the Loop.
func (e *engine) step(events ...apply.Event) {
	if !e.loop.Step(events...) || e.loop.Over != nil {
		e.stuck = true
	}
}

// settle wakes the Loop once all that happens at one time has happened, as news of many agents reaches a real one together.
func (e *engine) settle() {
	if changes := e.service.Changes() + e.hangs; changes != e.heard || e.cluster.news {
		e.heard, e.cluster.news = changes, false
		e.step(apply.Woken{}, apply.Worked{For: e.setup.Delays.Turn})
		return
	}
	if e.loop.Due() {
		e.step(apply.Tick{})
	}
}

// begin starts an effect. Most succeed at once.
func (e *engine) begin(effect apply.Effect) {
	d := &e.setup.Delays
	end := func(result any, err error) { e.step(apply.Outcome{Of: effect.ID(), Result: result, Err: err}) }
	later := func(after time.Duration, do func() (any, error)) {
		e.clock.After(after, func() { end(do()) })
	}
	switch f := effect.(type) {
	case apply.Drop: // nothing waits
	case apply.Again:
		e.clock.At(f.At, func() { e.begin(f.Effect) })
	case apply.Hear:
		end(e.hear(f.Known), nil)
	case apply.Observe:
		end(apply.Sight{Capabilities: job.Capabilities{Places: true}, Observation: e.cluster.observe()}, nil)
	case apply.Gauge:
		end(e.gauge(), nil)
	case apply.ReadFiles:
		files := e.setup.Files
		files.Jobs = slices.Clone(e.declared)
		end(files, nil)
	case apply.Store:
		later(d.Store, func() (any, error) {
			e.books.stored(e, f.State.Jobs)
			return nil, nil
		})
	case apply.Journal:
		e.books.noticed(f.Notices)
		end(nil, nil)
	case apply.Tell:
		e.service.Inform(f.News)
		end(nil, nil)
	case apply.Prepare:
		end("token-"+f.Group.UID, nil)
	case apply.Launch:
		later(d.Launch, func() (any, error) { return nil, e.launch(&f.Launch) })
	case apply.Stop:
		later(d.Stop, func() (any, error) {
			e.stop(f.UID, f.Slot, f.Incarnation)
			return nil, nil
		})
	case apply.Forget:
		later(d.Launch, func() (any, error) {
			e.forget(f.UID)
			return nil, nil
		})
	case apply.Sample:
		end(e.sample(&f))
	default: // a decision to journal, a message to deliver, an address to publish
		end(nil, nil)
	}
}

// hear are the service's facts, with the hangs that detection has found.
func (e *engine) hear(known uint64) apply.Facts {
	version := e.service.Changes() + e.hangs
	if version == known && known > 0 {
		return apply.Facts{Version: version}
	}
	return apply.Facts{Version: version, Jobs: e.facts()}
}

func (e *engine) facts() map[string]elastic.Facts {
	facts := e.service.Observe()
	for _, j := range e.jobs {
		if f, known := facts[j.name]; known && f.UID == j.uid && j.suspicion != nil && j.suspicion.Generation == f.World.Generation && !f.World.Broken {
			f.Suspicions = append(slices.Clip(f.Suspicions), *j.suspicion)
			facts[j.name] = f
		}
	}
	return facts
}

// gauge is how far trainings are.
func (e *engine) gauge() map[string]apply.Progress {
	all := make(map[string]apply.Progress, len(e.jobs))
	now := e.clock.Now()
	for _, j := range e.jobs {
		if j.trains() {
			at, _, _ := j.run.reached(&j.training, now)
			all[j.name] = apply.Progress{Step: int64(at.steps), StepRate: 1 / j.run.pace.step}
		}
	}
	return all
}

// errNotSimulated is what sources say of which nothing is known.
var errNotSimulated = errors.New("this source is not simulated")

// sample answers for a source of a scaling policy: what a job's processes would show now.
func (e *engine) sample(s *apply.Sample) (any, error) {
	j := e.jobs[s.UID]
	if s.Source.Kind != job.TrainingSource || j == nil {
		return nil, errNotSimulated
	}
	e.report(j)
	return apply.MeasureTraining(e.service.Observe()[s.Job], &s.Source)
}

// jobsInOrder are the jobs by name and UID, for what has to happen in the same order each time.
func (e *engine) jobsInOrder() []*running {
	all := make([]*running, 0, len(e.jobs))
	for _, j := range e.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *running) int { return strings.Compare(a.uid, b.uid) })
	return all
}
