// Package elastic is the elastic training service: it gathers members into worlds, ranks them, keeps their
// leases and tells each what to do.
//
// Rendezvous and Coordinator are plain values without goroutine, clock or socket: time is an argument (and must
// not go back: the monotonic part of time.Now does not), so a test or a simulation steps them by hand. What is to
// be done about a step comes back as data. Server is the HTTP face over a Coordinator, Client the other end of
// the wire. The package must not know plans, providers or stores; what it is to want comes from outside, what it
// sees is read by Observe.
//
// Files: rendezvous (one job's worlds), ranks, coordinator (all jobs, leases), server, certificate, metrics, client, api (the
// wire), check (what may come over it), errors.
package elastic

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// Desired is what the plan wants of one job's members, whole each time. Setting the same again changes nothing.
type Desired struct {
	UID   string
	Token string // bearer token of the job's members
	Want  job.Want
	Slots []DesiredSlot
	World job.World // the newest known formed world: where generations and ranks continue after a new start
	// Nodes are the labels of nodes, by name, for Want.RankBy. They are shared and not changed anymore.
	Nodes map[string]map[string]string
	// News is how long members that run may take to learn where this service is. Those of World are awaited so
	// long, or for a lease if that is longer.
	News time.Duration
}

// DesiredSlot is one slot that may have a member.
type DesiredSlot struct {
	Address     job.Address
	Incarnation int    // the newest; an older one is fenced
	InPlace     int    // restarts in place granted to it
	Rank        int    // its last rank, -1 if none
	Leave       bool   // it is being stopped: its member is told to leave
	Return      bool   // with Leave: its next incarnation is on its way, and a world waits for it as for any desired slot
	Processes   int    // training processes in it, at least 1; of an unranked role, for ROLE_RANK
	Node        string // that it is to be on as far as the plan knows; its member knows better
}

// Facts is what the service knows of one job. World's members are shared and not changed anymore.
type Facts struct {
	UID     string
	World   job.World
	Members []MemberFacts // by address
}

// MemberFacts is one registered incarnation; it stays, with its last word, until its slot has another one or is
// no longer wanted. A member of the recorded world that did not register with this master within its lease is
// listed too, as Expired.
type MemberFacts struct {
	Slot        job.Address
	Incarnation int
	Member      job.Member
}

// Ledger keeps what must outlive this process. Form is called before any member hears of the world, so a
// generation number is never used twice; an error keeps the world from forming, and it is retried. The
// caller holds no lock, so Form may call the service; what comes meanwhile is taken into account after it.
type Ledger interface {
	Form(jobName, uid string, w job.World) error
}
