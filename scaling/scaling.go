// Package scaling decides about the size of an elastic role: what its policies propose, what of that counts, and what bounds it.
//
// It is a pure function of what is declared, what the policies' sources have said, and what was decided before. Planning again
// after a decision yields the same size: proposals are absolute numbers, relative to the size at which a value was taken.
package scaling

import (
	"math"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Input is what a decision about one role is made from.
type Input struct {
	Now     time.Time
	Scaling *job.Scaling
	Sizes   job.Sizes // legal ones
	// Size is what was decided before, or else what the role has.
	Size   int
	Scaled job.Scaled // what was decided before; zero if nothing was
	// Evaluations are what the sources have said, by time.
	Evaluations []job.Evaluation
	// Growth says what the job's throughput is at other sizes; nil if nothing is known.
	Growth Growth
	// Restart is what a change of the size costs.
	Restart time.Duration
	// SaveDue is until when a change of the size waits for the job's next checkpoint; zero if it does not wait.
	SaveDue time.Time
	// Left is how much longer the training takes at the present size; 0 if unknown. Deadline is when it has to be over; zero if
	// there is none.
	Left     time.Duration
	Deadline time.Time
}

// Growth says how a job's throughput depends on the size of a role.
type Growth interface {
	// Throughput returns that of a size, in any unit that is the same for all sizes.
	Throughput(size int) Throughput
	// Noise returns the gradient noise scale, and the batch of a size, both in samples; 0 if they are not known, or do not matter.
	Noise(size int) (scale, batch float64)
}

// Throughput is that of one size.
type Throughput struct {
	Mean float64 // what is expected; 0 if nothing is known
	High float64 // the most that is credible
	// Measured: the job had this size, or one so close that the expectation is as good.
	Measured bool
}

// Decision is what was decided about one role, and how.
type Decision struct {
	From int `json:"from"`
	// To is the size; 0 if no policy proposes one. The role then has as many slots as there is room for.
	To int `json:"to,omitempty"`
	// Most is the most that efficiency allows; 0 if that does not matter.
	Most      int        `json:"most,omitempty"`
	Proposals []Proposal `json:"proposals,omitempty"` // in the order of the policies
	// By is the policy whose proposal counts, or which caps the role if there is none; "" if none does.
	By string `json:"by,omitempty"`
	// Bounds are what made To differ from what was proposed, in the order in which they did.
	Bounds []job.Reason `json:"bounds,omitempty"`
	// Explores: nothing was measured at Most so far.
	Explores bool `json:"explores,omitempty"`
	// Next is when the decision may be another even if no source says anything new; zero is never.
	Next time.Time `json:"next,omitzero"`
}

// Proposal is what one policy proposes.
type Proposal struct {
	Policy string `json:"policy"`
	// Size is the proposed one. It is 0 if the policy proposes none; Inactive, if that is because of its schedule.
	Size     int  `json:"size,omitempty"`
	Inactive bool `json:"inactive,omitempty"`
	// At is of when the value is.
	At     time.Time  `json:"at,omitzero"`
	Reason job.Reason `json:"reason,omitzero"`
	// Held is why Size is not what follows from the value; zero if it is.
	Held job.Reason `json:"held,omitzero"`

	fails   bool // and so the size stays
	ignored bool // its source has no value
	cap     bool // Size is the most that is allowed
}

// decision is one run of Decide.
type decision struct {
	in  Input
	out Decision
}

// Decide decides about a role's size.
//
// An active schedule decides alone; of two, the later in the file. Otherwise the largest proposal counts, and what the deadline
// needs: a role shrinks only if every policy agrees. A threshold that is not crossed, and a source without a value, propose the
// size as it is. What efficiency allows caps that, then come the bounds.
func Decide(in Input) Decision {
	d := &decision{in: in, out: Decision{From: in.Size}}
	if s := in.Sizes; s.Floor(in.Size) != in.Size { // edited since
		if d.in.Size = s.Ceil(in.Size); d.in.Size == 0 {
			d.in.Size = s.Floor(s.Max)
		}
	}
	switch {
	case in.Scaling.Disabled():
		d.out.To = d.in.Size
		d.bound(job.Because(Disabled))
		return d.out
	case len(in.Scaling.Policies) == 0 && in.Deadline.IsZero():
		return d.out
	}
	proposed, fails := d.propose()
	switch {
	case fails:
		d.out.To = d.in.Size
		d.bound(job.Because(SourceFails))
	case proposed == 0 && d.out.Most > 0 && !in.Scaling.Proposes():
		d.grow()
	case proposed == 0 && in.Scaling.Proposes():
		d.bound(job.Because(NoProposal))
		d.settle(in.Sizes.Max)
	case proposed > 0:
		d.settle(proposed)
	}
	return d.out
}

func (d *decision) bound(why job.Reason) { d.out.Bounds = append(d.out.Bounds, why) }

func (d *decision) wake(at time.Time) {
	if d.out.Next.IsZero() || at.Before(d.out.Next) {
		d.out.Next = at
	}
}

// propose collects what the policies propose. It returns the size that counts, 0 if there is none.
func (d *decision) propose() (size int, fails bool) {
	scheduled := -1 // the policy that decides alone
	ignored := false
	for i := range d.in.Scaling.Policies {
		p := &d.in.Scaling.Policies[i]
		one := Proposal{Policy: p.Name}
		active := d.active(p)
		switch {
		case !active:
			one.Inactive = true
		case p.Strategy == nil:
		case p.Strategy.Kind == job.Efficiency:
			one = d.efficient(p)
		case p.Source == nil:
			one.Size, one.Reason = p.Strategy.Replicas, job.Because(Fixed, "size", strconv.Itoa(p.Strategy.Replicas))
		default:
			one = d.stabilized(p)
		}
		if active && p.Schedule != nil && !one.cap {
			scheduled = i
		}
		d.out.Proposals = append(d.out.Proposals, one)
	}
	for i, one := range d.out.Proposals {
		switch {
		case one.cap:
			if one.Size > 0 && (d.out.Most == 0 || one.Size < d.out.Most) {
				d.out.Most = one.Size
				if size == 0 {
					d.out.By = one.Policy
				}
			}
		case scheduled >= 0 && i != scheduled:
		default:
			ignored = ignored || one.ignored
			if fails = fails || one.fails; one.Size > size {
				size, d.out.By = one.Size, one.Policy
			}
		}
	}
	if scheduled < 0 {
		if needed := d.deadline(); needed > size {
			size, d.out.By = needed, deadlinePolicy
		}
	}
	if size == 0 && ignored { // nobody knows
		size = d.in.Size
	}
	return size, fails
}

// active reports whether a policy is active, by its schedule.
func (d *decision) active(p *job.Policy) bool {
	if p.Schedule == nil {
		return true
	}
	calendar, err := ReadSchedule(p.Schedule)
	if err != nil {
		return false // it was checked when it was declared
	}
	active, until := calendar.At(d.in.Now)
	if !until.IsZero() {
		d.wake(until)
	}
	return active
}

// settle bounds the proposed size. A change makes at least one legal step.
func (d *decision) settle(proposed int) {
	in, sizes, size := &d.in, d.in.Sizes, proposed
	if d.out.Most > 0 && size > d.out.Most {
		size = d.out.Most
		d.bound(job.Because(Capped, "size", strconv.Itoa(size)))
	}
	legal := d.legal(size)
	if most := in.Scaling.MaxScaleUp; most > 0 && legal > in.Size+most {
		if legal = sizes.Floor(in.Size + most); legal <= in.Size {
			legal = sizes.Ceil(in.Size + 1)
		}
		d.bound(job.Because(AtATime, "slots", strconv.Itoa(most), "size", strconv.Itoa(legal)))
	} else if most := in.Scaling.MaxScaleDown; most > 0 && legal < in.Size-most {
		if legal = sizes.Ceil(in.Size - most); legal >= in.Size {
			legal = sizes.Floor(in.Size - 1)
		}
		d.bound(job.Because(AtATime, "slots", strconv.Itoa(most), "size", strconv.Itoa(legal)))
	} else if legal != size {
		d.bound(job.Because(ToLegal, "size", strconv.Itoa(legal)))
	}
	d.change(legal)
}

// grow has a role without proposals grow as far as there is room and efficiency allows.
func (d *decision) grow() {
	most := d.in.Sizes.Floor(d.out.Most)
	if most == 0 {
		most = d.in.Sizes.Least()
	}
	if most != d.in.Size && d.waits(most) {
		most, d.out.Explores = d.in.Size, false
	}
	d.out.Most = most
}

// change takes a size, unless it is too early for one.
func (d *decision) change(size int) {
	if size != d.in.Size && d.waits(size) {
		size = d.in.Size
	}
	d.out.To = size
}

// waits reports whether it is too early, or too late, to change the size.
func (d *decision) waits(size int) bool {
	in := &d.in
	if freeze := in.Scaling.Freeze.Std(); freeze > 0 && in.Left > 0 && in.Left < freeze {
		d.bound(job.Because(Frozen, "left", short(in.Left), "freeze", short(freeze)))
		return true
	}
	pause := in.Scaling.Pace().Up.Std()
	if size < in.Size {
		pause = in.Scaling.Pace().Down.Std()
	}
	if until := in.Scaled.At.Add(max(pause, in.Scaling.Interval())); !in.Scaled.At.IsZero() && in.Now.Before(until) {
		d.bound(job.Because(CoolingDown, "until", until.UTC().Format(time.RFC3339), "size", strconv.Itoa(size)))
		d.wake(until)
		return true
	}
	if until := in.SaveDue; !until.IsZero() {
		d.bound(job.Because(AwaitsSave, "until", until.UTC().Format(time.RFC3339), "size", strconv.Itoa(size)))
		d.wake(until)
		return true
	}
	return false
}

// legal is the smallest legal size that is at least as large, or else the largest. What efficiency allows is not exceeded.
func (d *decision) legal(size int) int {
	sizes := d.in.Sizes
	if d.out.Most > 0 && size >= d.out.Most {
		if n := sizes.Floor(d.out.Most); n > 0 {
			return n
		}
		return sizes.Least()
	}
	if n := sizes.Ceil(size); n > 0 {
		return n
	}
	return sizes.Floor(sizes.Max)
}

// deadline is the smallest size that meets the deadline, a smaller one than the present only with some time to spare; the fastest if
// none does. While it is unknown how long the training takes, it is the size that was decided before.
func (d *decision) deadline() int {
	in := &d.in
	if in.Deadline.IsZero() || in.Size <= 0 {
		return 0
	}
	if in.Left <= 0 {
		if in.Scaled.Size > 0 {
			d.out.Proposals = append(d.out.Proposals, Proposal{Policy: deadlinePolicy, Size: in.Size, Reason: job.Because(TimeUnknown)})
		}
		return in.Scaled.Size
	}
	there := in.Deadline.Sub(in.Now)
	base := float64(in.Size)
	if in.Growth != nil {
		if t := in.Growth.Throughput(in.Size); t.Mean > 0 {
			base = t.Mean
		}
	}
	takes := func(size int) time.Duration {
		speed := float64(size) / float64(in.Size)
		if in.Growth != nil {
			if t := in.Growth.Throughput(size); t.Mean > 0 && base > 0 {
				speed = t.Mean / base
			}
		}
		needed := time.Duration(float64(in.Left) / speed)
		switch {
		case size < in.Size:
			needed += in.Restart + time.Duration(float64(needed)*in.Scaling.Tolerated())
		case size > in.Size:
			needed += in.Restart
		}
		return needed
	}
	best, shortest := 0, time.Duration(math.MaxInt64)
	for size := range in.Sizes.All() {
		needed := takes(size)
		if needed <= there {
			d.out.Proposals = append(d.out.Proposals, Proposal{Policy: deadlinePolicy, Size: size,
				Reason: job.Because(DeadlineNeeds, "left", short(there), "takes", short(needed))})
			return size
		}
		if needed < shortest {
			best, shortest = size, needed
		}
	}
	d.out.Proposals = append(d.out.Proposals, Proposal{Policy: deadlinePolicy, Size: best,
		Reason: job.Because(DeadlineMissed, "left", short(there), "takes", short(shortest))})
	return best
}

// deadlinePolicy names what the job's deadline needs among the proposals. It is no name that a policy may have.
const deadlinePolicy = "deadline"

// short formats a duration to three digits at most.
func short(d time.Duration) string {
	unit := time.Millisecond
	switch {
	case d >= 10*time.Minute:
		unit = time.Minute
	case d >= 10*time.Second:
		unit = time.Second
	case d >= time.Second:
		unit = 100 * time.Millisecond
	}
	return job.Duration(d.Round(unit)).String()
}

// number formats a value to four digits, without an exponent if it is of a usual size.
func number(v float64) string {
	if a := math.Abs(v); a >= 1000 && a < 1e9 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
