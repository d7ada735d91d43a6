// Package providertest is the suite of tests that every provider has to pass.
package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Harness is one infrastructure to test on, new and empty for each test.
type Harness struct {
	// Open returns a provider on it. Each call is a new master; the suite closes what it opens.
	Open func() (providers.Provider, error)
	// Node is where launches are placed.
	Node string
	// Trains prints "training\n" once it has started further processes, and runs until it is stopped. Ends prints "done\n" and
	// exits with 0 at once. Stubborn is like Trains but ignores SIGTERM.
	Trains, Ends, Stubborn job.Program
	// KillAgent kills the agent of an incarnation, so that it writes nothing more, and no other process.
	KillAgent func(job.Incarnation) error
	// Remains lists, for people, what still runs of all that was ever launched on it.
	Remains func() []string
	// Removes: a stopped incarnation is removed with its output, and all output with a forgotten job. Only the master that
	// stopped it still reports it. Otherwise output stays, and every master reports how it ended.
	Removes bool
}

// Run tests the providers that newHarness opens.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	tests := map[string]func(*suite){
		"token is the same for the same UID":            (*suite).tokens,
		"launch is seen and signalled":                  (*suite).launches,
		"launching twice starts once":                   (*suite).launchesTwice,
		"what ended is not started again":               (*suite).endedStays,
		"an unprepared job is not launched":             (*suite).unprepared,
		"a next master finds and stops the same agents": (*suite).adopts,
		"stopping what never ran is no error":           (*suite).stopsNothing,
		"stop ends whole process trees":                 (*suite).stopsTrees,
		"stop uses force after grace":                   (*suite).stopsStubborn,
		"stops go on side by side":                      (*suite).stopsManyAtOnce,
		"no orphan trains on":                           (*suite).orphans,
		"a next incarnation is another":                 (*suite).nextIncarnation,
		"forget refuses what runs, then leaves nothing": (*suite).forgets,
		"an observation that failed is an error":        (*suite).observeFails,
		"an observation is a value":                     (*suite).observationsStay,
		"logs are tailed and followed":                  (*suite).logs,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, Harness: newHarness(t)}
			ctx, cancel := context.WithCancel(context.Background()) // not the test's: cleanups use it
			defer cancel()
			s.ctx = ctx
			s.p = s.open()
			test(s)
		})
	}
}

const (
	uid  = "0b0e9c52-6a8e-4f0e-9a53-6a4f0f6f2d11"
	name = "suite"
)

var group = job.Group{UID: uid, Name: name, Roles: []job.GroupRole{{Role: "worker", Min: 1}}}

type suite struct {
	*testing.T
	Harness
	ctx context.Context
	p   providers.Provider
}

func (s *suite) open() providers.Provider {
	s.Helper()
	p, err := s.Open()
	s.ok(err)
	s.Cleanup(func() { p.Close() })
	s.ok(p.Publish(s.ctx, providers.Service{URL: "https://127.0.0.1:1"}))
	_, err = p.Prepare(s.ctx, group)
	s.ok(err)
	return p
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func slot(index int) job.Address { return job.Address{Job: name, Role: "worker", Index: index} }

func (s *suite) launch(index, incarnation int, program job.Program) job.Launch {
	return job.Launch{
		UID: uid, Slot: slot(index), Incarnation: incarnation, Node: s.Node, Program: program, Processes: 1,
		StopGrace: job.Duration(time.Second), Fingerprint: "f1",
	}
}

// find observes one incarnation; nil if it is not there.
func (s *suite) find(p providers.Provider, index, incarnation int) *job.Incarnation {
	s.Helper()
	o, err := p.Observe(s.ctx)
	s.ok(err)
	for i := range o.Incarnations.All() {
		if i.UID == uid && i.Slot == slot(index) && i.Number == incarnation {
			return i
		}
	}
	return nil
}

// await waits for a state, rechecking on Changes only, so that a change which is not signaled fails the test.
func (s *suite) await(p providers.Provider, index, incarnation int, state job.IncarnationState) job.Incarnation {
	s.Helper()
	deadline := time.After(hang.Bound)
	for {
		i := s.find(p, index, incarnation)
		if i != nil && i.State == state {
			return *i
		}
		select {
		case <-p.Changes():
		case <-deadline:
			s.Fatalf("%s incarnation %d is not %s after %s: %+v", slot(index), incarnation, state, hang.Bound, i)
		}
	}
}

// same reports whether two observations are of one start: of the same process or pod.
func same(a, b job.Incarnation) bool {
	return a.AgentPID == b.AgentPID && a.Name == b.Name && a.Started.Equal(b.Started)
}

// training waits until the slot's program has started its processes.
func (s *suite) training(p providers.Provider, index, incarnation int) job.Incarnation {
	s.Helper()
	i := s.await(p, index, incarnation, job.Up)
	deadline := time.Now().Add(hang.Bound)
	printed := incarnation // by each incarnation so far
	if s.Removes {
		printed = 1 // the previous ones were removed
	}
	for strings.Count(s.read(p, index, -1), "training\n") < printed {
		if time.Now().After(deadline) {
			s.Fatalf("%s does not train after %s", slot(index), hang.Bound)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return i
}

func (s *suite) read(p providers.Provider, index, tail int) string {
	s.Helper()
	r, err := p.Logs(s.ctx, uid, slot(index), providers.LogOptions{Tail: tail})
	if err != nil {
		return ""
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	s.ok(err)
	return string(text)
}

func (s *suite) nothingRemains() {
	s.Helper()
	if left := s.Remains(); len(left) > 0 {
		s.Errorf("still running:\n%s", strings.Join(left, "\n"))
	}
}

func (s *suite) tokens() {
	first, err := s.p.Prepare(s.ctx, group)
	s.ok(err)
	again, err := s.open().Prepare(s.ctx, group)
	s.ok(err)
	other, err := s.p.Prepare(s.ctx, job.Group{UID: "other-uid", Name: "other"})
	s.ok(err)
	if first != again || first == other || len(first) < 16 {
		s.Errorf("tokens %q and %q of one job, %q of another", first, again, other)
	}
}

func (s *suite) launches() {
	l := s.launch(0, 1, s.Trains)
	s.ok(s.p.Launch(s.ctx, l))
	i := s.training(s.p, 0, 1)
	if i.Node != l.Node || i.Fingerprint != l.Fingerprint || i.Started.IsZero() || i.Exit != nil || i.Member != nil {
		s.Errorf("observed %+v of %+v", i, l)
	}
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, time.Second))
	s.await(s.p, 0, 1, job.Gone)
}

func (s *suite) launchesTwice() {
	l := s.launch(0, 1, s.Trains)
	second := s.open()
	errs := make(chan error)
	for _, p := range []providers.Provider{s.p, s.p, second, s.p} {
		go func() { errs <- p.Launch(s.ctx, l) }()
	}
	for range 4 {
		s.ok(<-errs)
	}
	first := s.training(s.p, 0, 1)
	s.ok(s.p.Launch(s.ctx, l))
	s.ok(second.Launch(s.ctx, l))
	if now := s.await(second, 0, 1, job.Up); !same(now, first) {
		s.Errorf("another agent runs: %+v, before %+v", now, first)
	}
	if text := s.read(s.p, 0, -1); strings.Count(text, "training\n") != 1 {
		s.Errorf("the program was started more than once:\n%s", text)
	}
	s.ok(second.Stop(s.ctx, uid, slot(0), 1, time.Second))
	s.nothingRemains()
}

func (s *suite) endedStays() {
	l := s.launch(0, 1, s.Ends)
	s.ok(s.p.Launch(s.ctx, l))
	ended := s.await(s.p, 0, 1, job.Gone)
	if ended.Exit == nil || ended.Exit.Code != 0 || ended.Exit.Signal != "" {
		s.Errorf("a program that ended with 0 is reported as %+v", ended.Exit)
	}
	s.ok(s.p.Launch(s.ctx, l))
	s.ok(s.open().Launch(s.ctx, l))
	s.await(s.p, 0, 1, job.Gone)
	if text := s.read(s.p, 0, -1); strings.Count(text, "done\n") != 1 {
		s.Errorf("the program was started again:\n%s", text)
	}
}

func (s *suite) unprepared() {
	l := s.launch(0, 1, s.Trains)
	l.UID = "never-prepared"
	if err := s.p.Launch(s.ctx, l); err == nil {
		s.Error("a job without a token was launched")
	}
	s.nothingRemains()
}

func (s *suite) adopts() {
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	s.ok(s.p.Launch(s.ctx, s.launch(1, 1, s.Trains)))
	before := []job.Incarnation{s.training(s.p, 0, 1), s.training(s.p, 1, 1)}
	s.ok(s.p.Close())
	next := s.open()
	for index, b := range before {
		i := s.await(next, index, 1, job.Up)
		if !same(i, b) || i.Node != b.Node || i.Fingerprint != b.Fingerprint {
			s.Errorf("found %+v, was %+v", i, b)
		}
	}
	s.ok(s.KillAgent(before[1]))
	s.await(next, 1, 1, job.Gone) // an exit is noticed even of an agent that is not this master's child
	s.ok(next.Stop(s.ctx, uid, slot(0), 1, time.Second))
	s.await(next, 0, 1, job.Gone)
	s.nothingRemains()
	third := s.open()
	if s.Removes {
		if i := s.find(third, 0, 1); i != nil && i.State != job.Gone {
			s.Errorf("a stopped incarnation is still reported: %+v", i)
		}
	} else {
		s.await(third, 0, 1, job.Gone)
	}
	s.await(third, 1, 1, job.Gone)
}

func (s *suite) stopsNothing() {
	s.ok(s.p.Stop(s.ctx, uid, slot(7), 3, time.Second))
	s.ok(s.p.Stop(s.ctx, "no-such-job", slot(7), 3, time.Second))
	if i := s.find(s.p, 7, 3); i != nil {
		s.Errorf("stopping made an incarnation: %+v", i)
	}
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Ends)))
	s.await(s.p, 0, 1, job.Gone)
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, time.Second))
}

func (s *suite) stopsTrees() {
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	s.training(s.p, 0, 1)
	if len(s.Remains()) < 3 {
		s.Fatalf("the harness does not find an agent, a process and its child: %q", s.Remains())
	}
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, 5*time.Second))
	s.nothingRemains() // now, not some time later
	s.await(s.p, 0, 1, job.Gone)
}

func (s *suite) stopsStubborn() {
	l := s.launch(0, 1, s.Stubborn)
	l.StopGrace = job.Duration(time.Hour) // the agent itself would wait
	s.ok(s.p.Launch(s.ctx, l))
	s.training(s.p, 0, 1)
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, 200*time.Millisecond))
	s.nothingRemains()
	s.await(s.p, 0, 1, job.Gone)
}

func (s *suite) stopsManyAtOnce() {
	const n = 8
	for index := range n {
		s.ok(s.p.Launch(s.ctx, s.launch(index, 1, s.Trains)))
	}
	errs := make(chan error, n)
	for index := range n { // some have only just been started
		go func() { errs <- s.p.Stop(s.ctx, uid, slot(index), 1, 5*time.Second) }()
	}
	for range n {
		s.ok(<-errs)
	}
	s.nothingRemains()
	for index := range n {
		s.await(s.p, index, 1, job.Gone)
	}
}

func (s *suite) orphans() {
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	i := s.training(s.p, 0, 1)
	s.ok(s.KillAgent(i))
	s.await(s.p, 0, 1, job.Gone)
	s.nothingRemains() // once it is gone, nothing of it runs
	if i := s.find(s.p, 0, 1); i.Exit != nil && i.Exit.OOM {
		s.Errorf("killed by hand, reported as killed for memory: %+v", i.Exit)
	}
}

func (s *suite) nextIncarnation() {
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	first := s.training(s.p, 0, 1)
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, time.Second))
	s.ok(s.p.Launch(s.ctx, s.launch(0, 2, s.Trains)))
	second := s.training(s.p, 0, 2)
	if same(second, first) {
		s.Errorf("incarnation 2 is incarnation 1: %+v", second)
	}
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, time.Second)) // late, and about the old one
	if i := s.find(s.p, 0, 2); i == nil || i.State != job.Up {
		s.Errorf("stopping incarnation 1 stopped 2: %+v", i)
	}
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 2, time.Second))
	s.nothingRemains()
}

func (s *suite) forgets() {
	token, err := s.p.Prepare(s.ctx, group)
	s.ok(err)
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	s.training(s.p, 0, 1)
	if err := s.p.Forget(s.ctx, uid, name); err == nil {
		s.Fatal("a running job was forgotten")
	}
	if i := s.find(s.p, 0, 1); i == nil || i.State != job.Up {
		s.Fatalf("a refused Forget changed something: %+v", i)
	}
	s.ok(s.p.Stop(s.ctx, uid, slot(0), 1, time.Second))
	s.ok(s.p.Forget(s.ctx, uid, name))
	s.ok(s.p.Forget(s.ctx, uid, name))
	s.ok(s.p.Forget(s.ctx, "no-such-job", "other"))
	if i := s.find(s.p, 0, 1); i != nil {
		s.Errorf("a forgotten job is observed: %+v", i)
	}
	if text := s.read(s.p, 0, -1); text != "training\n" && !s.Removes {
		s.Errorf("the log did not stay: %q", text)
	}
	next, err := s.p.Prepare(s.ctx, group)
	s.ok(err)
	if next == token {
		s.Error("the token outlived the job")
	}
}

func (s *suite) observeFails() {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if o, err := s.p.Observe(ctx); err == nil || err.Error() == "" {
		s.Errorf("an observation with a canceled context: %+v, error %v", o, err)
	}
}

func (s *suite) observationsStay() {
	observe := func() *providers.Observation {
		o, err := s.p.Observe(s.ctx)
		s.ok(err)
		return o
	}
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Trains)))
	i := s.training(s.p, 0, 1)
	deadline := time.Now().Add(hang.Bound)
	running := observe()
	for again := observe(); again != running; running, again = again, observe() { // others may change something in between
		if time.Now().After(deadline) {
			s.Fatalf("without changes it is always another:\n%s\nthen\n%s", textOf(s, running), textOf(s, again))
		}
	}
	if running.Places == nil {
		s.Fatal("it has no Places")
	}
	text := textOf(s, running)
	role := &job.Role{Name: "worker", Program: s.Trains}
	fit := running.Places.Fit(role)
	s.ok(s.p.Stop(s.ctx, uid, slot(0), i.Number, time.Second))
	s.await(s.p, 0, 1, job.Gone)
	if observe() == running {
		s.Error("after an end the observation is the same")
	}
	s.ok(s.p.Forget(s.ctx, uid, name))
	if now := textOf(s, running); now != text {
		s.Errorf("it was\n%s\nand is now\n%s", text, now)
	}
	if now := running.Places.Fit(role); !reflect.DeepEqual(now, fit) {
		s.Errorf("the Fit of a role was %+v, and is now %+v", fit, now)
	}
}

func textOf(s *suite, o *providers.Observation) string {
	values := *o
	values.Places = nil
	text, err := json.Marshal(values)
	s.ok(err)
	return string(text)
}

func (s *suite) logs() {
	s.ok(s.p.Launch(s.ctx, s.launch(0, 1, s.Ends)))
	s.await(s.p, 0, 1, job.Gone)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	over := make(chan struct{})
	r, err := s.p.Logs(ctx, uid, slot(0), providers.LogOptions{Tail: -1, Follow: over})
	s.ok(err)
	defer r.Close()
	s.ok(s.p.Launch(s.ctx, s.launch(0, 2, s.Ends)))
	b := make([]byte, len("done\ndone\n"))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "done\ndone\n" {
		s.Errorf("followed %q, %v", b, err)
	}
	s.await(s.p, 0, 2, job.Gone)
	close(over)
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		s.Errorf("at the end it reads %q, %v", rest, err)
	}
	endless, err := s.p.Logs(ctx, uid, slot(0), providers.LogOptions{Tail: 0, Follow: make(chan struct{})})
	s.ok(err)
	defer endless.Close()
	cancel()
	if _, err := endless.Read(b); err == nil {
		s.Error("reading continues after the context ended")
	}
	for before, want := range map[int]string{3: "done\n", 2: "done\n", 1: "none"} {
		if before == 2 && s.Removes {
			continue
		}
		if got := s.selected(providers.LogOptions{Tail: -1, Before: before}); got != want {
			s.Errorf("before incarnation %d it has %q, want %q", before, got, want)
		}
	}
	if s.Removes {
		return
	}
	if got := s.selected(providers.LogOptions{Tail: -1, Own: true}); got != "done\ndone\n" {
		s.Errorf("of its own output it has %q", got)
	}
}

// selected reads part of slot 0's output; "none" if there is none.
func (s *suite) selected(o providers.LogOptions) string {
	r, err := s.p.Logs(s.ctx, uid, slot(0), o)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	s.ok(err)
	defer r.Close()
	text, err := io.ReadAll(r)
	s.ok(err)
	return string(text)
}
