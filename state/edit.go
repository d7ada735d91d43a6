package state

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// Move returns the next state, in which a job has another name.
func (s State) Move(from, to string) (State, error) {
	moved, err := s.Jobs.Move(from, to)
	if err != nil {
		return s, err
	}
	next := s.Next(moved)
	next.Conditions = conditions.Renamed(s.Conditions, map[string]string{from: to})
	return next, nil
}

// Forget returns the next state, without what selectors match, and what that is. A job's conditions go with it; that it was released
// stays, because its slots may run.
func (s State) Forget(sels []job.Selector) (State, job.Forgotten) {
	left, gone := s.Jobs.Forget(sels)
	next := s.Next(left)
	next.Conditions = slices.DeleteFunc(slices.Clone(s.Conditions), func(c conditions.Condition) bool {
		name, ofJob := conditions.Job(c.About)
		return ofJob && slices.Contains(gone.Jobs, name)
	})
	next.Released = maps.Clone(s.Released)
	if next.Released == nil {
		next.Released = map[string]job.Released{}
	}
	maps.Copy(next.Released, gone.Released)
	return next, gone
}
