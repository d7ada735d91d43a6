package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// redoing trains 40 steps, is killed, and trains 60 from the start: 40 of them again.
const redoing = `job "tiny" {
  role "worker" {
    replicas = 1
    command  = ["sh", "-c", "[ $ELTRAIN_GENERATION = 1 ] && n=40 || n=60; i=0; while [ $i -lt $n ]; do i=$((i+1)); echo step $i loss 0.5; sleep 0.05; done; [ $n = 60 ] || kill -9 $$"]
    resources {
      cpu = 0.1
    }
  }
}
`

// A job that does steps again shows it while it does, and at its end its figures are those of its journal, recomputed.
func TestGoodputIsLiveAndInTheJournal(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": redoing})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	redone, end := false, time.Now().Add(hang.Bound)
	for phase := ""; phase != "Succeeded"; time.Sleep(50 * time.Millisecond) {
		var m struct {
			Jobs []struct {
				Phase      string
				Step       int64
				Generation int
				Goodput    struct {
					Wall       float64 `json:"wall_seconds"`
					Productive float64 `json:"productive_seconds"`
					Unknown    float64 `json:"unknown_seconds"`
					Lost       job.LostTime
				}
			}
		}
		if err := json.Unmarshal([]byte(eltrain(t, dir, "status", "-json").out), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Jobs) == 1 {
			j := &m.Jobs[0]
			phase = j.Phase
			redone = redone || j.Generation == 2 && j.Step < 40 && j.Goodput.Lost.RedoneSteps > 0
			if sum := j.Goodput.Productive + j.Goodput.Unknown + j.Goodput.Lost.Sum(); sum-j.Goodput.Wall > 1e-6 || j.Goodput.Wall-sum > 1e-6 {
				t.Fatalf("the parts sum to %v: %+v", sum, j.Goodput)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("it is %s", phase)
		}
	}
	if !redone {
		t.Error("steps that were done again did not show while they were")
	}

	var s state.State
	if err := json.Unmarshal([]byte(eltrain(t, dir, "state", "pull").out), &s); err != nil {
		t.Fatal(err)
	}
	var entries []goodput.Entry
	r := state.Reader{Dir: filepath.Join(dir, ".eltrain", "journal"), Damaged: func(d state.Damage) { t.Error(d) }}
	err := r.Read(1, func(e state.Entry) error {
		var entry goodput.Entry
		if e.Kind != state.GoodputEntry {
			return nil
		}
		err := json.Unmarshal(e.Data, &entry)
		entries = append(entries, entry)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	recorded := s.Jobs["tiny"].Goodput
	recorded.Saved = job.Saved{}
	want, _ := json.Marshal(recorded)
	if got, _ := json.Marshal(goodput.Recompute(entries)[s.Jobs["tiny"].UID]); string(got) != string(want) {
		t.Errorf("the journal says\n%s, and the state\n%s", got, want)
	}
	if recorded.Lost.RedoneSteps == 0 || recorded.Productive == 0 || recorded.Lost.Restart == 0 {
		t.Errorf("the state has %+v", recorded)
	}
}
