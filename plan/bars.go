package plan

import (
	"maps"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// bars are the nodes that roles can never use, by role. Roles with the same barred nodes share one value, and with it the
// cursors of a space.
type bars map[roleOf]*barred

// roleOf identifies a role of a job. A struct, because it is looked up for each slot that is placed.
type roleOf struct{ job, role string }

// barred is the set of nodes that some roles can never use, with the reason. Nil bars nothing.
type barred struct {
	number  int // from 1
	reasons map[string]string
}

func newBars(in map[string]map[string]string) bars {
	all := make(bars, len(in))
	var different []*barred
	for _, address := range slices.Sorted(maps.Keys(in)) {
		role, err := job.ParseSelector(address)
		if err != nil || len(in[address]) == 0 {
			continue
		}
		same := slices.IndexFunc(different, func(b *barred) bool { return maps.Equal(b.reasons, in[address]) })
		if same < 0 {
			same = len(different)
			different = append(different, &barred{same + 1, in[address]})
		}
		all[roleOf{role.Job, role.Role}] = different[same]
	}
	return all
}

// of is the bars of the slot; nil for most.
func (b bars) of(s *job.Slot) *barred {
	if len(b) == 0 {
		return nil
	}
	return b[roleOf{s.Address.Job, s.Address.Role}]
}

// at is why the node is barred; "" if it is not.
func (b *barred) at(node string) string {
	if b == nil {
		return ""
	}
	return b.reasons[node]
}

// id distinguishes bars; 0 is none.
func (b *barred) id() int {
	if b == nil {
		return 0
	}
	return b.number
}
