package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
)

// The journal is a directory of files, each named after the sequence number of its first record, such as
// 00000000000000000001.journal. Records are lines (see record.go), so that `tail` shows them. Files are only
// ever appended to; the oldest is removed when there are too many. Readers take no locks.

const (
	// DefaultJournalFileSize and DefaultJournalFiles bound the journal to 256 MiB: some ten thousand decisions
	// over a job of 1,000 slots, or some million notices.
	DefaultJournalFileSize = 64 << 20
	DefaultJournalFiles    = 4

	journalExt = ".journal"
)

// Entry is one record of the journal.
type Entry struct {
	Seq  uint64          `json:"-"` // from 1, without gaps; set by Append
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data,omitempty"`
}

const (
	// NoticeEntry holds a job.Notice.
	NoticeEntry = "notice"
	// DecisionEntry holds a decision with its input, from which it can be reproduced.
	DecisionEntry = "decision"
	// GoodputEntry holds a goodput.Entry: a change of a job's goodput ledger.
	GoodputEntry = "goodput"
)

// Damage is a range of a journal file that could not be read. The records around it are read.
type Damage struct {
	File   string
	Offset int64
	Bytes  int64
	Reason string
}

func (d Damage) String() string {
	return fmt.Sprintf("%s: %d bytes at offset %d: %s", d.File, d.Bytes, d.Offset, d.Reason)
}

// JournalOptions adjust a Journal. Zero values are the defaults.
type JournalOptions struct {
	FileSize int64 // size in bytes at which a new file is started
	Files    int   // how many are kept, including the active one
	// Epoch is that of the lock under which the journal is written. A newer epoch takes the journal over from a
	// writer of an older one that still has it open: that writer may be suspended, and not know yet that it lost
	// its lock.
	Epoch uint64
	// Damaged, if set, is called with a torn tail that OpenJournal removed.
	Damaged func(Damage)
}

// Journal is the journal's only writer. It is safe for concurrent use.
type Journal struct {
	dir      string
	fileSize int64
	files    int
	owner    *os.File // the file "writer", flocked for as long as this is the writer

	mu     sync.Mutex
	active *os.File
	size   int64
	next   uint64 // sequence number of the next record
	broken error  // why nothing can be appended anymore
}

// JournalBusyError is returned when another process, or another Journal of this one, writes the journal under a
// lock that is not older.
type JournalBusyError struct{ Dir string }

func (e *JournalBusyError) Error() string {
	return fmt.Sprintf("the journal %s is being written by another process: only one writer is possible", e.Dir)
}

// OpenJournal makes this process the journal's writer. It creates the directory if necessary, and removes an
// incomplete record that a crash left at the end.
func OpenJournal(dir string, o JournalOptions) (*Journal, error) {
	if o.FileSize == 0 {
		o.FileSize = DefaultJournalFileSize
	}
	if o.Files == 0 {
		o.Files = DefaultJournalFiles
	}
	if o.FileSize < 0 || o.Files < 1 {
		return nil, fmt.Errorf("journal %s: %d files of %d bytes are too small", dir, o.Files, o.FileSize)
	}
	if err := regular.MakePrivate(dir, dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &Journal{dir: dir, fileSize: o.FileSize, files: o.Files}
	if err := j.open(o); err != nil {
		j.Close()
		return nil, fmt.Errorf("open journal %s: %w", dir, err)
	}
	return j, nil
}

func (j *Journal) open(o JournalOptions) error {
	taken, err := j.acquire(o.Epoch)
	if err != nil {
		return err
	}
	names, err := journalFiles(j.dir)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		j.next = 1
		return j.startFile()
	}
	newest := names[len(names)-1]
	if taken {
		return j.succeed(newest)
	}
	return j.resume(newest, o.Damaged)
}

// writerPath is a file of its own, since the active one changes. It contains the writer's epoch, and the writer
// holds its flock.
func (j *Journal) writerPath() string { return filepath.Join(j.dir, "writer") }

// acquire makes this the journal's writer. taken reports whether a writer of an older epoch still exists; replacing its
// file fences it.
func (j *Journal) acquire(epoch uint64) (taken bool, err error) {
	f, err := regular.Open(j.writerPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		if writerEpoch(f) >= epoch {
			return false, &JournalBusyError{j.dir}
		}
		j.owner, err = replaceWriter(j.writerPath(), epoch)
		return true, err
	}
	text := strconv.AppendUint(nil, epoch, 10)
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(text))) // only now: it may be read at any time, and an empty file has no epoch
	}
	if err != nil {
		f.Close()
		return false, fmt.Errorf("become the writer: %w", err)
	}
	j.owner = f
	return false, nil
}

// writerEpoch is the epoch in a writer's file; 0 if it cannot be read.
func writerEpoch(f *os.File) uint64 {
	text := make([]byte, 20) // digits of the largest number
	n, _ := f.ReadAt(text, 0)
	epoch, err := strconv.ParseUint(string(text[:n]), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// replaceWriter replaces the writer's file by one that is already flocked.
func replaceWriter(path string, epoch uint64) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "writer.*.tmp") // made with mode 0600
	if err != nil {
		return nil, err
	}
	_, err = f.Write(strconv.AppendUint(nil, epoch, 10))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("take over from the previous writer: %w", err)
	}
	return f, nil
}

// fenced reports whether another writer took the journal over. A missing file does not count as that.
func (j *Journal) fenced() bool {
	own, err := j.owner.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(j.writerPath())
	return err == nil && !os.SameFile(own, named)
}

// resume continues the newest file after its last whole record.
func (j *Journal) resume(name string, damaged func(Damage)) error {
	f, err := regular.Open(filepath.Join(j.dir, name), os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	j.active = f
	if err := j.findEnd(f, name); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	torn := info.Size() - j.size
	if torn == 0 {
		return nil
	}
	if err := f.Truncate(j.size); err != nil {
		return fmt.Errorf("remove the incomplete tail: %w", err)
	}
	if damaged != nil {
		damaged(Damage{File: f.Name(), Offset: j.size, Bytes: torn, Reason: "a crash left an incomplete entry at the end; it was removed"})
	}
	return f.Sync()
}

// succeed starts a file after that of a fenced writer: that one may be in the middle of a write, so its file is
// left alone.
func (j *Journal) succeed(name string) error {
	f, err := regular.Open(filepath.Join(j.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := j.findEnd(f, name); err != nil {
		return err
	}
	if j.size == 0 { // it is empty, and the next file would have the same name
		return j.resume(name, nil)
	}
	return j.startFile()
}

// findEnd sets size and next to continue after the last whole record of a file.
func (j *Journal) findEnd(f *os.File, name string) error {
	j.next = firstSeq(name)
	s := newScanner(f, 0)
	for {
		r, _, ok := s.next()
		if !ok {
			break
		}
		j.next = max(j.next, r.seq+1)
	}
	j.size = s.whole
	return s.err
}

// startFile starts a file whose first record is the next one.
func (j *Journal) startFile() error {
	f, err := regular.Open(filepath.Join(j.dir, fmt.Sprintf("%020d%s", j.next, journalExt)), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := atomicfile.SyncDir(j.dir); err != nil {
		f.Close()
		os.Remove(f.Name())
		return err
	}
	j.active, j.size = f, 0
	return nil
}

// Append adds entries in one write. If that fails none is added; if the process is killed during the write, some of the first
// may be, whole. They survive this process at once, and a crash of the machine after Sync. Their Seq is set, not read.
func (j *Journal) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil && j.fenced() {
		j.broken = ErrFenced
	}
	if j.broken != nil {
		return fmt.Errorf("append to journal: %w", j.broken)
	}
	var lines []byte
	for i, e := range entries {
		e.Seq = j.next + uint64(i)
		var err error
		if lines, err = appendRecord(lines, e); err != nil {
			return fmt.Errorf("append to journal: %s: %w", e.Kind, err)
		}
	}
	if j.size > 0 && j.size+int64(len(lines)) > j.fileSize {
		if err := j.rotate(); err != nil {
			return fmt.Errorf("append to journal: begin a new file: %w", err)
		}
	}
	if _, err := j.active.Write(lines); err != nil {
		// A partial write must be undone, or the next record would follow it on the same line.
		if cut := j.active.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("an earlier write failed and could not be undone: %w", cut)
		}
		return fmt.Errorf("append to journal: %w", err)
	}
	j.size += int64(len(lines))
	j.next += uint64(len(entries))
	return nil
}

// rotate starts a new file and removes the oldest. If it fails the current file continues.
func (j *Journal) rotate() error {
	old := j.active
	if err := old.Sync(); err != nil {
		return err
	}
	if err := j.startFile(); err != nil {
		return err
	}
	old.Close() // synced, so an error does not matter
	names, err := journalFiles(j.dir)
	if err != nil {
		return err
	}
	for _, name := range names[:max(0, len(names)-j.files)] {
		if err := os.Remove(filepath.Join(j.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Sync makes all appended entries survive a crash of the machine.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return fmt.Errorf("sync journal: %w", j.broken)
	}
	if err := j.active.Sync(); err != nil {
		// The kernel reports lost pages only once: a later success would mean nothing.
		j.broken = fmt.Errorf("an earlier sync failed: %w", err)
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// Close syncs and releases the journal. A second call does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.owner == nil {
		return nil
	}
	var err error
	if j.active != nil {
		err = errors.Join(j.active.Sync(), j.active.Close())
	}
	err = errors.Join(err, j.owner.Close())
	j.owner, j.active = nil, nil
	j.broken = errors.New("it is closed")
	if err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// journalFiles lists the names of a journal's files, oldest first; none if the directory does not exist. It must be private.
func journalFiles(dir string) ([]string, error) {
	if err := regular.CheckPrivate(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if firstSeq(e.Name()) > 0 && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// firstSeq is the sequence number in a journal file's name, or 0 if it is not one.
func firstSeq(name string) uint64 {
	digits, ok := strings.CutSuffix(name, journalExt)
	if !ok || len(digits) != 20 {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > maxSeq {
		return 0
	}
	return n
}
