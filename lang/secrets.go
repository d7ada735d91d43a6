package lang

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// shortestNumber is the minimum length, in characters, of a sensitive number that is hidden wherever it occurs. A
// shorter one, or a boolean, is hidden only where the value itself is shown: a 2 is in every plan.
const shortestNumber = 4

// secrets collects the sensitive values of a job while it is decoded.
type secrets struct {
	values []cty.Value
	places []job.Place
	placed map[string]bool // places already added: slots have most places in common
}

// add records a partly or wholly sensitive value of an argument. Numeric and boolean arguments, such as replicas, cannot be
// hidden.
func (s *secrets) add(t *tree, f job.Field, v cty.Value) {
	if ty := ValueType(f.Type); ty == cty.Number || ty == cty.Bool {
		return
	}
	s.values = append(s.values, v)
	if t.typ == reflect.TypeFor[job.Role]() && (f.Late || f.Kind == job.Any) {
		s.place(job.Place{Role: t.label(), Argument: f.Name}, v, false)
	}
}

// place records where in a value numbers and booleans are sensitive. within is whether the whole value is.
func (s *secrets) place(at job.Place, v cty.Value, within bool) {
	plain, marks := v.Unmark()
	within = within || len(marks) > 0
	switch {
	case !plain.IsKnown() || plain.IsNull():
	case plain.Type() == cty.Number || plain.Type() == cty.Bool:
		if name := fmt.Sprintf("%q", at); within && !s.placed[name] {
			if s.placed == nil {
				s.placed = map[string]bool{}
			}
			s.placed[name] = true
			s.places = append(s.places, at)
		}
	case plain.CanIterateElements():
		i := 0
		for it := plain.ElementIterator(); it.Next(); i++ {
			step := strconv.Itoa(i)
			key, elem := it.Element()
			if plain.Type().IsMapType() || plain.Type().IsObjectType() {
				step = key.AsString()
			}
			inner := at
			inner.Within = append(slices.Clone(at.Within), step)
			s.place(inner, elem, within)
		}
	}
}

// Secrets returns the strings to hide: those in jobs and notify blocks, and those of sensitive variables and outputs, even if no job
// uses them. After errors it returns the known ones.
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
	for i := range c.Notify {
		secrets = append(secrets, c.Notify[i].Secrets...)
	}
	for _, o := range c.Outputs {
		if o.Value != cty.NilVal {
			secrets = appendSecrets(secrets, o.Value)
		}
	}
	return secrets
}

// unsealed is plain for blocks that are stored unchanged, so that sensitive values are errors: only in jobs are they
// replaced by digests. where names the block.
func (l *loader) unsealed(where string) evaluator {
	return func(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
		v, ctx, diags := l.plain(attr)
		if v.ContainsMarked() {
			diags = append(diags, &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Sensitive value outside of a job",
				Detail: fmt.Sprintf("%q in %s cannot be sensitive: saved plans, the journal and the recorded observation would contain it in plain text. "+
					"Use it in a job, for example in the env of a role, or name a file or a Secret of the cluster that has it. If the value need not be hidden, use nonsensitive().", attr.Name, where),
				Subject: attr.Expr.Range().Ptr(),
			})
		}
		return v, ctx, diags
	}
}
