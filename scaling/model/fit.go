package model

import (
	"math"
	"slices"
)

// The coefficients of a step time, all positive:
//
//	step time   = norm(computation, network)
//	computation = fixed + perSample * batch
//	network     = local + localDoubling * log2(replicas)   if there are several replicas
//	            + cross + crossDoubling * log2(replicas)   if they are on several nodes
//
// norm is the p-norm with p = 1 (the network waits for the computation), 2, or 4 (they overlap nearly completely).
//
// So, whatever is measured, a step is never shorter with more replicas or nodes, and never shorter by more than the batch is smaller.
const (
	fixed = iota
	perSample
	local
	localDoubling
	cross
	crossDoubling
	coefficients
)

type vector [coefficients]float64

type matrix [coefficients]vector

// prior has the medians of the coefficients before anything is measured, in units of a step time at the batch size of that, and the standard
// deviations of their logarithms. It decides as far as measurements do not: with few of them predictions remain possible, and uncertain.
var prior = struct{ median, deviation vector }{
	median:    vector{fixed: 0.2, perSample: 0.4, local: 0.1, localDoubling: 0.02, cross: 0.2, crossDoubling: 0.05},
	deviation: vector{fixed: 1.5, perSample: 1.5, local: 1.5, localDoubling: 1.2, cross: 1.5, crossDoubling: 1.2},
}

var norms = [...]int{1, 2, 4}

const (
	// usualError is how far step times are usually from the form, in logarithms; errorWeight, how many measurements that is worth.
	usualError  = 0.1
	errorWeight = 4
	// outlier is at how many standard deviations off a measurement says no more of the usual error.
	outlier = 4
	// usualSpread is how far a single measurement is from the mean at its size if not even two tell.
	usualSpread = 0.1
	// surest is the least standard deviation of what is known, in logarithms.
	surest = 0.02
	// drift is the standard deviation of the form's own error for each doubling of the replicas beyond what was measured.
	drift = 0.15
	// believed bounds what the measurements at a size do to its prediction, as a factor from what the form says of it.
	believed = 2

	iterations = 40
	damped     = 8 // attempts in each
)

// curve is the form with its coefficients.
type curve struct {
	Norm         int    `json:"norm"`
	Coefficients vector `json:"coefficients"` // in units of Seconds and of Batch
	// Seconds and Batch are the units: medians of what was measured.
	Seconds float64 `json:"seconds"`
	Batch   float64 `json:"batch"`
}

// at returns a step time in units of c.Seconds, and how its logarithm changes with those of the coefficients.
func (c *curve) at(nodes, replicas int, batch float64) (time float64, gradient vector) {
	k := &c.Coefficients
	gradient[fixed], gradient[perSample] = k[fixed], k[perSample]*(batch/c.Batch)
	compute, network := gradient[fixed]+gradient[perSample], 0.0
	if replicas > 1 {
		doublings := math.Log2(float64(replicas))
		gradient[local], gradient[localDoubling] = k[local], k[localDoubling]*doublings
		network = gradient[local] + gradient[localDoubling]
		if nodes > 1 {
			gradient[cross], gradient[crossDoubling] = k[cross], k[crossDoubling]*doublings
			network += gradient[cross] + gradient[crossDoubling]
		}
	}
	var byCompute, byNetwork float64
	switch c.Norm {
	case 1:
		time, byCompute, byNetwork = compute+network, 1, 1
	case 2:
		time = math.Sqrt(compute*compute + network*network)
		byCompute, byNetwork = compute/time, network/time
	default:
		a, b := compute*compute, network*network
		time = math.Sqrt(math.Sqrt(a*a + b*b))
		byCompute, byNetwork = compute/time, network/time
		byCompute, byNetwork = byCompute*byCompute*byCompute, byNetwork*byNetwork*byNetwork
	}
	for i := range gradient {
		if i < local {
			gradient[i] *= byCompute / time
		} else {
			gradient[i] *= byNetwork / time
		}
	}
	return time, gradient
}

// sample is an observation as the fit uses it.
type sample struct {
	nodes, replicas int
	batch           float64
	time            float64 // logarithm, in units of the curve's Seconds
	weight          float64 // by its age
	spread          float64 // variance of the mean, in logarithms
}

// Fit returns a model of the observations; invalid ones are ignored. One that says nothing of a kind of node has none of that kind.
func Fit(observations []Observation) Model {
	var m Model
	for rest := usable(observations); len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Kind == rest[0].Kind {
			n++
		}
		m.Kinds = append(m.Kinds, fitKind(rest[:n]))
		rest = rest[n:]
	}
	return m
}

func fitKind(observations []Observation) kind {
	k := kind{Name: observations[0].Kind}
	units := curve{Seconds: median(observations, func(o Observation) float64 { return o.StepTime }), Batch: median(observations, func(o Observation) float64 { return o.batch() })}
	samples := make([]sample, len(observations))
	newest := observations[0].Last
	for _, o := range observations {
		if o.Last.After(newest) {
			newest = o.Last
		}
	}
	for i, o := range observations {
		s := sample{nodes: o.Nodes, replicas: o.Replicas, batch: o.batch(), time: math.Log(o.StepTime / units.Seconds)}
		s.weight = math.Exp2(-float64(newest.Sub(o.Last)) / float64(HalfLife))
		spread := o.Variance / (o.StepTime * o.StepTime)
		if o.Count < 2 {
			spread = usualSpread * usualSpread
		}
		s.spread = spread / float64(o.Count)
		samples[i] = s
	}
	best := math.Inf(1)
	for _, norm := range norms {
		c := units
		c.Norm = norm
		if cost := c.fit(samples); cost < best {
			best, k.Curve = cost, c
		}
	}
	k.judge(samples)
	k.measured(observations, samples)
	return k
}

// median is of the lower half if there are two.
func median(observations []Observation, of func(Observation) float64) float64 {
	values := make([]float64, len(observations))
	for i, o := range observations {
		values[i] = of(o)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// fit sets the coefficients to those of the least cost, which it returns. It is the method of Levenberg and Marquardt on logarithms of
// times and coefficients. Measurements far off count little, as by a Cauchy distribution.
func (c *curve) fit(samples []sample) float64 {
	var at vector // logarithms, in deviations from the prior
	c.set(at)
	cost := c.cost(samples, at)
	damping := 1e-2
	for range iterations {
		normal, downhill := c.normal(samples, usualError)
		for i := range at {
			downhill[i] -= at[i]
		}
		improved := false
		for range damped {
			lifted := normal
			for i := range lifted {
				lifted[i][i] *= 1 + damping
			}
			triangle := lifted.cholesky()
			step := triangle.solve(downhill)
			next := at
			for i := range next {
				next[i] += min(max(step[i], -1), 1)
			}
			c.set(next)
			if better := c.cost(samples, next); better < cost {
				improved = cost-better > 1e-9*cost
				at, cost = next, better
				damping /= 5
				break
			}
			damping *= 5
		}
		if !improved {
			break
		}
	}
	c.set(at)
	return cost
}

func (c *curve) set(at vector) {
	for i := range at {
		c.Coefficients[i] = prior.median[i] * math.Exp(at[i]*prior.deviation[i])
	}
}

// miss returns by how many standard deviations the curve is off a sample, and how it changes with the coefficients, in the deviations
// of the prior.
func (c *curve) miss(s *sample, deviation float64) (off float64, gradient vector) {
	time, gradient := c.at(s.nodes, s.replicas, s.batch)
	scale := math.Sqrt(s.weight / (deviation*deviation + s.spread))
	for i := range gradient {
		gradient[i] *= scale * prior.deviation[i]
	}
	return scale * (math.Log(time) - s.time), gradient
}

func (c *curve) cost(samples []sample, at vector) (cost float64) {
	for i := range samples {
		off, _ := c.miss(&samples[i], usualError)
		cost += math.Log1p(off * off)
	}
	for _, x := range at {
		cost += x * x
	}
	return cost
}

// normal returns the matrix of the normal equations, with the prior, and their right side, without.
func (c *curve) normal(samples []sample, deviation float64) (m matrix, right vector) {
	for i := range m {
		m[i][i] = 1
	}
	for i := range samples {
		off, gradient := c.miss(&samples[i], deviation)
		robust := 1 / (1 + off*off)
		for j := range gradient {
			g := robust * gradient[j]
			right[j] -= g * off
			for l := range j + 1 {
				m[j][l] += g * gradient[l]
			}
		}
	}
	for j := range m {
		for l := range j {
			m[l][j] = m[j][l]
		}
	}
	return m, right
}

// judge finds out how far off the curve is, and how certain its coefficients are.
func (k *kind) judge(samples []sample) {
	sum, n := float64(errorWeight*usualError*usualError), float64(errorWeight)
	m, _ := k.Curve.normal(samples, usualError)
	inverse := m.inverse()
	// The trace is how many coefficients the samples decide, not the prior.
	free := float64(coefficients)
	for i := range inverse {
		free -= inverse[i][i]
	}
	for i := range samples {
		s := &samples[i]
		off, _ := k.Curve.miss(s, usualError)
		sum += min(off*off, outlier*outlier) * (usualError * usualError)
		n += s.weight
	}
	k.Error = math.Sqrt(sum / max(n-free, errorWeight/2))
	m, _ = k.Curve.normal(samples, k.Error)
	inverse = m.inverse()
	for i := range inverse {
		for j := range inverse[i] {
			k.Covariance[i][j] = inverse[i][j] * prior.deviation[i] * prior.deviation[j]
		}
	}
}

// measured says of each size that was measured what the curve and the measurements say of it together: the surer, the more.
func (k *kind) measured(observations []Observation, samples []sample) {
	k.Points = make([]point, len(samples))
	for i := range samples {
		s, o := &samples[i], &observations[i]
		time, gradient := k.Curve.at(s.nodes, s.replicas, s.batch)
		said := math.Log(time)
		spread := (s.spread + surest*surest) / s.weight
		variance := k.Covariance.along(gradient) + k.Error*k.Error
		share := variance / (variance + spread)
		most := math.Log(believed)
		k.Points[i] = point{
			Nodes: o.Nodes, Replicas: o.Replicas, Batch: s.batch,
			Seconds:   k.Curve.Seconds * math.Exp(said+min(max(share*(s.time-said), -most), most)),
			Deviation: 1 / math.Sqrt(1/variance+1/spread),
		}
	}
}

// cholesky returns the lower triangle of the matrix's Cholesky decomposition. The matrix is positive definite, by the prior.
func (m *matrix) cholesky() (l matrix) {
	for i := range m {
		for j := range i + 1 {
			sum := m[i][j]
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			if i == j {
				l[i][i] = math.Sqrt(max(sum, 1e-12))
			} else {
				l[i][j] = sum / l[j][j]
			}
		}
	}
	return l
}

// solve returns x of l lᵀ x = right.
func (l *matrix) solve(right vector) vector {
	for i := range right {
		for k := range i {
			right[i] -= l[i][k] * right[k]
		}
		right[i] /= l[i][i]
	}
	for i := len(right) - 1; i >= 0; i-- {
		for k := i + 1; k < len(right); k++ {
			right[i] -= l[k][i] * right[k]
		}
		right[i] /= l[i][i]
	}
	return right
}

func (m *matrix) inverse() (inverse matrix) {
	triangle := m.cholesky()
	for i := range inverse {
		var unit vector
		unit[i] = 1
		inverse[i] = triangle.solve(unit)
	}
	return inverse
}

// along returns vᵀ m v of a symmetric matrix.
func (m *matrix) along(v vector) (sum float64) {
	for i := range m {
		row := m[i][i] * v[i]
		for j := range i {
			row += 2 * m[i][j] * v[j]
		}
		sum += row * v[i]
	}
	return sum
}
