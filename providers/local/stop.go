package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// stopMargin is what an agent gets on top of the grace: it kills its processes when their grace is over, and
// then has to write how it ended. killWait bounds killing a whole incarnation; only a process stuck in the
// kernel takes longer.
const (
	stopMargin = 2 * time.Second
	killWait   = 10 * time.Second
)

// Stop asks the agent to stop its processes and exit. When grace is over, or if no agent is left, it kills
// everything of the incarnation. One that has not started yet is no longer started.
func (p *Provider) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	k := key{uid, slot.Role, slot.Index, incarnation}
	if err := checkUID(k.uid); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.dir(k), launchFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	i := p.incarnation(k)
	seen, _, err := p.look(i)
	if err != nil {
		return err
	}
	if seen.State == job.Gone {
		return nil
	}
	if agent := i.leader(); agent.running() && grace > 0 {
		if err := p.ask(i, agent); err != nil {
			return err
		}
		select {
		case <-agent.done:
		case <-time.After(grace + stopMargin):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.reaper.add(i)
	select {
	case <-i.gone:
		return nil
	case <-time.After(killWait):
		return fmt.Errorf("it still has running processes %s after it was killed", killWait)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leader is the process that is, or is to become, the agent; nil if none is known.
func (i *incarnation) leader() *process {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.agent.running() {
		return i.agent
	}
	return i.child
}

// ask sends SIGTERM to the agent. Stopped processes (SIGSTOP) are continued, or they could not react.
func (p *Provider) ask(i *incarnation, agent *process) error {
	recorded, err := p.recorded(i)
	if err != nil {
		return err
	}
	if err := agent.signal(unix.SIGTERM); err != nil {
		return err
	}
	err = agent.signal(unix.SIGCONT)
	for _, id := range recorded.Processes {
		proc, openErr := openProcess(id)
		if errors.Is(openErr, errNotRunning) {
			continue
		}
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		err = errors.Join(err, proc.signal(unix.SIGCONT))
		proc.release()
	}
	return err
}

// recorded reads which processes the agent recorded as started in this boot.
func (p *Provider) recorded(i *incarnation) (processesRecord, error) {
	var r processesRecord
	if _, err := readJSON(i.dir, processesFile, &r); err != nil {
		return r, err
	}
	if r.BootID != "" && r.BootID != p.boot {
		r.Processes, r.Descendants = nil, nil
	}
	return r, nil
}

// reaper kills what dead agents left behind, and agents that are to die, then finalizes their incarnations.
// One goroutine does it for all: one scan of the process table serves all that are pending.
type reaper struct {
	p    *Provider
	wake chan struct{}

	mu      sync.Mutex
	pending map[*incarnation]bool
}

func newReaper(p *Provider) *reaper {
	return &reaper{p: p, wake: make(chan struct{}, 1), pending: map[*incarnation]bool{}}
}

// add hands over an incarnation of which everything must be killed.
func (r *reaper) add(i *incarnation) {
	r.mu.Lock()
	r.pending[i] = true
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// The pause between two rounds doubles from the first to the second while processes are left.
const (
	firstRound = 20 * time.Millisecond
	lastRound  = time.Second
)

func (r *reaper) run(ctx context.Context) {
	var again <-chan time.Time
	pause := firstRound
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-again:
		}
		again = nil
		if r.work() {
			pause = firstRound
			continue
		}
		again = time.After(pause)
		pause = min(2*pause, lastRound)
	}
}

// work kills what is left of everything pending, and finalizes incarnations of which nothing is left. It reports
// whether nothing is pending anymore.
func (r *reaper) work() (done bool) {
	r.mu.Lock()
	pending := make([]*incarnation, 0, len(r.pending))
	for i := range r.pending {
		pending = append(pending, i)
	}
	r.mu.Unlock()
	if len(pending) == 0 {
		return true
	}
	census, err := takeCensus()
	if err != nil {
		r.p.log.Error("Cannot search for processes of dead agents.", "error", err)
		return false
	}
	done = true
	var killed []*process
	for _, i := range pending {
		found, ran, err := r.p.killAll(i, census)
		killed = append(killed, found...)
		if err != nil {
			r.p.log.Error("Cannot end the processes of a dead agent.", "incarnation", i.key.String(), "error", err)
		}
		if err != nil || ran || !r.p.finalize(i) {
			done = false
			continue
		}
		r.mu.Lock()
		delete(r.pending, i)
		r.mu.Unlock()
	}
	if len(killed) > 0 {
		awaitEnds(killed, firstRound)
		select { // look again at once
		case r.wake <- struct{}{}:
		default:
		}
	}
	return done
}

// awaitEnds waits until all have ended, or for the given time, and releases them.
func awaitEnds(procs []*process, bound time.Duration) {
	deadline := time.Now().Add(bound)
	for _, proc := range procs {
		fds := []unix.PollFd{{Fd: int32(proc.fd), Events: unix.POLLIN}}
		unix.Poll(fds, int(max(0, time.Until(deadline)).Milliseconds()))
		proc.release()
	}
}

// killAll sends SIGKILL to everything that runs of an incarnation: first to its cgroups, where a process may have started since the
// census. ran reports whether anything did; killed is what of it the census has.
func (p *Provider) killAll(i *incarnation, c *census) (killed []*process, ran bool, err error) {
	i.mu.Lock()
	var cgroups []string
	if i.launch != nil && !p.copied(i) {
		cgroups = i.launch.Cgroups
	}
	i.mu.Unlock()
	pids, err := cgroupPIDs(cgroups)
	if len(pids) > 0 {
		err = killCgroups(cgroups)
	}
	if err != nil {
		return nil, false, err
	}
	ids, err := p.members(i, c)
	if err != nil {
		return nil, false, err
	}
	for _, id := range ids {
		proc, err := openProcess(id)
		if errors.Is(err, errNotRunning) {
			continue
		}
		if err == nil {
			killed = append(killed, proc)
			err = proc.signal(unix.SIGKILL)
		}
		if err != nil {
			return killed, true, err
		}
	}
	return killed, len(killed)+len(pids) > 0, nil
}

// members finds the processes of an incarnation in a census, the agent first: those that the agent recorded, in its
// cgroups, in a session led by one of these, with the incarnation's mark in their environment, or descended from any of
// these. Some may have ended. If its record is a copy, only marked processes and their descendants count.
func (p *Provider) members(i *incarnation, c *census) ([]identity, error) {
	i.mu.Lock()
	record, child, launch := i.record, i.child, i.launch
	copied := launch != nil && p.copied(i)
	i.mu.Unlock()
	recorded, err := p.recorded(i)
	if err != nil {
		return nil, err
	}
	if copied {
		return c.collect(nil, c.marks[i.dir]), nil
	}
	var leaders []identity
	if record.PID != 0 && record.BootID == p.boot {
		leaders = append(leaders, record.identity)
	}
	if child != nil {
		leaders = append(leaders, child.identity)
	}
	leaders = slices.Concat(leaders, recorded.Processes, recorded.Descendants)
	others := c.marks[i.dir]
	if launch != nil {
		pids, err := cgroupPIDs(launch.Cgroups)
		if err != nil {
			return nil, err
		}
		others = slices.Concat(others, pids)
	}
	return c.collect(leaders, others), nil
}

// markName is a variable with the incarnation's directory in its agent's environment, inherited by all that the agent
// starts. It finds processes that left their session, parents and cgroup, and agents too young to have written
// their record.
const markName = "ELTRAIN_INCARNATION_DIR"

// census is a snapshot of all processes, indexed by what makes them belong together.
type census struct {
	stats    map[int]stat
	sessions map[int][]int
	children map[int][]int
	marks    map[string][]int // by the incarnation's directory in the environment
}

func takeCensus() (*census, error) {
	stats, err := processTable()
	if err != nil {
		return nil, err
	}
	c := indexed(stats)
	for pid := range stats {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil { // it has ended, or belongs to another user
			continue
		}
		for entry := range strings.SplitSeq(string(env), "\x00") {
			if dir, ok := strings.CutPrefix(entry, markName+"="); ok {
				c.marks[dir] = append(c.marks[dir], pid)
				break
			}
		}
	}
	return c, nil
}

func indexed(stats map[int]stat) *census {
	c := &census{stats: stats, sessions: map[int][]int{}, children: map[int][]int{}, marks: map[string][]int{}}
	for pid, st := range stats {
		c.sessions[st.session] = append(c.sessions[st.session], pid)
		c.children[st.ppid] = append(c.children[st.ppid], pid)
	}
	return c
}

// collect returns the leaders that are still the same process, their sessions, the others, and the descendants
// of all these.
func (c *census) collect(leaders []identity, others []int) []identity {
	have := map[int]bool{os.Getpid(): true} // never ourselves
	var members []identity
	add := func(pids ...int) {
		for _, pid := range pids {
			if st, there := c.stats[pid]; there && !have[pid] {
				have[pid] = true
				members = append(members, identity{pid, st.start})
			}
		}
	}
	for _, id := range leaders {
		// If another process took over the pid, its session is not ours.
		if c.stats[id.PID].start == id.Start {
			add(id.PID)
			add(c.sessions[id.PID]...)
		}
	}
	add(others...)
	for n := 0; n < len(members); n++ { // members grows
		add(c.children[members[n].PID]...)
	}
	return members
}

// finalize marks an incarnation as gone if nothing of it runs, and reports whether it did: an agent that died must be
// reaped first, since that gives its exit.
func (p *Provider) finalize(i *incarnation) (done bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.final != nil {
		return true
	}
	if i.agent.running() || i.child.running() || i.record.PID == 0 && locked(i.dir) {
		return false // locked without a record: a killed master has just started the agent, which cannot be found otherwise yet
	}
	if found, err := i.readLaunch(); err != nil || !found {
		return true // forgotten meanwhile
	}
	final := i.observed()
	final.State = job.Gone
	if i.record.PID != 0 {
		final.AgentPID, final.Started = i.record.PID, i.record.Started
	}
	final.Exit, final.Ended = p.exitOf(i)
	if err := p.sweep(i); err != nil {
		p.log.Warn("Cannot remove the cgroup of an incarnation; retrying later.", "incarnation", i.key.String(), "error", err)
	}
	if err := writeJSON(i.dir, endedFile, final); err != nil {
		p.log.Warn("Cannot record the end of an incarnation.", "incarnation", i.key.String(), "error", err)
	}
	p.notify.Remove(i.dir)
	i.end(&final)
	p.changed()
	return true
}

// exitOf is how and why an incarnation ended, nil and "" if unknown: by the agent's last word, else by the agent's
// own exit status. i.mu is held.
func (p *Provider) exitOf(i *incarnation) (*job.Exit, job.EndReason) {
	var last job.LastWord
	said, err := readJSON(i.dir, exitFile, &last)
	switch {
	case err != nil:
		p.log.Warn("Cannot read how an agent ended.", "incarnation", i.key.String(), "error", err)
	case last.Exit != nil:
		return last.Exit, last.Reason
	case last.State == job.MemberSucceeded:
		return &job.Exit{}, last.Reason
	case said: // it was asked to end
		return nil, last.Reason
	}
	proc := i.agent
	if proc == nil {
		proc = i.child
	}
	var exit *job.Exit
	if proc != nil {
		exit = proc.exit()
	}
	// The kernel counts OOM kills per cgroup; those that the agent counted were of its processes.
	recorded, err := p.recorded(i)
	if err == nil && oomKills(i.launch.Cgroups) > recorded.OOMKills && (exit == nil || exit.Signal == unix.SIGKILL.String()) {
		exit = &job.Exit{Code: 128 + int(unix.SIGKILL), Signal: unix.SIGKILL.String(), At: time.Now(), OOM: true}
	}
	if exit != nil && i.record.PID == 0 {
		exit.Tail = lastLines(filepath.Join(i.dir, agentLogFile), 20)
	}
	return exit, ""
}
