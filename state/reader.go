package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/eltrain/eltrain/internal/regular"
)

// followRescan is how often Follow checks without an event: network file systems report none, and neither does
// a system that is out of watches.
const followRescan = time.Second

// Reader reads a journal, whether or not a process is writing it. It takes no locks and changes nothing.
type Reader struct {
	Dir string
	// Damaged, if set, is called with each range that cannot be read, in order with the entries.
	Damaged func(Damage)
}

// Read calls fn with each entry from the given sequence number on, in order, each once. A missing directory
// is an empty journal. An error of fn stops it and is returned.
func (r Reader) Read(from uint64, fn func(Entry) error) error {
	c := cursor{reader: r, from: from}
	if err := c.advance(fn); err != nil {
		return fmt.Errorf("read journal %s: %w", r.Dir, err)
	}
	return nil
}

// Follow is Read that continues with what is appended, until ctx ends, which is no error.
func (r Reader) Follow(ctx context.Context, from uint64, fn func(Entry) error) error {
	if err := r.follow(ctx, from, fn); err != nil {
		return fmt.Errorf("follow journal %s: %w", r.Dir, err)
	}
	return nil
}

func (r Reader) follow(ctx context.Context, from uint64, fn func(Entry) error) error {
	// Events only make it faster; without a watcher the channels stay nil and never deliver.
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
	}
	rescan := time.NewTicker(followRescan)
	defer rescan.Stop()
	c := cursor{reader: r, from: from}
	for {
		if watcher != nil {
			_ = watcher.Add(r.Dir) // each time: the directory may have been created or recreated
		}
		if err := c.advance(fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-failures: // too many events: some were dropped
		case <-rescan.C:
		}
	}
}

// noRecord is the Reason of Damage.
const noRecord = "no record has the right checksum here"

// cursor is a reader's position in a journal.
type cursor struct {
	reader Reader
	from   uint64 // the first sequence number wanted
	last   uint64 // sequence number of the newest record seen, wanted or not; 0 before the first
	file   string // name of the file being read; "" before the first
	offset int64  // offset in it, of the end of the last whole record
	told   Damage // the newest, told once
}

// advance delivers all records completed since the last call.
func (c *cursor) advance(fn func(Entry) error) error {
	names, err := journalFiles(c.reader.Dir)
	if err != nil {
		return err
	}
	for i, name := range names {
		newest := i == len(names)-1
		if name < c.file || c.file == "" && !newest && firstSeq(names[i+1]) <= c.from {
			continue
		}
		if name != c.file {
			c.file, c.offset = name, 0
		}
		if err := c.readFile(newest, fn); err != nil {
			return err
		}
	}
	return nil
}

// readFile delivers the whole records after c.offset. What follows the last whole record is damage in an older file, to which
// nothing is added anymore. In the newest it may be a record being written, unless it is larger than any.
func (c *cursor) readFile(newest bool, fn func(Entry) error) error {
	path := filepath.Join(c.reader.Dir, c.file)
	f, err := regular.Open(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // just removed by rotation; the next record reveals the gap
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if newest && c.told.File == path && c.told.Offset == c.offset {
		// A writer that removed this tail could not have written as much again.
		if info, err := f.Stat(); err != nil || info.Size() == c.told.Offset+c.told.Bytes {
			return err
		}
	}
	s, err := c.scan(f, path, newest, fn)
	if err != nil {
		return err
	}
	rest := s.at - s.whole
	if rest > maxRecord || rest > 0 && !newest {
		c.damaged(Damage{path, s.whole, rest, noRecord})
	}
	if !newest {
		c.offset = s.at
	}
	return nil
}

// scan delivers the whole records of a file.
func (c *cursor) scan(f io.ReaderAt, path string, newest bool, fn func(Entry) error) (*scanner, error) {
	s := newScanner(f, c.offset)
	rescanned := int64(-1)
	for {
		before := s.whole
		r, skipped, ok := s.next()
		if !ok {
			return s, s.err
		}
		if skipped > 0 && newest && rescanned != before {
			// A new writer removes a torn tail. If it did so during this read, the read may have joined the tail's beginning with
			// that of a new record, and there may be records in what looks damaged. Read it again.
			rescanned, s = before, newScanner(f, before)
			continue
		}
		if skipped > 0 {
			c.damaged(Damage{path, before, skipped, noRecord})
		}
		c.offset = s.whole
		if err := c.deliver(r, Damage{File: path, Offset: before + skipped, Bytes: s.whole - before - skipped}, fn); err != nil {
			return s, err
		}
	}
}

// deliver passes one record on. place is its location.
func (c *cursor) deliver(r rawRecord, place Damage, fn func(Entry) error) error {
	if c.last > 0 && r.seq <= c.last {
		place.Reason = fmt.Sprintf("record %d follows record %d", r.seq, c.last)
		c.damaged(place)
		return nil
	}
	if c.last > 0 && r.seq > c.last+1 {
		c.damaged(Damage{File: place.File, Offset: place.Offset, Reason: fmt.Sprintf("records %d to %d are missing before it", c.last+1, r.seq-1)})
	}
	c.last = r.seq
	if r.seq < c.from {
		return nil
	}
	e, err := r.entry()
	if err != nil {
		place.Reason = fmt.Sprintf("record %d: %v", r.seq, err)
		c.damaged(place)
		return nil
	}
	return fn(e)
}

func (c *cursor) damaged(d Damage) {
	if d != c.told && c.reader.Damaged != nil {
		c.reader.Damaged(d)
	}
	c.told = d
}
