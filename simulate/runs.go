package simulate

import (
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// showing is what rank 0 has shown last.
type showing struct {
	generation int
	first      int64 // the first step of that world
	step       int64
	rate       float64   // steps a second
	at         time.Time // when the step ended
}

// joins counts a member that runs in the newest world.
func (j *running) joins(a *agent) {
	if !a.ranked {
		return
	}
	if j.run.generation != a.place.Generation {
		j.run = run{generation: a.place.Generation, size: a.place.GroupSize, replicas: a.place.WorldSize}
	}
	j.run.members++
	if a.place.GroupRank == 0 {
		j.first = a
	}
}

// follow has a world begin to train once all of its members run.
func (j *running) follow() {
	r := &j.run
	if r.starts || r.over || r.size == 0 || r.members < r.size {
		return
	}
	r.starts = true
	j.inRun(j.training.Start, j.begins)
}

// inRun does something after a while, if the world still trains then.
func (j *running) inRun(d time.Duration, do func()) {
	generation := j.run.generation
	j.e.clock.After(d, func() {
		if j.run.generation == generation && !j.run.over && j.run.stands.IsZero() {
			do()
		}
	})
}

// begins has the world train, from the newest checkpoint.
func (j *running) begins() {
	r := &j.run
	nodes := map[string]bool{}
	for _, a := range j.agents {
		if a.ranked && a.state == job.MemberRunning && a.place.Generation == r.generation {
			nodes[a.node] = true
		}
	}
	r.from, r.pace, r.began = j.saved, j.training.at(len(nodes), r.replicas), j.e.clock.Now()
	step := time.Duration(r.pace.step * float64(time.Second))
	j.inRun(step, func() {
		j.shown = showing{generation: r.generation, first: int64(r.from.steps) + 1, rate: 1 / r.pace.step}
		j.first.sync()
		j.e.service.Follow()
	})
	if left, ends := j.run.left(&j.training); ends {
		j.inRun(max(left, step), j.finishes)
	}
}

// trains reports whether a world has shown steps, and goes on.
func (j *running) trains() bool {
	return !j.run.over && !j.run.began.IsZero() && j.shown.generation == j.run.generation
}

// report has the service know how far the training is.
func (e *engine) report(j *running) {
	if j.trains() && j.first.lives() && j.first.state == job.MemberRunning {
		j.first.sync()
		e.service.Follow()
	}
}

// saves has the world write a checkpoint that was asked for, after which it makes no more steps.
func (j *running) saves(a *agent) {
	r := &j.run
	if r.generation != a.place.Generation || r.over || r.began.IsZero() || !r.stands.IsZero() {
		return
	}
	r.stands = j.e.clock.Now()
	j.saved, _, _ = r.reached(&j.training, r.stands)
	j.savedBy = r.generation
}

// leaves ends the training of a world whose member stops, or fails. What came after its newest checkpoint is lost.
func (j *running) leaves(a *agent) {
	r := &j.run
	if !a.ranked || r.generation != a.place.Generation || r.over {
		return
	}
	now := j.e.clock.Now()
	if j.savedBy != r.generation || r.stands.IsZero() { // no checkpoint was asked for
		if _, saved, saves := r.reached(&j.training, now); saves {
			j.saved, j.savedBy = saved, r.generation
		}
	}
	if j.trains() && j.first.lives() && j.first.state == job.MemberRunning {
		j.first.sync() // its agent has read the last step
	}
	if j.trains() {
		j.show(j.first, &elastic.Report{})
	}
	r.over, j.suspicion = true, nil
}

// finishes ends the job: all of its work is done.
func (j *running) finishes() {
	at, _, _ := j.run.reached(&j.training, j.e.clock.Now())
	at.samples = j.training.Samples
	j.saved, j.savedBy = at, j.run.generation
	for _, a := range j.agents {
		if a.lives() && a.ranked && a.state == job.MemberRunning && a.place.Generation == j.run.generation {
			a.acts++
			a.exit = &job.Exit{At: j.e.clock.Now()}
			a.becomes(job.MemberSucceeded)
			if a.lives() {
				j.e.together(j.e.setup.Delays.Stop, "leave", a)
			}
		}
	}
	j.e.service.Follow()
}

// asksForCheckpoints reports whether the job can be asked for a checkpoint.
func (j *running) asksForCheckpoints() bool {
	c := j.arrival.Job.Checkpoint
	return c != nil && c.Signal != ""
}

// show enters what rank 0 has shown in its report.
func (j *running) show(a *agent, r *elastic.Report) {
	s := &j.shown
	if j.savedBy > 0 {
		r.Saved = job.Saved{Step: int64(j.saved.steps), Generation: j.savedBy}
	}
	if s.generation != a.place.Generation {
		r.Step = s.step
		r.Ranks = []job.RankReport{{}}
		return
	}
	now := j.e.clock.Now()
	if j.trains() {
		at, saved, saves := j.run.reached(&j.training, now)
		s.step = max(int64(at.steps), s.first)
		s.at = now
		if saves && j.run.stands.IsZero() {
			r.Saved = job.Saved{Step: int64(saved.steps), Generation: j.run.generation}
		}
	}
	step, first, age := s.step, s.first, now.Sub(s.at).Seconds()
	interval := 1 / s.rate
	p := &job.RankProgress{By: job.OwnPattern, Reading: job.Reading{Step: &step}, FirstStep: &first, StepRate: s.rate, StepInterval: &interval, StepAge: &age}
	if total := j.run.total(&j.training); total > 0 {
		p.Total = &total
	}
	r.Step, r.FirstStep, r.StepRate = step, first, s.rate
	r.Ranks = []job.RankReport{{Progress: p}}
}
