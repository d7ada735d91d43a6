// Package slots runs commands in the slots of jobs.
package slots

import (
	"context"
	"errors"
	"fmt"

	"github.com/eltrain/eltrain/cmd/logs"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Slot is a slot in which commands can be run, if it runs.
type Slot struct {
	job.Slot
	uid      string
	launched job.Address // what its provider knows it as
	executor providers.Executor
}

// Named returns the slots that an address names, of jobs with and without a record in the state.
func Named(ctx context.Context, d *workspace.Workspace, records job.Records, sel job.Selector) ([]Slot, error) {
	record := records[sel.Job]
	if record == nil {
		ctx, cancel := context.WithTimeout(ctx, workspace.LookTimeout)
		defer cancel()
		facts, err := d.Facts(ctx)
		if err == nil {
			record, err = facts.Job(sel.Job)
		}
		if err != nil {
			return nil, err
		}
	}
	provider := d.Providers[record.Spec.Provider]
	if provider == nil {
		return nil, fmt.Errorf("job %s runs on provider %q, which is not configured here", sel.Job, record.Spec.Provider)
	}
	executor, is := provider.(providers.Executor)
	if !is {
		return nil, fmt.Errorf("job %s runs on provider %q, which runs no commands in slots", sel.Job, record.Spec.Provider)
	}
	var named []Slot
	for _, slot := range record.Slots {
		if sel.Matches(slot.Address) {
			launched := slot.Address
			launched.Job = record.LaunchedAs(launched.Job)
			named = append(named, Slot{slot, record.UID, launched, executor})
		}
	}
	if len(named) == 0 {
		return nil, view.NoSuchSlot(sel, record)
	}
	return named, nil
}

// Run runs a command in the slot. Its errors do not name the slot.
func (l *Slot) Run(ctx context.Context, c providers.Command) (code int, err error) {
	if !logs.Launched(l.Slot) {
		return 0, fmt.Errorf("it has not started: it is %s", l.Phase)
	}
	code, err = l.executor.Exec(ctx, l.uid, l.launched, l.Incarnation, c)
	if errors.Is(err, providers.ErrNotRunning) && l.Phase != "" && l.Phase != job.Running {
		return 0, fmt.Errorf("it is %s: %w", l.Phase, err)
	}
	return code, err
}
