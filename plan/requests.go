package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// verb is what a request asks for.
type verb struct {
	parts bool // it acts on slots: it can be asked of some of them, and not of a suspended job, which has none
	roles bool // it is about a whole role
	ended bool // it can be asked of a job that is over
	modes []string
	// check says why it cannot be asked of a declared job, which is On[i]; zero if it can. nil is always.
	check func(p *pass, r *job.Request, i int) job.Reason
	acts  bool // it is about training processes
	// handle puts it into effect, once.
	handle func(p *pass, w *work, r *job.Request, h *job.Handled)
	// outcome is how far it has come.
	outcome func(p *pass, w *work, r *job.Request, h *job.Handled) (job.ReplyState, job.Reason)
}

// examined is what a pass finds about requests before any of them takes effect, by ID.
type examined struct {
	inEffect map[string]bool       // on any job or node
	refused  map[string]job.Reason // why they cannot take effect
	deferred map[string]bool       // this plan cannot say anything about them
}

var verbs = map[job.Verb]verb{
	job.AskSuspend: {modes: []string{job.Keep}, handle: override, outcome: overrideOutcome},
	job.AskResume:  {handle: override, outcome: overrideOutcome},
	job.AskScale:   {roles: true, check: checkSize, handle: override, outcome: overrideOutcome},
	job.AskCancel:  {modes: []string{job.Force}, handle: cancelJob, outcome: cancelOutcome},
	job.AskRestart: {parts: true, ended: true, modes: []string{job.Elsewhere, job.InPlace}, check: checkRestart, handle: restart, outcome: restartOutcome},
	job.AskApply:   {ended: true, handle: restart, outcome: applyOutcome},
	job.AskDestroy: {ended: true, handle: destroy, outcome: destroyOutcome},

	job.AskSignal:     {parts: true, acts: true, check: checkAct, handle: beginAct, outcome: signalOutcome},
	job.AskCheckpoint: {acts: true, check: checkAct, handle: beginAct, outcome: checkpointOutcome},
	job.AskReload:     {acts: true, check: checkAct, handle: beginAct, outcome: reloadOutcome},
}

// rulesFor are those of one of a request's addresses: slots that are to be applied are restarted as well.
func rulesFor(r *job.Request, sel *job.Selector) verb {
	if r.Verb == job.AskApply && sel.Role != "" {
		return verbs[job.AskRestart]
	}
	return verbs[r.Verb]
}

// handleRequests enters the requests into the records, each once: an ID that a record has is in effect already, whoever led then. It does so
// in their order, so that of two that contradict each other the later one wins.
func (p *pass) handleRequests() {
	for _, w := range p.jobs {
		if p.about(w) {
			p.endOverrides(w)
			p.prune(w)
		}
	}
	p.current = nil
	for i := range p.in.Requests {
		r := &p.in.Requests[i]
		if !p.canTakeEffect(r) {
			continue
		}
		if !p.requests.inEffect[r.ID] {
			p.accept(r)
		}
		for _, w := range p.inEffectOn(r.ID) {
			h := w.handled(r.ID)
			if !h.Awaits || w.rec.Phase.Ended() && p.runsAnew(r, w.rec) {
				continue
			}
			p.note("job."+w.name, "request", job.Because(RequestAccepted, "verb", string(r.Verb), "value", r.ValueFor(w.name), "mode", r.Mode, "by", r.By, "why", r.Why, "request", r.ID))
			h.Awaits = false
			verbs[r.Verb].handle(p, w, r, h)
			p.out.Dirty = true
		}
	}
	for _, w := range p.jobs {
		if p.about(w) {
			p.replaceRestarted(w)
		}
	}
	p.out.Nodes = slices.DeleteFunc(p.out.Nodes, func(n job.NodeRecord) bool { return n.Empty() })
	p.current = nil
}

// runsAnew reports whether a request starts a job that is over again.
func (p *pass) runsAnew(r *job.Request, rec *job.Record) bool {
	return r.Verb == job.AskRestart || r.Verb == job.AskApply && (rec.Phase.Reruns() || p.allAskedFor(rec))
}

// accept enters a request into the records of its jobs or nodes, all at once: from then on these are what it is about, whatever their names.
func (p *pass) accept(r *job.Request) {
	p.out.Dirty = true
	for _, sel := range r.On {
		if w := p.byName[sel.Job]; w != nil && w.handled(r.ID) == nil {
			w.rec.Handled = append(w.rec.Handled, job.Handled{Reply: job.Reply{ID: r.ID, State: job.Accepted}, Mode: r.Mode, Awaits: true})
		}
	}
	for _, n := range p.recordsFor(r) {
		p.acceptOn(n, r)
	}
}

// InEffect lists the requests that are in effect on a job or a node, or have destroyed a job, by ID.
func InEffect(records job.Records, nodes []job.NodeRecord, destroyed map[string]job.Override) map[string]bool {
	in := map[string]bool{}
	for _, rec := range records {
		for _, h := range rec.Handled {
			in[h.ID] = true
		}
	}
	for _, n := range nodes {
		for _, h := range n.Handled {
			in[h.ID] = true
		}
	}
	for _, o := range destroyed {
		in[o.Request] = true
	}
	return in
}

// inEffectOn lists the jobs that a request is in effect on, whatever their names by now.
func (p *pass) inEffectOn(id string) (jobs []*work) {
	for _, w := range p.jobs {
		if w.rec != nil && w.handled(id) != nil {
			jobs = append(jobs, w)
		}
	}
	return jobs
}

// handled is what has become of a request in effect for this job; nil if it is not in effect.
func (w *work) handled(id string) *job.Handled { return handledIn(w.rec, id) }

func handledIn(rec *job.Record, id string) *job.Handled {
	if rec == nil {
		return nil
	}
	if i := slices.IndexFunc(rec.Handled, func(h job.Handled) bool { return h.ID == id }); i >= 0 {
		return &rec.Handled[i]
	}
	return nil
}

// examineRequests finds the requests that cannot take effect, from the input alone, before any of them does; and those that wait, because a
// job of theirs, or of an earlier request that waits, is left out of this plan or only partly in its scope.
func (p *pass) examineRequests() {
	p.requests = examined{InEffect(p.in.Records, p.in.Nodes, p.in.Destroyed), map[string]job.Reason{}, map[string]bool{}}
	waiting := map[string]bool{} // jobs
	for i := range p.in.Requests {
		r := &p.in.Requests[i]
		p.requests.deferred[r.ID] = p.in.Deferred[r.ID] || p.nodesWait(r, waiting) || slices.ContainsFunc(r.On, func(sel job.Selector) bool {
			w := p.byName[sel.Job]
			return waiting[sel.Job] || w != nil && (w.frozen || w.part != nil)
		})
		if p.requests.deferred[r.ID] {
			for _, sel := range r.On {
				waiting[sel.Job] = true
			}
			for _, name := range r.Nodes {
				waiting[job.NodeAddress(name)] = true
			}
			continue
		}
		if p.requests.inEffect[r.ID] {
			continue
		}
		why := p.in.Refused[r.ID]
		if why.IsZero() {
			why = p.refusal(r)
		}
		if !why.IsZero() {
			p.requests.refused[r.ID] = why
		}
	}
}

// refusal is why a request cannot take effect; zero if it can.
func (p *pass) refusal(r *job.Request) job.Reason {
	v, known := verbs[r.Verb]
	if len(r.Nodes) > 0 {
		_, known = nodeVerbs[r.Verb]
	}
	if aboutOne := (len(r.On) > 0) != (len(r.Nodes) > 0); !aboutOne || !known || r.Mode != "" && !slices.Contains(v.modes, r.Mode) {
		return job.Because(VerbUnknown, "verb", string(r.Verb))
	}
	for _, end := range []time.Time{r.Expires, r.Until} {
		if !end.IsZero() && !p.in.Now.Before(end) {
			return job.Because(RequestExpired)
		}
	}
	if len(r.Nodes) > 0 {
		return p.refuseNodes(r)
	}
	for i, sel := range r.On {
		w, old, v := p.byName[sel.Job], p.in.Records[sel.Job], rulesFor(r, &sel)
		switch {
		case p.elsewhere[sel.Job]:
			return p.atOtherSite(old, true)
		case sel.Role != "" && !v.parts && !v.roles:
			return job.Because(WholeJobOnly, "verb", string(r.Verb), "address", sel.String())
		case v.roles && (sel.Role == "" || sel.Ranges != nil):
			return job.Because(WholeRoleOnly, "verb", string(r.Verb), "address", sel.String())
		case p.in.Destroyed[sel.Job].Request != "" && r.Verb != job.AskRestart && r.Verb != job.AskDestroy:
			return job.Because(IsDestroyed, "job", sel.Job)
		case w == nil || !w.declared:
			return p.noSuchJob(sel)
		case old != nil && old.Phase == job.JobSuspended && (v.parts || v.acts):
			return job.Because(IsSuspended, "job", sel.Job)
		case v.parts && sel.Role != "" && (old == nil || !hasLive(old, sel)):
			return job.Because(NothingThere, "address", sel.String())
		case old != nil && old.Phase.Ended() && !v.ended && !p.restarted(sel.Job, old, r):
			return job.Because(HasEnded, "job", sel.Job, "phase", string(old.Phase))
		case old != nil && r.Verb == job.AskDestroy && w.prevents(old):
			return job.Because(PreventDestroy, "job", sel.Job)
		}
		if v.check == nil {
			continue
		}
		if why := v.check(p, r, i); !why.IsZero() {
			return why
		}
	}
	return job.Reason{}
}

// jobsNamed bounds the jobs that a refusal names.
const jobsNamed = 10

// noSuchJob says which jobs there are instead.
func (p *pass) noSuchJob(sel job.Selector) job.Reason {
	var names []string
	for _, w := range p.jobs {
		if w.declared {
			names = append(names, "job."+w.name)
		}
	}
	slices.Sort(names)
	more := ""
	if left := len(names) - jobsNamed; left > 0 {
		names, more = names[:jobsNamed], strconv.Itoa(left)
	}
	return job.Because(NothingThere, "address", sel.String(), "there", strings.Join(names, ", "), "more", more)
}

// hasLive reports whether a selector matches a slot that is not over; of a job that is over, any slot.
func hasLive(rec *job.Record, sel job.Selector) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		return sel.Matches(s.Address) && (s.Phase.Live() && s.Phase != job.Succeeded || rec.Phase.Ended())
	})
}

// overOf are the requests that were in effect on a job that starts anew: of them only those that waited for that are carried out on its next
// run.
func overOf(old *job.Record) []job.Handled {
	over := slices.Clone(old.Handled)
	for i := range over {
		if h := &over[i]; !h.State.Final() && !h.Awaits {
			h.State, h.Reason = job.Undone, job.Because(HasEnded, "job", old.Spec.Name, "phase", string(old.Phase))
			if h.Act.Kind == job.ActSignal && len(h.Slots) > 0 {
				h.State, h.Reason = job.Unknown, job.Because(OutcomeUnknown, "slot", slices.Min(slices.Collect(maps.Keys(h.Slots))))
			}
		}
	}
	return over
}

// cancelJob ends a job. It stays in the files, and starts again only when it is restarted or edited.
func cancelJob(p *pass, w *work, r *job.Request, _ *job.Handled) {
	if w.rec.Phase == job.JobCanceled {
		return
	}
	p.close(w, job.JobCanceled, job.Because(CanceledBy, "by", r.By, "why", r.Why))
	p.note("job."+w.name, "job_phase", entered(job.JobCanceled))
}

// killed reports whether the job's slots are killed at once: it was canceled by force.
func (w *work) killed() bool {
	return w.rec.Phase == job.JobCanceled && slices.ContainsFunc(w.rec.Handled, func(h job.Handled) bool { return h.Mode == job.Force && !h.State.Final() })
}

// cancelOutcome is done once nothing of the job runs.
func cancelOutcome(_ *pass, w *work, _ *job.Request, _ *job.Handled) (job.ReplyState, job.Reason) {
	if w.live() {
		return job.Accepted, job.Reason{}
	}
	return job.Done, job.Reason{}
}

// applyOutcome is done once the job is as declared. It fails if the job has failed, or waits for something that no change brings
// about; it may still come to be as declared.
func applyOutcome(p *pass, w *work, r *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	if why := p.in.Refused[r.ID]; !why.IsZero() { // the files have changed since
		return job.Undone, why
	}
	changes := slices.ContainsFunc(p.out.Changes, func(c Change) bool { return c.Job == w.name && c.Action != NoOp })
	waits := slices.IndexFunc(p.out.Waits, func(x Wait) bool { return x.Job == w.name && !x.Passing && x.Reasons[0].Code != Overridden })
	withheld := p.in.Withheld[w.name]
	switch {
	case w.rec.Phase == job.JobFailed:
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	case changes, w.dueRestart(h):
	case !withheld.IsZero():
		return job.Undone, withheld
	case waits >= 0:
		return job.Undone, p.out.Waits[waits].Reasons[0]
	case (w.rec.Phase == job.JobRunning || !w.rec.Awaits.IsZero()) && w.whole() && p.proven(w), w.rec.Phase.Ended(), w.rec.Phase == job.JobSuspended:
		return job.Done, job.Reason{}
	}
	return job.Accepted, job.Reason{}
}

// Proof is how long a world must train before it counts as healthy, if its output shows no progress: a bug in a script's first
// lines has shown by then.
const Proof = 3 * time.Second

// proven reports whether the job has trained for long enough, or shows progress.
func (p *pass) proven(w *work) bool {
	last := w.world.Formed
	for _, s := range w.slots {
		if inc := w.current(s); inc != nil && inc.Member != nil && inc.Member.Step > 0 && inc.Member.Generation == w.world.Generation {
			return true
		}
		if s.Phase == job.Running && s.Since.After(last) {
			last = s.Since
		}
	}
	return !p.pending(last, Proof)
}

// whole reports whether all slots train, the ranked ones in one world.
func (w *work) whole() bool {
	members := 0
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if role == nil || !holds(s) || w.dispensable(s) {
			continue
		}
		if role.Ranked {
			if m, in := w.member(s.Address); !in || m.Incarnation != s.Incarnation {
				return false
			}
			members++
		}
		if s.Phase != job.Running && s.Phase != job.Succeeded {
			return false
		}
	}
	return !w.ranked() || !w.world.Broken && members == len(w.world.Members)
}

// restarted reports whether somebody asked to restart a job that is over, before another request if one is given: it starts again as
// a new one.
func (p *pass) restarted(name string, old *job.Record, before *job.Request) bool {
	return p.asked(job.AskRestart, name, old, before)
}

// asked reports whether a request that has no effect yet asks for something about a recorded job, before another one if that is given.
func (p *pass) asked(verb job.Verb, name string, old *job.Record, before *job.Request) bool {
	return slices.ContainsFunc(p.in.Requests, func(r job.Request) bool {
		return r.Verb == verb && (before == nil || r.ID < before.ID) && p.toTakeEffect(&r, name, old)
	})
}

// toTakeEffect reports whether a request is about to take effect on a job, whose record is old; nil if it has none.
func (p *pass) toTakeEffect(r *job.Request, name string, old *job.Record) bool {
	if !p.canTakeEffect(r) || !p.in.Refused[r.ID].IsZero() {
		return false
	}
	if p.requests.inEffect[r.ID] {
		h := handledIn(old, r.ID)
		return h != nil && h.Awaits
	}
	return slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == name })
}

// canTakeEffect reports whether a request neither waits nor is refused.
func (p *pass) canTakeEffect(r *job.Request) bool {
	return !p.requests.deferred[r.ID] && p.requests.refused[r.ID].IsZero()
}

// restart notes the incarnations that are to be replaced: how far it has come is known from them, whoever leads. In place the same
// incarnations go on.
func restart(_ *pass, w *work, r *job.Request, h *job.Handled) {
	if r.Mode == job.InPlace {
		w.restartInPlace(r, h)
		return
	}
	h.Slots = map[string]int{}
	for _, s := range w.slots {
		if startedPhase(s) && matches(r, s) {
			h.Slots[s.Address.Short()] = s.Incarnation
		}
	}
}

// replaceRestarted requests the replacements of all restarts that are being carried out.
func (p *pass) replaceRestarted(w *work) {
	for i := range w.rec.Handled {
		h := &w.rec.Handled[i]
		for _, s := range w.slots {
			switch n, is := h.Slots[s.Address.Short()]; {
			case !is || h.Act.Kind != "" || h.State.Final():
			case h.Mode == job.Elsewhere:
				if s.Incarnation == n {
					w.on(s).elsewhere = true
				}
			default:
				p.replacing[s.Address] = Replacement{Slot: s.Address, UID: w.rec.UID, Incarnation: n}
			}
		}
	}
}

// checkRestart says why slots cannot be restarted in place or elsewhere.
func checkRestart(p *pass, r *job.Request, i int) job.Reason {
	name := r.On[i].Job
	old := p.in.Records[name]
	switch {
	case r.Mode == "" || old == nil && r.Mode == job.Elsewhere:
	case old != nil && old.Phase.Ended():
		return job.Because(HasEnded, "job", name, "phase", string(old.Phase))
	case r.Mode == job.InPlace:
		return checkAct(p, r, i)
	case !p.in.Capabilities[old.Spec.Provider].NodesUnknown && len(p.nodesOf(old.Spec.Provider)) < 2:
		return job.Because(NoOtherNode, "job", name)
	}
	return job.Reason{}
}

// relocate begins the planned stop of the slots that are restarted elsewhere, once other nodes have room for all of them.
func (p *pass) relocate(w *work) {
	var slots []*job.Slot
	for _, s := range w.slots {
		if d := w.decisions[s]; d != nil && d.elsewhere && startedPhase(s) && len(w.running(s)) > 0 && !w.succeeded(s.Address.Role) {
			slots = append(slots, s)
		}
	}
	if len(slots) == 0 || p.heldReason(w) != "" {
		return
	}
	t := &txn{sp: p.space(w.spec.Provider)}
	for _, s := range slots {
		if !t.put(s, s.Reserved, "", s.Avoid.And(s.Node), true) || t.taken[len(t.taken)-1].at.node.Name == s.Node {
			t.undo()
			p.addWait(w, "", job.Because(NoOtherNode, "job", w.name))
			return
		}
	}
	if !t.now() {
		return // the places are reserved, and the slots move once these are free
	}
	for _, x := range t.taken {
		w.because(x.slot, job.Because(ReplaceRequested))
		p.leaveNode(w, x)
	}
}

// movedElsewhere reports whether the slot's next incarnation starts because an operator asked for it on another node.
func (w *work) movedElsewhere(s *job.Slot) bool {
	return slices.ContainsFunc(w.rec.Handled, func(h job.Handled) bool {
		n, is := h.Slots[s.Address.Short()]
		return is && h.Mode == job.Elsewhere && !h.State.Final() && n < s.Incarnation
	})
}

func trains(s *job.Slot) bool { return s.Phase == job.Running || s.Phase == job.Succeeded }

// dueRestart reports whether the next incarnation of a slot that a request restarts is still to train.
func (w *work) dueRestart(h *job.Handled) bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool {
		n, is := h.Slots[s.Address.Short()]
		return is && s.Phase.Live() && (s.Incarnation <= n || !trains(s))
	})
}

// restartOutcome is done once the next incarnation of each slot trains; for a new run, once its first slots do.
func restartOutcome(p *pass, w *work, r *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	if h.Mode == job.InPlace {
		return restartedInPlace(p, w, r, h)
	}
	switch {
	case !w.dueRestart(h) && slices.ContainsFunc(w.slots, trains):
		return job.Done, job.Reason{}
	case w.rec.Phase.Ended():
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	case w.rec.Phase == job.JobSuspended:
		return job.Undone, job.Because(IsSuspended, "job", w.name)
	}
	return job.Accepted, job.Reason{}
}

// restartedInPlace is done once the next world trains, if the old one was to end, and the slots outside of it run again.
func restartedInPlace(p *pass, w *work, r *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	starts := func(s *job.Slot) bool { return !inWorld(w.spec, s) && matches(r, s) && s.Phase.Live() && !w.up(s) }
	why, failed := firstFailed(h, false)
	switch {
	case failed:
		return job.Undone, why
	case h.Reload.Request != "":
		if state, why := w.worldOutcome(h); state != job.Done {
			return state, why
		}
		h.Reload, p.out.Dirty = job.Reload{}, true // a later restart of the world is not waited for
	case w.rec.Phase.Ended():
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	case w.rec.Phase == job.JobSuspended:
		return job.Undone, job.Because(IsSuspended, "job", w.name)
	}
	if len(h.Slots) > 0 || slices.ContainsFunc(w.slots, starts) {
		return job.Accepted, job.Reason{}
	}
	return job.Done, job.Reason{}
}

// prune forgets the requests that have their final reply. A plan without requests does not know which these are.
func (p *pass) prune(w *work) {
	if p.in.Requests == nil || w.frozen || len(w.rec.Handled) == 0 {
		return
	}
	before := len(w.rec.Handled)
	w.rec.Handled = slices.DeleteFunc(w.rec.Handled, func(h job.Handled) bool {
		return !slices.ContainsFunc(p.in.Requests, func(r job.Request) bool { return r.ID == h.ID })
	})
	p.out.Dirty = p.out.Dirty || len(w.rec.Handled) != before
}

// subject is a job or a node that a request is in effect on.
type subject struct {
	address string
	handled *job.Handled
	outcome func() (job.ReplyState, job.Reason) // with what an accepted one waits for
}

// subjectsOf lists what a request is in effect on.
func (p *pass) subjectsOf(r *job.Request) (all []subject) {
	for _, w := range p.inEffectOn(r.ID) {
		h := w.handled(r.ID)
		all = append(all, subject{"job." + w.name, h, func() (job.ReplyState, job.Reason) { return p.outcome(w, r, h) }})
	}
	for _, n := range p.nodesWith(r.ID) {
		all = append(all, subject{job.NodeAddress(n.Name), n.InEffect(r.ID), func() (job.ReplyState, job.Reason) { return p.nodeOutcome(n, r) }})
	}
	return all
}

// replyToRequests says what has become of the requests, as the records are now. A final reply stays, whatever comes later; it is given once all
// that the request is about have theirs.
func (p *pass) replyToRequests() {
	for i := range p.in.Requests {
		r := &p.in.Requests[i]
		if p.requests.deferred[r.ID] {
			continue
		}
		if why := p.requests.refused[r.ID]; !why.IsZero() {
			p.out.Dirty = true // stored under the lock first: a deposed leader refuses nothing
			p.out.Replies = append(p.out.Replies, job.Reply{ID: r.ID, State: job.Refused, Reason: why})
			continue
		}
		p.out.Replies = append(p.out.Replies, p.replyTo(r))
	}
}

func (p *pass) replyTo(r *job.Request) job.Reply {
	on := p.subjectsOf(r)
	if len(on) == 0 && !p.destroyedBy(r.ID) && !p.allDestroyed(r) { // their records were removed
		return job.Reply{ID: r.ID, State: job.Undone, Reason: job.Because(NothingThere, "address", r.Addresses()[0])}
	}
	reply, open := job.Reply{ID: r.ID, State: job.Done}, false
	for _, s := range on {
		h, waits := s.handled, job.Reason{}
		if !h.State.Final() {
			state, why := s.outcome()
			if waits = why; state.Final() {
				h.State, h.Reason, p.out.Dirty = state, why, true
				p.noteEnd(s.address, r, h)
			}
		}
		switch {
		case open:
		case !h.State.Final():
			reply, open = job.Reply{ID: r.ID, State: job.Accepted, Reason: waits}, true
		case h.State == job.Done:
			reply.Results = append(reply.Results, h.Results...)
		default:
			reply.State, reply.Reason = h.State, h.Reason
		}
	}
	return reply
}

// outcome is how far a request in effect has come on a job.
func (p *pass) outcome(w *work, r *job.Request, h *job.Handled) (state job.ReplyState, why job.Reason) {
	if state = job.Accepted; !h.Awaits {
		state, why = verbs[r.Verb].outcome(p, w, r, h)
	} else if why = p.in.Refused[r.ID]; !why.IsZero() {
		state = job.Undone
	}
	if state == job.Done && h.Act.Kind == "" && p.in.InFlight[w.rec.UID] {
		return job.Accepted, job.Reason{}
	}
	switch o, destroyed := p.out.Destroyed[w.name]; {
	case state != job.Accepted || w.declared || o.Request == r.ID || h.Act.Kind != "" && len(h.Slots) > 0: // agents may be about to act
	case destroyed:
		state, why = job.Undone, job.Because(RequestSuperseded, "request", o.Request)
	default:
		state, why = job.Undone, job.Because(NothingThere, "address", "job."+w.name)
	}
	switch state {
	case job.Accepted:
		why = p.waitsFor(w)
	case job.Undone: // it overrides nothing, also if its job is declared again
		w.rec.Overrides = slices.DeleteFunc(w.rec.Overrides, func(o job.Override) bool { return o.Request == r.ID })
	}
	return state, why
}

// waitsFor is what keeps a job from being as it is asked to be, if that may last; zero if nothing does.
func (p *pass) waitsFor(w *work) job.Reason {
	for i := range p.out.Waits {
		if wait := &p.out.Waits[i]; wait.Job == w.name && Waiting[wait.Reasons[0].Code] && wait.Reasons[0].Code != Overridden {
			return wait.Reasons[0]
		}
	}
	return job.Reason{}
}

// noteEnd notes what has become of a request.
func (p *pass) noteEnd(about string, r *job.Request, h *job.Handled) {
	code := map[job.ReplyState]job.Code{
		job.Done: RequestDone, job.Undone: RequestFailed, job.Refused: RequestRefused, job.Unknown: RequestUnknown,
	}[h.State]
	end := job.Because(code, "verb", string(r.Verb), "by", r.By, "request", r.ID)
	if !h.Reason.IsZero() {
		end = end.With(h.Reason)
	} else if len(h.Results) > 0 {
		end = end.With(h.Results...)
	}
	p.note(about, "request", end)
}
