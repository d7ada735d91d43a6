package main

import (
	"context"
	"fmt"
	"time"

	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// lock takes the state's lock, and says what it waits for.
func (s *session) lock(ctx context.Context, store state.Store, operation string, timeout time.Duration) (lock state.Lock, waited bool, err error) {
	return master.Lock(ctx, store, operation, timeout, func(by *state.LockedError) {
		fmt.Fprintf(s.streams.Err, "Acquiring state lock. %s Waiting for it, up to %s; an interrupt ends the wait.\n", view.Explain(by), job.Duration(timeout))
	})
}

func (s *session) unlock(lock state.Lock) { master.Unlock(lock, s.log) }
