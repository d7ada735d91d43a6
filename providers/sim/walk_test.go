package sim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
)

const walkJobs = `
job "a" {
  priority = 1
  role "worker" {
    replicas = 2
    command  = ["train", "%d"]
    scaling {
      min = 2
      max = %d
    }
    resources { cpu = 1 }
  }
  heal {
    budget {
      restarts = 1000
    }
  }
}
job "b" {
  role "ps" {
    ranked  = false
    command = ["ps"]
    resources { cpu = 1 }
  }
  role "worker" {
    replicas   = 2
    command    = ["train"]
    depends_on = [role.ps]
    scaling {
      min  = 2
      max  = 6
      step = 2
    }
    resources { cpu = 1 }
  }
  heal {
    budget {
      restarts = 1000
    }
  }
}
`

// TestRandomWalks lets faults, edits and master crashes happen in any order, checks after every turn of the
// loop what must always hold, and at the end, with everything repaired, that both jobs train, that nothing
// runs twice, and that a steady state writes nothing.
func TestRandomWalks(t *testing.T) {
	walks := 400
	if testing.Short() {
		walks = 60
	}
	for seed := range walks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walk(t, uint64(seed), false) })
	}
}

// TestRandomWalksWithAScheduler is the same on a cluster whose scheduler places, and to which more happens.
func TestRandomWalksWithAScheduler(t *testing.T) {
	walks := 200
	if testing.Short() {
		walks = 30
	}
	for seed := range walks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walk(t, uint64(seed), true) })
	}
}

// TestRandomWalksWithFaultsAtEffects is the same with a fault before or after some of the effects of the loop: an error, an
// answer that is lost, a delay, or a crash.
func TestRandomWalksWithFaultsAtEffects(t *testing.T) {
	walks := 600
	if testing.Short() {
		walks = 60
	}
	for seed := range walks {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			walkWith(t, uint64(seed), seed%2 == 1, true)
		})
	}
}

// fault draws what goes wrong about an effect: nothing, for most.
func (k *walker) fault(e apply.Effect) (f fault) {
	if k.rnd.IntN(20) > 0 {
		return f
	}
	within := func() time.Duration { return time.Duration(1+k.rnd.IntN(3000)) * time.Millisecond }
	switch k.rnd.IntN(8) {
	case 0:
		f.crashBefore = true
		return f
	case 1:
		f.crashAfter = true
		return f
	}
	switch e.(type) {
	case apply.Tell, apply.Hear, apply.Answer, apply.Gauge: // in the master's own memory
		return f
	}
	switch k.rnd.IntN(6) {
	case 0:
		f.fails = errors.New("refused")
	case 1:
		f.fails = &providers.TransientError{Err: errors.New("too busy")}
	case 2, 3:
		f.lost = errors.New("the answer is lost")
	case 4:
		f.before = within()
	case 5:
		f.after = within()
	}
	return f
}

// walker is one walk.
type walker struct {
	*world
	rnd         *rand.Rand
	generations map[string]int // by job UID
	command     int
	most        int
}

func walk(t *testing.T, seed uint64, schedules bool) { walkWith(t, seed, schedules, false) }

func walkWith(t *testing.T, seed uint64, schedules, faulty bool) {
	k := &walker{world: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 7)), generations: map[string]int{}, most: 5}
	k.cluster.Schedules = schedules
	defer func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, k.take())
		}
	}()
	k.world.check = k.invariants
	for i := range 7 {
		k.addNode(i)
	}
	k.jobs = parse(t, k.text())
	if faulty {
		k.faults = k.fault
	}
	k.start()
	for range 40 {
		if faulty && k.master == nil && k.rnd.IntN(2) == 0 {
			k.start()
		}
		if schedules && k.rnd.IntN(3) == 0 {
			k.happen()
		} else {
			k.act()
		}
		k.run(time.Duration(k.rnd.IntN(3000)) * time.Millisecond)
		if t.Failed() {
			return
		}
	}
	k.repair()
	k.run(2 * time.Minute)
	k.healed()
	if t.Failed() {
		k.say("%s", k.status())
		return
	}
	before, entries := k.serial(), k.journal.entries
	k.run(5 * time.Minute)
	if k.serial() != before || k.journal.entries != entries {
		t.Errorf("a steady state wrote: serial %d -> %d, journal %d -> %d", before, k.serial(), entries, k.journal.entries)
	}
}

func (k *walker) text() string { return fmt.Sprintf(walkJobs, k.command, k.most) }

func (k *walker) addNode(i int) {
	cpu, _ := job.Cores(1)
	k.cluster.SetNode(job.Node{Name: fmt.Sprintf("n%d", i), Capacity: job.Resources{CPU: cpu}})
}

// act lets one thing happen.
func (k *walker) act() {
	agents := k.cluster.Agents()
	some := func(f func(i int)) {
		if len(agents) > 0 {
			f(k.rnd.IntN(len(agents)))
		}
	}
	node := k.rnd.IntN(7)
	switch k.rnd.IntN(13) {
	case 0:
		some(func(i int) { agents[i].Fail(job.Exit{Code: 137, Signal: "killed"}) })
	case 1:
		some(func(i int) { agents[i].Fail(job.Exit{Code: 1}) })
	case 2, 3:
		some(func(i int) { k.say("kill the agent of %s", agents[i].Slot()); agents[i].Kill() })
	case 4:
		some(func(i int) { k.say("silence %s", agents[i].Slot()); agents[i].Silence() })
	case 5, 6:
		some(func(i int) { k.say("wake %s", agents[i].Slot()); agents[i].Wake() })
	case 7:
		k.say("remove n%d", node)
		k.cluster.RemoveNode(fmt.Sprintf("n%d", node))
	case 8:
		k.say("crash n%d", node)
		k.cluster.CrashNode(fmt.Sprintf("n%d", node))
	case 9, 10:
		k.say("add n%d", node)
		k.addNode(node)
	case 11:
		if k.master != nil {
			k.say("the master crashes")
			k.crash()
		} else {
			k.say("a master starts")
			k.start()
		}
	case 12:
		k.most = 2 + k.rnd.IntN(5)
		k.command += k.rnd.IntN(2)
		k.say("edit: max %d, command %d", k.most, k.command)
		k.declare(parse(k.t.(*testing.T), k.text()))
	}
	k.settle()
}

// happen lets one thing happen that only a cluster with a scheduler knows.
func (k *walker) happen() {
	node := fmt.Sprintf("n%d", k.rnd.IntN(7))
	agents := k.cluster.Agents()
	var some *sim.Agent
	if len(agents) > 0 {
		some = agents[k.rnd.IntN(len(agents))]
	}
	what := k.rnd.IntN(9)
	k.say("event %d on %s", what, node)
	switch what {
	case 0:
		k.cluster.NotReady(node)
	case 1, 2:
		k.cluster.Ready(node)
	case 3:
		k.cluster.DeleteNode(node)
	case 4:
		k.setNode(node, func(n *job.Node) { n.Closed, n.Drained = "cordoned", "cordoned" })
	case 5:
		k.setNode(node, func(n *job.Node) { n.Foreign = n.Capacity })
	case 6:
		if some != nil {
			causes := []job.Cause{job.Preemption, job.Eviction, job.Deletion}
			k.cluster.PutOut(some, causes[k.rnd.IntN(len(causes))])
		}
	case 7:
		if some != nil {
			some.Edit(job.FieldChange{Path: "image", Before: "b", After: "a"})
		}
	case 8:
		failing := k.cluster.Trouble == nil
		k.cluster.Trouble = nil
		if failing {
			k.cluster.Trouble = func(op string, _ job.Address) error {
				if op == "prepare" {
					return errors.New("the API server is down")
				}
				return nil
			}
		}
	}
	k.settle()
}

// setNode changes a node, if it is there.
func (k *walker) setNode(name string, change func(*job.Node)) {
	seen, _ := k.cluster.Observe(k.t.Context())
	for _, n := range seen.Nodes {
		if n.Name == name {
			change(&n)
			k.cluster.SetNode(n)
		}
	}
}

// repair ends all faults.
func (k *walker) repair() {
	k.say("repair everything")
	k.cluster.Trouble, k.faults = nil, nil
	for i := range 7 {
		k.addNode(i)
	}
	for _, a := range k.cluster.Agents() {
		a.Wake()
	}
	if k.master == nil {
		k.start()
	}
	k.declare(k.jobs) // the watch on the files looks again every while
	k.settle()
}

// invariants must hold after every turn.
func (k *walker) invariants(records job.Records) {
	k.t.Helper()
	held := map[string]job.Resources{}
	for name, rec := range records {
		if g := rec.World.Generation; g < k.generations[rec.UID] {
			k.t.Errorf("job.%s went back from generation %d to %d", name, k.generations[rec.UID], g)
		}
		k.generations[rec.UID] = rec.World.Generation
		for i := range rec.Slots {
			if s := &rec.Slots[i]; s.Phase.Live() && s.Node != "" {
				held[s.Node] = held[s.Node].Add(s.Reserved)
			}
		}
		for i := range k.jobs {
			if k.jobs[i].Name == name {
				k.sizes(&k.jobs[i], rec)
			}
		}
	}
	seen, _ := k.cluster.Observe(k.t.Context())
	for _, n := range seen.Nodes {
		if !held[n.Name].Fits(n.Capacity) {
			k.t.Errorf("node %s holds %v of %v", n.Name, held[n.Name], n.Capacity)
		}
	}
	k.once()
}

// sizes checks the numbers of slots and ranks of a job.
func (k *walker) sizes(j *job.Job, rec *job.Record) {
	ranks := map[int]bool{}
	for i, m := range rec.World.Members {
		if m.Rank != i || ranks[m.Rank] {
			k.t.Errorf("job.%s generation %d has ranks %v", j.Name, rec.World.Generation, rec.World.Members)
		}
		ranks[m.Rank] = true
	}
	for i := range j.Roles {
		r := &j.Roles[i]
		_, most := r.Bounds()
		if k.faults != nil && r.Scaling != nil {
			most = 6 // of any edit: the loop may not have read the last one
		}
		reserved := 0
		for _, s := range rec.Slots {
			if s.Address.Role == r.Name && s.Node != "" && s.Phase.Live() && s.Phase != job.Canceling {
				reserved++
			}
		}
		if reserved > most {
			k.t.Errorf("job.%s.%s has %d slots of at most %d", j.Name, r.Name, reserved, most)
		}
	}
}

// once checks that no slot's processes run twice, in agents that can act.
func (k *walker) once() {
	running := map[job.Address]int{}
	for _, a := range k.cluster.Agents() {
		if generation, runs := a.Running(); runs && !a.Silent() && !a.GivenUp() {
			if other, twice := running[a.Slot()]; twice {
				k.t.Errorf("%s runs twice, in generations %d and %d", a.Slot(), other, generation)
			}
			running[a.Slot()] = generation
		}
	}
}

// healed checks that both jobs train, whole.
func (k *walker) healed() {
	k.t.Helper()
	for _, j := range k.jobs {
		rec := k.master.l.Records()[j.Name]
		if rec == nil {
			k.t.Errorf("job.%s is not recorded", j.Name)
			continue
		}
		if rec.Phase != job.JobRunning {
			k.t.Errorf("job.%s is %s", j.Name, rec.Phase)
		}
		worker := j.Role("worker")
		if n := len(rec.World.Members); !worker.Legal(n) {
			k.t.Errorf("job.%s trains with %d slots, which is not legal", j.Name, n)
		}
		for _, m := range rec.World.Members {
			a := k.cluster.Agent(m.Slot)
			if a == nil {
				k.t.Errorf("%s is in the world and does not run", m.Slot)
				continue
			}
			if g, runs := a.Running(); !runs || g != rec.World.Generation {
				k.t.Errorf("%s runs=%v in generation %d, the world is %d", m.Slot, runs, g, rec.World.Generation)
			}
		}
	}
	if agents := k.cluster.Agents(); slices.ContainsFunc(agents, func(a *sim.Agent) bool { return a.Silent() }) {
		k.t.Error("an agent is still silent")
	}
}

func (w *world) serial() uint64 {
	s, err := w.store.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Serial
}
