package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// followPause is how often a followed log is checked for more.
const followPause = 200 * time.Millisecond

// Logs reads the slot's log file. If a followed file is replaced or truncated, reading continues from its new
// beginning. Reading ends with io.EOF when ctx ends. Memory does not grow with the tail.
func (p *Provider) Logs(ctx context.Context, uid string, slot job.Address, tail int, follow bool) (io.ReadCloser, error) {
	if !job.ValidName(slot.Job) || !job.ValidName(slot.Role) {
		return nil, fmt.Errorf("logs of %s: the address is malformed", slot)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{path: p.logPath(slot), follow: follow, ctx: ctx, cancel: cancel}
	err := l.open(tail)
	if errors.Is(err, fs.ErrNotExist) && follow { // it may be created later
		return l, nil
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("logs of %s: %w", slot, err)
	}
	return l, nil
}

type logReader struct {
	path   string
	follow bool
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex // not held while Read waits
	file *os.File   // nil while it does not exist
}

// open opens the file at its last tail lines, or at the beginning if tail is negative.
func (l *logReader) open(tail int) error {
	f, err := regular.Open(l.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	if tail >= 0 {
		start, err := tailOffset(f, tail)
		if err == nil {
			_, err = f.Seek(start, io.SeekStart)
		}
		if err != nil {
			f.Close()
			return err
		}
	}
	l.file = f
	return nil
}

// Read waits for more at the end of a followed log.
func (l *logReader) Read(b []byte) (int, error) {
	for {
		n, err := l.readNow(b)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-l.ctx.Done():
			return 0, io.EOF
		case <-time.After(followPause):
		}
	}
}

// readNow reads what is there now; nothing if more may come.
func (l *logReader) readNow(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.ctx.Err() == nil {
		if l.file != nil {
			if n, err := l.file.Read(b); n > 0 || err != nil && err != io.EOF {
				return n, err
			}
		}
		if !l.follow {
			return 0, io.EOF
		}
		if next, err := l.reopen(); err != nil || !next {
			return 0, err
		}
	}
	return 0, io.EOF
}

// reopen continues at the new beginning if the file was replaced or truncated. l.mu is held.
func (l *logReader) reopen() (next bool, err error) {
	there, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if l.file == nil {
		return true, l.open(-1)
	}
	open, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	if os.SameFile(there, open) {
		at, err := l.file.Seek(0, io.SeekCurrent)
		if err != nil || at <= there.Size() {
			return false, err
		}
		_, err = l.file.Seek(0, io.SeekStart)
		return true, err
	}
	// What was written before it was replaced comes first. The writer continues in the new file, so once the old one was read
	// to its end after that, it is complete.
	if at, err := l.file.Seek(0, io.SeekCurrent); err != nil || at < open.Size() {
		return true, err
	}
	l.file.Close()
	l.file = nil
	return true, l.open(-1)
}

// Close also ends a concurrent Read.
func (l *logReader) Close() error {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// tailOffset is where the last n lines of f begin. A last line without a newline counts.
func tailOffset(f *os.File, n int) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || n == 0 {
		return end, err
	}
	buf := make([]byte, 64<<10)
	for at := end; at > 0; {
		size := min(at, int64(len(buf)))
		at -= size
		chunk := buf[:size]
		if _, err := f.ReadAt(chunk, at); err != nil && err != io.EOF {
			return 0, err
		}
		for i := bytes.LastIndexByte(chunk, '\n'); i >= 0; i = bytes.LastIndexByte(chunk[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // ends the last line
			}
			if n--; n == 0 {
				return at + int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}
