package heal

import (
	"maps"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
)

// Fault is something that happens to slots of a job with four.
type Fault struct {
	Name                   string
	Gate, Soak             Places // where it is injected while a master runs: in `make test`, in `make soak`
	MasterDies, MasterDown Places // where it is injected just before the master dies, and while none runs: in `make soak`
	Delayed                Places // where it is injected with the place's own reports delayed: in `make soak`

	Victims  []int // the ranks that it hits
	Replaced []int // those of them that are replaced; the processes of the others are restarted in place
	// Inject injects it, and returns the processes that end because of it.
	Inject func(s *site.Site, victims []site.Slot) (ends []int)

	Cause    string   // of the incident, whose culprits are the victims; "" if there may be several incidents
	Proof    string   // a code that its evidence must have; "" for any
	Evidence []string // parts that the evidence's text must have

	Silent      bool   // found only by the lease
	OthersTrain bool   // the others train on without the victims meanwhile
	Spare       bool   // there is a fifth node
	Ends        Places // where the training is checked to its end

	Prepare func(s *site.Site)                // called before the master starts, unless nil
	After   func(s *site.Site, healed Healed) // further checks after healing, unless nil
}

// Healed is a job before a fault and after it.
type Healed struct {
	Before, After site.Job
	Victims       []site.Slot
	Ends          []int
}

const (
	// long is the steps of a training that does not end during the test.
	long = 6 * site.Steps
	// brief is a lease that expires soon, but that healthy slots keep even on a busy machine.
	brief = 8 * time.Second
)

func (f Fault) nodes() int {
	if f.Spare {
		return 5
	}
	return 4
}

// Heals injects a fault while a master runs, and checks the victims and the training.
func (on On) Heals(s *site.Site, f Fault) Healed {
	s.T.Helper()
	ends := f.Ends&on.Place != 0
	if !ends {
		s.SetSteps(long)
	}
	if f.Silent {
		s.SetLease(brief)
	} else {
		s.NotByLease()
	}
	if !f.OthersTrain {
		s.Together()
	}
	if f.Prepare != nil {
		f.Prepare(s)
	}
	s.Watch()
	h := Healed{Before: s.AwaitWorld(4, 1)}
	h.Victims = ranked(h.Before, f.Victims)
	kept := on.kept(s)
	h.Ends = f.Inject(s, h.Victims)
	h.After = f.awaitHealed(s, h.Before)
	f.check(s, h)
	if now := on.kept(s); now != kept {
		s.T.Errorf("%v became %v", kept, now)
	}
	if f.After != nil {
		f.After(s, h)
	}
	site.AwaitExit(s.T, h.Ends...)
	if ends {
		s.EndsRight(site.Steps)
	} else {
		s.ContinuesRight(long)
	}
	return h
}

// awaitHealed waits for the next world of all slots, with new incarnations of those to be replaced.
func (f Fault) awaitHealed(s *site.Site, before site.Job) site.Job {
	s.T.Helper()
	replaced := ranked(before, f.Replaced)
	return s.Await("training of all, after "+f.Name, func(j site.Job) bool {
		for _, slot := range replaced {
			if now := j.At(slot.Address); now.Incarnation == slot.Incarnation {
				return false
			}
		}
		return j.Trains(4, before.Generation+1)
	})
}

func (f Fault) check(s *site.Site, h Healed) {
	s.T.Helper()
	replaced := ranked(h.Before, f.Replaced)
	if f.Spare {
		s.ReplacedOnce(h.Before, h.After, replaced...)
	} else {
		s.Replaced(h.Before, h.After, replaced...)
	}
	inPlace := len(replaced) == 0
	stays := !f.Spare && len(replaced) <= 1 // two may swap places
	for _, was := range h.Victims {
		now := h.After.At(was.Address)
		if stays && (now.Node != was.Node || now.Rank != was.Rank) {
			s.T.Errorf("%+v -> %+v: its place and rank are free for it", was, now)
		}
		if inPlace && now.Restarts != was.Restarts+1 {
			s.T.Errorf("%+v -> %+v: it was to be restarted once", was, now)
		}
	}
	if inPlace && h.After.Generation != h.Before.Generation+1 {
		s.T.Errorf("generation %d -> %d", h.Before.Generation, h.After.Generation)
	}
	if f.Cause == "" {
		return
	}
	s.Blamed(h.After, f.Cause, h.Victims, f.Evidence...)
	last := h.After.Last()
	if f.Proof != "" && !last.Proven(f.Proof) {
		s.T.Errorf("the evidence is %+v, not %s", last.EvidenceCodes, f.Proof)
	}
	if inPlace != (last.Action == "restart_in_place") {
		s.T.Errorf("the action is %s", last.Action)
	}
}

// healsDelayed injects a fault with the place's reports delayed: agents report the failure first, and the place its cause only
// later. There must be only one incident.
func (f Fault) healsDelayed(on On, s *site.Site) {
	f.Spare, f.OthersTrain, f.Ends = true, true, 0
	on.Delay(s)
	if h := on.Heals(s, f); len(h.After.Incidents) != 1 {
		s.T.Errorf("of one fault there are %d incidents: %+v", len(h.After.Incidents), h.After.Incidents)
	}
}

// healsMasterDies injects a fault and kills the master at once: the next master completes what the first has begun, and does
// nothing twice.
func (f Fault) healsMasterDies(_ On, s *site.Site) {
	f.across(s, func(m *site.Master, inject func()) {
		inject()
		m.Kill()
	})
}

// healsMasterDown injects a fault while no master runs: the next one finds it.
func (f Fault) healsMasterDown(_ On, s *site.Site) {
	f.across(s, func(m *site.Master, inject func()) {
		m.Kill()
		inject()
	})
}

func (f Fault) across(s *site.Site, masters func(m *site.Master, inject func())) {
	s.T.Helper()
	s.SetSteps(2 * site.Steps)
	s.SetLease(site.Lenient)
	listen := "-listen=" + loopback.Free(s.T) // the same for both masters: agents may learn of another address late
	m := s.Watch(listen)
	before := s.AwaitWorld(4, 1)
	masters(m, func() { f.Inject(s, ranked(before, f.Victims)) })
	s.Watch(listen)
	after := f.awaitHealed(s, before)
	s.ReplacedOnce(before, after, ranked(before, f.Replaced)...)
	s.EndsRight(2 * site.Steps)
	if end := s.Now(); !maps.Equal(incarnations(end), incarnations(after)) {
		s.T.Errorf("it was not left at that: the incarnations %v became %v", incarnations(after), incarnations(end))
	}
}

// ranked returns the slots with these ranks.
func ranked(j site.Job, ranks []int) (slots []site.Slot) {
	for _, rank := range ranks {
		slots = append(slots, j.Ranked(rank))
	}
	return slots
}

func incarnations(j site.Job) map[string]int {
	all := map[string]int{}
	for _, slot := range j.Slots {
		all[slot.Address] = slot.Incarnation
	}
	return all
}
