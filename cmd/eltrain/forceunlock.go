package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/workspace"
)

type forceUnlockArgs struct {
	force bool
	vars  assignments
	id    string
}

func (a *forceUnlockArgs) declare(fs *flags) {
	fs.BoolVar(&a.force, "force", false, "Do not ask for confirmation.")
	a.vars.declare(fs)
}

func (a *forceUnlockArgs) take(_ *session, others []string) error {
	if len(others) == 0 {
		return errors.New("the ID of the lock is missing: the message that the state is locked shows it")
	}
	a.id = others[0]
	return nil
}

func forceUnlockCommand() *command {
	return taking(command{
		name: "force-unlock", usage: "[options] LOCK_ID",
		synopsis: "Release a stuck state lock",
		about: `Releases the lock with the ID LOCK_ID. The message that the state is locked shows the ID and the holder. A
holder that is still alive can no longer write and exits; what is running is not touched.

Rarely needed: the lock of a holder that died expires by itself, at once on the same machine, and after 15 seconds
elsewhere.`,
	}, 1, (*session).forceUnlock)
}

var unlockQuestion = terminal.Question{
	Ask:     "Do you really want to force-unlock?",
	Explain: "eltrain will remove the lock on the state. This will allow other eltrain commands to\n  modify it, even though it may still be in use.",
	Instead: "-force",
}

func (s *session) forceUnlock(a *forceUnlockArgs) int {
	ctx, stop := s.interruptible()
	defer stop()
	defer s.outlive()()
	d, ok := s.openState(s.dir.ReadAnyway(a.vars))
	if !ok {
		return exitError
	}
	if !a.force {
		yes, err := s.approved(ctx, unlockQuestion)
		if err != nil {
			return s.fail("Approval not received", err)
		}
		if !yes {
			fmt.Fprintln(s.streams.Out, "force-unlock cancelled.")
			return exitError
		}
	}
	breaking, cancel := context.WithTimeout(ctx, workspace.LookTimeout)
	defer cancel()
	if _, err := d.Store.Break(breaking, a.id); err != nil {
		return s.fail("Failed to unlock state", err)
	}
	fmt.Fprint(s.streams.Out, "eltrain state has been successfully unlocked!\n\nThe state has been unlocked, and eltrain commands should now be able to\nobtain a new lock on the state.\n")
	return exitDone
}
