package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"

	"github.com/eltrain/eltrain/job"
)

// DidYouMean ends a sentence about an unknown name: with the nearest known name if at most two letters
// differ, as in Terraform.
func DidYouMean(typed string, names []string) string {
	best, distance := "", min(3, len(typed))
	for _, name := range names {
		if d := levenshtein.Distance(typed, name, nil); d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return "."
	}
	return fmt.Sprintf(". Did you mean %q?", best)
}

// Job returns the record of a job, or one made from its running slots if the state has none: the state was lost, or the job was
// removed from it.
func (facts *Facts) Job(name string) (*job.Record, error) {
	if record := facts.Records[name]; record != nil {
		return record, nil
	}
	names := slices.Collect(maps.Keys(facts.Records))
	for _, u := range facts.Unrecorded() {
		if u.Name == name {
			return recordFor(&u), nil
		}
		names = append(names, u.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no job %q: the state is empty, and nothing is running without a record", name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return nil, fmt.Errorf("there is no job %q%s", name, WhatThereIs(DidYouMean(name, names), "There are", names))
}

// recordFor returns what is known of a job without a record: its slots, but not its world.
func recordFor(u *Unrecorded) *job.Record {
	record := &job.Record{UID: u.UID, Spec: job.Job{Name: u.Name, Provider: u.Provider}}
	for _, in := range u.Slots {
		if record.Spec.Role(in.Slot.Role) == nil {
			record.Spec.Roles = append(record.Spec.Roles, job.Role{Name: in.Slot.Role})
		}
		record.Slots = append(record.Slots, job.Slot{Address: in.Slot, Incarnation: in.Number, Node: in.Node, Rank: -1})
	}
	return record
}

// CheckSlots returns an error unless an address matches slots of its job, or a role, even one without slots.
func CheckSlots(sel job.Selector, record *job.Record) error {
	named := func(s job.Slot) bool { return sel.Matches(s.Address) }
	if sel.Role == "" || sel.Ranges == nil && record.Spec.Role(sel.Role) != nil || slices.ContainsFunc(record.Slots, named) {
		return nil
	}
	return NoSuchSlot(sel, record)
}

// NoSuchSlot returns the error for an address that matches no slot of its job, with the slots that exist.
func NoSuchSlot(sel job.Selector, record *job.Record) error {
	return fmt.Errorf("%s names no slot%s", sel, SlotsThere(sel, RecordedSlots(record)))
}

// RecordedSlots returns the numbers of a job's slots by role, including roles without slots and roles no longer declared.
func RecordedSlots(record *job.Record) map[string][]int {
	indices := map[string][]int{}
	for i := range record.Spec.Roles {
		indices[record.Spec.Roles[i].Name] = nil
	}
	for i := range record.Slots {
		a := record.Slots[i].Address
		indices[a.Role] = append(indices[a.Role], a.Index)
	}
	return indices
}

// SlotsThere continues an error about an address without slots by those that exist. indices has their numbers by role.
func SlotsThere(sel job.Selector, indices map[string][]int) string {
	roles := slices.Sorted(maps.Keys(indices))
	var there []string
	for _, role := range roles {
		if len(indices[role]) > 0 {
			there = append(there, job.Fold(role, indices[role]))
		}
	}
	if len(there) == 0 {
		there = []string{"none yet"}
	}
	hint := "."
	if !slices.Contains(roles, sel.Role) {
		hint = DidYouMean(sel.Role, roles)
	}
	return WhatThereIs(hint, "Of job."+sel.Job+" there are", there)
}

// maxNamed is how many existing names an error lists at most: in a longer list the intended one is hard to find.
const maxNamed = 10

// WhatThereIs ends a sentence about something missing: with DidYouMean's hint, and then with what exists, which
// intro introduces.
func WhatThereIs(hint, intro string, names []string) string {
	if len(names) == 0 {
		return hint
	}
	more := ""
	if rest := len(names) - maxNamed; rest > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("%s %s: %s%s.", hint, intro, strings.Join(names, ", "), more)
}
