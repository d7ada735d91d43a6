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

// conditionBlock is one condition with its message.
type conditionBlock struct {
	Condition    hcl.Expression `hcl:"condition,required" doc:"Must be true."`
	ErrorMessage hcl.Expression `hcl:"error_message,required" doc:"The message if it is not."`
}

// checkBlock is a check block: conditions that should hold.
type checkBlock struct {
	Name    string           `hcl:"name,label" doc:"The check's name."`
	Asserts []conditionBlock `hcl:"assert,block" doc:"The condition. It may refer to variables, locals, modules and, as job.NAME, to the jobs of the directory."`
}

// condition is a condition with everything needed to evaluate it.
type condition struct {
	holds, message hcl.Expression
	scope          scope
	ctx            *hcl.EvalContext
}

// verdict is the result of a condition. reported means that it could not be evaluated, and that the cause was reported.
type verdict struct {
	holds    bool
	reported bool
	message  string
}

// Checked is the result of the conditions of one check block, job or output.
type Checked struct {
	Kind   string // "check", "job" or "output"
	Module string // as module.eval["de"]; "" in the job directory itself
	Name   string // its label
	Key    string // of a job with for_each
	// Status is one of Terraform's: "pass", "fail" or "error", which means that a condition cannot be evaluated.
	Status   string
	Problems []string // messages of the failed conditions
}

// checked records the results of the conditions of one object, if it is present. CheckObserved, which evaluates them
// again on running jobs, does not change the record.
func (l *loader) checked(c Checked, verdicts []verdict) {
	if len(verdicts) == 0 || l.presence != present || l.observed != nil {
		return
	}
	c.Module, c.Status = strings.TrimSuffix(l.address, "."), "pass"
	for _, v := range verdicts {
		switch {
		case v.reported:
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

// evaluateCondition evaluates a condition, and its message if it does not hold.
func (l *loader) evaluateCondition(c condition) verdict {
	if c.holds == nil || c.message == nil {
		return verdict{reported: true} // reported as missing
	}
	holds, message := c.holds.(hclsyntax.Expression), c.message.(hclsyntax.Expression)
	if !l.checkExpr(&holds, c.scope) || !l.checkExpr(&message, c.scope) {
		return verdict{reported: true}
	}
	held, diags := c.holds.Value(c.ctx)
	l.report(diags...)
	if diags.HasErrors() {
		return verdict{reported: true}
	}
	held, _ = held.Unmark()
	if !held.IsKnown() {
		return verdict{reported: true} // it depends on a variable without a value
	}
	held, err := convert.Convert(held, cty.Bool)
	if err != nil || held.IsNull() {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid condition",
			Detail:  "The condition must be true or false.",
			Subject: c.holds.Range().Ptr(), Expression: c.holds, EvalContext: c.ctx,
		})
		return verdict{reported: true}
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

// require reports failed conditions as errors.
func (l *loader) require(summary string, blocks []conditionBlock, s scope, ctx *hcl.EvalContext) (verdicts []verdict) {
	for _, b := range blocks {
		held := l.evaluateCondition(condition{holds: b.Condition, message: b.ErrorMessage, scope: s, ctx: ctx})
		verdicts = append(verdicts, held)
		if held.reported || held.holds {
			continue
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: summary, Detail: held.message,
			Subject: b.Condition.Range().Ptr(), Expression: b.Condition, EvalContext: ctx, Extra: unmet{},
		})
	}
	return verdicts
}

// unmet marks the diagnostic of a failed condition: the files are valid but must not be applied.
type unmet struct{}

// Unsound reports whether there are errors other than failed conditions. As in Terraform, conditions do not prevent a
// destroy.
func Unsound(diags hcl.Diagnostics) bool {
	return slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
		_, condition := d.Extra.(unmet)
		return d.Severity == hcl.DiagError && !condition
	})
}

// requireOf checks a job's preconditions and postconditions. In the latter, self is the job as declared; unknown if the
// job has errors.
func (l *loader) requireOf(e *jobEval, b *jobBlock, sound bool) (verdicts []verdict) {
	s := scope{vars: true, locals: true, modules: true, each: e.tree.attrs["for_each"] != nil, where: "a precondition of a job"}
	verdicts = l.require("Job precondition failed", b.Lifecycle.Preconditions, s, e.ctx)
	if len(b.Lifecycle.Postconditions) == 0 {
		return verdicts
	}
	s.self, s.where = true, "a postcondition of a job"
	if !sound {
		ctx := e.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"self": cty.DynamicVal}
		return append(verdicts, l.require("Job postcondition failed", b.Lifecycle.Postconditions, s, ctx)...)
	}
	p := postconditions{job: b.Job, tree: e.tree, blocks: b.Lifecycle.Postconditions, scope: s, ctx: e.ctx, owner: l}
	l.shared.postconditions = append(l.shared.postconditions, p)
	return append(verdicts, l.requirePost(&p)...)
}

// checks evaluates the check blocks. A failed condition is a warning, whatever the reason.
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
		var verdicts []verdict
		for _, a := range decl.Asserts {
			verdicts = append(verdicts, l.assert(decl.Name, a))
		}
		l.checked(Checked{Kind: "check", Name: decl.Name}, verdicts)
	}
}

func (l *loader) assert(name string, a conditionBlock) verdict {
	s := scope{vars: true, locals: true, modules: true, jobs: true, where: "a check block"}
	ctx := l.withJobs(a.Condition, a.ErrorMessage)
	before := len(l.diags)
	held := l.evaluateCondition(condition{holds: a.Condition, message: a.ErrorMessage, scope: s, ctx: ctx})
	for _, d := range l.diags[before:] {
		// A mistake in the text is an error as everywhere; a failed evaluation is a failed check, and thus a warning.
		if d.EvalContext != nil {
			d.Severity = hcl.DiagWarning
		}
	}
	if held.reported || held.holds {
		return held
	}
	l.report(&hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: "Check block assertion failed",
		Detail:  fmt.Sprintf("%s\n\nThis is the check %q. It does not stop an apply.", held.message, name),
		Subject: a.Condition.Range().Ptr(), Expression: a.Condition, EvalContext: ctx,
	})
	return held
}
