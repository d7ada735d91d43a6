package lang

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/job"
)

// ValueReference is an argument of a job whose value is derived from a role's argument. It does not affect the order in
// which roles start, which is DependsOn.
type ValueReference struct {
	Job      string
	Role     string // that has the argument; "" for the job itself
	Argument string // path in the job or the role: "replicas", "scaling.max"
	Of       string // the role referred to
	Value    string // its argument or block: "replicas", "scaling"
}

// ValueReferences lists the references to roles in each job: jobs and roles in declaration order, arguments by path.
// The Config must come from Load or Parse without errors, and must not be used concurrently.
func (c *Config) ValueReferences() []ValueReference {
	c.loader.meter.reset()
	return c.loader.valueReferences()
}

func (l *loader) valueReferences() []ValueReference {
	var refs []ValueReference
	for _, b := range l.blocks["job"] {
		for _, inst := range l.instances(b, l.ctx) {
			if inst.presence == absent {
				continue
			}
			name := job.InstanceName(append(slices.Clone(l.path), inst.parts(b.Labels[0])...)...)
			refs = append(refs, referencesIn(name, "", "", l.jobTree(b, b.AsHCLBlock(), inst, inst.in(l.ctx)))...)
		}
	}
	for _, b := range l.blocks["module"] {
		for _, child := range l.calls[b.Labels[0]].instances {
			refs = append(refs, child.valueReferences()...)
		}
	}
	return refs
}

// referencesIn lists the references in a block and its nested blocks. path is the block's path in the role or the job.
func referencesIn(name, role, path string, t *tree) []ValueReference {
	var refs []ValueReference
	for _, argument := range slices.Sorted(maps.Keys(t.attrs)) {
		if f, _ := fieldNamed(t.typ, argument); f.Kind == job.References {
			continue
		}
		for _, of := range roleValues(t.attrs[argument].Expr) {
			of.Job, of.Role, of.Argument = name, role, path+argument
			refs = append(refs, of)
		}
	}
	for _, block := range slices.Sorted(maps.Keys(t.blocks)) {
		for _, inner := range t.blocks[block] {
			if path == "" && role == "" && block == "role" {
				refs = append(refs, referencesIn(name, inner.label(), "", inner)...)
				continue
			}
			refs = append(refs, referencesIn(name, role, path+block+".", inner)...)
		}
	}
	return refs
}

// roleValues returns the roles' values that an expression refers to, without duplicates.
func roleValues(expr hcl.Expression) []ValueReference {
	var refs []ValueReference
	for _, ref := range expr.Variables() {
		of, ok := attrName(ref, 1)
		if ref.RootName() != "role" || !ok {
			continue
		}
		var value []string
		for i := 2; i < len(ref); i++ {
			if name, ok := attrName(ref, i); ok {
				value = append(value, name)
			}
		}
		refs = append(refs, ValueReference{Of: of, Value: strings.Join(value, ".")})
	}
	slices.SortFunc(refs, func(a, b ValueReference) int { return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Value, b.Value)) })
	return slices.Compact(refs)
}
