package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// leaderBeside returns the watch that leads here, if this run is to ask it rather than to lead itself.
func (r *applyRun) leaderBeside(ctx context.Context) (*state.LockInfo, error) {
	holder, err := r.Store.Holder(ctx)
	if err != nil || holder == nil || !view.Watching(holder) || !r.args.destroy || r.args.watch || r.args.lockTimeout > 0 {
		return nil, err
	}
	return r.leader(ctx, r.Workspace)
}

// checkBeside rejects what a watch cannot be asked for.
func (a *applyArgs) checkBeside() error {
	if a.offline() {
		return fmt.Errorf("%s cannot be used while a watch leads here, which sees what runs", a.scoping.given())
	}
	for _, sel := range slices.Concat(a.targets, a.excludes) {
		if sel.Role != "" {
			return fmt.Errorf("%s: only whole jobs can be destroyed while a watch leads here, which would start the slots again. For fewer of them, change the files", sel)
		}
	}
	return nil
}

// askWatch has the watch that leads here destroy what the plan shows, and follows it to its end.
func (r *applyRun) askWatch(ctx context.Context, leader *state.LockInfo) int {
	if err := r.args.checkBeside(); err != nil {
		return r.fail("Cannot ask the watch", err)
	}
	if !r.connect(r.Workspace) {
		return exitError
	}
	facts, err := r.preview(ctx, r.Workspace, r.args.planning)
	if err == nil {
		err = r.args.checkAddresses(facts.Input, r.Config)
	}
	if err != nil {
		return r.fail("Planning failed", err)
	}
	if r.refused(r.Config, facts.Plan.Refusals) || !r.approvedPlan(ctx, &facts) {
		return exitError
	}
	asked, err := r.askToDestroy(ctx, &facts)
	switch {
	case err != nil:
		return r.fail("The outcome is not known", err)
	case asked.ID != "" && asked.Reply.State != job.Done:
		return r.fail("Destroy failed", errors.New(view.RequestText(asked, &r.redactor)))
	}
	done := plan.Summary{Remove: facts.Plan.Summary().Remove}
	r.progress.Destroyed(done)
	if r.stream != nil {
		r.stream.Destroyed(done)
	}
	fmt.Fprintf(r.streams.Out, "%s (pid %d) keeps watching. eltrain restart, or an edit of a job's block, starts it again.\n", leader.Who, leader.PID)
	return exitDone
}

// askToDestroy asks for the jobs that the plan removes. The request that it returns has no ID if there are none.
func (r *applyRun) askToDestroy(ctx context.Context, facts *view.PlanFacts) (asked state.Asked, err error) {
	names := map[string]bool{}
	for i := range facts.Plan.Changes {
		names[facts.Plan.Changes[i].Job] = facts.Input.Records[facts.Plan.Changes[i].Job] != nil
	}
	now := time.Now()
	request := job.Request{Verb: job.AskDestroy, At: now, Expires: now.Add(defaultExpiry)}
	var on []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			request.On, on = append(request.On, job.Selector{Job: name}), append(on, "job."+name)
		}
	}
	if request.On == nil {
		return asked, nil
	}
	if request, err = r.Requests().Ask(ctx, request); err != nil {
		return asked, makeRoom(err)
	}
	fmt.Fprintf(r.streams.Out, "Asked to destroy %s.\n", strings.Join(on, ", "))
	if asked, err = await(ctx, r.Workspace, request); err == nil && asked.Reply.State == job.Done {
		err = r.awaitRemoval(ctx, request.On, facts.Input.Records)
	}
	if err != nil {
		err = fmt.Errorf("%w. The request stays: eltrain requests %s shows what becomes of it", err, request.ID)
	}
	return asked, err
}

// awaitRemoval waits until none of the jobs is recorded: until their providers have removed what belonged to them.
func (r *applyRun) awaitRemoval(ctx context.Context, of []job.Selector, before job.Records) error {
	for {
		now, err := r.Records(ctx)
		if err != nil {
			return err
		}
		still := func(sel job.Selector) bool { return now[sel.Job] != nil && now[sel.Job].UID == before[sel.Job].UID }
		if !slices.ContainsFunc(of, still) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(askPoll):
		}
	}
}
