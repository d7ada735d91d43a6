// Package conditions keeps conditions that people should know about: a provider that does not answer, a job that cannot be
// prepared, files with errors. A condition is raised, may change, and is cleared; the Set reports each transition once. The
// package has no clock, writes no sentences, and knows none of its readers.
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

// Condition is one condition that holds.
type Condition struct {
	About  string     `json:"about"` // "job.gpt", "job.gpt.worker[3]", "provider.local", "files", "store"
	Reason job.Reason `json:"reason"`
	Since  time.Time  `json:"since"`
}

// Key is the subject of a condition and its reason's code: at most one condition holds per Key.
type Key struct {
	About string
	Code  job.Code
}

// Key returns the key under which a Set has the condition.
func (c *Condition) Key() Key { return Key{c.About, c.Reason.Code} }

// Type is a condition's transition.
type Type string

const (
	Raised  Type = "raised"
	Changed Type = "changed"
	Cleared Type = "cleared"
	// Held: an earlier run has reported it, and it still holds.
	Held Type = "held"
)

// Change is one transition of a condition, to be reported once.
type Change struct {
	Type Type `json:"type"`
	Condition
	// Why is the reason why it no longer holds, if known.
	Why job.Reason `json:"why,omitzero"`
}

// Set is a set of conditions. The zero Set is empty.
type Set struct {
	held    map[Key]Condition
	unseen  map[Key]bool // of an earlier run, not checked by this one yet
	details map[job.Code]bool
	changes []Change
	edits   int
}

// TakeOver returns a Set of the conditions that an earlier run reported. Each is reported again once its outcome is known:
// held, changed or cleared. details are the codes of parts whose change is not reported, such as what a node has free.
func TakeOver(told []Condition, details map[job.Code]bool) Set {
	s := Set{held: make(map[Key]Condition, len(told)), unseen: make(map[Key]bool, len(told)), details: details}
	for _, c := range told {
		s.held[c.Key()], s.unseen[c.Key()] = c, true
	}
	return s
}

// Raise reports that a condition holds. If only numbers or details differ from before, there is no change to report. If a name
// in it differs, such as a commit, it is a change, and its Since starts again.
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
	case !s.Same(old.Reason, why):
		since := old.Since
		if !maps.Equal(named(old.Reason), named(why)) {
			since = now
		}
		tell(Changed, Condition{about, why, since})
	case s.unseen[key]:
		tell(Held, Condition{about, why, old.Since})
	case old.Reason.Equal(why):
		return
	default:
		s.held[key] = Condition{about, why, old.Since}
	}
	delete(s.unseen, key)
	s.edits++
}

// Clear reports that a condition no longer holds.
func (s *Set) Clear(about string, code job.Code) {
	key := Key{about, code}
	if old, holds := s.held[key]; holds {
		delete(s.held, key)
		delete(s.unseen, key)
		s.changes = append(s.changes, Change{Type: Cleared, Condition: old})
		s.edits++
	}
}

// Settle replaces the conditions of one source: those it knows that are not in now are cleared, and those in now are raised.
func (s *Set) Settle(at time.Time, knows func(Key) bool, now []Condition) {
	now = Merge(now)
	holds := make(map[Key]bool, len(now))
	for i := range now {
		holds[now[i].Key()] = true
	}
	for _, c := range s.All() {
		if key := c.Key(); !holds[key] && knows(key) {
			s.Clear(c.About, c.Reason.Code)
		}
	}
	for i := range now {
		s.Raise(at, now[i].About, now[i].Reason)
	}
}

// Merge makes one condition of those with the same key, in the order of their first: its reason has each of theirs once.
func Merge(all []Condition) []Condition {
	var merged []Condition
	at := map[Key]int{} // in merged
	parts := map[Key][]job.Reason{}
	for _, c := range all {
		key := c.Key()
		if _, known := at[key]; !known {
			at[key] = len(merged)
			merged = append(merged, c)
		}
		for _, why := range Reasons(c.Reason) {
			if !slices.ContainsFunc(parts[key], why.Equal) {
				parts[key] = append(parts[key], why)
			}
		}
	}
	for key, of := range parts {
		merged[at[key]].Reason = Combined(of)
	}
	return merged
}

// Combined makes one reason of several, with the code of the first.
func Combined(of []job.Reason) job.Reason {
	if len(of) == 1 {
		return of[0]
	}
	return job.Reason{Code: of[0].Code}.With(of...)
}

// Reasons returns the reasons that Combined has combined.
func Reasons(r job.Reason) []job.Reason {
	if len(r.Args) == 0 && len(r.Of) > 0 && r.Of[0].Code == r.Code {
		return r.Of
	}
	return []job.Reason{r}
}

// Get returns the condition of a key, if it holds.
func (s *Set) Get(about string, code job.Code) (Condition, bool) {
	c, holds := s.held[Key{about, code}]
	return c, holds
}

// Rename renames the jobs that conditions are about. names maps old names to new ones.
func (s *Set) Rename(names map[string]string) {
	if len(names) == 0 {
		return
	}
	held, taken := make(map[Key]Condition, len(s.held)), map[Key]bool{}
	for key, c := range s.held {
		c.About = renamed(c.About, names)
		if held[c.Key()] = c; s.unseen[key] {
			taken[c.Key()] = true
		}
	}
	s.held, s.unseen = held, taken
	s.edits++
}

// Renamed returns conditions with the jobs that they are about renamed.
func Renamed(all []Condition, names map[string]string) []Condition {
	out := slices.Clone(all)
	for i := range out {
		out[i].About = renamed(out[i].About, names)
	}
	return out
}

// Job returns the job that something is about, as in "job.gpt" or "job.gpt.worker[3]"; false if it is about something else.
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

// Edits returns a different number after any change of the conditions.
func (s *Set) Edits() int { return s.edits }

// AnyUnseen reports whether Unseen is true for any condition.
func (s *Set) AnyUnseen() bool { return len(s.unseen) > 0 }

// Unseen reports whether a condition was taken over and not checked by this run yet.
func (s *Set) Unseen(k Key) bool { return s.unseen[k] }

// All returns the conditions that hold, sorted by what they are about.
func (s *Set) All() []Condition {
	return slices.SortedFunc(maps.Values(s.held), func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.About, b.About), cmp.Compare(a.Reason.Code, b.Reason.Code))
	})
}

// Changes returns the changes to report, once.
func (s *Set) Changes() []Change {
	changes := s.changes
	s.changes = nil
	return changes
}

// variable matches the parts of a text whose change is not reported: slots, counts, and any number, such as a port or the rest
// of a quota.
var variable = regexp.MustCompile(`\[[\d,…-]*\](?: \(\d+ slots\))?|\d+(?:\.\d+)?`)

// Wording replaces the numbers in a text. Texts with the same wording are not reported again.
func Wording(text string) string { return variable.ReplaceAllString(text, "#") }

// nameArgs are the arguments of reasons in which a number is part of a name.
var nameArgs = map[string]bool{"commit": true, "in_force": true, "job": true, "role": true, "node": true, "uid": true, "id": true}

func named(r job.Reason) map[string]string {
	args := maps.Clone(r.Args)
	maps.DeleteFunc(args, func(arg string, _ string) bool { return !nameArgs[arg] })
	return args
}

// Same reports whether two reasons differ at most in numbers and details.
func (s *Set) Same(a, b job.Reason) bool {
	return s.alike(a, b, func(arg string) bool { return !nameArgs[arg] })
}

// Equal reports whether two conditions differ at most in details and in the numbers of messages: an error may have another port
// in it each time.
func (s *Set) Equal(a, b Condition) bool {
	return a.About == b.About && a.Since.Equal(b.Since) && s.alike(a.Reason, b.Reason, func(arg string) bool { return arg == "message" })
}

// alike reports whether two reasons differ at most in details and in the numbers of arguments for which vary is true.
func (s *Set) alike(a, b job.Reason, vary func(arg string) bool) bool {
	detail := func(r job.Reason) bool { return s.details[r.Code] }
	a.Of, b.Of = slices.DeleteFunc(slices.Clone(a.Of), detail), slices.DeleteFunc(slices.Clone(b.Of), detail)
	if a.Code != b.Code || len(a.Args) != len(b.Args) || len(a.Of) != len(b.Of) {
		return false
	}
	for arg, x := range a.Args {
		if y, is := b.Args[arg]; !is || x != y && !(vary(arg) && Wording(x) == Wording(y)) {
			return false
		}
	}
	for i := range a.Of {
		if !s.alike(a.Of[i], b.Of[i], vary) {
			return false
		}
	}
	return true
}
