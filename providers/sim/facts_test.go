package sim_test

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// facts is what was reported and done so far, for the invariants.
type facts struct {
	records     job.Records             // the last stored
	generations map[string]int          // by job UID
	recorded    map[string]job.JobPhase // the last recorded, by job
	phases      map[string]string       // reported since then, by job
	notices     map[string]bool         // reported
	incidents   []job.Incident          // reported
	stale       map[incarnation]bool    // launched by a fenced master, and recorded by no other as the newest incarnation
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

// stored notes newly recorded phases. A phase that the master did not live to journal is never reported. A destroyed job that is
// imported, since a fenced master has launched a slot of it, begins again.
func (f *facts) stored(records job.Records) {
	f.records = records
	known := map[string]bool{}
	for _, rec := range records {
		known[rec.UID] = true
	}
	maps.DeleteFunc(f.generations, func(uid string, _ int) bool { return !known[uid] })
	maps.DeleteFunc(f.stale, func(named incarnation, _ bool) bool { return isNewest(records, named) })
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

// told is what one master has reported.
type told struct {
	raised map[conditions.Key]bool // and not cleared, by this master or its predecessors
	open   map[changed]*attempt
}

// changed is what a change applies to.
type changed struct {
	uid  string
	slot job.Address
}

// attempt is a change that was reported to begin and not to end.
type attempt struct {
	action plan.Action
	since  time.Time // when it began, or was last reported to take long
}

// newTold is what counts as reported when a master begins: the conditions in the state.
func newTold(stored []conditions.Condition) told {
	t := told{raised: map[conditions.Key]bool{}, open: map[changed]*attempt{}}
	for _, c := range stored {
		t.raised[c.Key()] = true
	}
	return t
}

// logView writes what a loop reports to the world's log, and checks that nothing is reported twice.
type logView struct{ *master }

func (v logView) say(format string, args ...any) { v.w.say(v.tag()+format, args...) }

func (logView) Planned(*plan.Plan) {}

func join(reasons []job.Reason, between string) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, between)
}

func (v logView) Started(c *plan.Change) {
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

func (v logView) Still(c *plan.Change, _ time.Duration) {
	about := changed{c.UID, c.Slot}
	if x := v.told.open[about]; x != nil {
		v.inTime(about, x)
		x.since = v.w.cluster.Now()
	}
}

func (v logView) Finished(c *plan.Change, _ time.Duration, err error) {
	if err != nil {
		v.say("%s %s: %v", c.Action, c.Slot, err)
		return
	}
	delete(v.told.open, changed{c.UID, c.Slot})
}

func (v logView) Withdrawn(c *plan.Change, _ time.Duration) {
	v.say("%s %s is not asked for any more", c.Action, c.Slot)
	delete(v.told.open, changed{c.UID, c.Slot})
}

func (v logView) Noticed(n job.Notice) {
	v.say("%s %s: %s", n.Address, n.Type, n.Message)
	if v.fenced() {
		return // it reports what it stored while it led, which its successors have reported since
	}
	f := &v.w.facts
	if n.Type == phaseNotice { // a phase may return, even at the same time
		if f.phases[n.Address] == n.Message {
			v.w.fail("%s is told twice to be so: %s", n.Address, n.Message)
		}
		f.phases[n.Address] = n.Message
		return
	}
	text := noticeKey(&n)
	if n.Incident != nil {
		f.incidents = append(f.incidents, *n.Incident)
	}
	if f.notices[text] {
		v.w.fail("%s %s is told twice", n.Address, n.Type)
	}
	f.notices[text] = true
}

// phaseNotice is the type of the notice that a job entered a phase.
const phaseNotice = "job_phase"

// noticeKey is what a notice is known by.
func noticeKey(n *job.Notice) string {
	text := fmt.Sprint(n.Time.UnixNano(), n.Type, n.Address, n.Reason, n.Message)
	if n.Incident != nil {
		text += fmt.Sprint(n.Incident.Time.UnixNano(), n.Incident.Culprits)
	}
	return text
}

func (v logView) Condition(c conditions.Change) {
	v.say("%s: %s %s", c.Type, c.About, c.Reason)
	key := c.Key()
	switch raised := v.told.raised[key]; {
	case c.Type == conditions.Raised && raised:
		v.w.fail("%s %s is raised twice", c.About, c.Reason.Code)
	case c.Type != conditions.Raised && !raised:
		v.w.fail("%s %s is %s and was not raised", c.About, c.Reason.Code, c.Type)
	}
	v.told.raised[key] = c.Type != conditions.Cleared
}

func (logView) Progressed(string, apply.Progress) {}
