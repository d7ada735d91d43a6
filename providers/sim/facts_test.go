package sim_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// facts is what was reported and done so far, for the invariants.
type facts struct {
	records     job.Records             // the last stored
	generations map[string]int          // by job UID
	recorded    map[string]job.JobPhase // the last recorded, by job
	phases      map[string]string       // reported since then, by job
	notices     map[string]bool         // reported
	unheard     map[string]bool         // journaled, but the master was told that they were not
	raised      map[conditions.Key]bool // reported, and stored by a later decision of the master that reported it
	formed      map[formed]bool         // by any service
	last        *told                   // by the newest master
	incidents   []job.Incident          // reported
	owed        map[string]bool         // IDs of messages of notify blocks that were stored
	delivered   map[string]bool         // of those that were delivered
	suspects    map[string]bool         // nodes that have failed a check, or could have
	spoilt      map[string]time.Time    // nodes that cannot pass what a check does alone, since then
	stale       map[incarnation]bool    // launched by a fenced master, and recorded by no other as the newest incarnation
}

// formed is a world that a service asked to record.
type formed struct {
	uid                 string
	generation, members int
}

// incarnation names one agent.
type incarnation struct {
	uid    string
	slot   job.Address
	number int
}

func newFacts() facts {
	return facts{generations: map[string]int{}, recorded: map[string]job.JobPhase{}, phases: map[string]string{}, notices: map[string]bool{},
		unheard: map[string]bool{}, raised: map[conditions.Key]bool{}, stale: map[incarnation]bool{}, suspects: map[string]bool{}, spoilt: map[string]time.Time{}, owed: map[string]bool{}, delivered: map[string]bool{}, formed: map[formed]bool{}}
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

// faulty notes in what part checks of a node fail from now on.
func (f *facts) faulty(node string, part job.CheckPart, now time.Time) {
	f.suspects[node] = f.suspects[node] || part != ""
	if delete(f.spoilt, node); part == job.CheckMemory {
		f.spoilt[node] = now
	}
}

// lostAnswer notes notices that were journaled, of which the master was told that they were not: it journals them again.
func (f *facts) lostAnswer(notices []job.Notice) {
	for i := range notices {
		f.unheard[noticeKey(&notices[i])] = true
	}
}

// told is what one master has reported.
type told struct {
	raised  map[conditions.Key]bool // and not cleared, by this master or its predecessors
	unsure  map[conditions.Key]bool // a predecessor reported a change of it, which it did not live to store
	storing map[conditions.Key]bool // raised when the newest write began
	open    map[changed]*attempt
}

// changed is what a change applies to.
type changed struct {
	uid  string
	slot job.Address
}

// attempt is a change that was reported to begin.
type attempt struct {
	action plan.Action
	began  time.Time
	since  time.Time // when it began, failed, or was last reported to take long
	stills int       // the multiple of stillEvery at which that was
	done   bool      // it was reported to end
}

// stillEvery is how often a change that takes long may be reported.
const stillEvery = 10 * time.Second

// handOver returns what counts as reported when a master begins: what its predecessors reported and stored.
func (f *facts) handOver() *told {
	t := &told{raised: maps.Clone(f.raised), unsure: map[conditions.Key]bool{}, open: map[changed]*attempt{}}
	if f.last != nil {
		maps.Copy(t.unsure, f.last.unsure)
		for key, raised := range f.last.raised {
			if !endsWithRun(key) && raised != f.raised[key] {
				t.unsure[key] = true
			}
		}
	}
	f.last = t
	return t
}

// endsWithRun reports whether a condition is not stored, and ends with the run that reported it.
func endsWithRun(key conditions.Key) bool {
	waits, is := plan.Waiting[key.Code]
	return slices.Contains([]job.Code{apply.NotStored, apply.NotJournaled, apply.NotStopped}, key.Code) || is && !waits
}

// kept notes a write of a master that knew the records known: a decision stores the conditions that its master had reported by
// then, and formed worlds none.
func (f *facts) kept(raised map[conditions.Key]bool, known job.Records, before, next state.State) {
	if plain(known, before.Conditions) != plain(next.Jobs, next.Conditions) {
		f.raised = raised
	}
}

// plain renders what a decision changes in a state.
func plain(records job.Records, held []conditions.Condition) string {
	decided := maps.Clone(records)
	for name, rec := range records {
		r := *rec
		r.World = job.World{}
		decided[name] = &r
	}
	text, _ := json.Marshal([]any{decided, held}) // what the store could not marshal it has refused
	return string(text)
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
	if x := v.told.open[about]; x != nil && !x.done {
		v.w.fail("%s of %s is told to begin, and what was begun before was not told to end", c.Action, name)
	}
	now := v.w.cluster.Now()
	v.told.open[about] = &attempt{action: c.Action, began: now, since: now}
}

// attempt returns the open attempt at a change, or nil, which is wrong, if it was not reported to begin or has ended.
func (v logView) attempt(c *plan.Change, what string) *attempt {
	x := v.told.open[changed{c.UID, c.Slot}]
	if x == nil || x.done {
		v.w.fail("%s of %s %s is told %s, and was not told to begin", c.Action, c.Job, c.Slot, what)
		return nil
	}
	return x
}

func (v logView) Still(c *plan.Change, _ time.Duration) {
	x := v.attempt(c, "to take long")
	if x == nil {
		return
	}
	v.inTime(changed{c.UID, c.Slot}, x)
	x.since = v.w.cluster.Now()
	stills := int(x.since.Sub(x.began) / stillEvery)
	if stills <= x.stills {
		v.w.fail("%s of %s is told again to take long, %s after it began", c.Action, c.Slot, x.since.Sub(x.began))
	}
	x.stills = stills
}

func (v logView) Finished(c *plan.Change, _ time.Duration, err error) {
	if err != nil {
		v.say("%s %s: %v", c.Action, c.Slot, err)
		if x := v.told.open[changed{c.UID, c.Slot}]; x != nil && x.done { // what was done is found undone, and done again
			x.done, x.since = false, v.w.cluster.Now()
		}
	}
	if x := v.attempt(c, "to end"); x != nil {
		x.done = err == nil
	}
}

func (v logView) Withdrawn(c *plan.Change, _ time.Duration) {
	v.say("%s %s is not asked for any more", c.Action, c.Slot)
	if x := v.attempt(c, "not to be asked for"); x != nil {
		x.done = true
	}
}

func (v logView) Noticed(n job.Notice) {
	if n.Type == notifyNotice { // what was told may hold again, also in no time; deliver checks more
		return
	}
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
		v.w.blames(n.Incident)
	}
	if f.notices[text] {
		v.w.fail("%s %s is told twice", n.Address, n.Type)
	}
	f.notices[text] = true
}

// phaseNotice is the type of the notice that a job entered a phase.
const phaseNotice = "job_phase"

// notifyNotice is the type of the notices about messages of notify blocks.
const notifyNotice = "notify"

// noticeKey is what a notice is known by. An incident is reported again if another cause, culprit or action is found, but not
// by the next master at another time.
func noticeKey(n *job.Notice) string {
	if n.Incident != nil {
		return fmt.Sprint(n.Address, n.Incident.Time.UnixNano(), n.Incident.Cause, n.Incident.Culprits, n.Incident.Action)
	}
	return fmt.Sprint(n.Time.UnixNano(), n.Type, n.Address, n.Reason, n.Message)
}

func (v logView) Condition(c conditions.Change) {
	v.say("%s: %s %s", c.Type, c.About, c.Reason)
	key := c.Key()
	switch raised := v.told.raised[key]; {
	case v.told.unsure[key]:
	case c.Type == conditions.Raised && raised:
		v.w.fail("%s %s is raised twice", c.About, c.Reason.Code)
	case c.Type != conditions.Raised && !raised:
		v.w.fail("%s %s is %s and was not raised", c.About, c.Reason.Code, c.Type)
	}
	v.told.raised[key] = c.Type != conditions.Cleared
	delete(v.told.unsure, key)
}

func (logView) Progressed(string, apply.Progress) {}
