package elastic

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
)

// fleet is a rendezvous with agents that behave like real ones, in any order and with any delay.
type fleet struct {
	r       *Rendezvous
	now     time.Time
	want    job.Want
	slots   map[job.Address]*DesiredSlot
	dropped map[job.Address]int // last incarnation of slots that are not wanted at all
	agents  map[job.Address]*obedient
	forming *job.World // returned by Ready and not answered yet
	record  job.World
	newest  int // generation in the record
}

// obedient is an agent as the rendezvous sees it.
type obedient struct {
	incarnation int
	registered  bool
	report      Report
}

func newFleet() *fleet {
	return &fleet{
		r: NewRendezvous(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		slots: map[job.Address]*DesiredSlot{}, agents: map[job.Address]*obedient{}, dropped: map[job.Address]int{},
	}
}

var fleetRoles = []string{"worker", "chief"}

func (f *fleet) addresses() []job.Address {
	var out []job.Address
	for a := range f.slots {
		out = append(out, a)
	}
	slices.SortFunc(out, job.Address.Compare)
	return out
}

// draw makes a random want of up to 6 workers and 2 chiefs.
func (f *fleet) draw(t *rapid.T) {
	f.want = job.Want{
		Settle: job.Duration(rapid.IntRange(0, 5).Draw(t, "settle")) * job.Duration(time.Second),
		Lease:  job.Duration(15 * time.Second),
		Hold:   rapid.IntRange(0, 9).Draw(t, "hold") == 0,
		Idle:   rapid.IntRange(0, 9).Draw(t, "idle") == 0,
	}
	f.want.Hold = f.want.Hold || f.want.Idle
	for i, most := range []int{6, 2} {
		n := rapid.IntRange(1, most).Draw(t, "slots")
		sizes := job.Sizes{Min: rapid.IntRange(1, n).Draw(t, "min"), Max: most, Step: rapid.IntRange(1, 2).Draw(t, "step")}
		if sizes.Floor(n) == 0 {
			sizes.Step = 1
		}
		w := job.WantRole{Role: fleetRoles[i], Sizes: sizes, Processes: 1 + i}
		for j := range n {
			w.Slots = append(w.Slots, j)
			a := job.Address{Job: "j", Role: fleetRoles[i], Index: j}
			if f.slots[a] == nil {
				f.dropped[a]++
				f.slots[a] = &DesiredSlot{Address: a, Incarnation: f.dropped[a], Rank: -1}
			}
			f.slots[a].Leave = false
		}
		f.want.Roles = append(f.want.Roles, w)
	}
	for a, s := range f.slots {
		if !f.wanted(a) {
			s.Leave = true
		}
	}
}

func (f *fleet) wanted(a job.Address) bool {
	for _, w := range f.want.Roles {
		if w.Role == a.Role && slices.Contains(w.Slots, a.Index) {
			return !f.slots[a].Leave
		}
	}
	return false
}

func (f *fleet) set(t *rapid.T) {
	d := Desired{UID: "u", Want: f.want, World: f.record}
	for _, a := range f.addresses() {
		d.Slots = append(d.Slots, *f.slots[a])
	}
	f.step(t, Wanted{d})
}

func (f *fleet) step(t *rapid.T, e Event) error {
	err := f.r.Step(f.now, e)
	if ready := f.r.Ready(); ready.Form != nil {
		if f.forming != nil {
			t.Fatalf("world %d is to be written while %d is being written", ready.Form.Generation, f.forming.Generation)
		}
		f.forming = ready.Form
		f.checkWorld(t, *ready.Form)
	}
	f.check(t)
	return err
}

// checkWorld checks a proposed world against the current want.
func (f *fleet) checkWorld(t *rapid.T, w job.World) {
	if f.want.Hold && f.r.claim == nil {
		t.Fatalf("world %d is formed although the want is on hold", w.Generation)
	}
	count := map[string]int{}
	seen := map[job.Address]bool{}
	for i, m := range w.Members {
		if m.Rank != i {
			t.Fatalf("ranks are not dense: %v", w.Members)
		}
		if seen[m.Slot] {
			t.Fatalf("%s is in a world twice", m.Slot)
		}
		seen[m.Slot] = true
		count[m.Slot.Role]++
		if !f.wanted(m.Slot) || f.slots[m.Slot].Incarnation != m.Incarnation {
			t.Fatalf("world %d has %s incarnation %d, which is not wanted", w.Generation, m.Slot, m.Incarnation)
		}
	}
	if f.r.claim != nil {
		return // an adopted world runs, whatever is wanted
	}
	for _, role := range f.want.Roles {
		n := count[role.Role]
		if n < role.Sizes.Min || n > role.Sizes.Max || role.Sizes.Floor(n) != n {
			t.Fatalf("world %d has %d of %s: not legal by %+v", w.Generation, n, role.Role, role.Sizes)
		}
	}
	last := f.r.World()
	for _, m := range last.Members {
		if m.Rank < len(w.Members) && seen[m.Slot] && f.slots[m.Slot].Incarnation == m.Incarnation && w.Members[m.Rank].Slot != m.Slot {
			t.Fatalf("%s had rank %d in world %d, which is free, but got another in %v", m.Slot, m.Rank, last.Generation, w.Members)
		}
	}
}

// check verifies the invariants after every step.
func (f *fleet) check(t *rapid.T) {
	for _, ro := range f.r.roles {
		var count [classes]int
		for a, s := range f.r.slots {
			if a.Role == ro.Role {
				count[s.class]++
				if c := f.r.classOf(s); c != s.class {
					t.Fatalf("%s counts as %d, but is %d", a, s.class, c)
				}
				if o := f.r.orderOf(s); !o.equal(s.order) {
					t.Fatalf("%s has the order %+v, want %+v", a, s.order, o)
				}
			}
		}
		if count != ro.count {
			t.Fatalf("role %s counts %v, is %v", ro.Role, ro.count, count)
		}
	}
	w := f.r.World()
	running := map[int]job.Address{}
	for a, s := range f.r.slots {
		o, _ := f.r.Order(a)
		if o.Do != Run {
			continue
		}
		if s.Leave || !f.wanted(a) {
			t.Fatalf("%s is ordered to run, but is not wanted", a)
		}
		if f.r.claim != nil {
			continue
		}
		if f.want.Idle {
			t.Fatalf("%s is ordered to run, and all are to be idle", a)
		}
		p := o.World
		if p.Generation != w.Generation || w.Broken || p.GroupSize != len(w.Members) || p.MasterAddr != w.MasterAddr {
			t.Fatalf("%s is ordered to run %+v; the world is %+v", a, p, w)
		}
		if other, ok := running[p.GroupRank]; ok {
			t.Fatalf("%s and %s have rank %d", a, other, p.GroupRank)
		}
		running[p.GroupRank] = a
		if m := w.Members[p.GroupRank]; m.Slot != a || m.Incarnation != s.Incarnation {
			t.Fatalf("rank %d is %s in the world, but %s is ordered to be", p.GroupRank, m.Slot, a)
		}
	}
}

func (f *fleet) answer(t *rapid.T, err error) {
	w := f.forming
	if w == nil {
		return
	}
	f.forming = nil
	if err == nil {
		if w.Generation <= f.newest {
			t.Fatalf("world %d is written after world %d", w.Generation, f.newest)
		}
		f.newest, f.record = w.Generation, *w
	}
	f.step(t, Formed{w.Generation, err})
}

func (f *fleet) agent(t *rapid.T) (job.Address, *obedient) {
	a := rapid.SampledFrom(f.addresses()).Draw(t, "slot")
	return a, f.agents[a]
}

func (f *fleet) register(t *rapid.T, a job.Address) {
	agent := f.agents[a]
	if agent == nil || agent.incarnation != f.slots[a].Incarnation {
		agent = &obedient{incarnation: f.slots[a].Incarnation, report: Report{State: job.MemberWaiting, Port: 1}}
		f.agents[a] = agent
	}
	err := f.step(t, Registered{Slot: a, Incarnation: agent.incarnation, Host: "h" + a.Short(), Report: agent.report})
	agent.registered = err == nil
	if errors.Is(err, ErrFenced) {
		f.slots[a].Incarnation++ // as the plan does: the next one
		delete(f.agents, a)
		f.set(t)
	}
}

// obey lets an agent receive its order and report the result.
func (f *fleet) obey(t *rapid.T, a job.Address) {
	agent := f.agents[a]
	if agent == nil || !agent.registered {
		return
	}
	o, version := f.r.Order(a)
	if version == 0 {
		return
	}
	r := &agent.report
	switch {
	case r.State == job.MemberFailed && o.InPlace > r.InPlace:
		r.State, r.InPlace = job.MemberWaiting, o.InPlace
	case r.State == job.MemberRunning && (o.Do == Wait || o.Do == Run && o.World.Generation != r.Generation):
		r.State = job.MemberWaiting
	case r.State == job.MemberWaiting && o.Do == Run:
		if o.World.Generation <= r.Generation {
			t.Fatalf("%s was in world %d and is ordered to run in %d", a, r.Generation, o.World.Generation)
		}
		r.State, r.Generation, r.Rank, r.WorldSlots = job.MemberRunning, o.World.Generation, o.World.GroupRank, o.World.GroupSize
	}
	f.say(t, a)
}

func (f *fleet) say(t *rapid.T, a job.Address) {
	agent := f.agents[a]
	if err := f.step(t, Reported{a, agent.incarnation, agent.report}); err != nil {
		agent.registered = false
	}
}

func (f *fleet) pass(t *rapid.T, d time.Duration) {
	f.now = f.now.Add(d)
	f.step(t, Tick{})
}

// TestRendezvousKeepsItsPromises sends random events to a rendezvous. After each step the invariants above hold; at the end,
// once nothing fails anymore, all wanted slots train in one world.
func TestRendezvousKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		f.draw(t)
		f.set(t)
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) { a, _ := f.agent(t); f.register(t, a) },
			"obey":     func(t *rapid.T) { a, _ := f.agent(t); f.obey(t, a) },
			"everyone obeys": func(t *rapid.T) {
				for _, a := range f.addresses() {
					f.obey(t, a)
				}
			},
			"fail": func(t *rapid.T) {
				if a, agent := f.agent(t); agent != nil && agent.report.State == job.MemberRunning {
					agent.report.State = job.MemberFailed
					f.say(t, a)
				}
			},
			"leaves": func(t *rapid.T) {
				if a, agent := f.agent(t); agent != nil && rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					agent.report.State = job.MemberLeaving
					f.say(t, a)
				}
			},
			"grant": func(t *rapid.T) {
				if a, agent := f.agent(t); agent != nil && agent.report.State == job.MemberFailed {
					f.slots[a].InPlace = agent.report.InPlace + 1
					f.set(t)
				}
			},
			"replace": func(t *rapid.T) {
				a, _ := f.agent(t)
				f.slots[a].Incarnation, f.slots[a].InPlace = f.slots[a].Incarnation+1, 0
				f.set(t)
			},
			"gone": func(t *rapid.T) {
				a, _ := f.agent(t)
				f.step(t, Gone{a, f.slots[a].Incarnation, rapid.Bool().Draw(t, "succeeded")})
			},
			"expired": func(t *rapid.T) { a, _ := f.agent(t); f.step(t, Expired{a, f.slots[a].Incarnation}) },
			"want":    func(t *rapid.T) { f.draw(t); f.set(t) },
			"drop": func(t *rapid.T) {
				if a, _ := f.agent(t); f.slots[a].Leave {
					f.dropped[a] = f.slots[a].Incarnation
					delete(f.slots, a)
					delete(f.agents, a)
					f.set(t)
				}
			},
			"written":     func(t *rapid.T) { f.answer(t, nil) },
			"not written": func(t *rapid.T) { f.answer(t, errors.New("disk full")) },
			"pass":        func(t *rapid.T) { f.pass(t, time.Duration(rapid.IntRange(0, 6000).Draw(t, "ms"))*time.Millisecond) },
			"stall":       func(t *rapid.T) { f.step(t, Stalled{time.Second}) },
			"new master": func(t *rapid.T) {
				f.r, f.forming = NewRendezvous(), nil
				for _, agent := range f.agents {
					agent.registered = false
				}
				f.set(t)
			},
			"new master without the record": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
					return
				}
				f.r, f.forming, f.record, f.newest = NewRendezvous(), nil, job.World{}, 0
				for _, agent := range f.agents {
					agent.registered = false
				}
				f.set(t)
			},
			"all agents register": func(t *rapid.T) {
				for _, a := range f.addresses() {
					if agent := f.agents[a]; agent != nil && !agent.registered {
						f.register(t, a)
					}
				}
			},
		})
		f.calm(t)
	})
}

// calm lets everything succeed until the world trains.
func (f *fleet) calm(t *rapid.T) {
	f.want.Hold, f.want.Idle = false, false
	f.set(t)
	for range 40 {
		for _, a := range f.addresses() {
			if !f.wanted(a) {
				continue
			}
			agent := f.agents[a]
			if agent == nil || agent.incarnation != f.slots[a].Incarnation || !agent.registered {
				f.register(t, a)
				agent = f.agents[a]
			}
			if agent == nil {
				continue
			}
			switch agent.report.State {
			case job.MemberFailed:
				if f.slots[a].InPlace <= agent.report.InPlace {
					f.slots[a].InPlace = agent.report.InPlace + 1
					f.set(t)
				}
			case job.MemberLeaving:
				f.slots[a].Incarnation, f.slots[a].InPlace = f.slots[a].Incarnation+1, 0
				f.set(t)
				continue
			}
			f.obey(t, a)
		}
		f.answer(t, nil)
		f.pass(t, time.Second)
	}
	size := 0
	for _, role := range f.want.Roles {
		size += role.Sizes.Floor(len(role.Slots))
	}
	w := f.r.World()
	if w.Broken || len(w.Members) < size {
		t.Fatalf("without faults the world is %+v, want %d slots", w, size)
	}
	for _, m := range w.Members {
		if r := f.agents[m.Slot].report; r.State != job.MemberRunning || r.Generation != w.Generation {
			t.Fatalf("%s is %+v in world %d", m.Slot, r, w.Generation)
		}
	}
}

// TestTopologyRanksAreContiguous: on every level, slots that share a value (and all wider ones) have contiguous ranks.
func TestTopologyRanksAreContiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 3).Draw(t, "depth")
		chosen := drawSlots(t, func(s *slot) {
			for range depth {
				s.levels = append(s.levels, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "level"))
			}
		})
		byRank := rankByTopology(chosen)
		if len(byRank) != len(chosen) {
			t.Fatalf("%d slots have %d ranks", len(chosen), len(byRank))
		}
		for level := 1; level <= depth; level++ {
			ended := map[string]bool{}
			last := ""
			for _, s := range byRank {
				group := fmt.Sprint(s.levels[:level])
				if group != last && ended[group] {
					t.Fatalf("group %s of level %d is in two pieces", group, level)
				}
				ended[last], last = true, group
			}
		}
		if depth > 0 && byRank[0] != chosen[0] {
			t.Fatalf("rank 0 is %s, not the first slot", byRank[0].Address)
		}
	})
}

// TestRanksStay: without topology slots keep their ranks where possible, and ranks are a permutation.
func TestRanksStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).Draw(t, "ranks")
		i := 0
		chosen := drawSlots(t, func(s *slot) {
			if rapid.Bool().Draw(t, "survivor") {
				s.rank, s.Rank, s.member = ranks[i], ranks[i], true
			}
			i++
		})
		byRank := keepRanks(chosen)
		seated := map[*slot]bool{}
		for rank, s := range byRank {
			if s == nil || seated[s] {
				t.Fatalf("rank %d is empty or taken twice", rank)
			}
			seated[s] = true
			if s.rank >= 0 && s.rank < len(chosen) && rank != s.rank {
				t.Fatalf("%s had rank %d of %d, and has %d", s.Address, s.rank, len(chosen), rank)
			}
		}
	})
}

func drawSlots(t *rapid.T, each func(*slot)) []*slot {
	var out []*slot
	for i := range rapid.IntRange(1, 12).Draw(t, "slots") {
		s := &slot{DesiredSlot: DesiredSlot{Address: job.Address{Job: "j", Role: "worker", Index: i}, Rank: -1}, rank: -1}
		each(s)
		out = append(out, s)
	}
	return out
}

// TestListOfALargeJob: it has those with a port, rank 0 first, and is bounded.
func TestListOfALargeJob(t *testing.T) {
	for _, tt := range []struct{ workers, servers, listed int }{
		{100, 28, 128}, {100, 29, 30}, {200, 3, 4}, {10, 200, 128},
	} {
		r := NewRendezvous()
		d := Desired{UID: "u", Token: "t", Want: job.Want{Roles: []job.WantRole{{Role: "worker", Processes: 1, Sizes: job.Sizes{Min: 1, Max: tt.workers, Step: 1}}}}}
		now := time.Unix(0, 0)
		add := func(role string, n int) {
			for i := range n {
				a := job.Address{Job: "gpt", Role: role, Index: i}
				d.Slots = append(d.Slots, DesiredSlot{Address: a, Incarnation: 1, Rank: -1})
				if role == "worker" {
					d.Want.Roles[0].Slots = append(d.Want.Roles[0].Slots, i)
				} else {
					d.Want.Unranked = append(d.Want.Unranked, a)
				}
			}
		}
		add(strings.Repeat("a", 63), tt.servers)
		add("worker", tt.workers)
		r.Step(now, Wanted{d})
		for _, s := range d.Slots {
			host := strings.Repeat("h", maxHost)
			if err := r.Step(now, Registered{Slot: s.Address, Incarnation: 1, Host: host, Report: Report{State: job.MemberWaiting, Port: 65000}}); err != nil {
				t.Fatal(err)
			}
		}
		r.Step(now, Formed{Generation: r.Ready().Form.Generation})
		list := r.Peers(job.Address{Job: "gpt", Role: "worker", Index: 0})
		if list.Total != tt.workers+tt.servers || len(list.Members) != tt.listed {
			t.Errorf("%+v: listed %d of %d", tt, len(list.Members), list.Total)
		}
		if !slices.ContainsFunc(list.Members, func(p Peer) bool { return p.Rank == 0 && p.Port == 65000 }) {
			t.Errorf("%+v: rank 0 is not listed", tt)
		}
		if text, err := json.Marshal(SyncReply{Members: list}); err != nil || len(text) > maxReply-1<<10 {
			t.Errorf("%+v: %d bytes: %v", tt, len(text), err)
		}
	}
}
