package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// testdata/pace: the writes that the pace allows, step by step.
//
//	new most=N
//	begin n=N [class=c]  starts up to N writes; prints how many started and how many may be in flight
//	end [n=N] [class=c] answer=done|busy|down|failed|refused [wait=2s]
//	after d=100ms
//	refused class=c      whether a write of that class is refused without a request
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	state := func() string { // of all, and of each class with a smaller window
		text := fmt.Sprintf("window %d, next in %s\n", p.all.size, max(p.all.until.Sub(now), 0))
		for _, c := range slices.SortedFunc(maps.Keys(p.classes), func(a, b class) int { return strings.Compare(a.what, b.what) }) {
			if of := p.classes[c]; of.failures > 0 {
				text += fmt.Sprintf("of %s: window %d, next in %s\n", c.what, of.size, max(of.until.Sub(now), 0))
			}
		}
		return text
	}
	datadriven.RunTest(t, "testdata/pace", func(t *testing.T, d *datadriven.TestData) string {
		n, what, wait, text := 1, "gpt", "0s", ""
		d.MaybeScanArgs(t, "n", &n)
		d.MaybeScanArgs(t, "class", &what)
		c := class{"u", what}
		switch d.Cmd {
		case "new":
			d.ScanArgs(t, "most", &n)
			p = newPace(n)
			return ""
		case "begin":
			begun := 0
			for range n {
				if p.begin(now, c) {
					begun++
				}
			}
			return fmt.Sprintf("%d begun, window %d\n", begun, p.all.size)
		case "end":
			d.ScanArgs(t, "answer", &text)
			d.MaybeScanArgs(t, "wait", &wait)
			a := answer{verdict: map[string]verdict{"done": done, "busy": busy, "down": down, "failed": failedAll, "refused": refusedAll}[text]}
			a.wait, _ = time.ParseDuration(wait)
			switch a.verdict {
			case failedAll:
				a.err = errors.New("failed calling webhook")
			case refusedAll:
				a.err = errors.New("exceeded quota")
			}
			for range n {
				p.end(now, c, a, 0)
			}
			return state()
		case "after":
			d.ScanArgs(t, "d", &wait)
			step, err := time.ParseDuration(wait)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(step)
			return ""
		case "refused":
			return fmt.Sprintln(p.refused(now, c))
		}
		d.Fatalf(t, "unknown command")
		return ""
	})
}

func tooMany(seconds int) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)},
	}}
}

// webhookAway is the API server's error for a webhook that it cannot call.
var webhookAway = apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example": failed to call webhook: Post "https://hooks.ml.svc:443/pods?timeout=10s": context deadline exceeded`))

func TestWhatAnAnswerMeans(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	quotas := schema.GroupResource{Resource: "resourcequotas"}
	tests := map[string]struct {
		err  error
		want verdict
	}{
		"there already":      {apierrors.NewAlreadyExists(pods, "p"), done},
		"not there":          {apierrors.NewNotFound(pods, "p"), done},
		"two writes at once": {apierrors.NewConflict(pods, "p", errors.New("changed")), done}, // interpreted by retryConflicts
		"too many requests":  {tooMany(3), busy},
		"503, wait":          {apierrors.NewServerTimeout(pods, "create", 2), busy},
		"500":                {apierrors.NewInternalError(errors.New("etcd")), down},
		"500 of a webhook":   {webhookAway, failedAll},
		"quota contended":    {apierrors.NewConflict(quotas, "q", errors.New("changed")), down},
		"connection refused": {errors.New("dial tcp: connection refused"), down},
		"quota":              {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota")), refusedAll},
		"token expired":      {apierrors.NewUnauthorized("no"), refusedAll},
		"webhook":            {apierrors.NewBadRequest("admission webhook denied the request"), refusedAll},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), refusedAll},
	}
	for name, test := range tests {
		if got := judge(fmt.Errorf("create: %w", test.err)); got.verdict != test.want {
			t.Errorf("%s: verdict %d, want %d", name, got.verdict, test.want)
		}
		err := judge(test.err).forCaller()
		passing, may := errors.AsType[*providers.TransientError](err)
		if may != (test.want == busy || test.want == down || test.want == failedAll) || may && passing.Busy != (test.want == busy) || !errors.Is(err, test.err) {
			t.Errorf("%s: the caller gets %#v", name, err)
		}
	}
	if got := judge(nil); got.verdict != done {
		t.Errorf("created: verdict %d, want %d", got.verdict, done)
	}
	if got := judge(tooMany(3)); got.wait != 3*time.Second {
		t.Errorf("Retry-After of 3 s is a wait of %s", got.wait)
	}
}

// Of ten thousand writes that a quota refuses, few are requested, and all get the reason.
func TestARefusalIsForAllThatQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(64, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		var asked atomic.Int32
		quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("exceeded quota: gpus"))
		var all sync.WaitGroup
		for range 10_000 {
			all.Go(func() {
				err := g.do(t.Context(), class{"u", "create"}, func(context.Context) error {
					asked.Add(1)
					time.Sleep(5 * time.Millisecond)
					return quota
				})
				if err == nil || !strings.Contains(err.Error(), "exceeded quota: gpus") {
					t.Errorf("the error is %v", err)
				}
			})
		}
		all.Wait()
		if asked.Load() > 1 {
			t.Errorf("%d were requested", asked.Load())
		}
		if err := g.do(t.Context(), class{"u", "another job"}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("another job's pods are refused with it: %v", err)
		}
		time.Sleep(2 * backoffMax)
		if err := g.do(t.Context(), class{"u", "create"}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("the refusal never ends: %v", err)
		}
	})
}

// A webhook that cannot be called, or times out, delays only writes that it applies to, and no other job's. Their callers
// get the reason, retry rarely, and continue once it is back.
func TestAWebhookThatFailsHoldsUpNobodyElse(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g := newPacer(128, slog.New(slog.DiscardHandler), func() {})
			defer g.close()
			write := func(ctx context.Context) error { time.Sleep(5 * time.Millisecond); return nil }
			var all sync.WaitGroup
			for range 128 {
				all.Go(func() { g.do(t.Context(), class{"b", "delete pods"}, write) })
			}
			all.Wait()

			const away, creators = 5 * time.Minute, 127
			back := time.Now().Add(away)
			var asked atomic.Int32
			for range creators { // each like apply
				all.Go(func() {
					for pause := 500 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						err := retryTransient(ctx, func() error {
							return g.do(ctx, class{"a", "create pods of worker"}, func(ctx context.Context) error {
								if !time.Now().Before(back) {
									return write(ctx)
								}
								asked.Add(1)
								time.Sleep(takes)
								return webhookAway
							})
						})
						cancel()
						if err == nil {
							return
						}
						if !strings.Contains(err.Error(), `failed calling webhook "pods.example"`) {
							t.Errorf("the error is %v", err)
						}
						time.Sleep(pause)
					}
				})
			}
			for time.Until(back) > 0 {
				start := time.Now()
				err := g.do(t.Context(), class{"b", "delete pods"}, write)
				if took := time.Since(start); err != nil || took > 100*time.Millisecond {
					t.Errorf("another job's write took %s: %v", took, err)
				}
				time.Sleep(time.Second)
			}
			if most := creators + int32(away/backoffMax) + 10; asked.Load() > most {
				t.Errorf("it was called %d times, more than %d", asked.Load(), most)
			}
			all.Wait()
			if late := time.Since(back); late > time.Minute {
				t.Errorf("all are created only %s after it is back", late)
			}
		})
	}
}

// An error that may pass no longer does once it has failed for a whole class again and again: it is reported at once.
func TestWhatPersistsIsNotSaidToPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(8, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		for n := range providers.Persists {
			err := g.do(t.Context(), ofWorkers, func(context.Context) error { return webhookAway })
			if !errors.Is(err, webhookAway) || !providers.MayPass(err) {
				t.Fatalf("attempt %d fails with %#v", n+1, err)
			}
		}
		err := g.do(t.Context(), ofWorkers, func(context.Context) error { t.Error("it is requested at once"); return nil })
		if !errors.Is(err, webhookAway) || providers.MayPass(err) {
			t.Errorf("the error of the next is %#v", err)
		}
		time.Sleep(checkInterval)
		if all := g.delayedJobs(); len(all) > 0 {
			t.Errorf("it is reported as an error and as a delay: %q", all)
		}
	})
}

// No request is sent while the API server said to wait, none is lost, and the order stays.
func TestRetryAfterHoldsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(8, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		var mu sync.Mutex
		var refused, until time.Time // writes in flight together get the answer at the same time
		var order []int
		var all sync.WaitGroup
		refusals := 3
		for i := range 100 {
			all.Go(func() {
				err := retryTransient(t.Context(), func() error {
					return g.do(t.Context(), class{"u", "create"}, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						if now := time.Now(); now.After(refused) && now.Before(until) {
							t.Error("it was requested too early")
						}
						if len(order) >= 20 && refusals > 0 {
							refusals--
							refused = time.Now()
							until = refused.Add(4 * time.Second)
							return tooMany(4)
						}
						order = append(order, i)
						return nil
					})
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if len(order) != 100 {
			t.Errorf("%d of 100 were carried out", len(order))
		}
	})
}

// Overload of the API server delays all writes, whatever they are, for as long as it asked.
func TestTooManyRequestsOfAnyKindAreHeard(t *testing.T) {
	const wait = 3 * time.Second
	uid := uidOf(1)
	for name, write := range map[string]func(context.Context, *Provider, *corev1.Pod, prepared) error{
		"create": func(ctx context.Context, p *Provider, o *corev1.Pod, _ prepared) error {
			return p.create(ctx, o, job.Launch{UID: uid})
		},
		"delete": func(ctx context.Context, p *Provider, o *corev1.Pod, _ prepared) error {
			return p.remove(ctx, p.index.entries[o.UID].pod, 1)
		},
		"lift": func(ctx context.Context, p *Provider, o *corev1.Pod, _ prepared) error {
			return p.lift(ctx, p.index.entries[o.UID].pod)
		},
		"mend": func(ctx context.Context, p *Provider, o *corev1.Pod, _ prepared) error {
			there := *p.index.entries[o.UID].pod
			there.seen.Drift = []job.FieldChange{{Path: "image"}}
			return p.repair(ctx, &there, job.Launch{UID: uid})
		},
		"names and budgets": func(ctx context.Context, p *Provider, _ *corev1.Pod, j prepared) error { return p.writeObjects(ctx, j) },
		"publish": func(ctx context.Context, p *Provider, _ *corev1.Pod, _ prepared) error {
			return p.Publish(ctx, providers.Service{URL: "https://10.0.0.9:7000"})
		},
		"forget": func(ctx context.Context, p *Provider, _ *corev1.Pod, _ prepared) error {
			return p.removeBudgets(ctx, uid, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refused atomic.Bool
				p := answered(t, 8, func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet || refused.Swap(true) {
						return named(r)
					}
					return &http.Response{
						StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {strconv.Itoa(int(wait.Seconds()))}},
						Body: io.NopCloser(strings.NewReader("Too many requests, please try again later.\n")),
					}, nil
				})
				o := gatedPod(t, uid, 0, 1)
				p.index.put(o)
				j := p.prepared(gangOf(uid, 1))
				start := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- retryTransient(t.Context(), func() error { return write(t.Context(), p, o, j) }) }()
				time.Sleep(wait / 2)
				if err := p.pacer.do(t.Context(), class{"another", "delete pods"}, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
				if waited := time.Since(start); waited != wait {
					t.Errorf("another job's write began after %s, not %s", waited, wait)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// While the API server is down there are few requests, each once, and their errors are transient. Giving up frees the turn.
func TestAnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(8, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		asked := 0
		gone := errors.New("connection refused")
		if err := g.do(t.Context(), class{"u", "a"}, func(context.Context) error { asked++; return gone }); !errors.Is(err, gone) || !providers.MayPass(err) || asked != 1 {
			t.Errorf("after %d attempts: %v", asked, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		block := make(chan struct{})
		var all sync.WaitGroup
		time.Sleep(backoffMax)
		all.Go(func() { g.do(t.Context(), class{"u", "a"}, func(context.Context) error { <-block; return nil }) })
		synctest.Wait()
		if err := g.do(ctx, class{"u", "a"}, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) || !providers.MayPass(err) {
			t.Errorf("after a timeout of 1 ms the error is %v", err)
		}
		close(block)
		all.Wait()
		if err := g.do(t.Context(), class{"u", "a"}, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if g.pace.all.inFlight != 0 || len(g.queue) != 0 {
			t.Errorf("%d in flight, %d waiting", g.pace.all.inFlight, len(g.queue))
		}
	})
}

// An API server that accepts requests but never answers gets fewer, not more. Canceled writes do not matter.
func TestAnAPIServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(64, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		var all sync.WaitGroup
		ask := func(ctx context.Context, n int, write func(context.Context) error) {
			for range n {
				all.Go(func() { g.do(ctx, class{"u", "a"}, write) })
			}
		}
		ask(t.Context(), 100, func(context.Context) error { return nil })
		all.Wait()
		before := g.pace.all.size
		if before != 64 {
			t.Fatalf("the window is %d after 100 answers", before)
		}
		silence := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		given, cancel := context.WithCancel(t.Context())
		ask(given, 64, silence)
		synctest.Wait()
		cancel()
		all.Wait()
		if g.pace.all.size != before {
			t.Errorf("the window is %d after canceled writes", g.pace.all.size)
		}
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ask(bounded, 200, silence)
		all.Wait()
		if of := g.pace.classes[class{"u", "a"}]; of == nil || of.size != 1 || of.inFlight != 0 {
			t.Errorf("after a minute of silence the window is %+v", of)
		}
		if g.pace.all.size != before || g.pace.all.inFlight != 0 {
			t.Errorf("%d of other writes may be in flight, and %d are", g.pace.all.size, g.pace.all.inFlight)
		}
	})
}

// The parallelism is the maximum in flight.
func TestParallelismIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(16, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		var now, most atomic.Int32
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				err := g.do(t.Context(), class{"create", strconv.Itoa(i % 3)}, func(context.Context) error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(time.Millisecond)
					now.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most.Load() != 16 {
			t.Errorf("at most %d were in flight, want 16", most.Load())
		}
	})
}
