package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/eltrain/eltrain/job"
)

const (
	defaultVarsFile = "eltrain.vars"
	autoVarsSuffix  = ".auto.vars"
	envPrefix       = "ELTRAIN_VAR_"
)

// mark is the type of Sensitive, distinct from other packages' marks.
type mark string

// Sensitive marks every value that comes from a sensitive variable or from sensitive().
const Sensitive = mark("sensitive")

// Variable is a declared input with its value.
type Variable struct {
	Name        string
	Type        cty.Type
	Description string
	Sensitive   bool
	Value       cty.Value // carries the mark Sensitive if it is; unknown after an error, or if nothing sets it
	Source      job.Source
}

// variableBlock is a variable block.
type variableBlock struct {
	Name        string            `hcl:"name,label" doc:"The variable's name, used as var.NAME."`
	Type        hcl.Expression    `hcl:"type,optional" doc:"Type that a value must have: string, number, bool, list(T), set(T), map(T), object({ a = T, b = optional(T, default) }), tuple([T]) or any."`
	Default     hcl.Expression    `hcl:"default,optional" doc:"Value if nothing is set. Without one the variable must be set to plan and apply."`
	Description string            `hcl:"description,optional" doc:"What it is for."`
	Sensitive   bool              `hcl:"sensitive,optional" doc:"Hides the value in all output and storage: the state, the journal and saved plans contain only a keyed digest of it."`
	Nullable    bool              `hcl:"nullable,optional" default:"true" doc:"Whether null is a value. If not, null means the default."`
	Validations []validationBlock `hcl:"validation,block" doc:"A rule for the value."`
}

type validationBlock struct {
	Condition    hcl.Expression `hcl:"condition,required" doc:"Must be true. It may refer to any variable."`
	ErrorMessage hcl.Expression `hcl:"error_message,required" doc:"The message if it is not."`
}

// variable is one declaration with its value.
type variable struct {
	name  string
	decl  variableBlock
	tree  *tree
	ty    cty.Type
	fill  *typeexpr.Defaults // of optional() attributes
	typed bool
	value cty.Value
	// from is where the value was written; a failed rule points there.
	from hcl.Range
}

// literal reports whether a value from the command line or environment is taken literally, not as an expression.
func (v *variable) literal() bool { return !v.typed || v.ty.IsPrimitiveType() }

// variables reads the declarations, determines their values, and checks the rules.
func (l *loader) variables() {
	seen := map[string]hcl.Range{}
	var order []*variable
	for _, b := range l.blocks["variable"] {
		v := l.declare(b, seen)
		if l.declared[v.name] == nil {
			l.declared[v.name] = v
			order = append(order, v)
		}
	}

	given := l.given
	if l.parent == nil {
		given = l.givenValues()
	}
	values := map[string]cty.Value{}
	for _, v := range order {
		v.value = l.valueOf(v, given[v.name])
		if v.decl.Sensitive {
			v.value = v.value.Mark(Sensitive)
		}
		values[v.name] = v.value
	}
	l.ctx.Variables = map[string]cty.Value{"var": cty.ObjectVal(values)}

	for _, v := range order {
		l.checkRules(v)
		if l.parent != nil {
			continue // set by a module block, and not shown outside
		}
		l.cfg.Variables = append(l.cfg.Variables, Variable{
			Name: v.name, Type: v.ty, Description: v.decl.Description, Sensitive: v.decl.Sensitive,
			Value: v.value, Source: sourceOf(v.tree.def),
		})
	}
}

func (l *loader) declare(b *hclsyntax.Block, seen map[string]hcl.Range) *variable {
	block := b.AsHCLBlock()
	l.checkLabel("variable", block, seen)
	v := &variable{tree: l.tree(block, reflect.TypeFor[variableBlock]()), ty: cty.DynamicPseudoType}
	// Only rules can refer to variables; the rest must be constant.
	l.checkBody(b.Body, v.tree.typ, scope{where: "the declaration of a variable"})
	d := decoder{l: l, eval: func(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
		val, diags := attr.Expr.Value(nil)
		return val, nil, diags
	}}
	d.into(reflect.ValueOf(&v.decl).Elem(), v.tree)
	v.name = v.decl.Name
	v.from = v.tree.def
	if !hclsyntax.ValidIdentifier(v.name) && job.ValidName(v.name) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Invalid name of a variable",
			Detail:   fmt.Sprintf("%q cannot be used as var.NAME: start it with a letter.", v.name),
			Subject:  v.tree.labelRanges[0].Ptr(),
		})
	}
	if v.decl.Type != nil {
		ty, fill, diags := typeexpr.TypeConstraintWithDefaults(v.decl.Type)
		l.report(diags...)
		if !diags.HasErrors() {
			v.ty, v.fill, v.typed = ty, fill, true
		}
	}
	return v
}

// givenValue is a value from outside, not yet converted to the variable's type.
type givenValue struct {
	text  string         // from the command line or the environment
	expr  hcl.Expression // from a file, or parsed from text
	value cty.Value      // from a module block
	at    hcl.Range
}

// givenValues collects the values set from outside, in Terraform's order of precedence, the last one winning:
// environment, eltrain.vars, *.auto.vars by name, then Options.Assignments in the order given.
func (l *loader) givenValues() map[string]givenValue {
	given := map[string]givenValue{}
	for _, pair := range l.opts.Environ {
		name, value, _ := strings.Cut(pair, "=")
		name, ok := strings.CutPrefix(name, envPrefix)
		// An environment is shared by many directories: an undeclared variable is meant for another one.
		if ok && l.declared[name] != nil {
			given[name] = l.givenText("<environment variable "+envPrefix+name+">", value, l.declared[name].decl.Sensitive)
		}
	}
	var automatic []string
	assigned := map[string]bool{}
	for _, a := range l.opts.Assignments {
		assigned[a.File] = true
	}
	for _, path := range slices.Sorted(maps.Keys(l.varFiles)) {
		if isVars(baseName(path)) && !assigned[path] {
			automatic = append(automatic, path)
		}
	}
	slices.SortStableFunc(automatic, func(a, b string) int {
		return boolOrder(baseName(a) == defaultVarsFile, baseName(b) == defaultVarsFile)
	})
	for _, path := range automatic {
		l.givenFile(given, path)
	}
	for _, a := range l.opts.Assignments {
		switch {
		case a.File != "":
			l.givenFile(given, a.File)
		case l.declared[a.Name] == nil:
			at := l.givenText(a.origin(), a.Value, true).at
			l.report(l.silenceIfIncomplete(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Value for an undeclared variable",
				Detail:   fmt.Sprintf("No variable with the name %q is declared.%s", a.Name, suggestKey(a.Name, l.declared)),
				Subject:  &at,
			}))
		default:
			given[a.Name] = l.givenText(a.origin(), a.Value, l.declared[a.Name].decl.Sensitive)
		}
	}
	return given
}

// origin is the name of an assignment in diagnostics, in the place of a file's.
func (a *Assignment) origin() string { return "<" + a.From + " " + a.Name + ">" }

// boolOrder sorts true before false.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func baseName(path string) string { return path[strings.LastIndexAny(path, `/\`)+1:] }

// givenText registers a value as a source of its own, so that diagnostics can quote it. A sensitive one is not
// registered: a snippet would show it.
func (l *loader) givenText(name, text string, sensitive bool) givenValue {
	if !sensitive {
		l.cfg.Files[name] = &hcl.File{Bytes: []byte(text)}
	}
	end := hcl.Pos{Line: 1, Column: 1 + len(text), Byte: len(text)}
	return givenValue{text: text, at: hcl.Range{Filename: name, Start: hcl.InitialPos, End: end}}
}

func (l *loader) givenFile(given map[string]givenValue, path string) {
	body := l.varFiles[path]
	if body == nil {
		return // an error in reading or parsing was reported
	}
	attrs, diags := body.JustAttributes()
	for _, d := range diags {
		d.Detail = "A variables file can only contain lines of the form NAME = VALUE. Declare variables in a .hcl file."
	}
	l.report(diags...)
	for name, attr := range attrs {
		if l.declared[name] == nil {
			l.report(l.silenceIfIncomplete(&hcl.Diagnostic{
				Severity: hcl.DiagWarning,
				Summary:  "Value for an undeclared variable",
				Detail:   fmt.Sprintf("No variable %q is declared, so the value is not used.%s", name, suggestKey(name, l.declared)),
				Subject:  attr.Expr.Range().Ptr(), // not the name: at the start of a file that is not quoted no line would be shown
			}))
			continue
		}
		given[name] = givenValue{expr: attr.Expr, at: attr.Expr.Range()}
	}
}

// valueOf returns the variable's value; unknown if nothing sets it or it does not fit.
func (l *loader) valueOf(v *variable, g givenValue) cty.Value {
	unknown := unknownOf(v.ty)
	fallback := func() (cty.Value, bool) {
		if v.decl.Default == nil {
			return cty.NilVal, false
		}
		v.from = v.decl.Default.Range()
		val, diags := constant(v.decl.Default)
		l.report(diags...)
		if diags.HasErrors() {
			return unknown, true
		}
		return l.fit(v, val, "default"), true
	}
	if g.at.Filename == "" {
		val, ok := fallback()
		if !ok && l.parent != nil {
			at := l.call.block.DefRange()
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "No value for a required variable",
				Detail:   fmt.Sprintf("The variable %q of the module %q has no default. Add a line to this block: %s = ….", v.name, l.call.name, v.name),
				Subject:  &at,
			})
			return unknown
		}
		if !ok {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "No value for a required variable",
				Detail: advised(fmt.Sprintf("The variable %q has no default. Set it in %s or with %s%s=….",
					v.name, defaultVarsFile, envPrefix, v.name), l.opts.Advice.Assign),
				Subject: v.tree.def.Ptr(), Extra: unset{},
			})
			return unknown
		}
		return val
	}

	v.from = g.at
	val := cty.StringVal(g.text)
	switch {
	case g.value != cty.NilVal:
		val = g.value
	case g.expr == nil && !v.literal():
		g.expr = l.parseText(g)
		if g.expr == nil {
			return unknown
		}
	}
	if g.expr != nil {
		var diags hcl.Diagnostics
		val, diags = constant(g.expr)
		l.report(diags...)
		if diags.HasErrors() {
			return unknown
		}
	}
	val = l.fit(v, val, "value")
	if !val.IsNull() || v.decl.Nullable {
		return val
	}
	if def, ok := fallback(); ok {
		return def
	}
	l.report(&hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Invalid value for a variable",
		Detail:   fmt.Sprintf("The variable %q must not be null.", v.name),
		Subject:  &g.at,
	})
	return unknown
}

// constant evaluates an expression without references.
func constant(expr hcl.Expression) (cty.Value, hcl.Diagnostics) {
	val, diags := expr.Value(nil)
	for _, d := range diags {
		if d.Summary == "Variables not allowed" || d.Summary == "Function calls not allowed" {
			d.Detail = "The value of a variable must be a constant. A string must be quoted."
		}
	}
	return val, diags
}

// parseText parses a value for a variable of a complex type as an expression. It returns nil after errors.
func (l *loader) parseText(g givenValue) hcl.Expression {
	if d := checkSource([]byte(g.text), g.at.Filename, hclsyntax.LexExpression); d != nil {
		l.report(d)
		return nil
	}
	expr, diags := hclsyntax.ParseExpression([]byte(g.text), g.at.Filename, hcl.InitialPos)
	l.report(diags...)
	if diags.HasErrors() {
		return nil
	}
	l.meter.attach(expr)
	return expr
}

// fit converts a value to the variable's type.
func (l *loader) fit(v *variable, val cty.Value, what string) cty.Value {
	if v.fill != nil && !val.IsNull() {
		val = v.fill.Apply(val)
	}
	converted, err := convert.Convert(val, v.ty)
	if err != nil {
		secret, at := v.decl.Sensitive || val.ContainsMarked(), v.from
		detail := fmt.Sprintf("The %s of %q does not match its type %s: %s.", what, v.name, typeexpr.TypeString(v.ty), conversionText(err))
		if secret {
			detail = fmt.Sprintf("The %s of %q does not match its type %s. It is sensitive and not shown.", what, v.name, typeexpr.TypeString(v.ty))
			at = l.nearby(v)
		}
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Invalid value for a variable", Detail: detail, Subject: &at})
		return unknownOf(v.ty)
	}
	if !l.meter.spendOn(converted) {
		return unknownOf(v.ty)
	}
	return converted
}

// nearby returns a range near a variable's value whose quoted source does not show the value.
func (l *loader) nearby(v *variable) hcl.Range {
	switch {
	case l.cfg.Files[v.from.Filename] == nil:
		return v.from // its file is not quoted
	case v.decl.Default != nil && v.from == v.decl.Default.Range():
		return v.tree.def
	}
	return l.call.block.DefRange() // a module's argument
}

func conversionText(err error) string {
	if path, ok := err.(cty.PathError); ok && len(path.Path) > 0 {
		return pathText(path.Path) + ": " + err.Error()
	}
	return err.Error()
}

// checkRules evaluates a variable's validation blocks.
func (l *loader) checkRules(v *variable) {
	for i, rule := range v.decl.Validations {
		t := v.tree.blocks["validation"][i]
		held := l.evaluateCondition(condition{
			holds: rule.Condition, message: rule.ErrorMessage, ctx: l.ctx,
			scope: scope{vars: true, where: "a validation block"},
		})
		if held.reported || held.holds {
			continue
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: fmt.Sprintf("Invalid value for the variable %q", v.name),
			Detail:  fmt.Sprintf("%s\n\nThis was checked by the validation rule at %s:%d.", held.message, t.def.Filename, t.def.Start.Line),
			Subject: v.from.Ptr(), Expression: rule.Condition, EvalContext: l.ctx,
		})
	}
}
