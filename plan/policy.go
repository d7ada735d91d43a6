package plan

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/scaling"
	"github.com/eltrain/eltrain/scaling/model"
)

// RoleScaling is what policies decided about an elastic role.
type RoleScaling struct {
	Job  string `json:"job"`
	Role string `json:"role"`
	scaling.Decision
	// Size is what the role is to have with this plan: To, as far as there is room.
	Size   int  `json:"size"`
	DryRun bool `json:"dry_run,omitempty"` // it is not carried out
	// Asked is the size that an operator asked for, which takes precedence; 0 if nobody did. Paused: it is the one that the role had when
	// its scaling was paused.
	Asked  int  `json:"asked,omitempty"`
	Paused bool `json:"paused,omitempty"`
}

// size is what was decided: a size, or else the most that the role may grow to.
func (s *RoleScaling) size() int {
	if s.To > 0 {
		return s.To
	}
	return s.Most
}

// Decided reports whether another size was decided than before.
func (s *RoleScaling) Decided() bool { return s.size() > 0 && s.size() != s.From }

// policySize is the most slots that policies leave a role; 0 if they leave it all.
func (w *work) policySize(r *job.Role) int {
	s := w.sized[r.Name]
	if s == nil || s.DryRun {
		return 0
	}
	return s.size()
}

// whyScaled is why policies leave a role no more slots: the policy that decided, from what, and what bounded that.
func (w *work) whyScaled(r *job.Role) job.Reason {
	s := w.sized[r.Name]
	why := job.Because(ScaledByPolicy, "size", strconv.Itoa(s.size()), "policy", s.By)
	var parts []job.Reason
	for _, one := range s.Proposals {
		if one.Policy == s.By {
			parts = append(parts, one.Reason)
		}
	}
	return why.With(append(parts, s.Bounds...)...)
}

// scaleByPolicies decides about the sizes of elastic roles with policies.
func (p *pass) scaleByPolicies() {
	for _, w := range p.jobs {
		if !p.about(w) || w.frozen || !w.declared || !w.active() {
			continue
		}
		for i := range w.spec.Roles {
			if r := &w.spec.Roles[i]; r.Scaling != nil && w.active() && !w.succeeded(r.Name) {
				p.scaleRole(w, r)
			}
		}
	}
}

func (p *pass) scaleRole(w *work, r *job.Role) {
	in := scaling.Input{
		Now: p.in.Now, Scaling: r.Scaling, Sizes: r.Sizes(), Scaled: w.rec.Scaled[r.Name],
		Evaluations: p.survey(w, r.Name), Growth: p.growth(w, r), Restart: w.restartCost(), Left: w.timeLeft(), Deadline: w.deadline(),
	}
	if in.Size = in.Scaled.Size; in.Size == 0 || r.Scaling.DryRun {
		if in.Size = w.initialSize(r); w.started() {
			in.Size = max(len(w.heldSlots(r.Name)), in.Sizes.Least())
		}
	}
	out := &RoleScaling{Job: w.name, Role: r.Name, DryRun: r.Scaling.DryRun, Asked: w.askedSize(r), Paused: w.paused(r)}
	if out.Asked > 0 {
		in.Size = out.Asked
	} else if r.Ranked && !out.DryRun && len(w.changed)+len(w.outdated) == 0 { // an edit is not kept waiting
		in.SaveDue = p.saveDue(w)
	}
	if out.Decision = scaling.Decide(in); len(out.Proposals) == 0 && len(out.Bounds) == 0 {
		p.keepScaled(w, r, job.Scaled{})
		return
	}
	if w.sized == nil {
		w.sized = map[string]*RoleScaling{}
	}
	w.sized[r.Name] = out
	if !out.Next.IsZero() {
		p.wakeAt(out.Next)
	}
	if slices.ContainsFunc(out.Bounds, func(r job.Reason) bool { return r.Code == scaling.AwaitsSave }) {
		p.awaitSave(w, in.SaveDue)
	}
	next := in.Scaled
	switch {
	case out.Asked > 0:
		next.Size = out.Asked
	case out.DryRun:
		next = job.Scaled{}
	default:
		if out.Decided() {
			p.note("job."+w.name+"."+r.Name, "scale_decision", job.Because(ScaleDecided, "from", strconv.Itoa(out.From), "to", strconv.Itoa(out.size())).With(w.whyScaled(r)))
			if next.At = p.in.Now; out.Explores {
				next.Explored++
			}
		}
		next.Size = out.size()
	}
	p.keepScaled(w, r, next)
}

// keepScaled records what was decided about a role; the zero value removes that.
func (p *pass) keepScaled(w *work, r *job.Role, is job.Scaled) {
	if is == w.rec.Scaled[r.Name] {
		return
	}
	w.rec.Scaled = maps.Clone(w.rec.Scaled)
	if is == (job.Scaled{}) {
		delete(w.rec.Scaled, r.Name)
	} else {
		if w.rec.Scaled == nil {
			w.rec.Scaled = map[string]job.Scaled{}
		}
		w.rec.Scaled[r.Name] = is
	}
	p.out.Dirty = true
}

// survey is what the sources of a role's policies said; of a job's StopWhen if role is "". What other sources said before an edit says
// nothing.
func (p *pass) survey(w *work, role string) []job.Evaluation {
	old := p.in.Records[w.name]
	if old == nil || !SameSources(Asks(&old.Spec)[role], Asks(w.spec)[role]) {
		return nil
	}
	for i := range p.in.Snapshot.Surveys {
		if s := &p.in.Snapshot.Surveys[i]; s.UID == w.rec.UID && s.Role == role {
			return s.Evaluations
		}
	}
	return nil
}

// explainScaling tells what policies decided, once all else is decided.
func (p *pass) explainScaling(w *work) {
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		s := w.sized[r.Name]
		if s == nil {
			continue
		}
		s.Size = len(w.heldSlots(r.Name))
		p.out.Scaling = append(p.out.Scaling, *s)
		if (s.Paused || s.DryRun && s.Asked == 0) && s.Decided() {
			args := []string{"from", strconv.Itoa(s.From), "to", strconv.Itoa(s.size())}
			if s.Paused {
				args = append(args, "paused", "true")
			}
			p.addWait(w, r.Name, job.Because(WouldScale, args...).With(w.whyScaled(r)))
		}
	}
}

// deadline is when the job has to be over; zero if it has none.
func (w *work) deadline() time.Time {
	at, err := time.Parse(time.RFC3339, w.spec.Deadline)
	if err != nil {
		return time.Time{} // it was checked when it was declared
	}
	return at
}

// timeLeft is how much longer the training takes at its present rate; 0 if it does not say.
func (w *work) timeLeft() time.Duration {
	var step, total int64
	var rate float64
	for _, seen := range w.seen {
		for _, inc := range seen {
			if inc.Member == nil || inc.Member.Generation != w.world.Generation {
				continue
			}
			for _, r := range inc.Member.Ranks {
				if r.Progress != nil && r.Progress.Total != nil {
					total = max(total, *r.Progress.Total)
				}
			}
			if inc.Member.Step >= step && inc.Member.StepRate > 0 {
				step, rate = inc.Member.Step, inc.Member.StepRate
			}
		}
	}
	if rate <= 0 || total <= step {
		return 0
	}
	return time.Duration(float64(total-step) / rate * float64(time.Second))
}

// unknownRestart is what a restart is taken to cost before the job had one.
const unknownRestart = time.Minute

// restartCost is what a planned change of the world costs the job: what its worlds took so far until they trained, and the steps
// since its newest checkpoint if it cannot be asked for one.
func (w *work) restartCost() time.Duration {
	l, worlds := &w.rec.Goodput.Lost, float64(w.world.Generation)
	cost := unknownRestart
	if worlds > 1 {
		if each := (l.Restart+l.Checkpoint)/(worlds-1) + l.Start/worlds; each > 0 {
			cost = time.Duration(each * float64(time.Second))
		}
	}
	if steps, rate := w.unsaved(); steps > 0 && !w.asksForCheckpoints() {
		cost += inTime(steps, rate)
	}
	return cost
}

// growth is a job's throughput by the size of one of its roles. Its other roles keep theirs.
type growth struct {
	model     *model.Model
	size      int // of the role, at which the world has so many replicas on so many nodes
	replicas  int
	nodes     int
	processes int // of a slot
	batch     job.Batch
	known     map[int]bool // replicas that were measured
	// samples are those of a replica in a step, and noise is the gradient noise scale; 0 if the job does not say both.
	samples, noise float64
}

// growth returns nil if nothing was measured.
func (p *pass) growth(w *work, r *job.Role) scaling.Growth {
	taken := p.survey(w, r.Name)
	p.learn(w, taken)
	seen := observations(w.rec.Measured, r.Scaling.Batch)
	var now *job.Pace
	size := 0
	for i := range taken {
		if e := &taken[i]; w.rec.Measured != nil && w.rec.Measured.Counts(e) {
			seen = model.Observe(seen, sizeOf(e.Pace.Nodes, e.Pace.Replicas, r.Scaling.Batch), e.Pace.StepTime, e.At)
			now, size = e.Pace, e.Size
		}
	}
	if len(seen) == 0 || !r.Ranked {
		return nil
	}
	g := &growth{size: size, processes: r.Processes, batch: r.Scaling.Batch, known: map[int]bool{}}
	for _, o := range seen {
		g.known[o.Replicas] = true
	}
	if m := w.rec.Measured; m != nil {
		g.samples, g.noise = m.Batch, m.NoiseScale
	}
	if now == nil { // between worlds: as many as were recorded, which are the same for its other roles
		for _, m := range w.world.Members {
			g.replicas += m.Processes
			if m.Slot.Role == r.Name {
				g.size++
			}
		}
		g.nodes = max(1, len(w.nodes()))
	} else {
		g.replicas, g.nodes = now.Replicas, now.Nodes
		if now.Batch > 0 {
			g.samples, g.noise = now.Batch/float64(now.Replicas), now.NoiseScale
		}
	}
	if g.size == 0 {
		return nil
	}
	fitted := model.Fit(seen)
	g.model = &fitted
	return g
}

// nodes are those of the world's members.
func (w *work) nodes() map[string]bool {
	nodes := map[string]bool{}
	for _, m := range w.world.Members {
		if s := w.index[m.Slot.Role][m.Slot.Index]; s != nil && s.Node != "" {
			nodes[s.Node] = true
		}
	}
	return nodes
}

// learn records what worlds before the newest have shown: what the newest shows is in the evaluations, which a steady job keeps adding.
// An edit of what the slots are started from begins anew.
func (p *pass) learn(w *work, taken []job.Evaluation) {
	now := job.Measured{Program: w.program()}
	switch was := w.rec.Measured; {
	case was == nil && !slices.ContainsFunc(taken, func(e job.Evaluation) bool { return e.Pace != nil }):
		return
	case was != nil && was.Program == now.Program:
		now = *was
	case was != nil:
		now.Since, now.Until = w.world.Generation+1, was.Until
	}
	seen := observations(&now, "")
	for i := range taken {
		if e := &taken[i]; now.Counts(e) && e.Pace.Generation < w.world.Generation {
			seen, now.Until = model.Observe(seen, sizeOf(e.Pace.Nodes, e.Pace.Replicas, ""), e.Pace.StepTime, e.At), e.At
			if e.Pace.Batch > 0 {
				now.Batch, now.NoiseScale = e.Pace.Batch/float64(e.Pace.Replicas), e.Pace.NoiseScale
			}
		}
	}
	if was := w.rec.Measured; was != nil && was.Until.Equal(now.Until) && was.Program == now.Program {
		return
	}
	now.Sizes = nil
	for _, o := range seen {
		now.Sizes = append(now.Sizes, job.Measurement{Nodes: o.Nodes, Replicas: o.Replicas, Count: o.Count, StepTime: o.StepTime, Variance: o.Variance, Last: o.Last})
	}
	w.rec.Measured, p.out.Dirty = &now, true
}

// program identifies what the slots of the first ranked role are started from.
func (w *work) program() string {
	for i := range w.spec.Roles {
		if r := &w.spec.Roles[i]; r.Ranked {
			return w.fingerprint(r, 0)
		}
	}
	return ""
}

// sizeOf is a size for the model. A batch that the replicas share is 1 in all.
func sizeOf(nodes, replicas int, batch job.Batch) model.Size {
	size := model.Size{Nodes: nodes, Replicas: replicas}
	if batch == job.BatchGlobal {
		size.LocalBatch = 1 / float64(replicas)
	}
	return size
}

// observations are what was recorded, for the model.
func observations(m *job.Measured, batch job.Batch) (all []model.Observation) {
	if m == nil {
		return nil
	}
	for _, s := range m.Sizes {
		all = append(all, model.Observation{Size: sizeOf(s.Nodes, s.Replicas, batch), Count: s.Count, StepTime: s.StepTime, Variance: s.Variance, Last: s.Last})
	}
	return all
}

// replicasAt is how many there are if the role has another size.
func (g *growth) replicasAt(size int) int { return g.replicas + (size-g.size)*g.processes }

// Throughput is that of a size of the role: its slots are taken to share nodes as they do now.
func (g *growth) Throughput(size int) scaling.Throughput {
	replicas := g.replicasAt(size)
	nodes := min((replicas*g.nodes+g.replicas-1)/g.replicas, replicas)
	if size == g.size {
		nodes = g.nodes
	}
	s := sizeOf(max(1, nodes), replicas, g.batch)
	t, known := g.model.Throughput(s)
	if !known {
		return scaling.Throughput{}
	}
	return scaling.Throughput{Mean: t.Mean, High: t.High, Measured: g.known[replicas] || t.High <= asGood*t.Low}
}

// Noise is the job's gradient noise scale, and the batch size of a size of the role, both in samples; 0 if they are not known, or
// the batch is the same at all sizes.
func (g *growth) Noise(size int) (scale, batch float64) {
	if g.noise <= 0 || g.samples <= 0 || g.batch == job.BatchGlobal {
		return 0, 0
	}
	return g.noise, g.samples * float64(g.replicasAt(size))
}

// asGood is how wide the interval of an expectation is at most that is as good as a measurement.
const asGood = 1.2

// stopWhenReached ends a job whose figure has counted for long enough.
func (p *pass) stopWhenReached(w *work) {
	s := w.spec.StopWhen
	switch {
	case w.part != nil:
		return // it ends as a whole
	case s == nil:
		if w.rec.Stopping != nil {
			w.rec.Stopping, p.out.Dirty = nil, true
		}
		return
	}
	if old := p.in.Records[w.name]; old != nil && w.rec.Stopping != nil && !reflect.DeepEqual(old.Spec.StopWhen, s) {
		w.rec.Stopping, p.out.Dirty = nil, true // it counts anew
	}
	taken := p.survey(w, "")
	if len(taken) == 0 {
		return
	}
	newest := &taken[len(taken)-1]
	if len(newest.Values) == 0 || newest.Values[0].Absent || newest.Values[0].Error != "" {
		return // what nobody says changes nothing
	}
	if !s.Reached(newest.Values[0].Value) {
		if w.rec.Stopping != nil {
			w.rec.Stopping, p.out.Dirty = nil, true
		}
		return
	}
	if w.rec.Stopping == nil {
		w.rec.Stopping, p.out.Dirty = &job.Stopping{Since: newest.At, Step: newest.Step}, true
	}
	steps, lasts, _ := s.Lasts()
	if newest.Step-w.rec.Stopping.Step < steps || newest.At.Sub(w.rec.Stopping.Since) < lasts {
		return
	}
	why := job.Because(StopReached, "metric", s.Metric, "value", strconv.FormatFloat(newest.Values[0].Value, 'g', 6, 64), "for", s.For)
	w.rec.Stopping = nil
	if s.Fails() {
		p.failJob(w, why)
		return
	}
	p.close(w, job.JobSucceeded, why)
	p.note("job."+w.name, "job_phase", entered(job.JobSucceeded).With(why))
}
