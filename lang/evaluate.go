package lang

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// ConsoleInput is the name in Config.Files of the last source given to Evaluate.
const ConsoleInput = "<console-input>"

// Evaluate returns the value of one expression, which may use what an output may: variables, local values, modules,
// jobs and functions. Sensitive parts of the value carry the mark Sensitive. Each call has the evaluation budget of a
// whole directory. The Config must come from Load or Parse without errors, and must not be used concurrently.
func (c *Config) Evaluate(src string) (cty.Value, hcl.Diagnostics) {
	l := c.loader
	l.meter.reset()
	l.diags = nil
	c.Files[ConsoleInput] = &hcl.File{Bytes: []byte(src)}
	val := l.evaluate([]byte(src))
	return val, l.finish()
}

// evaluate reports errors and then returns an unknown value.
func (l *loader) evaluate(src []byte) cty.Value {
	if d := checkSource(src, ConsoleInput, hclsyntax.LexExpression); d != nil {
		l.report(d)
		return cty.DynamicVal
	}
	expr, diags := hclsyntax.ParseExpression(src, ConsoleInput, hcl.InitialPos)
	l.report(diags...)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	whole := &hclsyntax.Attribute{Expr: expr} // so that the outermost expression is metered, too
	l.meter.attach(whole)
	expr = whole.Expr
	s := scope{vars: true, locals: true, modules: true, jobs: true, where: "the console"}
	if !l.checkExpr(&expr, s) {
		return cty.DynamicVal
	}
	val, diags := expr.Value(l.withJobs(expr))
	l.report(diags...)
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	return val
}

// Unfinished reports whether an expression continues on the next line: a bracket, a quote or a heredoc is open.
func Unfinished(src string) bool {
	if d := checkSource([]byte(src), ConsoleInput, hclsyntax.LexExpression); d != nil {
		return false // more input cannot fix it
	}
	tokens, _ := hclsyntax.LexExpression([]byte(src), ConsoleInput, hcl.InitialPos)
	open := 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOHeredoc,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			open++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCHeredoc,
			hclsyntax.TokenTemplateSeqEnd:
			open--
		}
	}
	return open > 0
}
