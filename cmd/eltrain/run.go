package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/logs"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/lang/importer"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

type runArgs struct {
	all     bool
	detach  bool
	vars    assignments
	wait    time.Duration  // for the state's lock
	on      []job.Selector // jobs of the files; none for all
	program importer.Plain // what follows "--", instead of jobs of the files; without a Command there is none
	given   string         // the first flag that is about the program; "" if none was given
}

func (a *runArgs) declare(fs *flags) {
	fs.BoolVar(&a.all, "all", false, "Show the output of all slots, each line with its slot, instead of that of rank 0.")
	fs.BoolVar(&a.detach, "detach", false, "Start the jobs, and leave them running without anything that heals them.")
	a.program.Min, a.program.Max = 1, 1
	about := func(name, usage string, set func(string) error) {
		fs.Func(name, usage, func(text string) error {
			if a.given == "" {
				a.given = "-" + name
			}
			return set(text)
		})
	}
	about("n", "Run COMMAND in `N` slots or, as MIN:MAX, in as many as there is room for. Default: 1.", func(text string) (err error) {
		a.program.Min, a.program.Max, err = slotCounts(text)
		return err
	})
	about("nproc-per-node", "Start `N` training processes in each slot, as torchrun does. Default: 1.", func(text string) (err error) {
		if a.program.Processes, err = strconv.Atoi(text); err != nil || a.program.Processes < 1 {
			return errors.New("write a number from 1")
		}
		return nil
	})
	about("max-restarts", "Fail once COMMAND would have to be restarted more than `N` times. Default: the language's, 10 within 24h.", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return errors.New("write a number from 0")
		}
		a.program.Restarts = &n
		return nil
	})
	about("name", "`NAME` of the job that runs COMMAND. Default: that of its script.", func(text string) error {
		if !job.ValidName(text) {
			return errors.New("write letters, digits, - and _, at most 63")
		}
		a.program.Name = text
		return nil
	})
	fs.waitVar(&a.wait, "lock-timeout", "Wait up to `DURATION`, such as 30s, for the state's lock.")
	a.vars.declare(fs)
}

// slotCounts parses N or MIN:MAX.
func slotCounts(text string) (least, most int, err error) {
	low, high, elastic := strings.Cut(text, ":")
	if !elastic {
		high = low
	}
	least, lowErr := strconv.Atoi(low)
	most, highErr := strconv.Atoi(high)
	if lowErr != nil || highErr != nil || least < 1 || most < least {
		return 0, 0, errors.New("write a number of slots from 1, or MIN:MAX such as 2:4")
	}
	return least, most, nil
}

// parseRun parses what precedes "--"; the rest is the command.
func parseRun(s *session, args []string) (runArgs, error) {
	var a runArgs
	at := slices.Index(args, "--")
	var command []string
	if at >= 0 {
		args, command = args[:at], args[at+1:]
	}
	others, err := s.parse(newFlags("run", a.declare), args, manyArguments)
	a.program.Command = command
	switch {
	case err != nil:
		return a, err
	case a.all && a.detach:
		return a, errors.New("-all cannot be used with -detach, which shows no output")
	case at >= 0 && len(command) == 0:
		return a, errors.New("a command is missing after --")
	case at >= 0 && len(others) > 0:
		return a, fmt.Errorf("run takes either jobs of the files or a command: %q is one argument too many", others[0])
	case at < 0 && a.given != "":
		return a, fmt.Errorf("%s needs a command: write run %s -- COMMAND. Jobs of the files have it there", a.given, a.given)
	case at >= 0 && a.given != "" && importer.IsLauncher(command):
		return a, fmt.Errorf("%s cannot be used with a launcher: use the options of %s", a.given, command[0])
	}
	if a.on, err = selectors(others); err != nil {
		return a, err
	}
	for _, sel := range a.on {
		if sel.Role != "" {
			return a, fmt.Errorf("%s: only whole jobs can be run", sel)
		}
	}
	return a, nil
}

func runCommand() *command {
	return &command{
		name: "run", usage: "[options] [ADDRESS...] [-- COMMAND [args]]",
		synopsis: "Run jobs in the foreground until they end",
		about: `Runs the jobs that the ADDRESSes name, or all jobs of the files, in the foreground: heals and scales them as a watch
does, shows the output of rank 0, and ends once all of them have ended, with the training's exit code. Then nothing of
them is left but their logs. Progress goes to the standard error.

With a COMMAND it runs that, as one job with the language's defaults, in the working directory and on this machine. That
needs no files; if there are any, their eltrain and provider blocks apply. The command line of torchrun or dlrover-run
becomes the job that eltrain import makes of it.

It does not follow edits of the files, and does not take over jobs that are in the state already. status, logs, events
and the operators' verbs can be used beside it.

The first interrupt (Ctrl-C or SIGTERM) stops and removes what it started; the second exits at once and leaves it.`,
		exits: []string{
			"All jobs have succeeded; with -detach, they were started.",
			"From 1: the exit code of the training, of several jobs that of the one that failed first; 128+N if signal N killed it, 126 or 127 if it could not be started, 130 after an interrupt; 1 is also any other error, which is shown.",
		},
		declare: new(runArgs).declare,
		run: func(s *session, args []string) int {
			a, err := parseRun(s, args)
			if err != nil {
				return s.misused("run", err)
			}
			return s.foreground(a)
		},
	}
}

const interruptedRun = `
Interrupt received.
Please wait for eltrain to stop what it started.
A second interrupt exits at once and leaves it running.

`

const runInterrupted = "Run was interrupted"

var errNothingStarted = errors.New("nothing was started")

// foreground runs jobs.
func (s *session) foreground(a runArgs) int {
	defer s.bound(masterGarbage)()
	if !a.detach {
		s.interrupted = interruptedRun
	}
	ctx, stop := s.interruptible()
	defer stop()
	ctx, release := s.detached(ctx)
	defer release()
	if a.program.Command != nil && !s.declareProgram(&a) {
		return exitError
	}
	reading := planning{vars: a.vars}
	cfg, ok := s.readFor(reading)
	s.diagnose(s.held()...)
	if !ok || !s.narrow(cfg, a.on) {
		return exitError
	}
	w, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	defer w.Close()
	lock, waited, err := s.lock(ctx, w.Store, "run", a.wait)
	switch {
	case err != nil && ctx.Err() != nil:
		return s.fail(runInterrupted, errNothingStarted)
	case err != nil:
		return s.fail("Cannot lock the state", err)
	}
	if waited && (!s.reread(w, reading) || !s.narrow(w.Config, a.on)) {
		s.unlock(lock)
		return exitError
	}
	r := &jobsRun{session: s, Workspace: w, args: a, lock: lock, progress: view.NewProgress(s.streams.Err, &s.redactor, time.Now)}
	return r.do(ctx)
}

// programFile names, in diagnostics, the file that declares the job of a command line.
const programFile = "command line.hcl"

// declareProgram declares the job of a command line, to be read with the files.
func (s *session) declareProgram(a *runArgs) (ok bool) {
	var made importer.Result
	if importer.IsLauncher(a.program.Command) {
		made = importer.CommandLine(a.program.Command)
	} else {
		made = a.program.Job()
	}
	s.diagnose(view.DiagnoseHCL(made.Diagnostics, made.Files)...)
	if made.Jobs == 0 || made.Diagnostics.HasErrors() {
		return false
	}
	a.on = []job.Selector{{Job: made.Name}}
	s.dir.Given = map[string][]byte{programFile: made.HCL}
	return true
}

// narrow leaves only the jobs that run in a configuration. It shows an error and returns ok false if they cannot.
func (s *session) narrow(cfg *lang.Config, on []job.Selector) (ok bool) {
	var err error
	if cfg.Jobs, err = chosen(cfg.Jobs, on); err != nil {
		s.fail("Cannot run", err)
		return false
	}
	cfg.Moved, cfg.Removed, cfg.Imports = nil, nil, nil // what only apply takes up
	return true
}

// chosen returns the declared jobs that selectors name; all without any.
func chosen(declared []job.Job, on []job.Selector) ([]job.Job, error) {
	if len(declared) == 0 {
		return nil, errors.New("the files declare no job")
	}
	for _, sel := range on {
		if !slices.ContainsFunc(declared, func(j job.Job) bool { return j.Name == sel.Job }) {
			var names []string
			for i := range declared {
				names = append(names, declared[i].Name)
			}
			return nil, fmt.Errorf("the files declare no job %q%s", sel.Job, view.WhatThereIs(view.DidYouMean(sel.Job, names), "There are", names))
		}
	}
	jobs := slices.DeleteFunc(slices.Clone(declared), func(j job.Job) bool {
		return len(on) > 0 && !slices.ContainsFunc(on, func(sel job.Selector) bool { return sel.Job == j.Name })
	})
	for i := range jobs {
		if jobs[i].Lifecycle.PreventDestroy {
			return nil, fmt.Errorf("job.%s has prevent_destroy, and run removes what it has started. eltrain apply -watch -until=done keeps it", jobs[i].Name)
		}
	}
	return jobs, nil
}

// jobsRun is one run of jobs, under the state's lock.
type jobsRun struct {
	*session
	*workspace.Workspace
	args     runArgs
	lock     state.Lock
	progress *view.Progress
}

// do leads the jobs until they have ended or, with -detach, until they run, and returns the exit code. Of jobs that it led nothing is
// left then. The lock is released before it waits for a slow reader of the output.
func (r *jobsRun) do(ctx context.Context) int {
	setup, ok := r.setup(ctx)
	if !ok {
		r.unlock(r.lock)
		return exitError
	}
	var jobs []string
	for i := range setup.Files.Jobs {
		jobs = append(jobs, setup.Files.Jobs[i].Name)
	}
	var leading *master.Master
	printed := logs.NewFollower(jobs, r.args.all, r.Providers, func() job.Records { return leading.Records() }, r.redactor.Output(r.streams.Out))
	shown := apply.View(view.Both{r.progress, printed})
	if r.args.detach {
		shown = r.progress
	}
	leading = r.master(shown)
	last, err := leading.Lead(ctx, r.lock, setup)
	if err != nil {
		r.unlock(r.lock)
		return r.endedEarly(ctx, err, printed)
	}
	if r.args.detach {
		r.unlock(r.lock)
		return r.detach(ctx, jobs, &last)
	}
	ended := ctx.Err() == nil || allEnded(jobs, last.Records)
	if ended {
		printed.Look(last.Records) // the last notices may have come when it had ended
		printed.Drain()
	}
	code := exitInterrupted
	if ended {
		code = r.outcome(jobs, last.Records)
	}
	r.remove(jobs, last.Records, ended)
	r.unlock(r.lock)
	if err := printed.End(); err != nil {
		r.diagnose(view.Caution("Some of the output is missing", view.Explain(err)))
	}
	return code
}

func (r *jobsRun) master(shown apply.View) *master.Master {
	return master.New(master.Options{
		Directory: &r.dir, Workspace: r.Workspace, View: shown, Leads: func() {}, Diagnose: r.diagnose, Redactor: &r.redactor, Log: r.log,
	})
}

// setup plans the run. It shows an error and returns ok false if the jobs are there already, or if one can never run.
func (r *jobsRun) setup(ctx context.Context) (setup apply.Setup, ok bool) {
	a := planning{vars: r.args.vars}
	a.Keep, a.Watch, a.UntilEnded = true, !r.args.detach, !r.args.detach
	stored, err := r.Store.Read(ctx)
	if err != nil {
		r.fail("Cannot read the state", err)
		return setup, false
	}
	for i := range r.Config.Jobs {
		if err := isThere(&stored, r.Config.Jobs[i].Name); err != nil {
			r.fail("Cannot run", err)
			return setup, false
		}
	}
	if !r.connect(r.Workspace) {
		return setup, false
	}
	facts, err := r.preview(ctx, r.Workspace, a)
	switch {
	case err != nil && ctx.Err() != nil:
		r.fail(runInterrupted, errNothingStarted)
		return setup, false
	case err != nil:
		r.fail("Planning failed", err)
		return setup, false
	case r.refused(r.Config, facts.Plan.Refusals):
		return setup, false
	}
	for _, wait := range facts.Plan.Waits {
		if wait.Never && slices.ContainsFunc(r.Config.Jobs, func(j job.Job) bool { return j.Name == wait.Job }) {
			r.fail("job."+wait.Job+" cannot run", errors.New(strings.Join(r.redactor.Sentences(wait.Reasons), " ")))
			return setup, false
		}
	}
	setup = a.Setup(r.Workspace, stored)
	setup.Files.Values = stored.Values // those of the last apply
	return setup, true
}

// isThere returns an error for a job that the state knows.
func isThere(stored *state.State, name string) error {
	record := stored.Jobs[name]
	_, destroyed := stored.Destroyed[name]
	switch {
	case destroyed:
		return fmt.Errorf("job.%s was destroyed by request, and stays so until eltrain restart job.%s or an edit of its block", name, name)
	case record == nil:
		return nil
	case record.Phase.Ended():
		return fmt.Errorf("job.%s is in the state as %s. eltrain restart job.%s runs it again there, eltrain destroy -target=job.%s removes it", name, record.Phase, name, name)
	}
	return fmt.Errorf("job.%s was started before, and is %s. eltrain logs -f job.%s shows its output, eltrain destroy -target=job.%s ends it", name, record.Phase, name, name)
}

// endedEarly reports an error of leading.
func (r *jobsRun) endedEarly(ctx context.Context, err error, printed *logs.Follower) int {
	printed.End()
	var start *master.StartError
	switch {
	case errors.As(err, &start) && ctx.Err() != nil:
		return r.fail(runInterrupted, errNothingStarted)
	case errors.As(err, &start):
		return r.fail(start.Summary, start.Err)
	}
	return r.fail("Run ended early", workspace.MakeRoom(fmt.Errorf("%w. What it has started keeps running: eltrain status shows it, eltrain destroy ends it", err)))
}

func allEnded(jobs []string, records job.Records) bool {
	return !slices.ContainsFunc(jobs, func(name string) bool { return records[name] == nil || !records[name].Phase.Ended() })
}

// outcome reports the jobs that have not succeeded, and returns the exit code of the one that failed first.
func (r *jobsRun) outcome(jobs []string, records job.Records) int {
	var ended []*job.Record
	for _, name := range jobs {
		record := records[name]
		if record == nil { // a request did that
			record = &job.Record{Spec: job.Job{Name: name}, Phase: "destroyed"}
		}
		if record.Phase != job.JobSucceeded {
			ended = append(ended, record)
		}
	}
	slices.SortStableFunc(ended, func(a, b *job.Record) int { return a.Ended.Compare(b.Ended) })
	for _, record := range ended {
		why := cmp.Or(view.Failure(record, &r.redactor), fmt.Sprintf("It is %s.", record.Phase))
		r.diagnose(view.Problem(fmt.Sprintf("job.%s has not succeeded", record.Spec.Name), why))
	}
	return exitCode(ended)
}

// exitCode returns the exit code of jobs that have not succeeded, in the order in which they ended.
func exitCode(ended []*job.Record) int {
	if len(ended) == 0 {
		return exitDone
	}
	for _, record := range ended {
		if exit := record.FailedBy(); exit != nil {
			return exit.Code
		}
	}
	return exitError
}

// remove destroys the jobs. It shows what it does if they still run, and warns about what it cannot remove.
func (r *jobsRun) remove(jobs []string, records job.Records, ended bool) {
	var there []job.Selector
	for _, name := range jobs {
		if records[name] != nil {
			there = append(there, job.Selector{Job: name})
		}
	}
	if len(there) == 0 {
		return
	}
	shown := apply.View(view.Quiet{})
	if !ended {
		shown = r.progress
	}
	var a planning
	a.Destroy, a.Scope.Targets = true, there
	ctx := context.Background() // another interrupt exits
	stored, err := r.Store.Read(ctx)
	if err == nil {
		r.Prior = stored.Values
		var last plan.Plan
		last, err = r.master(shown).Lead(ctx, r.lock, a.Setup(r.Workspace, stored))
		if err == nil && len(last.Changes) > 0 {
			err = left(last)
		}
	}
	if err != nil {
		r.diagnose(view.Caution("Not everything was removed", view.Explain(workspace.MakeRoom(err))+". eltrain status shows what is left, eltrain destroy removes it."))
	} else if !ended {
		r.progress.Destroyed()
	}
}

// detach reports what a run leaves.
func (r *jobsRun) detach(ctx context.Context, jobs []string, last *plan.Plan) int {
	if ctx.Err() != nil {
		return r.fail(runInterrupted, errors.New("what it has started keeps running: eltrain status shows it, eltrain destroy ends it"))
	}
	code := exitDone
	status := view.Status(view.Facts{Records: last.Records, Waits: last.Waits}, &r.redactor)
	running := slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return last.Records[name] != nil && last.Records[name].Phase.Ended() })
	for _, j := range status.Jobs {
		if name := strings.TrimPrefix(j.Address, "job."); slices.Contains(jobs, name) && unhealthy[j.Phase] {
			r.diagnose(view.Problem(fmt.Sprintf("%s is %s", j.Address, j.Phase), strings.Join(j.Reasons, "\n")))
			code = exitError
		}
	}
	if len(running) > 0 {
		fmt.Fprintf(r.streams.Out, "job.%s: started, and left without a master: nothing heals or scales it. eltrain logs -f shows its output, eltrain destroy ends it.\n", strings.Join(running, ", job."))
	}
	return code
}
