package view

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Unrecorded is the running slots of one job that are in no record: the state was lost, or the job was removed from it.
type Unrecorded struct {
	Name     string // under which it was launched
	UID      string
	Provider string
	Slots    []*job.Incarnation // the newest of each, by address
	fate     fate
	was      string // its name in the state before its record was removed; else as Name
}

// fate is what happens to a slot that runs without a record.
type fate int

const (
	adopted   fate = iota // adopted if its job is declared, else stopped
	shared                // adopted if its job is declared, else left alone
	released              // left alone: its job was removed from the state
	displaced             // as released, but the state now has another job of that name
	earlier               // stopped: the state has another job of that name
	slotsOnly             // adopted again by its job, which is recorded
)

// Unrecorded returns the jobs with running slots that no record has, by name and UID. It leaves out jobs that other states
// own.
func (f Facts) Unrecorded() []Unrecorded {
	records := make(map[string]*job.Record, len(f.Records)) // by UID
	for _, rec := range f.Records {
		records[rec.UID] = rec
	}
	found := map[string]*Unrecorded{} // by UID
	for in := range f.Snapshot.Incarnations.All() {
		rec, can := records[in.UID], f.Capabilities[in.Provider]
		foreign := in.Owner != "" && in.Owner != can.Owner
		if in.State == job.Gone || foreign || rec != nil && rec.Slot(in.Slot.Role, in.Slot.Index) != nil {
			continue
		}
		u := found[in.UID]
		if u == nil {
			was := cmp.Or(f.Released[in.UID].Was, in.Slot.Job)
			u = &Unrecorded{Name: in.Slot.Job, UID: in.UID, Provider: in.Provider, fate: f.fateOf(was, in, rec, can), was: was}
			found[in.UID] = u
		}
		u.Slots = append(u.Slots, in)
	}
	all := make([]Unrecorded, 0, len(found))
	for _, u := range found {
		slices.SortFunc(u.Slots, func(a, b *job.Incarnation) int {
			return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(b.Number, a.Number))
		})
		u.Slots = slices.CompactFunc(u.Slots, func(a, b *job.Incarnation) bool { return a.Slot == b.Slot })
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unrecorded) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
	return all
}

// fateOf returns what the planner does with an incarnation without a record. was is its job's name in the state, rec its record; nil if it has
// none.
func (f Facts) fateOf(was string, in *job.Incarnation, rec *job.Record, can job.Capabilities) fate {
	switch _, let := f.Released[in.UID]; {
	case rec != nil:
		return slotsOnly
	case let && f.Records[was] != nil:
		return displaced
	case let:
		return released
	case f.Records[in.Slot.Job] != nil:
		return earlier
	case can.Shared:
		return shared
	}
	return adopted
}

// advice says how to continue.
func (u *Unrecorded) advice() string {
	address := "job." + u.Name
	switch u.fate {
	case slotsOnly:
		return "It keeps running. Its job is recorded, and the next eltrain apply adopts it."
	case released:
		return u.forgotten() + "To manage or destroy it again, declare it" + u.back("job."+u.was)
	case displaced:
		return u.forgotten() + "Another job has its name now: to manage or destroy it again, declare it under another name" + u.back("job.OTHER")
	case earlier:
		return "The state has another job of this name: eltrain apply or destroy stops this one."
	case shared:
		return fmt.Sprintf("It keeps running, and nothing heals it. If %s is in the files, eltrain apply adopts it without a restart; eltrain destroy finds it only after that.", address)
	}
	return fmt.Sprintf("It keeps running, and nothing heals it. If %s is in the files, eltrain apply adopts it without a restart; if not, apply stops it. eltrain destroy stops it in any case.", address)
}

// forgotten says what happens to a job that was removed from the state.
func (u *Unrecorded) forgotten() string {
	return fmt.Sprintf("It keeps running and holds its places, but nothing heals, scales or stops it: its record job.%s was removed from the state. ", u.was)
}

// back ends a sentence with the import block that brings the job back at an address.
func (u *Unrecorded) back(address string) string {
	return fmt.Sprintf(" and apply this:\nimport {\n  to = %s\n  id = %q\n}", address, u.UID)
}

// UnrecordedStatus is the running slots of one job that are in no record.
type UnrecordedStatus struct {
	Address  string           `json:"address"` // job.NAME, by the name that it was launched under
	UID      string           `json:"uid"`
	Provider string           `json:"provider"`
	Released bool             `json:"released"` // it was removed from the state
	Since    time.Time        `json:"since,omitzero"`
	Slots    []UnrecordedSlot `json:"slots"`
	Reasons  []string         `json:"reasons"` // how to continue
	partly   bool             // its job is recorded, but these slots are not
}

// UnrecordedSlot is one running slot, as its provider observes it.
type UnrecordedSlot struct {
	Address     string `json:"address"`
	Incarnation int    `json:"incarnation"`
	Node        string `json:"node"`
	Name        string `json:"name,omitempty"`
	AgentPID    int    `json:"agent_pid,omitempty"`
	slot        job.Address
}

func unrecordedStatus(u *Unrecorded) UnrecordedStatus {
	out := UnrecordedStatus{Address: "job." + u.Name, UID: u.UID, Provider: u.Provider, Released: u.fate == released || u.fate == displaced,
		Slots: []UnrecordedSlot{}, Reasons: []string{u.advice()}, partly: u.fate == slotsOnly}
	for _, in := range u.Slots {
		if out.Since.IsZero() || !in.Started.IsZero() && in.Started.Before(out.Since) {
			out.Since = in.Started
		}
		out.Slots = append(out.Slots, UnrecordedSlot{in.Slot.String(), in.Number, in.Node, in.Name, in.AgentPID, in.Slot})
	}
	return out
}

// unrecordedText shows what runs without a record.
func (s Screen) unrecordedText(b *bytes.Buffer, u *UnrecordedStatus) {
	headline := "is running without a record in the state"
	if u.partly {
		headline = "has running slots without a record"
	}
	fmt.Fprintf(b, "%s  %s\n", s.paint(u.Address, bold), s.paint(headline, bold, yellow))
	fmt.Fprintf(b, "  %-10s%s\n  %-10s%s\n", "provider", u.Provider, "uid", u.UID)
	if !u.Since.IsZero() {
		fmt.Fprintf(b, "  %-10s%s\n", "since", clock(u.Since))
	}
	var roles []string
	indices, nodes := map[string][]int{}, map[string][]string{}
	for i := range u.Slots {
		slot := &u.Slots[i]
		role := slot.slot.Role
		if indices[role] == nil {
			roles = append(roles, role)
		}
		indices[role] = append(indices[role], slot.slot.Index)
		if slot.Node != "" && !slices.Contains(nodes[role], slot.Node) {
			nodes[role] = append(nodes[role], slot.Node)
		}
	}
	for _, role := range roles {
		text := fold(role, indices[role]) + ": " + plural(len(indices[role]), "slot")
		if names := nodes[role]; len(names) > 0 && len(names) <= maxSlotLines {
			text += " on " + strings.Join(names, ", ")
		}
		fmt.Fprintf(b, "  %-10s%s\n", "runs", text)
	}
	for _, why := range u.Reasons {
		s.reason(b, why)
	}
}
