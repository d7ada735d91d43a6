package workspace

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/lang"
)

// steadyTries bounds how often files are read again because they changed during the read. Swapping a link takes a moment;
// longer writes are waited for by a watch, while other commands fail.
const steadyTries = 5

// steady reads the job directory's files, all of one revision: if they change during the read it reads them again.
func (d *Directory) steady(vars []lang.Assignment) (*lang.Config, hcl.Diagnostics) {
	paths := []string{d.Path}
	for range steadyTries {
		dir := d.now()
		before := apply.Fingerprint(paths...)
		cfg, diags := lang.Load(dir, d.options(relativeTo(dir, vars)))
		paths = append([]string{d.Path}, cfg.Further()...)
		if apply.Fingerprint(paths...) == before {
			return cfg, diags
		}
	}
	return &lang.Config{Files: map[string]*hcl.File{}, Invalid: true}, hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: "The files change while they are read",
		Detail: fmt.Sprintf("They were read %d times, and each time something in %s, or named there, changed meanwhile. Try again when nothing writes there.", steadyTries, d.Path),
	}}
}

// now resolves the path of the job directory: to the working directory if it still is that. Reads below the result
// do not follow the links again, so replacing one does not mix revisions.
func (d *Directory) now() string {
	real, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return d.Path // reading it returns the error
	}
	there, err := os.Stat(real)
	if err != nil {
		return real
	}
	if here, err := os.Stat(JobDirectory); err == nil && os.SameFile(here, there) {
		return JobDirectory
	}
	return real
}

// relativeTo returns assignments with their file names relative to dir, for a job directory other than the working directory.
func relativeTo(dir string, vars []lang.Assignment) []lang.Assignment {
	if dir == JobDirectory {
		return vars
	}
	out := slices.Clone(vars)
	for i := range out {
		if f := out[i].File; f != "" && !filepath.IsAbs(f) {
			out[i].File = filepath.Join(dir, f)
		}
	}
	return out
}

// Commit returns the commit of a configuration: of its directories, or else of what the links in them point to. It returns
// "" if that is unknown.
func Commit(ctx context.Context, cfg *lang.Config) string {
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

// Watched returns the absolute paths of all that the configuration is read from, the job directory first. It returns nil if
// that is gone: once it is back everything is read again.
func (d *Directory) Watched(further []string) []string {
	base, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return nil
	}
	paths := append([]string{d.Path}, further...)
	for i := range paths[1:] {
		if !filepath.IsAbs(paths[i+1]) {
			paths[i+1] = base + string(filepath.Separator) + paths[i+1] // not joined: a slash at the end has a meaning
		}
	}
	return paths
}
