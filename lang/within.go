package lang

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/internal/regular"
)

// Inside returns an error unless a path leads to something in one of the directories of Within, or that is empty.
func (o *Options) Inside(path string) error {
	if len(o.Within) == 0 {
		return nil
	}
	real, err := resolved(path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(o.Within, func(dir string) bool {
		rel, err := filepath.Rel(dir, real)
		// git's own directory is in no work tree: it may have a token.
		return err == nil && filepath.IsLocal(rel) && !slices.Contains(strings.Split(rel, string(filepath.Separator)), ".git")
	}) {
		return nil
	}
	text := fmt.Sprintf("%s leads outside of %s, which these files are not trusted to read.", path, o.Within[0])
	return errors.New(strings.TrimSuffix(advised(text, o.Advice.Outside), "."))
}

// resolved returns an absolute path without links, as far as it exists.
func resolved(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(path) == path {
		return real, err
	}
	dir, err := resolved(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// inside is Options.Inside for a path that an expression names.
func (l *loader) inside(path string) error {
	err := l.opts.Inside(path)
	if err != nil {
		l.outside[path] = err
	}
	return err
}

// reportOutside reports the refused paths that are in no error yet: the files must not be able to catch a refusal, in try, can or a
// check, and be something else where they are trusted.
func (l *loader) reportOutside() {
	for _, path := range slices.Sorted(maps.Keys(l.outside)) {
		why := l.outside[path].Error()
		if slices.ContainsFunc(l.diags, func(d *hcl.Diagnostic) bool {
			return d.Severity == hcl.DiagError && strings.Contains(d.Detail, why)
		}) {
			continue
		}
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Untrusted files", Detail: "An expression, perhaps within try or can, reads a file: " + why + "."})
	}
}

// read reads a regular file of at most limit bytes that these files name.
func (o *Options) read(path string, limit int64) ([]byte, error) {
	if err := o.Inside(path); err != nil {
		return nil, err
	}
	return regular.ReadNamed(path, limit)
}
