package sim_test

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/sim"
)

// service is a master's elastic training service: the Coordinator, driven as the Server does.
type service struct {
	m      *master
	c      *elastic.Coordinator
	open   bool                // the desired state is known
	wants  map[string]job.Want // by job
	seen   uint64              // the coordinator's last known Changes
	forms  []elastic.Forming
	ticked time.Time // when the coordinator's next Tick is scheduled for
	polls  map[elastic.Told]*poll
	beats  map[string]time.Duration // by job
}

// poll is a member's open request.
type poll struct {
	incarnation int
	seq         uint64
	answer      func()
}

func newService(m *master) service {
	return service{m: m, c: elastic.NewCoordinator(), wants: map[string]job.Want{}, polls: map[elastic.Told]*poll{}, beats: map[string]time.Duration{}}
}

var errNotReady = &elastic.Error{Code: elastic.NotReady}

// Register implements sim.Master.
func (s *service) Register(name string, r elastic.RegisterRequest, answer func(elastic.RegisterReply, error)) {
	s.m.do(func() {
		if !s.open {
			answer(elastic.RegisterReply{}, errNotReady)
			return
		}
		reply, err := s.c.Register(s.m.now(), name, r)
		if err == nil {
			s.beats[name] = time.Duration(reply.BeatSeconds * float64(time.Second))
		}
		s.ready()
		answer(reply, err)
	})
}

// Sync implements sim.Master. It answers once there is an order that the member has not seen, a newer request of the member, or
// the beat is due.
func (s *service) Sync(name string, r elastic.SyncRequest, answer func(elastic.SyncReply, error)) {
	s.m.do(func() { s.sync(name, r, answer) })
}

func (s *service) sync(name string, r elastic.SyncRequest, answer func(elastic.SyncReply, error)) {
	slot, err := job.ParseShort(name, r.Slot)
	if !s.open || err != nil {
		answer(elastic.SyncReply{}, errNotReady)
		return
	}
	who := elastic.Told{Job: name, Slot: slot}
	before := s.polls[who]
	overtaken := before != nil && before.incarnation == r.Incarnation && r.Seq <= before.seq
	reply, err := s.c.Sync(s.m.now(), name, r)
	if err == nil && !overtaken && before != nil && before.incarnation <= r.Incarnation {
		delete(s.polls, who)
		before.answer()
	}
	if err != nil || overtaken || reply.Version != r.Seen {
		s.ready()
		answer(reply, err)
		return
	}
	p := &poll{incarnation: r.Incarnation, seq: r.Seq}
	p.answer = func() {
		p.answer = func() {}
		if s.polls[who] == p {
			delete(s.polls, who)
		}
		answer(s.c.Order(name, r.UID, slot, r.Incarnation))
	}
	s.polls[who] = p
	s.m.after(s.beats[name], func() { p.answer() })
	s.ready()
}

// ready carries out what the coordinator asks for.
func (s *service) ready() {
	work := s.c.Ready()
	slices.SortFunc(work.Told, func(a, b elastic.Told) int { return cmp.Or(strings.Compare(a.Job, b.Job), a.Slot.Compare(b.Slot)) })
	for _, told := range work.Told {
		if p := s.polls[told]; p != nil {
			s.m.after(sim.ReplyTime, func() { p.answer() })
		}
	}
	slices.SortFunc(work.Form, func(a, b elastic.Forming) int { return strings.Compare(a.Job, b.Job) })
	for _, f := range work.Form {
		want := s.wants[f.Job]
		s.m.w.forms(&f, &want)
		s.m.after(0, func() {
			s.forms = append(s.forms, f)
			s.m.step(apply.Forming{Number: len(s.forms), Job: f.Job, UID: f.UID, World: f.World})
		})
	}
	if work.Sooner {
		s.schedule(s.m.now())
	}
}

// tick passes the time to the coordinator.
func (s *service) tick() {
	next := s.c.Tick(s.m.now())
	s.ready()
	s.schedule(next)
}

func (s *service) schedule(next time.Time) {
	s.ticked = next
	s.m.after(next.Sub(s.m.now()), func() {
		if s.ticked.Equal(next) {
			s.tick()
		}
	})
}
