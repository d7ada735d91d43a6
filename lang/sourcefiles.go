package lang

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/eltrain/eltrain/internal/sourcefiles"
	"github.com/eltrain/eltrain/job"
)

// foundFiles is what a pattern of a source argument matches.
type foundFiles struct {
	digests map[string]string // by path
	sizes   map[string]int64  // in bytes
	err     error
}

// files decodes an argument of kind Patterns to the digests of the files that the patterns match.
func (d *decoder) files(to reflect.Value, f job.Field, t *tree) {
	l, attr := d.l, t.attrs[f.Name]
	val, ctx, diags := d.eval(attr)
	l.report(diags...)
	patterns, ok := []string(nil), !diags.HasErrors()
	if ok {
		patterns, ok = l.patterns(attr, val, ctx)
	}
	found, bytes := job.Files{}, int64(0)
	for i, pattern := range patterns {
		one := l.find(pattern)
		for path, digest := range one.digests {
			if found[path] == "" {
				found[path] = digest
				bytes += one.sizes[path]
			}
		}
		if one.err == nil && (bytes > maxSourceBytes || len(found) > maxSourceFiles) {
			one.err = fmt.Errorf("with %q these are more than %d files or %s: name what you edit, not data or packages", pattern, maxSourceFiles, job.Bytes(maxSourceBytes))
		}
		if one.err != nil {
			ok = false
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Invalid source", Detail: fmt.Sprintf("The argument %q: %s.", attr.Name, one.err),
				Subject: elementRange(attr, i).Ptr(), Context: attr.Range.Ptr(),
			})
		}
	}
	if !ok {
		t.failed[f.Name] = true
		return
	}
	if len(found) > 0 {
		to.Set(reflect.ValueOf(found))
		l.sourceSizes[t] = bytes
	}
}

// patterns returns the elements of a list of patterns; false if it is none, which it reports, or not known.
func (l *loader) patterns(attr *hcl.Attribute, val cty.Value, ctx *hcl.EvalContext) (patterns []string, ok bool) {
	if val.ContainsMarked() {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid source", Detail: "A sensitive value cannot name files: the plan shows their names.",
			Subject: attr.Expr.Range().Ptr(), Context: attr.Range.Ptr(),
		})
		return nil, false
	}
	if val.IsNull() {
		return nil, true
	}
	list, err := convert.Convert(val, cty.List(cty.String))
	switch {
	case err != nil:
		l.report(unsuitable(attr, errors.New(`a list of patterns is required, as ["train.py", "lib/**"]`), false, ctx))
		return nil, false
	case !list.IsWhollyKnown():
		return nil, false
	case list.LengthInt() > maxSourceFiles:
		l.report(unsuitable(attr, fmt.Errorf("it has %d patterns; the limit is %d", list.LengthInt(), maxSourceFiles), false, ctx))
		return nil, false
	}
	if err := setGo(reflect.ValueOf(&patterns).Elem(), list); err != nil {
		l.report(unsuitable(attr, err, false, ctx))
		return nil, false
	}
	return patterns, true
}

// locate says where the files of a role's source are, and how large they are.
func (l *loader) locate(r *job.Role, t *tree) {
	if len(r.Source) > 0 {
		r.SourceRoot, r.SourceSize = cmp.Or(l.dir, "."), job.Bytes(l.sourceSizes[t])
	}
}

// elementRange returns the range of an element of a list that is written out, and of the whole list otherwise.
func elementRange(attr *hcl.Attribute, i int) hcl.Range {
	if exprs, diags := hcl.ExprList(attr.Expr); !diags.HasErrors() && i < len(exprs) {
		return exprs[i].Range()
	}
	return attr.Expr.Range()
}

// find returns what a pattern matches in the loader's directory.
func (l *loader) find(pattern string) foundFiles {
	key := l.dir + "\x00" + pattern
	one, known := l.files[key]
	if !known {
		one = l.findNow(pattern)
		l.files[key] = one
	}
	if one.err == nil && !l.meter.spend(len(one.digests)) {
		one.err = errExhausted
	}
	return one
}

func (l *loader) findNow(pattern string) (out foundFiles) {
	dir := cmp.Or(l.dir, ".")
	found, err := sourcefiles.Find(dir, pattern, l.unmatched)
	for _, path := range found.Looked {
		at := l.inDir(path)
		if strings.HasSuffix(path, "/") {
			at += string(filepath.Separator)
		}
		l.named[at] = true
	}
	if err != nil {
		return foundFiles{err: readable(pattern, err)}
	}
	if len(found.Files) > maxSourceFiles {
		return foundFiles{err: fmt.Errorf("%q matches %d files; the limit is %d: name what you edit, not data or packages", pattern, len(found.Files), maxSourceFiles)}
	}
	out.digests, out.sizes = map[string]string{}, map[string]int64{}
	left := int64(maxSourceBytes)
	for _, path := range found.Files {
		if err := checkPath(path); err != nil {
			return foundFiles{err: err}
		}
		if err := l.inside(l.inDir(path)); err != nil {
			return foundFiles{err: errors.New(strings.TrimSuffix(err.Error(), "."))}
		}
		content, executable, err := sourcefiles.Read(dir, path, left)
		if errors.Is(err, sourcefiles.ErrTooLarge) {
			err = fmt.Errorf("%q matches more than %s, with %s: name what you edit, not data or packages", pattern, job.Bytes(maxSourceBytes), path)
		}
		if err != nil {
			return foundFiles{err: readable(path, err)}
		}
		size := int64(len(content))
		left -= size
		out.digests[path], out.sizes[path] = sourcefiles.Digest(content, executable), size
	}
	return out
}

// readable says what to do about files that cannot be read.
func readable(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q was removed, or is a link to nothing", name)
	case strings.Contains(err.Error(), "path escapes from parent"): // os.Root has no other mark
		return fmt.Errorf("%q is a link that leads out of the directory of the .hcl file: put the file there", name)
	}
	return err
}

// unmatched reports whether wildcards leave out a file: what eltrain itself reads and writes, which is no program.
func (l *loader) unmatched(name string) bool {
	return strings.HasSuffix(name, ".hcl") || strings.HasSuffix(name, ".vars") || strings.HasPrefix(name, filepath.Base(l.cfg.Settings.State.Path))
}

var fileDigest = regexp.MustCompile(`^[0-9a-f]{64}(` + sourcefiles.Executable + `)?$`)

// checkFiles checks files that were not found here.
func checkFiles(files job.Files) error {
	if len(files) > maxSourceFiles {
		return fmt.Errorf("its source has more than %d files", maxSourceFiles)
	}
	for path, digest := range files {
		if err := checkPath(path); err != nil {
			return err
		}
		if !fileDigest.MatchString(digest) {
			return fmt.Errorf("%q is not the digest of a file", digest)
		}
	}
	return nil
}

// checkPath rejects a path that leads elsewhere, or cannot be shown.
func checkPath(path string) error {
	if !fs.ValidPath(path) || path == "." || slices.ContainsFunc([]rune(path), func(r rune) bool { return !job.Displayable(r) || r == '\n' || r == '\t' }) {
		return fmt.Errorf("%q cannot be the name of a source file: rename it", path)
	}
	return nil
}
