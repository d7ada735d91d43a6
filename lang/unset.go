package lang

import (
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// unset marks the diagnostic of a required variable of the job directory that nothing sets. The files may mean what
// they are to mean: it is not known yet.
type unset struct{}

// WithoutUnset leaves out the errors that required variables of the job directory have no value, for those who ask what
// the files mean whatever the values are. In every reading such a variable is an unknown value of its type. What does
// not depend on it is evaluated and checked as usual, and of what does nothing is said: see Config.Unknown and
// Config.Templates.
func WithoutUnset(diags hcl.Diagnostics) hcl.Diagnostics {
	var rest hcl.Diagnostics
	for _, d := range diags {
		if _, is := d.Extra.(unset); !is {
			rest = append(rest, d)
		}
	}
	return rest
}

// presence is what is known of whether one of those is there that a block with for_each stands for.
type presence int

const (
	present presence = iota
	// undecided: for_each is not known. One, under the key anyKey, stands for all that there may be.
	undecided
	// absent: for_each is empty. The block is evaluated for the mistakes in it.
	absent
)

// anyKey stands for keys that are not known: job.gpt[*], with the name gpt-*, which no job can have.
const anyKey = "*"

// undecidedBlocks marks what is said of a dynamic block of which it is not known how many blocks it makes, or which.
type undecidedBlocks struct{}

// takeUndecided enters the types of such blocks in failed, and returns what else is said.
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

// unknownLabel reports whether HCL complains of nothing but that a label is not known yet.
func unknownLabel(d *hcl.Diagnostic) bool {
	if d.Summary != "Invalid dynamic block label" || d.Expression == nil {
		return false
	}
	label, diags := d.Expression.Value(d.EvalContext)
	return !diags.HasErrors() && !label.IsKnown()
}

// unknown are the arguments of a block, and the types of blocks in it, that have no known value, by their paths from
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

// unsettled reports whether something may be declared under an address that is not declared now: it is, or it is in,
// one of what a block stands for whose for_each is not known.
func (s *shared) unsettled(address string) bool {
	for block := range outerModules(address) {
		if s.undecided[block] {
			return true
		}
	}
	return false
}

// settledKeys reports whether all keys in an address have values, and reports what is wrong with one. Of one that is not known
// yet nothing is said.
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

// unknownOf is an unknown value of a variable's type.
func unknownOf(ty cty.Type) cty.Value { return cty.UnknownVal(ty.WithoutOptionalAttributesDeep()) }
