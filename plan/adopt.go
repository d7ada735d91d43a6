package plan

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Import says that what runs under an ID is to be managed as the job To, or as a slot of it. The ID is the UID of a job, or the
// infrastructure's name for one of its incarnations or for the owner of them all.
type Import struct {
	To job.Selector `json:"to"`
	ID string       `json:"id"`
}

// names reports whether the import's ID is that of the incarnation, or of its whole job.
func (i Import) names(inc *job.Incarnation) bool { return inc.Name == i.ID || i.whole(inc) }

// whole reports whether the import's ID is that of the incarnation's job, or of the owner of all of it.
func (i Import) whole(inc *job.Incarnation) bool { return inc.UID == i.ID || inc.Group == i.ID }

// adopt resolves import blocks. A recorded job was imported or started before, so its block has no effect. A job whose import
// is not found is refused and not started. As long as one is missing no stray is stopped: it may be the import.
func (p *pass) adopt() {
	for _, i := range p.in.Imports {
		name := i.To.Job
		if p.in.Records[name] != nil || !p.declares(name) || p.refusedJobs[name] {
			continue
		}
		uid, why := p.find(i)
		if found := p.imported[name]; why == nil && found.uid != "" && found.uid != uid {
			why = refusal(name, ImportConflict, "id", found.id, "other", i.ID)
		}
		if why != nil {
			p.refuse(*why)
			p.elsewhere[name] = true
			p.importMissing = true
			continue
		}
		p.imported[name] = adopted{uid: uid, id: i.ID}
	}
	for name, found := range p.imported {
		if p.refusedJobs[name] {
			continue
		}
		if _, released := p.released[found.uid]; released {
			delete(p.released, found.uid)
			p.out.Dirty = true
		}
		found.launched = p.launchedName(found.uid)
		p.imported[name] = found
		p.relabel(found.uid, name)
	}
}

// adopted is a running job that gets its record in this pass.
type adopted struct {
	uid, id  string
	launched string // the name by which its infrastructure knows it
}

// find returns the UID of what an import names, or why it cannot be imported.
func (p *pass) find(i Import) (uid string, why *Refusal) {
	to := i.To.String()
	provider := p.providerOf(i.To.Job)
	for inc := range p.in.Snapshot.Incarnations.All() {
		whole := i.whole(inc)
		switch {
		case inc.State == job.Gone || !i.names(inc):
			continue
		case inc.Provider != provider:
			return "", refusal(i.To.Job, ImportOtherProvider, "id", i.ID, "runs_under", inc.Provider, "provider", provider)
		case i.To.Role != "" && whole:
			return "", refusal(i.To.Job, ImportJobToSlot, "id", i.ID)
		case i.To.Role != "" && !i.To.Matches(job.Address{Job: i.To.Job, Role: inc.Slot.Role, Index: inc.Slot.Index}):
			return "", refusal(i.To.Job, ImportOtherSlot, "id", i.ID, "slot", inc.Slot.Short(), "to", to)
		case uid != "" && uid != inc.UID:
			return "", refusal(i.To.Job, ImportAmbiguous, "id", i.ID, "uid", uid, "other", inc.UID)
		}
		uid = inc.UID
	}
	if uid == "" {
		return "", refusal(i.To.Job, ImportNotFound, "id", i.ID, "to", to)
	}
	for name, rec := range p.in.Records {
		if rec.UID == uid {
			return "", refusal(i.To.Job, ImportManaged, "id", i.ID, "as", name)
		}
	}
	for name, found := range p.imported {
		if name != i.To.Job && found.uid == uid {
			return "", refusal(i.To.Job, ImportDuplicate, "id", i.ID, "as", name)
		}
	}
	return uid, nil
}

func (p *pass) providerOf(name string) string {
	i := slices.IndexFunc(p.in.Jobs, func(j job.Job) bool { return j.Name == name })
	return p.in.Jobs[i].Provider
}

// launchedName is the name under which a job is observed.
func (p *pass) launchedName(uid string) string {
	for inc := range p.in.Snapshot.Incarnations.All() {
		if inc.UID == uid {
			return inc.Slot.Job
		}
	}
	return ""
}
