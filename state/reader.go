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
)

// followRescan is how often Follow looks without being told: file systems across a network tell nothing, and
// neither does a system that is out of watches.
const followRescan = time.Second

// Reader reads a journal, whether or not a process is writing it. It never locks and changes nothing.
type Reader struct {
	Dir string
	// Damaged, if set, is told of each stretch that cannot be read, in its place among the entries.
	Damaged func(Damage)
}

// Read calls fn with each entry from the given sequence number on, in order, each once. A missing directory
// is an empty journal. An error of fn ends it and is returned.
func (r Reader) Read(from uint64, fn func(Entry) error) error {
	c := cursor{reader: r, from: from}
	if err := c.advance(fn); err != nil {
		return fmt.Errorf("read journal %s: %w", r.Dir, err)
	}
	return nil
}

// Follow does what Read does and then continues with what is appended, until ctx ends, which is no error.
func (r Reader) Follow(ctx context.Context, from uint64, fn func(Entry) error) error {
	if err := r.follow(ctx, from, fn); err != nil {
		return fmt.Errorf("follow journal %s: %w", r.Dir, err)
	}
	return nil
}

func (r Reader) follow(ctx context.Context, from uint64, fn func(Entry) error) error {
	// Being told is only the faster way; without a watcher the channels stay nil and never deliver.
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
			_ = watcher.Add(r.Dir) // again each time: the directory may have come, or come again
		}
		if err := c.advance(fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-failures: // too many events: some were dropped, so look
		case <-rescan.C:
		}
	}
}

// cursor is a reader's place in a journal.
type cursor struct {
	reader Reader
	from   uint64 // the least sequence number that is wanted
	last   uint64 // sequence number of the newest record seen, wanted or not; 0 before the first
	file   string // name of the file that is being read; "" before the first
	offset int64  // in it, behind the last whole record
}

// advance delivers everything that has become whole since the last call.
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

// readFile delivers what is whole behind c.offset. In the newest file, what follows the last whole record may
// be one that is being written right now; only in an older one, to which nothing is added anymore, is it damage.
func (c *cursor) readFile(newest bool, fn func(Entry) error) error {
	path := filepath.Join(c.reader.Dir, c.file)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by rotation just now; the gap is noticed with the next record
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := c.scan(f, path, newest, fn)
	if err != nil || newest {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if rest := info.Size() - s.whole; rest > 0 {
		c.damaged(Damage{path, s.whole, rest, "no record has the right checksum here"})
		c.offset = info.Size()
	}
	return nil
}

// scan delivers the whole records of a file.
func (c *cursor) scan(f io.ReaderAt, path string, newest bool, fn func(Entry) error) (*scanner, error) {
	s := newScanner(f, c.offset)
	doubted := int64(-1)
	for {
		before := s.whole
		r, skipped, ok := s.next()
		if !ok {
			return s, s.err
		}
		if skipped > 0 && newest && doubted != before {
			// A writer that begins cuts off what another left unfinished. If that was while this was read, the beginning of
			// the one was joined to the end of the other, and there may be records in what looks damaged.
			doubted, s = before, newScanner(f, before)
			continue
		}
		if skipped > 0 {
			c.damaged(Damage{path, before, skipped, "no record has the right checksum here"})
		}
		c.offset = s.whole
		if err := c.deliver(r, Damage{File: path, Offset: before + skipped, Bytes: s.whole - before - skipped}, fn); err != nil {
			return s, err
		}
	}
}

// deliver hands one record on. place is where it is.
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
	if c.reader.Damaged != nil {
		c.reader.Damaged(d)
	}
}
