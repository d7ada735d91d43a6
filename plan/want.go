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
	want := job.Want{Settle: spec.Rendezvous.Settle, Lease: spec.Detect.Lease, Hang: spec.Detect.Limits(), Layout: spec.Topology.Groups, Progress: spec.Progress}
	for _, label := range spec.Topology.RankBy {
		want.RankBy = append(want.RankBy, strings.TrimPrefix(label, "node.labels."))
	}
	want.Kill, want.Steps = w.rec.Kill.Through, w.expectsSteps()
	want.Idle = w.idle()
	want.Hold = want.Idle || !w.active()
	for i := range spec.Roles {
		r := &spec.Roles[i]
		if w.succeeded(r.Name) && r.Ranked {
			want.Hold = true
		}
		if !r.Ranked {
			want.Unranked = append(want.Unranked, w.mayRun(r)...)
			continue
		}
		role := job.WantRole{Role: r.Name, Processes: r.Processes, Slots: []int{}, Sizes: w.sizes(r)}
		for _, s := range w.heldSlots(r.Name) {
			if w.hasPlace(s) && (s.Phase != job.Canceling || s.Return) {
				role.Slots = append(role.Slots, s.Address.Index)
			}
		}
		for _, s := range w.index[r.Name] {
			// When a job stops, slots that stop only after others keep training. So do those that are killed, until they are.
			if s.Phase == job.Canceling && !s.Return && (w.stopWave(s) > 0 || w.killed()) {
				role.Slots = append(role.Slots, s.Address.Index)
			}
		}
		slices.Sort(role.Slots)
		want.Roles = append(want.Roles, role)
	}
	w.wantActs(&want)
	want.Check = p.wantCheck(w, spec)
	p.out.Wants[w.name] = want
	if w.begun() || !w.suspended() && p.refused(w).IsZero() {
		p.out.Groups[w.name] = p.group(w, spec)
	}
}

// group is what the job's provider is told about it as a whole.
func (p *pass) group(w *work, spec *job.Job) job.Group {
	g := job.Group{UID: w.rec.UID, Name: w.name, Priority: spec.Priority}
	for i := range spec.Roles {
		r := &spec.Roles[i]
		role := job.GroupRole{Role: r.Name, Min: w.gangOf(r), Each: r.Resources}
		if digest := p.shipped(w, r); digest != "" {
			role.Source = &job.SourceFiles{Digest: digest, Files: r.Source, Root: r.SourceRoot}
		}
		g.Roles = append(g.Roles, role)
	}
	return g
}

// gangOf is how many slots of the role start together. A role that waits for another one is not part of the gang, because the
// other would wait for it. Nor is a role with a slot that succeeded: no more starts in it. Once the job runs, a raised min
// counts only once that many slots exist; otherwise what runs would count as an incomplete gang.
func (w *work) gangOf(r *job.Role) int {
	least := w.sizes(r).Least()
	switch {
	case w.finished[r.Name]:
		return 0
	case !w.active():
		return least
	case w.startWave(r) > 0 && !w.ready(r.Name):
		return 0
	case !w.started():
		return least
	}
	there := 0
	for _, s := range w.slots {
		if s.Address.Role == r.Name && holds(s) && !w.growing(s, r) {
			there++
		}
	}
	return min(least, there)
}

// growing reports whether the slot starts for the first time since the job's last world.
func (w *work) growing(s *job.Slot, r *job.Role) bool {
	_, trained := w.member(s.Address)
	if !r.Ranked {
		trained = s.Incarnation > 1
	}
	return s.Phase == job.Scheduling && !s.Recover && !trained
}

// hasPlace reports whether the slot has a place, is bound to a node that is not listed yet, or is moving: its world waits for
// it, and forms once.
func (w *work) hasPlace(s *job.Slot) bool {
	return s.Node != "" || w.bound(s) || s.Return && w.promisedTo(s) != ""
}

// mayRun lists an unranked role's slots once what it depends on is up. Those that run stay while a role that follows theirs grows.
func (w *work) mayRun(r *job.Role) []job.Address {
	if !w.active() {
		return nil
	}
	waits := slices.ContainsFunc(r.DependsOn, func(dep string) bool { return !w.ready(dep) })
	if waits && !w.paired(r.Name) {
		return nil
	}
	var slots []job.Address
	for _, s := range w.heldSlots(r.Name) {
		if w.hasPlace(s) && s.Phase != job.Canceling && s.Phase != job.Succeeded && (!waits || w.up(s)) {
			slots = append(slots, s.Address)
		}
	}
	return slots
}
