package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
)

// saver is a job of one rank that prints its steps: in its first world 495 to 534, with a checkpoint of step 500, later 501 to
// 510, without one. Then it sleeps.
func saver(grace string) string {
	return fmt.Sprintf(`
job "saver" {
  role "worker" {
    command    = ["sh", "-c", <<-EOT
      step=495 last=534
      [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || step=501 last=510
      while [ $step -le $last ]; do
        echo "step $step loss 1"
        [ $step != 500 ] || echo "saved step 500"
        step=$((step + 1))
      done
      exec sleep 600
    EOT
    ]
    stop_grace = %q
    resources { cpu = 1 }
  }
  progress { pattern = "step (?P<step>\\d+) loss" }
  checkpoint {
    dir     = "ckpt"
    pattern = "saved step (?P<step>\\d+)"
  }
  rendezvous { settle = "1s" }
}
`, grace)
}

// A plan shows the cost of a restart in steps while a master runs, even after the world that wrote the checkpoint has ended,
// and after a change of masters. Without a master the plan says that there may be a newer checkpoint.
func TestAPlanTellsFromWhichCheckpointARestartGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, map[string]string{"job.hcl": saver("5s"), "nodes.hcl": site.Nodes("n1")})
	at := func(generation int, step int64) {
		t.Helper()
		s.Of("saver").Await(fmt.Sprintf("step %d in generation %d", step, generation), func(j site.Job) bool {
			return j.Trains(1, generation) && j.Step == step && j.Checkpoint == 500
		})
	}
	// The seconds are not predictable: their rate is that of the whole training, which begins at step 495 here.
	work := func(steps int) string { return fmt.Sprintf(`; recomputed: %d steps( \(\S+ s\))?\.`, steps) }
	restart := func(wanted string) {
		t.Helper()
		out := site.Unwrapped(s.Must("plan", "-replace=job.saver.worker[0]"))
		if !regexp.MustCompile(wanted).MatchString(out) {
			t.Errorf("the plan does not say %q:\n%s", wanted, out)
		}
	}

	m := s.Watch()
	at(1, 534)
	restart(`generation 1\) restarts at step 534, and resumes from the checkpoint of step 500 in ckpt` + work(34))
	text := s.Must("plan", "-markdown", "-replace=job.saver.worker[0]")
	site.Has(t, text, "resumes from the checkpoint of step 500 in ckpt; recomputed: 34 steps")
	site.Has(t, s.Must("status"), "training step 534, checkpoint at step 500")

	s.Write("job.hcl", saver("4s"))
	at(2, 510)
	restart(`generation 2\) restarts at step 510, and resumes from the checkpoint of step 500 in ckpt` + work(10))

	m.Kill()
	restart(`restarts, at step 534 or later, and resumes from the checkpoint of step 500 in ckpt or newer\.`)
	site.Has(t, s.Must("status"), "training checkpoint at step 500")

	s.Watch()
	at(2, 510)
	s.Must("plan", "-replace=job.saver.worker[0]", "-out=plan.bin")
	var p struct {
		Eltrain struct {
			Costs []struct {
				LastStep       int64 `json:"last_step"`
				CheckpointStep int64 `json:"checkpoint_step"`
				StepsAgain     int64 `json:"steps_again"`
			}
		}
	}
	if err := json.Unmarshal([]byte(s.Must("show", "-json", "plan.bin")), &p); err != nil {
		t.Fatal(err)
	}
	if c := p.Eltrain.Costs; len(c) != 1 || c[0].LastStep != 510 || c[0].CheckpointStep != 500 || c[0].StepsAgain != 10 {
		t.Errorf("the saved plan says %+v", c)
	}
}
