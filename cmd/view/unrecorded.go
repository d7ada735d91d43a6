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

// Unrecorded is what runs of one job and is in no record: the state was lost, or was told to forget it.
type Unrecorded struct {
	Name     string // under which it was launched
	UID      string
	Provider string
	Slots    []*job.Incarnation // the newest of each, by address
	fate     fate
}

// fate is what happens to what runs without a record.
type fate int

const (
	adopted   fate = iota // while its job is declared; it is stopped where it is not
	shared                // the same, and left alone where it is not
	released              // the state was told to forget it: it is nobody's
	displaced             // the same, and the state has another job of that name by now
	earlier               // the state has another job of that name: it is stopped
	slotsOnly             // its job is recorded and takes it up again
)

// Unrecorded are the jobs of which something runs that no record has, by name and UID. What others run, under a state of
// their own, is not among it.
func (f Facts) Unrecorded() []Unrecorded {
	records := make(map[string]*job.Record, len(f.Records)) // by UID
	for _, rec := range f.Records {
		records[rec.UID] = rec
	}
	found := map[string]*Unrecorded{} // by UID
	for i := range f.Snapshot.Incarnations {
		in := &f.Snapshot.Incarnations[i]
		rec, can := records[in.UID], f.Capabilities[in.Provider]
		foreign := in.Owner != "" && in.Owner != can.Owner
		if in.State == job.Gone || foreign || rec != nil && rec.Slot(in.Slot.Role, in.Slot.Index) != nil {
			continue
		}
		u := found[in.UID]
		if u == nil {
			u = &Unrecorded{Name: in.Slot.Job, UID: in.UID, Provider: in.Provider, fate: f.fateOf(in, rec, can)}
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

// fateOf is what the planner makes of an incarnation that no record has. rec is its job's; nil if that has none.
func (f Facts) fateOf(in *job.Incarnation, rec *job.Record, can job.Capabilities) fate {
	switch _, let := f.Released[in.UID]; {
	case rec != nil:
		return slotsOnly
	case let && f.Records[in.Slot.Job] != nil:
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
		return forgotten + "To manage or destroy it again, declare it" + u.back(address)
	case displaced:
		return forgotten + "Another job has its name now: to manage or destroy it again, declare it under another name" + u.back("job.OTHER")
	case earlier:
		return "The state has another job of this name: eltrain apply or destroy stops this one."
	case shared:
		return fmt.Sprintf("It keeps running, and nothing heals it. If %s is in the files, eltrain apply adopts it without a restart; eltrain destroy finds it only after that.", address)
	}
	return fmt.Sprintf("It keeps running, and nothing heals it. If %s is in the files, eltrain apply adopts it without a restart; if not, apply stops it. eltrain destroy stops it in any case.", address)
}

// forgotten is what happens to what the state was told to forget.
const forgotten = "It keeps running and holds its places, but nothing heals, scales or stops it: the state was told to forget it. "

// back ends a sentence with what is to be applied to have it back as the job at an address.
func (u *Unrecorded) back(address string) string {
	return fmt.Sprintf(" and apply this:\nimport {\n  to = %s\n  id = %q\n}", address, u.UID)
}

// UnrecordedStatus is what runs of one job and is in no record.
type UnrecordedStatus struct {
	Address  string           `json:"address"` // job.NAME, by the name that it was launched under
	UID      string           `json:"uid"`
	Provider string           `json:"provider"`
	Released bool             `json:"released"` // the state was told to forget it
	Since    time.Time        `json:"since,omitzero"`
	Slots    []UnrecordedSlot `json:"slots"`
	Reasons  []string         `json:"reasons"` // how to continue
	partly   bool             // its job is recorded, and these slots are not
}

// UnrecordedSlot is one slot that runs, as its provider sees it.
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

// unrecordedText shows a person what runs without a record.
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
