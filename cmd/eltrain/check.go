package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// load reads the directory's files and has the providers' code validate what concerns it, without network access. A variable
// without a value is an error; lang.WithoutUnset drops those.
func (s *session) load(vars assignments) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := s.read(vars)
	if !lang.WithoutUnset(diags).HasErrors() {
		diags = append(diags, append(misfits(cfg), s.misplaced(cfg)...)...)
	}
	return cfg, diags
}

// read reads the directory's files. Their sensitive values are redacted from then on.
func (s *session) read(vars assignments) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := s.readSteady(vars)
	s.redactor.AddTexts(cfg.Secrets()...)
	return cfg, diags
}

// validator is a provider's configuration that lists its own errors.
type validator interface{ Validate() []error }

// checker is a provider's configuration that knows which roles it cannot run.
type checker interface{ Check(r *job.Role) error }

// misfits returns the mistakes that only a provider can find: in its block, and in the roles that run on it. Whatever is
// derived from a variable without a value is skipped, since the provider would report it as missing.
func misfits(cfg *lang.Config) hcl.Diagnostics {
	var diags hcl.Diagnostics
	report := func(summary string, err error, at *hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: sentence(err), Subject: at})
	}
	unknown := map[string]bool{}
	for _, p := range cfg.Providers {
		if p.Unknown {
			unknown[p.Name] = true
			continue
		}
		if v, ok := p.Value.(validator); ok {
			for _, err := range v.Validate() {
				report("Invalid block of provider "+p.Name, err, lineOf(cfg, p.Source))
			}
		}
	}
	if diags.HasErrors() {
		return diags // what is wrong with the block would be wrong with each role
	}
	configured := configurations(cfg)
	for _, j := range slices.Concat(cfg.Jobs, cfg.Templates) {
		c, ok := configured[j.Provider].(checker)
		if !ok || unknown[j.Provider] {
			continue
		}
		for k := range j.Roles {
			if !checkable(cfg, &j, &j.Roles[k]) {
				continue
			}
			for _, err := range splitMisfits(c.Check(&j.Roles[k])) {
				report("Role "+j.Roles[k].Name+" cannot run on provider "+j.Provider, err, writtenAt(cfg, &j, j.Roles[k].Name, err))
			}
		}
	}
	return diags
}

// splitMisfits splits joined misfits into single errors. It returns any other error as it is.
func splitMisfits(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if misfit := new(job.Misfit); !ok || !errors.As(err, &misfit) {
		return []error{err}
	}
	return joined.Unwrap()
}

// writtenAt returns the range of the argument that an error is about, or the job's line if the error names none or a dynamic
// block generated the role.
func writtenAt(cfg *lang.Config, j *job.Job, role string, err error) *hcl.Range {
	misfit := new(job.Misfit)
	file := cfg.Files[j.Source.File]
	if !errors.As(err, &misfit) || file == nil {
		return lineOf(cfg, j.Source)
	}
	body, _ := file.Body.(*hclsyntax.Body)
	if body == nil {
		return lineOf(cfg, j.Source)
	}
	for _, block := range body.Blocks {
		if block.Type != "job" || block.DefRange().Start.Line != j.Source.Line {
			continue
		}
		for _, inner := range block.Body.Blocks {
			written := inner.Body.Attributes[misfit.Argument]
			if inner.Type == "role" && slices.Equal(inner.Labels, []string{role}) && written != nil {
				return written.Range().Ptr()
			}
		}
	}
	return lineOf(cfg, j.Source)
}

// counts are the arguments for a role's number of slots. Providers' checks do not depend on them.
var counts = []string{"replicas", "scaling"}

// checkable reports whether all that a provider checks in a role is known.
func checkable(cfg *lang.Config, j *job.Job, r *job.Role) bool {
	return !slices.ContainsFunc(cfg.Unknown[j.Name], func(path string) bool {
		argument, ofRole := strings.CutPrefix(path, "role."+r.Name+".")
		argument, _, _ = strings.Cut(argument, ".")
		return path == "provider" || ofRole && !slices.Contains(counts, argument)
	})
}

// lineOf returns the range of a source's whole line; nil if it is unknown.
func lineOf(cfg *lang.Config, at job.Source) *hcl.Range {
	file := cfg.Files[at.File]
	if file == nil || at.Line < 1 {
		return nil
	}
	begin := 0
	for range at.Line - 1 {
		next := bytes.IndexByte(file.Bytes[begin:], '\n')
		if next < 0 {
			return nil
		}
		begin += next + 1
	}
	line, _, _ := bytes.Cut(file.Bytes[begin:], []byte("\n"))
	return &hcl.Range{
		Filename: at.File,
		Start:    hcl.Pos{Line: at.Line, Column: 1, Byte: begin},
		End:      hcl.Pos{Line: at.Line, Column: 1 + len(line), Byte: begin + len(line)},
	}
}
