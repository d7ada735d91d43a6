package agent

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// said is where a training process may say its progress itself: a FIFO, which any program can append lines to. Unlike a file it does
// not grow and needs no polling; unlike a descriptor it is there for the process's own children. A line of up to PIPE_BUF bytes
// (4 KiB on Linux) stays whole when several write at once.
type said struct {
	path   string
	reader *reader
	hold   *os.File // keeps the FIFO open while no process has it: otherwise it would be at its end after the first line
}

// openSaid makes a FIFO at path and reads its lines.
func openSaid(path string, seen func(line []byte)) (*said, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	from, err := openFIFO(path, unix.O_RDONLY)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	hold, err := openFIFO(path, unix.O_WRONLY)
	if err != nil {
		from.Close()
		os.Remove(path)
		return nil, err
	}
	s := &said{path: path, reader: newReader(from, "", io.Discard, seen), hold: hold}
	go s.reader.run()
	return s, nil
}

// close reads what is left, and removes the FIFO. It does nothing for a nil said.
func (s *said) close() {
	if s == nil {
		return
	}
	os.Remove(s.path)
	s.hold.Close()
	s.reader.drain()
}

// openFIFO opens a FIFO, and nothing else that may be in its place, without waiting for its other end.
func openFIFO(path string, mode int) (*os.File, error) {
	fd, err := unix.Open(path, mode|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a FIFO")}
	}
	return os.NewFile(uintptr(fd), path), nil
}
