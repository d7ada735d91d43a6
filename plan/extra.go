package plan

import "github.com/eltrain/eltrain/job"

// extras is what each slot of a role takes of its node beside what it reserves: its pod's sidecars, for one. Roles
// without are not in it.
type extras map[roleOf]job.Resources

func newExtras(in map[string]job.Resources) extras {
	all := make(extras, len(in))
	for address, extra := range in {
		if role, err := job.ParseSelector(address); err == nil {
			all[roleOf{role.Job, role.Role}] = extra
		}
	}
	return all
}

// of is what the next incarnation of a slot takes beside what it reserves.
func (e extras) of(a job.Address) job.Resources {
	if len(e) == 0 {
		return job.Resources{}
	}
	return e[roleOf{a.Job, a.Role}]
}

// otherwise is a slot's incarnation that takes more or less than the next one would: its role was edited since.
type otherwise struct {
	node  string
	extra job.Resources
}

// asLaunched notes what the slot's incarnation takes where it is.
func (sp *space) asLaunched(s *job.Slot, inc *job.Incarnation) {
	if inc != nil && inc.State != job.Gone && inc.Node != "" && !inc.Extra.Equal(sp.extras.of(s.Address)) {
		sp.others[s.Address] = otherwise{inc.Node, inc.Extra}
	}
}

// held is all that a slot takes of the node that it has.
func (sp *space) held(s *job.Slot) job.Resources {
	if o, known := sp.others[s.Address]; known && o.node == s.Node {
		return s.Reserved.Add(o.extra)
	}
	return sp.wants(s.Address, s.Reserved)
}

// wants is all that a slot that reserves r takes of a node that it is to come to.
func (sp *space) wants(a job.Address, r job.Resources) job.Resources {
	if extra, has := sp.extras[roleOf{a.Job, a.Role}]; has {
		return r.Add(extra)
	}
	return r
}

// taken is all that an incarnation takes of its node.
func taken(inc *job.Incarnation) job.Resources { return inc.Reserved.Add(inc.Extra) }
