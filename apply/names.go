package apply

import (
	"slices"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// names are the jobs that were launched under another name than they have now, by UID. Plans, records and people know a job
// by the name that it has; its infrastructure and its agents, which nobody can rename while they run, by the one that it was
// launched under. The two meet here. It is nil where no job was renamed, which is the rule.
type names map[string]named

type named struct{ now, launched string }

func namesOf(records job.Records) (n names) {
	for name, rec := range records {
		if launched := rec.LaunchedAs(name); launched != name {
			if n == nil {
				n = names{}
			}
			n[rec.UID] = named{name, launched}
		}
	}
	return n
}

// launched is the name that a job's infrastructure knows it by.
func (n names) launched(uid, name string) string {
	if known, renamed := n[uid]; renamed {
		return known.launched
	}
	return name
}

// slot is a slot as its infrastructure knows it.
func (n names) slot(uid string, slot job.Address) job.Address {
	slot.Job = n.launched(uid, slot.Job)
	return slot
}

// now is the name that a job has that was launched under another.
func (n names) now(uid, launched string) string {
	if known, renamed := n[uid]; renamed {
		return known.now
	}
	return launched
}

// toService is what the service is told of a job, as the job's agents call it.
func (n names) toService(name string, d elastic.Desired) (string, elastic.Desired) {
	launched := n.launched(d.UID, name)
	if launched == name {
		return name, d
	}
	d.World = d.World.Of(launched)
	d.Slots, d.Want.Unranked = slices.Clone(d.Slots), slices.Clone(d.Want.Unranked)
	for i := range d.Slots {
		d.Slots[i].Address.Job = launched
	}
	for i := range d.Want.Unranked {
		d.Want.Unranked[i].Job = launched
	}
	return launched, d
}

// fromService is what the service knows, by the names that jobs have now.
func (n names) fromService(facts map[string]elastic.Facts) map[string]elastic.Facts {
	if len(n) == 0 {
		return facts
	}
	out := make(map[string]elastic.Facts, len(facts))
	for name, f := range facts {
		if known, renamed := n[f.UID]; renamed {
			name = known.now
			f.World = f.World.Of(name)
			f.Members = slices.Clone(f.Members)
			for i := range f.Members {
				f.Members[i].Slot.Job = name
			}
		}
		out[name] = f
	}
	return out
}
