// Package detect finds training processes that hang, in what agents report of them. A Detector is a plain value of one job: it has no
// clock and acts on nothing. Its suspicions are facts for the planner.
//
// A world stands still if none of its processes that show steps has shown one for longer than usual; where no process shows steps,
// if all are idle, or if the same ones differ from all others. Some evidence is certain: a process that is stopped, that is blocked
// while its peers are not, or whose agent is silent. The rest looks the same as an evaluation on rank 0, a slow checkpoint, or data
// that is late: those processes are named, and certain only after the job's longest pause of that kind, times a factor.
package detect

import (
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// extraSteps is how many usual steps a world may take longer than the floor before it is suspected.
	extraSteps = 3
	// warmUp is how many steps of a world are not like those after them: compilation, allocation, empty caches.
	warmUp = 5
	// lookEvery is how often a world that stands still is looked at, and lookAgain how often after it is suspected, if no report comes;
	// leastLook is the least time between looks, of which each costs as much as the world has processes.
	lookEvery = time.Second
	lookAgain = 10 * time.Second
	leastLook = 100 * time.Millisecond
	// mostSlots is how many slots a suspicion names at most.
	mostSlots = 64
	// alikeLooks is how often the processes of a world that shows no steps must have done the same before those that differ are suspected.
	alikeLooks = 10
)

// Limits are a job's.
type Limits struct {
	Floor   time.Duration // no world is suspected earlier
	Ceiling time.Duration // a suspicion that lasts so long is certain; 0 is never
}

// Slot is a slot of a world.
type Slot struct {
	Address   job.Address
	Processes int
}

// Rank is what is known of one training process, as of its report. The zero value is nothing.
type Rank struct {
	Step     *int64        // the newest that it showed in this world; nil if none
	StepAge  time.Duration // since then
	Interval time.Duration // usual time between steps that it shows; 0 if unknown
	Age      time.Duration // for how long it has run; 0 if unknown
	State    job.ThreadState
	StateAge time.Duration     // for how long
	Channel  string            // in which kernel function it waits; "" if unknown
	Busy     *float64          // recent use of a processor, as share of a core
	Idle     *time.Duration    // since it last used a processor, read, wrote or printed
	Evidence *job.RankEvidence // nil if it was not taken
	Mark     *job.Mark         // nil if it says nothing to compare
	Looks    job.Looks
}

// Event is one of the types below.
type Event interface{ event() }

// Limited has the job's limits.
type Limited struct{ Limits }

// Formed reports that a world trains.
type Formed struct {
	Generation int
	Slots      []Slot // by rank
	Layout     job.Layout
}

// Ended reports that no world trains.
type Ended struct{}

// Reported is a slot's report. Saving: a checkpoint is being written.
type Reported struct {
	Slot   job.Address
	Ranks  []Rank // by local rank
	Saving bool
}

// Silent reports that a slot's agent missed a beat, or that it is heard again.
type Silent struct {
	Slot   job.Address
	Silent bool
}

// Tick advances the time.
type Tick struct{}

func (Limited) event()  {}
func (Formed) event()   {}
func (Ended) event()    {}
func (Reported) event() {}
func (Silent) event()   {}
func (Tick) event()     {}

// Detector watches the newest world of one job, and remembers the pauses of all.
type Detector struct {
	now    time.Time
	limits Limits

	generation int // of the world that trains; 0 if none does
	formed     time.Time
	trained    time.Duration // by earlier worlds
	slots      map[job.Address]*slot
	layout     job.Layout
	ranks      []*rank   // by RANK
	alikes     [][]*rank // the ranks that do the same at the same time, so that one that does not is odd
	moving     int       // ranks that show steps, and have done so lately
	shown      int       // ranks that have shown a step
	steps      int       // shown by the world, as far as they were reported; counts up to warmUp

	paced  bool // a world of this job has shown steps, and the newest still does if it did
	pauses map[Phase]*pauses
	pause  *pause // nil while the world moves
	work   work

	diverged []job.Suspicion

	alike      int       // looks at which all processes did the same; counts up to alikeLooks
	looked     time.Time // the last look
	examine    bool
	suspicions []job.Suspicion
	changes    uint64
	next       time.Time
}

// slot is a slot of the world.
type slot struct {
	address job.Address
	ranks   []*rank
	saving  bool
	silent  time.Time // since when its agent is silent; zero if it is heard
}

// rank is one training process of the world, by its newest report.
type rank struct {
	Rank
	slot   *slot
	number int // RANK
	peers  *peers
	start  time.Time // zero if unknown
	stepAt time.Time // when it showed Step
	held   time.Time // since when it has been in a state of the same kind
	active time.Time // when it last did anything; zero if unknown
	moving bool
	stack  string          // the top of its stack, so that equal ones are alike; "" if unknown
	usual  map[string]bool // the channels in which it has waited before a next step
}

// maxUsual bounds the channels that are remembered of a rank.
const maxUsual = 8

// New returns a Detector of a job without a world.
func New() *Detector { return &Detector{pauses: map[Phase]*pauses{}} }

// Step applies an event.
func (d *Detector) Step(now time.Time, e Event) {
	d.now = now
	switch e := e.(type) {
	case Limited:
		d.limits = e.Limits
	case Formed:
		d.form(e)
	case Ended:
		d.end()
	case Reported:
		d.report(e)
	case Silent:
		d.hear(e)
	}
	if d.generation == 0 {
		return
	}
	if _, is := e.(Tick); is && !d.next.IsZero() && !now.Before(d.next) {
		d.look()
	}
}

// Suspicions are those of the world that trains. They are immutable.
func (d *Detector) Suspicions() []job.Suspicion { return d.suspicions }

// Examine reports whether evidence is wanted of the world's processes: it has stood still for half of what makes it suspected.
func (d *Detector) Examine() bool { return d.examine }

// Changes counts changes of Suspicions.
func (d *Detector) Changes() uint64 { return d.changes }

// Next is when a Tick is due; zero for never.
func (d *Detector) Next() time.Time { return d.next }

func (d *Detector) form(e Formed) {
	d.end()
	d.generation, d.formed = e.Generation, d.now
	d.slots, d.ranks = make(map[job.Address]*slot, len(e.Slots)), nil
	for _, s := range e.Slots {
		sl := &slot{address: s.Address}
		for range max(1, s.Processes) {
			r := &rank{slot: sl, number: len(d.ranks), usual: map[string]bool{}}
			sl.ranks, d.ranks = append(sl.ranks, r), append(d.ranks, r)
		}
		d.slots[s.Address] = sl
	}
	d.layout = e.Layout
	d.setPeers()
	d.lookBy(d.now.Add(lookEvery))
}

// setPeers divides the world by its layout. Where a place in it has too few ranks for one to be odd, all are compared.
func (d *Detector) setPeers() {
	d.alikes = nil
	places := map[int]*peers{}
	for n, place := range d.layout.Peers(len(d.ranks)) {
		p := places[place]
		if p == nil {
			p = &peers{}
			places[place] = p
		}
		p.ranks = append(p.ranks, d.ranks[n])
		d.ranks[n].peers = p
	}
	for _, r := range d.ranks {
		if all := r.peers.ranks; all[0] == r && len(all) >= leastPeers {
			d.alikes = append(d.alikes, all)
		}
	}
	if d.alikes == nil {
		d.alikes = [][]*rank{d.ranks}
	}
}

func (d *Detector) end() {
	if d.generation > 0 {
		d.trained += d.now.Sub(d.formed)
	}
	d.generation, d.slots, d.ranks, d.alikes, d.moving, d.shown, d.steps = 0, nil, nil, nil, 0, 0, 0
	d.examine = false
	d.pause, d.work, d.diverged, d.alike, d.looked, d.next = nil, work{}, nil, 0, time.Time{}, time.Time{}
	d.tell(nil)
}

func (d *Detector) lookBy(at time.Time) {
	if least := d.looked.Add(leastLook); at.Before(least) {
		at = least
	}
	if d.next.IsZero() || at.Before(d.next) {
		d.next = at
	}
}

// report costs no more than the report is long while the world moves.
func (d *Detector) report(e Reported) {
	s := d.slots[e.Slot]
	if s == nil {
		return
	}
	s.saving = e.Saving
	for i, r := range s.ranks {
		var now Rank
		if i < len(e.Ranks) {
			now = e.Ranks[i]
		}
		d.reportRank(r, now)
	}
	if d.moving == 0 || d.pause != nil {
		d.lookBy(d.now)
	}
}

func (d *Detector) reportRank(r *rank, now Rank) {
	before := r.Rank
	r.Rank = now
	r.stack = stackOf(now.Evidence)
	if now.Mark != nil && (before.Mark == nil || now.Mark.Step > before.Mark.Step) {
		d.compareMark(r)
	}
	if now.State.Held() != before.State.Held() || r.held.IsZero() {
		r.held = d.now.Add(-now.StateAge)
	}
	if now.Age > 0 {
		r.start = d.now.Add(-now.Age)
	}
	if now.Idle != nil {
		r.active = d.now.Add(-*now.Idle)
	}
	if now.Step != nil && (before.Step == nil || *now.Step != *before.Step) {
		if before.Step == nil {
			d.shown++
		}
		d.steps = min(d.steps+1, warmUp)
		if before.Channel != "" && len(r.usual) < maxUsual {
			r.usual[before.Channel] = true
		}
		if r.stepAt = d.now.Add(-now.StepAge); r.stepAt.Before(d.formed) {
			r.stepAt = d.formed
		}
		d.paced = true
	}
	if now.Step == nil && before.Step != nil {
		d.loseStep()
	}
	d.setMoving(r, r.slot.silent.IsZero() && now.State != job.ThreadStopped && now.Step != nil && d.now.Sub(r.stepAt) < job.StillAfter(now.Interval))
}

// loseStep notes that a rank shows no steps any more: they are read in another way. If none does, activity says whether the world
// stands still, until steps are shown again.
func (d *Detector) loseStep() {
	if d.shown--; d.shown == 0 {
		d.paced, d.pause = false, nil
	}
}

func (d *Detector) setMoving(r *rank, moving bool) {
	switch {
	case moving && !r.moving:
		d.moving++
	case !moving && r.moving:
		d.moving--
	}
	r.moving = moving
}

// hear counts no process of a silent agent as moving: nothing is known of it.
func (d *Detector) hear(e Silent) {
	s := d.slots[e.Slot]
	switch {
	case s == nil:
		return
	case !e.Silent:
		s.silent = time.Time{}
	case s.silent.IsZero():
		s.silent = d.now
		for _, r := range s.ranks {
			d.setMoving(r, false)
		}
	}
	d.lookBy(d.now)
}

// look decides whether the world stands still, and who is suspected.
func (d *Detector) look() {
	d.looked, d.next = d.now, d.now.Add(lookEvery)
	d.compare()
	since, still := d.standsStill()
	if !still {
		d.examine = false
		d.resume()
		d.tell(d.others())
		if d.shown > 0 {
			d.next = d.work.at // until reports say otherwise
		}
		return
	}
	if d.pause == nil || d.pause.since.Before(since) { // it moved in between
		d.resume()
		d.pause = &pause{since: since, quiet: since}
	}
	d.pause.see(d.phase())
	if d.saving() {
		d.pause.quiet = d.now
		d.tell(d.diverged)
		return
	}
	if half := d.pause.quiet.Add(d.patience() / 2); d.now.Before(half) {
		d.lookBy(half)
	} else {
		d.examine = true
	}
	d.tell(append(d.suspect(), d.diverged...))
}

// others are the suspicions of a world that moves.
func (d *Detector) others() (all []job.Suspicion) {
	if d.work.found != nil {
		all = append(all, d.work.found.suspicion)
	}
	return append(all, d.diverged...)
}

// resume ends the pause, and learns from it how long one may be.
func (d *Detector) resume() {
	p := d.pause
	if p == nil {
		return
	}
	d.pause = nil
	if lasted := d.now.Sub(p.since); lasted >= d.patience() {
		d.learn(p.phase(), lasted)
	}
}

// patience is how long the world may stand still before it is suspected.
func (d *Detector) patience() time.Duration {
	var interval time.Duration
	for _, r := range d.ranks {
		if r.Step != nil {
			interval = max(interval, r.Interval)
		}
	}
	return d.limits.Floor + extraSteps*interval
}

func (d *Detector) saving() bool {
	for _, s := range d.slots {
		if s.saving {
			return true
		}
	}
	return false
}

// standsStill reports whether the world makes no progress, and since when.
func (d *Detector) standsStill() (since time.Time, still bool) {
	switch {
	case d.moving > 0:
		return since, false
	case d.shown > 0:
		for _, r := range d.ranks {
			if r.Step != nil && r.stepAt.After(since) {
				since = r.stepAt
			}
		}
		return since, true
	case d.paced:
		return d.formed, true // its first step is awaited
	}
	return d.inactive()
}

// inactive is standsStill where nothing is known of steps: all processes are idle, or the same ones differ from all others.
func (d *Detector) inactive() (since time.Time, still bool) {
	var odd []int
	for _, alike := range d.alikes {
		some := d.oddByActivity(alike)
		if len(some) == len(alike) { // there is no majority
			return since, false
		}
		for _, r := range some {
			odd = append(odd, r.number)
		}
	}
	switch {
	case len(odd) > 0 && d.alike < alikeLooks: // they always differ
		return since, false
	case len(odd) > 0:
		if d.pause != nil && slices.Equal(d.pause.odd, odd) {
			return d.pause.since, true
		}
		d.resume()
		d.pause = &pause{since: d.now, quiet: d.now, odd: odd}
		return d.now, true
	}
	d.alike = min(d.alike+1, alikeLooks)
	for _, r := range d.ranks {
		if r.active.IsZero() || d.now.Sub(r.active) < job.StillAfter(0) {
			return since, false
		}
		if r.active.After(since) {
			since = r.active
		}
	}
	if d.pause != nil && d.pause.odd == nil && since.Sub(d.pause.since).Abs() < job.StillAfter(0) {
		since = d.pause.since // each report dates it a little differently
	}
	return since, len(d.ranks) > 0
}

// tell replaces the suspicions.
func (d *Detector) tell(now []job.Suspicion) {
	if slices.EqualFunc(d.suspicions, now, equal) {
		return
	}
	d.suspicions = now
	d.changes++
}

func equal(a, b job.Suspicion) bool {
	return a.Cause == b.Cause && a.Generation == b.Generation && a.Since.Equal(b.Since) && a.Certain == b.Certain && a.Due.Equal(b.Due) &&
		slices.Equal(a.Slots, b.Slots) && slices.Equal(a.Ranks, b.Ranks) && slices.EqualFunc(a.Evidence, b.Evidence, job.Reason.Equal)
}

// suspect returns the suspicions about a world that stands still; nil before it has done so for long enough.
func (d *Detector) suspect() []job.Suspicion {
	p := d.pause
	if found := d.certain(); len(found.ranks) > 0 {
		return []job.Suspicion{d.suspicion(found, p.since, time.Time{})}
	}
	named := p.quiet.Add(d.patience())
	if d.now.Before(named) {
		d.lookBy(named)
		return nil
	}
	d.next = d.now.Add(lookAgain)
	due := time.Time{}
	if limit := d.limit(p.phase()); limit > 0 {
		due = p.quiet.Add(limit)
		if d.now.Before(due) {
			d.lookBy(due)
		}
	}
	return []job.Suspicion{d.suspicion(d.likely(), p.since, due)}
}

// suspicion is that of a hang. A zero due means that the evidence needs no more time.
func (d *Detector) suspicion(f finding, since, due time.Time) job.Suspicion {
	s := job.Suspicion{
		Cause: job.Hang, Generation: d.generation, Since: since, Due: due, Evidence: f.evidence,
		Certain: f.certain || !due.IsZero() && !d.now.Before(due),
	}
	if len(f.ranks) < len(d.ranks) {
		for _, r := range f.ranks {
			s.Ranks = append(s.Ranks, r.number)
		}
		if g, some := d.layout.Common(s.Ranks, len(d.ranks)); some {
			s.Evidence = append(s.Evidence, d.because(RankGroup, f.ranks, "group", g.Name(), "index", strconv.Itoa(g.Index), "members", folded(g.Ranks)))
		}
	}
	for _, r := range f.ranks { // by RANK, so that those of a slot follow each other
		if n := len(s.Slots); n < mostSlots && (n == 0 || s.Slots[n-1] != r.slot.address) {
			s.Slots = append(s.Slots, r.slot.address)
		}
	}
	slices.SortFunc(s.Slots, job.Address.Compare)
	for _, r := range f.ranks[:min(len(f.ranks), mostQuoted)] {
		s.Evidence = append(s.Evidence, d.quote(r)...)
	}
	return s
}
