package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

func requestsIn(t *testing.T) *Requests {
	root := filepath.Join(t.TempDir(), "run")
	return NewRequests(root, filepath.Join(root, "requests"))
}

func ask(t *testing.T, q *Requests, at time.Time) job.Request {
	t.Helper()
	r, err := q.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: at})
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

// requestsPlace is a directory of requests.
type requestsPlace struct{ first *Requests }

func (p requestsPlace) Asker() state.Requests  { return NewRequests(p.first.root, p.first.dir) }
func (p requestsPlace) Leader() state.Requests { return p.Asker() }

func TestRequestsConform(t *testing.T) {
	statetest.RunRequests(t, func(t *testing.T) statetest.RequestsOpener { return requestsPlace{requestsIn(t)} })
}

// A request is by the owner of its file, on this machine.
func TestRequestsArePrivate(t *testing.T) {
	q := requestsIn(t)
	if r := ask(t, q, time.Now()); !strings.Contains(r.By, "@") {
		t.Errorf("it is by %q", r.By)
	}
	info, err := os.Stat(q.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
}

// A file that is no request is refused by whoever leads, and holds up no other.
func TestDamagedRequestsAskForNothing(t *testing.T) {
	q := requestsIn(t)
	good := ask(t, q, time.Now())
	filetest.Put(t, q.path("20200101T000000.000000Z-0", requestSuffix), "{")
	filetest.Put(t, q.path("20200101T000000.000000Z-2", requestSuffix), `{"verb": "cancel", "at": "yesterday"}`)
	if err := os.Symlink("/dev/zero", q.path("20200101T000000.000000Z-1", requestSuffix)); err != nil {
		t.Fatal(err)
	}
	all, err := q.Pending(t.Context())
	if err != nil || len(all) != 4 || all[0].Verb != "" || all[1].Verb != "" || all[2].Verb != "" || all[3].ID != good.ID {
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
		id := state.NextRequestID(begun.Add(time.Duration(i)*time.Second), "")
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
