package elastic

import (
	"time"

	"github.com/eltrain/eltrain/detect"
	"github.com/eltrain/eltrain/job"
)

func hangLimits(w job.Want) detect.Limits {
	hang := w.Hang
	if hang.Floor <= 0 { // of a version without it
		hang = job.DefaultHang
	}
	return detect.Limits{Floor: hang.Floor.Std(), Ceiling: hang.Ceiling.Std()}
}

// detect passes an event to the job's detector, unless suspicions are told.
func (c *Coordinator) detect(now time.Time, j *jobState, e detect.Event) {
	if c.told {
		return
	}
	before := j.detector.Changes()
	j.detector.Step(now, e)
	if now := j.detector.Changes(); now != before {
		c.changes += now - before
		j.observed = nil
	}
	c.tickBy(j.detector.Next())
	if wanted := j.detector.Examine(); wanted != j.examines {
		j.examines = wanted
		c.step(now, j, Examine{wanted}) // never refused
	}
}

// watchWorld tells the job's detector of a world that began or ended to train.
func (c *Coordinator) watchWorld(now time.Time, j *jobState) {
	trains := 0
	if j.rdzv.trains() {
		trains = j.rdzv.World().Generation
	}
	if trains == j.watched {
		return
	}
	j.watched = trains
	if trains == 0 {
		c.detect(now, j, detect.Ended{})
		return
	}
	formed := detect.Formed{Generation: trains, Layout: j.rdzv.want.Layout}
	for _, m := range j.rdzv.World().Members {
		formed.Slots = append(formed.Slots, detect.Slot{Address: m.Slot, Processes: m.Processes})
	}
	c.detect(now, j, formed)
	for _, m := range j.rdzv.World().Members { // of a world that is adopted members have reported already
		if s := j.rdzv.slots[m.Slot]; s != nil && s.present {
			c.watchReport(now, j, m.Slot, &s.report)
		}
	}
}

// watchReport tells the job's detector what a member of the world reports.
func (c *Coordinator) watchReport(now time.Time, j *jobState, slot job.Address, r *Report) {
	if c.told || j.watched == 0 || r.Generation != j.watched || r.State != job.MemberRunning {
		return
	}
	e := detect.Reported{Slot: slot, Saving: r.Saving, Ranks: make([]detect.Rank, min(len(r.Ranks), j.processes(slot)))}
	for i := range e.Ranks {
		e.Ranks[i] = watched(&r.Ranks[i])
		if r.Evidence != nil && i < len(r.Evidence.Ranks) {
			e.Ranks[i].Evidence = &r.Evidence.Ranks[i]
		}
	}
	c.detect(now, j, e)
}

// watched is what a detector is told of a training process.
func watched(r *job.RankReport) (out detect.Rank) {
	if p := r.Progress; p != nil && p.Step != nil && p.StepAge != nil {
		out.Step, out.StepAge, out.Mark = p.Step, seconds(*p.StepAge), p.Mark
		if p.StepInterval != nil {
			out.Interval = seconds(*p.StepInterval)
		}
	}
	p := r.Process
	if p == nil {
		return out
	}
	out.State, out.Channel, out.Busy = p.State, p.WaitChannel, p.Busy
	if p.Age != nil {
		out.Age = seconds(*p.Age)
	}
	if p.StateAge != nil {
		out.StateAge = seconds(*p.StateAge)
	}
	if p.IdleAge != nil {
		out.Idle = new(seconds(*p.IdleAge))
	}
	if p.Looks != nil {
		out.Looks = *p.Looks
	}
	return out
}

// longest bounds ages and intervals, so that no report makes a time overflow.
const longest = 365 * 24 * time.Hour

func seconds(s float64) time.Duration {
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}
