package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/goodput"
	"github.com/eltrain/eltrain/job"
)

// account steps the job's goodput ledger.
func (p *pass) account(w *work) {
	f := w.standing(p.in.Snapshot.Suspicions[w.name])
	if f.Mode != goodput.Training || !goodput.Trains(&w.rec.Goodput, f.Generation) {
		p.keepSaved(w)
	}
	p.keepRhythm(w)
	next, changed := goodput.Step(w.rec.Goodput, p.in.Now, f)
	if changed {
		w.rec.Goodput = next
		p.out.Dirty = true
		p.out.Ledger = append(p.out.Ledger, goodput.Entry{Time: p.in.Now, Job: w.name, UID: w.rec.UID, Facts: f})
	}
	if due := goodput.DueToPass(next, p.in.Now, f); !due.IsZero() {
		p.wakeAt(due)
	}
}

// Goodput returns the ledgers of recorded jobs as of now, by job name: with what a snapshot says of those that are not over.
func Goodput(records job.Records, s *job.Snapshot, now time.Time) map[string]job.Goodput {
	seen := map[job.Address][]*job.Incarnation{}
	for inc := range s.Incarnations.All() {
		if rec := records[inc.Slot.Job]; rec != nil && rec.UID == inc.UID {
			seen[inc.Slot] = append(seen[inc.Slot], inc)
		}
	}
	ledgers := make(map[string]job.Goodput, len(records))
	for name, rec := range records {
		if rec.Phase.Ended() {
			ledgers[name] = rec.Goodput
			continue
		}
		w := &work{name: name, spec: &rec.Spec, rec: rec, world: rec.World, seen: seen}
		if world, ok := s.Worlds[name]; ok && world.Generation >= rec.World.Generation {
			w.world = world
		}
		for i := range rec.Slots {
			w.slots = append(w.slots, &rec.Slots[i])
		}
		ledgers[name] = goodput.Until(rec.Goodput, now, w.standing(s.Suspicions[name]))
	}
	return ledgers
}

// standing is what holds of the job, for its ledger.
func (w *work) standing(suspicions []job.Suspicion) goodput.Facts {
	f := goodput.Facts{Mode: w.mode(), Generation: w.world.Generation, Formed: w.world.Formed}
	shown := w.progress()
	f.Shown, f.FirstStep, f.Rate, f.Newest, f.Before = shown.is, shown.first, shown.rate, shown.newest, shown.before
	switch {
	case f.Mode != goodput.Training:
		f.Ended, f.Succeeded = w.worldEnd(), w.rec.Phase == job.JobSucceeded
		return f
	case !w.ranked():
		f.Generation, f.Formed = 0, time.Time{}
		return f
	}
	f.Expected, f.FirstStepAt = w.expectsSteps(), w.world.FirstStep
	for i := range suspicions {
		s := &suspicions[i]
		switch {
		case s.Generation != w.world.Generation:
		case s.Cause == job.Hang && (f.Hang.IsZero() || s.Since.Before(f.Hang)):
			f.Hang, f.HangCertain = s.Since, s.Certain
		case s.Cause == job.Straggler && s.Cost > f.SlowBy: // the others wait for the slowest
			f.Slow, f.SlowBy = s.Since, s.Cost
		}
	}
	return f
}

// mode is what the job does as a whole.
func (w *work) mode() string {
	trains := !w.ranked() || w.world.Generation > 0 && !w.world.Broken
	switch w.rec.Phase {
	case job.JobPending:
		return goodput.Scheduling
	case job.JobSuspended:
		return goodput.Suspended
	case job.JobStarting:
		switch {
		case w.ranked() && trains:
			return goodput.Training // it has not shown a step yet, or trains with fewer slots than it should have
		case slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Scheduling }):
			return goodput.Scheduling
		}
		return goodput.Rendezvous
	case job.JobRunning, job.JobDegraded:
		switch {
		case trains && (w.ranked() || w.rec.Phase == job.JobRunning):
			return goodput.Training
		case w.saves():
			return goodput.Checkpoint
		case w.rec.Phase == job.JobDegraded && slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return holds(s) && s.Phase == job.Pending }):
			return goodput.Scheduling
		}
		return goodput.Restart
	}
	return goodput.Over
}

// saves reports whether members of a world that was told to end still run, to write the checkpoint that they were asked for.
func (w *work) saves() bool {
	if !w.asksForCheckpoints() || !w.world.Broken || w.world.Ordered.IsZero() {
		return false
	}
	return slices.ContainsFunc(w.world.Members, func(m job.WorldMember) bool {
		return slices.ContainsFunc(w.seen[m.Slot], func(inc *job.Incarnation) bool {
			return inc.Number == m.Incarnation && inc.Member != nil && inc.Member.State == job.MemberRunning && inc.Member.Generation == w.world.Generation
		})
	})
}

// worldEnd is when the job stopped training, where that is known: for a job that succeeded, when the last slot did, by its host's
// clock; else the first exit among this pass's faults, or when the service told its members to stop. It is zero if unknown.
func (w *work) worldEnd() (end time.Time) {
	if w.rec.Phase != job.JobSucceeded {
		end = w.world.Ordered
		for _, f := range w.faults {
			if !f.At.IsZero() && (end.IsZero() || f.At.Before(end)) {
				end = f.At
			}
		}
		return end
	}
	for _, s := range w.slots {
		exit := w.exitOf(s)
		switch {
		case s.Phase != job.Succeeded:
			continue
		case exit == nil || exit.At.IsZero():
			return time.Time{}
		case exit.At.After(end):
			end = exit.At
		}
	}
	return end
}

// exitOf is how the slot's incarnation exited, according to its agent or else its provider; nil if unknown.
func (w *work) exitOf(s *job.Slot) *job.Exit {
	inc := w.current(s)
	switch {
	case inc == nil:
		return nil
	case inc.Member != nil && inc.Member.Exit != nil:
		return inc.Member.Exit
	}
	return inc.Exit
}

// shown is what members have shown of their progress.
type shown struct {
	is     bool    // a step in the newest world
	first  int64   // the first of these, as the member that is furthest says
	rate   float64 // its steps a second
	newest int64   // the highest of these
	before int64   // the highest in an earlier world
}

// progress is what members of the world have shown; of a job without worlds, its members.
func (w *work) progress() (all shown) {
	ranked := w.ranked()
	for _, s := range w.slots {
		if r := w.spec.Role(s.Address.Role); ranked && (r == nil || !r.Ranked) {
			continue
		}
		for _, inc := range w.seen[s.Address] {
			m := inc.Member
			if m == nil {
				continue
			}
			first, showed := m.Showed()
			if !showed || ranked && m.Generation != w.world.Generation {
				all.before = max(all.before, m.Step) // which agents keep
				continue
			}
			if !all.is || m.Step > all.newest {
				all.newest, all.first, all.rate = m.Step, first, m.StepRate
			}
			all.is = true
		}
	}
	return all
}

// expectsSteps reports whether a world of the job is expected to show steps: the job says how they are read, or an earlier world did.
func (w *work) expectsSteps() bool {
	p := w.spec.Progress
	return p != nil && (p.Pattern != "" || p.Recognizers != "") || w.rec.Goodput.Shown || w.rec.Goodput.Reached > 0
}

// firstStepDue is what the job waits for if its world has formed and has not shown a step; zero if nothing is to be waited for. A
// world that the job has been Running with needs to show none.
func (w *work) firstStepDue() job.Reason {
	formed := w.ranked() && w.world.Generation > 0 && !w.world.Broken
	ran := w.rec.Phase == job.JobRunning && goodput.Trains(&w.rec.Goodput, w.world.Generation)
	if !formed || ran || !w.world.FirstStep.IsZero() || !w.expectsSteps() || len(w.finished) > 0 {
		return job.Reason{}
	}
	return job.Because(FirstStepDue, "generation", strconv.Itoa(w.world.Generation))
}
