package heal

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// Each verb is shown on this machine and on pods by a case that asks for it, and in the simulator by a scenario that does.
func TestEachVerbIsShown(t *testing.T) {
	want := []string{"exec", "stacks"}
	for verb, flavors := range map[job.Verb][]string{
		job.AskSuspend: {job.Keep}, job.AskResume: nil, job.AskCancel: {job.Force}, job.AskRestart: {job.InPlace, job.Elsewhere}, job.AskDestroy: nil,
		job.AskApply: nil, job.AskScale: nil, job.AskCheckpoint: nil, job.AskSignal: nil, job.AskReload: nil, job.AskCordon: nil, job.AskUncordon: nil,
		job.AskDrain: nil,
	} {
		want = append(want, string(verb))
		for _, mode := range flavors {
			want = append(want, string(verb)+" -"+mode)
		}
	}
	var have []string
	for _, v := range verbs {
		have = append(have, v.verb)
		at := slices.IndexFunc(cases, func(c Case) bool { return c.Name == v.at })
		if at < 0 || cases[at].Gate&(Local|Kubernetes) != Local|Kubernetes {
			t.Errorf("%s: there is no case %q for this machine and for pods", v.verb, v.at)
		}
		if (v.scenario == "") != (v.why != "") {
			t.Errorf("%s: it needs a scenario of the simulator, or why there is none", v.verb)
		}
		if v.scenario == "" {
			continue
		}
		text, err := os.ReadFile("../../providers/sim/testdata/" + v.scenario)
		if err != nil {
			t.Fatal(err)
		}
		asks := `(?m)^request ` + v.verb
		if !strings.Contains(v.verb, "-") {
			asks += ` [^-]`
		}
		if !regexp.MustCompile(asks).Match(text) {
			t.Errorf("%s does not ask for %s", v.scenario, v.verb)
		}
	}
	slices.Sort(want)
	if slices.Sort(have); !slices.Equal(have, want) {
		t.Errorf("the table has %q, want %q", have, want)
	}
}
