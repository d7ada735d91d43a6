package statetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// RequestsOpener is one place that keeps requests, empty at first.
type RequestsOpener interface {
	// Asker returns a further handle of the place, as an operator's process has, and Leader one as a leader's process has.
	Asker() state.Requests
	Leader() state.Requests
}

// RunRequests runs the suite of tests that every state.Requests has to pass.
func RunRequests(t *testing.T, open func(*testing.T) RequestsOpener) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, RequestsOpener)
	}{
		{"there are none at first", noRequests},
		{"what is asked is read", requestRoundTrip},
		{"requests are in order", requestsInOrder},
		{"many ask at once", manyAsk},
		{"a final reply stays", finalReplyStays},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, open(t))
		})
	}
}

func suspension(at time.Time) job.Request {
	return job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: at, Expires: at.Add(time.Minute)}
}

func ask(t *testing.T, q state.Requests, r job.Request) job.Request {
	t.Helper()
	asked, err := q.Ask(t.Context(), r)
	if err != nil {
		t.Fatalf("ask: %v", err)
	}
	return asked
}

// pend waits until the pending requests are these.
func pend(t *testing.T, q state.Requests, want ...string) (pending []job.Request) {
	t.Helper()
	var got []string
	for deadline := time.Now().Add(hang.Bound); ; time.Sleep(20 * time.Millisecond) {
		pending, err := q.Pending(t.Context())
		if err != nil {
			t.Fatalf("pending: %v", err)
		}
		got = nil
		for _, r := range pending {
			got = append(got, r.ID)
		}
		if slices.Equal(got, want) {
			return pending
		}
		if time.Now().After(deadline) {
			t.Fatalf("pending are %v, want %v", got, want)
		}
	}
}

func reply(t *testing.T, q state.Requests, id string, s job.ReplyState, why job.Reason) {
	t.Helper()
	if err := q.Reply(t.Context(), job.Reply{ID: id, State: s, Reason: why}); err != nil {
		t.Fatalf("reply: %v", err)
	}
}

func replyTo(t *testing.T, q state.Requests, id string) job.Reply {
	t.Helper()
	asked, err := q.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return asked.Reply
}

func noRequests(t *testing.T, o RequestsOpener) {
	pend(t, o.Leader())
	all, err := o.Asker().All(t.Context())
	if len(all) > 0 || err != nil {
		t.Errorf("all are %v, %v", all, err)
	}
	if asked, err := o.Asker().Get(t.Context(), "20260102T150405.000000Z-0a1b2c"); !errors.Is(err, state.ErrNoRequest) {
		t.Errorf("one is %v, %v", asked, err)
	}
}

// Everything is read as it was asked, but who asked and when: these the place may know itself.
func requestRoundTrip(t *testing.T, o RequestsOpener) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	on, err := job.ParseSelector("job.sweep-large.worker[0-3,7]")
	if err != nil {
		t.Fatal(err)
	}
	want := job.Request{
		Verb: job.AskRestart, On: []job.Selector{{Job: "a"}, on}, Nodes: []string{"n1", "gpu-2.example.com"}, By: "another user", Why: "the <switch> & \"rack\" 3\nü", At: at,
		Expires: at.Add(10 * time.Minute), Until: at.Add(2*time.Hour + 30*time.Second), Files: "sha256:0123", Commit: "4be01c2a", Value: "SIGUSR2", Mode: "force",
	}
	for field, value := range reflect.ValueOf(want).Fields() {
		if value.IsZero() && field.Name != "ID" {
			t.Errorf("%s is not asked", field.Name)
		}
	}
	asked := ask(t, o.Asker(), want)
	pending := pend(t, o.Leader(), asked.ID)
	one, err := o.Asker().Get(t.Context(), asked.ID)
	if err != nil {
		t.Fatal(err)
	}
	all, err := o.Asker().All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("all are %v, %v", all, err)
	}
	for _, got := range []job.Request{asked, pending[0], one.Request, all[0].Request} {
		if strings.Contains(got.By, want.By) || got.By == "" {
			t.Errorf("it is by %q", got.By)
		}
		if got.Expires.Sub(got.At) != want.Expires.Sub(at) || got.Until.Sub(got.At) != want.Until.Sub(at) {
			t.Errorf("it is from %v, expires at %v and lasts until %v", got.At, got.Expires, got.Until)
		}
		got.ID, got.By, got.At, got.Expires, got.Until = want.ID, want.By, want.At, want.Expires, want.Until
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-asked +read):\n%s", diff)
		}
	}
}

func requestsInOrder(t *testing.T, o RequestsOpener) {
	now := time.Now()
	first, second := ask(t, o.Asker(), suspension(now)), ask(t, o.Asker(), suspension(now.Add(-time.Hour))) // the clock was set back
	if first.ID >= second.ID {
		t.Errorf("%s was asked before %s", first.ID, second.ID)
	}
	for _, q := range []state.Requests{o.Leader(), o.Leader()} {
		pend(t, q, first.ID, second.ID)
	}
}

func manyAsk(t *testing.T, o RequestsOpener) {
	const many = 40
	q := o.Asker()
	ids := make([]string, many)
	var asking sync.WaitGroup
	for i := range many {
		asking.Go(func() {
			r, err := q.Ask(t.Context(), suspension(time.Unix(1, 0)))
			if err != nil {
				t.Errorf("ask: %v", err)
			}
			ids[i] = r.ID
		})
	}
	asking.Wait()
	slices.Sort(ids)
	if once := slices.Compact(slices.Clone(ids)); len(once) != many {
		t.Fatalf("%d requests have %d IDs", many, len(once))
	}
	pend(t, o.Leader(), ids...)
}

// A request has one outcome, whoever led meanwhile.
func finalReplyStays(t *testing.T, o RequestsOpener) {
	leader, hung := o.Leader(), o.Leader()
	first, second := ask(t, o.Asker(), suspension(time.Now())), ask(t, o.Asker(), suspension(time.Now()))
	pend(t, leader, first.ID, second.ID)
	pend(t, hung, first.ID, second.ID)
	reply(t, leader, first.ID, job.Accepted, job.Reason{})
	pend(t, leader, first.ID, second.ID)
	if r := replyTo(t, o.Asker(), first.ID); r.State != job.Accepted || r.ID != first.ID {
		t.Errorf("the reply is %+v", r)
	}
	waits := job.Because("node_drained", "node", "n1")
	reply(t, leader, first.ID, job.Accepted, waits)
	if r := replyTo(t, o.Asker(), first.ID); r.State != job.Accepted || !r.Reason.Equal(waits) {
		t.Errorf("the newer reply is %+v", r)
	}
	why := job.Because("request_expired", "name", "<a & b>").With(job.Because("part"))
	final := job.Reply{ID: first.ID, State: job.Unknown, Reason: why, Results: []job.Reason{job.Because("checkpoint_written", "path", "/a b/<c>")}}
	if err := leader.Reply(t.Context(), final); err != nil {
		t.Fatalf("reply: %v", err)
	}
	reply(t, hung, first.ID, job.Done, job.Reason{})
	reply(t, hung, first.ID, job.Accepted, job.Reason{})
	if diff := cmp.Diff(final, replyTo(t, o.Asker(), first.ID)); diff != "" {
		t.Errorf("the reply (-final +read):\n%s", diff)
	}
	for _, q := range []state.Requests{leader, hung, o.Leader()} {
		pend(t, q, second.ID)
	}
	all, err := o.Asker().All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := ""
	for _, a := range all {
		states += fmt.Sprintf("%s %q, ", a.ID, a.Reply.State)
	}
	if want := fmt.Sprintf("%s %q, %s %q, ", first.ID, job.Unknown, second.ID, ""); states != want {
		t.Errorf("all are %s, want %s", states, want)
	}
}
