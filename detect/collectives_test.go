package detect

import (
	"maps"
	"slices"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// What ranks have recorded of their collectives says who the others wait for, although all show the same steps and stacks.
func TestWhoIsMissingInCollectives(t *testing.T) {
	done := func(group string, entered int64) job.Collective {
		return job.Collective{Group: group, Title: "title of " + group, Entered: entered, Op: "nccl:all_reduce"}
	}
	waits := func(group string, in, entered int64) job.Collective {
		c := done(group, entered)
		c.Waits = in
		return c
	}
	calls := func(op string, c job.Collective) job.Collective { c.Op = op; return c }
	peer := func(group string) job.Collective { return job.Collective{Group: group, Peer: "nccl:recv 0<-1"} }
	log := func(c ...job.Collective) []job.Collective { return c }
	for _, c := range []struct {
		name     string
		recorded [][]job.Collective
		ranks    []int
		why      job.Code
		args     map[string]string
	}{
		{"one has not entered", [][]job.Collective{log(waits("0", 7, 7)), log(waits("0", 7, 7)), log(done("0", 6)), log(waits("0", 7, 7))},
			[]int{2}, RankNotEntered, map[string]string{"ranks": "2", "group": "title of 0", "number": "7", "call": "nccl:all_reduce", "waiting": "3"}},
		{"others have run ahead", [][]job.Collective{log(waits("0", 7, 30)), log(waits("0", 7, 28)), log(done("0", 6)), log(waits("0", 7, 31))},
			[]int{2}, RankNotEntered, nil},
		{"a rank is late because its group is", [][]job.Collective{
			log(waits("0", 7, 7), done("1", 9)), log(waits("0", 7, 7), done("1", 9)), log(done("0", 6), done("2", 8)), log(waits("2", 9, 9), done("0", 6))},
			[]int{2}, RankNotEntered, map[string]string{"ranks": "2", "group": "title of 0"}},
		{"a rank that has entered nothing yet", [][]job.Collective{log(waits("0", 1, 1)), log(job.Collective{Group: "0"}), log(waits("0", 1, 1)), log(waits("0", 1, 1))},
			[]int{1}, RankNotEntered, nil},
		{"a stage that sends nothing", [][]job.Collective{log(done("0", 6)), log(peer("0")), log(peer("0")), log(peer("0"))},
			[]int{0}, RankNotInvolved, map[string]string{"waiting": "3"}},
		{"another operation", [][]job.Collective{log(waits("0", 7, 7)), log(calls("nccl:broadcast", waits("0", 7, 7))), log(waits("0", 7, 7)), log(waits("0", 7, 7))},
			[]int{1}, RankOtherCall, map[string]string{"call": "nccl:broadcast", "others": "nccl:all_reduce", "number": "7"}},
		{"groups entered in another order", [][]job.Collective{
			log(waits("0", 7, 7), done("1", 2)), log(waits("1", 3, 3), done("0", 6)), log(waits("0", 7, 7), done("1", 2)), log(waits("0", 7, 7), done("1", 2))},
			[]int{1}, RankNotEntered, map[string]string{"group": "title of 0"}},
		{"all wait for a device", [][]job.Collective{log(waits("0", 7, 7)), log(waits("0", 7, 7)), log(waits("0", 7, 7)), log(waits("0", 7, 7))}, nil, NobodyDiffers, nil},
		{"nobody waits", [][]job.Collective{log(done("0", 7)), log(done("0", 7)), log(done("0", 6)), log(done("0", 7))}, nil, NobodyDiffers, nil},
		{"nothing is recorded", make([][]job.Collective, 4), nil, NobodyDiffers, nil},
	} {
		w := worldOf(4, nil)
		w.hangs(c.recorded)
		found := w.d.Suspicions()
		if len(found) != 1 || !slices.Equal(found[0].Ranks, c.ranks) || found[0].Certain {
			t.Errorf("%s: %+v", c.name, found)
			continue
		}
		first := found[0].Evidence[0]
		got := map[string]string{}
		for name := range c.args {
			got[name] = first.Args[name]
		}
		if first.Code != c.why || !maps.Equal(got, c.args) {
			t.Errorf("%s: %v, want %s with %v", c.name, first, c.why, c.args)
		}
	}
}

// A suspect's own log is part of the evidence.
func TestSuspectsShowTheirCollectives(t *testing.T) {
	w := worldOf(3, nil)
	waits := []job.Collective{{Group: "0", Title: "default_pg", Entered: 7, Waits: 7, Op: "gloo:barrier"}}
	w.hangs([][]job.Collective{waits, waits, {{Group: "0", Title: "default_pg", Entered: 6, Op: "gloo:all_reduce", Sizes: "[[4]]"}, {Group: "3"}}})
	var log []job.Reason
	for _, s := range w.d.Suspicions() {
		for _, why := range s.Evidence {
			if why.Code == RankCollective {
				log = append(log, why)
			}
		}
	}
	want := job.Because(RankCollective, "ranks", "2", "count", "1", "group", "default_pg", "entered", "6", "state", "complete", "call", "gloo:all_reduce", "number", "6", "sizes", "[[4]]")
	if len(log) != 1 || !log[0].Equal(want) {
		t.Errorf("%v, want %v", log, want)
	}
}
