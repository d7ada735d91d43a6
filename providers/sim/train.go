package sim

import (
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// Training is how fast simulated processes are, if they show steps.
type Training struct {
	Imports time.Duration // from their start until they show their first step
	Step    time.Duration // for each step
	Saves   int64         // steps between checkpoints: the next world resumes from the newest
}

// run is one run of an agent's processes.
type run struct {
	resumed int64     // the step that it continues from
	first   time.Time // when it shows its first step; zero if it shows none
	over    time.Time // when it ended; zero while it runs
	last    int64     // the last step of the run before, which the agent reports until this one shows one
}

// train begins a run, which reports its first step at once, as the real agent does.
func (a *Agent) train() {
	t := a.c.Training
	if t.Step <= 0 || !a.launch.Ranked {
		return
	}
	last, _ := a.step()
	a.run = run{last: last, resumed: a.c.reached[a.launch.UID] / t.Saves * t.Saves, first: a.c.Now().Add(t.Imports)}
	mine := a.run
	a.c.After(t.Imports, func() {
		if a.run == mine {
			a.Progress()
		}
	})
}

// stop ends the run.
func (a *Agent) stop() {
	if a.run.over.IsZero() && !a.run.first.IsZero() {
		a.run.over = a.c.Now()
		if step, shown := a.step(); shown {
			a.c.reached[a.launch.UID] = max(a.c.reached[a.launch.UID], step)
		}
	}
}

// step is the step that the run has shown last.
func (a *Agent) step() (step int64, shown bool) {
	until := a.c.Now()
	for _, stood := range []time.Time{a.run.over, a.hung} {
		if !stood.IsZero() && stood.Before(until) {
			until = stood
		}
	}
	if a.run.first.IsZero() || until.Before(a.run.first) {
		return a.run.last, false
	}
	return a.run.resumed + 1 + int64(until.Sub(a.run.first)/a.c.Training.Step), true
}

// progress enters what the processes have shown in a report. Nothing is entered if simulated processes show no steps.
func (a *Agent) progress(r *elastic.Report) {
	if a.run.first.IsZero() {
		return
	}
	step, shown := a.step()
	r.Step = step
	if !shown {
		r.Ranks = []job.RankReport{{}}
		return
	}
	first, rate := a.run.resumed+1, float64(time.Second)/float64(a.c.Training.Step)
	age := a.c.Now().Sub(a.run.first.Add(time.Duration(step-first) * a.c.Training.Step)).Seconds()
	r.FirstStep, r.StepRate = first, rate
	r.Ranks = []job.RankReport{{Progress: &job.RankProgress{By: job.OwnPattern, Reading: job.Reading{Step: &step}, FirstStep: &first, StepRate: rate, StepAge: &age}}}
}
