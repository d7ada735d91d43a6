package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Removals counts, by job, the slots that the plan stops because the job's declaration changed since it was last applied: slots
// of jobs, roles and indices that are no longer declared, and slots that are replaced because of an edit, even if that waits
// for room. Slots that are healed, drained or scaled under an unchanged declaration do not count. p is the plan that Make made
// of in.
func Removals(in *Input, p *Plan) map[string]int {
	byUID := make(map[string]*job.Record, len(p.Records))
	for _, rec := range p.Records {
		byUID[rec.UID] = rec // it may have another name now
	}
	counts := map[string]int{}
	forgotten := in.forgetting()
	for name, rec := range in.Records {
		if rec.Phase.Ended() || forgotten[name] || p.Records[name] == rec || in.asApplied(name, rec) {
			continue
		}
		// nil if nothing had to be stopped and the record is gone; the slots still count: they would start again with a node.
		now := byUID[rec.UID]
		fingerprints := map[string]func(int) string{}
		for i := range rec.Slots {
			s := &rec.Slots[i]
			if s.Phase.Live() && s.Phase != job.Canceling && (now == nil || holds(s) && leaves(now, s, fingerprints)) {
				counts[name]++
			}
		}
	}
	return counts
}

// declared is the index in Jobs of a recorded job's declaration; -1 if it is not declared.
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

// leaves reports whether a slot is stopped, or to be replaced, according to its job's new record. fingerprints caches the roles'
// fingerprints between calls.
func leaves(now *job.Record, old *job.Slot, fingerprints map[string]func(int) string) bool {
	s := now.Slot(old.Address.Role, old.Address.Index)
	if s == nil || s.Phase == job.Canceling || s.Phase == job.Canceled {
		return true
	}
	role := now.Spec.Role(old.Address.Role)
	if role == nil || !startedPhase(s) || s.Fingerprint == "" {
		return false
	}
	if fingerprints[role.Name] == nil {
		fingerprints[role.Name] = job.Fingerprints(&now.Spec, role)
	}
	return s.Fingerprint != fingerprints[role.Name](s.Address.Index)
}

// Withhold makes recorded jobs continue as they were last applied, whatever their declaration says now. why has the reason of
// each, by the name in the records.
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

// withheld adds the reasons why a job does not follow the files. What is withheld is Held: waiting does not help.
func (p *pass) withheld(w *work) {
	if why, held := p.in.Withheld[w.name]; held && w.active() && !p.frozen[w.name] {
		p.holdBack(w.name, "", why)
	}
	for _, r := range p.out.Refusals {
		if r.Job == w.name && w.active() {
			p.addWait(w, "", r.Reason)
		}
	}
}
