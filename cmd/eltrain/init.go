package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
)

// sampleFile is the file that init writes: a job that runs anywhere, with what most jobs need.
const sampleFile = "job.hcl"

//go:embed sample.hcl
var sample []byte

type initArgs struct{ noOperands }

func (initArgs) declare(*flags) {}

func initCommand() *command {
	return taking(command{
		name: "init", usage: "[options]",
		synopsis: "Write a sample job to start from",
		about: `Writes job.hcl with a small job that runs on any machine, to be adapted. No other command requires it.

A directory that already has *.hcl files is left unchanged, without an error: nothing is ever overwritten.`,
	}, 0, (*session).init)
}

func (s *session) init(*initArgs) int {
	defer s.outlive()()
	there, err := filepath.Glob(filepath.Join(workspace.JobDirectory, "*.hcl"))
	if err != nil {
		return s.fail("Cannot read the directory", err)
	}
	if len(there) > 0 {
		fmt.Fprintf(s.streams.Out, "Nothing written: %s already exists. eltrain plan shows what it would do.\n", there[0])
		return exitDone
	}
	err = writeNew(filepath.Join(workspace.JobDirectory, sampleFile), sample)
	if err != nil {
		return s.fail("Cannot write the sample", err)
	}
	view.WriteSuccess(s.streams.Out, sampleFile+" written. To see what it would do, run eltrain plan; to run it, eltrain run or eltrain apply.")
	return exitDone
}

// writeNew writes a new file. It never overwrites one: a job file belongs to the user.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists: remove it first, or name another file", path)
	}
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	return f.Close()
}
