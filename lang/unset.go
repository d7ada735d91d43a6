package lang

import (
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// unset marks the diagnostic of a required variable of the job directory that nothing sets: the files may still be
// valid.
type unset struct{}

// WithoutUnset removes the errors about required variables of the job directory without a value, for callers that want
// what is valid for any value. Such a variable is always an unknown value of its type. What does not depend on it is
// evaluated and checked as usual; what does is not reported, see Config.Unknown and Config.Templates.
func WithoutUnset(diags hcl.Diagnostics) hcl.Diagnostics {
	var rest hcl.Diagnostics
	for _, d := range diags {
		if _, is := d.Extra.(unset); !is {
			rest = append(rest, d)
		}
	}
	return rest
}

// presence says whether an instance of a block exists, as far as known.
type presence int

const (
	present presence = iota
	// undecided: for_each is unknown. One instance, with the key anyKey, represents all possible ones.
	undecided
	// absent: for_each is empty. The block is evaluated only to find mistakes in it.
	absent
)

// anyKey represents unknown keys: job.gpt[*], with the name gpt-*, which no job can have.
const anyKey = "*"

// undecidedBlocks marks the diagnostic of a dynamic block whose for_each is unknown.
type undecidedBlocks struct{}

// takeUndecided adds the types of blocks with unknown for_each or labels to failed, and returns the other diagnostics.
func (s *shared) takeUndecided(diags hcl.Diagnostics, failed map[string]bool) hcl.Diagnostics {
	var rest hcl.Diagnostics
	for _, d := range diags {
		_, blocks := d.Extra.(undecidedBlocks)
		if !blocks && !unknownLabel(d) {
			rest = append(rest, d)
			continue
		}
		failed[s.dynamic[subject(d)]] = true
	}
	return rest
}

// unknownLabel reports whether a diagnostic of HCL is about a label that is only unknown.
func unknownLabel(d *hcl.Diagnostic) bool {
	if d.Summary != "Invalid dynamic block label" || d.Expression == nil {
		return false
	}
	label, diags := d.Expression.Value(d.EvalContext)
	return !diags.HasErrors() && !label.IsKnown()
}

// unknown returns the arguments in a block without a known value, and the block types with unknown blocks, by path from
// the block.
func (t *tree) unknown() []string {
	paths := slices.Sorted(maps.Keys(t.failed))
	for _, kind := range slices.Sorted(maps.Keys(t.blocks)) {
		f, _ := fieldNamed(t.typ, kind)
		for _, inner := range t.blocks[kind] {
			path := kind
			if f.Repeated() {
				path = dotted(kind, inner.label())
			}
			for _, p := range inner.unknown() {
				paths = append(paths, dotted(path, p))
			}
		}
	}
	return paths
}

// unsettled reports whether an address that is not declared may yet be: it, or a module around it, is an instance of a
// block whose for_each is unknown.
func (s *shared) unsettled(address string) bool {
	for block := range outerModules(address) {
		if s.undecided[block] {
			return true
		}
	}
	return false
}

// settledKeys returns whether all keys in an address have known values. It reports invalid keys, but not unknown ones.
func (l *loader) settledKeys(expr hcl.Expression, ctx *hcl.EvalContext) bool {
	for _, key := range keysOf(expr) {
		val, diags := (*key).Value(ctx)
		l.report(diags...)
		if diags.HasErrors() || !val.IsKnown() && !val.IsMarked() {
			return false
		}
	}
	return true
}

// unknownOf returns an unknown value of a variable's type.
func unknownOf(ty cty.Type) cty.Value { return cty.UnknownVal(ty.WithoutOptionalAttributesDeep()) }
