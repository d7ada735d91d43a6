package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// incarnation is what this process knows of one incarnation. The truth is in its directory and in the process
// table; this is a cache with handles.
type incarnation struct {
	key  key
	dir  string
	gone chan struct{} // closed once final is set

	mu     sync.Mutex
	launch *launchRecord
	record agentRecord // the agent's, once read
	agent  *process    // nil until its record was read, or if it had ended by then
	idle   bool        // it was found running, without a training process
	ours   bool        // launched here, or its agent was seen to run for this run directory
	swept  bool        // its cgroups were removed
	child  *process    // started by this provider; it may have lost the lock to an earlier start
	final  *job.Incarnation
}

// incarnation returns the only handle of k.
func (p *Provider) incarnation(k key) *incarnation {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.incarnations[k]
	if i == nil {
		i = &incarnation{key: k, dir: p.dir(k), gone: make(chan struct{})}
		p.incarnations[k] = i
	}
	return i
}

// track records which incarnation a process belongs to.
func (p *Provider) track(proc *process, i *incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byProcess[proc] = i
}

// observeWait bounds how long Observe waits until the remains of dead agents are killed. That takes milliseconds;
// if it takes longer a process is stuck in the kernel, and the incarnation is reported as still up.
const observeWait = 2 * time.Second

// Observe reads the run directory and the process table. An incarnation that has only a launch record, and of
// which nothing runs, is omitted: it was never started, and Launch starts it.
func (p *Provider) Observe(ctx context.Context) (*providers.Observation, error) {
	keys, err := p.keys()
	if err != nil {
		return nil, fmt.Errorf("observe local processes: %w", err)
	}
	p.mu.Lock()
	o := &providers.Observation{Nodes: p.nodes, Places: providers.Anywhere}
	p.mu.Unlock()
	bound, cancel := context.WithTimeout(ctx, observeWait)
	defer cancel()
	all, err := p.lookAll(keys)
	if err != nil {
		return nil, err
	}
	incs := make([]job.Incarnation, 0, len(keys))
	var dying []*incarnation
	for k, seen := range all {
		switch {
		case !seen.found:
		case seen.dead:
			dying = append(dying, p.incarnation(keys[k]))
		default:
			incs = append(incs, seen.Incarnation)
		}
	}
	for _, i := range dying {
		select {
		case <-i.gone:
		case <-bound.Done():
		}
		seen, _, err := p.look(i)
		if err != nil {
			return nil, fmt.Errorf("observe %s: %w", i.key, err)
		}
		incs = append(incs, seen.Incarnation)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("observe local processes: %w", err)
	}
	slices.SortFunc(incs, func(a, b job.Incarnation) int {
		return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Number, b.Number))
	})
	o.Incarnations = job.InParts(incs)
	return p.newest(o), nil
}

// newest returns the previous observation if this one is equal.
func (p *Provider) newest(o *providers.Observation) *providers.Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !reflect.DeepEqual(o, p.seen) {
		p.seen = o
	}
	return p.seen
}

// lookAll looks at incarnations, in parallel on all cores: a look is a dozen system calls, and a plan waits for all.
func (p *Provider) lookAll(keys []key) ([]lookResult, error) {
	all := make([]lookResult, len(keys))
	elsewhereErrs := make([]*otherHomeError, len(keys))
	part := max(1, len(keys)/runtime.GOMAXPROCS(0))
	var g errgroup.Group
	for first := 0; first < len(keys); first += part {
		g.Go(func() error {
			for k := first; k < min(first+part, len(keys)); k++ {
				seen, found, err := p.look(p.incarnation(keys[k]))
				if err != nil && !errors.As(err, &elsewhereErrs[k]) {
					return fmt.Errorf("observe %s: %w", keys[k], err)
				}
				seen.found = found
				all[k] = seen
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := joinOtherHomes(slices.DeleteFunc(elsewhereErrs, func(e *otherHomeError) bool { return e == nil })); err != nil {
		return nil, fmt.Errorf("observe local processes: %w", err)
	}
	return all, nil
}

// lookResult is one incarnation as seen. dead: its agent has ended and its remains are being killed; until then it
// counts as up. One that is not found was never started.
type lookResult struct {
	job.Incarnation
	dead  bool
	found bool
}

// look finds the state of an incarnation, and hands one with a dead agent to the reaper. found is false if
// nothing of it was ever started.
func (p *Provider) look(i *incarnation) (s lookResult, found bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.final != nil {
		p.sweep(i) // if it fails, at the next look
		return lookResult{Incarnation: *i.final}, true, nil
	}
	if found, err := i.readLaunch(); err != nil || !found {
		return lookResult{}, false, err
	}
	if i.child == nil && i.agent == nil { // otherwise our own reaper would report it
		var final job.Incarnation
		if found, err := readJSON(i.dir, endedFile, &final); err != nil {
			return lookResult{}, false, err
		} else if found {
			i.end(&final)
			p.sweep(i) // if it fails, at the next look
			return lookResult{Incarnation: final}, true, nil
		}
	}
	seen := i.observed()
	// The order matters: an agent takes the lock before it writes its record, and writes its record before it exits.
	held := i.record.PID == 0 && (i.child.running() || locked(i.dir))
	known, err := p.adopt(i)
	switch {
	case err != nil:
		return lookResult{}, false, err
	case known && i.agent.running():
		if err := p.checkHome(i); err != nil {
			return lookResult{}, false, err
		}
		seen.State, seen.AgentPID, seen.Started, seen.Idle = job.Up, i.record.PID, i.record.Started, i.idle
		return lookResult{Incarnation: seen}, true, nil
	case known:
		seen.State, seen.AgentPID, seen.Started = job.Up, i.record.PID, i.record.Started
	case held:
		seen.State = job.Starting
		if i.child == nil {
			p.notify.Add(i.dir)
			// The record may have been written before the watch was added.
			if known, err := p.adopt(i); err != nil || known {
				p.changed()
			}
		}
		return lookResult{Incarnation: seen}, true, nil
	default:
		var exit job.LastWord
		notStarted, err := readJSON(i.dir, exitFile, &exit)
		if err != nil || !notStarted && i.child == nil {
			return lookResult{}, false, err
		}
		seen.State = job.Starting
	}
	p.reaper.add(i)
	return lookResult{Incarnation: seen, dead: true}, true, nil
}

// readLaunch reads the launch record once. i.mu is held.
func (i *incarnation) readLaunch() (found bool, err error) {
	if i.launch != nil {
		return true, nil
	}
	var l launchRecord
	if found, err := readJSON(i.dir, launchFile, &l); err != nil || !found {
		return false, err
	}
	i.launch = &l
	return true, nil
}

// observed is what the launch record alone says. i.mu is held and the record was read.
func (i *incarnation) observed() job.Incarnation {
	l := i.launch
	return job.Incarnation{
		Slot: l.Slot, UID: l.UID, Number: l.Incarnation, Node: l.Node, Fingerprint: l.Fingerprint,
		Reserved: l.Reserved, Started: l.Asked,
	}
}

// adopt reads the agent's record, if written, and opens the process if it runs. i.mu is held.
func (p *Provider) adopt(i *incarnation) (known bool, err error) {
	if i.record.PID != 0 {
		return true, nil
	}
	var record agentRecord
	if found, err := readJSON(i.dir, agentFile, &record); err != nil || !found {
		return false, err
	}
	if record.PID <= 0 {
		return false, fmt.Errorf("%s names no process", filepath.Join(i.dir, agentFile))
	}
	p.notify.Remove(i.dir)
	if i.child != nil && i.child.identity == record.identity {
		i.record, i.agent = record, i.child
		return true, nil
	}
	if record.BootID != p.boot {
		i.record = record
		return true, nil
	}
	processes, err := p.recorded(i)
	if err != nil {
		return false, err
	}
	agent, err := openProcess(record.identity)
	if errors.Is(err, errNotRunning) {
		i.record = record
		return true, nil
	}
	if err != nil {
		return false, err
	}
	p.track(agent, i)
	if err := p.watcher.add(agent); err != nil {
		return false, err
	}
	i.record, i.agent, i.idle = record, agent, len(processes.Processes) == 0
	return true, nil
}

// running reports whether the process has not been seen to end; false for nil.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end sets the final observation. i.mu is held.
func (i *incarnation) end(final *job.Incarnation) {
	i.final = final
	close(i.gone)
}

// processEnded is called by the watcher for each process that ended.
func (p *Provider) processEnded(proc *process) {
	p.mu.Lock()
	i := p.byProcess[proc]
	delete(p.byProcess, proc)
	p.mu.Unlock()
	if i == nil {
		return
	}
	if _, _, err := p.look(i); err != nil {
		p.log.Warn("Cannot examine an ended agent.", "incarnation", i.key.String(), "error", err)
	}
	p.changed()
}

// readNotifications reports agents' records as they appear.
func (p *Provider) readNotifications() {
	for {
		select {
		case e, ok := <-p.notify.Events:
			if !ok {
				return
			}
			switch filepath.Base(e.Name) {
			case agentFile, exitFile:
				p.changed()
			}
		case err, ok := <-p.notify.Errors:
			if !ok {
				return
			}
			// Events were lost: check everything.
			p.log.Debug("File watching is unreliable.", "error", err)
			p.changed()
		}
	}
}
