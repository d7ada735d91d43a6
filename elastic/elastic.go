// Package elastic is the elastic training service: it forms worlds of members, ranks them, tracks their leases and sends each
// member its order.
//
// Rendezvous and Coordinator are plain values without goroutine, clock or socket: time is an argument (and must not go back:
// the monotonic part of time.Now does not), so a test or a simulation can step them. What a step requires comes back as data.
// Server is the HTTP interface of a Coordinator, Client its counterpart. The package must not know plans, providers or stores:
// the desired state comes in through Set, and what the service knows is read through Observe.
//
// Files: rendezvous (one job's worlds), ranks, peers (who finds whom), coordinator (all jobs, leases), usage and watch (of training processes), server, certificate, metrics,
// client, api (the wire), check (validation of requests), errors.
package elastic

import (
	"time"

	"github.com/eltrain/eltrain/job"
)

// Desired is what the plan wants of one job's members, always complete. Setting the same again changes nothing.
type Desired struct {
	UID   string
	Token string // bearer token of the job's members
	Want  job.Want
	Slots []DesiredSlot
	World job.World // the newest recorded world: generations and ranks continue from it
	// Nodes are the labels of nodes, by name, for Want.RankBy. They are shared and immutable.
	Nodes map[string]map[string]string
	// News is how long running members may take to learn this service's address. Members of World are awaited for that long, or
	// for a lease if that is longer.
	News time.Duration
}

// DesiredSlot is one slot that may have a member.
type DesiredSlot struct {
	Address     job.Address
	Incarnation int    // the newest; an older one is fenced
	InPlace     int    // restarts in place granted to it
	Rank        int    // its last rank, -1 if none
	Leave       bool   // it is being stopped: its member is ordered to leave
	Force       bool   // with Leave: its processes are killed, without a signal that they could handle
	Return      bool   // with Leave: its next incarnation will follow, and worlds wait for it as for any desired slot
	Processes   int    // number of training processes, at least 1; for ROLE_RANK if the role is unranked
	Node        string // planned node; what its member reports takes precedence
}

// Facts is what the service knows about one job. World's members and the suspicions are shared and immutable.
type Facts struct {
	UID        string
	World      job.World
	Members    []MemberFacts // by address
	Suspicions []job.Suspicion
}

// MemberFacts is one registered incarnation. It is kept, with its last report, until its slot has another incarnation or is no
// longer wanted. A member of the recorded world that did not register with this master within its lease is also listed, as
// Expired.
type MemberFacts struct {
	Slot        job.Address
	Incarnation int
	Member      job.Member
	// Accelerators has the newest figures of the slot's accelerators, by device.
	Accelerators []job.AcceleratorFigures
}

// Ledger persists worlds. Form is called before any member learns of the world, so a generation number is never used twice. If
// it fails, the world does not form, and it is retried. The caller holds no lock, so Form may call the service; events
// meanwhile are applied after it.
type Ledger interface {
	Form(jobName, uid string, w job.World) error
}
