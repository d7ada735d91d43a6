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
	"github.com/eltrain/eltrain/cmd/foreground"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/garbage"
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
	fs.rest = &a.program.Command
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

func (a *runArgs) take(_ *session, others []string) (err error) {
	command := a.program.Command
	switch {
	case a.all && a.detach:
		return errors.New("-all cannot be used with -detach, which shows no output")
	case command != nil && len(command) == 0:
		return errors.New("a command is missing after --")
	case command != nil && len(others) > 0:
		return fmt.Errorf("run takes either jobs of the files or a command: %q is one argument too many", others[0])
	case command == nil && a.given != "":
		return fmt.Errorf("%s needs a command: write run %s -- COMMAND. Jobs of the files have it there", a.given, a.given)
	case command != nil && a.given != "" && importer.IsLauncher(command):
		return fmt.Errorf("%s cannot be used with a launcher: use the options of %s", a.given, command[0])
	}
	if a.on, err = selectors(others); err != nil {
		return err
	}
	for _, sel := range a.on {
		if sel.Role != "" {
			return fmt.Errorf("%s: only whole jobs can be run", sel)
		}
	}
	return nil
}

func runCommand() *command {
	return taking(command{
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
	}, manyArguments, func(s *session, a *runArgs) int { return s.foreground(*a) })
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
	defer garbage.Master.Set(s.getenv)()
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
	if err := foreground.Narrow(cfg, on); err != nil {
		s.fail("Cannot run", err)
		return false
	}
	return true
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
	run := foreground.New(foreground.Options{
		Master: master.Options{Directory: &r.dir, Workspace: r.Workspace, Leads: func() {}, Diagnose: r.diagnose, Redactor: &r.redactor, Version: version, Log: r.log},
		Lock:   r.lock, Detach: r.args.detach, All: r.args.all, Out: r.redactor.Output(r.streams.Out), Progress: r.progress,
	}, setup)
	last, err := run.Lead(ctx)
	if err != nil {
		r.unlock(r.lock)
		return r.endedEarly(ctx, err, run)
	}
	if r.args.detach {
		r.unlock(r.lock)
		return r.detach(ctx, run.Jobs(), last)
	}
	code := exitInterrupted
	if run.Ended() {
		failed := run.NotSucceeded()
		r.showFailed(failed)
		code = foreground.ExitCode(failed)
	}
	switch removed, err := run.Remove(); {
	case err != nil:
		r.diagnose(view.Caution("Not everything was removed", view.Explain(workspace.MakeRoom(err))+". eltrain status shows what is left, eltrain destroy removes it."))
	case removed && !run.Ended():
		r.progress.Destroyed()
	}
	r.unlock(r.lock)
	if err := run.End(); err != nil {
		r.diagnose(view.Caution("Some of the output is missing", view.Explain(err)))
	}
	return code
}

// showFailed shows the jobs that have not succeeded.
func (r *jobsRun) showFailed(failed []*job.Record) {
	for _, record := range failed {
		why := cmp.Or(view.Failure(record, &r.redactor), fmt.Sprintf("It is %s.", record.Phase))
		r.diagnose(view.Problem(fmt.Sprintf("job.%s has not succeeded", record.Spec.Name), why))
	}
}

// setup plans the run. It shows an error and returns ok false if the jobs are there already, or if one can never run.
func (r *jobsRun) setup(ctx context.Context) (setup apply.Setup, ok bool) {
	a := planning{Intent: foreground.Intent(r.args.detach), vars: r.args.vars}
	stored, err := r.Store.Read(ctx)
	if err != nil {
		r.fail("Cannot read the state", err)
		return setup, false
	}
	if err := foreground.CheckAbsent(&stored, r.Config.Jobs); err != nil {
		r.fail("Cannot run", err)
		return setup, false
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

// endedEarly reports an error of leading.
func (r *jobsRun) endedEarly(ctx context.Context, err error, run *foreground.Run) int {
	run.End()
	var start *master.StartError
	switch {
	case errors.As(err, &start) && ctx.Err() != nil:
		return r.fail(runInterrupted, errNothingStarted)
	case errors.As(err, &start):
		return r.fail(start.Summary, start.Err)
	}
	return r.fail("Run ended early", workspace.MakeRoom(fmt.Errorf("%w. What it has started keeps running: eltrain status shows it, eltrain destroy ends it", err)))
}

// detach reports what a run leaves.
func (r *jobsRun) detach(ctx context.Context, jobs []string, last plan.Plan) int {
	if ctx.Err() != nil {
		return r.fail(runInterrupted, errors.New("what it has started keeps running: eltrain status shows it, eltrain destroy ends it"))
	}
	code := exitDone
	status := view.Status(view.Facts{Records: last.Records, Waits: last.Waits}, &r.redactor)
	running := slices.DeleteFunc(slices.Clone(jobs), func(name string) bool { return last.Records[name] != nil && last.Records[name].Phase.Ended() })
	for _, j := range status.Jobs {
		if name := strings.TrimPrefix(j.Address, "job."); slices.Contains(jobs, name) && isUnhealthy(&j, last.Records[name]) {
			r.diagnose(view.Problem(fmt.Sprintf("%s is %s", j.Address, j.Phase), strings.Join(j.Reasons, "\n")))
			code = exitError
		}
	}
	if len(running) > 0 {
		fmt.Fprintf(r.streams.Out, "job.%s: started, and left without a master: nothing heals or scales it. eltrain logs -f shows its output, eltrain destroy ends it.\n", strings.Join(running, ", job."))
	}
	return code
}
