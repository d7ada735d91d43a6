package events

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// journal is one of these events, of which write appends more.
func journal(t *testing.T, all ...job.Notice) (r state.Reader, write func(...job.Notice)) {
	t.Helper()
	dir := t.TempDir()
	j, err := state.OpenJournal(dir, state.JournalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	write = func(more ...job.Notice) {
		t.Helper()
		if err := apply.AppendNotices(j, more); err != nil {
			t.Error(err)
		}
	}
	write(all...)
	return state.Reader{Dir: dir}, write
}

func event(name string, ago time.Duration, about string) job.Notice {
	return job.Notice{Time: noon.Add(-ago), Type: "refused", Address: about, Message: name}
}

func selectors(t *testing.T, addresses ...string) (out []job.Selector) {
	t.Helper()
	for _, a := range addresses {
		sel, err := job.ParseSelector(a)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sel)
	}
	return out
}

// The last events are counted among those that are selected; what concerns a whole job concerns its slots.
func TestSelection(t *testing.T) {
	r, _ := journal(t, event("1", 3*time.Hour, "job.a"), event("2", 2*time.Hour, "job.a.worker[0-1]"), event("3", time.Hour, "job.a.ps[0]"), event("4", time.Minute, "job.b"), event("5", 0, "files"))
	for name, c := range map[string]struct {
		s    Selection
		want string
	}{
		"all":                 {Selection{Tail: -1}, "12345"},
		"a job":               {Selection{Tail: -1, On: selectors(t, "job.a")}, "123"},
		"a slot":              {Selection{Tail: -1, On: selectors(t, "job.a.worker[1]")}, "12"},
		"two":                 {Selection{Tail: -1, On: selectors(t, "job.a.ps", "job.b")}, "134"},
		"none":                {Selection{Tail: -1, On: selectors(t, "job.c")}, ""},
		"the newest":          {Selection{Tail: -1, Since: noon.Add(-90 * time.Minute)}, "345"},
		"the last":            {Selection{Tail: 2}, "45"},
		"the last of a job":   {Selection{Tail: 2, On: selectors(t, "job.a")}, "23"},
		"no earlier ones":     {Selection{Tail: 0}, ""},
		"the newest of a job": {Selection{Tail: 9, Since: noon.Add(-90 * time.Minute), On: selectors(t, "job.a")}, "3"},
		"more than there are": {Selection{Tail: 9}, "12345"},
	} {
		got := ""
		err := c.s.Read(t.Context(), r, func(n job.Notice) error { got += n.Message; return nil })
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// After the last of those that were there, new ones follow, and none is left out or shown twice.
func TestFollow(t *testing.T) {
	r, write := journal(t, event("1", 0, "job.a"), event("2", 0, "job.a"))
	ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
	defer cancel()
	var got []string
	s := Selection{Tail: 1, Follow: true}
	err := s.Read(ctx, r, func(n job.Notice) error {
		switch got = append(got, n.Message); n.Message {
		case "2":
			write(event("3", 0, "job.a"))
		case "3":
			cancel()
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("it shows %q, %v", got, err)
	}
}

// Of a request only what happens to its jobs, and after it was asked; the end loses nothing that was written before.
func TestDuring(t *testing.T) {
	asked := &job.Request{At: noon, On: selectors(t, "job.a")}
	r, write := journal(t, event("before", time.Second, "job.a"), event("another", 0, "job.b"))
	var got []string
	end := During(r, asked, func(n job.Notice) { got = append(got, n.Message) })
	write(event("1", 0, "job.a.worker[0]"), event("2", 0, "job.b"), event("3", -time.Second, "job.a"))
	end()
	if !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("it shows %q", got)
	}
}
