package state_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/state"
)

const (
	lease = 15 * time.Second
	every = 5 * time.Second
)

// kept is a lock just acquired that is renewed by renew. It ends with the test.
func kept(t *testing.T, renew func(ctx context.Context) error) *state.Hold {
	t.Helper()
	h := state.NewHold(state.LockInfo{ID: "mine"})
	h.Keep(state.Renewal{Lease: lease, Every: every, Renew: renew, Place: "the moon"}, time.Now())
	t.Cleanup(func() {
		if err := h.Halt(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func held(h *state.Hold) bool {
	select {
	case <-h.Lost():
		return false
	default:
		return h.Why() == nil
	}
}

func TestAHoldIsRenewedForAsLongAsItIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		h := kept(t, func(context.Context) error {
			at = append(at, time.Since(start))
			time.Sleep(time.Second) // the next is due after the beginning of this one, not after its end
			return nil
		})
		time.Sleep(100*every + 2*time.Second)
		synctest.Wait()
		if !held(h) || len(at) != 100 || at[0] != every || at[99] != 100*every {
			t.Errorf("renewed %d times, the last after %v; lost: %v", len(at), at[len(at)-1], h.Why())
		}
		if err := h.Halt(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * lease)
		if !held(h) || len(at) != 100 {
			t.Errorf("renewed %d times after its end; lost: %v", len(at)-100, h.Why())
		}
	})
}

// The lease counts from before the acquisition or the last renewal: nobody can have seen that earlier.
func TestAHoldThatCannotBeRenewedIsLostWhenItsLeaseIsUp(t *testing.T) {
	full, late := errors.New("the disk is full"), fmt.Errorf("renew: %w", context.DeadlineExceeded)
	for name, c := range map[string]struct {
		answers []error // of consecutive renewals; those that follow hang
		lost    time.Duration
		why     string
		is      error
	}{
		"no answer at all":         {nil, lease, "the moon does not answer", nil},
		"no answer after the last": {[]error{nil, nil}, 2*every + lease, "the moon does not answer", nil},
		"errors":                   {[]error{nil, full, full, full}, every + lease, "not renewed for 15s: the disk is full", full},
		"an error that is over":    {[]error{full, nil, nil}, 3*every + lease, "the moon does not answer", nil},
		"one that says why stands": {[]error{nil, full, late, late}, every + lease, "the disk is full", full},
		"none that says why":       {[]error{late, late}, lease, "deadline exceeded", context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, answers := time.Now(), c.answers
				h := kept(t, func(ctx context.Context) error {
					if len(answers) == 0 {
						<-ctx.Done()
						return ctx.Err()
					}
					time.Sleep(time.Second)
					err := answers[0]
					answers = answers[1:]
					return err
				})
				time.Sleep(c.lost - time.Millisecond)
				if !held(h) {
					t.Fatalf("lost before its lease expired: %v", h.Why())
				}
				<-h.Lost()
				if took := time.Since(start); took != c.lost {
					t.Errorf("lost after %v, want %v", took, c.lost)
				}
				if err := h.Why(); err == nil || !strings.Contains(err.Error(), c.why) || c.is != nil && !errors.Is(err, c.is) || errors.Is(err, state.ErrFenced) {
					t.Errorf("lost because: %v; want %q", err, c.why)
				}
			})
		})
	}
}

func TestAHoldThatIsAnothersIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, renewals := time.Now(), 0
		h := kept(t, func(context.Context) error {
			renewals++
			return fmt.Errorf("renew: %w", state.ErrFenced)
		})
		<-h.Lost()
		if took := time.Since(start); took != every || !errors.Is(h.Why(), state.ErrFenced) {
			t.Errorf("lost after %v, because: %v", took, h.Why())
		}
		time.Sleep(10 * lease)
		synctest.Wait()
		if renewals != 1 {
			t.Errorf("renewed %d times", renewals)
		}
	})
}

// A renewal that succeeds only after the lease expired does not undo the loss.
func TestAHoldThatWasLostStaysLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := kept(t, func(context.Context) error {
			time.Sleep(lease)
			return nil
		})
		<-h.Lost()
		why := h.Why()
		time.Sleep(10 * lease)
		if h.Why() != why || why == nil {
			t.Errorf("lost because: %v, and later: %v", why, h.Why())
		}
	})
}

func TestHaltIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := kept(t, func(context.Context) error {
			time.Sleep(time.Hour) // a file system that hangs ignores contexts
			return nil
		})
		time.Sleep(every + time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Halt(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want the context's error", err)
		}
		time.Sleep(10 * lease)
		if !held(h) {
			t.Errorf("a halted lock was lost: %v", h.Why())
		}
	})
}

func TestTheFirstReasonStands(t *testing.T) {
	h := state.NewHold(state.LockInfo{ID: "mine", Epoch: 3})
	if !held(h) || h.Info().Epoch != 3 {
		t.Fatalf("%+v, lost because: %v", h.Info(), h.Why())
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			h.Lose(fmt.Errorf("reason %d", i))
			<-h.Lost()
			if why := h.Why(); why == nil || why != h.Why() {
				t.Errorf("lost because: %v, and then: %v", why, h.Why())
			}
		})
	}
	all.Wait()
}
