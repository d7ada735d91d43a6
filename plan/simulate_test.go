package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// world is an infrastructure in memory: it carries plans out on a snapshot immediately, forms worlds as the service does, and
// simulates what happens in a cluster. Its time is the test's.
type world struct {
	now     time.Time
	jobs    []job.Job
	nodes   []job.Node
	incs    []*job.Incarnation
	worlds  map[string]job.World
	uids    map[string]string // of the world in worlds
	records job.Records
	wants   map[string]job.Want

	directory job.Directory
	spent     job.Spent

	requests []job.Request // without a final reply, once any was made
	unheard  bool          // replies are lost

	rerun  bool
	once   bool
	keep   bool
	made   int // UIDs given
	joined map[string]time.Time
	// stuck agents start but never register.
	stuck map[job.Address]bool
	// deaf members keep running after their world has ended: they do not know it yet.
	deaf map[job.Address]bool
	// barren: worlds make no progress; otherwise each is a step ahead of the last one.
	barren bool
	// late: worlds show no step until told to.
	late bool
	// suspicions are what detection says, by job.
	suspicions map[string][]job.Suspicion
	// surveys are what sources of scaling policies said.
	surveys []job.Survey
	// checks is what a check of a node yields; it passes if there is nothing.
	checks map[string]job.CheckOutcome
	// slowStop: incarnations that are asked to stop keep running until stopped.
	slowStop bool
	stopping map[*job.Incarnation]bool
	// lag: launched incarnations are missing from the next snapshots, until seen.
	lag    bool
	unseen map[*job.Incarnation]bool
	// can is what the provider can do. If it does not place, launched incarnations wait for bind.
	can  job.Capabilities
	bars map[string]map[string]string
	// extra is what pods of a role take in addition to their reservation.
	extra map[string]job.Resources
	// hints are the intended nodes of launches. A kind scheduler prefers these.
	hints map[*job.Incarnation]string
	gated map[*job.Incarnation]bool // launched to wait for its gang
	kind  bool
	far   []*job.Incarnation // at another site than the provider shows
	held  map[string]string  // why a job may not be launched yet, by name
	// What else the files say, and what is remembered of forgotten jobs.
	moved     map[string]string
	removed   map[string]bool
	declared  []string      // addresses in removed blocks
	modules   []plan.Module // in removed blocks
	imports   []plan.Import
	destroy   bool
	scope     plan.Scope
	released  map[string]job.Released
	destroyed map[string]job.Override
	marked    []job.NodeRecord
	launched  map[string]string // the name that a job was launched under, by UID
	// groups are those of the newest plan.
	groups map[string]job.Group
}

func newWorld() *world {
	return &world{now: jobtest.Epoch, worlds: map[string]job.World{}, uids: map[string]string{}, records: job.Records{},
		joined: map[string]time.Time{}, stuck: map[job.Address]bool{}, deaf: map[job.Address]bool{}, stopping: map[*job.Incarnation]bool{}, unseen: map[*job.Incarnation]bool{},
		can: job.Capabilities{Places: true}, bars: map[string]map[string]string{}, extra: map[string]job.Resources{}, hints: map[*job.Incarnation]string{}, gated: map[*job.Incarnation]bool{},
		suspicions: map[string][]job.Suspicion{}, moved: map[string]string{}, removed: map[string]bool{}, launched: map[string]string{}}
}

// input is the planner's input. It shares nothing that a later event changes.
func (w *world) input() plan.Input {
	snap := job.Snapshot{At: w.now, Nodes: slices.Clone(w.nodes), Worlds: map[string]job.World{}}
	var seen []job.Incarnation
	for _, inc := range w.incs {
		if w.unseen[inc] {
			continue
		}
		c := *inc
		if inc.Member != nil {
			m := *inc.Member
			c.Member = &m
		}
		seen = append(seen, c)
	}
	snap.Incarnations = job.InParts(seen)
	snap.Suspicions, snap.Surveys = maps.Clone(w.suspicions), slices.Clone(w.surveys)
	for name, why := range w.held {
		if rec := w.records[name]; rec != nil {
			snap.Held = map[string]string{rec.UID: why}
		}
	}
	for name, formed := range w.worlds {
		if rec := w.records[name]; rec == nil || rec.UID == w.uids[name] {
			formed.Members = slices.Clone(formed.Members)
			snap.Worlds[name] = formed
		}
	}
	snap.Suspicions = maps.Clone(w.suspicions)
	given := map[string]string{}
	rerun := map[string]bool{}
	for name := range w.records {
		rerun[name] = w.rerun
	}
	jobs, prevent := slices.Clone(w.jobs), map[string]bool(nil)
	if w.destroy {
		prevent = map[string]bool{}
		for _, j := range jobs {
			prevent[j.Name] = j.Lifecycle.PreventDestroy
		}
		jobs = nil
	}
	return plan.Input{
		Blocks: plan.Blocks{Directory: w.directory, Moved: maps.Clone(w.moved), Forget: maps.Clone(w.removed), ForgetDeclared: slices.Clone(w.declared), ForgetWithin: slices.Clone(w.modules), Imports: slices.Clone(w.imports)}, Released: w.released, Destroyed: w.destroyed, Nodes: w.marked, Spent: w.spent, Destroy: w.destroy, Prevent: prevent,
		Scope: w.scope, Jobs: jobs, Snapshot: snap, Records: w.records, Now: w.now, Rerun: rerun, Once: w.once, Keep: w.keep,
		Capabilities: map[string]job.Capabilities{"local": w.can}, Bars: w.bars, Extra: w.extra, Requests: slices.Clone(w.requests),
		NewUID: func(name string) string {
			if given[name] == "" {
				given[name] = fmt.Sprintf("%s-uid%d", name, w.made+len(given)+1)
			}
			return given[name]
		},
	}
}

// take stores a plan's records, and passes its wants to the service.
func (w *world) take(p plan.Plan) {
	w.rename(p.Records)
	w.released, w.destroyed, w.marked, w.spent = p.Released, p.Destroyed, p.Nodes, p.Spent
	for name, rec := range p.Records {
		if old := w.records[name]; old == nil || old.UID != rec.UID {
			w.made++
			if w.uids[name] != rec.UID {
				delete(w.worlds, name)
			}
		}
	}
	w.records, w.wants, w.groups, w.rerun = p.Records, p.Wants, p.Groups, false
	for _, r := range p.Replies {
		if r.State.Final() && !w.unheard {
			w.requests = slices.DeleteFunc(w.requests, func(asked job.Request) bool { return asked.ID == r.ID })
		}
	}
}

// rename shows what runs under its jobs' current names, as the reconciler does.
func (w *world) rename(records job.Records) {
	for name, rec := range records {
		for old, was := range w.records {
			if was.UID == rec.UID && old != name {
				w.renameWorld(old, name)
			}
		}
		w.launched[rec.UID] = rec.LaunchedAs(name)
		for _, inc := range w.incs {
			if inc.UID == rec.UID {
				inc.Slot.Job = name
			}
		}
	}
}

func (w *world) renameWorld(from, to string) {
	if formed, known := w.worlds[from]; known {
		w.worlds[to], w.uids[to], w.joined[to] = formed.Of(to), w.uids[from], w.joined[from]
		delete(w.worlds, from)
		delete(w.uids, from)
	}
}

// lose loses the state: what runs is shown under the names that it was launched under.
func (w *world) lose() {
	for name, rec := range w.records {
		if launched := rec.LaunchedAs(name); launched != name {
			w.renameWorld(name, launched)
		}
	}
	w.records, w.released, w.destroyed, w.marked = job.Records{}, nil, nil, nil
	for _, inc := range w.incs {
		if name := w.launched[inc.UID]; name != "" {
			inc.Slot.Job = name
		}
	}
}

// carryOut does what can be done of a plan now.
func (w *world) carryOut(p plan.Plan) {
	for _, c := range p.Changes {
		if c.Wave > 0 {
			continue
		}
		switch {
		case c.Action == plan.Delete && c.Slot == job.Address{}:
			w.incs = slices.DeleteFunc(w.incs, func(i *job.Incarnation) bool { return i.UID == c.UID && i.State == job.Gone })
			if w.uids[c.Job] == c.UID {
				delete(w.worlds, c.Job)
			}
		case c.Launch != nil:
			w.stop(c)
			if !w.stops(c) {
				w.launch(c.Launch)
			}
		case c.Action == plan.Delete || c.Action == plan.Replace:
			w.stop(c)
		}
	}
}

// stops reports whether something that a change has to stop first still runs.
func (w *world) stops(c plan.Change) bool {
	return slices.ContainsFunc(w.incs, func(i *job.Incarnation) bool {
		return i.UID == c.UID && i.Slot == c.Slot && i.State != job.Gone && slices.Contains(c.Stop, i.Number)
	})
}

func (w *world) stop(c plan.Change) {
	for _, inc := range w.incs {
		if inc.UID == c.UID && inc.Slot == c.Slot && slices.Contains(c.Stop, inc.Number) && inc.State != job.Gone {
			if w.slowStop {
				w.stopping[inc] = true
				continue
			}
			w.end(inc, job.EndOrdered, nil)
		}
	}
}

// stopped stops everything that was asked to.
func (w *world) stopped() {
	for inc := range w.stopping {
		w.end(inc, job.EndOrdered, nil)
	}
	clear(w.stopping)
	w.slowStop = false
}

func (w *world) end(inc *job.Incarnation, why job.EndReason, exit *job.Exit) {
	inc.State, inc.Ended, inc.Exit, inc.Member = job.Gone, why, exit, nil
}

func (w *world) launch(l *job.Launch) {
	for _, inc := range w.incs {
		if inc.UID == l.UID && inc.Slot == l.Slot && inc.Number == l.Incarnation {
			inc.Drift = nil
			return // idempotent
		}
	}
	inc := &job.Incarnation{Slot: l.Slot, UID: l.UID, Number: l.Incarnation, Fingerprint: l.Fingerprint,
		Reserved: l.Reserved, State: job.Starting, Started: w.now, Provider: "local", Owner: w.can.Owner, Extra: w.extra[fmt.Sprintf("job.%s.%s", l.Slot.Job, l.Slot.Role)]}
	w.incs = append(w.incs, inc)
	w.hints[inc], w.gated[inc] = l.Node, l.Held
	if w.can.Places {
		w.bind(inc, l.Node)
	}
	if w.lag {
		w.unseen[inc] = true
	}
}

// bind puts an incarnation on a node, where it starts.
func (w *world) bind(inc *job.Incarnation, node string) {
	inc.Node, inc.State, inc.Waiting, inc.Started = node, job.Up, "", w.now
	if !w.stuck[inc.Slot] {
		inc.Member = &job.Member{State: job.MemberWaiting, Registered: w.now, Can: job.ActKinds}
		w.joined[inc.Slot.Job] = w.now
	}
}

// unbound lists what waits for the scheduler.
func (w *world) unbound() []*job.Incarnation {
	return slices.DeleteFunc(slices.Clone(w.incs), func(i *job.Incarnation) bool { return i.State == job.Gone || i.Node != "" })
}

// schedule binds what fits, as a cluster's scheduler does: in its own order, and not where the planner hinted.
func (w *world) schedule() {
	for _, inc := range w.unbound() {
		nodes := slices.Clone(w.nodes)
		if hint := w.node(w.hints[inc]); w.kind && hint != nil {
			nodes = append(nodes, *hint)
		}
		for _, n := range slices.Backward(nodes) {
			if n.Closed == "" && n.Drained == "" && w.bars[fmt.Sprintf("job.%s.%s", inc.Slot.Job, inc.Slot.Role)][n.Name] == "" && w.fits(inc, n) {
				w.bind(inc, n.Name)
				break
			}
		}
	}
}

// fits reports whether the node has room in addition to what is bound to it.
func (w *world) fits(inc *job.Incarnation, n job.Node) bool {
	used, slots := n.Foreign.Add(inc.Reserved).Add(inc.Extra), 1
	for _, other := range w.incs {
		if other.State != job.Gone && other.Node == n.Name {
			used, slots = used.Add(other.Reserved).Add(other.Extra), slots+1
		}
	}
	return used.Fits(n.Capacity) && (n.Slots == 0 || slots <= n.Slots)
}

// serve is what the service does between two plans: restarts in place, fencing, worlds.
func (w *world) serve() {
	for name, rec := range w.records {
		want, ok := w.wants[name]
		if !ok {
			continue
		}
		members := map[job.Address]*job.Incarnation{}
		for _, inc := range w.incs {
			if inc.UID != rec.UID || inc.State == job.Gone {
				continue
			}
			s := rec.Slot(inc.Slot.Role, inc.Slot.Index)
			if s == nil {
				continue
			}
			if m := inc.Member; m != nil && inc.Number == s.Incarnation && !m.Silent {
				if m.State == job.MemberFailed && m.InPlace < s.InPlace {
					m.State, m.InPlace, m.Exit = job.MemberWaiting, s.InPlace, nil
					w.joined[name] = w.now
				}
				members[inc.Slot] = inc
			}
		}
		for a, inc := range members {
			w.check(want.Check, a, inc)
		}
		w.serveWorld(name, rec, want, members)
		for _, a := range want.Unranked {
			if inc := members[a]; inc != nil && inc.Member.State == job.MemberWaiting && want.Check.Admits(inc.Member.Check) && !want.Hold {
				inc.Member.State = job.MemberRunning
			}
		}
		for a, inc := range members {
			if want.Idle && rec.Spec.Role(a.Role) != nil && !rec.Spec.Role(a.Role).Ranked && inc.Member.State == job.MemberRunning {
				inc.Member.State = job.MemberWaiting
			}
		}
	}
}

// check checks a member's node, if that is wanted and was not done.
func (w *world) check(want *job.WantCheck, a job.Address, inc *job.Incarnation) {
	if want == nil || inc.Member.State != job.MemberWaiting {
		return
	}
	number := want.Slots[a.Short()]
	if want.All {
		number = max(number, 1)
	}
	if done := inc.Member.Check; number == 0 || done != nil && done.Number >= number && done.Verdict != job.CheckRuns {
		return
	}
	o := w.checks[inc.Node]
	o.Number, o.At, o.Verdict = number, w.now, cmp.Or(o.Verdict, job.CheckPassed)
	inc.Member.Check = &o
}

func (w *world) serveWorld(name string, rec *job.Record, want job.Want, members map[job.Address]*job.Incarnation) {
	current := w.worlds[name]
	trains := current.Generation > 0 && !current.Broken
	ordered := trains // a planned end: no member has a fault
	in := map[job.Address]bool{}
	succeeded := false
	for _, m := range current.Members {
		inc := members[m.Slot]
		endedSo := func(why job.EndReason) bool {
			return slices.ContainsFunc(w.incs, func(i *job.Incarnation) bool {
				return i.UID == rec.UID && i.Slot == m.Slot && i.Number == m.Incarnation && i.Ended == why
			})
		}
		ended := endedSo(job.EndFinished)
		succeeded = succeeded || ended
		runs := inc != nil && inc.Number == m.Incarnation && inc.Member.State == job.MemberRunning
		in[m.Slot] = true
		trains = trains && (runs || ended)
		ordered = ordered && (runs || ended || endedSo(job.EndOrdered))
	}
	var chosen []*job.Incarnation
	complete, enough := true, true
	wanted := map[job.Address]bool{}
	for _, role := range want.Roles {
		var there []*job.Incarnation
		for _, i := range role.Slots {
			a := job.Address{Job: name, Role: role.Role, Index: i}
			wanted[a] = true
			inc := members[a]
			if inc != nil && (inc.Member.State == job.MemberWaiting && want.Check.Admits(inc.Member.Check) || inc.Member.State == job.MemberRunning) {
				there = append(there, inc)
			}
		}
		complete = complete && len(there) == len(role.Slots)
		n := role.Sizes.Floor(len(there))
		enough = enough && n > 0
		slices.SortStableFunc(there, func(a, b *job.Incarnation) int { // members of the last world first
			switch {
			case in[a.Slot] == in[b.Slot]:
				return 0
			case in[a.Slot]:
				return -1
			}
			return 1
		})
		chosen = append(chosen, there[:min(n, len(there))]...)
	}
	settled := !w.now.Before(w.joined[name].Add(want.Settle.Std()))
	outgrown := false
	for _, m := range current.Members {
		outgrown = outgrown || !wanted[m.Slot]
	}
	grows := len(chosen) > len(current.Members) && (complete || settled)
	reload := current.Generation <= want.Reload.Through || current.Generation <= want.Kill
	if trains && !outgrown && !grows && !reload && !want.Idle {
		return
	}
	if trains && succeeded {
		return
	}
	current.Broken = current.Generation > 0
	if ordered {
		current.Ordered = w.now
	}
	w.worlds[name], w.uids[name] = current, rec.UID
	stops := false
	for a, inc := range members {
		if in[a] && inc.Member.State == job.MemberRunning {
			if w.deaf[a] {
				stops = true
				continue
			}
			inc.Member.State = job.MemberWaiting
		}
	}
	if stops || want.Hold || succeeded || len(chosen) == 0 || !enough || !complete && !settled {
		return
	}
	for _, inc := range chosen {
		if w.check(want.Check, inc.Slot, inc); !want.Check.Admits(inc.Member.Check) {
			return // the next round forms the world without it
		}
	}
	w.form(name, rec, current, chosen, want.Reload.Step)
}

// form makes the next world: survivors keep their ranks as far as density allows.
func (w *world) form(name string, rec *job.Record, last job.World, chosen []*job.Incarnation, resume int64) {
	old := map[job.Address]int{}
	for _, m := range last.Members {
		old[m.Slot] = m.Rank
	}
	byRank := make([]*job.Incarnation, len(chosen))
	var rest []*job.Incarnation
	for _, inc := range chosen {
		if r, had := old[inc.Slot]; had && r < len(byRank) {
			byRank[r] = inc
		} else {
			rest = append(rest, inc)
		}
	}
	next := job.World{Generation: max(last.Generation, rec.World.Generation) + 1, Formed: w.now, ResumeStep: resume}
	if !w.late {
		next.FirstStep = w.now
	}
	for r := range byRank {
		if byRank[r] == nil {
			byRank[r], rest = rest[0], rest[1:]
		}
		byRank[r].Member.State, byRank[r].Member.Generation = job.MemberRunning, next.Generation
		byRank[r].Member.Loss = nil
		byRank[r].Member.Ranks = nil
		switch {
		case w.late:
			byRank[r].Member.Ranks = []job.RankStatus{{}}
		case !w.barren:
			byRank[r].Member.Step = int64(next.Generation)
		}
		next.Members = append(next.Members, job.WorldMember{Slot: byRank[r].Slot, Incarnation: byRank[r].Number, Rank: r, Processes: 1})
	}
	w.worlds[name] = next
}

// shows has the members of a job's world show a step, at a rate a second.
func (w *world) shows(name string, step int64, rate float64, total int64) {
	world := w.worlds[name]
	if world.FirstStep.IsZero() {
		world.FirstStep = w.now
		w.worlds[name] = world
	}
	for _, m := range world.Members {
		member := w.at(m.Slot).Member
		first := step
		if known := member.Ranks; len(known) > 0 && known[0].Progress != nil {
			first = *known[0].Progress.FirstStep
		}
		reading := job.Reading{Step: &step}
		if total > 0 {
			reading.Total = &total
		}
		member.Ranks = []job.RankStatus{{Progress: &job.RankProgress{By: job.OwnPattern, Reading: reading, FirstStep: &first, StepRate: rate}}}
		member.Step, member.FirstStep, member.StepRate = step, first, rate
	}
}

// at is the newest incarnation of a slot that is not gone; nil if there is none.
func (w *world) at(a job.Address) *job.Incarnation {
	var newest *job.Incarnation
	for _, inc := range w.incs {
		if inc.Slot == a && inc.State != job.Gone && (newest == nil || inc.Number > newest.Number) {
			newest = inc
		}
	}
	return newest
}

func (w *world) node(name string) *job.Node {
	for i := range w.nodes {
		if w.nodes[i].Name == name {
			return &w.nodes[i]
		}
	}
	return nil
}

func (w *world) removeNode(name string, died bool) {
	w.nodes = slices.DeleteFunc(w.nodes, func(n job.Node) bool { return n.Name == name })
	for _, inc := range w.incs {
		if died && inc.Node == name && inc.State != job.Gone {
			w.end(inc, "", nil)
		}
	}
}

// fail makes a process of the slot exit; the agent waits for the verdict. Without a time the exit is now.
func (w *world) fail(a job.Address, exit job.Exit) {
	if inc := w.at(a); inc != nil && inc.Member != nil {
		if exit.At.IsZero() {
			exit.At = w.now
		}
		inc.Member.State, inc.Member.Exit = job.MemberFailed, &exit
		delete(w.deaf, a)
	}
}

// pass plans once, and carries the plan out.
func (w *world) pass() plan.Plan {
	p := plan.Make(w.input())
	w.take(p)
	w.carryOut(p)
	return p
}

// settle continues until neither the planner nor the service has anything to do. It passes each plan to told.
func (w *world) settle(most int, told func(plan.Plan)) error {
	before := ""
	for range most {
		p := w.pass()
		told(p)
		w.serve()
		after := w.fingerprint()
		if after == before && !p.Dirty {
			return nil
		}
		before = after
	}
	return fmt.Errorf("not settled after %d passes", most)
}

// fingerprint is what runs, as text to compare.
func (w *world) fingerprint() string {
	var b strings.Builder
	for _, inc := range w.incs {
		fmt.Fprintf(&b, "%s#%d %s %s", inc.Slot, inc.Number, inc.Node, inc.State)
		if inc.Member != nil {
			fmt.Fprintf(&b, " %s %d", inc.Member.State, inc.Member.Generation)
		}
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(w.worlds)) {
		fmt.Fprintf(&b, "%s %d %v\n", name, w.worlds[name].Generation, w.worlds[name].Broken)
	}
	return b.String()
}
