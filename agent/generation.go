package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"golang.org/x/sys/unix"
)

// rootCauseWait is how long the exit of a process is awaited that has written an error file before another
// one failed: it is the root cause, but it is still busy ending (destructors, core dump).
const rootCauseWait = time.Second

// maxExit bounds an exit as JSON: the service takes requests of up to 64 KiB.
const maxExit = 32 << 10

// killAgain is when processes that were sent SIGKILL are complained of.
const killAgain = 10 * time.Second

// groupPoll is how often it is looked whether a group that lost its leader is empty.
const groupPoll = 20 * time.Millisecond

// Exit codes of a command that could not be started, as shells give them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// generation is the processes of this slot in one world, from their start until nothing of them runs.
type generation struct {
	number    int
	processes []*process
	exits     chan *process
	stops     chan stop
	events    chan<- event
	log       *slog.Logger

	checkpointDir    string
	checkpointSignal syscall.Signal // 0 if there is none
	oomBefore        uint64         // the cgroup's count
	oomKills         *atomic.Int64  // the agent's
	asked            chan struct{}  // closed when the processes were sent SIGTERM
	forced           chan struct{}  // closed when they were sent SIGKILL
	done             chan struct{}
}

// process is one training process. Its pid is its process group's number too.
type process struct {
	local     int
	cmd       *exec.Cmd
	id        processID
	begun     time.Time
	reader    *reader
	errorFile string
	exit      *job.Exit // set before it is sent to exits
	ended     bool      // supervise has seen the exit

	mu     sync.Mutex
	reaped bool // its numbers may be another's by now
}

// recipe is what the processes of every generation are made from.
type recipe struct {
	config   *job.AgentConfig
	base     []string // environment
	errorDir string
	signal   syscall.Signal // asks for a checkpoint
	forker   *forker
	sink     *sink
	meter    *meter
	// progressed is called when the progress should go out now.
	progressed func()
	log        *slog.Logger
	oomKills   atomic.Int64 // processes that the kernel killed for memory
}

// start starts all processes of the slot in a world. When one cannot be started, the others are ended again
// and the error says why, in the system's words; exit is then what to report.
func (r *recipe) start(p elastic.Place, events chan<- event) (g *generation, exit *job.Exit) {
	if exit := r.missingDirectory(); exit != nil {
		return nil, exit
	}
	g = &generation{
		number: p.Generation, exits: make(chan *process, r.config.Processes), stops: make(chan stop, 8),
		events: events, log: r.log, checkpointDir: r.config.CheckpointDir, checkpointSignal: r.signal,
		oomKills: &r.oomKills, asked: make(chan struct{}), forced: make(chan struct{}), done: make(chan struct{}),
	}
	g.oomBefore, _ = oomKills()
	for local := range r.config.Processes {
		proc, err := r.spawn(p, local)
		if err != nil {
			for _, started := range g.processes {
				started.signal(unix.SIGKILL)
				started.await(g)
			}
			return nil, notStarted(local, err)
		}
		g.processes = append(g.processes, proc)
	}
	for _, proc := range g.processes {
		go func() {
			proc.await(g)
			g.exits <- proc
		}()
	}
	go g.supervise()
	return g, nil
}

// missingDirectory is the exit of processes that have no directory to run in; nil if they have one. The system's
// own word on it would be that the command was not found.
func (r *recipe) missingDirectory() *job.Exit {
	exit := &job.Exit{Code: codeNotFound, At: time.Now()}
	dir := r.config.WorkingDir
	if dir == "" {
		_, err := os.Getwd()
		if err == nil {
			return nil
		}
		exit.NotStarted = "working directory: " + err.Error()
		return exit
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		exit.NotStarted = fmt.Sprintf("working directory %s does not exist", dir)
	case err != nil:
		exit.NotStarted = "working directory: " + err.Error()
	case !st.IsDir():
		exit.NotStarted = fmt.Sprintf("working directory %s is not a directory", dir)
	default:
		return nil
	}
	return exit
}

func (r *recipe) spawn(p elastic.Place, local int) (*process, error) {
	proc := &process{local: local, errorFile: filepath.Join(r.errorDir, fmt.Sprintf("%d-%d.json", p.Generation, local))}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the output: %w", err)
	}
	// Both streams share one pipe, so that lines stay in the order in which they were written.
	prefix := fmt.Sprintf("[rank %d] ", p.RankBase+local)
	if !r.config.Ranked {
		prefix = fmt.Sprintf("[%s %d] ", roleOf(r.config.Slot), p.RoleRankBase+local)
	}
	proc.reader = newReader(out, prefix, r.sink, func(line []byte) {
		if r.meter.see(p.Generation, line, time.Now()) {
			r.progressed()
		}
	})

	proc.cmd = exec.Command(r.config.Command[0], r.config.Command[1:]...)
	service, _ := serviceURL(r.config) // "" when nobody knows; then the file is to be read later
	proc.cmd.Env = environ(r.base, r.config, p, local, proc.errorFile, service)
	if dir := r.config.WorkingDir; dir != "" {
		proc.cmd.Dir = dir
		proc.cmd.Env = append(proc.cmd.Env, "PWD="+dir) // of a name that occurs twice the last counts
	}
	proc.cmd.Stdout, proc.cmd.Stderr = in, in
	proc.cmd.SysProcAttr = attributes()
	proc.begun = time.Now()
	err = r.forker.start(proc.cmd)
	in.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	proc.id = identify(proc.cmd.Process.Pid)
	go proc.reader.run()
	return proc, nil
}

// notStarted is the exit of a process that could not be started.
func notStarted(local int, err error) *job.Exit {
	code := codeNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = codeNotFound
	}
	return &job.Exit{Code: code, At: time.Now(), LocalRank: local, NotStarted: err.Error()}
}

// signal sends to the whole process group, unless its leader has ended.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		unix.Kill(-p.id.PID, sig)
	}
}

// await returns when the process has ended, its group with it, and its output was read. The group is
// killed while the ended process is still a zombie, so its number cannot have become another's.
func (p *process) await(g *generation) {
	awaitExit(p.id.PID)
	at := time.Now()
	g.awaitGroup(p)
	p.signal(unix.SIGKILL)
	p.mu.Lock()
	p.cmd.Wait() // at once; how it ended is in ProcessState
	p.reaped = true
	p.mu.Unlock()
	p.reader.drain()

	exit := &job.Exit{Code: p.cmd.ProcessState.ExitCode(), At: at, LocalRank: p.local}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		exit.Code = 128 + int(status.Signal())
		exit.Signal = status.Signal().String()
	}
	if exit.Code == 128+int(unix.SIGKILL) { // its own, or that of a program under a shell
		now, counted := oomKills()
		exit.OOM = counted && now > g.oomBefore
	}
	if exit.OOM {
		g.oomKills.Add(1)
	}
	p.exit = exit
}

// awaitGroup gives those that an ended process has left in its group the rest of the grace, if all were asked
// to end: a shell dies of SIGTERM at once, and the program under it may be saving its work. Those that a
// process leaves when it ends by itself have nobody to work for.
func (g *generation) awaitGroup(p *process) {
	select {
	case <-g.asked:
	default:
		return
	}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for groupLives(p.id.PID) {
		select {
		case <-poll.C:
		case <-g.forced:
			return
		}
	}
}

const (
	// fileClock is the tick of the clock that files have their times from, as slow as Linux has it: 100 Hz.
	fileClock = 10 * time.Millisecond
	// longestEnd is how long a process may take to end after it wrote its error file: collectives that wait for peers
	// that are gone time out after 10 minutes with NCCL, unless that is set.
	longestEnd = 10 * time.Minute
)

// failure completes an exit with what the process left to say.
func (p *process) failure() job.Exit {
	exit := *p.exit
	if f, ok := readErrorFile(p.errorFile); ok {
		exit.Message = f.message
		// It was written before others can have met that this process is gone, and that it has ended may be noticed late. As
		// in torchrun, the first failure is the one with the oldest error file. A file server's clock may be wrong, and a
		// process may have gone on for long after what it wrote.
		if f.written.After(p.begun.Add(-fileClock)) && f.written.After(exit.At.Add(-longestEnd)) && f.written.Before(exit.At) {
			exit.At = f.written
		}
	}
	exit.Tail = p.reader.last()
	return fit(exit, maxExit)
}

// fit makes an exit as JSON no longer than most bytes: first the oldest lines go, then the end of the message,
// then that of the reason why nothing was started.
func fit(e job.Exit, most int) job.Exit {
	for {
		text, err := json.Marshal(e)
		over := len(text) - most
		switch {
		case err != nil || over <= 0:
			return e
		case len(e.Tail) > 0:
			e.Tail = e.Tail[1:]
		case e.Message != "":
			e.Message = shorten(e.Message, over)
		case e.NotStarted != "":
			e.NotStarted = shorten(e.NotStarted, over)
		default:
			return e
		}
	}
}

// shorten cuts off by bytes or a few more, but not more than half at once: in JSON a character may take up to
// six bytes, so that fewer may do.
func shorten(text string, by int) string {
	by = min(by, (len(text)+1)/2)
	return strings.ToValidUTF8(text[:len(text)-by], "")
}

func (g *generation) pids() []int {
	pids := make([]int, len(g.processes))
	for i, p := range g.processes {
		pids[i] = p.id.PID
	}
	return pids
}

// has reports whether pid is one of the processes themselves.
func (g *generation) has(pid int) bool { return slices.Contains(g.pids(), pid) }

func (g *generation) ids() []processID {
	ids := make([]processID, len(g.processes))
	for i, p := range g.processes {
		ids[i] = p.id
	}
	return ids
}

// stop begins to end the processes, or ends them faster than a stop before it.
func (g *generation) stop(s stop) {
	select {
	case g.stops <- s:
	case <-g.done:
	}
}

// signal sends to all processes that live, whole groups.
func (g *generation) signal(sig syscall.Signal) {
	for _, p := range g.processes {
		p.signal(sig)
	}
}

// supervise follows the processes until none is left, and tells what happens: failed at most once, then stopped.
func (g *generation) supervise() {
	defer close(g.done)
	s := newSupervisor(g)
	defer s.close()
	for s.alive > 0 {
		select {
		case p := <-g.exits:
			s.exited(p)
		case how := <-g.stops:
			s.stop(how)
		case <-s.rootCause.C:
			s.blame()
		case <-s.poll.C:
			s.lookForCheckpoint()
		case <-s.patience.C:
			s.terminate()
		case <-s.kill.C:
			s.killAll()
		}
	}
	if len(s.failed) > 0 && !s.stopping {
		s.blame()
	}
	endStrays()
	g.events <- stopped{g.ended()}
}

// ended is when the last process did. All have.
func (g *generation) ended() (at time.Time) {
	for _, p := range g.processes {
		if p.exit.At.After(at) {
			at = p.exit.At
		}
	}
	return at
}

// supervisor is what supervise knows while it waits.
type supervisor struct {
	*generation
	alive    int
	failed   []*process // in the order of their exits
	blamed   bool       // the first failure was told
	stopping bool       // a stop was asked for: exits say nothing anymore

	rootCause  *time.Timer // a failure is told no later
	checkpoint arrival
	poll       *time.Ticker // looks for it
	patience   *time.Timer  // SIGTERM goes out no later
	grace      time.Duration
	killAt     time.Time // zero before SIGTERM
	kill       *time.Timer
	killed     bool
}

func newSupervisor(g *generation) *supervisor {
	unset := func() *time.Timer {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	s := &supervisor{generation: g, alive: len(g.processes), rootCause: unset(), patience: unset(), kill: unset()}
	s.poll = time.NewTicker(checkpointPoll)
	s.poll.Stop()
	return s
}

func (s *supervisor) close() {
	s.rootCause.Stop()
	s.poll.Stop()
	s.patience.Stop()
	s.kill.Stop()
}

// exited records that a process has ended.
func (s *supervisor) exited(p *process) {
	s.alive--
	p.ended = true
	if s.stopping {
		if !s.blamed && s.slain(p) {
			s.blamed = true
			s.events <- slain{p.failure()}
		}
		return
	}
	if p.exit.Code == 0 {
		return
	}
	s.failed = append(s.failed, p)
	if s.blamed {
		return
	}
	if s.awaitsRootCause() {
		if len(s.failed) == 1 {
			s.rootCause.Reset(rootCauseWait)
		}
		return
	}
	s.blame()
}

// slain reports whether a process that was being stopped ended by a signal that was none of ours.
func (s *supervisor) slain(p *process) bool {
	switch p.exit.Signal {
	case "", unix.SIGTERM.String(), s.checkpointSignal.String():
		return false
	case unix.SIGKILL.String():
		return !s.killed
	}
	return true
}

// blame tells the first failure, and ends the processes that live: they cannot continue without their peer.
func (s *supervisor) blame() {
	if s.blamed {
		return
	}
	s.blamed = true
	s.rootCause.Stop()
	s.events <- failed{s.first().failure()}
	if s.alive > 0 && s.killAt.IsZero() {
		s.grace = brokenGrace
		s.terminate()
	}
}

// first is the process that failed first: by what the error files say, as torchrun has it, and by the order
// of the exits where they say nothing or the same second.
func (s *supervisor) first() *process {
	best := s.failed[0]
	for _, p := range s.failed[1:] {
		if p.failedAt() < best.failedAt() {
			best = p
		}
	}
	return best
}

// failedAt is in Unix seconds, as error files have it.
func (p *process) failedAt() int64 {
	if f, ok := readErrorFile(p.errorFile); ok && f.at != 0 {
		return f.at
	}
	return p.exit.At.Unix()
}

// awaitsRootCause reports whether a process that still runs says it has failed before all that have ended.
func (s *supervisor) awaitsRootCause() bool {
	first := s.first().failedAt()
	for _, p := range s.processes {
		if p.ended {
			continue
		}
		if f, ok := readErrorFile(p.errorFile); ok && f.at != 0 && f.at < first {
			return true
		}
	}
	return false
}

// stop records that the processes are to end.
func (s *supervisor) stop(how stop) {
	s.stopping = true
	s.rootCause.Stop()
	switch {
	case !s.killAt.IsZero():
		if at := time.Now().Add(how.grace); at.Before(s.killAt) {
			s.killAt = at
			s.kill.Reset(how.grace)
		}
	case how.checkpoint && s.checkpointSignal != 0:
		s.grace = how.grace
		s.checkpoint = arrival{before: newestCheckpoint(s.checkpointDir)}
		for _, p := range s.processes {
			// Not to the group: helpers that know nothing of the signal would die of it.
			p.cmd.Process.Signal(s.checkpointSignal)
		}
		s.poll.Reset(checkpointPoll)
		s.patience.Reset(how.grace)
	default:
		s.grace = how.grace
		s.terminate()
	}
}

// lookForCheckpoint ends the processes once they have written the checkpoint that they were asked for.
func (s *supervisor) lookForCheckpoint() {
	if s.checkpointDir == "" {
		return
	}
	seen := newestCheckpoint(s.checkpointDir)
	if s.checkpoint.finished(seen, moved(filepath.Join(s.checkpointDir, seen.name)), time.Now()) {
		s.terminate()
	}
}

// terminate sends SIGTERM, once, and SIGCONT so that a process that was stopped gets it.
func (s *supervisor) terminate() {
	if !s.killAt.IsZero() {
		return
	}
	s.poll.Stop()
	s.patience.Stop()
	close(s.asked)
	s.signal(unix.SIGTERM)
	s.signal(unix.SIGCONT)
	s.killAt = time.Now().Add(s.grace)
	s.kill.Reset(s.grace)
}

// killAll sends SIGKILL. A process that hangs in the kernel, in a driver or on a dead file system, does not
// end by it. Nobody can end it, and what it holds must not be given to the next: the agent waits, and says so.
func (s *supervisor) killAll() {
	if s.killed {
		s.log.Error("killed processes do not end", "pids", s.pids())
	} else {
		close(s.forced)
	}
	s.killed = true
	s.generation.signal(unix.SIGKILL)
	s.kill.Reset(killAgain)
}
