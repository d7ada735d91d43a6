package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// forgetting is Forget, and of the blocks and modules that are let go the jobs that there are: recorded, or, of modules, seen
// to run. One that has another name now, or is declared, is not one of theirs.
//
// A record says what its job was declared as. Where it does not (see job.Job.Address), and of what is seen without a record,
// only the name tells.
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
	for i := range in.Snapshot.Incarnations {
		enter(in.Snapshot.Incarnations[i].Slot.Job)
	}
	return all
}

// Forgets reports whether a job is let go, should it be no longer declared. address is what it was declared as, "" if nobody
// knows.
func (b *Blocks) Forgets(name, address string) bool {
	return b.Forget[name] ||
		slices.ContainsFunc(b.ForgetDeclared, func(of string) bool { return job.Selector{Declared: of}.Covers(address) }) ||
		slices.ContainsFunc(b.ForgetWithin, func(m Module) bool { return m.has(name, address) })
}

// has reports whether a job is, or was, of the module.
func (m *Module) has(name, address string) bool {
	if !strings.HasPrefix(name, m.Begins) || address == "" {
		return strings.HasPrefix(name, m.Begins)
	}
	return job.Selector{Declared: m.Address}.Covers(address)
}

// forget takes the jobs out of the records that removed blocks let go. What of them is running keeps running: as long as it does
// the plan remembers their UIDs, so that it neither stops that as a stray nor takes it for a job of the same name that
// is declared later.
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
			p.release(name, rec.UID, job.Released{Name: rec.LaunchedAs(name), Provider: rec.Spec.Provider})
			p.forgotten[name] = true
			continue
		}
		// The state may have been lost, and it runs anyway.
		unrecorded := p.unrecorded(name)
		for _, uid := range slices.Sorted(maps.Keys(unrecorded)) {
			p.release(name, uid, job.Released{Name: unrecorded[uid].Slot.Job, Provider: unrecorded[uid].Provider})
		}
	}
}

func (p *pass) release(name, uid string, as job.Released) {
	p.out.Dirty = true
	p.out.Changes = append(p.out.Changes, Change{Action: Forget, Job: name, UID: uid, Provider: as.Provider})
	p.letGo[uid] = true
	if p.runs(uid) {
		p.released[uid] = as
	}
}

// isReleased reports whether a job was forgotten, before or in this pass: what is seen of it is nobody's.
func (p *pass) isReleased(uid string) bool {
	_, before := p.released[uid]
	return before || p.letGo[uid]
}

// runs reports whether anything of a job is seen to run.
func (p *pass) runs(uid string) bool {
	return slices.ContainsFunc(p.in.Snapshot.Incarnations, func(inc job.Incarnation) bool {
		return inc.UID == uid && inc.State != job.Gone
	})
}

// unrecorded is what runs of a job of that name, by UID, and is of no recorded job.
func (p *pass) unrecorded(name string) map[string]*job.Incarnation {
	recorded := map[string]bool{}
	for _, rec := range p.in.Records {
		recorded[rec.UID] = true
	}
	found := map[string]*job.Incarnation{}
	for i := range p.in.Snapshot.Incarnations {
		inc := &p.in.Snapshot.Incarnations[i]
		is := inc.Slot.Job == name || inc.Slot.Job == apart(name, inc.UID)
		if is && inc.State != job.Gone && !recorded[inc.UID] && !p.isReleased(inc.UID) && p.ours(inc) {
			found[inc.UID] = inc
		}
	}
	return found
}

func (p *pass) declares(name string) bool {
	return slices.ContainsFunc(p.in.Jobs, func(j job.Job) bool { return j.Name == name })
}
