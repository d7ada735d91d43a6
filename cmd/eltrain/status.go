package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

type statusArgs struct {
	json     bool
	vars     assignments
	selector *job.Selector // nil for all jobs
}

func (a *statusArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	a.vars.declare(fs)
	declareTrust(fs)
}

func parseStatus(s *session, args []string) (statusArgs, error) {
	var a statusArgs
	others, err := s.parse(newFlags("status", a.declare), args, 1)
	if err != nil || len(others) == 0 {
		return a, err
	}
	sel, err := job.ParseSelector(others[0])
	a.selector = &sel
	return a, err
}

func statusCommand() *command {
	return &command{
		name: "status", usage: "[options] [ADDRESS]",
		synopsis: "Show what is running and how it progresses",
		about: `Shows every job, or the one that ADDRESS names: its phase, world and progress, why it is not as configured if
so, its roles and slots, and its last incidents. ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7],
[*]. Jobs that run without a record, because the state was lost or their records were removed, are shown as well, with what
to do about them.

The status comes from the master if one is running, otherwise from the state and the providers.`,
		exits: []string{
			"No job has failed, and each can run as configured.",
			"A job has failed or can never run as configured, or the status cannot be read.",
		},
		declare: new(statusArgs).declare,
		run:     runStatus,
	}
}

// statusTimeout bounds the whole command, whatever a provider does.
const statusTimeout = 30 * time.Second

func runStatus(s *session, args []string) int {
	a, err := parseStatus(s, args)
	if err != nil {
		return s.misused("status", err)
	}
	defer s.outlive()()
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	facts, err := s.facts(ctx, a.vars)
	switch {
	case errors.Is(err, errReported):
		return exitError
	case err != nil:
		return s.fail("Cannot read the status", err)
	}
	model := view.Status(facts, &s.redactor)
	if a.selector != nil {
		record, err := findJob(a.selector.Job, facts)
		if err != nil {
			return s.fail("No such job", err)
		}
		if err := checkSlots(*a.selector, record); err != nil {
			return s.fail("No such slot", err)
		}
		model = model.Select(*a.selector)
	}
	if a.json {
		err = view.WriteJSON(s.streams.Out, model)
	} else {
		view.WriteStatus(s.streams.Out, model)
	}
	switch {
	case err != nil:
		return s.fail("Cannot write the status", err)
	case model.Failed():
		return exitError
	}
	return exitDone
}

// findJob returns the record of a job, or one made from its running slots if the state has none: the state was lost, or the
// job was removed from it.
func findJob(name string, facts view.Facts) (*job.Record, error) {
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
	return nil, fmt.Errorf("there is no job %q%s", name, whatThereIs(didYouMean(name, names), "There are", names))
}

// recordFor returns what is known of a job without a record: its slots, but not its world.
func recordFor(u *view.Unrecorded) *job.Record {
	record := &job.Record{UID: u.UID, Spec: job.Job{Name: u.Name, Provider: u.Provider}}
	for _, in := range u.Slots {
		if record.Spec.Role(in.Slot.Role) == nil {
			record.Spec.Roles = append(record.Spec.Roles, job.Role{Name: in.Slot.Role})
		}
		record.Slots = append(record.Slots, job.Slot{Address: in.Slot, Incarnation: in.Number, Node: in.Node, Rank: -1})
	}
	return record
}

// checkSlots returns an error unless an address matches slots of its job, or a role, even one without slots.
func checkSlots(sel job.Selector, record *job.Record) error {
	named := func(s job.Slot) bool { return sel.Matches(s.Address) }
	if sel.Role == "" || sel.Ranges == nil && record.Spec.Role(sel.Role) != nil || slices.ContainsFunc(record.Slots, named) {
		return nil
	}
	return noSuchSlot(sel, record)
}

// noSuchSlot returns the error for an address that matches no slot of its job, with the slots that exist.
func noSuchSlot(sel job.Selector, record *job.Record) error {
	return fmt.Errorf("%s names no slot%s", sel, slotsThere(sel, recordedSlots(record)))
}

// recordedSlots returns the numbers of a job's slots by role, including roles without slots and roles no longer declared.
func recordedSlots(record *job.Record) map[string][]int {
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

// slotsThere continues an error about an address without slots by those that exist. indices has their numbers by role.
func slotsThere(sel job.Selector, indices map[string][]int) string {
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
		hint = didYouMean(sel.Role, roles)
	}
	return whatThereIs(hint, "Of job."+sel.Job+" there are", there)
}

// maxNamed is how many existing names an error lists at most: in a longer list the intended one is hard to find.
const maxNamed = 10

// whatThereIs ends a sentence about something missing: with didYouMean's hint, and then with what exists, which
// intro introduces.
func whatThereIs(hint, intro string, names []string) string {
	if len(names) == 0 {
		return hint
	}
	more := ""
	if rest := len(names) - maxNamed; rest > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", rest)
	}
	return fmt.Sprintf("%s %s: %s%s.", hint, intro, strings.Join(names, ", "), more)
}

// readWithin bounds how long status waits for the files.
const readWithin = 5 * time.Second

// facts reads the files, ignoring errors, and asks as Workspace.Facts does. If they cannot be read within the limits, only a
// running master can tell: where the state is stored is unknown.
func (s *session) facts(ctx context.Context, vars assignments) (view.Facts, error) {
	reading, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	r, unread := s.dir.Child(vars).Read(reading)
	if unread != nil {
		live, err := apply.Fetch(ctx, workspace.RunDirectory)
		if err != nil {
			return view.Facts{}, unread
		}
		return workspace.FactsOf(live), nil
	}
	d, ok := s.open(r.Config)
	if !ok {
		return view.Facts{}, errReported
	}
	defer d.Close()
	return d.Facts(ctx)
}
