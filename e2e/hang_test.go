package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// hangs are the ways to hang of one rank of four, and of all.
var hangs = []struct {
	how    string
	inject func(s *site.Site, victim site.Slot)
	all    bool
	sure   bool // certain by itself, without waiting for the ceiling
}{
	{how: "stopped", sure: true, inject: func(s *site.Site, victim site.Slot) { site.Kill(s.T, syscall.SIGSTOP, s.TrainerOf(victim)) }},
	{how: "block", sure: true},
	{how: "spin"},
	{how: "lock"},
	{how: "wait", all: true},
}

// hangCeiling is short, so that what is not certain by itself is soon.
const hangCeiling = 8 * time.Second

// hanging is a job of a script in testdata, which hangs, or pauses, if that is told or drawn.
func hanging(t *testing.T, script string) *site.Site {
	t.Helper()
	s := newSite(t, map[string]string{"job.hcl": fmt.Sprintf(`
job "h" {
  role "worker" {
    replicas = 4
    command  = ["python3", "train.py"]
    resources { cpu = 0.1 }
  }
  detect {
    hang {
      floor   = "3s"
      ceiling = %q
    }
  }
  rendezvous { settle = "30s" }
}
`, hangCeiling)})
	for name, from := range map[string]string{"train.py": script, "peers.py": "peers.py"} {
		text, err := os.ReadFile(filepath.Join("testdata", from))
		s.OK(err)
		s.Write(name, string(text))
	}
	return s.Of("h")
}

// verdict is what became of one hang.
type verdict struct {
	named, healed time.Duration // after it began, until it was suspected, and until the next world trained
	right         bool          // the culprits are those that hung
	incident      site.Incident
}

func judged(s *site.Site, number, rank int) verdict {
	h := hangs[number]
	s.Watch()
	before := s.Await("training", func(j site.Job) bool { return j.Trains(4, 1) && j.Step > 60 })
	victim := before.Ranked(rank)
	want := []string{victim.Address}
	began := time.Now()
	switch {
	case h.inject != nil:
		h.inject(s, victim)
	case h.all:
		s.Write("fault", "all "+h.how)
		want = nil
		for _, slot := range before.Slots {
			want = append(want, slot.Address)
		}
	default:
		s.Write("fault", fmt.Sprintf("%d %s", rank, h.how))
	}
	var v verdict
	after := s.Await("the next world", func(j site.Job) bool {
		suspected := slices.ContainsFunc(j.ReasonCodes, func(r site.Reason) bool { return r.Code == "suspected_hang" })
		if v.named == 0 && (suspected || len(j.Incidents) > 0) {
			v.named = time.Since(began)
		}
		return j.Trains(4, 2)
	})
	v.healed = time.Since(began)
	v.incident = after.Last()
	culprits := slices.Sorted(slices.Values(v.incident.Culprits))
	v.right = v.incident.Cause == "hang" && slices.Equal(culprits, want)
	return v
}

// Each way to hang is found, its culprit is named, and it is healed in place.
func TestHangsAreHealed(t *testing.T) {
	for number, h := range hangs {
		t.Run(h.how, func(t *testing.T) {
			t.Parallel()
			if !h.sure && h.how != "spin" {
				soak.Only(t)
			}
			s := hanging(t, "hang.py")
			v := judged(s, number, 2)
			if !v.right || v.incident.Action != "restart_in_place" {
				t.Errorf("%+v", v.incident)
			}
		})
	}
}

// TestPausesAreNoHangs trains with evaluations, checkpoints, late data and pauses of up to half the ceiling: for some minutes, or for as
// long as SOAK says, up to half an hour.
func TestPausesAreNoHangs(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	lasts := 3 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("SOAK")); err == nil {
		lasts = min(d, 30*time.Minute)
	}
	s := hanging(t, "phases.py")
	s.Edit("job.hcl", hangCeiling.String(), "10m")
	s.Watch()
	s.Await("training", func(j site.Job) bool { return j.Trains(4, 1) })
	for until := time.Now().Add(lasts); time.Now().Before(until); time.Sleep(time.Second) {
		if j := s.Now(); len(j.Incidents) > 0 || j.Generation > 1 {
			t.Fatalf("%+v", j)
		}
	}
}

// TestRealTraces measures on real processes how often the right culprit is named, and how soon.
func TestRealTraces(t *testing.T) {
	soak.Only(t)
	const rounds = 10
	verdicts := make([][]verdict, len(hangs))
	t.Run("traces", func(t *testing.T) {
		slots := make(chan struct{}, 2)
		for number, h := range hangs {
			verdicts[number] = make([]verdict, rounds)
			for round := range rounds {
				t.Run(fmt.Sprintf("%s %d", h.how, round), func(t *testing.T) {
					t.Parallel()
					slots <- struct{}{}
					defer func() { <-slots }()
					verdicts[number][round] = judged(hanging(t, "hang.py"), number, round%4)
				})
			}
		}
	})
	right, all := 0, 0
	for number, h := range hangs {
		var named, healed []time.Duration
		for _, v := range verdicts[number] {
			all++
			if v.right {
				right++
			} else {
				t.Logf("%s: %s %v %s", h.how, v.incident.Cause, v.incident.Culprits, strings.Join(v.incident.Evidence, "; "))
			}
			named, healed = append(named, v.named), append(healed, v.healed)
		}
		t.Logf("%-8s named after %v, healed after %v (medians)", h.how, middle(named), middle(healed))
	}
	t.Logf("%d of %d right", right, all)
	if share := float64(right) / float64(all); share < 0.97 {
		t.Errorf("the right culprit is named in %.2f of all", share)
	}
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2].Round(10 * time.Millisecond)
}
