package history

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// What one history knows of the last minutes another one knows as well, whose clock is another.
func TestRecentIsRestored(t *testing.T) {
	const rows = 60
	old, fresh := New(1), New(1)
	for at := time.Duration(0); at < 10*time.Minute; at += Fine {
		if at != 9*time.Minute { // a gap
			old.Add(start.Add(at), rank(0), busy(at))
		}
	}
	now := start.Add(10*time.Minute + 2*time.Second)
	r := old.Recent(now, rank(0), rows)
	text, err := json.Marshal(r)
	if err != nil || len(text) > rows*RowBytes || len(r.Step) != rows {
		t.Fatalf("%d rows take %d bytes: %v", len(r.Step), len(text), err)
	}
	var received Recent
	if err := json.Unmarshal(text, &received); err != nil {
		t.Fatal(err)
	}
	const skew = 3 * time.Hour
	later := now.Add(skew)
	fresh.Restore(later, rank(0), &received)
	want, got := old.Points(rank(0), now.Add(-rows*Fine-2*time.Second)), fresh.Points(rank(0), later.Add(-rows*Fine-2*time.Second))
	if len(want) != rows-1 || len(got) != len(want) {
		t.Fatalf("%d points of %d", len(got), len(want))
	}
	for i, p := range got {
		w := want[i]
		if !p.At.Equal(w.At.Add(skew)) || p.Step != w.Step || *p.Loss != *w.Loss || p.State != w.State || !near(p.CPU, *w.CPU, .004) || !near(p.RSS, *w.RSS, .004) || *p.Written != 0 {
			t.Errorf("%+v was %+v", p, w)
		}
	}
	if fresh.Recent(later, rank(1), rows) != nil || fresh.Recent(later, rank(0), 0) != nil {
		t.Error("rows of nothing")
	}
}

// What a service has been told since is not replaced, and nonsense does no harm.
func TestOnlyWhatIsNewerIsRestored(t *testing.T) {
	h := New(1)
	for at := time.Duration(0); at < time.Minute; at += Fine {
		h.Add(start.Add(at), rank(0), busy(at))
	}
	now := start.Add(time.Minute)
	before := h.Points(rank(0), start)
	steps := make([]int64, 5000)
	for i := range steps {
		steps[i] = -7
	}
	for _, r := range []*Recent{nil, {}, {Age: -1, Step: steps}, {Age: math.NaN(), Step: steps}, {Age: 5, Step: steps}, {Age: 1e300, Step: steps},
		{Age: 20, Step: steps, State: []job.ThreadState{"nonsense"}, CPU: make([]*float64, 9000)}} {
		h.Restore(now, rank(0), r)
	}
	if after := h.Points(rank(0), start); len(after) != len(before) || after[3].Step != before[3].Step {
		t.Errorf("%d points became %d", len(before), len(after))
	}
	h.Restore(now.Add(time.Minute), rank(0), &Recent{Step: []int64{8, 9}})
	after := h.Points(rank(0), start)
	if n := len(after) - len(before); n != 2 || after[len(after)-1].Step != 9 {
		t.Errorf("%d points were added: %+v", n, after[len(after)-1])
	}
}
