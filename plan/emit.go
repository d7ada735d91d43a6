package plan

import (
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// exitGrace is how long the agent of a slot that succeeded may take to exit after its job has ended.
const exitGrace = 10 * time.Second

// emit writes the changes that lead from what is observed to what the records now say, at most one for each slot.
// It reads the records, not which step decided, so a pass after a crash emits the same changes. A restart in place is not
// repeated: the service has it in the record.
func (p *pass) emit(w *work) {
	p.emitJob(w)
	p.gate(w)
	fields := map[string][]job.FieldChange{}
	p.out.Changes = slices.Grow(p.out.Changes, w.scheduling())
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		switch {
		case w.outside(s.Address):
		case s.Phase == job.Canceling, s.Phase == job.Failed, s.Phase == job.Canceled:
			p.emitStop(w, s)
		case w.promisedTo(s) != "" && !w.launched(s) && len(w.running(s)) > 0:
			p.emitStop(w, s) // its next incarnation comes in a later plan: a slot has one change per plan
		case w.promisedTo(s) != "" && !w.launched(s):
			c := Change{Action: Create, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: w.on(s).promised, Wave: 1,
				Incarnation: s.Incarnation + 1, Reasons: w.on(s).reasons, Fields: w.fieldsOf(role, s, fields)}
			if s.Incarnation > 0 && w.comesBack(s) {
				c.Action, c.Fields = Replace, nil
			}
			p.out.Changes = append(p.out.Changes, c)
		case s.Phase == job.Pending:
			p.emitStop(w, s) // an incarnation that was given up and still runs at its previous place
		case s.Phase == job.Succeeded && w.declared && !w.rec.Phase.Ended():
			p.emitLeftovers(w, s)
		case s.Phase == job.Succeeded && len(w.running(s)) > 0:
			// Its agent exits by itself once its success was reported. If it does not, or its job is to go, it is stopped.
			if !w.declared || !p.pending(w.rec.Ended, exitGrace) {
				p.emitStop(w, s)
			}
		case s.Phase == job.Scheduling && s.Node != "" && role != nil && w.current(s) == nil && p.heldReason(w) == "":
			p.emitStart(w, s, role, w.fieldsOf(role, s, fields))
		case w.restarts(s):
			p.out.Changes = append(p.out.Changes, Change{Action: Restart, Job: w.name, UID: w.rec.UID, Slot: s.Address,
				Node: s.Node, Incarnation: s.Incarnation, Reasons: w.on(s).reasons})
		default:
			p.emitLeftovers(w, s)
			p.emitDrift(w, s, role)
		}
	}
}

// scheduling counts the slots that have a place and no agent yet: most of the changes of a job that starts.
func (w *work) scheduling() int {
	n := 0
	for _, s := range w.slots {
		if s.Phase == job.Scheduling {
			n++
		}
	}
	return n
}

// gate finds the roles whose launches wait for their gang: those that are part of it, until the first world has formed. Later
// launches must not wait for a gang that already runs.
func (p *pass) gate(w *work) {
	w.gated = map[string]bool{}
	if !p.schedules(w) || w.started() {
		return
	}
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		w.gated[r.Name] = w.gangOf(r) > 0
	}
}

// emitDrift repairs edits by others: the same incarnation is launched again. While the role's declaration differs from what the
// slot was started with, the slot's own settings are unknown; it is replaced anyway.
func (p *pass) emitDrift(w *work, s *job.Slot, role *job.Role) {
	inc := w.current(s)
	if role == nil || !startedPhase(s) || inc == nil || inc.State == job.Gone || len(inc.Drift) == 0 {
		return
	}
	if !w.active() || s.Fingerprint != w.fingerprint(role, s.Address.Index) {
		return
	}
	edits := make([]job.Reason, len(inc.Drift))
	for i, f := range inc.Drift {
		edits[i] = job.Because(EditedAttribute, "path", f.Path, "by", f.By)
	}
	p.out.Changes = append(p.out.Changes, Change{Action: Update, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: s.Node,
		Incarnation: s.Incarnation, Fields: inc.Drift, Launch: p.launch(w, s, role),
		Reasons: []job.Reason{job.Because(Edited).With(edits...)}})
}

// emitLeftovers stops older incarnations that still run in the slot.
func (p *pass) emitLeftovers(w *work, s *job.Slot) {
	stop := slices.DeleteFunc(w.running(s), func(n int) bool { return n >= s.Incarnation })
	if len(stop) == 0 {
		return
	}
	c := Change{Action: Delete, Job: w.name, UID: w.rec.UID, Slot: s.Address, Incarnation: slices.Max(stop), Stop: stop,
		Reasons: []job.Reason{job.Because(Superseded)}, Provider: w.shownBy(s)}
	if role := w.spec.Role(s.Address.Role); role != nil && !p.anyUnreachable(w, s) {
		c.Grace = role.StopGrace
	}
	p.out.Changes = append(p.out.Changes, c)
}

// emitStop stops what runs in a slot. It is a replacement if the slot has a place to return to.
func (p *pass) emitStop(w *work, s *job.Slot) {
	stop := w.running(s)
	if len(stop) == 0 {
		return
	}
	if s.Phase == job.Pending && s.Recover && !s.Stopped { // lost, and still to be stopped: a change of this plan does that
		s.Stopped, p.out.Dirty = true, true
	}
	c := Change{Action: Delete, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: w.runsOn(s),
		Incarnation: s.Incarnation, Stop: stop, Reasons: w.on(s).reasons, Wave: w.stopWave(s), Provider: w.shownBy(s)}
	switch {
	case c.Reasons == nil:
		c.Reasons = []job.Reason{p.whyStopping(w, s)}
	case s.Phase == job.Canceling && (s.Why == nil || !s.Why.Equal(c.Reasons[0])):
		s.Why = &c.Reasons[0]
		p.out.Dirty = true
	}
	if role := w.spec.Role(s.Address.Role); role != nil {
		if s.Phase == job.Canceling && w.killed() {
			c.Force, c.Wave = true, 0
		}
		if s.Phase == job.Canceling && !c.Force && !p.anyUnreachable(w, s) {
			c.Grace = role.StopGrace // incarnations given up before are fenced: they get none
		}
		switch node, comes := w.comesTo(s, role); {
		case comes && w.declared:
			c.Action, c.Node, c.Fields = Replace, node, w.differs[role.Name]
		case s.Return && w.declared && !w.succeeded(role.Name):
			c.Reasons = append(c.Reasons, job.Because(NoRoomToReturn))
		}
	}
	p.out.Changes = append(p.out.Changes, c)
}

// whyStopping is the reason of a stop that an earlier pass decided.
func (p *pass) whyStopping(w *work, s *job.Slot) job.Reason {
	if why := p.drained(w, s.Avoid.Last()); s.Return && !why.IsZero() {
		return why
	}
	node, nodes := w.runsOn(s), p.nodesOf(w.shownBy(s))
	if !p.schedules(w) && node != "" && nodes != nil && nodes[node] == nil {
		return p.why(NodeGone, "node", node)
	}
	switch {
	case s.Why != nil:
		return *s.Why
	case s.Phase == job.Succeeded && !w.declared:
		return p.whyRemoved(w)
	case s.Phase == job.Succeeded:
		return job.Because(AgentOutlivesJob)
	case s.Phase == job.Canceled:
		return job.Because(StoppedBefore)
	case s.Phase == job.Canceling: // written by a version that did not record the reason
		return job.Because(EarlierDecision)
	}
	return p.why(lost(s))
}

// comesTo reports whether a slot that still has something to stop has a place for its next incarnation, and where: "" if it is
// found only once the slots replaced with it have stopped.
func (w *work) comesTo(s *job.Slot, role *job.Role) (node string, comes bool) {
	switch {
	case w.promisedTo(s) != "":
		return w.promisedTo(s), true
	case !s.Return || unplaced(s):
		return "", false
	case s.Fingerprint != w.fingerprint(role, s.Address.Index) && !role.Resources.Fits(s.Reserved):
		return "", true // it keeps its first reservation until renew releases it
	}
	return s.Node, true
}

// runsOn is the slot's node, or else the node of what still runs in it.
func (w *work) runsOn(s *job.Slot) string {
	node := s.Node
	for _, inc := range w.seen[s.Address] {
		if node == "" && inc.State != job.Gone {
			node = inc.Node
		}
	}
	return node
}

// shownBy is the provider of what runs in the slot: not the declared one if that was edited.
func (w *work) shownBy(s *job.Slot) string {
	for _, inc := range w.seen[s.Address] {
		if inc.State != job.Gone && inc.Provider != "" {
			return inc.Provider
		}
	}
	return w.spec.Provider
}

func (p *pass) emitStart(w *work, s *job.Slot, role *job.Role, fields []job.FieldChange) {
	c := Change{Action: Create, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: s.Node, Incarnation: s.Incarnation,
		Stop: w.running(s), Reasons: w.on(s).reasons, Fields: fields, Wave: w.startWave(role)}
	if s.Incarnation > 1 && w.comesBack(s) {
		c.Action, c.Fields = Replace, w.differs[role.Name]
	}
	if s.Incarnation > 1 && s.Recover && c.Reasons == nil {
		why := p.drained(w, s.Avoid.Last())
		switch {
		case w.movedElsewhere(s):
			why = job.Because(ReplaceRequested)
		case why.IsZero():
			why = p.why(lost(s))
		}
		c.Reasons = []job.Reason{why}
	}
	if p.schedules(w) && w.leaving(s) {
		c.Grace = role.StopGrace // it was asked to stop, and is saving what it can
	}
	c.Launch = p.launch(w, s, role)
	p.out.Changes = append(p.out.Changes, c)
}

// comesBack reports whether the slot's next incarnation replaces a lost one. A stopped incarnation was already counted, unless
// there is room before it has exited.
func (w *work) comesBack(s *job.Slot) bool {
	return s.Recover && (!s.Stopped || len(w.running(s)) > 0)
}

// launch is what the slot's incarnation is started from.
func (p *pass) launch(w *work, s *job.Slot, role *job.Role) *job.Launch {
	l := &job.Launch{
		UID: w.rec.UID, Slot: s.Address, Incarnation: s.Incarnation, Node: s.Node, Program: role.For(s.Address.Index),
		Processes: role.Processes, Ranked: role.Ranked, Reserved: s.Reserved, StopGrace: role.StopGrace,
		MaxRestarts: w.spec.Heal.Budget.Restarts, Checkpoint: w.spec.Checkpoint, Accelerators: role.Accelerators,
		Fingerprint: s.Fingerprint, Source: p.shipped(w, role), Pod: role.Pod, Held: w.gated[role.Name], Avoid: s.Avoid.After(p.space(w.spec.Provider).last),
	}
	return l
}

// fieldsOf are the attributes of a created slot. Slots of a role whose program does not depend on the slot share one list.
func (w *work) fieldsOf(role *job.Role, s *job.Slot, shared map[string][]job.FieldChange) []job.FieldChange {
	if role == nil {
		return nil
	}
	if role.PerSlot == nil {
		if _, made := shared[role.Name]; !made {
			shared[role.Name] = job.Diff(job.Role{}, *role)
		}
		return shared[role.Name]
	}
	one := *role
	one.Program = role.For(s.Address.Index)
	return job.Diff(job.Role{}, one)
}

// runs reports whether any slot of the job runs, or is to.
func (w *work) runs() bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase.Live() || len(w.running(s)) > 0 })
}

// strays removes what belongs to no job: incarnations of an earlier job of a name, and what is left of removed jobs.
func (p *pass) strays() {
	alive := map[string]bool{}
	first := map[string]*job.Incarnation{} // by UID
	var order []string
	for i := range p.unseen {
		inc := &p.unseen[i]
		if !p.ours(inc) || p.elsewhere[inc.Slot.Job] || p.spared(inc.Slot.Job) || p.isReleased(inc.UID) {
			continue
		}
		unknown := p.byName[inc.Slot.Job] == nil
		if unknown && (p.in.Keep || p.importMissing || p.in.Capabilities[inc.Provider].Shared) {
			continue // belongs to an undeclared job, or to somebody else
		}
		if first[inc.UID] == nil {
			order = append(order, inc.UID)
			first[inc.UID] = inc
		}
		if inc.State == job.Gone {
			continue
		}
		alive[inc.UID] = true
		p.out.Changes = append(p.out.Changes, Change{Action: Delete, Job: inc.Slot.Job, UID: inc.UID, Slot: inc.Slot,
			Provider: inc.Provider, Node: inc.Node, Incarnation: inc.Number, Stop: []int{inc.Number}, Reasons: []job.Reason{job.Because(Stray)}})
	}
	for _, w := range p.jobs {
		if !w.declared && !w.runs() && !slices.ContainsFunc(w.rec.Handled, func(h job.Handled) bool { return p.asks(h.ID) }) {
			w.gone = true
			p.out.Dirty = true
			if !p.in.Forgotten[w.rec.UID] {
				p.out.Changes = append(p.out.Changes, Change{Action: Delete, Job: w.name, UID: w.rec.UID, Provider: w.rec.Spec.Provider, Reasons: []job.Reason{job.Because(NothingRuns)}})
			}
		}
	}
	for _, uid := range order {
		if !alive[uid] {
			p.out.Changes = append(p.out.Changes, Change{Action: Delete, Job: first[uid].Slot.Job, UID: uid, Provider: first[uid].Provider, Reasons: []job.Reason{job.Because(Remains)}})
		}
	}
}
