package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/eltrain/eltrain/apply/replay"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

type replayArgs struct {
	replay.Replay
	formats
	dir     string // with the files to decide by; "" for what was declared at each decision
	vars    assignments
	journal string
}

func (a *replayArgs) declare(fs *flags) {
	fs.momentVar(&a.Since, "since", "Only decisions since `WHEN`: 2h ago, or at a time such as 2026-12-01T08:00:00Z.")
	fs.momentVar(&a.Until, "until", "Only decisions until `WHEN`.")
	fs.StringVar(&a.dir, "dir", "", "Decide by the files of `DIR` instead of what was declared at each decision.")
	a.formats.declare(fs)
	a.vars.declare(fs)
	declareTrust(fs)
}

func replayCommand() *command {
	return taking(command{
		name: "replay", usage: "[options] [JOURNAL]",
		synopsis: "Make decisions again and show what differs",
		about: `Makes the decisions of this directory's journal again, or of that in the directory JOURNAL, and shows those that come
out differently: with another version of eltrain, or with the files of -dir. -var and -var-file without -dir mean the
files of this directory. Nothing is contacted or changed, except that sensitive values in files need the state's key.

Each decision is made from what was recorded at its time. What would have followed from another decision is not
simulated. With other files, only changes and waits are compared.`,
		exits: []string{
			"All decisions come out the same, or there are none.",
			"An error.",
			"Some come out differently.",
		},
	}, 1, (*session).replay)
}

func (a *replayArgs) take(_ *session, others []string) error {
	a.journal = workspace.JournalDirectory
	if len(others) > 0 {
		a.journal = others[0]
		if _, err := os.Stat(a.journal); err != nil {
			return err
		}
	}
	if a.dir == "" && len(a.vars) > 0 {
		a.dir = workspace.JobDirectory
	}
	if !a.Until.IsZero() && a.Until.Before(a.Since) {
		return errors.New("-until is before -since")
	}
	return a.formats.check()
}

func (s *session) replay(a *replayArgs) int {
	ctx, stop := s.interruptible()
	defer stop()
	defer s.outlive()()
	finish, err := s.speak(ctx, a.formats, 0)
	if err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	code := s.replayDecisions(ctx, a)
	if err := finish(); err != nil {
		return s.fail("Cannot write the JSON", err)
	}
	return code
}

func (s *session) replayDecisions(ctx context.Context, a *replayArgs) int {
	own := s.dir.ReadAnyway(nil) // for sensitive values, and for where the state is
	if a.dir != "" {
		var ok bool
		if a.Declared, ok = s.declaredIn(ctx, own, a.dir, a.vars); !ok {
			return exitError
		}
	}
	journal := state.Reader{Dir: a.journal, Damaged: func(d state.Damage) {
		s.diagnose(view.Caution("Cannot read part of the journal", d.String()))
	}}
	differs := func(d *replay.Difference) error {
		m := view.NewReplayDifference(d, &s.redactor)
		if s.stream != nil {
			s.stream.ReplayDifference(m)
		}
		view.WriteReplayDifference(s.streams.Out, m)
		return nil
	}
	skips := func(skipped replay.Skip) error {
		if s.stream != nil {
			s.stream.ReplaySkip(skipped, &s.redactor)
		}
		view.WriteReplaySkip(s.streams.Out, &s.redactor, skipped)
		return nil
	}
	n, err := a.Read(ctx, journal, differs, skips)
	if err != nil {
		return s.fail("Cannot replay the journal", err)
	}
	if s.stream != nil {
		s.stream.ReplayComplete(n)
	}
	view.WriteReplayed(s.streams.Out, n)
	if n.Different > 0 {
		return exitDiffers
	}
	return exitDone
}

// declaredIn reads what the files of a directory declare. Sensitive values are sealed as in the journal's directory. It shows errors and
// returns ok false.
func (s *session) declaredIn(ctx context.Context, own *lang.Config, dir string, vars assignments) (declared *replay.Declared, ok bool) {
	there := s.dir
	var err error
	if there.Path, err = filepath.Abs(dir); err == nil {
		vars, err = vars.absolute()
	}
	if err != nil {
		s.fail("Cannot find the directory", err)
		return nil, false
	}
	cfg, diags := there.Load(vars)
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	if diags.HasErrors() {
		return nil, false
	}
	d, ok := s.openState(own)
	if !ok {
		return nil, false
	}
	defer d.Close()
	d.ReadOnly = true
	ctx, cancel := context.WithTimeout(ctx, workspace.LookTimeout)
	defer cancel()
	jobs, err := d.Sealed(ctx, cfg.Jobs)
	if err != nil {
		s.fail("Cannot seal sensitive values", err)
		return nil, false
	}
	return &replay.Declared{Jobs: jobs, Blocks: workspace.BlocksOf(cfg)}, true
}

// absolute returns the assignments with the paths of their files from the root: a directory's are relative to it.
func (a assignments) absolute() (assignments, error) {
	out := slices.Clone(a)
	for i := range out {
		if out[i].File == "" {
			continue
		}
		var err error
		if out[i].File, err = filepath.Abs(out[i].File); err != nil {
			return nil, err
		}
	}
	return out, nil
}
