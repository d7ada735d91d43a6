package detect

import (
	"math"
	"time"
)

// Phase is what a world does while it stands still, as far as that shows. Pauses of one phase are alike.
type Phase string

const (
	Start      Phase = "start"      // before its first step
	WarmUp     Phase = "warm_up"    // within its first steps
	Checkpoint Phase = "checkpoint" // a checkpoint was being written
	Evaluation Phase = "evaluation" // some processes work
	Stall      Phase = "stall"      // none works, some read or write
	Rest       Phase = "rest"       // none does anything
)

// pause is the time in which a world stands still.
type pause struct {
	since time.Time // the last progress
	quiet time.Time // since when also no checkpoint has been written
	odd   []int     // the RANKs that differ, where that is what the pause is
	seen  map[Phase]int
	last  Phase
}

// see counts a look.
func (p *pause) see(phase Phase) {
	if p.seen == nil {
		p.seen = map[Phase]int{}
	}
	p.seen[phase]++
	p.last = phase
}

// phase is what it mostly was. A checkpoint makes the whole pause one.
func (p *pause) phase() Phase {
	if p.seen[Checkpoint] > 0 {
		return Checkpoint
	}
	most := p.last
	for phase, n := range p.seen {
		if n > p.seen[most] || n == p.seen[most] && phase < most {
			most = phase
		}
	}
	return most
}

const (
	// enough is how many pauses of a phase have to be known before they say how long one may be, and watched how many times the ceiling
	// worlds have to have trained: what comes less often than that has not been seen.
	enough  = 8
	watched = 8
	// leastFactor times the longest pause is waited at least, and by spreads standard deviations of the pauses' logarithms more: the
	// more they differ, the less the longest one says of the next.
	leastFactor = 3
	spreads     = 3
)

// pauses are what is known of the pauses of one phase: their number, the longest, and mean and squared deviations of the logarithms of
// their seconds (Welford's method).
type pauses struct {
	n            int
	longest      time.Duration
	mean, square float64
}

func (d *Detector) learn(phase Phase, lasted time.Duration) {
	p := d.pauses[phase]
	if p == nil {
		p = &pauses{}
		d.pauses[phase] = p
	}
	p.n++
	p.longest = max(p.longest, lasted)
	x := math.Log(lasted.Seconds())
	delta := x - p.mean
	p.mean += delta / float64(p.n)
	p.square += delta * (x - p.mean)
}

// telling are the pauses of a phase; nil if they do not say how long one may be.
func (d *Detector) telling(phase Phase) *pauses {
	p := d.pauses[phase]
	if p == nil || p.n < enough || d.trained+d.now.Sub(d.formed) < watched*d.limits.Ceiling {
		return nil
	}
	return p
}

// limit is how long a pause of a phase may last; 0 if there is no limit.
func (d *Detector) limit(phase Phase) time.Duration {
	p := d.telling(phase)
	if p == nil {
		return d.limits.Ceiling
	}
	factor := max(leastFactor, math.Exp(spreads*math.Sqrt(p.square/float64(p.n-1))))
	seconds := min(p.longest.Seconds()*factor, math.MaxInt64/float64(2*time.Second))
	limit := max(d.patience(), time.Duration(seconds*float64(time.Second)))
	if c := d.limits.Ceiling; c > 0 {
		limit = min(limit, c)
	}
	return limit
}

// phase is what the world does now.
func (d *Detector) phase() Phase {
	switch {
	case d.shown == 0 && d.paced:
		return Start
	case d.saving():
		return Checkpoint
	case d.shown > 0 && d.steps < warmUp:
		return WarmUp
	}
	phase := Rest
	for _, r := range d.ranks {
		switch d.activityOf(r) {
		case works:
			return Evaluation
		case transfers:
			phase = Stall
		}
	}
	return phase
}
