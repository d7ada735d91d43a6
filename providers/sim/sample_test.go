package sim_test

import (
	"errors"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
)

// errNoSource is what sources other than the training say to some masters.
var errNoSource = errors.New("connection refused")

// sample answers for a source of a scaling policy: as the service knows the training, or a size that each master finds another.
func (m *master) sample(e apply.Sample, done func(any, error)) {
	if e.Source.Kind == job.TrainingSource {
		done(apply.MeasureTraining(m.service.c.Observe()[e.Job], &e.Source))
		return
	}
	epoch := m.lock.Info().Epoch
	if epoch%5 == 4 {
		done(nil, errNoSource)
		return
	}
	done(float64(2+epoch%5), nil)
}
