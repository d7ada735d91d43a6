package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// Scope limits a plan to a part of the jobs, or asks for more than they need. The zero Scope does neither.
//
// What is out of scope stays as it is, on its infrastructure and in the records. It keeps its resources, so nothing in scope is
// given its places. A scope never splits what goes together: a Held Wait says what is held back, and why. Jobs are matched by
// their new names: moved blocks are applied first.
type Scope struct {
	// Targets are what may be changed, together with the roles that it depends on: by depends_on, and by the values that it
	// references. In a plan to destroy, together with the roles that depend on it. Empty is everything.
	Targets []job.Selector `json:"targets,omitempty"`
	// Excludes are what may not be changed, together with the roles that depend on it; in a plan to destroy, together with
	// those that it depends on.
	Excludes []job.Selector `json:"excludes,omitempty"`
	// Replace are slots to start again although they are healthy.
	Replace []Replacement `json:"replace,omitempty"`
	// References are the roles that a role takes values from, by its address ("job.mnist.ps").
	References map[string][]string `json:"references,omitempty"`
}

// Replacement requests the next incarnation of a slot. It is done once the slot has another incarnation.
type Replacement struct {
	Slot        job.Address `json:"slot"`
	UID         string      `json:"uid"`
	Incarnation int         `json:"incarnation"`
}

// Limited reports whether anything may be out of scope.
func (s *Scope) Limited() bool { return len(s.Targets)+len(s.Excludes) > 0 }

// Touches reports whether anything of a job is in scope.
func (s *Scope) Touches(name string) bool {
	ofJob := func(sel job.Selector) bool { return sel.Job == name }
	all := func(sel job.Selector) bool { return sel.Job == name && sel.Role == "" }
	return (len(s.Targets) == 0 || slices.ContainsFunc(s.Targets, ofJob)) && !slices.ContainsFunc(s.Excludes, all)
}

// Replacements are the slots of recorded jobs that the selectors match and that were ever started.
func Replacements(records job.Records, selectors []job.Selector) []Replacement {
	var out []Replacement
	for _, name := range slices.Sorted(maps.Keys(records)) {
		rec := records[name]
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if s.Incarnation > 0 && s.Phase != job.Canceled && matchesAny(selectors, s.Address) {
				out = append(out, Replacement{s.Address, rec.UID, s.Incarnation})
			}
		}
	}
	return out
}

// Named expands selectors that stand for several declared or recorded jobs, a module or a job without its keys, to one selector
// per job.
func Named(selectors []job.Selector, jobs []job.Job, records job.Records) []job.Selector {
	declared := map[string][]string{} // addresses by name: the record's may differ from the declaration's
	for i := range jobs {
		declared[jobs[i].Name] = append(declared[jobs[i].Name], jobs[i].Address)
	}
	for name, rec := range records {
		declared[name] = append(declared[name], rec.Spec.Address)
	}
	var out []job.Selector
	for _, sel := range selectors {
		found := false
		for _, name := range slices.Sorted(maps.Keys(declared)) {
			if name == sel.Job || slices.ContainsFunc(declared[name], sel.Covers) {
				found = true
				out = append(out, job.Selector{Job: name, Role: sel.Role, Ranges: sel.Ranges})
			}
		}
		if !found {
			out = append(out, sel)
		}
	}
	return out
}

// Named expands Targets and Excludes, as the function Named does.
func (s Scope) Named(jobs []job.Job, records job.Records) Scope {
	s.Targets, s.Excludes = Named(s.Targets, jobs, records), Named(s.Excludes, jobs, records)
	return s
}

// Absent are the indices in a selector that are neither slots of the job nor allowed by its declaration.
func (in *Input) Absent(sel job.Selector) []int {
	there := map[int]bool{}
	for _, spec := range in.specs(sel.Job) {
		if r := spec.Role(sel.Role); r != nil {
			_, most := r.Bounds()
			for i := range most {
				there[i] = true
			}
		}
	}
	if _, rec := in.recorded(sel.Job); rec != nil {
		for i := range rec.Slots {
			if rec.Slots[i].Address.Role == sel.Role {
				there[rec.Slots[i].Address.Index] = true
			}
		}
	}
	return notIn(sel, there)
}

// Unreplaced are the indices in a selector that cannot start again, because they do not run.
func (in *Input) Unreplaced(sel job.Selector) []int {
	there := map[int]bool{}
	for _, r := range Replacements(in.Records, []job.Selector{sel}) {
		there[r.Slot.Index] = true
	}
	return notIn(sel, there)
}

// notIn are the indices in a selector that are not in there.
func notIn(sel job.Selector, there map[int]bool) []int {
	var out []int
	for _, r := range sel.Ranges {
		for i := r[0]; i <= r[1]; i++ {
			if !there[i] {
				out = append(out, i)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func matchesAny(selectors []job.Selector, a job.Address) bool {
	return slices.ContainsFunc(selectors, func(sel job.Selector) bool { return sel.Matches(a) })
}

// Knows reports whether a selector matches anything that is declared or recorded. If not, known are the addresses that could
// have been meant.
func (in *Input) Knows(sel job.Selector) (known []string, ok bool) {
	if sel.Job == "" {
		return in.modules(), false // Named has expanded those that exist
	}
	rec := in.Records[sel.Job]
	specs := in.specs(sel.Job)
	if len(specs) == 0 {
		for i := range in.Jobs {
			known = append(known, "job."+in.Jobs[i].Name)
		}
		for name := range in.Records {
			known = append(known, "job."+name)
		}
		slices.Sort(known)
		return slices.Compact(known), false
	}
	if sel.Role == "" {
		return nil, true
	}
	for _, spec := range specs {
		for i := range spec.Roles {
			r := &spec.Roles[i]
			known = append(known, "job."+sel.Job+"."+r.Name)
			_, most := r.Bounds()
			for index := range most {
				if sel.Matches(job.Address{Job: sel.Job, Role: r.Name, Index: index}) {
					return nil, true
				}
			}
		}
	}
	if rec != nil && slices.ContainsFunc(rec.Slots, func(s job.Slot) bool { return sel.Matches(s.Address) }) {
		return nil, true
	}
	slices.Sort(known)
	return slices.Compact(known), false
}

// modules are those that contain jobs, declared or recorded.
func (in *Input) modules() []string {
	known := map[string]bool{}
	add := func(address string) {
		if at := strings.LastIndex(address, ".job."); at > 0 {
			known[address[:at]] = true
		}
	}
	for i := range in.Jobs {
		add(in.Jobs[i].Address)
	}
	for _, rec := range in.Records {
		add(rec.Spec.Address)
	}
	return slices.Sorted(maps.Keys(known))
}

// specs are a job's declaration and its last applied one, as far as they exist.
func (in *Input) specs(name string) []*job.Job {
	var out []*job.Job
	if i := slices.IndexFunc(in.Jobs, func(j job.Job) bool { return j.Name == name }); i >= 0 {
		out = append(out, &in.Jobs[i])
	}
	if _, rec := in.recorded(name); rec != nil {
		out = append(out, &rec.Spec)
	}
	return out
}

// recorded is the record of a declared job, with its name before moved blocks are applied.
func (in *Input) recorded(name string) (from string, rec *job.Record) {
	if rec := in.Records[name]; rec != nil {
		return name, rec
	}
	for _, from := range slices.Sorted(maps.Keys(in.Moved)) {
		if in.Moved[from] == name && in.Records[from] != nil {
			return from, in.Records[from]
		}
	}
	return name, nil
}

// nameToBe is the name of a recorded job after moved blocks are applied, which scopes match.
func (in *Input) nameToBe(name string) string {
	to, moved := in.Moved[name]
	if from, _ := in.recorded(to); moved && from == name {
		return to
	}
	return name
}

// extent is the part of one job that is in scope.
type extent struct {
	whole, none bool
	has         func(job.Address) bool
	roles       map[string]bool // roles entirely in scope, with every slot that they may have
	touched     map[string]bool // roles with any slot in scope
	notRunning  []string        // slots out of scope that do not run as they should
}

// extent finds the part of a job that is in scope. specs are the job as declared and as last applied. slots are those that it
// has, including those of roles that neither declares anymore.
func (s *Scope) extent(name string, specs []*job.Job, slots []job.Address, destroy bool) *extent {
	needs, needed := s.dependencies(specs)
	if destroy {
		needs, needed = needed, needs
	}
	targets, excludes := closure(name, s.Targets, needs), closure(name, s.Excludes, needed)
	e := &extent{roles: map[string]bool{}, touched: map[string]bool{}}
	e.has = func(a job.Address) bool {
		return (len(s.Targets) == 0 || matchesAny(targets, a)) && !matchesAny(excludes, a)
	}
	e.none, e.whole = true, true
	for _, role := range rolesOf(specs, slots) {
		most, whole := 0, true
		for _, spec := range specs {
			if r := spec.Role(role); r != nil {
				_, n := r.Bounds()
				most = max(most, n)
			}
		}
		see := func(a job.Address) {
			if e.has(a) {
				e.touched[role], e.none = true, false
			} else {
				whole, e.whole = false, false
			}
		}
		for index := range most {
			see(job.Address{Job: name, Role: role, Index: index})
		}
		for _, a := range slots {
			if a.Role == role {
				see(job.Address{Job: name, Role: role, Index: a.Index})
			}
		}
		e.roles[role] = whole
	}
	return e
}

// severable reports whether the part can be destroyed and the rest continue: it has only members without ranks, on which no world
// and no role depends.
func (e *extent) severable(spec *job.Job) bool {
	for role := range e.touched {
		if r := spec.Role(role); r == nil || r.Ranked {
			return false
		}
	}
	return true
}

func rolesOf(specs []*job.Job, slots []job.Address) []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, spec := range specs {
		for i := range spec.Roles {
			add(spec.Roles[i].Name)
		}
	}
	for _, a := range slots {
		add(a.Role)
	}
	return names
}

// running are the slots in which something runs, by UID, under the names that they are observed by.
func (in *Input) running() map[string][]job.Address {
	slots := map[string][]job.Address{}
	for inc := range in.Snapshot.Incarnations.All() {
		if inc.State != job.Gone {
			slots[inc.UID] = append(slots[inc.UID], inc.Slot)
		}
	}
	return slots
}

// slotsOf are the slots of a recorded job, and its unrecorded ones in which something runs.
func slotsOf(rec *job.Record, running map[string][]job.Address) []job.Address {
	var slots []job.Address
	for i := range rec.Slots {
		slots = append(slots, rec.Slots[i].Address)
	}
	return append(slots, running[rec.UID]...)
}

// slotsToBe are the slots that a job without a record gets if it is imported or adopted.
func (p *pass) slotsToBe(name string, running map[string][]job.Address) []job.Address {
	var slots []job.Address
	for inc := range p.in.Snapshot.Incarnations.All() {
		if slices.ContainsFunc(p.in.Imports, func(i Import) bool { return i.To.Job == name && i.names(inc) }) {
			slots = append(slots, running[inc.UID]...)
		}
	}
	for _, launched := range p.namesOf(name) {
		for uid := range p.unrecorded(launched) {
			if _, released := p.in.Released[uid]; !released {
				slots = append(slots, running[uid]...)
			}
		}
	}
	return slots
}

// dependencies are the roles that each role of a job depends on, and the roles that depend on each.
func (s *Scope) dependencies(specs []*job.Job) (needs, needed map[string][]string) {
	needs, needed = map[string][]string{}, map[string][]string{}
	for _, spec := range specs {
		for i := range spec.Roles {
			r := &spec.Roles[i]
			for _, on := range slices.Concat(r.DependsOn, s.References["job."+spec.Name+"."+r.Name]) {
				needs[r.Name] = append(needs[r.Name], on)
				needed[on] = append(needed[on], r.Name)
			}
		}
	}
	return needs, needed
}

// closure are a job's selectors and, transitively, the roles that they lead to.
func closure(name string, selectors []job.Selector, leads map[string][]string) []job.Selector {
	var out []job.Selector
	for _, sel := range selectors {
		if sel.Job == name {
			out = append(out, sel)
		}
	}
	led := map[string]bool{}
	for i := 0; i < len(out); i++ { // out grows
		for _, role := range leads[out[i].Role] {
			if !led[role] {
				led[role] = true
				out = append(out, job.Selector{Job: name, Role: role})
			}
		}
	}
	return out
}

// starts reports whether all of the job that starts together is in scope.
func (e *extent) starts(j *job.Job) bool {
	for i := range j.Roles {
		r := &j.Roles[i]
		least, _ := r.Bounds()
		for index := range max(r.Ceil(least), least) {
			if !e.has(job.Address{Job: j.Name, Role: r.Name, Index: index}) {
				return false
			}
		}
	}
	return true
}

// Effective is the input with everything out of scope as it was last applied.
func (in Input) Effective() Input {
	p := &pass{in: in, elsewhere: map[string]bool{}}
	if in.Refresh {
		p.asLastApplied()
	}
	p.narrow()
	return p.in
}

// narrow freezes what is out of scope: a recorded job continues as last applied and is not tracked, a new one is left out. Of a
// job partly in scope, the declaration applies only to the roles that are entirely in scope.
func (p *pass) narrow() {
	p.replacing = map[job.Address]Replacement{}
	for _, r := range p.in.Scope.Replace {
		p.replacing[r.Slot] = r
	}
	if !p.in.Scope.Limited() {
		return
	}
	p.frozen, p.parts = map[string]bool{}, map[string]*extent{}
	all := p.in
	p.in.Jobs, p.in.Moved, p.in.Rerun = nil, maps.Clone(all.Moved), maps.Clone(all.Rerun)
	p.in.Imports = slices.DeleteFunc(slices.Clone(all.Imports), func(i Import) bool { return !all.Scope.Touches(i.To.Job) })
	p.in.Forget = maps.Clone(all.Forget)
	maps.DeleteFunc(p.in.Forget, func(name string, _ bool) bool { return !all.Scope.Touches(name) })
	known, running := map[string]bool{}, all.running()
	for i := range all.Jobs {
		j := &all.Jobs[i]
		from, rec := all.recorded(j.Name)
		known[from] = true
		var slots []job.Address
		if rec != nil {
			slots = slotsOf(rec, running)
		} else {
			slots = p.slotsToBe(j.Name, running)
		}
		p.narrowJob(j, from, rec, all.Scope.extent(j.Name, all.specs(j.Name), slots, all.Destroy))
	}
	for _, name := range slices.Sorted(maps.Keys(all.Records)) {
		rec := all.Records[name]
		if known[name] {
			continue
		}
		as := all.nameToBe(name)
		switch e := all.Scope.extent(as, all.specs(as), slotsOf(rec, running), all.Destroy); {
		case e.whole:
		case e.none:
			p.freeze(name, rec)
		case all.Keep, all.Destroy && e.severable(&rec.Spec):
			spec := rec.Spec
			spec.Name = as
			p.in.Jobs, p.parts[as] = append(p.in.Jobs, spec), e
		default:
			p.freeze(name, rec)
			p.holdBack(as, "", job.Because(EndsWhole, "job", as))
		}
	}
}

// narrowJob adds a declared job as far as it is in scope.
func (p *pass) narrowJob(j *job.Job, from string, rec *job.Record, e *extent) {
	begun := rec != nil && !isOver(rec) && slices.ContainsFunc(rec.Slots, func(s job.Slot) bool { return holds(&s) || s.Phase == job.Canceling })
	switch {
	case e.whole:
		p.in.Jobs = append(p.in.Jobs, *j)
		return
	case e.none && rec == nil:
		p.elsewhere[j.Name] = true // anything that runs under its name is left alone as well
		return
	case e.none:
		p.freeze(from, rec)
		return
	case begun:
		p.in.Jobs, p.parts[j.Name] = append(p.in.Jobs, p.partOf(j, rec, e)), e
		return
	case rec == nil && e.starts(j), rec != nil && !isOver(rec) && e.starts(j):
		p.in.Jobs, p.parts[j.Name] = append(p.in.Jobs, *j), e
		return
	case rec == nil:
		p.elsewhere[j.Name] = true
	case isOver(rec) && !p.in.Rerun[from] && len(job.Diff(rec.Spec, *j)) == 0:
		p.freeze(from, rec)
		return
	default:
		p.freeze(from, rec)
	}
	p.holdBack(j.Name, "", job.Because(StartsWhole, "job", j.Name))
}

// partOf is the effective declaration of a job partly in scope: as declared for roles entirely in scope, else as last applied.
func (p *pass) partOf(j *job.Job, rec *job.Record, e *extent) job.Job {
	spec := rec.Spec
	spec.Name, spec.Address, spec.Secrets, spec.Source, spec.Roles = j.Name, j.Address, j.Secrets, j.Source, nil
	for i := range j.Roles {
		declared := &j.Roles[i]
		applied := rec.Spec.Role(declared.Name)
		switch {
		case e.roles[declared.Name]:
			spec.Roles = append(spec.Roles, *declared)
			continue
		case applied != nil:
			spec.Roles = append(spec.Roles, *applied)
			if len(job.Diff(*applied, *declared)) == 0 && samePrograms([]job.Role{*applied}, []job.Role{*declared}) {
				continue
			}
		}
		if e.touched[declared.Name] {
			p.holdBack(j.Name, declared.Name, job.Because(RoleUpdatesWhole, "job", j.Name, "role", declared.Name))
		}
	}
	for i := range rec.Spec.Roles {
		if r := &rec.Spec.Roles[i]; j.Role(r.Name) == nil && !e.roles[r.Name] {
			spec.Roles = append(spec.Roles, *r)
		}
	}
	return spec
}

// freeze keeps a recorded job as it is.
func (p *pass) freeze(name string, rec *job.Record) {
	delete(p.in.Moved, name)
	delete(p.in.Rerun, name)
	p.in.Jobs = append(p.in.Jobs, rec.Spec)
	p.frozen[name] = true
}

// holdBack reports what is in scope and not done.
func (p *pass) holdBack(name, role string, why job.Reason) {
	p.out.Waits = append(p.out.Waits, Wait{Job: name, Role: role, Reasons: []job.Reason{why}, Held: true})
}

// spared reports whether strays under a name are left alone because of the scope.
func (p *pass) spared(name string) bool {
	return p.frozen[name] || p.parts[name] != nil || p.in.Scope.Limited() && p.byName[name] == nil
}

// outside reports whether the slot is out of scope.
func (w *work) outside(a job.Address) bool { return w.part != nil && !w.part.has(a) }

// resizable reports whether the plan may change the number of the role's slots.
func (w *work) resizable(role string) bool { return w.part == nil || w.part.roles[role] }

// askedFor reports whether a replacement of the slot was requested and is not done.
func (p *pass) askedFor(w *work, s *job.Slot) bool {
	r, asked := p.replacing[s.Address]
	return asked && r.UID == w.rec.UID && s.Incarnation <= r.Incarnation
}

// allAskedFor reports whether an ended job is to start again because replacement of all its slots was requested.
func (p *pass) allAskedFor(rec *job.Record) bool {
	named := 0
	for i := range rec.Slots {
		s := &rec.Slots[i]
		switch r := p.replacing[s.Address]; {
		case r.UID == rec.UID && s.Incarnation <= r.Incarnation, p.applied(rec, s):
			named++
		case s.Phase != job.Canceled:
			return false
		}
	}
	return named > 0
}

// applied reports whether a request to apply, which is not in effect yet, restarts a slot.
func (p *pass) applied(rec *job.Record, s *job.Slot) bool {
	return slices.ContainsFunc(p.in.Requests, func(r job.Request) bool {
		return r.Verb == job.AskApply && matches(&r, s) && p.toTakeEffect(&r, s.Address.Job, rec)
	})
}

// lookOutside notes a slot out of scope that does not run as it should: the job's world may wait for it.
func (w *work) lookOutside(s *job.Slot) {
	inc := w.current(s)
	ended := inc == nil && s.Phase != job.Scheduling || inc != nil && (inc.State == job.Gone || inc.Member != nil && (inc.Member.Expired || inc.Member.State == job.MemberFailed))
	if s.Phase.Live() && (!startedPhase(s) && holds(s) || startedPhase(s) && ended) {
		w.part.notRunning = append(w.part.notRunning, s.Address.Short())
	}
}

// notRunningNamed is how many slots out of scope are named.
const notRunningNamed = 4

// thaw restores the records of frozen jobs, and reports slots out of scope that do not run.
func (p *pass) thaw() {
	for _, w := range p.jobs {
		if w.part == nil || len(w.part.notRunning) == 0 {
			continue
		}
		named, more := w.part.notRunning, ""
		if left := len(named) - notRunningNamed; left > 0 {
			named, more = named[:notRunningNamed], strconv.Itoa(left)
		}
		p.holdBack(w.name, "", job.Because(NotRunningOutOfScope, "job", w.name, "slots", strings.Join(named, ", "), "more", more))
	}
	for name := range p.frozen {
		p.out.Records[name] = p.in.Records[name]
		p.out.Waits = slices.DeleteFunc(p.out.Waits, func(w Wait) bool { return w.Job == name && !w.Held })
	}
}
