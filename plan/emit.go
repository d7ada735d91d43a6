package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// farewell is how long the agent of a slot that succeeded has to end by itself after its job has.
const farewell = 10 * time.Second

// emit writes the changes that lead from what is observed to what the records now say. It looks at the
// records alone, not at which step decided, so a pass after a crash says the same again.
func (p *pass) emit(w *work) {
	if len(w.changed) > 0 && w.rec.Phase != "" && !w.rec.Phase.Ended() {
		p.out.Changes = append(p.out.Changes, Change{Action: Update, Job: w.name, UID: w.rec.UID, Fields: w.changed})
	}
	fields := map[string][]job.FieldChange{}
	for _, s := range w.slots {
		role := w.spec.Role(s.Address.Role)
		switch {
		case s.Phase == job.Canceling, s.Phase == job.Failed, s.Phase == job.Canceled:
			p.emitStop(w, s)
		case w.promised[s] != "":
			p.out.Changes = append(p.out.Changes, Change{
				Action: Create, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: w.promised[s], Wave: 1,
				Incarnation: s.Incarnation + 1, Reasons: w.reasons[s], Fields: w.fieldsOf(role, s, fields),
			})
			p.emitStop(w, s)
		case s.Phase == job.Pending:
			p.emitStop(w, s) // an incarnation that was given up, and still runs where it was
		case s.Phase == job.Succeeded && !w.rec.Phase.Ended():
			p.emitLeftovers(w, s)
		case s.Phase == job.Succeeded && w.rec.Phase.Ended() && len(w.running(s)) > 0:
			// Its agent ends by itself once its success was heard. One that does not is ended.
			if due := w.rec.Ended.Add(farewell); p.in.Now.Before(due) {
				p.wakeAt(due)
			} else {
				p.emitStop(w, s)
			}
		case s.Phase == job.Scheduling && s.Node != "" && role != nil && w.current(s) == nil:
			p.emitStart(w, s, role, w.fieldsOf(role, s, fields))
		default:
			p.emitLeftovers(w, s)
		}
	}
}

// emitLeftovers stops what still runs of incarnations older than the one that has the slot.
func (p *pass) emitLeftovers(w *work, s *job.Slot) {
	stop := slices.DeleteFunc(w.running(s), func(n int) bool { return n >= s.Incarnation })
	if len(stop) == 0 {
		return
	}
	c := Change{Action: Delete, Job: w.name, UID: w.rec.UID, Slot: s.Address, Incarnation: slices.Max(stop), Stop: stop,
		Reasons: []string{"it is replaced"}, Provider: w.shownBy(s)}
	if role := w.spec.Role(s.Address.Role); role != nil {
		c.Grace = role.StopGrace
	}
	p.out.Changes = append(p.out.Changes, c)
}

func (p *pass) emitStop(w *work, s *job.Slot) {
	stop := w.running(s)
	if len(stop) == 0 {
		return
	}
	c := Change{Action: Delete, Job: w.name, UID: w.rec.UID, Slot: s.Address, Node: s.Node,
		Incarnation: s.Incarnation, Stop: stop, Reasons: w.reasons[s], Wave: w.stopWave(s), Provider: w.shownBy(s)}
	if c.Reasons == nil {
		c.Reasons = []string{"it is being stopped"}
	}
	if role := w.spec.Role(s.Address.Role); role != nil {
		if s.Phase == job.Canceling {
			c.Grace = role.StopGrace // what was given up before is fenced: it gets none
		}
		if s.Return && w.declared {
			c.Action = Replace
			c.Fields = w.differs
		}
	}
	p.out.Changes = append(p.out.Changes, c)
}

// shownBy is the provider that has what runs of the slot: not the declared one if that was edited.
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
		Stop: w.running(s), Reasons: w.reasons[s], Fields: fields, Wave: w.startWave(role)}
	if s.Recover && s.Incarnation > 1 {
		c.Action, c.Fields = Replace, nil
		if c.Reasons == nil {
			c.Reasons = []string{reasonOf(s)}
		}
	}
	c.Launch = &job.Launch{
		UID: w.rec.UID, Slot: s.Address, Incarnation: s.Incarnation, Node: s.Node, Program: role.For(s.Address.Index),
		Processes: role.Processes, Ranked: role.Ranked, Reserved: s.Reserved, StopGrace: role.StopGrace,
		MaxRestarts: w.spec.Heal.Budget.Restarts, Checkpoint: w.spec.Checkpoint, Progress: w.spec.Progress,
		Fingerprint: s.Fingerprint,
	}
	p.out.Changes = append(p.out.Changes, c)
}

// fieldsOf is what a created slot is made of. Slots of a role whose program does not depend on the slot
// share one list.
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

// ready tells whether what depends on the role may start: its min are up. Ranked slots are up once they are
// registered, since they run only in a world that those that depend on them may be part of.
func (w *work) ready(role string) bool {
	up, known := w.upCache[role]
	if !known {
		up = w.countReady(role)
		w.upCache[role] = up
	}
	return up
}

func (w *work) countReady(role string) bool {
	r := w.spec.Role(role)
	if r == nil {
		return true
	}
	up := 0
	for _, s := range w.index[role] {
		switch s.Phase {
		case job.Running, job.Succeeded:
			up++
		case job.Registered, job.Suspect:
			if r.Ranked {
				up++
			}
		}
	}
	least, _ := r.Bounds()
	return up >= least
}

// startWave is how many waves of other roles have to start before this one.
func (w *work) startWave(r *job.Role) int {
	wave := 0
	for _, dep := range r.DependsOn {
		if d := w.spec.Role(dep); d != nil && !w.ready(dep) {
			wave = max(wave, w.startWave(d)+1)
		}
	}
	return wave
}

// stopWave is the reverse, when the job as a whole goes: first those that nothing depends on.
func (w *work) stopWave(s *job.Slot) int {
	if !w.ending {
		return 0
	}
	return w.stopWaveOf(s.Address.Role)
}

func (w *work) stopWaveOf(role string) int {
	wave := 0
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if slices.Contains(r.DependsOn, role) && w.anyRunning(r.Name) {
			wave = max(wave, w.stopWaveOf(r.Name)+1)
		}
	}
	return wave
}

func (w *work) anyRunning(role string) bool {
	any, known := w.stopCache[role]
	if known {
		return any
	}
	for _, s := range w.index[role] {
		any = any || s.Phase == job.Canceling && len(w.running(s)) > 0
	}
	w.stopCache[role] = any
	return any
}

// strays removes what belongs to no job: incarnations of an earlier job of a name, and what is left of jobs
// that are gone.
func (p *pass) strays() {
	alive := map[string]bool{}
	first := map[string]*job.Incarnation{} // of each UID
	var order []string
	for i := range p.unseen {
		inc := &p.unseen[i]
		if p.in.Keep && p.byName[inc.Slot.Job] == nil {
			continue // of a job that is not declared
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
			Provider: inc.Provider, Node: inc.Node, Incarnation: inc.Number, Stop: []int{inc.Number}, Reasons: []string{"it belongs to an earlier job of this name, or to none"}})
	}
	for _, w := range p.jobs {
		if !w.declared && !p.in.Keep && !slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase.Live() || len(w.running(s)) > 0 }) {
			w.gone = true
			p.out.Dirty = true
			p.out.Changes = append(p.out.Changes, Change{Action: Delete, Job: w.name, UID: w.rec.UID, Provider: w.rec.Spec.Provider, Reasons: []string{"nothing of it runs any more"}})
		}
	}
	for _, uid := range order {
		if !alive[uid] {
			p.out.Changes = append(p.out.Changes, Change{Action: Delete, Job: first[uid].Slot.Job, UID: uid, Provider: first[uid].Provider, Reasons: []string{"remains of an earlier job"}})
		}
	}
}

// wait adds what is not as asked for.
func (p *pass) wait(w *work, role, reason string) {
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Reasons: []string{reason}})
}

// nodesNamed bounds how many nodes a shortage lists.
const nodesNamed = 8

const stillStopping = "Slots of it are still being stopped."

// shortage says what is wanted and what is available, for a person.
func (p *pass) shortage(w *work, slots []*job.Slot) string {
	if len(slots) == 0 {
		return stillStopping
	}
	if !w.within(slots) {
		return fmt.Sprintf("Wanted: %s. Its limits leave no room for that.", wanted(slots))
	}
	sp := p.space(w.spec.Provider)
	var have []string
	more := 0
	for _, pl := range sp.places {
		if len(have) == nodesNamed {
			more++
			continue
		}
		have = append(have, pl.node.Name+" "+sp.left(pl))
	}
	available := strings.Join(have, "; ")
	switch {
	case len(sp.places) == 0:
		available = "no node"
	case more > 0:
		available += fmt.Sprintf("; and %d more nodes", more)
	}
	return fmt.Sprintf("Wanted: %s. Available: %s.", wanted(slots), available)
}

func wanted(slots []*job.Slot) string {
	type kind struct{ role, size string }
	counts := map[kind]int{}
	var order []kind
	for _, s := range slots {
		k := kind{s.Address.Role, s.Reserved.String()}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	parts := make([]string, len(order))
	for i, k := range order {
		parts[i] = fmt.Sprintf("%d %s with %s each", counts[k], k.role, k.size)
	}
	return strings.Join(parts, ", ")
}

// left is what a node has free, of what it has.
func (sp *space) left(pl *place) string {
	if pl.node.Closed != "" {
		return pl.node.Closed
	}
	free := job.Resources{CPU: job.CPU(max(pl.free[0], 0)), Memory: job.Bytes(max(pl.free[1], 0)), Devices: map[string]int{}}
	for name, i := range sp.dims {
		free.Devices[name] = int(max(pl.free[i], 0))
	}
	return free.String() + " free"
}

// never tells whether the job's min cannot run even on empty nodes, or within the job's own limits.
func (p *pass) never(w *work, gang []*job.Slot) bool {
	if !w.within(gang) {
		p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{p.shortage(w, gang)}})
		return true
	}
	t := &txn{sp: p.space(w.spec.Provider).emptied()}
	if t.putAll(gang) {
		t.undo()
		return false
	}
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{
		fmt.Sprintf("It cannot run on these nodes even when they are empty. %s", p.shortage(w, gang))}})
	return true
}

// want says what the service is to form.
func (p *pass) want(w *work) {
	spec := w.spec
	if spec.Name == "" {
		spec = &w.rec.Spec
	}
	want := job.Want{Settle: spec.Rendezvous.Settle, Timeout: spec.Rendezvous.Timeout, Lease: spec.Detect.Lease}
	for _, label := range spec.Topology.RankBy {
		want.RankBy = append(want.RankBy, strings.TrimPrefix(label, "node.labels."))
	}
	want.Hold = !w.active()
	for i := range spec.Roles {
		r := &spec.Roles[i]
		if w.succeeded(r.Name) && r.Ranked {
			want.Hold = true
		}
		if !r.Ranked {
			want.Unranked = append(want.Unranked, w.mayRun(r)...)
			continue
		}
		role := job.WantRole{Role: r.Name, Processes: r.Processes, Slots: []int{}}
		role.Sizes.Min, role.Sizes.Max = r.Bounds()
		if r.Scaling != nil {
			role.Sizes.Step, role.Sizes.List = r.Scaling.Step, r.Scaling.Sizes
		}
		for _, s := range w.of(r.Name) {
			if s.Node != "" && (s.Phase != job.Canceling || s.Return) {
				role.Slots = append(role.Slots, s.Address.Index)
			}
		}
		for _, s := range w.index[r.Name] {
			// Of a job that goes, those train on that stop only after others have.
			if s.Phase == job.Canceling && w.stopWave(s) > 0 && !slices.Contains(role.Slots, s.Address.Index) {
				role.Slots = append(role.Slots, s.Address.Index)
			}
		}
		slices.Sort(role.Slots)
		want.Roles = append(want.Roles, role)
	}
	p.out.Wants[w.name] = want
}

// mayRun lists an unranked role's slots once what it depends on is up.
func (w *work) mayRun(r *job.Role) []job.Address {
	if !w.active() || slices.ContainsFunc(r.DependsOn, func(dep string) bool { return !w.ready(dep) }) {
		return nil
	}
	var slots []job.Address
	for _, s := range w.of(r.Name) {
		if s.Node != "" && s.Phase != job.Canceling && s.Phase != job.Succeeded {
			slots = append(slots, s.Address)
		}
	}
	return slots
}

// judge sets the job's phase and counts.
func (p *pass) judge(w *work) {
	p.tellIncident(w)
	if w.declared && w.rec.Counts != nil {
		for i := range w.spec.Roles {
			name := w.spec.Roles[i].Name
			if n := len(w.of(name)); w.rec.Counts[name] != n {
				w.rec.Counts[name] = n
				p.out.Dirty = true
			}
		}
		if c := p.in.Capabilities[w.spec.Provider]; w.active() {
			for _, caveat := range c.Caveats {
				if !slices.Contains(p.out.Caveats, caveat) {
					p.out.Caveats = append(p.out.Caveats, caveat)
				}
			}
		}
	}
	phase := w.phase()
	if phase != w.rec.Phase {
		if !phase.Ended() {
			p.note("job."+w.name, "job_phase", string(phase))
		}
		w.rec.Phase = phase
		p.out.Dirty = true
	}
	p.account(w)
}

func (w *work) phase() job.JobPhase {
	if w.rec.Phase.Ended() || !w.declared {
		return w.rec.Phase
	}
	if !w.admitted() {
		return job.JobPending
	}
	running, ill, all := 0, w.brokenByFault(), true
	for _, s := range w.slots {
		switch {
		case s.Phase == job.Running || s.Phase == job.Succeeded:
			running++
		case s.Phase == job.Failing || s.Phase == job.Suspect || s.Phase == job.Lost || s.Recover && holds(s):
			ill, all = true, false
		case holds(s):
			all = false // on its way: started for the first time, or as the job grows
			ill = ill || w.world.Broken && s.Phase != job.Registered
		}
	}
	young := w.rec.Phase == job.JobPending || w.rec.Phase == job.JobStarting
	switch {
	case w.ranked() && w.world.Generation == 0, young && (!all || running == 0):
		return job.JobStarting
	case ill || w.missing():
		return job.JobDegraded
	}
	return job.JobRunning
}

// brokenByFault tells whether the world broke by an incident, and not as the job was scaled or edited.
func (w *work) brokenByFault() bool {
	n := len(w.rec.Incidents)
	return w.world.Broken && n > 0 && w.rec.Incidents[n-1].Generation == w.world.Generation
}

// missing tells whether a fixed role has fewer slots than it is to have.
func (w *work) missing() bool {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		if least, _ := r.Bounds(); len(w.of(r.Name)) < least {
			return true
		}
	}
	return false
}

// account keeps the goodput ledger: the time since the last entry goes to what it was then.
func (p *pass) account(w *work) {
	mode := w.mode()
	g := &w.rec.Goodput
	if mode == g.Mode {
		return
	}
	was, before := g.Mode, g.Productive
	*g = g.Until(p.in.Now)
	if was == "productive" {
		w.redo(g, g.Productive-before)
	}
	g.Mode = mode
	p.out.Dirty = true
}

// redo moves what a world spent on steps that had been done before out of the productive time that just
// ended, spent seconds of it. Where it went on from is the first step that it printed.
func (w *work) redo(g *job.Goodput, spent float64) {
	var first, last int64
	var rate float64
	for _, s := range w.slots {
		for _, inc := range w.seen[s.Address] {
			m := inc.Member
			if m == nil || m.Generation != w.world.Generation || m.Step <= last {
				continue
			}
			first, last, rate = m.FirstStep, m.Step, m.StepRate
		}
	}
	if again := min(g.Reached, last) - first; again > 0 && rate > 0 {
		seconds := min(float64(again)/rate, spent)
		g.Productive -= seconds
		g.Lost.RedoneSteps += seconds
	}
	g.Reached = max(g.Reached, last)
}

func (w *work) mode() string {
	switch w.rec.Phase {
	case job.JobRunning:
		if w.ranked() && w.world.Broken {
			return "restart" // a planned one
		}
		return "productive"
	case job.JobPending:
		return "scheduling"
	case job.JobStarting:
		if slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Phase == job.Scheduling }) {
			return "scheduling"
		}
		return "rendezvous"
	case job.JobDegraded:
		if w.world.Generation > 0 && !w.world.Broken {
			return "productive" // it trains, with less than it should have
		}
		if slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return holds(s) && s.Phase == job.Pending }) {
			return "scheduling"
		}
		return "restart"
	}
	return ""
}
