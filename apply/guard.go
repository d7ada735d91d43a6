package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Files is one reading of the configuration.
type Files struct {
	Jobs    []job.Job
	Blocks  plan.Blocks
	Outputs map[string]state.Output
	// Commit names what the files are of, for a person; "" if that is not known. It is there with an error, too.
	Commit string
	// Caution is what is doubtful about how the files came to be as they are; "" if nothing.
	Caution string
	// Misnamed tells of a removed block that keeps nothing while a job is ended; "" if there is none.
	Misnamed string
}

// UnusableError is why the files cannot be taken up. Brief is one sentence of Text, which has all that is wrong.
type UnusableError struct{ Brief, Text string }

func (e *UnusableError) Error() string { return e.Text }

// FilesTrouble is the summary of a warning, which says of every job why it is held back.
const FilesTrouble = "The configuration has errors; the last good one stays in force"

// MisnamedTrouble is the summary of a warning about Files.Misnamed, and of the same in a plan.
const MisnamedTrouble = "A removed block keeps nothing"

// The summaries of further warnings about the files.
const (
	unsteadyTrouble = "The files are not read while they are being written"
	filesCaution    = "The files may be half of what was to be written"
)

// reload takes up changed files, or says why not: then the jobs go on, and are Degraded. It is false if they are not to be
// read yet: then all stays as it is, and they are read later.
func (r *Reconciler) reload(w *Watch) (read bool) {
	files, err := w.Reload()
	if unsteady := (*UnsteadyError)(nil); errors.As(err, &unsteady) {
		r.unsteady, r.again = earliest(r.unsteady, unsteady.Since), unsteady.Again
		r.tellLost(unsteady.Lost)
		if r.o.Clock().Sub(r.unsteady) >= unsteadyTold {
			r.warnFiles(unsteadyTrouble, unsteady.Text)
		}
		return false
	}
	r.unsteady, r.again = time.Time{}, time.Time{}
	r.confirmed = nil // it was for what the files said before
	r.recoverFiles(unsteadyTrouble)
	if files.Caution != "" {
		r.warnFiles(filesCaution, files.Caution)
	} else {
		r.recoverFiles(filesCaution)
	}
	if err != nil {
		r.takeLost() // what the files say counts no more, so nothing is destroyed by it
		brief := err.Error()
		if unusable := (*UnusableError)(nil); errors.As(err, &unusable) {
			brief = unusable.Brief
		}
		r.stale = r.inForce(files.Commit) + " " + brief
		detail := err.Error()
		if files.Commit != "" {
			detail += "\n\n" + r.inForce(files.Commit)
		}
		r.view(func(v View) { v.Warned(FilesTrouble, detail) })
		return true
	}
	if files.Misnamed != "" {
		r.warnFiles(MisnamedTrouble, files.Misnamed)
	} else {
		r.recoverFiles(MisnamedTrouble)
	}
	r.Declare(files.Jobs)
	r.tellFound()
	r.o.Blocks, r.o.Outputs, r.unmet, r.stale = files.Blocks, files.Outputs, nil, ""
	if files.Commit != r.revision {
		r.taken = files.Commit
	}
	r.revision = files.Commit
	r.view(func(v View) { v.Recovered(FilesTrouble) })
	return true
}

// tellLost tells at once of jobs that are in the files no more, which is believed a little later: until then nothing happens.
func (r *Reconciler) tellLost(names []string) {
	if r.o.Keep || len(names) == 0 {
		return
	}
	r.mu.Lock()
	known := r.lost
	r.lost = slices.Clone(names)
	r.mu.Unlock()
	for _, name := range known {
		if !slices.Contains(names, name) {
			r.noteFound(name)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			r.note(job.Notice{Time: r.o.Clock(), Type: "withheld", Address: "job." + name, Message: fmt.Sprintf(
				"it is not in the files any more, which is believed in %s, unless it comes back", filesStill)})
		}
	}
}

// noteFound has it told that a job has come back.
func (r *Reconciler) noteFound(name string) {
	r.note(job.Notice{Time: r.o.Clock(), Type: "withheld", Address: "job." + name, Message: "over: it is in the files again"})
}

// takeLost ends the wait for the jobs that tellLost told of, and gives their names.
func (r *Reconciler) takeLost() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, r.lost = r.lost, nil
	return names
}

// tellFound tells of jobs that have come back. The others are being destroyed by now, which is told as that.
func (r *Reconciler) tellFound() {
	for _, name := range r.takeLost() {
		if slices.ContainsFunc(r.o.Jobs, func(j job.Job) bool { return j.Name == name }) {
			r.noteFound(name)
		}
	}
}

// lostJobs are the waits of the jobs that are in the files no more and are yet to be destroyed. r.mu is held.
func (r *Reconciler) lostJobs() []plan.Wait {
	var waits []plan.Wait
	for _, name := range r.lost {
		waits = append(waits, plan.Wait{Job: name, Reasons: []job.Reason{job.Because(LeftFiles, "after", filesStill.String())}})
	}
	return waits
}

// warnFiles warns of how the files are written, and has it journalled, once while it lasts.
func (r *Reconciler) warnFiles(summary, why string) {
	if !r.warnedFiles[summary] {
		r.warnedFiles[summary] = true
		r.note(job.Notice{Time: r.o.Clock(), Type: "configuration", Message: summary + ": " + why})
	}
	r.view(func(v View) { v.Warned(summary, why) })
}

// recoverFiles tells that what warnFiles told is over, if it was told.
func (r *Reconciler) recoverFiles(summary string) {
	if r.warnedFiles[summary] {
		delete(r.warnedFiles, summary)
		r.view(func(v View) { v.Recovered(summary) })
	}
}

// inForce says that the files, which are of a commit or have been edited since, have errors, and what holds in their place.
func (r *Reconciler) inForce(commit string) string {
	if commit != "" && commit == r.revision {
		return "The configuration has errors (edited since commit " + commit + "); the last good one stays in force."
	}
	return "The configuration has errors" + since(commit) + "; the last good one stays in force" + since(r.revision) + "."
}

// since names a commit in a sentence; nothing if there is none.
func since(commit string) string {
	if commit == "" {
		return ""
	}
	return " (commit " + commit + ")"
}

// note has notices journalled and told with the next turn that is stored.
func (r *Reconciler) note(notices ...job.Notice) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.unwritten = append(r.unwritten, notices...)
}

// decide plans. Jobs go on as they were last applied if a change of the files would stop more slots of them than is
// allowed; in is then what was planned from.
func (r *Reconciler) decide(in plan.Input) (plan.Input, plan.Plan) {
	if r.stale != "" {
		in.Withheld = map[string]job.Reason{}
		why := job.Because(FilesUnusable, "message", r.stale)
		for _, j := range in.Jobs {
			in.Withheld[j.Name] = why
		}
	}
	p := plan.Make(in)
	most := r.o.MaxDestroy
	if most == nil || in.Destroy {
		return in, p
	}
	if r.confirmed != nil && *r.confirmed > *most {
		most = r.confirmed
	}
	removals := plan.Removals(&in, &p)
	seen := total(removals)
	if seen == 0 {
		return in, p
	}
	unseen := r.unseenRemovals(in, &p)
	if seen+unseen <= *most {
		return in, p
	}
	cannotBeSeen := ""
	if unseen > 0 {
		cannotBeSeen = strconv.Itoa(unseen)
	}
	why := map[string]job.Reason{}
	for name, n := range removals {
		why[name] = job.Because(AboveMaxDestroy, "commit", r.revision, "count", strconv.Itoa(n), "all", strconv.Itoa(seen+unseen),
			"unseen", cannotBeSeen, "max_destroy", strconv.Itoa(*most))
	}
	in = plan.Withhold(in, why)
	return in, plan.Make(in)
}

// unseenRemovals counts what plan.Removals cannot, of the jobs that an outage of their provider leaves out of a turn: all
// slots that run of those whose declaration changed, which are the most that it can come to. One change of the files is one,
// whichever provider of its jobs can be observed first.
func (r *Reconciler) unseenRemovals(in plan.Input, p *plan.Plan) int {
	unseen := job.Records{}
	for name, rec := range r.Records() {
		as := name
		if to, moved := in.Moved[name]; moved {
			as = to
		}
		// A provider that nobody has any more is no outage: nothing of its jobs is removed, ever.
		if in.Records[name] == nil && r.o.Providers[rec.Spec.Provider] != nil && in.Scope.Touches(as) {
			unseen[name] = rec
		}
	}
	in.Jobs, in.Records = r.o.Jobs, unseen
	return total(plan.Removals(&in, p))
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// tellFiles has it told what becomes of the files: which commit was taken up, what of it is held back, and what is left.
// Each is told once, also if this turn, or several, cannot be stored or journalled.
func (r *Reconciler) tellFiles(in *plan.Input, p *plan.Plan) {
	held := r.newlyWithheld(in, p)
	r.note(slices.Concat(r.newlyTaken(in), held, r.newlyLeft(in))...)
}

// unseen tells whether a job was left out of a turn, since its provider could not be observed. What held of it holds.
func (r *Reconciler) unseen(in *plan.Input, name string) bool {
	return in.Records[name] == nil && r.Records()[name] != nil
}

// newlyWithheld tells what is held back now, and was not before, or the other way round. What was held back of jobs that are
// unseen it enters.
func (r *Reconciler) newlyWithheld(in *plan.Input, p *plan.Plan) (notices []job.Notice) {
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		if why := in.Withheld[name]; !why.Equal(r.withheld[name]) {
			notices = append(notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Reason: why})
		}
	}
	removals := sync.OnceValue(func() map[string]int { return plan.Removals(in, p) })
	for _, name := range slices.Sorted(maps.Keys(r.withheld)) {
		if !in.Withheld[name].IsZero() {
			continue
		}
		if r.unseen(in, name) {
			if in.Withheld == nil {
				in.Withheld = map[string]job.Reason{}
			}
			in.Withheld[name] = r.withheld[name]
			continue
		}
		message := "over: it is what the files say again"
		if removals()[name] > 0 {
			message = "over: it is made what the files say"
			if r.confirmed != nil {
				message = "over: the removal was confirmed"
			}
			if r.taken == "" && r.read == r.revision {
				r.taken = r.read
			}
		}
		notices = append(notices, job.Notice{Time: in.Now, Type: "withheld", Address: "job." + name, Message: message})
	}
	r.withheld = in.Withheld
	return notices
}

// newlyTaken tells that a commit was taken up, and what of it was not.
func (r *Reconciler) newlyTaken(in *plan.Input) []job.Notice {
	if r.taken == "" {
		return nil
	}
	message := "commit " + r.taken + " was taken up"
	if r.stale == "" && len(in.Withheld) > 0 {
		var held []string
		for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
			held = append(held, "job."+name)
		}
		message = "commit " + r.taken + " was read; held back is " + strings.Join(held, ", ")
		r.read = r.taken
	}
	r.taken = ""
	return []job.Notice{{Time: in.Now, Type: "configuration", Message: message}}
}

// newlyLeft tells which jobs are left only because they are not to be removed, once for as long as they are.
func (r *Reconciler) newlyLeft(in *plan.Input) (notices []job.Notice) {
	left := plan.Left(in)
	is := func(name string, of []plan.Wait) bool {
		return slices.ContainsFunc(of, func(w plan.Wait) bool { return w.Job == name })
	}
	for _, w := range left {
		if !is(w.Job, r.left) {
			notices = append(notices, job.Notice{Time: in.Now, Type: "left", Address: "job." + w.Job, Reason: w.Reasons[0]})
		}
	}
	for _, w := range r.left {
		switch {
		case is(w.Job, left):
		case r.unseen(in, w.Job):
			left = append(left, w)
		case in.Records[w.Job] != nil:
			notices = append(notices, job.Notice{Time: in.Now, Type: "left", Address: "job." + w.Job, Message: "over: it is in the files again"})
		}
	}
	r.mu.Lock()
	r.left = left
	r.mu.Unlock()
	return notices
}

// aboutFiles tells whether a notice says what becomes of the files. It comes before what is done about them.
func aboutFiles(n job.Notice) bool {
	return n.Type == "configuration" || n.Type == "withheld" || n.Type == "left"
}

// tellRefusals warns of what the files ask for and must not be done, and of what they hold to be true of the jobs and
// is not, once for as long as that is so. While something cannot be observed neither is known.
func (r *Reconciler) tellRefusals(p *plan.Plan) {
	if r.troubled() {
		r.unmet = nil // it is asked anew afterwards
		return
	}
	now := map[string]string{}
	for _, refusal := range p.Refusals {
		now[r.o.Words.Headline(refusal.Reason.Code)+": job."+refusal.Job] = r.o.Words.Sentence(refusal.Reason)
	}
	if r.o.Conditions != nil && (p.Dirty || r.unmet == nil) {
		r.unmet = r.o.Conditions(p.Records)
	}
	maps.Copy(now, r.unmet)
	for _, summary := range slices.Sorted(maps.Keys(now)) {
		detail := now[summary]
		if old, told := r.refused[summary]; !told || old != detail {
			r.view(func(v View) { v.Warned(summary, detail) })
		}
	}
	for _, summary := range slices.Sorted(maps.Keys(r.refused)) {
		if _, holds := now[summary]; !holds {
			r.view(func(v View) { v.Recovered(summary) })
		}
	}
	r.refused = now
}

// replyMost is how long a request to reconcile waits for the plan. Whoever asks is told without it then.
const replyMost = 10 * time.Second

// request asks for a look at the files and a plan at once.
type request struct {
	maxDestroy *int
	answer     chan elastic.ReconcileReply // of capacity 1
}

// Reconcile has a watching run read the files and plan at once, and says what it does about them. Many requests at a
// time are one look. It serves the service's POST /v1/reconcile.
func (r *Reconciler) Reconcile(ctx context.Context, asked elastic.ReconcileRequest) elastic.ReconcileReply {
	one := request{maxDestroy: asked.MaxDestroy, answer: make(chan elastic.ReconcileReply, 1)}
	r.mu.Lock()
	r.requests = append(r.requests, one)
	r.mu.Unlock()
	select {
	case r.requested <- struct{}{}:
	default:
	}
	timer := time.NewTimer(replyMost)
	defer timer.Stop()
	select {
	case reply := <-one.answer:
		return reply
	case <-timer.C:
	case <-ctx.Done():
	}
	return elastic.ReconcileReply{Status: elastic.ReconcileQueued}
}

// heed reads the files, and takes up the requests that are there. The next turn answers them. If the files are not to be
// read yet the requests wait as well.
func (r *Reconciler) heed(w *Watch) {
	r.mu.Lock()
	fresh := r.requests
	r.requests = nil
	r.mu.Unlock()
	if !r.reload(w) {
		r.mu.Lock()
		r.requests = append(fresh, r.requests...)
		r.mu.Unlock()
		return
	}
	for _, one := range fresh {
		if n := one.maxDestroy; n != nil && (r.confirmed == nil || *n > *r.confirmed) {
			r.confirmed = n
		}
	}
	r.heeded = append(r.heeded, fresh...)
}

// answer tells those who asked for it what the turn does.
func (r *Reconciler) answer(in *plan.Input, p *plan.Plan, err error) {
	reply := elastic.ReconcileReply{Status: elastic.ReconcilePlanned, Commit: r.revision, Error: r.stale}
	if err != nil {
		reply.Error = err.Error()
	} else {
		n := p.Summary()
		reply.Changes = &elastic.ReconcileChanges{Add: n.Add, Change: n.Change, Remove: n.Remove}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Withheld)) {
		why := in.Withheld[name]
		reply.Withheld = append(reply.Withheld, elastic.Withheld{Job: "job." + name, Reason: r.o.Words.Sentence(why), Code: why})
	}
	for _, one := range r.heeded {
		one.answer <- reply
	}
	r.heeded = nil
	// A confirmation is for one plan that is stored: the first of all jobs, or of a part of them that removes any slot.
	if r.confirmed != nil && err == nil && (!r.troubled() || len(plan.Removals(in, p)) > 0) {
		r.confirmed = nil
	}
}
