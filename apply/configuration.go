package apply

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// UnusableError is why the files cannot be applied. Brief is one sentence of Text, which lists all errors.
type UnusableError struct{ Brief, Text string }

func (e *UnusableError) Error() string { return e.Text }

// filesSummaries are the summaries of conditions about how the files are written.
var filesSummaries = map[job.Code]string{
	FilesUnsteady:   "The files are not read while they are being written",
	FilesDoubtful:   "The files may be only half written",
	RemovedMisnamed: MisnamedTrouble,
}

// MisnamedTrouble is the summary of a warning about Files.Misnamed, and of the same in a plan.
const MisnamedTrouble = "A removed block matches nothing"

// files is the configuration in effect, and the handling of new readings.
type files struct {
	Files
	rerun   map[string]string // UIDs of the jobs that had failed before and are to start again, by name
	scope   plan.Scope
	stale   string    // why the files are not what is in effect; "" if they are
	changed bool      // they must be read
	read    *Outcome  // of a reading, until a turn applies it
	again   time.Time // when to read them without a sign of a change; zero is never

	taken     string          // a commit that was applied, and is still to be told
	heldOf    string          // the last one of which it was told that something of it is held back
	unsteady  time.Time       // since when the files are not to be read; zero if they are
	warned    map[string]bool // summaries of what holds of how they are written, and was warned of
	lost      []string        // jobs that are no longer in the files, and are not removed yet
	left      []plan.Wait     // jobs that were last told to be left only because of Keep
	confirmed *int            // what requests allow instead of MaxDestroy

	withheld map[string]job.Reason // jobs that were last told to be held back, with the reason

	asked, reading, handled []Asked // requests: to be read for, being read for, and read for but not answered
}

func newFiles(s Setup, records job.Records) files {
	f := files{Files: s.Files, rerun: map[string]string{}, warned: map[string]bool{}}
	if s.Watch {
		f.taken = s.Files.Commit
	}
	for name, rec := range records {
		if s.Rerun && rec.Phase.Ended() && rec.Phase != job.JobSucceeded {
			f.rerun[name] = rec.UID
		}
	}
	f.scope = s.Scope.Named(s.Files.Jobs, records)
	f.scope.Replace = append(slices.Clone(f.scope.Replace), plan.Replacements(records, plan.Named(s.Replace, s.Files.Jobs, records))...)
	return f
}

// recordedAs is the name that a declared job has in the records: another one while it is still to be moved.
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

// take keeps the result of a reading for the next turn: the current turn stays with what it was decided from. It reports
// whether there is news. Conditions in the files may be others by any reading.
func (f *files) take(l *Loop, o Outcome) (news bool) {
	now, _ := o.Result.(Files)
	asIs := o.Err == nil && f.stale == "" && f.unsteady.IsZero() && f.confirmed == nil && len(f.reading)+len(f.lost)+len(f.warned) == 0 &&
		!l.setup.Check && f.same(&now)
	if !asIs {
		f.read = &o
	}
	return !asIs
}

// same reports whether a reading says what is in effect.
func (f *files) same(now *Files) bool {
	return now.Commit == f.Commit && now.Caution == "" && now.Misnamed == "" && reflect.DeepEqual(now.Jobs, f.Jobs) &&
		reflect.DeepEqual(now.Blocks, f.Blocks) && maps.EqualFunc(now.Outputs, f.Outputs, state.Output.Equal)
}

// declare enters everything from the files and the user except the jobs.
func (l *Loop) declare(in *plan.Input) {
	s := &l.setup
	in.Destroy, in.NewUID, in.Keep, in.Blocks, in.Prevent = s.Destroy, s.NewUID, s.Keep, l.files.Blocks, s.Prevent
	in.Scope, in.Refresh, in.Once = l.files.scope, s.Refresh, !s.Watch
}

// follow reads the files if that is due. Only a watch follows them.
func (f *files) follow(l *Loop) {
	due := !f.again.IsZero() && !l.now.Before(f.again)
	if _, reading := l.inFlight[ReadFiles{}.ID()]; reading || f.read != nil || !l.setup.Watch || l.end.stopped() || !f.changed && !due && len(f.asked) == 0 {
		return
	}
	f.changed, f.again = false, time.Time{}
	f.reading, f.asked = append(f.reading, f.asked...), nil
	l.do(ReadFiles{})
}

// takeUp applies changed files, or says why not: then the jobs continue, and are Degraded. If they are not to be read yet
// all stays as it is, and they are read later, for those who asked as well.
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
	f.confirmed = nil // it was for what the files said before
	for _, one := range f.reading {
		if n := one.MaxDestroy; n != nil && (f.confirmed == nil || *n > *f.confirmed) {
			f.confirmed = n
		}
	}
	f.handled, f.reading = append(f.handled, f.reading...), nil
	f.warn(l, FilesUnsteady, "")
	f.warn(l, FilesDoubtful, now.Caution)
	if failure != nil {
		f.refuse(l, now, failure)
		return
	}
	f.warn(l, RemovedMisnamed, now.Misnamed)
	f.Jobs = now.Jobs
	l.book.seal = now.Seal
	l.book.set(l.book.state)
	f.tellFound(l)
	f.Blocks, f.Outputs, f.stale, l.check.due = now.Blocks, now.Outputs, "", true
	if now.Commit != f.Commit {
		f.taken = now.Commit
	}
	f.Commit = now.Commit
	l.holds.Clear(aboutFilesOf, FilesUnusable)
}

// refuse leaves the last valid configuration in effect.
func (f *files) refuse(l *Loop, now Files, err error) {
	f.lost = nil // what the files say counts no more, so nothing is destroyed by it
	brief := err.Error()
	if unusable := (*UnusableError)(nil); errors.As(err, &unusable) {
		brief = unusable.Brief
	}
	f.stale = f.inForce(now.Commit) + " " + brief
	detail := err.Error()
	if now.Commit != "" {
		detail += "\n\n" + f.inForce(now.Commit)
	}
	l.holds.Raise(l.now, aboutFilesOf, job.Because(FilesUnusable, "message", detail))
}

// putOff postpones reading the files: something is writing them.
func (f *files) putOff(l *Loop, unsteady *UnsteadyError) {
	f.unsteady, f.again = earliest(f.unsteady, unsteady.Since), unsteady.Again
	f.tellLost(l, unsteady.Lost)
	if l.now.Sub(f.unsteady) >= unsteadyTold {
		f.warn(l, FilesUnsteady, unsteady.Text)
	}
}

// tellLost tells at once of jobs that are no longer in the files, which is acted upon a little later: until then nothing happens.
func (f *files) tellLost(l *Loop, names []string) {
	if l.setup.Keep || len(names) == 0 {
		return
	}
	known := f.lost
	f.lost = slices.Clone(names)
	for _, name := range known {
		if !slices.Contains(names, name) {
			f.noteFound(l, name)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			l.book.note(job.Notice{Time: l.now, Type: "withheld", Address: "job." + name, Message: fmt.Sprintf(
				"it is no longer in the files, and is removed in %s unless it comes back", filesStill)})
		}
	}
}

// noteFound notes that a job has come back.
func (f *files) noteFound(l *Loop, name string) {
	l.book.note(job.Notice{Time: l.now, Type: "withheld", Address: "job." + name, Message: "resolved: it is in the files again"})
}

// tellFound reports jobs that have come back. The others are being destroyed by now, which is told as that.
func (f *files) tellFound(l *Loop) {
	lost := f.lost
	f.lost = nil
	for _, name := range lost {
		if slices.ContainsFunc(f.Jobs, func(j job.Job) bool { return j.Name == name }) {
			f.noteFound(l, name)
		}
	}
}

// lostJobs are the waits of the jobs that are no longer in the files and are still to be destroyed.
func (f *files) lostJobs() []plan.Wait {
	var waits []plan.Wait
	for _, name := range f.lost {
		waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{job.Because(LeftFiles, "after", filesStill.String())}})
	}
	return waits
}

// warn warns of how the files are written, and has it journalled, once while it lasts. It is over with no reason.
func (f *files) warn(l *Loop, code job.Code, why string) {
	if why == "" {
		delete(f.warned, string(code))
		l.holds.Clear(aboutFilesOf, code)
		return
	}
	if !f.warned[string(code)] {
		f.warned[string(code)] = true
		l.book.note(job.Notice{Time: l.now, Type: "configuration", Message: filesSummaries[code] + ": " + why})
	}
	l.holds.Raise(l.now, aboutFilesOf, job.Because(code, "message", why))
}

// inForce says that the files, which are of a commit or have been edited since, have errors, and what holds in their place.
func (f *files) inForce(commit string) string {
	if commit != "" && commit == f.Commit {
		return "The configuration has errors (edited since commit " + commit + "); the last valid one stays in effect."
	}
	return "The configuration has errors" + since(commit) + "; the last valid one stays in effect" + since(f.Commit) + "."
}

// since names a commit in a sentence; "" if there is none.
func since(commit string) string {
	if commit == "" {
		return ""
	}
	return " (commit " + commit + ")"
}

// decide plans. Jobs continue as they were last applied if a change of the files would stop more slots of them than is
// allowed; in is then what was planned from.
func (l *Loop) decide(in plan.Input) (plan.Input, plan.Plan) {
	f := &l.files
	if f.stale != "" {
		in.Withheld = map[string]job.Reason{}
		why := job.Because(FilesUnusable, "message", f.stale)
		for _, j := range in.Jobs {
			in.Withheld[j.Name] = why
		}
	}
	p := plan.Make(in)
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
		why[name] = job.Because(AboveMaxDestroy, "commit", f.Commit, "count", strconv.Itoa(n), "all", strconv.Itoa(seen+unseen),
			"unseen", cannotBeSeen, "max_destroy", strconv.Itoa(*most))
	}
	in = plan.Withhold(in, why)
	return in, plan.Make(in)
}

// unseenRemovals counts what plan.Removals cannot, of the jobs that an outage of their provider leaves out of a turn: all
// slots that run of those whose declaration changed, which are the most that it can come to. One change of the files is one,
// whichever provider of its jobs can be observed first.
func (f *files) unseenRemovals(l *Loop, in plan.Input, p *plan.Plan) int {
	unseen := job.Records{}
	for name, rec := range l.book.state.Jobs {
		as := name
		if to, moved := in.Moved[name]; moved {
			as = to
		}
		// A provider that nobody has anymore is no outage: nothing of its jobs is removed, ever.
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

// tell has it told what happens to the files: which commit was applied, what of it is held back, and what is left.
// Each is reported once, also if this turn, or several, cannot be stored or journalled.
func (f *files) tell(l *Loop, in *plan.Input, p *plan.Plan) {
	held := f.newlyWithheld(l, in, p)
	l.book.note(slices.Concat(f.newlyTaken(l, in), held, f.newlyLeft(l, in))...)
}

// unseen reports whether a job was left out of a turn, since its provider could not be observed. What held of it holds.
func (l *Loop) unseen(in *plan.Input, name string) bool {
	return in.Records[name] == nil && l.book.state.Jobs[name] != nil
}

// newlyWithheld reports what is held back now, and was not before, or the other way around. What was held back of jobs that are
// unseen it enters.
func (f *files) newlyWithheld(l *Loop, in *plan.Input, p *plan.Plan) (notices []job.Notice) {
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		if why := in.Withheld[name]; !why.Equal(f.withheld[name]) {
			notices = append(notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Reason: why})
		}
	}
	var removals map[string]int // counted once it is asked for
	for _, name := range slices.Sorted(maps.Keys(f.withheld)) {
		if !in.Withheld[name].IsZero() {
			continue
		}
		if l.unseen(in, name) {
			if in.Withheld == nil {
				in.Withheld = map[string]job.Reason{}
			}
			in.Withheld[name] = f.withheld[name]
			continue
		}
		if removals == nil {
			removals = plan.Removals(in, p)
		}
		message := "resolved: it matches the files again"
		if removals[name] > 0 {
			message = "resolved: configuration applied"
			if f.confirmed != nil {
				message = "resolved: the removal was confirmed"
			}
			if f.taken == "" && f.heldOf == f.Commit {
				f.taken = f.heldOf
			}
		}
		notices = append(notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Message: message})
	}
	f.withheld = in.Withheld
	return notices
}

// newlyTaken reports that a commit was applied, and what of it was not.
func (f *files) newlyTaken(l *Loop, in *plan.Input) []job.Notice {
	if f.taken == "" {
		return nil
	}
	message := "commit " + f.taken + " is in effect"
	if f.stale == "" && len(in.Withheld) > 0 {
		var held []string
		for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
			held = append(held, "job."+name)
		}
		message = "commit " + f.taken + " was read; held back: " + strings.Join(held, ", ")
		f.heldOf = f.taken
	}
	f.taken = ""
	return []job.Notice{{Time: in.Now, Type: "configuration", Message: message}}
}

// newlyLeft reports which jobs are left only because they are not to be removed, once for as long as they are.
func (f *files) newlyLeft(l *Loop, in *plan.Input) (notices []job.Notice) {
	left := plan.Left(in)
	is := func(name string, of []plan.Wait) bool {
		return slices.ContainsFunc(of, func(w plan.Wait) bool { return w.Job == name })
	}
	for _, w := range left {
		if !is(w.Job, f.left) {
			notices = append(notices, job.Notice{Time: in.Now, Type: "left", Address: "job." + w.Job, Reason: w.Reasons[0]})
		}
	}
	for _, w := range f.left {
		switch {
		case is(w.Job, left):
		case l.unseen(in, w.Job):
			left = append(left, w)
		case in.Records[w.Job] != nil:
			notices = append(notices, job.Notice{Time: in.Now, Type: "left", Address: "job." + w.Job, Message: "resolved: it is in the files again"})
		}
	}
	f.left = left
	return notices
}

// aboutFiles reports whether a notice says what happens to the files. It comes before what is done about them.
func aboutFiles(n job.Notice) bool {
	return n.Type == "configuration" || n.Type == "withheld" || n.Type == "left"
}

// answer replies to requests with what the turn does.
func (f *files) answer(l *Loop, d *Decision, err error) {
	reply := elastic.ReconcileReply{Status: elastic.ReconcilePlanned, Commit: f.Commit, Error: f.stale}
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
	// A confirmation is for one plan that is stored: the first of all jobs, or of a part of them that removes any slot.
	if f.confirmed != nil && err == nil && (!l.sight.troubled() || len(plan.Removals(&d.Input, &d.Plan)) > 0) {
		f.confirmed = nil
	}
}
