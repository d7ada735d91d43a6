package lang

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// jobValue is the value of job.NAME in outputs and checks: the job, or with for_each its instances by key.
type jobValue struct {
	repeated  bool
	undecided bool // the instances are unknown
	one       *declaration
	byKey     map[string]declaration
}

// declaration is a job with the tree that it was read from, which has what is unknown of it.
type declaration struct {
	job  *job.Job
	tree *tree
}

func (v *jobValue) add(key string, d declaration) {
	if v.byKey == nil {
		v.byKey = map[string]declaration{}
	}
	v.byKey[key] = d
}

// withJobs returns the module's context with "job", which has only the jobs that the expressions refer to.
func (l *loader) withJobs(exprs ...hcl.Expression) *hcl.EvalContext {
	values := map[string]cty.Value{}
	for _, expr := range exprs {
		if expr == nil {
			continue
		}
		for _, ref := range expr.Variables() {
			name, ok := attrName(ref, 1)
			if v, known := l.jobValues[name]; known && ok && ref.RootName() == "job" {
				values[name] = l.jobsObject(v)
			}
		}
	}
	ctx := l.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{"job": cty.ObjectVal(values)}
	return ctx
}

func (l *loader) jobsObject(v jobValue) cty.Value {
	switch {
	case v.undecided:
		return cty.DynamicVal
	case v.one != nil:
		return l.jobObject(*v.one)
	}
	byKey := map[string]cty.Value{}
	for key, d := range v.byKey {
		byKey[key] = l.jobObject(d)
	}
	return cty.ObjectVal(byKey)
}

// jobObject returns a declared job as a value for expressions: self.role.worker.replicas. Roles are by name. Durations
// and sizes are strings, as in the files; omitted arguments without a default are null; those without a valid or
// known value are unknown. Strings that contain one of the job's secrets are sensitive.
func (l *loader) jobObject(d declaration) cty.Value {
	e := exporter{l: l, secrets: d.job.Secrets}
	return e.structure(reflect.ValueOf(*l.asObserved(d.job)), d.tree)
}

// exporter converts declared Go values to HCL values.
type exporter struct {
	l       *loader
	secrets []string
}

// structure converts a block that was read from t, which is nil if the block is omitted.
func (e *exporter) structure(v reflect.Value, t *tree) cty.Value {
	attrs := map[string]cty.Value{}
	for _, f := range job.Fields(v.Type()) {
		attrs[f.Name] = e.field(f, v.FieldByIndex(f.Index), t)
	}
	return cty.ObjectVal(attrs)
}

func (e *exporter) field(f job.Field, v reflect.Value, t *tree) cty.Value {
	switch {
	case t != nil && t.failed[f.Name] && f.Kind == job.Block:
		return cty.DynamicVal
	case t != nil && t.failed[f.Name]:
		return cty.UnknownVal(ValueType(f.Type))
	case f.Repeated():
		byLabel := map[string]cty.Value{}
		for i := range v.Len() {
			one := e.structure(v.Index(i), t.blocks[f.Name][i])
			byLabel[labelValue(v.Index(i))] = one
		}
		return cty.ObjectVal(byLabel)
	case f.Kind == job.Block && v.Kind() == reflect.Pointer && v.IsNil():
		return cty.NullVal(cty.DynamicPseudoType)
	case f.Kind == job.Block:
		return e.structure(reflect.Indirect(v), t.block(f.Name))
	case v.IsZero() && f.Default == "" && ValueType(f.Type) == cty.String:
		return cty.NullVal(cty.String)
	}
	return e.value(v)
}

func labelValue(v reflect.Value) string {
	for _, f := range job.Fields(v.Type()) {
		if f.Kind == job.Label {
			return v.FieldByIndex(f.Index).String()
		}
	}
	return ""
}

// value converts the value of an argument. It is counted like evaluating it.
func (e *exporter) value(v reflect.Value) cty.Value {
	if !e.l.meter.spend(1) {
		return cty.DynamicVal
	}
	switch x := v.Interface().(type) {
	case job.CPU:
		return cty.NumberFloatVal(x.Cores())
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return cty.DynamicVal
		}
		return cty.StringVal(string(text))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return cty.NullVal(cty.DynamicPseudoType)
		}
		return e.value(v.Elem())
	case reflect.String:
		return e.text(v.String())
	case reflect.Bool:
		return cty.BoolVal(v.Bool())
	case reflect.Int, reflect.Int64:
		return cty.NumberIntVal(v.Int())
	case reflect.Float64:
		return cty.NumberFloatVal(v.Float())
	case reflect.Slice:
		elems := make([]cty.Value, v.Len())
		for i := range elems {
			elems[i] = e.value(v.Index(i))
		}
		return cty.TupleVal(elems)
	case reflect.Map:
		attrs := map[string]cty.Value{}
		for _, key := range v.MapKeys() {
			attrs[key.String()] = e.value(v.MapIndex(key))
		}
		return cty.ObjectVal(attrs)
	}
	panic(fmt.Sprintf("lang: a declared field has the type %s, which expressions cannot have", v.Type()))
}

func (e *exporter) text(s string) cty.Value {
	if !e.l.meter.spend(len(e.secrets) + len(s)/bytesPerStep) {
		return cty.DynamicVal
	}
	val := cty.StringVal(s)
	if slices.ContainsFunc(e.secrets, func(secret string) bool { return strings.Contains(s, secret) }) {
		return val.Mark(Sensitive)
	}
	return val
}
