package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

// steadyTries bounds how often files are read again because they changed during the read. Swapping a link takes a moment;
// longer writes are waited for by a watch, while other commands fail.
const steadyTries = 5

// readSteady reads the job directory's files, all of one revision: if they change during the read it reads them again.
func (s *session) readSteady(vars assignments) (*lang.Config, hcl.Diagnostics) {
	paths := []string{s.home()}
	for range steadyTries {
		dir := s.directoryNow()
		before := apply.Fingerprint(paths...)
		cfg, diags := lang.Load(dir, s.options(vars.in(dir)))
		paths = append([]string{s.home()}, furtherOf(cfg)...)
		if apply.Fingerprint(paths...) == before {
			return cfg, diags
		}
	}
	return &lang.Config{Files: map[string]*hcl.File{}, Invalid: true}, hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "The files change while they are read",
		Detail: fmt.Sprintf("They were read %d times, and each time something in %s, or named there, changed meanwhile. Try again when nothing writes there.", steadyTries, s.home()),
	}}
}

// home returns the path of the job directory, links not resolved: they may be changed.
func (s *session) home() string {
	if s.jobPath != "" {
		return s.jobPath
	}
	return jobDirectory
}

// directoryNow resolves the path of the job directory: to the working directory if it still is that. Reads below the result
// do not follow the links again, so replacing one does not mix revisions.
func (s *session) directoryNow() string {
	real, err := filepath.EvalSymlinks(s.home())
	if err != nil {
		return s.home() // reading it returns the error
	}
	there, err := os.Stat(real)
	if err != nil {
		return real
	}
	if here, err := os.Stat(jobDirectory); err == nil && os.SameFile(here, there) {
		return jobDirectory
	}
	return real
}

// in returns the assignments with their file names relative to dir, for a job directory other than the working directory.
func (a assignments) in(dir string) assignments {
	if dir == jobDirectory {
		return a
	}
	out := slices.Clone(a)
	for i := range out {
		if f := out[i].File; f != "" && !filepath.IsAbs(f) {
			out[i].File = filepath.Join(dir, f)
		}
	}
	return out
}

// furtherOf returns what a configuration is read from besides the job directory: its modules' directories and the files that
// it names.
func furtherOf(cfg *lang.Config) []string {
	if len(cfg.Directories) == 0 {
		return nil
	}
	return slices.Concat(cfg.Directories[1:], cfg.Named)
}

// commitOf returns the commit of a configuration: of its directories, or else of what the links in them point to. It returns
// "" if that is unknown.
func commitOf(ctx context.Context, cfg *lang.Config) string {
	var dirs []string
	add := func(path string) {
		if real, err := filepath.EvalSymlinks(path); err == nil && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	for _, dir := range cfg.Directories {
		add(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sizes)) {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			add(filepath.Dir(real))
		}
	}
	for _, dir := range dirs {
		if commit := apply.CommitAt(ctx, dir); commit != "" {
			return commit
		}
	}
	return ""
}

// brief returns the first error in one sentence, with its place in the job directory.
func brief(cfg *lang.Config, diags []view.Diagnostic) string {
	dir := ""
	if len(cfg.Directories) > 0 {
		dir = cfg.Directories[0] + string(filepath.Separator)
	}
	for _, d := range diags {
		if !view.HaveErrors([]view.Diagnostic{d}) {
			continue
		}
		at := d.Place()
		if at != "" {
			at = " on " + strings.TrimPrefix(at, dir)
		}
		return fmt.Sprintf("%s%s: %s", d.Summary, at, strings.Join(strings.Fields(d.Detail), " "))
	}
	return ""
}

// watched returns the absolute paths of all that the configuration is read from, the job directory first. It returns nil if
// that is gone: once it is back everything is read again.
func (s *session) watched(further []string) []string {
	base, err := filepath.EvalSymlinks(s.home())
	if err != nil {
		return nil
	}
	paths := append([]string{s.home()}, further...)
	for i := range paths[1:] {
		if !filepath.IsAbs(paths[i+1]) {
			paths[i+1] = filepath.Join(base, paths[i+1])
		}
	}
	return paths
}
