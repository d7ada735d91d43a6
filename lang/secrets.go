package lang

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Secrets are the texts that are to be kept out of sight: in jobs, and of sensitive variables and outputs that no job
// uses. After errors it is those that are known.
func (c *Config) Secrets() []string {
	var secrets []string
	for i := range c.Jobs {
		secrets = append(secrets, c.Jobs[i].Secrets...)
	}
	for _, v := range c.Variables {
		if v.Value != cty.NilVal {
			secrets = appendSecrets(secrets, v.Value)
		}
	}
	for _, o := range c.Outputs {
		if o.Value != cty.NilVal {
			secrets = appendSecrets(secrets, o.Value)
		}
	}
	return secrets
}

// unsealed is plain for a block that is kept as it is read: only jobs have seals in the place of sensitive values. where
// names the block.
func (l *loader) unsealed(where string) evaluator {
	return func(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
		v, ctx, diags := l.plain(attr)
		if v.ContainsMarked() {
			diags = append(diags, &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Sensitive value outside of a job",
				Detail: fmt.Sprintf("%q in %s takes no sensitive value: saved plans, the journal and the recorded observation would have it in clear. "+
					"Give it to a job, in the env of a role for example, or name a file or a Secret of the cluster that has it. A value that need not be hidden can be taken with nonsensitive().", attr.Name, where),
				Subject: attr.Expr.Range().Ptr(),
			})
		}
		return v, ctx, diags
	}
}
