package elastic

import (
	"time"

	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

// Usage is what the training processes of one job do and use.
type Usage struct {
	UID        string      `json:"uid"`
	Generation int         `json:"generation"`
	Ranks      []RankUsage `json:"ranks"` // by slot and local rank
	// Saved is when the newest checkpoint was written, or else reported; zero if that is not known, as of one that is older than this
	// master and in no directory.
	Saved   time.Time      `json:"saved,omitzero"`
	Service ServiceFigures `json:"-"`
}

// RankUsage is one training process of a member that is up.
type RankUsage struct {
	Slot        job.Address     `json:"slot"`
	Incarnation int             `json:"incarnation"`
	Local       int             `json:"local_rank"`
	Rank        int             `json:"rank"` // in the world that trains; -1 outside
	State       job.MemberState `json:"state"`
	Silent      bool            `json:"silent,omitempty"`
	Heard       time.Time       `json:"heard"` // when its member sent the newest report
	Step        int64           `json:"step,omitempty"`
	Loss        *job.Loss       `json:"loss,omitempty"`
	StepRate    float64         `json:"step_rate,omitempty"`
	// Process is nil while none runs, and where nothing can be read. Figures are the slot's as a whole.
	Process *job.ProcessFigures `json:"process,omitempty"`
	Figures *job.SlotFigures    `json:"figures,omitempty"`
	history.Rates
	Points []history.Point `json:"points,omitempty"` // from Points, if they were asked for
}

// remember adds an accepted report to the history. What it says of more processes than the slot has is ignored: no job takes room
// that another one could need.
func (c *Coordinator) remember(now time.Time, m *member, r *Report) {
	if r.State != job.MemberRunning {
		return
	}
	m.job.sawCheckpoint(now, m, r)
	if c.history == nil {
		return
	}
	for local := range m.job.processes(m.slot) {
		c.history.Add(now, history.Rank{Slot: m.slot, Local: local}, r.Measured(local, m.incarnation))
	}
}

// Measured is what a report of an incarnation says of a rank, for its history.
func (r *Report) Measured(local, incarnation int) history.Measured {
	step, loss, _ := r.progressOf(local)
	m := history.Measured{Incarnation: incarnation, Step: step, Loss: loss}
	if local < len(r.Ranks) && r.Figures != nil {
		m.Process, m.At = r.Ranks[local].Process, r.Figures.At
	}
	return m
}

// restore adds what a member remembers to the history, as far as that knows nothing newer.
func (c *Coordinator) restore(now time.Time, m *member, recent []*history.Recent) {
	if c.history == nil {
		return
	}
	for local, r := range recent[:min(len(recent), m.job.processes(m.slot))] {
		c.history.Restore(now, history.Rank{Slot: m.slot, Local: local}, r)
	}
}

// progressOf is how far a rank is: as was read of it, or else as its slot is.
func (r *Report) progressOf(local int) (step int64, loss *job.Loss, rate float64) {
	if local < len(r.Ranks) {
		if p := r.Ranks[local].Progress; p != nil && p.Step != nil && !p.Counted {
			return *p.Step, p.Loss, p.StepRate
		}
	}
	return r.Step, r.Loss, r.StepRate
}

// sinceFirstStep is how long ago the processes showed the first step of their generation, which is estimated if they have shown more
// since.
func (r *Report) sinceFirstStep() (age time.Duration, shown bool) {
	if r.Ranks == nil { // of an agent that says no more
		return took(r.Step-r.FirstStep, r.StepRate), r.Step > 0 || r.FirstStep > 0
	}
	for i := range r.Ranks {
		p := r.Ranks[i].Progress
		if p == nil || p.FirstStep == nil || p.Step == nil || p.StepAge == nil {
			continue
		}
		shown = true
		age = max(age, seconds(min(*p.StepAge, longAgo))+took(*p.Step-*p.FirstStep, p.StepRate))
	}
	return age, shown
}

// took is how long steps took at a rate; 0 if it is unknown.
func took(steps int64, rate float64) time.Duration {
	if steps <= 0 || rate <= 0 {
		return 0
	}
	return seconds(min(float64(steps)/rate, longAgo))
}

// longAgo bounds an estimate, in seconds: no rate is that low.
const longAgo = 1e9

// rankStatuses is what a snapshot has of ranks.
func rankStatuses(ranks []job.RankReport) []job.RankStatus {
	if len(ranks) == 0 {
		return nil
	}
	all := make([]job.RankStatus, len(ranks))
	for i := range ranks {
		all[i].Progress = ranks[i].Progress
	}
	return all
}

// sawCheckpoint dates a checkpoint that is newer than all known ones, or was written again. That of a member's first report, or of an
// earlier world, may be old: then only its files tell.
func (j *jobState) sawCheckpoint(now time.Time, m *member, r *Report) {
	if r.Saved != (job.Saved{}) && r.Saved.Newest(j.saved) != j.saved {
		j.saved, j.savedAt = r.Saved, time.Time{}
		if now.After(m.registered) && r.Saved.Generation >= r.Generation {
			j.savedAt = now
		}
	}
	if s := r.Checkpoint; s != nil && s.Newest != nil && r.Saved == j.saved && s.Newest.Step == j.saved.Step {
		if at := s.Newest.Written; at.After(j.savedAt) && !at.After(now) {
			j.savedAt = at
		}
	}
}

// processes is how many training processes a slot has.
func (j *jobState) processes(slot job.Address) int {
	s := j.rdzv.slots[slot]
	if s.role != nil {
		return max(1, s.role.Processes)
	}
	return max(1, s.Processes)
}

// Usage returns what the training processes of all jobs do and use, by job. It has no Points.
func (c *Coordinator) Usage() map[string]Usage {
	out := make(map[string]Usage, len(c.jobs))
	for name, j := range c.jobs {
		u := Usage{UID: j.uid, Generation: j.rdzv.World().Generation, Ranks: []RankUsage{}, Saved: j.savedAt, Service: j.figures()}
		bases := map[job.Address]int{}
		if world := j.rdzv.World(); j.rdzv.trains() {
			for i, place := range placesOf(world) {
				bases[world.Members[i].Slot] = place.RankBase
			}
		}
		for _, m := range j.byAddress() {
			if s := j.rdzv.slots[m.slot]; s.present {
				u.Ranks = c.ranksOf(u.Ranks, m, s, bases)
			}
		}
		out[name] = u
	}
	return out
}

// ranksOf adds the ranks of a member.
func (c *Coordinator) ranksOf(all []RankUsage, m *member, s *slot, bases map[job.Address]int) []RankUsage {
	r := &s.report
	for local := range m.job.processes(m.slot) {
		rank := history.Rank{Slot: m.slot, Local: local}
		u := RankUsage{
			Slot: m.slot, Incarnation: m.incarnation, Local: local, Rank: -1, State: r.State, Silent: m.silent, Heard: m.heard,
			Figures: r.Figures,
		}
		u.Step, u.Loss, u.StepRate = r.progressOf(local)
		if base, trains := bases[m.slot]; trains {
			u.Rank = base + local
		}
		if local < len(r.Ranks) && r.Ranks[local].Process != nil {
			u.Process = r.Ranks[local].Process
			if c.history != nil {
				u.Rates = c.history.Rates(rank)
			}
		}
		all = append(all, u)
	}
	return all
}
