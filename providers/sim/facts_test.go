package sim_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// facts is what was told and done so far, for what must hold of it.
type facts struct {
	generations map[string]int          // by job UID
	recorded    map[string]job.JobPhase // last, by job
	phases      map[string]string       // told since, by job
	notices     map[string]bool         // told
	incidents   []job.Incident          // told
	stale       map[incarnation]bool    // launched by a fenced master, for a record that is not the newest
}

// incarnation names one agent.
type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func newFacts() facts {
	return facts{generations: map[string]int{}, recorded: map[string]job.JobPhase{}, phases: map[string]string{}, notices: map[string]bool{},
		stale: map[incarnation]bool{}}
}

// stored notes what is recorded from now on. What a record enters and the master does not live to journal is told by nobody.
func (f *facts) stored(records job.Records) {
	for about := range f.recorded {
		if records[strings.TrimPrefix(about, "job.")] == nil {
			delete(f.recorded, about)
		}
	}
	for name, rec := range records {
		if about := "job." + name; f.recorded[about] != rec.Phase {
			f.recorded[about] = rec.Phase
			delete(f.phases, about)
		}
	}
}

// told is what one master has told.
type told struct {
	raised map[conditions.Key]bool // and not cleared, by this master or those before it
	open   map[changed]*attempt
}

// changed is what a change is about.
type changed struct {
	uid  string
	slot job.Address
}

// attempt is a change that was told to begin and not to end.
type attempt struct {
	action plan.Action
	since  time.Time // or when it was last said that it takes long
}

// newTold is what a master has told when it begins: the conditions that the state has.
func newTold(stored []conditions.Condition) told {
	t := told{raised: map[conditions.Key]bool{}, open: map[changed]*attempt{}}
	for _, c := range stored {
		t.raised[keyOf(c)] = true
	}
	return t
}

func keyOf(c conditions.Condition) conditions.Key {
	return conditions.Key{About: c.About, Code: c.Reason.Code}
}

// teller writes what a loop tells into the world's log, and holds that nothing is told twice.
type teller struct{ *master }

func (v teller) say(format string, args ...any) { v.w.say(v.tag()+format, args...) }

func (v teller) Planned(p *plan.Plan) {
	for _, x := range p.Waits {
		v.say("job.%s waits: %s", x.Job, join(x.Reasons, " "))
	}
}

func join(reasons []job.Reason, between string) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, between)
}

func (v teller) Started(c *plan.Change) {
	name := "job." + c.Job
	if c.Slot != (job.Address{}) {
		name = c.Slot.String()
	}
	why := ""
	if len(c.Reasons) > 0 {
		why = " (" + join(c.Reasons, "; ") + ")"
	}
	v.say("plan: %s %s%s", c.Action, name, why)
	about := changed{c.UID, c.Slot}
	if v.told.open[about] != nil {
		v.w.fail("%s of %s is told to begin, and what was begun before was not told to end", c.Action, name)
	}
	v.told.open[about] = &attempt{c.Action, v.w.cluster.Now()}
}

func (v teller) Still(c *plan.Change, _ time.Duration) {
	if x := v.told.open[changed{c.UID, c.Slot}]; x != nil {
		x.since = v.w.cluster.Now()
	}
}

func (v teller) Finished(c *plan.Change, _ time.Duration, err error) {
	if err != nil {
		v.say("%s %s: %v", c.Action, c.Slot, err)
		return
	}
	delete(v.told.open, changed{c.UID, c.Slot})
}

func (v teller) Withdrawn(c *plan.Change, _ time.Duration) {
	v.say("%s %s is not asked for any more", c.Action, c.Slot)
	delete(v.told.open, changed{c.UID, c.Slot})
}

func (v teller) Noticed(n job.Notice) {
	v.say("%s %s: %s", n.Address, n.Type, n.Message)
	if v.fenced() {
		return // it tells what it has stored in its time, and others have told since what became of that
	}
	f := &v.w.facts
	if n.Type == "job_phase" { // it may come back, also in no time
		if f.phases[n.Address] == n.Message {
			v.w.fail("%s is told twice to be so: %s", n.Address, n.Message)
		}
		f.phases[n.Address] = n.Message
		return
	}
	text := fmt.Sprint(n.Time.UnixNano(), n.Type, n.Address, n.Reason, n.Message)
	if n.Incident != nil {
		text += fmt.Sprint(n.Incident.Culprits)
		f.incidents = append(f.incidents, *n.Incident)
	}
	if f.notices[text] {
		v.w.fail("%s %s is told twice", n.Address, n.Type)
	}
	f.notices[text] = true
}

func (v teller) Condition(c conditions.Change) {
	v.say("%s: %s %s", c.Type, c.About, c.Reason)
	key := keyOf(c.Condition)
	switch raised := v.told.raised[key]; {
	case c.Type == conditions.Raised && raised:
		v.w.fail("%s %s is raised twice", c.About, c.Reason.Code)
	case c.Type != conditions.Raised && !raised:
		v.w.fail("%s %s is %s and was not raised", c.About, c.Reason.Code, c.Type)
	}
	v.told.raised[key] = c.Type != conditions.Cleared
}

func (teller) Progressed(string, apply.Progress) {}
