package view

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Value writes a value in the language's syntax, in the form of terraform console: values without a literal, such as typed
// lists and nulls, as the function call that makes them. Sensitive values are not shown.
func Value(v cty.Value) string { return valueAt(v, 0) }

// valueStep is the indentation of each level of a value, in columns.
const valueStep = 2

func valueAt(v cty.Value, indent int) string {
	ty := v.Type()
	switch {
	case v.IsMarked(): // the language has no other mark
		return sensitive
	case !v.IsKnown():
		return "(not known)"
	case v.IsNull():
		return nullOf(ty)
	case ty == cty.String:
		return textAt(v.AsString(), indent)
	case ty == cty.Number:
		return v.AsBigFloat().Text('f', -1)
	case ty == cty.Bool:
		return strconv.FormatBool(v.True())
	case ty.IsListType():
		return "tolist(" + elementsAt(v, indent) + ")"
	case ty.IsSetType():
		return "toset(" + elementsAt(v, indent) + ")"
	case ty.IsTupleType():
		return elementsAt(v, indent)
	case ty.IsMapType():
		return "tomap(" + entriesAt(v, indent) + ")"
	case ty.IsObjectType():
		return entriesAt(v, indent)
	}
	return ty.FriendlyName()
}

func nullOf(ty cty.Type) string {
	switch ty {
	case cty.DynamicPseudoType:
		return "null"
	case cty.String:
		return "tostring(null)"
	case cty.Number:
		return "tonumber(null)"
	case cty.Bool:
		return "tobool(null)"
	}
	return "null /* " + ty.FriendlyName() + " */"
}

// textAt returns a string in quotes, or as a heredoc if it has several lines.
func textAt(s string, indent int) string {
	if !strings.Contains(s, "\n") {
		return quoted(s)
	}
	lines := strings.Split(literally.Replace(printable(s)), "\n")
	end := "EOT"
	for taken := true; taken; {
		taken = false
		for _, line := range lines {
			taken = taken || strings.TrimSpace(line) == end
		}
		if taken {
			end += "_"
		}
	}
	operator := "<<"
	if indent > 0 {
		operator = "<<-"
	}
	margin := "\n" + strings.Repeat(" ", indent)
	return operator + end + margin + strings.Join(lines, margin) + margin + end
}

// quoted returns a string in the language's quotes.
func quoted(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

// literally escapes what would be a template.
var literally = strings.NewReplacer("${", "$${", "%{", "%%{")

func elementsAt(v cty.Value, indent int) string {
	if v.LengthInt() == 0 {
		return "[]"
	}
	return enclosed("[", "]", v, indent, func(_, elem cty.Value) string { return valueAt(elem, indent+valueStep) + "," })
}

func entriesAt(v cty.Value, indent int) string {
	if v.LengthInt() == 0 {
		return "{}"
	}
	return enclosed("{", "}", v, indent, func(key, elem cty.Value) string {
		return quoted(key.AsString()) + " = " + valueAt(elem, indent+valueStep)
	})
}

// enclosed writes each element of a value on its own line.
func enclosed(open, end string, v cty.Value, indent int, line func(key, elem cty.Value) string) string {
	var b strings.Builder
	b.WriteString(open + "\n")
	for it := v.ElementIterator(); it.Next(); {
		b.WriteString(strings.Repeat(" ", indent+valueStep) + line(it.Element()) + "\n")
	}
	b.WriteString(strings.Repeat(" ", indent) + end)
	return b.String()
}
