package apply

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// told is a listener that keeps notices.
type told struct {
	*listener
	notices []job.Notice
}

func (l *told) Noticed(n job.Notice) { l.notices = append(l.notices, n) }

// messages are those of the notices of a type, with their addresses.
func (l *told) messages(kind string) []string {
	var out []string
	for _, n := range l.notices {
		if n.Type == kind {
			text := n.Message
			if !n.Reason.IsZero() {
				text = reasonText(n.Reason)
			}
			out = append(out, strings.TrimPrefix(n.Address+": "+text, ": "))
		}
	}
	return out
}

func two(replicas int) []job.Job {
	return []job.Job{jobtest.Job("a", jobtest.Role("worker", replicas)), jobtest.Job("b", jobtest.Role("worker", 2))}
}

// atWest is the same with b at another provider.
func atWest(replicas int) []job.Job {
	jobs := two(replicas)
	jobs[1].Provider = "west"
	return jobs
}

// guarded is a bench whose jobs a and b, of two workers each, are launched.
func guarded(t *testing.T, change func(*Options)) (*bench, *told) {
	t.Helper()
	b, view := launched(t, change)
	if n := b.cluster.running(); n != 4 {
		t.Fatalf("%d agents run", n)
	}
	return b, view
}

// twoSites is the same with b at west, under -max-destroy=2.
func twoSites(t *testing.T) (*bench, *told, *cluster) {
	t.Helper()
	most, west := 2, newCluster("west")
	b, view := launched(t, func(o *Options) { o.Jobs, o.MaxDestroy, o.Providers["west"] = atWest(2), &most, west })
	if here, there := b.cluster.running(), west.running(); here != 2 || there != 2 {
		t.Fatalf("%d and %d agents run", here, there)
	}
	return b, view, west
}

func launched(t *testing.T, change func(*Options)) (*bench, *told) {
	t.Helper()
	view := &told{listener: &listener{tokens: map[string]string{}}}
	b := newBench(t, func(o *Options) {
		o.Jobs, o.View = two(2), view
		o.NewUID = func(name string) string { return "u" + name }
		change(o)
	})
	b.turns(t)
	return b, view
}

// turns makes as many turns as it takes, while time passes.
func (b *bench) turns(t *testing.T) {
	t.Helper()
	for range 20 {
		b.now = b.now.Add(5 * time.Second)
		b.cluster.Advance(b.now, func() {})
		b.turn(t)
	}
}

// reasonText is a reason as the tests hold it against: its message if it has one.
func reasonText(r job.Reason) string { return cmp.Or(r.Args["message"], r.String()) }

func waitsOf(p plan.Plan, name string) string {
	var text []string
	for _, w := range p.Waits {
		if w.Job == name {
			for _, why := range w.Reasons {
				text = append(text, reasonText(why))
			}
		}
	}
	return strings.Join(text, " ")
}

// stopped are the slots that a plan stops, and does not bring back.
func removed(p plan.Plan) []string {
	var out []string
	for _, c := range p.Changes {
		if c.Action == plan.Delete || c.Action == plan.Replace {
			out = append(out, "job."+c.Job+"."+c.Slot.Short())
		}
	}
	return out
}

func reading(files Files, err error) *Watch {
	return &Watch{Reload: func() (Files, error) { return files, err }}
}

// What must not be done is warned of once, and again when it is another thing.
func TestARefusalIsWarnedOfOnceWhileItStands(t *testing.T) {
	b, view := guarded(t, func(*Options) {})
	ask := func(jobs []job.Job, ids ...string) {
		t.Helper()
		files := Files{Jobs: jobs}
		for _, id := range ids {
			files.Blocks.Imports = append(files.Blocks.Imports, plan.Import{To: job.Selector{Job: "c"}, ID: id})
		}
		b.reload(reading(files, nil))
	}
	with := append(two(2), jobtest.Job("c", jobtest.Role("worker", 1)))
	for _, step := range []struct {
		jobs []job.Job
		ids  []string
		told []string // parts of what is told
	}{
		{with, []string{"x"}, []string{`id=x`}},
		{with, []string{"z"}, []string{`id=z`}},
		{two(2), nil, []string{"recovered: "}},
		{with, []string{"z"}, []string{`id=z`}},
	} {
		view.warned = nil
		ask(step.jobs, step.ids...)
		for range 3 {
			b.turn(t)
		}
		told := slices.DeleteFunc(slices.Compact(view.warned), func(text string) bool { return text == "recovered: "+FilesTrouble })
		if !slices.EqualFunc(told, step.told, strings.Contains) {
			t.Errorf("asked for %q: told %q", step.ids, told)
		}
	}
}

func TestFilesWithErrorsLeaveTheLastGoodInForceAndSayWhichCommit(t *testing.T) {
	b, view := guarded(t, func(o *Options) { o.Commit = `1a2b3c4 "Add b"` })
	broken := &UnusableError{Brief: "Missing brace on job.hcl line 3: it ends early", Text: "Error: Missing brace\nand more"}
	b.reload(reading(Files{Commit: `2222222 "Break it"`}, broken))
	p := b.turn(t)
	const want = `The configuration has errors (commit 2222222 "Break it"); the last good one stays in force (commit 1a2b3c4 "Add b"). Missing brace on job.hcl line 3: it ends early`
	for _, name := range []string{"a", "b"} {
		if got := waitsOf(p, name); !strings.Contains(got, want) {
			t.Errorf("job %s waits: %s", name, got)
		}
	}
	if len(removed(p)) > 0 {
		t.Errorf("removed %v", removed(p))
	}
	b.turn(t) // what was told is not told again
	if got := view.messages("withheld"); !slices.Equal(got, []string{"job.a: " + want, "job.b: " + want}) {
		t.Errorf("events %q", got)
	}
	const commits = `The configuration has errors (commit 2222222 "Break it"); the last good one stays in force (commit 1a2b3c4 "Add b").`
	if want := []string{FilesTrouble + ": " + broken.Text + "\n\n" + commits}; !slices.Equal(view.warned, want) {
		t.Errorf("warned %q", view.warned)
	}
	view.notices = nil
	b.reload(reading(Files{Jobs: two(2), Commit: `3333333 "Mend it"`}, nil))
	if p := b.turn(t); strings.Contains(waitsOf(p, "a"), "errors") {
		t.Errorf("it is mended, and a waits: %s", waitsOf(p, "a"))
	}
	if got := view.messages("withheld"); len(got) != 2 || !strings.Contains(got[0], "over") {
		t.Errorf("events %q", got)
	}
	if got, want := view.messages("configuration"), []string{`commit 3333333 "Mend it" was taken up`}; !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

// What was edited since the commit is none of its doing.
func TestAnErrorInWhatWasEditedIsNotTheCommits(t *testing.T) {
	b, _ := guarded(t, func(o *Options) { o.Commit = `1a2b3c4 "Add b"` })
	b.reload(reading(Files{Commit: `1a2b3c4 "Add b"`}, errors.New("it ends early")))
	const want = `The configuration has errors (edited since commit 1a2b3c4 "Add b"); the last good one stays in force. it ends early`
	if got := waitsOf(b.turn(t), "a"); !strings.Contains(got, want) {
		t.Errorf("a waits: %s", got)
	}
}

func TestACommitIsToldBeforeWhatItHoldsBack(t *testing.T) {
	most := 0
	b, view := guarded(t, func(o *Options) { o.MaxDestroy = &most })
	b.reload(reading(Files{Jobs: two(2)[:1], Commit: "4444444"}, nil))
	view.notices = nil
	b.turn(t)
	if len(view.notices) != 2 || view.notices[0].Message != "commit 4444444 was read; held back is job.b" || view.notices[1].Address != "job.b" {
		t.Fatalf("told %+v", view.notices)
	}
	if why := view.notices[1].Reason; why.Code != AboveMaxDestroy || why.Args["max_destroy"] != "0" {
		t.Errorf("what bounds it is not said: %s", why)
	}
	b.turn(t)
	if len(view.notices) != 2 {
		t.Errorf("told again: %+v", view.notices[2:])
	}
}

func TestMoreRemovalsThanAllowedAreHeldBackUntilTheyAreConfirmed(t *testing.T) {
	most := 2
	b, view := guarded(t, func(o *Options) { o.MaxDestroy = &most })
	fewer := two(1)[:1] // a slot of a, and all of b
	b.reload(reading(Files{Jobs: fewer, Commit: "4444444"}, nil))
	for range 3 {
		p := b.turn(t)
		if len(removed(p)) > 0 {
			t.Fatalf("removed %v", removed(p))
		}
		for name, want := range map[string]string{"a": "all=3 commit=4444444 count=1 max_destroy=2", "b": "all=3 commit=4444444 count=2 max_destroy=2"} {
			if got := waitsOf(p, name); !strings.Contains(got, want) {
				t.Errorf("job %s waits: %s", name, got)
			}
		}
	}
	if got := view.messages("withheld"); len(got) != 2 {
		t.Errorf("events %q", got)
	}

	// What breaks is healed as before, and does not count.
	b.cluster.Agents()[0].Kill()
	b.turns(t)
	if n := b.cluster.running(); n != 4 {
		t.Errorf("%d agents after one was killed", n)
	}

	// Confirmed once, by as many as it takes.
	for _, c := range []struct{ confirm, left int }{{2, 4}, {3, 1}} {
		reply := b.ask(t, reading(Files{Jobs: fewer, Commit: "4444444"}, nil), &c.confirm)
		b.turns(t)
		if n := b.cluster.running(); n != c.left {
			t.Errorf("%d agents after %d were confirmed, want %d", n, c.confirm, c.left)
		}
		if held := len(reply.Withheld) > 0; held != (c.left == 4) || reply.Changes == nil || (reply.Changes.Remove == 3) == held {
			t.Errorf("confirmed %d: %+v %+v", c.confirm, reply, reply.Changes)
		}
	}

	const confirmed = ": over: the removal was confirmed"
	if got := view.messages("withheld"); len(got) != 4 || got[2] != "job.a"+confirmed || got[3] != "job.b"+confirmed {
		t.Errorf("events %q", got)
	}
	if got, want := view.messages("configuration"), []string{"commit 4444444 was read; held back is job.a, job.b", "commit 4444444 was taken up"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}

	// It was for once.
	b.reload(reading(Files{Jobs: two(2)}, nil))
	b.turns(t)
	b.reload(reading(Files{Jobs: fewer}, nil))
	if p := b.turn(t); len(removed(p)) > 0 {
		t.Errorf("removed %v: a confirmation is for once", removed(p))
	}
}

const unseenCounts = "count=1 max_destroy=2 unseen=2"

// A change of the files is one change, whichever provider of its jobs can be observed.
func TestRemovalsThatCannotBeSeenCount(t *testing.T) {
	b, _, west := twoSites(t)
	down := errors.New("the API server is down")
	west.unseen = down
	b.reload(reading(Files{Jobs: atWest(1)[:1]}, nil)) // a slot of a, and all of b
	for _, now := range []struct {
		unseen error
		want   string
	}{{down, unseenCounts}, {nil, "above_max_destroy(all=3 count=1 max_destroy=2)"}, {down, unseenCounts}} {
		west.unseen = now.unseen
		if p := b.turn(t); len(removed(p)) > 0 || !strings.Contains(waitsOf(p, "a"), now.want) {
			t.Errorf("removed %v, a waits: %s", removed(p), waitsOf(p, "a"))
		}
	}
}

// When they come to less than they might have, what they held back goes on, and that is told as what it is.
func TestRemovalsThatComeToLessAreTold(t *testing.T) {
	b, view, west := twoSites(t)
	view.notices = nil
	west.unseen = errors.New("the API server is down")
	more := atWest(1)
	more[1].Roles = jobtest.Job("b", jobtest.Role("worker", 3)).Roles
	b.reload(reading(Files{Jobs: more, Commit: "4444444"}, nil))
	if p := b.turn(t); len(removed(p)) > 0 || !strings.Contains(waitsOf(p, "a"), unseenCounts) {
		t.Errorf("removed %v, a waits: %s", removed(p), waitsOf(p, "a"))
	}
	west.unseen = nil
	if p := b.turn(t); len(removed(p)) != 1 {
		t.Errorf("removed %v: b loses nothing", removed(p))
	}
	b.turn(t)
	if got, want := view.messages("configuration"), []string{"commit 4444444 was read; held back is job.a", "commit 4444444 was taken up"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := view.messages("withheld"); len(got) != 2 || got[1] != "job.a: over: it is made what the files say" {
		t.Errorf("told %q", got)
	}
}

// What will not be removed whatever comes, or is not to be, counts for nothing.
func TestRemovalsThatAreNotToComeDoNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		jobs   []job.Job
		change func(*Options)
	}{
		"b is as it was applied":       {atWest(1), func(*Options) {}},
		"b's provider is nobody's now": {atWest(1)[:1], func(o *Options) { delete(o.Providers, "west") }},
		"b is no target":               {atWest(1)[:1], func(o *Options) { o.Scope.Targets = []job.Selector{{Job: "a"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, west := twoSites(t)
			west.unseen = errors.New("the API server is down")
			o := b.o
			o.Jobs, o.Providers = c.jobs, maps.Clone(o.Providers)
			c.change(&o)
			next, err := New(t.Context(), o)
			must(t, err)
			p, _, err := next.Turn(t.Context())
			must(t, err)
			if len(removed(p)) != 1 {
				t.Errorf("removed %v, a waits: %s", removed(p), waitsOf(p, "a"))
			}
		})
	}
}

// ask makes a request to reconcile, has it heeded, and gives the answer.
func (b *bench) ask(t *testing.T, w *Watch, most *int) (reply elastic.ReconcileReply) {
	t.Helper()
	var asking sync.WaitGroup
	asking.Go(func() { reply = b.Reconcile(t.Context(), elastic.ReconcileRequest{MaxDestroy: most}) })
	eventually(t, "the request", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.requests, func(r request) bool { return r.maxDestroy == most })
	})
	b.heed(w)
	b.turn(t)
	asking.Wait()
	return reply
}

func TestReplacementsByAnEditCountAsRemovals(t *testing.T) {
	most := 3
	b, _ := guarded(t, func(o *Options) { o.MaxDestroy = &most })
	edited := two(2)
	for i := range edited {
		edited[i].Roles[0].Command = []string{"other"}
	}
	b.reload(reading(Files{Jobs: edited}, nil))
	if p := b.turn(t); len(removed(p)) > 0 || waitsOf(p, "a") == "" {
		t.Errorf("removed %v", removed(p))
	}
	b.reload(reading(Files{Jobs: []job.Job{edited[0], two(2)[1]}}, nil))
	if p := b.turn(t); len(removed(p)) != 2 || strings.Contains(waitsOf(p, "a"), "max-destroy") {
		t.Errorf("removed %v, waits %s", removed(p), waitsOf(p, "a"))
	}
}

func TestAFurtherMasterHoldsTheSameBack(t *testing.T) {
	b, _ := guarded(t, func(*Options) {})
	none := 0
	o := b.o
	o.Jobs, o.MaxDestroy = two(2)[:1], &none
	next, err := New(t.Context(), o)
	must(t, err)
	p, _, err := next.Turn(t.Context())
	must(t, err)
	if len(removed(p)) > 0 || !strings.Contains(waitsOf(p, "b"), "max_destroy=0") {
		t.Errorf("removed %v, b waits: %s", removed(p), waitsOf(p, "b"))
	}
}

func TestWithoutPruneAJobThatIsDeclaredNoMoreGoesOn(t *testing.T) {
	b, view := guarded(t, func(o *Options) { o.Keep = true })
	b.reload(reading(Files{Jobs: two(2)[:1]}, nil))
	if p := b.turn(t); len(removed(p)) > 0 {
		t.Errorf("removed %v", removed(p))
	}
	const left = "not_pruned(job=b)"
	b.turn(t)
	if got := view.messages("left"); len(got) != 1 || !strings.Contains(got[0], left) {
		t.Errorf("events %q", got)
	}
	if got := waitsOf(plan.Plan{Waits: b.Live().Waits}, "b"); !strings.Contains(got, left) {
		t.Errorf("status says %q", got)
	}
	b.cluster.Agents()[3].Kill()
	b.turns(t)
	if n := b.cluster.running(); n != 4 {
		t.Errorf("%d agents after one of the job was killed: it is not looked after", n)
	}
	b.reload(reading(Files{Jobs: two(2)}, nil))
	b.turn(t)
	if got := view.messages("left"); len(got) != 2 || !strings.Contains(got[1], "over") || len(b.Live().Waits) > 0 {
		t.Errorf("events %q, status %+v", got, b.Live().Waits)
	}
}

func TestARequestIsAnsweredWithThePlanOrThatItIsQueued(t *testing.T) {
	b, _ := guarded(t, func(*Options) {})
	reply := b.ask(t, reading(Files{Commit: "5555555"}, errors.New("no such file")), nil)
	if reply.Status != elastic.ReconcilePlanned || !strings.Contains(reply.Error, "no such file") || len(reply.Withheld) != 2 || reply.Withheld[0].Job != "job.a" {
		t.Errorf("%+v", reply)
	}
	reply = b.ask(t, reading(Files{Jobs: two(3), Commit: "6666666"}, nil), nil)
	if reply.Error != "" || reply.Commit != "6666666" || *reply.Changes != (elastic.ReconcileChanges{Add: 1, Change: 1}) {
		t.Errorf("%+v %+v", reply, reply.Changes)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if reply := b.Reconcile(ended, elastic.ReconcileRequest{}); reply.Status != elastic.ReconcileQueued || reply.Changes != nil {
		t.Errorf("%+v", reply)
	}
	// It is heeded all the same, once for all.
	confirm := 2
	more := b.ask(t, reading(Files{Jobs: two(2)}, nil), &confirm)
	if more.Status != elastic.ReconcilePlanned || len(b.requests)+len(b.heeded) > 0 {
		t.Errorf("%+v, %d requests are left", more, len(b.requests)+len(b.heeded))
	}
}

// What a provider that cannot be observed has is as it was: it is not over, nor news once it is seen again.
func TestAnOutageEndsNothingThatWasTold(t *testing.T) {
	most := 0
	fewer := two(2)[:1]
	importing := Files{Jobs: append(two(2), jobtest.Job("c", jobtest.Role("worker", 1)))}
	importing.Blocks.Imports = []plan.Import{{To: job.Selector{Job: "c"}, ID: "x"}}
	for name, c := range map[string]struct {
		options func(*Options)
		watch   *Watch
		notices int
	}{
		"held back by -max-destroy": {func(o *Options) { o.MaxDestroy = &most }, reading(Files{Jobs: fewer}, nil), 1},
		"held back by broken files": {func(*Options) {}, reading(Files{}, errors.New("it ends early")), 2},
		"left":                      {func(o *Options) { o.Keep = true }, reading(Files{Jobs: fewer}, nil), 1},
		"refused":                   {func(*Options) {}, reading(importing, nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, view := guarded(t, c.options)
			b.reload(c.watch)
			b.turns(t)
			notices := len(view.notices)
			if n := len(view.messages("withheld")) + len(view.messages("left")); n != c.notices {
				t.Fatalf("told %+v", view.notices)
			}
			view.warned = nil
			b.cluster.unseen = errors.New("the API server is down")
			b.turn(t)
			if got := waitsOf(plan.Plan{Waits: b.Live().Waits}, "b"); name == "left" && !strings.Contains(got, "not_pruned(job=b)") {
				t.Errorf("status says %q", got)
			}
			b.cluster.unseen = nil
			b.turn(t)
			if len(view.notices) > notices {
				t.Errorf("told %+v", view.notices[notices:])
			}
			if want := []string{"Provider local cannot be observed: the API server is down", "recovered: Provider local cannot be observed"}; !slices.Equal(view.warned, want) {
				t.Errorf("warned %q", view.warned)
			}
		})
	}
}

// A condition is of all jobs: without those that are not seen it may hold, or not, for no reason.
func TestConditionsAreAskedOfWhatIsSeenAsAWhole(t *testing.T) {
	asked := 0
	b := newBench(t, func(o *Options) {
		o.Conditions = func(job.Records) map[string]string { asked++; return map[string]string{} }
	})
	for _, c := range []struct {
		trouble error
		dirty   bool
		want    int // times so far
	}{
		{nil, false, 1}, {nil, false, 1}, {nil, true, 2}, {errors.New("the API server is down"), true, 2}, {nil, false, 3}, {nil, false, 3},
	} {
		b.trouble["local"] = c.trouble
		if b.tellRefusals(&plan.Plan{Dirty: c.dirty}); asked != c.want {
			t.Errorf("%+v: asked %d times", c, asked)
		}
	}
}

func TestAConfirmationIsKeptUntilWhatItIsForIsSeenOrTheFilesAreReadAgain(t *testing.T) {
	most := 0
	for name, left := range map[string]int{"it is seen again": 2, "the files are read again": 4} {
		t.Run(name, func(t *testing.T) {
			b, view := guarded(t, func(o *Options) { o.MaxDestroy = &most })
			fewer := reading(Files{Jobs: two(2)[:1]}, nil)
			b.reload(fewer)
			b.turn(t)
			b.cluster.unseen = errors.New("the API server is down")
			confirm := 2
			reply := b.ask(t, fewer, &confirm)
			if len(reply.Withheld) != 1 || reply.Withheld[0].Job != "job.b" || *reply.Changes != (elastic.ReconcileChanges{}) {
				t.Errorf("during the outage the answer is %+v, %+v", reply, reply.Changes)
			}
			if left == 4 {
				b.reload(fewer)
			}
			b.cluster.unseen = nil
			b.turns(t)
			if n := b.cluster.running(); n != left {
				t.Errorf("%d agents run, want %d", n, left)
			}
			if got := view.messages("withheld"); len(got) > 1 != (left == 2) || left == 2 && got[1] != "job.b: over: the removal was confirmed" {
				t.Errorf("told %q", got)
			}
		})
	}
}

func TestAConfirmationIsKeptUntilThePlanIsStored(t *testing.T) {
	most := 0
	store := &unwritable{err: errors.New("no space left on device")}
	b, view := guarded(t, func(o *Options) { o.MaxDestroy, store.Store, o.Store = &most, o.Store, store })
	fewer := reading(Files{Jobs: two(2)[:1]}, nil)
	b.reload(fewer)
	b.turn(t)
	confirm := 2
	b.confirmed = &confirm
	store.failing.Store(1)
	if _, _, err := b.Turn(t.Context()); err == nil {
		t.Fatal("the turn is stored")
	}
	b.turns(t)
	if n := b.cluster.running(); n != 2 {
		t.Errorf("%d agents run, want 2", n)
	}
	if got := view.messages("withheld"); len(got) != 2 || got[1] != "job.b: over: the removal was confirmed" {
		t.Errorf("told %q", got)
	}
}

// full is a journal that takes nothing while it has an error.
type full struct {
	journalled
	err error
}

func (f *full) Append(entries ...state.Entry) error {
	if f.err != nil {
		return f.err
	}
	return f.journalled.Append(entries...)
}

// A journal on a full disk must not have the same written a thousand times once there is room.
func TestWhatTheJournalCouldNotTakeIsToldOnce(t *testing.T) {
	most := 0
	for name, c := range map[string]struct {
		options func(*Options)
		want    []string
	}{
		"held back": {func(o *Options) { o.MaxDestroy = &most }, []string{"configuration", "withheld"}},
		"left":      {func(o *Options) { o.Keep = true }, []string{"configuration", "left"}},
	} {
		t.Run(name, func(t *testing.T) {
			journal := new(full)
			b, view := guarded(t, func(o *Options) { o.Journal = journal; c.options(o) })
			b.reload(reading(Files{Jobs: two(2)[:1], Commit: "4444444"}, nil))
			view.notices = nil
			journal.err = errors.New("no space left on device")
			for range 50 {
				if _, _, err := b.Turn(t.Context()); err == nil {
					t.Fatal("the turn is stored")
				}
			}
			journal.err = nil
			b.turn(t)
			var told []string
			for _, n := range view.notices {
				told = append(told, n.Type)
			}
			if !slices.Equal(told, c.want) || len(b.unwritten) > 0 {
				t.Errorf("told %q, want %q, and %d are not written", told, c.want, len(b.unwritten))
			}
		})
	}
}
