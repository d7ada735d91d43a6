package detect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// trace is a simulated world: what its processes do over time, of which agents tell a Detector as they do of real ones. Its label is
// what truly happened.
type trace struct {
	rng   *rand.Rand
	name  string
	slots int
	each  int // processes of a slot

	limits   Limits
	pace     time.Duration // usual time of a step
	jitter   float64       // its spread, as standard deviation of the logarithm
	shows    shows
	spins    bool // processes spin while they wait for others
	stacks   bool // agents can take stacks
	segments []segment

	fault   fault
	faultAt time.Duration
	culprit []int // RANKs
	length  time.Duration
}

// shows says which processes show steps.
type shows int

const (
	allShow shows = iota
	firstShows
	lastShows
	nobodyShows
)

// segment is something other than steps, that begins at a time.
type segment struct {
	at, lasts time.Duration
	kind      string // "evaluation" (of rank 0), "validation" (all), "checkpoint", "blind checkpoint" (nobody says that one is written), "data", "pause"
}

type fault string

const (
	healthy     fault = "healthy"
	stops       fault = "stopped"
	blocks      fault = "blocked"
	loops       fault = "spins"
	locks       fault = "deadlocked"      // waits for a lock, while its peers wait for it
	locksAll    fault = "all deadlocked"  // all wait for each other
	goesSilent  fault = "agent is silent" // its processes too
	fallsBehind fault = "behind"          // it has shown one step less
)

func (t *trace) ranks() int { return t.slots * t.each }

// running is the state of a simulation.
type running struct {
	*trace
	now        time.Duration
	step       int64
	stepAt     time.Duration
	nextStep   time.Duration
	segment    int
	agents     []simAgent
	detector   *Detector
	certain    *job.Suspicion // the first that is certain
	certainAt  time.Duration
	named      *job.Suspicion // the newest
	namedAt    time.Duration  // the first after the fault
	falseNames int            // suspicions that ended by themselves
}

// simAgent reports as agents do: each beat, at most each two seconds while steps are shown, and at once when a process begins to stand
// still or moves again, or when the kind of its state changes.
type simAgent struct {
	beatAt, progressAt time.Duration
	still              bool
	examined           bool
	kinds              []job.ThreadState
	works              []bool
	reported           time.Duration
}

const (
	simTick = 500 * time.Millisecond
	simBeat = 5 * time.Second
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// run runs the trace until a suspicion is certain, or to its end.
func (t *trace) run(detector *Detector) *running {
	r := &running{trace: t, detector: detector, agents: make([]simAgent, t.slots)}
	f := Formed{Generation: 1}
	for i := range t.slots {
		f.Slots = append(f.Slots, Slot{job.Address{Job: "a", Role: "worker", Index: i}, t.each})
		r.agents[i] = simAgent{beatAt: time.Duration(t.rng.Int64N(int64(simBeat))), kinds: make([]job.ThreadState, t.each), works: make([]bool, t.each)}
	}
	detector.Step(began, Limited{t.limits})
	detector.Step(began, f)
	r.nextStep = t.stepTime() * 3
	for r.now = 0; r.now < t.length && r.certain == nil; r.now += simTick {
		r.advance()
		for i := range r.agents {
			r.report(i)
		}
		for next := detector.Next(); !next.IsZero() && !next.After(began.Add(r.now)); next = detector.Next() {
			detector.Step(began.Add(r.now), Tick{})
		}
		r.note()
	}
	return r
}

func (r *running) note() {
	now := r.detector.Suspicions()
	if len(now) == 0 {
		if r.named != nil && r.namedAt == 0 {
			r.falseNames++
		}
		r.named = nil
		return
	}
	s := now[0]
	r.named = &s
	if r.namedAt == 0 && r.fault != healthy && r.now >= r.faultAt {
		r.namedAt = r.now
	}
	if s.Certain {
		r.certain, r.certainAt = &s, r.now
	}
}

func (t *trace) stepTime() time.Duration {
	return time.Duration(float64(t.pace) * math.Exp(t.rng.NormFloat64()*t.jitter))
}

// doing is the segment at this time; "" while it steps.
func (r *running) doing() string {
	for r.segment < len(r.segments) && r.now >= r.segments[r.segment].at+r.segments[r.segment].lasts {
		r.nextStep = r.now + r.stepTime()
		r.segment++
	}
	if r.segment < len(r.segments) && r.now >= r.segments[r.segment].at {
		return r.segments[r.segment].kind
	}
	return ""
}

func (r *running) broken() bool { return r.fault != healthy && r.now >= r.faultAt }

// advance shows the steps up to now.
func (r *running) advance() {
	if r.doing() != "" || r.broken() {
		return
	}
	if n := (r.now - r.nextStep) / r.pace; n > 2 { // their spread would not show
		r.step += int64(n)
		r.nextStep += n * r.pace
	}
	for r.nextStep <= r.now {
		r.step++
		r.stepAt = r.nextStep
		r.nextStep += r.stepTime()
	}
}

func (r *running) shown(rank int) bool {
	switch r.shows {
	case allShow:
		return true
	case firstShows:
		return rank == 0
	case lastShows:
		return rank == r.ranks()-1
	}
	return false
}

// look is what its agent sees of a process.
func (r *running) look(rank int) Rank {
	out := Rank{State: job.ThreadRuns}
	if r.shown(rank) && r.step > 0 {
		step, at := r.step, r.stepAt
		if r.broken() && r.fault == fallsBehind && slices.Contains(r.culprit, rank) {
			step--
		}
		out.Step, out.StepAge, out.Interval = &step, r.now-at, time.Duration(float64(r.pace)*math.Exp(1.28*r.jitter))
	}
	work := func(share float64) {
		out.Busy, out.State = &share, job.ThreadRuns
		out.Idle = new(time.Duration(0))
	}
	rest := func(channel string) {
		share := 0.001
		out.Busy, out.State, out.Channel = &share, job.ThreadSleeps, channel
		out.Idle = new(r.now - r.stepAt)
	}
	wait := func() {
		if r.spins {
			work(1)
		} else {
			rest("ep_poll")
		}
	}
	out.Evidence = r.stack("all_reduce")
	if r.broken() {
		mine := slices.Contains(r.culprit, rank)
		switch {
		case !mine:
			wait()
		case r.fault == stops:
			rest("do_signal_stop")
			out.State, out.StateAge = job.ThreadStopped, r.now-r.faultAt
		case r.fault == blocks:
			rest("rpc_wait_bit_killable")
			out.State, out.StateAge = job.ThreadBlocked, r.now-r.faultAt
		case r.fault == loops:
			work(1)
			out.Evidence = r.stack("tokenize")
		case r.fault == locks:
			out.Evidence = r.stack("acquire")
			rest("futex_wait_queue")
		case r.fault == locksAll:
			wait()
		case r.fault == fallsBehind:
			wait()
		}
		return out
	}
	switch r.doing() {
	case "":
		work(0.5 + r.rng.Float64()/2)
		if !r.spins && r.rng.IntN(4) == 0 { // for its peers, within a step
			rest("ep_poll")
			out.Idle = new(time.Duration(0))
		}
	case "evaluation":
		if rank == 0 {
			out.Evidence = r.stack("evaluate")
			work(0.9)
		} else {
			wait()
		}
	case "validation":
		work(0.9)
	case "checkpoint", "blind checkpoint":
		rest("folio_wait_bit_common")
		out.Idle = new(time.Duration(0))
	case "data":
		rest("pipe_read")
		out.Idle = new(time.Duration(0))
	case "pause":
		rest("ep_poll")
	}
	return out
}

func (r *running) stack(top string) *job.RankEvidence {
	if !r.stacks || !r.detector.Examine() {
		return nil
	}
	return &job.RankEvidence{Frames: []string{top + " (train.py:7)", "step (train.py:30)", "<module> (train.py:50)"}}
}

func (r *running) report(i int) {
	a := &r.agents[i]
	steps := r.segment == len(r.segments) || r.now < r.segments[r.segment].at
	if steps && !r.broken() && !a.still && r.now < a.beatAt && r.now-a.progressAt < 2*time.Second && r.now-r.stepAt < time.Second {
		return // nothing to tell
	}
	if r.broken() && r.fault == goesSilent && slices.Contains(r.culprit, i*r.each) {
		if r.now >= a.beatAt+2*time.Second {
			r.detector.Step(began.Add(r.now), Silent{job.Address{Job: "a", Role: "worker", Index: i}, true})
		}
		return
	}
	report := Reported{Slot: job.Address{Job: "a", Role: "worker", Index: i}, Saving: r.doing() == "checkpoint"}
	still, edge := false, false
	for local := range r.each {
		k := r.look(i*r.each + local)
		report.Ranks = append(report.Ranks, k)
		if k.Step != nil {
			still = still || k.StepAge >= job.StillAfter(k.Interval)
		}
		settled := k.State != job.ThreadBlocked || k.StateAge >= time.Second
		if settled && k.State.Held() != a.kinds[local].Held() {
			a.kinds[local], edge = k.State, true
		}
		if w := k.Busy != nil && *k.Busy >= job.Works; w != a.works[local] && r.now-a.reported >= time.Second {
			a.works[local], edge = w, edge || still
		}
	}
	progressed := !still && r.now-a.progressAt >= 2*time.Second && r.now-r.stepAt < 2*simTick
	if examined := r.detector.Examine(); examined != a.examined {
		a.examined, edge = examined, true
	}
	if still != a.still || edge || r.now >= a.beatAt || progressed {
		r.detector.Step(began.Add(r.now), report)
		a.still, a.reported, a.progressAt = still, r.now, r.now
		if r.now >= a.beatAt {
			a.beatAt = r.now + simBeat
		}
	}
}

func (t *trace) String() string {
	return fmt.Sprintf("%s: %d slots of %d, step %s +-%.2f, shows %d, spins %v, floor %s", t.name, t.slots, t.each, t.pace, t.jitter, t.shows, t.spins, t.limits.Floor)
}

// drawn is a trace with a fault, or without one for a day.
func drawn(seed uint64, f fault) *trace {
	rng := rand.New(rand.NewPCG(seed, 17))
	t := &trace{rng: rng, name: fmt.Sprintf("%d %s", seed, f), fault: f}
	between := func(least, most float64) time.Duration { // evenly by magnitude
		return time.Duration(math.Exp(math.Log(least)+rng.Float64()*(math.Log(most)-math.Log(least))) * float64(time.Second))
	}
	t.slots, t.each = 1+rng.IntN(8), []int{1, 1, 1, 2, 3}[rng.IntN(5)]
	if t.ranks() == 1 {
		t.slots = 2
	}
	t.limits = Limits{Floor: []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}[rng.IntN(3)], Ceiling: []time.Duration{10 * time.Minute, 30 * time.Minute}[rng.IntN(2)]}
	t.pace, t.jitter = between(0.02, 30), 0.02+0.2*rng.Float64()
	t.shows = []shows{allShow, allShow, firstShows, lastShows}[rng.IntN(4)]
	if f == fallsBehind {
		t.shows = allShow
	}
	t.spins, t.stacks = rng.IntN(3) == 0, rng.IntN(5) > 0
	t.length = 24 * time.Hour
	if f != healthy {
		t.faultAt = between(600, 5400)
		t.length = t.faultAt + 2*t.limits.Ceiling
		t.culprit = []int{rng.IntN(t.ranks())}
		switch f {
		case locksAll:
			t.culprit = nil
			for i := range t.ranks() {
				t.culprit = append(t.culprit, i)
			}
		case goesSilent:
			first := rng.IntN(t.slots) * t.each
			t.culprit = nil
			for i := range t.each {
				t.culprit = append(t.culprit, first+i)
			}
		}
	}
	// Each kind of pause has its period and its own spread.
	half := t.limits.Ceiling / 2
	for _, k := range []struct {
		kind   string
		every  [2]float64
		lasts  [2]float64
		spread float64
		share  float64
	}{
		{"evaluation", [2]float64{300, 3600}, [2]float64{5, 300}, 0.05, 0.6},
		{"validation", [2]float64{600, 7200}, [2]float64{5, 600}, 0.05, 0.4},
		{"checkpoint", [2]float64{300, 3600}, [2]float64{2, 200}, 0.3, 0.7},
		{"blind checkpoint", [2]float64{600, 3600}, [2]float64{2, 200}, 0.3, 0.3},
		{"data", [2]float64{300, 7200}, [2]float64{2, 60}, 0.7, 0.5},
		{"pause", [2]float64{1800, 14400}, [2]float64{30, 300}, 0.5, 0.3},
	} {
		if rng.Float64() >= k.share {
			continue
		}
		every, lasts := between(k.every[0], k.every[1]), between(k.lasts[0], k.lasts[1])
		for at := every; at < t.length; at += time.Duration((0.9 + 0.2*rng.Float64()) * float64(every)) {
			long := min(half, time.Duration(float64(lasts)*math.Exp(rng.NormFloat64()*k.spread)))
			t.segments = append(t.segments, segment{at, long, k.kind})
		}
	}
	slices.SortFunc(t.segments, func(a, b segment) int { return int(a.at - b.at) })
	apart := t.segments[:0] // a pause that begins in another is left out
	var until time.Duration
	for _, s := range t.segments {
		if s.at > until && (f == healthy || s.at+s.lasts < t.faultAt) {
			apart, until = append(apart, s), s.at+s.lasts+t.pace
		}
	}
	t.segments = apart
	return t
}
