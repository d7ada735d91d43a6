package statetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/state"
)

// verbs are the actions of a holder in a random walk.
var verbs = []string{"lock", "lock and wait", "unlock", "write", "write stale", "write foreign", "silence", "resume", "rest"}

type step struct {
	holder int
	verb   string
}

// walk checks a store against a model that knows only a serial, an epoch and the holder of the lock.
func walk(t *testing.T, open func(*testing.T) Opener) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 1).Draw(t, "holder"), rapid.SampledFrom(verbs).Draw(t, "verb")}
	}), 1, 40)
	rapid.Check(t, func(rt *rapid.T) {
		// Everything is drawn in advance: rapid's own control flow must not cross the bubble's goroutine.
		drawn := steps.Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = newModel(open(t)).walk(t.Context(), drawn) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

type model struct {
	opener  Opener
	handles [2]state.Store
	locks   [2]state.Lock // each holder's newest, held or not
	silent  [2]bool       // of that lock
	taken   []state.Lock  // all of both

	holder int // -1 if there is none
	epoch  uint64
	now    state.State
}

func newModel(o Opener) *model {
	return &model{opener: o, handles: [2]state.Store{o.Open(), o.Open()}, holder: -1}
}

func (m *model) walk(ctx context.Context, steps []step) error {
	defer func() {
		for _, l := range m.taken {
			l.Unlock(ctx)
		}
	}()
	for i, s := range steps {
		if err := m.step(ctx, s); err != nil {
			return fmt.Errorf("step %d, %d %s: %w", i, s.holder, s.verb, err)
		}
		for h, store := range m.handles {
			got, err := store.Read(ctx)
			if err != nil {
				return fmt.Errorf("step %d, %d %s: read by %d: %w", i, s.holder, s.verb, h, err)
			}
			if d := diff(m.now, got); d != "" {
				return fmt.Errorf("step %d, %d %s: read by %d (-want +got):\n%s", i, s.holder, s.verb, h, d)
			}
		}
		if m.holder >= 0 && !m.silent[m.holder] && isLost(m.locks[m.holder]) {
			return fmt.Errorf("step %d, %d %s: the holder was told that it lost its lock", i, s.holder, s.verb)
		}
	}
	return nil
}

func (m *model) step(ctx context.Context, s step) error {
	l := m.locks[s.holder]
	if l == nil && s.verb != "lock" && s.verb != "lock and wait" {
		return nil
	}
	switch s.verb {
	case "lock":
		return m.lock(ctx, s.holder, 0)
	case "lock and wait":
		return m.lock(ctx, s.holder, 3*m.opener.Lease())
	case "unlock":
		if m.holder == s.holder {
			m.holder = -1
		}
		m.silent[s.holder] = false
		m.locks[s.holder] = nil
		return l.Unlock(ctx)
	case "write":
		next := m.now.Next(nil)
		err := m.handles[s.holder].Write(ctx, next, l)
		if m.holder != s.holder {
			return want(err, errors.Is(err, state.ErrFenced))
		}
		if err == nil {
			next.Epoch = m.epoch
			m.now = next
		}
		return err
	case "write stale":
		next := m.now.Next(nil)
		next.Serial++
		err := m.handles[s.holder].Write(ctx, next, l)
		var refused *state.SerialError
		return want(err, errors.Is(err, state.ErrFenced) && m.holder != s.holder || errors.As(err, &refused) && m.holder == s.holder)
	case "write foreign":
		next := m.now.Next(nil)
		next.Lineage = ""
		err := m.handles[s.holder].Write(ctx, next, l)
		var refused *state.LineageError
		return want(err, errors.Is(err, state.ErrFenced) && m.holder != s.holder || errors.As(err, &refused) && m.holder == s.holder)
	case "silence":
		m.opener.Silence(l)
		m.silent[s.holder] = true
	case "resume":
		if m.silent[s.holder] {
			m.opener.Resume(l)
			m.silent[s.holder] = false
		}
	case "rest":
		time.Sleep(m.opener.Lease())
	}
	return nil
}

func (m *model) lock(ctx context.Context, holder int, timeout time.Duration) error {
	l, err := m.handles[holder].Lock(ctx, self, timeout)
	if err != nil {
		var locked *state.LockedError
		switch {
		case !errors.As(err, &locked) || m.holder < 0:
			return err
		case locked.Holder.ID != m.locks[m.holder].Info().ID:
			return fmt.Errorf("told the wrong holder: %w", err)
		case m.silent[m.holder] && timeout > 0:
			return fmt.Errorf("a silent holder blocked: %w", err)
		}
		return nil
	}
	m.taken = append(m.taken, l)
	if m.holder >= 0 && !m.silent[m.holder] {
		return errors.New("took a live holder's lock")
	}
	if l.Info().Epoch <= m.epoch {
		return fmt.Errorf("epoch %d after %d", l.Info().Epoch, m.epoch)
	}
	m.holder, m.epoch, m.locks[holder], m.silent[holder] = holder, l.Info().Epoch, l, false
	return nil
}

// want checks an outcome of the walk.
func want(err error, right bool) error {
	if right {
		return nil
	}
	return fmt.Errorf("refused in the wrong way, or not at all: %v", err)
}
