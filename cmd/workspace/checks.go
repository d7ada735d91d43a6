package workspace

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// validator is a provider's configuration that lists its own errors.
type validator interface{ Validate() []error }

// checker is a provider's configuration that knows which roles it cannot run.
type checker interface{ Check(r *job.Role) error }

// cautioner is a provider's configuration that knows what in it is probably a mistake, given the jobs that run on it.
type cautioner interface{ Caution(jobs []job.Job) error }

// cautions returns warnings of the providers about their blocks.
func cautions(cfg *lang.Config) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, p := range cfg.Providers {
		c, ok := p.Value.(cautioner)
		if !ok || p.Unknown {
			continue
		}
		on := slices.DeleteFunc(slices.Concat(cfg.Jobs, cfg.Templates), func(j job.Job) bool { return j.Provider != p.Name })
		for _, err := range splitMisfits(c.Caution(on)) {
			diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "A block of provider " + p.Name + " may be incomplete",
				Detail: view.Explain(err), Subject: blockAt(cfg, p.Source, err)})
		}
	}
	return diags
}

// misfits returns the mistakes that only a provider can find: in its block, and in the roles that run on it. Whatever is
// derived from a variable without a value is skipped, since the provider would report it as missing.
func misfits(cfg *lang.Config) hcl.Diagnostics {
	var diags hcl.Diagnostics
	report := func(summary string, err error, at *hcl.Range) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: view.Explain(err), Subject: at})
	}
	unknown := map[string]bool{}
	for _, p := range cfg.Providers {
		if p.Unknown {
			unknown[p.Name] = true
			continue
		}
		if v, ok := p.Value.(validator); ok {
			for _, err := range v.Validate() {
				report("Invalid block of provider "+p.Name, err, cfg.LineOf(p.Source))
			}
		}
	}
	if diags.HasErrors() {
		return diags // what is wrong with the block would be wrong with each role
	}
	configured := Configurations(cfg)
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
	if block := within(cfg, j.Source, "role", role); block != nil && errors.As(err, &misfit) {
		if written := block.Body.Attributes[misfit.Argument]; written != nil {
			return written.Range().Ptr()
		}
	}
	return cfg.LineOf(j.Source)
}

// blockAt returns the range of the block that an error is about, or the line of the block that it is in.
func blockAt(cfg *lang.Config, at job.Source, err error) *hcl.Range {
	misfit := new(job.Misfit)
	if errors.As(err, &misfit) {
		if block := within(cfg, at, misfit.Argument, misfit.Label); block != nil {
			return block.DefRange().Ptr()
		}
	}
	return cfg.LineOf(at)
}

// within returns a block within the one that begins at a source; nil if it is not written there.
func within(cfg *lang.Config, at job.Source, kind, label string) *hclsyntax.Block {
	file := cfg.Files[at.File]
	if file == nil {
		return nil
	}
	body, _ := file.Body.(*hclsyntax.Body)
	if body == nil {
		return nil
	}
	for _, block := range body.Blocks {
		if block.DefRange().Start.Line != at.Line {
			continue
		}
		for _, inner := range block.Body.Blocks {
			if inner.Type == kind && slices.Equal(inner.Labels, []string{label}) {
				return inner
			}
		}
	}
	return nil
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
