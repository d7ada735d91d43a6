package apply

import (
	"testing"
	"time"
)

func TestTheLoopRestsLongerWhileNewsDoNotEnd(t *testing.T) {
	const turn = 10 * time.Millisecond
	now := time.Unix(0, 0)
	var r rest
	take := func(took, stored time.Duration, queued bool) time.Duration {
		now = now.Add(took + stored)
		pause := r.after(now, took, stored, queued)
		now = now.Add(pause)
		return pause
	}
	alone := func() {
		t.Helper()
		for n := range int(restFree / turn) {
			if pause := take(turn, 0, false); pause != turn {
				t.Fatalf("the rest after %d turns in a row is %v", n+1, pause)
			}
		}
	}
	share := func(took, stored time.Duration, queued bool) time.Duration {
		began := now
		for range 1000 {
			take(took, stored, queued)
		}
		return now.Sub(began) / 1000 / turn
	}
	alone()
	if is := share(turn, 0, false); is < restShare-1 || is > restShare {
		t.Errorf("during constant news, turns took one part in %d of the time", is)
	}
	if is := share(0, restStored*turn, false); is < restShare-1 || is > restShare+restStored {
		t.Errorf("during constant news, a third of storing took one part in %d of the time", is)
	}
	now = now.Add(restShare * (restFree + restCap))
	alone()
	now = now.Add(restShare * (restFree + restCap))
	if is := share(turn, 0, true); is < restQueued || is > restQueued+1 {
		t.Errorf("while changes were queued, turns took one part in %d of the time", is)
	}
	now = now.Add(restShare * (restFree + restCap))
	if pause := take(restFree/2, 0, true); pause != restWhileQueued {
		t.Errorf("while changes were queued, the rest after a long turn is %v", pause)
	}
	for _, queued := range []bool{false, true} {
		for range 10 {
			if pause := take(restCap/2, 0, queued); pause > restCap {
				t.Errorf("a rest is %v", pause)
			}
		}
	}
	now = now.Add(restShare*restFree + restCap)
	if pause := take(turn, restFree, false); pause != turn {
		t.Errorf("the rest after a single turn that follows longer ones is %v", pause)
	}
}
