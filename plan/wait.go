package plan

import (
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// wait adds what is not as asked for.
func (p *pass) wait(w *work, role, reason string) {
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Reasons: []string{reason}})
}

// nodesNamed bounds how many nodes a shortage lists.
const nodesNamed = 8

const stillStopping = "Slots of it are still being stopped."

// shortage says what is wanted and what is available, for a person.
func (p *pass) shortage(w *work, slots []*job.Slot) string {
	if len(slots) == 0 {
		return stillStopping
	}
	if !w.within(slots) {
		return fmt.Sprintf("Wanted: %s. Its limits leave no room for that.", wanted(slots))
	}
	sp := p.space(w.spec.Provider)
	var have []string
	more := 0
	for _, pl := range sp.places {
		if len(have) == nodesNamed {
			more++
			continue
		}
		have = append(have, pl.node.Name+" "+sp.left(pl))
	}
	available := strings.Join(have, "; ")
	switch {
	case len(sp.places) == 0:
		available = "no node"
	case more > 0:
		available += fmt.Sprintf("; and %d more nodes", more)
	}
	return fmt.Sprintf("Wanted: %s. Available: %s.", wanted(slots), available)
}

func wanted(slots []*job.Slot) string {
	type kind struct{ role, size string }
	counts := map[kind]int{}
	var order []kind
	for _, s := range slots {
		k := kind{s.Address.Role, s.Reserved.String()}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	parts := make([]string, len(order))
	for i, k := range order {
		parts[i] = fmt.Sprintf("%d %s with %s each", counts[k], k.role, k.size)
	}
	return strings.Join(parts, ", ")
}

// left is what a node has free, of what it has.
func (sp *space) left(pl *place) string {
	if pl.node.Closed != "" {
		return pl.node.Closed
	}
	free := job.Resources{CPU: job.CPU(max(pl.free[0], 0)), Memory: job.Bytes(max(pl.free[1], 0)), Devices: map[string]int{}}
	for name, i := range sp.dims {
		free.Devices[name] = int(max(pl.free[i], 0))
	}
	return free.String() + " free"
}

// never tells whether the job's min cannot run even on empty nodes, or within the job's own limits.
func (p *pass) never(w *work, gang []*job.Slot) bool {
	if !w.within(gang) {
		p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{p.shortage(w, gang)}})
		return true
	}
	t := &txn{sp: p.space(w.spec.Provider).emptied()}
	if t.putAll(gang) {
		t.undo()
		return false
	}
	p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Never: true, Reasons: []string{
		fmt.Sprintf("It cannot run on these nodes even when they are empty. %s", p.shortage(w, gang))}})
	return true
}
