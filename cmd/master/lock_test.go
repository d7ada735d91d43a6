package master

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

func TestLockIsWaitedForAndItsHolderTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	store := memory.New()
	held, err := store.Lock(ctx, state.LockInfo{Operation: "apply -watch", Who: "ada@lovelace"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	told := ""
	lock := func(ctx context.Context, timeout time.Duration) (state.Lock, bool, error) {
		return Lock(ctx, store, "apply", timeout, func(by *state.LockedError) { told += by.Error() })
	}
	log := slog.New(slog.DiscardHandler)
	var locked *state.LockedError
	if _, waited, err := lock(ctx, 0); waited || !errors.As(err, &locked) || !strings.Contains(err.Error(), "-lock-timeout") || told != "" {
		t.Errorf("without -lock-timeout: waited %t, %v, said %q", waited, err, told)
	}
	const patient = 15 * time.Minute
	interrupted, interrupt := context.WithTimeout(ctx, 50*time.Millisecond)
	defer interrupt()
	if _, waited, err := lock(interrupted, patient); !waited || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an interrupted wait: waited %t, %v", waited, err)
	}
	if strings.Count(told, "ada@lovelace") != 1 || !strings.Contains(told, "apply -watch since") {
		t.Errorf("it told %q", told)
	}

	type result struct {
		lock   state.Lock
		waited bool
		err    error
	}
	got := make(chan result, 1)
	go func() {
		l, waited, err := lock(ctx, patient)
		got <- result{l, waited, err}
	}()
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil {
		t.Errorf("after the holder has let go: %v", r.err)
	} else {
		Unlock(r.lock, log)
	}
	if l, waited, err := lock(ctx, patient); waited || err != nil {
		t.Errorf("a free lock: waited %t, %v", waited, err)
	} else {
		Unlock(l, log)
	}
}
