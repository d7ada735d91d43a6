package slots

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// executor runs commands as a slot's index says.
type executor struct {
	providers.Provider
	mu    sync.Mutex
	asked []string
}

func (e *executor) Exec(_ context.Context, uid string, slot job.Address, incarnation int, c providers.Command) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, fmt.Sprintf("%s %s %d %q", uid, slot, incarnation, c.Args))
	switch slot.Index {
	case 0:
		fmt.Fprint(c.Stdout, `[{"name":"python3"}]`)
	case 1:
		fmt.Fprint(c.Stderr, "eltrain-agent: no processes\n")
		return 1, nil
	case 2:
		return 0, providers.ErrNotRunning
	case 3:
		fmt.Fprint(c.Stdout, "[")
	case 5:
		return 137, nil
	}
	return 0, nil
}

// there is a workspace with a renamed job on a provider that runs commands, and one on a provider that does not.
func there() (w *workspace.Workspace, records job.Records, e *executor) {
	e = new(executor)
	at := func(i int, phase job.Phase, incarnation int) job.Slot {
		return job.Slot{Address: job.Address{Job: "a", Role: "w", Index: i}, Phase: phase, Incarnation: incarnation}
	}
	records = job.Records{
		"a": {
			UID: "u", Spec: job.Job{Name: "a", Provider: "able"}, Launched: "before",
			Slots: []job.Slot{at(0, job.Running, 4), at(1, job.Running, 1), at(2, job.Succeeded, 1), at(3, job.Running, 1), at(4, job.Pending, 0), at(5, job.Running, 1)},
		},
		"b": {Spec: job.Job{Name: "b", Provider: "unable"}},
		"c": {Spec: job.Job{Name: "c", Provider: "gone"}},
	}
	return &workspace.Workspace{Providers: map[string]providers.Provider{"able": e, "unable": struct{ providers.Provider }{}}}, records, e
}

func TestNamed(t *testing.T) {
	w, records, e := there()
	for address, want := range map[string]string{
		"job.a.w[0,2]": "", "job.a": "", "job.a.w[7]": "names no slot", "job.b": "runs no commands in slots", "job.c": "is not configured here",
	} {
		sel, err := job.ParseSelector(address)
		if err != nil {
			t.Fatal(err)
		}
		named, err := Named(t.Context(), w, records, sel)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
		for _, slot := range named {
			if !sel.Matches(slot.Address) {
				t.Errorf("%s names %s", address, slot.Address)
			}
		}
	}
	named, err := Named(t.Context(), w, records, job.Selector{Job: "a"})
	if err != nil || len(named) != 6 {
		t.Fatalf("the job has %v, %v", named, err)
	}
	if code, err := named[0].Run(t.Context(), providers.Command{Args: []string{"env"}}); code != 0 || err != nil {
		t.Errorf("it ends with %d, %v", code, err)
	}
	if want := []string{`u job.before.w[0] 4 ["env"]`}; !slices.Equal(e.asked, want) {
		t.Errorf("asked is %q, want %q", e.asked, want)
	}
}

// Slots without stacks are named with the reason, and hold up no others.
func TestStacks(t *testing.T) {
	w, records, _ := there()
	named, err := Named(t.Context(), w, records, job.Selector{Job: "a"})
	if err != nil {
		t.Fatal(err)
	}
	asked := map[job.Address]Slot{}
	for _, slot := range named {
		asked[slot.Address] = slot
	}
	found, unreachable := Stacks(t.Context(), asked)
	if len(found) != 1 || found[0].Slot.Index != 0 || len(found[0].Processes) != 1 {
		t.Errorf("found are %+v", found)
	}
	got := make([]string, len(records["a"].Slots))
	for _, u := range unreachable {
		got[u.Slot.Index] = u.Why
	}
	for i, want := range []string{"", "No processes.", "It is Succeeded: ", "Read the answer: ", "It has not started: it is Pending.", "What was to read them ended with code 137: "} {
		if !strings.HasPrefix(got[i], want) || got[i] == "" && want != "" {
			t.Errorf("slot %d is unreachable because %q, want %q", i, got[i], want)
		}
	}
}
