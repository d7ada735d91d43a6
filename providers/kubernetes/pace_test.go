package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// testdata/pace: what the pace lets begin, step by step.
//
//	new most=N
//	begin n=N        as many of N as may begin now; prints how many did and how many may be under way
//	end [n=N] [class=c] answer=done|busy|down|refused [wait=2s]
//	after d=100ms
//	refused class=c  whether one of that class is refused without being asked
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	datadriven.RunTest(t, "testdata/pace", func(t *testing.T, d *datadriven.TestData) string {
		n, what, wait, text := 1, "", "0s", ""
		d.MaybeScanArgs(t, "n", &n)
		d.MaybeScanArgs(t, "class", &what)
		switch d.Cmd {
		case "new":
			d.ScanArgs(t, "most", &n)
			p = newPace(n)
			return ""
		case "begin":
			begun := 0
			for range n {
				if p.begin(now) {
					begun++
				}
			}
			return fmt.Sprintf("%d begun, window %d\n", begun, p.window)
		case "end":
			d.ScanArgs(t, "answer", &text)
			d.MaybeScanArgs(t, "wait", &wait)
			a := answer{verdict: map[string]verdict{"done": done, "busy": busy, "down": down, "refused": refusedAll}[text]}
			a.wait, _ = time.ParseDuration(wait)
			if a.verdict == refusedAll {
				a.err = errors.New("exceeded quota")
			}
			for range n {
				p.end(now, class{"u", what}, a, 0)
			}
			return fmt.Sprintf("window %d, next in %s\n", p.window, max(p.until.Sub(now), 0))
		case "after":
			d.ScanArgs(t, "d", &wait)
			step, err := time.ParseDuration(wait)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(step)
			return ""
		case "refused":
			return fmt.Sprintln(p.refused(now, class{"u", what}))
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

func TestWhatAnAnswerMeans(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	quotas := schema.GroupResource{Resource: "resourcequotas"}
	tests := map[string]struct {
		err  error
		want verdict
	}{
		"there already":      {apierrors.NewAlreadyExists(pods, "p"), done},
		"not there":          {apierrors.NewNotFound(pods, "p"), done},
		"two writes at once": {apierrors.NewConflict(pods, "p", errors.New("changed")), done}, // what it means is for insist
		"too many requests":  {tooMany(3), busy},
		"503, wait":          {apierrors.NewServerTimeout(pods, "create", 2), busy},
		"500":                {apierrors.NewInternalError(errors.New("etcd")), down},
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
	}
	if got := judge(nil); got.verdict != done {
		t.Errorf("created: verdict %d, want %d", got.verdict, done)
	}
	if got := judge(tooMany(3)); got.wait != 3*time.Second {
		t.Errorf("Retry-After of 3 s is a wait of %s", got.wait)
	}
}

// Of ten thousand that a quota refuses, few are asked, and all hear why.
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
					t.Errorf("it heard %v", err)
				}
			})
		}
		all.Wait()
		if asked.Load() > 1 {
			t.Errorf("%d were asked", asked.Load())
		}
		if err := g.do(t.Context(), class{"u", "another job"}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("another job's pods are refused with it: %v", err)
		}
		time.Sleep(holdMost)
		if err := g.do(t.Context(), class{"u", "create"}, func(context.Context) error { return nil }); err != nil {
			t.Errorf("the refusal stands for ever: %v", err)
		}
	})
}

// Nobody asks while the API server said to wait, nobody is lost, and the order stays.
func TestRetryAfterHoldsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(8, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		var mu sync.Mutex
		var refused, until time.Time // those that were under way together are told at one moment
		var order []int
		var all sync.WaitGroup
		refusals := 3
		for i := range 100 {
			all.Go(func() {
				err := g.do(t.Context(), class{"u", "create"}, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if now := time.Now(); now.After(refused) && now.Before(until) {
						t.Error("it was asked before its time")
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

// While the API server is away few ask, and a caller hears of it after some attempts. One that gives up leaves no
// place taken.
func TestAnAPIServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(8, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		asked := 0
		gone := errors.New("connection refused")
		if err := g.do(t.Context(), class{"u", "a"}, func(context.Context) error { asked++; return gone }); !errors.Is(err, gone) || asked != attemptsDown {
			t.Errorf("after %d attempts: %v", asked, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		block := make(chan struct{})
		var all sync.WaitGroup
		time.Sleep(fallMost)
		all.Go(func() { g.do(t.Context(), class{"u", "a"}, func(context.Context) error { <-block; return nil }) })
		synctest.Wait()
		if err := g.do(ctx, class{"u", "a"}, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits no longer than 1 ms hears %v", err)
		}
		close(block)
		all.Wait()
		if err := g.do(t.Context(), class{"u", "a"}, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if g.pace.flying != 0 || len(g.queue) != 0 {
			t.Errorf("%d under way, %d wait", g.pace.flying, len(g.queue))
		}
	})
}

// An API server that takes requests and never answers is asked less, not more. Writes that their callers give up say nothing.
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
		before := g.pace.window
		if before != 64 {
			t.Fatalf("the window is %d after 100 answers", before)
		}
		silence := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		given, cancel := context.WithCancel(t.Context())
		ask(given, 64, silence)
		synctest.Wait()
		cancel()
		all.Wait()
		if g.pace.window != before {
			t.Errorf("the window is %d after writes that were given up", g.pace.window)
		}
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ask(bounded, 200, silence)
		all.Wait()
		if g.pace.window != 1 || g.pace.flying != 0 {
			t.Errorf("the window is %d with %d under way after a minute of silence", g.pace.window, g.pace.flying)
		}
	})
}

// The most that are under way at once is the parallelism.
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
			t.Errorf("at most %d were under way, want 16", most.Load())
		}
	})
}
