// Package model predicts how long a training job's step takes at a size, from what was measured at the sizes that the job has had, and
// says how far the prediction can be trusted. docs/decisions.md compares its form with others.
//
// It knows nothing of jobs, plans and clocks. All functions are pure, and the order of observations does not matter: the same binary
// computes the same bits. Other architectures may differ in the last digits, since Go fuses multiplications and additions there.
package model

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Size is what a step time depends on.
type Size struct {
	// Kind is the kind of node. Kinds have nothing in common.
	Kind     string `json:"kind,omitempty"`
	Nodes    int    `json:"nodes"`
	Replicas int    `json:"replicas"`
	// LocalBatch is the work of one replica in one step, in samples or tokens. If it is not known, 0 stands for 1: then all replicas are
	// taken to do the same work at each size.
	LocalBatch float64 `json:"local_batch,omitempty"`
}

// Observation is what was measured at one size, in bounded memory.
type Observation struct {
	Size
	// Count is the number of measurements, StepTime their mean in seconds, Variance their variance in s². Count is at most MaxCount: from
	// there on a new measurement has the weight 1/MaxCount, so older ones fade.
	Count    int     `json:"count"`
	StepTime float64 `json:"step_time"`
	Variance float64 `json:"variance,omitempty"`
	// Last is when the newest was made. The weight of an observation halves with each HalfLife that it is older than the newest
	// of its kind of node.
	Last time.Time `json:"last,omitzero"`
}

const (
	MaxCount        = 256                // see Observation
	MaxObservations = 64                 // of each kind of node: the oldest are forgotten
	HalfLife        = 7 * 24 * time.Hour // see Observation

	// Step times outside of these, in seconds, are ignored.
	minStepTime, maxStepTime = 1e-6, 7 * 24 * 3600

	// farthest is by which factor a measurement can differ from the mean of earlier ones at its size. If it differs more, it is taken to
	// differ by that, once there are settled measurements.
	farthest = 4
	settled  = 4
)

func (s Size) batch() float64 {
	if s.LocalBatch == 0 {
		return 1
	}
	return s.LocalBatch
}

func (s Size) valid() bool {
	return s.Replicas >= 1 && s.Replicas <= 1e8 && s.Nodes >= 1 && s.Nodes <= s.Replicas && s.LocalBatch >= 0 && s.LocalBatch <= 1e12
}

func (s Size) compare(t Size) int {
	return cmp.Or(cmp.Compare(s.Kind, t.Kind), cmp.Compare(s.Replicas, t.Replicas), cmp.Compare(s.Nodes, t.Nodes), cmp.Compare(s.batch(), t.batch()))
}

// possible reports whether a step can take so long. No comparison is true of NaN.
func possible(seconds float64) bool { return seconds >= minStepTime && seconds <= maxStepTime }

func (o Observation) valid() bool { return o.Size.valid() && possible(o.StepTime) && o.Count >= 1 }

// Observe returns the observations, in the order of their sizes, with one more measurement of a step time in seconds. What cannot
// be is ignored: sizes and times that are not positive, NaN, infinite.
func Observe(observations []Observation, size Size, seconds float64, at time.Time) []Observation {
	if !size.valid() || !possible(seconds) {
		return observations
	}
	next := slices.Clone(observations)
	i, found := slices.BinarySearchFunc(next, size, func(o Observation, s Size) int { return o.compare(s) })
	if !found {
		next = slices.Insert(next, i, Observation{Size: size})
	}
	next[i].add(seconds, at)
	if !found {
		next = forget(next, size.Kind)
	}
	return next
}

// add is Welford's method.
func (o *Observation) add(seconds float64, at time.Time) {
	if o.Count >= settled {
		seconds = min(max(seconds, o.StepTime/farthest), o.StepTime*farthest)
	}
	n := float64(o.Count)
	share := 1 / (n + 1)
	d := seconds - o.StepTime
	o.StepTime += d * share
	o.Variance = (o.Variance + d*d*share) * (1 - share)
	o.Count = min(o.Count+1, MaxCount)
	if at.After(o.Last) {
		o.Last = at
	}
}

// forget drops the oldest observation of a kind of node if there are too many of that.
func forget(observations []Observation, kind string) []Observation {
	n, oldest := 0, -1
	for i, o := range observations {
		if o.Kind == kind {
			n++
			if oldest < 0 || o.Last.Before(observations[oldest].Last) {
				oldest = i
			}
		}
	}
	if n <= MaxObservations {
		return observations
	}
	return slices.Delete(observations, oldest, oldest+1)
}

// together returns what two observations of one size say.
func together(a, b Observation) Observation {
	n := float64(a.Count) + float64(b.Count)
	share := float64(b.Count) / n
	d := b.StepTime - a.StepTime
	a.Variance = a.Variance*(1-share) + b.Variance*share + d*d*share*(1-share)
	a.StepTime += d * share
	a.Count = min(int(n), MaxCount)
	if b.Last.After(a.Last) {
		a.Last = b.Last
	}
	return a
}

// usable returns the valid observations by size, one of each size.
func usable(observations []Observation) []Observation {
	found := slices.DeleteFunc(slices.Clone(observations), func(o Observation) bool { return !o.valid() })
	slices.SortFunc(found, func(a, b Observation) int {
		return cmp.Or(a.compare(b.Size), a.Last.Compare(b.Last), cmp.Compare(a.Count, b.Count), cmp.Compare(a.StepTime, b.StepTime), cmp.Compare(a.Variance, b.Variance))
	})
	kept := found[:0]
	for _, o := range found {
		if !(o.Variance >= 0 && o.Variance <= math.MaxFloat32) {
			o.Variance = 0
		}
		if n := len(kept); n > 0 && kept[n-1].compare(o.Size) == 0 {
			kept[n-1] = together(kept[n-1], o)
		} else {
			kept = append(kept, o)
		}
	}
	return kept
}
