package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// ErrLockLost ends a run that lost its lock: another holder took it, or it could not be renewed.
var ErrLockLost = errors.New("the state's lock was lost")

// errTakenOver is ErrLockLost for a lock that another process holds.
var errTakenOver = fmt.Errorf("%w to another process, which takes over; jobs keep running", ErrLockLost)

// lockLost wraps ErrLockLost with the reason.
func lockLost(l state.Lock) error {
	if why := l.Why(); why != nil && !takenOver(why) {
		return fmt.Errorf("%w; jobs keep running, and the next holder takes over: %w", ErrLockLost, why)
	}
	return errTakenOver
}

// takenOver reports whether an error means that another process holds the lock.
func takenOver(err error) bool {
	return errors.Is(err, state.ErrFenced) && !errors.As(err, new(*state.VanishedError))
}

// RefusedError ends a run whose first plan was not approved. Nothing was changed.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// ending is the end of a run.
type ending struct {
	stage endStage
	plan  plan.Plan // the newest at the end
	err   error
}

// endStage is the stage of a run's end.
type endStage int

const (
	running  endStage = iota
	stopping          // interrupted: the current turn is the last and starts nothing
	leaving           // waiting for slots that were asked to leave
	settling          // storing the result
	waiting           // waiting for what is in flight
	over
)

// stopped reports whether no more changes start, except stops of slots that were asked to leave.
func (e *ending) stopped() bool { return e.stage >= stopping }

// turns reports whether new turns start.
func (e *ending) turns() bool { return e.stage == running || e.stage == leaving }

// finish ends the run at once.
func (l *Loop) finish(p plan.Plan, err error) {
	l.book.chronicle(l)
	l.end.stage = over
	l.out.Over = &Over{p, err}
}

// interrupt ends the run as soon as what is in flight has ended. Queued work is not started.
func (e *ending) interrupt(l *Loop) {
	switch {
	case l.turn.phase == starting: // nothing has been done yet
		l.finish(plan.Plan{}, nil)
	case e.stage == running:
		e.stage = stopping
		e.drop(l)
	}
}

// drop drops queued effects and observations.
func (e *ending) drop(l *Loop) {
	for _, id := range slices.SortedFunc(maps.Keys(l.inFlight), compareIDs) {
		switch l.inFlight[id].(type) {
		case Observe, Prepare, Launch, Stop, Forget:
			l.do(Drop{id})
		}
	}
}

// endIfDone ends the run, between two turns, if it was interrupted or nothing is left to do.
func (e *ending) endIfDone(l *Loop) {
	t := &l.turn
	if e.stage == waiting {
		e.conclude(l)
		return
	}
	if e.stage == stopping {
		e.leave(l, t.newest, nil)
		return
	}
	if l.setup.Watch && !l.setup.UntilEnded || e.stage != running || !t.acted || t.dirty {
		return
	}
	t.acted = false
	if l.setup.Watch {
		if e.allEnded(l, &t.newest) {
			e.leave(l, t.newest, nil)
		}
		return
	}
	if !e.isSettled(l, &t.newest) {
		return
	}
	proven := latest(e.proven(l, &t.newest), e.reportsDue(l, &t.newest))
	if proven.IsZero() {
		e.leave(l, t.newest, e.undone(l, &t.newest))
		return
	}
	t.due = earliest(t.due, proven)
}

// leave ends the run once the slots that it asked to leave have left, and stops those that do not in time. Nothing else is
// started. The result is stored for the next plan and for status. A watching run leaves all of this to its successor.
func (e *ending) leave(l *Loop, p plan.Plan, err error) {
	if e.stage == running {
		e.drop(l)
	}
	p.Waits = l.waits(&p)
	*e = ending{stage: leaving, plan: p, err: err}
	if l.setup.Watch || !l.exec.stopping() {
		e.stage = waiting
		e.conclude(l)
		return
	}
	l.turn.dirty = true
	l.begin()
}

// conclude ends a run once nothing is in flight and all that happened is journaled.
func (e *ending) conclude(l *Loop) {
	if l.exec.busy() {
		return
	}
	if !l.book.append(l) {
		l.finish(e.plan, e.err)
	}
}

// finishStops continues, after an observation, with the slots that are leaving.
func (e *ending) finishStops(l *Loop) {
	in := l.input()
	l.sight.keep(in.Snapshot)
	due, left := l.exec.finishStops(l)
	if left {
		l.rests()
		l.turn.due = due
		return
	}
	l.exec.holdFailed(l)
	in.Refresh, in.Destroy = true, false
	l.turn.decided = Decision{in, plan.Make(in)}
	e.stage, l.turn.phase = settling, deciding
}

// settled ends a run whose result is stored.
func (e *ending) settled(l *Loop, p *plan.Plan) {
	l.tellNotices(l.turn.notices)
	l.rests()
	e.stage = waiting
	e.conclude(l)
}

// stopping reports whether any slot was asked to leave that the records do not show as gone yet.
func (e *executor) stopping() bool {
	for _, x := range e.asked {
		if isStop(&x.change) {
			return true
		}
	}
	return false
}

// finishStops continues with the slots that are leaving, and with nothing else: it stops those whose time is over. due is when the
// next one's time is over; left reports whether any remain. A failed stop is left to the next run.
func (e *executor) finishStops(l *Loop) (due time.Time, left bool) {
	for _, t := range e.targetsWhere(func(_ target, x *execution) bool { return isStop(&x.change) }) {
		x := e.asked[t]
		c := &x.change
		if x.done && x.seen >= l.turn.number {
			left = true // the observation may be older than the stop
		}
		if !x.busy() && (x.done || e.retries[t].failures > 0) {
			continue
		}
		if !x.busy() && l.sight.left(c) {
			e.finish(l, x, nil)
			continue
		}
		left = true
		switch until := x.since.Add(leaveTime(c)); {
		case x.busy():
		case l.now.Before(until) && (!l.sight.answered(c.Provider) || l.sight.leavesByItself(c)):
			due = earliest(due, until)
		default:
			x.last = true
			e.proceed(l, x)
		}
	}
	return due, left
}

// holdFailed raises a condition for slots that could not be stopped.
func (e *executor) holdFailed(l *Loop) {
	failed := e.targetsWhere(func(t target, x *execution) bool { return isStop(&x.change) && !x.done && e.retries[t].failures > 0 })
	if len(failed) > 0 {
		l.holds.Raise(l.now, failed[0].slot.String(), job.Because(NotStopped, "slot", failed[0].slot.String(), "count", strconv.Itoa(len(failed)), "message", e.retries[failed[0]].err.Error()))
	}
}

// isSettled reports whether a run that does not watch has nothing left to wait for: the plan is empty, nothing is in flight,
// and each job runs, has ended, or waits for something that no change of ours brings about.
func (e *ending) isSettled(l *Loop, p *plan.Plan) bool {
	waits := l.waits(p)
	todo := slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return !e.blocked(l, &c, p, waits) })
	if l.sight.incomplete() || l.exec.busy() || l.groups.open() || l.requests.busy(l) || l.alerts.busy(l) || todo && !l.exec.stuck(&l.groups) {
		return false
	}
	for _, j := range l.files.Jobs {
		rec := p.Records[j.Name]
		if rec == nil || !l.files.scope.Touches(j.Name) {
			continue
		}
		if rec.Phase.Ended() && !todo && l.sight.runs(rec) {
			return false // it exits by itself, or a later plan stops it
		}
		stalled := e.stalled(l, rec)
		if !rec.Phase.Ended() && !stalled && e.growing(l, rec) || reportsPending(rec) {
			return false
		}
		stuck := slices.ContainsFunc(waits, func(w plan.Wait) bool { return w.Job == j.Name && !w.Passing })
		if acting(rec) || !stuck && !stalled && reloading(l, rec) {
			return false
		}
		if !stuck && !stalled && !rec.Phase.Idle() && (!formed(rec) || joining(rec)) && !todo {
			return false
		}
	}
	return true
}

// allEnded reports whether all declared jobs have ended, and nothing is left to do about them.
func (e *ending) allEnded(l *Loop, p *plan.Plan) bool {
	if l.sight.incomplete() || l.exec.busy() || l.groups.open() || l.requests.busy(l) || l.alerts.busy(l) || len(p.Changes) > 0 || !l.files.stale.IsZero() {
		return false
	}
	for _, j := range l.files.Jobs {
		rec := p.Records[j.Name]
		if _, destroyed := p.Destroyed[j.Name]; rec == nil && destroyed {
			continue
		}
		if rec == nil || !rec.Phase.Ended() || l.sight.runs(rec) || reportsPending(rec) {
			return false
		}
	}
	return true
}

// acting reports whether agents have yet to report the outcome of an act. They do in time, or are lost when their lease expires.
func acting(rec *job.Record) bool {
	return slices.ContainsFunc(rec.Handled, func(h job.Handled) bool { return !h.State.Final() && h.Act.Kind != "" && len(h.Slots) > 0 })
}

// reloading reports whether the job's next world is to form because of a reload. A request that cannot be read gets no reply.
func reloading(l *Loop, rec *job.Record) bool {
	return !rec.Phase.Ended() && slices.ContainsFunc(rec.Handled, func(h job.Handled) bool {
		return !h.State.Final() && h.ID == rec.Reload.Request && l.requests.open[h.ID] != nil
	})
}

// blocked reports whether a change of a later wave will not start in this run: its job did not come up, or a role that it
// depends on waits for something that no change of ours brings about.
func (e *ending) blocked(l *Loop, c *plan.Change, p *plan.Plan, waits []plan.Wait) bool {
	rec := p.Records[c.Job]
	if c.Wave == 0 || rec == nil {
		return false
	}
	return e.stalled(l, rec) || slices.ContainsFunc(waits, func(w plan.Wait) bool {
		return w.Job == c.Job && !w.Passing && startsAfter(&rec.Spec, c.Slot.Role, w.Role)
	})
}

// startsAfter reports whether a role of a job depends on another one, directly or transitively.
func startsAfter(spec *job.Job, role, on string) bool {
	r := spec.Role(role)
	return r != nil && slices.ContainsFunc(r.DependsOn, func(dep string) bool { return dep == on || startsAfter(spec, dep, on) })
}

// reportsPending reports whether the job's newest incident has culprits that are still to be reported.
func reportsPending(rec *job.Record) bool {
	n := len(rec.Incidents)
	return n > 0 && !rec.Incidents[n-1].Added.IsZero()
}

// joining reports whether a slot of a role with a fixed size is about to join the world. Slots of elastic roles are growing's:
// the job runs without them, and the cluster may never provide them.
func joining(rec *job.Record) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		role := rec.Spec.Role(s.Address.Role)
		return (s.Phase == job.Scheduling || s.Phase == job.Registered) && role != nil && role.Scaling == nil
	})
}

// growing reports whether a slot of an elastic role is about to join the world: it has its place, and its agent runs or
// is being started. A slot that the infrastructure keeps waiting may never come, and does not count. An agent that runs but
// does not join counts for as long as a world may need to admit it: the settle time, the time in which the other members may
// write their checkpoint, and the proof.
func (e *ending) growing(l *Loop, rec *job.Record) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		role := rec.Spec.Role(s.Address.Role)
		if s.Phase != job.Scheduling && s.Phase != job.Registered || role == nil || role.Scaling == nil {
			return false
		}
		inc := l.sight.find(rec.UID, s.Address, s.Incarnation)
		if inc == nil || inc.Node == "" || inc.State != job.Up && inc.Waiting != "" {
			return false
		}
		until := latest(l.since, s.Since, inc.Started).Add(rec.Spec.Rendezvous.Settle.Std() + plan.Proof)
		if rec.World.Broken && !rec.World.Ordered.IsZero() {
			until = latest(until, rec.World.Ordered.Add(longestGrace(&rec.Spec)+plan.Proof))
		}
		return l.now.Before(until)
	})
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// longestGrace is the longest stop grace of the job's roles.
func longestGrace(spec *job.Job) (most time.Duration) {
	for i := range spec.Roles {
		most = max(most, spec.Roles[i].StopGrace.Std())
	}
	return most
}

// undone returns an error for the jobs that were to be destroyed and cannot be.
func (e *ending) undone(l *Loop, p *plan.Plan) error {
	if !l.setup.Destroy {
		return nil
	}
	var left []error
	for _, w := range p.Waits {
		if w.Never {
			var why []string
			for _, reason := range w.Reasons {
				why = append(why, l.setup.Words.Sentence(reason))
			}
			left = append(left, fmt.Errorf("job.%s is not destroyed: %s", w.Job, strings.Join(why, " ")))
		}
	}
	return errors.Join(left...)
}

// stalled reports whether the job did not come up within its rendezvous timeout in this run. For a slot that its node could
// not start, the timeout begins with the first failure: the slot is retried, and another node may become free.
func (e *ending) stalled(l *Loop, rec *job.Record) bool {
	timeout := rec.Spec.Rendezvous.Timeout.Std()
	if timeout > 0 && slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		return s.Cause == job.NodeFailed && !s.CrashesSince.IsZero() && s.Phase.Live() && l.now.Sub(latest(l.since, s.CrashesSince)) >= timeout
	}) {
		return true
	}
	n := len(rec.Incidents)
	if n == 0 || rec.Incidents[n-1].Time.Before(l.since) {
		return false
	}
	last := rec.Incidents[n-1].Cause
	return last == job.LaunchFailed || last == job.RendezvousTimeout
}

// proven is when every running job will be considered healthy; zero if all are.
func (e *ending) proven(l *Loop, p *plan.Plan) (at time.Time) {
	facts := l.book.names.fromService(l.sight.facts)
	for _, j := range l.files.Jobs {
		rec := p.Records[j.Name]
		if rec == nil || !l.files.scope.Touches(j.Name) || !formed(rec) || steps(facts[j.Name]) > 0 {
			continue
		}
		since := rec.World.Formed
		for i := range rec.Slots {
			if s := &rec.Slots[i]; s.Phase == job.Running && s.Since.After(since) {
				since = s.Since
			}
		}
		if until := since.Add(plan.Proof); l.now.Before(until) && until.After(at) {
			at = until
		}
	}
	return at
}

// formed reports whether a job's worlds have formed: it is Running, or waits for a first step alone.
func formed(rec *job.Record) bool { return rec.Phase == job.JobRunning || !rec.Awaits.IsZero() }

// steps is the highest step that a member of the job's world has reported.
func steps(f elastic.Facts) int64 {
	var most int64
	for i := range f.Members {
		if m := &f.Members[i].Member; m.State == job.MemberRunning && m.Generation == f.World.Generation {
			most = max(most, m.Step)
		}
	}
	return most
}

// reportsDue is until when a run that does not watch waits for reports of agents that it found running: only they know of
// processes that ended while there was no master. Zero if all have reported, or their time is over.
func (e *ending) reportsDue(l *Loop, p *plan.Plan) (until time.Time) {
	for _, j := range l.files.Jobs {
		rec := p.Records[j.Name]
		if rec == nil || !l.files.scope.Touches(j.Name) || rec.Phase.Idle() || l.service.jobs[rec.LaunchedAs(j.Name)].uid != rec.UID {
			continue
		}
		until = latest(until, l.service.unheard(l, j.Name, rec))
	}
	return until
}

// runs reports whether anything of the job runs.
func (s *sight) runs(rec *job.Record) bool {
	return slices.ContainsFunc(rec.Slots, func(slot job.Slot) bool {
		return s.find(rec.UID, slot.Address, slot.Incarnation) != nil
	})
}

// silent reports whether, according to its provider, an agent of the job is running that had registered but has not reported
// to this service.
func (s *sight) silent(rec *job.Record) bool {
	for i := range rec.Slots {
		slot := &rec.Slots[i]
		switch slot.Phase {
		case job.Registered, job.Running, job.Suspect:
		default:
			continue
		}
		inc := s.find(rec.UID, slot.Address, slot.Incarnation)
		if inc != nil && inc.State == job.Up && inc.Member == nil {
			return true
		}
	}
	return false
}
