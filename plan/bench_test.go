package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// cluster is a number of jobs with as many slots each, one GPU per slot, on nodes with eight.
func cluster(jobs, slots int) *world {
	w := newWorld()
	for i := range (jobs*slots + 7) / 8 {
		w.nodes = append(w.nodes, jobtest.Node(fmt.Sprintf("n%05d", i), jobtest.GPUs(8)))
	}
	for i := range jobs {
		w.jobs = append(w.jobs, jobtest.Job(fmt.Sprintf("job%03d", i), jobtest.Role("worker", slots, jobtest.Needs(jobtest.GPUs(1)))))
	}
	return w
}

// BenchmarkMakeAllNew plans slots that are all new. Target: 10,000 in 200 ms, linear in slots.
func BenchmarkMakeAllNew(b *testing.B) {
	for _, c := range []struct{ jobs, slots int }{{1, 1000}, {1, 10_000}, {100, 100}, {200, 500}, {1, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", c.jobs, c.slots), func(b *testing.B) {
			in := cluster(c.jobs, c.slots).input()
			b.ReportAllocs()
			for b.Loop() {
				if p := plan.Make(in); len(p.Changes) != c.jobs*c.slots {
					b.Fatalf("%d changes", len(p.Changes))
				}
			}
		})
	}
}

// BenchmarkDigests digests the plan of 10,000 new slots, as is done after each decision, beside the turns. Target: 500 ms.
func BenchmarkDigests(b *testing.B) {
	p := plan.Make(cluster(1, 10_000).input())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Digests(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMakeAllNewBarred plans 10,000 new slots of a hundred jobs, each barred from half of the nodes.
func BenchmarkMakeAllNewBarred(b *testing.B) {
	in := cluster(100, 100).input()
	in.Snapshot.Nodes = append(in.Snapshot.Nodes, cluster(100, 100).nodes...) // twice as many as needed
	barred := map[string]string{}
	for i := range in.Snapshot.Nodes {
		in.Snapshot.Nodes[i].Name = fmt.Sprintf("n%05d", i)
		if i%2 == 0 {
			barred[in.Snapshot.Nodes[i].Name] = "taint gpu=yes:NoSchedule"
		}
	}
	in.Bars = map[string]map[string]string{}
	for i := range in.Jobs {
		in.Bars["job."+in.Jobs[i].Name+".worker"] = barred
	}
	b.ReportAllocs()
	for b.Loop() {
		if p := plan.Make(in); len(p.Changes) != 10_000 {
			b.Fatalf("%d changes", len(p.Changes))
		}
	}
}

// BenchmarkMakeNoop plans slots that all run as they should. Target: 10,000 in 50 ms, linear in slots.
func BenchmarkMakeNoop(b *testing.B) {
	for _, c := range []struct{ jobs, slots int }{{1, 1000}, {1, 10_000}, {100, 100}, {200, 500}, {1, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", c.jobs, c.slots), func(b *testing.B) {
			w := settled(b, c.jobs, c.slots)
			in := w.input()
			b.ReportAllocs()
			for b.Loop() {
				if p := plan.Make(in); len(p.Changes) != 0 || p.Dirty {
					b.Fatalf("%d changes, dirty %v", len(p.Changes), p.Dirty)
				}
			}
		})
	}
}

// BenchmarkMakeAgain plans what the plan before planned, with its memory: nothing has changed, or one slot has failed and is well again,
// or another node is closed. Target: 10 ms for a changed slot of 100,000.
func BenchmarkMakeAgain(b *testing.B) {
	w := settled(b, 200, 500)
	in := w.input()
	changed := func(change func(*plan.Input)) plan.Input {
		out := in
		out.Snapshot.Incarnations = slices.Clone(in.Snapshot.Incarnations)
		change(&out)
		return out
	}
	failed := changed(func(out *plan.Input) {
		part := slices.Clone(in.Snapshot.Incarnations[7])
		part[3].Member = &job.Member{State: job.MemberFailed, Generation: 1, Exit: &job.Exit{Code: 1}}
		out.Snapshot.Incarnations[7] = part
	})
	closed := changed(func(out *plan.Input) {
		out.Snapshot.Nodes = slices.Clone(in.Snapshot.Nodes)
		out.Snapshot.Nodes[9].Closed = "cordoned"
	})
	for _, c := range []struct {
		name    string
		other   plan.Input
		changes int
	}{{"unchanged", in, 0}, {"slot", failed, 1}, {"node", closed, 0}} {
		b.Run(c.name, func(b *testing.B) {
			var m plan.Memory
			m.Make(in)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next, changes := in, 0
				if i%2 == 0 {
					next, changes = c.other, c.changes
				}
				if p := m.Make(next); len(p.Changes) != changes {
					b.Fatalf("%d changes", len(p.Changes))
				}
			}
		})
	}
}

// settled is a cluster in which everything runs. It applies a plan itself, because the scenarios' world looks each slot up in a
// list.
func settled(b testing.TB, jobs, slots int) *world {
	w := cluster(jobs, slots)
	p := plan.Make(w.input())
	w.take(p)
	for _, c := range p.Changes {
		l := c.Launch
		w.incs = append(w.incs, &job.Incarnation{Slot: l.Slot, UID: l.UID, Number: l.Incarnation, Node: l.Node,
			Fingerprint: l.Fingerprint, Reserved: l.Reserved, State: job.Up,
			Member: &job.Member{State: job.MemberRunning, Generation: 1}})
		formed := w.worlds[l.Slot.Job]
		formed.Generation = 1
		formed.Members = append(formed.Members, job.WorldMember{Slot: l.Slot, Incarnation: 1, Rank: len(formed.Members), Processes: 1})
		w.worlds[l.Slot.Job], w.uids[l.Slot.Job] = formed, l.UID
	}
	for range 3 {
		w.take(plan.Make(w.input()))
	}
	return w
}

// BenchmarkMakePending plans with a full cluster and as much again pending.
func BenchmarkMakePending(b *testing.B) {
	w := settled(b, 50, 100)
	for i := range 50 {
		w.jobs = append(w.jobs, jobtest.Job(fmt.Sprintf("late%03d", i), jobtest.Role("worker", 100, jobtest.Needs(jobtest.GPUs(1)))))
	}
	w.take(plan.Make(w.input()))
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		if p := plan.Make(in); len(p.Changes) != 0 || len(p.Waits) != 50 {
			b.Fatalf("%d changes, %d waits", len(p.Changes), len(p.Waits))
		}
	}
}
