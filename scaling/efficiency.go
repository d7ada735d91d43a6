package scaling

import (
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// efficient is the most that a policy of efficiency allows. A size that the role has may be a little less efficient than one that
// it is to get, so that it does not come and go. Sizes that do not pay for the restart are skipped: larger ones may. One size at a time
// of which nothing was measured is tried: the smallest that would pay at perfect scaling, as long as explorations are left.
func (d *decision) efficient(p *job.Policy) Proposal {
	in, s := &d.in, p.Strategy
	out := Proposal{Policy: p.Name, cap: true, Size: in.Size}
	now := d.goodput(in.Size)
	if !now.Measured || now.Mean <= 0 {
		out.Reason = job.Because(NotMeasured, "size", strconv.Itoa(in.Size))
		return out
	}
	base, per := d.perSlot()
	least := s.LeastEfficiency()
	kept := least * (1 - in.Scaling.Tolerated())
	out.Size = in.Sizes.Least()
	enough := now.Mean/float64(in.Size)/per >= least // to try larger sizes
	for size := range in.Sizes.All() {
		t := d.goodput(size)
		share := 0.0
		if t.Mean > 0 {
			share = t.Mean / float64(size) / per
		}
		why := d.limit(size, share, least, now, t)
		switch {
		case size <= base, size <= in.Size && (!t.Measured || share >= kept):
			out.Size = size
			continue
		case size <= in.Size, t.Measured && share < least, !t.Measured && (!enough || t.Mean > 0 && t.High/float64(size)/per < least):
			if out.Reason.IsZero() {
				out.Reason = why
			}
			return out // larger ones are even less efficient
		case t.Measured && d.pays(now.Mean, t.Mean, s.PaysWithin()):
			out.Size, out.Reason = size, job.Reason{}
			continue
		case !t.Measured && out.Size == in.Size && in.Scaled.Explored < in.Scaling.Explorations() && d.pays(now.Mean, now.Mean*float64(size)/float64(in.Size), s.PaysWithin()):
			out.Size, d.out.Explores = size, true
			out.Reason = job.Because(NotMeasured, "size", strconv.Itoa(size))
			return out
		}
		if out.Reason.IsZero() { // a larger one may pay
			out.Reason = why
		}
	}
	if !out.Reason.IsZero() {
		return out
	}
	out.Reason = job.Because(EfficientUpTo, "size", strconv.Itoa(out.Size), "min_efficiency", number(least), "base", strconv.Itoa(base))
	return out
}

// limit is why a size is not used.
func (d *decision) limit(size int, share, least float64, now, then Throughput) job.Reason {
	args := []string{"next", strconv.Itoa(size), "min_efficiency", number(least), "restart", short(d.in.Restart)}
	if then.Mean > 0 {
		args = append(args, "efficiency", number(share), "gain", number(then.Mean/now.Mean-1))
	}
	return job.Because(EfficientUpTo, args...)
}

// perSlot is the smallest size of which something was measured, and what one of its slots yields. The present size is.
func (d *decision) perSlot() (size int, throughput float64) {
	for n := range d.in.Sizes.All() {
		if t := d.goodput(n); t.Measured && t.Mean > 0 {
			return n, t.Mean / float64(n)
		}
	}
	return d.in.Size, d.goodput(d.in.Size).Mean / float64(d.in.Size)
}

// goodput is the throughput of a size times what a sample is worth there, if the job says its gradient noise scale: of two batches the
// larger one needs fewer steps, but more samples, by (scale + batch) / scale (Pollux, OSDI 2021).
func (d *decision) goodput(size int) Throughput {
	if d.in.Growth == nil {
		return Throughput{}
	}
	t := d.in.Growth.Throughput(size)
	if scale, batch := d.in.Growth.Noise(size); scale > 0 {
		worth := scale / (scale + batch)
		t.Mean, t.High = t.Mean*worth, t.High*worth
	}
	return t
}

// pays reports whether the gain of another throughput makes up for the restart in time, and before the training is over.
func (d *decision) pays(now, then float64, within time.Duration) bool {
	if then <= now {
		return false
	}
	if d.in.Left > 0 {
		within = min(within, d.in.Left)
	}
	back := d.in.Restart.Seconds() * now / (then - now)
	return back <= within.Seconds()
}
