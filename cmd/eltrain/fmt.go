package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/pmezard/go-difflib/difflib"

	"github.com/eltrain/eltrain/cmd/output"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/lang"
)

type fmtArgs struct {
	check, diff, recursive, write, list bool
	target                              string // a file, a directory, or "-" for the standard input
}

func (a *fmtArgs) declare(fs *flags) {
	fs.BoolVar(&a.check, "check", false, "Change nothing; exit with 3 if a file is not in canonical format.")
	fs.BoolVar(&a.diff, "diff", false, "Show the changes.")
	fs.BoolVar(&a.list, "list", true, "Do not list the files that change.")
	fs.BoolVar(&a.recursive, "recursive", false, "Format subdirectories as well.")
	fs.BoolVar(&a.write, "write", true, "Do not change files.")
}

func parseFmt(s *session, args []string) (fmtArgs, error) {
	a := fmtArgs{target: workspace.JobDirectory}
	others, err := s.parse(newFlags("fmt", a.declare), args, 1)
	if err != nil {
		return a, err
	}
	if len(others) == 1 {
		a.target = others[0]
	}
	if a.check {
		a.write = false
	}
	return a, nil
}

func fmtCommand() *command {
	return &command{
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
		declare: new(fmtArgs).declare,
		run:     runFmt,
	}
}

func runFmt(s *session, args []string) int {
	a, err := parseFmt(s, args)
	if err != nil {
		return s.misused("fmt", err)
	}
	defer s.outlive()()
	f := formatter{session: s, fmtArgs: a, files: map[string]*hcl.File{}}
	if a.target == "-" {
		err = f.input()
	} else {
		err = f.path(a.target)
	}
	s.diagnose(view.Diagnose(err, f.files)...)
	switch {
	case f.failed:
		return exitError
	case err != nil:
		return exitParse
	case a.check && f.changed:
		return exitUnclean
	}
	return exitDone
}

// formatter carries out one fmt.
type formatter struct {
	*session
	fmtArgs
	files   map[string]*hcl.File // those that do not parse, for diagnostics
	changed bool
	failed  bool // there was an error besides files that do not parse
}

// cannot returns the error that what could not be done.
func (f *formatter) cannot(what string, err error) error {
	f.failed = true
	if errors.As(err, new(*output.LostError)) {
		return nil // failIfOutputLost reports it at the end
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot " + what, Detail: view.Explain(err)}
}

// stdinName is the file name of the standard input in messages.
const stdinName = "<stdin>"

// input formats the standard input to the standard output.
func (f *formatter) input() error {
	src, err := io.ReadAll(f.streams.In)
	if err != nil {
		return f.cannot("read the standard input", err)
	}
	out, err := f.format(stdinName, src)
	if err != nil || f.check {
		return err
	}
	if f.diff {
		return f.showDiff(stdinName, src, out)
	}
	if _, err := f.streams.Out.Write(out); err != nil {
		return f.cannot("write the standard output", err)
	}
	return nil
}

// path formats a file, or the files of a directory. It continues after an error with the other files.
func (f *formatter) path(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f.cannot("format "+path, fmt.Errorf("the file or directory %s does not exist", path))
	case err != nil:
		return f.cannot("format "+path, err)
	case !info.IsDir():
		return f.file(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return f.cannot("format the files of "+path, err)
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."): // .eltrain, .git
		case e.IsDir():
			if f.recursive {
				errs = append(errs, f.path(filepath.Join(path, name)))
			}
		case strings.HasSuffix(name, ".hcl") || name == "eltrain.vars" || strings.HasSuffix(name, ".auto.vars"):
			errs = append(errs, f.file(filepath.Join(path, name)))
		}
	}
	return errors.Join(errs...)
}

// maxFormatted is more than the language reads of a file.
const maxFormatted = 64 << 20

func (f *formatter) file(path string) error {
	src, err := regular.ReadNamed(path, maxFormatted)
	if err != nil {
		return f.cannot("format "+path, err)
	}
	out, err := f.format(path, src)
	if err != nil || bytes.Equal(src, out) {
		return err
	}
	if f.write { // before it is listed: what cannot be written does not change
		if err := replaceFile(path, out); err != nil {
			return f.cannot("format "+path, err)
		}
	}
	if f.list {
		fmt.Fprintln(f.streams.Out, path)
	}
	if f.diff {
		return f.showDiff(path, src, out)
	}
	return nil
}

// format is src in canonical format.
func (f *formatter) format(name string, src []byte) ([]byte, error) {
	out, diags := lang.Format(src, name)
	if diags.HasErrors() {
		if name == stdinName || strings.HasSuffix(name, ".hcl") { // other files have variables' values, which are not quoted: see lang.Config.Files
			f.files[name] = &hcl.File{Bytes: src}
		}
		return nil, diags
	}
	f.changed = f.changed || !bytes.Equal(src, out)
	return out, nil
}

func (f *formatter) showDiff(name string, before, after []byte) error {
	err := difflib.WriteUnifiedDiff(f.streams.Out, difflib.UnifiedDiff{
		A: lines(before), B: lines(after), FromFile: "old/" + name, ToFile: "new/" + name, Context: 3,
	})
	if err != nil {
		return f.cannot("show the changes of "+name, err)
	}
	return nil
}

// lines splits text for a diff: each line ends in a newline, the last one too.
func lines(text []byte) []string {
	split := strings.SplitAfter(string(text), "\n")
	split = slices.DeleteFunc(split, func(line string) bool { return line == "" })
	if n := len(split); n > 0 && !strings.HasSuffix(split[n-1], "\n") {
		split[n-1] += "\n"
	}
	return split
}

// replaceFile replaces a file's content atomically. It keeps symbolic links and the file's mode, and its owner and group as
// far as this process may set them.
func replaceFile(path string, content []byte) error {
	real, err := atomicfile.Resolve(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return atomicfile.WriteFor(info, real, content, info.Mode().Perm())
}
