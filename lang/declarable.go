package lang

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// CheckJobs returns an error for jobs that no directory can declare: jobs that come from elsewhere, such as a saved plan. It
// writes them as blocks and reads the blocks, so that the rules are those of files. Arguments that are sealed are not known.
func CheckJobs(jobs []job.Job) error {
	l := newLoader(Options{})
	l.incomplete = true // the provider blocks are not here
	l.meter.limit = math.MaxInt
	w := writer{e: exporter{l: l}}
	for i := range jobs {
		if err := checkOutside(&jobs[i]); err != nil {
			return fmt.Errorf("job.%s: %w", jobs[i].Name, err)
		}
		w.at = hcl.Range{Filename: "job." + jobs[i].Name, Start: hcl.InitialPos, End: hcl.InitialPos}
		l.blocks["job"] = append(l.blocks["job"], w.block("job", reflect.ValueOf(&jobs[i]).Elem()))
	}
	l.variables()
	l.values()
	l.jobs()
	for _, d := range l.finish() {
		if d.Severity == hcl.DiagError {
			return fmt.Errorf("%s: %s: %s", subject(d).Filename, d.Summary, strings.TrimSuffix(d.Detail, "."))
		}
	}
	return nil
}

// checkOutside checks what is not written as an argument: the address, the files, and the programs of slots that differ.
func checkOutside(j *job.Job) error {
	if at, err := job.ParseTarget(j.Address); j.Address != "" && (err != nil || at.Job != j.Name || at.Declared != j.Address || at.Role != "") {
		return fmt.Errorf("its address %q is not that of a job of this name", j.Address)
	}
	for i := range j.Roles {
		r := &j.Roles[i]
		if err := checkFiles(r.Source); err != nil {
			return fmt.Errorf("role.%s: %w", r.Name, err)
		}
		_, most := r.Bounds()
		if n := len(r.PerSlot); n > 0 && (n != most || !reflect.DeepEqual(r.PerSlot[0], r.Program)) {
			return errors.New("role." + r.Name + ": its programs are not those of its slots")
		}
	}
	return nil
}

// writer writes declared values as blocks.
type writer struct {
	e  exporter
	at hcl.Range
}

func (w *writer) block(kind string, v reflect.Value) *hclsyntax.Block {
	b := &hclsyntax.Block{Type: kind, TypeRange: w.at, Body: &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: w.at, EndRange: w.at}}
	for _, f := range job.Fields(v.Type()) {
		field := v.FieldByIndex(f.Index)
		switch {
		case f.Kind == job.Label:
			b.Labels, b.LabelRanges = append(b.Labels, field.String()), append(b.LabelRanges, w.at)
		case f.Repeated():
			for i := range field.Len() {
				b.Body.Blocks = append(b.Body.Blocks, w.block(f.Name, field.Index(i)))
			}
		case f.Kind == job.Block && field.Kind() == reflect.Pointer && field.IsNil():
		case f.Kind == job.Block:
			b.Body.Blocks = append(b.Body.Blocks, w.block(f.Name, reflect.Indirect(field)))
		default:
			if expr := w.argument(f, field, v); expr != nil {
				b.Body.Attributes[f.Name] = &hclsyntax.Attribute{Name: f.Name, Expr: expr, SrcRange: w.at, NameRange: w.at, EqualsRange: w.at}
			}
		}
	}
	return b
}

// argument returns an expression for a field of the block v; nil if it is omitted.
func (w *writer) argument(f job.Field, field, v reflect.Value) hclsyntax.Expression {
	r, isRole := v.Addr().Interface().(*job.Role)
	s, isScaling := v.Addr().Interface().(*job.Scaling)
	switch {
	case isRole && f.Late && len(r.PerSlot) > 0:
		return w.perSlot(f, r)
	case isScaling && f.Name == "step" && s.Step == 1 && s.Sizes != nil: // they exclude each other
		return nil
	case field.IsZero() && f.Default == "":
		return nil
	case f.Kind == job.Patterns: // the files are not here; see checkOutside
		return nil
	case f.Kind == job.References:
		return w.list(field, func(name string) hcl.Traversal { return w.path("role." + name) })
	case f.Kind == job.Paths:
		return w.list(field, w.path)
	case field.Kind() == reflect.String && new(job.Secrets).In(field.String()):
		return &hclsyntax.LiteralValueExpr{Val: cty.UnknownVal(cty.String), SrcRange: w.at}
	}
	return &hclsyntax.LiteralValueExpr{Val: w.e.value(field), SrcRange: w.at}
}

// perSlot returns an expression that has the value of each slot.
func (w *writer) perSlot(f job.Field, r *job.Role) hclsyntax.Expression {
	values := make([]cty.Value, len(r.PerSlot))
	for i := range r.PerSlot {
		one := job.Role{Program: r.PerSlot[i]}
		values[i] = cty.NullVal(ValueType(f.Type))
		if field := reflect.ValueOf(&one).Elem().FieldByIndex(f.Index); !field.IsZero() {
			values[i] = w.e.value(field)
		}
	}
	return &hclsyntax.IndexExpr{
		Collection: &hclsyntax.LiteralValueExpr{Val: cty.TupleVal(values), SrcRange: w.at},
		Key:        &hclsyntax.ScopeTraversalExpr{Traversal: w.path("slot.index"), SrcRange: w.at},
		SrcRange:   w.at, OpenRange: w.at, BracketRange: w.at,
	}
}

func (w *writer) list(of reflect.Value, path func(string) hcl.Traversal) hclsyntax.Expression {
	list := &hclsyntax.TupleConsExpr{SrcRange: w.at, OpenRange: w.at}
	for i := range of.Len() {
		list.Exprs = append(list.Exprs, &hclsyntax.ScopeTraversalExpr{Traversal: path(of.Index(i).String()), SrcRange: w.at})
	}
	return list
}

// path returns a path of arguments as a reference: role.worker.env["X"].
func (w *writer) path(text string) hcl.Traversal {
	names, key, keyed := strings.Cut(text, "[")
	key, err := strconv.Unquote(strings.TrimSuffix(key, "]"))
	if keyed && err != nil {
		names = text // which is no argument
	}
	var ref hcl.Traversal
	for i, name := range strings.Split(names, ".") {
		if i == 0 {
			ref = hcl.Traversal{hcl.TraverseRoot{Name: name, SrcRange: w.at}}
			continue
		}
		ref = append(ref, hcl.TraverseAttr{Name: name, SrcRange: w.at})
	}
	if keyed && err == nil {
		ref = append(ref, hcl.TraverseIndex{Key: cty.StringVal(key), SrcRange: w.at})
	}
	return ref
}
