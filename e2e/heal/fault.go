package heal

import (
	"maps"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
)

// Fault is something that happens to slots of a training of four.
type Fault struct {
	Name       string
	Gate, Soak Places // where it strikes a calm training
	Amid, Away Places // where it strikes just before a master dies, and while none runs: in `make soak`
	Late       Places // where the place's own news of it come late: in `make soak`

	Struck   []int // the ranks that it strikes
	Replaced []int // those of them that are replaced; the processes of the others are restarted in place
	// Strike does it, and gives processes that end of it.
	Strike func(s *site.Site, struck []site.Slot) (ends []int)

	Cause    string   // of the incident, of which the struck are the culprits; "" where there may be several incidents
	Proof    string   // a code of its evidence, if it has one of interest
	Evidence []string // parts of what is said in it

	Silent bool   // nobody tells of it: only the lease does
	Apart  bool   // the others train on without them meanwhile, and are not to wait
	Spare  bool   // there is a fifth node
	Ends   Places // where the training is awaited to its end

	Prepare func(s *site.Site)                // before the master starts; nil: nothing
	After   func(s *site.Site, healed Healed) // what else is to have become of it; nil: nothing
}

// Healed is a job before a fault and after it.
type Healed struct {
	Before, After site.Job
	Struck        []site.Slot
	Ends          []int
}

const (
	// long is a training that does not end while something happens to it.
	long = 6 * site.Steps
	// brief is a lease that is over soon, and that those whom nothing has happened to keep on a machine that is busy.
	brief = 8 * time.Second
)

func (f Fault) nodes() int {
	if f.Spare {
		return 5
	}
	return 4
}

// Heals strikes a calm training, and checks what becomes of it and of who was struck.
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
	if !f.Apart {
		s.Together()
	}
	if f.Prepare != nil {
		f.Prepare(s)
	}
	s.Watch()
	h := Healed{Before: s.AwaitWorld(4, 1)}
	h.Struck = ranked(h.Before, f.Struck)
	kept := on.kept(s)
	h.Ends = f.Strike(s, h.Struck)
	h.After = f.awaitHealed(s, h.Before)
	f.check(s, h)
	if now := on.kept(s); now != kept {
		s.T.Errorf("%v became %v", kept, now)
	}
	if f.After != nil {
		f.After(s, h)
	}
	site.Gone(s.T, h.Ends...)
	if ends {
		s.EndsRight(site.Steps)
	} else {
		s.GoesOnRight(long)
	}
	return h
}

// awaitHealed waits for the next world of all, in which others have the slots that are to be replaced.
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
	stays := !f.Spare && len(replaced) <= 1 // two may change places
	for _, was := range h.Struck {
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
	s.Blamed(h.After, f.Cause, h.Struck, f.Evidence...)
	last := h.After.Last()
	if f.Proof != "" && !last.Proven(f.Proof) {
		s.T.Errorf("the evidence is %+v, not %s", last.EvidenceCodes, f.Proof)
	}
	if inPlace != (last.Action == "restart_in_place") {
		s.T.Errorf("the action is %s", last.Action)
	}
}

// healsLate strikes while agents tell of an end by their own connections, before the place says whose deed it was. There is one
// incident for it all the same.
func (f Fault) healsLate(on On, s *site.Site) {
	f.Spare, f.Apart, f.Ends = true, true, 0
	on.Delay(s)
	if h := on.Heals(s, f); len(h.After.Incidents) != 1 {
		s.T.Errorf("of one fault there are %d incidents: %+v", len(h.After.Incidents), h.After.Incidents)
	}
}

// healsAmid strikes, and kills the master at once: the next one completes what the one before has begun, and does nothing
// twice.
func (f Fault) healsAmid(_ On, s *site.Site) {
	f.across(s, func(m *site.Master, strike func()) {
		strike()
		m.Kill()
	})
}

// healsAfter strikes while no master runs: the next one finds it.
func (f Fault) healsAfter(_ On, s *site.Site) {
	f.across(s, func(m *site.Master, strike func()) {
		m.Kill()
		strike()
	})
}

func (f Fault) across(s *site.Site, masters func(m *site.Master, strike func())) {
	s.T.Helper()
	s.SetSteps(2 * site.Steps)
	s.SetLease(site.Lenient)
	listen := "-listen=" + loopback.Free(s.T) // of both masters: of another, agents might hear late
	m := s.Watch(listen)
	before := s.AwaitWorld(4, 1)
	masters(m, func() { f.Strike(s, ranked(before, f.Struck)) })
	s.Watch(listen)
	after := f.awaitHealed(s, before)
	s.ReplacedOnce(before, after, ranked(before, f.Replaced)...)
	s.EndsRight(2 * site.Steps)
	if end := s.Now(); !maps.Equal(incarnations(end), incarnations(after)) {
		s.T.Errorf("it was not left at that: the incarnations %v became %v", incarnations(after), incarnations(end))
	}
}

// ranked are the slots of these ranks.
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
