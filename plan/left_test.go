package plan

import (
	"slices"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
)

func TestWhatIsLeftIsWhatOnlyKeepLeaves(t *testing.T) {
	role := jobtest.Role("worker", 1)
	in := func(change func(*Input)) *Input {
		i := &Input{Keep: true, Jobs: []job.Job{jobtest.Job("declared", role), jobtest.Job("to", role)}, Records: job.Records{}}
		for _, name := range []string{"declared", "gone", "from", "forgotten"} {
			i.Records[name] = &job.Record{UID: "u" + name, Spec: jobtest.Job(name, role), Phase: job.JobRunning}
		}
		i.Moved = map[string]string{"from": "to"}
		i.Forget = map[string]bool{"forgotten": true}
		change(i)
		return i
	}
	for _, c := range []struct {
		name   string
		change func(*Input)
		want   []string
	}{
		{"kept", func(*Input) {}, []string{"gone"}},
		{"without it", func(i *Input) { i.Keep = false }, nil},
		{"to destroy all", func(i *Input) { i.Destroy = true }, nil},
		{"to refresh", func(i *Input) { i.Refresh = true }, nil},
		{"of another job", func(i *Input) { i.Scope.Targets = []job.Selector{{Job: "declared"}} }, nil},
		{"of itself", func(i *Input) { i.Scope.Targets = []job.Selector{{Job: "gone"}} }, []string{"gone"}},
	} {
		var names []string
		for _, w := range Left(in(c.change)) {
			names = append(names, w.Job)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%s: %v, want %v", c.name, names, c.want)
		}
	}
}
