package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// verdictGrace is how long a job that is about to be failed is held back from it: its last fault may prove
// to be the echo of a lost agent, whose news arrives a moment later than those of its peers' broken connections.
const verdictGrace = time.Second

// attributionGrace is how much longer than its processes may take to stop an agent that was told to stop is waited for,
// where its infrastructure says why with its end: for its last word, and for the second or two after which a kubelet tells.
const attributionGrace = 5 * time.Second

// crashBackoff spaces starts of an agent that keeps ending before it registers: doubling up to the most.
const (
	crashBackoffFirst = 500 * time.Millisecond
	crashBackoffMost  = 30 * time.Second
)

// tailShown is how many of the last lines of output an incident quotes.
const tailShown = 5

// fault is something wrong with one slot, found by track.
type fault struct {
	slot       *job.Slot
	cause      job.Cause
	exit       *job.Exit
	generation int // of the world that it broke; 0 if it was in none
	evidence   []job.Reason
	early      bool // before its agent had registered
}

// fault enters that something is wrong with a slot. more is what else is known of it.
func (p *pass) fault(w *work, s *job.Slot, cause job.Cause, exit *job.Exit, more ...job.Reason) {
	f := fault{slot: s, cause: cause, exit: exit, generation: p.generationOf(w, s)}
	f.evidence = append(evidence(s.Address.Short(), s.Node, cause, exit), more...)
	f.early = s.Phase == job.Scheduling
	if f.generation == 0 {
		f.generation = w.brokenBefore(s, cause, exit)
	}
	if !p.step(s, job.Fault) {
		return
	}
	s.Exit, s.Cause, s.Stopped = exit, cause, false
	if f.early && (exit != nil && s.InPlace == 0 || endsEarly(cause)) {
		if s.Crashes++; s.Crashes == 1 {
			s.CrashesSince = p.in.Now
		}
	}
	w.faults = append(w.faults, f)
}

// brokenBefore is the generation of a world that has a successor by now, if the end of a member of it may be the echo of what
// broke it: on a busy host that is heard when the others have formed the next one without it. 0 if it may not.
func (w *work) brokenBefore(s *job.Slot, cause job.Cause, exit *job.Exit) int {
	inc, n := w.current(s), len(w.rec.Incidents)
	if inc == nil || inc.Member == nil || inc.Member.State != job.MemberFailed || n == 0 || weight(cause, exit) > mostEcho {
		return 0
	}
	if g := inc.Member.Generation; g == w.rec.Incidents[n-1].Generation {
		return g
	}
	return 0
}

// endsEarly reports whether what ends before it has registered by this cause, without a word of how, may continue to end so: its
// starts are spaced.
func endsEarly(c job.Cause) bool {
	switch c {
	case job.AgentGone, job.Preemption, job.Eviction, job.Deletion:
		return true
	}
	return false
}

// generationOf is the generation of the world that the slot's incarnation is or was in; 0 if none.
func (p *pass) generationOf(w *work, s *job.Slot) int {
	if m, in := w.member(s.Address); in && m.Incarnation == s.Incarnation {
		return w.world.Generation
	}
	return 0
}

// member is the slot's place in the newest world.
func (w *work) member(a job.Address) (job.WorldMember, bool) {
	if w.placeOf == nil {
		w.placeOf = make(map[job.Address]job.WorldMember, len(w.world.Members))
		for _, m := range w.world.Members {
			w.placeOf[m.Slot] = m
		}
	}
	m, in := w.placeOf[a]
	return m, in
}

// evidence is what is known of how a slot was lost, which was on node. slot is "" where that is clear.
func evidence(slot, node string, cause job.Cause, e *job.Exit) []job.Reason {
	fact := func(code job.Code, args ...string) job.Reason {
		return job.Because(code, append(args, "slot", slot)...)
	}
	switch cause {
	case job.AgentGone:
		if e != nil {
			return []job.Reason{fact(AgentGone, "signal", e.Signal)}
		}
		return []job.Reason{fact(AgentGone)}
	case job.LaunchFailed:
		return []job.Reason{fact(NotRegistered)}
	case job.LeaseLost:
		return []job.Reason{fact(SilentForLease)}
	case job.NodeGone:
		if node != "" {
			return []job.Reason{fact(NodeRemoved, "node", node)}
		}
		return []job.Reason{fact(NodeGone)}
	case job.AgentLeft, job.Preemption, job.Eviction, job.Deletion:
		return []job.Reason{fact(job.Code(cause))}
	}
	if e == nil {
		return nil
	}
	var facts []job.Reason
	switch {
	case cause == job.NodeFailed && node != "":
		facts = append(facts, fact(NodeCannotStart, "node", node, "message", e.NotStarted))
	case e.NotStarted != "":
		facts = append(facts, fact(CannotStart, "message", e.NotStarted))
	case e.OOM:
		facts = append(facts, fact(KilledForMemory))
	case e.Signal != "":
		facts = append(facts, fact(ExitSignal, "signal", e.Signal))
	default:
		facts = append(facts, fact(ExitCode, "code", strconv.Itoa(e.Code)))
	}
	if e.Message != "" {
		facts = append(facts, fact(ErrorFile, "message", e.Message))
	}
	for _, line := range e.Tail[max(0, len(e.Tail)-tailShown):] {
		facts = append(facts, fact(Output, "message", line))
	}
	return facts
}

// reported is what the infrastructure says of how a slot ended.
func reported(slot string, lines []string) []job.Reason {
	facts := make([]job.Reason, len(lines))
	for i, line := range lines {
		facts[i] = job.Because(Reported, "slot", slot, "message", line)
	}
	return facts
}

// mostEcho is the heaviest weight of what may be the echo of another end: a peer of a lost member exits by itself, or
// aborts, because its connection broke.
const mostEcho = 1

// weight orders causes by how far they stand from being the echo of another.
func weight(c job.Cause, e *job.Exit) int {
	switch c {
	case job.NodeGone, job.LeaseLost, job.AgentGone, job.AgentLeft, job.NodeFailed, job.LaunchFailed, job.Preemption, job.Eviction, job.Deletion:
		return 4
	case job.OutOfMemory, job.StartFailed:
		return 3
	case job.ProcessKilled:
		if e != nil && e.Signal == "aborted" {
			return mostEcho
		}
		return 2
	}
	return 0
}

// collateral reports whether a member's processes failed because its world was being ended on purpose: a peer had stopped
// before this member heard of the order. What failed before the order is a fault of its own, whenever its news arrives, and
// so is what no peer's end explains. The order is timed by the service's clock and the exit by its host's, or by that of its error file, so a skew between
// them moves the line by as much; what was reported before the order is a fault whatever the clocks say.
func (p *pass) collateral(w *work, s *job.Slot, m *job.Member) bool {
	ordered := w.world.Ordered
	if ordered.IsZero() || m.Exit == nil || m.Exit.At.Before(ordered) {
		return false
	}
	return p.generationOf(w, s) > 0 && m.Generation == w.world.Generation && weight(m.Exit.Cause(), m.Exit) <= mostEcho
}

// incident records a fault. Faults that break one world are one incident: the heaviest cause is its cause,
// and it is charged once, if at all. What may be the echo of a heavier one is not part of it; two that are faults of their
// own are, and both slots are its culprits.
func (p *pass) incident(w *work, f fault) {
	p.out.Dirty = true
	heavy := weight(f.cause, f.exit)
	if n := len(w.rec.Incidents); n > 0 && p.sameIncident(w, w.rec.Incidents[n-1], f) {
		inc := w.rec.Incidents[n-1] // a copy: the input is not ours
		known, named := causeWeight(inc), slices.Contains(inc.Culprits, f.slot.Address)
		switch {
		case heavy == known && heavy <= mostEcho && !named && precedes(w, f, inc):
			// What was heard first was its echo. By their hosts' clocks, as among those that are heard at once: see enterFaults.
			inc.Told, inc.Cause, inc.Culprits, inc.Evidence = false, f.cause, []job.Address{f.slot.Address}, f.evidence
		case f.generation > 0 && (heavy == 0 || heavy < known && heavy <= mostEcho):
			return // an echo
		case heavy <= known && named && f.early && f.generation == 0: // a start later
			slot := f.slot.Address.Short()
			others := slices.DeleteFunc(slices.Clone(inc.Evidence), func(r job.Reason) bool { return r.Args["slot"] == slot })
			inc.Evidence = append(others, f.evidence...)
		case heavy <= known && named:
			return // its agent ended, since its node was removed
		case heavy <= known: // two faults at once: no end of a peer explains this one
			inc.Culprits = append(inc.Culprits, f.slot.Address) // open clipped them
			inc.Evidence = append(inc.Evidence, f.evidence...)
			if inc.Told && (heavy > mostEcho || f.generation == 0) {
				inc.Added = p.in.Now
			}
		default:
			if inc.Cause.Budgeted() && !f.cause.Budgeted() && len(w.rec.Charges) > 0 {
				w.rec.Charges = w.rec.Charges[:len(w.rec.Charges)-1]
			}
			lighter := inc
			inc.Told, inc.Added = false, time.Time{}
			inc.Cause, inc.Culprits, inc.Evidence = f.cause, []job.Address{f.slot.Address}, f.evidence
			inc.Confidence = confidence(heavy)
			if known > mostEcho || f.generation == 0 { // what was known is a fault of its own
				others := slices.DeleteFunc(slices.Clone(lighter.Culprits), func(a job.Address) bool { return a == f.slot.Address })
				inc.Culprits = append(inc.Culprits, others...)
				inc.Evidence = append(slices.Clone(f.evidence), lighter.Evidence...)
			}
		}
		w.rec.Incidents[n-1] = inc
		return
	}
	p.enter(w, job.Incident{
		Time: p.in.Now, Cause: f.cause, Culprits: []job.Address{f.slot.Address}, Evidence: f.evidence,
		Generation: f.generation, Confidence: confidence(heavy),
	})
	if f.cause.Budgeted() {
		w.rec.Charges = append(w.rec.Charges, p.in.Now)
	}
}

// precedes reports whether a fault of a world came before the one end that is known of it.
func precedes(w *work, f fault, known job.Incident) bool {
	if f.generation == 0 || f.exit == nil || len(known.Culprits) != 1 {
		return false
	}
	first := w.rec.Slot(known.Culprits[0].Role, known.Culprits[0].Index)
	return first != nil && first.Exit != nil && f.exit.At.Before(first.Exit.At)
}

// sameIncident reports whether a fault belongs to the newest incident: it breaks the same world, or no world is concerned and
// it is like it, and comes in the same pass or of the same round of starts.
func (p *pass) sameIncident(w *work, i job.Incident, f fault) bool {
	if i.Generation != f.generation {
		return false
	}
	return f.generation > 0 || i.Cause == f.cause && (i.Time.Equal(p.in.Now) || p.sameRound(w, i, f))
}

// sameRound reports whether a start failed as those of the newest incident did. Of a node's failures that is so while one of them
// continues. Failures that are charged are one for as long as a rendezvous may take, and a second one of the same slot begins a
// round of its own: what never comes up spends the budget.
func (p *pass) sameRound(w *work, i job.Incident, f fault) bool {
	if !f.early || w.world.Formed.After(i.Time) {
		return false
	}
	if f.cause.Budgeted() {
		return p.in.Now.Sub(i.Time) < w.spec.Rendezvous.Timeout.Std() && !slices.Contains(i.Culprits, f.slot.Address)
	}
	return f.cause == job.NodeFailed && slices.ContainsFunc(i.Culprits, func(a job.Address) bool {
		s := w.index[a.Role][a.Index]
		if s == f.slot { // of which this failure is counted
			return s.Crashes > 1
		}
		return s != nil && s.Crashes > 0 && s.Cause == job.NodeFailed
	})
}

// enter adds an incident to the record. What is still to be told of the one before is told first.
func (p *pass) enter(w *work, i job.Incident) {
	if n := len(w.rec.Incidents); n > 0 && !w.rec.Incidents[n-1].Added.IsZero() {
		p.tellNewest(w)
	}
	w.rec.Incidents = append(w.rec.Incidents, i)
	if extra := len(w.rec.Incidents) - job.MaxIncidents; extra > 0 {
		w.rec.Incidents = slices.Delete(w.rec.Incidents, 0, extra)
	}
	p.out.Dirty = true
}

func causeWeight(i job.Incident) int {
	return int(i.Confidence*5+0.5) - 1
}

// confidence grows with weight: an exit code alone may be an echo, a lost agent is a fact.
func confidence(weight int) float64 { return float64(weight+1) / 5 }

// enterFaults enters what was found wrong with the job's slots, the heaviest first.
func (p *pass) enterFaults(w *work) {
	slices.SortStableFunc(w.faults, func(a, b fault) int {
		if d := weight(b.cause, b.exit) - weight(a.cause, a.exit); d != 0 {
			return d
		}
		if a.exit != nil && b.exit != nil {
			return a.exit.At.Compare(b.exit.At)
		}
		return 0
	})
	for _, f := range w.faults {
		p.incident(w, f)
	}
	charged := len(w.rec.Charges)
	w.rec.Charges = slices.DeleteFunc(w.rec.Charges, func(t time.Time) bool {
		return p.in.Now.Sub(t) > w.spec.Heal.Budget.Window.Std()
	})
	p.out.Dirty = p.out.Dirty || len(w.rec.Charges) != charged
}

// heal decides about every failing slot of the job, from cheap to expensive.
func (p *pass) heal(w *work) {
	p.enterFaults(w)
	var failing []*job.Slot
	for _, s := range w.slots {
		if w.outside(s.Address) {
			continue
		}
		if s.Phase == job.Lost {
			p.step(s, job.Fault)
		}
		if s.Phase == job.Failing {
			failing = append(failing, s)
		}
	}
	if !w.active() {
		for _, s := range failing {
			p.step(s, job.Cancel)
		}
		return
	}
	p.readmit(w)
	if why := p.hopeless(w, failing); !why.IsZero() {
		p.failJob(w, why)
		return
	}
	if len(failing) == 0 || p.heldBack(w) {
		return
	}
	action := job.Action("")
	for _, s := range failing {
		a := p.retry(w, s)
		if a != "" {
			w.mend(s)
		}
		if action == "" || severity(a) > severity(action) {
			action = a
		}
	}
	if action != "" {
		p.decided(w, action)
	}
}

// readmit lets the agents continue whose processes failed as collateral: they take part in the next world, as if they had
// been stopped in time. Nothing is wrong with these slots, so nothing is counted.
func (p *pass) readmit(w *work) {
	for _, s := range w.collateral {
		s.InPlace++
		p.out.Dirty = true
	}
}

// hopeless says why no restart can help; zero if one may.
func (p *pass) hopeless(w *work, failing []*job.Slot) job.Reason {
	for _, s := range failing {
		if s.Cause == job.StartFailed {
			return job.Because(SlotCannotStart, "slot", s.Address.Short())
		}
		if w.succeeded(s.Address.Role) {
			return job.Because(FailedTooLate, "slot", s.Address.Short())
		}
	}
	return job.Reason{}
}

// heldBack holds the verdict while the budget is overdrawn: for verdictGrace, then the job fails.
func (p *pass) heldBack(w *work) bool {
	budget := w.spec.Heal.Budget
	if len(w.rec.Charges) <= budget.Restarts {
		return false
	}
	last := w.rec.Charges[len(w.rec.Charges)-1]
	if p.pending(last, verdictGrace) {
		return true
	}
	p.failJob(w, job.Because(RestartsSpent, "restarts", strconv.Itoa(budget.Restarts), "window", budget.Window.String()))
	return true
}

// failJob fails the job: what failed is Failed, settle stops the rest.
func (p *pass) failJob(w *work, why job.Reason) {
	if w.part != nil {
		p.holdBack(w.name, "", job.Because(FailsWhole, "job", w.name).With(why))
		return
	}
	for _, s := range w.slots {
		if s.Phase == job.Failing {
			w.mend(s)
			p.step(s, job.GiveUp)
		}
	}
	w.rec.Phase, w.rec.Ended = job.JobFailed, p.in.Now
	p.out.Dirty = true
	p.decided(w, job.FailJob)
	p.tellIncident(w)
	p.note("job."+w.name, "job_phase", job.Because(JobFailed).With(why))
}

// retry starts a failing slot again and says how.
func (p *pass) retry(w *work, s *job.Slot) job.Action {
	if p.pending(s.Since, crashDelay(s.Crashes)) {
		return ""
	}
	inc := w.current(s)
	bigger := p.enlarge(w, s)
	alive := inc != nil && inc.State != job.Gone && inc.Member != nil && !inc.Member.Expired && inc.Member.State == job.MemberFailed
	s.Restarts++
	if alive && !bigger && s.Node != "" {
		s.InPlace++
		p.step(s, job.Retry)
		w.because(s, p.why(lost(s)))
		p.out.Changes = append(p.out.Changes, Change{
			Action: Restart, Job: w.name, UID: w.rec.UID, Slot: s.Address, Incarnation: s.Incarnation,
			Node: s.Node, Reasons: w.on(s).reasons,
		})
		return job.RestartInPlace
	}
	w.because(s, p.why(lost(s)))
	s.Incarnation++
	s.InPlace = 0
	s.Recover = true
	p.step(s, job.Retry)
	elsewhere := drivesOff(s.Cause)
	if s.Node != "" && !elsewhere && !bigger && !p.schedules(w) {
		return job.RestartSameNode
	}
	switch {
	case !elsewhere:
		w.on(s).prefer = s.Node
	case s.Node != "":
		s.Avoid = s.Avoid.And(s.Node)
	}
	s.Node = ""
	return job.Replace
}

// drivesOff reports whether the cause lies in the node, or in what else is on it: the next start goes elsewhere.
func drivesOff(c job.Cause) bool {
	switch c {
	case job.LeaseLost, job.NodeFailed, job.LaunchFailed, job.NodeGone, job.Preemption, job.Eviction:
		return true
	}
	return false
}

func crashDelay(crashes int) time.Duration {
	if crashes == 0 {
		return 0
	}
	return min(crashBackoffFirst<<min(crashes-1, 10), crashBackoffMost)
}

// enlarge gives a slot that ran out of memory more of it, if the job says so.
func (p *pass) enlarge(w *work, s *job.Slot) bool {
	if s.Cause != job.OutOfMemory || s.Reserved.Memory == 0 {
		return false
	}
	for _, on := range w.spec.Heal.On {
		if on.Cause == string(job.OutOfMemory) && on.Memory > 0 && s.Grown < on.Limit {
			s.Grown++
			before := s.Reserved.Memory
			// Rounded up to whole MiB, so that it reads well and never falls short of the factor.
			mib := job.Bytes(1 << 20)
			s.Reserved.Memory = (job.Bytes(float64(before)*float64(on.Memory)) + mib - 1) / mib * mib
			w.because(s, p.why(MemoryEnlarged, "from", before.String(), "to", s.Reserved.Memory.String()))
			return true
		}
	}
	return false
}

// HowLost is how a slot came to be lost, by its cause and how its process ended.
func HowLost(s *job.Slot) job.Reason {
	code, name, value := lost(s)
	return job.Because(code, name, value)
}

func lost(s *job.Slot) (code job.Code, name, value string) {
	switch s.Cause {
	case job.LeaseLost, job.NodeGone, job.Preemption, job.Eviction, job.Deletion, job.NodeFailed, job.LaunchFailed, job.AgentLeft, job.AgentGone, job.OutOfMemory:
		return job.Code(s.Cause), "", ""
	}
	switch e := s.Exit; {
	case e == nil:
		return PlaceLost, "", ""
	case e.NotStarted != "":
		return StartFailed, "", ""
	case e.Signal != "":
		return ProcessKilled, "signal", e.Signal
	default:
		return ProcessFailed, "code", strconv.Itoa(e.Code)
	}
}

// repair records that something is done about a slot, and so about the newest incident if it is a culprit of that.
func (w *work) mend(s *job.Slot) {
	if n := len(w.rec.Incidents); n > 0 && slices.Contains(w.rec.Incidents[n-1].Culprits, s.Address) {
		w.mending = true
	}
}

// decided enters what was done about the newest incident, the most expensive if several things were. An incident is over when a
// world has formed since: what is done later is not about it, but for what is done to its culprits. A slot that waits for its
// next start keeps the others from no world.
func (p *pass) decided(w *work, a job.Action) {
	n := len(w.rec.Incidents)
	if n == 0 {
		return
	}
	inc := w.rec.Incidents[n-1]
	if w.world.Formed.After(inc.Time) && !w.mending {
		return
	}
	if inc.Action != "" && severity(inc.Action) >= severity(a) {
		return
	}
	inc.Action, inc.Told, inc.Added = a, false, time.Time{}
	w.rec.Incidents[n-1] = inc
	p.out.Dirty = true
}

// tellIncident reports the newest incident once it was decided, at once: what follows from it (a restart, the next world,
// the end of the job) is told after it, and the next incident of a program that fails early comes within milliseconds. If
// it proves to be the echo of another fault it is reported again, with the heavier cause; and once more with all culprits when
// no more have come for verdictGrace: a switch takes hundreds with it, one by one.
func (p *pass) tellIncident(w *work) {
	n := len(w.rec.Incidents)
	if n == 0 || w.rec.Incidents[n-1].Action == "" {
		return
	}
	inc := w.rec.Incidents[n-1]
	if inc.Told && (inc.Added.IsZero() || p.pending(inc.Added, verdictGrace)) {
		return
	}
	p.tellNewest(w)
}

// tellNewest reports the newest incident as it is.
func (p *pass) tellNewest(w *work) {
	n := len(w.rec.Incidents)
	inc := w.rec.Incidents[n-1]
	inc.Told, inc.Added = true, time.Time{}
	w.rec.Incidents[n-1] = inc
	p.out.Dirty = true
	p.out.Notices = append(p.out.Notices, job.Notice{
		Time: p.in.Now, Type: "incident", Address: "job." + w.name, Incident: &inc,
		Reason: job.Because(Incident, "cause", string(inc.Cause), "action", string(inc.Action)),
	})
}

func severity(a job.Action) int {
	return slices.Index([]job.Action{job.RestartInPlace, job.RestartSameNode, job.Replace, job.Shrink, job.WaitCapacity, job.FailJob}, a)
}
