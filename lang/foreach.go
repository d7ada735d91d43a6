package lang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// instance is one instance of a block with for_each; a block without for_each has one without a key.
type instance struct {
	key      string
	each     *cty.Value // the object "each"; nil without for_each
	presence presence
}

// parts returns the parts that the instance contributes to a job's name.
func (i instance) parts(label string) []string {
	if i.each == nil || i.presence == absent {
		return []string{label}
	}
	return []string{label, i.key}
}

// address returns the instance's address: job.gpt["a"].
func (i instance) address(kind, label string) string {
	switch {
	case i.each == nil || i.presence == absent:
		return kind + "." + label
	case i.presence == undecided:
		return kind + "." + label + "[" + anyKey + "]"
	}
	return fmt.Sprintf("%s.%s[%q]", kind, label, i.key)
}

// in returns a context with "each".
func (i instance) in(ctx *hcl.EvalContext) *hcl.EvalContext {
	if i.each == nil {
		return ctx
	}
	child := ctx.NewChild()
	child.Variables = map[string]cty.Value{"each": *i.each}
	return child
}

func eachObject(key, value cty.Value) *cty.Value {
	v := cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})
	return &v
}

// placeholder returns an instance with an unknown each, for checking a block that has no known instance.
func placeholder(p presence) instance {
	return instance{key: anyKey, each: eachObject(cty.UnknownVal(cty.String), cty.DynamicVal), presence: p}
}

// instances evaluates a block's for_each and returns its instances in the order of keys. If for_each is invalid, empty
// or unknown, the result is one placeholder.
func (l *loader) instances(b *hclsyntax.Block, ctx *hcl.EvalContext) []instance {
	attr := b.Body.Attributes["for_each"]
	if attr == nil {
		return []instance{{}}
	}
	val, diags := attr.Expr.Value(ctx)
	l.report(diags...)
	if diags.HasErrors() || !l.suitableForEach(val, attr.Expr, ctx) || !val.IsKnown() {
		return []instance{placeholder(undecided)}
	}
	var out []instance
	sound := true
	for it := val.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if val.Type().IsSetType() {
			key = value
		}
		if !l.checkKey(key, attr.Expr, ctx) {
			sound = false
			continue
		}
		out = append(out, instance{key: key.AsString(), each: eachObject(key, value)})
	}
	switch {
	case !sound:
		return []instance{placeholder(undecided)}
	case len(out) == 0:
		return []instance{placeholder(absent)}
	}
	slices.SortFunc(out, func(a, b instance) int { return strings.Compare(a.key, b.key) })
	// Evaluating a block many times costs as much as a file that repeats it.
	size := b.Body.SrcRange.End.Byte - b.Body.SrcRange.Start.Byte
	if !l.meter.spendBlocks(len(out)) || !l.meter.spend(saturate(size/bytesPerStep+1, len(out))) {
		l.meter.blame(attr.Expr.Range())
		return []instance{placeholder(undecided)}
	}
	return out
}

// suitableForEach checks the value of for_each against Terraform's rules.
func (l *loader) suitableForEach(val cty.Value, expr hcl.Expression, ctx *hcl.EvalContext) bool {
	bad := func(detail string) bool {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid for_each argument", Detail: detail,
			Subject: expr.Range().Ptr(), Expression: expr, EvalContext: ctx,
		})
		return false
	}
	if val.IsMarked() {
		return bad("A sensitive value cannot be used here: its keys become names, and the plan would reveal them.")
	}
	ty := val.Type()
	switch {
	case val.IsNull():
		return bad("The value is null. For no instances, use an empty map: {}.")
	case ty == cty.DynamicPseudoType:
		return true // its type is unknown, too
	case ty.IsMapType() || ty.IsObjectType() || ty.IsSetType() && ty.ElementType() == cty.String:
		return true
	case ty.IsSetType() && ty.ElementType() == cty.DynamicPseudoType:
		return true // toset([]), or a set of unknown values
	case ty.IsSetType():
		return bad(fmt.Sprintf("A map or a set of strings is required, not a set of %s: the elements are the keys.", ty.ElementType().FriendlyName()))
	case ty.IsTupleType() || ty.IsListType():
		return bad("A map or a set of strings is required, not a list, in which an element has no name of its own: write toset([…]) for a list of strings.")
	}
	return bad(fmt.Sprintf("A map or a set of strings is required, not a %s.", ty.FriendlyName()))
}

// checkKey checks a key against the rule for names, since it becomes part of one.
func (l *loader) checkKey(key cty.Value, expr hcl.Expression, ctx *hcl.EvalContext) bool {
	at := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid for_each argument", Subject: expr.Range().Ptr(), Expression: expr, EvalContext: ctx}
	switch {
	case key.IsMarked():
		at.Detail = "A sensitive value cannot be a key here: keys become names, and the plan would reveal them."
	case !key.IsKnown():
		return false
	case key.IsNull():
		at.Detail = "A key is null."
	case !job.ValidName(key.AsString()):
		at.Detail = fmt.Sprintf("The key %q cannot be part of a name: use letters, digits, \"-\" and \"_\", beginning with a letter or digit.", key.AsString())
	default:
		return true
	}
	l.report(at)
	return false
}
