package memory

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type place struct{ store *Store }

func (p place) Open() state.Store    { return p.store }
func (p place) Lease() time.Duration { return 100 * time.Millisecond }

func (p place) Silence(l state.Lock) {
	if p.store.holder == l {
		p.store.Silence()
	}
}

func (p place) Resume(l state.Lock) {
	if p.store.holder == l {
		p.store.Resume()
	}
}

func TestConformance(t *testing.T) {
	open := func(*testing.T) statetest.Opener { return place{New()} }
	t.Run("fake clock", func(t *testing.T) { statetest.RunInBubble(t, open) })
	t.Run("real clock", func(t *testing.T) { statetest.Run(t, open) })
}
