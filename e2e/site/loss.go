package site

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/trainlog"
)

// EventsFile is what the training script writes of each step.
const EventsFile = "events.jsonl"

// Exact: the example's script sums integers, so that its losses do not depend on the world.
const Exact = 0

// Event is a line that the training script writes of what it does.
type Event struct {
	Ev    string  `json:"ev"`
	Step  int     `json:"step"`
	Loss  float64 `json:"loss"`  // of a step
	World int     `json:"world"` // of what began, at Step
}

// Events reads what the script has written, of all its processes.
func (s *Site) Events() []Event {
	s.T.Helper()
	all, err := trainlog.Read[Event](filepath.Join(s.Output, EventsFile))
	s.OK(err)
	return all
}

// Losses are those of the training by step.
func (s *Site) Losses(close float64) map[int]float64 {
	s.T.Helper()
	return losses(s.T, s.Events(), close)
}

// losses gives them by step. Two for one step have to be the same, but for what they may differ by: that is what makes a
// recovery right.
func losses(t *testing.T, events []Event, close float64) map[int]float64 {
	t.Helper()
	found := map[int]float64{}
	for _, event := range events {
		if event.Ev != "step" {
			continue
		}
		if old, known := found[event.Step]; known && math.Abs(old-event.Loss) > close {
			t.Errorf("the loss at step %d is %v and %v", event.Step, old, event.Loss)
		}
		found[event.Step] = event.Loss
	}
	return found
}

// Alone trains with a script by one process, without eltrain, and gives its losses.
func Alone(t *testing.T, python, script string, steps int, close float64) map[int]float64 {
	t.Helper()
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	cmd := exec.Command(python, script, fmt.Sprintf("--steps=%d", steps), "--step-ms=0",
		"--ckpt-dir="+filepath.Join(dir, "ckpt"), "--events="+events)
	cmd.Env = append(os.Environ(), "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the training alone: %v\n%s", err, out)
	}
	all, err := trainlog.Read[Event](events)
	if err != nil {
		t.Fatal(err)
	}
	return losses(t, all, close)
}

var undisturbed struct {
	sync.Mutex
	losses map[int]map[int]float64 // by number of steps
}

// undisturbedLosses are those of an undisturbed run of Script.
func undisturbedLosses(t *testing.T, steps int) map[int]float64 {
	t.Helper()
	undisturbed.Lock()
	defer undisturbed.Unlock()
	if undisturbed.losses == nil {
		undisturbed.losses = map[int]map[int]float64{}
	}
	if undisturbed.losses[steps] == nil {
		undisturbed.losses[steps] = Alone(t, "python3", Script, steps, Exact)
	}
	return undisturbed.losses[steps]
}

// EndsRight waits for the job's success and compares all its losses with those of an undisturbed run of Script.
func (s *Site) EndsRight(steps int) {
	s.T.Helper()
	s.Succeeds()
	want := undisturbedLosses(s.T, steps)
	if got := s.Losses(Exact); !maps.Equal(got, want) {
		s.T.Errorf("the healed run ends with loss %v at step %d, an undisturbed one with %v; they printed %d and %d steps",
			got[steps], steps, want[steps], len(got), len(want))
	}
}

// Step is the last one that the training has told of so far.
func (s *Site) Step() (last int) {
	s.T.Helper()
	for step := range s.Losses(Exact) {
		last = max(last, step)
	}
	return last
}

// Onward is a second of training, and a checkpoint in it.
const Onward = 20

// TrainsOn waits for some more steps.
func (s *Site) TrainsOn() {
	s.T.Helper()
	from := s.Step()
	for wait := (hang.Wait{}); ; time.Sleep(Poll) {
		step := s.Step()
		if step >= from+Onward {
			return
		}
		if wait.Hung(int64(step)) {
			s.T.Fatalf("from step %d it trains on to step %d, and no further in %v", from, step, Bound)
		}
	}
}

// GoesOnRight waits for some more steps of a training that is to have so many, and compares its losses so far with those
// of an undisturbed run of Script: for a job whose end is not worth the wait.
func (s *Site) GoesOnRight(steps int) {
	s.T.Helper()
	s.TrainsOn()
	want := undisturbedLosses(s.T, steps)
	for step, loss := range s.Losses(Exact) {
		if loss != want[step] {
			s.T.Errorf("the healed run has loss %v at step %d, an undisturbed one %v", loss, step, want[step])
		}
	}
}
