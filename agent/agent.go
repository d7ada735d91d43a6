// Package agent is the node agent: the process in every incarnation of a slot. It connects to the elastic training service,
// starts the slot's training processes when ordered, watches them, reports, and stops them.
//
// life, a plain value, decides what the agent does about an event. Around it are the edges: session talks to the service,
// generation runs the processes of one world, record keeps the files by which a provider on the same machine finds the agent
// again. The package must not know plans or providers.
//
// An agent leaves nothing behind when it exits. An orderly exit kills its process groups and all other descendants. If it is
// killed, PDEATHSIG kills its training processes; processes that those had started stay in their process groups, which
// processes.json lists for the provider to kill, with other descendants as of the last beat. Only a cgroup, which is the
// provider's, also has those that left their group, session and environment since. A supervisor process per slot could find more,
// at the cost of its memory in every slot.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// Exit codes of the agent. An agent whose processes failed exits with the code of the first that did.
const (
	ExitDone    = 0   // all processes exited with 0, or the service ordered the agent to leave
	ExitConfig  = 2   // its configuration or its directory is invalid; nothing was started
	ExitStarted = 73  // this incarnation has or had an agent already; nothing was changed
	ExitFenced  = 75  // a newer incarnation has the slot
	ExitLeft    = 143 // by SIGTERM, as shells report it
)

const (
	// lastWordWait is how long an agent that is done, or was asked to stop, waits for the answer to its last report.
	lastWordWait = time.Second
	// beatsInLease is how many beats a lease has (see elastic.Coordinator).
	beatsInLease = 3

	// membersFile is in the incarnation's directory.
	membersFile = "members.json"

	// The agent holds some buffers and little else; a small heap matters more than rare collections.
	gcPercent   = 50
	memoryLimit = 16 << 20
	maxProcs    = 2
)

// Run runs an agent until it exits, and returns the process's exit code. The process must be the agent's own: Run tunes its
// runtime, handles its SIGTERM and SIGINT, adopts its orphaned descendants, and kills all descendants with the processes of a
// world. Cancelling ctx has the effect of SIGTERM.
func Run(ctx context.Context, c job.AgentConfig, log *slog.Logger) int {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(min(maxProcs, runtime.GOMAXPROCS(0)))
	// The agent must survive the reader of its output: once SIGPIPE is caught, the write fails instead.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	defer signal.Stop(pipe)

	if err := absolute(&c); err != nil {
		log.Error("the agent's configuration is unusable", "error", err)
		return ExitConfig
	}
	rec, err := openRecord(c.Dir, c.LockFD, c.LastWordFile, time.Now())
	if errors.Is(err, errStarted) {
		log.Info("nothing to do", "reason", err)
		return ExitStarted
	}
	if err != nil {
		log.Error("the agent's directory is unusable", "error", err)
		return ExitConfig
	}
	defer rec.close()

	a, err := newAgent(c, rec, log)
	if err != nil {
		log.Error("the agent's configuration is unusable", "error", err)
		exit := &job.Exit{Code: ExitConfig, At: time.Now(), NotStarted: err.Error()}
		if err := rec.exit(job.LastWord{Exit: exit, State: job.MemberFailed, Reason: job.EndFailed}); err != nil {
			log.Error("cannot record the exit", "error", err)
		}
		return ExitConfig
	}
	defer a.close()
	return a.run(ctx)
}

// absolute makes the paths of c absolute, for processes that change their directory.
func absolute(c *job.AgentConfig) error {
	for _, path := range []*string{
		&c.ServiceFile, &c.TokenFile, &c.CAFile, &c.Dir, &c.LastWordFile, &c.WorkingDir, &c.Log, &c.CheckpointDir,
	} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}

// agent is a life with its edges.
type agent struct {
	config   job.AgentConfig
	log      *slog.Logger
	record   *record
	launcher *launcher
	executor *executor
	checker  *checker
	session  *session
	life     *life
	events   chan event
	beats    chan time.Duration
	done     chan struct{} // closed once no event is handled any more

	generation *generation // nil when no process runs
	ports      ports
	watch      watch
	members    *elastic.Peers // the newest list; nil if not told
	overdue    *time.Timer
	ended      *end

	checkpoints *directory // nil if none is declared
	saver       *saver     // nil without it

	mu       sync.Mutex
	outgoing outgoing // what the session reports, except the progress
	lookout  lookout  // of the generation that runs
}

// ports are reserved for MASTER_PORT.
type ports struct {
	held     *reservation // nil when none is
	released *reservation // given to the processes that run
	last     int
}

// watch is what the agent sees of the training processes.
type watch struct {
	sampler *sampler
	mains   []int       // the processes that are looked at, by local rank
	strays  []processID // descendants outside of the processes' groups, as recorded
}

func newAgent(c job.AgentConfig, rec *record, log *slog.Logger) (*agent, error) {
	a := &agent{
		config: c, log: log, record: rec, life: newLife(c.StopGrace.Std()),
		events: make(chan event, 4), beats: make(chan time.Duration, 1), done: make(chan struct{}), overdue: time.NewTimer(time.Hour),
	}
	a.overdue.Stop()
	a.config.Processes = max(c.Processes, 1)
	if len(c.Command) == 0 {
		return nil, errors.New("no command")
	}
	meter, err := newMeter(c.CheckpointPattern)
	if err != nil {
		return nil, err
	}
	var ask syscall.Signal
	if c.CheckpointSignal != "" {
		if ask = unix.SignalNum(c.CheckpointSignal); ask == 0 {
			return nil, fmt.Errorf("checkpoint signal %q is not known", c.CheckpointSignal)
		}
	}
	errorDir, err := a.makeErrorDir()
	if err != nil {
		return nil, err
	}
	a.checkpoints = openDirectory(c.CheckpointDir)
	sink, err := openSink(c.Log, logmarks.Mark{UID: c.UID, Incarnation: c.Incarnation}, log)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	if c.Incarnation == 1 && sink.size > 0 { // logs are named by jobs, and outlive them
		fmt.Fprintf(sink, "[eltrain] the output of an earlier job of this name ends here\n")
	}
	if err := adoptOrphans(); err != nil {
		log.Warn("cannot adopt orphaned descendants", "error", err)
	}
	a.launcher = &launcher{
		config: &a.config, base: os.Environ(), errorDir: errorDir, signal: ask,
		forker: newForker(), sink: sink, meter: meter, log: log, checkpoints: a.checkpoints,
	}
	a.launcher.devices = newAccelerators(&a.config, a.launcher.forker, log)
	if a.launcher.hookDir, err = writeHook(errorDir); err != nil {
		log.Warn("Python starts without the hook for stacks", "error", err)
	}
	a.session = newSession(&a.config, a.currentReport, a.events, a.beats, log)
	a.launcher.progressed = a.session.reportNow
	a.executor = newExecutor(c.Dir, a.launcher.forker, log)
	a.checker = newChecker(a.launcher, a.session.currentToken, a.events)
	a.watch.sampler = newSampler()
	a.saver = newSaver(a.checkpoints, a.session.reportNow)
	return a, nil
}

// makeErrorDir makes the directory of the processes' error files.
func (a *agent) makeErrorDir() (string, error) {
	if a.config.Dir == "" {
		dir, err := os.MkdirTemp("", "eltrain-errors-")
		if err != nil { // in a container with a read-only root file system
			dir, err = os.MkdirTemp("/dev/shm", "eltrain-errors-")
		}
		return dir, err
	}
	dir := filepath.Join(a.config.Dir, "errors")
	return dir, regular.MakePrivate(a.config.Dir, dir)
}

func (a *agent) close() {
	a.executor.close()
	a.checker.end()
	a.watch.sampler.close()
	a.saver.close()
	a.launcher.forker.close()
	a.launcher.sink.close()
	a.ports.held.end()
	a.ports.released.end()
	if a.config.Dir == "" {
		os.RemoveAll(a.launcher.errorDir)
	}
}

func (a *agent) run(ctx context.Context) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(signals)

	defer a.overdue.Stop()

	a.reserve()
	a.publish()
	sessionCtx, stopSession := context.WithCancel(context.WithoutCancel(ctx))
	sessionDone := make(chan struct{})
	go func() {
		defer close(sessionDone)
		a.session.run(sessionCtx)
	}()

	beat := time.NewTicker(defaultBeat)
	defer beat.Stop()
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	asked, missed := ctx.Done(), 0
	for a.ended == nil {
		select {
		case e := <-a.events:
			if _, is := e.(answered); is {
				missed = 0
			}
			a.step(e)
		case <-signals:
			a.step(signalled{})
		case <-asked:
			asked = nil
			a.step(signalled{})
		case <-a.overdue.C:
			a.step(overdue{})
		case d := <-a.beats:
			beat.Reset(d)
		case <-looks.C:
			a.look()
		case <-beat.C:
			a.measure()
			if missed++; missed > beatsInLease {
				a.step(unanswered{})
			}
		}
	}
	stopSession()
	<-sessionDone
	close(a.done)
	return a.finish()
}

// step applies an event to life and carries out the effects.
func (a *agent) step(e event) {
	if e, is := e.(evidence); is {
		a.found(e)
		return
	}
	if _, over := e.(stopped); over {
		a.logEnd()
		a.generation, a.watch.mains = nil, nil
		a.report(figures{}) // the next generation's processes are others
		a.executor.current.Store(nil)
	}
	if e, is := e.(ordered); is && e.members != nil {
		a.members = e.members
		if a.generation != nil && !a.config.Ranked { // in a world it is as of its start
			a.writeMembers()
		}
	}
	effects := a.life.Step(e)
	if slices.Contains(effects, effect(reserve{})) {
		a.reserve() // before the session can report waiting: without a port it must not get rank 0
	}
	a.publish()
	for _, effect := range effects {
		switch effect := effect.(type) {
		case start:
			a.start(effect.place)
		case stop:
			if a.generation != nil {
				a.generation.stop(effect)
			}
		case perform:
			a.perform(effect.Act)
		case read:
			if err := a.launcher.meter.readBy(effect.by); err != nil { // of a service with other rules for patterns
				a.log.Error("progress is read as before", "error", err)
			}
		case examine:
			a.examine(effect.request)
		case inspect:
			a.checker.begin(effect.check)
		case meet:
			a.checker.meet(effect.check)
		case disregard:
			a.checker.end()
		case report:
			a.session.reportNow()
		case lastWord:
			a.overdue.Reset(lastWordWait)
		case end:
			a.ended = &effect
		}
	}
}

// start starts the processes of a world. The port is released at the last moment.
func (a *agent) start(p elastic.Place) {
	a.checker.end()
	a.ports.held.release()
	a.ports.released.end()
	a.ports.held, a.ports.released = nil, a.ports.held
	a.logStart(p)
	a.saver.begin(world{p.Generation, a.config.Ranked && p.GroupRank == 0})
	a.launcher.membersFile = a.writeMembers()
	generation, exit := a.launcher.start(p, a.events)
	if exit != nil {
		a.log.Error("the processes could not be started", "reason", exit.NotStarted)
		fmt.Fprintf(a.launcher.sink, "[eltrain] generation %d: not started: %s\n", p.Generation, exit.NotStarted)
		a.step(failed{*exit})
		a.step(stopped{exit.At})
		return
	}
	a.generation = generation
	a.executor.current.Store(generation)
	a.recordProcesses(p.Generation, generation.ids())
	a.measure()
	a.step(started{generation.pids()})
}

// writeMembers replaces the list of members as a file for the processes, and returns its path. If it cannot be written there is none,
// and no path.
func (a *agent) writeMembers() string {
	path := filepath.Join(cmp.Or(a.config.Dir, a.launcher.errorDir), membersFile)
	if a.members == nil {
		return ""
	}
	text, err := json.Marshal(a.members)
	if err == nil {
		err = atomicfile.Write(path, append(text, '\n'), 0o600)
	}
	if err != nil {
		a.log.Error("cannot write the list of members", "error", err)
		os.Remove(path) // an old one would mislead
		return ""
	}
	return path
}

// recordProcesses records which processes run, for a provider that finds this agent dead.
func (a *agent) recordProcesses(generation int, ids []processID) {
	p := processesRecord{Generation: generation, Processes: ids, Descendants: a.watch.strays, OOMKills: int(a.launcher.oomKills.Load())}
	if err := a.record.processes(p); err != nil {
		a.log.Error("cannot record the processes", "error", err)
	}
}

func (a *agent) logStart(p elastic.Place) {
	if !a.config.Ranked {
		fmt.Fprintf(a.launcher.sink, "[eltrain] generation %d: starts\n", p.Generation)
		return
	}
	ranks := fmt.Sprintf("rank %d", p.RankBase)
	if n := a.config.Processes; n > 1 {
		ranks = fmt.Sprintf("ranks %d-%d", p.RankBase, p.RankBase+n-1)
	}
	fmt.Fprintf(a.launcher.sink, "[eltrain] generation %d: %s of %d, rank 0 at %s:%d\n",
		p.Generation, ranks, p.WorldSize, p.MasterAddr, p.MasterPort)
}

func (a *agent) logEnd() {
	if a.generation == nil {
		return
	}
	fmt.Fprintf(a.launcher.sink, "[eltrain] generation %d: ended\n", a.generation.number)
	a.watch.strays = nil // killed
	a.recordProcesses(a.generation.number, []processID{})
}

// reserve reserves the port offered for the next world.
func (a *agent) reserve() {
	a.ports.held.end()
	port, err := reservePort(a.ports.last)
	if err != nil {
		a.log.Error("cannot reserve a port for MASTER_PORT", "error", err) // the member can have any rank but 0
		a.ports.held = nil
		return
	}
	a.ports.held, a.ports.last = port, port.Port
}

// measure samples the training processes, for the next beat, and records descendants that have left them. It also reaps orphans that
// have exited: in a container the agent is their init.
func (a *agent) measure() {
	if a.generation == nil {
		if !a.checker.busy() {
			reapOrphans()
		}
		a.report(figures{})
		return
	}
	seen := a.watch.sampler.read(time.Now(), a.generation.ids(), a.generation.reaps)
	if !slices.Equal(seen.strays, a.watch.strays) {
		a.watch.strays = seen.strays
		a.recordProcesses(a.generation.number, a.generation.ids())
	}
	if seen.slot != nil {
		seen.slot.Accelerators = a.launcher.devices.figures(time.Now())
	}
	a.watch.mains = a.generation.pids()
	for i := range seen.ranks {
		if p := seen.ranks[i].Process; p != nil {
			a.watch.mains[i] = p.PID
		}
	}
	a.report(seen)
}

// look looks at the training processes, and has reported at once what cannot wait for the beat.
func (a *agent) look() {
	if a.generation == nil {
		return
	}
	now := time.Now()
	seen, work := make([]glimpse, len(a.watch.mains)), a.launcher.devices.work(now)
	for i, pid := range a.watch.mains {
		seen[i] = a.watch.sampler.glimpse(pid)
		seen[i].lines, seen[i].devices = a.generation.processes[i].reader.lines(), work
	}
	a.launcher.meter.enterStill(seen, now)
	a.mu.Lock()
	tell := a.lookout.see(now, seen)
	a.mu.Unlock()
	if tell {
		a.session.reportNow()
	}
}

// examine takes evidence about the training processes, for as long as the service asks for it. 0 is no request any more.
func (a *agent) examine(request int) {
	a.mu.Lock()
	a.outgoing.Evidence = nil
	a.mu.Unlock()
	if request == 0 || a.generation == nil {
		return
	}
	subjects := make([]subject, len(a.generation.processes))
	for i, p := range a.generation.processes {
		subjects[i] = subject{a.watch.mains[i], strings.TrimSuffix(p.errorFile, ".json") + ".stacks", p.reader.last()}
	}
	go func() {
		found := evidence{request, evidenceOf(subjects)}
		select {
		case a.events <- found:
		case <-a.done:
		}
	}()
}

// found makes evidence part of the reports if it is still asked for.
func (a *agent) found(e evidence) {
	if e.request != a.life.order.Evidence {
		return
	}
	a.mu.Lock()
	a.outgoing.Evidence = &job.Evidence{Request: e.request, Ranks: e.ranks}
	a.mu.Unlock()
	a.session.reportNow()
}

// report makes figures part of the next report.
func (a *agent) report(f figures) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &a.outgoing.Report
	r.CPU, r.Memory, r.Ranks, r.Figures = f.cpu, f.memory, f.ranks, f.slot
	if a.generation == nil {
		a.lookout, r.Evidence = lookout{}, nil
	}
}

// publish makes life's current state available to the session, which may report it at any moment. Processes being started are
// not reported running until they run and are recorded: a provider without a record of processes takes them for ended.
func (a *agent) publish() {
	l := a.life
	if l.starting() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &a.outgoing.Report
	r.State, r.Generation, r.Rank, r.WorldSlots = l.state, l.generation, l.rank, l.slots
	r.InPlace, r.PIDs, r.Exit, r.Acts, r.Check = l.inPlace, l.pids, l.exit, l.results(), l.check.Done()
	switch r.Port = 0; {
	case a.ports.held != nil:
		r.Port = a.ports.held.Port
	case l.state == job.MemberRunning && (l.rank == 0 || !a.config.Ranked):
		r.Port = l.port
	}
	a.outgoing.acknowledge = l.wantsAnswer()
}

// currentReport is the newest report.
func (a *agent) currentReport() outgoing {
	a.mu.Lock()
	s, now := a.outgoing, time.Now()
	s.Ranks = slices.Clone(s.Ranks)
	if s.Exit != nil {
		s.Evidence = nil // both would be more than the service accepts
	}
	a.lookout.enter(s.Ranks, now)
	a.mu.Unlock()
	a.launcher.meter.report(&s, now)
	saved := a.saver.now()
	s.Checkpoint, s.Saving = saved.sight, saved.saving
	if a.config.Ranked && !a.launcher.meter.readsCheckpoints() {
		s.Saved = saved.newest
	}
	return s
}

// finish records the exit and returns the exit code.
func (a *agent) finish() int {
	l := a.life
	if err := a.record.exit(job.LastWord{Exit: l.exit, State: l.state, Reason: a.ended.reason}); err != nil {
		a.log.Error("cannot record the exit", "error", err)
	}
	a.log.Info("the agent exits", "reason", a.ended.reason)
	switch a.ended.reason {
	case job.EndFailed:
		return max(1, min(l.exit.Code, 255))
	case job.EndFenced:
		return ExitFenced
	case job.EndLeft:
		return ExitLeft
	}
	return ExitDone
}
