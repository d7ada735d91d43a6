// Package formatter writes files in canonical format.
package formatter

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
	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/lang"
)

// Options say what is done with what is not in canonical format.
type Options struct {
	Check     bool // nothing but to find it
	Diff      bool // show the changes
	List      bool // show the files' names
	Write     bool // change the files
	Recursive bool // also those in subdirectories
}

// Formatter formats files, and shows what it does.
type Formatter struct {
	o       Options
	out     io.Writer
	Files   map[string]*hcl.File // those that do not parse, for diagnostics
	Changed bool                 // something was not in canonical format
	Failed  bool                 // there was an error besides files that do not parse
}

// New returns a Formatter that writes to out.
func New(o Options, out io.Writer) *Formatter {
	return &Formatter{o: o, out: out, Files: map[string]*hcl.File{}}
}

// cannot returns the error that what could not be done; nil if output was lost, which output.Checked remembers.
func (f *Formatter) cannot(what string, err error) error {
	f.Failed = true
	if errors.As(err, new(*output.LostError)) {
		return nil
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot " + what, Detail: view.Explain(err)}
}

// stdinName is the file name of the standard input in messages.
const stdinName = "<stdin>"

// Input formats the standard input to out.
func (f *Formatter) Input(in io.Reader) error {
	src, err := io.ReadAll(in)
	if err != nil {
		return f.cannot("read the standard input", err)
	}
	out, err := f.format(stdinName, src)
	if err != nil || f.o.Check {
		return err
	}
	if f.o.Diff {
		return f.showDiff(stdinName, src, out)
	}
	if _, err := f.out.Write(out); err != nil {
		return f.cannot("write the standard output", err)
	}
	return nil
}

// Path formats a file, or the files of a directory. It continues after an error with the other files.
func (f *Formatter) Path(path string) error {
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
			if f.o.Recursive {
				errs = append(errs, f.Path(filepath.Join(path, name)))
			}
		case strings.HasSuffix(name, ".hcl") || name == "eltrain.vars" || strings.HasSuffix(name, ".auto.vars"):
			errs = append(errs, f.file(filepath.Join(path, name)))
		}
	}
	return errors.Join(errs...)
}

// maxFormatted is more than the language reads of a file.
const maxFormatted = 64 << 20

func (f *Formatter) file(path string) error {
	src, err := regular.ReadNamed(path, maxFormatted)
	if err != nil {
		return f.cannot("format "+path, err)
	}
	out, err := f.format(path, src)
	if err != nil || bytes.Equal(src, out) {
		return err
	}
	if f.o.Write { // before it is listed: what cannot be written does not change
		if err := replaceFile(path, out); err != nil {
			return f.cannot("format "+path, err)
		}
	}
	if f.o.List {
		fmt.Fprintln(f.out, path)
	}
	if f.o.Diff {
		return f.showDiff(path, src, out)
	}
	return nil
}

// format is src in canonical format.
func (f *Formatter) format(name string, src []byte) ([]byte, error) {
	out, diags := lang.Format(src, name)
	if diags.HasErrors() {
		if name == stdinName || strings.HasSuffix(name, ".hcl") { // other files have variables' values, which are not quoted: see lang.Config.Files
			f.Files[name] = &hcl.File{Bytes: src}
		}
		return nil, diags
	}
	f.Changed = f.Changed || !bytes.Equal(src, out)
	return out, nil
}

func (f *Formatter) showDiff(name string, before, after []byte) error {
	err := difflib.WriteUnifiedDiff(f.out, difflib.UnifiedDiff{
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
