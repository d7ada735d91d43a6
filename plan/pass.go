package plan

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Make decides. It never fails: what cannot be done is a Wait. The input is not modified.
//
// The order of the steps is the policy: facts first, then healing, then what has to go, then recovery of
// what was running, then admission of what waits, and growth from what is left.
func Make(in Input) Plan {
	p := newPass(in)
	if in.Refresh {
		return p.refresh()
	}
	for _, w := range p.jobs {
		if w.frozen {
			continue
		}
		p.track(w)
		p.heal(w)
		p.settle(w)
		p.remove(w)
		p.revise(w)
	}
	p.measure()
	for _, w := range p.jobs {
		p.replaceAll(w)
	}
	p.unload()
	p.recover()
	p.drain()
	p.shrink()
	p.yield()
	p.admit()
	if len(p.postponed) > 0 {
		return p.withoutPostponed(in)
	}
	p.grow()
	for _, w := range p.jobs {
		if w.frozen {
			continue
		}
		p.emit(w)
		p.want(w)
		p.queue(w)
		p.withheld(w)
		p.settleSite(w)
		p.judge(w)
	}
	p.strays()
	return p.finish()
}

// pass is one run of Make: the input in the form in which the steps work on it.
type pass struct {
	in     Input
	out    Plan
	jobs   []*work // declared ones in order, then those only recorded or seen
	byName map[string]*work
	turn   []*work           // active jobs in the order in which they are served; from measure on
	spaces map[string]*space // by provider
	bars   bars
	extras extras
	unseen []job.Incarnation // of no known job
	// owners are the states under which others run jobs, by provider and name.
	owners    map[runsAt]string
	elsewhere map[string]bool // jobs that run where their provider does not look

	replacing map[job.Address]Replacement
	frozen    map[string]bool    // recorded jobs of which nothing is in scope
	parts     map[string]*extent // jobs of which only a part is

	movedFrom   map[string]string       // the names that jobs had until this pass, by those that they have
	named       bool                    // the snapshot is a copy with other names in it
	imported    map[string]adopted      // by name
	sought      bool                    // something is to be imported, and was not found
	released    map[string]job.Released // forgotten jobs that run, by UID
	letGo       map[string]bool         // UIDs of those forgotten in this pass
	forgotten   map[string]bool         // the same by name, of those that were recorded
	kept        map[string]bool         // not declared, and to continue
	refusedJobs map[string]bool         // of which something must not be done
	postponed   []Wait                  // jobs that failed, and for whose next try there is no room
	reasons     map[string]job.Reason   // those of slots, of which many have the same; see why
}

// runsAt is a name under which somebody runs a job.
type runsAt struct{ provider, job string }

// work is one job under decision.
type work struct {
	name     string
	declared bool
	spec     *job.Job // as declared; as last applied if it is not anymore
	rec      *job.Record
	slots    []*job.Slot // by address
	index    map[string]map[int]*job.Slot
	seen     map[job.Address][]*job.Incarnation // by number, ascending
	world    job.World                          // as the service has it; else as recorded
	faults   []fault
	// collateral are the slots whose processes failed only because the world was being ended.
	collateral []*job.Slot
	decisions  map[*job.Slot]*decision      // made in this pass, by slot; see on
	changed    []job.FieldChange            // settings applied in place
	differs    map[string][]job.FieldChange // what replaces slots, by role
	renewed    []*job.Slot                  // running, and declared differently now
	gone       bool                         // nothing of it is left: its record goes
	prints     map[string]func(int) string
	total      *job.Resources                  // of all that it holds; nil until asked for
	freshFrom  map[string]int                  // by role: the first index that may be free, while growing
	placeOf    map[job.Address]job.WorldMember // in world; nil until asked for
	ending     bool                            // all its slots are to go
	frozen     bool                            // nothing of it is in scope: it stays as it is
	part       *extent                         // what of it is in scope; nil is all
	imported   string                          // the ID by which an import block found it; "" if none did in this pass
	retried    bool                            // it had failed, and starts again as it was
	mending    bool                            // a culprit of the newest incident was dealt with in this pass
	finished   map[string]bool                 // roles of which a slot has succeeded: no start follows in them
	upCache    map[string]bool                 // by role, for ready
	stopCache  map[string]bool                 // by role, for anyRunning
	gated      map[string]bool                 // by role: what is launched waits for its gang
}

// decision is what this pass has found about one slot, beside what its record says.
type decision struct {
	reasons    []job.Reason // why it changes
	prefer     string       // node that it should come back to
	promised   string       // node with a place that is still in use: given once it is free
	unlaunched bool         // it got its incarnation's number in this pass
}

// on is the slot's decision, to read or to add to.
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

func newPass(in Input) *pass {
	p := &pass{in: in, byName: map[string]*work{}, spaces: map[string]*space{}, bars: newBars(in.Bars), extras: newExtras(in.Extra), owners: map[runsAt]string{}, elsewhere: map[string]bool{},
		movedFrom: map[string]string{}, imported: map[string]adopted{}, released: map[string]job.Released{}, letGo: map[string]bool{},
		forgotten: map[string]bool{}, kept: map[string]bool{}, refusedJobs: map[string]bool{}, reasons: map[string]job.Reason{}}
	p.in.Forget = in.forgetting()
	if in.Refresh {
		p.asLastApplied()
	}
	p.narrow()
	p.followMoves()
	p.forget()
	p.adopt()
	in = p.in // the same things under the names that they have now
	p.out.Records = make(job.Records, len(in.Records))
	p.out.Wants, p.out.Groups = map[string]job.Want{}, map[string]job.Group{}
	add := func(name string) *work {
		w := &work{
			name: name, index: map[string]map[int]*job.Slot{}, seen: map[job.Address][]*job.Incarnation{},
			decisions: map[*job.Slot]*decision{}, prints: map[string]func(int) string{}, freshFrom: map[string]int{},
			finished: map[string]bool{}, upCache: map[string]bool{}, stopCache: map[string]bool{},
			frozen: p.frozen[name], part: p.parts[name],
		}
		p.jobs = append(p.jobs, w)
		p.byName[name] = w
		return w
	}
	for i := range in.Jobs {
		if p.leave(in.Jobs[i].Name, true) || p.refusedJobs[in.Jobs[i].Name] {
			continue
		}
		w := add(in.Jobs[i].Name)
		w.declared, w.spec = true, &in.Jobs[i]
	}
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		if p.byName[name] != nil || p.elsewhere[name] || p.forgotten[name] || p.leave(name, in.Keep) {
			continue
		}
		// It continues as it was last applied, or ends.
		add(name).declared = in.Keep || p.kept[name] || p.prevented(name, in.Records[name])
	}
	for _, w := range p.jobs {
		p.open(w)
	}
	p.assign()
	return p
}

// open copies the job's record to work on, or makes one for a new job.
func (p *pass) open(w *work) {
	old := p.in.Records[w.name]
	if old != nil && w.spec != nil {
		declared := w.spec
		w.spec = p.settled(declared, old)
		if p.anew(w, old) {
			p.note("job."+w.name, "job_phase", job.Because(StartsAnew, "phase", string(old.Phase)))
			w.spec = declared
			clear(w.prints)
			old = nil
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
	rec.Incidents = slices.Clone(old.Incidents)
	if n := len(rec.Incidents); n > 0 { // more may come to it: what is the input's is not appended to in place
		newest := &rec.Incidents[n-1]
		newest.Culprits, newest.Evidence = slices.Clip(newest.Culprits), slices.Clip(newest.Evidence)
	}
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
		if seen.Generation > rec.World.Generation || seen.Broken != rec.World.Broken {
			rec.World = seen
			p.out.Dirty = true
		}
	}
}

// settled is the declaration that holds: what the job's lifecycle ignores is as it was last applied, and all of it is
// where taking it up would end a job that must not end.
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

// newRecord makes the record of a job that has none: one that runs and is adopted, or a new one.
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

// anew reports whether a job that ended is another one now: its declaration changed in what its slots are
// started from, or it failed and an explicit apply asks for another try.
func (p *pass) anew(w *work, old *job.Record) bool {
	if !old.Phase.Ended() || slices.ContainsFunc(old.Slots, func(s job.Slot) bool { return s.Phase.Live() }) {
		return false
	}
	if p.allAskedFor(old) || slices.ContainsFunc(old.Slots, func(s job.Slot) bool { return w.editedSince(&old.Spec, &s) }) ||
		slices.ContainsFunc(job.Diff(old.Spec, *w.spec), func(c job.FieldChange) bool { return c.Change == job.Replaces }) {
		return true
	}
	w.retried = p.in.Rerun[w.name] && old.Phase != job.JobSucceeded
	return w.retried
}

// editedSince reports whether a slot of a job that ended is declared differently by now in what it is started from. One that
// ended by itself is held against what ran in it. One that was stopped may have been given up before an edit that the others
// took up, so what ran in it says nothing: it is held against what was applied last, in what is its own.
func (w *work) editedSince(applied *job.Job, s *job.Slot) bool {
	was, is, index := applied.Role(s.Address.Role), w.spec.Role(s.Address.Role), s.Address.Index
	if is == nil {
		return false
	}
	if s.Phase != job.Canceled {
		return s.Fingerprint != "" && s.Fingerprint != w.print(is, index)
	}
	return was != nil && !reflect.DeepEqual(was.For(index), is.For(index))
}

// adoptable is what runs already of a job that is not recorded, under its name or one that it had: the state was lost.
func (p *pass) adoptable(name string) adopted {
	if p.in.Records[name] != nil {
		return adopted{} // an earlier job of the name ended: its remains are not the new one's
	}
	for _, launched := range p.namesOf(name) {
		unrecorded := p.unrecorded(launched)
		if len(unrecorded) == 0 {
			continue
		}
		uids := slices.SortedFunc(maps.Keys(unrecorded), func(a, b string) int {
			// Its own name may be in use by one that was moved away from it; a name apart is nobody else's.
			longer := cmp.Compare(len(unrecorded[b].Slot.Job), len(unrecorded[a].Slot.Job))
			if launched != name {
				longer = -longer
			}
			return cmp.Or(longer, cmp.Compare(a, b))
		})
		found := adopted{uid: uids[0], launched: unrecorded[uids[0]].Slot.Job}
		if found.launched != name {
			p.see(found.uid, name)
		}
		return found
	}
	return adopted{}
}

// namesOf are the names under which a job that is not recorded may run already: its own, and those that it had.
func (p *pass) namesOf(name string) []string {
	names := []string{name}
	for _, from := range slices.Sorted(maps.Keys(p.in.Moved)) {
		if p.in.Moved[from] == name && p.in.Records[from] == nil {
			names = append(names, from)
		}
	}
	return names
}

// ours reports whether an incarnation of no recorded job may be ours: it was launched under our state, or under none.
func (p *pass) ours(inc *job.Incarnation) bool {
	return inc.Owner == "" || inc.Owner == p.in.Capabilities[inc.Provider].Owner
}

func (w *work) insert(s *job.Slot) {
	byIndex := w.index[s.Address.Role]
	if byIndex == nil {
		byIndex = map[int]*job.Slot{}
		w.index[s.Address.Role] = byIndex
	}
	byIndex[s.Address.Index] = s
	w.slots = append(w.slots, s)
}

// assign hands each incarnation to its job. Slots that are not recorded are adopted.
func (p *pass) assign() {
	for i := range p.in.Snapshot.Incarnations {
		inc := &p.in.Snapshot.Incarnations[i]
		w := p.byName[inc.Slot.Job]
		if w == nil || w.rec.UID != inc.UID {
			p.unseen = append(p.unseen, *inc)
			if inc.State != job.Gone && !p.ours(inc) {
				p.owners[runsAt{inc.Provider, inc.Slot.Job}] = inc.Owner
			}
			continue
		}
		w.seen[inc.Slot] = append(w.seen[inc.Slot], inc)
		if w.index[inc.Slot.Role][inc.Slot.Index] == nil && inc.State != job.Gone {
			w.insert(&job.Slot{Address: inc.Slot, Phase: job.Pending, Rank: -1})
			p.out.Dirty = p.out.Dirty || !w.frozen
		}
	}
	for _, w := range p.jobs {
		for _, seen := range w.seen {
			slices.SortFunc(seen, func(a, b *job.Incarnation) int { return cmp.Compare(a.Number, b.Number) })
		}
	}
}

// step moves a slot. An event that its phase does not take is noted and changes nothing.
func (p *pass) step(s *job.Slot, e job.Event) bool {
	next, err := s.Phase.Step(e)
	if err != nil {
		p.note(s.Address.String(), "rejected", job.Because(EventRejected, "message", err.Error()))
		return false
	}
	if s.Phase == job.Canceling {
		s.Why = nil
	}
	s.Phase, s.Since = next, p.in.Now
	p.out.Dirty = true
	return true
}

func (p *pass) note(address, kind string, what job.Reason) {
	p.out.Notices = append(p.out.Notices, job.Notice{Time: p.in.Now, Type: kind, Address: address, Reason: what})
}

// wakeAt asks for another pass at t.
func (p *pass) wakeAt(t time.Time) {
	if p.out.Wake.IsZero() || t.Before(p.out.Wake) {
		p.out.Wake = t
	}
}

// pending reports whether d has not passed since t, and wakes when it has. A clock that was set back past t ends
// the wait: times that were stored are another clock's.
func (p *pass) pending(t time.Time, d time.Duration) bool {
	passed := p.in.Now.Sub(t)
	if passed < 0 || passed >= d {
		return false
	}
	p.wakeAt(t.Add(d))
	return true
}

// current is the slot's newest incarnation as observed; nil if it is not there.
func (w *work) current(s *job.Slot) *job.Incarnation {
	seen := w.seen[s.Address]
	for i := len(seen) - 1; i >= 0; i-- {
		if seen[i].Number == s.Incarnation {
			return seen[i]
		}
	}
	return nil
}

// running lists the incarnations of the slot that are not gone.
func (w *work) running(s *job.Slot) []int {
	var numbers []int
	for _, inc := range w.seen[s.Address] {
		if inc.State != job.Gone {
			numbers = append(numbers, inc.Number)
		}
	}
	return numbers
}

// holds reports whether the slot counts as one of its role: it has a reservation, or lost it by a fault and
// is to get it back.
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

// of lists the slots of a role that hold, by index.
func (w *work) of(role string) []*job.Slot {
	var held []*job.Slot
	for _, s := range w.slots {
		if s.Address.Role == role && holds(s) {
			held = append(held, s)
		}
	}
	slices.SortFunc(held, func(a, b *job.Slot) int { return a.Address.Index - b.Address.Index })
	return held
}

// admitted reports whether the job has, or had and is owed, capacity.
func (w *work) admitted() bool {
	return slices.ContainsFunc(w.slots, holds)
}

// active reports whether the job is to run at all.
func (w *work) active() bool { return w.declared && !w.ending && !w.rec.Phase.Ended() }

// succeeded reports whether a slot of the role has succeeded: no start follows in it.
func (w *work) succeeded(role string) bool {
	return w.finished[role]
}

// ranked reports whether the job has a world at all.
func (w *work) ranked() bool {
	return slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool { return r.Ranked })
}

// why is a reason of a slot. All slots that have the same one share it.
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
		if w.gone {
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
		p.out.Records[w.name] = w.rec
	}
	for i := range p.out.Changes {
		c := &p.out.Changes[i]
		if w := p.byName[c.Job]; c.Provider == "" && w != nil {
			c.Provider = w.spec.Provider
		}
	}
	p.thaw()
	p.out.Kept = slices.Sorted(maps.Keys(p.kept))
	if len(p.released) > 0 {
		p.out.Released = p.released
	}
	slices.SortStableFunc(p.out.Changes, func(a, b Change) int { return cmp.Compare(a.Wave, b.Wave) })
	return p.out
}

func bySlot(a, b *job.Slot) int { return a.Address.Compare(b.Address) }
