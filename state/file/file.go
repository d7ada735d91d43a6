// Package file keeps a state in one file, for masters that share a file system.
//
// Beside the state file S there are: S.backup, the previous state; a draft of the next (see package atomicfile)
// during a write; and in .eltrain/ the lock's files (see lock.go), the key (see key.go) and requests. The package must not
// know what is in the records.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/state"
)

const (
	// DefaultLease is how long a holder on another host must be silent before another takes its lock: long
	// enough for a stall of a network file system, short enough not to keep a successor waiting.
	DefaultLease = 15 * time.Second
	// DefaultRenew lets two renewals fail before the lease is in danger.
	DefaultRenew = 5 * time.Second
)

// mode of the files: states contain addresses of services and the like, which other users must not read.
const mode = 0o600

// MaxSize is the most bytes of a state that are read: a state of 100,000 slots has some 50 MB.
const MaxSize = 256 << 20

// maxRecord bounds the lock's files and the key, which have some hundred bytes.
const maxRecord = 64 << 10

// Options adjust a Store. Zero values are the defaults.
type Options struct {
	Lease time.Duration // how long the lock outlives its last renewal
	Renew time.Duration // how often it is renewed; a third of Lease by default
}

// Store is one process's handle of a state file. It is safe for concurrent use.
type Store struct {
	path  string
	lease time.Duration
	renew time.Duration

	mu sync.Mutex // guards what follows; never held while waiting
	// known is the head (everything but the records) of the state in the file, seen as knownFile. It saves reading the file
	// for every write; another process that replaces the file creates another inode.
	known     state.State
	knownFile os.FileInfo
}

var _ state.Store = (*Store)(nil)

// New returns a handle of the state file at path. It reads and writes nothing. Symbolic links are resolved
// here, so that all names of one state share one lock, and a link survives a write.
func New(path string, o Options) (*Store, error) {
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.Renew == 0 {
		o.Renew = o.Lease / 3
	}
	if o.Lease < 0 || o.Renew < 0 || o.Renew > o.Lease/2 {
		return nil, fmt.Errorf("state file %s: a lease of %v renewed every %v would expire: renew at least twice per lease", path, o.Lease, o.Renew)
	}
	real, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	return &Store{path: real, lease: o.Lease, renew: o.Renew}, nil
}

// resolve is path without symbolic links; the file itself need not exist.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", err // a dangling link: a write would replace the link
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// Path is the path of the state file.
func (s *Store) Path() string { return s.path }

func (s *Store) backupPath() string { return s.path + ".backup" }

// Read implements state.Store. A damaged file is a *DamagedError.
func (s *Store) Read(ctx context.Context) (state.State, error) {
	if err := ctx.Err(); err != nil {
		return state.State{}, fmt.Errorf("read state %s: %w", s.path, err)
	}
	st, info, err := load(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state.State{}, nil
	}
	if err != nil {
		return state.State{}, s.explain(err)
	}
	s.remember(st, info)
	return st, nil
}

// remember caches the head of the state in the file.
func (s *Store) remember(st state.State, info os.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.knownFile = state.State{Version: st.Version, Lineage: st.Lineage, Serial: st.Serial, Epoch: st.Epoch}, info
}

// load reads one whole file. An error that is not a contentError is the system's.
func load(path string) (state.State, os.FileInfo, error) {
	f, err := regular.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return state.State{}, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return state.State{}, nil, err
	}
	b, err := regular.All(f, MaxSize)
	if err != nil {
		return state.State{}, nil, err
	}
	st, err := decode(b)
	if err != nil {
		return state.State{}, nil, err
	}
	return st, info, nil
}

// explain makes a failed load a message for people. For damaged content it says what to do.
func (s *Store) explain(err error) error {
	var content *contentError
	if !errors.As(err, &content) {
		return fmt.Errorf("read state %s: %w", s.path, err)
	}
	e := &DamagedError{Path: s.path, Backup: s.backupPath(), cause: content}
	if backup, _, err := load(e.Backup); err != nil {
		e.backupErr = err
	} else {
		e.BackupSerial = backup.Serial
	}
	return e
}

// DamagedError is returned for a state file that exists but cannot be parsed, or was edited by hand. It is never
// mistaken for an empty one, and never overwritten.
type DamagedError struct {
	Path         string
	Backup       string // path of the backup
	BackupSerial uint64 // 0 if the backup cannot be read

	cause     *contentError
	backupErr error
}

func (e *DamagedError) Error() string {
	msg := fmt.Sprintf("read state %s: %v.\n", e.Path, e.cause)
	if e.cause.remedy != "" {
		msg += e.cause.remedy + "\n"
	}
	if e.BackupSerial > 0 {
		return msg + fmt.Sprintf("Its backup %s is intact (serial %d). To restore it, which loses history but no running job:\n  cp %s %s",
			e.Backup, e.BackupSerial, quote(e.Backup), quote(e.Path))
	}
	if errors.Is(e.backupErr, fs.ErrNotExist) {
		return msg + "There is no backup. To start with an empty state, move the file away: running jobs are found and adopted again."
	}
	return msg + fmt.Sprintf("Its backup %s cannot be used either: %v. To start with an empty state, move both away: running jobs are found and adopted again.", e.Backup, e.backupErr)
}

func (e *DamagedError) Unwrap() error { return e.cause }

// Write implements state.Store. After an error the old state is intact; only if the last step failed, which makes
// the new name durable, may it be the new one already. The error then says so.
func (s *Store) Write(ctx context.Context, next state.State, l state.Lock) error {
	if err := s.write(ctx, next, l); err != nil {
		return fmt.Errorf("write state %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) write(ctx context.Context, next state.State, l state.Lock) error {
	// Everything slow (encoding, writing, disk latency) is done before the guard is taken; so the checks run
	// twice: here, to fail early, and again under the guard.
	next, err := s.accept(next, l)
	if err != nil {
		return err
	}
	content, err := encode(next)
	if err != nil {
		return err
	}
	draft, err := atomicfile.NewDraft(s.path, content, mode)
	if err != nil {
		return err
	}
	defer draft.Discard()

	g, err := s.takeGuard(ctx)
	if err != nil {
		return err
	}
	defer g.release()
	if next, err = s.accept(next, l); err != nil {
		return err
	}
	if err := s.keepBackup(); err != nil {
		return fmt.Errorf("keep the previous state as backup: %w", err)
	}
	if err := draft.Place(); err != nil {
		return err
	}
	s.remember(next, draft.Info())
	return nil
}

// accept checks a write against the current lock and stored state.
func (s *Store) accept(next state.State, l state.Lock) (state.State, error) {
	switch why := l.Why(); {
	case errors.Is(why, state.ErrFenced):
		return next, why
	case why != nil:
		return next, state.ErrFenced
	}
	held, err := s.readLock()
	if err != nil {
		return next, err
	}
	if err := s.fenced(held, l.Info()); err != nil {
		return next, err
	}
	stored, err := s.head()
	if err != nil {
		return next, err
	}
	return state.Accept(stored, next, l.Info().Epoch)
}

// head is the stored state without its jobs; the zero State if there is none.
func (s *Store) head() (state.State, error) {
	now, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state.State{}, nil
	}
	if err != nil {
		return state.State{}, err
	}
	s.mu.Lock()
	known, k := s.known, s.knownFile
	s.mu.Unlock()
	if k != nil && os.SameFile(k, now) && k.Size() == now.Size() && k.ModTime().Equal(now.ModTime()) {
		return known, nil
	}
	st, info, err := load(s.path)
	if err != nil {
		return state.State{}, s.explain(err)
	}
	s.remember(st, info)
	return st, nil
}

// keepBackup links the current state as S.backup, so that there is a state under S all the time. The guard is
// held.
func (s *Store) keepBackup() error {
	now, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if old, err := os.Stat(s.backupPath()); err == nil && os.SameFile(old, now) {
		return nil // a write stopped right after this step; a rename between two names of one file would do nothing
	}
	link := s.backupPath() + ".tmp"
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(s.path, link); err != nil {
		return s.copyBackup() // a file system without hard links
	}
	if err := os.Rename(link, s.backupPath()); err != nil {
		os.Remove(link)
		return err
	}
	return nil
}

func (s *Store) copyBackup() error {
	content, err := regular.Read(s.path, MaxSize)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.backupPath(), content, mode)
}
