package plan

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// reservedShare is the part of a budget from which on nothing grows: the rest is for what runs.
const reservedShare = 0.8

// level is how far a budget is used up.
type level int

const (
	ample  level = iota
	scarce       // nothing grows
	spent        // nothing starts, and the budget says what becomes of what runs
)

// levelOf is how far the budget is used up as of an input.
func levelOf(in *Input) level {
	b := in.Directory.Budget
	if b == nil {
		return ample
	}
	switch share := in.Spent.Until(in.Now) / b.NodeHours; {
	case share >= 1:
		return spent
	case share >= reservedShare:
		return scarce
	}
	return ample
}

// budget finds out how far the budget is used up, and suspends what it no longer pays for.
func (p *pass) budget() {
	b := p.in.Directory.Budget
	p.level, p.out.Spent = levelOf(&p.in), p.in.Spent
	if p.level == spent && b.Then != job.HoldAtBudget {
		for _, w := range p.jobs {
			w.unfunded = true
		}
	}
}

// cancelUnfunded ends a job for which the budget no longer pays. Its slots are asked for a checkpoint, as by any planned stop. One
// that must not be destroyed is only suspended.
func (p *pass) cancelUnfunded(w *work) {
	if !w.unfunded || w.rec.Phase.Ended() || !w.declared || p.in.Directory.Budget.Then != job.CancelAtBudget || w.spec.Lifecycle.PreventDestroy || p.kept[w.name] {
		return
	}
	w.unfunded = false
	p.close(w, job.JobCanceled, p.whyBudget())
	p.note("job."+w.name, "job_phase", entered(job.JobCanceled).With(p.whyBudget()))
}

// whyBudget says how far the budget is used up.
func (p *pass) whyBudget() job.Reason {
	code, b := BudgetScarce, p.in.Directory.Budget
	if p.level == spent {
		code = BudgetSpent
	}
	return job.Because(code, "budget", strconv.FormatFloat(b.NodeHours, 'g', 6, 64))
}

// holdGrowth says which roles do not grow because of the budget.
func (p *pass) holdGrowth() {
	for _, w := range p.jobs {
		if !w.declared || w.frozen || !w.active() || !w.admitted() {
			continue
		}
		if w.rest != nil && slices.ContainsFunc(w.spec.Roles, func(r job.Role) bool { return r.Scaling != nil && w.rec.Counts[r.Name] < w.sizes(&r).Max }) {
			p.wake(w)
		}
		for i := range w.spec.Roles {
			r := &w.spec.Roles[i]
			if n := len(w.heldSlots(r.Name)); r.Scaling != nil && n > 0 && n < w.sizes(r).Max {
				p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: r.Name, Held: true, Reasons: []job.Reason{p.whyBudget()}})
			}
		}
	}
}

// spend counts the nodes that jobs use from now on. A plan records it only if that changes: between two plans they cost the same.
func (p *pass) spend() {
	b := p.in.Directory.Budget
	if b == nil {
		if p.out.Spent != (job.Spent{}) {
			p.out.Spent, p.out.Dirty = job.Spent{}, true // a later budget begins anew
		}
		return
	}
	used := map[onNode]bool{}
	note := func(provider string, s *job.Slot) {
		if s.Node != "" && s.Phase.Live() {
			used[onNode{provider, s.Node}] = true
		}
	}
	for _, w := range p.jobs {
		if w.rest != nil {
			for i := range w.rec.Slots {
				note(w.spec.Provider, &w.rec.Slots[i])
			}
			continue
		}
		for _, s := range w.slots {
			note(w.spec.Provider, s)
		}
	}
	now := &p.out.Spent
	if now.Nodes != len(used) || now.Budget != b.NodeHours {
		*now = job.Spent{NodeHours: now.Until(p.in.Now), At: p.in.Now, Nodes: len(used), Budget: b.NodeHours}
		p.out.Dirty = true
	}
	for _, share := range []float64{reservedShare, 1} {
		if left := share*b.NodeHours - now.Until(p.in.Now); left > 0 && now.Nodes > 0 {
			p.wakeAt(p.in.Now.Add(time.Duration(left/float64(now.Nodes)*float64(time.Hour)) + time.Second))
			return
		}
	}
}
