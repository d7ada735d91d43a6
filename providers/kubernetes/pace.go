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

// pace says how many writes may be under way, of all together and of each class. It is a plain value: the time is an
// argument.
type pace struct {
	all     window
	classes map[class]*classWindow // of which some are under way or wait, or the last has failed
}

// window is how many writes may be under way. What the API server says makes it smaller; it grows with each that is carried
// out, so that it doubles when all have been answered.
type window struct {
	most   int
	size   int       // how many may be under way now
	flying int       // how many are
	until  time.Time // nothing begins before
	falls  int       // failures in a row that said nothing of how long to wait
}

// classWindow is that of one class: what fails for a reason that holds for all of it holds up no other.
type classWindow struct {
	window
	refused error // what all that are not to ask hear at once; nil if they wait
}

const (
	// Waits after a failure: doubling, with up to a quarter of jitter. The first is short, for what repairs itself; the last
	// still asks often enough that a person who raised a quota sees the job continue.
	fallFirst = 100 * time.Millisecond
	fallMost  = 5 * time.Second
	// busyWait is for a 429 that does not say how long: what the API server itself writes where it does.
	busyWait = time.Second
)

// newPace starts slowly, as Kubernetes' own controllers do, so that a mistake costs few requests: one, then two, four, up to
// the most.
func newPace(most int) pace {
	return pace{all: window{most: most, size: 1}, classes: map[class]*classWindow{}}
}

func (w *window) open(now time.Time) bool { return w.flying < w.size && !now.Before(w.until) }

// grow is after a write that was carried out.
func (w *window) grow(now time.Time) {
	if now.Before(w.until) {
		return // it was under way when another failed
	}
	w.falls = 0
	w.size = min(w.size+1, w.most)
}

// yield is after one for which there was no time. Writes that were under way together and hear the same count once.
func (w *window) yield(now time.Time, wait time.Duration) {
	if !now.Before(w.until) {
		w.size = max(w.size/2, 1)
	}
	if until := now.Add(wait); until.After(w.until) {
		w.until = until
	}
}

// fall is after one that failed: one at a time, after a pause. Those that were under way together count once. jitter is
// from 0 to 1.
func (w *window) fall(now time.Time, jitter float64) {
	w.size = 1
	if now.Before(w.until) {
		return
	}
	wait := min(fallFirst<<min(w.falls, 10), fallMost)
	w.falls++
	w.until = now.Add(wait + time.Duration(jitter*float64(wait)/4))
}

// refused is the error that all of a class get at once; nil if one of them is to ask.
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
		of = &classWindow{window: window{most: p.all.most, size: p.all.most}}
		p.classes[c] = of
	}
	p.all.flying++
	of.flying++
	return true
}

// end records how a write of a class went that began.
func (p *pace) end(now time.Time, c class, a answer, jitter float64) {
	of := p.classes[c]
	p.all.flying--
	of.flying--
	switch a.verdict {
	case done:
		of.refused = nil
		of.grow(now)
		p.all.grow(now)
	case busy:
		p.all.yield(now, a.wait)
	case down:
		p.all.fall(now, jitter)
	case failedAll:
		of.fall(now, jitter)
		if of.falls >= providers.Persists { // whoever waits hears of it, and waits no longer
			of.refused = a.err
		}
	case refusedAll:
		of.fall(now, jitter)
		of.refused = a.err
	}
}

// idle is when nothing of a class is under way or waits. That the last of it failed is kept, for who comes next.
func (p *pace) idle(c class) {
	if of := p.classes[c]; of != nil && of.falls == 0 {
		delete(p.classes, c)
	}
}

// next is when a pause ends with which more may begin; zero if none does, or an answer has to come before.
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

// verdict is what an answer means for those that come after.
type verdict int

const (
	done       verdict = iota // it was carried out, or what is wrong is with this one alone
	busy                      // the API server is overloaded and said so
	down                      // it failed, or was not reached: nobody knows whether it was carried out
	unknown                   // its caller gave it up: that says nothing of the API server
	failedAll                 // it failed for a reason that holds for all like it, and may pass
	refusedAll                // refused for a reason that holds for all like it
)

// passes reports whether what failed so may succeed a moment later.
func (v verdict) passes() bool { return v == busy || v == down || v == failedAll }

type answer struct {
	verdict verdict
	wait    time.Duration // with busy
	err     error         // what was answered
}

// told is the error as whoever asked gets it: one that may pass by itself says so.
func (a answer) told() error {
	if a.verdict.passes() {
		return &providers.TransientError{Err: a.err, Busy: a.verdict == busy}
	}
	return a.err
}

// ofRead is the error of a read, which needs no turn, as whoever asked gets it.
func ofRead(err error) error { return judge(err).told() }

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
	case webhookFails(err):
		a.verdict = failedAll
	case code >= http.StatusInternalServerError, quotaConflict(err):
		a.verdict = down
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest, apierrors.IsInvalid(err):
		a.verdict = refusedAll // rights, quota, a webhook, a namespace that terminates; pods of one role are alike
	}
	return a
}

// cut judges a write of which the caller's time was up, or that it gave up. What the API server has not answered until then
// it is not to be asked more of at once; an admission webhook may be what took so long, and others' writes need not be for it.
func cut(ctx context.Context, err error) answer {
	switch {
	case err == nil:
		return answer{}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return answer{verdict: failedAll}
	}
	return answer{verdict: unknown}
}

// quotaConflict: many pods are charged to one quota at once, and the API server gave up to be the one that does.
func quotaConflict(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return status.Status().Details.Kind == "resourcequotas"
}

// webhookFails: an admission webhook cannot be called, and nothing is let in without. Others' writes may not be for it, so
// that it fails says nothing of the API server. Nothing but the text of the answer tells it from other failures.
func webhookFails(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook \"")
}

// class is of writes that are alike: what of one job is done, as "create pods of worker". They fail together, and are told
// of together.
type class struct{ job, what string } // job is its UID

// pacer lets writes begin in their order, at a pace; one whose class has to wait lets others pass. Make it with newPacer;
// close it.
type pacer struct {
	log     *slog.Logger
	delayed func() // called when delayedJobs says otherwise than before

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

// do carries out one write, once: it waits for its turn, and takes from the answer when the next may have theirs. What holds
// for all of a class they hear together. An error that may pass by itself is a providers.TransientError, and whoever tries
// again comes here again. Where the time was up, the error has what the API server said of writes like it before.
func (g *pacer) do(ctx context.Context, c class, write func(context.Context) error) error {
	w := g.begin(c)
	defer g.end(c, w)
	if err := g.enter(ctx, c); err != nil {
		return err
	}
	g.note(w.ask)
	err := write(ctx)
	if ctx.Err() != nil {
		g.leave(c, cut(ctx, err))
		return g.lately(c, err)
	}
	a := judge(err)
	g.note(func(now time.Time) { w.answered(now, a) })
	g.leave(c, a)
	if a.verdict.passes() {
		g.log.Debug("A write failed temporarily.", "write", c.what, "job", c.job, "error", err)
	}
	return a.told()
}

// lately adds to the error with which a write was given up what the API server last failed at others like it with.
func (g *pacer) lately(c class, err error) error {
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
	if !g.looks {
		g.looks = true
		g.look.Reset(lookEach)
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

// note enters something into delays.
func (g *pacer) note(enter func(now time.Time)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	enter(time.Now())
}

// looked says so if something is delayed, or no longer is.
func (g *pacer) looked() {
	g.mu.Lock()
	for _, c := range g.delays.prune(time.Now()) {
		g.pace.idle(c)
	}
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

// delayedJobs is that of delays, as at the last look. Nobody changes it.
func (g *pacer) delayedJobs() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
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
	err := g.lately(c, fmt.Errorf("wait for the API server's rate limit: %w", ctx.Err()))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &providers.TransientError{Err: err}
	}
	return err
}

// leave ends a turn. Those that wait and would only hear the same refusal again fail at once.
func (g *pacer) leave(c class, a answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.pace.end(now, c, a, rand.Float64())
	if refused := g.pace.refused(now, c); refused != nil {
		g.delays.told(c)
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

// admit lets begin whoever may, in order. g.mu is held.
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

// woken is when a pause is over.
func (g *pacer) woken() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}
