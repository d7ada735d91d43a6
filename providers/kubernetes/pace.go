package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pace says how many writes may be under way. It starts slowly, as Kubernetes' own controllers do, so that a
// mistake costs few requests: one, then two, four, up to the most. What the API server says slows it down again.
// It is a plain value: the time is an argument.
type pace struct {
	most   int
	window int       // how many may be under way now
	flying int       // how many are
	until  time.Time // nothing begins before
	falls  int       // failures in a row that said nothing of how long to wait
	// refusals by class: what was refused for a reason that holds for all of its class.
	refusals map[class]refusal
}

// refusal stands for a while: what comes in that time would hear the same.
type refusal struct {
	err   error
	until time.Time
	hold  time.Duration
}

const (
	// Waits after a failure of the API server or the way to it: doubling, with up to a quarter of jitter.
	fallFirst = 100 * time.Millisecond
	fallMost  = 5 * time.Second
	// How long a refusal stands: doubling. The first is short, for what mends itself; the last still asks often
	// enough that a person who raised a quota sees the job go on.
	holdFirst = 250 * time.Millisecond
	holdMost  = 5 * time.Second
	// busyWait is for a 429 that does not say how long: what the API server itself writes where it does.
	busyWait = time.Second
	// attemptsDown is how often one write is tried while the API server fails or cannot be reached. Then its
	// caller hears of it, and decides.
	attemptsDown = 4
)

func newPace(most int) pace { return pace{most: most, window: 1, refusals: map[class]refusal{}} }

// refused is the error that all of a class get at once; nil if one of them is to ask.
func (p *pace) refused(now time.Time, c class) error {
	if r, known := p.refusals[c]; known && now.Before(r.until) {
		return r.err
	}
	return nil
}

// begin tells whether a write may begin, and counts it.
func (p *pace) begin(now time.Time) bool {
	if p.flying >= p.window || now.Before(p.until) {
		return false
	}
	p.flying++
	return true
}

// end takes in how a write of a class went. jitter is from 0 to 1. Writes that were under way together and hear the
// same count once.
func (p *pace) end(now time.Time, c class, a answer, jitter float64) {
	p.flying--
	waiting := now.Before(p.until)
	switch a.verdict {
	case done:
		delete(p.refusals, c)
		if !waiting {
			p.falls = 0
			p.window = min(p.window+1, p.most) // doubles each time all have been answered
		}
	case busy:
		if !waiting {
			p.window = max(p.window/2, 1)
		}
		p.wait(now.Add(a.wait))
	case down:
		p.window = 1
		if !waiting {
			wait := min(fallFirst<<min(p.falls, 10), fallMost)
			p.falls++
			p.wait(now.Add(wait + time.Duration(jitter*float64(wait)/4)))
		}
	case refusedAll:
		p.window = 1
		if p.refused(now, c) == nil {
			hold := min(max(2*p.refusals[c].hold, holdFirst), holdMost)
			p.refusals[c] = refusal{a.err, now.Add(hold), hold}
		}
	}
}

func (p *pace) wait(until time.Time) {
	if until.After(p.until) {
		p.until = until
	}
}

// verdict is what an answer means for those that come after.
type verdict int

const (
	done       verdict = iota // it was carried out, or what is wrong is with this one alone
	busy                      // the API server is overloaded and said so
	down                      // it failed, or was not reached: nobody knows whether it was carried out
	unknown                   // its caller gave it up: that says nothing of the API server
	refusedAll                // refused for a reason that holds for all like it
)

type answer struct {
	verdict verdict
	wait    time.Duration // with busy
	err     error
}

// judge says what an error of the API server means.
func judge(err error) answer {
	if err == nil {
		return answer{}
	}
	a := answer{err: err}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		a.verdict = down // it was not the API server that answered
		return a
	}
	code := int(status.Status().Code)
	seconds, asked := apierrors.SuggestsClientDelay(err)
	switch {
	case code == http.StatusTooManyRequests || asked && code >= http.StatusInternalServerError:
		a.verdict, a.wait = busy, max(time.Duration(seconds)*time.Second, busyWait)
	case code >= http.StatusInternalServerError, quotaConflict(err):
		a.verdict = down
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest, apierrors.IsInvalid(err):
		a.verdict = refusedAll // rights, quota, a webhook, a namespace that terminates; pods of one role are alike
	}
	return a
}

// cut judges a write of which the caller's time was up, or that it gave up. An API server that has not answered until then
// is not to be asked more at once.
func cut(ctx context.Context, err error) answer {
	switch {
	case err == nil:
		return answer{}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer{verdict: down, err: err}
	}
	return answer{verdict: unknown, err: err}
}

// quotaConflict: many pods are charged to one quota at once, and the API server gave up to be the one that does.
func quotaConflict(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Kind == "resourcequotas"
}

// class is of writes that are alike: what of one job is done, as "create pods of worker". They are refused together, and
// told of together.
type class struct{ job, what string } // job is its UID

// pacer lets writes begin in their order, at a pace. Make it with newPacer; close it.
type pacer struct {
	log     *slog.Logger
	delayed func() // called when byJob says otherwise than before

	mu     sync.Mutex
	pace   pace
	queue  []*ticket // who waits, in order
	wake   *time.Timer
	delays delays
	told   map[string]string // of delays, at the last look
	look   *time.Timer
	looks  bool // look will fire
}

// ticket is one write that waits for its turn.
type ticket struct {
	class class
	turn  chan struct{} // closed when it may begin, or fails with err
	err   error
}

// lookEach is how often it is looked whether something is delayed, while anything is under way. People are told, and to
// them a second is no time; to reckon with each of thousands of writes would cost.
const lookEach = time.Second

func newPacer(most int, log *slog.Logger, delayed func()) *pacer {
	g := &pacer{pace: newPace(most), log: log, delays: delays{}, delayed: delayed}
	g.wake, g.look = time.AfterFunc(time.Hour, g.woken), time.AfterFunc(time.Hour, g.looked)
	g.wake.Stop()
	g.look.Stop()
	return g
}

func (g *pacer) close() {
	g.wake.Stop()
	g.look.Stop()
}

// do carries out one write at the pace: it waits for its turn, and tries again what the API server was too busy
// for or failed at, so write has to be safe to repeat. Writes of one class are refused together. It gives the
// error of the last attempt, and where its time was up, what the API server said before.
func (g *pacer) do(ctx context.Context, c class, write func(context.Context) error) error {
	w := g.begin(c)
	defer g.note(func(now time.Time) { g.delays.end(now, c, w) })
	var failed error
	for attempt := 1; ; {
		if err := g.enter(ctx, c); err != nil {
			return lately(ctx, err, failed)
		}
		g.note(w.ask)
		err := write(ctx)
		if ctx.Err() != nil {
			g.leave(c, cut(ctx, err))
			return lately(ctx, err, failed)
		}
		a := judge(err)
		g.note(func(now time.Time) { w.answered(now, a) })
		g.leave(c, a)
		switch {
		case a.verdict == busy:
		case a.verdict == down && attempt < attemptsDown:
			attempt++
		default:
			return err
		}
		failed = err
		g.log.Debug("A write is tried again.", "write", c.what, "job", c.job, "error", err)
	}
}

// lately adds to the error with which a write was given up what the API server last failed at it with.
func lately(ctx context.Context, err, failed error) error {
	if err == nil || failed == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w; before: %w", err, failed)
}

func (g *pacer) begin(c class) *writing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.looks {
		g.looks = true
		g.look.Reset(lookEach)
	}
	return g.delays.begin(c)
}

// note enters something into delays.
func (g *pacer) note(enter func(now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	enter(time.Now())
}

// looked says so if something is delayed, or no longer is.
func (g *pacer) looked() {
	g.mu.Lock()
	now := g.delays.byJob(time.Now())
	news := !maps.Equal(now, g.told)
	g.told = now
	if g.looks = len(g.delays) > 0; g.looks {
		g.look.Reset(lookEach)
	}
	g.mu.Unlock()
	if news {
		g.delayed()
	}
}

// byJob is that of delays, as it is now.
func (g *pacer) byJob() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.delays.byJob(time.Now())
}

// enter waits for a turn.
func (g *pacer) enter(ctx context.Context, c class) error {
	t := &ticket{class: c, turn: make(chan struct{})}
	g.mu.Lock()
	if err := g.pace.refused(time.Now(), c); err != nil {
		g.mu.Unlock()
		return err
	}
	g.queue = append(g.queue, t)
	g.admit()
	g.mu.Unlock()
	select {
	case <-t.turn:
		return t.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.queue, t)
	if i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 && t.err == nil { // it was its turn just now
		g.leave(c, answer{verdict: unknown})
	}
	return fmt.Errorf("wait for the API server to take more: %w", ctx.Err())
}

// leave ends a turn. Those that wait and would only hear the same refusal again fail at once.
func (g *pacer) leave(c class, a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pace.end(time.Now(), c, a, rand.Float64())
	if a.verdict == refusedAll {
		g.queue = slices.DeleteFunc(g.queue, func(t *ticket) bool {
			if t.class != c {
				return false
			}
			t.err = a.err
			close(t.turn)
			return true
		})
	}
	g.admit()
}

// admit lets begin whoever may, in order. g.mu is held.
func (g *pacer) admit() {
	now := time.Now()
	for len(g.queue) > 0 && g.pace.begin(now) {
		close(g.queue[0].turn)
		g.queue[0] = nil
		g.queue = g.queue[1:]
	}
	if wait := g.pace.until.Sub(now); len(g.queue) > 0 && wait > 0 {
		g.wake.Reset(wait)
	}
}

// woken is when the time that the API server asked for is over.
func (g *pacer) woken() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}
