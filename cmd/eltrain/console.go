package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

type consoleArgs struct {
	noOperands
	vars assignments
}

func (a *consoleArgs) declare(fs *flags) {
	a.vars.declare(fs)
	declareTrust(fs)
}

func consoleCommand() *command {
	return taking(command{
		name: "console", usage: "[options]",
		synopsis: "Try expressions interactively",
		about: `Evaluates expressions, one per line, with the variables, local values, modules, jobs (job.NAME) and functions
of the job directory; without files there, with the functions only. An expression with an open bracket continues on the
next line. Nothing is contacted or changed.

A variable without a value or default is an unknown value of its type: "(not known)".

"exit", Ctrl-C or Ctrl-D ends it. Lines from a pipe are evaluated until the first error.`,
		exits: []string{
			"No expression failed.",
			"The files, or an expression from a pipe, are invalid.",
		},
	}, 0, (*session).console)
}

func (s *session) console(a *consoleArgs) int {
	cfg, diags := s.dir.Load(a.vars)
	diags = lang.WithoutBlank(lang.WithoutUnset(diags)) // functions work without any files
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	if diags.HasErrors() {
		return exitError
	}
	c := console{s: s, config: cfg}
	if !s.streams.Interactive {
		return c.piped(bufio.NewReader(s.streams.In))
	}
	keyboard, ok := s.streams.In.(*os.File)
	if !ok {
		return s.fail("Cannot use the console", errors.New("the standard input is not a terminal"))
	}
	return c.converse(terminal.NewPrompter(keyboard, s.streams.Out))
}

// console evaluates expressions.
type console struct {
	s      *session
	config *lang.Config
}

const consoleHelp = `Evaluates expressions with what the files of this directory define:

  var.NAME, local.NAME, module.NAME.OUTPUT, job.NAME.role.NAME.replicas
  ceil(7 / 2), jsonencode(job.NAME), [for r in job.NAME.role : r.replicas]

Nothing here changes anything. To leave: exit, Ctrl-C or Ctrl-D.`

// answer evaluates one entry and shows its value, or what is wrong with it.
func (c *console) answer(entry string) (ok bool) {
	switch entry = strings.TrimSpace(entry); entry {
	case "":
		return true
	case "help":
		fmt.Fprintln(c.s.streams.Out, consoleHelp)
		return true
	}
	val, diags := c.config.Evaluate(entry)
	c.s.diagnose(view.DiagnoseHCL(diags, c.config.Files)...)
	if diags.HasErrors() {
		return false
	}
	fmt.Fprintln(c.s.streams.Out, view.Value(val))
	return true
}

// piped evaluates what a program writes. It stops at the first error: later entries may depend on it.
func (c *console) piped(in *bufio.Reader) int {
	for {
		entry, more, err := terminal.Entry(func(string) (string, error) { return in.ReadString('\n') }, lang.Unfinished)
		if err != nil {
			return c.s.fail("Cannot read the expressions", err)
		}
		if strings.TrimSpace(entry) == "exit" {
			return exitDone
		}
		if !c.answer(entry) {
			return exitError
		}
		if !more {
			return exitDone
		}
	}
}

// converse evaluates what a person types. It continues after errors.
func (c *console) converse(p *terminal.Prompter) int {
	for {
		entry, more, err := terminal.Entry(p.Line, lang.Unfinished)
		if err != nil {
			return c.s.fail("Cannot read from the terminal", err)
		}
		if !more || strings.TrimSpace(entry) == "exit" {
			return exitDone
		}
		c.answer(entry)
	}
}
