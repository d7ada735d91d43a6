package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/ask"
	"github.com/eltrain/eltrain/cmd/events"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// leaderBeside returns the watch that leads here, if this run is to ask it rather than to lead itself.
func (r *applyRun) leaderBeside(ctx context.Context) (*state.LockInfo, error) {
	holder, err := r.Store.Holder(ctx)
	if err != nil || holder == nil || !view.Watching(holder) || r.args.Watch || r.args.lockTimeout > 0 {
		return nil, err
	}
	return holder, nil
}

// checkBeside rejects what a watch cannot be asked for.
func (a *applyArgs) checkBeside() error {
	option := ""
	switch {
	case a.Refresh, a.offline():
		option = a.limit()
	case a.Keep:
		option = "-prune=false"
	case a.MaxDestroy != nil:
		option = "-max-destroy"
	}
	if option != "" {
		return fmt.Errorf("%s cannot be used while a watch leads here: end the watch first", option)
	}
	for _, sel := range slices.Concat(a.Scope.Targets, a.Scope.Excludes) {
		if sel.Role != "" && a.Destroy {
			return fmt.Errorf("%s: only whole jobs can be destroyed while a watch leads here, which would start the slots again. For fewer of them, change the files", sel)
		}
	}
	return nil
}

// askWatch has the watch that leads here carry out what the plan shows, and follows it to its end.
func (r *applyRun) askWatch(ctx context.Context, leader *state.LockInfo) int {
	if err := r.args.checkBeside(); err != nil {
		return r.fail("Cannot ask the watch", err)
	}
	if stored, err := r.Store.Read(ctx); err != nil || r.args.Destroy && stored.Serial == 0 {
		return r.fail("Cannot ask the watch", cmp.Or(err, fmt.Errorf("%s (pid %d) has only just begun, and may be about to start jobs: try again", leader.Who, leader.PID)))
	}
	if !r.connect(r.Workspace) {
		return exitError
	}
	facts, err := r.preview(ctx, r.Workspace, r.args.planning)
	if err == nil {
		err = r.args.CheckAddresses(facts.Input, r.Config)
	}
	if err != nil {
		return r.fail("Planning failed", err)
	}
	if r.refused(r.Config, facts.Plan.Refusals) || !r.approvedPlan(ctx, &facts) {
		return exitError
	}
	return r.followWatch(ctx, leader, &facts)
}

// askWatchSaved does the same for a saved plan.
func (r *applyRun) askWatchSaved(ctx context.Context, leader *state.LockInfo, f *planfile.File) int {
	err := r.args.checkBeside()
	if err != nil {
		return r.fail("Cannot ask the watch", err)
	}
	stored, err := r.Store.Read(ctx)
	if err == nil {
		err = f.CheckState(stored.Lineage, stored.Serial)
	}
	if err != nil {
		return r.notApplied(r.args, err)
	}
	if !r.connect(r.Workspace) {
		return exitError
	}
	if err := r.recheck(ctx, r.Workspace, r.args, f); err != nil {
		return r.notApplied(r.args, err)
	}
	return r.followWatch(ctx, leader, &f.Facts)
}

// followWatch asks for an approved plan, and waits for the outcome.
func (r *applyRun) followWatch(ctx context.Context, leader *state.LockInfo, facts *view.PlanFacts) int {
	fmt.Fprintf(r.streams.Out, "%s (pid %d) watches these jobs and carries it out.\n", leader.Who, leader.PID)
	to, err := ask.Find(ctx, r.Workspace)
	if err != nil {
		return r.fail("Cannot ask the watch", err)
	}
	r.progress.Beside()
	request := ask.Planned(facts, workspace.Commit(ctx, r.Config), time.Now())
	if len(request.On) > 0 {
		if request, err = to.Ask(ctx, request); err != nil {
			return r.fail("Cannot ask the watch", err)
		}
		shown := events.During(state.Reader{Dir: workspace.JournalDirectory}, &request, r.view().Noticed)
		asked, err := to.Await(ctx, request, r.diagnose)
		if err == nil && asked.Reply.State == job.Done && request.Verb == job.AskDestroy {
			err = to.AwaitRemoval(ctx, request.On, facts.Input.Records)
		}
		shown()
		switch {
		case err != nil:
			return r.noOutcome(&request, err)
		case asked.Reply.State != job.Done:
			return r.fail(r.args.title()+" failed", errors.New(view.RequestText(asked, &r.redactor)+r.whoseIsNewer(ctx, asked.Reply.Reason)))
		}
	}
	r.progress.CarriedOut(facts.Plan.Summary())
	return r.succeeded()
}

// whoseIsNewer says which of two configurations is the newer one, as far as this directory's repository knows; "" if a request was not
// refused because they differ.
func (r *applyRun) whoseIsNewer(ctx context.Context, why job.Reason) string {
	here, there := why.Args["asked"], why.Args["commit"]
	switch {
	case why.Code != apply.ConfigDiffers:
		return ""
	case apply.Follows(ctx, r.dir.Path, here, there):
		return ". The files here are newer: the watch has to get them first"
	case apply.Follows(ctx, r.dir.Path, there, here):
		return ". The watch's files are newer: get them here, and plan again"
	}
	return ""
}
