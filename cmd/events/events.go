// Package events reads what happened to jobs from the journal.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// Selection says which events are shown.
type Selection struct {
	On     []job.Selector // those that concern these; none for all
	Since  time.Time      // those from then on; zero for all
	Tail   int            // begin with the last so many; -1 for all
	Follow bool           // go on with new ones
}

// selects reports whether a notice is to be shown.
func (a *Selection) selects(n *job.Notice) bool {
	if n.Time.Before(a.Since) {
		return false
	}
	about, err := job.ParseSelector(n.Address)
	return len(a.On) == 0 || err == nil && slices.ContainsFunc(a.On, about.Overlaps)
}

// Read shows the selected notices of a journal.
func (a *Selection) Read(ctx context.Context, journal state.Reader, show func(job.Notice) error) error {
	from := uint64(0)
	selected := func(use func(job.Notice) error) func(state.Entry) error {
		return each(func(n job.Notice) error {
			from = n.Seq + 1
			if !a.selects(&n) {
				return nil
			}
			return use(n)
		})
	}
	if a.Tail >= 0 {
		var last []job.Notice
		err := journal.Read(0, selected(func(n job.Notice) error {
			if last = append(last, n); len(last) > a.Tail {
				last = last[1:]
			}
			return nil
		}))
		for i := 0; i < len(last) && err == nil; i++ {
			err = show(last[i])
		}
		if err != nil || !a.Follow {
			return err
		}
	}
	if a.Follow {
		return journal.Follow(ctx, from, selected(show))
	}
	return journal.Read(from, selected(show))
}

// During shows what happens to the jobs of a request from when it was asked, if the master's journal is there. end stops that, once it
// has shown what there is.
func During(journal state.Reader, asked *job.Request, notice func(job.Notice)) (end func()) {
	next := uint64(0)
	show := each(func(n job.Notice) error {
		next = n.Seq + 1
		about, err := job.ParseSelector(n.Address)
		if err == nil && !n.Time.Before(asked.At) && slices.ContainsFunc(asked.On, about.Overlaps) {
			notice(n)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { journal.Follow(ctx, 0, show) }) // an error leaves lines out: the outcome is known without them
	return func() {
		cancel()
		following.Wait()
		journal.Read(next, show)
	}
}

// each calls show with the notices among a journal's entries.
func each(show func(job.Notice) error) func(state.Entry) error {
	return func(e state.Entry) error {
		if e.Kind != state.NoticeEntry {
			return nil
		}
		var n job.Notice
		if err := json.Unmarshal(e.Data, &n); err != nil {
			return fmt.Errorf("entry %d is not a notice: %w", e.Seq, err)
		}
		n.Seq = e.Seq
		return show(n)
	}
}
