package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

func stateCommand() *command {
	return group("state", "Inspect and repair the state",
		`The state is eltrain's record of its jobs. These commands only change the record, never what is running. Each
change is one write under the state's lock, and the previous state is kept as a backup.`,
		stateListCommand(), stateMvCommand(), statePullCommand(), statePushCommand(), stateRmCommand(), stateShowCommand())
}

// stateLook is a subcommand that shows something of the state.
type stateLook interface {
	arguments
	// look shows something of stored, which may be the empty state.
	look(s *session, d *workspace.Workspace, stored state.State) error
}

// stateEdit is a subcommand that changes the state.
type stateEdit interface {
	arguments
	// edit returns the new state. If its serial is that of stored, nothing is written.
	edit(stored state.State) (state.State, error)
	// tell says what was done.
	tell(s *session)
}

// statePreparer is a subcommand with something slow to do before the lock is taken.
type statePreparer interface{ prepare(s *session) error }

// looking are the arguments of a read-only command.
type looking[L stateLook] struct {
	own  L
	vars assignments
}

func (a *looking[L]) declare(fs *flags) {
	a.own.declare(fs)
	a.vars.declare(fs)
	declareTrust(fs)
}

func (a *looking[L]) take(s *session, others []string) error { return a.own.take(s, others) }

// lookCommand makes a read-only command. most is its maximum number of arguments.
func lookCommand[L stateLook](c command, most int, blank func() L) *command {
	return takingFrom(c, most, func() *looking[L] { return &looking[L]{own: blank()} }, func(s *session, a *looking[L]) int {
		ctx, cancel := context.WithTimeout(context.Background(), workspace.LookTimeout)
		defer cancel()
		// The files are read only to locate the state and for sensitive values.
		d, ok := s.openState(s.dir.ReadAnyway(a.vars))
		if !ok {
			return exitError
		}
		stored, err := d.Store.Read(ctx)
		if err == nil {
			err = a.own.look(s, d, stored)
		}
		if err != nil {
			return s.fail("Cannot show the state", err)
		}
		return exitDone
	})
}

// editing are the arguments of a command that changes the state.
type editing[E stateEdit] struct {
	own E
	editArgs
}

func (a *editing[E]) declare(fs *flags) {
	a.own.declare(fs)
	a.editArgs.declare(fs)
}

func (a *editing[E]) take(s *session, others []string) error { return a.own.take(s, others) }

// unchangedState is the summary of every reason why an edit was not applied.
const unchangedState = "The state was not changed"

// editCommand makes a command that changes the state. most is its maximum number of arguments.
func editCommand[E stateEdit](c command, most int, blank func() E) *command {
	return takingFrom(c, most, func() *editing[E] { return &editing[E]{own: blank()} }, func(s *session, a *editing[E]) int {
		defer s.outlive()()
		if p, ok := any(a.own).(statePreparer); ok {
			if err := p.prepare(s); err != nil {
				return s.fail(unchangedState, err)
			}
		}
		d, ok := s.openState(s.dir.ReadAnyway(a.vars))
		if !ok {
			return exitError
		}
		if err := s.edit(d, a.editArgs, c.name, a.own.edit); err != nil {
			return s.fail(unchangedState, err)
		}
		a.own.tell(s)
		return exitDone
	})
}

// editArgs are the options of all commands that change the state.
type editArgs struct {
	lockTimeout time.Duration
	vars        assignments
}

func (a *editArgs) declare(fs *flags) {
	fs.waitVar(&a.lockTimeout, "lock-timeout", "Wait up to `DURATION`, such as 30s, for the state's lock.")
	a.vars.declare(fs)
}

// edit changes the state under its lock.
func (s *session) edit(d *workspace.Workspace, a editArgs, operation string, next func(state.State) (state.State, error)) error {
	ctx, stop := s.interruptible()
	defer stop()
	lock, _, err := s.lock(ctx, d.Store, operation, a.lockTimeout)
	if err != nil {
		return err
	}
	defer s.unlock(lock)
	stored, err := d.Store.Read(ctx)
	if err != nil {
		return err
	}
	changed, err := next(stored)
	if err != nil || changed.Serial == stored.Serial {
		return err
	}
	return d.Store.Write(ctx, changed, lock)
}

// manyArguments is for commands that take any number.
const manyArguments = 1 << 20

// errNoState corresponds to Terraform's error.
var errNoState = errors.New("no state was found: nothing has been applied in this directory yet, or the state block names another place")

// selectors parses a command's addresses.
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

// checkKnown returns an error for a selector that names nothing in the state.
func checkKnown(stored state.State, sels []job.Selector) error {
	if stored.Serial == 0 {
		return errNoState
	}
	for _, sel := range sels {
		if rec := stored.Jobs[sel.Job]; rec == nil || sel.Role != "" && len(rec.Matching(sel)) == 0 {
			if o, destroyed := stored.Destroyed[sel.Job]; destroyed {
				return fmt.Errorf("%s is not in the state: %s destroyed it. eltrain restart job.%s, or an edit of its block, starts it again", sel, o.By, sel.Job)
			}
			return fmt.Errorf("the current state contains nothing at %s. eltrain state list shows what it contains", sel)
		}
	}
	return nil
}
