package kubernetes

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A write that has no answer is told of while it waits, then with what the API server failed with, and no more once one
// was answered.
func TestWhatDoesNotComeAboutIsToldBeforeItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		g := newPacer(1, func() { changes.Add(1) })
		defer g.close()
		failure := apierrors.NewInternalError(errors.New(`failed calling webhook "slow.example"`))
		answers := make(chan error)
		ended := make(chan error, 1)
		go func() {
			ended <- g.do(t.Context(), "u create pods of worker", func(context.Context) error { return <-answers })
		}()
		told := func(want string, times int64) {
			t.Helper()
			synctest.Wait()
			all := g.delays.byJob()
			if want == "" && len(all) > 0 || !strings.Contains(all["u"], want) || changes.Load() != times {
				t.Errorf("after %d changes it says %q, not %q after %d", changes.Load(), all, want, times)
			}
		}
		time.Sleep(slowAfter - time.Millisecond)
		told("", 0)
		time.Sleep(2 * time.Millisecond)
		told("create pods of worker: the API server has not answered for 5s", 1)
		answers <- failure
		told(`create pods of worker is tried again: Internal error occurred: failed calling webhook "slow.example"`, 1)
		time.Sleep(fallMost)
		answers <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		told("", 2)
	})
}

// What is given up while it is tried again says what it was that failed, not only that the time was up.
func TestAWriteThatIsGivenUpSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(1, func() {})
		defer g.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := true
		err := g.do(ctx, "u create pods of worker", func(ctx context.Context) error {
			if first {
				first = false
				return apierrors.NewInternalError(errors.New("no endpoints for the webhook"))
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no endpoints for the webhook") {
			t.Errorf("it says %v", err)
		}
		if all := g.delays.byJob(); len(all) > 0 {
			t.Errorf("it was given up, and is told of: %q", all)
		}
	})
}
