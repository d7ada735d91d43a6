package apply

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// UnusableError says why the files cannot be applied. Text lists all errors; Brief is one sentence.
type UnusableError struct{ Brief, Text string }

func (e *UnusableError) Error() string { return e.Text }

// UnreadError says why the files could not be read: ReadMemory, ReadTime, ReadHangs or ReadSize.
type UnreadError struct{ Why job.Reason }

func (e *UnreadError) Error() string { return e.Why.String() }

// files is the configuration in effect, and the handling of new readings.
type files struct {
	Files
	rerun   map[string]string // UIDs of the jobs that had failed before this run and are to start again, by name
	scope   plan.Scope
	stale   job.Reason // why the current files are not in effect; zero if they are
	changed bool       // the files may have changed: read them
	read    *Outcome   // the newest reading, until a turn applies it
	again   time.Time  // when to read the files even without a change; zero is never

	unsteady  time.Time // since when the files have been unsteady; zero if they are not
	lost      []string  // jobs that are no longer in the files, pending confirmation that this is intended
	digest    string    // of what is in effect
	since     time.Time // when it was taken up
	readings  int       // how often the files were read to the end
	confirmed *int      // the limit that requests allow instead of MaxDestroy

	asked, reading, handled []Triggered // requests: waiting for a reading, being read for, and read for but not answered
}

func newFiles(s Setup, records job.Records) files {
	f := files{Files: s.Files, rerun: map[string]string{}}
	for name, rec := range records {
		if s.Rerun && rec.Phase.Reruns() {
			f.rerun[name] = rec.UID
		}
	}
	f.digest = s.Files.Digest()
	f.scope = s.Scope.Named(s.Files.Jobs, records)
	f.scope.Replace = append(slices.Clone(f.scope.Replace), plan.Replacements(records, plan.Named(s.Replace, s.Files.Jobs, records))...)
	return f
}

// recordedAs returns the name of a declared job in the records, which differs until its moved block is applied.
func (f *files) recordedAs(name string, records job.Records) string {
	if records[name] == nil {
		for from, to := range f.Blocks.Moved {
			if to == name && records[from] != nil {
				return from
			}
		}
	}
	return name
}

// take keeps the result of a reading for the next turn, so that the current turn stays consistent. It reports whether a turn
// is needed. Conditions in the files may change with any reading.
func (f *files) take(l *Loop, o Outcome) (news bool) {
	now, _ := o.Result.(Files)
	asIs := o.Err == nil && f.stale.IsZero() && f.unsteady.IsZero() && f.confirmed == nil && len(f.reading)+len(f.lost) == 0 && !l.holds.doubtsFiles() &&
		!l.setup.Check && !l.requests.awaitReading(f) && f.same(&now)
	if !asIs {
		f.read = &o
	}
	return !asIs
}

// same reports whether a reading matches what is in effect.
func (f *files) same(now *Files) bool {
	return now.Commit == f.Commit && now.Caution.IsZero() && now.Misnamed.IsZero() && reflect.DeepEqual(now.Jobs, f.Jobs) &&
		reflect.DeepEqual(now.Blocks, f.Blocks) && reflect.DeepEqual(now.Notify, f.Notify) && now.Values.Equal(f.Values)
}

// declare enters everything from the files and the user except the jobs.
func (l *Loop) declare(in *plan.Input) {
	s := &l.setup
	in.Destroy, in.NewUID, in.Keep, in.Blocks, in.Prevent = s.Destroy, s.NewUID, s.Keep, l.files.Blocks, s.Prevent
	in.Scope, in.Refresh, in.Once = l.files.scope, s.Refresh, !s.Watch
}

// follow starts a reading of the files if one is due. Only a watching run follows them.
func (f *files) follow(l *Loop) {
	due := !f.again.IsZero() && !l.now.Before(f.again)
	if _, reading := l.inFlight[ReadFiles{}.ID()]; reading || f.read != nil || !l.setup.Watch || l.end.stopped() || !f.changed && !due && len(f.asked) == 0 {
		return
	}
	f.changed, f.again = false, time.Time{}
	f.reading, f.asked = append(f.reading, f.asked...), nil
	l.do(ReadFiles{})
}

// takeUp applies changed files. If they are invalid, the last valid ones stay in effect and jobs are Degraded. If they are
// unsteady, nothing changes, and the files and pending requests are handled at a later reading.
func (f *files) takeUp(l *Loop) {
	if f.read == nil {
		return
	}
	now, _ := f.read.Result.(Files)
	failure := f.read.Err
	f.read = nil
	if unsteady := (*UnsteadyError)(nil); errors.As(failure, &unsteady) {
		f.putOff(l, unsteady)
		return
	}
	f.unsteady, f.again = time.Time{}, time.Time{}
	f.readings++
	f.confirmed = nil // it confirmed the previous content
	for _, one := range f.reading {
		if n := one.MaxDestroy; n != nil && (f.confirmed == nil || *n > *f.confirmed) {
			f.confirmed = n
		}
	}
	f.handled, f.reading = append(f.handled, f.reading...), nil
	l.holds.Clear(aboutFilesOf, FilesUnsteady)
	f.warn(l, FilesDoubtful, now.Caution)
	if failure != nil {
		f.refuse(l, now, failure)
		return
	}
	f.warn(l, RemovedMisnamed, now.Misnamed)
	f.Jobs = now.Jobs
	l.book.seal = now.Seal
	l.book.set(l.book.state)
	f.lost = nil
	f.Blocks, f.Values, f.stale, l.check.due = now.Blocks, now.Values, job.Reason{}, true
	f.Commit, f.Notify = now.Commit, now.Notify
	if digest := f.Digest(); digest != f.digest {
		f.digest, f.since = digest, l.now
	}
	l.holds.Clear(aboutFilesOf, FilesUnusable)
}

// refuse leaves the last valid configuration in effect.
func (f *files) refuse(l *Loop, now Files, err error) {
	f.lost = nil // the files are not in effect, so they destroy nothing
	brief := err.Error()
	if unusable := (*UnusableError)(nil); errors.As(err, &unusable) {
		brief = unusable.Brief
	}
	why := func(message string) job.Reason {
		unread := (*UnreadError)(nil)
		if errors.As(err, &unread) {
			return job.Because(FilesUnusable, "in_force", f.Commit).With(unread.Why)
		}
		return job.Because(FilesUnusable, "message", message, "commit", now.Commit, "in_force", f.Commit)
	}
	f.stale = why(brief)
	l.holds.Raise(l.now, aboutFilesOf, why(err.Error()))
}

// putOff postpones reading the files while something is writing them.
func (f *files) putOff(l *Loop, unsteady *UnsteadyError) {
	f.unsteady, f.again = earliest(f.unsteady, unsteady.Since), unsteady.Again
	if !l.setup.Keep && len(unsteady.Lost) > 0 {
		f.lost = slices.Clone(unsteady.Lost)
	}
	if l.now.Sub(f.unsteady) >= reportUnsteadyAfter {
		l.holds.Raise(l.now, aboutFilesOf, job.Because(FilesUnsteady).With(unsteady.Why))
	}
}

// warn raises a condition about the files, or clears it if why is "".
func (f *files) warn(l *Loop, code job.Code, why job.Reason) {
	if why.IsZero() {
		l.holds.Clear(aboutFilesOf, code)
		return
	}
	l.holds.Raise(l.now, aboutFilesOf, why)
}

// decide plans. If a change of the files would remove or replace more slots than allowed, the affected jobs stay as last
// applied. It returns the input that the plan was made from.
func (l *Loop) decide(in plan.Input) (plan.Input, plan.Plan) {
	f := &l.files
	if !f.stale.IsZero() {
		in.Withheld = map[string]job.Reason{}
		for _, j := range in.Jobs {
			in.Withheld[j.Name] = f.stale
		}
	}
	p := l.turn.memory.Make(in)
	most := l.setup.MaxDestroy
	if most == nil || in.Destroy {
		return in, p
	}
	if f.confirmed != nil && *f.confirmed > *most {
		most = f.confirmed
	}
	removals := plan.Removals(&in, &p)
	seen := total(removals)
	if seen == 0 {
		return in, p
	}
	unseen := l.files.unseenRemovals(l, in, &p)
	if seen+unseen <= *most {
		return in, p
	}
	cannotBeSeen := ""
	if unseen > 0 {
		cannotBeSeen = strconv.Itoa(unseen)
	}
	why := map[string]job.Reason{}
	for name, n := range removals {
		if l.requests.confirmed(&p, name) {
			continue
		}
		why[name] = job.Because(AboveMaxDestroy, "commit", f.Commit, "count", strconv.Itoa(n), "all", strconv.Itoa(seen+unseen),
			"unseen", cannotBeSeen, "max_destroy", strconv.Itoa(*most))
	}
	in = plan.Withhold(in, why)
	return in, plan.Make(in)
}

// unseenRemovals counts an upper bound of the removals among jobs that a turn leaves out because their provider cannot be
// observed: all running slots of the jobs whose declaration changed. So one change of the files counts as a whole, no matter
// which provider answers first.
func (f *files) unseenRemovals(l *Loop, in plan.Input, p *plan.Plan) int {
	unseen := job.Records{}
	for name, rec := range l.book.state.Jobs {
		as := name
		if to, moved := in.Moved[name]; moved {
			as = to
		}
		// A provider that is no longer configured is no outage: nothing of its jobs is ever removed.
		if in.Records[name] == nil && l.sight.providers[rec.Spec.Provider] != nil && in.Scope.Touches(as) {
			unseen[name] = rec
		}
	}
	in.Jobs, in.Records = f.Jobs, unseen
	return total(plan.Removals(&in, p))
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// applied says which commit's configuration a watching run applies, and which of its jobs are held back; zero if the commit
// is unknown.
func (f *files) applied(l *Loop, in *plan.Input) job.Reason {
	if !l.setup.Watch || f.Commit == "" || !f.stale.IsZero() {
		return job.Reason{}
	}
	var held []string
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		held = append(held, "job."+name)
	}
	return job.Because(ConfigurationApplied, "commit", f.Commit, "held", strings.Join(held, ", "))
}

// answer replies to the handled requests with what the turn does.
func (f *files) answer(l *Loop, d *Decision, err error) {
	reply := elastic.ReconcileReply{Status: elastic.ReconcilePlanned, Commit: f.Commit}
	if !f.stale.IsZero() {
		reply.Error = l.setup.Words.Sentence(f.stale)
	}
	if err != nil {
		reply.Error = err.Error()
	} else {
		n := d.Plan.Summary()
		reply.Changes = &elastic.ReconcileChanges{Add: n.Add, Change: n.Change, Remove: n.Remove}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Input.Withheld)) {
		why := d.Input.Withheld[name]
		reply.Withheld = append(reply.Withheld, elastic.Withheld{Job: "job." + name, Reason: l.setup.Words.Sentence(why), Code: why})
	}
	for _, one := range f.handled {
		l.do(Answer{one.Request, reply})
	}
	f.handled = nil
	// A confirmation covers one stored plan: the first that includes all jobs, or that removes any slot.
	if f.confirmed != nil && err == nil && (!l.sight.incomplete() || len(plan.Removals(&d.Input, &d.Plan)) > 0) {
		f.confirmed = nil
	}
}
