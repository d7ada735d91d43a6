package view

import (
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func TestValue(t *testing.T) {
	list := cty.ListVal([]cty.Value{cty.StringVal("a"), cty.StringVal("b\nc")})
	for want, v := range map[string]cty.Value{
		`"a \"b\" \u001b"`:         cty.StringVal("a \"b\" \x1b"),
		"12345678901234567890.5":   cty.MustParseNumberVal("12345678901234567890.5"),
		"true":                     cty.True,
		"null":                     cty.NullVal(cty.DynamicPseudoType),
		"tostring(null)":           cty.NullVal(cty.String),
		"null /* list of bool */":  cty.NullVal(cty.List(cty.Bool)),
		"(not known)":              cty.UnknownVal(cty.String),
		"(sensitive value)":        cty.StringVal("x").Mark("m"),
		"[]":                       cty.EmptyTupleVal,
		"{}":                       cty.EmptyObjectVal,
		"tolist([])":               cty.ListValEmpty(cty.String),
		"<<EOT_\nEOT\nb\nEOT_":     cty.StringVal("EOT\nb"),
		"toset([\n  1,\n])":        cty.SetVal([]cty.Value{cty.NumberIntVal(1)}),
		"tomap({\n  \"k\" = 1\n})": cty.MapVal(map[string]cty.Value{"k": cty.NumberIntVal(1)}),
		"{\n  \"l\" = tolist([\n    \"a\",\n    <<-EOT\n    b\n    c\n    EOT,\n  ])\n  \"s\" = (sensitive value)\n}": cty.ObjectVal(map[string]cty.Value{"l": list, "s": cty.True.Mark("m")}),
	} {
		if got := Value(v); got != want {
			t.Errorf("%#v is shown as\n%s\nwant\n%s", v, got, want)
		}
	}
}

// Plain values are shown in the language's syntax, so that they can be pasted back.
func TestValueIsAnExpression(t *testing.T) {
	v := cty.ObjectVal(map[string]cty.Value{
		"a": cty.TupleVal([]cty.Value{cty.NumberFloatVal(1.5), cty.NullVal(cty.DynamicPseudoType), cty.StringVal("x ${y}")}),
		"b": cty.ObjectVal(map[string]cty.Value{"c-d": cty.False}),
	})
	expr, diags := hclsyntax.ParseExpression([]byte(Value(v)), "x", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatalf("%v\n%s", diags, Value(v))
	}
	if back, diags := expr.Value(nil); diags.HasErrors() || !back.RawEquals(v) {
		t.Errorf("%s\nreads as %#v, %v", Value(v), back, diags)
	}
}
