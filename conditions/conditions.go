// Package conditions keeps what holds and somebody should know: a provider that does not answer, a job that cannot be
// prepared, files with errors. A condition is raised, may change, and is cleared; each of the three is reported once, because
// only the Set tells it. The package knows no clock, no sentence and no reader.
package conditions

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Condition is one thing that holds.
type Condition struct {
	About  string     `json:"about"` // "job.gpt", "job.gpt.worker[3]", "provider.local", "files", "store"
	Reason job.Reason `json:"reason"`
	Since  time.Time  `json:"since"`
}

// Key is what a condition is about and why: there is one condition of each.
type Key struct {
	About string
	Code  job.Code
}

func (c *Condition) key() Key { return Key{c.About, c.Reason.Code} }

// Type is what became of a condition.
type Type string

const (
	Raised  Type = "raised"
	Changed Type = "changed"
	Cleared Type = "cleared"
)

// Change is one transition of a condition, to be reported once.
type Change struct {
	Type Type `json:"type"`
	Condition
}

// Set is the conditions that hold. The zero Set holds none.
type Set struct {
	held    map[Key]Condition
	by      map[Key]string // who settles it, of those that somebody does
	changes []Change
}

// Raise says that something holds. A condition that holds already is changed if its reason is another.
func (s *Set) Raise(now time.Time, about string, why job.Reason) {
	key := Key{about, why.Code}
	old, holds := s.held[key]
	switch {
	case !holds:
		if s.held == nil {
			s.held = map[Key]Condition{}
		}
		s.held[key] = Condition{about, why, now}
		s.changes = append(s.changes, Change{Raised, s.held[key]})
	case !old.Reason.Equal(why):
		s.held[key] = Condition{about, why, old.Since}
		s.changes = append(s.changes, Change{Changed, s.held[key]})
	}
}

// Clear says that something no longer holds.
func (s *Set) Clear(about string, code job.Code) {
	key := Key{about, code}
	if old, holds := s.held[key]; holds {
		delete(s.held, key)
		delete(s.by, key)
		s.changes = append(s.changes, Change{Cleared, old})
	}
}

// Settle says all that holds by what one source knows: what it said before and is not among now is cleared.
func (s *Set) Settle(at time.Time, by string, now []Condition) {
	holds := make(map[Key]bool, len(now))
	for i := range now {
		holds[now[i].key()] = true
	}
	for _, c := range s.All() {
		if s.by[c.key()] == by && !holds[c.key()] {
			s.Clear(c.About, c.Reason.Code)
		}
	}
	for i := range now {
		s.Raise(at, now[i].About, now[i].Reason)
		if s.by == nil {
			s.by = map[Key]string{}
		}
		s.by[now[i].key()] = by
	}
}

// Get is the condition of a key, if it holds.
func (s *Set) Get(about string, code job.Code) (Condition, bool) {
	c, holds := s.held[Key{about, code}]
	return c, holds
}

// All are the conditions that hold, sorted by what they are about.
func (s *Set) All() []Condition {
	return slices.SortedFunc(maps.Values(s.held), func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.About, b.About), cmp.Compare(a.Reason.Code, b.Reason.Code))
	})
}

// Changes returns what to report, once.
func (s *Set) Changes() []Change {
	changes := s.changes
	s.changes = nil
	return changes
}

// variable is what of a text changes without being news: which slots, how many, and any number, such as a port or what a
// quota has left.
var variable = regexp.MustCompile(`\[[\d,…-]*\](?: \(\d+ slots\))?|\d+(?:\.\d+)?`)

// Wording is a text without the numbers in it. Two that differ in nothing else are the same news.
func Wording(text string) string { return variable.ReplaceAllString(text, "#") }
