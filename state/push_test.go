package state_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/statetest"
)

func TestWhatIsPulledCanBePushed(t *testing.T) {
	s := state.State{}.Next(statetest.Records(3))
	s.Released = map[string]job.Released{"u9": {Name: "old", Provider: "local"}}
	text, err := state.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got, cmpopts.EquateEmpty()); diff != "" || !state.Same(s, got) {
		t.Errorf("(-pulled +pushed):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	whole, err := state.Encode(state.State{}.Next(statetest.Records(2)))
	if err != nil {
		t.Fatal(err)
	}
	edited := func(old, by string) string {
		t.Helper()
		if !strings.Contains(string(whole), old) {
			t.Fatalf("%q is not in the state", old)
		}
		return strings.Replace(string(whole), old, by, 1)
	}
	for name, c := range map[string]struct{ text, why string }{
		"nothing":               {"", "not a state"},
		"cut":                   {string(whole[:len(whole)/2]), "not a state"},
		"more behind":           {string(whole) + "{}", "not a state"},
		"something else":        {`{"resources": []}`, "no version"},
		"a newer format":        {edited(`"version": 2`, `"version": 3`), "newer eltrain"},
		"a typo":                {edited(`"serial"`, `"serail"`), "serail"},
		"no lineage":            {`{"version":1,"serial":1,"jobs":{}}`, "no lineage"},
		"a slot of another job": {edited(`"address": "job.gpt.`, `"address": "job.other.`), "has the slot job.other."},
		"a slot twice":          {edited(`worker[1]"`, `worker[0]"`), "appears twice"},
		"another name":          {edited(`"gpt": {`, `"bert": {`), "the specification of job.gpt"},
	} {
		if _, err := state.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

// The rules are those of Terraform's state push, and so is their wording.
func TestCheckPush(t *testing.T) {
	stored := state.State{}.Next(statetest.Records(1)).Next(statetest.Records(2))
	with := func(edit func(*state.State)) state.State {
		s := stored
		edit(&s)
		return s
	}
	for name, c := range map[string]struct {
		stored, given state.State
		why           string
	}{
		"onto nothing":            {state.State{}, stored, ""},
		"onto one without jobs":   {with(func(s *state.State) { s.Jobs = nil }), with(func(s *state.State) { s.Lineage = "x" }), ""},
		"the same":                {stored, stored, ""},
		"newer":                   {stored, with(func(s *state.State) { s.Serial++; s.Jobs = nil }), ""},
		"older":                   {stored, with(func(s *state.State) { s.Serial-- }), "cannot import state with serial 1 over newer state with serial 2"},
		"as old, and another one": {stored, with(func(s *state.State) { s.Jobs = nil }), "cannot overwrite existing state with serial 2 with a different state that has the same serial"},
		"of another lineage":      {stored, with(func(s *state.State) { s.Lineage, s.Serial = "x", 99 }), `cannot import state with lineage "x" over unrelated state with lineage`},
	} {
		err := state.CheckPush(c.stored, c.given)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

func TestPushedStateFollowsInItsPlace(t *testing.T) {
	stored := state.State{}.Next(statetest.Records(1))
	given := state.State{Version: 1, Lineage: "given", Serial: 1000, Jobs: statetest.Records(2), Released: map[string]job.Released{"u": {Name: "n"}}}
	for _, place := range []state.State{{}, stored} {
		next := state.Pushed(place, given)
		if _, err := state.Accept(place, next, 1); err != nil {
			t.Errorf("no store accepts it: %v", err)
		}
		if !state.Same(next, given) {
			t.Error("it does not have the pushed content")
		}
	}
	if state.Pushed(state.State{}, given).Lineage != "given" || state.Pushed(stored, given).Lineage != stored.Lineage {
		t.Error("a place must keep its lineage, and a new one take the given one's")
	}
}

// A state of version 1 has refused launches in its slots, and no conditions.
func TestAnOlderStateIsRead(t *testing.T) {
	now := state.State{}.Next(statetest.Records(2))
	whole, err := state.Encode(now)
	if err != nil {
		t.Fatal(err)
	}
	older := strings.NewReplacer(`"version": 2`, `"version": 1`, `"incarnation": 2,`, `"incarnation": 2, "refused": "exceeded quota",`).Replace(string(whole))
	got, err := state.Parse([]byte(older))
	if err != nil || got.Version != 1 || len(got.Conditions) != 0 || !state.Same(got, now) {
		t.Fatalf("it is read as %+v, %v", got, err)
	}
	next, err := state.Accept(got, got.Next(got.Jobs), 1)
	if err != nil || next.Version != state.Version {
		t.Errorf("after it is written version %d, %v", next.Version, err)
	}
}
