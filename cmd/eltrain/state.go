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

// stateArgs are the arguments of one subcommand of state.
type stateArgs interface {
	// declare declares its own options.
	declare(*flags)
	// take takes the positional arguments, which do not exceed the command's maximum.
	take(others []string) error
}

// stateLook is a subcommand that shows something of the state.
type stateLook interface {
	stateArgs
	// look shows something of stored, which may be the empty state.
	look(s *session, d *workspace.Workspace, stored state.State) error
}

// stateEdit is a subcommand that changes the state.
type stateEdit interface {
	stateArgs
	// edit returns the new state. If its serial is that of stored, nothing is written.
	edit(stored state.State) (state.State, error)
	// tell says what was done.
	tell(s *session)
}

// statePreparer is a subcommand with something slow to do before the lock is taken.
type statePreparer interface{ prepare(s *session) error }

// lookCommand makes a read-only command. most is its maximum number of arguments.
func lookCommand[L stateLook](c command, most int, blank func() L) *command {
	declare := func(look L, vars *assignments) func(*flags) {
		return func(fs *flags) { look.declare(fs); vars.declare(fs); declareTrust(fs) }
	}
	c.declare = declare(blank(), new(assignments))
	c.run = func(s *session, args []string) int {
		look, vars := blank(), assignments{}
		if err := s.takeState(c.name, declare(look, &vars), look, args, most); err != nil {
			return s.misused(c.name, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), workspace.LookTimeout)
		defer cancel()
		// The files are read only to locate the state and for sensitive values.
		d, ok := s.openState(s.dir.ReadAnyway(vars))
		if !ok {
			return exitError
		}
		stored, err := d.Store.Read(ctx)
		if err == nil {
			err = look.look(s, d, stored)
		}
		if err != nil {
			return s.fail("Cannot show the state", err)
		}
		return exitDone
	}
	return &c
}

// unchangedState is the summary of every reason why an edit was not applied.
const unchangedState = "The state was not changed"

// editCommand makes a command that changes the state. most is its maximum number of arguments.
func editCommand[E stateEdit](c command, most int, blank func() E) *command {
	declare := func(edit E, a *editArgs) func(*flags) {
		return func(fs *flags) { edit.declare(fs); a.declare(fs) }
	}
	c.declare = declare(blank(), new(editArgs))
	c.run = func(s *session, args []string) int {
		edit, a := blank(), editArgs{}
		if err := s.takeState(c.name, declare(edit, &a), edit, args, most); err != nil {
			return s.misused(c.name, err)
		}
		defer s.outlive()()
		if p, ok := any(edit).(statePreparer); ok {
			if err := p.prepare(s); err != nil {
				return s.fail(unchangedState, err)
			}
		}
		d, ok := s.openState(s.dir.ReadAnyway(a.vars))
		if !ok {
			return exitError
		}
		if err := s.edit(d, a, c.name, edit.edit); err != nil {
			return s.fail(unchangedState, err)
		}
		edit.tell(s)
		return exitDone
	}
	return &c
}

// takeState parses the command line of a subcommand.
func (s *session) takeState(name string, declare func(*flags), own stateArgs, args []string, most int) error {
	others, err := s.parse(newFlags(name, declare), args, most)
	if err != nil {
		return err
	}
	return own.take(others)
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
