package apply

import (
	"fmt"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// A request in effect is known to every plan, however many came before it later: a plan forgets the effect of one that it is not given.
func TestRequestsInEffectAreNeverLeftOut(t *testing.T) {
	var pending []job.Request
	for i := range 2 * mostRequests {
		pending = append(pending, job.Request{ID: fmt.Sprintf("%03d", i), Verb: job.AskSuspend, On: []job.Selector{{Job: "other"}}})
	}
	last := pending[len(pending)-1].ID
	rec := &job.Record{Handled: []job.Handled{{Reply: job.Reply{ID: last, State: job.Accepted}}}}
	l := &Loop{setup: Setup{Intent: Intent{Watch: true}}}
	l.book.state = state.State{Jobs: job.Records{"a": rec}}
	q := requests{}
	q.take(l, pending)
	in := plan.Input{Records: l.book.state.Jobs}
	q.enter(l, &in)
	given := slices.Clone(pending[:mostRequests])
	for i, want := range append(given, pending[len(pending)-1]) {
		if i >= len(in.Requests) || in.Requests[i].ID != want.ID {
			t.Fatalf("a plan is given %d requests, without %s", len(in.Requests), want.ID)
		}
	}
	if len(in.Requests) != mostRequests+1 {
		t.Errorf("a plan is given %d requests", len(in.Requests))
	}
}

// Requests that are in effect for long keep no others from being read.
func TestRequestsInEffectLeaveRoomForOthers(t *testing.T) {
	rec := &job.Record{}
	var pending []job.Request
	for i := range mostRequests + 2 {
		r := job.Request{ID: fmt.Sprintf("%03d", i), Verb: job.AskSuspend, On: []job.Selector{{Job: "other"}}}
		pending = append(pending, r)
		if i <= mostRequests {
			rec.Handled = append(rec.Handled, job.Handled{Reply: job.Reply{ID: r.ID, State: job.Accepted}})
		}
	}
	l := &Loop{setup: Setup{Intent: Intent{Watch: true}}}
	l.book.state = state.State{Jobs: job.Records{"a": rec}}
	q := requests{}
	q.take(l, pending)
	in := plan.Input{Records: l.book.state.Jobs}
	if q.enter(l, &in); len(in.Requests) != len(pending) {
		t.Errorf("a plan is given %d requests of %d", len(in.Requests), len(pending))
	}
}
