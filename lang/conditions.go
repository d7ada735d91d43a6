package lang

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// conditionBlock is one thing that must hold.
type conditionBlock struct {
	Condition    hcl.Expression `hcl:"condition,required" doc:"Must be true."`
	ErrorMessage hcl.Expression `hcl:"error_message,required" doc:"The message if it is not."`
}

// checkBlock is a set of things that should hold.
type checkBlock struct {
	Name    string           `hcl:"name,label" doc:"The check's name."`
	Asserts []conditionBlock `hcl:"assert,block" doc:"The condition. It may refer to variables, locals, modules and, as job.NAME, to the jobs of the directory."`
}

// condition is a condition with all that it takes to evaluate it.
type condition struct {
	holds, message hcl.Expression
	scope          scope
	ctx            *hcl.EvalContext
}

// verdict is what a condition came to. told: it could not be evaluated, and why was reported or is a
// consequence of what was.
type verdict struct {
	holds   bool
	told    bool
	message string
}

// Checked is what the conditions came to of one thing that is declared: of a check block, of a job or of an output.
type Checked struct {
	Kind   string // "check", "job" or "output"
	Module string // as module.eval["de"]; "" for what is in the job directory itself
	Name   string // its label
	Key    string // of a job with for_each
	// Status is one of Terraform's: "pass", "fail" or "error", which is that a condition cannot be evaluated.
	Status   string
	Problems []string // the messages of what does not hold
}

// checked enters what all the conditions of one thing came to, if it is there. How things are declared does not change
// with what runs.
func (l *loader) checked(c Checked, came []verdict) {
	if len(came) == 0 || l.presence != present || l.observed != nil {
		return
	}
	c.Module, c.Status = strings.TrimSuffix(l.address, "."), "pass"
	for _, v := range came {
		switch {
		case v.told:
			c.Status = "error"
		case !v.holds:
			c.Problems = append(c.Problems, v.message)
		}
	}
	if c.Status == "pass" && len(c.Problems) > 0 {
		c.Status = "fail"
	}
	l.cfg.Checked = append(l.cfg.Checked, c)
}

// evaluateCondition reports whether a condition holds, and what to say if not.
func (l *loader) evaluateCondition(c condition) verdict {
	if c.holds == nil || c.message == nil {
		return verdict{told: true} // reported as missing
	}
	holds, message := c.holds.(hclsyntax.Expression), c.message.(hclsyntax.Expression)
	if !l.checkExpr(&holds, c.scope) || !l.checkExpr(&message, c.scope) {
		return verdict{told: true}
	}
	held, diags := c.holds.Value(c.ctx)
	l.report(diags...)
	if diags.HasErrors() {
		return verdict{told: true}
	}
	held, _ = held.Unmark()
	if !held.IsKnown() {
		return verdict{told: true} // it refers to something without a value
	}
	held, err := convert.Convert(held, cty.Bool)
	if err != nil || held.IsNull() {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid condition",
			Detail:  "The condition must be true or false.",
			Subject: c.holds.Range().Ptr(), Expression: c.holds, EvalContext: c.ctx,
		})
		return verdict{told: true}
	}
	if held.True() {
		return verdict{holds: true}
	}
	return verdict{message: l.conditionMessage(c)}
}

func (l *loader) conditionMessage(c condition) string {
	msg, diags := c.message.Value(c.ctx)
	l.report(diags...)
	if !diags.HasErrors() {
		if msg.IsMarked() {
			return "The rule's message refers to a sensitive value and is not shown."
		}
		if text, err := convert.Convert(msg, cty.String); err == nil && text.IsKnown() && !text.IsNull() {
			return text.AsString()
		}
	}
	return "The value violates the rule."
}

// require reports conditions that do not hold as errors.
func (l *loader) require(summary string, blocks []conditionBlock, s scope, ctx *hcl.EvalContext) (came []verdict) {
	for _, b := range blocks {
		held := l.evaluateCondition(condition{holds: b.Condition, message: b.ErrorMessage, scope: s, ctx: ctx})
		came = append(came, held)
		if held.told || held.holds {
			continue
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: summary, Detail: held.message,
			Subject: b.Condition.Range().Ptr(), Expression: b.Condition, EvalContext: ctx, Extra: unmet{},
		})
	}
	return came
}

// unmet marks the diagnostic of a condition that does not hold: the files mean what they say, and it is not to be
// applied.
type unmet struct{}

// Unsound reports whether there are errors besides conditions that do not hold. Conditions are not asked to destroy, as
// in Terraform.
func Unsound(diags hcl.Diagnostics) bool {
	return slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
		_, condition := d.Extra.(unmet)
		return d.Severity == hcl.DiagError && !condition
	})
}

// requireOf checks a job's pre- and postconditions. self, for the latter, is the job as declared; unknown if
// something about it is wrong.
func (l *loader) requireOf(e *jobEval, b *jobBlock, sound bool) (came []verdict) {
	s := scope{vars: true, locals: true, modules: true, each: e.tree.attrs["for_each"] != nil, where: "a precondition of a job"}
	came = l.require("Job precondition failed", b.Lifecycle.Preconditions, s, e.ctx)
	if len(b.Lifecycle.Postconditions) == 0 {
		return came
	}
	s.self, s.where = true, "a postcondition of a job"
	if !sound {
		ctx := e.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"self": cty.DynamicVal}
		return append(came, l.require("Job postcondition failed", b.Lifecycle.Postconditions, s, ctx)...)
	}
	p := postconditions{job: b.Job, tree: e.tree, blocks: b.Lifecycle.Postconditions, scope: s, ctx: e.ctx, owner: l}
	l.shared.postconditions = append(l.shared.postconditions, p)
	return append(came, l.requirePost(&p)...)
}

// checks evaluates the check blocks: what does not hold is a warning, whatever the reason.
func (l *loader) checks() {
	seen := map[string]hcl.Range{}
	for _, b := range l.blocks["check"] {
		block := b.AsHCLBlock()
		l.checkLabel("check", block, seen)
		t := l.tree(block, reflect.TypeFor[checkBlock]())
		var decl checkBlock
		d := decoder{l: l, eval: l.plain}
		d.into(reflect.ValueOf(&decl).Elem(), t)
		if len(decl.Asserts) == 0 {
			l.complain(&t.def, t, "Check without an assertion", "A check block needs at least one assert block, or it checks nothing.")
		}
		var came []verdict
		for _, a := range decl.Asserts {
			came = append(came, l.assert(decl.Name, a))
		}
		l.checked(Checked{Kind: "check", Name: decl.Name}, came)
	}
}

func (l *loader) assert(name string, a conditionBlock) verdict {
	s := scope{vars: true, locals: true, modules: true, jobs: true, where: "a check block"}
	ctx := l.withJobs(a.Condition, a.ErrorMessage)
	before := len(l.diags)
	held := l.evaluateCondition(condition{holds: a.Condition, message: a.ErrorMessage, scope: s, ctx: ctx})
	for _, d := range l.diags[before:] {
		// What is written wrong is an error like anywhere else; what cannot be computed is a check that failed.
		if d.EvalContext != nil {
			d.Severity = hcl.DiagWarning
		}
	}
	if held.told || held.holds {
		return held
	}
	l.report(&hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: "Check block assertion failed",
		Detail:  fmt.Sprintf("%s\n\nThis is the check %q. It does not stop an apply.", held.message, name),
		Subject: a.Condition.Range().Ptr(), Expression: a.Condition, EvalContext: ctx,
	})
	return held
}
