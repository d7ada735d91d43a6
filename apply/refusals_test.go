package apply

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// What was refused is why the job waits, for whoever asks, until an attempt succeeds.
func TestARefusalIsToldUntilItPasses(t *testing.T) {
	b := newBench(t, func(*Options) {})
	quota := errors.New("exceeded quota: tight")
	b.cluster.launch = func(context.Context, job.Launch) error { return fmt.Errorf("create its pod: %w", quota) }
	b.turn(t) // prepares
	b.turn(t) // launches
	want := []plan.Wait{{Job: "a", Role: "worker", Reasons: []job.Reason{job.Because(LaunchRefused, "slots", "worker[0-1]", "message", "create its pod: exceeded quota: tight")}}}
	if got := b.Live().Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("it waits for %+v, want %+v", got, want)
	}
	b.now = b.now.Add(time.Minute)
	if got := b.turn(t).Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("a plan's waits are %+v, want %+v", got, want)
	}
	// It is in the records for who asks when this master is gone, and once: what is as it was is not stored again.
	serial := b.state.Serial
	b.turn(t)
	snapshot := b.Snapshot()
	if got := recordedRefusals(b.Records(), &snapshot); !reflect.DeepEqual(got, want) || b.state.Serial != serial {
		t.Errorf("the records say %+v, want %+v; serial %d after %d", got, want, b.state.Serial, serial)
	}
	// A run that does not try it knows no better.
	o := b.o
	o.Scope = plan.Scope{Excludes: []job.Selector{{Job: "a"}}}
	next, err := New(t.Context(), o)
	must(t, err)
	_, _, err = next.Turn(t.Context())
	must(t, err)
	if got := recordedRefusals(next.Records(), &snapshot); !reflect.DeepEqual(got, want) {
		t.Errorf("after a run that left it out the records say %+v, want %+v", got, want)
	}
	b.cluster.launch = func(_ context.Context, l job.Launch) error {
		if l.Slot.Index == 0 {
			return nil
		}
		return quota
	}
	b.now = b.now.Add(time.Minute)
	b.turn(t)
	want[0].Reasons = []job.Reason{job.Because(LaunchRefused, "slots", "worker[1]", "message", "exceeded quota: tight")}
	if got := b.Live().Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("with one of them launched it waits for %+v, want %+v", got, want)
	}
	b.cluster.launch = func(context.Context, job.Launch) error { return nil }
	b.now = b.now.Add(time.Minute)
	b.turn(t)
	if got := b.Live().Waits; len(got) > 0 {
		t.Errorf("it succeeded and waits for %+v", got)
	}
	b.turn(t)
	for _, s := range b.Records()["a"].Slots {
		if s.Refused != "" {
			t.Errorf("%s is there, and recorded as refused: %s", s.Address.Short(), s.Refused)
		}
	}
}

// What comes after a failed change of a slot is another attempt: it does not wait as long, nor for the same reason.
func TestWhatFollowsAFailedChangeBeginsAnew(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.launch = func(context.Context, job.Launch) error { return errors.New("no such image") }
	for range 9 {
		b.turn(t)
		b.now = b.now.Add(2 * pauseMost)
	}
	b.turn(t)
	corrected := jobtest.Job("a", jobtest.Role("worker", 2))
	corrected.Roles[0].Command = []string{"other"}
	b.Declare([]job.Job{corrected})
	held := errors.New("the API server is down")
	b.cluster.launch = func(_ context.Context, l job.Launch) error {
		if l.Incarnation != 2 {
			t.Errorf("launched is incarnation %d", l.Incarnation)
		}
		return held
	}
	want := []plan.Wait{{Job: "a", Role: "worker", Reasons: []job.Reason{job.Because(LaunchRefused, "slots", "worker[0-1]", "message", "the API server is down")}}}
	b.turn(t)
	if got := b.Live().Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("it waits for %+v, want %+v", got, want)
	}
	if b.flights.stuck() {
		t.Error("the first failure of what is other is taken for hopeless")
	}
}

// A port, or what a quota has left, differs with each attempt: it is stored and told once all the same.
func TestAReasonThatDiffersInItsNumbersIsOne(t *testing.T) {
	journal := new(journalled)
	b := newBench(t, func(o *Options) {
		o.Journal, o.Jobs = journal, []job.Job{jobtest.Job("a", jobtest.Role("worker", 1))}
	})
	port := 40000
	reset := func() error { port++; return fmt.Errorf("read tcp 10.0.0.1:%d: connection reset by peer", port) }
	b.cluster.prepare = func(job.Group) error { return reset() }
	b.turns(t)
	const reason = "read tcp 10.0.0.1:40001: connection reset by peer"
	journal.expect(t, "not prepared", `refused job.a: preparation_refused(job=a message="`+reason+`")`)
	if want := []string{"Job a cannot be prepared: " + reason}; !slices.Equal(b.warned, want) {
		t.Errorf("warned %q, want %q", b.warned, want)
	}
	b.cluster.prepare = func(job.Group) error { return nil }
	b.cluster.launch = func(context.Context, job.Launch) error { return reset() }
	port = 40000
	b.now = b.now.Add(pauseMost * 2)
	b.turn(t)
	b.turn(t)
	serial, tried := b.state.Serial, port
	b.turns(t)
	journal.expect(t, "not launched", `refused job.a.worker[0]: launch_refused(message="`+reason+`")`)
	if port == tried || b.state.Serial != serial || b.Records()["a"].Slots[0].Refused != reason {
		t.Errorf("after %d more attempts %d more states were stored, refused is %q", port-tried, b.state.Serial-serial, b.Records()["a"].Slots[0].Refused)
	}
	b.cluster.launch = func(context.Context, job.Launch) error { return errors.New("read tcp: i/o timeout") }
	b.turns(t)
	journal.expect(t, "another reason", `refused job.a.worker[0]: launch_refused(message="read tcp: i/o timeout")`)
}

func TestAJobThatCannotBePreparedSaysWhy(t *testing.T) {
	b := newBench(t, func(*Options) {})
	b.cluster.prepare = func(job.Group) error { return errors.New("make its Secret: forbidden") }
	b.turn(t)
	want := []plan.Wait{{Job: "a", Reasons: []job.Reason{job.Because(PreparationRefused, "job", "a", "message", "make its Secret: forbidden")}}}
	if got := b.Live().Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("it waits for %+v, want %+v", got, want)
	}
	b.cluster.prepare = func(job.Group) error { return nil }
	b.now = b.now.Add(time.Minute)
	b.turn(t)
	if got := b.Live().Waits; len(got) > 0 {
		t.Errorf("it is prepared and waits for %+v", got)
	}
}

// remaining is a cluster in which something of a job stays for as long as the test says so.
type remaining struct {
	*cluster
	forget func() error
}

func (r *remaining) Forget(ctx context.Context, uid, name string) error {
	if err := r.forget(); err != nil {
		return err
	}
	return r.Cluster.Forget(ctx, uid, name)
}

// A record that is dropped while something of its job is left would leave that behind for ever: nobody would ask for it
// any more.
func TestARecordIsDroppedOnlyOnceItsJobWasForgotten(t *testing.T) {
	left := &remaining{forget: func() error { return errors.New("its anchor cannot be deleted: forbidden") }}
	b := newBench(t, func(o *Options) {
		left.cluster = o.Providers["local"].(*cluster)
		o.Providers = map[string]providers.Provider{"local": left}
	})
	b.turn(t)
	b.turn(t)
	if n := b.cluster.running(); n != 2 {
		t.Fatalf("%d agents", n)
	}
	b.Declare(nil)
	for range 20 { // stops, and tries to forget, many times
		b.now = b.now.Add(time.Minute)
		b.cluster.Cluster.Advance(b.now, func() {})
		b.turn(t)
		if b.Records()["a"] == nil {
			t.Fatal("the record is dropped, and the job is not forgotten")
		}
	}
	want := []plan.Wait{{Job: "a", Reasons: []job.Reason{job.Because(RemovalRefused, "job", "a", "message", "its anchor cannot be deleted: forbidden")}}}
	if got := b.Live().Waits; !reflect.DeepEqual(got, want) {
		t.Errorf("it waits for %+v, want %+v", got, want)
	}
	left.forget = func() error { return nil }
	for range 3 {
		b.now = b.now.Add(time.Minute)
		b.turn(t)
	}
	if rec := b.Records()["a"]; rec != nil {
		t.Errorf("it was forgotten, and is still recorded: %+v", rec)
	}
}
