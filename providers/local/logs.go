package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// followPause is how often a followed log is checked for more.
const followPause = 200 * time.Millisecond

// Logs reads the slot's log file. If a followed file is replaced or truncated, reading continues from its new
// beginning. Reading ends with io.EOF when ctx ends. Memory does not grow with the tail.
func (p *Provider) Logs(ctx context.Context, uid string, slot job.Address, o providers.LogOptions) (io.ReadCloser, error) {
	if !job.ValidName(slot.Job) || !job.ValidName(slot.Role) {
		return nil, fmt.Errorf("logs of %s: the address is malformed", slot)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{path: p.logPath(slot), until: o.Follow, ctx: ctx, cancel: cancel}
	err := l.open(uid, o)
	if errors.Is(err, fs.ErrNotExist) && o.Follow != nil { // it may be created later
		return l, nil
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("logs of %s: %w", slot, err)
	}
	return l, nil
}

// Kept returns the slots of a job that have logs.
func (p *Provider) Kept(of string) ([]job.Slot, error) {
	if !job.ValidName(of) {
		return nil, nil
	}
	dir := filepath.Join(p.runDir, "logs", of)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("logs of job.%s: %w", of, err)
	}
	var slots []job.Slot
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), logExt)
		dash := max(strings.LastIndexByte(name, '-'), 0)
		role := name[:dash]
		index, err := strconv.Atoi(strings.TrimPrefix(name[dash:], "-"))
		slot := job.Slot{Address: job.Address{Job: of, Role: role, Index: index}, Incarnation: 1}
		if path := p.logPath(slot.Address); err != nil || filepath.Base(path) != f.Name() || !job.ValidName(role) {
			continue
		} else if marks, err := logmarks.Read(path); err == nil && len(marks) > 0 {
			slot.Incarnation = marks[len(marks)-1].Incarnation
		}
		slots = append(slots, slot)
	}
	slices.SortFunc(slots, func(a, b job.Slot) int { return a.Address.Compare(b.Address) })
	return slots, nil
}

type logReader struct {
	path   string
	until  <-chan struct{} // follow until it is closed; nil to read what is there
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex // not held while Read waits
	file *os.File   // nil while it does not exist
	rest io.Reader  // what is to be read of it
}

// open opens the file where the selected part begins.
func (l *logReader) open(uid string, o providers.LogOptions) error {
	f, err := regular.Open(l.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	from, to, err := l.find(f, uid, o)
	if err == nil {
		_, err = f.Seek(from, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.rest = f, f
	if o.Before > 0 {
		l.rest = io.LimitReader(f, to-from)
	}
	return nil
}

// find returns where in the file the selected part begins and ends.
func (l *logReader) find(f *os.File, uid string, o providers.LogOptions) (from, to int64, err error) {
	if to, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, 0, err
	}
	if o.Before > 0 || o.Own || !o.Since.IsZero() {
		marks, err := logmarks.Read(l.path)
		if err != nil {
			return 0, 0, err
		}
		if o.Own {
			from = logmarks.Of(marks, uid, to)
		}
		since := int64(0)
		if !o.Since.IsZero() {
			since = logmarks.Since(marks, o.Since, to)
		}
		if o.Before > 0 {
			var found bool
			if from, to, found = logmarks.Previous(marks, uid, o.Before, to); !found {
				return 0, 0, fs.ErrNotExist
			}
		}
		from = min(max(from, since), to)
	}
	if o.Tail >= 0 {
		from, err = tailOffset(f, from, to, o.Tail)
	}
	return from, to, err
}

// Read waits for more at the end of a followed log, until it is no longer followed.
func (l *logReader) Read(b []byte) (int, error) {
	for {
		last := l.until == nil
		select {
		case <-l.until:
			last = true
		default:
		}
		n, err := l.readNow(b)
		if n > 0 || err != nil {
			return n, err
		}
		if last {
			return 0, io.EOF
		}
		select {
		case <-l.ctx.Done():
			return 0, io.EOF
		case <-l.until:
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
			if n, err := l.rest.Read(b); n > 0 || err != nil && err != io.EOF {
				return n, err
			}
		}
		if l.until == nil {
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
		return true, l.open("", providers.LogOptions{Tail: -1})
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
	return true, l.open("", providers.LogOptions{Tail: -1})
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

// tailOffset is where the last n lines of f between two offsets begin. A last line without a newline counts.
func tailOffset(f *os.File, from, end int64, n int) (int64, error) {
	if n == 0 {
		return end, nil
	}
	buf := make([]byte, 64<<10)
	for at := end; at > from; {
		size := min(at-from, int64(len(buf)))
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
	return from, nil
}
