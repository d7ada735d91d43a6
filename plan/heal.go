package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// verdictGrace delays failing a job: its last fault may prove to be the echo of a lost agent, whose report arrives a moment
// later than those of its peers' broken connections.
const verdictGrace = time.Second

// attributionGrace is how much longer than its stop grace an agent that was asked to stop may take, where its infrastructure
// gives the reason only with the exit: for its last report, and for the second or two until a kubelet reports.
const attributionGrace = 5 * time.Second

// Restarts of a slot without progress in between are delayed: the first is not, the next by firstDelay, doubling to mostDelay.
const (
	firstDelay = time.Second
	mostDelay  = time.Minute
)

// tailShown is how many of the last lines of output an incident quotes.
const tailShown = 5

// fault is something wrong with one slot, found by track.
type fault struct {
	slot       *job.Slot
	cause      job.Cause
	exit       *job.Exit
	generation int // of the world that it broke; 0 if none
	evidence   []job.Reason
	early      bool // before its agent had registered
}

// fault records a fault of a slot. more is further evidence.
func (p *pass) fault(w *work, s *job.Slot, cause job.Cause, exit *job.Exit, more ...job.Reason) {
	f := fault{slot: s, cause: cause, exit: exit, generation: p.generationOf(w, s)}
	f.evidence = append(evidence(s.Address.Short(), s.Node, cause, exit), more...)
	f.early = s.Phase == job.Scheduling
	if f.generation == 0 {
		f.generation = w.brokenBefore(s, cause)
	}
	if !p.step(s, job.Fault) {
		return
	}
	if len(w.faults) == 0 {
		p.forgive(w)
	}
	s.Exit, s.Cause, s.Stopped = exit, cause, false
	p.noteNodeFault(w, s)
	s.Crashes++
	if f.early && s.CrashesSince.IsZero() {
		s.CrashesSince = p.in.Now
	}
	w.faults = append(w.faults, f)
}

// forgive lets the next restart of slots that trained until this pass be immediate again, if the job is past the step that it had
// reached before. That happens with the first fault since, because a steady state writes nothing. For those that have trained for
// long see step.
func (p *pass) forgive(w *work) {
	old := p.in.Records[w.name]
	if old == nil || w.newestStep() <= w.rec.Goodput.Reached {
		return
	}
	for i := range old.Slots {
		if was := &old.Slots[i]; (was.Phase == job.Running || was.Phase == job.Suspect) && !w.outside(was.Address) {
			w.index[was.Address.Role][was.Address.Index].Crashes = 0
		}
	}
}

// newestStep is the highest step that a member of the newest world reports.
func (w *work) newestStep() (step int64) {
	for _, s := range w.slots {
		if inc := w.current(s); inc != nil && inc.Member != nil && inc.Member.Generation == w.world.Generation {
			step = max(step, inc.Member.Step)
		}
	}
	return step
}

// brokenBefore is the generation of the broken world in which a member's processes failed, if that world already has a successor
// and the newest incident is about it: on a busy host a failure may be reported after the others have formed the next world. 0
// otherwise.
func (w *work) brokenBefore(s *job.Slot, cause job.Cause) int {
	inc, n := w.current(s), len(w.rec.Incidents)
	if inc == nil || inc.Member == nil || inc.Member.State != job.MemberFailed || n == 0 || !cause.Budgeted() {
		return 0
	}
	if g := inc.Member.Generation; g == w.rec.Incidents[n-1].Generation {
		return g
	}
	return 0
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

// evidence is what is known about how a slot was lost that was on node. slot is "" where it is clear from the context.
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

// reported is what the infrastructure says about how a slot ended.
func reported(slot string, lines []string) []job.Reason {
	facts := make([]job.Reason, len(lines))
	for i, line := range lines {
		facts[i] = job.Because(Reported, "slot", slot, "message", line)
	}
	return facts
}

// mostEcho is the highest weight of an exit that may be the echo of another: a peer of a lost member exits by itself, or
// aborts, because its connection broke.
const mostEcho = 1

// weight orders causes by how unlikely they are to be the echo of another.
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

// collateral reports whether a member's processes failed because its world was being stopped on purpose: a peer had stopped
// before this member received the order. What failed before the order is a fault of its own, whenever it is reported, and so is
// what no peer's exit explains. The order's time is from the service's clock; the exit's is from its host's, or from its error
// file. Clock skew shifts the boundary by as much, but what was reported before the order is always a fault.
func (p *pass) collateral(w *work, s *job.Slot, m *job.Member) bool {
	ordered := w.world.Ordered
	if ordered.IsZero() || m.Exit == nil || m.Exit.At.Before(ordered) {
		return false
	}
	return p.generationOf(w, s) > 0 && m.Generation == w.world.Generation && weight(m.Exit.Cause(), m.Exit) <= mostEcho
}

// incident records a fault. Faults that break one world are one incident: the heaviest cause is its cause, and it is charged at
// most once. A fault that may be the echo of a heavier one is left out; two independent faults both count, and both slots are
// culprits.
func (p *pass) incident(w *work, f fault) {
	p.out.Dirty = true
	heavy := weight(f.cause, f.exit)
	if n := len(w.rec.Incidents); n > 0 && p.sameIncident(w, w.rec.Incidents[n-1], f) {
		inc := w.rec.Incidents[n-1] // a copy: the input must not change
		known, named := causeWeight(inc), slices.Contains(inc.Culprits, f.slot.Address)
		switch {
		case heavy == known && heavy <= mostEcho && !named && precedes(w, f, inc):
			// The one reported first was an echo of this one, by their hosts' clocks, as in recordFaults.
			w.echo(inc.Culprits...)
			p.recharge(w, &inc, f)
			inc.Told, inc.Cause, inc.Culprits, inc.Evidence = false, f.cause, []job.Address{f.slot.Address}, f.evidence
		case f.generation > 0 && (heavy == 0 || heavy < known && heavy <= mostEcho):
			if !named {
				w.echo(f.slot.Address)
			}
			return
		case heavy <= known && named && f.early && f.generation == 0: // a later start
			slot := f.slot.Address.Short()
			others := slices.DeleteFunc(slices.Clone(inc.Evidence), func(r job.Reason) bool { return r.Args["slot"] == slot })
			inc.Evidence = append(others, f.evidence...)
		case heavy <= known && named:
			return // its agent exited because its node was removed
		case heavy <= known: // two faults at once: no peer's exit explains this one
			inc.Culprits = append(inc.Culprits, f.slot.Address) // open clipped the slice
			inc.Evidence = append(inc.Evidence, f.evidence...)
			if inc.Told && (heavy > mostEcho || f.generation == 0) {
				inc.Added = p.in.Now
			}
		default:
			p.recharge(w, &inc, f)
			lighter := inc
			inc.Told, inc.Added = false, time.Time{}
			inc.Cause, inc.Culprits, inc.Evidence = f.cause, []job.Address{f.slot.Address}, f.evidence
			inc.Confidence = confidence(heavy)
			if known > mostEcho || f.generation == 0 { // the earlier fault is independent
				others := slices.DeleteFunc(slices.Clone(lighter.Culprits), func(a job.Address) bool { return a == f.slot.Address })
				inc.Culprits = append(inc.Culprits, others...)
				inc.Evidence = append(slices.Clone(f.evidence), lighter.Evidence...)
			} else {
				w.echo(lighter.Culprits...)
				f.slot.Cause = f.cause
			}
		}
		w.rec.Incidents[n-1] = inc
		return
	}
	p.addIncident(w, job.Incident{
		Time: p.in.Now, Cause: f.cause, Culprits: []job.Address{f.slot.Address}, Evidence: f.evidence,
		Generation: f.generation, Confidence: confidence(heavy),
	})
	if w.spec.Heal.Charged(f.cause, f.exit) {
		w.rec.Charges = append(w.rec.Charges, p.in.Now)
	}
}

// recharge charges the newest incident as its new cause is, which is a fault's.
func (p *pass) recharge(w *work, i *job.Incident, f fault) {
	var exit *job.Exit
	if s := w.rec.Slot(i.Culprits[0].Role, i.Culprits[0].Index); s != nil {
		exit = s.Exit
	}
	was, is, n := w.spec.Heal.Charged(i.Cause, exit), w.spec.Heal.Charged(f.cause, f.exit), len(w.rec.Charges)
	switch {
	case was && !is && n > 0:
		w.rec.Charges = w.rec.Charges[:n-1]
	case is && !was:
		w.rec.Charges = append(w.rec.Charges, p.in.Now)
	}
}

// echo records that slots' exits are echoes of another's fault: they have no fault of their own. How they exited stays known.
func (w *work) echo(slots ...job.Address) {
	for _, s := range w.slots {
		if slices.Contains(slots, s.Address) {
			s.Cause = ""
		}
	}
}

// precedes reports whether a fault of a world came before the only exit known so far.
func precedes(w *work, f fault, known job.Incident) bool {
	if f.generation == 0 || f.exit == nil || len(known.Culprits) != 1 {
		return false
	}
	first := w.rec.Slot(known.Culprits[0].Role, known.Culprits[0].Index)
	return first != nil && first.Exit != nil && f.exit.At.Before(first.Exit.At)
}

// sameIncident reports whether a fault belongs to the newest incident: it breaks the same world; or it concerns no world, has
// the same cause, and comes in the same pass or the same round of starts.
func (p *pass) sameIncident(w *work, i job.Incident, f fault) bool {
	if i.Generation != f.generation {
		return false
	}
	return f.generation > 0 || i.Cause == f.cause && (i.Time.Equal(p.in.Now) || p.sameRound(w, i, f))
}

// sameRound reports whether a failed start belongs to the round of the newest incident. For node failures, that is while one of
// them continues. For failures that are charged, it is as long as a rendezvous may take; a second failure of the same slot
// begins a new round, so that a slot that never comes up spends the budget.
func (p *pass) sameRound(w *work, i job.Incident, f fault) bool {
	if !f.early || w.world.Formed.After(i.Time) {
		return false
	}
	if f.cause.Budgeted() {
		return p.in.Now.Sub(i.Time) < w.spec.Rendezvous.Timeout.Std() && !slices.Contains(i.Culprits, f.slot.Address)
	}
	return f.cause == job.NodeFailed && slices.ContainsFunc(i.Culprits, func(a job.Address) bool {
		s := w.index[a.Role][a.Index]
		if s == f.slot { // whose failure is already counted
			return s.CrashesSince.Before(p.in.Now)
		}
		return s != nil && !s.CrashesSince.IsZero() && s.Cause == job.NodeFailed
	})
}

// addIncident adds an incident to the record. A pending report of the previous one is sent first.
func (p *pass) addIncident(w *work, i job.Incident) {
	if n := len(w.rec.Incidents); n > 0 && !w.rec.Incidents[n-1].Added.IsZero() {
		p.reportNewest(w)
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

// recordFaults records the job's faults, the heaviest first.
func (p *pass) recordFaults(w *work) {
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

// heal decides about every failing slot of the job, from the cheapest action to the most expensive.
func (p *pass) heal(w *work) {
	p.recordFaults(w)
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
	if len(failing) == 0 || p.exitFails(w, failing) || p.overBudget(w) {
		return
	}
	action, delayed := job.Action(""), []*job.Slot(nil)
	for _, s := range failing {
		if p.pending(s.Since, restartDelay(s.Crashes)) {
			delayed = append(delayed, s)
			continue
		}
		a := p.retry(w, s)
		w.noteRepair(s)
		if action == "" || severity(a) > severity(action) {
			action = a
		}
	}
	if action != "" {
		p.decided(w, action)
	}
	p.waitRestarts(w, delayed)
}

// waitRestarts reports the slots whose restart is delayed, with how they were lost.
func (p *pass) waitRestarts(w *work, delayed []*job.Slot) {
	slices.SortStableFunc(delayed, bySlot)
	for len(delayed) > 0 {
		first := delayed[0]
		why, delay := HowLost(first), restartDelay(first.Crashes)
		var indices []int
		delayed = slices.DeleteFunc(delayed, func(s *job.Slot) bool {
			alike := s.Address.Role == first.Address.Role && restartDelay(s.Crashes) == delay && HowLost(s).Equal(why)
			if alike {
				indices = append(indices, s.Address.Index)
			}
			return alike
		})
		role := first.Address.Role
		p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Passing: true, Reasons: []job.Reason{
			job.Because(RestartDelayed, "slots", job.Fold(role, indices), "delay", job.Duration(delay).String()).With(why)}})
	}
}

// readmit lets agents continue whose processes failed as collateral: they join the next world, as if they had been stopped in
// time. These slots have no fault, so nothing is charged.
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

// exitFails fails the job if a process exited with a code that is to do so; after verdictGrace, as it may have been an echo.
func (p *pass) exitFails(w *work, failing []*job.Slot) bool {
	for _, s := range failing {
		if w.spec.Heal.Verdict(s.Cause, s.Exit) != job.ExitFails {
			continue
		}
		if !p.pending(s.Since, verdictGrace) {
			p.failJob(w, job.Because(ExitCodeFails, "slot", s.Address.Short(), "code", strconv.Itoa(s.Exit.Code)))
		}
		return true
	}
	return false
}

// overBudget delays the verdict while the budget is exceeded: for verdictGrace, then the job fails.
func (p *pass) overBudget(w *work) bool {
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

// failJob fails the job: failing slots become Failed, settle stops the rest.
func (p *pass) failJob(w *work, why job.Reason) {
	if w.part != nil {
		p.holdBack(w.name, "", job.Because(FailsWhole, "job", w.name).With(why))
		return
	}
	for _, s := range w.slots {
		if s.Phase == job.Failing {
			w.noteRepair(s)
			p.step(s, job.GiveUp)
		}
	}
	p.close(w, job.JobFailed)
	p.decided(w, job.FailJob)
	p.reportIncident(w)
	p.note("job."+w.name, "job_phase", job.Because(JobFailed).With(why))
}

// retry starts a failing slot again and returns the action.
func (p *pass) retry(w *work, s *job.Slot) job.Action {
	inc := w.current(s)
	bigger := p.enlarge(w, s)
	alive := inc != nil && inc.State != job.Gone && inc.Member != nil && !inc.Member.Expired && inc.Member.State == job.MemberFailed
	s.Restarts++
	if alive && !bigger && s.Node != "" {
		s.InPlace++
		p.step(s, job.Retry)
		w.because(s, p.why(lost(s)))
		w.on(s).restarts = true
		return job.RestartInPlace
	}
	w.because(s, p.why(lost(s)))
	s.Incarnation++
	s.InPlace = 0
	s.Recover = true
	p.step(s, job.Retry)
	elsewhere := avoidsNode(s.Cause)
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

// avoidsNode reports whether the cause lies in the node, or in something else on it: the next start goes elsewhere.
func avoidsNode(c job.Cause) bool {
	switch c {
	case job.LeaseLost, job.NodeFailed, job.LaunchFailed, job.NodeGone, job.Preemption, job.Eviction:
		return true
	}
	return false
}

// restartDelay is how long a slot waits that has failed so often without progress in between.
func restartDelay(crashes int) time.Duration {
	if crashes < 2 {
		return 0
	}
	return min(firstDelay<<min(crashes-2, 10), mostDelay)
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

// HowLost is how a slot was lost, by its cause and how its process exited.
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

// noteRepair records whether a slot that is acted on is a culprit of the newest incident.
func (w *work) noteRepair(s *job.Slot) {
	if n := len(w.rec.Incidents); n > 0 && slices.Contains(w.rec.Incidents[n-1].Culprits, s.Address) {
		w.repairing = true
	}
}

// decided records what was done about the newest incident; of several actions the most expensive. An incident is over once a
// world has formed since: later actions do not count for it, except those on its culprits, because other slots can form a world
// while a culprit waits for its next start.
func (p *pass) decided(w *work, a job.Action) {
	n := len(w.rec.Incidents)
	if n == 0 {
		return
	}
	inc := w.rec.Incidents[n-1]
	if w.world.Formed.After(inc.Time) && !w.repairing {
		return
	}
	if inc.Action != "" && severity(inc.Action) >= severity(a) {
		return
	}
	inc.Action, inc.Told, inc.Added = a, false, time.Time{}
	w.rec.Incidents[n-1] = inc
	p.out.Dirty = true
}

// reportIncident reports the newest incident as soon as it is decided: its consequences (a restart, the next world, the end of
// the job) are reported after it, and the next incident of a program that fails early comes within milliseconds. If it proves
// to be the echo of another fault it is reported again with the heavier cause; and once more with all culprits when no more
// have come for verdictGrace: a failed switch takes down hundreds, one by one.
func (p *pass) reportIncident(w *work) {
	n := len(w.rec.Incidents)
	if n == 0 || w.rec.Incidents[n-1].Action == "" {
		return
	}
	inc := w.rec.Incidents[n-1]
	if inc.Told && (inc.Added.IsZero() || p.pending(inc.Added, verdictGrace)) {
		return
	}
	p.reportNewest(w)
}

// reportNewest reports the newest incident as it is.
func (p *pass) reportNewest(w *work) {
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
