package plan

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// settle ends a job whose work is done, and stops what is left of a job that ended.
func (p *pass) settle(w *work) {
	if w.active() {
		p.closeRoles(w)
	}
	if w.active() && w.done() {
		p.close(w, job.JobSucceeded, job.Reason{})
		p.note("job."+w.name, "job_phase", entered(job.JobSucceeded))
	}
	if w.active() && w.broken() {
		p.failJob(w, job.Because(SlotFailed))
	}
	if w.active() {
		p.stopWhenReached(w)
	}
	if w.rec.Phase.Ended() {
		p.end(w, job.Because(JobEnded, "phase", string(w.rec.Phase)))
	}
}

// close ends the job, for a reason unless it succeeded. What operators put in place of its declaration ends with it.
func (p *pass) close(w *work, as job.JobPhase, why job.Reason) {
	w.rec.Phase, w.rec.Ended, w.rec.Verdict, w.rec.Overrides = as, p.in.Now, why, nil
	p.out.Dirty = true
}

// closeRoles gives up slots that have not begun to train in a role with a slot that succeeded: no more starts in it.
func (p *pass) closeRoles(w *work) {
	if len(w.finished) == 0 {
		return
	}
	for _, s := range w.slots {
		if !w.succeeded(s.Address.Role) || w.aboutToRun(s) || w.outside(s.Address) {
			continue
		}
		switch {
		case s.Phase == job.Registered && p.generationOf(w, s) > 0:
			// It was training in the world that broke, and there will be no other.
			p.step(s, job.Fault)
			p.failJob(w, job.Because(WorldBrokeTooLate, "slot", s.Address.Short()))
		case s.Phase == job.Pending && s.Recover, s.Phase == job.Scheduling, s.Phase == job.Registered:
			w.because(s, job.Because(RoleSucceeded))
			p.cancel(w, s)
		}
	}
}

// aboutToRun reports whether the slot's incarnation is in the world that trains but has not been observed running.
func (w *work) aboutToRun(s *job.Slot) bool {
	m, in := w.member(s.Address)
	return in && m.Incarnation == s.Incarnation && s.Phase == job.Registered && !w.world.Broken
}

// done reports whether all required slots have succeeded: the ranked ones, or all if none is ranked.
func (w *work) done() bool {
	ranked := w.ranked()
	any := false
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if role == nil || ranked && !role.Ranked || !holds(s) {
			continue
		}
		if s.Phase != job.Succeeded {
			return false
		}
		any = true
	}
	return any
}

// broken reports whether a slot failed permanently.
func (w *work) broken() bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Failed })
}

// end stops all live slots.
func (p *pass) end(w *work, why job.Reason) {
	w.ending = true
	for _, s := range w.slots {
		if !s.Phase.Live() {
			continue
		}
		w.because(s, why)
		p.cancel(w, s)
	}
}

// cancel begins to stop a slot permanently. If nothing of it runs, it is stopped at once.
func (p *pass) cancel(w *work, s *job.Slot) {
	if w.outside(s.Address) {
		return
	}
	if w.total = nil; counts(s) {
		defer func(was job.Resources) {
			if !counts(s) {
				p.holdings.add(was, -1)
			}
		}(s.Reserved)
	}
	s.Avoid = nil
	if startedPhase(s) {
		s.Unbound = p.schedules(w) && w.launched(s) && !w.bound(s)
	}
	if s.Phase == job.Pending {
		p.step(s, job.Stopped)
		s.Recover = false
		return
	}
	if s.Phase != job.Canceling && !p.step(s, job.Cancel) {
		return
	}
	if s.Return || s.Recover {
		s.Return, s.Recover = false, false
		p.out.Dirty = true
	}
	if len(w.running(s)) == 0 && p.step(s, job.Stopped) {
		s.Node = ""
	}
}

// remove stops what is no longer declared: the job, a role, or slots above a role's max.
func (p *pass) remove(w *work) {
	if !w.declared {
		p.end(w, p.whyRemoved(w))
		return
	}
	if p.in.Destroy && w.part != nil && w.part.severable(w.spec) {
		for _, s := range w.slots {
			if s.Phase.Live() {
				w.because(s, job.Because(DestroyRequested))
				p.cancel(w, s)
			}
		}
	}
	if w.suspended() {
		p.end(w, w.whySuspended())
	}
	if w.ending {
		return
	}
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if s.Phase == job.Canceling && !s.Return || !s.Phase.Live() {
			continue
		}
		if role == nil {
			w.because(s, p.why(RoleNotDeclared, "role", s.Address.Role))
			p.cancel(w, s)
			continue
		}
		if _, most := role.Bounds(); s.Address.Index >= most {
			w.because(s, p.why(AboveMost, "most", strconv.Itoa(most)))
			p.cancel(w, s)
		}
	}
}

// whyRemoved is why a job that is not declared is removed.
func (p *pass) whyRemoved(w *work) job.Reason {
	if o, destroyed := p.out.Destroyed[w.name]; destroyed {
		return job.Because(DestroyAsked, "by", o.By, "why", o.Why)
	}
	if p.in.Destroy {
		return job.Because(DestroyRequested)
	}
	return job.Because(NotDeclared)
}

// revise applies edits: in place where they concern no process, else by replacing slots.
func (p *pass) revise(w *work) {
	if !w.declared {
		return
	}
	if w.rec.Spec.Address != w.spec.Address {
		w.rec.Spec.Address = w.spec.Address
		p.out.Dirty = true
	}
	if w.rec.Phase.Ended() {
		return
	}
	diff := job.Diff(w.rec.Spec, *w.spec)
	if len(diff) > 0 || !samePrograms(w.rec.Spec.Roles, w.spec.Roles) || !sameFollows(w.rec.Spec.Roles, w.spec.Roles) {
		if w.rec.Spec.Provider != w.spec.Provider {
			w.rec.Site = "" // the new provider has its own site
		}
		w.rec.Spec = *w.spec
		p.out.Dirty = true
		for _, c := range diff {
			if w.onlyInitialSize(c) {
				continue
			}
			if c.Change == job.Update {
				w.changed = append(w.changed, c)
			} else {
				w.differ(c)
			}
		}
	}
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		if w.outside(s.Address) {
			continue
		}
		if role != nil && startedPhase(s) && len(w.running(s)) > 0 && !w.finished[role.Name] && p.askedFor(w, s) {
			w.outdated = append(w.outdated, s)
			continue
		}
		awaited := s.Phase == job.Pending && s.Recover
		if role == nil || !startedPhase(s) && !awaited || s.Fingerprint == "" {
			continue
		}
		if want := w.fingerprint(role, s.Address.Index); s.Fingerprint != want {
			p.renew(w, s, role, want)
		}
	}
}

// differ records an edit that replaces slots: of the role that it concerns, or of all roles.
func (w *work) differ(c job.FieldChange) {
	if w.differs == nil {
		w.differs = map[string][]job.FieldChange{}
	}
	for i := range w.spec.Roles {
		role := w.spec.Roles[i].Name
		if !strings.HasPrefix(c.Path, "role.") || strings.HasPrefix(c.Path, "role."+role+".") {
			w.differs[role] = append(w.differs[role], c)
		}
	}
}

// samePrograms reports whether no slot's own program was edited: Diff compares only what all slots of a role share.
func samePrograms(a, b []job.Role) bool {
	return slices.EqualFunc(a, b, func(x, y job.Role) bool {
		if len(x.PerSlot) > 0 && len(x.PerSlot) == len(y.PerSlot) && &x.PerSlot[0] == &y.PerSlot[0] {
			return true
		}
		return slices.EqualFunc(x.PerSlot, y.PerSlot, func(p, q job.Program) bool { return reflect.DeepEqual(p, q) })
	})
}

// startedPhase reports whether the slot has an incarnation that an edit can affect.
func startedPhase(s *job.Slot) bool {
	switch s.Phase {
	case job.Scheduling, job.Registered, job.Running, job.Suspect:
		return true
	}
	return false
}

// shipped is the digest of a role's source files that its slots get; "" if they read them where they are, or have none.
func (p *pass) shipped(w *work, role *job.Role) string {
	if len(role.Source) == 0 || !p.in.Capabilities[cmp.Or(w.spec.Provider, w.rec.Spec.Provider)].Ships {
		return ""
	}
	digest, known := w.sources[role]
	if !known {
		digest = role.Source.Digest()
		if w.sources == nil {
			w.sources = map[*job.Role]string{}
		}
		w.sources[role] = digest
	}
	return digest
}

// fingerprint is the fingerprint that the slot should have.
func (w *work) fingerprint(role *job.Role, index int) string {
	f := w.fingerprints[role.Name]
	if f == nil {
		f = job.Fingerprints(w.spec, role)
		w.fingerprints[role.Name] = f
	}
	return f(index)
}

// renew applies an edit to one slot. Running slots are replaced later, all of a job together and only if they fit (see
// replaceAll); a slot that never ran is updated directly.
func (p *pass) renew(w *work, s *job.Slot, role *job.Role, fingerprint string) {
	if w.finished[role.Name] {
		return // no more starts in it
	}
	if s.Phase != job.Pending && len(w.running(s)) > 0 {
		w.outdated = append(w.outdated, s)
		return
	}
	p.out.Dirty = true
	s.Fingerprint = fingerprint
	w.because(s, job.Because(DeclarationChanged))
	if s.Phase == job.Scheduling && !w.on(s).unlaunched {
		s.Incarnation++ // its launch may be under way: a number identifies one start
	}
	if !role.Resources.Fits(s.Reserved) && s.Node != "" {
		w.on(s).prefer = s.Node
		s.Node, s.Recover = "", true
	}
	s.Reserved = role.Resources
}

// roll keeps, of the slots to be replaced, those whose turn it is. A world needs all of a ranked role, so they are replaced together; of
// an unranked role, only as many run no more as may be down at a time. What is down already, or was named, does not wait.
func (p *pass) roll(w *work) {
	for i := range w.spec.Roles {
		role := &w.spec.Roles[i]
		if role.Ranked {
			continue
		}
		waits := func(s *job.Slot) bool {
			return s.Address.Role == role.Name && w.up(s) && !p.askedFor(w, s)
		}
		if !slices.ContainsFunc(w.outdated, waits) {
			continue
		}
		free := role.Together()
		for _, s := range w.index[role.Name] {
			if holds(s) && !w.up(s) || s.Phase != job.Succeeded && w.up(s) && p.askedFor(w, s) {
				free--
			}
		}
		later := 0
		w.outdated = slices.DeleteFunc(w.outdated, func(s *job.Slot) bool {
			if !waits(s) {
				return false
			}
			if free > 0 {
				free--
				return false
			}
			later++
			return true
		})
		if later > 0 {
			p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role.Name, Passing: true,
				Reasons: []job.Reason{job.Because(RollingUpdate, "count", strconv.Itoa(later), "most", strconv.Itoa(role.Together()))}})
		}
	}
}

// replaceAll starts the replacement of slots whose declaration changed, if the new ones fit where the old ones are or
// elsewhere. Otherwise the old ones keep running, and a Wait says so.
func (p *pass) replaceAll(w *work) {
	if !w.withinReplaced() {
		p.addWait(w, "", job.Because(AboveLimits).With(p.space(w.spec.Provider).wanted(w.asReplaced())...))
		return
	}
	if !p.allowsReplaced(w) {
		p.addWait(w, "", job.Because(AboveDirectoryLimits).With(p.space(w.spec.Provider).wanted(w.asReplaced())...))
		return
	}
	p.roll(w)
	if len(w.outdated) == 0 {
		return
	}
	sp := p.space(w.spec.Provider)
	for _, s := range w.outdated {
		sp.release(s)
	}
	t := &txn{sp: sp}
	fits := true
	for _, s := range w.outdated {
		fits = fits && t.put(s, w.replacedSize(s), s.Node, nil, true)
	}
	found := t.taken
	t.undo()
	for _, s := range w.outdated {
		sp.holdSlot(s, false)
	}
	if !fits {
		p.addWait(w, "", job.Because(ReplacementTooLarge))
		return
	}
	w.total = nil
	for _, x := range found {
		why := DeclarationChanged
		if x.slot.Fingerprint == w.fingerprint(w.spec.Role(x.slot.Address.Role), x.slot.Address.Index) {
			why = ReplaceRequested
		}
		w.because(x.slot, job.Because(why))
		x.slot.Return = true
		p.step(x.slot, job.Cancel)
		p.moveTo(sp, w, x)
	}
	p.holdings = holdings{} // they reserve something else now
}

// replacedSize is what a slot that is to be replaced reserves then.
func (w *work) replacedSize(s *job.Slot) job.Resources {
	role := w.spec.Role(s.Address.Role)
	if s.Fingerprint == w.fingerprint(role, s.Address.Index) {
		return s.Reserved // replacement was requested; its reservation may have been enlarged
	}
	return role.Resources
}

// asReplaced are the outdated slots as they are once they are replaced.
func (w *work) asReplaced() (slots []*job.Slot) {
	for _, s := range w.outdated {
		next := *s
		next.Reserved = w.replacedSize(s)
		slots = append(slots, &next)
	}
	return slots
}

// withinReplaced reports whether the job can stay within its limits once its outdated slots are replaced: elastic roles may shrink for
// that. A declaration as a whole can, but not always a part of it beside what was applied before.
func (w *work) withinReplaced() bool {
	if w.spec.Limits == nil || len(w.outdated) == 0 {
		return true
	}
	spare := map[string]int{} // slots that a role may give up
	for _, v := range w.elastic() {
		spare[v.role.Name] = max(0, len(v.held)-v.sizes.Least())
	}
	var total job.Resources
	for _, s := range slices.Backward(w.slots) {
		switch {
		case !holds(s) || !s.Phase.Live():
		case spare[s.Address.Role] > 0:
			spare[s.Address.Role]--
		case slices.Contains(w.outdated, s):
			total = total.Add(w.replacedSize(s))
		default:
			total = total.Add(s.Reserved)
		}
	}
	return total.Within(w.spec.Limits)
}

// moveTo reserves the place that was found for a slot that is being replaced. If other slots that are being replaced still use
// it, the slot keeps its place until they have stopped, and is placed then.
func (p *pass) moveTo(sp *space, w *work, x placement) {
	s := x.slot
	sp.release(s)
	if x.amount.fits(x.at.free) {
		s.Node, s.Reserved = x.at.node.Name, x.size
	}
	sp.holdSlot(s, false)
	for _, inc := range w.seen[s.Address] { // what still runs holds its own resources until it has exited
		p.measureRunning(sp, s, inc)
	}
}
