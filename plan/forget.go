package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// forgetting is Forget, extended by the jobs that ForgetDeclared and ForgetWithin cover: recorded jobs and, for modules,
// running ones. Jobs that are declared or were moved are excluded.
//
// A record has the address that its job was declared as. Where it does not (see job.Job.Address), and for what runs without a
// record, only the name counts.
func (in *Input) forgetting() map[string]bool {
	if len(in.ForgetDeclared)+len(in.ForgetWithin) == 0 {
		return in.Forget
	}
	all := maps.Clone(in.Forget)
	if all == nil {
		all = map[string]bool{}
	}
	enter := func(name string) {
		declared := ""
		if rec := in.Records[name]; rec != nil {
			declared = rec.Spec.Address
		}
		if _, moved := in.Moved[name]; in.Forgets(name, declared) && !moved && in.declared(name) < 0 {
			all[name] = true
		}
	}
	for name := range in.Records {
		enter(name)
	}
	for inc := range in.Snapshot.Incarnations.All() {
		enter(inc.Slot.Job)
	}
	return all
}

// Forgets reports whether a job is forgotten once it is no longer declared. address is what it was declared as, "" if unknown.
func (b *Blocks) Forgets(name, address string) bool {
	return b.Forget[name] ||
		slices.ContainsFunc(b.ForgetDeclared, func(of string) bool { return job.Selector{Declared: of}.Covers(address) }) ||
		slices.ContainsFunc(b.ForgetWithin, func(m Module) bool { return m.has(name, address) })
}

// has reports whether a job is, or was, in the module.
func (m *Module) has(name, address string) bool {
	if !strings.HasPrefix(name, m.Begins) || address == "" {
		return strings.HasPrefix(name, m.Begins)
	}
	return job.Selector{Declared: m.Address}.Covers(address)
}

// forget removes the jobs from the records that removed blocks name. What runs of them keeps running; meanwhile the plan
// remembers their UIDs, so that it neither stops them as strays nor takes them for a job of the same name that is declared
// later.
func (p *pass) forget() {
	for uid, released := range p.in.Released {
		_, shown := p.in.Capabilities[released.Provider]
		if shown && !p.runs(uid) {
			p.out.Dirty = true
			continue
		}
		p.released[uid] = released
	}
	for _, name := range slices.Sorted(maps.Keys(p.in.Forget)) {
		if p.declares(name) {
			continue
		}
		if rec := p.in.Records[name]; rec != nil {
			p.release(name, rec.UID, rec.Released(name))
			p.forgotten[name] = true
			continue
		}
		// It may run without a record: the state may have been lost.
		unrecorded := p.unrecorded(name)
		for _, uid := range slices.Sorted(maps.Keys(unrecorded)) {
			p.release(name, uid, job.Released{Name: unrecorded[uid].Slot.Job, Provider: unrecorded[uid].Provider})
		}
	}
}

func (p *pass) release(name, uid string, as job.Released) {
	p.out.Dirty = true
	p.out.Changes = append(p.out.Changes, Change{Action: Forget, Job: name, UID: uid, Provider: as.Provider})
	p.forgottenUIDs[uid] = true
	if p.runs(uid) {
		p.released[uid] = as
	}
}

// isReleased reports whether a job was forgotten, before or in this pass: what runs of it is unmanaged.
func (p *pass) isReleased(uid string) bool {
	_, before := p.released[uid]
	return before || p.forgottenUIDs[uid]
}

// runs reports whether anything of a job is observed to run.
func (p *pass) runs(uid string) bool {
	return p.in.Snapshot.Incarnations.Any(func(inc *job.Incarnation) bool {
		return inc.UID == uid && inc.State != job.Gone
	})
}

// unrecorded is what runs under a job's name and belongs to no recorded job, by UID.
func (p *pass) unrecorded(name string) map[string]*job.Incarnation {
	recorded := map[string]bool{}
	for _, rec := range p.in.Records {
		recorded[rec.UID] = true
	}
	found := map[string]*job.Incarnation{}
	for _, part := range p.in.Snapshot.Incarnations {
		if len(part) > 0 && recorded[part[0].UID] {
			continue
		}
		for i := range part {
			inc := &part[i]
			is := inc.Slot.Job == name || inc.Slot.Job == suffixedName(name, inc.UID)
			if is && inc.State != job.Gone && !p.isReleased(inc.UID) && p.ours(inc) {
				found[inc.UID] = inc
			}
		}
	}
	return found
}

func (p *pass) declares(name string) bool {
	return slices.ContainsFunc(p.in.Jobs, func(j job.Job) bool { return j.Name == name })
}
