// Package elastic is the elastic training service: it gathers members into worlds, ranks them, keeps their
// leases and tells each what to do.
//
// Rendezvous and Coordinator are plain values without goroutine, clock or socket: time is an argument, so a
// test or a simulation steps them by hand. Server is the HTTP face over a Coordinator. The package must not
// know plans, providers or stores; what it is to want comes from outside, what it sees is read by Observe.
package elastic

import "github.com/eltrain/eltrain/job"

// Desired is what the plan wants of one job's members, whole each time. Setting the same again changes nothing.
type Desired struct {
	UID   string
	Token string // bearer token of the job's members
	Want  job.Want
	Slots []DesiredSlot
	World job.World // the newest known formed world: where generations and ranks go on after a new start
}

// DesiredSlot is one slot that may have a member.
type DesiredSlot struct {
	Address     job.Address
	Incarnation int  // the newest; an older one is fenced
	InPlace     int  // restarts in place granted to it
	Rank        int  // its last rank, -1 if none
	Leave       bool // it is being stopped: its member is told to leave
	// Levels are its node's values of Want.RankBy, widest first.
	Levels []string
}

// Facts is what the service knows of one job.
type Facts struct {
	World   job.World
	Members []MemberFacts // by address
}

// MemberFacts is one registered incarnation.
type MemberFacts struct {
	Slot        job.Address
	Incarnation int
	Member      job.Member
}

// Ledger keeps what must outlive this process. Form is called before any member hears of the world, so a
// generation number is never used twice; an error keeps the world from forming, and it is tried again.
type Ledger interface {
	Form(jobName string, w job.World) error
}
