package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Removals counts, by job, the slots that the plan stops because the job is declared differently than it was last
// applied: those of jobs, roles and indices that are no longer declared, and those that are replaced because they were
// edited, also if that has to wait for room. What heals, drains or scales a job that is declared as before is not
// among them. p is the plan that Make made of in.
func Removals(in *Input, p *Plan) map[string]int {
	byUID := make(map[string]*job.Record, len(p.Records))
	for _, rec := range p.Records {
		byUID[rec.UID] = rec // it may have another name now
	}
	counts := map[string]int{}
	forgotten := in.forgetting()
	for name, rec := range in.Records {
		if rec.Phase.Ended() || forgotten[name] || in.asApplied(name, rec) {
			continue
		}
		now := byUID[rec.UID] // nil if nothing of it is there to be stopped first: it would start again with a node
		prints := map[string]func(int) string{}
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if s.Phase.Live() && s.Phase != job.Canceling && (now == nil || holds(s) && leaves(now, s, prints)) {
				counts[name]++
			}
		}
	}
	return counts
}

// declared is the index in Jobs of what a recorded job is declared as now; -1 if it is not declared.
func (in *Input) declared(name string) int {
	if to, moved := in.Moved[name]; moved {
		name = to
	}
	return slices.IndexFunc(in.Jobs, func(j job.Job) bool { return j.Name == name })
}

// asApplied reports whether a job is declared as it was last applied.
func (in *Input) asApplied(name string, rec *job.Record) bool {
	i := in.declared(name)
	if i < 0 {
		return in.Keep
	}
	return len(job.Diff(rec.Spec, in.Jobs[i])) == 0 && samePrograms(rec.Spec.Roles, in.Jobs[i].Roles)
}

// leaves reports whether a slot is stopped, or to be replaced, by what is recorded of its job now. prints are those of
// the job's roles, kept from call to call.
func leaves(now *job.Record, old *job.Slot, prints map[string]func(int) string) bool {
	s := now.Slot(old.Address.Role, old.Address.Index)
	if s == nil || s.Phase == job.Canceling || s.Phase == job.Canceled {
		return true
	}
	role := now.Spec.Role(old.Address.Role)
	if role == nil || !startedPhase(s) || s.Fingerprint == "" {
		return false
	}
	if prints[role.Name] == nil {
		prints[role.Name] = job.Fingerprints(&now.Spec, role)
	}
	return s.Fingerprint != prints[role.Name](s.Address.Index)
}

// Withhold lets recorded jobs continue as they were last applied, whatever is declared of them now. why gives the
// reason of each, by the name in the records.
func Withhold(in Input, why map[string]job.Reason) Input {
	in.Jobs, in.Moved, in.Withheld = slices.Clone(in.Jobs), maps.Clone(in.Moved), maps.Clone(in.Withheld)
	if in.Withheld == nil {
		in.Withheld = map[string]job.Reason{}
	}
	for name, reason := range why {
		spec := in.Records[name].Spec
		if i := in.declared(name); i >= 0 {
			in.Jobs[i] = spec
		} else {
			in.Jobs = append(in.Jobs, spec)
		}
		delete(in.Moved, name)
		in.Withheld[name] = reason
	}
	return in
}

// withheld makes a job that is not what the files say, or may say, Degraded, with the reason. What is withheld waits for
// nothing: no waiting brings it about.
func (p *pass) withheld(w *work) {
	if why, held := p.in.Withheld[w.name]; held && w.active() && !p.frozen[w.name] {
		p.holdBack(w.name, "", why)
	}
	for _, r := range p.out.Refusals {
		if r.Job == w.name && w.active() {
			p.wait(w, "", r.Reason)
		}
	}
}
