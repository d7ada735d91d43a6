package elastic

import (
	"slices"

	"github.com/eltrain/eltrain/job"
)

// class is what a wanted slot contributes to a world.
type class int

const (
	none     class = iota // not wanted
	absent                // no member that could train
	coming                // alive but busy: stopping an older world's processes, or awaited
	joined                // waits for the next world
	starting              // in the world, not yet reported running
	training              // runs in the world
	done                  // succeeded
	classes
)

// refresh updates a slot's class and order.
func (r *Rendezvous) refresh(s *slot) {
	if s.role == nil {
		r.placeUnranked(s)
	} else if c := r.classOf(s); c != s.class {
		s.role.count[s.class]--
		s.role.count[c]++
		s.class = c
		if c == joined {
			r.settleFrom = r.now
		}
	}
	o := r.orderOf(s)
	if s.version > 0 && o.equal(s.order) {
		return
	}
	r.version++
	s.order, s.version = o, r.version
	r.orders = append(r.orders, s.Address)
}

func (r *Rendezvous) classOf(s *slot) class {
	state := s.report.State
	switch {
	case s.named && state == job.MemberSucceeded:
		return done
	case !s.wanted:
		return none
	case s.awaited:
		return coming
	case !s.present || state == job.MemberFailed || state == job.MemberLeaving:
		return absent
	case s.member && r.trains() && r.runsIn(s.report):
		return training
	case s.member && r.trains():
		return starting
	case state == job.MemberWaiting && r.isRejected(s):
		return absent
	case state == job.MemberWaiting && !r.isChecked(s):
		return coming
	case state == job.MemberWaiting:
		return joined
	}
	return coming
}

func (r *Rendezvous) orderOf(s *slot) Order {
	o := r.orderToRun(s)
	o.Acts = s.acts
	if p := r.want.Progress; p != nil && o.Do != Leave {
		o.Progress = &Progress{p.Pattern, p.Recognizers}
	}
	return o
}

func (r *Rendezvous) orderToRun(s *slot) Order {
	held := !r.headUntil.IsZero() && s.rank > 0
	switch {
	case s.Leave:
		kill := s.Force || s.member && r.stopping == atOnce
		return Order{Do: Leave, Checkpoint: s.checkpoint && !kill, Force: kill}
	case s.place != nil && !held:
		return Order{Do: Run, World: s.place, Evidence: r.evidenceOf(s)}
	}
	kill := s.member && r.isToBeKilled()
	return Order{Do: Wait, Checkpoint: s.checkpoint && !kill, Force: kill, InPlace: s.InPlace, Check: r.checkOf(s)}
}

// maxExamined bounds the slots of a world that are asked for evidence: those of the first ranks. Each costs a few kilobytes here.
const maxExamined = 1024

// evidenceOf is the number under which a slot is asked for evidence; 0 if it is not.
func (r *Rendezvous) evidenceOf(s *slot) int {
	if !r.evidence.wanted || s.rank < 0 || s.rank >= maxExamined {
		return 0
	}
	return r.evidence.request
}

// placeUnranked starts a member of an unranked role. Its place stays as it was at its start: a change in the number of peers
// does not restart it.
func (r *Rendezvous) placeUnranked(s *slot) {
	if s.member {
		return // its role was ranked until now: there is nothing to continue
	}
	generation := s.report.Generation
	switch s.report.State {
	case job.MemberRunning, job.MemberSucceeded:
		s.checkpoint = r.want.Idle
		if r.want.Idle {
			s.place = nil
			return
		}
		if s.place != nil && s.place.Generation == generation {
			return
		}
	case job.MemberWaiting:
		generation = max(s.report.InPlace, s.report.Generation) + 1 // a generation that has run there never runs there again
		if s.place != nil && s.place.Generation == generation {
			return
		}
		if s.unranked == nil || r.want.Hold || !r.isChecked(s) {
			s.place = nil
			return
		}
	default:
		s.place = nil
		return
	}
	if !s.present {
		return
	}
	p := Place{GroupSize: 1, WorldSize: 1, RoleWorldSize: 1}
	if s.unranked != nil {
		p = *s.unranked
	}
	p.Generation, p.RestartCount = generation, generation-1
	p.MasterAddr, p.MasterPort = s.host, s.report.Port
	s.place, r.peers.moved = &p, true
}

// equal compares orders, including the places that they point to.
func (o Order) equal(p Order) bool {
	if (o.World == nil) != (p.World == nil) || o.World != nil && *o.World != *p.World {
		return false
	}
	if !o.Progress.Equal(p.Progress) {
		return false
	}
	return o.Do == p.Do && o.Checkpoint == p.Checkpoint && o.Force == p.Force && o.InPlace == p.InPlace && o.Evidence == p.Evidence && slices.Equal(o.Acts, p.Acts) && o.Check.equal(p.Check)
}

// Equal reports whether both are the same; nil is as itself only.
func (p *Progress) Equal(q *Progress) bool {
	if p == nil || q == nil {
		return p == q
	}
	return *p == *q
}

// sameExit compares the fields that a plan depends on.
func sameExit(a, b *job.Exit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Code == b.Code && a.Signal == b.Signal && a.At.Equal(b.At) && a.LocalRank == b.LocalRank &&
		a.OOM == b.OOM && a.NotStarted == b.NotStarted && a.Message == b.Message
}
