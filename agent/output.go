package agent

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxLine     = 64 << 10 // a longer line is split
	maxLog      = 64 << 20 // the log is rotated beyond: one older file, named .1, is kept
	readSize    = 16 << 10
	tailLines   = 20
	maxTailLine = 512
	// drainTime is how long output is still read after a process and its group have ended: what is in the
	// pipe takes no time, and a process that fled the group may hold the pipe open forever.
	drainTime = 250 * time.Millisecond
	// maxPipe is the most that a pipe holds (fs.pipe-max-size of proc_sys_fs(5); by itself one holds 64 KiB).
	maxPipe = 1 << 20
)

// sink is where the slot's output goes: a file that is rotated, or the agent's own stdout. Safe for
// concurrent use; one Write is one piece.
type sink struct {
	log  *slog.Logger
	path string // "" for stdout

	mu     sync.Mutex
	w      *os.File
	size   int64
	failed bool // the last write did
	torn   bool // the last line has no end: its agent was killed meanwhile, or the disk was full
}

func openSink(path string, log *slog.Logger) (*sink, error) {
	if path == "" {
		return &sink{log: log, w: os.Stdout}, nil
	}
	s := &sink{log: log, path: path}
	return s, s.open()
}

func (s *sink) open() error {
	w, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	info, err := w.Stat()
	if err != nil {
		w.Close()
		return err
	}
	var last [1]byte
	n, _ := w.ReadAt(last[:], info.Size()-1) // none of an empty file
	s.w, s.size, s.torn = w, info.Size(), n == 1 && last[0] != '\n'
	return nil
}

// Write takes whole lines. It never fails its caller: a full disk must not stop the training. It says so once, in the agent's
// log.
func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != "" && s.size+int64(len(b)) > maxLog {
		s.rotate()
	}
	given := len(b)
	if s.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := s.w.Write(b)
	s.size += int64(n)
	if n > 0 {
		s.torn = b[n-1] != '\n'
	}
	if err != nil && !s.failed {
		s.log.Error("output of the processes is lost", "error", err)
	}
	s.failed = err != nil
	return given, nil
}

// rotate starts a new file. If it cannot, the old one grows on.
func (s *sink) rotate() {
	old := s.w
	err := os.Rename(s.path, s.path+".1")
	if err == nil {
		err = s.open()
	}
	if err != nil {
		s.log.Error("rotate the log", "error", err)
		s.size = 0 // not again with every line
		return
	}
	old.Close()
}

func (s *sink) close() {
	if s.path != "" {
		s.w.Close()
	}
}

// reader takes one process's output apart into lines: each goes to the sink with the process's prefix, to
// the progress meter, and the last ones are kept.
type reader struct {
	pipe   *os.File
	prefix []byte
	to     io.Writer
	seen   func(line []byte) // told every line that has an end; must not keep it

	line []byte // of which the end has not come
	cr   bool   // the last byte was a \r, which has ended a line already
	out  []byte // prefixed lines for the next Write

	mu   sync.Mutex
	tail [][]byte // a ring
	next int
	done chan struct{}
}

func newReader(pipe *os.File, prefix string, to io.Writer, seen func([]byte)) *reader {
	return &reader{pipe: pipe, prefix: []byte(prefix), to: to, seen: seen, done: make(chan struct{})}
}

// run reads until the pipe's last writer has closed it, or drain ends it.
func (r *reader) run() {
	defer close(r.done)
	defer r.pipe.Close()
	buf := make([]byte, readSize)
	for {
		n, err := r.pipe.Read(buf)
		r.split(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.rest(buf)
		}
		if err != nil {
			break
		}
	}
	if len(r.line) > 0 {
		r.seen = func([]byte) {} // of a process that was killed, step 10 may be the beginning of step 1000
		r.endLine()
	}
	r.flush()
}

// rest reads what is in the pipe once the time for it is over: on a host that is busy none of it may have been read, and the
// last lines are what an incident is told with.
func (r *reader) rest(buf []byte) {
	if r.pipe.SetReadDeadline(time.Time{}) != nil {
		return // it was closed
	}
	raw, err := r.pipe.SyscallConn()
	if err != nil {
		return
	}
	for left := maxPipe; left > 0; {
		n := 0
		err := raw.Read(func(fd uintptr) bool { // does not wait: it says that it is done
			for {
				var err error
				if n, err = unix.Read(int(fd), buf[:min(left, len(buf))]); err != unix.EINTR {
					return true
				}
			}
		})
		if err != nil || n <= 0 { // nothing in it, or its end
			return
		}
		r.split(buf[:n])
		left -= n
	}
}

// drain waits for the output's end, for drainTime at most.
func (r *reader) drain() {
	if err := r.pipe.SetReadDeadline(time.Now().Add(drainTime)); err != nil && !errors.Is(err, os.ErrClosed) {
		r.pipe.Close() // a deadline is always possible on a pipe; without one only closing is bounded
	}
	<-r.done
}

// split ends a line at \n, \r\n and \r, which progress bars use to draw over themselves.
func (r *reader) split(b []byte) {
	for len(b) > 0 {
		if r.cr && b[0] == '\n' {
			r.cr, b = false, b[1:]
			continue
		}
		r.cr = false
		i := bytes.IndexAny(b, "\r\n")
		whole := i >= 0
		part := b
		if whole {
			part = b[:i]
		}
		if room := maxLine - len(r.line); len(part) > room {
			r.line = append(r.line, part[:room]...)
			b = b[room:]
			r.endLine()
			continue
		}
		r.line = append(r.line, part...)
		if !whole {
			break
		}
		r.cr = b[i] == '\r'
		b = b[i+1:]
		r.endLine()
	}
	r.flush()
}

func (r *reader) endLine() {
	r.out = append(r.out, r.prefix...)
	r.out = append(r.out, r.line...)
	r.out = append(r.out, '\n')
	r.seen(r.line)
	r.keep(r.line)
	r.line = r.line[:0]
	if len(r.out) >= readSize {
		r.flush()
	}
}

func (r *reader) flush() {
	if len(r.out) > 0 {
		r.to.Write(r.out)
		r.out = r.out[:0]
	}
	if cap(r.out) > 4*readSize { // one long line does not cost memory forever
		r.out, r.line = nil, append([]byte(nil), r.line...)
	}
}

func (r *reader) keep(line []byte) {
	line = line[:min(len(line), maxTailLine)]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tail) < tailLines {
		r.tail = append(r.tail, bytes.Clone(line))
		return
	}
	r.tail[r.next] = append(r.tail[r.next][:0], line...)
	r.next = (r.next + 1) % tailLines
}

// last is the newest lines, oldest first.
func (r *reader) last() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := make([]string, 0, len(r.tail))
	for i := range r.tail {
		lines = append(lines, valid(string(r.tail[(r.next+i)%len(r.tail)])))
	}
	return lines
}
