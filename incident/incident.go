// Package incident says what faults mean together: Step folds the faults of slots into the incidents of their job, and Causes is
// the table of causes, with what is done about each.
//
// It is pure: it uses no clock, and time is an argument. It must not know how slots are placed or restarted.
package incident

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Fault is something wrong with one slot, with its evidence.
type Fault struct {
	job.SlotFault
	Generation int // of the world that it broke; 0 if none
	Evidence   []job.Reason
	Early      bool // before its agent had registered
	Reported   bool // nothing is done about it
}

// Log is what a job's record keeps of its incidents. Step replaces its slices: they may be shared with the record.
type Log struct {
	Incidents []job.Incident // oldest first
	Charges   []time.Time    // of the budget, oldest first
}

// Context is what faults are judged by, besides each other.
type Context struct {
	Now     time.Time
	Heal    *job.Heal
	Formed  time.Time     // when the newest world was
	Timeout time.Duration // of a rendezvous
	// CannotStart reports whether a slot's node could not start its agent, and it has not been started since.
	CannotStart func(job.Address) bool
}

// Step adds faults. Those of one world are one incident, whatever order they come in, and at once or not; it is charged at most
// once. It returns the slots whose faults are explained by others'.
func (l *Log) Step(c Context, faults []Fault) (cascade []job.Address) {
	if len(faults) == 0 {
		return nil
	}
	l.Incidents = slices.Clone(l.Incidents)
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return compare(a.SlotFault, b.SlotFault) })
	for len(faults) > 0 {
		at, first := l.find(c, faults[0]), faults[0]
		if at < 0 {
			fresh := job.Incident{Time: c.Now, Generation: first.Generation, Cause: first.Cause}
			if first.Reported {
				fresh.Action = job.Report
			}
			l.Add(fresh)
			at = len(l.Incidents) - 1
		}
		var here, rest []Fault
		for i, f := range faults {
			if i == 0 || f.Generation > 0 && sameWorld(&l.Incidents[at], f) {
				here = append(here, f)
			} else {
				rest = append(rest, f)
			}
		}
		faults = rest
		before := &l.Incidents[at]
		after, echoes := fold(*before, here)
		l.charge(c, before, &after)
		tell(c.Now, before, &after)
		*before = after
		cascade = append(cascade, slices.DeleteFunc(echoes, func(a job.Address) bool { return l.faultySince(at, a) })...)
	}
	return cascade
}

// faultySince reports whether a slot has a fault in an incident after the one at an index.
func (l *Log) faultySince(at int, a job.Address) bool {
	return slices.ContainsFunc(l.Incidents[at+1:], func(i job.Incident) bool { return slices.Contains(i.Culprits, a) })
}

// Add adds an incident.
func (l *Log) Add(i job.Incident) {
	l.Incidents = append(l.Incidents, i)
	l.Incidents = l.Incidents[max(0, len(l.Incidents)-job.MaxIncidents):]
}

// find returns the index of the incident that a fault belongs to; -1 if it begins one. A fault that concerns no world belongs to
// the newest incident if that has the same cause, in the same pass or the same round of starts.
func (l *Log) find(c Context, f Fault) int {
	n := len(l.Incidents) - 1
	if f.Generation > 0 {
		for n >= 0 && !sameWorld(&l.Incidents[n], f) {
			n--
		}
		return n
	}
	for n >= 0 && l.Incidents[n].Action == job.Report {
		n--
	}
	if n < 0 {
		return -1
	}
	if i := &l.Incidents[n]; i.Generation > 0 || i.Cause != f.Cause || !i.Time.Equal(c.Now) && !sameRound(c, i, f) {
		return -1
	}
	return n
}

// sameWorld reports whether a fault of a world belongs to an incident of that world. What is only reported explains no other fault.
func sameWorld(i *job.Incident, f Fault) bool {
	return i.Generation == f.Generation && (i.Action == job.Report) == f.Reported && (!f.Reported || i.Cause == f.Cause)
}

// sameRound reports whether a failed start belongs to the round of an incident. For node failures, that is while one of them
// continues. For failures that are charged, it is as long as a rendezvous may take; a second failure of the same slot begins a new
// round, so that a slot that never comes up spends the budget.
func sameRound(c Context, i *job.Incident, f Fault) bool {
	if !f.Early || c.Formed.After(i.Time) {
		return false
	}
	if Of(f.Cause).Budgeted {
		return c.Now.Sub(i.Time) < c.Timeout && !slices.Contains(i.Culprits, f.Slot)
	}
	return f.Cause == job.NodeFailed && slices.ContainsFunc(i.Culprits, c.CannotStart)
}

// fold returns an incident with further faults. Of all that it ever had, it keeps the initiating ones; of the others, the slots.
//
// The heaviest fault decides: what it explains is a cascade. If even that one may be the echo of another, only the first by the
// hosts' clocks is initiating. A slot counts by its heaviest fault. So the outcome depends on the set of faults alone.
func fold(i job.Incident, faults []Fault) (job.Incident, []job.Address) {
	known := faultsOf(&i)
	all, heaviest := append(known, faults...), map[job.Address]int{}
	for n, f := range all {
		if was, is := heaviest[f.Slot]; !is || i.Generation == 0 || compare(f.SlotFault, all[was].SlotFault) < 0 { // outside of a world: its newest start
			heaviest[f.Slot] = n
		}
	}
	var slots []Fault
	for n, f := range all {
		if heaviest[f.Slot] == n {
			slots = append(slots, f)
		}
	}
	slices.SortStableFunc(slots, func(a, b Fault) int { return compare(a.SlotFault, b.SlotFault) })
	initiating, echoes := slots, []Fault(nil)
	if i.Generation > 0 {
		initiating, echoes = explain(slots)
	}

	i.Cause, i.Confidence = initiating[0].Cause, weigh(initiating[0].SlotFault).confidence()
	i.Culprits, i.Evidence, i.Faults = nil, nil, nil
	cascade := unfolded(i.Cascade)
	for _, f := range initiating {
		i.Culprits, i.Evidence = append(i.Culprits, f.Slot), append(i.Evidence, f.Evidence...)
		f.Facts = len(f.Evidence)
		i.Faults = append(i.Faults, f.SlotFault)
		delete(cascade, placeOf(f.Slot))
	}
	var explained []job.Address
	for _, f := range echoes {
		cascade[placeOf(f.Slot)] = true
		explained = append(explained, f.Slot)
	}
	i.Cascade = folded(cascade)
	return i, explained
}

// explain divides the faults of one world, one a slot and the heaviest first, into those that initiated its end and those that
// they explain.
func explain(slots []Fault) (initiating, cascade []Fault) {
	top := weigh(slots[0].SlotFault)
	if top <= lastEcho {
		return slots[:1:1], slots[1:]
	}
	n := slices.IndexFunc(slots, func(f Fault) bool { w := weigh(f.SlotFault); return w < top && w <= lastExplained })
	if n < 0 {
		n = len(slots)
	}
	return slots[:n:n], slots[n:]
}

// compare orders faults by how much they explain. Of those that may be each other's echo the first in time comes first.
func compare(a, b job.SlotFault) int {
	wa, wb := weigh(a), weigh(b)
	c := cmp.Or(cmp.Compare(wb, wa), cmp.Compare(Of(a.Cause).rank, Of(b.Cause).rank))
	if c == 0 && wa <= lastEcho {
		c = compareTimes(a.At, b.At)
	}
	return cmp.Or(c, a.Slot.Compare(b.Slot), compareTimes(a.At, b.At), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Signal, b.Signal))
}

// compareTimes puts an unknown time last.
func compareTimes(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// faultsOf returns the faults that an incident keeps. One that was stored by a version that kept none has its cause in every
// culprit.
func faultsOf(i *job.Incident) (faults []Fault) {
	if len(i.Faults) == 0 {
		for _, slot := range i.Culprits {
			faults = append(faults, Fault{SlotFault: job.SlotFault{Slot: slot, Cause: i.Cause}})
		}
		if len(faults) > 0 {
			faults[0].Evidence = i.Evidence
		}
		return faults
	}
	rest := i.Evidence
	for _, f := range i.Faults {
		n := min(f.Facts, len(rest))
		faults = append(faults, Fault{SlotFault: f, Evidence: rest[:n:n]})
		rest = rest[n:]
	}
	return faults
}

// charge charges an incident to the budget as it is known now.
func (l *Log) charge(c Context, before, after *job.Incident) {
	was, is, n := charged(c.Heal, before), charged(c.Heal, after), len(l.Charges)
	switch {
	case was && !is && n > 0:
		l.Charges = slices.Clone(l.Charges[:n-1])
	case is && !was:
		l.Charges = append(slices.Clone(l.Charges), c.Now)
	}
}

// charged reports whether an incident is charged to the budget.
func charged(h *job.Heal, i *job.Incident) bool {
	if i.Action == job.Report {
		return false
	}
	if len(i.Faults) > 0 {
		return Charged(h, i.Faults[0])
	}
	return len(i.Culprits) > 0 && Charged(h, job.SlotFault{Cause: i.Cause})
}

// Charged reports whether a fault is charged to the budget.
func Charged(h *job.Heal, f job.SlotFault) bool {
	return Of(f.Cause).Budgeted && h.Verdict(f.Cause, f.Code) != job.ExitRetries
}

// tell settles whether an incident is to be reported again: at once if its cause is another or a culprit is none, and some time
// after the last culprit that was added.
func tell(now time.Time, before, after *job.Incident) {
	kept := 0
	for _, a := range before.Culprits {
		if slices.Contains(after.Culprits, a) {
			kept++
		}
	}
	switch {
	case after.Cause != before.Cause || kept < len(before.Culprits):
		after.Told, after.Added = false, time.Time{}
	case after.Told && len(after.Culprits) > kept:
		after.Added = now
	}
}

// place is a slot within its job.
type place struct {
	role  string
	index int
}

func placeOf(a job.Address) place { return place{a.Role, a.Index} }

// unfolded returns the slots of texts like worker[0-3,7].
func unfolded(texts []string) map[place]bool {
	slots := map[place]bool{}
	for _, text := range texts {
		sel, err := job.ParseSelector("job.any." + text)
		if err != nil {
			continue // it was written by folded
		}
		for _, r := range sel.Ranges {
			for index := r[0]; index <= r[1]; index++ {
				slots[place{sel.Role, index}] = true
			}
		}
	}
	return slots
}

// folded returns slots as texts like worker[0-3,7], one a role.
func folded(slots map[place]bool) (texts []string) {
	byRole := map[string][]int{}
	for at := range slots {
		byRole[at.role] = append(byRole[at.role], at.index)
	}
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		texts = append(texts, job.Fold(role, byRole[role]))
	}
	return texts
}
