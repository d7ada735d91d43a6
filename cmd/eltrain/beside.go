package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// leaderBeside returns the watch that leads here, if this run is to ask it rather than to lead itself.
func (r *applyRun) leaderBeside(ctx context.Context) (*state.LockInfo, error) {
	holder, err := r.Store.Holder(ctx)
	if err != nil || holder == nil || !view.Watching(holder) || r.args.watch || r.args.lockTimeout > 0 {
		return nil, err
	}
	return holder, nil
}

// checkBeside rejects what a watch cannot be asked for.
func (a *applyArgs) checkBeside() error {
	option := ""
	switch {
	case a.refreshOnly, a.offline():
		option = a.scoping.given()
	case a.keep:
		option = "-prune=false"
	case a.maxDestroy != nil:
		option = "-max-destroy"
	}
	if option != "" {
		return fmt.Errorf("%s cannot be used while a watch leads here: end the watch first", option)
	}
	for _, sel := range slices.Concat(a.targets, a.excludes) {
		if sel.Role != "" && a.destroy {
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
	if stored, err := r.Store.Read(ctx); err != nil || r.args.destroy && stored.Serial == 0 {
		return r.fail("Cannot ask the watch", cmp.Or(err, fmt.Errorf("%s (pid %d) has only just begun, and may be about to start jobs: try again", leader.Who, leader.PID)))
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

// followWatch asks for an approved plan, and waits for the outcome of each request.
func (r *applyRun) followWatch(ctx context.Context, leader *state.LockInfo, facts *view.PlanFacts) int {
	fmt.Fprintf(r.streams.Out, "%s (pid %d) watches this directory and carries it out.\n", leader.Who, leader.PID)
	to, err := routeOf(ctx, r.Workspace)
	if err != nil {
		return r.fail("Cannot ask the watch", err)
	}
	r.progress.Beside()
	for _, request := range r.requestsFor(ctx, facts) {
		request, err := to.requests.Ask(ctx, request)
		if err != nil {
			return r.fail("Cannot ask the watch", notAsked(err))
		}
		shown := r.showEvents(&request)
		asked, err := r.await(ctx, r.Workspace, to, request, time.Now().Add(defaultExpiry))
		if err == nil && asked.Reply.State == job.Done && request.Verb == job.AskDestroy {
			err = r.awaitRemoval(ctx, request.On, facts.Input.Records, to.poll)
		}
		shown()
		switch {
		case errors.Is(err, errExpired):
			return r.fail(hasExpired, err)
		case err != nil:
			return r.fail("The outcome is not known", fmt.Errorf("%w. The request stays: eltrain requests %s shows what becomes of it", err, request.ID))
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

// showEvents shows what happens to the jobs of a request, if the master's journal is in this directory. end stops that, once it has
// shown what there is.
func (r *applyRun) showEvents(asked *job.Request) (end func()) {
	journal, next, screen := state.Reader{Dir: workspace.JournalDirectory}, uint64(0), r.view()
	show := eachNotice(func(n job.Notice) error {
		next = n.Seq + 1
		about, err := job.ParseSelector(n.Address)
		if err == nil && !n.Time.Before(asked.At) && slices.ContainsFunc(asked.On, about.Overlaps) {
			screen.Noticed(n)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { journal.Follow(ctx, 0, show) }) // an error leaves lines out: the outcome is known without them
	return func() {
		cancel()
		following.Wait()
		journal.Read(next, show)
	}
}

// requestsFor returns what to ask for.
func (r *applyRun) requestsFor(ctx context.Context, facts *view.PlanFacts) (all []job.Request) {
	now := time.Now()
	ask := func(one job.Request) {
		if one.At, one.Expires = now, now.Add(defaultExpiry); len(one.On) > 0 {
			all = append(all, one)
		}
	}
	if r.args.destroy {
		ask(job.Request{Verb: job.AskDestroy, On: removed(facts)})
		return all
	}
	files := apply.Files{Jobs: facts.Input.Jobs, Blocks: facts.Input.Blocks}
	scope := plan.Scope{Targets: r.args.targets, Excludes: r.args.excludes}.Named(files.Jobs, facts.Input.Records)
	apply := job.Request{Verb: job.AskApply, Files: files.Digest(), Commit: workspace.Commit(ctx, r.Config)}
	for i := range files.Jobs {
		name := files.Jobs[i].Name
		if _, destroyed := facts.Plan.Destroyed[name]; scope.Touches(name) && !destroyed {
			apply.On = append(apply.On, job.Selector{Job: name})
		}
	}
	ask(apply)
	var replaced []job.Selector
	for _, c := range facts.Input.Scope.Replace {
		replaced = append(replaced, job.Selector{Job: c.Slot.Job, Role: c.Slot.Role, Ranges: [][2]int{{c.Slot.Index, c.Slot.Index}}})
	}
	ask(job.Request{Verb: job.AskRestart, On: replaced})
	return all
}

// removed returns the recorded jobs that a plan removes.
func removed(facts *view.PlanFacts) (on []job.Selector) {
	for i := range facts.Plan.Changes {
		sel := job.Selector{Job: facts.Plan.Changes[i].Job}
		same := func(o job.Selector) bool { return o.Job == sel.Job }
		if facts.Input.Records[sel.Job] != nil && !slices.ContainsFunc(on, same) {
			on = append(on, sel)
		}
	}
	slices.SortFunc(on, func(a, b job.Selector) int { return strings.Compare(a.Job, b.Job) })
	return on
}

// awaitRemoval waits until none of the jobs is recorded: until their providers have removed what belonged to them.
func (r *applyRun) awaitRemoval(ctx context.Context, of []job.Selector, before job.Records, poll time.Duration) error {
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
		case <-time.After(poll):
		}
	}
}
