package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/eltrain/eltrain/cmd/view"
)

// sampleFile is what init writes: a job that runs anywhere, with what most jobs need.
const sampleFile = "job.hcl"

//go:embed sample.hcl
var sample []byte

func initCommand() *command {
	return &command{
		name: "init", usage: "[options]",
		synopsis: "Write a sample job to begin with",
		about: `Writes job.hcl with a small job that runs on any machine as it is, to be changed into yours. No other command
needs this one to have been run.

A directory that has *.hcl files already is left as it is: nothing is ever overwritten, and that is no error.`,
		declare: func(*flags) {},
		run:     runInit,
	}
}

func runInit(s *session, args []string) int {
	if _, err := s.parse(newFlags("init", func(*flags) {}), args, 0); err != nil {
		return s.misused("init", err)
	}
	defer s.outlive()()
	there, err := filepath.Glob(filepath.Join(jobDirectory, "*.hcl"))
	if err != nil {
		return s.fail("Cannot read the directory", err)
	}
	if len(there) > 0 {
		fmt.Fprintf(s.streams.Out, "Nothing is written: %s is there already. eltrain plan shows what it would do.\n", there[0])
		return exitDone
	}
	err = writeNew(filepath.Join(jobDirectory, sampleFile), sample)
	if err != nil {
		return s.fail("Cannot write the sample", err)
	}
	view.WriteSuccess(s.streams.Out, sampleFile+" is written. To see what it would do, run eltrain plan; to run it, eltrain apply.")
	return exitDone
}

// writeNew writes a file that is not there yet: a job file is a person's.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: remove it first, or name another file", path)
	}
	if err != nil {
		return err
	}
	if _, err = f.Write(content); err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	return f.Close()
}
