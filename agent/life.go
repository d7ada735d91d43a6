package agent

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

const (
	// brokenGrace is the most that processes of a broken world get between SIGTERM and SIGKILL. Their collectives can never
	// finish, so a longer grace could save nothing, and the whole job stands still meanwhile.
	brokenGrace = 2 * time.Second
	// fencedGrace is what processes of a fenced incarnation get. Its successor may already run.
	fencedGrace = time.Second
)

// life is the agent's state machine as a value: what it reports and what it does next. Only Step changes it. It has no process,
// clock or socket; those are at the edges (see agent).
type life struct {
	stopGrace time.Duration

	state      job.MemberState
	generation int // of the processes that run or last ran; 0 before the first
	rank       int
	slots      int
	port       int // of that world, if this is its rank 0; else 0
	inPlace    int
	pids       []int
	exit       *job.Exit

	procs          procs
	grace          time.Duration // of the current stop
	order          elastic.Order // the newest
	ending         job.EndReason // why the agent is about to exit; "" if it is not
	awaitingAnswer bool          // only the answer to the last report is missing
	alone          bool          // the service has not answered for a lease
	lastAnswer     answered      // the newest answer
	acts           []begunAct    // of those in the order, what was begun
	newestAct      string        // the greatest ID of an act that was begun
	check          elastic.Checking
}

// procs is the state of the processes.
type procs string

const (
	idle     procs = "idle"
	running  procs = "running"
	stopping procs = "stopping" // SIGTERM was or is about to be sent; some still run
)

// event is an input of life.
type event interface{ isEvent() }

type (
	// ordered: the service's newest order.
	ordered struct {
		elastic.Order
		members *elastic.Peers // as of now; nil if not told
	}
	// answered: the service has answered a report with this state and number of processes.
	answered struct {
		state job.MemberState
		pids  int
	}
	// fenced: the service knows a newer incarnation of the slot.
	fenced struct{}
	// signalled: SIGTERM or SIGINT.
	signalled struct{}
	// started: the processes of the last start run.
	started struct{ pids []int }
	// failed: a process failed by itself, the first to do so, and not because it was asked to stop. The others, if any, are being
	// stopped. It may be noticed during a stop: this broke the world, or could as well have, but the reports of its peers' broken
	// connections came first.
	failed struct{ exit job.Exit }
	// stopped: nothing of the generation runs, since at. Without a failed or a stop before, all processes exited with 0.
	stopped struct{ at time.Time }
	// overdue: the last report was not answered in time.
	overdue struct{}
	// acted: an act has ended.
	acted struct{ job.ActResult }
	// checked: a check of the node has ended. NotStarted is the system's error if its program could not be started.
	checked struct {
		job.Checked
		notStarted *job.Exit
	}
	// exchanged: an exchange of a check has ended.
	exchanged struct {
		number int // of the check
		job.Exchanged
	}
	// evidence: what was asked for has been found.
	evidence struct {
		request int
		ranks   []job.RankEvidence
	}
	// unanswered: the service has not answered for a lease, and considers this member lost if it runs.
	unanswered struct{}
)

func (ordered) isEvent()    {}
func (answered) isEvent()   {}
func (fenced) isEvent()     {}
func (signalled) isEvent()  {}
func (started) isEvent()    {}
func (failed) isEvent()     {}
func (stopped) isEvent()    {}
func (overdue) isEvent()    {}
func (acted) isEvent()      {}
func (checked) isEvent()    {}
func (exchanged) isEvent()  {}
func (evidence) isEvent()   {}
func (unanswered) isEvent() {}

// effect is what to do about an event. Effects are carried out in order.
type effect interface{ isEffect() }

type (
	// start the processes of a world.
	start struct{ place elastic.Place }
	// stop the processes: SIGTERM, then SIGKILL after grace; with checkpoint, ask for one first. A stop during another can only
	// make it shorter.
	stop struct {
		grace      time.Duration // from SIGTERM to SIGKILL; 0 is SIGKILL alone
		checkpoint bool
	}
	// perform an act; its outcome follows as acted.
	perform struct{ job.Act }
	// read the progress of the processes in this way; nil for what is known of frameworks.
	read struct{ by *elastic.Progress }
	// examine the processes, for a request of the service's; 0 ends that.
	examine struct{ request int }
	// inspect the node; the outcome follows as checked.
	inspect struct{ check elastic.Check }
	// meet a partner for an exchange; the outcome follows as exchanged.
	meet struct{ check elastic.Check }
	// disregard ends a check, without an outcome if there is none yet.
	disregard struct{}
	// reserve another port for MASTER_PORT.
	reserve struct{}
	// report to the service now.
	report struct{}
	// lastWord requests an overdue event if no answer comes soon.
	lastWord struct{}
	// end exits the agent.
	end struct{ reason job.EndReason }
)

func (start) isEffect()     {}
func (stop) isEffect()      {}
func (perform) isEffect()   {}
func (read) isEffect()      {}
func (examine) isEffect()   {}
func (inspect) isEffect()   {}
func (meet) isEffect()      {}
func (disregard) isEffect() {}
func (reserve) isEffect()   {}
func (report) isEffect()    {}
func (lastWord) isEffect()  {}
func (end) isEffect()       {}

// newLife is an agent that has just started.
func newLife(stopGrace time.Duration) *life {
	return &life{stopGrace: stopGrace, state: job.MemberWaiting, procs: idle}
}

// Step applies one event and returns what to do about it.
func (l *life) Step(e event) []effect {
	switch e := e.(type) {
	case ordered:
		asked, by := l.order.Evidence, l.order.Progress
		l.order = e.Order
		var effects []effect
		if !l.order.Progress.Equal(by) && l.order.Do != elastic.Leave {
			effects = append(effects, read{l.order.Progress}) // also for processes that are about to start
		}
		effects = slices.Concat(effects, l.endCheck(), l.followOrder(), l.beginCheck(), l.beginActs()) // the order first: what it stops gets no signal
		if l.order.Evidence != asked {
			effects = append(effects, examine{l.order.Evidence})
		}
		return effects
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
	case checked:
		return l.checked(e)
	case exchanged:
		return l.exchanged(e)
	case acted:
		return l.endAct(e.ActResult)
	case stopped:
		l.finishActs()
		return l.stopped(e)
	case overdue:
		if l.awaitingAnswer {
			return []effect{end{l.reason()}}
		}
	case unanswered:
		l.alone = true
		return l.giveUp()
	}
	return nil
}

// followOrder compares the newest order with the state of the processes. It is level-triggered: it may be called at any time, and does
// nothing if there is nothing to do.
func (l *life) followOrder() []effect {
	switch {
	case l.order.Do == elastic.Leave && l.order.Force:
		if l.ending != "" {
			return l.stopFaster(stop{})
		}
		return l.leave(job.EndOrdered, stop{})
	case l.ending != "":
		return nil
	case l.order.Do == elastic.Leave:
		return l.leave(job.EndOrdered, stop{grace: l.stopGrace, checkpoint: l.order.Checkpoint})
	}
	switch l.procs {
	case idle:
		return l.followOrderIdle()
	case running:
		if l.toStop() {
			return l.stop(l.orderedStop())
		}
	case stopping:
		if l.toStop() {
			return l.stopFaster(l.orderedStop())
		}
	}
	return nil
}

// toStop reports whether the order is to end the processes.
func (l *life) toStop() bool { return l.order.Do == elastic.Wait || l.newWorld() }

func (l *life) followOrderIdle() []effect {
	switch {
	case l.state == job.MemberFailed && l.order.InPlace > l.inPlace:
		l.inPlace = l.order.InPlace
		l.exit = nil
		return l.wait()
	case l.state == job.MemberWaiting && l.newWorld():
		place := *l.order.World
		l.state, l.procs = job.MemberRunning, running
		l.generation, l.rank, l.slots, l.port = place.Generation, place.GroupRank, place.GroupSize, place.MasterPort
		return []effect{start{place}}
	}
	return nil
}

// newWorld reports whether the order is to run a world later than this agent's last. A world that has run here never runs here
// again: its peers have moved on.
func (l *life) newWorld() bool {
	return l.order.Do == elastic.Run && l.order.World != nil && l.order.World.Generation > l.generation
}

// starting reports whether a start was requested whose result is not known yet.
func (l *life) starting() bool { return l.procs == running && l.pids == nil }

// orderedStop is how to stop processes for a next world: at once if they hang; with the full grace if the service planned the stop, which it
// indicates by asking for a checkpoint; fast if the world broke.
func (l *life) orderedStop() stop {
	if l.order.Force {
		return stop{}
	}
	if l.order.Checkpoint {
		return stop{grace: l.stopGrace, checkpoint: true}
	}
	return stop{grace: min(l.stopGrace, brokenGrace)}
}

func (l *life) stop(s stop) []effect {
	l.procs, l.grace = stopping, s.grace
	return []effect{s}
}

// wait makes the member ready for the next world, with another port.
func (l *life) wait() []effect {
	l.state = job.MemberWaiting
	return []effect{reserve{}, report{}}
}

func (l *life) failed(e failed) []effect {
	if l.procs == idle || l.ending != "" || l.state != job.MemberRunning {
		return nil
	}
	l.state, l.exit = job.MemberFailed, &e.exit
	if l.procs == running {
		l.procs, l.grace = stopping, min(l.stopGrace, brokenGrace)
	}
	return []effect{report{}}
}

func (l *life) stopped(e stopped) []effect {
	was := l.procs
	l.procs, l.pids = idle, nil
	switch {
	case was == running:
		l.state, l.exit = job.MemberSucceeded, &job.Exit{At: e.at} // tells a later master when it was
		return l.sayLast()
	case l.ending != "":
		return l.finish()
	case l.state == job.MemberRunning:
		return slices.Concat(l.wait(), l.followOrder(), l.beginCheck())
	}
	// Failed: the report without PIDs says that nothing runs; a verdict that came meanwhile applies now.
	if next := l.followOrder(); next != nil {
		return next
	}
	return append([]effect{report{}}, l.giveUp()...)
}

// giveUp exits if the processes have failed and nobody decides what follows: the exit says how they ended, and the next master
// starts another incarnation.
func (l *life) giveUp() []effect {
	if l.alone && l.procs == idle && l.state == job.MemberFailed {
		return []effect{end{l.reason()}}
	}
	return nil
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
	// If the service learns of this before the processes have exited, the others can continue at once.
	return append([]effect{report{}}, l.leave(job.EndLeft, stop{grace: l.stopGrace})...)
}

// leave begins the agent's exit. A fence takes precedence over any other reason.
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

// sayLast exits once the service has answered the last report, or has not in time. What it missed is in the record of the exit.
func (l *life) sayLast() []effect {
	l.awaitingAnswer = true
	return []effect{report{}, lastWord{}}
}

// finish exits once no process runs. An agent that leaves on a signal sends a last report first.
func (l *life) finish() []effect {
	switch l.ending {
	case job.EndFenced, job.EndOrdered:
		return []effect{end{l.reason()}}
	case job.EndLeft:
		return l.sayLast()
	}
	return nil
}

// wantsAnswer reports whether the current report requires an immediate answer.
func (l *life) wantsAnswer() bool {
	ends := l.state == job.MemberSucceeded || l.ending == job.EndLeft
	return ends && l.lastAnswer != answered{l.state, len(l.pids)}
}

func (l *life) answered(e answered) []effect {
	l.lastAnswer, l.alone = e, false
	if l.awaitingAnswer && l.procs == idle && e.state == l.state && e.pids == 0 {
		return []effect{end{l.reason()}}
	}
	return nil
}

// reason is why the agent exits: what its processes did by themselves takes precedence, except over a fence.
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
