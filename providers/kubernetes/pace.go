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
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eltrain/eltrain/providers"
)

// pace limits the writes in flight, in total and for each class. It is a plain value: the time is an argument.
type pace struct {
	all     window
	classes map[class]*classWindow // those with writes in flight or waiting, or whose last write failed
}

// window limits the number of writes in flight. Overload and failures shrink it; each success grows it, so that it doubles
// when all have been answered.
type window struct {
	limit    int
	size     int       // how many may be in flight now, up to limit
	inFlight int       // how many are in flight
	until    time.Time // no write begins before
	failures int       // failures in a row that gave no time to wait
}

// classWindow is the window of one class: a failure that concerns the whole class delays no other.
type classWindow struct {
	window
	refused error // the error that all but the next probe get at once; nil if they wait
}

const (
	// Backoff after a failure: doubling, with up to a quarter of jitter. The first wait is short, for what repairs itself; with
	// the longest, a job still continues soon after somebody raised its quota.
	backoffFirst = 100 * time.Millisecond
	backoffMax   = 5 * time.Second
	// busyWait is for a 429 without Retry-After: what the API server itself sets where it does.
	busyWait = time.Second
)

// newPace starts slowly, as Kubernetes' own controllers do, so that a mistake costs few requests: one, then two, four, up to
// the limit.
func newPace(limit int) pace {
	return pace{all: window{limit: limit, size: 1}, classes: map[class]*classWindow{}}
}

func (w *window) open(now time.Time) bool { return w.inFlight < w.size && !now.Before(w.until) }

// grow records a successful write.
func (w *window) grow(now time.Time) {
	if now.Before(w.until) {
		return // it began before another failed
	}
	w.failures = 0
	w.size = min(w.size+1, w.limit)
}

// throttle records an answer of overload. Writes that were in flight together and get the same answer count once.
func (w *window) throttle(now time.Time, wait time.Duration) {
	if !now.Before(w.until) {
		w.size = max(w.size/2, 1)
	}
	if until := now.Add(wait); until.After(w.until) {
		w.until = until
	}
}

// backOff records a failed write: then one at a time, after a pause. Failures that were in flight together count once. jitter is
// from 0 to 1.
func (w *window) backOff(now time.Time, jitter float64) {
	w.size = 1
	if now.Before(w.until) {
		return
	}
	wait := min(backoffFirst<<min(w.failures, 10), backoffMax)
	w.failures++
	w.until = now.Add(wait + time.Duration(jitter*float64(wait)/4))
}

// refused is the error that writes of a class get at once; nil if the next one may probe.
func (p *pace) refused(now time.Time, c class) error {
	if of := p.classes[c]; of != nil && !of.open(now) {
		return of.refused
	}
	return nil
}

// begin reports whether a write of a class may begin, and counts it.
func (p *pace) begin(now time.Time, c class) bool {
	of := p.classes[c]
	if !p.all.open(now) || of != nil && !of.open(now) {
		return false
	}
	if of == nil {
		of = &classWindow{window: window{limit: p.all.limit, size: p.all.limit}}
		p.classes[c] = of
	}
	p.all.inFlight++
	of.inFlight++
	return true
}

// end records the result of a write of a class.
func (p *pace) end(now time.Time, c class, a answer, jitter float64) {
	of := p.classes[c]
	p.all.inFlight--
	of.inFlight--
	switch a.verdict {
	case done:
		of.refused = nil
		of.grow(now)
		p.all.grow(now)
	case busy:
		p.all.throttle(now, a.wait)
	case down:
		p.all.backOff(now, jitter)
	case failedAll:
		of.backOff(now, jitter)
		if of.failures >= providers.Persists { // tell those that wait instead of letting them wait longer
			of.refused = a.err
		}
	case refusedAll:
		of.backOff(now, jitter)
		of.refused = a.err
	}
}

// idle drops a class with no write in flight or waiting. If its last write failed, it is kept for the next.
func (p *pace) idle(c class) {
	if of := p.classes[c]; of != nil && of.failures == 0 {
		delete(p.classes, c)
	}
}

// next is when the pause ends after which more may begin; zero if there is none, or an answer has to come first.
func (p *pace) next(now time.Time) (at time.Time) {
	switch {
	case now.Before(p.all.until):
		return p.all.until
	case !p.all.open(now):
		return at
	}
	for _, of := range p.classes {
		if now.Before(of.until) && (at.IsZero() || of.until.Before(at)) {
			at = of.until
		}
	}
	return at
}

// verdict is what an answer means for the writes that follow.
type verdict int

const (
	done       verdict = iota // carried out, or an error of this write alone
	busy                      // the API server reports that it is overloaded
	down                      // it failed or was unreachable: unknown whether the write was carried out
	unknown                   // canceled by the caller, which says nothing about the API server
	failedAll                 // failed for a reason that holds for the whole class and may pass
	refusedAll                // refused for a reason that holds for the whole class
)

// passes reports whether a retry may succeed a moment later.
func (v verdict) passes() bool { return v == busy || v == down || v == failedAll }

type answer struct {
	verdict verdict
	wait    time.Duration // with busy
	err     error         // from the API server
}

// forCaller is the error for the caller: a providers.TransientError if it may pass by itself.
func (a answer) forCaller() error {
	if a.verdict.passes() {
		return &providers.TransientError{Err: a.err, Busy: a.verdict == busy}
	}
	return a.err
}

// readError is the error of a read, which needs no turn, for the caller.
func readError(err error) error { return judge(err).forCaller() }

// judge classifies an error of the API server.
func judge(err error) answer {
	if err == nil {
		return answer{}
	}
	a := answer{err: err}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		a.verdict = down // the answer is not the API server's
		return a
	}
	code := int(status.Status().Code)
	seconds, asked := apierrors.SuggestsClientDelay(err)
	switch {
	case code == http.StatusTooManyRequests || asked && code >= http.StatusInternalServerError:
		a.verdict, a.wait = busy, max(time.Duration(seconds)*time.Second, busyWait)
	case webhookFails(err):
		a.verdict = failedAll
	case code >= http.StatusInternalServerError, quotaConflict(err):
		a.verdict = down
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest, apierrors.IsInvalid(err):
		a.verdict = refusedAll // permissions, quota, a webhook, a terminating namespace; the pods of one role are alike
	}
	return a
}

// judgeCanceled judges a write whose context ended. If its deadline passed, the class backs off; the API server as a whole does not, as
// an admission webhook for this class may be what took so long.
func judgeCanceled(ctx context.Context, err error) answer {
	switch {
	case err == nil:
		return answer{}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer{verdict: failedAll}
	}
	return answer{verdict: unknown}
}

// quotaConflict: many pods are charged to one quota at once, and the API server gave up updating its usage.
func quotaConflict(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Kind == "resourcequotas"
}

// webhookFails: an admission webhook that must not be skipped cannot be called. It may not apply to other writes, so this says
// nothing about the API server. Only the text of the answer distinguishes it from other failures.
func webhookFails(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook \"")
}

// class identifies writes that are alike: one kind of write for one job, such as "create pods of worker". They fail together
// and are reported together.
type class struct{ job, what string } // job is its UID

// pacer lets writes begin in order and at a pace; writes whose class has to wait do not block others. Make it with newPacer
// and close it.
type pacer struct {
	log     *slog.Logger
	delayed func() // called when the result of delayedJobs changed

	mu       sync.Mutex
	pace     pace
	queue    []*ticket // the waiting writes, in order
	wake     *time.Timer
	delays   delays
	reported map[string]string // of delays, at the last check
	check    *time.Timer
	checking bool // check is armed
}

// ticket is one write that waits for its turn.
type ticket struct {
	class class
	turn  chan struct{} // closed when it may begin, or fails with err
	err   error
}

// checkInterval is how often delays are checked while writes are in flight or waiting. People read the result, for whom a second is
// short; checking at each of thousands of writes would be expensive.
const checkInterval = time.Second

func newPacer(limit int, log *slog.Logger, delayed func()) *pacer {
	g := &pacer{pace: newPace(limit), log: log, delays: delays{}, delayed: delayed}
	g.wake, g.check = time.AfterFunc(time.Hour, g.resume), time.AfterFunc(time.Hour, g.checkDelays)
	g.wake.Stop()
	g.check.Stop()
	return g
}

func (g *pacer) close() {
	g.wake.Stop()
	g.check.Stop()
}

// do carries out one write, once: it waits for its turn, and the answer sets the pace of the next. An error that concerns a
// whole class is returned to all of it. One that may pass is a providers.TransientError, and the caller retries by calling do
// again. If ctx ended, the error includes what the API server last said of similar writes.
func (g *pacer) do(ctx context.Context, c class, write func(context.Context) error) error {
	w := g.begin(c)
	defer g.end(c, w)
	if err := g.enter(ctx, c); err != nil {
		return err
	}
	g.note(w.ask)
	err := write(ctx)
	if ctx.Err() != nil {
		g.leave(c, judgeCanceled(ctx, err))
		return g.withLastError(c, err)
	}
	a := judge(err)
	g.note(func(now time.Time) { w.answered(now, a) })
	g.leave(c, a)
	if a.verdict.passes() {
		g.log.Debug("A write failed temporarily.", "write", c.what, "job", c.job, "error", err)
	}
	return a.forCaller()
}

// withLastError adds to the error of an abandoned write the API server's last error for its class.
func (g *pacer) withLastError(c class, err error) error {
	if err == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if said := g.delays.said(c); said != "" {
		return fmt.Errorf("%w; before: %s", err, said)
	}
	return err
}

func (g *pacer) begin(c class) *writing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.checking {
		g.checking = true
		g.check.Reset(checkInterval)
	}
	return g.delays.begin(c)
}

func (g *pacer) end(c class, w *writing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.delays.end(time.Now(), c, w) {
		g.pace.idle(c)
	}
}

// note updates delays.
func (g *pacer) note(enter func(now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	enter(time.Now())
}

// checkDelays checks the delays and calls delayed if they changed.
func (g *pacer) checkDelays() {
	g.mu.Lock()
	for _, c := range g.delays.prune(time.Now()) {
		g.pace.idle(c)
	}
	now := g.delays.byJob(time.Now())
	news := !maps.Equal(now, g.reported)
	g.reported = now
	if g.checking = len(g.delays) > 0; g.checking {
		g.check.Reset(checkInterval)
	}
	g.mu.Unlock()
	if news {
		g.delayed()
	}
}

// delayedJobs is that of delays at the last check. Read-only.
func (g *pacer) delayedJobs() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reported
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
	if i < 0 && t.err == nil { // its turn came just now
		g.leave(c, answer{verdict: unknown})
	}
	err := g.withLastError(c, fmt.Errorf("wait for the API server's rate limit: %w", ctx.Err()))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &providers.TransientError{Err: err}
	}
	return err
}

// leave ends a turn. Waiting writes that would only get the same refusal fail at once.
func (g *pacer) leave(c class, a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.pace.end(now, c, a, rand.Float64())
	if refused := g.pace.refused(now, c); refused != nil {
		g.delays.clear(c)
		g.queue = slices.DeleteFunc(g.queue, func(t *ticket) bool {
			if t.class != c {
				return false
			}
			t.err = refused
			close(t.turn)
			return true
		})
	}
	g.admit()
}

// admit starts the writes that may begin, in order. g.mu is held.
func (g *pacer) admit() {
	now := time.Now()
	for i := 0; i < len(g.queue) && g.pace.all.open(now); {
		if !g.pace.begin(now, g.queue[i].class) {
			i++
			continue
		}
		close(g.queue[i].turn)
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	if at := g.pace.next(now); len(g.queue) > 0 && !at.IsZero() {
		g.wake.Reset(at.Sub(now))
	}
}

// resume runs when a pause is over.
func (g *pacer) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}
