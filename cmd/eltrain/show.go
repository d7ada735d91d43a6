package main

import (
	"context"
	"errors"

	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
)

type showArgs struct {
	showing
	markdown bool
	file     string
}

func (a *showArgs) declare(fs *flags) {
	fs.BoolVar(&a.markdown, "markdown", false, "Print the plan as a comment for a pull request.")
	a.showing.declare(fs)
}

func showCommand() *command {
	return taking(command{
		name: "show", usage: "[options] [FILE]",
		synopsis: "Show a saved plan, or the state",
		about: `Shows the plan that eltrain plan -out=FILE saved, as it was shown then. Nothing is contacted. Without FILE
it shows the state, which is what was last applied; eltrain status shows what is running now.

The JSON of a plan has the format of Terraform's plans, format_version 1.2: policies written for them work on it.
eltrain's additions are under "eltrain".`,
	}, 1, (*session).show)
}

func (a *showArgs) take(_ *session, others []string) error {
	if len(others) > 0 {
		a.file = others[0]
	}
	switch {
	case a.json && a.markdown:
		return errors.New("-json and -markdown cannot be used together")
	case a.file != "" && len(a.vars) > 0:
		return errors.New("-var and -var-file cannot be used with a saved plan: its variables are set")
	case a.file == "" && a.markdown:
		return errors.New("-markdown needs a saved plan: name its file")
	}
	return nil
}

func (s *session) show(a *showArgs) int {
	if a.file == "" {
		return s.showState(a)
	}
	f, err := planfile.Read(a.file, version)
	if err != nil {
		return s.fail("Cannot show the plan", err)
	}
	cfg, err := preview.ConfigOf(f)
	if err != nil {
		return s.fail("Cannot show the plan", err)
	}
	model := view.NewPlan(f.Facts, &s.redactor)
	model.Eltrain.Settings = s.redactor.Texts(preview.Settings(cfg))
	switch {
	case a.json:
		err = view.WriteJSON(s.streams.Out, model)
	case a.markdown:
		err = view.WritePlanMarkdown(s.streams.Out, model)
	default:
		view.WritePlan(s.streams.Out, model)
	}
	if err != nil {
		return s.fail("Cannot show the plan", err)
	}
	return exitDone
}

// showState shows what was last applied. It reads the files only to locate the state and for sensitive values.
func (s *session) showState(a *showArgs) int {
	ctx, cancel := context.WithTimeout(context.Background(), workspace.LookTimeout)
	defer cancel()
	cfg := s.dir.ReadAnyway(a.vars)
	d, ok := s.openState(cfg)
	if !ok {
		return exitError
	}
	records, err := d.Records(ctx)
	if err != nil {
		return s.fail("Cannot read the state", err)
	}
	model := s.stateModel(d, records)
	if !a.json {
		view.WriteState(s.streams.Out, model, records, nil)
		return exitDone
	}
	if err := view.WriteJSON(s.streams.Out, model); err != nil {
		return s.fail("Cannot show the state", err)
	}
	return exitDone
}
