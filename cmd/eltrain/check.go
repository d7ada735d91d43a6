package main

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// load reads the directory's files, and has providers look at what concerns them. Nobody is asked for that.
func (s *session) load(vars assignments) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := s.read(vars)
	if !diags.HasErrors() {
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

// validator is a provider's configuration that lists its own mistakes.
type validator interface{ Validate() []error }

// checker is a provider's configuration that knows which roles it cannot run.
type checker interface{ Check(r *job.Role) error }

// misfits are mistakes that only a provider knows: in its block, and in the roles that are to run on it.
func misfits(cfg *lang.Config) hcl.Diagnostics {
	var diags hcl.Diagnostics
	report := func(summary string, err error, at job.Source) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: sentence(err), Subject: lineOf(cfg, at)})
	}
	for _, p := range cfg.Providers {
		if v, ok := p.Value.(validator); ok {
			for _, err := range v.Validate() {
				report("Wrong block of provider "+p.Name, err, p.Source)
			}
		}
	}
	if diags.HasErrors() {
		return diags // what is wrong with the block would be wrong with each role
	}
	configured := configurations(cfg)
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		c, ok := configured[j.Provider].(checker)
		if !ok {
			continue
		}
		for k := range j.Roles {
			if err := c.Check(&j.Roles[k]); err != nil {
				report("Role "+j.Roles[k].Name+" cannot run on provider "+j.Provider, err, j.Source)
			}
		}
	}
	return diags
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
