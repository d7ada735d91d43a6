// Package atomicfile replaces files atomically. A reader, even after a crash of the process or the machine, finds either the
// old or the new content, never a part and never an empty file. Content and name are on disk when a function returns without an
// error.
//
// A file is first written next to its destination, under a unique name, so that concurrent writers do not mix. What a killed
// process leaves behind is harmless, and Sweep removes it.
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

// suffix ends the name of a file that is not in place yet: ".NAME.RANDOM.tmp".
const suffix = ".tmp"

// Write replaces or creates the file at path, with these permissions regardless of the umask. A symbolic link at path is itself
// replaced: see Resolve.
func Write(path string, content []byte, mode fs.FileMode) error {
	return WriteFor(nil, path, content, mode)
}

// WriteFor is Write, and sets the file's owner and group to those of owner, usually the replaced file: root may change somebody
// else's files. If that is not permitted, they stay those of this process.
func WriteFor(owner fs.FileInfo, path string, content []byte, mode fs.FileMode) error {
	d, err := newDraft(owner, path, content, mode)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.Place()
}

// Create creates the file at path. If it exists it is left as it is, and the error is fs.ErrExist: of concurrent calls exactly
// one succeeds, and the others find its complete content.
func Create(path string, content []byte, mode fs.FileMode) error {
	d, err := NewDraft(path, content, mode)
	if err != nil {
		return err
	}
	defer d.Discard()
	return d.PlaceNew()
}

// Draft is a file's next content, on disk next to it. It is for callers that check something between writing, which takes long,
// and the one step that puts it in place.
type Draft struct {
	path, temp string
	info       fs.FileInfo
}

// NewDraft writes a draft of the file at path. The caller must Discard it. After an error nothing of it is left.
func NewDraft(path string, content []byte, mode fs.FileMode) (*Draft, error) {
	return newDraft(nil, path, content, mode)
}

func newDraft(owner fs.FileInfo, path string, content []byte, mode fs.FileMode) (*Draft, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+suffix) // 0600 until it has its own mode
	if err != nil {
		return nil, withoutDraftName(err)
	}
	d := &Draft{path: path, temp: f.Name()}
	if d.info, err = fill(f, owner, content, mode); err != nil {
		d.Discard()
		return nil, withoutDraftName(err)
	}
	return d, nil
}

// fill writes a file to disk and closes it.
func fill(f *os.File, owner fs.FileInfo, content []byte, mode fs.FileMode) (info fs.FileInfo, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return nil, err
	}
	if owner != nil {
		setOwner(f, owner)
	}
	if err := f.Chmod(mode); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return f.Stat()
}

// setOwner sets the owner and group of an open file, rather than of its path, to those of another, as far as permitted.
func setOwner(f *os.File, owner fs.FileInfo) {
	of, ok := owner.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if f.Chown(int(of.Uid), int(of.Gid)) != nil {
		f.Chown(-1, int(of.Gid)) // this process may be in that group
	}
}

// Info is that of the file that Place puts in place.
func (d *Draft) Info() fs.FileInfo { return d.info }

// Place puts the draft in place. After an UnsyncedError it is in place; after any other error the old file is.
func (d *Draft) Place() error {
	if err := os.Rename(d.temp, d.path); err != nil {
		return withoutLinkNames(err)
	}
	d.temp = ""
	return d.syncDir()
}

// PlaceNew puts the draft in place unless the file exists: then the error is fs.ErrExist.
func (d *Draft) PlaceNew() error {
	if err := os.Link(d.temp, d.path); err != nil {
		return withoutLinkNames(err)
	}
	return d.syncDir()
}

func (d *Draft) syncDir() error {
	if err := SyncDir(filepath.Dir(d.path)); err != nil {
		return &UnsyncedError{err}
	}
	return nil
}

// Discard removes the draft if it was not placed.
func (d *Draft) Discard() {
	if d.temp != "" {
		os.Remove(d.temp) // a leftover is harmless
		d.temp = ""
	}
}

// UnsyncedError reports that a file is in place but may not survive a power failure: its directory could not be synced.
type UnsyncedError struct{ Err error }

func (e *UnsyncedError) Error() string {
	return fmt.Sprintf("the new file is in place, but may not survive a power failure: %v", e.Err)
}

func (e *UnsyncedError) Unwrap() error { return e.Err }

// SyncDir makes the names in a directory survive a power failure.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Sweep removes the drafts of the file at path that crashed processes left behind. It also removes drafts of live writers,
// whose Place then fails: call it where nobody else may write.
func Sweep(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // a leftover is harmless
	}
	for _, e := range entries {
		if isDraft(e.Name(), filepath.Base(path)) {
			os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// isDraft reports whether a file's name is that of a draft of another file. os.CreateTemp uses digits.
func isDraft(name, of string) bool {
	rest, ours := strings.CutPrefix(name, "."+of+".")
	digits, unplaced := strings.CutSuffix(rest, suffix)
	return ours && unplaced && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Resolve returns the regular file that path leads to, without symbolic links, so that replacing it keeps the links. The file
// need not exist. Anything that exists and is not a regular file is refused: a device or a pipe must not be replaced by a file.
func Resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // /dev/stdout may lead to a pipe, which has no path
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
	return fmt.Errorf("%q is not a regular file and cannot be replaced. Name a regular file", path)
}

// withoutDraftName removes the draft's name, which differs each time, from an error, so that a lasting error has the same text and is
// reported once.
func withoutDraftName(err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	return fmt.Errorf("%s a temporary file next to it: %w", at.Op, at.Err)
}

// withoutLinkNames does the same for an error with two names.
func withoutLinkNames(err error) error {
	var at *os.LinkError
	if !errors.As(err, &at) {
		return err
	}
	return &fs.PathError{Op: "put in place", Path: at.New, Err: at.Err}
}
