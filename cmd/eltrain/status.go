package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
)

type statusArgs struct {
	json      bool
	watch     bool
	vars      assignments
	selectors []job.Selector // none for all jobs
}

func (a *statusArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	fs.BoolVar(&a.watch, "watch", false, "Show it again every second, until interrupted.")
	a.vars.declare(fs)
	declareTrust(fs)
}

func parseStatus(s *session, args []string) (a statusArgs, err error) {
	addresses, err := s.parse(newFlags("status", a.declare), args, manyArguments)
	if err == nil {
		a.selectors, err = selectors(addresses)
	}
	return a, err
}

func statusCommand() *command {
	return &command{
		name: "status", usage: "[options] [ADDRESS...]",
		synopsis: "Show what is running and how it progresses",
		about: `Shows what runs: a list with a line for each job or, if there is only one, all of it. With ADDRESSes it shows all of
the jobs that they name: phase, world and progress, why a job is not as configured if so, its roles and slots, and its last
incidents. An ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. Jobs that run without a record,
because the state was lost or their records were removed, are shown as well, with what to do about them.

With -watch it is shown again every second: a terminal is redrawn in place, any other output gets a further block whenever
something has changed, and with -json a further line of JSON.

The status comes from the master if one is running, otherwise from the state and the providers.`,
		exits: []string{
			"No job has failed, and each can run as configured. Or -watch was interrupted.",
			"A job has failed or can never run as configured, or the status cannot be read.",
		},
		declare: new(statusArgs).declare,
		run:     runStatus,
	}
}

const (
	// statusTimeout bounds one look, whatever a provider does.
	statusTimeout = 30 * time.Second
	// statusInterval is the pause between two looks.
	statusInterval = time.Second
)

func runStatus(s *session, args []string) int {
	a, err := parseStatus(s, args)
	if err != nil {
		return s.misused("status", err)
	}
	lookout := s.dir.Lookout(a.vars)
	defer lookout.Close()
	if a.watch {
		return s.watchStatus(lookout, a)
	}
	defer s.outlive()()
	model, problems := s.status(context.Background(), lookout, a, true)
	if len(problems) > 0 {
		s.diagnose(problems...)
		return exitError
	}
	if a.json {
		err = view.WriteJSON(s.streams.Out, model)
	} else {
		view.WriteStatus(s.streams.Out, model, len(a.selectors) == 0)
	}
	switch {
	case err != nil:
		return s.fail("Cannot write the status", err)
	case model.Failed():
		return exitError
	}
	return exitDone
}

// watchStatus shows the status until it is interrupted, or its reader is gone. Only the first look must succeed: later a master
// may end and come back, and a job be destroyed.
func (s *session) watchStatus(lookout *workspace.Lookout, a statusArgs) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	ctx, release := s.detached(ctx)
	defer release()
	shown := view.StatusWatch{Screen: s.streams.Out, JSON: a.json, Brief: len(a.selectors) == 0, Now: time.Now}
	told := "" // the problem that was told last
	for first := true; ; first = false {
		model, problems := s.status(ctx, lookout, a, first)
		switch {
		case ctx.Err() != nil:
			return exitDone
		case len(problems) == 0:
			told = ""
			if err := shown.Show(model); err != nil {
				return s.fail("Cannot write the status", err)
			}
		case first:
			s.diagnose(problems...)
			return exitError
		case told != problems[0].Detail:
			told = problems[0].Detail
			s.diagnose(problems...)
			shown.Overwritten()
		}
		select {
		case <-ctx.Done():
			return exitDone
		case <-time.After(statusInterval):
		}
	}
}

// status looks once. If strict, an address that names nothing is a problem.
func (s *session) status(ctx context.Context, lookout *workspace.Lookout, a statusArgs, strict bool) (model view.StatusModel, problems []view.Diagnostic) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	facts, err := lookout.Facts(ctx)
	unopened := (*workspace.OpenError)(nil)
	switch {
	case errors.As(err, &unopened):
		return model, unopened.Why
	case err != nil:
		return model, []view.Diagnostic{view.Problem("Cannot read the status", view.Explain(err))}
	}
	model = view.Status(facts, &s.redactor)
	for i := 0; i < len(a.selectors) && strict; i++ {
		record, err := findJob(a.selectors[i].Job, facts)
		if err != nil {
			return model, []view.Diagnostic{view.Problem("No such job", view.Explain(err))}
		}
		if err := checkSlots(a.selectors[i], record); err != nil {
			return model, []view.Diagnostic{view.Problem("No such slot", view.Explain(err))}
		}
	}
	if len(a.selectors) > 0 {
		model = model.Select(a.selectors...)
	}
	return model, nil
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
