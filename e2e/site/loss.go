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

// EventsFile is where the training script writes a line for each step.
const EventsFile = "events.jsonl"

// Exact is the tolerance for the example's script, which sums integers: its losses do not depend on the world.
const Exact = 0

// Event is a line that the training script writes.
type Event struct {
	Ev    string  `json:"ev"`
	Step  int     `json:"step"`
	Loss  float64 `json:"loss"`  // for a step
	World int     `json:"world"` // for a process that began at Step
}

// Events reads what all the script's processes have written.
func (s *Site) Events() []Event {
	s.T.Helper()
	all, err := trainlog.Read[Event](filepath.Join(s.Output, EventsFile))
	s.OK(err)
	return all
}

// Losses returns the training's losses by step. Losses of a repeated step may differ by close.
func (s *Site) Losses(close float64) map[int]float64 {
	s.T.Helper()
	return losses(s.T, s.Events(), close)
}

// losses returns the losses by step. If a step was repeated, its losses must be within close: otherwise the recovery was
// wrong.
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

// Alone runs a script in one process, without eltrain, and returns its losses.
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

// undisturbedLosses returns the losses of an undisturbed run of Script.
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

// Step returns the last step that the training has reported so far.
func (s *Site) Step() (last int) {
	s.T.Helper()
	for step := range s.Losses(Exact) {
		last = max(last, step)
	}
	return last
}

// ProgressSteps is the steps in about a second of training, which include a checkpoint.
const ProgressSteps = 20

// MakesProgress waits for ProgressSteps more steps.
func (s *Site) MakesProgress() {
	s.T.Helper()
	from := s.Step()
	for wait := (hang.Wait{}); ; time.Sleep(Poll) {
		step := s.Step()
		if step >= from+ProgressSteps {
			return
		}
		if wait.Hung(int64(step)) {
			s.T.Fatalf("from step %d it trains on to step %d, and no further in %v", from, step, Bound)
		}
	}
}

// ContinuesRight waits for ProgressSteps more steps and compares the losses so far with those of an undisturbed run of Script. steps is
// the training's length. It is for a job whose end is not worth the wait.
func (s *Site) ContinuesRight(steps int) {
	s.T.Helper()
	s.MakesProgress()
	want := undisturbedLosses(s.T, steps)
	for step, loss := range s.Losses(Exact) {
		if loss != want[step] {
			s.T.Errorf("the healed run has loss %v at step %d, an undisturbed one %v", loss, step, want[step])
		}
	}
}
