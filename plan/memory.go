package plan

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Memory is what a plan leaves for the next one: which jobs are at rest, and what they hold of the nodes. A plan that has it costs what
// has changed since the last one; it is the same plan without it. The zero Memory knows nothing. It is not safe for concurrent use.
//
// A job is at rest after a plan in which nothing was decided about it, waited for or recorded, and of which nothing runs but what
// should. As long as what its steps look at is the same (its declaration, record, incarnations, world and nodes) and no time of
// its own is due, they would have no effect again, so a plan skips them and takes over what the job wanted.
// A job whose size or end follows from what sources say, or from schedules, is never at rest, nor is one on a node about which something is
// recorded.
//
// Steps that weigh jobs against each other may need a job at rest. They wake it: then it is as after its own steps.
type Memory struct {
	in     Input // of the newest plan; its parts that are about one job are compared job by job
	rests  map[string]*rest
	spaces map[string]*space // with what jobs at rest hold
}

// Make is the same as the function Make.
func (m *Memory) Make(in Input) Plan { return decide(in, m) }

// rest is a job at rest.
type rest struct {
	declared job.Job
	record   *job.Record
	parts    [][]job.Incarnation
	world    job.World
	want     job.Want
	group    job.Group
	grouped  bool
	sizes    []Size
	wake     time.Time // when it is not at rest anymore; zero is never
	uses     []use
}

// use is what slots of a job hold of a node.
type use struct {
	node       string
	free, soon amount
}

// plain reports whether an input asks for nothing special: what operators ask, and what the files say about names, concerns jobs in
// ways that only a whole plan follows.
func plain(in *Input) bool {
	asked := func(n job.NodeRecord) bool { return n.Override != nil || len(n.Handled) > 0 }
	reruns := false
	for _, rerun := range in.Rerun {
		reruns = reruns || rerun
	}
	b := &in.Blocks
	blocks := len(b.Moved) + len(b.Forget) + len(b.ForgetDeclared) + len(b.ForgetWithin) + len(b.Imports)
	return !reruns && !in.Refresh && !in.Destroy && len(in.Requests)+len(in.Released)+len(in.Destroyed)+len(in.Withheld)+blocks == 0 &&
		!in.Scope.Limited() && len(in.Scope.Replace) == 0 && !slices.ContainsFunc(in.Nodes, asked)
}

// recall decides which jobs are still at rest. Everything is forgotten after a change that concerns all jobs.
func (p *pass) recall() {
	m, in := p.memory, &p.in
	before := m.in
	m.in = *in
	if !plain(in) || before.Jobs == nil || in.Now.Before(before.Now) || before.Once != in.Once || before.Keep != in.Keep || !before.Since.Equal(in.Since) ||
		(before.Requests == nil) != (in.Requests == nil) || !reflect.DeepEqual(before.Capabilities, in.Capabilities) || !reflect.DeepEqual(before.Bars, in.Bars) ||
		!reflect.DeepEqual(before.Extra, in.Extra) || !reflect.DeepEqual(before.Prevent, in.Prevent) || !reflect.DeepEqual(before.Snapshot.Held, in.Snapshot.Held) || !reflect.DeepEqual(before.Directory, in.Directory) || levelOf(&before) != p.level {
		m.rests, m.spaces = map[string]*rest{}, map[string]*space{}
		return
	}
	changed := changedNodes(before.Snapshot.Nodes, in.Snapshot.Nodes)
	for provider, sp := range m.spaces {
		if len(changed) > 0 && !maps.Equal(sp.dims, dimensions(in.Snapshot.Nodes, provider)) {
			m.rests = nil // what jobs hold is in the old ones
		}
	}
	if len(changed) > 0 {
		m.spaces = map[string]*space{}
	}
	parts := make(map[string][][]job.Incarnation, len(in.Jobs))
	for _, part := range in.Snapshot.Incarnations {
		if len(part) > 0 {
			parts[part[0].UID] = append(parts[part[0].UID], part)
		}
	}
	rests := make(map[string]*rest, len(m.rests))
	for _, w := range p.jobs {
		r, rec := m.rests[w.name], in.Records[w.name]
		if r != nil && w.declared && w.spec != nil && rec != nil && r.stays(p, w.spec, rec, parts[rec.UID], changed) {
			w.rest, rests[w.name] = r, r
		}
	}
	for name, r := range m.rests {
		if sp := m.spaces[r.declared.Provider]; rests[name] == nil && sp != nil {
			sp.use(r.uses, -1)
		}
	}
	m.rests = rests
}

// stays reports whether the job is still at rest.
func (r *rest) stays(p *pass, declared *job.Job, rec *job.Record, parts [][]job.Incarnation, changed map[onNode]bool) bool {
	switch {
	case rec != r.record, !r.wake.IsZero() && !p.in.Now.Before(r.wake), len(p.in.Snapshot.Suspicions[declared.Name]) > 0, p.surveyed(rec.UID):
		return false
	case !slices.EqualFunc(parts, r.parts, job.SamePart), !reflect.DeepEqual(p.in.Snapshot.Worlds[declared.Name], r.world), !reflect.DeepEqual(*declared, r.declared):
		return false
	}
	return len(changed) == 0 || !slices.ContainsFunc(r.uses, func(u use) bool { return changed[onNode{r.declared.Provider, u.node}] })
}

// changedNodes are the nodes that were added, removed or changed.
func changedNodes(before, now []job.Node) map[onNode]bool {
	if len(before) == len(now) && (len(now) == 0 || &before[0] == &now[0]) {
		return nil
	}
	changed, old := map[onNode]bool{}, map[onNode]*job.Node{}
	for i := range before {
		if i >= len(now) || before[i].Name != now[i].Name || before[i].Provider != now[i].Provider {
			old[onNode{before[i].Provider, before[i].Name}] = &before[i]
		}
	}
	for i := range now {
		at := onNode{now[i].Provider, now[i].Name}
		was := old[at]
		if was == nil && i < len(before) && before[i].Name == at.node && before[i].Provider == at.provider {
			was = &before[i]
		}
		delete(old, at)
		if was == nil || !reflect.DeepEqual(was, &now[i]) {
			changed[at] = true
		}
	}
	for at := range old {
		changed[at] = true
	}
	return changed
}

// about begins a step's part about one job, and reports whether it has anything to do: not with jobs at rest. What the job
// waits for from now on is its own.
func (p *pass) about(w *work) bool {
	p.current = w
	return w.rest == nil
}

// wake ends a job's rest: other jobs need it.
func (p *pass) wake(w *work) {
	r := w.rest
	if r == nil {
		return
	}
	defer func(was *work) { p.current = was }(p.current)
	p.current, w.rest, w.wakes = w, nil, r.wake // its times are its own, not of the job that needs it
	if !r.wake.IsZero() {
		p.wakeAt(r.wake)
	}
	sp := p.space(w.spec.Provider)
	sp.use(r.uses, -1)
	delete(p.memory.rests, w.name)
	p.open(w)
	for _, part := range r.parts {
		w.addPart(part)
		for i := range part {
			p.attach(w, &part[i])
		}
	}
	w.sortSeen()
	for _, s := range w.slots {
		sp.noteExtra(s, w.current(s))
	}
}

// wakeAll ends the rest of all jobs.
func (p *pass) wakeAll() {
	for _, w := range p.jobs {
		p.wake(w)
	}
}

// wakeOnRecorded ends the rest of jobs on nodes about which something is recorded: what they want may depend on it.
func (p *pass) wakeOnRecorded() {
	if p.memory == nil || len(p.out.Nodes) == 0 {
		return
	}
	for _, w := range p.jobs {
		if w.rest != nil && p.onRecorded(w.spec.Provider, w.rest.uses) {
			p.wake(w)
		}
	}
}

// onRecorded reports whether something is recorded about a node of these.
func (p *pass) onRecorded(provider string, uses []use) bool {
	if len(p.out.Nodes) == 0 {
		return false
	}
	sp := p.space(provider)
	return slices.ContainsFunc(uses, func(u use) bool { pl := sp.byName[u.node]; return pl != nil && pl.rec != nil })
}

// usesDrained reports whether a node of these is drained: a job there moves once other nodes have room.
func (p *pass) usesDrained(provider string, uses []use) bool {
	sp := p.space(provider)
	return sp.drained && slices.ContainsFunc(uses, func(u use) bool { pl := sp.byName[u.node]; return pl != nil && pl.draining() })
}

// surveyed reports whether anything is known of what sources said about a job.
func (p *pass) surveyed(uid string) bool {
	return slices.ContainsFunc(p.in.Snapshot.Surveys, func(s job.Survey) bool { return s.UID == uid })
}

// steered reports whether the job's size or end depends on the time, or on what sources say.
func (w *work) steered() bool {
	rec := w.rec
	return w.spec.Deadline != "" || w.spec.StopWhen != nil || len(rec.Scaled) > 0 || rec.Measured != nil || rec.Stopping != nil ||
		slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool {
			return r.Scaling != nil && (len(r.Scaling.Policies) > 0 || r.Scaling.Enabled != nil)
		})
}

// keepResting takes over what a job at rest wanted.
func (p *pass) keepResting(w *work) {
	r := w.rest
	p.out.Wants[w.name] = r.want
	if r.grouped {
		p.out.Groups[w.name] = r.group
	}
	p.out.Sizes = append(p.out.Sizes, r.sizes...)
	p.addCaveats(w)
	if !r.wake.IsZero() {
		p.wakeAt(r.wake)
	}
}

// remember keeps the jobs that are at rest after this pass.
func (p *pass) remember() {
	m := p.memory
	if m == nil || !plain(&m.in) {
		return
	}
	busy := map[string]bool{}
	for i := range p.out.Changes {
		busy[p.out.Changes[i].Job] = true
	}
	for i := range p.out.Waits {
		busy[p.out.Waits[i].Job] = true
	}
	for i := range p.out.Ledger {
		busy[p.out.Ledger[i].Job] = true
	}
	for i := range p.out.Refusals {
		busy[p.out.Refusals[i].Job] = true
	}
	sizes := map[string][]Size{}
	for _, s := range p.out.Sizes {
		busy[s.Job] = busy[s.Job] || s.Changes() || len(s.Reasons) > 0
		sizes[s.Job] = append(sizes[s.Job], s)
	}
	for provider, sp := range p.spaces {
		m.spaces[provider] = sp
		sp.restore()
	}
	for _, w := range p.jobs {
		given := p.in.Records[w.name]
		if w.rest != nil || busy[w.name] || given == nil || p.out.Records[w.name] != given || !w.rests() || !p.isBound(w) ||
			len(p.in.Snapshot.Suspicions[w.name]) > 0 {
			continue
		}
		r := &rest{declared: *w.spec, record: given, parts: w.parts, world: p.in.Snapshot.Worlds[w.name], want: p.out.Wants[w.name],
			sizes: sizes[w.name], wake: w.wakes}
		r.group, r.grouped = p.out.Groups[w.name]
		if i := p.in.declared(w.name); i >= 0 {
			r.declared = p.in.Jobs[i]
		}
		sp := p.space(w.spec.Provider)
		if r.uses = sp.usesOf(func() { p.measureJob(w, sp) }); p.onRecorded(w.spec.Provider, r.uses) || p.usesDrained(w.spec.Provider, r.uses) {
			continue
		}
		m.rests[w.name] = r
	}
	for _, sp := range m.spaces {
		sp.restore()
	}
	for _, w := range p.jobs {
		if r := m.rests[w.name]; r != nil && w.rest == nil {
			m.spaces[r.declared.Provider].use(r.uses, 1)
		}
	}
}

// rests reports whether a job is at rest by itself.
func (w *work) rests() bool {
	if !w.declared || w.part != nil || w.frozen || w.gone || !w.active() && !w.rec.Phase.Ended() || w.retried || w.imported != "" || w.steered() ||
		len(w.decisions)+len(w.faults)+len(w.collateral)+len(w.suspected)+len(w.changed)+len(w.outdated)+len(w.finished)+len(w.rec.Handled)+len(w.rec.Overrides) > 0 {
		return false
	}
	runs := 0
	for _, s := range w.slots {
		inc := w.current(s)
		if s.Phase == job.Running {
			runs++
		}
		switch {
		case !s.Phase.Live():
			if len(w.running(s)) > 0 {
				return false
			}
		case s.Phase != job.Running || inc == nil || len(w.seen[s.Address]) != 1 && len(w.running(s)) > 1:
			return false
		case inc.Member != nil && inc.Member.Check != nil && inc.Member.Check.Verdict != job.CheckPassed:
			return false // what is known of its node changes with time
		}
	}
	return (runs > 0) == w.active()
}

// isBound reports whether no slot of the job has only a hint.
func (p *pass) isBound(w *work) bool {
	return !slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase.Live() && p.hinted(w, s) })
}
