package apply

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/scaling"
	"github.com/eltrain/eltrain/state"
)

// Service is the part of the elastic training service that a run uses.
type Service interface {
	// SetReady reports that the desired state is known and stored.
	SetReady()
	Set(jobName string, d elastic.Desired)
	Remove(jobName string)
	// Gone reports that an incarnation has definitely ended.
	Gone(slot job.Address, incarnation int, succeeded bool)
	// Changes is a version that differs once a fact that plans depend on has changed.
	Changes() uint64
	// Observe returns all facts. The caller owns the result.
	Observe() map[string]elastic.Facts
	// Usage returns what training processes do and use, and Points the history of one.
	Usage() map[string]elastic.Usage
	Points(rank history.Rank, since time.Time) []history.Point
	// Wake receives a value when Changes has changed.
	Wake() <-chan struct{}
}

// Parts are what a Driver works with.
type Parts struct {
	Store     state.Store
	Lock      state.Lock
	Journal   Appender
	Service   Service
	Reached   providers.Service // where agents reach the service
	Providers map[string]providers.Provider
	View      View
	// Sealer has the sensitive values; nil if there are none.
	Sealer *job.Sealer
	// Parallelism bounds how many changes are in flight at once, over all providers; 0 leaves the bound to each provider.
	Parallelism int
	// Changed receives a value when the files may have changed, and Reload reads them. Reload returns an UnusableError if they
	// are invalid, an UnreadError if they cannot be read within the limits, of which ctx is one, and an UnsteadyError if it is too
	// early to read them. Only a watching run needs these.
	Changed <-chan struct{}
	Reload  func(ctx context.Context) (Files, error)
	// Approve approves the first plan; nil approves any.
	Approve func(in *plan.Input, p *plan.Plan) error
	// Requests are what operators ask for; nil if nobody can.
	Requests Requests
	// Check evaluates the files' conditions on the running jobs, and maps the summary of each that does not hold to its detail;
	// nil checks nothing. An error means that it is unknown.
	Check func(ctx context.Context, records job.Records) (map[string]string, error)
	// Notify delivers a message of a notify block, whose text contains the given sentence; nil if there are no such blocks.
	Notify func(ctx context.Context, m job.Message, sentence string) error
	// Sample asks a source of a scaling policy, other than those about the training, capacity and the queue, for its value. ctx bounds it.
	Sample func(ctx context.Context, s *job.MetricSource) (float64, error)
}

// Requests are operators' requests, for whoever leads.
type Requests interface {
	// Pending returns those without a final reply, in order.
	Pending(ctx context.Context) ([]job.Request, error)
	// Reply stores what has become of a request. A final reply stays.
	Reply(ctx context.Context, r job.Reply) error
}

// DefaultParallelism is how many changes of a provider are in flight at once if neither the user nor the
// provider sets it: Terraform's default.
const DefaultParallelism = 10

// Timeouts of effects. stopMargin is how long stopping an incarnation may take in addition to the slot's grace.
const (
	storeTimeout = 30 * time.Second
	callTimeout  = time.Minute
	stopMargin   = 15 * time.Second
	// ReadTimeout bounds a reading of the files. The largest configurations take seconds.
	ReadTimeout = 20 * time.Second
	// NotifyTimeout bounds one attempt to deliver a message.
	NotifyTimeout = 10 * time.Second
)

// Driver runs a Loop against the world. It carries out effects, each call of a store or provider with a timeout, and returns
// their outcomes to the Loop; retries are the Loop's decision. Only Run's goroutine steps the Loop.
type Driver struct {
	parts    Parts
	words    Words
	observer observer
	mail     mailbox
	lanes    *lanes
	notifier notifier
	work     sync.WaitGroup // the goroutines that carry out effects
	ended    chan struct{}  // closed when Run has ended

	mu   sync.Mutex // guards loop: status is read concurrently with Run
	loop *Loop

	asking  sync.Mutex
	asked   int // numbers requests
	replies map[int]chan elastic.ReconcileReply
	formed  map[int]chan error
	cancels map[ID]context.CancelFunc // of effects that can be canceled while they run; used by Run's goroutine only
}

// NewDriver makes a driver over the stored state, which it reads. The lock must be held.
func NewDriver(ctx context.Context, s Setup, p Parts) (*Driver, error) {
	stored, err := p.Store.Read(ctx)
	if err != nil {
		return nil, err
	}
	s.State, s.Epoch = stored, p.Lock.Info().Epoch
	s.Providers = slices.Sorted(maps.Keys(p.Providers))
	s.Files.Seal = p.Sealer
	s.Approve, s.Check, s.Requests = p.Approve != nil, p.Check != nil, p.Requests != nil
	s.Jitter = rand.Float64
	if s.Words == nil {
		s.Words = codes{}
	}
	d := &Driver{
		parts: p, words: s.Words, observer: observer{providers: p.Providers, sealer: p.Sealer}, mail: newMailbox(), lanes: newLanes(p), ended: make(chan struct{}),
		notifier: notifier{view: p.View}, loop: New(time.Now(), s),
		replies: map[int]chan elastic.ReconcileReply{}, formed: map[int]chan error{}, cancels: map[ID]context.CancelFunc{},
	}
	return d, nil
}

// Run runs the loop until nothing is left to do, or with Intent.Watch until ctx ends.
//
// When ctx ends, no more changes are started, those in flight are finished, and jobs are left running. A run that does not
// watch waits, however it ends, until the slots that it asked to leave have left.
func (d *Driver) Run(ctx context.Context) (plan.Plan, error) {
	defer close(d.ended)
	d.notifier.begin()
	defer d.notifier.end()
	acting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer d.work.Wait()
	defer d.lanes.close()
	defer stop()
	d.work.Go(func() { // in parallel with turns, which may be slow
		select {
		case <-d.parts.Lock.Lost():
			d.mail.post(LockLost{lockLost(d.parts.Lock)})
			d.lanes.close()
			stop()
		case <-acting.Done():
		}
	})
	d.forward(acting)
	d.mail.post(Served{d.parts.Reached})
	interrupted := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-interrupted:
			interrupted = nil
			d.mail.post(Interrupted{})
		case <-d.mail.news:
		case <-timer.C:
			d.mail.post(Tick{})
		}
		ready := d.step()
		for _, m := range ready.Tell {
			d.notifier.tell(m)
		}
		for _, e := range ready.Effects {
			d.begin(acting, e)
		}
		if ready.Over != nil {
			return ready.Over.Plan, ready.Over.Err
		}
		timer.Reset(time.Until(ready.Next))
	}
}

// forward posts an event for each signal of the providers, the service and the file watcher.
func (d *Driver) forward(ctx context.Context) {
	pass := func(from <-chan struct{}, e Event) {
		d.work.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-from:
					d.mail.post(e)
				}
			}
		})
	}
	for _, prov := range d.parts.Providers {
		pass(prov.Changes(), Woken{})
	}
	pass(d.parts.Service.Wake(), Woken{})
	if d.parts.Changed != nil {
		pass(d.parts.Changed, FilesChanged{})
	}
	if d.parts.Requests != nil {
		d.work.Go(func() { d.readRequests(ctx) })
	}
}

// requestsEvery is how often requests are read: an operator should not wait.
const requestsEvery = 300 * time.Millisecond

// readRequests posts the requests at first, and whenever they have changed.
func (d *Driver) readRequests(ctx context.Context) {
	var last []job.Request
	for first, told, failed := true, false, false; ; {
		reading, cancel := context.WithTimeout(ctx, callTimeout)
		now, err := d.parts.Requests.Pending(reading)
		cancel()
		if !told || failed != (err != nil) { // also at first: a former run may have raised it
			d.mail.post(Reported{aboutRequests, RequestsUnread, err})
			told, failed = true, err != nil
		}
		if err == nil && (first || !slices.EqualFunc(now, last, func(a, b job.Request) bool { return a.ID == b.ID })) {
			d.mail.post(Requested{now})
			first, last = false, now
		}
		if !sleep(ctx, requestsEvery) {
			return
		}
	}
}

// step processes all pending events.
func (d *Driver) step() Ready {
	began := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.mail.take() {
		if o, is := e.(Outcome); is {
			delete(d.cancels, o.Of)
		}
		d.loop.Step(time.Now(), e)
	}
	d.loop.Step(time.Now(), Worked{time.Since(began), d.lanes.queued()})
	return d.loop.Ready()
}

// begin carries out a quick effect at once and queues the others.
func (d *Driver) begin(ctx context.Context, e Effect) {
	outcome := func(result any, err error) { d.end(e, result, err) }
	switch e := e.(type) {
	case Hear:
		outcome(d.hear(e.Known), nil)
	case Gauge:
		outcome(gauge(d.parts.Service.Observe()), nil)
	case Tell:
		d.inform(e.News)
		outcome(nil, nil)
	case Answer:
		d.reply(e)
		outcome(nil, nil)
	case Observe:
		looking, cancel := context.WithTimeout(ctx, callTimeout)
		d.cancels[e.ID()] = cancel
		d.work.Go(func() {
			defer cancel()
			outcome(d.observe(looking, e.Provider))
		})
	case Drop:
		if cancel := d.cancels[e.Effect]; cancel != nil {
			cancel()
		}
		if d.lanes.drop(e.Effect) {
			outcome(nil, ErrDropped)
		}
	case Again:
		waiting, cancel := context.WithCancel(ctx)
		d.cancels[e.ID()] = cancel
		d.work.Go(func() {
			defer cancel()
			if !sleep(waiting, time.Until(e.At)) {
				outcome(nil, ErrDropped)
				return
			}
			d.queue(ctx, e.Effect)
		})
	default:
		d.queue(ctx, e)
	}
}

// queue queues an effect.
func (d *Driver) queue(ctx context.Context, e Effect) {
	d.lanes.add(&d.work, e, func(begin bool) {
		if !begin {
			d.end(e, nil, ErrDropped)
			return
		}
		result, err := d.carryOut(ctx, e)
		d.end(e, result, err)
	})
}

// end passes an effect's outcome to the Loop.
func (d *Driver) end(e Effect, result any, err error) {
	d.mail.post(Outcome{e.ID(), result, d.observer.sealError(err)})
}

// carryOut carries out an effect that may block.
func (d *Driver) carryOut(ctx context.Context, e Effect) (any, error) {
	within := func(bound time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, bound)
	}
	switch e := e.(type) {
	case Store:
		ctx, cancel := within(storeTimeout)
		defer cancel()
		return nil, d.parts.Store.Write(ctx, e.State, d.parts.Lock)
	case Reread:
		ctx, cancel := within(storeTimeout)
		defer cancel()
		return d.parts.Store.Read(ctx)
	case Journal:
		return nil, AppendNotices(d.parts.Journal, e.Notices, e.Ledger...)
	case Notify:
		ctx, cancel := within(NotifyTimeout)
		defer cancel()
		return nil, d.parts.Notify(ctx, e.Message, d.words.Sentence(e.Message.Reason))
	case Sample:
		return d.sample(ctx, &e)
	case Respond:
		ctx, cancel := within(storeTimeout)
		defer cancel()
		return nil, d.parts.Requests.Reply(ctx, e.Reply)
	case Chronicle:
		return nil, AppendDecision(d.parts.Journal, &e.Decision)
	case ReadFiles:
		ctx, cancel := within(ReadTimeout)
		defer cancel()
		return d.read(ctx)
	case Check:
		ctx, cancel := within(ReadTimeout)
		defer cancel()
		return d.parts.Check(ctx, e.Records)
	case Approve:
		return nil, d.parts.Approve(&e.Input, &e.Plan)
	case Publish:
		ctx, cancel := within(callTimeout)
		defer cancel()
		return nil, d.parts.Providers[e.Provider].Publish(ctx, e.Service)
	case Prepare:
		ctx, cancel := within(callTimeout)
		defer cancel()
		return d.parts.Providers[e.Provider].Prepare(ctx, e.Group)
	case Launch:
		open, err := d.parts.Sealer.Launch(e.Launch)
		if err != nil {
			return nil, err
		}
		ctx, cancel := within(callTimeout)
		defer cancel()
		return nil, d.parts.Providers[e.Provider].Launch(ctx, open)
	case Stop:
		ctx, cancel := within(e.Grace + stopMargin)
		defer cancel()
		return nil, d.parts.Providers[e.Provider].Stop(ctx, e.UID, e.Slot, e.Incarnation, e.Grace)
	case Forget:
		ctx, cancel := within(callTimeout)
		defer cancel()
		return nil, d.parts.Providers[e.Provider].Forget(ctx, e.UID, e.Name)
	}
	return nil, fmt.Errorf("unknown effect %s", e.ID())
}

// sample asks a source.
func (d *Driver) sample(ctx context.Context, e *Sample) (any, error) {
	if e.Source.Kind == job.TrainingSource {
		return MeasureTraining(d.parts.Service.Observe()[e.Job], &e.Source)
	}
	opened, err := d.parts.Sealer.Source(e.Source)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.Bound)
	defer cancel()
	value, err := d.parts.Sample(ctx, &opened)
	if err != nil {
		return nil, err
	}
	return scaling.Finite(value)
}

// hear reads the service's facts, unless they are known.
func (d *Driver) hear(known uint64) Facts {
	version := d.parts.Service.Changes() // before the facts, so that the next look finds what changes meanwhile
	if version == known && known > 0 {
		return Facts{Version: version}
	}
	return Facts{version, d.observer.sealFacts(d.parts.Service.Observe())}
}

// observe observes a provider. An observation that is canceled because the run ends is dropped, not failed.
func (d *Driver) observe(ctx context.Context, provider string) (any, error) {
	seen, err := d.observer.observe(ctx, provider)
	if err != nil && context.Cause(ctx) == context.Canceled {
		return nil, ErrDropped
	}
	return seen, err
}

// gauge returns each job's training progress.
func gauge(facts map[string]elastic.Facts) map[string]Progress {
	progress := map[string]Progress{}
	for name, f := range facts {
		for i := range f.Members {
			m := &f.Members[i].Member
			if best := progress[name]; m.State == job.MemberRunning && m.Step > best.Step {
				progress[name] = Progress{m.Step, m.Loss, m.StepRate, best.BatchSize, best.NoiseScale}
			}
			for r := range m.Ranks {
				if p := m.Ranks[r].Progress; m.State == job.MemberRunning && p != nil && p.BatchSize != nil && p.NoiseScale != nil {
					now := progress[name]
					now.BatchSize, now.NoiseScale = *p.BatchSize, *p.NoiseScale
					progress[name] = now
				}
			}
		}
	}
	return progress
}

// read reads the files.
func (d *Driver) read(ctx context.Context) (Files, error) {
	files, err := d.parts.Reload(ctx)
	files.Seal = d.parts.Sealer
	d.observer.reseal()
	return files, err
}

// inform sends news to the service.
func (d *Driver) inform(n News) {
	s := d.parts.Service
	switch n := n.(type) {
	case Wanted:
		want := &n.Desired.Want
		want.Progress, _ = d.parts.Sealer.Progress(want.Progress) // nil if a sensitive value is unknown: a seal matches no line
		s.Set(n.Job, n.Desired)
	case Unwanted:
		s.Remove(n.Job)
	case Ended:
		s.Gone(n.Slot, n.Incarnation, n.Succeeded)
	case Open:
		s.SetReady()
	case Recorded:
		d.asking.Lock()
		defer d.asking.Unlock()
		if answer := d.formed[n.Forming]; answer != nil {
			answer <- n.Err
		}
	}
}

// Form records a world before the service announces it to any member. The name is the one that the job was launched under.
func (d *Driver) Form(launched, uid string, w job.World) error {
	answer := make(chan error, 1)
	d.asking.Lock()
	d.asked++
	number := d.asked
	d.formed[number] = answer
	d.asking.Unlock()
	defer func() {
		d.asking.Lock()
		defer d.asking.Unlock()
		delete(d.formed, number)
	}()
	d.mail.post(Forming{number, launched, uid, w})
	select {
	case err := <-answer:
		return err
	case <-d.ended:
		return fmt.Errorf("record generation %d of job %s: the run has ended", w.Generation, launched)
	}
}

// maxReplyWait is how long a request to reconcile waits for the plan; after that the reply comes without it.
const maxReplyWait = 10 * time.Second

// Reconcile has a watching run read the files and plan at once, and returns what the plan does. Concurrent requests
// share one reading. It serves the service's POST /v1/reconcile.
func (d *Driver) Reconcile(ctx context.Context, asked elastic.ReconcileRequest) elastic.ReconcileReply {
	answer := make(chan elastic.ReconcileReply, 1)
	d.asking.Lock()
	d.asked++
	number := d.asked
	d.replies[number] = answer
	d.asking.Unlock()
	defer func() {
		d.asking.Lock()
		defer d.asking.Unlock()
		delete(d.replies, number)
	}()
	d.mail.post(Triggered{number, asked.MaxDestroy})
	timer := time.NewTimer(maxReplyWait)
	defer timer.Stop()
	select {
	case reply := <-answer:
		return reply
	case <-timer.C:
	case <-ctx.Done():
	}
	return elastic.ReconcileReply{Status: elastic.ReconcileQueued}
}

func (d *Driver) reply(a Answer) {
	d.asking.Lock()
	defer d.asking.Unlock()
	if answer := d.replies[a.Request]; answer != nil {
		answer <- a.Reply
	}
}

// Republish publishes a changed address or certificate of the service to agents.
func (d *Driver) Republish(s providers.Service) { d.mail.post(Served{s}) }

// ReportWebhook reports that requests to reconcile cannot be authorized, or, with nil, that they can.
func (d *Driver) ReportWebhook(err error) {
	d.mail.post(Reported{aboutWebhook, WebhookRefused, d.observer.sealError(err)})
}

// Records returns the stored records.
func (d *Driver) Records() job.Records {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loop.Records()
}

// Outputs returns the stored outputs.
func (d *Driver) Outputs() map[string]state.Value {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loop.book.state.Outputs
}

// Observed returns the newest observation; false if any provider did not answer.
func (d *Driver) Observed() (o Observation, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loop.observation()
}

// Nodes returns what is known of nodes now.
func (d *Driver) Nodes() Nodes {
	d.mu.Lock()
	in, unobserved := d.loop.known(), d.loop.sight.unobserved()
	d.mu.Unlock()
	return nodesOf(in, unobserved, time.Now())
}

// maxPoints bounds the points of an answer, of all training processes together: some 100 MB of JSON.
const maxPoints = 500_000

// Usage returns what training processes do and use now, and the history of those that are asked for.
func (d *Driver) Usage(asked UsageAsked) map[string]elastic.Usage {
	all := d.parts.Service.Usage()
	d.mu.Lock()
	names := d.loop.book.names
	d.mu.Unlock()
	all = names.ofUsage(all)
	since, left := time.Now().Add(-asked.History), maxPoints
	for _, u := range all {
		for i := range u.Ranks {
			if r := &u.Ranks[i]; left > 0 && asked.wants(r.Slot) {
				r.Points = d.parts.Service.Points(history.Rank{Slot: names.slot(u.UID, r.Slot), Local: r.Local}, since)
				left -= len(r.Points)
			}
		}
	}
	return all
}

// Live returns a copy of what the master knows now.
func (d *Driver) Live() Live {
	facts := d.observer.sealFacts(d.parts.Service.Observe())
	d.mu.Lock()
	defer d.mu.Unlock()
	live, holder := d.loop.Live(time.Now(), facts), d.parts.Lock.Info()
	live.Holder = &holder
	return live
}
