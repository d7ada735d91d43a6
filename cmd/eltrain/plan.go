package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

// planning are the options that plan and apply share.
type planning struct {
	destroy     bool
	keep        bool // leave recorded jobs alone that are not declared
	rerun       bool // start jobs anew that have failed
	vars        assignments
	lockTimeout time.Duration
	input       bool
}

func (a *planning) declare(fs *flags) {
	fs.BoolVar(&a.input, "input", true, "Ask nothing. What would have to be asked is an error.")
	a.vars.declare(fs)
}

type planArgs struct {
	planning
	detailedExitCode bool
}

func (a *planArgs) declare(fs *flags) {
	fs.BoolVar(&a.destroy, "destroy", false, "Plan the end of all jobs.")
	fs.BoolVar(&a.detailedExitCode, "detailed-exitcode", false, "Exit with 0 if there are no changes, 1 after an error, 2 if there are changes.")
	fs.DurationVar(&a.lockTimeout, "lock-timeout", 0, "While an apply is at work, wait up to `DURATION`, as 30s, for it to end. A plan takes no lock.")
	a.planning.declare(fs)
}

func planCommand() *command {
	return &command{
		name: "plan", usage: "[options]",
		synopsis: "Show what apply would change, and why",
		about: `Compares what the files say with what runs, and shows what apply would do about the difference, each
change with its reason. What has to wait for capacity is listed with what is wanted and what is available.
Nothing is changed.

Exit code 0 means done and 1 an error; see also -detailed-exitcode.`,
		declare: new(planArgs).declare,
		run:     runPlan,
	}
}

func runPlan(s *session, args []string) int {
	var a planArgs
	if _, err := s.parse(newFlags("plan", a.declare), args, 0); err != nil {
		return s.misused("plan", err)
	}
	a.rerun = !a.destroy
	ctx, stop := s.interruptible()
	defer stop()
	cfg, ok := s.readFor(a.planning)
	if !ok {
		return exitError
	}
	d, ok := s.open(cfg)
	if !ok {
		return exitError
	}
	defer d.close(s)
	if err := d.awaitApply(ctx, a.lockTimeout); err != nil {
		return s.fail("The state's lock cannot be seen", err)
	}
	p, err := d.preview(ctx, s, a.planning)
	if err != nil {
		return s.fail("Planning failed", err)
	}
	view.Plan(s.streams.Out, d.redactor, &p)
	if a.detailedExitCode && len(p.Changes) > 0 {
		return exitChanges
	}
	return exitDone
}

// readFor reads the configuration that is planned for. To destroy, its files need not be valid: what is wrong
// with them must not keep anything running.
func (s *session) readFor(a planning) (cfg *lang.Config, ok bool) {
	if !a.destroy {
		return s.readValid(a.vars)
	}
	cfg = s.readAnyway(a.vars)
	cfg.Jobs = nil
	return cfg, true
}

// lockPoll is how often it is looked whether an apply has ended.
const lockPoll = 200 * time.Millisecond

// awaitApply waits while an apply that will end holds the lock, for timeout at most. What it has done by
// then is what is planned with.
func (d *directory) awaitApply(ctx context.Context, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		holder, err := d.store.Holder(ctx)
		if err != nil || holder == nil || view.Watching(holder) || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// previewTimeout bounds the look at what runs. Lists of 10,000 pods come within some seconds; later than this a
// provider cannot be reached, and its own words on it are worth more than waiting on.
const previewTimeout = 30 * time.Second

// preview is the plan for the directory as it is now.
func (d *directory) preview(ctx context.Context, s *session, a planning) (plan.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, previewTimeout)
	defer cancel()
	r, err := apply.New(ctx, d.reconciling(s, a))
	if err != nil {
		return plan.Plan{}, err
	}
	return r.Preview(ctx, time.Now())
}

// reconciling are the parts of a reconciler that only looks.
func (d *directory) reconciling(s *session, a planning) apply.Options {
	return apply.Options{
		Jobs: d.config.Jobs, Store: d.store, Providers: d.providers, View: view.Quiet{},
		NewUID: newUID, Destroy: a.destroy, Keep: a.keep, Rerun: a.rerun, Log: s.log,
	}
}

// newUID gives another identifier each time: a job that is declared again is another job, though its name is
// the same, and the master may be the same.
func newUID(string) string { return uuid.NewString() }
