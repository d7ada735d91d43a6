package apply

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// slotGroup identifies slots of one role that are added or stopped in one turn for one reason.
type slotGroup struct {
	job, role string
	done      job.Code
	why       string // the reason as text, which is comparable
}

// verbs are the types of notices, by code.
var verbs = map[job.Code]string{SlotsAdded: "added", SlotsRemoved: "removed", SlotsReplaced: "replaced"}

// resizes returns notices of what a plan decided to add or stop: slots that are added to a started job, removed or replaced, one
// notice for each role and reason, and jobs that are gone. Stops in a job that has ended are not reported.
func (l *Loop) resizes(in *plan.Input, p *plan.Plan) []job.Notice {
	why := map[bool]map[target]job.Reason{true: {}, false: {}} // of launches, and of other changes
	for i := range p.Changes {
		c := &p.Changes[i]
		why[c.Launch != nil][targetOf(c)] = c.Why()
	}
	slots, reasons := map[slotGroup][]int{}, map[slotGroup]job.Reason{}
	enter := func(name string, a job.Address, done job.Code, why job.Reason) {
		kind := slotGroup{name, a.Role, done, why.String()}
		slots[kind], reasons[kind] = append(slots[kind], a.Index), why
	}
	before := make(map[string]*job.Record, len(in.Records)) // by UID, since a job may have been renamed
	for _, rec := range in.Records {
		before[rec.UID] = rec
	}
	now := make(map[string]bool, len(p.Records)) // UIDs
	for name, rec := range p.Records {
		now[rec.UID] = true
		old := before[rec.UID]
		if old == nil || old == rec || rec.Phase.Ended() {
			continue
		}
		started := old.Phase != job.JobPending && !old.Phase.Idle()
		for i := range rec.Slots {
			s := &rec.Slots[i]
			was := old.Slot(s.Address.Role, s.Address.Index)
			switch {
			case started && stays(s) && (was == nil || !stays(was)):
				enter(name, s.Address, SlotsAdded, why[true][target{rec.UID, s.Address}])
				continue
			case s.Phase != job.Canceling && s.Phase != job.Canceled, was == nil || !ran(was):
				continue
			}
			done := SlotsRemoved
			if s.Return {
				done = SlotsReplaced
			}
			reason := why[false][target{rec.UID, s.Address}]
			if reason.IsZero() && (s.Cause != "" || s.Exit != nil) { // it has ended already: no change stops it
				reason = plan.HowLost(s)
			}
			enter(name, s.Address, done, reason)
		}
	}
	var notices []job.Notice
	for _, kind := range slices.SortedFunc(maps.Keys(slots), compareSlotGroups) {
		what := job.Because(kind.done, "count", strconv.Itoa(len(slots[kind])))
		if why := reasons[kind]; !why.IsZero() {
			what = what.With(why)
		}
		notices = append(notices, job.Notice{Time: in.Now, Type: verbs[kind.done], Address: "job." + kind.job + "." + job.Fold(kind.role, slots[kind]), Reason: what})
	}
	for _, name := range slices.Sorted(maps.Keys(in.Records)) {
		if rec := in.Records[name]; !now[rec.UID] && p.Records[name] == nil && !forgets(p, rec) {
			notices = append(notices, goneNotice(in, p, name, rec))
		}
	}
	return notices
}

// stays reports whether a slot is one of its role's, also while it is stopped to start again.
func stays(s *job.Slot) bool { return s.Phase.Live() && s.Phase != job.Canceling || s.Return }

// ran reports whether a slot had an incarnation that was not being stopped.
func ran(was *job.Slot) bool {
	return was.Phase.Live() && was.Phase != job.Canceling && was.Incarnation > 0
}

// goneNotice reports that a job is no longer recorded, and why.
func goneNotice(in *plan.Input, p *plan.Plan, name string, rec *job.Record) job.Notice {
	n := job.Notice{Time: in.Now, Type: "destroyed", Address: "job." + name}
	switch {
	case slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.UID == rec.UID && c.Action == plan.Forget }):
		n.Type, n.Reason = "forgotten", job.Because(JobForgotten, "uid", rec.UID)
	case p.Destroyed[name].Request != "":
		n.Reason = job.Because(JobDestroyed).With(job.Because(plan.DestroyAsked, "by", p.Destroyed[name].By, "why", p.Destroyed[name].Why))
	case in.Destroy:
		n.Reason = job.Because(JobDestroyed).With(job.Because(plan.DestroyRequested))
	default:
		n.Reason = job.Because(JobDestroyed).With(job.Because(plan.NotDeclared))
	}
	return n
}

func compareSlotGroups(a, b slotGroup) int {
	return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.role, b.role), cmp.Compare(a.done, b.done), cmp.Compare(a.why, b.why))
}
