package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// retryTime is how long an agent waits before it retries a master that does not answer.
const retryTime = 200 * time.Millisecond

// abilities are what simulated agents can do.
var abilities = append(slices.Clone(job.ActKinds), job.CanCheck)

// errReset is a broken or refused connection.
var errReset = errors.New("connection reset")

// Agent is one simulated agent with its processes.
type Agent struct {
	c        *Cluster
	launch   job.Launch
	node     string // "" until a scheduler has chosen it
	launched int    // its index in the order of launches
	waiting  string // the scheduler's reason why it has no node
	cause    job.Cause
	drift    []job.FieldChange
	deleted  bool // its stop was requested while its node was unreachable
	started  time.Time
	silent   bool // suspended: it does nothing, but its connection stays open
	hidden   bool // Observe does not show it
	missed   bool // it has been hidden, and not been found since
	gone     bool
	exit     *job.Exit
	reason   job.EndReason
	acts     int // the newest scheduled act; older ones do nothing

	master     string // address of the master it is connected to; "" while it looks for one
	session    int    // number of the connection; answers of older ones are ignored
	registered bool
	beat       time.Duration
	seq        uint64 // of its newest request
	open       int    // unanswered requests
	answers    int    // from masters

	state   job.MemberState
	order   elastic.Order
	seen    uint64        // the newest order's version
	place   elastic.Place // in the world that its processes run or last ran in
	inPlace int
	failure *job.Exit // not noticed yet while its state is running
	run     run
	hung    time.Time // since when its processes do nothing, not even about a signal that they could handle; zero if they train

	checking elastic.Checking

	did       []job.ActResult // of the order's acts; State is "" until it has ended
	newestAct string
}

// begin starts the agent on a node.
func (a *Agent) begin(node string) {
	a.node, a.waiting, a.started = node, "", a.c.Now()
	a.c.After(StartTime, a.register)
}

// Slot is the agent's slot.
func (a *Agent) Slot() job.Address { return a.launch.Slot }

// UID is the UID of the agent's job.
func (a *Agent) UID() string { return a.launch.UID }

// Started is when it was started on its node.
func (a *Agent) Started() time.Time { return a.started }

// Incarnation is the agent's number in its slot.
func (a *Agent) Incarnation() int { return a.launch.Incarnation }

// Running reports whether its processes run, and in which generation.
func (a *Agent) Running() (generation int, runs bool) {
	return a.place.Generation, a.state == job.MemberRunning && a.failure == nil && !a.gone
}

// Place is the agent's place in the world that its processes run or last ran in.
func (a *Agent) Place() elastic.Place { return a.place }

func (a *Agent) report() elastic.Report {
	r := elastic.Report{State: a.state, Generation: a.place.Generation, Rank: a.place.GroupRank, WorldSlots: a.place.GroupSize,
		InPlace: a.inPlace, Port: 29500 + a.launch.Slot.Index, Exit: a.failure, Acts: a.ended(), Check: a.checking.Done()}
	a.progress(&r)
	return r
}

// register registers the agent with the current master.
func (a *Agent) register() {
	if a.gone || a.silent {
		return
	}
	a.disconnect()
	a.master = a.c.address()
	a.seq++
	mine, request := a.session, elastic.RegisterRequest{UID: a.launch.UID, Slot: a.launch.Slot.Short(),
		Incarnation: a.launch.Incarnation, Seq: a.seq, Can: abilities, Host: a.node, Node: a.node, AgentPID: 1, Report: a.report()}
	Call(a.c.Net, partyOf(a.node), a.master, elastic.RegisterBound(a.beat), func(answer func(elastic.RegisterReply, error)) {
		if m := a.c.masters[a.master]; m != nil {
			m.Register(a.launch.Slot.Job, request, answer)
			return
		}
		answer(elastic.RegisterReply{}, errReset)
	}, func(reply elastic.RegisterReply, err error) {
		switch {
		case !a.hears(mine):
		case err != nil:
			a.refused(err)
		default:
			a.registered = true
			a.beat = time.Duration(reply.BeatSeconds * float64(time.Second))
			a.awaitAnswer()
			a.sync()
		}
	})
}

// sync syncs with the master: it sends a report, obeys the order in the answer, and syncs again.
func (a *Agent) sync() {
	a.seq++
	a.open++
	mine, request := a.session, elastic.SyncRequest{UID: a.launch.UID, Slot: a.launch.Slot.Short(), Incarnation: a.launch.Incarnation,
		Seen: a.seen, Seq: a.seq, Report: a.report()}
	Call(a.c.Net, partyOf(a.node), a.master, unbounded, func(answer func(elastic.SyncReply, error)) {
		if m := a.c.masters[a.master]; m != nil {
			m.Sync(a.launch.Slot.Job, request, answer)
			return
		}
		answer(elastic.SyncReply{}, errReset)
	}, func(reply elastic.SyncReply, err error) {
		if !a.hears(mine) {
			return
		}
		a.open--
		a.awaitAnswer()
		if err != nil {
			a.refused(err)
			return
		}
		if reply.Version > a.seen {
			a.seen = reply.Version
			a.obey(reply.Order)
			a.check()
			if a.hears(mine) {
				a.actOn(reply.Order)
			}
		}
		if a.open == 0 && a.hears(mine) {
			a.sync()
		}
	})
}

// awaitAnswer ends the session if nothing is answered in time from now on.
func (a *Agent) awaitAnswer() {
	a.answers++
	mine, answers := a.session, a.answers
	a.c.After(elastic.AnswerBound(a.beat), func() {
		if a.hears(mine) && a.answers == answers {
			a.refused(ErrNoAnswer)
		}
	})
}

// hears reports whether an answer in a session still reaches the agent.
func (a *Agent) hears(session int) bool { return !a.gone && !a.silent && a.session == session }

// disconnect ends the agent's session with its master.
func (a *Agent) disconnect() {
	a.session++
	a.registered, a.master, a.seen, a.open = false, "", 0, 0
}

func (a *Agent) refused(err error) {
	a.disconnect()
	switch {
	case errors.Is(err, elastic.ErrFenced):
		a.c.log("%s incarnation %d is fenced", a.launch.Slot.Short(), a.launch.Incarnation)
		a.c.end(a, nil, job.EndFenced)
	case errors.Is(err, elastic.ErrNoSuchSlot), errors.Is(err, elastic.ErrNoSuchJob):
		a.obey(elastic.Order{Do: elastic.Leave})
	case errors.Is(err, elastic.ErrRegisterFirst):
		a.again(ReplyTime)
	default:
		a.again(retryTime)
	}
}

// again registers the agent again after a while.
func (a *Agent) again(d time.Duration) {
	mine := a.session
	a.c.After(d, func() {
		if a.hears(mine) {
			a.register()
		}
	})
}

// obey carries out an order, as far as the agent does not follow it already.
func (a *Agent) obey(o elastic.Order) {
	a.order = o
	if a.state == job.MemberSucceeded {
		if o.Do == elastic.Leave {
			a.c.end(a, nil, job.EndFinished)
		}
		return
	}
	runs := a.state == job.MemberRunning
	switch o.Do {
	case elastic.Leave:
		a.act(a.stopTime(o), func() { a.c.end(a, nil, job.EndOrdered) })
	case elastic.Wait:
		if a.state == job.MemberFailed && o.InPlace > a.inPlace {
			a.inPlace, a.failure = o.InPlace, nil
			a.become(job.MemberWaiting)
		} else if runs {
			a.act(a.stopTime(o), func() { a.become(job.MemberWaiting) })
		} else {
			a.acts++ // cancels a scheduled start
		}
	case elastic.Run:
		if o.World == nil || o.World.Generation <= a.place.Generation || a.state == job.MemberFailed {
			return
		}
		place := *o.World
		a.act(a.stopTime(o)+SpawnTime, func() {
			a.place, a.hung = place, time.Time{}
			a.train()
			a.become(job.MemberRunning)
		})
	}
}

// stopTime is how long it takes from an order until no process runs. Processes that hang have to be killed, which is done at once if
// the order says so, and else after the grace that the others get.
func (a *Agent) stopTime(o elastic.Order) time.Duration {
	switch {
	case a.state != job.MemberRunning:
		return 0
	case a.hung.IsZero() || o.Force:
		return StopTime
	case o.Checkpoint:
		return a.launch.StopGrace.Std()
	}
	return HungStopTime
}

// act schedules f after d, unless another act or a failure comes first.
func (a *Agent) act(d time.Duration, f func()) {
	a.acts++
	mine := a.acts
	a.c.After(d, func() {
		if !a.gone && !a.silent && a.acts == mine {
			f()
		}
	})
}

func (a *Agent) become(s job.MemberState) {
	a.state = s
	a.acts++
	if s != job.MemberRunning {
		a.stop()
		a.hung = time.Time{}
		a.restarted()
	}
	a.check()
	if a.registered {
		a.sync()
	}
}

// Progress makes the agent report now, if its processes run, as the real one does about each step.
func (a *Agent) Progress() {
	if a.registered && a.state == job.MemberRunning && a.hears(a.session) {
		a.sync()
	}
}

// Fail makes a process of the slot fail, if one runs. A silenced agent notices when it is woken.
func (a *Agent) Fail(e job.Exit) {
	if _, runs := a.Running(); !runs {
		return
	}
	e.At = a.c.Now()
	a.failure = &e
	a.c.log("%s: a process ends: %s", a.launch.Slot.Short(), describe(e))
	if !a.silent {
		a.become(job.MemberFailed)
	}
}

// Hang makes the slot's processes stop, if they run in a world, as SIGSTOP of them would. Their agent goes on.
func (a *Agent) Hang() {
	if _, runs := a.Running(); runs && a.launch.Ranked && a.hung.IsZero() {
		a.hung = a.c.Now()
		a.c.log("%s: its processes hang", a.launch.Slot.Short())
	}
}

// Hung is since when its processes hang; zero if they do not.
func (a *Agent) Hung() time.Time { return a.hung }

func describe(e job.Exit) string {
	if e.Signal != "" {
		return "signal " + e.Signal
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Finish makes all processes of the slot exit with 0, if they run.
func (a *Agent) Finish() bool {
	if a.state != job.MemberRunning || a.gone || a.silent || !a.hung.IsZero() {
		return false
	}
	a.become(job.MemberSucceeded)
	if !a.gone && a.order.Do != elastic.Leave {
		a.act(ReplyTime, func() { a.c.end(a, nil, job.EndFinished) })
	}
	return true
}

// Kill ends the agent and its processes, as SIGKILL of both would.
func (a *Agent) Kill() {
	if !a.gone {
		a.c.end(a, &job.Exit{Code: 137, Signal: "killed", At: a.c.Now()}, "")
	}
}

// Silence suspends the agent without breaking its connection, as SIGSTOP would.
func (a *Agent) Silence() { a.silent = true }

// Wake resumes a silenced agent.
func (a *Agent) Wake() {
	switch {
	case a.gone || !a.silent:
	case a.deleted:
		a.c.end(a, nil, job.EndLeft)
	case a.node == "":
		a.silent = false
	default:
		a.silent = false
		if a.failure != nil {
			a.state = job.MemberFailed
		}
		a.register()
	}
}

// Node is the agent's node; "" while it waits for a scheduler.
func (a *Agent) Node() string { return a.node }

// GivenUp reports whether its stop was requested on an unreachable node, so that only its number fences it.
func (a *Agent) GivenUp() bool { return a.deleted && !a.gone }

// Edit simulates an outside edit of the object that it was launched from.
func (a *Agent) Edit(c job.FieldChange) {
	a.drift = append(a.drift, c)
	a.c.changed()
}

// Silent reports whether the agent is silenced.
func (a *Agent) Silent() bool { return a.silent }

// Hide hides the agent from Observe, like a pod whose labels were edited, or shows it again.
func (a *Agent) Hide(hidden bool) {
	a.hidden, a.missed = hidden, true
	a.c.changed()
}

// Missed reports whether the agent has been hidden and not found since, so that a replacement may have been launched.
func (a *Agent) Missed() bool { return a.missed }

// Found marks an agent that is shown again as known to whoever looks for it.
func (a *Agent) Found() { a.missed = a.hidden }
