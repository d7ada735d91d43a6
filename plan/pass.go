package plan

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/signature"
)

// Make decides. It never fails: what cannot be done is a Wait. The input is not modified.
//
// The order of the steps is the policy: facts first, then healing, then removal, then recovery of what was running, then
// admission of what waits, and growth into what is left.
func Make(in Input) Plan { return decide(in, nil) }

func decide(in Input, m *Memory) Plan {
	p := newPass(in, m)
	p.budget()
	if in.Refresh {
		return p.refresh()
	}
	for _, w := range p.jobs {
		if !p.about(w) || w.frozen {
			continue
		}
		p.track(w)
		p.heal(w)
		p.cancelUnfunded(w)
		p.settle(w)
		p.remove(w)
		p.revise(w)
	}
	p.markNodes()
	p.measure()
	p.wakeOnRecorded()
	p.scaleByPolicies()
	for _, w := range p.jobs {
		if p.about(w) {
			p.replaceAll(w)
		}
	}
	p.unload()
	p.recover()
	p.drain()
	for _, w := range p.servingOrder {
		if p.about(w) {
			p.relocate(w)
		}
	}
	p.shrink()
	p.shrinkTogether()
	p.yield()
	p.admit()
	if len(p.postponed) > 0 {
		return p.withoutPostponed(in)
	}
	p.expire()
	if p.level == ample {
		p.grow()
	} else {
		p.holdGrowth()
	}
	for _, w := range p.jobs {
		if !p.about(w) {
			p.keepResting(w)
			continue
		}
		if w.frozen {
			continue
		}
		p.emit(w)
		p.want(w)
		p.queue(w)
		p.withheld(w)
		p.overridden(w)
		p.settleSite(w)
		p.explainScaling(w)
		p.judge(w)
	}
	p.current = nil
	p.strays()
	p.spend()
	out := p.finish()
	p.remember()
	return out
}

// pass is one run of Make: the input in the form that the steps work on.
type pass struct {
	in           Input
	out          Plan
	jobs         []*work // declared ones in order, then those only recorded or seen
	byName       map[string]*work
	servingOrder []*work           // active jobs in serving order; set by measure
	spaces       map[string]*space // by provider
	bars         bars
	extras       extras
	unseen       []job.Incarnation // incarnations of no known job
	// owners are the other states that run jobs, by provider and name.
	owners    map[runsAt]string
	elsewhere map[string]bool // jobs at a site that their provider does not look at

	replacing map[job.Address]Replacement
	frozen    map[string]bool    // recorded jobs that are entirely out of scope
	parts     map[string]*extent // jobs that are partly in scope

	naming
	refusedJobs map[string]bool       // jobs with a refusal
	postponed   []Wait                // failed jobs without room for their next try
	requests    examined              // by operators
	nodeFaults  []nodeFault           // faults of this pass that lie in nodes
	reasons     map[string]job.Reason // interned reasons of slots, many of which are the same; see why
	level       level                 // of the directory's budget
	holdings    holdings              // of all jobs; see together
	memory      *Memory               // nil if there is none
	current     *work                 // the job that the step is about; nil if it is about all
}

// naming is how the jobs of this pass came to their names, and which were given up.
type naming struct {
	movedFrom     map[string]string       // previous names of jobs moved in this pass, by new name
	imported      map[string]adopted      // by name
	importMissing bool                    // an import was not found
	released      map[string]job.Released // forgotten jobs that run, by UID
	forgottenUIDs map[string]bool         // UIDs of jobs forgotten in this pass
	forgotten     map[string]bool         // names of recorded jobs forgotten in this pass
	kept          map[string]bool         // not declared, but continue
}

// runsAt is a name under which another state runs a job.
type runsAt struct{ provider, job string }

// work is one job and what this pass decides about it.
type work struct {
	name     string
	declared bool
	spec     *job.Job // as declared; as last applied if it is no longer declared
	rec      *job.Record
	slots    []*job.Slot // by address
	index    map[string]map[int]*job.Slot
	seen     map[job.Address][]*job.Incarnation // by number, ascending
	world    job.World                          // from the service, else as recorded
	health
	edits
	computed
	decisions map[*job.Slot]*decision // made in this pass, by slot; see on
	gone      bool                    // nothing of it runs, and it is not declared
	ending    bool                    // all its slots are to stop
	frozen    bool                    // entirely out of scope: it stays as it is
	part      *extent                 // what of it is in scope; nil is all
	imported  string                  // the ID by which an import block found it in this pass; else ""
	retried   bool                    // it had failed, and starts again unchanged
	unfunded  bool                    // the directory's budget is spent, and it does not continue
	finished  map[string]bool         // roles with a slot that succeeded: no more starts in them
	gated     map[string]bool         // by role: launches wait for their gang
	sized     map[string]*RoleScaling // by role: what policies decided
	rest      *rest                   // nil unless it is at rest: it then has no slots here
	wakes     time.Time               // when a step about it has to be repeated; zero is never
	parts     [][]job.Incarnation     // of the snapshot
	single    []*job.Incarnation      // what most of seen are parts of
}

// health is what this pass finds wrong with a job.
type health struct {
	faults []incident.Fault
	// signatures are those by which causes are known; compiled on demand.
	signatures *signature.Table
	// collateral are the slots whose processes failed only because their world was being stopped.
	collateral []*job.Slot
	suspected  []suspect // slots about which something is to be done though their processes run
	repairing  bool      // a culprit of the newest incident was acted on in this pass
}

// edits are how a job is declared differently from what it was last applied as.
type edits struct {
	changed  []job.FieldChange            // settings applied in place
	differs  map[string][]job.FieldChange // what replaces slots, by role
	outdated []*job.Slot                  // running, and declared differently now
}

// computed is what is derived from the rest of a work when it is first needed.
type computed struct {
	fingerprints map[string]func(int) string
	sources      map[*job.Role]string            // digests of their source files
	total        *job.Resources                  // of all that it holds; computed on demand
	freshFrom    map[string]int                  // by role: the first index that may be free, while growing
	placeOf      map[job.Address]job.WorldMember // in world; computed on demand
	upCache      map[string]bool                 // by role, for ready
	stopCache    map[string]bool                 // by role, for anyRunning
}

// decision is what this pass has found about one slot, in addition to its record.
type decision struct {
	reasons    []job.Reason // why it changes
	prefer     string       // node that it should return to
	promised   string       // node whose place is still in use: given once it is free
	unlaunched bool         // it got its incarnation number in this pass
	restarts   bool         // its processes are restarted in place
	elsewhere  bool         // an operator asked for its restart on another node
}

// on is the slot's decision, created if needed.
func (w *work) on(s *job.Slot) *decision {
	d := w.decisions[s]
	if d == nil {
		d = &decision{}
		w.decisions[s] = d
	}
	return d
}

// promisedTo is the node where the slot is promised a place; "" for nearly all.
func (w *work) promisedTo(s *job.Slot) string {
	if d := w.decisions[s]; d != nil {
		return d.promised
	}
	return ""
}

// restarts reports whether the slot's processes are restarted in place; false for nearly all.
func (w *work) restarts(s *job.Slot) bool {
	d := w.decisions[s]
	return d != nil && d.restarts
}

func newPass(in Input, m *Memory) *pass {
	p := &pass{in: in, memory: m, byName: map[string]*work{}, spaces: map[string]*space{}, bars: newBars(in.Bars), extras: newExtras(in.Extra), owners: map[runsAt]string{}, elsewhere: map[string]bool{},
		naming: naming{movedFrom: map[string]string{}, imported: map[string]adopted{}, released: map[string]job.Released{}, forgottenUIDs: map[string]bool{},
			forgotten: map[string]bool{}, kept: map[string]bool{}}, refusedJobs: map[string]bool{}, reasons: map[string]job.Reason{}}
	p.in.Forget = in.forgetting()
	if in.Refresh {
		p.asLastApplied()
		p.in.Requests = nil
	}
	p.narrow()
	p.followMoves()
	p.forget()
	p.adopt()
	in = p.in // the same input under the new names
	p.out.Records, p.out.Leaving = make(job.Records, len(in.Records)), job.Records{}
	p.out.Wants, p.out.Groups = map[string]job.Want{}, map[string]job.Group{}
	add := func(name string) *work {
		w := &work{
			name: name, index: map[string]map[int]*job.Slot{}, seen: map[job.Address][]*job.Incarnation{},
			decisions: map[*job.Slot]*decision{}, finished: map[string]bool{},
			computed: computed{fingerprints: map[string]func(int) string{}, freshFrom: map[string]int{}, upCache: map[string]bool{}, stopCache: map[string]bool{}},
			frozen:   p.frozen[name], part: p.parts[name],
		}
		p.jobs = append(p.jobs, w)
		p.byName[name] = w
		return w
	}
	for i := range in.Jobs {
		if p.skipOtherSite(in.Jobs[i].Name, true) || p.refusedJobs[in.Jobs[i].Name] {
			continue
		}
		w := add(in.Jobs[i].Name)
		w.declared, w.spec = true, &in.Jobs[i]
	}
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		if p.byName[name] != nil || p.elsewhere[name] || p.forgotten[name] || p.skipOtherSite(name, in.Keep) {
			continue
		}
		// It continues as last applied, or stops.
		add(name).declared = in.Keep || p.kept[name] || p.prevented(name, in.Records[name])
	}
	if m != nil {
		p.recall()
	}
	p.openNodes()
	p.examineRequests()
	p.followDestroyed()
	for _, w := range p.jobs {
		if w.rest != nil {
			w.rec = in.Records[w.name]
			w.spec = p.settled(w.spec, w.rec)
			continue
		}
		p.open(w)
	}
	p.handleRequests()
	p.assign()
	for _, w := range p.jobs {
		if p.about(w) {
			p.collectActs(w)
		}
	}
	p.current = nil
	return p
}

// open copies the job's record to work on, or makes one for a new job.
func (p *pass) open(w *work) {
	old := p.in.Records[w.name]
	if old != nil && w.spec != nil {
		declared := w.spec
		w.spec = p.settled(declared, old)
		if p.startsOver(w, old) {
			p.note("job."+w.name, "job_phase", job.Because(StartsAnew, "phase", string(old.Phase)))
			w.spec = declared
			clear(w.fingerprints)
			p.newRecord(w)
			w.rec.Handled = overOf(old)
			return
		}
	}
	if old == nil {
		p.newRecord(w)
		return
	}
	rec := *old
	rec.Counts = make(map[string]int, len(old.Counts))
	for role, n := range old.Counts {
		rec.Counts[role] = n
	}
	rec.Charges = slices.Clone(old.Charges)
	rec.Overrides, rec.Handled = slices.Clone(old.Overrides), slices.Clone(old.Handled)
	rec.Incidents = slices.Clone(old.Incidents)
	w.rec = &rec
	if w.spec == nil {
		w.spec = &rec.Spec
	}
	backing := slices.Clone(old.Slots)
	w.slots = make([]*job.Slot, 0, len(backing))
	for i := range backing {
		w.insert(&backing[i])
	}
	w.world = rec.World
	if seen, ok := p.in.Snapshot.Worlds[w.name]; ok && !w.frozen && seen.Generation >= rec.World.Generation {
		w.world = seen
		if seen.Generation > rec.World.Generation || seen.Broken != rec.World.Broken || !seen.FirstStep.Equal(rec.World.FirstStep) {
			rec.World = seen
			p.out.Dirty = true
		}
	}
}

// settled is the effective declaration: attributes that the job's lifecycle ignores stay as last applied, and so does
// everything if applying it would destroy a job that must not be destroyed.
func (p *pass) settled(declared *job.Job, old *job.Record) *job.Job {
	if p.preventedMove(declared, old) {
		return &old.Spec
	}
	if len(declared.Lifecycle.IgnoreChanges) == 0 {
		return declared
	}
	spec := declared.Settled(&old.Spec)
	return &spec
}

// newRecord makes the record of a job that has none: an adopted or imported one, or a new one.
func (p *pass) newRecord(w *work) {
	p.out.Dirty = true
	found, imported := p.imported[w.name]
	if !imported {
		found = p.adoptable(w.name)
	}
	w.imported = found.id
	if found.uid == "" {
		found.uid = p.in.NewUID(w.name)
		found.launched = p.launchName(w.name, found.uid)
	}
	w.rec = &job.Record{UID: found.uid, Created: p.in.Now, Spec: *w.spec, Phase: job.JobPending, Counts: map[string]int{}}
	if found.launched != w.name {
		w.rec.Launched = found.launched
	}
}

// startsOver reports whether a job that ended starts again as a new one: its declaration changed in what its slots are started from,
// or it failed and an explicit apply asks for another try.
func (p *pass) startsOver(w *work, old *job.Record) bool {
	if !old.Phase.Ended() || slices.ContainsFunc(old.Slots, func(s job.Slot) bool { return s.Phase.Live() }) {
		return false
	}
	if p.allAskedFor(old) || slices.ContainsFunc(old.Slots, func(s job.Slot) bool { return w.editedSince(&old.Spec, &s) }) ||
		slices.ContainsFunc(job.Diff(old.Spec, *w.spec), func(c job.FieldChange) bool { return c.Change == job.Replaces }) {
		return true
	}
	w.retried = (p.in.Rerun[w.name] || p.asked(job.AskApply, w.name, old, nil)) && old.Phase.Reruns()
	return w.retried || p.restarted(w.name, old, nil)
}

// editedSince reports whether what a slot of an ended job is started from was edited since. A slot that ended by itself is
// compared with what ran in it. One that was stopped may have missed an edit that the others got, so its own settings are
// compared with those last applied.
func (w *work) editedSince(applied *job.Job, s *job.Slot) bool {
	was, is, index := applied.Role(s.Address.Role), w.spec.Role(s.Address.Role), s.Address.Index
	if is == nil {
		return false
	}
	if s.Phase != job.Canceled {
		return s.Fingerprint != "" && s.Fingerprint != w.fingerprint(is, index)
	}
	return was != nil && !reflect.DeepEqual(was.For(index), is.For(index))
}

// adoptable finds a running job that is not recorded, under its name or a previous one: the state was lost.
func (p *pass) adoptable(name string) adopted {
	if p.in.Records[name] != nil {
		return adopted{} // an earlier job of the name ended: its remains do not belong to the new one
	}
	for _, launched := range p.namesOf(name) {
		unrecorded := p.unrecorded(launched)
		if len(unrecorded) == 0 {
			continue
		}
		uids := slices.SortedFunc(maps.Keys(unrecorded), func(a, b string) int {
			// A job moved away from this name may still run under it; a suffixed name (see suffixedName) is never shared.
			longer := cmp.Compare(len(unrecorded[b].Slot.Job), len(unrecorded[a].Slot.Job))
			if launched != name {
				longer = -longer
			}
			return cmp.Or(longer, cmp.Compare(a, b))
		})
		found := adopted{uid: uids[0], launched: unrecorded[uids[0]].Slot.Job}
		if found.launched != name {
			p.relabel(found.uid, name)
		}
		return found
	}
	return adopted{}
}

// namesOf are the names under which an unrecorded job may already run: its own, and its previous ones.
func (p *pass) namesOf(name string) []string {
	names := []string{name}
	for _, from := range slices.Sorted(maps.Keys(p.in.Moved)) {
		if p.in.Moved[from] == name && p.in.Records[from] == nil {
			names = append(names, from)
		}
	}
	return names
}

// ours reports whether an unrecorded incarnation may be ours: launched under our state, or under none.
func (p *pass) ours(inc *job.Incarnation) bool {
	return inc.Owner == "" || inc.Owner == p.in.Capabilities[inc.Provider].Owner
}

func (w *work) insert(s *job.Slot) {
	byIndex := w.index[s.Address.Role]
	if byIndex == nil {
		byIndex = make(map[int]*job.Slot, cap(w.slots))
		w.index[s.Address.Role] = byIndex
	}
	byIndex[s.Address.Index] = s
	w.slots = append(w.slots, s)
}

// assign attaches each incarnation to its job. Unrecorded slots are adopted.
func (p *pass) assign() {
	for _, part := range p.in.Snapshot.Incarnations {
		for i := range part {
			inc := &part[i]
			w := p.byName[inc.Slot.Job]
			if w == nil || w.rec.UID != inc.UID {
				p.unseen = append(p.unseen, *inc)
				if inc.State != job.Gone && !p.ours(inc) {
					p.owners[runsAt{inc.Provider, inc.Slot.Job}] = inc.Owner
				}
				continue
			}
			if w.rest != nil {
				break // its parts are known
			}
			if i == 0 {
				w.addPart(part)
			}
			p.attach(w, inc)
		}
	}
	for _, w := range p.jobs {
		w.sortSeen()
	}
}

func (w *work) sortSeen() {
	for _, seen := range w.seen {
		slices.SortFunc(seen, func(a, b *job.Incarnation) int { return cmp.Compare(a.Number, b.Number) })
	}
}

// addPart makes room for the incarnations of a part.
func (w *work) addPart(part []job.Incarnation) {
	if len(w.seen) == 0 {
		w.seen = make(map[job.Address][]*job.Incarnation, len(part))
	}
	w.parts, w.single = append(w.parts, part), make([]*job.Incarnation, 0, len(part))
}

// attach adds an incarnation to its job. Nearly all slots have one.
func (p *pass) attach(w *work, inc *job.Incarnation) {
	if seen := w.seen[inc.Slot]; seen != nil {
		w.seen[inc.Slot] = append(seen, inc)
	} else {
		n := len(w.single)
		w.single = append(w.single, inc)
		w.seen[inc.Slot] = w.single[n : n+1 : n+1]
	}
	if w.index[inc.Slot.Role][inc.Slot.Index] == nil && inc.State != job.Gone {
		w.insert(&job.Slot{Address: inc.Slot, Phase: job.Pending, Rank: -1})
		p.out.Dirty = p.out.Dirty || !w.frozen
	}
}

// step changes a slot's phase. An event that the phase does not accept is noted and changes nothing.
func (p *pass) step(s *job.Slot, e job.Event) bool {
	next, err := s.Phase.Step(e)
	if err != nil {
		p.note(s.Address.String(), "rejected", job.Because(EventRejected, "message", err.Error()))
		return false
	}
	if s.Phase == job.Canceling {
		s.Why = nil
	}
	if s.Phase == job.Running && p.in.Now.Sub(s.Since) >= proven {
		s.Crashes = 0
	}
	s.Phase, s.Since = next, p.in.Now
	p.out.Dirty = true
	return true
}

func (p *pass) note(address, kind string, what job.Reason) {
	p.out.Notices = append(p.out.Notices, job.Notice{Time: p.in.Now, Type: kind, Address: address, Reason: what})
}

// wakeAt requests another pass at t.
func (p *pass) wakeAt(t time.Time) {
	if w := p.current; w != nil && (w.wakes.IsZero() || t.Before(w.wakes)) {
		w.wakes = t
	}
	if p.out.Wake.IsZero() || t.Before(p.out.Wake) {
		p.out.Wake = t
	}
}

// pending reports whether less than d has passed since t, and if so requests a pass for when it has. A clock set back past t
// ends the wait: a stored time may come from another clock.
func (p *pass) pending(t time.Time, d time.Duration) bool {
	passed := p.in.Now.Sub(t)
	if passed < 0 || passed >= d {
		return false
	}
	p.wakeAt(t.Add(d))
	return true
}

// current is the slot's newest incarnation as observed; nil if it was not observed.
func (w *work) current(s *job.Slot) *job.Incarnation {
	seen := w.seen[s.Address]
	for i := len(seen) - 1; i >= 0; i-- {
		if seen[i].Number == s.Incarnation {
			return seen[i]
		}
	}
	return nil
}

// running lists the slot's incarnations that are not gone.
func (w *work) running(s *job.Slot) []int {
	var numbers []int
	for _, inc := range w.seen[s.Address] {
		if inc.State != job.Gone {
			numbers = append(numbers, inc.Number)
		}
	}
	return numbers
}

// holds reports whether the slot counts toward its role's size: it has a reservation, or lost it by a fault and is to get it
// back.
func holds(s *job.Slot) bool {
	switch s.Phase {
	case job.Pending:
		return s.Recover
	case job.Canceling:
		return s.Return
	case job.Canceled, job.Failed:
		return false
	}
	return true
}

// heldSlots lists the role's slots that hold, by index.
func (w *work) heldSlots(role string) []*job.Slot {
	var held []*job.Slot
	for _, s := range w.slots {
		if s.Address.Role == role && holds(s) {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b *job.Slot) int { return a.Address.Index - b.Address.Index })
	return held
}

// admitted reports whether the job has capacity, or had it and is owed it.
func (w *work) admitted() bool {
	return w.rest != nil && !w.rec.Phase.Ended() || slices.ContainsFunc(w.slots, holds)
}

// live reports whether something of the job runs, or is to run.
func (w *work) live() bool {
	return slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase.Live() })
}

// active reports whether the job is to run at all.
func (w *work) active() bool {
	return w.declared && !w.ending && !w.rec.Phase.Ended() && !w.suspended()
}

// suspended reports whether the job must hold nothing for now. One that is to keep its slots is suspended only while it has none.
func (w *work) suspended() bool {
	return w.resting() && (w.suspension() != job.Keep || !w.admitted())
}

// idle reports whether the job must not train for now, but keeps its slots: these are healed, moved and resized as if it trained.
func (w *work) idle() bool { return w.resting() && !w.suspended() }

// resting reports whether the job is declared, but must not train for now. A job of which a slot has succeeded is about to end:
// it is let finish, since nothing more can start in that role.
func (w *work) resting() bool {
	return w.declared && (w.suspension() != "false" || w.unfunded) && !w.rec.Phase.Ended() && len(w.finished) == 0
}

// succeeded reports whether a slot of the role has succeeded: no more starts in it.
func (w *work) succeeded(role string) bool {
	return w.finished[role]
}

// ranked reports whether the job has a world at all.
func (w *work) ranked() bool {
	return slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool { return r.Ranked })
}

// why is a reason, interned: slots with the same reason share it.
func (p *pass) why(code job.Code, args ...string) job.Reason {
	if len(args) == 0 {
		return job.Because(code)
	}
	key := string(code) + "\x00" + strings.Join(args, "\x00")
	why, made := p.reasons[key]
	if !made {
		why = job.Because(code, args...)
		p.reasons[key] = why
	}
	return why
}

// because adds a reason why the slot changes.
func (w *work) because(s *job.Slot, why job.Reason) {
	d := w.on(s)
	d.reasons = append(d.reasons, why)
}

func (p *pass) finish() Plan {
	for _, w := range p.jobs {
		if w.rest != nil {
			p.out.Records[w.name] = w.rec
			continue
		}
		sorted := slices.IsSortedFunc(w.slots, bySlot)
		if !sorted {
			slices.SortFunc(w.slots, bySlot)
		}
		w.rec.Slots = make([]job.Slot, len(w.slots))
		for i, s := range w.slots {
			w.rec.Slots[i] = *s
		}
		if w.gone {
			p.out.Leaving[w.name] = w.rec
			continue
		}
		p.out.Records[w.name] = w.rec
	}
	for i := range p.out.Changes {
		c := &p.out.Changes[i]
		if w := p.byName[c.Job]; c.Provider == "" && w != nil {
			c.Provider = w.spec.Provider
		}
	}
	p.thaw()
	p.replyToRequests()
	p.out.Kept = slices.Sorted(maps.Keys(p.kept))
	if len(p.released) > 0 {
		p.out.Released = p.released
	}
	slices.SortStableFunc(p.out.Changes, func(a, b Change) int { return cmp.Compare(a.Wave, b.Wave) })
	for name, rec := range p.out.Records {
		if given := p.in.Records[name]; given != nil && rec.Same(given) {
			p.out.Records[name] = given // others see that it has not changed
		}
	}
	return p.out
}

func bySlot(a, b *job.Slot) int { return a.Address.Compare(b.Address) }
