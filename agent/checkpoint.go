package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/eltrain/eltrain/checkpoint"
	"github.com/eltrain/eltrain/job"
)

const (
	// checkpointPoll is how often the checkpoint directory is looked at between the signal that requests a checkpoint and the
	// finished file. Polling works on network file systems without notification.
	checkpointPoll = 20 * time.Millisecond
	// lookWait is how long a poll waits for a look: a file server that does not answer must not delay a stop.
	lookWait = 200 * time.Millisecond

	// findWait is how long a search waits for a checkpoint that has changed just now: several times as long as a file has to stay the
	// same.
	findWait = 10 * checkpoint.Still

	// An empty file counts as written once it has not changed for this long: it is a pointer about to be written, or a marker file.
	emptyStill = time.Second

	// The directory is looked at this often: by rank 0, which writes checkpoints or marks them as whole, and by others, which may have
	// another directory of the same name.
	sightEvery      = time.Second
	sightEveryOther = time.Minute
	// Looks take at most these parts of one core, and of the time.
	sightCPUShare = 500
	sightShare    = 4
)

// directory is a checkpoint directory. A file server may never answer: then the goroutine that asks it stays, and none is started beside
// it. A nil directory has nothing.
type directory struct {
	path string
	fsys fs.FS

	mu      sync.Mutex
	current *glance // the newest
}

// glance is one look.
type glance struct {
	done  chan struct{} // closed once the rest is set
	found []checkpoint.Checkpoint
	err   error
	cpu   time.Duration // of its goroutine
	took  time.Duration
}

// openDirectory returns nil for "". The directory need not exist.
func openDirectory(path string) *directory {
	if path == "" {
		return nil
	}
	return &directory{path: path, fsys: os.DirFS(path)}
}

// begin begins a look, unless one is under way.
func (d *directory) begin() *glance {
	d.mu.Lock()
	defer d.mu.Unlock()
	var known []checkpoint.Checkpoint
	if g := d.current; g != nil {
		select {
		case <-g.done:
			known = g.found
		default:
			return g
		}
	}
	g := &glance{done: make(chan struct{})}
	d.current = g
	go func() {
		defer close(g.done)
		began := time.Now()
		g.cpu = cpuTime(func() { g.found, g.err = checkpoint.Look(d.fsys, time.Now(), known) })
		g.took = time.Since(began)
	}()
	return g
}

// look returns what is in the directory; nothing if that is not known in time.
func (d *directory) look() []checkpoint.Checkpoint {
	if d == nil {
		return nil
	}
	g := d.begin()
	late := time.NewTimer(lookWait)
	defer late.Stop()
	select {
	case <-g.done:
		return g.found
	case <-late.C:
		return nil
	}
}

// find looks for the newest checkpoint, or for the one of a step. For one that was written just now it waits until it is known to be
// complete.
func (d *directory) find(act job.Act) job.ActResult {
	result := job.ActResult{ID: act.ID, State: job.ActAbsent}
	if d == nil {
		return result
	}
	look := func() []checkpoint.Checkpoint {
		found, _ := checkpoint.Look(d.fsys, time.Now(), nil)
		return slices.DeleteFunc(found, func(c checkpoint.Checkpoint) bool { return c.Layout == checkpoint.Temporary })
	}
	if act.Value != "" {
		step, err := strconv.ParseInt(act.Value, 10, 64)
		if err != nil {
			result.State = job.ActUnsupported
			return result
		}
		look = func() []checkpoint.Checkpoint {
			found, _ := checkpoint.At(d.fsys, time.Now(), step)
			return found
		}
	}
	found := look()
	for until := time.Now().Add(findWait); len(found) > 0 && found[0].Flaw.Code == job.Changing && time.Now().Before(until); found = look() {
		time.Sleep(checkpointPoll)
	}
	if len(found) == 0 {
		if act.Value != "" {
			copy(result.Steps[:], d.steps())
		}
		return result
	}
	result.State = job.ActTorn
	best := &found[0]
	if whole := checkpoint.Newest(found); whole != nil {
		result.State, best = job.ActDone, whole
	}
	result.Path, result.Step, result.Flaw = d.whole(best.Path), best.Step, plain(best.FoundCheckpoint).Flaw
	return result
}

// steps are those of the checkpoints that are whole, or may be once they stay as they are, newest first.
func (d *directory) steps() (steps []int64) {
	found, _ := checkpoint.Look(d.fsys, time.Now(), nil)
	for i := range found {
		if c := &found[i]; (c.Whole() || c.Flaw.Code == job.Changing) && c.Step > 0 && !slices.Contains(steps, c.Step) {
			steps = append(steps, c.Step)
		}
	}
	slices.Sort(steps)
	slices.Reverse(steps)
	return steps
}

// whole is the path of what is in the directory.
func (d *directory) whole(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// arrival waits for a requested checkpoint.
type arrival struct {
	before checkpoint.Checkpoint // what was written last before the request
	seen   checkpoint.Checkpoint
	since  time.Time // when seen was first observed in this state
}

// newest is what was written last, of what is whole or will be once it stays as it is.
func newest(found []checkpoint.Checkpoint) (best checkpoint.Checkpoint) {
	for _, c := range found {
		file := c.Mark == c.Path && (c.Flaw.Code == job.Changing || c.Flaw.Code == job.Empty)
		if (c.Whole() || file && c.Layout != "directory") && c.Marked.After(best.Marked) {
			best = c
		}
	}
	return best
}

// finished reports whether the requested checkpoint is there, and complete. Frameworks write pointer files in place, and a SIGTERM
// between open and write would leave nothing to resume from: what was not renamed into place must stay the same for a while.
func (a *arrival) finished(seen checkpoint.Checkpoint, now time.Time) bool {
	if seen.Mark != a.seen.Mark || !seen.Marked.Equal(a.seen.Marked) || seen.MarkSize != a.seen.MarkSize {
		a.seen, a.since = seen, now
	}
	still := checkpoint.Still
	if seen.MarkSize == 0 {
		still = emptyStill
	}
	// Newer, not just different: if the newest was moved or deleted before the next is written, an older one becomes the newest.
	newer := seen.Marked.After(a.before.Marked)
	return newer && (seen.Renamed && seen.MarkSize > 0 || now.Sub(a.since) >= still)
}

// saver follows what is in the checkpoint directory, in a goroutine of its own.
type saver struct {
	dir     *directory
	changed func() // what to report has changed
	worlds  chan world
	stop    chan struct{}
	stopped chan struct{}

	mu    sync.Mutex
	state saved
}

// world is a world whose processes start.
type world struct {
	generation int
	first      bool // the slot has rank 0
}

// saved is what is known of checkpoints.
type saved struct {
	sight  *job.CheckpointSight // nil before the first look
	newest job.Saved
	saving bool
}

// newSaver returns nil without a directory.
func newSaver(dir *directory, changed func()) *saver {
	if dir == nil {
		return nil
	}
	s := &saver{dir: dir, changed: changed, worlds: make(chan world, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.run()
	return s
}

// close ends the goroutine. A look that blocks is left to the end of the process.
func (s *saver) close() {
	if s != nil {
		close(s.stop)
		<-s.stopped
	}
}

// begin says that the processes of a world start: what is there was written by earlier ones.
func (s *saver) begin(w world) {
	if s == nil {
		return
	}
	select {
	case <-s.worlds: // over before it was seen
	default:
	}
	s.worlds <- w
}

// now is what is known now.
func (s *saver) now() saved {
	if s == nil {
		return saved{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *saver) run() {
	defer close(s.stopped)
	var watch checkpoint.Watch
	var current world
	var before *checkpoint.Checkpoint // as the current world began
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		begins := false
		select {
		case <-s.stop:
			return
		case current = <-s.worlds:
			begins = true
		case <-next.C:
		}
		g := s.dir.begin()
		select {
		case <-s.stop:
			return
		case <-g.done:
		}
		if begins {
			watch = checkpoint.Watch{}
		}
		now := time.Now()
		if g.err == nil || errors.Is(g.err, fs.ErrNotExist) {
			watch.See(g.found, now)
		}
		if begins {
			before = watch.Newest()
		}
		s.set(s.stateOf(&watch, current, before, now))
		next.Reset(pace(current.first, g.cpu, g.took))
	}
}

// pace is how long after a look the next one is due.
func pace(first bool, cpu, took time.Duration) time.Duration {
	every := sightEveryOther
	if first {
		every = sightEvery
	}
	return max(every, sightCPUShare*cpu, sightShare*took)
}

func (s *saver) stateOf(w *checkpoint.Watch, current world, before *checkpoint.Checkpoint, now time.Time) saved {
	// Others look too seldom to see when it is over.
	out := saved{saving: current.first && w.Saving(now), sight: &job.CheckpointSight{}}
	for _, c := range w.Torn(now) {
		out.sight.Torn = append(out.sight.Torn, plain(c))
	}
	if c := w.Newest(); c != nil {
		found := plain(c.FoundCheckpoint)
		out.sight.Newest = &found
		out.newest = job.Saved{Step: c.Step, Generation: current.generation}
		if before != nil && before.Path == c.Path && before.Marked.Equal(c.Marked) {
			out.newest.Generation = max(0, current.generation-1) // of that world or an earlier one
		}
	}
	return out
}

// plain makes names fit for a report: a file may be called anything.
func plain(c job.FoundCheckpoint) job.FoundCheckpoint {
	c.Path, c.Flaw.File = printable(path.Clean(c.Path)), printable(c.Flaw.File)
	return c
}

func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, name)
}

func (s *saver) set(now saved) {
	s.mu.Lock()
	differs := now.saving != s.state.saving || now.newest != s.state.newest || !now.sight.Same(s.state.sight)
	s.state = now
	s.mu.Unlock()
	if differs {
		s.changed()
	}
}
