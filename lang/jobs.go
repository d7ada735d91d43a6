package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/eltrain/eltrain/job"
)

// expand gives the body with its dynamic blocks written out.
func (l *loader) expand(body *hclsyntax.Body) hcl.Body {
	return dynblock.Expand(body, l.ctx, dynblock.OptCheckForEach(l.checkForEach))
}

func (l *loader) checkForEach(val cty.Value, expr hcl.Expression, ctx *hcl.EvalContext) hcl.Diagnostics {
	bad := func(detail string) hcl.Diagnostics {
		return hcl.Diagnostics{{
			Severity: hcl.DiagError, Summary: "Invalid for_each", Detail: detail,
			Subject: expr.Range().Ptr(), Expression: expr, EvalContext: ctx,
		}}
	}
	if val.IsMarked() {
		return bad("A sensitive value cannot decide which blocks there are: the plan would give it away.")
	}
	if !val.IsKnown() {
		return exhausted(expr.Range()) // made of something that was complained about
	}
	if !val.IsNull() && val.CanIterateElements() && !l.meter.spendBlocks(val.LengthInt()) {
		l.meter.at = expr.Range().Ptr()
		return exhausted(expr.Range())
	}
	return nil
}

func (l *loader) jobs() {
	seen := map[string]hcl.Range{}
	t := reflect.TypeFor[job.Job]()
	for _, b := range l.blocks["job"] {
		block := b.AsHCLBlock()
		l.checkLabel("job", block, seen)
		inside := scope{vars: true, locals: true, where: "a job"}
		l.checkExpansion(b.Body, t, inside)
		block.Body = l.expand(b.Body)
		read := l.tree(block, t)
		roles := map[string]bool{}
		for _, r := range read.blocks["role"] {
			roles[r.label()] = true
		}
		// Only now is it known what roles there are. The check replaces expressions, so the tree is read again.
		before := len(l.diags)
		inside.roles = roles
		l.checkBody(b.Body, t, inside)
		if len(l.diags) > before {
			block.Body = l.expand(b.Body)
			read = l.tree(block, t)
		}
		l.cfg.Jobs = append(l.cfg.Jobs, l.job(read))
	}
}

// job evaluates and checks one job.
func (l *loader) job(t *tree) job.Job {
	e := &jobEval{l: l, tree: t, nodes: map[string]*node{}}
	for _, r := range t.blocks["role"] {
		e.collect("role."+r.label(), r)
	}
	var j job.Job
	var secret []cty.Value
	d := decoder{l: l, eval: e.value, references: e.roleNames, sensitive: func(v cty.Value) { secret = append(secret, v) }}
	d.into(reflect.ValueOf(&j).Elem(), t)
	j.Source = sourceOf(t.def)
	for i, r := range t.blocks["role"] {
		startAtMin(&j.Roles[i], r)
		l.perSlot(&d, e, &j.Roles[i], r)
	}
	l.checkJob(&j, t)
	j.Secrets = l.secretsIn(secret)
	return j
}

// startAtMin lets an elastic role start at its smallest legal size when nothing else is said: the
// schema's default of one is for roles of fixed size.
func startAtMin(r *job.Role, t *tree) {
	s := r.Scaling
	if s == nil || t.attrs["replicas"] != nil || s.Min < 1 || s.Max < s.Min || s.Max > maxSlots {
		return
	}
	if n := r.Ceil(s.Min); n > 0 {
		r.Replicas = n
	}
}

// jobEval evaluates the arguments of one job. Those of roles are nodes of a graph, by address
// ("role.worker.scaling.min"), since they may refer to each other.
type jobEval struct {
	l    *loader
	tree *tree
	// nodes has every argument of every role, also those left out.
	nodes map[string]*node
	path  []*node // being evaluated, outermost first
	slot  *cty.Value
}

type node struct {
	address string
	attr    *hcl.Attribute // nil: left out
	field   job.Field
	absent  bool // in a block that is left out and has no defaults
	state   visit
	value   cty.Value
	failed  bool
}

// collect enters the arguments of a role or of a block in it.
func (e *jobEval) collect(address string, t *tree) {
	for _, f := range job.Fields(t.typ) {
		inner := address + "." + f.Name
		switch f.Kind {
		case job.Label, job.References:
		case job.Block:
			b := t.block(f.Name)
			if b == nil {
				e.collectAbsent(inner, f)
				continue
			}
			e.collect(inner, b)
		default:
			e.nodes[inner] = &node{address: inner, attr: t.attrs[f.Name], field: f}
		}
	}
}

// collectAbsent enters a block that is not there: with its defaults if the type always has one, else null.
func (e *jobEval) collectAbsent(address string, f job.Field) {
	if f.Type.Kind() == reflect.Struct {
		e.collect(address, &tree{typ: f.ElemType()})
		return
	}
	e.nodes[address] = &node{address: address, absent: true}
}

// value evaluates an argument anywhere in the job.
func (e *jobEval) value(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
	ctx := e.l.ctx.NewChild()
	ctx.Variables = map[string]cty.Value{}
	var roleRefs []hcl.Traversal
	for _, ref := range attr.Expr.Variables() {
		switch ref.RootName() {
		case "role":
			roleRefs = append(roleRefs, ref)
		case "slot":
			if e.slot != nil {
				ctx.Variables["slot"] = *e.slot
			}
		}
	}
	if len(roleRefs) > 0 {
		roles, diags := e.roleObject(roleRefs)
		if diags.HasErrors() {
			return cty.DynamicVal, ctx, diags
		}
		ctx.Variables["role"] = roles
	}
	val, diags := attr.Expr.Value(ctx)
	return val, ctx, diags
}

// branch is an object under construction.
type branch map[string]any // cty.Value or branch

func (b branch) set(path []string, v cty.Value) {
	if len(path) == 1 {
		b[path[0]] = v
		return
	}
	inner, ok := b[path[0]].(branch)
	if !ok {
		inner = branch{}
		b[path[0]] = inner
	}
	inner.set(path[1:], v)
}

func (b branch) object() cty.Value {
	attrs := make(map[string]cty.Value, len(b))
	for name, v := range b {
		switch v := v.(type) {
		case cty.Value:
			attrs[name] = v
		case branch:
			attrs[name] = v.object()
		}
	}
	return cty.ObjectVal(attrs)
}

// roleObject is what the root "role" stands for: as much of it as the references need.
func (e *jobEval) roleObject(refs []hcl.Traversal) (cty.Value, hcl.Diagnostics) {
	out := branch{}
	var diags hcl.Diagnostics
	for _, ref := range refs {
		for _, n := range e.named(ref) {
			diags = append(diags, e.visit(n, ref.SourceRange())...)
			out.set(strings.Split(n.address, ".")[1:], n.value)
		}
	}
	return out.object(), diags
}

// named are the nodes that a reference needs: one, or all of a block.
func (e *jobEval) named(ref hcl.Traversal) []*node {
	address := "role"
	for i := 1; ; i++ {
		name, ok := attrName(ref, i)
		if !ok {
			break
		}
		address += "." + name
		if n := e.nodes[address]; n != nil {
			return []*node{n}
		}
	}
	var all []*node
	for _, a := range slices.Sorted(maps.Keys(e.nodes)) {
		if strings.HasPrefix(a, address+".") {
			all = append(all, e.nodes[a])
		}
	}
	return all
}

// visit evaluates a node once. from is the reference that asks for it.
func (e *jobEval) visit(n *node, from hcl.Range) hcl.Diagnostics {
	fail := hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Value not available", Subject: &from, Extra: alreadyReported{}}}
	switch {
	case n.state == visiting:
		return e.cycle(n, from)
	case n.state == visited && n.failed:
		return fail
	case n.state == visited:
		return nil
	}
	n.state, n.value = visited, cty.NullVal(cty.DynamicPseudoType)
	switch {
	case n.absent:
		return nil
	case n.attr == nil:
		if n.field.Kind != job.Required {
			n.value = defaultValue(n.field)
			return nil
		}
		n.failed, n.value = true, cty.DynamicVal
		return fail
	case refersTo(n.attr.Expr, "slot"):
		n.failed, n.value = true, cty.DynamicVal
		return hcl.Diagnostics{{
			Severity: hcl.DiagError,
			Summary:  "Value differs from slot to slot",
			Detail:   fmt.Sprintf("%s refers to slot, so it has no single value that could be used here.", n.address),
			Subject:  &from,
		}}
	}
	n.state = visiting
	e.path = append(e.path, n)
	val, _, diags := e.value(n.attr)
	e.path = e.path[:len(e.path)-1]
	n.state = visited
	if !diags.HasErrors() {
		converted, err := convert.Convert(val, valueType(n.field.Type))
		if err == nil {
			n.value = converted
			if converted.IsNull() && n.field.Kind != job.Required {
				n.value = defaultValue(n.field)
			}
			return nil
		}
		// The decoder converts it as well, and complains.
		diags = nil
	}
	n.failed, n.value = true, cty.DynamicVal
	return append(diags, fail...)
}

func (e *jobEval) cycle(n *node, from hcl.Range) hcl.Diagnostics {
	start := slices.Index(e.path, n)
	var names []string
	for _, p := range e.path[start:] {
		names = append(names, p.address)
	}
	names = append(names, n.address)
	return hcl.Diagnostics{{
		Severity: hcl.DiagError,
		Summary:  "Values in a cycle",
		Detail:   fmt.Sprintf("Each needs the next one's value: %s. Break the cycle.", strings.Join(names, " -> ")),
		Subject:  &from,
	}}
}

func refersTo(expr hcl.Expression, root string) bool {
	return slices.ContainsFunc(expr.Variables(), func(t hcl.Traversal) bool { return t.RootName() == root })
}

// roleNames reads a list of role.NAME.
func (e *jobEval) roleNames(t *tree, attr *hcl.Attribute) []string {
	known := map[string]bool{}
	for _, r := range e.tree.blocks["role"] {
		known[r.label()] = true
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	if diags.HasErrors() {
		e.l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid list of roles",
			Detail:  fmt.Sprintf("%s takes a list of roles of this job, written [role.NAME, …].", attr.Name),
			Subject: attr.Expr.Range().Ptr(),
		})
		t.failed[attr.Name] = true
		return nil
	}
	var names []string
	for _, expr := range exprs {
		at := expr.Range()
		ref, diags := hcl.AbsTraversalForExpr(expr)
		name, ok := attrName(ref, 1)
		if diags.HasErrors() || !ok || len(ref) != 2 || ref.RootName() != "role" {
			e.l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Invalid reference to a role",
				Detail:  "Write role.NAME, without quotes, for a role of this job.",
				Subject: &at, Context: attr.Expr.Range().Ptr(),
			})
			t.failed[attr.Name] = true
			continue
		}
		if !known[name] {
			e.l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Unknown role",
				Detail:  fmt.Sprintf("No role of this job is called %q.%s", name, suggest(name, slices.Collect(maps.Keys(known)))),
				Subject: &at, Context: attr.Expr.Range().Ptr(),
			})
			t.failed[attr.Name] = true
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// secretsIn are the strings to keep out of sight: of every sensitive value that was used, all its strings,
// and the parts of them that sensitive variables gave.
func (l *loader) secretsIn(used []cty.Value) []string {
	var whole, inputs []string
	for _, v := range used {
		whole = appendSecrets(whole, v)
	}
	for _, v := range l.declared {
		if v.value.Type() != cty.NilType {
			inputs = appendSecrets(inputs, v.value)
		}
	}
	secrets := map[string]bool{}
	for _, w := range whole {
		secrets[w] = true
		if !l.meter.spend(len(inputs)) {
			break
		}
		for _, s := range inputs {
			if strings.Contains(w, s) {
				secrets[s] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(secrets))
}

// appendSecrets adds the strings in the marked parts of v.
func appendSecrets(to []string, v cty.Value) []string {
	plain, marks := v.Unmark()
	if len(marks) > 0 {
		plain, _ = plain.UnmarkDeep()
		return appendStrings(to, plain)
	}
	if !plain.IsKnown() || plain.IsNull() || !plain.CanIterateElements() {
		return to
	}
	for it := plain.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		to = appendSecrets(to, elem)
	}
	return to
}

func appendStrings(to []string, v cty.Value) []string {
	if !v.IsKnown() || v.IsNull() {
		return to
	}
	if v.Type() == cty.String {
		if v.AsString() != "" {
			to = append(to, v.AsString())
		}
		return to
	}
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next(); {
			_, elem := it.Element()
			to = appendStrings(to, elem)
		}
	}
	return to
}
