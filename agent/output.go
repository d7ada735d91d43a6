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

	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/internal/regular"
)

const (
	maxLine     = 64 << 10 // a longer line is split
	maxLog      = 64 << 20 // the log is rotated at this size: one older file, named .1, is kept
	readSize    = 16 << 10
	tailLines   = 50 // of a failure: the traceback of a deep stack
	maxTailLine = 512
	// drainTime is how long to read output after a process and its group have exited: what is in the pipe takes no time, and a
	// process that left the group may hold the pipe open forever.
	drainTime = 250 * time.Millisecond
	// maxPipe is the largest capacity of a pipe (fs.pipe-max-size of proc_sys_fs(5); the default is 64 KiB).
	maxPipe = 1 << 20
)

// sink receives the slot's output: a file that is rotated, or the agent's own stdout. Safe for concurrent use; each Write is
// atomic.
type sink struct {
	log  *slog.Logger
	path string // "" for stdout

	mu         sync.Mutex
	w          *os.File
	marks      *logmarks.Writer // nil for stdout
	size       int64
	failed     bool // the last write failed
	incomplete bool // the last line is incomplete: its agent was killed, or the disk was full
}

// openSink opens a slot's output for the incarnation that by names.
func openSink(path string, by logmarks.Mark, log *slog.Logger) (*sink, error) {
	if path == "" {
		return &sink{log: log, w: os.Stdout}, nil
	}
	s := &sink{log: log, path: path}
	if err := s.open(); err != nil {
		return nil, err
	}
	s.marks = logmarks.Begin(path, by)
	return s, nil
}

func (s *sink) open() error {
	w, err := regular.Open(s.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := w.Stat()
	if err != nil {
		w.Close()
		return err
	}
	var last [1]byte
	n, _ := w.ReadAt(last[:], info.Size()-1) // n is 0 for an empty file
	s.w, s.size, s.incomplete = w, info.Size(), n == 1 && last[0] != '\n'
	return nil
}

// Write takes whole lines. It never fails: a full disk must not stop the training. The error is logged once.
func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path != "" && s.size+int64(len(b)) > maxLog {
		s.rotate()
	}
	given := len(b)
	if s.incomplete {
		b = append([]byte{'\n'}, b...)
	}
	if s.marks != nil {
		s.marks.Write(time.Now(), s.size+int64(len(b)-given))
	}
	n, err := s.w.Write(b)
	s.size += int64(n)
	if n > 0 {
		s.incomplete = b[n-1] != '\n'
	}
	if err != nil && !s.failed {
		s.log.Error("cannot write the output of the processes", "error", err)
	}
	s.failed = err != nil
	return given, nil
}

// rotate starts a new file. If it cannot, the old one keeps growing.
func (s *sink) rotate() {
	old := s.w
	err := os.Rename(s.path, s.path+".1")
	if err == nil {
		err = s.open()
	}
	if err != nil {
		s.log.Error("rotate the log", "error", err)
		s.size = 0 // do not retry with every line
		return
	}
	old.Close()
	s.marks.Rotate(s.path + ".1")
}

func (s *sink) close() {
	if s.path != "" {
		s.w.Close()
		s.marks.Close()
	}
}

// reader splits one process's output into lines: each goes to the sink with the process's prefix, and to the progress meter,
// and the last ones are kept.
type reader struct {
	pipe   *os.File
	prefix []byte
	to     io.Writer
	seen   func(line []byte) // called with every complete line that was not split; must not keep it

	line []byte // incomplete
	long bool   // it goes on from a part that was as long as a line can be
	cr   bool   // the last byte was a \r, which already ended a line
	out  []byte // prefixed lines for the next Write

	mu   sync.Mutex
	tail [][]byte // a ring
	next int
	kept uint64 // lines in all
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
			r.readRest(buf)
		}
		if err != nil {
			break
		}
	}
	if len(r.line) > 0 {
		r.seen = func([]byte) {} // step 10 of a killed process may be the beginning of step 1000
		r.endLine()
	}
	r.flush()
}

// readRest reads what is left in the pipe after the deadline: on a busy host nothing may have been read yet, and incidents are
// reported with the last lines.
func (r *reader) readRest(buf []byte) {
	if r.pipe.SetReadDeadline(time.Time{}) != nil {
		return // it was closed
	}
	raw, err := r.pipe.SyscallConn()
	if err != nil {
		return
	}
	for left := maxPipe; left > 0; {
		n := 0
		err := raw.Read(func(fd uintptr) bool { // returning true means do not wait
			for {
				var err error
				if n, err = unix.Read(int(fd), buf[:min(left, len(buf))]); err != unix.EINTR {
					return true
				}
			}
		})
		if err != nil || n <= 0 { // the pipe is empty, or at its end
			return
		}
		r.split(buf[:n])
		left -= n
	}
}

// drain waits for the output's end, at most drainTime.
func (r *reader) drain() {
	if err := r.pipe.SetReadDeadline(time.Now().Add(drainTime)); err != nil && !errors.Is(err, os.ErrClosed) {
		r.pipe.Close() // pipes support deadlines; otherwise closing bounds the wait
	}
	<-r.done
}

// split ends a line at \n, \r\n and \r, which progress bars use to overwrite themselves.
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
			r.long = true
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
		r.long = false
	}
	r.flush()
}

func (r *reader) endLine() {
	r.out = append(r.out, r.prefix...)
	r.out = append(r.out, r.line...)
	r.out = append(r.out, '\n')
	if !r.long { // a part may look like anything
		r.seen(r.line)
	}
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
	if cap(r.out) > 4*readSize { // one long line must not cost memory forever
		r.out, r.line = nil, append([]byte(nil), r.line...)
	}
}

func (r *reader) keep(line []byte) {
	line = line[:min(len(line), maxTailLine)]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept++
	if len(r.tail) < tailLines {
		r.tail = append(r.tail, bytes.Clone(line))
		return
	}
	r.tail[r.next] = append(r.tail[r.next][:0], line...)
	r.next = (r.next + 1) % tailLines
}

// lines is how many lines there were.
func (r *reader) lines() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept
}

// last is the newest lines, oldest first.
func (r *reader) last() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := make([]string, 0, len(r.tail))
	for i := range r.tail {
		lines = append(lines, sanitize(string(r.tail[(r.next+i)%len(r.tail)])))
	}
	return lines
}
