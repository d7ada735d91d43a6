package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/garbage"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
)

type applyArgs struct {
	planning
	formats
	autoApprove bool
	input       bool
	parallelism int
	planFile    string // a saved plan
	prune       bool
	listen      string
	timestamps  *bool // nil if not given

	detailedExitCode bool
}

func (a *applyArgs) declareRun(fs *flags) {
	fs.BoolVar(&a.autoApprove, "auto-approve", false, "Do not ask for approval.")
	fs.BoolVar(&a.input, "input", true, "Do not prompt; fail if input is needed.")
	fs.addressVar(&a.listen, "listen", "Listen on `ADDRESS`, such as 127.0.0.1:7000, instead of service { listen }.")
	fs.waitVar(&a.lockTimeout, "lock-timeout", "Wait up to `DURATION`, such as 30s, for the state's lock.")
	fs.IntVar(&a.parallelism, "parallelism", 0, "Start, and stop, up to `N` slots at once. Default: the provider's limit, 10 locally.")
	fs.BoolFunc("timestamps", "Begin each line with the time. Default of a watch whose output is no terminal.", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("write true or false")
		}
		a.timestamps = &on
		return nil
	})
	a.formats.declare(fs)
	a.planning.declare(fs)
}

func (a *applyArgs) declare(fs *flags) {
	fs.BoolVar(&a.Destroy, "destroy", false, "Plan to destroy all jobs.")
	fs.BoolVar(&a.detailedExitCode, "detailed-exitcode", false, "Exit with 2 instead of 0 if there are changes.")
	fs.Func("max-destroy", "If the files would remove or replace more than `N` slots at once, keep their jobs unchanged and report them. No limit by default.", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errors.New("write -max-destroy=N with a number of slots from 0")
		}
		a.MaxDestroy = &n
		return nil
	})
	declarePrune(fs, &a.prune)
	fs.BoolVar(&a.Watch, "watch", false, "Run until interrupted: apply changes of the files, heal, scale.")
	fs.Func("until", "`WHEN` a watch ends by itself: done, once all jobs have ended.", func(text string) error {
		if text != "done" {
			return errors.New("write -until=done")
		}
		a.UntilEnded = true
		return nil
	})
	a.declareRun(fs)
	a.declareRest(fs, "Only record what differs from what was last applied. Nothing that is running changes.")
}

func (a *applyArgs) take(s *session, others []string) error {
	s.compact = a.compact
	if len(others) > 0 {
		a.planFile = others[0]
		return a.checkSaved()
	}
	if err := a.checkPrune(a.prune); err != nil {
		return err
	}
	if a.Destroy && a.MaxDestroy != nil {
		return errors.New("-max-destroy cannot be used with -destroy, which removes everything")
	}
	if err := a.checkScope(a.Destroy); err != nil {
		return err
	}
	if option := a.limit(); a.Watch && option != "" {
		return fmt.Errorf("%s cannot be used with -watch, which applies everything in the files", option)
	}
	if a.UntilEnded && !a.Watch {
		return errors.New("-until=done needs -watch: a plain apply ends by itself")
	}
	if a.Watch && a.detailedExitCode {
		return errors.New("-detailed-exitcode cannot be used with -watch")
	}
	if a.Refresh && a.MaxDestroy != nil {
		return errors.New("-max-destroy cannot be used with -refresh-only, which removes nothing")
	}
	if a.Watch && a.Destroy {
		return errors.New("-destroy cannot be used with -watch: a destroy ends when nothing is left")
	}
	a.Keep = !a.prune
	// A restarted watch, by a supervisor for example, must not give a failed job a new budget.
	a.Rerun = !a.Destroy && !a.Watch
	return a.check(s)
}

// destroyArgs are the arguments of destroy: those of apply that do not concern what the files declare.
type destroyArgs struct{ applyArgs }

func (a *destroyArgs) declare(fs *flags) { a.declareRun(fs) }

func (a *destroyArgs) take(s *session, _ []string) error {
	a.Destroy = true
	s.compact = a.compact
	if err := a.checkScope(true); err != nil {
		return err
	}
	return a.check(s)
}

// checkSaved rejects the flags that would change a saved plan, which contains all decisions and was approved in review.
func (a *applyArgs) checkSaved() error {
	switch {
	case len(a.vars) > 0:
		return errors.New("-var and -var-file cannot be used with a saved plan: its variables are set. Plan again to change them")
	case a.Destroy:
		return errors.New("-destroy cannot be used with a saved plan: make one with eltrain plan -destroy -out=FILE")
	case a.limit() != "":
		return fmt.Errorf("%s cannot be used with a saved plan: its scope is set. Plan again with that flag and -out", a.limit())
	case a.Watch:
		return errors.New("-watch cannot be used with a saved plan: a watch follows the files")
	case a.MaxDestroy != nil:
		return errors.New("-max-destroy cannot be used with a saved plan: what it removes was approved")
	case !a.prune:
		return errors.New("-prune=false cannot be used with a saved plan: plan again with that flag and -out")
	}
	return a.checkRun()
}

// checkRun rejects invalid options, with a saved plan or without.
func (a *applyArgs) checkRun() error {
	if a.parallelism < 0 {
		return errors.New("invalid -parallelism: write a number from 1, or 0 for as many as the provider allows")
	}
	if a.json && a.timestamps != nil && *a.timestamps {
		return errors.New("-timestamps cannot be used with -json, whose lines have @timestamp")
	}
	return a.formats.check()
}

// stamp begins the lines of both outputs with the time if that is asked for. A watch does it by default where its output is
// kept: nobody was there to see when a line came. JSON has the time anyway.
func (s *session) stamp(a *applyArgs) {
	on := a.Watch && !s.streams.Out.Terminal
	if a.timestamps != nil {
		on = *a.timestamps
	}
	if !on || a.json {
		return
	}
	s.streams.Out, s.streams.Err = view.Timestamped(s.streams.Out, time.Now), view.Timestamped(s.streams.Err, time.Now)
}

func (a *applyArgs) check(s *session) error {
	if err := a.checkRun(); err != nil {
		return err
	}
	if !a.autoApprove && a.json {
		return errors.New("-json cannot prompt for approval: apply a saved plan, or use -auto-approve")
	}
	if !a.autoApprove && !a.input {
		return errors.New("-input=false cannot prompt for approval: review eltrain plan, then use -auto-approve")
	}
	return nil
}

func applyCommand() *command {
	return taking(command{
		name: "apply", usage: "[options] [FILE]",
		synopsis: "Start, change and stop jobs as the files say",
		about: `Shows the plan, asks for approval, and carries it out until nothing is left to do and all worlds have
formed. Training continues after that, but nothing heals it until the next apply.

With the FILE of a saved plan (eltrain plan -out=FILE) it applies that plan without asking. If the state, or anything
that the plan touches, has changed since, it changes nothing and exits with 1. Other changes do not matter, but it
starts only what the plan shows or the state declares. Sensitive values are not in the file: set them as for the plan.

With -watch it runs until interrupted and is the jobs' master: it applies changes of the files, heals failures, and
grows and shrinks elastic jobs with the available capacity. If a file has an error, the last valid configuration stays
in effect, and its jobs are Degraded until the file is fixed. The same if reading the files takes more than 512MiB of
memory or 20 seconds, for which it has a process of its own. A plain apply starts a failed job again if there is room
for it, a watch only after an edit that replaces its slots. A changed eltrain block takes effect at the next start.

Without -watch an elastic role gets the replicas that it is declared with, as the plan shows, and does not grow.

Jobs that are no longer declared are stopped. -prune=false keeps them. -max-destroy=N keeps jobs unchanged, and
Degraded, if a change of the files would remove or replace more than N slots of all jobs at once. Healing and scaling
do not count.

With -until=done it ends once every job has ended: 0 if all have succeeded.

With -watch and a long -lock-timeout, such as 8760h, it is a standby for the master that holds the state's lock: its
service answers /healthz but not yet /readyz, and when it gets the lock it reads the files and the state again. If a
provider cannot be reached for 30 seconds at the start, it exits with an error, also with -watch: run it under a
supervisor that restarts it. If a provider is lost later, it waits.

The first interrupt (Ctrl-C or SIGTERM) finishes what is in flight and leaves the rest running; the second exits at
once.`,
		exits: []string{
			"All jobs are running as configured or have succeeded, or a watch was interrupted. With -until=done: all have succeeded.",
			"They are not, or an error.",
			"With -detailed-exitcode: something was done.",
		},
	}, 1, func(s *session, a *applyArgs) int { return s.apply(*a) })
}

func destroyCommand() *command {
	return taking(command{
		name: "destroy", usage: "[options]",
		synopsis: "Stop all jobs of this directory",
		about: `Shows what would be stopped, asks for approval, and stops it in reverse start order. Logs and checkpoints
stay. Short for apply -destroy.`,
		exits: []string{
			"Everything is destroyed.",
			"Something is left, or an error.",
		},
	}, 0, func(s *session, a *destroyArgs) int { return s.apply(a.applyArgs) })
}

// operation names a run in the state's lock.
func (a *applyArgs) operation() string {
	switch {
	case a.Destroy:
		return "destroy"
	case a.Watch:
		return view.WatchOperation
	}
	return "apply"
}

// title names a run in messages that say it ended early.
func (a *applyArgs) title() string {
	if a.Destroy {
		return "Destroy"
	}
	return "Apply"
}

// apply carries out the files or a saved plan.
func (s *session) apply(a applyArgs) int {
	defer garbage.Master.Set(s.getenv)()
	s.stamp(&a)
	ctx, stop := s.interruptible()
	defer stop()
	ctx, release := s.detached(ctx)
	defer release()
	finish, err := s.speak(ctx, a.formats, linesTimeout)
	if err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	carryOut := s.applyFiles
	if a.planFile != "" {
		carryOut = s.applySaved
	}
	code := carryOut(ctx, a)
	if err := finish(); err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	return code
}

// applyFiles shows the plan, has it approved, and carries it out under the state's lock.
func (s *session) applyFiles(ctx context.Context, a applyArgs) int {
	if a.Watch && !s.awaitGit(ctx) {
		return s.interruptedEarly(a, "while git was changing the files")
	}
	if a.Watch {
		a.files = s.dir.Child(a.vars)
	}
	cfg, ok := s.readFor(a.planning)
	if !ok {
		return exitError
	}
	d, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	defer d.Close()
	r := newApply(s, d, a)
	defer r.master.Close()
	facts, untouched, err := s.untouched(ctx, *cfg, a)
	switch {
	case err != nil && ctx.Err() != nil:
		return s.interruptedEarly(a, "while observing what is running")
	case err != nil:
		return s.fail("Planning failed", err)
	case untouched:
		s.showPreview(view.NewPlan(facts, &s.redactor))
		fmt.Fprintln(s.streams.Out)
		return r.conclude(ctx, facts.Plan, nil)
	}
	leader, err := r.leaderBeside(ctx)
	switch {
	case err != nil:
		return s.fail("Cannot lock the state", err)
	case leader != nil:
		return r.askWatch(ctx, leader)
	}
	if err := r.master.Attend(); err != nil {
		return s.fail("Cannot start the elastic training service", err)
	}
	lock, waited, err := s.lock(ctx, d.Store, a.operation(), a.lockTimeout)
	switch {
	case err != nil && ctx.Err() != nil:
		return s.interruptedEarly(a, "while waiting for the state's lock")
	case err != nil:
		return s.fail("Cannot lock the state", err)
	}
	defer s.unlock(lock)
	if waited && a.Watch && !s.awaitGit(ctx) {
		return s.interruptedEarly(a, "while git was changing the files")
	}
	if waited && !s.reread(d, a.planning) || !a.offline() && !s.connect(d) {
		return exitError
	}
	if a.Refresh {
		return s.refreshState(ctx, d, a, lock, nil)
	}

	facts, err = r.planAtStart(ctx)
	if err == nil {
		err = a.CheckAddresses(facts.Input, d.Config)
	}
	switch {
	case errors.Is(err, errReported):
		return exitError
	case err != nil && ctx.Err() != nil:
		return s.interruptedEarly(a, "while observing what is running")
	case errors.As(err, new(*planfile.StaleError)):
		return s.notApplied(a, err)
	case err != nil:
		return s.fail("Planning failed", err)
	}
	if !a.Watch && s.refused(d.Config, facts.Plan.Refusals) {
		return exitError
	}
	if !r.approvedPlan(ctx, &facts) {
		return exitError
	}
	if a.offline() {
		if !s.connect(d) {
			return exitError
		}
		if err := s.recheck(ctx, d, r.args, r.saved); err != nil {
			return s.notApplied(a, err)
		}
	}
	shown := facts.Plan
	shown.Waits = slices.Concat(shown.Waits, plan.Left(&facts.Input))
	r.progress.Shown(&shown)
	r.shown, r.withheld = shown.Waits, facts.Input.Withheld
	return r.carryOut(ctx, lock)
}

// approvedPlan shows the plan and asks for approval if needed. It reports what is not approved.
func (r *applyRun) approvedPlan(ctx context.Context, facts *view.PlanFacts) bool {
	model := view.NewPlan(*facts, &r.redactor)
	r.showPreview(model)
	r.diagnose(slices.Concat(r.held(), r.args.Cautions(facts.Input), preview.Forgetting(&facts.Plan), preview.Unsaved(&facts.Plan), preview.Misnamed(r.Config, facts))...)
	if model.Applyable && !r.args.autoApprove {
		yes, err := r.approved(ctx, r.args.question())
		if err != nil {
			r.fail("Approval not received", err)
			return false
		}
		if !yes {
			fmt.Fprintln(r.streams.Out, r.args.title()+" cancelled.")
			return false
		}
	}
	fmt.Fprintln(r.streams.Out)
	return true
}

// untouched reports whether a destroy has nothing to do because nothing was ever applied here and nothing runs. It takes no
// lock, since that would create files, and does not change cfg.
//
// It returns only errors of observing what runs, so that the caller does not wait for the same timeout twice. The run that
// follows reports all others.
func (s *session) untouched(ctx context.Context, cfg lang.Config, a applyArgs) (facts view.PlanFacts, untouched bool, err error) {
	if !a.Destroy || a.limit() != "" {
		return facts, false, nil
	}
	d, ok := s.openState(&cfg)
	if !ok {
		return facts, false, nil
	}
	d.ReadOnly = true
	if stored, err := d.Store.Read(ctx); err != nil || stored.Serial > 0 {
		return facts, false, nil
	}
	if holder, err := d.Store.Holder(ctx); err != nil || holder != nil {
		return facts, false, nil // another run has yet to write its first state
	}
	if err := d.Connect(); err != nil {
		return facts, false, nil
	}
	defer d.Close()
	facts, err = s.preview(ctx, d, a.planning)
	return facts, err == nil && len(facts.Plan.Changes) == 0 && len(facts.Plan.Waits) == 0, err
}

// awaitGit waits until git has finished writing the files, so that half a checkout is not applied. It returns false
// after an interrupt.
func (s *session) awaitGit(ctx context.Context) bool {
	return apply.AwaitGit(ctx, s.dir.Path, func(why job.Reason) {
		s.diagnose(view.Caution("The files are not read while they are being written", view.Sentence(why)))
	}) == nil
}

// steadyStarts bounds how often a watch plans anew at its start because the files have changed.
const steadyStarts = 5

// errReported is returned for an error that was already shown.
var errReported = errors.New("already reported")

// planAtStart is firstPlan, except that a watch believes that jobs of the state are gone from the files only once the files
// have stopped changing, as reload does. It then reads them and plans again. If no job is gone it does not wait.
func (r *applyRun) planAtStart(ctx context.Context) (view.PlanFacts, error) {
	facts, err := r.firstPlan(ctx)
	if !r.args.Watch || r.args.Keep {
		return facts, err
	}
	believed := ""
	for range steadyStarts {
		paths := r.dir.Watched(r.Config.Further())
		lost := r.lost(&facts)
		if err != nil || len(lost) == 0 || believed != "" && apply.Fingerprint(paths...) == believed {
			return facts, err
		}
		if believed, err = apply.AwaitStill(ctx, paths, func() { r.diagnose(goneFromFiles(lost)) }); err != nil {
			return facts, err
		}
		if !r.awaitGit(ctx) {
			return facts, ctx.Err()
		}
		if !r.reread(r.Workspace, r.args.planning) {
			return facts, errReported
		}
		r.Workspace.Close() // the files may declare others by now
		if !r.connect(r.Workspace) {
			return facts, errReported
		}
		facts, err = r.firstPlan(ctx)
	}
	return facts, errors.New("jobs are no longer in the files, and the files change each time they are read")
}

// lost returns the names of the jobs that the plan destroys because they are no longer in the files.
func (r *applyRun) lost(facts *view.PlanFacts) []string {
	return slices.DeleteFunc(workspace.Lost(workspace.DeclaredAs(facts.Input.Records), r.Config), func(name string) bool {
		return !facts.Input.Withheld[name].IsZero() || slices.Contains(facts.Plan.Kept, name)
	})
}

// goneFromFiles says why a start waits. lost has names of jobs.
func goneFromFiles(lost []string) view.Diagnostic {
	return view.Caution("Jobs of the state are not in the files", workspace.SeveralJobs(lost)+
		" would be destroyed. In case a checkout is in progress, eltrain waits until the files have not changed for some seconds.")
}

// firstPlan makes the plan to be approved. A plan made without asking the providers is carried out like a saved one: only if
// the objects that it changes are as it assumed.
func (r *applyRun) firstPlan(ctx context.Context) (view.PlanFacts, error) {
	if !r.args.offline() {
		return r.preview(ctx, r.Workspace, r.args.planning)
	}
	facts, base, err := r.planOffline(ctx, r.Workspace, r.args.planning)
	if err != nil {
		return facts, err
	}
	r.saved = &planfile.File{Lineage: base.Lineage, Serial: base.Serial, Facts: facts, UIDs: plan.NewUIDs(&facts.Input, &facts.Plan)}
	r.args.UIDs = r.saved.UIDs
	stored, err := r.Store.Read(ctx)
	if err == nil {
		err = r.saved.CheckState(stored.Lineage, stored.Serial)
	}
	return facts, err
}

func (s *session) showPreview(model *view.PlanModel) {
	view.WritePlan(s.streams.Out, model)
	if s.stream != nil {
		s.stream.Plan(model)
	}
}

// interruptedEarly ends a run that has not done anything. For a watch that is no failure.
func (s *session) interruptedEarly(a applyArgs, when string) int {
	if a.Watch {
		fmt.Fprintf(s.streams.Out, "Interrupted %s.\n", when)
		return exitDone
	}
	return s.fail(a.title()+" was interrupted", fmt.Errorf("it was interrupted %s; nothing was done", when))
}

func (a *applyArgs) question() terminal.Question {
	if a.Destroy {
		return destroyQuestion
	}
	return applyQuestion
}
