package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

func stateCommand() *command {
	return group("state", "Look into the state, and mend it",
		`The state is what eltrain remembers of jobs. What runs is never touched by these commands: they change what is
known of it. Each change is one write under the state's lock, and the state before it is kept as a backup.`,
		stateListCommand(), stateMvCommand(), statePullCommand(), statePushCommand(), stateRmCommand(), stateShowCommand())
}

// errNoState is Terraform's, in our words.
var errNoState = errors.New("no state was found: nothing has been applied in this directory yet, or the state block of the files names another place")

// stored reads the state for a command that looks into it. The files are read for the place of the state and for
// sensitive values. What is wrong is shown, and ok is false.
func (s *session) stored(ctx context.Context, vars assignments) (d *directory, stored state.State, ok bool) {
	if d, ok = s.openState(s.readAnyway(vars)); !ok {
		return nil, state.State{}, false
	}
	stored, err := d.store.Read(ctx)
	if err != nil {
		s.fail("The state cannot be read", err)
		return nil, state.State{}, false
	}
	return d, stored, true
}

// editArgs are the options of commands that change the state.
type editArgs struct {
	lockTimeout time.Duration
	vars        assignments
}

func (a *editArgs) declare(fs *flags) {
	fs.DurationVar(&a.lockTimeout, "lock-timeout", 0, "Wait up to `DURATION`, as 30s, for another holder of the state's lock.")
	a.vars.declare(fs)
}

// edit changes the state under its lock. next is given what is stored, and returns what is to be stored: the same serial
// means nothing.
func (s *session) edit(a editArgs, operation string, next func(state.State) (state.State, error)) error {
	ctx, stop := s.interruptible()
	defer stop()
	d, ok := s.openState(s.readAnyway(a.vars))
	if !ok {
		return errShown
	}
	lock, _, err := s.lock(ctx, d.store, operation, a.lockTimeout)
	if err != nil {
		return err
	}
	defer s.unlock(lock)
	stored, err := d.store.Read(ctx)
	if err != nil {
		return err
	}
	changed, err := next(stored)
	if err != nil || changed.Serial == stored.Serial {
		return err
	}
	return d.store.Write(ctx, changed, lock)
}

// errShown is of something that was shown already.
var errShown = errors.New("it was shown")

// edited shows why the state could not be changed, and gives the exit code.
func (s *session) edited(summary string, err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errShown):
		return exitError
	}
	return s.fail(summary, err)
}

// selectors reads addresses as commands take them.
func selectors(addresses []string) ([]job.Selector, error) {
	var out []job.Selector
	for _, a := range addresses {
		sel, err := job.ParseSelector(a)
		if err != nil {
			return nil, err
		}
		out = append(out, sel)
	}
	return out, nil
}

// checkKnown tells which of the selectors names nothing that is recorded.
func checkKnown(records job.Records, sels []job.Selector) error {
	for _, sel := range sels {
		if rec := records[sel.Job]; rec == nil || sel.Role != "" && len(rec.Matching(sel)) == 0 {
			return fmt.Errorf("the current state contains nothing at %s. To see what it has, use eltrain state list", sel)
		}
	}
	return nil
}

// manyArguments is what parse takes where there may be any number.
const manyArguments = 1 << 20

type stateListArgs struct {
	id        string
	vars      assignments
	selectors []job.Selector
}

func (a *stateListArgs) declare(fs *flags) {
	fs.StringVar(&a.id, "id", "", "Only jobs whose UID is `UID`, and their slots.")
	a.vars.declare(fs)
}

func stateListCommand() *command {
	return &command{
		name: "state list", usage: "[options] [ADDRESS...]",
		synopsis: "List what is in the state",
		about: `Lists the addresses of the jobs and slots in the state, one a line: all, or those that the ADDRESSes name.
ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*].`,
		declare: new(stateListArgs).declare,
		run:     runStateList,
	}
}

func runStateList(s *session, args []string) int {
	var a stateListArgs
	others, err := s.parse(newFlags("state list", a.declare), args, manyArguments)
	if err == nil {
		a.selectors, err = selectors(others)
	}
	if err != nil {
		return s.misused("state list", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	_, stored, ok := s.stored(ctx, a.vars)
	if !ok {
		return exitError
	}
	if stored.Serial == 0 {
		return s.fail("There is no state", errNoState)
	}
	if err := checkKnown(stored.Jobs, a.selectors); err != nil {
		return s.fail("Unknown address", err)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(stored.Jobs)) {
		rec := stored.Jobs[name]
		if a.id != "" && rec.UID != a.id {
			continue
		}
		for _, address := range listed(name, rec, a.selectors) {
			b.WriteString(address + "\n")
		}
	}
	io.WriteString(s.streams.Out, b.String())
	return exitDone
}

// listed are the addresses of one job that are asked for; of all if no selector is given.
func listed(name string, rec *job.Record, sels []job.Selector) []string {
	if len(sels) == 0 {
		sels = []job.Selector{{Job: name}}
	}
	var out []string
	if slices.ContainsFunc(sels, func(sel job.Selector) bool { return sel.Job == name && sel.Role == "" }) {
		out = append(out, "job."+name)
	}
	for i := range rec.Slots {
		a := rec.Slots[i].Address
		if slices.ContainsFunc(sels, func(sel job.Selector) bool { return sel.Matches(a) }) {
			out = append(out, a.String())
		}
	}
	return out
}

type stateShowArgs struct {
	vars     assignments
	selector job.Selector
}

func (a *stateShowArgs) declare(fs *flags) { a.vars.declare(fs) }

func stateShowCommand() *command {
	return &command{
		name: "state show", usage: "[options] ADDRESS",
		synopsis: "Show one thing in the state",
		about: `Shows what the state has of the job or the slots that ADDRESS names: what it was last applied as, and where it
is. ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. Sensitive values are not in the state.
For machines there is eltrain show -json.`,
		declare: new(stateShowArgs).declare,
		run:     runStateShow,
	}
}

func runStateShow(s *session, args []string) int {
	var a stateShowArgs
	others, err := s.parse(newFlags("state show", a.declare), args, 1)
	switch {
	case err != nil:
	case len(others) == 0:
		err = errors.New("an address is needed: job.NAME, job.NAME.ROLE or job.NAME.ROLE[3]")
	default:
		a.selector, err = job.ParseSelector(others[0])
	}
	if err != nil {
		return s.misused("state show", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	d, stored, ok := s.stored(ctx, a.vars)
	if !ok {
		return exitError
	}
	if stored.Serial == 0 {
		return s.fail("There is no state", errNoState)
	}
	if err := checkKnown(stored.Jobs, []job.Selector{a.selector}); err != nil {
		return s.fail("Unknown address", err)
	}
	view.WriteState(s.streams.Out, s.stateModel(d, stored.Jobs), stored.Jobs, &a.selector)
	return exitDone
}

// stateModel is what the state has of every object, in the form of Terraform's state.
func (s *session) stateModel(d *directory, records job.Records) view.PlanState {
	in := plan.Input{Jobs: d.config.Jobs, Records: records, Now: time.Now()}
	return view.NewPlan(view.PlanFacts{Input: in, Plan: plan.Plan{Records: records}, Version: version, PriorOutputs: givenOutputs(d.prior)}, &s.redactor).PriorState
}

type stateRmArgs struct {
	editArgs
	dryRun    bool
	selectors []job.Selector
}

func (a *stateRmArgs) declare(fs *flags) {
	fs.BoolVar(&a.dryRun, "dry-run", false, "Only say what would be removed.")
	a.editArgs.declare(fs)
}

func stateRmCommand() *command {
	return &command{
		name: "state rm", usage: "[options] ADDRESS...",
		synopsis: "Forget jobs or slots, and leave them running",
		about: `Takes what the ADDRESSes name out of the state. What of it runs, runs on, and belongs to nobody: nothing heals,
scales or stops a job that was forgotten. If it is still declared, the next plan creates it anew beside what runs. A
removed block in the files, with destroy = false, does the same with the next apply. A slot that runs and whose job stays
is found again by the next plan, without its history.

ADDRESS is job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*].`,
		declare: new(stateRmArgs).declare,
		run:     runStateRm,
	}
}

func runStateRm(s *session, args []string) int {
	var a stateRmArgs
	others, err := s.parse(newFlags("state rm", a.declare), args, manyArguments)
	switch {
	case err != nil:
	case len(others) == 0:
		err = errors.New("at least one address is needed: job.NAME, job.NAME.ROLE or job.NAME.ROLE[3]")
	default:
		a.selectors, err = selectors(others)
	}
	if err != nil {
		return s.misused("state rm", err)
	}
	var gone job.Forgotten
	remove := func(stored state.State) (state.State, error) {
		if stored.Serial == 0 {
			return stored, errNoState
		}
		if err := checkKnown(stored.Jobs, a.selectors); err != nil {
			return stored, err
		}
		var left job.Records
		if left, gone = stored.Jobs.Forget(a.selectors); a.dryRun {
			return stored, nil
		}
		next := stored.Next(left)
		next.Released = maps.Clone(stored.Released)
		if next.Released == nil {
			next.Released = map[string]job.Released{}
		}
		maps.Copy(next.Released, gone.Released)
		return next, nil
	}
	if err := s.edit(a.editArgs, "state rm", remove); err != nil {
		return s.edited("Nothing was removed from the state", err)
	}
	s.tellForgotten(gone, a.dryRun)
	return exitDone
}

func (s *session) tellForgotten(gone job.Forgotten, dryRun bool) {
	verb := "Removed"
	if dryRun {
		verb = "Would remove"
	}
	var b strings.Builder
	for _, name := range gone.Jobs {
		fmt.Fprintf(&b, "%s job.%s\n", verb, name)
	}
	for _, a := range gone.Slots {
		fmt.Fprintf(&b, "%s %s\n", verb, a)
	}
	if !dryRun {
		fmt.Fprintf(&b, "Successfully removed %d object(s) from the state. What of them runs, runs on.\n", len(gone.Jobs)+len(gone.Slots))
	}
	io.WriteString(s.streams.Out, b.String())
}

type stateMvArgs struct {
	editArgs
	dryRun   bool
	from, to string // names
}

func (a *stateMvArgs) declare(fs *flags) {
	fs.BoolVar(&a.dryRun, "dry-run", false, "Only say what would be moved.")
	a.editArgs.declare(fs)
}

func stateMvCommand() *command {
	return &command{
		name: "state mv", usage: "[options] SOURCE DESTINATION",
		synopsis: "Give a job in the state another name",
		about: `Moves the job with the address SOURCE to the address DESTINATION, with all its slots. What runs of it goes on:
nothing restarts, if the files declare it under the new name. A moved block in the files does the same with the next
apply, and everybody who works with the files gets it.

SOURCE and DESTINATION are addresses of jobs: job.NAME, job.NAME["KEY"], module.NAME.job.NAME. A role or a slot is a
part of its job, and moves with it.`,
		declare: new(stateMvArgs).declare,
		run:     runStateMv,
	}
}

func parseStateMv(s *session, args []string) (stateMvArgs, error) {
	var a stateMvArgs
	others, err := s.parse(newFlags("state mv", a.declare), args, 2)
	if err != nil {
		return a, err
	}
	if len(others) < 2 {
		return a, errors.New("two addresses are needed: eltrain state mv job.OLD job.NEW")
	}
	sels, err := selectors(others)
	if err != nil {
		return a, err
	}
	for _, sel := range sels {
		if sel.Role != "" {
			return a, fmt.Errorf("%s is a part of a job, and moves with it: write job.NAME", sel)
		}
	}
	a.from, a.to = sels[0].Job, sels[1].Job
	if a.from == a.to {
		return a, fmt.Errorf("source and destination are the same, job.%s", a.from)
	}
	return a, nil
}

func runStateMv(s *session, args []string) int {
	a, err := parseStateMv(s, args)
	if err != nil {
		return s.misused("state mv", err)
	}
	move := func(stored state.State) (state.State, error) {
		if stored.Serial == 0 {
			return stored, errNoState
		}
		moved, err := stored.Jobs.Move(a.from, a.to)
		if err != nil || a.dryRun {
			return stored, err
		}
		return stored.Next(moved), nil
	}
	if err := s.edit(a.editArgs, "state mv", move); err != nil {
		return s.edited("Nothing was moved", err)
	}
	if a.dryRun {
		fmt.Fprintf(s.streams.Out, "Would move \"job.%s\" to \"job.%s\"\n", a.from, a.to)
		return exitDone
	}
	fmt.Fprintf(s.streams.Out, "Move \"job.%s\" to \"job.%s\"\nSuccessfully moved 1 object(s).\n", a.from, a.to)
	return exitDone
}

type statePullArgs struct{ vars assignments }

func (a *statePullArgs) declare(fs *flags) { a.vars.declare(fs) }

func statePullCommand() *command {
	return &command{
		name: "state pull", usage: "[options]",
		synopsis: "Print the state as JSON",
		about: `Prints the state as it is stored, as JSON: for a look, a copy, or an edit that eltrain state push brings back.
Where there is no state it prints nothing on the standard output and exits with 0. Sensitive values are not in it.`,
		declare: new(statePullArgs).declare,
		run:     runStatePull,
	}
}

func runStatePull(s *session, args []string) int {
	var a statePullArgs
	if _, err := s.parse(newFlags("state pull", a.declare), args, 0); err != nil {
		return s.misused("state pull", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	_, stored, ok := s.stored(ctx, a.vars)
	if !ok {
		return exitError
	}
	if stored.Serial == 0 {
		fmt.Fprintln(s.streams.Err, "Empty state (no state)")
		return exitDone
	}
	text, err := state.Encode(stored)
	if err == nil {
		_, err = s.streams.Out.Write(text)
	}
	if err != nil {
		return s.fail("The state cannot be printed", err)
	}
	return exitDone
}

type statePushArgs struct {
	editArgs
	force bool
	file  string
}

func (a *statePushArgs) declare(fs *flags) {
	fs.BoolVar(&a.force, "force", false, "Write the state even if it is of another lineage, or older.")
	a.editArgs.declare(fs)
}

func statePushCommand() *command {
	return &command{
		name: "state push", usage: "[options] FILE",
		synopsis: "Replace the state by a file",
		about: `Replaces the state by FILE, which is as eltrain state pull prints it; - is the standard input. A state of another
lineage is refused, and one with an older serial, or with the same serial and another content: after an edit by hand,
count serial up by one. -force writes it all the same.

The state that is stored gets the serial that follows in its place, and the place keeps its lineage: so who has planned
with the former state learns that it changed.`,
		declare: new(statePushArgs).declare,
		run:     runStatePush,
	}
}

// maxState bounds what is pushed: a state of 100,000 slots is some 50 MB.
const maxState = 256 << 20

func runStatePush(s *session, args []string) int {
	var a statePushArgs
	others, err := s.parse(newFlags("state push", a.declare), args, 1)
	if err == nil && len(others) == 0 {
		err = errors.New("a file is needed, or - for the standard input")
	}
	if err != nil {
		return s.misused("state push", err)
	}
	a.file = others[0]
	given, err := s.readState(a.file)
	if err != nil {
		return s.fail("The state to push cannot be read", err)
	}
	push := func(stored state.State) (state.State, error) {
		if !a.force {
			if err := state.CheckPush(stored, given); err != nil {
				return stored, err
			}
		}
		if stored.Serial > 0 && state.Same(stored, given) {
			return stored, nil
		}
		return state.Pushed(stored, given), nil
	}
	return s.edited("Failed to write state", s.edit(a.editArgs, "state push", push))
}

// readState reads a state from a file, or from the standard input.
func (s *session) readState(name string) (state.State, error) {
	in := s.streams.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return state.State{}, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxState+1))
	if err != nil {
		return state.State{}, err
	}
	if len(text) > maxState {
		return state.State{}, fmt.Errorf("%s is larger than %d bytes: that is no state", name, maxState)
	}
	return state.Parse(text)
}
