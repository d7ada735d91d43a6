package apply

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// holds are the conditions. Each change of a condition is reported and journaled once, and the conditions that hold are in the
// state, so that the next run continues from them.
type holds struct {
	conditions.Set
	kept  int                           // the set's edit count when the state last matched it
	shown map[conditions.Key]job.Reason // what the user has seen in a plan, and this run has not found yet
}

// failures are the conditions that arise from attempted changes. fail settles them before each decision is stored.
var failures = map[job.Code]bool{LaunchRefused: true, StopRefused: true, RepairRefused: true, RemovalRefused: true, PreparationRefused: true, Delayed: true}

// choices are the conditions that follow from the files, for each job in a plan.
var choices = map[job.Code]bool{AboveMaxDestroy: true, FilesUnusable: true, LeftFiles: true, plan.NotPruned: true}

// EventType returns the type of a condition's journal events.
func EventType(c *conditions.Condition) string {
	_, ofJob := conditions.Job(c.About)
	switch c.Reason.Code {
	case LaunchRefused, StopRefused, RepairRefused, RemovalRefused, PreparationRefused:
		return "refused"
	case AboveMaxDestroy, LeftFiles:
		return "withheld"
	case FilesUnusable:
		if ofJob {
			return "withheld"
		}
	case plan.NotPruned:
		return "left"
	case StraysStopped:
		return "removed"
	case ConfigurationApplied, FilesUnsteady, FilesDoubtful, RemovedMisnamed:
		return "configuration"
	}
	if _, waits := plan.Waiting[c.Reason.Code]; waits {
		return "waiting"
	}
	return "condition"
}

// raiseIf raises a condition if there is an error, or else clears it.
func (h *holds) raiseIf(l *Loop, err error, about string, code job.Code) {
	if err == nil {
		h.Clear(about, code)
		return
	}
	h.Raise(l.now, about, job.Because(code, "message", err.Error()))
}

// decide settles the conditions that follow from a decision, except those of jobs that it left out. While any provider cannot
// be observed, the planner's refusals, stray slots and the files' own checks stay as they are.
func (h *holds) decide(l *Loop, in *plan.Input, p *plan.Plan) {
	h.Rename(moves(in, p))
	h.keepWithheld(l, in)
	now := conditionsOf(p.Waits)
	hold := func(about string, why job.Reason) {
		now = append(now, conditions.Condition{About: about, Reason: why})
	}
	if why := l.files.applied(l, in); !why.IsZero() {
		hold(aboutFilesOf, why)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		hold("job."+name, in.Withheld[name])
	}
	for _, name := range l.files.lost {
		hold("job."+name, job.Because(LeftFiles, "after", filesStill.String()))
	}
	now = append(now, conditionsOf(plan.Left(in))...)
	now = append(now, aboutNodes(p.Nodes, in.Snapshot.Nodes, l.now)...)
	now = append(now, losses(&l.sight, p)...)
	now = append(now, h.stalls(in, p)...)
	whole := !l.sight.incomplete()
	if whole {
		for _, r := range p.Refusals {
			hold("job."+r.Job, r.Reason)
		}
		now = append(now, strays(in, p)...)
	}
	h.Settle(l.now, func(k conditions.Key) bool {
		name, ofJob := conditions.Job(k.About)
		switch {
		case failures[k.Code] || k.Code == CheckFailed || k.Code == NotStored || k.Code == NotJournaled || k.Code == NotChronicled:
			return false // settled elsewhere
		case ofJob && choices[k.Code]:
			return !l.leftOut(in, name)
		case ofJob:
			return whole && !l.leftOut(in, name)
		case k.Code == NotNotified:
			return l.files.Notify != nil && l.alerts.block(l, strings.TrimPrefix(k.About, aboutNotify)) == nil
		case k.About == aboutWebhook:
			return !l.setup.Watch
		case k.About == aboutRequests:
			return !l.setup.Requests || k.Code == NotReplied && l.requests.known && !l.requests.unstored()
		case k.About == aboutFilesOf:
			return k.Code != ConfigurationApplied && !l.setup.Watch // a watching run settles these as it follows the files
		}
		provider, is := strings.CutPrefix(k.About, "provider.")
		return !is || l.sight.providers[provider] == nil // unknown here, for instance a newer version's: clear it
	}, now)
	l.check.hold(l)
	h.tell(l)
}

// moves maps old to new names of the jobs that a decision renames.
func moves(in *plan.Input, p *plan.Plan) map[string]string {
	moves := map[string]string{}
	for from, to := range in.Moved {
		if rec, moved := in.Records[from], p.Records[to]; rec != nil && moved != nil && rec.UID == moved.UID {
			moves[from] = to
		}
	}
	return moves
}

// keepWithheld keeps jobs withheld that a turn leaves out because their provider cannot be observed.
func (h *holds) keepWithheld(l *Loop, in *plan.Input) {
	for _, c := range h.All() {
		name, ofJob := conditions.Job(c.About)
		if code := c.Reason.Code; !ofJob || code != AboveMaxDestroy && code != FilesUnusable || in.Records[name] != nil || l.book.state.Jobs[name] == nil {
			continue
		}
		if in.Withheld == nil {
			in.Withheld = map[string]job.Reason{}
		}
		if in.Withheld[name].IsZero() {
			in.Withheld[name] = c.Reason
		}
	}
}

// doubtsFiles reports whether any condition says that something is, or may be, wrong with the files.
func (h *holds) doubtsFiles() bool {
	return slices.ContainsFunc([]job.Code{FilesUnusable, FilesUnsteady, FilesDoubtful, RemovedMisnamed}, func(code job.Code) bool {
		_, doubtful := h.Get(aboutFilesOf, code)
		return doubtful
	})
}

// leftOut reports whether a decision leaves a job out: its provider could not be observed, or it is not in scope.
func (l *Loop) leftOut(in *plan.Input, name string) bool {
	_, seen := in.Records[name]
	declares := func(j job.Job) bool { return j.Name == name }
	declared := slices.ContainsFunc(l.files.Jobs, declares) && !slices.ContainsFunc(in.Jobs, declares)
	return !seen && l.book.state.Jobs[name] != nil || declared || !l.files.scope.Touches(name)
}

// strays returns one condition for each role of which slots run, are of no recorded job, and are stopped.
func strays(in *plan.Input, p *plan.Plan) (found []conditions.Condition) {
	known := map[string]bool{} // UIDs
	for _, records := range []job.Records{in.Records, p.Records} {
		for _, rec := range records {
			known[rec.UID] = true
		}
	}
	slots, reasons := map[string][]int{}, map[string][]job.Reason{} // by role
	for i := range p.Changes {
		c := &p.Changes[i]
		if c.Action != plan.Delete || isForget(c) || known[c.UID] {
			continue
		}
		role := about(c)
		slots[role] = append(slots[role], c.Slot.Index)
		if why := c.Why(); !why.IsZero() && !slices.ContainsFunc(reasons[role], why.Equal) {
			reasons[role] = append(reasons[role], why)
		}
	}
	for _, role := range slices.Sorted(maps.Keys(slots)) {
		_, short, _ := strings.Cut(strings.TrimPrefix(role, "job."), ".")
		why := job.Because(StraysStopped, "slots", job.Fold(short, slots[role]), "count", strconv.Itoa(len(slots[role])))
		found = append(found, conditions.Condition{About: role, Reason: why.With(reasons[role]...)})
	}
	return found
}

// about returns what a condition of a change is about: a role, or a whole job.
func about(c *plan.Change) string {
	if c.Slot.Role == "" {
		return "job." + c.Job
	}
	return "job." + c.Job + "." + c.Slot.Role
}

// fail settles the failures before a decision is stored. Conditions of an earlier run stay until this run has tried the
// change itself.
func (h *holds) fail(l *Loop, p *plan.Plan) {
	now, untried := conditionsOf(l.refusals()), h.untried(l, p)
	h.Settle(l.now, func(k conditions.Key) bool {
		name, _ := conditions.Job(k.About)
		if l.end.stage != running && h.Unseen(k) {
			return false
		}
		return failures[k.Code] && !untried[k] && !l.leftOut(&l.turn.decided.Input, name)
	}, now)
	h.tell(l)
}

// untried returns the conditions of changes that the plan asks for and this run has not tried, and of jobs whose preparation
// is tried again with another group.
func (h *holds) untried(l *Loop, p *plan.Plan) map[conditions.Key]bool {
	untried := map[conditions.Key]bool{}
	for name, rec := range p.Records {
		if g := l.groups.jobs[rec.UID]; g != nil && g.retry.err == nil && g.retry.failures > 0 { // with another group than the one refused
			untried[conditions.Key{About: "job." + name, Code: PreparationRefused}] = true
		}
	}
	if !h.AnyUnseen() {
		return untried
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		if key := (conditions.Key{About: about(c), Code: whatFails(c)}); h.Unseen(key) && !l.exec.tried(c) {
			untried[key] = true
		}
	}
	for name, rec := range p.Records {
		g, key := l.groups.jobs[rec.UID], conditions.Key{About: "job." + name, Code: PreparationRefused}
		if _, startable := p.Groups[name]; startable && h.Unseen(key) && (g == nil || !g.done && g.retry.err == nil) {
			untried[key] = true
		}
	}
	return untried
}

// tried reports whether a change has been done, or has failed.
func (e *executor) tried(c *plan.Change) bool {
	t := targetOf(c)
	x := e.asked[t]
	return x.is(c) && (x.done || e.retries[t].err != nil)
}

// tell reports each change of a condition to the view and queues it for the journal. It reports whether any is to be stored.
func (h *holds) tell(l *Loop) (news bool) {
	over := overReasons{l: l}
	for _, c := range h.Changes() {
		if c.Type == conditions.Cleared {
			c.Why = over.of(&c.Condition)
		}
		if !h.wasShown(&c) {
			l.tell(func(v View) { v.Condition(c) })
		}
		if c.Type != conditions.Held && lasts(&c.Condition) {
			l.book.note(NoticeOf(l.now, &c))
			news = true
		}
	}
	return news
}

// show records what the user has seen in a plan. Refusals are not among it: each is a warning of its own.
func (h *holds) show(waits []plan.Wait) {
	h.shown = map[conditions.Key]job.Reason{}
	for _, c := range conditionsOf(waits) {
		if EventType(&c) != "condition" {
			h.shown[c.Key()] = c.Reason
		}
	}
}

// wasShown reports whether the user has seen in a plan what is now found for the first time.
func (h *holds) wasShown(c *conditions.Change) bool {
	why, shown := h.shown[c.Key()]
	delete(h.shown, c.Key())
	return shown && c.Type != conditions.Cleared && h.Same(why, c.Reason)
}

// NoticeOf returns the journal's notice of a change of a condition.
func NoticeOf(at time.Time, c *conditions.Change) job.Notice {
	n := job.Notice{Time: at, Type: EventType(&c.Condition), Address: c.About, Condition: string(c.Type), Reason: c.Reason}
	if slots := c.Reason.Args["slots"]; slots != "" { // they become the address
		name, _ := conditions.Job(c.About)
		n.Address = "job." + name + "." + slots
		n.Reason.Args = maps.Clone(c.Reason.Args)
		delete(n.Reason.Args, "slots")
	}
	if c.Type == conditions.Cleared {
		n.Reason = c.Why
	}
	return n
}

// overReasons says why conditions no longer hold.
type overReasons struct {
	l        *Loop
	removals map[string]int // of the decision, by job; counted on first use
}

func (o *overReasons) of(c *conditions.Condition) job.Reason {
	name, ofJob := conditions.Job(c.About)
	l := o.l
	if o.removals == nil && (c.Reason.Code == AboveMaxDestroy || c.Reason.Code == FilesUnusable) && ofJob {
		o.removals = plan.Removals(&l.turn.decided.Input, &l.turn.decided.Plan)
	}
	switch code := c.Reason.Code; {
	case !ofJob || !l.files.stale.IsZero():
	case code == LeftFiles, code == plan.NotPruned:
		if slices.ContainsFunc(l.files.Jobs, func(j job.Job) bool { return j.Name == name }) {
			return job.Because(BackInFiles)
		}
		return job.Because(ChangeApplied)
	case code != AboveMaxDestroy && code != FilesUnusable:
	case o.removals[name] == 0:
		return job.Because(AsApplied)
	case l.files.confirmed != nil:
		return job.Because(RemovalConfirmed)
	default:
		return job.Because(ChangeApplied)
	}
	return job.Because(ConditionOver).With(c.Reason)
}

// lasts reports whether the state keeps a condition, and the journal its changes. NotStopped ends with the run, and
// NotStored and NotJournaled with the write that succeeds.
func lasts(c *conditions.Condition) bool {
	waits, is := plan.Waiting[c.Reason.Code]
	return c.About != aboutStore && c.Reason.Code != NotStopped && c.Reason.Code != NotJournaled && (waits || !is)
}

// lasting returns the conditions that the state keeps, sealed.
func (h *holds) lasting(seal *job.Sealer) []conditions.Condition {
	var lasting []conditions.Condition
	for _, c := range h.All() {
		if lasts(&c) {
			lasting = append(lasting, c)
		}
	}
	return sealed(lasting, seal)
}

// sealed returns conditions with sensitive values sealed.
func sealed(held []conditions.Condition, seal *job.Sealer) []conditions.Condition {
	if seal.Idle() {
		return held
	}
	held = slices.Clone(held)
	for i := range held {
		c := &held[i]
		c.About, c.Reason = seal.Text(c.About), c.Reason.Map(seal.Text)
	}
	return held
}

// stored reports whether the state has the conditions that hold. A match remains valid until the next edit.
func (h *holds) stored(b *book) bool {
	if h.kept == h.Edits() {
		return true
	}
	same := slices.EqualFunc(h.lasting(b.seal), b.state.Conditions, h.Equal)
	if same {
		h.kept = h.Edits()
	}
	return same
}

// failing are the indices of slots whose changes fail; 0 for a change of the job itself.
type failing map[refused][]int

func (f failing) add(r refused, index int) { f[r] = append(f[r], index) }

// conditionsOf returns waits as conditions, one for each address and code.
func conditionsOf(waits []plan.Wait) (all []conditions.Condition) {
	for i := range waits {
		w := &waits[i]
		for first := range w.Reasons {
			if why := w.Reasons[first]; why.Code != plan.MoreReasons {
				all = append(all, conditions.Condition{About: w.Address(), Reason: why})
				continue
			}
			last := &all[len(all)-1] // it counts more of the reasons before it
			last.Reason = job.Reason{Code: last.Reason.Code}.With(last.Reason, w.Reasons[first])
		}
	}
	return conditions.Merge(all)
}

// ofNodes are the conditions that follow from the records of nodes.
var ofNodes = map[job.Code]bool{plan.Cordoned: true, plan.Draining: true, plan.NodeMarked: true, plan.TooManyToMark: true}

// aboutNodes returns the conditions of nodes that operators keep slots off, and of those that are used last.
func aboutNodes(records []job.NodeRecord, nodes []job.Node, now time.Time) (all []conditions.Condition) {
	for _, reasons := range []map[string]job.Reason{plan.Cordons(records), plan.Marks(records, nodes, now)} {
		for _, about := range slices.Sorted(maps.Keys(reasons)) {
			all = append(all, conditions.Condition{About: about, Reason: reasons[about]})
		}
	}
	return all
}

// losses returns the conditions of jobs whose loss is not finite, by what the members of their worlds report.
func losses(seen *sight, p *plan.Plan) (all []conditions.Condition) {
	told := map[string]bool{}
	for part := range seen.parts() {
		if rec := p.Records[part.name]; part.loss != "" && !told[part.name] && rec != nil && rec.UID == part.seen[0].UID {
			told[part.name] = true
			all = append(all, conditions.Condition{About: "job." + part.name, Reason: job.Because(LossNotFinite, "loss", part.loss)})
		}
	}
	return all
}

// stalls returns the conditions of jobs whose world is suspected to hang for half of the time after which it is certain. As long as it stands
// still, a condition names who stood out when it was raised.
func (h *holds) stalls(in *plan.Input, p *plan.Plan) (all []conditions.Condition) {
	for _, name := range slices.Sorted(maps.Keys(in.Snapshot.Suspicions)) {
		rec := p.Records[name]
		for _, s := range in.Snapshot.Suspicions[name] {
			at := s.Notable()
			if s.Cause != job.Hang || at.IsZero() || in.Now.Before(at) || rec == nil || s.Generation <= rec.Kill.Through {
				continue
			}
			since := s.Since.UTC().Format(time.RFC3339)
			why := job.Because(Stalled, "slots", strings.Join(foldedSlots(s.Slots), ", "), "since", since)
			if len(s.Ranks) > 0 {
				why.Args["ranks"] = strings.Trim(job.Fold("", s.Ranks), "[]")
			}
			if !s.Due.IsZero() {
				why.Args["due"] = s.Due.UTC().Format(time.RFC3339)
			}
			if held, holds := h.Get("job."+name, Stalled); holds && held.Reason.Args["since"] == since {
				why = held.Reason
			}
			all = append(all, conditions.Condition{About: "job." + name, Reason: why})
			break
		}
	}
	return all
}

// foldedSlots are slots of one job, as worker[0-3].
func foldedSlots(slots []job.Address) (folded []string) {
	byRole := map[string][]int{}
	for _, a := range slots {
		byRole[a.Role] = append(byRole[a.Role], a.Index)
	}
	for _, role := range slices.Sorted(maps.Keys(byRole)) {
		folded = append(folded, job.Fold(role, byRole[role]))
	}
	return folded
}

// recordedRefusals returns the conditions that hold while no master runs, and the waits that follow from them. It drops
// refused launches of incarnations that exist by now.
func recordedRefusals(s *state.State, seen *job.Snapshot) (held []conditions.Condition, waits []plan.Wait) {
	there := map[incarnation]bool{}
	for inc := range seen.Incarnations.All() {
		there[keyOf(inc)] = true
	}
	for _, c := range s.Conditions {
		name, ofJob := conditions.Job(c.About)
		rec := s.Jobs[name]
		if c.Reason.Code != LaunchRefused || !ofJob || rec == nil {
			held = append(held, c)
			continue
		}
		of := failing{}
		for _, why := range conditions.Reasons(c.Reason) {
			named, err := job.ParseSelector("job." + name + "." + why.Args["slots"])
			for i := range rec.Slots {
				if a := rec.Slots[i].Address; err == nil && named.Matches(a) && !there[incarnationOf(rec.UID, a, rec.Slots[i].Incarnation)] {
					of.add(refused{name, a.Role, LaunchRefused, why.Args["message"]}, a.Index)
				}
			}
		}
		for _, left := range conditionsOf(of.waits()) {
			left.Since = c.Since
			held = append(held, left)
		}
		waits = append(waits, of.waits()...)
	}
	return held, waits
}
