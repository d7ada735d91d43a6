package plan_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// scopeCommand is a scenario command about the scope of plans.
func (w *world) scopeCommand(d *datadriven.TestData) (string, error) {
	var selectors []job.Selector
	for _, line := range lines(d.Input) {
		if of, on, is := strings.Cut(line, " < "); is {
			if w.scope.References == nil {
				w.scope.References = map[string][]string{}
			}
			w.scope.References["job."+of] = append(w.scope.References["job."+of], on)
			continue
		}
		sel, err := job.ParseSelector("job." + line)
		if err != nil {
			return "", err
		}
		in := w.input()
		if known, ok := in.Knows(sel); !ok {
			return fmt.Sprintf("%s names nothing; there is %s\n", sel, strings.Join(known, ", ")), nil
		}
		selectors = append(selectors, sel)
	}
	switch d.Cmd {
	case "target":
		w.scope.Targets = selectors
	case "exclude":
		w.scope.Excludes = selectors
	case "replace":
		w.scope.Replace = plan.Replacements(w.records, selectors)
	case "unscoped":
		w.scope = plan.Scope{}
	case "refresh":
		in := w.input()
		in.Refresh = true
		p := plan.Make(in)
		w.records, w.released = p.Records, p.Released
		return render(p), nil
	case "drifted":
		in := w.input()
		return driftText(plan.Drifted(&in)), nil
	}
	return "", nil
}

func driftText(drifts []plan.Drift) string {
	var b strings.Builder
	for _, d := range drifts {
		fmt.Fprintf(&b, "%s %s %s", d.Action, d.Slot, texts(d.Reasons, "; "))
		for _, f := range d.Fields {
			fmt.Fprintf(&b, " [%s %s -> %s]", f.Path, f.Before, f.After)
		}
		b.WriteByte('\n')
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// randomScope limits the plans that follow.
func (c *checker) randomScope(t *rapid.T) {
	var selectors []job.Selector
	for range rapid.IntRange(1, 2).Draw(t, "selectors") {
		sel := job.Selector{Job: rapid.SampledFrom([]string{"j0", "j1", "j2", "m0"}).Draw(t, "of job")}
		if rapid.Bool().Draw(t, "of a role") {
			sel.Role = rapid.SampledFrom([]string{"worker", "helper"}).Draw(t, "of role")
			if from := rapid.IntRange(-1, 3).Draw(t, "from"); from >= 0 {
				sel.Ranges = [][2]int{{from, from + rapid.IntRange(0, 3).Draw(t, "more")}}
			}
		}
		selectors = append(selectors, sel)
	}
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		c.scope.Excludes = selectors
	case 1:
		c.scope.Replace = plan.Replacements(c.records, selectors)
	default:
		c.scope.Targets = selectors
	}
}

// refresh updates the records. It changes nothing else, and a second one finds nothing more to record.
func (c *checker) refresh(t *rapid.T) {
	in := c.input()
	in.Refresh = true
	before := asJSON(t, in)
	p := plan.Make(in)
	if !bytes.Equal(before, asJSON(t, in)) {
		t.Fatalf("refreshing modified the input:\n%s", before)
	}
	// What is remembered of a forgotten job is a record too: it is dropped once nothing of the job runs.
	same := bytes.Equal(asJSON(t, in.Records), asJSON(t, p.Records)) && maps.Equal(in.Released, p.Released)
	if len(p.Changes) > 0 || same == p.Dirty {
		t.Fatalf("refreshing is dirty=%v and would do:\n%s", p.Dirty, render(p))
	}
	in.Records, in.Released = p.Records, p.Released
	if again := plan.Make(in); again.Dirty {
		t.Fatalf("a second refresh has something to record:\n%s\n%s", asJSON(t, in.Records), asJSON(t, again.Records))
	}
	c.records, c.released = p.Records, p.Released
}

// checkScope: nothing is changed outside of the scope and what it depends on.
func (c *checker) checkScope(t *rapid.T, in plan.Input, p plan.Plan) {
	if !in.Scope.Limited() {
		return
	}
	may := func(a job.Address) bool { return c.inScope(in, a) }
	for _, ch := range p.Changes {
		switch {
		case ch.Action == plan.NoOp && ch.From != "": // renames are followed whatever the scope: nothing that runs changes
		case ch.Slot != (job.Address{}) && !may(ch.Slot):
			t.Fatalf("%s is not in the scope %+v:\n%s", ch.Slot, in.Scope, c.shown)
		case !in.Scope.Touches(ch.Job):
			t.Fatalf("job.%s is not in the scope %+v:\n%s", ch.Job, in.Scope, c.shown)
		}
	}
	for name, was := range in.Records {
		is := p.Records[name]
		if !in.Scope.Touches(nameToBe(in, name)) && (is == nil || !bytes.Equal(asJSON(t, was), asJSON(t, is))) {
			t.Fatalf("the record of job.%s changed, which is not in the scope %+v:\n%s", name, in.Scope, c.shown)
		}
		if is == nil || is.UID != was.UID {
			continue
		}
		for _, s := range was.Slots {
			now := is.Slot(s.Address.Role, s.Address.Index)
			if !may(s.Address) && (now == nil || !bytes.Equal(asJSON(t, s), asJSON(t, *now))) {
				t.Fatalf("%s changed from %+v to %+v, and is not in the scope %+v:\n%s", s.Address, s, now, in.Scope, c.shown)
			}
		}
	}
}

// lookedAt reports whether a plan decides about the slot.
func (c *checker) lookedAt(in plan.Input, p plan.Plan, a job.Address) bool {
	a.Job = nameToBe(in, a.Job)
	held := slices.ContainsFunc(p.Waits, func(w plan.Wait) bool { return w.Held && w.Job == a.Job && w.Role == "" })
	return !in.Scope.Limited() || c.inScope(in, a) && !held
}

// nameToBe is the name of a job after moved blocks are applied, which scopes match even before the move. If several are to have
// one name, the first gets it.
func nameToBe(in plan.Input, name string) string {
	to := in.Moved[name]
	if to == "" || in.Records[to] != nil {
		return name
	}
	for _, from := range slices.Sorted(maps.Keys(in.Moved)) {
		if in.Moved[from] == to && in.Records[from] != nil {
			if from == name {
				return to
			}
			break
		}
	}
	return name
}

func (c *checker) inScope(in plan.Input, a job.Address) bool {
	a.Job = nameToBe(in, a.Job)
	return (len(in.Scope.Targets) == 0 || slices.ContainsFunc(in.Scope.Targets, func(sel job.Selector) bool { return c.reaches(in, sel, a, false) })) &&
		!slices.ContainsFunc(in.Scope.Excludes, func(sel job.Selector) bool { return c.reaches(in, sel, a, true) })
}

// reaches reports whether a selector names the slot, or a slot that depends on its role, or that its role depends on; back
// reverses the direction. Random jobs have two roles at most.
func (c *checker) reaches(in plan.Input, sel job.Selector, a job.Address, back bool) bool {
	if sel.Matches(a) {
		return true
	}
	if sel.Job != a.Job || sel.Role == "" {
		return false
	}
	from, to := sel.Role, a.Role
	if back != in.Destroy {
		from, to = to, from
	}
	depends := func(j *job.Job) bool { r := j.Role(from); return r != nil && slices.Contains(r.DependsOn, to) }
	for i := range in.Jobs {
		if in.Jobs[i].Name == a.Job && depends(&in.Jobs[i]) {
			return true
		}
	}
	for from, rec := range in.Records {
		if (from == a.Job || in.Moved[from] == a.Job) && depends(&rec.Spec) {
			return true
		}
	}
	return false
}
