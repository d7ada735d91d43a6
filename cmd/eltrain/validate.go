package main

import (
	"fmt"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

type validateArgs struct {
	noOperands
	showing
}

func validateCommand() *command {
	return taking(command{
		name: "validate", usage: "[options]",
		synopsis: "Check whether the files are valid",
		about: `Checks the files of the job directory and reports all errors at once, each with its place and what to do about
it. Nothing is contacted or changed. The JSON has the format of terraform validate -json.

Variables need no values here, as in a pipeline without secrets: one without a value or default is an unknown value of
its type, and what depends on it is checked as far as possible. Given values are checked as well. plan and apply require
all of them.`,
		exits: []string{
			"The files are valid.",
			"They are not, or an error.",
		},
	}, 0, (*session).validate)
}

func (s *session) validate(a *validateArgs) int {
	defer s.outlive()()
	cfg, diags := s.dir.Load(a.vars)
	diags = lang.WithoutUnset(diags)
	result := view.NewValidation(s.redactor.Diagnostics(view.DiagnoseHCL(diags, cfg.Files)))
	if a.json {
		if err := view.WriteJSON(s.streams.Out, result); err != nil {
			return s.fail("Cannot write the result", err)
		}
	} else {
		s.diagnose(result.Diagnostics...)
		if result.Valid {
			view.WriteSuccess(s.streams.Out, validText(result))
		}
	}
	if !result.Valid {
		return exitError
	}
	return exitDone
}

func validText(v view.Validation) string {
	if v.WarningCount == 0 {
		return "The configuration is valid."
	}
	return fmt.Sprintf("The configuration is valid, but see the warnings above (%d).", v.WarningCount)
}
