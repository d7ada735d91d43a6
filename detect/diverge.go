package detect

import (
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
)

const (
	// agreements is at how many marks all processes must have said the same until another value of one is odd: the losses of most jobs
	// differ by their data.
	agreements = 8
	// strikes is at how many marks in a row a process must differ.
	strikes = 2
	// keptMarks is of how many steps marks are collected at a time.
	keptMarks = 8
)

// leastPeers is how many processes it takes until one can be odd: of two that differ it is unknown which is wrong.
const leastPeers = 3

// peers are data-parallel processes, and what they say at the same steps.
type peers struct {
	ranks []*rank   // by RANK
	steps []*marked // the newest, oldest first
	kinds [kinds]agreement
}

// marked are the marks of one step.
type marked struct {
	step  int64
	marks map[*rank]*job.Mark
}

// agreement is what is known of one kind of value.
type agreement struct {
	agreed int           // marks at which all said the same; counts up to agreements
	odd    map[*rank]int // at how many marks in a row a rank has differed
}

// The kinds of values. A hash names the state, so that it never differs among peers; the others may.
const (
	hash = iota
	gradNorm
	loss
	kinds
)

var kindNames = [kinds]string{"state_hash", "grad_norm", "loss"}

func valueOf(m *job.Mark, kind int) string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	switch {
	case kind == hash:
		return m.StateHash
	case kind == gradNorm && m.GradNorm != nil:
		return number(*m.GradNorm)
	case kind == loss && m.Loss != nil:
		return number(float64(*m.Loss))
	}
	return ""
}

// compareMark compares a step once all peers have a mark of it. It costs as much as there are peers, once for each step.
func (d *Detector) compareMark(r *rank) {
	p := r.peers
	at := slices.IndexFunc(p.steps, func(m *marked) bool { return m.step == r.Mark.Step })
	if at < 0 {
		if len(p.steps) == keptMarks {
			p.steps = slices.Delete(p.steps, 0, 1)
		}
		p.steps = append(p.steps, &marked{r.Mark.Step, map[*rank]*job.Mark{}})
		at = len(p.steps) - 1
	}
	m := p.steps[at]
	m.marks[r] = r.Mark
	if len(m.marks) < len(p.ranks) || len(p.ranks) < leastPeers {
		return
	}
	p.steps = slices.Delete(p.steps, at, at+1)
	for kind := range kinds {
		d.compareValues(p, m, kind)
	}
}

func (d *Detector) compareValues(p *peers, m *marked, kind int) {
	a := &p.kinds[kind]
	count, most := map[string]int{}, ""
	for _, mark := range m.marks {
		v := valueOf(mark, kind)
		count[v]++
		if count[v] > count[most] || most == "" {
			most = v
		}
	}
	switch {
	case most == "" || count[""] > 0:
		return
	case len(count) == 1:
		a.agreed, a.odd = min(a.agreed+1, agreements), nil
		return
	case 3*count[most] < 2*len(p.ranks), kind != hash && a.agreed < agreements:
		a.agreed = 0
		return
	}
	odd := map[*rank]int{}
	for _, r := range p.ranks {
		if v := valueOf(m.marks[r], kind); v != most {
			if odd[r] = a.odd[r] + 1; odd[r] == strikes || kind == hash && odd[r] == 1 {
				d.suspectDiverged(r, kindNames[kind], v, most, m.step)
			}
		}
	}
	a.odd = odd
}

// suspectDiverged adds a suspicion, which lasts as long as the world: its state stays wrong.
func (d *Detector) suspectDiverged(r *rank, what, value, others string, step int64) {
	if slices.ContainsFunc(d.diverged, func(s job.Suspicion) bool { return slices.Contains(s.Ranks, r.number) }) {
		return
	}
	d.diverged = append(slices.Clip(d.diverged), job.Suspicion{
		Cause: job.Diverged, Generation: d.generation, Slots: []job.Address{r.slot.address}, Ranks: []int{r.number}, Since: d.now, Certain: true,
		Evidence: []job.Reason{d.because(RankDiffers, []*rank{r}, "what", what, "value", value, "others", others, "step", strconv.FormatInt(step, 10))},
	})
	d.lookBy(d.now)
}
