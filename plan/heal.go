package plan

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/signature"
)

// verdictGrace delays failing a job: its last fault may prove to be the echo of a lost agent, whose report arrives a moment
// later than those of its peers' broken connections.
const verdictGrace = time.Second

// attributionGrace is how much longer than its stop grace an agent that was asked to stop may take, where its infrastructure
// gives the reason only with the exit: for its last report, and for the second or two until a kubelet reports.
const attributionGrace = 5 * time.Second

// proven is how long a slot must run for its next restart not to be delayed.
const proven = time.Minute

// fault records a fault of a slot. more is further evidence.
func (p *pass) fault(w *work, s *job.Slot, cause job.Cause, exit *job.Exit, more ...job.Reason) {
	f := p.newFault(w, s, cause, exit)
	f.Evidence = append(f.Evidence, more...)
	if f.Generation == 0 {
		f.Generation = w.brokenBefore(s, f.Cause)
	}
	if !p.step(s, job.Fault) {
		return
	}
	p.noteFault(w, f)
	s.Exit, s.Cause, s.Stopped = kept(exit), f.Cause, false
	p.noteNodeFault(w, s, more)
	s.Crashes++
	if f.Early && s.CrashesSince.IsZero() {
		s.CrashesSince = p.in.Now
	}
}

// newFault is a fault of a slot, in the world that it is or was in. A cause that is only that a process ended is looked for in what it
// printed.
func (p *pass) newFault(w *work, s *job.Slot, cause job.Cause, exit *job.Exit) incident.Fault {
	cause, m := w.diagnose(cause, exit)
	f := incident.Fault{
		SlotFault: incident.FaultOf(s.Address, cause, exit), Generation: p.generationOf(w, s),
		Evidence: evidence(s.Address.Short(), s.Node, cause, exit, m), Early: s.Phase == job.Scheduling,
	}
	if m.Permanent {
		f.Error = incident.Digest(m.Line)
	}
	if f.Generation > 0 {
		f.Step = w.stepOf(s)
	}
	return f
}

// noteFault adds to the faults of this pass.
func (p *pass) noteFault(w *work, f incident.Fault) {
	if len(w.faults) == 0 {
		p.forgive(w)
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

// stepOf is the last step of a slot in the newest world; of the world, if its own processes show none. 0 if unknown.
func (w *work) stepOf(s *job.Slot) int64 {
	if inc := w.current(s); inc != nil && inc.Member != nil && inc.Member.Generation == w.world.Generation && inc.Member.Step > 0 {
		return inc.Member.Step
	}
	return w.newestStep()
}

// brokenBefore is the generation of the broken world in which a member's processes failed, if that world already has a successor
// and an incident is about it: on a busy host a failure may be reported after the others have formed the next world. 0 otherwise.
func (w *work) brokenBefore(s *job.Slot, cause job.Cause) int {
	inc := w.current(s)
	if inc == nil || inc.Member == nil || inc.Member.State != job.MemberFailed || !incident.Of(cause).Budgeted {
		return 0
	}
	g := inc.Member.Generation
	if slices.ContainsFunc(w.rec.Incidents, func(i job.Incident) bool { return i.Generation == g }) {
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

// evidence is what is known about how a slot was lost that was on node, with the signature of its exit. slot is "" where it is clear
// from the context.
func evidence(slot, node string, cause job.Cause, e *job.Exit, m signature.Match) []job.Reason {
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
	case job.AgentLeft, job.Preemption, job.Eviction, job.Deletion, job.NodeFaulty:
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
	if m.Name != "" {
		facts = append(facts, fact(Signature, "signature", m.Name, "message", m.Line, "hint", string(m.Hint)))
	}
	for _, line := range quoted(e, m) {
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

// collateral reports whether a member's processes failed because its world was being stopped on purpose: a peer had stopped
// before this member received the order. What failed before the order is a fault of its own, whenever it is reported, and so is
// what no peer's exit explains. The order's time is from the service's clock; the exit's is from its host's, or from its error
// file. Clock skew shifts the boundary by as much, but what was reported before the order is always a fault.
func (p *pass) collateral(w *work, s *job.Slot, m *job.Member) bool {
	ordered := w.world.Ordered
	if ordered.IsZero() || m.Exit == nil || m.Exit.At.Before(ordered) {
		return false
	}
	if p.generationOf(w, s) == 0 || m.Generation != w.world.Generation {
		return false
	}
	cause, _ := w.diagnose(m.Exit.Cause(), m.Exit)
	return incident.MayBeEcho(incident.FaultOf(s.Address, cause, m.Exit))
}

// recordFaults records the job's faults of this pass as incidents. A slot whose exit others' faults explain has no fault of its own;
// how it exited stays known.
func (p *pass) recordFaults(w *work) {
	log := incident.Log{Incidents: w.rec.Incidents, Charges: w.rec.Charges}
	cascade := log.Step(incident.Context{Now: p.in.Now, Heal: &w.spec.Heal, Formed: w.world.Formed, Timeout: w.spec.Rendezvous.Timeout.Std(),
		CannotStart: func(a job.Address) bool { return p.cannotStart(w, a) }}, w.faults)
	for _, a := range cascade {
		if s := w.index[a.Role][a.Index]; s != nil {
			s.Cause = ""
		}
	}
	charged := len(log.Charges)
	log.Charges = slices.DeleteFunc(log.Charges, func(t time.Time) bool {
		return p.in.Now.Sub(t) > w.spec.Heal.Budget.Window.Std()
	})
	p.out.Dirty = p.out.Dirty || len(w.faults) > 0 || len(log.Charges) != charged
	w.rec.Incidents, w.rec.Charges = log.Incidents, log.Charges
}

// cannotStart reports whether a slot failed to start on its node in an earlier pass, and has not started since.
func (p *pass) cannotStart(w *work, a job.Address) bool {
	s := w.index[a.Role][a.Index]
	return s != nil && s.Cause == job.NodeFailed && !s.CrashesSince.IsZero() && s.CrashesSince.Before(p.in.Now)
}

// heal decides about every failing slot of the job, from the cheapest action to the most expensive.
func (p *pass) heal(w *work) {
	p.recordFaults(w)
	p.endWorld(w)
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
	if len(failing) == 0 || p.fails(w, failing) || p.overBudget(w) {
		return
	}
	action, delayed, checked := job.Action(""), []*job.Slot(nil), false
	for _, s := range failing {
		if p.pending(s.Since, w.policy(s.Cause).Delay(s.Crashes)) {
			delayed = append(delayed, s)
			continue
		}
		checked = checked || p.remedy(w, s) == job.RemedyCheck
		a := p.retry(w, s)
		w.noteRepair(s)
		if action == "" || severity(a) > severity(action) {
			action = a
		}
	}
	if checked { // a broken connection has two ends
		w.rec.Check = w.world.Generation + 1
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
		why, delay := HowLost(first), w.policy(first.Cause).Delay(first.Crashes)
		var indices []int
		delayed = slices.DeleteFunc(delayed, func(s *job.Slot) bool {
			alike := s.Address.Role == first.Address.Role && w.policy(s.Cause).Delay(s.Crashes) == delay && HowLost(s).Equal(why)
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

// policy is what the job does about a cause. An exit that others explain has none, and is healed like any other.
func (w *work) policy(c job.Cause) incident.Policy {
	return incident.PolicyOf(&w.spec.Heal, cmp.Or(c, job.ProcessFailed))
}

// remedy is what is to be done about a slot that has failed.
func (p *pass) remedy(w *work, s *job.Slot) job.Remedy {
	switch {
	case s.Cause == "":
		return job.RemedyRestart
	case incident.Of(s.Cause).OfWorld(): // its processes were killed, and it stays unless it is to go
		return job.RemedyReplace
	}
	remedy := w.policy(s.Cause).For(w.rec.Incidents, s.Cause, s.Address, p.in.Now)
	if check := w.spec.Detect.NodeCheck(); remedy == job.RemedyCheck && (check.When == job.CheckNever || !inWorld(w.spec, s)) {
		return job.RemedyReplace
	}
	return remedy
}

// hopeless says why no restart can help; zero if one may.
func (p *pass) hopeless(w *work, failing []*job.Slot) job.Reason {
	for _, s := range failing {
		if s.Cause == job.StartFailed && p.remedy(w, s) == job.RemedyFail {
			return job.Because(SlotCannotStart, "slot", s.Address.Short())
		}
		if w.succeeded(s.Address.Role) {
			return job.Because(FailedTooLate, "slot", s.Address.Short())
		}
	}
	return job.Reason{}
}

// fails fails the job if that is what is to be done about a fault; after verdictGrace, as it may have been an echo.
func (p *pass) fails(w *work, failing []*job.Slot) bool {
	for _, s := range failing {
		why := p.whyFailing(w, s, s.Cause)
		if why.IsZero() {
			continue
		}
		if !p.pending(s.Since, verdictGrace) {
			p.failJob(w, why)
		}
		return true
	}
	return false
}

// whyFailing is why a slot's fault of a cause fails the job; zero if it does not.
func (p *pass) whyFailing(w *work, s *job.Slot, cause job.Cause) job.Reason {
	short := s.Address.Short()
	if cause == "" {
		return job.Reason{}
	}
	switch {
	case s.Exit != nil && w.spec.Heal.Verdict(cause, s.Exit.Code) == job.ExitFails:
		return job.Because(ExitCodeFails, "slot", short, "code", strconv.Itoa(s.Exit.Code))
	case w.policy(cause).For(w.rec.Incidents, cause, s.Address, p.in.Now) == job.RemedyFail:
		if of := w.policy(cause); of.Action != job.RemedyFail {
			return job.Because(LimitReached, "slot", short, "cause", string(cause), "limit", strconv.Itoa(of.Limit), "window", windowText(of.Window), "hint", w.hintFor(s))
		}
		return job.Because(CauseFails, "slot", short, "cause", string(cause), "hint", w.hintFor(s))
	case cause == job.ScriptError && incident.SameError(w.rec.Incidents):
		return job.Because(SameError, "slot", short, "hint", w.hintFor(s))
	}
	policy := w.policy(job.NoProgress)
	step, restarts, took := incident.StuckAt(&w.spec.Heal, w.rec.Incidents)
	patient := took < w.policy(cause).LongestDelay() // what is away for a while, such as storage, may be back
	if policy.Action == job.RemedyFail && step > 0 && restarts >= policy.Limit && !patient {
		return job.Because(NoProgress, "step", strconv.FormatInt(step, 10), "restarts", strconv.Itoa(restarts))
	}
	return job.Reason{}
}

// windowText is the window of a limit; "" if all that is remembered counts.
func windowText(window time.Duration) string {
	if window == 0 {
		return ""
	}
	return job.Duration(window).String()
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
	p.close(w, job.JobFailed, why)
	p.decided(w, job.FailJob)
	p.reportIncidents(w)
	p.note("job."+w.name, "job_phase", job.Because(JobFailed).With(why))
}

// retry starts a failing slot again and returns the action.
func (p *pass) retry(w *work, s *job.Slot) job.Action {
	inc := w.current(s)
	bigger := p.enlarge(w, s)
	elsewhere := p.remedy(w, s) == job.RemedyReplace
	alive := inc != nil && inc.State != job.Gone && inc.Member != nil && !inc.Member.Expired && inc.Member.State == job.MemberFailed
	s.Restarts++
	if alive && !bigger && s.Node != "" && !(elsewhere && p.otherNode(w, s)) {
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

// otherNode reports whether the slot's role may use another node than the slot's, at all.
func (p *pass) otherNode(w *work, s *job.Slot) bool {
	if p.nodesUnknown(w) {
		return true
	}
	role := w.spec.Role(s.Address.Role)
	for name, n := range p.nodesOf(w.spec.Provider) {
		if name != s.Node && n.Closed == "" && n.Drained == "" && role != nil && p.mayHold(w, role, n, s.Reserved) {
			return true
		}
	}
	return false
}

// mayHold reports whether an empty node could hold a reservation of a role's slot.
func (p *pass) mayHold(w *work, role *job.Role, n *job.Node, r job.Resources) bool {
	_, barred := p.in.Bars["job."+w.name+"."+role.Name][n.Name]
	return !barred && n.Foreign.Add(r).Fits(n.Capacity)
}

// enlarge gives a slot that ran out of memory more of it, as far as a node and the job's limits allow.
func (p *pass) enlarge(w *work, s *job.Slot) bool {
	policy := w.policy(s.Cause)
	if s.Cause != job.OutOfMemory || policy.Memory == 0 || s.Grown >= policy.Limit || s.Reserved.Memory == 0 {
		return false
	}
	before, more := s.Reserved.Memory, s.Reserved
	// Rounded up to whole MiB, so that it reads well and never falls short of the factor.
	mib := job.Bytes(1 << 20)
	more.Memory = (job.Bytes(float64(before)*float64(policy.Memory)) + mib - 1) / mib * mib
	if !p.mayGrow(w, s, more) {
		return false
	}
	s.Grown++
	s.Reserved = more
	w.because(s, p.why(MemoryEnlarged, "from", before.String(), "to", more.Memory.String()))
	return true
}

// mayGrow reports whether a slot may reserve more than it does: some node could hold it, and the job's limits allow it.
func (p *pass) mayGrow(w *work, s *job.Slot, more job.Resources) bool {
	if limits := w.spec.Limits; limits != nil && limits.Memory != nil {
		sum := more.Memory - s.Reserved.Memory
		for _, other := range w.slots {
			if holds(other) {
				sum += other.Reserved.Memory
			}
		}
		if sum > *limits.Memory {
			return false
		}
	}
	role, nodes := w.spec.Role(s.Address.Role), p.nodesOf(w.spec.Provider)
	if role == nil || p.nodesUnknown(w) {
		return role != nil
	}
	for _, n := range nodes {
		if n.Closed == "" && n.Drained == "" && p.mayHold(w, role, n, more) || n.Name == s.Node && p.mayHold(w, role, n, more) {
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
	case "", job.ProcessFailed, job.ProcessKilled, job.StartFailed:
	default:
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
	if i := w.newestIncident(); i != nil && slices.Contains(i.Culprits, s.Address) {
		w.repairing = true
	}
}

// decided records what was done about the newest incident; of several actions the most expensive. An incident is over once a
// world has formed since: later actions do not count for it, except those on its culprits, because other slots can form a world
// while a culprit waits for its next start.
func (p *pass) decided(w *work, a job.Action) {
	i := w.newestIncident()
	if i == nil || w.world.Formed.After(i.Time) && !w.repairing || i.Action != "" && severity(i.Action) >= severity(a) {
		return
	}
	i.Action, i.Told, i.Added = a, false, time.Time{}
	p.out.Dirty = true
}

// newestIncident is the newest that was not only reported; nil if there is none.
func (w *work) newestIncident() *job.Incident {
	for n := range slices.Backward(w.rec.Incidents) {
		if i := &w.rec.Incidents[n]; i.Action != job.Report {
			return i
		}
	}
	return nil
}

// reportIncidents reports the newest incident as soon as it is decided: its consequences (a restart, the next world, the end of
// the job) are reported after it, and the next incident of a program that fails early comes within milliseconds. If it proves
// to be the echo of another fault it is reported again with the true cause; and once more with all culprits when no more
// have come for verdictGrace, or when the next incident comes: a failed switch takes down hundreds, one by one.
func (p *pass) reportIncidents(w *work) {
	for n := range w.rec.Incidents {
		i := &w.rec.Incidents[n]
		newest := n == len(w.rec.Incidents)-1
		if i.Action == "" || i.Told && (i.Added.IsZero() || newest && p.pending(i.Added, verdictGrace)) {
			continue
		}
		i.Told, i.Added = true, time.Time{}
		p.out.Dirty = true
		told := *i
		p.out.Notices = append(p.out.Notices, job.Notice{
			Time: p.in.Now, Type: "incident", Address: "job." + w.name, Incident: &told,
			Reason: job.Because(Incident, "cause", string(i.Cause), "action", string(i.Action)),
		})
	}
}

func severity(a job.Action) int {
	return slices.Index([]job.Action{job.Report, job.RestartInPlace, job.RestartSameNode, job.Replace, job.Shrink, job.WaitCapacity, job.FailJob}, a)
}
