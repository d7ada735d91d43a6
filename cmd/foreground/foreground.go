// Package foreground runs jobs of a workspace until they have ended, shows their output meanwhile, and leaves nothing of them.
package foreground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/logs"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Narrow leaves in a configuration only the jobs that selectors name, all without any, and nothing that only an apply takes up. It
// returns an error if they cannot run so.
func Narrow(cfg *lang.Config, on []job.Selector) (err error) {
	if cfg.Jobs, err = chosen(cfg.Jobs, on); err == nil {
		cfg.Moved, cfg.Removed, cfg.Imports = nil, nil, nil
	}
	return err
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

// Intent is what a run intends: to lead the jobs until they have ended or, detached, only to start them. Other jobs stay.
func Intent(detach bool) preview.Intent {
	return preview.Intent{Intent: apply.Intent{Keep: true, Watch: !detach, UntilEnded: !detach}}
}

// CheckAbsent returns an error if the state knows one of the jobs.
func CheckAbsent(stored *state.State, jobs []job.Job) error {
	for i := range jobs {
		if err := isThere(stored, jobs[i].Name); err != nil {
			return err
		}
	}
	return nil
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

// Options are what a Run runs with.
type Options struct {
	Master   master.Options // without a view
	Lock     state.Lock
	Detach   bool      // end once the jobs run, and leave them
	All      bool      // show the output of all slots instead of that of rank 0
	Out      io.Writer // for the output
	Progress *view.Progress
}

// Run is one run of jobs, under the state's lock. After Lead it is removed, and ended.
type Run struct {
	o       Options
	setup   apply.Setup
	jobs    []string
	leading *master.Master
	printed *logs.Follower
	records job.Records // at the end of Lead
	ended   bool
}

// New starts nothing.
func New(o Options, setup apply.Setup) *Run {
	r := &Run{o: o, setup: setup}
	for i := range setup.Files.Jobs {
		r.jobs = append(r.jobs, setup.Files.Jobs[i].Name)
	}
	r.printed = logs.NewFollower(r.jobs, o.All, o.Master.Workspace.Providers, func() job.Records { return r.leading.Records() }, o.Out)
	return r
}

// Jobs are the names of the jobs.
func (r *Run) Jobs() []string { return r.jobs }

// Lead leads the jobs, and shows their output, until they have ended or ctx does. An error is a master.StartError, or says why it
// ended early.
func (r *Run) Lead(ctx context.Context) (last plan.Plan, err error) {
	shown := apply.View(view.Both{r.o.Progress, r.printed})
	if r.o.Detach {
		shown = r.o.Progress
	}
	r.leading = r.master(shown)
	if last, err = r.leading.Lead(ctx, r.o.Lock, r.setup); err != nil || r.o.Detach {
		return last, err
	}
	r.records = last.Records
	r.ended = ctx.Err() == nil || allEnded(r.jobs, last.Records)
	if r.ended {
		r.printed.Look(last.Records) // the last notices may have come when it had ended
		r.printed.Drain()
	}
	return last, nil
}

func (r *Run) master(shown apply.View) *master.Master {
	o := r.o.Master
	o.View = shown
	return master.New(o)
}

// Ended reports whether the jobs have ended by themselves.
func (r *Run) Ended() bool { return r.ended }

func allEnded(jobs []string, records job.Records) bool {
	return !slices.ContainsFunc(jobs, func(name string) bool { return records[name] == nil || !records[name].Phase.Ended() })
}

// NotSucceeded returns the jobs that have not succeeded, in the order in which they ended.
func (r *Run) NotSucceeded() []*job.Record { return notSucceeded(r.jobs, r.records) }

func notSucceeded(jobs []string, records job.Records) (ended []*job.Record) {
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
	return ended
}

// ExitCode returns the exit code of jobs that have not succeeded, in the order in which they ended: that of the first of their
// processes that failed, or 1.
func ExitCode(ended []*job.Record) int {
	for _, record := range ended {
		if exit := record.FailedBy(); exit != nil {
			return exit.Code
		}
	}
	return min(len(ended), 1)
}

// Remove destroys the jobs, if any are left. It shows what it does if they still run. Another interrupt exits.
func (r *Run) Remove() (removed bool, err error) {
	intent := preview.Intent{Intent: apply.Intent{Destroy: true}}
	for _, name := range r.jobs {
		if r.records[name] != nil {
			intent.Scope.Targets = append(intent.Scope.Targets, job.Selector{Job: name})
		}
	}
	if len(intent.Scope.Targets) == 0 {
		return false, nil
	}
	shown := apply.View(view.Quiet{})
	if !r.ended {
		shown = r.o.Progress
	}
	ctx, w := context.Background(), r.o.Master.Workspace
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return false, err
	}
	w.Prior = stored.Values
	last, err := r.master(shown).Lead(ctx, r.o.Lock, intent.Setup(w, stored))
	if err == nil && len(last.Changes) > 0 {
		err = preview.Left(last)
	}
	return err == nil, err
}

// End waits until all of the output was shown, and returns an error if some could not be read.
func (r *Run) End() error { return r.printed.End() }
