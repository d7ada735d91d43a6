package simulate

import (
	"math"
	"time"

	"github.com/eltrain/eltrain/scaling/model"
)

// Training is how a job trains. The zero value takes a second for each step at any size, and never ends.
type Training struct {
	// Model has the time of a step by size; nil for Step at any size.
	Model *model.Model
	Step  time.Duration // 0 is a second
	// Batch is the work of a step in samples: of each replica, or with Global of all together, which share it. 0 is 1.
	Batch  float64
	Global bool
	// Samples is the work until the job has succeeded; 0 is without end.
	Samples float64
	// Start is how long processes take from their start until they show their first step.
	Start time.Duration
	// Every is the time of training between checkpoints, each of which takes Save. 0 writes none but those that are asked for.
	Every, Save time.Duration
}

// pace is how fast a training is at a size.
type pace struct {
	step  float64 // seconds
	batch float64 // samples in a step
}

// at is the pace with a number of training processes on a number of nodes.
func (t *Training) at(nodes, replicas int) pace {
	batch := t.Batch
	if batch <= 0 {
		batch = 1
	}
	local := batch
	if t.Global {
		local = batch / float64(replicas)
	} else {
		batch *= float64(replicas)
	}
	p := pace{step: t.Step.Seconds(), batch: batch}
	if t.Model != nil {
		p.step = t.Model.Seconds(model.Size{Nodes: min(max(nodes, 1), replicas), Replicas: replicas, LocalBatch: local})
	}
	if p.step <= 0 {
		p.step = 1
	}
	return p
}

// work is how far a training is.
type work struct{ steps, samples float64 }

// run is what a world does.
type run struct {
	generation int
	members    int // that run
	size       int // members of the world
	replicas   int // training processes
	from       work
	pace       pace
	starts     bool      // all of its members have run
	began      time.Time // when its first step began; zero before
	stands     time.Time // since when it makes no steps anymore; zero if it does
	over       bool
}

// active is how much of a time since the first step began is spent on steps, and how much of that is in checkpoints.
func (t *Training) active(elapsed float64) (steps, saved float64) {
	every, save := t.Every.Seconds(), t.Save.Seconds()
	if every <= 0 {
		return elapsed, 0
	}
	cycles := math.Floor(elapsed / (every + save))
	return cycles*every + min(elapsed-cycles*(every+save), every), cycles * every
}

// elapsed is the inverse: how long it takes until so much time was spent on steps. A checkpoint that is due just then is not awaited.
func (t *Training) elapsed(active float64) float64 {
	every := t.Every.Seconds()
	if every <= 0 {
		return active
	}
	return active + max(0, math.Ceil(active/every)-1)*t.Save.Seconds()
}

// reached is how far the run is at a time, and what its newest checkpoint has; false if it has written none.
func (r *run) reached(t *Training, now time.Time) (at, saved work, saves bool) {
	if !r.stands.IsZero() && r.stands.Before(now) {
		now = r.stands
	}
	if r.began.IsZero() || !now.After(r.began) {
		return r.from, r.from, false
	}
	active, kept := t.active(now.Sub(r.began).Seconds())
	at, saved = r.after(active), r.after(kept)
	if t.Samples > 0 {
		at.samples = min(at.samples, t.Samples)
	}
	return at, saved, kept > 0
}

// after is how far it is after some seconds of steps, of which only whole ones count.
func (r *run) after(active float64) work {
	const rounding = 1e-9
	steps := math.Floor(active/r.pace.step + rounding)
	return work{r.from.steps + steps, r.from.samples + steps*r.pace.batch}
}

// left is how long the run takes from its beginning until all is done; false if it never is.
func (r *run) left(t *Training) (time.Duration, bool) {
	if t.Samples <= 0 {
		return 0, false
	}
	steps := math.Ceil(max(0, t.Samples-r.from.samples) / r.pace.batch)
	seconds := t.elapsed(steps * r.pace.step)
	const longest = 1e9
	return time.Duration(min(seconds, longest) * float64(time.Second)), seconds < longest
}

// total is how many steps there are in all at the present size; 0 if there is no end.
func (r *run) total(t *Training) int64 {
	if t.Samples <= 0 {
		return 0
	}
	return int64(r.from.steps + math.Ceil(max(0, t.Samples-r.from.samples)/r.pace.batch))
}
