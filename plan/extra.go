package plan

import "github.com/eltrain/eltrain/job"

// extras is what each slot of a role takes of its node in addition to its reservation, such as its pod's sidecars. Roles
// without extras are not in it.
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

// of is the extra of the slot's next incarnation.
func (e extras) of(a job.Address) job.Resources {
	if len(e) == 0 {
		return job.Resources{}
	}
	return e[roleOf{a.Job, a.Role}]
}

// actualExtra is the extra of a running incarnation that differs from that of the next one: its role was edited since.
type actualExtra struct {
	node  string
	extra job.Resources
}

// noteExtra records the extra with which the slot's incarnation was launched, if it differs.
func (sp *space) noteExtra(s *job.Slot, inc *job.Incarnation) {
	if inc != nil && inc.State != job.Gone && inc.Node != "" && !inc.Extra.Equal(sp.extras.of(s.Address)) {
		sp.actualExtras[s.Address] = actualExtra{inc.Node, inc.Extra}
	}
}

// held is all that a slot takes of its current node.
func (sp *space) held(s *job.Slot) job.Resources {
	if o, known := sp.actualExtras[s.Address]; known && o.node == s.Node {
		return s.Reserved.Add(o.extra)
	}
	return sp.needs(s.Address, s.Reserved)
}

// needs is all that a slot with reservation r takes of its next node.
func (sp *space) needs(a job.Address, r job.Resources) job.Resources {
	if extra, has := sp.extras[roleOf{a.Job, a.Role}]; has {
		return r.Add(extra)
	}
	return r
}

// taken is all that an incarnation takes of its node.
func taken(inc *job.Incarnation) job.Resources { return inc.Reserved.Add(inc.Extra) }
