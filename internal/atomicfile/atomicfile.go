// Package atomicfile puts files in their place whole. Whoever reads a path, and whoever comes after a crash of the process
// or of the machine, finds the content of before or that of after, never a part and never an empty file. Content and name
// are on the disk when a function returns without an error.
//
// A file is written beside its place, under a name of its own each time, so that two who write at once do not mix. What a
// process leaves behind that was killed in between does no harm, and Sweep removes it.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// suffix ends the name of a file that is not in its place yet: ".NAME.RANDOM.tmp".
const suffix = ".tmp"

// Write replaces the file at path, or makes it, with these permissions whatever the umask. A symbolic link at path is
// replaced itself: see Resolve.
func Write(path string, content []byte, mode fs.FileMode) error {
	return WriteFor(nil, path, content, mode)
}

// WriteFor is Write for a file that belongs to whom another belongs to, most often the one that is replaced: root may change
// somebody else's files. Where owner or group cannot be given, it stays that of this process.
func WriteFor(owner fs.FileInfo, path string, content []byte, mode fs.FileMode) error {
	d, err := newDraft(owner, path, content, mode)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.Place()
}

// Create makes the file at path. If there is one it is left as it is, and the error is fs.ErrExist: of several who create
// one file exactly one succeeds, and the others find its content whole.
func Create(path string, content []byte, mode fs.FileMode) error {
	d, err := NewDraft(path, content, mode)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.PlaceNew()
}

// Draft is a file's next content, on the disk beside it. It is for those who have something to check between the writing,
// which takes long, and the one step that makes it count.
type Draft struct {
	path, temp string
	info       fs.FileInfo
}

// NewDraft writes a draft of the file at path. Its owner has to Discard it. After an error nothing of it is left.
func NewDraft(path string, content []byte, mode fs.FileMode) (*Draft, error) {
	return newDraft(nil, path, content, mode)
}

func newDraft(owner fs.FileInfo, path string, content []byte, mode fs.FileMode) (*Draft, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+suffix) // 0600 until it has its own
	if err != nil {
		return nil, besides(err)
	}
	d := &Draft{path: path, temp: f.Name()}
	if d.info, err = fill(f, owner, content, mode); err != nil {
		d.Discard()
		return nil, besides(err)
	}
	return d, nil
}

// fill writes a file to the disk and closes it.
func fill(f *os.File, owner fs.FileInfo, content []byte, mode fs.FileMode) (info fs.FileInfo, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return nil, err
	}
	if owner != nil {
		give(f, owner)
	}
	if err := f.Chmod(mode); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return f.Stat()
}

// give gives an open file, not what is found under its name, to the owner and the group of another, as far as that can be.
func give(f *os.File, owner fs.FileInfo) {
	of, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if f.Chown(int(of.Uid), int(of.Gid)) != nil {
		f.Chown(-1, int(of.Gid)) // this process may be in that group
	}
}

// Info is that of the file which Place puts there.
func (d *Draft) Info() fs.FileInfo { return d.info }

// Place puts the draft in its place. After an UnsyncedError it is there; after any other the file of before is.
func (d *Draft) Place() error {
	if err := os.Rename(d.temp, d.path); err != nil {
		return renamed(err)
	}
	d.temp = ""
	return d.settle()
}

// PlaceNew puts the draft in its place unless there is a file: then the error is fs.ErrExist.
func (d *Draft) PlaceNew() error {
	if err := os.Link(d.temp, d.path); err != nil {
		return renamed(err)
	}
	return d.settle()
}

func (d *Draft) settle() error {
	if err := SyncDir(filepath.Dir(d.path)); err != nil {
		return &UnsyncedError{err}
	}
	return nil
}

// Discard removes the draft if it was not placed.
func (d *Draft) Discard() {
	if d.temp != "" {
		os.Remove(d.temp) // what is left over does no harm
		d.temp = ""
	}
}

// UnsyncedError is of a file that is in its place, and may not be there after a power failure: the directory could not be
// synced.
type UnsyncedError struct{ Err error }

func (e *UnsyncedError) Error() string {
	return fmt.Sprintf("the new file is in place, but may not survive a power failure: %v", e.Err)
}

func (e *UnsyncedError) Unwrap() error { return e.Err }

// SyncDir makes the names in a directory outlive a power failure.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Sweep removes what those left beside the file at path who died before they had it in place. The draft of somebody who
// is still at it goes too, and its Place fails: call it where nobody else may write.
func Sweep(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // what is left over does no harm
	}
	for _, e := range entries {
		if isDraft(e.Name(), filepath.Base(path)) {
			os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// isDraft reports whether a file's name is that of a draft of another. os.CreateTemp makes its part of digits.
func isDraft(name, of string) bool {
	rest, ours := strings.CutPrefix(name, "."+of+".")
	digits, unplaced := strings.CutSuffix(rest, suffix)
	return ours && unplaced && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Resolve is the path to the regular file that path leads to, without symbolic links, so that a link stays one when what
// it leads to is replaced. The file need not be there yet. What is there and is no regular file is refused: a device or a
// pipe must not be replaced by a file.
func Resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // /dev/stdout leads to a pipe, which has no path
			return "", irregular(path)
		}
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("%q is a symbolic link to a missing file. Name the file itself", path)
		}
		return path, nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", irregular(path)
	}
	return real, nil
}

func irregular(path string) error {
	return fmt.Errorf("%q is not a regular file and is not replaced. Name a file", path)
}

// besides leaves the draft's name, which is another each time, out of an error: who tells a trouble once that lasts knows
// it by its text.
func besides(err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	return fmt.Errorf("%s a new file beside it: %w", at.Op, at.Err)
}

// renamed does the same for an error of two names.
func renamed(err error) error {
	var at *os.LinkError
	if !errors.As(err, &at) {
		return err
	}
	return &fs.PathError{Op: "put in place", Path: at.New, Err: at.Err}
}
