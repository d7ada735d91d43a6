package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/state"
)

// keptJournal keeps what is appended.
type keptJournal struct{ entries []state.Entry }

func (k *keptJournal) Append(entries ...state.Entry) error {
	k.entries = append(k.entries, entries...)
	return nil
}

// withPassword is a job whose slots need one.
func withPassword(password string) job.Job {
	j := jobtest.Job("a", jobtest.Role("worker", 2))
	j.Roles[0].Env = map[string]string{"TOKEN": password, "HEADER": "Bearer " + password}
	j.Secrets = []string{password}
	return j
}

func newSealer(t *testing.T) *job.Sealer {
	t.Helper()
	s := new(job.Sealer)
	s.SetKey([]byte("a key"))
	return s
}

// What is launched has its password, and nothing that is kept has it. A password that was changed replaces what runs.
func TestOnlyWhatIsLaunchedHasSensitiveValues(t *testing.T) {
	const password, other = "hunter2hunter2", "hunter3hunter3"
	sealer, journal := newSealer(t), new(keptJournal)
	b := newBench(t, func(o *Options) {
		o.Sealer, o.Journal, o.Jobs = sealer, journal, sealer.Jobs([]job.Job{withPassword(password)})
	})
	var launched []string
	b.cluster.launch = func(_ context.Context, l job.Launch) error {
		launched = append(launched, l.Program.Env["TOKEN"]+" "+l.Program.Env["HEADER"])
		return nil
	}
	for range 3 {
		b.turn(t)
	}
	if want := fmt.Sprint([]string{password + " Bearer " + password, password + " Bearer " + password}); fmt.Sprint(launched) != want {
		t.Errorf("launched with %v, want %v", launched, want)
	}
	kept := func(when string) {
		t.Helper()
		stored, err := b.o.Store.Read(t.Context())
		must(t, err)
		text, err := json.Marshal(stored)
		must(t, err)
		for _, e := range journal.entries {
			text = append(text, e.Data...)
		}
		for _, p := range []string{password, other} {
			if at := strings.Index(string(text), p); at >= 0 {
				t.Errorf("%s: %q is kept: …%s…", when, p, text[max(0, at-80):at+40])
			}
		}
	}
	kept("launched")

	b.Declare(sealer.Jobs([]job.Job{withPassword(password)}))
	if p := b.turn(t); len(p.Changes) > 0 {
		t.Errorf("the same password changes %+v", p.Changes)
	}
	b.Declare(sealer.Jobs([]job.Job{withPassword(other)}))
	if p := b.turn(t); p.Summary().Remove != 2 {
		t.Errorf("another password changes %+v", p.Changes)
	}
	kept("changed")
}

// A value that became sensitive is sealed in the records too, before anything is journalled.
func TestAValueThatBecomesSensitiveIsSealed(t *testing.T) {
	const password = "hunter2hunter2"
	plain := withPassword(password)
	plain.Secrets = nil
	sealer, journal := newSealer(t), new(keptJournal)
	b := newBench(t, func(o *Options) { o.Sealer, o.Journal, o.Jobs = sealer, journal, []job.Job{plain} })
	b.turn(t)
	journal.entries = nil
	b.Declare(sealer.Jobs([]job.Job{withPassword(password)}))
	b.turn(t)
	text, err := json.Marshal(b.Records())
	must(t, err)
	for _, e := range journal.entries {
		text = append(text, e.Data...)
	}
	if strings.Contains(string(text), password) {
		t.Error("it is still in clear")
	}
}

// A master that does not know a value starts nothing with what stands for it, and says why.
func TestALaunchWithoutItsValueIsRefused(t *testing.T) {
	b := newBench(t, func(o *Options) {
		o.Jobs, o.Sealer = newSealer(t).Jobs([]job.Job{withPassword("hunter2")}), newSealer(t)
	})
	b.cluster.launch = func(_ context.Context, l job.Launch) error {
		t.Errorf("launched with %v", l.Program.Env)
		return nil
	}
	p := b.turn(t)
	if len(p.Changes) == 0 {
		t.Fatal("nothing is to be launched")
	}
	if err := b.do(t.Context(), &p.Changes[len(p.Changes)-1]); !errors.Is(err, job.ErrSealed) {
		t.Errorf("it says %v", err)
	}
}

// slowStore lets a write begin, and holds it.
type slowStore struct {
	state.Store
	begun, held chan struct{} // nil: it holds none
}

func (s *slowStore) Write(ctx context.Context, next state.State, l state.Lock) error {
	if s.begun != nil {
		close(s.begun)
		s.begun = nil
		<-s.held
	}
	return s.Store.Write(ctx, next, l)
}

// What becomes sensitive while the service has a world stored stays sealed.
func TestAWorldThatFormsWhileAReloadSealsUnsealsNothing(t *testing.T) {
	const password = "hunter2hunter2"
	plain := withPassword(password)
	plain.Secrets = nil
	sealer := newSealer(t)
	var slow *slowStore
	b := newBench(t, func(o *Options) {
		slow = &slowStore{Store: o.Store}
		o.Store, o.Sealer, o.Jobs = slow, sealer, []job.Job{plain}
	})
	b.turn(t)
	begun := make(chan struct{})
	slow.begun, slow.held = begun, make(chan struct{})
	formed, declared := make(chan error, 1), make(chan struct{})
	go func() { formed <- b.Form("a", "u", job.World{Generation: 1}) }()
	<-begun
	go func() {
		defer close(declared)
		b.Declare(sealer.Jobs([]job.Job{withPassword(password)}))
	}()
	select {
	case <-declared:
	case <-time.After(50 * time.Millisecond): // it waits for the world
	}
	close(slow.held)
	must(t, <-formed)
	<-declared
	text, err := json.Marshal(b.Records())
	must(t, err)
	if strings.Contains(string(text), password) {
		t.Errorf("the password is in clear: %s", text)
	}
}
