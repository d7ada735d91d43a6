package lang

import (
	"fmt"
	"reflect"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// perSlot evaluates the arguments that refer to slot.* once for each slot that the role may ever have. Other
// arguments were decoded with the role, and are shared.
func (l *loader) perSlot(d *decoder, e *jobEval, r *job.Role, t *tree) {
	var late []job.Field
	for _, f := range job.Fields(t.typ) {
		if attr := t.attrs[f.Name]; f.Late && attr != nil && refersTo(attr.Expr, "slot") {
			late = append(late, f)
		}
	}
	_, most := r.Bounds()
	l.slots += max(most, 0)
	if l.slots > MaxSlots {
		at := t.at("replicas")
		if b := t.block("scaling"); b != nil {
			at = b.at("max")
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Too many slots",
			Detail:   fmt.Sprintf("With this role the directory declares %d slots; the limit is %d.", l.slots, MaxSlots),
			Subject:  at,
		})
		most = 1
	}
	if len(late) == 0 {
		return
	}
	sound := t.sound("replicas")
	if b := t.block("scaling"); b != nil {
		sound = b.sound("min", "max")
	}
	if !sound || most < 1 {
		most = 1 // the number is invalid; the expressions are checked anyway
	}
	shared := *r
	defer func() { e.slot = nil }()
	for index := range most {
		one := shared
		e.slot = slotValue(job.Address{Job: e.tree.label(), Role: r.Name, Index: index}, e.tree)
		for _, f := range late {
			d.evaluate(reflect.ValueOf(&one).Elem().FieldByIndex(f.Index), f, t)
			if t.failed[f.Name] {
				return // the other slots would report the same
			}
		}
		r.PerSlot = append(r.PerSlot, one.Program)
	}
	r.Program = r.PerSlot[0]
}

// slotValue returns the value of "slot" in the job of tree t.
func slotValue(a job.Address, t *tree) *cty.Value {
	attrs := map[string]cty.Value{
		"index":   cty.NumberIntVal(int64(a.Index)),
		"role":    cty.StringVal(a.Role),
		"job":     cty.UnknownVal(cty.String),
		"address": cty.UnknownVal(cty.String),
	}
	if t.sound("name") {
		attrs["job"], attrs["address"] = cty.StringVal(a.Job), cty.StringVal(a.String())
	}
	v := cty.ObjectVal(attrs)
	return &v
}
