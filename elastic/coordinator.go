package elastic

import (
	"container/heap"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/detect"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

const (
	// defaultLease applies if Want has none; it equals the language's default.
	defaultLease = 15 * time.Second
	// pulse is the longest interval between Ticks. A much later Tick shows that this process was stopped, or its machine slept,
	// and could not receive heartbeats.
	pulse = time.Second
	// stall is how late a Tick may be before leases are extended by the delay. Shorter delays on a busy machine are covered by
	// the lease itself.
	stall = time.Second
)

// Coordinator holds the rendezvous of all jobs and the leases of all members. It never blocks: what to do after a call comes
// back from Ready. It is not safe for concurrent use; Server adds the lock.
//
// A beat costs at most O(log n), and changes nothing that Changes counts.
type Coordinator struct {
	jobs    map[string]*jobState
	leases  leases
	tickAt  time.Time // when the next Tick is expected; zero before the first
	ready   Work
	changes uint64
	history *history.History // nil if none is kept
	told    bool             // see NewTold
}

// jobState is one job's rendezvous, and what the rendezvous does not know: secrets and time.
type jobState struct {
	name    string
	uid     string
	token   [sha256.Size]byte
	lease   time.Duration
	rdzv    *Rendezvous
	members map[job.Address]*member
	sorted  []*member // by address; nil after a member was added or removed
	counts  Counts
	// detector watches the world of generation watched; 0 is none.
	detector *detect.Detector
	watched  int
	examines bool      // as the detector last said
	observed *Facts    // as Observe last returned them; nil if anything may have changed since
	saved    job.Saved // the newest checkpoint
	savedAt  time.Time // see Usage.Saved
}

// Counts are events of one job's members since this master started.
type Counts struct {
	Worlds  int // formed
	Broken  int // worlds that trained and ended
	Expired int // leases that expired
	Fenced  int // requests that were fenced
}

// member is one incarnation's lease.
type member struct {
	job          *jobState
	slot         job.Address
	incarnation  int
	registered   time.Time // zero while it is awaited from another master
	heard        time.Time
	seq          uint64 // of the newest request
	disconnected bool   // its connection broke, and no request has come since
	silent       bool
	expired      bool
	ended        bool
	due          time.Time // when to check the lease; never later than needed
	index        int       // in leases, -1 if not in it
}

// Told names a slot whose order changed.
type Told struct {
	Job  string
	Slot job.Address
}

// Forming is a world to write to the ledger; the outcome goes to Coordinator.Formed.
type Forming struct {
	Job   string
	UID   string
	World job.World
}

// Work is what to do after the calls since the last Ready.
type Work struct {
	Told []Told    // answer open requests of these with Order
	Form []Forming // write these, in order, before anyone is notified
	// Sooner is set when a Tick is due before the time that the last one returned.
	Sooner bool
}

// rememberedRanks is how many training processes have their full history: see history.New.
const rememberedRanks = 10000

// NewCoordinator returns a Coordinator without jobs.
func NewCoordinator() *Coordinator {
	return &Coordinator{jobs: map[string]*jobState{}, history: history.New(rememberedRanks)}
}

// NewTold returns a Coordinator that is told by Lost which members are lost: they have no leases, and what they do is neither watched nor remembered.
// A steady member costs nothing, which makes it the service of simulations, where nobody sends heartbeats.
func NewTold() *Coordinator {
	return &Coordinator{jobs: map[string]*jobState{}, told: true}
}

// Lost reports that a member's lease has expired, where that is told.
func (c *Coordinator) Lost(now time.Time, slot job.Address, incarnation int) {
	j := c.jobs[slot.Job]
	if j == nil {
		return
	}
	if m := j.members[slot]; m != nil && m.incarnation == incarnation && !m.ended && !m.expired {
		c.expire(now, m)
	}
}

// Ready returns the pending Work, once.
func (c *Coordinator) Ready() Work {
	w := c.ready
	c.ready = Work{}
	return w
}

// Changes counts changes of facts that a plan depends on, and broken connections: a caller may check at once whether a process
// has exited.
func (c *Coordinator) Changes() uint64 { return c.changes }

// step passes one event to a job's rendezvous and collects the resulting work.
func (c *Coordinator) step(now time.Time, j *jobState, e Event) error {
	j.observed = nil
	before, trained := j.rdzv.Changes(), j.rdzv.trains()
	err := j.rdzv.Step(now, e)
	c.changes += j.rdzv.Changes() - before
	if trained && !j.rdzv.trains() {
		j.counts.Broken++
	}
	ready := j.rdzv.Ready()
	for _, addr := range ready.Orders {
		c.ready.Told = append(c.ready.Told, Told{j.name, addr})
	}
	if ready.Form != nil {
		c.ready.Form = append(c.ready.Form, Forming{j.name, j.uid, *ready.Form})
	}
	c.tickBy(j.rdzv.Next())
	c.watchWorld(now, j)
	return err
}

func (c *Coordinator) tickBy(at time.Time) {
	c.ready.Sooner = c.ready.Sooner || !at.IsZero() && (at.Before(c.tickAt) || c.told && c.tickAt.IsZero())
}

// Set updates the desired state of a job. The first Set of a UID adds the job, and drops a job of the same name with another
// UID. The job continues from d.World: its members are awaited for a lease, or for d.News if that is longer.
func (c *Coordinator) Set(now time.Time, name string, d Desired) {
	j := c.jobs[name]
	if j != nil && j.uid != d.UID {
		c.Remove(name)
		j = nil
	}
	if j == nil {
		j = &jobState{name: name, uid: d.UID, rdzv: NewRendezvous(), members: map[job.Address]*member{}, detector: detect.New()}
		c.jobs[name] = j
	}
	j.token = sha256.Sum256([]byte(d.Token))
	lease := leaseOf(d.Want)
	moved := j.lease != lease
	j.lease = lease
	c.detect(now, j, detect.Limited{Limits: hangLimits(d.Want)})
	c.step(now, j, Wanted{d}) // never refused
	for addr, m := range j.members {
		if s := j.rdzv.slots[addr]; s == nil || s.Incarnation != m.incarnation {
			c.drop(m)
		} else if moved && !c.told {
			c.leases.update(m)
			c.tickBy(m.due)
		}
	}
	for addr, s := range j.rdzv.slots {
		if s.awaited && s.wanted && j.members[addr] == nil {
			c.add(&member{job: j, slot: addr, incarnation: s.Incarnation, heard: now.Add(max(d.News-lease, 0))})
		}
	}
}

// Remove drops a job. Open and later requests of its members get ErrUnauthorized: what still runs keeps training.
func (c *Coordinator) Remove(name string) {
	j := c.jobs[name]
	if j == nil {
		return
	}
	for addr, m := range j.members {
		c.ready.Told = append(c.ready.Told, Told{name, addr})
		c.drop(m)
	}
	delete(c.jobs, name)
	if c.history != nil {
		c.history.Forget(name)
	}
	c.changes++
}

// Gone reports that nothing of an incarnation is running. The caller must be certain.
func (c *Coordinator) Gone(now time.Time, slot job.Address, incarnation int, succeeded bool) {
	j := c.jobs[slot.Job]
	if j == nil {
		return
	}
	c.step(now, j, Gone{slot, incarnation, succeeded}) // never refused
	if m := j.members[slot]; m != nil && m.incarnation == incarnation && !m.ended {
		m.ended = true // its last report is kept
		c.leases.remove(m)
	}
}

// Disconnected reports that the connection of a member's open request broke. This is only a hint: the member may be
// reconnecting. The lease decides.
func (c *Coordinator) Disconnected(now time.Time, slot job.Address, incarnation int) {
	j := c.jobs[slot.Job]
	if j == nil {
		return
	}
	if m := j.members[slot]; m != nil && m.incarnation == incarnation && m.index >= 0 {
		m.disconnected = true
		c.changes++
		c.leases.update(m)
		c.tickBy(m.due)
	}
}

// Authorize checks a job's bearer token. Tokens are compared by their SHA-256, so that the time taken reveals nothing, not even
// a length. An unknown job is refused like a wrong token, so that names are not disclosed. An empty token is never valid.
func (c *Coordinator) Authorize(name, token string) error {
	var want [sha256.Size]byte
	j := c.jobs[name]
	if j != nil {
		want = j.token
	}
	given := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(want[:], given[:]) != 1 || j == nil || token == "" {
		return &Error{Unauthorized, "the bearer token is not the job's, or there is no such job"}
	}
	return nil
}

// Owner finds the job with this token. All jobs are compared, so that the time taken reveals nothing.
func (c *Coordinator) Owner(token string) (string, error) {
	owner, found := "", false
	given := sha256.Sum256([]byte(token))
	for name, j := range c.jobs {
		if subtle.ConstantTimeCompare(j.token[:], given[:]) == 1 {
			owner, found = name, true
		}
	}
	if !found || token == "" {
		return "", &Error{Unauthorized, "the bearer token does not belong to any job"}
	}
	return owner, nil
}

// Hold is how long a request of the job's members may be held open.
func (c *Coordinator) Hold(name string) time.Duration {
	j := c.jobs[name]
	if j == nil {
		return 0
	}
	return jitter(j.beat())
}

// jobFor finds a job by name and UID. A removed job is refused like an unknown one: it may have been forgotten, and its members
// keep training. Only if another job has its name do they exit.
func (c *Coordinator) jobFor(name, uid string) (*jobState, error) {
	j := c.jobs[name]
	switch {
	case j == nil:
		return nil, &Error{Unauthorized, fmt.Sprintf("there is no job %q", name)}
	case j.uid != uid:
		return nil, &Error{NoSuchJob, fmt.Sprintf("there is no job %q with UID %q", name, uid)}
	}
	return j, nil
}

// Register registers a member and starts its lease.
func (c *Coordinator) Register(now time.Time, name string, req RegisterRequest) (RegisterReply, error) {
	j, err := c.jobFor(name, req.UID)
	if err != nil {
		return RegisterReply{}, err
	}
	slot, err := job.ParseShort(name, req.Slot)
	if err != nil {
		return RegisterReply{}, &Error{Malformed, err.Error()}
	}
	reply := RegisterReply{BeatSeconds: j.beat().Seconds(), LeaseSeconds: j.lease.Seconds()}
	if c.overtaken(name, slot, req.Incarnation, req.Seq) {
		return reply, nil
	}
	if err := c.step(now, j, Registered{slot, req.Incarnation, req.Host, req.Node, req.Can, req.Report}); err != nil {
		j.refused(err)
		return RegisterReply{}, err
	}
	m := j.members[slot]
	if m == nil || m.registered.IsZero() || m.expired {
		if m != nil {
			c.drop(m)
		}
		m = &member{job: j, slot: slot, incarnation: req.Incarnation, registered: now, heard: now}
		c.add(m)
		c.changes++
	}
	m.seq = req.Seq
	c.recordBeat(now, m)
	c.restore(now, m, req.Recent)
	c.remember(now, m, &req.Report)
	c.watchReport(now, j, slot, &req.Report)
	return reply, nil
}

// Sync records a member's report and returns the current order. A report overtaken by a newer one is ignored.
func (c *Coordinator) Sync(now time.Time, name string, req SyncRequest) (SyncReply, error) {
	j, err := c.jobFor(name, req.UID)
	if err != nil {
		return SyncReply{}, err
	}
	slot, err := job.ParseShort(name, req.Slot)
	if err != nil {
		return SyncReply{}, &Error{Malformed, err.Error()}
	}
	if c.overtaken(name, slot, req.Incarnation, req.Seq) {
		return c.Order(name, req.UID, slot, req.Incarnation)
	}
	if err := c.step(now, j, Reported{slot, req.Incarnation, req.Report}); err != nil {
		j.refused(err)
		return SyncReply{}, err
	}
	m := j.members[slot]
	m.seq = max(m.seq, req.Seq)
	c.recordBeat(now, m)
	c.remember(now, m, &req.Report)
	c.watchReport(now, j, slot, &req.Report)
	return j.reply(slot).since(req.Seen), nil
}

// overtaken reports whether a newer request of the same member was already handled.
func (c *Coordinator) overtaken(name string, slot job.Address, incarnation int, seq uint64) bool {
	j := c.jobs[name]
	if j == nil || seq == 0 {
		return false
	}
	m := j.members[slot]
	return m != nil && m.incarnation == incarnation && seq <= m.seq
}

// Order returns the current order for a member whose request was held open.
func (c *Coordinator) Order(name, uid string, slot job.Address, incarnation int) (SyncReply, error) {
	j, err := c.jobFor(name, uid)
	if err != nil {
		return SyncReply{}, err
	}
	s, err := j.rdzv.admit(slot, incarnation)
	if err == nil && !s.present {
		err = &Error{RegisterFirst, fmt.Sprintf("the lease of %s expired", slot)}
	}
	if err != nil {
		j.refused(err)
		return SyncReply{}, err
	}
	return j.reply(slot), nil
}

func (j *jobState) reply(slot job.Address) SyncReply {
	order, version := j.rdzv.Order(slot)
	return SyncReply{Version: version, Order: order, Members: j.rdzv.Peers(slot)}
}

// since leaves out what a member that has seen a version knows.
func (r SyncReply) since(seen uint64) SyncReply {
	if r.Version == seen {
		r.Members, r.Order.Progress = nil, nil
	}
	return r
}

func (j *jobState) refused(err error) {
	if errors.Is(err, ErrFenced) {
		j.counts.Fenced++
	}
}

// Formed handles the ledger's result of a Forming.
func (c *Coordinator) Formed(now time.Time, f Forming, err error) {
	j := c.jobs[f.Job]
	if j == nil || j.uid != f.UID {
		return
	}
	c.step(now, j, Formed{f.World.Generation, err}) // never refused
	if j.rdzv.trains() && j.rdzv.World().Generation == f.World.Generation {
		j.counts.Worlds++
	}
}

// Tick checks leases and timers, and returns when to call it again: at most pulse from now. If it is called much later, no
// heartbeats could be received meanwhile, and all leases are extended. Without leases it may return zero: nothing is due.
func (c *Coordinator) Tick(now time.Time) time.Time {
	if gap := now.Sub(c.tickAt); !c.told && !c.tickAt.IsZero() && gap > stall {
		c.extend(now, gap)
	}
	for len(c.leases) > 0 && !c.leases[0].due.After(now) {
		c.check(now, c.leases[0])
	}
	var next time.Time
	if !c.told {
		next = now.Add(pulse)
	}
	for _, j := range c.jobs {
		if at := j.rdzv.Next(); !at.IsZero() && !at.After(now) {
			c.step(now, j, Tick{}) // never refused
		}
		if at := j.detector.Next(); !at.IsZero() && !at.After(now) {
			c.detect(now, j, detect.Tick{})
		}
		next = earlier(earlier(next, j.rdzv.Next()), j.detector.Next())
	}
	if len(c.leases) > 0 {
		next = earlier(next, c.leases[0].due)
	}
	c.tickAt, c.ready.Sooner = next, false
	return next
}

// extend extends all leases by the time in which this process did not run.
func (c *Coordinator) extend(now time.Time, gap time.Duration) {
	for _, m := range c.leases {
		m.heard = m.heard.Add(gap)
		if m.heard.After(now) {
			m.heard = now
		}
		m.due = m.nextDue()
	}
	heap.Init(&c.leases)
	for _, j := range c.jobs {
		c.step(now, j, Stalled{gap}) // never refused
	}
}

// check checks a lease that may be due. Beats do not update due, so it usually only moves due.
func (c *Coordinator) check(now time.Time, m *member) {
	switch {
	case !now.Before(m.heard.Add(m.job.lease)):
		c.expire(now, m)
		return
	case !m.silent && !now.Before(m.silentAt()):
		m.silent, m.job.observed = true, nil
		c.changes++
		c.detect(now, m.job, detect.Silent{Slot: m.slot, Silent: true})
	}
	c.leases.update(m)
}

// expire ends a member's lease.
func (c *Coordinator) expire(now time.Time, m *member) {
	m.silent, m.expired, m.job.observed = true, true, nil
	m.job.counts.Expired++
	c.changes++
	c.leases.remove(m)
	c.step(now, m.job, Expired{m.slot, m.incarnation}) // never refused
}

// recordBeat records a beat of a member.
func (c *Coordinator) recordBeat(now time.Time, m *member) {
	m.heard, m.disconnected, m.job.observed = now, false, nil
	if m.silent {
		m.silent = false
		c.changes++
		c.leases.update(m)
		c.detect(now, m.job, detect.Silent{Slot: m.slot})
	}
}

func (c *Coordinator) add(m *member) {
	m.job.members[m.slot], m.job.sorted, m.job.observed = m, nil, nil
	if m.index = -1; c.told {
		return
	}
	m.due = m.nextDue()
	heap.Push(&c.leases, m)
	c.tickBy(m.due)
}

func (c *Coordinator) drop(m *member) {
	delete(m.job.members, m.slot)
	m.job.sorted, m.job.observed = nil, nil
	c.leases.remove(m)
}

// Observe returns the facts about all jobs. A member stays included until its slot gets another incarnation or is no longer
// wanted, so that its last report is not lost. Facts are not modified: those of a job of which nothing was heard since are the same.
func (c *Coordinator) Observe() map[string]Facts {
	out := make(map[string]Facts, len(c.jobs))
	for name, j := range c.jobs {
		if j.observed != nil {
			out[name] = *j.observed
			continue
		}
		f := Facts{UID: j.uid, World: j.rdzv.World(), Suspicions: j.detector.Suspicions()}
		f.Members = make([]MemberFacts, 0, len(j.members))
		for _, m := range j.byAddress() {
			if m.registered.IsZero() && !m.expired {
				continue // awaited: nothing is known about it yet
			}
			shown := MemberFacts{Slot: m.slot, Incarnation: m.incarnation, Member: j.facts(m)}
			if figures := j.rdzv.slots[m.slot].report.Figures; figures != nil {
				shown.Accelerators = figures.Accelerators
			}
			f.Members = append(f.Members, shown)
		}
		j.observed = &f
		out[name] = f
	}
	return out
}

func (j *jobState) facts(m *member) job.Member {
	s := j.rdzv.slots[m.slot]
	r := s.report
	if m.registered.IsZero() {
		// It ran in the recorded world and did not return.
		r.State, r.Generation = job.MemberRunning, j.rdzv.World().Generation
	}
	return job.Member{
		State: r.State, Host: s.host, Generation: r.Generation, InPlace: r.InPlace, PIDs: r.PIDs, Exit: r.Exit,
		Step: r.Step, FirstStep: r.FirstStep, Loss: r.Loss, StepRate: r.StepRate, Saved: r.Saved, Checkpoint: r.Checkpoint, CPU: r.CPU, Memory: r.Memory,
		Acts: r.Acts, Ranks: rankStatuses(r.Ranks), Can: s.can, Registered: m.registered, Left: s.left, Silent: m.silent, Expired: m.expired,
		Check: j.rdzv.outcomeOf(s),
	}
}

func (j *jobState) byAddress() []*member {
	if j.sorted == nil {
		j.sorted = make([]*member, 0, len(j.members))
		for _, m := range j.members {
			j.sorted = append(j.sorted, m)
		}
		slices.SortFunc(j.sorted, func(a, b *member) int { return a.slot.Compare(b.slot) })
	}
	return j.sorted
}

// Membership lists the job's present members by address.
func (c *Coordinator) Membership(name string) (Membership, error) {
	j := c.jobs[name]
	if j == nil {
		return Membership{}, &Error{NoSuchJob, fmt.Sprintf("there is no job %q", name)}
	}
	out := Membership{Generation: j.rdzv.World().Generation, Members: []MembershipItem{}}
	for _, m := range j.byAddress() {
		s := j.rdzv.slots[m.slot]
		if !s.present {
			continue
		}
		out.Members = append(out.Members, MembershipItem{j.rdzv.peer(s), s.report.State})
	}
	return out, nil
}

// beat is the heartbeat interval: a lease survives two lost beats.
func (j *jobState) beat() time.Duration { return j.lease / 3 }

func leaseOf(w job.Want) time.Duration {
	if w.Lease <= 0 {
		return defaultLease
	}
	return w.Lease.Std()
}

// silentAt is when a member counts as silent: half a beat after a missed beat, or at the missed beat if its connection broke.
func (m *member) silentAt() time.Time {
	beat := m.job.beat()
	if m.disconnected {
		return m.heard.Add(beat)
	}
	return m.heard.Add(beat + beat/2)
}

func (m *member) nextDue() time.Time {
	if m.silent {
		return m.heard.Add(m.job.lease)
	}
	return m.silentAt()
}

// leases is a heap of members by due. A beat only records the time; due is updated when it is reached, so a steady member costs
// one heap operation per beat and a half.
type leases []*member

func (l leases) Len() int           { return len(l) }
func (l leases) Less(i, j int) bool { return l[i].due.Before(l[j].due) }
func (l leases) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].index, l[j].index = i, j
}
func (l *leases) Push(x any) {
	m := x.(*member)
	m.index = len(*l)
	*l = append(*l, m)
}
func (l *leases) Pop() any {
	last := len(*l) - 1
	m := (*l)[last]
	(*l)[last], *l = nil, (*l)[:last]
	m.index = -1
	return m
}

func (l *leases) update(m *member) {
	if m.index >= 0 {
		m.due = m.nextDue()
		heap.Fix(l, m.index)
	}
}

func (l *leases) remove(m *member) {
	if m.index >= 0 {
		heap.Remove(l, m.index)
	}
}
