package apply

import (
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// A run that does not watch waits briefly for slots that are queued on their infrastructure, and ends once they are stuck.
func TestARunEndsWhenWhatIsQueuedIsStuck(t *testing.T) {
	s := newScenario(t)
	s.do("provider local")
	s.do("run watch", "a worker=2")
	s.do("node local-1 closed")
	s.do("pass 1s")
	p := s.loop.turn.newest
	i := slices.IndexFunc(p.Waits, func(w plan.Wait) bool { return strings.Contains(w.Reasons[0].String(), "Unschedulable: 0/1 nodes") })
	if i < 0 || !p.Waits[i].Passing || p.Waits[i].Reasons[0].Args["slots"] != "worker[0-1]" {
		t.Fatalf("waits: %+v", p.Waits)
	}
	p.Waits = p.Waits[i : i+1]
	if s.loop.end.isSettled(s.loop, &p) {
		t.Error("a run that does not watch gives up what is queued for a second")
	}
	s.do("pass 1h")
	if p := s.loop.turn.newest; !s.loop.end.isSettled(s.loop, &p) {
		t.Errorf("the run never ends: %+v", p.Waits)
	}
}

// A run waits until an incident's other culprits are reported, so that the next run reports only its own faults.
func TestARunDoesNotEndBeforeAllCulpritsAreTold(t *testing.T) {
	s := newScenario(t)
	s.do("provider local")
	s.do("run watch", "a worker=2")
	s.do("pass 1h")
	p := s.loop.turn.newest
	p.Changes = nil
	s.loop.sight.keep(job.Snapshot{}) // its agents have exited
	rec := *p.Records["a"]
	p.Records = job.Records{"a": &rec}
	rec.Phase = job.JobSucceeded
	rec.Incidents = []job.Incident{{Time: s.now, Cause: job.AgentGone, Action: job.Replace, Told: true}}
	if !s.loop.end.isSettled(s.loop, &p) {
		t.Fatal("the run is not settled")
	}
	rec.Incidents[0].Added = s.now
	if s.loop.end.isSettled(s.loop, &p) {
		t.Error("the run is settled though a culprit is still to be reported")
	}
}

// places gives the same answer for each role, and counts the questions.
type places struct {
	fit   job.Fit
	asked int
}

func (p *places) Fit(*job.Role) job.Fit { p.asked++; return p.fit }

// lookingAt is a loop over records that has observed a provider without nodes.
func lookingAt(records job.Records, can job.Capabilities, p *places, jobs ...job.Job) *Loop {
	l := New(jobtest.Epoch, Setup{Files: Files{Jobs: jobs}, Providers: []string{"local"}, State: state.State{Jobs: records}})
	l.sight.see("local", Sight{can, &providers.Observation{Places: p}}, nil)
	return l
}

func TestPlacesAreAskedOncePerRoleInATurn(t *testing.T) {
	a := jobtest.Job("a", jobtest.Role("worker", 2))
	recorded := job.Records{"a": {UID: "u", Spec: a}}
	for what, jobs := range map[string][]job.Job{"declared and recorded": {a}, "recorded only": nil} {
		var p places
		lookingAt(recorded, job.Capabilities{}, &p, jobs...).input()
		if p.asked != 1 {
			t.Errorf("%s: asked %d times", what, p.asked)
		}
	}
}

// A caveat of thousands of roles is reported once, and the provider's own list stays unchanged.
func TestACaveatOfManyRolesIsToldOnce(t *testing.T) {
	own := append(make([]string, 0, 4), "no gangs")
	p := &places{fit: job.Fit{Caveats: []string{"taints are not known", "no gangs", "quotas are not known"}}}
	l := lookingAt(nil, job.Capabilities{Caveats: own}, p,
		jobtest.Job("a", jobtest.Role("worker", 1), jobtest.Role("data", 1)), jobtest.Job("b", jobtest.Role("worker", 1)))
	in := l.input()
	if got, want := in.Capabilities["local"].Caveats, []string{"no gangs", "taints are not known", "quotas are not known"}; !slices.Equal(got, want) {
		t.Errorf("the caveats are %q, want %q", got, want)
	}
	if after := own[:2][1]; after != "" {
		t.Errorf("%q was appended to the provider's own", after)
	}
}

// Ended incarnations are remembered for as long as a provider shows them, so that the service is told once.
func TestWhatEndedIsForgottenOnceNobodyShowsIt(t *testing.T) {
	s := newScenario(t)
	s.do("provider local")
	s.do("run watch", "a worker=2")
	s.do("end worker[0-1]")
	if n := len(s.loop.service.gone); n != 2 {
		t.Fatalf("%d ended incarnations are known", n)
	}
	for _, agent := range s.providers["local"].Agents() {
		agent.Kill() // their successors
	}
	must(t, s.providers["local"].Forget(t.Context(), s.loop.Records()["a"].UID, "a"))
	s.do("wake")
	if n := len(s.loop.service.gone); n != 0 {
		t.Errorf("%d of them are never dropped", n)
	}
}
