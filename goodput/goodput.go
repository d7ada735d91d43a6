// Package goodput accounts for a job's wall time: each moment belongs to one account.
//
// A ledger is stepped with what holds at a time. Moments are divided by when something came about, not by when it was looked at, as
// far as that is known. While a world trains, the time since the ledger's At stays open: a later look may say more about it. So a
// steady job changes nothing, and its figures at any moment are those of Until.
package goodput

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// What a job does as a whole: the values of job.Goodput.Mode.
const (
	Scheduling = "scheduling" // it waits for capacity, or its slots do not run yet
	Rendezvous = "rendezvous" // its slots run, and no world has formed
	Training   = "training"   // a world trains
	Checkpoint = "checkpoint" // a world that was told to stop writes a checkpoint
	Restart    = "restart"    // a world has ended, and the next has not formed
	Suspended  = "suspended"
	Over       = ""

	// productive is what earlier versions call Training.
	productive = "productive"
)

// Facts are what holds of a job at one time.
type Facts struct {
	Mode string `json:"mode"`
	// Generation is that of the newest world, Formed when it formed. A job without worlds has none.
	Generation int       `json:"generation,omitempty"`
	Formed     time.Time `json:"formed,omitzero"`
	// Ended is when the newest world ended, zero if it trains or if that is not known; Succeeded, that it did what it was for.
	Ended     time.Time `json:"ended,omitzero"`
	Succeeded bool      `json:"succeeded,omitempty"`
	// Expected: the world is expected to show steps. Shown: it has, FirstStep as the first, at FirstStepAt, Rate a second.
	Expected    bool      `json:"expected,omitempty"`
	Shown       bool      `json:"shown,omitempty"`
	FirstStep   int64     `json:"first_step,omitempty"`
	FirstStepAt time.Time `json:"first_step_at,omitzero"`
	Rate        float64   `json:"rate,omitempty"`
	// Newest is the highest step that members have shown in the newest world, Before in earlier ones, as far as they still say.
	Newest int64 `json:"newest,omitempty"`
	Before int64 `json:"before,omitempty"`
	// Hang is since when the world makes no progress, zero if it does; HangCertain, that this is more than a suspicion.
	Hang        time.Time `json:"hang,omitzero"`
	HangCertain bool      `json:"hang_certain,omitempty"`
	// Slow is since when stragglers cost the share SlowBy of the world's time.
	Slow   time.Time `json:"slow,omitzero"`
	SlowBy float64   `json:"slow_by,omitempty"`
}

// Differences that are too small to be worth a write of the state: of when a hang began, and of what stragglers cost.
const (
	sameHang = time.Second
	sameCost = 0.05
)

// Step returns the ledger after what holds now, and whether that has to be stored. What has not to be does not change what a later
// Step charges.
func Step(l job.Goodput, now time.Time, f Facts) (next job.Goodput, changed bool) {
	now, f = now.Round(0), f.byWall()
	next = begun(l, now, f)
	if next.Mode != f.Mode || next.Mode == Training && next.Open.Generation != f.Generation {
		next = turned(next, now, f)
	}
	if next.Mode == Training {
		learn(&next, now, f)
	}
	return next, next != l
}

// Until returns the ledger as of now.
func Until(l job.Goodput, now time.Time, f Facts) job.Goodput {
	l, _ = Step(l, now, f)
	return charged(l, now.Round(0), f.byWall())
}

// byWall returns the facts with times that are the same once they are stored: by the wall clock alone.
func (f Facts) byWall() Facts {
	for _, t := range []*time.Time{&f.Formed, &f.Ended, &f.FirstStepAt, &f.Hang, &f.Slow} {
		*t = t.Round(0)
	}
	return f
}

// Trains reports whether the time since the ledger's At is that of a world of this generation. A ledger of an earlier version does
// not say of which.
func Trains(l *job.Goodput, generation int) bool {
	return l.Mode == productive || l.Mode == Training && l.Open.Generation == generation
}

// begun returns a ledger that is new, of an earlier version, or ahead of a clock that was set back, as one that can be continued.
func begun(l job.Goodput, now time.Time, f Facts) job.Goodput {
	switch {
	case l.At.IsZero():
		l.At, l.Mode, l.Open = now, f.Mode, job.WorldSpent{}
		if f.Mode == Training {
			l.Open.Generation = f.Generation
		}
	case l.Mode == productive:
		l.Mode, l.Open = Training, job.WorldSpent{Generation: f.Generation, Shown: f.Newest > 0 || f.Expected, Resumed: f.FirstStep}
		if f.Newest == 0 { // whether steps are done again cannot be told
			l.Open.Passed = l.At
		}
	}
	if ahead := l.At.Sub(now); ahead > 0 {
		for _, t := range []*time.Time{&l.At, &l.Open.FirstStep, &l.Open.Passed, &l.Open.Hang, &l.Open.Slow} {
			if !t.IsZero() {
				*t = t.Add(-ahead)
			}
		}
	}
	return l
}

// turned closes what was, and opens what is.
func turned(l job.Goodput, now time.Time, f Facts) job.Goodput {
	trained, trains := l.Mode == Training, f.Mode == Training
	end := now
	switch {
	case trained && f.Ended.After(l.At) && f.Ended.Before(now): // else it is by a clock that is wrong
		end = f.Ended
	case trains && !f.Formed.IsZero():
		end = f.Formed
	}
	was := f
	if trained && trains { // the end of one and the start of the next are seen together
		was.Newest, was.Rate = f.Before, 0
	}
	l = charged(l, within(end, l.At, now), was)
	if trained {
		l.Reached = max(l.Reached, was.Newest, was.Before)
	}
	if trained && trains {
		l.Mode = Restart
		l = charged(l, within(f.Formed, l.At, now), f)
	}
	l.Mode, l.Open = f.Mode, job.WorldSpent{}
	if trains {
		l.Open.Generation = f.Generation
	}
	return l
}

// learn adds what is known by now of the world that trains.
func learn(l *job.Goodput, now time.Time, f Facts) {
	o := &l.Open
	o.Expected = o.Expected || f.Expected && !o.Shown
	if !o.Shown { // last words of the world before may come after its end
		l.Reached = max(l.Reached, f.Before)
	}
	if f.Shown && o.FirstStep.IsZero() {
		o.Shown, l.Shown = true, true
		o.FirstStep, o.Resumed = f.FirstStepAt, f.FirstStep
		if o.FirstStep.IsZero() {
			o.FirstStep = l.At
		}
		if o.Passed.IsZero() && (l.Reached == 0 || f.Generation == 0 || f.FirstStep > l.Reached) { // nothing is done again
			o.Passed = o.FirstStep
		}
	}
	o.Passed = passed(l, now, f)
	learnHang(l, now, f)
	learnCost(l, now, f)
}

// passed is when the world came past the step that was reached before it; zero if it has not.
func passed(l *job.Goodput, now time.Time, f Facts) time.Time {
	o := &l.Open
	if !o.Passed.IsZero() || !o.Shown || f.Newest <= l.Reached {
		return o.Passed
	}
	again, from := float64(l.Reached-o.Resumed), o.FirstStep
	if from.IsZero() {
		from = l.At
	}
	took := now.Sub(from).Seconds() * again / float64(f.Newest-o.Resumed)
	if f.Rate > 0 {
		took = again / f.Rate
	}
	return within(from.Add(time.Duration(min(took, now.Sub(from).Seconds())*float64(time.Second))), from, now)
}

// DueToPass is when the world is expected to come past the step that was reached before it, which is worth to be looked at; zero if
// it has, or if that cannot be told.
func DueToPass(l job.Goodput, now time.Time, f Facts) time.Time {
	o := &l.Open
	if l.Mode != Training || !o.Shown || !o.Passed.IsZero() || f.Rate <= 0 {
		return time.Time{}
	}
	left := min(float64(l.Reached-f.Newest+1)/f.Rate, mostAhead.Seconds())
	return now.Add(max(time.Duration(left*float64(time.Second)), leastAhead))
}

// How far ahead DueToPass looks: a rate may be so low that the time has no meaning, and an estimate that was too short is not worth
// a look each moment.
const (
	leastAhead = time.Second
	mostAhead  = 24 * time.Hour
)

func learnHang(l *job.Goodput, now time.Time, f Facts) {
	o := &l.Open
	same := f.Hang.IsZero() == o.Hang.IsZero() && f.Hang.Sub(o.Hang).Abs() < sameHang
	switch {
	case same:
	case o.HangCertain: // it went on by itself; what was lost stays lost
		end := now
		if !f.Hang.IsZero() {
			end = within(f.Hang, l.At, now)
		}
		*l = charged(*l, end, f)
		o.Hang, o.HangCertain = f.Hang, false
	default: // of a suspicion that did not come true nothing is kept
		o.Hang = f.Hang
	}
	o.HangCertain = o.HangCertain || f.HangCertain && !o.Hang.IsZero()
}

func learnCost(l *job.Goodput, now time.Time, f Facts) {
	o := &l.Open
	by := min(max(f.SlowBy, 0), 1)
	switch more := by - o.SlowBy; {
	case (by > 0) == (o.SlowBy > 0) && -sameCost < more && more < sameCost:
		return
	case o.SlowBy == 0:
		o.Slow = f.Slow
	default:
		*l = charged(*l, now, f)
		o.Slow = now
	}
	if o.SlowBy = by; by == 0 {
		o.Slow = time.Time{}
	}
}

// charged returns the ledger with the time until end charged.
func charged(l job.Goodput, end time.Time, f Facts) job.Goodput {
	spent := end.Sub(l.At).Seconds()
	if spent <= 0 {
		return l
	}
	switch lost := &l.Lost; l.Mode {
	case Training:
		train(&l, end, f)
	case Scheduling:
		lost.Scheduling += spent
	case Rendezvous:
		lost.Rendezvous += spent
	case Checkpoint:
		lost.Checkpoint += spent
	case Restart:
		lost.Restart += spent
	case Suspended:
		lost.Suspended += spent
	default: // the job is over
		spent = 0
	}
	l.Wall += spent
	l.At = end
	return l
}

// train charges time in which a world trains: until its first step, until it was past what had been done before, until it hung.
func train(l *job.Goodput, end time.Time, f Facts) {
	o := &l.Open
	hang := end
	if !o.Hang.IsZero() {
		hang = within(o.Hang, l.At, end)
	}
	first, past := hang, hang
	if o.Shown {
		first = within(o.FirstStep, l.At, hang)
	}
	if at := passed(l, end, f); o.Shown && !at.IsZero() {
		past = within(at, first, hang)
	}
	slow := hang
	if o.SlowBy > 0 {
		slow = within(o.Slow, past, hang)
	}
	before := first.Sub(l.At).Seconds()
	if o.Shown || o.Expected && !f.Succeeded {
		l.Lost.Start += before
	} else {
		l.Unknown += before
	}
	l.Lost.RedoneSteps += past.Sub(first).Seconds()
	cost := o.SlowBy * hang.Sub(slow).Seconds()
	l.Lost.Straggling += cost
	l.Productive += hang.Sub(past).Seconds() - cost
	l.Lost.Hang += end.Sub(hang).Seconds()
}

// within returns t, or the nearer bound if it is outside.
func within(t, from, to time.Time) time.Time {
	switch {
	case t.Before(from):
		return from
	case t.After(to):
		return to
	}
	return t
}

// Entry is one change of a job's ledger, as the journal keeps it.
type Entry struct {
	Time  time.Time `json:"time"`
	Job   string    `json:"job"`
	UID   string    `json:"uid"`
	Facts Facts     `json:"facts"`
}

// Recompute returns the ledgers of jobs, by UID, from all their entries in order. An entry that is there twice, since the journal's
// answer was lost, counts once. Checkpoints are not part of a ledger's entries.
func Recompute(entries []Entry) map[string]job.Goodput {
	ledgers, known := map[string]job.Goodput{}, make(map[Entry]bool, len(entries))
	for _, e := range entries {
		if !known[e] {
			known[e] = true
			ledgers[e.UID], _ = Step(ledgers[e.UID], e.Time, e.Facts)
		}
	}
	return ledgers
}
