package workspace

import (
	"context"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
)

// Unknown says why some of a job's sensitive values cannot be hidden in its output; "" if all can. Only the values in the current files
// and variables are known; the record has seals of those that the job runs with. It makes the workspace read-only.
func (d *Workspace) Unknown(ctx context.Context, record *job.Record) (why string, err error) {
	if d.Sealer.Knows(&record.Spec) {
		return "", nil // it has no sensitive values
	}
	d.ReadOnly = true
	secrets := d.Config.Secrets()
	given := job.Job{Secrets: secrets, Roles: []job.Role{{Program: job.Program{Command: secrets}}}} // also for jobs that are no longer declared
	if _, err := d.Sealed(ctx, append(slices.Clone(d.Config.Jobs), given)); err != nil {
		return "", err
	}
	if d.Sealer.Knows(&record.Spec) {
		return "", nil
	}
	name := "job." + record.Spec.Name
	why = "A sensitive value that " + name + " was started with differs from the current files and variables, so it is not hidden below. Set the variable as it was then, for example with ELTRAIN_VAR_x."
	if unset := unsetSecrets(d.Config.Variables); len(unset) > 0 {
		why = "No value for the sensitive " + variables(unset) + ", so it is not hidden below. Set it as it was for " + name + ", for example with ELTRAIN_VAR_" + unset[0] + "."
	}
	return why, nil
}

// unsetSecrets returns the names of sensitive variables without a value.
func unsetSecrets(all []lang.Variable) []string {
	var names []string
	for _, v := range all {
		if v.Sensitive && (v.Value == cty.NilVal || !v.Value.IsWhollyKnown()) {
			names = append(names, v.Name)
		}
	}
	return names
}

func variables(names []string) string {
	if len(names) == 1 {
		return "variable " + names[0]
	}
	return "variables " + strings.Join(names, ", ")
}
