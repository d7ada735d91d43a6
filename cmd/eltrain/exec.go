package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/eltrain/eltrain/cmd/slots"
	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// exitInterrupted is the exit code of exec after an interrupt, as shells report it.
const exitInterrupted = 130

type execArgs struct {
	input, terminal bool
	vars            assignments
	selector        job.Selector
	command         []string
}

func (a *execArgs) declare(fs *flags) {
	fs.BoolVar(&a.input, "i", false, "Pass the standard input to the command.")
	fs.BoolVar(&a.terminal, "t", false, "Give the command a terminal.")
	fs.BoolFunc("it", "Both: for a shell.", func(string) error {
		a.input, a.terminal = true, true
		return nil
	})
	fs.rest = &a.command
	a.vars.declare(fs)
	declareTrust(fs)
}

func (a *execArgs) take(_ *session, others []string) (err error) {
	switch {
	case len(others) == 0:
		return errors.New("an address is missing: write job.NAME.ROLE[3]")
	case len(a.command) == 0:
		return fmt.Errorf("a command is missing: write exec %s -- COMMAND", others[0])
	case len(others) > 1:
		return fmt.Errorf("a command runs in one slot: %q is not expected here", others[1])
	}
	a.selector, err = job.ParseSelector(others[0])
	return err
}

func execCommand() *command {
	return taking(command{
		name: "exec", usage: "[options] ADDRESS -- COMMAND [args]",
		synopsis: "Run a command in a slot",
		about: `Runs COMMAND in the slot that ADDRESS names, as its training processes run: in the environment of the first of them, in its
working directory and within its limits. On a cluster it runs in the pod, with the rights of your own kubeconfig. Its
output is not searched for sensitive values.

Without -t an interrupt ends this command. Under the local provider COMMAND ends with it, with the slot's agent, and with
the world that its environment describes; in a pod it may run on.`,
		exits: []string{
			"The exit code of COMMAND.",
			"From 1: the exit code of COMMAND, 126 or 127 if it could not be started, 130 after an interrupt; 1 is also an error, which is shown.",
		},
	}, manyArguments, (*session).exec)
}

func (s *session) exec(a *execArgs) int {
	if a.input && a.terminal && !term.IsTerminal(int(os.Stdin.Fd())) {
		return s.misused("exec", errors.New("-i with -t needs a terminal as the standard input: for a pipe or a file write -i alone"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	defer s.outlive()() // the terminal must be restored
	d, records, ok := s.openRecords(ctx, a.vars)
	if !ok {
		return exitError
	}
	defer d.Close()
	named, err := slots.Named(ctx, d, records, a.selector)
	if err == nil && len(named) > 1 {
		err = fmt.Errorf("%s names %d slots, and a command runs in one: write %s", a.selector, len(named), named[0].Address)
	}
	if err != nil {
		return s.fail("Cannot run the command", err)
	}
	// It has these streams themselves: what it prints is no output of eltrain, and may be binary.
	command := providers.Command{Args: a.command, Stdout: os.Stdout, Stderr: os.Stderr, Term: s.getenv("TERM")}
	if a.input {
		command.Stdin = os.Stdin
	}
	restore := func() {}
	if a.terminal {
		if restore, err = terminal.Lend(ctx, &command); err != nil {
			return s.fail("Cannot use the terminal", err)
		}
	}
	code, err := named[0].Run(ctx, command)
	restore()
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return s.fail("Cannot run the command", fmt.Errorf("%s: %w", named[0].Address, err))
	}
	return code
}
