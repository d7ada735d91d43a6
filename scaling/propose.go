package scaling

import (
	"math"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// stabilized is what a policy with a source proposes: a larger size only if it has proposed that much throughout the window, and
// a smaller one likewise.
func (d *decision) stabilized(p *job.Policy) Proposal {
	in := &d.in
	n := len(in.Evaluations)
	if n == 0 {
		return Proposal{Policy: p.Name, Size: in.Size, Reason: job.Because(NoValueYet)}
	}
	newest := d.proposedAt(p, n-1)
	now := in.Evaluations[n-1].At
	var window time.Duration
	var extreme func(a, b int) int
	switch {
	case newest.Size == 0 || newest.Size == in.Size:
		return newest
	case newest.Size > in.Size:
		window, extreme = in.Scaling.Windows().Up.Std(), func(a, b int) int { return max(min(a, b), in.Size) }
	default:
		window, extreme = in.Scaling.Windows().Down.Std(), func(a, b int) int { return min(max(a, b), in.Size) }
	}
	size, since := newest.Size, now
	covered := window == 0
	for i := n - 2; i >= 0 && !covered; i-- {
		if one := d.proposedAt(p, i); one.Size > 0 {
			size = extreme(size, one.Size)
		}
		since = in.Evaluations[i].At
		covered = now.Sub(since) >= window
	}
	if !covered {
		size = in.Size
	}
	if size != newest.Size {
		newest.Held = job.Because(Stabilizing, "proposed", strconv.Itoa(newest.Size), "window", short(window), "since", since.UTC().Format(time.RFC3339))
		newest.Size = size
	}
	return newest
}

// proposedAt is what a policy with a source proposes by what was said until one evaluation.
func (d *decision) proposedAt(p *job.Policy, i int) Proposal {
	e := &d.in.Evaluations[i]
	out := Proposal{Policy: p.Name, At: e.At, Size: e.Target}
	v := e.Of(p.Name)
	switch fallback := d.in.Scaling.Fallback; {
	case v == nil:
		out.Reason = job.Because(NoValueYet)
		return out
	case v.Absent || v.Error == "" && e.Size == 0 && judgesSize(p.Strategy):
		out.Reason = job.Because(NothingTrains)
		return out
	case v.Error != "" && fallback != nil && v.Failures >= fallback.Failures:
		out.Size = fallback.Replicas
		out.Reason = job.Because(FellBack, "error", v.Error, "failures", strconv.Itoa(v.Failures), "size", strconv.Itoa(out.Size))
		return out
	case v.Error != "":
		out.Reason = job.Because(NoValue, "error", v.Error, "failures", strconv.Itoa(v.Failures))
		out.fails = d.in.Scaling.OnCheckError == job.FailOnError
		if d.in.Scaling.OnCheckError == job.IgnoreOnError {
			out.Size, out.ignored = 0, true
		}
		return out
	}
	switch s := p.Strategy; s.Kind {
	case job.TargetValue:
		out.Size, out.Reason = d.towards(p, i)
	case job.Threshold:
		out.Size, out.Reason = d.threshold(p, i)
	case job.PassThrough:
		value := d.mean(p, i)
		out.Size = whole(value)
		out.Reason = job.Because(Passed, "value", number(value))
	case job.FixedValue:
		out.Size, out.Reason = s.Replicas, job.Because(Fixed, "size", strconv.Itoa(s.Replicas))
	}
	return out
}

// judgesSize reports whether a strategy takes a value for what the slots that train lead to.
func judgesSize(s *job.Strategy) bool { return s.Kind == job.TargetValue || s.Kind == job.Threshold }

// mostSlots bounds what a value can propose: a source may lie.
const mostSlots = 1 << 20

// whole rounds a number of slots up. What is a little above a whole number because of rounding is that number.
func whole(slots float64) int {
	const rounding = 1e-6
	return int(math.Ceil(min(max(slots, 1), mostSlots) - rounding))
}

// mean is the value at an evaluation, over the source's window.
func (d *decision) mean(p *job.Policy, i int) float64 {
	sum, count := 0.0, 0
	d.within(p, i, func(v *job.Value) bool {
		sum, count = sum+v.Value, count+1
		return p.Source.Window > 0
	})
	return sum / float64(count)
}

// within calls do with the values of a policy of the source's window until an evaluation, the newest first, as long as it returns
// true. Those of other sizes do not count.
func (d *decision) within(p *job.Policy, i int, do func(*job.Value) bool) {
	last := &d.in.Evaluations[i]
	for ; i >= 0; i-- {
		e := &d.in.Evaluations[i]
		if e.Target != last.Target || e.Size != last.Size || p.Source.Window > 0 && last.At.Sub(e.At) > p.Source.Window.Std() {
			return
		}
		if v := e.Of(p.Name); v != nil && v.Error == "" && !v.Absent && !do(v) {
			return
		}
	}
}

// towards is the size that leads to the target.
func (d *decision) towards(p *job.Policy, i int) (int, job.Reason) {
	e, target := &d.in.Evaluations[i], *p.Strategy.Target
	value := d.mean(p, i)
	args := []string{"value", number(value), "target", number(target), "slots", strconv.Itoa(e.Size)}
	if math.Abs(value/target-1) <= d.in.Scaling.Tolerated() {
		return e.Target, job.Because(OnTarget, args...)
	}
	why := job.Because(OffTarget, args...)
	switch {
	case !rising(p):
		return whole(float64(e.Size) * value / target), why
	case value <= 0:
		return e.Target, why // nothing follows for any size
	}
	if size := d.measuredFor(e.Size, target/value); size > 0 {
		return size, why
	}
	return whole(float64(e.Size) * target / value), why
}

// measuredFor is the smallest legal size with so many times the throughput of another; 0 if that is unknown.
func (d *decision) measuredFor(size int, factor float64) int {
	if d.in.Growth == nil {
		return 0
	}
	base := d.in.Growth.Throughput(size)
	if base.Mean <= 0 {
		return 0
	}
	largest := 0
	for n := range d.in.Sizes.All() {
		t := d.in.Growth.Throughput(n)
		if t.Mean <= 0 {
			return 0
		}
		if largest = n; t.Mean >= factor*base.Mean*(1-1e-9) {
			return n
		}
	}
	return largest
}

// rising reports whether more slots raise the policy's value.
func rising(p *job.Policy) bool {
	if p.Strategy.Rising != nil {
		return *p.Strategy.Rising
	}
	return p.Source.Kind == job.TrainingSource && job.Rates[p.Source.Metric]
}

// threshold is the size by how many values have crossed the threshold.
func (d *decision) threshold(p *job.Policy, i int) (int, job.Reason) {
	e, s := &d.in.Evaluations[i], p.Strategy
	need, crossed, seen := s.Crossings(), 0, 0
	d.within(p, i, func(v *job.Value) bool {
		if seen++; s.Crossed(v.Value) {
			crossed++
		}
		return p.Source.Window > 0 || seen < need
	})
	args := []string{"value", number(e.Of(p.Name).Value), "crossed", strconv.Itoa(crossed), "within", strconv.Itoa(need)}
	if s.Below != nil {
		args = append(args, "below", number(*s.Below))
	}
	if s.Above != nil {
		args = append(args, "above", number(*s.Above))
	}
	if crossed < need {
		return e.Target, job.Because(NotCrossed, args...)
	}
	from := min(e.Size, e.Target)
	by := float64(s.Delta)
	if s.Percent != 0 {
		by = float64(from) * s.Percent / 100
		by = math.Copysign(math.Ceil(math.Abs(by)-1e-6), by)
	}
	if by > 0 && e.Size < e.Target {
		return e.Target, job.Because(Crossed, args...) // it waits for room
	}
	return max(from+int(by), 1), job.Because(Crossed, args...)
}
