package plan

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// Acts are what agents do once for a request: send a signal, ask for a checkpoint, look for one. The record of the request has the act and the
// incarnations that have not reported its outcome, so it is stored before any agent learns of it. A later leader tells the same agents the same
// ID, which they do not do again. What is unknown in the end is only what an agent took with it.

// mostActs bounds what a job's members are told at once: their reports have to fit into a request. The others follow.
const mostActs = 16

// actOf is the act that a verb begins with; zero if it needs none.
func actOf(r *job.Request, spec *job.Job) job.Act {
	switch r.Verb {
	case job.AskSignal:
		return job.Act{ID: r.ID, Kind: job.ActSignal, Value: r.Value}
	case job.AskCheckpoint:
		return job.Act{ID: r.ID, Kind: job.ActCheckpoint}
	case job.AskRestart: // of what is in no world
		return job.Act{ID: r.ID, Kind: job.ActRestart}
	case job.AskReload:
		if spec.Checkpoint != nil && spec.Checkpoint.Dir != "" {
			return job.Act{ID: r.ID, Kind: job.ActFind, Value: r.Value}
		}
	}
	return job.Act{}
}

var signalName = regexp.MustCompile(`^SIG[A-Z0-9]+$`)

// validValue reports whether a request has the value that its verb takes.
func validValue(r *job.Request) bool {
	switch r.Verb {
	case job.AskSignal:
		return signalName.MatchString(r.Value)
	case job.AskReload:
		step, err := strconv.ParseInt(r.Value, 10, 64)
		return r.Value == "" || err == nil && step > 0
	}
	return true
}

// checkAct is why an act cannot be begun; zero if it can.
func checkAct(p *pass, r *job.Request, i int) job.Reason {
	sel := r.On[i]
	old := p.in.Records[sel.Job]
	if !validValue(r) {
		return job.Because(ValueInvalid, "verb", string(r.Verb), "value", r.Value)
	}
	if old == nil {
		return job.Because(NotTraining, "address", sel.String())
	}
	world, c := old.World, old.Spec.Checkpoint
	if seen, ok := p.in.Snapshot.Worlds[sel.Job]; ok && seen.Generation >= world.Generation {
		world = seen
	}
	switch {
	case r.Verb != job.AskSignal && r.Verb != job.AskRestart && !concernsWorld(&sel, &old.Spec):
		return job.Because(NoRankedRole, "address", sel.String())
	case r.Verb == job.AskCheckpoint && (c == nil || c.Signal == "" || c.Dir == "" && c.Pattern == ""):
		return job.Because(CheckpointUndeclared, "job", sel.Job)
	case r.Verb == job.AskReload && r.Value != "" && (c == nil || c.Dir == ""):
		return job.Because(CheckpointDirUndeclared, "job", sel.Job)
	}
	asked, found := map[job.Address]int{}, false
	kind := actOf(r, &old.Spec).Kind
	for i := range old.Slots {
		s := &old.Slots[i]
		ranked := inWorld(&old.Spec, s)
		if !sel.Matches(s.Address) || !takesPart(r, s, ranked, &world) {
			continue
		}
		found = true
		if kind != "" && (kind != job.ActRestart || !ranked) {
			asked[s.Address] = s.Incarnation
		}
	}
	switch {
	case !found && r.Verb != job.AskSignal && startsWorld(old, &sel):
		return job.Because(WorldForming, "address", sel.String())
	case !found:
		return job.Because(NotTraining, "address", sel.String())
	}
	for inc := range p.in.Snapshot.Incarnations.All() {
		if n, is := asked[inc.Slot]; is && n == inc.Number && inc.Member != nil && !inc.Member.Expired && !slices.Contains(inc.Member.Can, kind) {
			return job.Because(AgentCannot, "slot", inc.Slot.Short(), "verb", string(r.Verb))
		}
	}
	return job.Reason{}
}

// startsWorld reports whether slots that a selector matches are on their way into a world, or were in one that has ended.
func startsWorld(rec *job.Record, sel *job.Selector) bool {
	return slices.ContainsFunc(rec.Slots, func(s job.Slot) bool {
		return sel.Matches(s.Address) && inWorld(&rec.Spec, &s) && s.Phase.Live() && s.Phase != job.Pending && s.Phase != job.Succeeded
	})
}

// concernsWorld reports whether a selector matches slots of ranked roles.
func concernsWorld(sel *job.Selector, spec *job.Job) bool {
	return slices.ContainsFunc(spec.Roles, func(r job.Role) bool { return r.Ranked && (sel.Role == "" || sel.Role == r.Name) })
}

// inWorld reports whether a slot's role is ranked.
func inWorld(spec *job.Job, s *job.Slot) bool {
	r := spec.Role(s.Address.Role)
	return r != nil && r.Ranked
}

// takesPart reports whether a slot's processes are asked: for a signal those that run, else the members of the world that trains, as before a
// planned stop. To be restarted, also those outside of it.
func takesPart(r *job.Request, s *job.Slot, ranked bool, world *job.World) bool {
	switch {
	case s.Phase != job.Running && s.Phase != job.Suspect:
		return false
	case r.Verb == job.AskSignal:
		return true
	case !ranked:
		return r.Verb == job.AskRestart
	}
	return !world.Broken && slices.ContainsFunc(world.Members, func(m job.WorldMember) bool {
		return m.Slot == s.Address && m.Incarnation == s.Incarnation
	})
}

// beginAct notes the act and whom it is told to.
func beginAct(p *pass, w *work, r *job.Request, h *job.Handled) {
	h.Act, h.Slots = actOf(r, w.spec), map[string]int{}
	for _, s := range w.slots {
		if takesPart(r, s, inWorld(w.spec, s), &w.world) && matches(r, s) {
			h.Slots[s.Address.Short()] = s.Incarnation
		}
	}
	if r.Verb == job.AskReload && h.Act.Kind == "" && len(h.Slots) > 0 { // nobody can look: the script knows its checkpoints
		h.Slots = nil
		w.reload(h)
	}
}

// reload ends the job's world once.
func (w *work) reload(h *job.Handled) {
	step, _ := strconv.ParseInt(h.Act.Value, 10, 64) // validValue; "" is 0
	w.rec.Reload = job.Reload{Request: h.ID, Through: w.world.Generation, Step: step}
	h.Reload = w.rec.Reload
}

// restartInPlace has the processes of slots end, with a checkpoint before, and start again in the same incarnations. A world ends as a
// whole, once; agents outside of it are told each for itself.
func (w *work) restartInPlace(r *job.Request, h *job.Handled) {
	h.Slots = map[string]int{}
	for _, s := range w.slots {
		if !inWorld(w.spec, s) && takesPart(r, s, false, &w.world) && matches(r, s) {
			h.Slots[s.Address.Short()] = s.Incarnation
		}
	}
	if len(h.Slots) > 0 {
		h.Act = actOf(r, w.spec)
	}
	if w.restartsWorld(r) {
		w.restartWorld(h)
	}
}

// restartsWorld reports whether a request to restart slots in place names slots in the job's world.
func (w *work) restartsWorld(r *job.Request) bool {
	return slices.ContainsFunc(r.On, func(sel job.Selector) bool { return sel.Job == w.name && concernsWorld(&sel, w.spec) })
}

// matches reports whether a request names a slot. One to apply names the slots that it restarts besides.
func matches(r *job.Request, s *job.Slot) bool {
	return slices.ContainsFunc(r.On, func(sel job.Selector) bool {
		return sel.Matches(s.Address) && (sel.Role != "" || r.Verb != job.AskApply)
	})
}

// restartWorld ends the job's world once, with a checkpoint before. One that resumed from a step that an operator has chosen, and has written
// no checkpoint since, does so again.
func (w *work) restartWorld(h *job.Handled) {
	step := w.rec.Reload.Step
	w.rec.Reload = job.Reload{Request: h.ID, Through: w.world.Generation, Step: step, Save: step == 0}
	h.Reload = w.rec.Reload
}

// collectActs takes the outcomes of acts from the agents' reports.
func (p *pass) collectActs(w *work) {
	if w.frozen {
		return
	}
	for i := range w.rec.Handled {
		h := &w.rec.Handled[i]
		if h.State.Final() || h.Act.Kind == "" || len(h.Slots) == 0 {
			continue
		}
		slots, failed := maps.Clone(h.Slots), maps.Clone(h.Failed)
		for short, n := range h.Slots {
			result, known := w.resultOf(h.Act, short, n)
			if !known {
				continue
			}
			delete(slots, short)
			switch {
			case h.Act.Kind == job.ActRestart && result.State != job.ActUnsupported: // whatever ended the processes
				continue
			case result.State == job.ActDone:
				noteCheckpoint(h, w.name, result)
				continue
			}
			if failed == nil {
				failed = map[string]job.Reason{}
			}
			failed[short] = whyNotDone(h.Act, short, result)
		}
		if len(slots) == len(h.Slots) {
			continue
		}
		h.Slots, h.Failed, p.out.Dirty = slots, failed, true
		if len(slots) == 0 && h.Act.Kind == job.ActFind && len(h.Results) > 0 && !w.rec.Phase.Ended() {
			w.reload(h)
		}
	}
	p.endReload(w)
}

// resultOf is the outcome of an act at one incarnation, if it is known or can never be.
func (w *work) resultOf(act job.Act, short string, number int) (job.ActResult, bool) {
	addr, err := job.ParseShort(w.name, short)
	if err != nil {
		return job.ActResult{State: job.ActUnknown}, true
	}
	seen := w.seen[addr]
	i := slices.IndexFunc(seen, func(inc *job.Incarnation) bool { return inc.Number == number })
	if i < 0 {
		return job.ActResult{State: job.ActUnknown}, true
	}
	inc := seen[i]
	if m := inc.Member; m != nil {
		if at := slices.IndexFunc(m.Acts, func(r job.ActResult) bool { return r.ID == act.ID }); at >= 0 {
			return m.Acts[at], true
		}
		if !slices.Contains(m.Can, act.Kind) && !m.Expired {
			return job.ActResult{State: job.ActUnsupported}, true
		}
	}
	over := inc.State == job.Gone || inc.Member != nil && inc.Member.Expired
	return job.ActResult{State: job.ActUnknown}, over
}

// noteCheckpoint notes the checkpoint that an agent has found or seen written. Of several, the one of the greatest step counts.
func noteCheckpoint(h *job.Handled, name string, r job.ActResult) {
	if h.Act.Kind == job.ActSignal {
		return
	}
	if len(h.Results) > 0 {
		before, _ := strconv.ParseInt(h.Results[0].Args["step"], 10, 64) // "" is 0: unknown
		path := h.Results[0].Args["path"]
		if before > r.Step || before == r.Step && (r.Path == "" || path != "" && path <= r.Path) {
			return
		}
	}
	args := []string{"job", name}
	if r.Step > 0 {
		args = append(args, "step", strconv.FormatInt(r.Step, 10))
	}
	if r.Path != "" {
		args = append(args, "path", r.Path)
	}
	code := CheckpointWritten
	if h.Act.Kind == job.ActFind {
		code = ResumedFrom
	}
	h.Results = []job.Reason{job.Because(code, args...)}
}

// whyNotDone is why a slot did not do an act.
func whyNotDone(act job.Act, slot string, result job.ActResult) job.Reason {
	switch state := result.State; {
	case state == job.ActNoProcess:
		return job.Because(ProcessesEnded, "slot", slot)
	case state == job.ActUnsupported:
		return job.Because(AgentCannot, "slot", slot, "verb", string(act.Kind))
	case state == job.ActTorn:
		why := Torn(&job.FoundCheckpoint{Path: result.Path, Step: result.Step, Flaw: result.Flaw})
		why.Args["slot"] = slot
		return why
	case state == job.ActAbsent && act.Kind == job.ActFind && act.Value != "":
		var there []string
		for _, step := range result.Steps {
			if step > 0 {
				there = append(there, strconv.FormatInt(step, 10))
			}
		}
		return job.Because(CheckpointMissing, "slot", slot, "step", act.Value, "there", strings.Join(there, ", "))
	case state == job.ActAbsent && act.Kind == job.ActFind:
		return job.Because(CheckpointMissing, "slot", slot)
	case state == job.ActAbsent:
		return job.Because(CheckpointLate, "slot", slot)
	}
	return job.Because(OutcomeUnknown, "slot", slot)
}

// Torn says why a checkpoint is not whole.
func Torn(c *job.FoundCheckpoint) job.Reason {
	args := []string{"path", c.Path, "flaw", string(c.Flaw.Code)}
	if c.Step > 0 {
		args = append(args, "step", strconv.FormatInt(c.Step, 10))
	}
	if c.Flaw.File != "" {
		args = append(args, "file", c.Flaw.File)
	}
	return job.Because(CheckpointTorn, args...)
}

// firstFailed is the first slot's reason among those with one of some codes, or with any other than them.
func firstFailed(h *job.Handled, among bool, codes ...job.Code) (job.Reason, bool) {
	for _, slot := range slices.Sorted(maps.Keys(h.Failed)) {
		if r := h.Failed[slot]; slices.Contains(codes, r.Code) == among {
			return r, true
		}
	}
	return job.Reason{}, false
}

// signalOutcome is done once every agent has sent the signal.
func signalOutcome(_ *pass, w *work, _ *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	if len(h.Slots) > 0 {
		return job.Accepted, job.Reason{}
	}
	if why, lost := firstFailed(h, true, OutcomeUnknown); lost {
		return job.Unknown, why
	}
	if why, failed := firstFailed(h, false); failed {
		return job.Undone, why
	}
	return job.Done, job.Reason{}
}

// checkpointOutcome is done once every member has seen a whole new checkpoint, or has waited for one in vain while others have: not every
// node sees the directory.
func checkpointOutcome(_ *pass, w *work, _ *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	if len(h.Slots) > 0 {
		return job.Accepted, job.Reason{}
	}
	if why, ended := firstFailed(h, false, CheckpointLate); ended {
		return job.Undone, why
	}
	if why, late := firstFailed(h, true, CheckpointLate); late && len(h.Results) == 0 {
		return job.Undone, why
	}
	return job.Done, job.Reason{}
}

// reloadOutcome is done once the next world trains.
func reloadOutcome(_ *pass, w *work, _ *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	switch {
	case len(h.Slots) > 0:
		return job.Accepted, job.Reason{}
	case h.Act.Kind == job.ActFind && len(h.Results) == 0:
		why, torn := firstFailed(h, true, CheckpointTorn) // it says more than that others have none
		if !torn {
			why, _ = firstFailed(h, false)
		}
		return job.Refused, why
	}
	return w.worldOutcome(h)
}

// worldOutcome is how far a request has come that ends the job's world: it is done once the next one trains.
func (w *work) worldOutcome(h *job.Handled) (job.ReplyState, job.Reason) {
	switch {
	case w.rec.Phase.Ended():
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	case w.rec.Phase == job.JobSuspended:
		return job.Undone, job.Because(IsSuspended, "job", w.name)
	case !w.reloadsFor(h):
		return job.Undone, job.Because(RequestSuperseded, "request", w.rec.Reload.Request)
	case !w.reloaded():
		return job.Accepted, job.Reason{}
	}
	return job.Done, job.Reason{}
}

// reloadsFor reports whether the newest reload is what a request asks for: its own, or a later one to the same effect. One restart
// serves both.
func (w *work) reloadsFor(h *job.Handled) bool {
	newest := &w.rec.Reload
	return newest.Request != "" && h.Reload.Request != "" && newest.Step == h.Reload.Step && newest.Save == h.Reload.Save
}

// reloaded reports whether a world trains that was formed for the newest reload.
func (w *work) reloaded() bool {
	if w.world.Broken || w.world.Generation <= w.rec.Reload.Through || w.world.ResumeStep != w.rec.Reload.Step {
		return false
	}
	return !slices.ContainsFunc(w.world.Members, func(m job.WorldMember) bool {
		s := w.index[m.Slot.Role][m.Slot.Index]
		return s == nil || s.Phase != job.Running && s.Phase != job.Succeeded
	})
}

// endReload forgets a reload once a world of it has written a checkpoint: until then a world that follows a fault resumes from the same
// one. Where the output does not say when one is written, it is forgotten once a world trains.
func (p *pass) endReload(w *work) {
	r := w.rec.Reload
	switch {
	case r.Request == "":
		return
	case slices.ContainsFunc(w.rec.Handled, func(h job.Handled) bool {
		return !h.State.Final() && w.reloadsFor(&h)
	}):
		if w.world.Generation > r.Through && w.world.ResumeStep != r.Step { // it formed before the service knew
			w.rec.Reload.Through, p.out.Dirty = w.world.Generation, true
		}
		return
	}
	saved, c := w.newestSaved(), w.rec.Spec.Checkpoint
	if saved.Generation > r.Through || (c == nil || c.Pattern == "" || r.Step == 0) && w.reloaded() {
		w.rec.Reload, p.out.Dirty = job.Reload{}, true
	}
}

// wantActs tells the service what members are to do, and which worlds are to end.
func (w *work) wantActs(want *job.Want) {
	for i := range w.rec.Handled {
		h := &w.rec.Handled[i]
		if h.Act.Kind != "" && !h.State.Final() && len(h.Slots) > 0 && len(want.Acts) < mostActs {
			want.Acts = append(want.Acts, job.WantAct{Act: h.Act, Slots: h.Slots})
		}
	}
	want.Reload = w.rec.Reload
}
