package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
)

type statusArgs struct {
	json     bool
	vars     assignments
	selector *job.Selector // nil for all jobs
}

func (a *statusArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print the status as JSON.")
	a.vars.declare(fs)
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
		synopsis: "Show what runs and how it goes",
		about: `Shows every job, or the one that ADDRESS names: its phase, its world, how far it is, why it is not as
asked for if it is not, its roles and slots, and its last incidents. ADDRESS is job.NAME, job.NAME.ROLE,
job.NAME.ROLE[3], or a set: [0-3,7], [*].

While a master runs it is asked. Otherwise the status is what the state has and what the providers see.`,
		exits: []string{
			"No job has failed.",
			"A job has failed, or the status is not to be had.",
		},
		declare: new(statusArgs).declare,
		run:     runStatus,
	}
}

// statusTimeout bounds the whole of a status: a provider that hangs must not hang it.
const statusTimeout = 30 * time.Second

func runStatus(s *session, args []string) int {
	a, err := parseStatus(s, args)
	if err != nil {
		return s.misused("status", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	d, ok := s.open(s.readAnyway(a.vars))
	if !ok {
		return exitError
	}
	defer d.close(s)
	facts, err := d.facts(ctx)
	if err != nil {
		return s.fail("The status is not to be had", err)
	}
	model := view.Status(facts, &s.redactor)
	if a.selector != nil {
		if facts.Records[a.selector.Job] == nil {
			return s.fail("No such job", noSuchJob(a.selector.Job, facts.Records))
		}
		if err := checkSlots(*a.selector, facts.Records[a.selector.Job]); err != nil {
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

func noSuchJob(name string, records job.Records) error {
	var names []string
	for known := range records {
		names = append(names, known)
	}
	if len(names) == 0 {
		return fmt.Errorf("nothing has been applied in this directory yet, so there is no job %q", name)
	}
	slices.Sort(names)
	return fmt.Errorf("there is no job %q; there are: %s%s", name, strings.Join(names, ", "), didYouMean(name, names))
}

// checkSlots tells whether an address names something of its job: a role of it, though no slot may be there yet, or slots.
func checkSlots(sel job.Selector, record *job.Record) error {
	named := func(s job.Slot) bool { return sel.Matches(s.Address) }
	if sel.Role == "" || sel.Ranges == nil && record.Spec.Role(sel.Role) != nil || slices.ContainsFunc(record.Slots, named) {
		return nil
	}
	return noSuchSlot(sel, record)
}

// noSuchSlot says that an address names no slot of its job, and what there is.
func noSuchSlot(sel job.Selector, record *job.Record) error {
	var roles, there []string
	indices := map[string][]int{}
	for i := range record.Spec.Roles {
		roles = append(roles, record.Spec.Roles[i].Name)
	}
	for i := range record.Slots {
		a := record.Slots[i].Address
		if !slices.Contains(roles, a.Role) {
			roles = append(roles, a.Role) // it is declared no more
		}
		indices[a.Role] = append(indices[a.Role], a.Index)
	}
	for _, role := range roles {
		if len(indices[role]) > 0 {
			there = append(there, job.Fold(role, indices[role]))
		}
	}
	if len(there) == 0 {
		there = []string{"none yet"}
	}
	hint := ""
	if !slices.Contains(roles, sel.Role) {
		hint = didYouMean(sel.Role, roles)
	}
	return fmt.Errorf("%s names no slot; of job.%s there are: %s%s", sel, sel.Job, strings.Join(there, ", "), hint)
}

// facts asks the master that runs, or else the state and the providers.
func (d *directory) facts(ctx context.Context) (view.Facts, error) {
	holder, err := d.store.Holder(ctx)
	if err != nil {
		return view.Facts{}, fmt.Errorf("see who holds the state's lock: %w", err)
	}
	live, err := apply.Fetch(ctx, runDirectory)
	switch {
	case err == nil:
		return view.Facts{Records: live.Records, Snapshot: live.Snapshot, Waits: live.Waits, Holder: holder}, nil
	case !errors.Is(err, apply.ErrNoMaster):
		return view.Facts{}, err
	}
	r, err := apply.New(ctx, apply.Options{Store: d.store, Providers: d.providers, View: view.Quiet{}, NewUID: newUID})
	if err != nil {
		return view.Facts{}, err
	}
	live = r.Offline(ctx)
	return view.Facts{Records: live.Records, Snapshot: live.Snapshot, Waits: live.Waits, Holder: holder}, nil
}
