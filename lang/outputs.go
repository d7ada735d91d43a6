package lang

import (
	"fmt"
	"reflect"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// Output is an output value of the job directory.
type Output struct {
	Name        string
	Description string
	Sensitive   bool
	Value       cty.Value // carries the mark Sensitive if it is; unknown after an error
	Source      job.Source
}

// outputBlock is an output block.
type outputBlock struct {
	Name          string           `hcl:"name,label" doc:"The output's name; where a module is used, module.MODULE.NAME."`
	Value         hcl.Expression   `hcl:"value,required" doc:"The value. It may refer to variables, locals, modules and, as job.NAME, to the jobs of the directory."`
	Description   string           `hcl:"description,optional" doc:"What it is."`
	Sensitive     bool             `hcl:"sensitive,optional" doc:"Hides the value in all output. Required if it contains sensitive values."`
	Preconditions []conditionBlock `hcl:"precondition,block" doc:"A condition for the value to be valid."`
}

func (l *loader) outputs() {
	seen := map[string]hcl.Range{}
	for _, b := range l.blocks["output"] {
		block := b.AsHCLBlock()
		l.checkLabel("output", block, seen)
		t := reflect.TypeFor[outputBlock]()
		l.checkBody(b.Body, t, scope{where: "the description of an output"})
		read := l.tree(block, t)
		var decl outputBlock
		d := decoder{l: l, eval: l.plain}
		d.into(reflect.ValueOf(&decl).Elem(), read)
		val := l.outputValue(&decl)
		if _, dup := l.results[decl.Name]; dup {
			continue
		}
		l.results[decl.Name] = val
		if l.parent == nil {
			l.cfg.Outputs = append(l.cfg.Outputs, Output{
				Name: decl.Name, Description: decl.Description, Sensitive: decl.Sensitive, Value: val, Source: sourceOf(read.def),
			})
		}
	}
}

func (l *loader) outputValue(o *outputBlock) cty.Value {
	s := scope{vars: true, locals: true, modules: true, jobs: true, where: "an output"}
	var verdicts []verdict
	for _, c := range o.Preconditions {
		verdicts = append(verdicts, l.require("Output precondition failed", []conditionBlock{c}, s, l.withJobs(c.Condition, c.ErrorMessage))...)
	}
	l.checked(Checked{Kind: "output", Name: o.Name}, verdicts)
	if o.Value == nil {
		return cty.DynamicVal
	}
	expr := o.Value.(hclsyntax.Expression)
	if !l.checkExpr(&expr, s) {
		return cty.DynamicVal
	}
	ctx := l.withJobs(o.Value)
	val, diags := o.Value.Value(ctx)
	l.report(diags...)
	switch {
	case diags.HasErrors():
		return cty.DynamicVal
	case o.Sensitive:
		return val.Mark(Sensitive)
	case l.parent == nil && val.ContainsMarked():
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Output refers to sensitive values",
			Detail:  fmt.Sprintf("The output %q contains sensitive values and would show them. Add sensitive = true, or unmark them with nonsensitive().", o.Name),
			Subject: o.Value.Range().Ptr(),
		})
		return cty.DynamicVal
	}
	return val
}
