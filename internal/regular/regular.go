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

// ReadSecret reads a token or key as ReadNamed does. Others must not have access to it: neither group nor others, except that the
// group may read root's file, as when Kubernetes gives a Secret to a pod with an fsGroup. PostgreSQL has the same rule for keys.
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
	forbidden := fs.FileMode(0o077)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid == 0 {
		forbidden = 0o037
	}
	if mode := info.Mode().Perm(); mode&forbidden != 0 {
		return nil, &Error{path, fmt.Sprintf("accessible to others, its mode is %04o", mode), "run chmod 600 " + path}
	}
	return All(f, limit)
}

// CheckPrivate returns an *Error if others can replace files in a directory of eltrain's own. As with ssh's, they may list it:
// its files are not readable. A missing directory is private.
func CheckPrivate(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return &Error{dir, fmt.Sprintf("writable by others, its mode is %04o", mode), "check that its files are yours, then run chmod 700 " + dir}
	}
	return nil
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

// Error is the error of a file that is not regular, or too large.
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
