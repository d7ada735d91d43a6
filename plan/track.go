package plan

import (
	"cmp"
	"time"

	"github.com/eltrain/eltrain/job"
)

// track updates the slots' phases from what is observed. Problems become faults for heal.
func (p *pass) track(w *work) {
	nodes := p.nodesOf(w.spec.Provider)
	for _, s := range w.slots {
		if w.outside(s.Address) {
			w.lookOutside(s)
			if s.Phase == job.Succeeded {
				w.finished[s.Address.Role] = true
			}
			continue
		}
		p.catchUp(w, s)
		p.follow(w, s)
		if s.Phase == job.Succeeded {
			w.finished[s.Address.Role] = true
		}
		if m, in := w.member(s.Address); in && m.Rank != s.Rank {
			s.Rank = m.Rank
			p.out.Dirty = true
		}
		switch {
		case s.Phase == job.Canceling:
			p.trackStop(w, s)
		case s.Phase.Live():
			p.trackLife(w, s)
		}
		if nodes != nil && s.Node != "" && s.Phase.Live() && nodes[s.Node] == nil {
			p.loseNode(w, s)
		}
		if s.Phase == job.Succeeded {
			w.finished[s.Address.Role] = true
		}
	}
	p.suspect(w)
	p.reportIdle(w)
	p.reportChecks(w)
}

// nodesOf is the provider's nodes by name; nil if it is not known.
func (p *pass) nodesOf(provider string) map[string]*job.Node {
	if _, known := p.in.Capabilities[provider]; !known {
		return nil
	}
	return p.space(provider).listed
}

// loseNode takes a slot off a node that is no longer listed.
func (p *pass) loseNode(w *work, s *job.Slot) {
	switch {
	case s.Phase == job.Canceling && (p.schedules(w) || !s.Return):
		// It does not return, or a scheduler chooses its next place.
	case s.Phase == job.Canceling:
		s.Node, s.Cause, s.Exit = "", job.NodeGone, nil // the place that it was to return to
		p.out.Dirty = true
	case p.hinted(w, s):
		s.Node = "" // only a hint: nothing of it was there
		p.out.Dirty = true
	case !p.schedules(w):
		p.displace(w, s)
	case !p.nodesUnknown(w) && !inContact(w.current(s)):
		p.giveUpNode(w, s)
	}
}

// catchUp adopts what runs but is not recorded: the state is older than the infrastructure.
func (p *pass) catchUp(w *work, s *job.Slot) {
	seen := w.seen[s.Address]
	if len(seen) == 0 {
		return
	}
	newest := seen[len(seen)-1]
	if newest.Number <= s.Incarnation {
		return
	}
	s.Incarnation, s.InPlace = newest.Number, 0
	s.Node, s.Reserved, s.Fingerprint = p.shownNode(w, newest), newest.Reserved, newest.Fingerprint
	p.out.Dirty = true
	switch s.Phase {
	case job.Pending, job.Canceled:
		if newest.State == job.Gone {
			s.Node = "" // only its number is adopted
			return
		}
		p.step(s, job.Granted)
	case job.Registered, job.Running, job.Suspect:
		p.step(s, job.Replaced)
	}
}

// trackStop waits until nothing runs in a slot that is being stopped.
func (p *pass) trackStop(w *work, s *job.Slot) {
	if len(w.running(s)) > 0 {
		return
	}
	if !s.Return {
		if p.step(s, job.Stopped) {
			s.Node, s.Recover = "", false
		}
		return
	}
	if p.step(s, job.Replaced) {
		s.Return, s.Stopped = false, true
		s.Incarnation++
		s.InPlace = 0
		w.on(s).unlaunched = true
		if s.Node == "" { // it left its node: it is placed ahead of new work
			s.Recover = true
			p.step(s, job.Evicted)
		}
	}
}

// trackLife follows one live slot.
func (p *pass) trackLife(w *work, s *job.Slot) {
	inc := w.current(s)
	switch {
	case inc == nil:
		// Scheduling: still to be started. In a later phase its remains were removed.
		if s.Phase == job.Registered || s.Phase == job.Running || s.Phase == job.Suspect {
			p.fault(w, s, job.AgentGone, nil)
		}
	case inc.State == job.Gone:
		p.trackGone(w, s, inc)
	case inc.Member != nil:
		p.trackMember(w, s, inc)
	case s.Phase == job.Scheduling && s.InPlace == 0 && inc.State == job.Up:
		p.trackLate(w, s, inc)
	}
}

// reportIdle reports slots that ran when a master last observed them and whose processes have ended since. Their agents tell the
// next master how they ended.
func (p *pass) reportIdle(w *work) {
	if !w.active() {
		return
	}
	ended := map[string][]int{}
	for _, s := range w.slots {
		if inc := w.current(s); s.Phase == job.Running && inc != nil && inc.Idle && inc.Member == nil && !w.outside(s.Address) {
			ended[s.Address.Role] = append(ended[s.Address.Role], s.Address.Index)
		}
	}
	for i := range w.spec.Roles {
		if role := w.spec.Roles[i].Name; len(ended[role]) > 0 {
			p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Passing: true, Unheard: true, Reasons: []job.Reason{
				job.Because(EndedUnheard, "slots", job.Fold(role, ended[role]))}})
		}
	}
}

// trackLate gives up an agent that runs and has not registered within the rendezvous timeout: it cannot reach the service, or
// hangs. An agent that is queued, or cannot be started yet, is not late.
func (p *pass) trackLate(w *work, s *job.Slot, inc *job.Incarnation) {
	since := s.Since
	for _, later := range []time.Time{inc.Started, p.in.Since} {
		if later.After(since) {
			since = later
		}
	}
	timeout := w.spec.Rendezvous.Timeout.Std()
	if timeout == 0 || p.pending(since, timeout) || p.in.Now.Before(since) {
		return
	}
	p.fault(w, s, job.LaunchFailed, nil)
}

func (p *pass) trackGone(w *work, s *job.Slot, inc *job.Incarnation) {
	if s.Phase == job.Pending || s.Phase == job.Failing {
		return
	}
	switch {
	case inc.Cause != "": // an evicted process has an exit code too
		p.fault(w, s, inc.Cause, inc.Exit, reported(s.Address.Short(), inc.Evidence)...)
	case inc.Ended == job.EndFinished:
		p.succeed(s)
	default:
		p.fault(w, s, endedBy(inc), inc.Exit)
	}
}

func (p *pass) trackMember(w *work, s *job.Slot, inc *job.Incarnation) {
	m := inc.Member
	if s.Phase == job.Failing || s.Phase == job.Pending {
		return
	}
	if m.Expired {
		if s.Phase == job.Registered || s.Phase == job.Running {
			p.step(s, job.BeatsMissed)
		}
		if p.step(s, job.LeaseExpired) {
			p.fault(w, s, job.LeaseLost, nil, p.nodeTrouble(w, s)...)
		}
		return
	}
	switch {
	case m.Silent && (s.Phase == job.Registered || s.Phase == job.Running):
		p.step(s, job.BeatsMissed)
		return
	case m.Silent:
		return
	case s.Phase == job.Suspect:
		p.step(s, job.Heard)
	}
	switch m.State {
	case job.MemberWaiting:
		p.standBy(s)
		p.judgeNode(w, s, m.Check)
	case job.MemberRunning:
		if p.outlives(w, s, m) {
			p.fault(w, s, job.Hang, nil, job.Because(KillOutlived, "slot", s.Address.Short()))
			return
		}
		p.advance(s, job.Running)
		p.judgeNode(w, s, m.Check)
	case job.MemberSucceeded:
		p.succeed(s)
	case job.MemberLeaving:
		if p.unattributed(w, s, inc) {
			return
		}
		p.fault(w, s, cmp.Or(inc.Cause, job.AgentLeft), m.Exit, reported(s.Address.Short(), inc.Evidence)...)
	case job.MemberFailed:
		if m.InPlace < s.InPlace {
			return // the granted restart has not reached it yet
		}
		if p.collateral(w, s, m) {
			p.standBy(s)
			w.collateral = append(w.collateral, s)
			return
		}
		p.fault(w, s, m.Exit.Cause(), m.Exit)
	}
}

// unattributed reports whether the infrastructure has yet to say why it asked an agent to stop. A kubelet says so once the
// whole pod has ended, and the cause decides where the next start goes. Waiting costs nothing: the slot cannot start again
// before this exit in any case.
func (p *pass) unattributed(w *work, s *job.Slot, inc *job.Incarnation) bool {
	role := w.spec.Role(s.Address.Role)
	return inc.Cause == "" && role != nil && p.in.Capabilities[w.spec.Provider].Attributes &&
		p.pending(inc.Member.Left, role.StopGrace.Std()+attributionGrace)
}

// standBy takes a healthy slot out of its world, to wait for the next one.
func (p *pass) standBy(s *job.Slot) {
	p.advance(s, job.Registered)
	if s.Phase == job.Running {
		p.step(s, job.WorldBroke)
	}
}

// advance takes a slot through the phases before goal that were not observed.
func (p *pass) advance(s *job.Slot, goal job.Phase) {
	if s.Phase == job.Scheduling {
		s.CrashesSince, s.Stopped = time.Time{}, false
		p.step(s, job.Register)
	}
	if s.Phase == job.Registered && goal == job.Running {
		p.step(s, job.WorldFormed)
		s.Recover, s.Avoid = false, nil
	}
}

func (p *pass) succeed(s *job.Slot) {
	if s.Phase == job.Suspect {
		p.step(s, job.Heard)
	}
	p.advance(s, job.Running)
	p.step(s, job.ExitedZero)
}

// displace moves a slot whose node no longer exists. If its agent still runs it is stopped with a checkpoint; the slot is then
// placed ahead of new work.
//
// After a slot of a role has succeeded nothing starts in the role: what still runs there runs to its end.
func (p *pass) displace(w *work, s *job.Slot) {
	if w.finished[s.Address.Role] && len(w.running(s)) > 0 {
		return
	}
	node := s.Node
	p.noteFault(w, p.newFault(w, s, job.NodeGone, nil))
	s.Node, s.Recover = "", true
	p.out.Dirty = true
	w.because(s, p.why(NodeGone, "node", node))
	if s.Phase == job.Failing || s.Phase == job.Lost {
		return // heal places it elsewhere
	}
	s.Cause = job.NodeGone
	if len(w.running(s)) > 0 {
		s.Return = true
		p.step(s, job.Cancel)
		return
	}
	p.step(s, job.Evicted)
}
