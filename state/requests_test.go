package state

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestLaterRequestsHaveGreaterIDs(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 890123456, time.UTC)
	last := ""
	for _, at := range []time.Time{now, now, now.Add(-time.Hour), now.Add(time.Hour), now} {
		id := NextRequestID(at, last)
		if id <= last {
			t.Errorf("%s is after %s", id, last)
		}
		last = id
	}
	for _, odd := range []string{"", "x", "99991231T235959.999999Z-000000"} { // nothing is greater than the last
		if id, want := NextRequestID(now, odd), "20260304T050607.890123Z-"; id[:len(want)] != want {
			t.Errorf("after %q comes %s", odd, id)
		}
	}
}

func TestFinishedRequestsAreKeptForAWeek(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	week := KeptRequestDays * 24 * time.Hour
	at := map[string]time.Time{"old": now.Add(-week), "new": now.Add(-week + time.Second), "now": now}
	finished := []string{"now", "unknown", "old", "new"}
	repliedAt := func(id string) time.Time { return at[id] }
	if got := Outdated(finished, repliedAt, now); !slices.Equal(got, []string{"old"}) {
		t.Errorf("outdated are %v", got)
	}
	for i := range KeptRequests - 2 {
		id := fmt.Sprint(i)
		at[id] = now
		finished = append(finished, id)
	}
	if got := Outdated(finished, repliedAt, now); !slices.Equal(got, []string{"now", "old"}) {
		t.Errorf("of more than are kept, outdated are %v", got)
	}
}
