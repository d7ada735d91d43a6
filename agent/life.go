package agent

import (
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

const (
	// brokenGrace is the most that processes of a broken world get between SIGTERM and SIGKILL. Their
	// collectives can never finish, so there is nothing left that a long grace could save, and every
	// second of it is a second in which the whole job stands still.
	brokenGrace = 2 * time.Second
	// fencedGrace is what processes of a fenced incarnation get. Its successor may run already.
	fencedGrace = time.Second
)

// life is the agent's own life as a value: what it says of itself and what it does next. Step is all that
// changes it. There is no process, clock or socket in here; those are at the edges (see agent).
type life struct {
	stopGrace time.Duration

	state      job.MemberState
	generation int // that the processes run or last ran in; 0 before the first
	rank       int
	slots      int
	port       int // of that world, if its rank 0 is here; 0 otherwise
	inPlace    int
	pids       []int
	exit       *job.Exit

	procs    procs
	grace    time.Duration // of the stop under way
	order    elastic.Order // the newest
	ending   job.EndReason // why the agent is about to end; "" if it is not
	farewell bool          // only the answer to the last word is missing
	heard    answered      // the newest answer
}

// procs is what the processes do.
type procs string

const (
	idle     procs = "idle"
	running  procs = "running"
	stopping procs = "stopping" // SIGTERM is on its way or was sent; some still run
)

// event is what can happen to an agent.
type event interface{ isEvent() }

type (
	// ordered: the service's newest order.
	ordered struct{ elastic.Order }
	// answered: the service has answered a report with this state and so many processes.
	answered struct {
		state job.MemberState
		pids  int
	}
	// fenced: the service knows a newer incarnation of the slot.
	fenced struct{}
	// signalled: SIGTERM or SIGINT.
	signalled struct{}
	// started: the processes of the world that start named run.
	started struct{ pids []int }
	// failed: the first process failed. The others, if any, are being stopped.
	failed struct{ exit job.Exit }
	// slain: a process that was being stopped ended by a signal that this agent did not send. That is why
	// the world broke, or as good a reason: the news of its peers' broken connections were just quicker.
	slain struct{ exit job.Exit }
	// stopped: nothing of the generation is running, since at. Without a failed or a stop before it, all ended with 0.
	stopped struct{ at time.Time }
	// overdue: nobody answered the last word in time.
	overdue struct{}
)

func (ordered) isEvent()   {}
func (answered) isEvent()  {}
func (fenced) isEvent()    {}
func (signalled) isEvent() {}
func (started) isEvent()   {}
func (failed) isEvent()    {}
func (slain) isEvent()     {}
func (stopped) isEvent()   {}
func (overdue) isEvent()   {}

// effect is what to do about an event, in the order given.
type effect interface{ isEffect() }

type (
	// start the processes of a world.
	start struct{ place elastic.Place }
	// stop the processes: SIGTERM, SIGKILL after grace. With checkpoint they are asked for one first.
	// A stop during a stop can only bring its end nearer.
	stop struct {
		grace      time.Duration
		checkpoint bool
	}
	// reserve another port for MASTER_PORT.
	reserve struct{}
	// report to the service at once.
	report struct{}
	// lastWord: an overdue event is wanted if no answer comes soon.
	lastWord struct{}
	// end the agent.
	end struct{ reason job.EndReason }
)

func (start) isEffect()    {}
func (stop) isEffect()     {}
func (reserve) isEffect()  {}
func (report) isEffect()   {}
func (lastWord) isEffect() {}
func (end) isEffect()      {}

// newLife is an agent that has just started.
func newLife(stopGrace time.Duration) *life {
	return &life{stopGrace: stopGrace, state: job.MemberWaiting, procs: idle}
}

// Step takes one event and says what to do about it.
func (l *life) Step(e event) []effect {
	switch e := e.(type) {
	case ordered:
		l.order = e.Order
		return l.obey()
	case answered:
		return l.answered(e)
	case fenced:
		return l.leave(job.EndFenced, stop{grace: min(l.stopGrace, fencedGrace)})
	case signalled:
		return l.signalled()
	case started:
		l.pids = e.pids
		return []effect{report{}}
	case failed:
		return l.failed(e)
	case slain:
		return l.slain(e)
	case stopped:
		return l.stopped(e)
	case overdue:
		if l.farewell {
			return []effect{end{l.reason()}}
		}
	}
	return nil
}

// obey compares the newest order with what the processes do. It is level-triggered: it may be called at
// any time, and does nothing where nothing is to be done.
func (l *life) obey() []effect {
	if l.ending != "" {
		return nil
	}
	if l.order.Do == elastic.Leave {
		return l.leave(job.EndOrdered, stop{grace: l.stopGrace, checkpoint: l.order.Checkpoint})
	}
	switch l.procs {
	case idle:
		return l.obeyIdle()
	case running:
		if l.order.Do == elastic.Wait || l.newWorld() {
			return l.stop(l.orderedStop())
		}
	case stopping:
		// A failed process waits for its verdict; how fast its peers end was settled when it failed.
		if s := l.orderedStop(); l.state == job.MemberRunning && s.grace < l.grace {
			return l.stop(s)
		}
	}
	return nil
}

func (l *life) obeyIdle() []effect {
	switch {
	case l.state == job.MemberFailed && l.order.InPlace > l.inPlace:
		l.inPlace = l.order.InPlace
		l.exit = nil
		return l.wait()
	case l.state == job.MemberWaiting && l.newWorld():
		place := *l.order.World
		l.state, l.procs = job.MemberRunning, running
		l.generation, l.rank, l.slots, l.port = place.Generation, place.GroupRank, place.GroupSize, 0
		if place.GroupRank == 0 {
			l.port = place.MasterPort
		}
		return []effect{start{place}}
	}
	return nil
}

// newWorld reports whether the order is to run a world later than the one this agent knows. A world that
// has run here once never runs here again: its peers have moved on.
func (l *life) newWorld() bool {
	return l.order.Do == elastic.Run && l.order.World != nil && l.order.World.Generation > l.generation
}

// starting reports whether a start was asked for and neither its processes nor their failure have been heard of.
func (l *life) starting() bool { return l.procs == running && l.pids == nil }

// orderedStop is how processes are stopped for a next world: politely if the service planned it, which it
// says by asking for a checkpoint, and fast if the world broke.
func (l *life) orderedStop() stop {
	if l.order.Checkpoint {
		return stop{grace: l.stopGrace, checkpoint: true}
	}
	return stop{grace: min(l.stopGrace, brokenGrace)}
}

func (l *life) stop(s stop) []effect {
	l.procs, l.grace = stopping, s.grace
	return []effect{s}
}

// wait makes the member ready for the next world, which gets a port of its own.
func (l *life) wait() []effect {
	l.state = job.MemberWaiting
	return []effect{reserve{}, report{}}
}

func (l *life) failed(e failed) []effect {
	if l.procs != running {
		return nil // it was being stopped: how it ends says nothing
	}
	l.state, l.exit = job.MemberFailed, &e.exit
	l.procs, l.grace = stopping, min(l.stopGrace, brokenGrace)
	return []effect{report{}}
}

func (l *life) slain(e slain) []effect {
	if l.procs != stopping || l.ending != "" || l.state != job.MemberRunning {
		return nil
	}
	l.state, l.exit = job.MemberFailed, &e.exit
	return []effect{report{}}
}

func (l *life) stopped(e stopped) []effect {
	was := l.procs
	l.procs, l.pids = idle, nil
	switch {
	case was == running:
		l.state, l.exit = job.MemberSucceeded, &job.Exit{At: e.at} // a master that comes later learns when it was
		return []effect{report{}}
	case l.ending != "":
		return l.finish()
	case l.state == job.MemberRunning:
		return append(l.wait(), l.obey()...)
	}
	// Failed: the report without PIDs tells that nothing runs; a verdict that came meanwhile holds now.
	if next := l.obey(); next != nil {
		return next
	}
	return []effect{report{}}
}

func (l *life) signalled() []effect {
	if l.ending == job.EndLeft {
		return l.stopFaster(stop{})
	}
	if l.ending != "" {
		return nil
	}
	if l.state == job.MemberWaiting || l.state == job.MemberRunning {
		l.state = job.MemberLeaving
	}
	// The others continue at once if the service hears of it before the processes have ended.
	return append([]effect{report{}}, l.leave(job.EndLeft, stop{grace: l.stopGrace})...)
}

// leave begins the agent's end. A fence goes before any other reason to end.
func (l *life) leave(why job.EndReason, s stop) []effect {
	if l.ending != "" && why != job.EndFenced {
		return nil
	}
	l.ending = why
	switch l.procs {
	case idle:
		return l.finish()
	case stopping:
		return l.stopFaster(s)
	}
	return l.stop(s)
}

func (l *life) stopFaster(s stop) []effect {
	if l.procs != stopping || s.grace >= l.grace {
		return nil
	}
	return l.stop(s)
}

// finish ends the agent once no process runs. Who goes by its own or a signal's choice says a last word.
func (l *life) finish() []effect {
	switch l.ending {
	case job.EndFenced, job.EndOrdered:
		return []effect{end{l.reason()}}
	case job.EndLeft:
		l.farewell = true
		return []effect{report{}, lastWord{}}
	}
	return nil
}

// wantsAnswer reports whether what the agent says now is to be answered at once.
func (l *life) wantsAnswer() bool {
	ends := l.state == job.MemberSucceeded || l.ending == job.EndLeft
	return ends && l.heard != answered{l.state, len(l.pids)}
}

func (l *life) answered(e answered) []effect {
	l.heard = e
	known := l.procs == idle && e.state == l.state && e.pids == 0
	if known && (l.farewell || l.state == job.MemberSucceeded) {
		return []effect{end{l.reason()}}
	}
	return nil
}

// reason is why the agent ends: what its processes did by themselves before goes first, but for a fence.
func (l *life) reason() job.EndReason {
	switch {
	case l.ending == job.EndFenced:
		return job.EndFenced
	case l.state == job.MemberSucceeded:
		return job.EndFinished
	case l.state == job.MemberFailed:
		return job.EndFailed
	}
	return l.ending
}
