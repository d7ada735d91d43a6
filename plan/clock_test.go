package plan

import (
	"testing"
	"time"
)

// Stored times may come from another clock. A clock that was set back past them must not make a slot, a verdict or a notice
// wait for the difference.
func TestAClockSetBackEndsAWait(t *testing.T) {
	stored := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		now     time.Duration // since stored
		pending bool
		wake    bool
	}{
		{0, true, true},
		{9 * time.Second, true, true},
		{10 * time.Second, false, false},
		{time.Hour, false, false},
		{-time.Second, false, false},
		{-24 * time.Hour, false, false},
	} {
		p := &pass{in: Input{Now: stored.Add(test.now)}}
		if got := p.pending(stored, 10*time.Second); got != test.pending {
			t.Errorf("%v after: pending is %v", test.now, got)
		}
		if woken := !p.out.Wake.IsZero(); woken != test.wake || woken && !p.out.Wake.Equal(stored.Add(10*time.Second)) {
			t.Errorf("%v after: wakes at %v", test.now, p.out.Wake)
		}
	}
}
