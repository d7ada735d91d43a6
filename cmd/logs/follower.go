package logs

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Follower prints the output of jobs while they are led: that of rank 0, in whichever slot it is, or of all slots. It is an
// apply.View, which notices show when to look.
type Follower struct {
	view.Quiet
	jobs      []string
	all       bool
	providers map[string]providers.Provider
	records   func() job.Records
	out       io.Writer // locked

	over    chan struct{} // closed once nothing is printed any more: what is there is still read
	ctx     context.Context
	cancel  context.CancelFunc
	readers sync.WaitGroup

	mu   sync.Mutex
	read map[ofSlot]bool // slots with a reader
	err  error           // the first
}

// ofSlot is a slot of one run of a job.
type ofSlot struct {
	uid  string
	slot job.Address
}

var _ apply.View = (*Follower)(nil)

// NewFollower prints to out, from the beginning of the jobs that run then. records returns their newest records.
func NewFollower(jobs []string, all bool, from map[string]providers.Provider, records func() job.Records, out io.Writer) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	return &Follower{
		jobs: jobs, all: all, providers: from, records: records, out: &lockedWriter{w: out},
		over: make(chan struct{}), ctx: ctx, cancel: cancel, read: map[ofSlot]bool{},
	}
}

// Noticed looks where rank 0 is now.
func (f *Follower) Noticed(job.Notice) { f.Look(f.records()) }

// Look starts a reader for each slot whose output is to be shown from now on. One that was rank 0 before may become it again: its
// reader stays.
func (f *Follower) Look(records job.Records) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.jobs {
		record := records[name]
		if record == nil || f.providers[record.Spec.Provider] == nil {
			continue
		}
		for _, source := range f.sources(name, record) {
			key := ofSlot{record.UID, source.Slot}
			if f.read[key] {
				continue
			}
			f.read[key] = true
			f.readers.Go(func() { f.print(source, record) })
		}
	}
}

// sources returns what is to be read of a job now.
func (f *Follower) sources(name string, record *job.Record) (sources []Source) {
	prefix := ""
	if len(f.jobs) > 1 {
		prefix = "job." + name + " "
	}
	ranked := slices.ContainsFunc(record.Spec.Roles, func(r job.Role) bool { return r.Ranked })
	if !f.all && ranked {
		if slot, _, err := HolderOf(record, 0); err == nil {
			sources = append(sources, Source{Slot: slot, Prefix: prefix, Only: "[rank 0] ", Bare: true})
		}
		return sources
	}
	for i := range record.Slots {
		if s := &record.Slots[i]; Launched(*s) {
			sources = append(sources, Source{Slot: s.Address, Prefix: prefix + s.Address.Short() + " "})
		}
	}
	return sources
}

func (f *Follower) print(source Source, record *job.Record) {
	err := source.copy(f.ctx, f.out, func(ctx context.Context, slot job.Address) (io.ReadCloser, error) {
		slot.Job = record.LaunchedAs(slot.Job)
		return f.providers[record.Spec.Provider].Logs(ctx, record.UID, slot, providers.LogOptions{Tail: -1, Own: true, Follow: f.over})
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && err != nil && !errors.Is(err, context.Canceled) {
		f.err = err
	}
}

// drainWithin bounds reading the output that is left after the end of the jobs.
const drainWithin = 10 * time.Second

// Drain prints what is left of the output, and ends.
func (f *Follower) Drain() {
	f.mu.Lock()
	select {
	case <-f.over:
	default:
		close(f.over)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.readers.Wait()
	}()
	select {
	case <-done:
	case <-time.After(drainWithin):
	}
}

// End waits until nothing is printed any more, and returns the first error of reading.
func (f *Follower) End() error {
	f.Drain()
	f.cancel()
	f.readers.Wait() // a reader of the standard output that is slow gets all of it
	return f.err
}
