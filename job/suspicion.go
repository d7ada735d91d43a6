package job

import (
	"slices"
	"time"
)

// Suspicion is what detection says of a world's training processes at one moment. It is a fact: the planner decides what follows.
type Suspicion struct {
	Cause      Cause     `json:"cause"`           // Hang, Straggler or Diverged
	Generation int       `json:"generation"`      // of the world
	Slots      []Address `json:"slots"`           // that stand out; those of the world if none does; at most 64
	Ranks      []int     `json:"ranks,omitempty"` // the RANKs of their processes that stand out; none if no process does
	Since      time.Time `json:"since"`           // since when; of a hang, when the last progress was
	// Certain: the evidence is enough to act on. Before that, Due is when it will be if nothing changes; zero if not by itself.
	Certain  bool      `json:"certain,omitempty"`
	Due      time.Time `json:"due,omitzero"`
	Evidence []Reason  `json:"evidence"`
	// Cost is the share of the world's time that a straggler costs, from 0 to 1; 0 if unknown.
	Cost float64 `json:"cost,omitempty"`
}

// Notable is when half of the time has passed until a hang is certain; of one that never is by itself, of the default one. Zero if the
// evidence needed no time.
func (s *Suspicion) Notable() time.Time {
	switch {
	case !s.Due.IsZero():
		return s.Since.Add(s.Due.Sub(s.Since) / 2)
	case s.Certain:
		return time.Time{}
	}
	return s.Since.Add(DefaultHang.Ceiling.Std() / 2)
}

// Of returns the same suspicion with its slots under the given job name.
func (s Suspicion) Of(name string) Suspicion {
	s.Slots = slices.Clone(s.Slots)
	for i := range s.Slots {
		s.Slots[i].Job = name
	}
	return s
}
