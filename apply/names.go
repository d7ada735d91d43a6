package apply

import (
	"slices"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// names are the jobs that were renamed since their launch, by UID; nil if there are none, as usual. Plans, records and people
// use a job's current name; its infrastructure and its agents, which cannot be renamed while they run, the name under which
// it was launched.
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

// launched returns the name that a job was launched under.
func (n names) launched(uid, name string) string {
	if known, renamed := n[uid]; renamed {
		return known.launched
	}
	return name
}

// slot returns a slot's address as its infrastructure knows it.
func (n names) slot(uid string, slot job.Address) job.Address {
	slot.Job = n.launched(uid, slot.Job)
	return slot
}

// now returns a job's current name.
func (n names) now(uid, launched string) string {
	if known, renamed := n[uid]; renamed {
		return known.now
	}
	return launched
}

// toService translates a job's desired state to the name that its agents know.
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

// fromService translates what the service knows to the jobs' current names.
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
			f.Suspicions = slices.Clone(f.Suspicions)
			for i := range f.Suspicions {
				f.Suspicions[i] = f.Suspicions[i].Of(name)
			}
		}
		out[name] = f
	}
	return out
}

// ofUsage translates as fromService does.
func (n names) ofUsage(all map[string]elastic.Usage) map[string]elastic.Usage {
	if len(n) == 0 {
		return all
	}
	out := make(map[string]elastic.Usage, len(all))
	for name, u := range all {
		if known, renamed := n[u.UID]; renamed {
			name = known.now
			u.Ranks = slices.Clone(u.Ranks)
			for i := range u.Ranks {
				u.Ranks[i].Slot.Job = name
			}
		}
		out[name] = u
	}
	return out
}
