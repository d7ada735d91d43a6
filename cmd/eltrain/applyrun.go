package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// applyRun is one apply or destroy of a workspace, from its plan to the report of how it ended.
type applyRun struct {
	*session
	*workspace.Workspace
	args     applyArgs
	master   *master.Master
	progress *view.Progress
	saved    *planfile.File        // the plan to carry out; nil if the loop makes it
	shown    []plan.Wait           // waits of the plan that was shown
	withheld map[string]job.Reason // jobs that -max-destroy holds back in that plan, with the reason
}

// newApply starts nothing.
func newApply(s *session, w *workspace.Workspace, a applyArgs) *applyRun {
	r := &applyRun{session: s, Workspace: w, args: a, progress: view.NewProgress(s.streams.Out, &s.redactor, time.Now)}
	o := master.Options{
		Directory: &s.dir, Workspace: w, Files: a.files, Listen: a.listen, Parallelism: a.parallelism,
		View: r.view(), Leads: r.leads, Diagnose: s.diagnose, Redactor: &s.redactor, Version: version, Log: s.log,
	}
	if !a.Watch {
		o.Approve = r.stillApproved
	}
	r.master = master.New(o)
	return r
}

// view shows progress as text, and as JSON if requested.
func (r *applyRun) view() apply.View {
	if r.stream == nil {
		return r.progress
	}
	return view.Both{r.progress, view.NewStreamProgress(r.stream, &r.redactor)}
}

func (r *applyRun) leads() {
	if r.args.Watch {
		fmt.Fprintln(r.streams.Out, "Watching. Interrupt to stop; jobs keep running.")
	}
}

// carryOut does what was approved, and continues with -watch. It reports the result only after it released the lock: a
// blocked terminal must not hold up the next run.
func (r *applyRun) carryOut(ctx context.Context, lock state.Lock) int {
	setup := r.args.Setup(r.Workspace, state.State{})
	setup.Shown = r.shown
	last, err := r.master.Lead(ctx, lock, setup)
	r.unlock(lock)
	var start *master.StartError
	switch {
	case errors.As(err, &start) && ctx.Err() != nil:
		return r.interruptedEarly(r.args, "before it started")
	case errors.As(err, &start):
		return r.fail(start.Summary, start.Err)
	}
	return r.conclude(ctx, last, err)
}

// unhealthy are the phases of a job that is not as configured although an apply has nothing left to do.
var unhealthy = map[job.JobPhase]bool{job.JobPending: true, job.JobStarting: true, job.JobDegraded: true, job.JobFailed: true}

// isUnhealthy reports whether a job is in one of them, and waits for more than its first step.
func isUnhealthy(j *view.JobStatus, rec *job.Record) bool {
	return unhealthy[j.Phase] && (rec == nil || rec.Awaits.IsZero() || rec.Phase != j.Phase)
}

// conclude reports how a run ended and returns the exit code.
func (r *applyRun) conclude(ctx context.Context, last plan.Plan, err error) int {
	var notApproved *apply.RefusedError
	var refused *RefusedPlanError
	switch {
	case errors.As(err, &refused):
		r.refused(r.master.InForce(), refused.Refusals)
		return exitError
	case errors.As(err, &notApproved) && r.saved == nil:
		return r.fail("Planning failed", err)
	case errors.As(err, &notApproved):
		return r.notApplied(r.args, err)
	case err != nil:
		return r.fail(r.args.title()+" ended early", workspace.MakeRoom(err))
	case r.args.UntilEnded && ctx.Err() == nil:
		return r.concludeDone(last.Records)
	case r.args.Watch: // interrupted, the normal end of a watch
		r.progress.Unwatched(last.Records)
		if r.stream != nil {
			r.stream.Unwatched(r.progress.Done())
		}
		return exitDone
	case ctx.Err() != nil && r.args.Destroy:
		return r.fail("Destroy was interrupted", r.soFar("slots that were stopping have ended, the rest keeps running. Run eltrain destroy again: an apply would start the ended ones again"))
	case ctx.Err() != nil:
		next := "jobs keep running, and the next apply continues from here"
		if r.progress.Done().Remove > 0 {
			next = "slots that were stopping have ended, the rest keeps running; the next apply continues from here and starts those again that are declared"
		}
		return r.fail("Apply was interrupted", r.soFar(next))
	case r.args.Destroy && len(last.Changes) > 0:
		return r.fail("Destroy ended early", preview.Left(last))
	case r.args.Destroy:
		if held := r.heldBack(last); len(held) > 0 {
			r.progress.DestroyIncomplete()
			r.diagnose(held...)
			return exitError
		}
		return r.succeeded()
	}
	if problems := r.problems(last); len(problems) > 0 {
		r.progress.Incomplete()
		r.diagnose(problems...)
		return exitError
	}
	conditions := workspace.Unmet(r.master.InForce(), last.Records)
	r.diagnose(view.DiagnoseHCL(conditions, r.master.InForce().Files)...)
	if conditions.HasErrors() {
		r.progress.Incomplete()
		return exitError
	}
	return r.succeeded()
}

// concludeDone reports how the jobs of a watch have ended.
func (r *applyRun) concludeDone(records job.Records) int {
	r.progress.Unwatched(records)
	if r.stream != nil {
		r.stream.Unwatched(r.progress.Done())
	}
	code := exitDone
	for _, j := range r.master.InForce().Jobs {
		phase := job.JobPhase("destroyed")
		if rec := records[j.Name]; rec != nil {
			phase = rec.Phase
		}
		if phase != job.JobSucceeded {
			r.diagnose(r.problem(j.Name, fmt.Sprintf("job.%s has not succeeded", j.Name), fmt.Sprintf("It is %s. eltrain status job.%s shows why.", phase, j.Name)))
			code = exitError
		}
	}
	return code
}

// succeeded reports a successful run and returns its exit code.
func (r *applyRun) succeeded() int {
	if r.args.Destroy {
		r.progress.Destroyed()
		if r.stream != nil {
			r.stream.Destroyed(r.progress.Done())
		}
	} else {
		r.progress.Applied()
		if r.stream != nil {
			r.stream.Applied(r.progress.Done())
		}
		r.showOutputs()
	}
	r.diagnose(r.args.Incomplete()...)
	if r.args.detailedExitCode && r.progress.Done() != (plan.Summary{}) {
		return exitChanges
	}
	return exitDone
}

// soFar returns an error that says what an interrupted run has done, and what is next.
func (r *applyRun) soFar(next string) error {
	done := r.progress.Done()
	return fmt.Errorf("%d added, %d changed, %d destroyed before that; %s", done.Add, done.Change, done.Remove, next)
}

// heldBack returns an error for each job whose changes in scope were not made because they cannot be made alone. Those that
// -max-destroy holds back are reported by problems.
func (r *applyRun) heldBack(last plan.Plan) []view.Diagnostic {
	var out []view.Diagnostic
	for _, w := range last.Waits {
		if w.Held && !slices.ContainsFunc(w.Reasons, r.withheld[w.Job].Equal) {
			out = append(out, r.problem(w.Job, "job."+w.Job+" was only partly changed", r.redactor.Sentences(w.Reasons)...))
		}
	}
	return out
}

// problem returns an error about a job, with the line that declares it.
func (r *applyRun) problem(name, summary string, details ...string) view.Diagnostic {
	found := view.DiagnoseHCL(hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: summary, Detail: strings.Join(details, "\n"), Subject: r.master.InForce().LineOf(r.master.InForce().SourceOf(name)),
	}}, r.master.InForce().Files)
	found[0].Address = "job." + name
	return found[0]
}

// problems returns an error for each job in scope that is not as configured.
func (r *applyRun) problems(last plan.Plan) []view.Diagnostic {
	status := view.Status(view.Facts{Records: last.Records, Waits: last.Waits}, &r.redactor)
	out := r.heldBack(last)
	scope := plan.Scope{Targets: r.args.Scope.Targets, Excludes: r.args.Scope.Excludes}.Named(r.master.InForce().Jobs, last.Records)
	for _, j := range status.Jobs {
		name := strings.TrimPrefix(j.Address, "job.")
		// The phase is out of date for a job that can never run, or that runs where its provider does not look.
		never := slices.ContainsFunc(last.Waits, func(w plan.Wait) bool { return w.Never && w.Job == name })
		is := fmt.Sprintf("%s is %s", j.Address, j.Phase)
		switch {
		case !scope.Touches(name):
		case isUnhealthy(&j, last.Records[name]) && !r.withheld[name].IsZero():
			out = append(out, r.problem(name, is, fmt.Sprintf("-max-destroy=%d holds it back, as the plan above shows.", *r.args.MaxDestroy)))
		case isUnhealthy(&j, last.Records[name]):
			out = append(out, r.problem(name, is, j.Reasons...))
		case never:
			out = append(out, r.problem(name, j.Address+" is not as configured", j.Reasons...))
		}
	}
	return out
}
