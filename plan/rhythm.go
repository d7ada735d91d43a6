package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// overdue is how much longer than expected a change of size waits for a checkpoint.
const overdue = 1.5

// asksForCheckpoints reports whether the job can be asked for a checkpoint before a planned stop: then such a stop redoes no steps.
func (w *work) asksForCheckpoints() bool {
	c := w.spec.Checkpoint
	return c != nil && c.Signal != ""
}

// unsaved is how many steps the job's world has done since the newest checkpoint, and its steps a second; 0 if either is not known.
func (w *work) unsaved() (steps int64, rate float64) {
	shown := w.progress()
	if steps = shown.newest - w.newestSaved().Step; !shown.is || shown.rate <= 0 || steps <= 0 {
		return 0, 0
	}
	return steps, shown.rate
}

// inTime is how long so many steps take.
func inTime(steps int64, rate float64) time.Duration {
	return time.Duration(float64(steps) / rate * float64(time.Second))
}

// keepRhythm records how far apart the checkpoints of an elastic job are that cannot be asked for one. One that comes where it was
// expected is not recorded: a steady state writes nothing.
func (p *pass) keepRhythm(w *work) {
	if w.part != nil || w.asksForCheckpoints() || !w.ranked() || !slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool { return r.Scaling != nil }) {
		return
	}
	was, newest := w.rec.Rhythm, w.newestSaved()
	if newest == (job.Saved{}) || newest == was.Saved {
		return
	}
	now := job.Rhythm{Saved: newest, Steps: was.Steps, Generation: was.Generation}
	if apart := newest.Step - was.Saved.Step; newest.Generation == was.Saved.Generation && apart > 0 {
		if was.Generation == newest.Generation && was.Steps > 0 && apart%was.Steps == 0 && was.Until.IsZero() {
			return
		}
		now.Steps, now.Generation = apart, newest.Generation
	}
	w.rec.Rhythm, p.out.Dirty = now, true
}

// saveDue is until when a change of the size of a job that trains waits for the job's next checkpoint; zero if it does not wait. It
// waits if the checkpoint is expected sooner than it would take to redo the steps since the last one.
func (p *pass) saveDue(w *work) time.Time {
	if p.in.Once || w.asksForCheckpoints() || w.rec.Rhythm.Steps == 0 || !w.whole() {
		return time.Time{}
	}
	newest := w.newestSaved()
	if r := &w.rec.Rhythm; r.Saved == newest && !r.Until.IsZero() {
		if p.in.Now.Before(r.Until) {
			return r.Until
		}
		return time.Time{}
	}
	steps, rate := w.unsaved()
	if due := w.rec.Rhythm.Steps - steps; due > 0 && due < steps {
		return p.in.Now.Add(time.Duration(overdue * float64(inTime(due, rate))))
	}
	return time.Time{}
}

// awaitSave records that a change of size waits for the job's next checkpoint.
func (p *pass) awaitSave(w *work, until time.Time) {
	if r := &w.rec.Rhythm; !r.Until.Equal(until) {
		r.Saved, r.Until = w.newestSaved(), until
		p.out.Dirty = true
	}
	p.wakeAt(until)
}
