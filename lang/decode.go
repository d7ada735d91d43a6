package lang

import (
	"encoding"
	"fmt"
	"math/big"
	"reflect"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/eltrain/eltrain/job"
)

var (
	cpuType   = reflect.TypeFor[job.CPU]()
	exprType  = reflect.TypeFor[hcl.Expression]()
	unmarshal = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// ValueType returns the type of HCL value that a declared Go type is decoded from; dynamic if any value fits.
func ValueType(t reflect.Type) cty.Type {
	switch {
	case t == cpuType:
		return cty.Number
	case reflect.PointerTo(t).Implements(unmarshal):
		return cty.String
	}
	switch t.Kind() {
	case reflect.Pointer:
		return ValueType(t.Elem())
	case reflect.Bool:
		return cty.Bool
	case reflect.String:
		return cty.String
	case reflect.Int, reflect.Int64, reflect.Float64:
		return cty.Number
	case reflect.Slice:
		return cty.List(ValueType(t.Elem()))
	case reflect.Map:
		if t.Elem().Kind() != reflect.Interface {
			return cty.Map(ValueType(t.Elem()))
		}
	}
	return cty.DynamicPseudoType
}

// setGo stores val in v. val is known, not null, unmarked, and of ValueType(v.Type()).
func setGo(v reflect.Value, val cty.Value) error {
	if v.Type() == cpuType {
		cores, _ := val.AsBigFloat().Float64()
		cpu, err := job.Cores(cores)
		v.SetInt(int64(cpu))
		return err
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(val.AsString()))
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setGo(v.Elem(), val)
	case reflect.Bool:
		v.SetBool(val.True())
	case reflect.String:
		if strings.Contains(val.AsString(), "\x00") {
			return fmt.Errorf("a string must not contain a NUL character here")
		}
		v.SetString(val.AsString())
	case reflect.Int, reflect.Int64:
		number := val.AsBigFloat()
		n, exact := number.Int64()
		switch {
		case number.IsInt() && exact == big.Below: // clamped to n, the maximum
			return fmt.Errorf("%s is too large: the maximum is %d", number.Text('g', 10), n)
		case number.IsInt() && exact == big.Above:
			return fmt.Errorf("%s is too small: the minimum is %d", number.Text('g', 10), n)
		case exact != big.Exact || v.OverflowInt(n):
			return fmt.Errorf("a whole number is required")
		}
		v.SetInt(n)
	case reflect.Float64:
		n, _ := val.AsBigFloat().Float64()
		v.SetFloat(n)
	case reflect.Slice:
		return setSlice(v, val)
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Interface {
			return setMap(v, val)
		}
		if !val.Type().IsObjectType() && !val.Type().IsMapType() {
			return fmt.Errorf("an object is required, as { name = value }")
		}
		v.Set(reflect.ValueOf(anyGo(val)))
	default:
		panic(fmt.Sprintf("lang: a declared field has the type %s, which the language cannot give", v.Type()))
	}
	return nil
}

func setSlice(v reflect.Value, val cty.Value) error {
	out := reflect.MakeSlice(v.Type(), 0, val.LengthInt())
	for it := val.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		if elem.IsNull() {
			return fmt.Errorf("element %d is null", out.Len())
		}
		to := reflect.New(v.Type().Elem()).Elem()
		if err := setGo(to, elem); err != nil {
			return fmt.Errorf("element %d: %w", out.Len(), err)
		}
		out = reflect.Append(out, to)
	}
	v.Set(out)
	return nil
}

func setMap(v reflect.Value, val cty.Value) error {
	out := reflect.MakeMapWithSize(v.Type(), val.LengthInt())
	for it := val.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		if elem.IsNull() {
			continue // null means omitted, as for arguments
		}
		to := reflect.New(v.Type().Elem()).Elem()
		if err := setGo(to, elem); err != nil {
			return fmt.Errorf("%q: %w", key.AsString(), err)
		}
		out.SetMapIndex(reflect.ValueOf(key.AsString()), to)
	}
	v.Set(out)
	return nil
}

// anyGo converts a value as encoding/json would: to map[string]any, []any, string, bool, int64 or float64, nil.
func anyGo(val cty.Value) any {
	if val.IsNull() {
		return nil
	}
	switch ty := val.Type(); {
	case ty == cty.String:
		return val.AsString()
	case ty == cty.Bool:
		return val.True()
	case ty == cty.Number:
		if n, exact := val.AsBigFloat().Int64(); exact == big.Exact {
			return n
		}
		n, _ := val.AsBigFloat().Float64()
		return n
	case ty.IsObjectType() || ty.IsMapType():
		out := map[string]any{}
		for it := val.ElementIterator(); it.Next(); {
			key, elem := it.Element()
			out[key.AsString()] = anyGo(elem)
		}
		return out
	}
	out := []any{}
	for it := val.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		out = append(out, anyGo(elem))
	}
	return out
}

// defaultValue parses a field's default tag.
func defaultValue(f job.Field) cty.Value {
	ty := ValueType(f.Type)
	if f.Default == "" {
		return cty.NullVal(ty)
	}
	val := cty.StringVal(f.Default)
	if !ty.IsPrimitiveType() {
		expr, diags := hclsyntax.ParseExpression([]byte(f.Default), f.Name, hcl.InitialPos)
		if !diags.HasErrors() {
			val, diags = expr.Value(nil)
		}
		if diags.HasErrors() {
			panic(fmt.Sprintf("lang: the default of %s is not an expression: %v", f.Name, diags))
		}
	}
	val, err := convert.Convert(val, ty)
	if err != nil {
		panic(fmt.Sprintf("lang: the default of %s does not match its type: %v", f.Name, err))
	}
	return val
}

// evaluator returns the value of an argument, and the context of its evaluation, for diagnostics.
type evaluator func(*hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics)

// decoder decodes a tree into a Go value.
type decoder struct {
	l    *loader
	eval evaluator
	// references decodes a field of kind References or Paths.
	references func(t *tree, attr *hcl.Attribute) []string
	// sensitive is called with every marked value that was decoded, and its argument.
	sensitive func(*tree, job.Field, cty.Value)
}

// plain is an evaluator without a scope of its own.
func (l *loader) plain(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
	v, diags := attr.Expr.Value(l.ctx)
	return v, l.ctx, diags
}

// into decodes t into v, a struct of type t.typ. Every field is set, to the written value or to its default.
func (d *decoder) into(v reflect.Value, t *tree) {
	label := 0
	for _, f := range job.Fields(t.typ) {
		to := v.FieldByIndex(f.Index)
		switch f.Kind {
		case job.Label:
			to.SetString(f.Default) // for an omitted block
			if label < len(t.labels) {
				to.SetString(t.labels[label])
			}
			label++
		case job.Block:
			d.block(to, f, t)
		default:
			d.argument(to, f, t)
		}
	}
}

func (d *decoder) block(to reflect.Value, f job.Field, t *tree) {
	blocks := t.blocks[f.Name]
	switch {
	case f.Repeated():
		for _, b := range blocks {
			elem := reflect.New(f.ElemType()).Elem()
			d.into(elem, b)
			to.Set(reflect.Append(to, elem))
		}
	case to.Kind() == reflect.Pointer:
		if len(blocks) == 1 {
			to.Set(reflect.New(f.ElemType()))
			d.into(to.Elem(), blocks[0])
		}
	case len(blocks) == 1:
		d.into(to, blocks[0])
	default:
		absent := &tree{typ: f.ElemType(), def: t.def, failed: map[string]bool{}}
		d.into(to, absent)
	}
}

func (d *decoder) argument(to reflect.Value, f job.Field, t *tree) {
	attr := t.attrs[f.Name]
	switch {
	case attr == nil:
		setDefault(to, f)
	case f.Type == exprType:
		to.Set(reflect.ValueOf(attr.Expr))
	case f.Kind == job.References || f.Kind == job.Paths:
		to.Set(reflect.ValueOf(d.references(t, attr)))
	case f.Kind == job.Patterns:
		d.files(to, f, t)
	case f.Late && refersTo(attr.Expr, "slot"):
		// Left to perSlot, which evaluates it for each slot.
	default:
		d.evaluate(to, f, t)
	}
}

// evaluate sets a field to the value of its argument.
func (d *decoder) evaluate(to reflect.Value, f job.Field, t *tree) {
	attr := t.attrs[f.Name]
	val, ctx, diags := d.eval(attr)
	d.l.report(diags...)
	if diags.HasErrors() || !d.store(to, f, attr, val, ctx) {
		t.failed[f.Name] = true
		if !diags.HasErrors() && f.Type.Kind() == reflect.Map {
			t.certain[f.Name] = certainKeys(val)
		}
		return
	}
	if d.sensitive != nil && val.ContainsMarked() {
		d.sensitive(t, f, val)
	}
}

// certainKeys returns the keys of an object or map whose values may be unknown, without those whose value may turn out
// to be null, which would be omitted.
func certainKeys(val cty.Value) []string {
	val, _ = val.UnmarkDeep()
	if !val.IsKnown() || val.IsNull() || !val.CanIterateElements() || val.Type().IsTupleType() {
		return nil
	}
	var keys []string
	for it := val.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		if key.Type() == cty.String && elem.Range().DefinitelyNotNull() {
			keys = append(keys, key.AsString())
		}
	}
	return keys
}

// store converts an evaluated argument and sets it. It returns false if the value does not fit, which it reports, or if
// part of it is unknown.
func (d *decoder) store(to reflect.Value, f job.Field, attr *hcl.Attribute, val cty.Value, ctx *hcl.EvalContext) bool {
	plain, marks := val.UnmarkDeep()
	bad := func(err error) bool {
		d.l.report(unsuitable(attr, err, len(marks) > 0, ctx))
		return false
	}
	if plain.IsNull() { // a null of any type is accepted
		plain = cty.NullVal(cty.DynamicPseudoType)
	}
	converted, err := convert.Convert(plain, ValueType(f.Type))
	if err != nil {
		return bad(conversionError(f, plain, err))
	}
	if !converted.IsWhollyKnown() {
		return false // part of it was reported as wrong, or depends on a variable without a value
	}
	if converted.IsNull() {
		if f.Kind == job.Required {
			return bad(fmt.Errorf("it is required, and the value is null"))
		}
		setDefault(to, f)
		return true
	}
	// The fresh value keeps a partial result of setGo out of the declaration.
	fresh := reflect.New(to.Type()).Elem()
	if err := setGo(fresh, converted); err != nil {
		return bad(err)
	}
	to.Set(fresh)
	return true
}

func setDefault(to reflect.Value, f job.Field) {
	to.SetZero()
	if f.Kind == job.References || f.Kind == job.Paths || f.Kind == job.Patterns || f.Type == exprType {
		return
	}
	val := defaultValue(f)
	if val.IsNull() {
		return
	}
	if err := setGo(to, val); err != nil {
		panic(fmt.Sprintf("lang: the default of %s cannot be decoded: %v", f.Name, err))
	}
}

// maxShown is the maximum length of a value that a message repeats in corrected form: nobody reads a longer one.
const maxShown = 100

// plainWords reports whether a shell would split a text at blanks only, and find no special characters in it.
func plainWords(text string) bool {
	return len(text) < maxShown && strings.TrimSpace(text) != "" && !strings.ContainsAny(text, "'\"`\\$;&|<>()*?~#")
}

// conversionError says what value the argument takes.
func conversionError(f job.Field, val cty.Value, err error) error {
	if path, ok := err.(cty.PathError); ok && len(path.Path) > 0 {
		return fmt.Errorf("%s: %w", pathText(path.Path), err)
	}
	t, given := f.Type, val.Type()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == cpuType:
		return fmt.Errorf("write a number of cores: 0.5, 1, 16 …")
	case t.Kind() == reflect.Bool:
		return fmt.Errorf("true or false is required")
	case t.Kind() == reflect.Slice && given == cty.String && val.IsKnown() && plainWords(val.AsString()):
		return fmt.Errorf("a list is required: write [%s]", quoted(strings.Fields(val.AsString()), ", "))
	case t.Kind() == reflect.Slice && given.IsPrimitiveType():
		return fmt.Errorf(`a list is required, each word an item of its own, as ["a", "b"]`)
	case t.Kind() == reflect.Map && !given.IsObjectType() && !given.IsMapType():
		return fmt.Errorf("an object is required, as { name = value }")
	}
	return err
}

// pathText formats a path within a value: [2] or ["a"].
func pathText(path cty.Path) string {
	var b strings.Builder
	for _, step := range path {
		switch s := step.(type) {
		case cty.GetAttrStep:
			fmt.Fprintf(&b, ".%s", s.Name)
		case cty.IndexStep:
			switch {
			case !s.Key.IsKnown() || s.Key.IsNull() || s.Key.IsMarked():
				b.WriteString("[…]")
			case s.Key.Type() == cty.Number:
				fmt.Fprintf(&b, "[%s]", s.Key.AsBigFloat().Text('f', -1))
			case s.Key.Type() == cty.String:
				fmt.Fprintf(&b, "[%q]", s.Key.AsString())
			}
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

func unsuitable(attr *hcl.Attribute, err error, secret bool, ctx *hcl.EvalContext) *hcl.Diagnostic {
	d := &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Invalid value",
		Detail:   fmt.Sprintf("The argument %q: %s.", attr.Name, err),
		Subject:  attr.Expr.Range().Ptr(),
		Context:  attr.Range.Ptr(),
	}
	if secret {
		// The error may quote the value.
		d.Detail = fmt.Sprintf("The argument %q does not accept this value, which is sensitive and not shown.", attr.Name)
		return d
	}
	d.Expression, d.EvalContext = attr.Expr, ctx
	return d
}
