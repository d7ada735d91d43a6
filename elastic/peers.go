package elastic

import (
	"cmp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// maxPeers bounds the list that goes with an order: n members get n lists. Its worst case fits into maxReply.
	maxPeers = 128
	// listPace times the slots is how often the list is made and sent to members outside of the world.
	listPace = time.Millisecond
	// returnPace is the least time between two looks at whether all members of the previous master have returned.
	returnPace = 100 * time.Millisecond
)

// Peers is the list that goes with the order of a slot's member if it is to start, or if it runs outside of the world: nobody restarts
// that when its peers change. Otherwise nil. It is immutable.
func (r *Rendezvous) Peers(addr job.Address) *Peers {
	s := r.slots[addr]
	switch {
	case s == nil || s.order.Do != Run:
		return nil
	case s.report.State == job.MemberWaiting:
	case s.report.State != job.MemberRunning || !s.outside() || r.peersMissing():
		return nil
	}
	if r.peers.list == nil || r.peers.list.Generation != r.world.Generation {
		r.listPeers()
	}
	return r.peers.list
}

// outside reports whether a member runs by itself, not in the world.
func (s *slot) outside() bool { return s.role == nil && !s.member }

// tellPeers sends the list to members outside of the world if it has changed: at once, but again only after some time.
func (r *Rendezvous) tellPeers() {
	if r.peersTold() || r.now.Before(r.peers.tellAt) {
		return
	}
	pace := listPace * time.Duration(len(r.slots))
	r.peers.tellAt = r.now.Add(pace)
	if r.peersMissing() {
		r.peers.tellAt = r.now.Add(max(pace, returnPace))
		return
	}
	r.peers.toldAt, r.peers.moved = r.changes, false
	r.listPeers()
	if r.peers.told == r.peers.list {
		return
	}
	r.peers.told = r.peers.list
	for _, s := range r.slots {
		if s.outside() && s.place != nil {
			r.version++
			s.version = r.version
			r.orders = append(r.orders, s.Address)
		}
	}
}

// tellDue is when tellPeers is due; zero for never.
func (r *Rendezvous) tellDue() time.Time {
	if r.peersTold() {
		return time.Time{}
	}
	return r.peers.tellAt
}

func (r *Rendezvous) peersTold() bool {
	return len(r.want.Unranked) == 0 || r.peers.toldAt == r.changes && !r.peers.moved
}

// peersMissing reports whether members of the previous master may still register with this one: a list without them would tell
// those that run that they are gone.
func (r *Rendezvous) peersMissing() bool {
	if !r.now.Before(r.returning) {
		return false
	}
	for _, s := range r.slots {
		if !s.present && !s.ended && !s.Leave && s.report.State != job.MemberSucceeded {
			return true
		}
	}
	return false
}

// listPeers makes the list of the present members; a list that has not changed stays the same pointer.
func (r *Rendezvous) listPeers() {
	var present []*slot
	for _, s := range r.slots {
		if s.present {
			present = append(present, s)
		}
	}
	slices.SortFunc(present, bySlot)
	list := Peers{Generation: r.world.Generation, Total: len(present), Members: []Peer{}}
	for _, s := range present {
		if p := r.peer(s); len(present) <= maxPeers || p.Port != 0 {
			list.Members = append(list.Members, p)
		}
	}
	if len(list.Members) > maxPeers {
		slices.SortStableFunc(list.Members, func(a, b Peer) int { return cmp.Compare(b.Rank, a.Rank) }) // rank 0 first
		list.Members = list.Members[:maxPeers]
	}
	was := r.peers.list
	if was != nil && was.Generation == list.Generation && was.Total == list.Total && slices.Equal(was.Members, list.Members) {
		return
	}
	r.peers.list = &list
}

// peer is how others find a slot's member.
func (r *Rendezvous) peer(s *slot) Peer {
	p := Peer{Slot: s.Address.Short(), Incarnation: s.Incarnation, Host: s.host, Rank: -1}
	if s.member && r.trains() {
		p.Rank = s.rank
	}
	if s.place != nil && (s.outside() || p.Rank == 0) {
		p.Port = s.place.MasterPort
	}
	return p
}
