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

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// rootCauseWait is how long to wait for the exit of a process that wrote its error file before another one failed: it is the
// root cause, but is still busy exiting (destructors, core dump). One that has exited too is noticed sooner.
const rootCauseWait = time.Second

// maxExit bounds an exit as JSON: the service accepts requests of up to 64 KiB.
const maxExit = 32 << 10

// killAgain is how long after SIGKILL processes that still run are reported, and killed again.
const killAgain = 10 * time.Second

// groupPoll is how often to check whether a group without its leader is empty.
const groupPoll = 20 * time.Millisecond

// Exit codes of a command that could not be started, as in shells.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

// generation is the processes of this slot in one world, from their start until none of them runs.
type generation struct {
	number    int
	processes []*process
	commands  commands
	devices   *accelerators
	exits     chan *process
	stops     chan stop
	asks      chan checkpointAsk
	events    chan<- event
	log       *slog.Logger

	checkpoints      *directory
	checkpointSignal syscall.Signal // 0 if there is none
	meter            *meter
	oomBefore        uint64        // the cgroup's count
	oomKills         *atomic.Int64 // the agent's
	terminating      chan struct{} // closed when SIGTERM was sent
	killing          chan struct{} // closed when SIGKILL was sent
	done             chan struct{}
}

// process is one training process. Its pid is also the number of its process group.
type process struct {
	local     int
	cmd       *exec.Cmd
	id        processID
	begun     time.Time
	reader    *reader
	said      *said // nil if it could not be made
	errorFile string
	exit      *job.Exit // set before it is sent to exits
	ended     bool      // supervise has seen the exit
	killed    bool      // it ran when supervise sent SIGKILL

	mu     sync.Mutex
	reaped bool // its pid may have been reused
	asked  bool // it ran when it was first asked to stop
}

// launcher starts the processes of every generation.
type launcher struct {
	config   *job.AgentConfig
	base     []string // environment
	errorDir string
	hookDir  string // "" if there is none
	// membersFile has the members as of the start; "" if they are not known.
	membersFile string
	signal      syscall.Signal // asks for a checkpoint
	checkpoints *directory     // nil if none is declared
	forker      *forker
	devices     *accelerators
	sink        *sink
	meter       *meter
	// progressed is called when the progress should be reported now.
	progressed func()
	log        *slog.Logger
	oomKills   atomic.Int64 // processes that the kernel killed for memory
}

// start starts all processes of the slot in a world. If one cannot be started, the others are killed, and exit is what to
// report, with the system's error.
func (r *launcher) start(p elastic.Place, events chan<- event) (g *generation, exit *job.Exit) {
	if exit := r.missingDirectory(); exit != nil {
		return nil, exit
	}
	g = &generation{
		number: p.Generation, exits: make(chan *process, r.config.Processes), stops: make(chan stop, 8), asks: make(chan checkpointAsk, 8), meter: r.meter, devices: r.devices,
		events: events, log: r.log, checkpoints: r.checkpoints, checkpointSignal: r.signal,
		oomKills: &r.oomKills, terminating: make(chan struct{}), killing: make(chan struct{}), done: make(chan struct{}),
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
	g.devices.begin()
	go g.supervise()
	return g, nil
}

// missingDirectory is the exit of processes without a working directory; nil if they have one. The system's own error would be
// that the command was not found.
func (r *launcher) missingDirectory() *job.Exit {
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

func (r *launcher) spawn(p elastic.Place, local int) (*process, error) {
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
	meter := r.meter.begin(p.Generation)
	proc.reader = newReader(out, prefix, r.sink, func(line []byte) {
		worth, recognized := meter.see(line, time.Now())
		if recognized != "" {
			r.log.Info("the output shows progress", "as", recognized, "process", prefix[:len(prefix)-1])
		}
		if worth {
			r.progressed()
		}
	})

	complained := false
	progressFile := strings.TrimSuffix(proc.errorFile, ".json") + ".progress"
	proc.said, err = openSaid(progressFile, func(line []byte) {
		worth, err := meter.say(line, time.Now())
		if err != nil && !complained {
			complained = true
			r.log.Warn("what a process says of its progress is no such JSON", "process", strings.TrimSpace(prefix), "error", err)
		}
		if worth {
			r.progressed()
		}
	})
	if err != nil {
		r.log.Warn("the processes cannot say their progress", "error", err)
		progressFile = ""
	}

	proc.cmd = exec.Command(r.config.Command[0], r.config.Command[1:]...)
	service, _ := serviceURL(r.config) // "" if unknown; then the file has to be read later
	proc.cmd.Env = environ(r.base, r.config, p, local, processFiles{proc.errorFile, progressFile, r.membersFile, r.hookDir}, service)
	if dir := r.config.WorkingDir; dir != "" {
		proc.cmd.Dir = dir
		proc.cmd.Env = append(proc.cmd.Env, "PWD="+dir) // for a repeated name the last value counts
	}
	proc.cmd.Stdout, proc.cmd.Stderr = in, in
	proc.cmd.SysProcAttr = attributes()
	proc.begun = time.Now()
	err = r.forker.start(proc.cmd)
	in.Close()
	if err != nil {
		out.Close()
		proc.said.close()
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

// signal signals the whole process group, unless its leader was reaped.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		unix.Kill(-p.id.PID, sig)
	}
}

// hasExited reports whether the process has exited, even if that is still to be noticed.
func (p *process) hasExited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped || hasExited(p.id.PID)
}

// ask records whether the process still runs when it is asked to stop. If it does not, it ended for a reason of its own, even if
// that is noticed later.
func (p *process) ask() {
	runs := !p.hasExited()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = p.asked || runs
}

// wasAsked reports whether the process was asked to stop before it exited.
func (p *process) wasAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// kill sends SIGKILL to the whole process group.
func (p *process) kill() {
	p.killed = p.killed || !p.hasExited()
	p.signal(unix.SIGKILL)
}

// notify signals the process, unless it was reaped, and reports whether it was there.
func (p *process) notify(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.reaped && unix.Kill(p.id.PID, sig) == nil
}

// await returns when the process and its group have exited and its output was read. The group is killed while the exited
// process is still a zombie, so its number cannot have been reused.
func (p *process) await(g *generation) {
	awaitExit(p.id.PID)
	at := time.Now()
	g.awaitGroup(p)
	p.reap()
	p.said.close()
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

// reap reaps a process that has exited, and kills what is left in its group. How it exited is in ProcessState.
func (p *process) reap() {
	p.signal(unix.SIGKILL)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd.Wait() // returns at once
	p.reaped = true
}

// awaitGroup gives what an exited process left in its group the rest of the grace, if it was asked to stop: a shell dies of
// SIGTERM at once, and the program under it may be saving its work. What a process leaves when it exits by itself gets no
// grace.
func (g *generation) awaitGroup(p *process) {
	select {
	case <-g.terminating:
	default:
		return
	}
	if !p.wasAsked() {
		return
	}
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for groupLives(p.id.PID) {
		select {
		case <-poll.C:
		case <-g.killing:
			return
		}
	}
}

const (
	// fileClock is the resolution of file times: at the slowest, Linux's 100 Hz tick.
	fileClock = 10 * time.Millisecond
	// longestEnd is how long a process may take to exit after it wrote its error file: by default, NCCL collectives with lost
	// peers time out after 10 minutes.
	longestEnd = 10 * time.Minute
)

// failure completes an exit with the error file and the last output of the process, and lines about its slot's devices.
func (p *process) failure(devices []string) job.Exit {
	exit := *p.exit
	if f, ok := readErrorFile(p.errorFile); ok {
		exit.Message = f.message
		// The error file was written before others could notice that this process failed, while its exit may be observed late.
		// As in torchrun, the first failure is the one with the oldest error file. A file server's clock may be wrong, and a
		// process may have continued long after it wrote the file, so implausible times are ignored.
		if f.written.After(p.begun.Add(-fileClock)) && f.written.After(exit.At.Add(-longestEnd)) && f.written.Before(exit.At) {
			exit.At = f.written
		}
	}
	tail := p.reader.last()
	exit.Tail = append(tail[max(0, len(tail)+len(devices)-tailLines):], devices...)
	return fit(exit, maxExit)
}

// fit shortens an exit to at most most bytes of JSON: it drops the oldest lines, then the end of the message, then the end of
// the reason why nothing was started.
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

// shorten cuts at least by bytes off the end, but at most half at once: in JSON a character may take up to six bytes, so fewer
// may suffice.
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

// has reports whether pid is one of the processes.
func (g *generation) has(pid int) bool { return slices.Contains(g.pids(), pid) }

// reaps reports whether this generation reaps pid.
func (g *generation) reaps(pid int) bool {
	return g.has(pid) || g.commands.has(pid) || g.devices.reaps(pid)
}

func (g *generation) ids() []processID {
	ids := make([]processID, len(g.processes))
	for i, p := range g.processes {
		ids[i] = p.id
	}
	return ids
}

// stop begins to stop the processes, or shortens the grace of an earlier stop.
func (g *generation) stop(s stop) {
	select {
	case g.stops <- s:
	case <-g.done:
	}
}

// requestCheckpoint asks the processes for a checkpoint. Training goes on.
func (g *generation) requestCheckpoint(a checkpointAsk) {
	select {
	case g.asks <- a:
	case <-g.done: // stopped says that no process runs
	}
}

// notify signals all live processes, not their groups: helpers that do not handle the signal would be killed by it. It reports whether
// there was one.
func (g *generation) notify(sig syscall.Signal) (any bool) {
	for _, p := range g.processes {
		any = p.notify(sig) || any
	}
	return any
}

// signal signals all live processes, whole groups.
func (g *generation) signal(sig syscall.Signal) {
	for _, p := range g.processes {
		p.signal(sig)
	}
}

// supervise follows the processes until none is left, and sends events: failed at most once, then stopped.
func (g *generation) supervise() {
	defer close(g.done)
	s := newSupervisor(g)
	defer s.close()
	for s.alive > 0 {
		var events chan<- event // nil, so that nothing is sent, unless there is an outcome
		var next event
		if len(s.outcomes) > 0 {
			events, next = g.events, acted{s.outcomes[0]}
		}
		select {
		case events <- next:
			s.outcomes = s.outcomes[1:]
		case p := <-g.exits:
			s.exited(p)
		case how := <-g.stops:
			s.stop(how)
		case <-s.rootCause.C:
			s.reportFailure()
		case ask := <-g.asks:
			s.requestCheckpoint(ask)
		case <-s.look.C:
			s.lookForAsked()
		case <-s.poll.C:
			s.lookForCheckpoint()
		case <-s.checkpointTimeout.C:
			s.terminate()
		case <-s.kill.C:
			s.killAll()
		}
	}
	if len(s.failed) > 0 {
		s.reportFailure()
	}
	g.commands.end()
	g.devices.end()
	killStrays()
	for _, o := range s.outcomes {
		g.send(acted{o})
	}
	g.send(stopped{g.ended()})
}

// send sends one of the last events. Who receives them may just be asking for a checkpoint.
func (g *generation) send(e event) {
	for {
		select {
		case g.events <- e:
			return
		case <-g.asks:
		}
	}
}

// ended is when the last process exited. All must have.
func (g *generation) ended() (at time.Time) {
	for _, p := range g.processes {
		if p.exit.At.After(at) {
			at = p.exit.At
		}
	}
	return at
}

// supervisor is the state of supervise.
type supervisor struct {
	*generation
	alive           int
	failed          []*process // in order of their exits, until the first failure was reported
	failureReported bool
	stopping        bool // a stop was requested: exits that it explains mean nothing

	rootCause         *time.Timer  // when a failure is reported at the latest
	requests          []*requested // checkpoints that operators asked for
	outcomes          []job.ActResult
	look              *time.Ticker // polls for asked
	checkpoint        arrival
	poll              *time.Ticker // polls for checkpoint
	checkpointTimeout *time.Timer  // when SIGTERM is sent at the latest
	grace             time.Duration
	killAt            time.Time // zero before SIGTERM
	kill              *time.Timer
	killed            bool
}

func newSupervisor(g *generation) *supervisor {
	unset := func() *time.Timer {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	s := &supervisor{generation: g, alive: len(g.processes), rootCause: unset(), checkpointTimeout: unset(), kill: unset()}
	s.poll = time.NewTicker(checkpointPoll)
	s.poll.Stop()
	s.look = time.NewTicker(checkpointPoll)
	s.look.Stop()
	return s
}

func (s *supervisor) close() {
	s.rootCause.Stop()
	s.look.Stop()
	s.poll.Stop()
	s.checkpointTimeout.Stop()
	s.kill.Stop()
}

// exited handles a process's exit.
func (s *supervisor) exited(p *process) {
	s.alive--
	p.ended = true
	if s.failureReported {
		return
	}
	if s.failedByItself(p) {
		s.failed = append(s.failed, p)
		if len(s.failed) == 1 {
			s.rootCause.Reset(rootCauseWait)
		}
	}
	if len(s.failed) > 0 && !s.awaitsRootCause() {
		s.reportFailure()
	}
}

// failedByItself reports whether a process failed for a reason other than that it was asked to stop: before that, or by a signal
// that we did not send.
func (s *supervisor) failedByItself(p *process) bool {
	switch {
	case p.exit.Code == 0:
		return false
	case !p.wasAsked():
		return true
	}
	switch p.exit.Signal {
	case "", unix.SIGTERM.String(), s.checkpointSignal.String():
		return false
	case unix.SIGKILL.String():
		return !p.killed
	}
	return true
}

// reportFailure reports the first failure, and stops the other processes unless they are being stopped: they cannot continue
// without their peer.
func (s *supervisor) reportFailure() {
	if s.failureReported {
		return
	}
	s.failureReported = true
	s.rootCause.Stop()
	s.events <- failed{s.first().failure(s.devices.failures())}
	if s.alive > 0 && !s.stopping {
		s.grace = brokenGrace
		s.terminate()
	}
}

// first is the process that failed first: one that got SIGKILL, which is nobody's echo; else by the times in the error files, as in
// torchrun; by the order of exits if they have none or the same second.
func (s *supervisor) first() *process {
	best := s.failed[0]
	for _, p := range s.failed[1:] {
		if p.precedes(best) {
			best = p
		}
	}
	return best
}

// precedes reports whether a process failed before another one.
func (p *process) precedes(q *process) bool {
	killed := func(p *process) bool { return p.exit.Signal == unix.SIGKILL.String() }
	if killed(p) != killed(q) {
		return killed(p)
	}
	return p.failedAt() < q.failedAt()
}

// failedAt is in Unix seconds, as in error files.
func (p *process) failedAt() int64 {
	if f, ok := readErrorFile(p.errorFile); ok && f.at != 0 {
		return f.at
	}
	return p.exit.At.Unix()
}

// awaitsRootCause reports whether a process of which the exit is still to be seen may have failed before all others: it has exited
// as well, or has recorded an earlier failure.
func (s *supervisor) awaitsRootCause() bool {
	first := s.first().failedAt()
	for _, p := range s.processes {
		if p.ended {
			continue
		}
		if p.hasExited() {
			return true
		}
		if f, ok := readErrorFile(p.errorFile); ok && f.at != 0 && f.at < first {
			return true
		}
	}
	return false
}

// stop starts a requested stop, or shortens the current one.
func (s *supervisor) stop(how stop) {
	s.stopping = true
	switch {
	case how.grace == 0:
		s.ask()
		s.poll.Stop()
		s.checkpointTimeout.Stop()
		s.killAll()
	case !s.killAt.IsZero():
		if at := time.Now().Add(how.grace); at.Before(s.killAt) {
			s.killAt = at
			s.kill.Reset(how.grace)
		}
	case how.checkpoint && s.checkpointSignal != 0:
		s.grace = how.grace
		s.ask()
		s.checkpoint = arrival{before: newest(s.checkpoints.look())}
		s.notify(s.checkpointSignal)
		s.poll.Reset(checkpointPoll)
		s.checkpointTimeout.Reset(how.grace)
	default:
		s.grace = how.grace
		s.terminate()
	}
}

// lookForCheckpoint stops the processes once they have written the requested checkpoint.
func (s *supervisor) lookForCheckpoint() {
	if s.checkpoint.finished(newest(s.checkpoints.look()), time.Now()) {
		s.terminate()
	}
}

// ask records which processes still run when they are first asked to stop.
func (s *supervisor) ask() {
	for _, p := range s.processes {
		p.ask()
	}
}

// terminate sends SIGTERM, once, and SIGCONT so that a suspended process receives it.
func (s *supervisor) terminate() {
	if !s.killAt.IsZero() {
		return
	}
	s.poll.Stop()
	s.checkpointTimeout.Stop()
	s.ask()
	close(s.terminating)
	s.signal(unix.SIGTERM)
	s.signal(unix.SIGCONT)
	s.killAt = time.Now().Add(s.grace)
	s.kill.Reset(s.grace)
}

// killAll sends SIGKILL. A process that hangs in the kernel, in a driver or on a dead file system, survives it. What it holds
// must not be given to the next incarnation, so the agent waits, and logs it.
func (s *supervisor) killAll() {
	if s.killed {
		s.log.Error("processes did not exit after SIGKILL", "pids", s.pids())
	} else {
		close(s.killing)
	}
	s.killed = true
	for _, p := range s.processes {
		p.kill()
	}
	s.kill.Reset(killAgain)
}
