package apply

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// observer observes the world for the Loop. Sensitive values in observations are replaced by seals; only launches get
// the values.
type observer struct {
	providers map[string]providers.Provider
	sealer    *job.Sealer // nil if nothing is sensitive

	mu     sync.Mutex
	sealed map[string]sealedSight
}

// sealedSight is an observation and its sealed form.
type sealedSight struct{ raw, sealed *providers.Observation }

// observe observes a provider. It returns the same Observation pointer as long as nothing has changed.
func (e *observer) observe(ctx context.Context, name string) (Sight, error) {
	prov := e.providers[name]
	raw, err := prov.Observe(ctx)
	if err != nil {
		return Sight{}, e.sealError(err)
	}
	return Sight{prov.Capabilities(), e.seal(name, raw)}, nil
}

func (e *observer) seal(name string, raw *providers.Observation) *providers.Observation {
	if e.sealer.Idle() {
		return raw
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.sealed[name]; known.raw == raw {
		return known.sealed
	}
	sealed := *raw
	incs := raw.Incarnations.List()
	for i := range incs {
		inc := &incs[i]
		inc.Exit, inc.Evidence, inc.Waiting = e.sealer.Exit(inc.Exit), e.sealer.Texts(inc.Evidence), e.sealer.Text(inc.Waiting)
		inc.Drift = e.sealer.Changes(inc.Drift)
	}
	sealed.Incarnations = job.InParts(incs)
	sealed.Delayed = make(map[string]string, len(raw.Delayed))
	for uid, why := range raw.Delayed {
		sealed.Delayed[uid] = e.sealer.Text(why)
	}
	sealed.Places = openPlaces{raw.Places, e.sealer}
	if e.sealed == nil {
		e.sealed = map[string]sealedSight{}
	}
	e.sealed[name] = sealedSight{raw, &sealed}
	return &sealed
}

// reseal drops sealed observations after the sensitive values have changed.
func (e *observer) reseal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = nil
}

// openPlaces answers questions about sealed roles: it restores their sensitive values first.
type openPlaces struct {
	providers.Places
	sealer *job.Sealer
}

func (p openPlaces) Fit(r *job.Role) job.Fit { return p.Places.Fit(p.sealer.Role(r)) }

// sealFacts seals what processes printed.
func (e *observer) sealFacts(facts map[string]elastic.Facts) map[string]elastic.Facts {
	if e.sealer.Idle() {
		return facts
	}
	sealed := make(map[string]elastic.Facts, len(facts))
	for name, f := range facts {
		if slices.ContainsFunc(f.Members, func(m elastic.MemberFacts) bool { return m.Member.Exit != nil }) {
			f.Members = slices.Clone(f.Members) // facts are shared
			for i := range f.Members {
				m := &f.Members[i].Member
				m.Exit = e.sealer.Exit(m.Exit)
			}
		}
		sealed[name] = f
	}
	return sealed
}

// sealedError is an error with the sensitive values in its text sealed.
type sealedError struct {
	error
	text string
}

func (e sealedError) Error() string { return e.text }
func (e sealedError) Unwrap() error { return e.error }

func (e *observer) sealError(err error) error {
	if err == nil || errors.Is(err, ErrDropped) {
		return err
	}
	if text := e.sealer.Text(err.Error()); text != err.Error() {
		return sealedError{err, text}
	}
	return err
}
