package model

import "math"

// Model predicts step times. Its JSON is all that there is of it.
type Model struct {
	Kinds []kind `json:"kinds,omitempty"`
}

// kind is what is known of one kind of node.
type kind struct {
	Name  string `json:"name,omitempty"`
	Curve curve  `json:"curve"`
	// Error is the standard deviation of step times from the curve, Covariance that of the coefficients, both in logarithms.
	Error      float64 `json:"error"`
	Covariance matrix  `json:"covariance"`
	Points     []point `json:"points"` // by replicas, nodes and batch
}

// point is a size that was measured, and what follows for its step time. Deviation is of the logarithm.
type point struct {
	Nodes     int     `json:"nodes"`
	Replicas  int     `json:"replicas"`
	Batch     float64 `json:"batch"`
	Seconds   float64 `json:"seconds"`
	Deviation float64 `json:"deviation"`
}

// Estimate is a figure that is between Low and High with a probability of 90 %.
type Estimate struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// within is the number of standard deviations of an interval of 90 %.
const within = 1.645

// Known reports whether a size was measured, with any batch size.
func (m *Model) Known(s Size) bool {
	if k := m.kind(s.Kind); k != nil {
		for i := range k.Points {
			if p := &k.Points[i]; p.Replicas == s.Replicas && p.Nodes == s.Nodes {
				return true
			}
		}
	}
	return false
}

// StepTime returns the time of a step in seconds; false if nothing was measured on this kind of node, or the size is invalid.
//
// Beyond the sizes that were measured the mean is never below perfect scaling from the nearest of them: with more replicas a step is not
// shorter, with fewer not shorter than in proportion to these; so for the batch. High is at most what there is without any gain from the replicas
// that differ, unless measurements say that it is worse.
func (m *Model) StepTime(s Size) (Estimate, bool) {
	k := m.kind(s.Kind)
	if k == nil || !s.valid() {
		return Estimate{}, false
	}
	p := k.predict(s)
	measurements, coefficients := k.variance(&p)
	factor := math.Exp(within * math.Sqrt(measurements+coefficients))
	near := 1 + within*p.at.Deviation
	return Estimate{Mean: p.seconds, Low: max(p.seconds/factor, p.least/near), High: max(p.seconds, min(p.seconds*factor, p.most*near))}, true
}

// Seconds returns the mean of StepTime at about half the price; 0 if there is none.
func (m *Model) Seconds(s Size) float64 {
	k := m.kind(s.Kind)
	if k == nil || !s.valid() {
		return 0
	}
	p := k.predict(s)
	return p.seconds
}

// Throughput returns the work per second of all replicas, in units of LocalBatch.
func (m *Model) Throughput(s Size) (Estimate, bool) {
	e, ok := m.StepTime(s)
	if !ok {
		return e, false
	}
	work := float64(s.Replicas) * s.batch()
	return Estimate{Mean: work / e.Mean, Low: work / e.High, High: work / e.Low}, true
}

// Efficiency returns the throughput per replica relative to that at the base size, 1 if scaling is perfect. Its interval is narrower than
// that of both throughputs, which err together.
func (m *Model) Efficiency(s, base Size) (Estimate, bool) {
	k, kBase := m.kind(s.Kind), m.kind(base.Kind)
	if k == nil || kBase == nil || !s.valid() || !base.valid() {
		return Estimate{}, false
	}
	p, b := k.predict(s), kBase.predict(base)
	mean := b.seconds / p.seconds * (s.batch() / base.batch())
	if s == base {
		return Estimate{Mean: mean, Low: mean, High: mean}, true
	}
	measurements, coefficients := k.variance(&p)
	baseMeasurements, baseCoefficients := kBase.variance(&b)
	variance := measurements + baseMeasurements
	if k == kBase && !p.measured && !b.measured {
		difference := p.gradient
		for i := range difference {
			difference[i] -= b.gradient[i]
		}
		variance += k.Covariance.along(difference)
	} else {
		variance += coefficients + baseCoefficients
	}
	factor := math.Exp(within * math.Sqrt(variance))
	e := Estimate{Mean: mean, Low: mean / factor, High: mean * factor}
	if s.Kind == base.Kind && s.batch() == base.batch() && s.Replicas > base.Replicas && s.Nodes >= base.Nodes {
		e.High = max(mean, min(e.High, 1))
		e.Low = min(mean, max(e.Low, float64(base.Replicas)/float64(s.Replicas)))
	}
	return e, true
}

// Noise says what a larger batch is worth to a training. Both are in the unit of LocalBatch.
type Noise struct {
	// Scale is the gradient noise scale (McCandlish et al., 2018): the batch size from which on more of it gains little.
	Scale float64 `json:"scale"`
	// BaseBatch is the batch size, of all replicas, with which progress is compared.
	BaseBatch float64 `json:"base_batch"`
}

// StatisticalEfficiency returns the progress per sample with a batch size of all replicas, relative to that with BaseBatch: Pollux's
// (scale + base) / (scale + batch). Without noise scale it is 1.
func (n Noise) StatisticalEfficiency(batch float64) float64 {
	if !(n.Scale >= 0 && n.BaseBatch > 0 && n.Scale+n.BaseBatch <= math.MaxFloat64 && batch > 0) {
		return 1
	}
	return (n.Scale + n.BaseBatch) / (n.Scale + batch)
}

// Goodput returns the throughput times the statistical efficiency: the samples at BaseBatch that make as much progress in a second.
func (m *Model) Goodput(s Size, n Noise) (Estimate, bool) {
	e, ok := m.Throughput(s)
	if !ok {
		return e, false
	}
	worth := n.StatisticalEfficiency(float64(s.Replicas) * s.batch())
	return Estimate{Mean: e.Mean * worth, Low: e.Low * worth, High: e.High * worth}, true
}

func (m *Model) kind(name string) *kind {
	for i := range m.Kinds {
		if m.Kinds[i].Name == name && len(m.Kinds[i].Points) > 0 {
			return &m.Kinds[i]
		}
	}
	return nil
}

// prediction is of a step time.
type prediction struct {
	seconds  float64
	at       *point // the nearest measured size
	measured bool   // it is this one
	between  bool   // it is between measured sizes
	more     float64
	gradient vector
	// least and most bound what is possible, from the nearest measured size.
	least, most float64
}

func (k *kind) predict(s Size) (p prediction) {
	p.most = math.Inf(1)
	p.at, p.between = k.nearest(s)
	if p.at.Replicas == s.Replicas && p.at.Nodes == s.Nodes && p.at.Batch == s.batch() {
		p.seconds, p.measured = p.at.Seconds, true
		return p
	}
	time, gradient := k.Curve.at(s.Nodes, s.Replicas, s.batch())
	p.gradient = gradient
	p.more = float64(s.Replicas) / float64(p.at.Replicas)
	if larger := s.batch() / p.at.Batch; !p.between {
		p.most = p.at.Seconds * max(1, p.more) * max(1, larger)
		if s.Nodes > 1 || p.at.Nodes == 1 { // without the network between nodes it can be better than that
			p.least = p.at.Seconds * min(1, p.more) * min(1, larger)
		}
	}
	p.seconds = max(time*k.Curve.Seconds, p.least)
	return p
}

// variance returns that of the prediction's logarithm in two parts: of the measurements, and of the coefficients.
func (k *kind) variance(p *prediction) (measurements, coefficients float64) {
	if p.measured {
		return p.at.Deviation * p.at.Deviation, 0
	}
	far := drift * math.Log2(p.more)
	return k.Error*k.Error + far*far, k.Covariance.along(p.gradient)
}

// nearest returns the measured size that is nearest by the ratio of replicas, and of those the nearest by batch and nodes; and whether
// there are such with fewer and with more replicas, but none with as many.
func (k *kind) nearest(s Size) (found *point, between bool) {
	from := 0
	for from < len(k.Points) && k.Points[from].Replicas < s.Replicas {
		from++
	}
	between = from > 0 && from < len(k.Points) && k.Points[from].Replicas > s.Replicas
	if from == len(k.Points) || from > 0 && s.Replicas*s.Replicas < k.Points[from].Replicas*k.Points[from-1].Replicas {
		from--
		for from > 0 && k.Points[from-1].Replicas == k.Points[from].Replicas {
			from--
		}
	}
	apart, batch := math.Inf(1), s.batch()
	for i := from; i < len(k.Points) && k.Points[i].Replicas == k.Points[from].Replicas; i++ {
		p := &k.Points[i]
		if far := math.Abs(p.Batch - batch); far < apart || far == apart && p.Nodes == s.Nodes {
			found, apart = p, far
		}
	}
	return found, between
}
