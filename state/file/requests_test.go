package file

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/internal/regular"
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

// A disk that is full or read-only takes no request and no reply: who asks is told, nothing is half there, and what was asked before is
// answered once the disk takes files again.
func TestADiskThatTakesNothing(t *testing.T) {
	for _, why := range []error{syscall.ENOSPC, syscall.EROFS} {
		q := requestsIn(t)
		create, replace := q.create, q.replace
		before := ask(t, q, time.Now())
		refuse := func(path string, _ []byte, _ fs.FileMode) error {
			return &fs.PathError{Op: "open", Path: path, Err: why}
		}
		q.create, q.replace = refuse, refuse
		_, err := q.Ask(t.Context(), job.Request{Verb: job.AskCancel, On: []job.Selector{{Job: "a"}}, At: time.Now()})
		if !errors.Is(err, why) || !strings.HasPrefix(err.Error(), "store a request: ") {
			t.Errorf("%v: asking ends with %v", why, err)
		}
		for _, s := range []job.ReplyState{job.Accepted, job.Done} {
			err := q.Reply(t.Context(), job.Reply{ID: before.ID, State: s})
			if !errors.Is(err, why) || !strings.HasPrefix(err.Error(), "reply to request "+before.ID) {
				t.Errorf("%v: the reply %s ends with %v", why, s, err)
			}
		}
		if got := pending(t, q); !slices.Equal(got, []string{before.ID}) {
			t.Errorf("%v: pending are %v", why, got)
		}
		q.create, q.replace = create, replace
		if err := q.Reply(t.Context(), job.Reply{ID: before.ID, State: job.Done}); err != nil {
			t.Errorf("%v is over: the reply ends with %v", why, err)
		}
		after := ask(t, q, time.Now())
		if got := pending(t, q); !slices.Equal(got, []string{after.ID}) {
			t.Errorf("%v is over: pending are %v", why, got)
		}
	}
}

// A request that is in place was asked, also if its directory could not be synced: whoever leads may have taken it up.
func TestARequestThatIsInPlaceWasAsked(t *testing.T) {
	q := requestsIn(t)
	create := q.create
	q.create = func(path string, content []byte, mode fs.FileMode) error {
		return errors.Join(create(path, content, mode), &atomicfile.UnsyncedError{Err: syscall.EIO})
	}
	if r, got := ask(t, q, time.Now()), pending(t, q); !slices.Equal(got, []string{r.ID}) || r.By == "" {
		t.Errorf("%+v was asked, pending are %v", r, got)
	}
}

// Whoever asks may be killed after each of its steps. A request that is not in place yet is not there, one that is in place is carried
// out without the process that asked.
func TestWhoAsksIsKilledAtEachStep(t *testing.T) {
	request, err := json.Marshal(job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	draft := func(t *testing.T, path string, content []byte) *atomicfile.Draft {
		d, err := atomicfile.NewDraft(path, content, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return d // of a process that is killed, and discards nothing
	}
	for _, c := range []struct {
		name  string
		until func(t *testing.T, path string)
		asked bool
	}{
		{"the directory is made", func(*testing.T, string) {}, false},
		{"half of it is written", func(t *testing.T, path string) { draft(t, path, request[:len(request)/2]) }, false},
		{"all of it is written", func(t *testing.T, path string) { draft(t, path, request) }, false},
		{"it is in place", func(t *testing.T, path string) {
			if err := draft(t, path, request).PlaceNew(); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			killed := requestsIn(t)
			if err := regular.MakePrivate(killed.root, killed.dir); err != nil {
				t.Fatal(err)
			}
			id := state.NextRequestID(time.Now().Add(-time.Minute), "")
			c.until(t, killed.path(id, requestSuffix))

			leader := NewRequests(killed.root, killed.dir)
			all, err := leader.Pending(t.Context())
			if err != nil || (len(all) == 1) != c.asked || len(all) > 1 || c.asked && (all[0].ID != id || all[0].Verb != job.AskSuspend) {
				t.Fatalf("pending are %+v, %v", all, err)
			}
			if !c.asked {
				if _, err := leader.Get(t.Context(), id); !errors.Is(err, state.ErrNoRequest) {
					t.Errorf("it is read: %v", err)
				}
			} else if err := leader.Reply(t.Context(), job.Reply{ID: id, State: job.Done}); err != nil {
				t.Fatal(err)
			}
			again := ask(t, NewRequests(killed.root, killed.dir), time.Now())
			if got := pending(t, leader); !slices.Equal(got, []string{again.ID}) {
				t.Errorf("pending are %v, want %s", got, again.ID)
			}
		})
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
