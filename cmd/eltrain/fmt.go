package main

import (
	"github.com/eltrain/eltrain/cmd/formatter"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
)

type fmtArgs struct {
	formatter.Options
	target string // a file, a directory, or "-" for the standard input
}

func (a *fmtArgs) declare(fs *flags) {
	fs.BoolVar(&a.Check, "check", false, "Change nothing; exit with 3 if a file is not in canonical format.")
	fs.BoolVar(&a.Diff, "diff", false, "Show the changes.")
	fs.BoolVar(&a.List, "list", true, "Do not list the files that change.")
	fs.BoolVar(&a.Recursive, "recursive", false, "Format subdirectories as well.")
	fs.BoolVar(&a.Write, "write", true, "Do not change files.")
}

func (a *fmtArgs) take(_ *session, others []string) error {
	a.target = workspace.JobDirectory
	if len(others) == 1 {
		a.target = others[0]
	}
	if a.Check {
		a.Write = false
	}
	return nil
}

func fmtCommand() *command {
	return taking(command{
		name: "fmt", usage: "[options] [FILE, DIR or -]",
		synopsis: "Write the files in canonical format",
		about: `Rewrites files in eltrain's canonical format: all *.hcl, eltrain.vars and *.auto.vars of a directory,
the current one by default, or one file. With "-" it formats the standard input to the standard output.
Lists the files that change.`,
		exits: []string{
			"Done.",
			"A file cannot be read or written, or there is none.",
			"A file does not parse.",
			"With -check: a file is not in canonical format.",
		},
	}, 1, (*session).format)
}

func (s *session) format(a *fmtArgs) int {
	defer s.outlive()()
	f := formatter.New(a.Options, s.streams.Out)
	var err error
	if a.target == "-" {
		err = f.Input(s.streams.In)
	} else {
		err = f.Path(a.target)
	}
	s.diagnose(view.Diagnose(err, f.Files)...)
	switch {
	case f.Failed:
		return exitError
	case err != nil:
		return exitParse
	case a.Check && f.Changed:
		return exitUnclean
	}
	return exitDone
}
