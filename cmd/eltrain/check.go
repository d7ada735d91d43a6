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

// load reads the directory's files, and has providers look at what concerns them. Nobody is asked for that. That a variable
// has no value is an error, which lang.WithoutUnset leaves out.
func (s *session) load(vars assignments) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := s.read(vars)
	if !lang.WithoutUnset(diags).HasErrors() {
		diags = append(diags, misfits(cfg)...)
	}
	return cfg, diags
}

// read reads the directory's files, and keeps what of them is sensitive out of sight from then on.
func (s *session) read(vars assignments) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := s.readSteady(vars)
	s.redactor.AddTexts(cfg.Secrets()...)
	return cfg, diags
}

// validator is a provider's configuration that lists its own errors.
type validator interface{ Validate() []error }

// checker is a provider's configuration that knows which roles it cannot run.
type checker interface{ Check(r *job.Role) error }

// misfits are mistakes that only a provider knows: in its block, and in the roles that are to run on it. It is not shown
// what is derived from a variable without a value, or it would take what is missing for a mistake.
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
			for _, err := range each(c.Check(&j.Roles[k])) {
				report("Role "+j.Roles[k].Name+" cannot run on provider "+j.Provider, err, writtenAt(cfg, &j, j.Roles[k].Name, err))
			}
		}
	}
	return diags
}

// each takes misfits apart that were found together. Other errors are reported as one.
func each(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if misfit := new(job.Misfit); !ok || !errors.As(err, &misfit) {
		return []error{err}
	}
	return joined.Unwrap()
}

// writtenAt is where the argument is written that an error is about; the line of the job if that is not said, or the role is
// made by a dynamic block.
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

// counts are the arguments of a role that say how many slots it has. What a slot is does not depend on them.
var counts = []string{"replicas", "scaling"}

// checkable reports whether what a provider checks of a role is known.
func checkable(cfg *lang.Config, j *job.Job, r *job.Role) bool {
	return !slices.ContainsFunc(cfg.Unknown[j.Name], func(path string) bool {
		argument, ofRole := strings.CutPrefix(path, "role."+r.Name+".")
		argument, _, _ = strings.Cut(argument, ".")
		return path == "provider" || ofRole && !slices.Contains(counts, argument)
	})
}

// lineOf is the whole line of a source; nil if it is unknown.
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
