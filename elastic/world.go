package elastic

import (
	"cmp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// headStart is how long the other members of a new world wait for rank 0 to report that its processes run. A TCPStore client
// that connects before rank 0 listens retries only after a full second, so waiting a few milliseconds saves most of a second;
// waiting longer than a second gains nothing.
const headStart = time.Second

// A world that the ledger failed to write is proposed again after formRetry, doubling up to formRetryMax.
const (
	formRetry    = 100 * time.Millisecond
	formRetryMax = 5 * time.Second
)

func (r *Rendezvous) tick() {
	r.checks.Tick(r.now)
	if !r.headUntil.IsZero() && !r.now.Before(r.headUntil) {
		r.releaseAll()
	}
	if r.claim != nil && len(r.claim.ranks) < r.claim.size && !r.now.Before(r.claimUntil) {
		r.endClaims()
	}
}

// advance forms a world when it is time, and breaks one that can grow, or that is to be idle.
func (r *Rendezvous) advance() {
	r.settleAt = time.Time{}
	if r.isToEnd() && !r.awaits() {
		r.breakWorld((r.want.Idle || r.want.Reload.Save) && !r.isToBeKilled())
		r.world.Ordered = r.now
	}
	if r.writing.world != nil || r.writing.retryAt.After(r.now) {
		return
	}
	if r.claim != nil {
		if len(r.claim.ranks) == r.claim.size {
			r.propose(r.claimedWorld())
		}
		return
	}
	if r.want.Hold {
		return
	}
	size, all, ok := r.outlook()
	if !ok || r.trains() && size <= r.trainingCount() {
		return
	}
	if !all && !(r.settled && !r.trains()) {
		if at := r.settleFrom.Add(r.want.Settle.Std()); r.now.Before(at) {
			r.settleAt = at
			return
		}
	}
	if r.trains() {
		r.breakWorld(true)
		r.settled = true
		return
	}
	r.propose(r.nextWorld())
}

// isToEnd reports whether the world trains that is to end, though nobody leaves it.
func (r *Rendezvous) isToEnd() bool {
	return r.trains() && (r.want.Idle || r.world.Generation <= r.want.Reload.Through || r.isToBeKilled())
}

// isToBeKilled reports whether the processes of the world are killed rather than asked to end: they hang, or have just started.
func (r *Rendezvous) isToBeKilled() bool {
	return r.world.Generation <= r.want.Kill || r.stopping == atOnce
}

// young is how old a world may be that is ended at once before its first step: so much can be lost at most.
const young = time.Minute

// hasJustStarted reports whether the world has nothing to save: it is to show a first step, and has not yet, nor a checkpoint. Some of
// its processes may not handle a signal yet, and others wait for those without end.
func (r *Rendezvous) hasJustStarted() bool {
	if !r.want.Steps || !r.world.FirstStep.IsZero() || r.now.Sub(r.world.Formed) >= young || r.awaits() {
		return false
	}
	return !slices.ContainsFunc(r.world.Members, func(m job.WorldMember) bool {
		s := r.slots[m.Slot]
		return s != nil && (s.report.Saving || s.report.Saved.Generation >= r.world.Generation)
	})
}

// awaits reports whether a member of the world is still to register with this master. It would not learn that the world ends, and
// take that for a fault.
func (r *Rendezvous) awaits() bool {
	return slices.ContainsFunc(r.world.Members, func(m job.WorldMember) bool {
		s := r.slots[m.Slot]
		return s != nil && s.awaited
	})
}

// outlook reports the size in slots of a world formed now, and whether it has all wanted slots. It is not ok while a member is
// about to join or start, when a role has too few, or once any slot succeeded: a world without that slot would train its share
// again.
func (r *Rendezvous) outlook() (size int, all, ok bool) {
	all = true
	for _, ro := range r.roles {
		if ro.count[coming]+ro.count[starting]+ro.count[done] > 0 {
			return 0, false, false
		}
		there := ro.count[joined] + ro.count[training]
		n := ro.Sizes.Floor(there)
		if n < ro.Sizes.Min {
			return 0, false, false
		}
		size += n
		all = all && there == ro.desired
	}
	return size, all, size > 0
}

// trainingCount counts the wanted members of the world that run. A member that was to leave and did not return to this master is
// excluded: another may replace it in the world.
func (r *Rendezvous) trainingCount() (n int) {
	for _, ro := range r.roles {
		n += ro.count[training]
	}
	return n
}

func (r *Rendezvous) propose(w job.World) {
	r.writing.world, r.writing.fresh = &w, true
}

// nextWorld is formed from joined members: of each role the largest legal number, members of the previous world first, then the
// lowest index.
func (r *Rendezvous) nextWorld() job.World {
	joiners := map[*role][]*slot{}
	for _, s := range r.slots {
		if s.class == joined {
			joiners[s.role] = append(joiners[s.role], s)
		}
	}
	var chosen []*slot
	for _, ro := range r.roles {
		like := joiners[ro]
		slices.SortFunc(like, func(a, b *slot) int {
			if (a.rank >= 0) != (b.rank >= 0) {
				return cmp.Compare(b.rank, a.rank)
			}
			return bySlot(a, b)
		})
		like = like[:ro.Sizes.Floor(len(like))]
		slices.SortFunc(like, bySlot)
		chosen = append(chosen, like...)
	}
	var byRank []*slot
	if len(r.want.RankBy) > 0 {
		r.setLevels(chosen)
		byRank = rankByTopology(chosen)
	} else {
		byRank = keepRanks(chosen)
	}
	return r.worldOf(r.generation+1, byRank)
}

func (r *Rendezvous) worldOf(generation int, byRank []*slot) job.World {
	w := job.World{
		Generation: generation,
		Formed:     r.now,
		MasterAddr: byRank[0].host,
		MasterPort: byRank[0].report.Port,
		ResumeStep: r.want.Reload.Step,
		Members:    make([]job.WorldMember, len(byRank)),
	}
	for i, s := range byRank {
		w.Members[i] = job.WorldMember{Slot: s.Address, Incarnation: s.Incarnation, Rank: i, Processes: max(1, s.role.Processes)}
	}
	return w
}

// formed handles the ledger's result. A world that lost a member meanwhile has used its number, and is not announced.
func (r *Rendezvous) formed(e Formed) {
	if r.writing.world == nil || r.writing.world.Generation != e.Generation {
		return
	}
	w := *r.writing.world
	r.writing.world = nil
	if e.Err != nil {
		r.writing.retryAt = r.now.Add(min(formRetry<<min(r.writing.failures, 10), formRetryMax))
		r.writing.failures++
		return
	}
	r.writing.failures, r.writing.retryAt = 0, time.Time{}
	adopted := r.claim != nil // while there is a claim no other world is proposed
	w.Broken = r.want.Hold && !adopted
	for _, m := range w.Members {
		s := r.slots[m.Slot]
		ready := s != nil && s.Incarnation == m.Incarnation && s.wanted && (s.class == joined || adopted)
		w.Broken = w.Broken || !ready
	}
	r.claim = nil
	if adopted {
		r.claimUntil = time.Time{}
	}
	r.setWorld(w)
	if !w.Broken && !adopted && len(w.Members) > 1 {
		r.headUntil = r.now.Add(headStart)
	}
	for _, s := range r.slots {
		r.refresh(s)
	}
}

// setWorld makes w the newest world: it sets ranks, and unless w is broken, its members' places.
func (r *Rendezvous) setWorld(w job.World) {
	r.world = w
	r.generation = max(r.generation, w.Generation)
	r.changes++
	r.settled, r.stopping = false, byGrace
	for _, s := range r.slots {
		if s.role != nil {
			s.rank, s.member, s.place = -1, false, nil
		}
	}
	places := placesOf(w)
	for i, m := range w.Members {
		s := r.slots[m.Slot]
		if s == nil {
			continue
		}
		s.rank, s.Rank = m.Rank, m.Rank
		s.member = s.Incarnation == m.Incarnation
		if s.member && !w.Broken {
			s.place = &places[i]
		}
		r.seeFirstStep(s) // of one that is adopted
	}
}

// breakWorld ends the training world: all members are ordered to wait. A planned end asks for a checkpoint first, if there is something
// to save; any other does not, because peers that a checkpoint needs may be gone.
func (r *Rendezvous) breakWorld(planned bool) {
	r.world.Broken = true
	if planned {
		r.world.Ordered = r.now
	}
	switch r.stopping = byGrace; {
	case planned && r.hasJustStarted():
		r.stopping = atOnce
	case planned:
		r.stopping = afterCheckpoint
	}
	r.settled = false
	r.headUntil = time.Time{}
	r.changes++
	for _, m := range r.world.Members {
		s := r.slots[m.Slot]
		if s == nil || !s.member {
			continue
		}
		s.place, s.checkpoint = nil, r.stopping == afterCheckpoint && (s.awaited || s.report.State == job.MemberRunning)
		r.refresh(s)
	}
}

// abandonCheckpoint stops the members at once, because one failed while the others were to write a checkpoint.
func (r *Rendezvous) abandonCheckpoint() {
	r.stopping, r.settled = byGrace, false
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil && s.member && s.class != joined {
			s.checkpoint = false
			r.refresh(s)
		}
	}
}

// releaseAll lets the members other than rank 0 start.
func (r *Rendezvous) releaseAll() {
	if r.headUntil.IsZero() {
		return
	}
	r.headUntil = time.Time{}
	for _, m := range r.world.Members {
		if s := r.slots[m.Slot]; s != nil {
			r.refresh(s)
		}
	}
}
