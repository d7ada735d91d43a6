package elastic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
)

// checks is what the planner wants checked.
func (s *scenario) checks(t *testing.T, d *datadriven.TestData) {
	want := &job.WantCheck{Timeout: job.Duration(8 * time.Second), All: d.HasArg("all")}
	for _, arg := range d.CmdArgs {
		switch {
		case arg.Key == "timeout":
			want.Timeout = parsedDuration(t, arg.Vals[0])
		case strings.HasSuffix(arg.Key, "]"):
			n, err := strconv.Atoi(arg.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			if want.Slots == nil {
				want.Slots = map[string]int{}
			}
			want.Slots[arg.Key] = n
		}
	}
	if s.want.Check = want; len(d.CmdArgs) == 0 {
		s.want.Check = nil
	}
	s.set()
}

// checked is what a member has found out.
func (s *scenario) checked(t *testing.T, d *datadriven.TestData, a job.Address) {
	r := &job.Checked{Number: number(t, d, "number", 1), Seconds: 1}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "took":
			took, err := strconv.ParseFloat(arg.Vals[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			r.Seconds = took
		case "port":
			r.Port = 5000 + a.Index
		case "unknown":
			r.Unknown, r.Message = true, "no sensor"
		case "failed":
			r.Failed, r.Message = job.CheckPart(arg.Vals[0]), "wrong"
		}
	}
	s.agents[a].report.Check = r
	s.sync(a, s.agents[a].incarnation, 0)
	s.settle()
}

// exchanged is how a member's newest exchange went.
func (s *scenario) exchanged(t *testing.T, d *datadriven.TestData, a job.Address) {
	o, err := s.c.Order(scenarioJob, "u1", a, s.agents[a].incarnation)
	if err != nil || o.Order.Check == nil || o.Order.Check.Pair == nil {
		t.Fatalf("%s: %s has no partner: %v", d.Pos, a, err)
	}
	x := job.Exchanged{Set: o.Order.Check.Pair.Set, Round: o.Order.Check.Pair.Round, Seconds: 0.1}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "failed":
			x.Failed = "refused"
		case "took":
			if x.Seconds, err = strconv.ParseFloat(arg.Vals[0], 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := *s.agents[a].report.Check
	r.Exchanges = append(slices.Clone(r.Exchanges), x)
	s.agents[a].report.Check = &r
	s.sync(a, s.agents[a].incarnation, 0)
	s.settle()
}

func checkText(c *Check) string {
	if p := c.Pair; p != nil {
		return strings.TrimSuffix(fmt.Sprintf("round %d with %s in %gs at %s", p.Round, p.Peer, p.Seconds, p.Address), " at ")
	}
	return strings.Join(slices.Concat([]string{fmt.Sprintf("check %d in %gs", c.Number, c.Seconds)}, c.Command), " ")
}

func outcomeText(o *job.CheckOutcome) string {
	text := string(o.Verdict)
	if o.Part != "" {
		text += fmt.Sprintf(" %s", o.Part)
	}
	if o.Message != "" {
		text += fmt.Sprintf(" %q", o.Message)
	}
	if o.Median > 0 {
		text += fmt.Sprintf(" %gs of %gs", o.Seconds, o.Median)
	}
	return text
}
