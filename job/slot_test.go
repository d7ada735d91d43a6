package job

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	allPhases = []Phase{Pending, Scheduling, Registered, Running, Suspect, Lost, Failing, Succeeded, Failed, Canceling, Canceled}
	allEvents = []Event{Granted, Register, WorldFormed, WorldBroke, ExitedZero, Fault, BeatsMissed, Heard, LeaseExpired, Retry, GiveUp,
		Evicted, Replaced, Cancel, Stopped}
)

// TestStepTable repeats the slot's life cycle in readable form: all other transitions are rejected.
func TestStepTable(t *testing.T) {
	table := map[Phase]map[Event]Phase{
		Pending:    {Granted: Scheduling, Stopped: Canceled},
		Scheduling: {Register: Registered, Fault: Failing, LeaseExpired: Lost},
		Registered: {WorldFormed: Running, Fault: Failing, BeatsMissed: Suspect},
		Running:    {WorldBroke: Registered, ExitedZero: Succeeded, Fault: Failing, BeatsMissed: Suspect},
		Suspect:    {Heard: Registered, LeaseExpired: Lost, Fault: Failing},
		Lost:       {Fault: Failing},
		Failing:    {Retry: Scheduling, GiveUp: Failed},
		Canceling:  {Stopped: Canceled, Replaced: Scheduling},
		Canceled:   {Granted: Scheduling},
	}
	for _, p := range []Phase{Pending, Scheduling, Registered, Running, Suspect, Lost, Failing} {
		table[p][Cancel], table[p][Evicted], table[p][Replaced] = Canceling, Pending, Scheduling
	}
	for _, p := range allPhases {
		for _, e := range allEvents {
			got, err := p.Step(e)
			want, legal := table[p][e]
			switch {
			case legal && (err != nil || got != want):
				t.Errorf("%s on %q: %s, %v; want %s", p, e, got, err, want)
			case !legal && (err == nil || got != p):
				t.Errorf("%s on %q: %s, %v; want it to be rejected", p, e, got, err)
			}
		}
	}
}

// TestStepWalks checks for any sequence of events that succeeded and failed slots stay so, that a slot is live as long as it
// can be canceled, and that Running is only reached after a registration.
func TestStepWalks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		p, registered := Pending, false
		for range 40 {
			e := allEvents[random.IntN(len(allEvents))]
			next, err := p.Step(e)
			if err != nil {
				continue
			}
			if p == Succeeded || p == Failed {
				t.Fatalf("%s went on to %s on %q", p, next, e)
			}
			switch next {
			case Registered:
				registered = true
			case Scheduling, Pending:
				registered = false
			case Running, Succeeded:
				if !registered {
					t.Fatalf("%s on %q: %s without a registration", p, e, next)
				}
			}
			p = next
		}
		if _, err := p.Step(Cancel); p.Live() && p != Canceling && err != nil {
			t.Fatalf("%s is live and cannot be canceled", p)
		}
	}
}

// States of older versions have a single node to avoid, as a string.
func TestAvoidedOfAnOlderState(t *testing.T) {
	for text, want := range map[string]Avoided{
		`{"avoid":"n1"}`:        {"n1"},
		`{"avoid":["n1","n2"]}`: {"n1", "n2"},
		`{"avoid":""}`:          nil,
		`{"avoid":null}`:        nil,
		`{}`:                    nil,
	} {
		var s Slot
		if err := json.Unmarshal([]byte(text), &s); err != nil || !slices.Equal(s.Avoid, want) {
			t.Errorf("%s: %v, %v", text, s.Avoid, err)
		}
	}
	many := Avoided{}
	for i := range 400 {
		many = many.And(fmt.Sprint("n", i%200))
	}
	if len(many) != 128 || many[0] != "n72" || many.Last() != "n199" {
		t.Errorf("after 400 starts on 200 nodes: %v", many)
	}
}
