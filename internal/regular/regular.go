// Package regular opens files that others may have replaced: a training process, another user of a directory, the author of a
// checkout. It opens regular files only, without waiting, and reads them up to a limit: a named pipe would block
// the reader, a device or a sparse file would take all its memory, and a link would lead it elsewhere.
package regular

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/eltrain/eltrain/job"
)

// Open opens a file of eltrain's own, or one that a training process writes, with the flags of os.OpenFile. It does not follow
// a symbolic link at path; one in the path's directories it does. Anything other than a regular file is an *Error.
func Open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	return open(path, flag|syscall.O_NOFOLLOW, mode, os.Lstat, "move it away")
}

// OpenNamed opens a file that a user named for reading. It follows symbolic links, through which Kubernetes mounts secrets.
func OpenNamed(path string) (*os.File, error) {
	return open(path, os.O_RDONLY, 0, os.Stat, "name a regular file")
}

// Read reads a file as Open does. A file larger than limit bytes is an *Error.
func Read(path string, limit int64) ([]byte, error) {
	return read(func() (*os.File, error) { return Open(path, os.O_RDONLY, 0) }, limit)
}

// ReadNamed reads a file as OpenNamed does. A file larger than limit bytes is an *Error.
func ReadNamed(path string, limit int64) ([]byte, error) {
	return read(func() (*os.File, error) { return OpenNamed(path) }, limit)
}

// ReadSecret reads a token or key as ReadNamed does. Others must not have access to it. It belongs to the user or to root, as what
// Kubernetes mounts does, and neither group nor others have a permission, except that the group may read root's file, as when
// Kubernetes gives a Secret to a pod with an fsGroup. PostgreSQL has the same rule for keys.
func ReadSecret(path string, limit int64) ([]byte, error) {
	f, err := OpenNamed(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := secret(path, info, os.Geteuid()); err != nil {
		return nil, err
	}
	return All(f, limit)
}

// secret returns an *Error if a file does not keep a secret of a user.
func secret(path string, info fs.FileInfo, user int) error {
	forbidden := fs.FileMode(0o077)
	switch owner := Owner(info); owner {
	case 0:
		forbidden = 0o037
	case user:
	default:
		return &Error{path, foreign(owner, user), fmt.Sprintf("check where it comes from, then run chown %d %s, or run eltrain as user %d", user, path, owner)}
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return &Error{path, fmt.Sprintf("accessible to others, its mode is %04o", mode), "run chmod 600 " + path}
	}
	return nil
}

// Owner returns the user that a file belongs to.
func Owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func foreign(owner, user int) string {
	return fmt.Sprintf("owned by user %d, not by user %d", owner, user)
}

// CheckPrivate returns an *Error if others can replace files in a directory of eltrain's own: it belongs to the user, and nobody
// else may write to it. As with ssh's, they may list it: its files are not readable. A missing directory is private.
func CheckPrivate(dir string) error { return checkPrivate(dir, os.Geteuid()) }

func checkPrivate(dir string, user int) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &Error{dir, "not a directory", "move it away"}
	}
	if owner := Owner(info); owner != user {
		return &Error{dir, foreign(owner, user), fmt.Sprintf("check its files, then run chown -R %d %s, or run eltrain as user %d", user, dir, owner)}
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return &Error{dir, fmt.Sprintf("writable by others, its mode is %04o", mode), "check that its files are yours, then run chmod 700 " + dir}
	}
	return nil
}

// MakePrivate makes a directory below root, and those between, with mode 0700; root is made too, with those above it. What
// exists, from root on, must be private as CheckPrivate has it.
func MakePrivate(root, dir string) error {
	below, err := filepath.Rel(root, dir)
	if err == nil {
		err = os.MkdirAll(root, 0o700)
	}
	for path, rest := root, below; err == nil; {
		if err = CheckPrivate(path); err != nil || rest == "." || rest == "" {
			return err
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		path = filepath.Join(path, name)
		if err = os.Mkdir(path, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return err
}

// All reads the rest of an open file. More than limit bytes are an *Error.
func All(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &Error{f.Name(), "larger than " + job.Bytes(limit).String(), "check what it is"}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Error is the error of a file that is not regular, too large, or in the hands of others.
type Error struct{ Path, Is, Do string }

func (e *Error) Error() string { return fmt.Sprintf("%s is %s: %s", e.Path, e.Is, e.Do) }

func read(open func() (*os.File, error), limit int64) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return All(f, limit)
}

func open(path string, flag int, mode fs.FileMode, stat func(string) (fs.FileInfo, error), do string) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NONBLOCK, mode)
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	} else if there, at := stat(path); at == nil && !there.Mode().IsRegular() {
		info, err = there, nil // links, pipes without a reader and sockets cannot even be opened
	}
	if err == nil && !info.Mode().IsRegular() {
		err = &Error{path, kind(info.Mode()) + ", not a regular file", do}
	}
	if err != nil {
		f.Close() // of nil it is only an error
		return nil, err
	}
	return f, nil
}

func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDir:
		return "a directory"
	}
	return "a device"
}
