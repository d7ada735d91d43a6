package main

import (
	"errors"
	"time"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

type stateShow struct{ selector job.Selector }

func stateShowCommand() *command {
	return lookCommand(command{
		name: "state show", usage: "[options] ADDRESS",
		synopsis: "Show a job or slots in the state",
		about: `Shows the state of the job or the slots that ADDRESS names: as last applied, and where it runs. ADDRESS is
job.NAME, job.NAME.ROLE, job.NAME.ROLE[3], or a set: [0-3,7], [*]. Sensitive values are not in the state. Programs use
eltrain show -json.`,
	}, 1, func() *stateShow { return new(stateShow) })
}

func (v *stateShow) declare(*flags) {}

func (v *stateShow) take(_ *session, others []string) (err error) {
	if len(others) == 0 {
		return errors.New("an address is missing: write job.NAME, job.NAME.ROLE or job.NAME.ROLE[3]")
	}
	v.selector, err = job.ParseSelector(others[0])
	return err
}

func (v *stateShow) look(s *session, d *workspace.Workspace, stored state.State) error {
	if err := checkKnown(stored, []job.Selector{v.selector}); err != nil {
		return err
	}
	view.WriteState(s.streams.Out, s.stateModel(d, stored.Jobs), stored.Jobs, &v.selector)
	return nil
}

// stateModel returns all objects of the state in the form of Terraform's state.
func (s *session) stateModel(d *workspace.Workspace, records job.Records) view.PlanState {
	in := plan.Input{Jobs: d.Config.Jobs, Records: records, Now: time.Now()}
	return view.NewPlan(view.PlanFacts{Input: in, Plan: plan.Plan{Records: records}, Version: version, PriorOutputs: d.Prior.Outputs}, &s.redactor).PriorState
}
