package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

func requestsIn(t *testing.T) *Requests {
	root := filepath.Join(t.TempDir(), "run")
	return NewRequests(root, filepath.Join(root, "requests"))
}

func ask(t *testing.T, q *Requests, at time.Time) job.Request {
	t.Helper()
	r, err := q.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, By: "somebody else", At: at})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pending(t *testing.T, q *Requests) (ids []string) {
	t.Helper()
	all, err := q.Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}

func reply(t *testing.T, q *Requests, r job.Reply) {
	t.Helper()
	if err := q.Reply(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsAreInOrderAndRepliedToOnce(t *testing.T) {
	q := requestsIn(t)
	if got := pending(t, q); len(got) > 0 {
		t.Errorf("before any: %v", got)
	}
	now := time.Now()
	first, second := ask(t, q, now), ask(t, q, now.Add(-time.Hour)) // the clock was set back
	if first.ID >= second.ID || first.By == "somebody else" || !strings.Contains(first.By, "@") {
		t.Errorf("they are %+v and %+v", first, second)
	}
	another := NewRequests(q.root, q.dir) // of another process
	if got := pending(t, another); !slices.Equal(got, []string{first.ID, second.ID}) {
		t.Errorf("pending are %v", got)
	}
	reply(t, another, job.Reply{ID: first.ID, State: job.Accepted})
	if got := pending(t, another); len(got) != 2 {
		t.Errorf("pending are %v, though none has a final reply", got)
	}
	reply(t, another, job.Reply{ID: first.ID, State: job.Done})
	reply(t, another, job.Reply{ID: first.ID, State: job.Undone}) // of a master that was suspended meanwhile
	reply(t, another, job.Reply{ID: first.ID, State: job.Accepted})
	if got := pending(t, another); !slices.Equal(got, []string{second.ID}) {
		t.Errorf("pending are %v", got)
	}
	all, err := q.All(t.Context())
	if err != nil || len(all) != 2 || all[0].Reply.State != job.Done || all[1].Reply.State != "" {
		t.Errorf("all are %+v, %v", all, err)
	}
	info, err := os.Stat(q.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

func TestManyAskAtOnce(t *testing.T) {
	q := requestsIn(t)
	var asking sync.WaitGroup
	for range 200 {
		asking.Go(func() { ask(t, q, time.Unix(1, 0)) })
	}
	asking.Wait()
	if got := pending(t, q); len(got) != 200 || !slices.IsSorted(got) {
		t.Errorf("%d are pending", len(got))
	}
}

// A file that is no request is refused by whoever leads, and holds up no other.
func TestDamagedRequestsAskForNothing(t *testing.T) {
	q := requestsIn(t)
	good := ask(t, q, time.Now())
	filetest.Put(t, q.path("20200101T000000.000000Z-0", requestSuffix), "{")
	if err := os.Symlink("/dev/zero", q.path("20200101T000000.000000Z-1", requestSuffix)); err != nil {
		t.Fatal(err)
	}
	all, err := q.Pending(t.Context())
	if err != nil || len(all) != 3 || all[0].Verb != "" || all[1].Verb != "" || all[2].ID != good.ID {
		t.Errorf("pending are %+v, %v", all, err)
	}
	if asked, err := q.All(t.Context()); err != nil || len(asked) != 1 {
		t.Errorf("all are %+v, %v", asked, err)
	}
}

func TestOldRequestsAreRemoved(t *testing.T) {
	q := requestsIn(t)
	begun := time.Now()
	for i := range state.KeptRequests + 5 {
		id := nextID(begun.Add(time.Duration(i)*time.Second), nil)
		filetest.Put(t, q.path(id, requestSuffix), "{}")
		filetest.Put(t, q.path(id, finalSuffix), "{}")
		if i == state.KeptRequests {
			week := begun.Add(-state.KeptRequestDays * 25 * time.Hour)
			if err := os.Chtimes(q.path(id, finalSuffix), week, week); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := ask(t, q, begun)
	if got := pending(t, q); !slices.Equal(got, []string{open.ID}) {
		t.Errorf("pending are %v", got)
	}
	all, err := q.All(t.Context())
	if err != nil || len(all) != state.KeptRequests { // the newest but the old one, and the open one
		t.Errorf("%d are kept, %v", len(all), err)
	}
	left, err := os.ReadDir(q.dir)
	if want := 2*(state.KeptRequests-1) + 1; err != nil || len(left) != want {
		t.Errorf("%d files are left, want %d, %v", len(left), want, err)
	}
}
