package view

import (
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// What was canceled does not run although it is declared; what has succeeded is as declared.
func TestConclusionOfEndedJobs(t *testing.T) {
	for phase, want := range map[job.JobPhase]string{job.JobCanceled: "see what was canceled", job.JobSucceeded: "matches the configuration"} {
		m := &PlanModel{}
		m.Eltrain.Ended = []EndedJob{{Address: "job.a", Phase: phase}}
		if text := new(planText).conclusion(m, ""); !strings.Contains(text, want) {
			t.Errorf("%s: %q", phase, text)
		}
	}
}
