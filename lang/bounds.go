package lang

import (
	"fmt"
	"math/big"
	"regexp"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// The bounds are far above what people and generators write, and low enough that the worst input is
// rejected within seconds and without exhausting memory or the stack.
const (
	maxFileBytes   = 16 << 20 // of a .hcl or .vars file
	maxReadBytes   = 10 << 20 // of a file that file() or templatefile() reads
	maxNesting     = 500      // brackets and operators open at one point; the parser recurses on each
	maxSteps       = 3e6      // evaluation steps per directory: one to two seconds
	maxBlocks      = 20_000   // blocks that dynamic blocks and for_each expand to, and module instances
	maxSourceFiles = 1000     // files of a role's source, and its patterns
	maxSourceBytes = 64 << 20 // of all files of a role's source
	maxPaths       = 1000     // paths in one ignore_changes: each is compared with every argument
	maxDiagnostics = 1000     // diagnostics per directory: nobody reads more
	maxExponent    = 4096     // binary exponent of a number: a larger one takes megabytes to print
	maxNumber      = 1000     // bytes of a number literal
	bytesPerStep   = 16       // bytes of text that cost one step
)

// MaxSlots is the limit of slots per directory: twice the scale that eltrain is designed for.
const MaxSlots = 200_000

var hugeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{3}`)

// checkSource rejects source that would make the parser overflow the stack or compute forever. It bounds the
// depth of the syntax tree: each open bracket and each operator without its end is a level.
func checkSource(src []byte, name string, lex func([]byte, string, hcl.Pos) (hclsyntax.Tokens, hcl.Diagnostics)) *hcl.Diagnostic {
	if len(src) > maxFileBytes {
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "File too large",
			Detail:   fmt.Sprintf("The file has %d bytes; the limit is %s.", len(src), job.Bytes(maxFileBytes)),
			Subject:  &hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos},
		}
	}
	if !utf8.Valid(src) {
		at := invalidAt(src, name)
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Not UTF-8",
			Detail:   "The byte here is not valid UTF-8. Save the file in that encoding.",
			Subject:  &at,
		}
	}
	tokens, _ := lex(src, name, hcl.InitialPos) // the parser repeats its diagnostics
	levels := []level{{opener: hclsyntax.TokenOBrace}}
	depth := 0
	for i, t := range tokens {
		top := &levels[len(levels)-1]
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			levels = append(levels, level{opener: t.Type})
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			if len(levels) == 1 {
				continue // unbalanced: the parser reports it
			}
			depth -= 1 + top.pending
			levels = levels[:len(levels)-1]
			outer := &levels[len(levels)-1]
			// a[b][b] nests to the left; a comma ends an item of a list.
			if t.Type == hclsyntax.TokenCBrack {
				outer.pending++
				depth++
			}
		case hclsyntax.TokenComma:
			depth -= top.pending
			top.pending = 0
		case hclsyntax.TokenNewline:
			if top.opener == hclsyntax.TokenOBrace {
				depth -= top.pending
				top.pending = 0
			}
		case hclsyntax.TokenIdent:
			// "%{ if" and "%{ for" nest until their "%{ end…".
			if i == 0 || tokens[i-1].Type != hclsyntax.TokenTemplateControl || len(levels) < 2 {
				continue
			}
			outer := &levels[len(levels)-2]
			switch string(t.Bytes) {
			case "if", "for":
				outer.pending++
				depth++
			case "endif", "endfor":
				if outer.pending > 0 {
					outer.pending--
					depth--
				}
			}
		case hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPlus, hclsyntax.TokenMinus, hclsyntax.TokenPercent,
			hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq,
			hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenAnd, hclsyntax.TokenOr,
			hclsyntax.TokenBang, hclsyntax.TokenQuestion, hclsyntax.TokenColon:
			top.pending++
			depth++
		case hclsyntax.TokenNumberLit:
			if len(t.Bytes) >= maxNumber || hugeExponent.Match(t.Bytes) {
				return &hcl.Diagnostic{
					Severity: hcl.DiagError,
					Summary:  "Number out of range",
					Detail:   "No argument accepts a number of this size.",
					Subject:  t.Range.Ptr(),
				}
			}
		}
		if depth > maxNesting {
			return &hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Nested too deeply",
				Detail:   fmt.Sprintf("More than %d brackets and operators are open here. Split the expression with locals.", maxNesting),
				Subject:  t.Range.Ptr(),
			}
		}
	}
	return nil
}

// invalidAt returns the range of the first byte that is not UTF-8.
func invalidAt(src []byte, name string) hcl.Range {
	pos := hcl.InitialPos
	for pos.Byte < len(src) {
		r, size := utf8.DecodeRune(src[pos.Byte:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		pos.Byte, pos.Column = pos.Byte+size, pos.Column+1
		if r == '\n' {
			pos.Line, pos.Column = pos.Line+1, 1
		}
	}
	end := hcl.Pos{Line: pos.Line, Column: pos.Column + 1, Byte: pos.Byte + 1}
	return hcl.Range{Filename: name, Start: pos, End: end}
}

// level is one open bracket, and the number of operators and index brackets seen in it since the last item ended.
type level struct {
	opener  hclsyntax.TokenType
	pending int
}

// meter counts the work of evaluating a directory and stops it at a limit. Expressions always terminate, but
// "${local.a}${local.a}" through thirty locals, or five nested for expressions, would take practically forever.
type meter struct {
	limit  int // steps
	steps  int
	blocks int
	// at is where evaluation was stopped; what and why are the summary and detail of the diagnostic.
	at        *hcl.Range
	what, why string
}

const tooMuch = "Too much to evaluate"

func newMeter() *meter { return &meter{limit: maxSteps} }

// reset restores the whole budget.
func (m *meter) reset() { *m = meter{limit: m.limit} }

// spend counts n steps and reports whether they are within the limit.
func (m *meter) spend(n int) bool {
	if m.why != "" {
		return false
	}
	m.steps += n
	if m.steps > m.limit {
		m.what, m.why = tooMuch, "Evaluating the expressions of this directory takes too long or produces too large values. Look for nested for expressions and locals that multiply each other."
		return false
	}
	return true
}

// spendBlocks counts blocks that a dynamic block expands to.
func (m *meter) spendBlocks(n int) bool {
	if m.why != "" {
		return false
	}
	m.blocks += n
	if m.blocks > maxBlocks {
		m.what, m.why = tooMuch, fmt.Sprintf("Dynamic blocks, for_each and modules make more than %d blocks.", maxBlocks)
		return false
	}
	return true
}

// blame records where a budget ran out, unless that is already known.
func (m *meter) blame(at hcl.Range) {
	if m.at == nil {
		m.at = &at
	}
}

// spendOn counts v with all its elements. It also fails for numbers that cannot be printed in reasonable time.
func (m *meter) spendOn(v cty.Value) bool {
	v, _ = v.Unmark()
	if !m.spend(1) {
		return false
	}
	if v == cty.NilVal || !v.IsKnown() || v.IsNull() {
		return true
	}
	ty := v.Type()
	switch {
	case ty == cty.String:
		return m.spend(len(v.AsString()) / bytesPerStep)
	case ty == cty.Number:
		return m.checkNumber(v.AsBigFloat())
	case ty.IsCollectionType() || ty.IsTupleType() || ty.IsObjectType():
		for it := v.ElementIterator(); it.Next(); {
			key, value := it.Element()
			if !m.spendOn(key) || !m.spendOn(value) {
				return false
			}
		}
	}
	return true
}

func (m *meter) checkNumber(n *big.Float) bool {
	if e := n.MantExp(nil); n.IsInf() || e > maxExponent || e < -maxExponent {
		m.what, m.why = "Number out of range", "A number here is out of range: no argument accepts one of this size."
		return false
	}
	return true
}

// diagnostic is non-nil once a budget was exceeded. It is reported once, at the end, because try() would swallow it.
func (m *meter) diagnostic() *hcl.Diagnostic {
	if m.why == "" {
		return nil
	}
	at := m.at
	if at == nil {
		at = &hcl.Range{}
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: m.what, Detail: m.why, Subject: at}
}

// attach wraps every expression below node so that its work is counted.
func (m *meter) attach(node hclsyntax.Node) {
	hclsyntax.Walk(node, attacher{m})
}

type attacher struct{ m *meter }

func (a attacher) Enter(hclsyntax.Node) hcl.Diagnostics { return nil }

// Exit wraps the children of a node after they were visited themselves.
func (a attacher) Exit(node hclsyntax.Node) hcl.Diagnostics {
	switch n := node.(type) {
	case *hclsyntax.Attribute:
		a.wrap(&n.Expr, shallow)
	case *hclsyntax.ParenthesesExpr:
		a.wrap(&n.Expression, shallow)
	case *hclsyntax.RelativeTraversalExpr:
		a.wrap(&n.Source, shallow)
	case *hclsyntax.FunctionCallExpr:
		a.wrapAll(n.Args) // the function counts their contents
	case *hclsyntax.ConditionalExpr:
		a.wrap(&n.Condition, shallow)
		a.wrap(&n.TrueResult, deep) // both are converted to one type
		a.wrap(&n.FalseResult, deep)
	case *hclsyntax.BinaryOpExpr:
		a.wrap(&n.LHS, deep) // "==" compares whole values
		a.wrap(&n.RHS, deep)
	case *hclsyntax.UnaryOpExpr:
		a.wrap(&n.Val, shallow)
	case *hclsyntax.IndexExpr:
		a.wrap(&n.Collection, shallow)
		a.wrap(&n.Key, shallow)
	case *hclsyntax.TupleConsExpr:
		a.wrapAll(n.Exprs)
	case *hclsyntax.ObjectConsExpr:
		for i := range n.Items {
			a.wrap(&n.Items[i].ValueExpr, shallow)
		}
	case *hclsyntax.ObjectConsKeyExpr:
		a.wrap(&n.Wrapped, shallow)
	case *hclsyntax.ForExpr:
		a.wrap(&n.CollExpr, loop)
		a.wrap(&n.KeyExpr, shallow)
		a.wrap(&n.ValExpr, shallow)
		a.wrap(&n.CondExpr, shallow)
	case *hclsyntax.SplatExpr:
		a.wrap(&n.Source, loop)
		a.wrap(&n.Each, shallow)
	case *hclsyntax.TemplateExpr:
		a.wrapAll(n.Parts)
	case *hclsyntax.TemplateJoinExpr:
		a.wrap(&n.Tuple, loop)
	case *hclsyntax.TemplateWrapExpr:
		a.wrap(&n.Wrapped, shallow)
	}
	return nil
}

// cost says how the result of an expression is counted.
type cost int

const (
	shallow cost = iota // one step, plus its text
	loop                // one step per element: the parent iterates over them
	deep                // the whole value
)

func (a attacher) wrapAll(exprs []hclsyntax.Expression) {
	for i := range exprs {
		a.wrap(&exprs[i], shallow)
	}
}

// wrap skips literals, whose size is bounded by the file's, and the loop symbol of a splat. Values composed of other
// values are counted deeply: they share their parts, so that a small structure can represent one too large to walk.
func (a attacher) wrap(e *hclsyntax.Expression, c cost) {
	switch (*e).(type) {
	case nil, *hclsyntax.LiteralValueExpr, *hclsyntax.AnonSymbolExpr, *metered:
		return
	case *hclsyntax.TupleConsExpr, *hclsyntax.ObjectConsExpr, *hclsyntax.ForExpr, *hclsyntax.SplatExpr:
		c = deep
	}
	*e = &metered{&hclsyntax.ParenthesesExpr{Expression: *e, SrcRange: (*e).Range()}, a.m, c}
}

// metered is an expression whose evaluation is counted. HCL's walkers see a pair of parentheses, and thus the
// expression inside.
type metered struct {
	*hclsyntax.ParenthesesExpr
	m    *meter
	cost cost
}

// UnwrapExpression lets HCL's static analysis (keywords, lists, type expressions) see the original expression.
func (e *metered) UnwrapExpression() hcl.Expression { return e.Expression }

func (e *metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if e.m.why != "" {
		return cty.DynamicVal, exhausted(e.Range())
	}
	v, diags := e.Expression.Value(ctx)
	if byZero(e.Expression, v) && e.m.spend(1) {
		return cty.UnknownVal(cty.Number), append(diags, &hcl.Diagnostic{
			Severity:   hcl.DiagError,
			Summary:    "Division by zero",
			Detail:     "The divisor is 0. Guard it: n == 0 ? … : … / n.",
			Subject:    e.Range().Ptr(),
			Expression: e.Expression, EvalContext: ctx,
		})
	}
	if !e.m.spendAs(e.cost, v) {
		if e.m.at == nil {
			e.m.at = e.Range().Ptr()
		}
		return cty.DynamicVal, exhausted(e.Range())
	}
	return v, diags
}

// byZero reports whether a value is the infinity that HCL returns for a division by zero.
func byZero(expr hclsyntax.Expression, v cty.Value) bool {
	division, ok := expr.(*hclsyntax.BinaryOpExpr)
	if !ok || division.Op != hclsyntax.OpDivide {
		return false
	}
	v, _ = v.Unmark()
	return v.Type() == cty.Number && v.IsKnown() && !v.IsNull() && v.AsBigFloat().IsInf()
}

func (m *meter) spendAs(c cost, v cty.Value) bool {
	v, _ = v.Unmark()
	switch {
	case c == deep:
		return m.spendOn(v)
	case !m.spend(1):
		return false
	case v == cty.NilVal || !v.IsKnown() || v.IsNull():
		return true
	case v.Type() == cty.String:
		return m.spend(len(v.AsString()) / bytesPerStep)
	case v.Type() == cty.Number:
		return m.checkNumber(v.AsBigFloat())
	case c == loop && v.CanIterateElements():
		return m.spend(v.LengthInt())
	}
	return true
}

// alreadyReported marks diagnostics whose cause is reported elsewhere.
type alreadyReported struct{}

// exhausted is the error that ends an evaluation; the meter's own diagnostic has the reason.
func exhausted(r hcl.Range) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: tooMuch, Subject: &r, Extra: alreadyReported{}}}
}

// unwrap returns the expression without the meter around it.
func unwrap(n hclsyntax.Node) hclsyntax.Node {
	if m, ok := n.(*metered); ok {
		return m.Expression
	}
	return n
}

// broken replaces an expression whose errors were already reported: evaluating it fails silently.
type broken struct{ hclsyntax.Expression }

func (b *broken) Value(*hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	r := b.Range()
	return cty.DynamicVal, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Invalid expression", Subject: &r, Extra: alreadyReported{}}}
}
