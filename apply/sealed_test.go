package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/providers"
)

// withPassword is a job whose slots need a password.
func withPassword(password string) job.Job {
	j := jobtest.Job("a", jobtest.Role("worker", 2))
	j.Roles[0].Env = map[string]string{"TOKEN": password, "HEADER": "Bearer " + password}
	j.Secrets = []string{password}
	return j
}

// inClear is the same job without anything marked sensitive.
func inClear(password string) job.Job {
	j := withPassword(password)
	j.Secrets = nil
	return j
}

func newSealer(t *testing.T) *job.Sealer {
	t.Helper()
	s := new(job.Sealer)
	s.SetKey([]byte("a key"))
	return s
}

// kept is everything stored, journaled, reported or available on request.
func (d *driven) kept(t *testing.T) string {
	t.Helper()
	stored, err := d.store.Read(t.Context())
	must(t, err)
	observed, _ := d.Observed()
	text, err := json.Marshal([]any{stored, d.Records(), d.Live(), d.Outputs(), observed})
	must(t, err)
	d.journal.mu.Lock()
	defer d.journal.mu.Unlock()
	for _, e := range d.journal.entries {
		text = append(text, e.Data...)
	}
	d.view.mu.Lock()
	defer d.view.mu.Unlock()
	return string(text) + d.view.text.String()
}

// hides fails the test if a password appears in kept.
func (d *driven) hides(t *testing.T, when string, passwords ...string) {
	t.Helper()
	text := d.kept(t)
	for _, p := range passwords {
		if at := strings.Index(text, p); at >= 0 {
			t.Errorf("%s: %q is kept: …%s…", when, p, text[max(0, at-80):min(at+40, len(text))])
		}
	}
}

// Launches contain the password, and nothing kept does. A changed password replaces the running slots.
func TestOnlyWhatIsLaunchedHasSensitiveValues(t *testing.T) {
	const password, other = "hunter2hunter2", "hunter3hunter3"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		f := newFollowing(t, func(s *Setup, p *Parts) {
			p.Sealer, s.Files.Jobs = sealer, sealer.Jobs([]job.Job{withPassword(password)})
		})
		var mu sync.Mutex
		var launched []string
		f.provider.launch = func(_ context.Context, l job.Launch) error {
			mu.Lock()
			defer mu.Unlock()
			launched = append(launched, l.Program.Env["TOKEN"]+" "+l.Program.Env["HEADER"])
			return nil
		}
		f.begin(t)
		synctest.Wait()
		if want := []string{password + " Bearer " + password, password + " Bearer " + password}; !slices.Equal(launched, want) {
			t.Errorf("launched with %v, want %v", launched, want)
		}
		f.hides(t, "launched", password)

		f.view.planned()
		f.say(Files{Jobs: sealer.Jobs([]job.Job{withPassword(password)})}, nil)
		if plans := f.view.planned(); len(plans) > 0 {
			t.Errorf("the same password is planned: %+v", plans[0].Changes)
		}
		f.say(Files{Jobs: sealer.Jobs([]job.Job{withPassword(other)})}, nil)
		if plans := f.view.planned(); len(plans) == 0 || plans[0].Summary().Remove != 2 {
			t.Errorf("another password is planned as %+v", plans)
		}
		f.hides(t, "changed", password, other)
		must(t, f.end())
	})
}

// A value that becomes sensitive is sealed in the records too, before anything is journaled.
func TestAValueThatBecomesSensitiveIsSealed(t *testing.T) {
	const password = "hunter2hunter2"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		f := newFollowing(t, func(s *Setup, p *Parts) { p.Sealer, s.Files.Jobs = sealer, []job.Job{inClear(password)} })
		f.begin(t)
		synctest.Wait()
		f.journal.entries = nil
		f.say(Files{Jobs: sealer.Jobs([]job.Job{withPassword(password)})}, nil)
		text, err := json.Marshal(f.Records())
		must(t, err)
		for _, e := range f.journal.entries {
			text = append(text, e.Data...)
		}
		if strings.Contains(string(text), password) {
			t.Error("the value is still in clear")
		}
		must(t, f.end())
	})
}

// A master that does not know a sealed value launches nothing with its seal, and says why.
func TestALaunchWithoutItsValueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriven(t, func(s *Setup, p *Parts) {
			s.Watch, s.Files.Jobs, p.Sealer = true, newSealer(t).Jobs([]job.Job{withPassword("hunter2")}), newSealer(t)
		})
		d.provider.launch = func(_ context.Context, l job.Launch) error {
			t.Errorf("launched with %v", l.Program.Env)
			return nil
		}
		d.begin(t)
		synctest.Wait()
		must(t, d.end())
		if len(d.view.errs) != 2 || !errors.Is(d.view.errs[0], job.ErrSealed) {
			t.Errorf("the error is %v", d.view.errs)
		}
	})
}

// A value that becomes sensitive while a world is being stored stays sealed.
func TestAWorldThatFormsWhileAReloadSealsUnsealsNothing(t *testing.T) {
	const password = "hunter2hunter2"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		var slow *slowStore
		f := newFollowing(t, func(s *Setup, p *Parts) {
			slow = newSlowStore(p.Store)
			p.Store, p.Sealer, s.Files.Jobs = slow, sealer, []job.Job{inClear(password)}
		})
		f.begin(t)
		synctest.Wait()
		slow.slow.Store(true)
		formed := make(chan error, 1)
		go func() { formed <- f.Form("a", "ua", job.World{Generation: 1}) }()
		<-slow.writing
		f.say(Files{Jobs: sealer.Jobs([]job.Job{withPassword(password)})}, nil)
		slow.free <- struct{}{}
		must(t, <-formed)
		synctest.Wait()
		text, err := json.Marshal(f.Records())
		must(t, err)
		if strings.Contains(string(text), password) {
			t.Errorf("the password is in clear: %s", text)
		}
		must(t, f.end())
	})
}

// Places.Fit receives roles with their sensitive values.
type askedPlaces struct{ tokens chan string }

func (a askedPlaces) Fit(r *job.Role) job.Fit {
	select {
	case a.tokens <- r.Env["TOKEN"]:
	default:
	}
	return job.Fit{}
}

// What a provider reports of running and failing slots may contain sensitive values. They are sealed, and the sealed observation
// stays the same for as long as the provider's is.
func TestWhatIsObservedIsSealed(t *testing.T) {
	const password = "hunter2hunter2"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		places := askedPlaces{make(chan string, 1)}
		f := newFollowing(t, func(s *Setup, p *Parts) {
			p.Sealer, s.Files.Jobs = sealer, sealer.Jobs([]job.Job{withPassword(password)})
		})
		var of, told *providers.Observation
		f.provider.observe = func(_ context.Context, seen *providers.Observation) (*providers.Observation, error) {
			if seen == of {
				return told, nil
			}
			now := *seen
			now.Incarnations = job.InParts(seen.Incarnations.List())
			for inc := range now.Incarnations.All() {
				inc.Waiting, inc.Evidence = "with "+password, []string{"it said " + password}
				if inc.State == job.Gone {
					inc.Exit = &job.Exit{Code: 1, Message: "bad token " + password, Tail: []string{password}}
				}
			}
			now.Delayed, now.Places = map[string]string{"ua": "no volume for " + password}, places
			of, told = seen, &now
			return told, nil
		}
		f.begin(t)
		synctest.Wait()
		if got := <-places.tokens; got != password {
			t.Errorf("Fit was called with %q", got)
		}
		f.provider.kill(1)
		f.mail.post(Woken{})
		pass(time.Minute)
		f.hides(t, "observed", password)
		if !strings.Contains(fmt.Sprint(f.view.conditions), "delayed(message=\"no volume for ") {
			t.Errorf("reported %q", f.view.conditions)
		}

		a, err := f.observer.observe(t.Context(), "local")
		must(t, err)
		b, err := f.observer.observe(t.Context(), "local")
		must(t, err)
		if a.Observation != b.Observation {
			t.Error("the observation differs though nothing changed")
		}
		f.observer.reseal()
		if b, err = f.observer.observe(t.Context(), "local"); err != nil || a.Observation == b.Observation {
			t.Errorf("the observation is not sealed again once other values are sensitive: %v", err)
		}

		drifted := f.observer.seal("west", &providers.Observation{Incarnations: job.Incarnations{
			{{Drift: []job.FieldChange{{Path: "env", Before: "other", After: password}}}}}})
		if text := fmt.Sprint(drifted.Incarnations); strings.Contains(text, password) {
			t.Errorf("drift is seen as %s", text)
		}

		failure := errors.New("the token " + password + " is refused")
		f.provider.observe = func(context.Context, *providers.Observation) (*providers.Observation, error) { return nil, failure }
		f.mail.post(Woken{})
		pass(time.Second)
		f.hides(t, "not observed", password)
		if err := f.observer.sealError(failure); !errors.Is(err, failure) {
			t.Error("the original error is lost")
		}
		must(t, f.end())
	})
}

// Reported failures contain no sensitive values.
func TestWhatALaunchFailsWithIsSealed(t *testing.T) {
	const password = "hunter2hunter2"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		d := newDriven(t, func(s *Setup, p *Parts) {
			s.Watch, p.Sealer, s.Files.Jobs = true, sealer, sealer.Jobs([]job.Job{withPassword(password)})
		})
		d.provider.launch = func(_ context.Context, l job.Launch) error {
			return fmt.Errorf("admission webhook denied %v", l.Program.Env)
		}
		d.begin(t)
		pass(time.Minute)
		d.hides(t, "refused", password)
		if len(d.view.errs) == 0 {
			t.Error("the failure is not reported")
		}
		must(t, d.end())
	})
}

// An observation is sealed again when more values become sensitive.
func TestWhatWasSeenIsSealedOnceItIsSensitive(t *testing.T) {
	const password, other = "hunter2hunter2", "hunter3hunter3"
	synctest.Test(t, func(t *testing.T) {
		sealer := newSealer(t)
		f := newFollowing(t, func(s *Setup, p *Parts) {
			p.Sealer, s.Files.Jobs = sealer, sealer.Jobs([]job.Job{withPassword(password)})
		})
		told := &providers.Observation{Places: providers.Anywhere, Delayed: map[string]string{"ua": "no volume for " + other}}
		f.provider.observe = func(context.Context, *providers.Observation) (*providers.Observation, error) { return told, nil }
		f.begin(t)
		synctest.Wait()
		f.say(Files{Jobs: sealer.Jobs([]job.Job{withPassword(other)})}, nil)
		text, err := json.Marshal(f.Live())
		must(t, err)
		if !strings.Contains(string(text), "no volume for ") || strings.Contains(string(text), other) {
			t.Errorf("the observation is %s", text)
		}
		must(t, f.end())
	})
}

// The error of a provider that cannot be observed is sealed in a plan as well.
func TestWhatAPlanFailsWithIsSealed(t *testing.T) {
	const password = "hunter2hunter2"
	sealer := newSealer(t)
	jobs := sealer.Jobs([]job.Job{withPassword(password)})
	provider := newSimulated()
	failure := errors.New("the token " + password + " is refused")
	provider.observe = func(context.Context, *providers.Observation) (*providers.Observation, error) { return nil, failure }
	planner := NewPlanner(Setup{Files: Files{Jobs: jobs}}, map[string]providers.Provider{"local": provider}, sealer)
	if _, err := planner.Preview(t.Context(), jobtest.Epoch); !errors.Is(err, failure) || strings.Contains(err.Error(), password) {
		t.Errorf("the error is %v", err)
	}
}
