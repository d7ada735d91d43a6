package ask

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
	"github.com/eltrain/eltrain/state/kubernetes"
	"github.com/eltrain/eltrain/state/memory"
)

// here is a route to the leader of a directory, with the state's store; held while somebody leads.
func here(t *testing.T) (to *Route, leads state.Lock) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "run")
	store := memory.New()
	lock, err := store.Lock(t.Context(), state.LockInfo{Operation: view.WatchOperation}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &Route{Led: true, alone: true, store: store, requests: file.NewRequests(root, filepath.Join(root, "requests")), poll: herePoll}, lock
}

func suspend(t *testing.T, to *Route) job.Request {
	t.Helper()
	now := time.Now()
	r, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: now, Expires: now.Add(Expiry)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAwait(t *testing.T) {
	var none job.Reply
	accepted := job.Reply{State: job.Accepted, Reason: job.Because(plan.CheckpointLate)}
	done := job.Reply{State: job.Done}
	for _, c := range []struct {
		name    string
		alone   bool
		replies []job.Reply // one every 4 s, after which the leader ends
		ends    job.ReplyState
		err     error
		told    []string
	}{
		{"done", true, []job.Reply{done}, job.Done, nil, nil},
		{"done after a while", true, []job.Reply{none, accepted, accepted, done}, job.Done, nil, []string{"No master has taken the request yet", "Waiting"}},
		{"the leader ends", true, []job.Reply{accepted}, job.Accepted, ErrNobodyLeads, []string{"Waiting"}},
		{"nobody else can lead", false, nil, "", ErrNoReply, []string{"No master has taken the request yet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to, leads := here(t)
				to.alone = c.alone
				r := suspend(t, to)
				var leader sync.WaitGroup
				defer leader.Wait()
				leader.Go(func() {
					for i, reply := range c.replies {
						if i > 0 {
							time.Sleep(4 * time.Second)
						}
						if reply.ID = r.ID; reply.State != "" {
							to.requests.Reply(t.Context(), reply)
						}
					}
					time.Sleep(4 * time.Second)
					leads.Unlock(t.Context())
				})
				var told []string
				asked, err := to.Await(t.Context(), r, func(all ...view.Diagnostic) {
					for _, d := range all {
						told = append(told, d.Summary)
					}
				})
				if asked.Reply.State != c.ends || !errors.Is(err, c.err) || !slices.Equal(told, c.told) {
					t.Errorf("it ends %q, %v, and tells %q", asked.Reply.State, err, told)
				}
				if to.Led == errors.Is(err, ErrNobodyLeads) {
					t.Errorf("led is %t after %v", to.Led, err)
				}
			})
		})
	}
}

func TestAnInterruptEndsTheWait(t *testing.T) {
	to, _ := here(t)
	r := suspend(t, to)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := to.Await(ctx, r, nil); !errors.Is(err, errInterrupted) {
		t.Errorf("it ends with %v", err)
	}
	if asked, err := to.requests.Get(t.Context(), r.ID); err != nil || asked.Reply.State.Final() {
		t.Errorf("the request is %+v, %v", asked, err)
	}
}

// Where nobody leads, nobody could act on a request about a job that was never applied.
func TestWithoutALeaderTheJobMustBeKnown(t *testing.T) {
	to, lock := here(t)
	stored := state.State{}.Next(job.Records{"b": {Spec: job.Job{Name: "b"}, UID: "b"}})
	if err := to.store.Write(t.Context(), stored, lock); err != nil {
		t.Fatal(err)
	}
	suspend(t, to) // the leader refuses it
	to.Led = false
	if _, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}}); err == nil || !strings.Contains(err.Error(), "There are: b.") {
		t.Errorf("an unknown job is asked about: %v", err)
	}
	if all, err := to.requests.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("the requests are %v, %v", all, err)
	}
}

// It is removed once the record is gone, or another job's of the same name.
func TestAwaitRemoval(t *testing.T) {
	to, lock := here(t)
	before := job.Records{"a": {Spec: job.Job{Name: "a"}, UID: "1"}}
	stored := state.State{}.Next(before)
	if err := to.store.Write(t.Context(), stored, lock); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- to.AwaitRemoval(t.Context(), []job.Selector{{Job: "a"}}, before) }()
	if err := to.store.Write(t.Context(), stored.Next(job.Records{"a": {Spec: job.Job{Name: "a"}, UID: "2"}}), lock); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hang.Bound):
		t.Fatal("another job of the same name is waited for")
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := to.AwaitRemoval(ctx, []job.Selector{{Job: "a"}}, job.Records{"a": {UID: "2"}}); err == nil {
		t.Error("what is recorded is removed")
	}
}

func TestPlanned(t *testing.T) {
	jobs := []job.Job{{Name: "a"}, {Name: "b"}}
	records := job.Records{"b": {Spec: job.Job{Name: "b"}}, "c": {Spec: job.Job{Name: "c"}}}
	slot := job.Address{Job: "b", Role: "worker", Index: 2}
	for _, c := range []struct {
		name  string
		facts view.PlanFacts
		want  string
	}{
		{"all", view.PlanFacts{Input: plan.Input{Jobs: jobs, Records: records}}, "apply job.a job.b"},
		{"a target", view.PlanFacts{Input: plan.Input{Jobs: jobs, Records: records, Scope: plan.Scope{Targets: []job.Selector{{Job: "b"}}}}}, "apply job.b"},
		{"without what an operator destroyed", view.PlanFacts{Input: plan.Input{Jobs: jobs, Records: records}, Plan: plan.Plan{Destroyed: map[string]job.Override{"b": {}}}}, "apply job.a"},
		{"a replacement", view.PlanFacts{Input: plan.Input{Jobs: jobs, Records: records, Scope: plan.Scope{Replace: []plan.Replacement{{Slot: slot}}}}}, "apply job.a job.b job.b.worker[2]"},
		{"a replacement out of scope", view.PlanFacts{Input: plan.Input{Jobs: jobs, Records: records, Scope: plan.Scope{Targets: []job.Selector{{Job: "a"}}, Replace: []plan.Replacement{{Slot: slot}}}}}, "apply job.a"},
		{"a destroy", view.PlanFacts{Input: plan.Input{Destroy: true, Records: records}, Plan: plan.Plan{Changes: []plan.Change{{Job: "c"}, {Job: "b"}, {Job: "c"}, {Job: "unrecorded"}}}}, "destroy job.b job.c"},
		{"a destroy of nothing", view.PlanFacts{Input: plan.Input{Destroy: true, Records: records}}, "destroy"},
	} {
		now := time.Unix(1000, 0)
		r := Planned(&c.facts, "abc", now)
		got := string(r.Verb)
		for _, sel := range r.On {
			got += " " + sel.String()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if r.At != now || r.Expires != now.Add(Expiry) || (r.Verb == job.AskApply) != (r.Files != "" && r.Commit == "abc") {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// A command that leads for its own request takes up no edit of the files, and touches no other job.
func TestAsApplied(t *testing.T) {
	store := memory.New()
	lock, err := store.Lock(t.Context(), state.LockInfo{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	on := func(name, node string) []job.Slot {
		return []job.Slot{{Address: job.Address{Job: name, Role: "worker"}, Node: node, Phase: job.Running}}
	}
	stored := state.State{}.Next(job.Records{
		"a": {Spec: job.Job{Name: "a", Priority: 1}, UID: "a", Slots: on("a", "n1")}, "b": {Spec: job.Job{Name: "b"}, UID: "b", Slots: on("b", "n2")},
	})
	stored.Destroyed = map[string]job.Override{"gone": {}}
	if err := store.Write(t.Context(), stored, lock); err != nil {
		t.Fatal(err)
	}
	w := &workspace.Workspace{Store: store, Sealer: new(job.Sealer), Config: &lang.Config{Jobs: []job.Job{{Name: "a", Priority: 2}, {Name: "new"}, {Name: "gone"}}}}
	for _, c := range []struct {
		name              string
		r                 job.Request
		targets, excludes string
	}{
		{"a job", job.Request{Verb: job.AskRestart, On: []job.Selector{{Job: "a", Role: "worker"}}}, "job.a", ""},
		{"a cordon moves nothing", job.Request{Verb: job.AskCordon, Nodes: []string{"n1"}}, "", "job.a job.b job.gone"},
		{"a drain moves what is there", job.Request{Verb: job.AskDrain, Nodes: []string{"n1"}}, "", "job.b job.gone"},
	} {
		setup, err := AsApplied(t.Context(), w, &c.r)
		if err != nil {
			t.Fatal(err)
		}
		names := func(all []job.Selector) string {
			var out []string
			for _, sel := range all {
				out = append(out, sel.String())
			}
			return strings.Join(out, " ")
		}
		if names(setup.Scope.Targets) != c.targets || names(setup.Scope.Excludes) != c.excludes {
			t.Errorf("%s: targets %s, without %s", c.name, names(setup.Scope.Targets), names(setup.Scope.Excludes))
		}
		var jobs []string
		for _, j := range setup.Files.Jobs {
			jobs = append(jobs, j.Name)
		}
		if !slices.Equal(jobs, []string{"a", "b", "gone"}) || setup.Files.Jobs[0].Priority != 1 || !setup.Keep {
			t.Errorf("%s: the jobs are %q, with priority %d, keep %t", c.name, jobs, setup.Files.Jobs[0].Priority, setup.Keep)
		}
	}
}

// A reply may come a little after the request's time: its leader took it just before, or has a clock that is behind.
func TestALateReplyIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		ends  job.ReplyState
		err   error
	}{
		{time.Second + lateReply - time.Second/2, job.Done, nil},
		{time.Second + 2*lateReply, "", ErrNoReply},
	} {
		synctest.Test(t, func(t *testing.T) {
			to, _ := here(t)
			now := time.Now().Add(-time.Hour) // who stored it has another clock
			r, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: now, Expires: now.Add(time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			var leader sync.WaitGroup
			defer leader.Wait()
			leader.Go(func() {
				time.Sleep(c.after)
				to.requests.Reply(t.Context(), job.Reply{ID: r.ID, State: job.Done})
			})
			asked, err := to.Await(t.Context(), r, func(...view.Diagnostic) {})
			if asked.Reply.State != c.ends || !errors.Is(err, c.err) {
				t.Errorf("with a reply after %s it ends %q, %v", c.after, asked.Reply.State, err)
			}
		})
	}
}

// full are requests on a disk that is full.
type full struct{ state.Requests }

func (full) Ask(_ context.Context, r job.Request) (job.Request, error) {
	return r, fmt.Errorf("store a request: %w", syscall.ENOSPC)
}

func TestOnAFullDiskWhoAsksIsToldWhatToDo(t *testing.T) {
	to, _ := here(t)
	to.requests = full{to.requests}
	_, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "Free a few MiB on that disk and run the command again") {
		t.Errorf("it ends with %v", err)
	}
}

// undefined are the requests of a cluster that defines none.
type undefined struct{ state.Requests }

func (undefined) Ask(_ context.Context, r job.Request) (job.Request, error) {
	return r, new(kubernetes.UndefinedError)
}

// A request is an object of the cluster wherever that defines them. Else it is a file, if somebody reads it there.
func TestWhereRequestsAreStored(t *testing.T) {
	for _, c := range []struct {
		defined, readHere bool
		cluster, here     int
	}{
		{true, true, 1, 0}, {true, false, 1, 0}, {false, true, 0, 1}, {false, false, 0, 0},
	} {
		to, _ := here(t)
		local := to.requests
		root := filepath.Join(t.TempDir(), "cluster")
		cluster := state.Requests(file.NewRequests(root, filepath.Join(root, "requests")))
		if to.requests = cluster; !c.defined {
			to.requests = undefined{cluster}
		}
		if c.readHere {
			to.here = local
		}
		_, err := to.Ask(t.Context(), job.Request{Verb: job.AskSuspend, On: []job.Selector{{Job: "a"}}, At: time.Now()})
		if lost := errors.As(err, new(*kubernetes.UndefinedError)); lost != (c.cluster+c.here == 0) || err != nil && !lost {
			t.Errorf("%+v: %v", c, err)
		}
		inCluster, _ := cluster.All(t.Context())
		inFiles, _ := local.All(t.Context())
		if len(inCluster) != c.cluster || len(inFiles) != c.here {
			t.Errorf("%+v: %d in the cluster, %d here", c, len(inCluster), len(inFiles))
		}
	}
}
