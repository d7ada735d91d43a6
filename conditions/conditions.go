// Package conditions keeps what holds and somebody should know: a provider that does not answer, a job that cannot be
// prepared, files with errors. A condition is raised, may change, and is cleared; each of the three is reported once, because
// only the Set tells it. The package knows no clock, no sentence and no reader.
package conditions

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
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
	// Held: an earlier run has told it, and it holds on.
	Held Type = "held"
)

// Change is one transition of a condition, to be reported once.
type Change struct {
	Type Type `json:"type"`
	Condition
	// Why is why it does not hold any more, where that is known.
	Why job.Reason `json:"why,omitzero"`
}

// Set is the conditions that hold. The zero Set holds none.
type Set struct {
	held    map[Key]Condition
	taken   map[Key]bool // of an earlier run, which this one has not looked at yet
	changes []Change
	edits   int
}

// TakeOver is a set of what an earlier run has told. Each is told again once it is known what became of it: that it is held,
// has changed or is cleared.
func TakeOver(told []Condition) Set {
	s := Set{held: make(map[Key]Condition, len(told)), taken: make(map[Key]bool, len(told))}
	for _, c := range told {
		s.held[c.key()], s.taken[c.key()] = c, true
	}
	return s
}

// Raise says that something holds. What differs in numbers only from what was said of it is no news. With another name in it, as
// of a commit, it is another thing, which holds since now.
func (s *Set) Raise(now time.Time, about string, why job.Reason) {
	key := Key{about, why.Code}
	old, holds := s.held[key]
	tell := func(t Type, c Condition) {
		s.held[key] = c
		s.changes = append(s.changes, Change{Type: t, Condition: c})
	}
	switch {
	case !holds:
		if s.held == nil {
			s.held = map[Key]Condition{}
		}
		tell(Raised, Condition{about, why, now})
	case !Same(old.Reason, why):
		since := old.Since
		if !maps.Equal(named(old.Reason), named(why)) {
			since = now
		}
		tell(Changed, Condition{about, why, since})
	case s.taken[key]:
		tell(Held, Condition{about, why, old.Since})
	case old.Reason.Equal(why):
		return
	default:
		s.held[key] = Condition{about, why, old.Since}
	}
	delete(s.taken, key)
	s.edits++
}

// Clear says that something no longer holds.
func (s *Set) Clear(about string, code job.Code) {
	key := Key{about, code}
	if old, holds := s.held[key]; holds {
		delete(s.held, key)
		delete(s.taken, key)
		s.changes = append(s.changes, Change{Type: Cleared, Condition: old})
		s.edits++
	}
}

// Settle says all that holds of what one source knows: what of it is not among now is cleared.
func (s *Set) Settle(at time.Time, knows func(Key) bool, now []Condition) {
	holds := make(map[Key]bool, len(now))
	for i := range now {
		holds[now[i].key()] = true
	}
	for _, c := range s.All() {
		if key := c.key(); !holds[key] && knows(key) {
			s.Clear(c.About, c.Reason.Code)
		}
	}
	for i := range now {
		s.Raise(at, now[i].About, now[i].Reason)
	}
}

// Get is the condition of a key, if it holds.
func (s *Set) Get(about string, code job.Code) (Condition, bool) {
	c, holds := s.held[Key{about, code}]
	return c, holds
}

// Rename gives jobs other names in what is about them, by the names that they had.
func (s *Set) Rename(names map[string]string) {
	if len(names) == 0 {
		return
	}
	held, taken := make(map[Key]Condition, len(s.held)), map[Key]bool{}
	for key, c := range s.held {
		c.About = renamed(c.About, names)
		if held[c.key()] = c; s.taken[key] {
			taken[c.key()] = true
		}
	}
	s.held, s.taken = held, taken
	s.edits++
}

// Renamed are conditions with other names of jobs in what is about them.
func Renamed(all []Condition, names map[string]string) []Condition {
	out := slices.Clone(all)
	for i := range out {
		out[i].About = renamed(out[i].About, names)
	}
	return out
}

// Job is the job that something is about, "job.gpt" or "job.gpt.worker[3]"; false if it is about something else.
func Job(about string) (name string, is bool) {
	name, is = strings.CutPrefix(about, "job.")
	name, _, _ = strings.Cut(name, ".")
	return name, is
}

func renamed(about string, names map[string]string) string {
	if name, ofJob := Job(about); ofJob && names[name] != "" {
		return "job." + names[name] + strings.TrimPrefix(about, "job."+name)
	}
	return about
}

// Edits is another number once anything about the conditions is.
func (s *Set) Edits() int { return s.edits }

// AnyUnseen reports whether there is any condition of which Unseen is true.
func (s *Set) AnyUnseen() bool { return len(s.taken) > 0 }

// Unseen reports whether a condition was taken over and this run has not looked at it yet.
func (s *Set) Unseen(k Key) bool { return s.taken[k] }

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

// names are the arguments of a reason in which a number is part of a name.
var names = map[string]bool{"commit": true, "in_force": true, "job": true, "role": true, "node": true, "uid": true, "id": true}

func named(r job.Reason) map[string]string {
	args := maps.Clone(r.Args)
	maps.DeleteFunc(args, func(arg string, _ string) bool { return !names[arg] })
	return args
}

// Same reports whether two reasons are the same news: alike but for numbers.
func Same(a, b job.Reason) bool {
	return alike(a, b, func(arg string) bool { return !names[arg] })
}

// Equal reports whether two conditions are the same but for numbers in the words of others: an error may have another port in
// it each time.
func Equal(a, b Condition) bool {
	return a.About == b.About && a.Since.Equal(b.Since) && alike(a.Reason, b.Reason, func(arg string) bool { return arg == "message" })
}

// alike reports whether two reasons are the same but for numbers in some arguments.
func alike(a, b job.Reason, vary func(arg string) bool) bool {
	if a.Code != b.Code || len(a.Args) != len(b.Args) || len(a.Of) != len(b.Of) {
		return false
	}
	for arg, x := range a.Args {
		if y, is := b.Args[arg]; !is || x != y && !(vary(arg) && Wording(x) == Wording(y)) {
			return false
		}
	}
	for i := range a.Of {
		if !alike(a.Of[i], b.Of[i], vary) {
			return false
		}
	}
	return true
}
