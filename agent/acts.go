package agent

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// maxActPath bounds the path of a checkpoint in a report, which the service limits.
const maxActPath = 1 << 10

// begunAct is an act that was begun, with its outcome; State is "" until it has ended.
type begunAct struct {
	job.Act
	result job.ActResult
}

// beginActs begins the acts in the order that were not begun before. Acts that are no longer in it are forgotten: whoever leads has their
// outcome. Their IDs only grow, so that one number shows that an act was begun.
func (l *life) beginActs() (effects []effect) {
	l.acts = slices.DeleteFunc(slices.Clone(l.acts), func(b begunAct) bool {
		return !slices.ContainsFunc(l.order.Acts, func(a job.Act) bool { return a.ID == b.ID })
	})
	for _, a := range l.order.Acts {
		if slices.ContainsFunc(l.acts, func(b begunAct) bool { return b.ID == a.ID }) {
			continue
		}
		b := begunAct{Act: a, result: job.ActResult{ID: a.ID}}
		runs := l.procs == running && !l.starting()
		switch {
		case a.ID <= l.newestAct:
			b.result.State = job.ActUnknown
		case !slices.Contains(job.ActKinds, a.Kind) || a.Kind == job.ActSignal && unix.SignalNum(a.Value) == 0:
			b.result.State = job.ActUnsupported
		case a.Kind != job.ActFind && !runs:
			b.result.State = job.ActNoProcess
		case a.Kind == job.ActRestart:
			effects = append(effects, l.stop(stop{grace: l.stopGrace, checkpoint: true})...)
		default:
			effects = append(effects, perform{a})
		}
		l.newestAct = max(l.newestAct, a.ID)
		l.acts = append(l.acts, b)
		if b.result.State != "" {
			effects = append(effects, report{})
		}
	}
	return effects
}

// endAct notes the outcome of an act.
func (l *life) endAct(r job.ActResult) []effect {
	i := slices.IndexFunc(l.acts, func(b begunAct) bool { return b.ID == r.ID && b.result.State == "" })
	if i < 0 {
		return nil
	}
	if len(r.Path) > maxActPath {
		r.Path = "" // its step says enough
	}
	l.acts[i].result = r
	return []effect{report{}}
}

// finishActs ends the acts that concern processes, of which none runs any more.
func (l *life) finishActs() {
	for i := range l.acts {
		b := &l.acts[i]
		switch {
		case b.Kind == job.ActFind || b.result.State != "":
		case b.Kind == job.ActRestart:
			b.result.State = job.ActDone
		default:
			b.result.State = job.ActNoProcess
		}
	}
}

// results are the outcomes to report.
func (l *life) results() (ended []job.ActResult) {
	for _, b := range l.acts {
		if b.result.State != "" {
			ended = append(ended, b.result)
		}
	}
	return ended
}

// perform carries out an act.
func (a *agent) perform(act job.Act) {
	result := job.ActResult{ID: act.ID, State: job.ActNoProcess}
	switch act.Kind {
	case job.ActSignal:
		if a.generation != nil && a.generation.notify(unix.SignalNum(act.Value)) {
			result.State = job.ActDone
		}
	case job.ActCheckpoint:
		if a.launcher.signal == 0 {
			result.State = job.ActUnsupported
		} else if a.generation != nil {
			a.generation.requestCheckpoint(checkpointAsk{act.ID, a.config.StopGrace.Std()})
			return
		}
	case job.ActFind:
		go a.find(act)
		return
	}
	a.step(acted{result})
}

// find looks for a checkpoint. A dead file server may never answer.
func (a *agent) find(act job.Act) {
	found := make(chan job.ActResult, 1)
	go func() { found <- a.checkpoints.find(act) }()
	late := time.NewTimer(a.config.StopGrace.Std())
	defer late.Stop()
	result := job.ActResult{ID: act.ID, State: job.ActAbsent}
	select {
	case result = <-found:
	case <-late.C:
	case <-a.done:
		return
	}
	select {
	case a.events <- acted{result}:
	case <-a.done:
	}
}

// checkpointAsk is an operator's request for a checkpoint, which training continues after.
type checkpointAsk struct {
	id      string
	timeout time.Duration
}

// lineWait is how long a finished file waits for the line in the output that says its step: scripts print it after they have written
// the file, and only some ranks print it.
const lineWait = time.Second

// requested waits for a checkpoint that an operator asked for.
type requested struct {
	id       string
	unasked  []*process // those that had no handler for the signal yet: it would end them
	deadline time.Time
	file     arrival
	line     job.Saved // the newest in the output when it was asked for
	path     string    // of the finished checkpoint; "" until there is one
	step     int64     // its step; 0 if that is unknown
	since    time.Time // when it was seen
}

// requestCheckpoint asks the processes for a checkpoint.
func (s *supervisor) requestCheckpoint(a checkpointAsk) {
	if s.stopping || s.failureReported {
		return // stopped says that no process runs
	}
	now := time.Now()
	s.requests = append(s.requests, &requested{
		id: a.id, unasked: slices.Clone(s.processes), deadline: now.Add(a.timeout), line: s.meter.newestSaved(),
		file: arrival{before: newest(s.checkpoints.look())},
	})
	s.lookForAsked()
	s.look.Reset(checkpointPoll)
}

// lookForAsked ends the requests whose checkpoint is there, or is late.
func (s *supervisor) lookForAsked() {
	now := time.Now()
	s.requests = slices.DeleteFunc(s.requests, func(r *requested) bool {
		r.unasked = slices.DeleteFunc(r.unasked, func(p *process) bool {
			return handles(p.id.PID, s.checkpointSignal) && p.notify(s.checkpointSignal)
		})
		result, over := s.arrived(r, now)
		if over {
			s.outcomes = append(s.outcomes, result)
		}
		return over
	})
	if len(s.requests) == 0 {
		s.look.Stop()
	}
}

// arrived reports whether a checkpoint is there, or is late. In a directory it is a file; without one it is a line of the output.
func (s *supervisor) arrived(r *requested, now time.Time) (result job.ActResult, over bool) {
	result = job.ActResult{ID: r.id, State: job.ActDone}
	said := s.meter.newestSaved()
	if said != r.line {
		result.Step = said.Step
	}
	if s.checkpoints != nil && r.path == "" {
		if seen := newest(s.checkpoints.look()); r.file.finished(seen, now) {
			r.path, r.step, r.since = s.checkpoints.whole(seen.Path), seen.Step, now
		}
	}
	result.Path = r.path
	if result.Step == 0 {
		result.Step = r.step
	}
	switch {
	case r.path != "":
		over = result.Step > 0 || !s.meter.readsCheckpoints() || now.Sub(r.since) >= lineWait
	case s.checkpoints == nil:
		over = said != r.line
	}
	if !over && !now.Before(r.deadline) {
		if r.path == "" {
			result.State = job.ActAbsent
		}
		over = true
	}
	return result, over
}
