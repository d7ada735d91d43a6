package plan

import (
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// want says what the service is to form.
func (p *pass) want(w *work) {
	spec := w.spec
	if spec.Name == "" {
		spec = &w.rec.Spec
	}
	want := job.Want{Settle: spec.Rendezvous.Settle, Lease: spec.Detect.Lease}
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
	p.out.Groups[w.name] = w.group()
}

// group is what the job's provider is told of it as a whole.
func (w *work) group() job.Group {
	g := job.Group{UID: w.rec.UID, Name: w.name, Priority: w.spec.Priority}
	for i := range w.spec.Roles {
		r := &w.spec.Roles[i]
		least, _ := r.Bounds()
		g.Roles = append(g.Roles, job.GroupRole{Role: r.Name, Min: max(r.Ceil(least), least), Each: r.Resources})
	}
	return g
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
