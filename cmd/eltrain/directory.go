package main

import (
	"context"
	"errors"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// advice names this program's options in the diagnostics of files.
var advice = lang.Advice{
	OtherDirectory: "Use -chdir=DIR for another one.",
	Outside:        "Use -root=PATH to allow a further file or directory, or -untrusted=false for files that were reviewed.",
	EndAll:         "To end all jobs, use eltrain destroy.",
	Assign:         "Or use -var 'NAME=VALUE'.",
}

// readFilesCommand is the child process of workspace.Child.
func readFilesCommand() *command {
	return &command{
		name: workspace.ChildName, usage: "[options]", internal: true,
		synopsis: "Read the job directory's files for a watch",
		about:    "Reads the files of the job directory within limits of memory and time. A watch starts it; users never do.",
		declare:  func(*flags) {},
		run: func(s *session, args []string) int {
			err := errors.New("it takes no arguments")
			if len(args) == 0 {
				err = s.dir.ServeChild()
			}
			if err != nil {
				return s.fail("Cannot read the files", err)
			}
			return exitDone
		},
	}
}

// readValid reads the configuration for a command that only shows it. It shows errors and returns ok false for any except
// variables without a value.
func (s *session) readValid(vars assignments) (cfg *lang.Config, ok bool) {
	cfg, diags := s.dir.Load(vars)
	diags = lang.WithoutUnset(diags)
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	return cfg, !diags.HasErrors()
}

// open opens the state and the providers. It shows errors and returns ok false.
func (s *session) open(cfg *lang.Config) (d *workspace.Workspace, ok bool) {
	if d, ok = s.openState(cfg); !ok {
		return nil, false
	}
	return d, s.connect(d)
}

// openState opens the state. It shows errors and returns ok false.
func (s *session) openState(cfg *lang.Config) (*workspace.Workspace, bool) {
	d, errs := s.dir.Open(cfg)
	s.diagnose(errs...)
	return d, len(errs) == 0
}

// connect opens the providers. It shows the error if one cannot be used.
func (s *session) connect(d *workspace.Workspace) (ok bool) {
	if err := d.Connect(); err != nil {
		s.fail("Cannot use a provider", err)
		return false
	}
	return true
}

// reread applies the current files, except the eltrain block, with which the state was opened.
func (s *session) reread(d *workspace.Workspace, a planning) (ok bool) {
	cfg, ok := s.readFor(a)
	if !ok {
		return false
	}
	cfg.Settings = d.Config.Settings
	d.Config = cfg
	return true
}

// openRecords opens the directory, with its providers, and reads the jobs' records. It reports errors.
func (s *session) openRecords(ctx context.Context, vars assignments) (d *workspace.Workspace, records job.Records, ok bool) {
	if d, ok = s.open(s.dir.ReadAnyway(vars)); !ok {
		return nil, nil, false
	}
	records, err := d.Records(ctx)
	if err != nil {
		d.Close()
		s.fail("Cannot read the state", err)
		return nil, nil, false
	}
	return d, records, true
}
