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

// jobBlock is a job block: the job, its for_each, and its lifecycle conditions.
type jobBlock struct {
	job.Job   `hcl:",inline"`
	ForEach   hcl.Expression `hcl:"for_each,optional" doc:"A map or a set of strings: one job per element, as job.NAME[\"KEY\"], under the name NAME-KEY. Its arguments may refer to each.key and each.value."`
	Lifecycle lifecycleBlock `hcl:"lifecycle,block" change:"update" doc:"Protection of the job, attributes that others may change, and conditions."`
}

type lifecycleBlock struct {
	job.Lifecycle  `hcl:",inline"`
	Preconditions  []conditionBlock `hcl:"precondition,block" doc:"A condition for the job to be valid. It may refer to variables, locals, modules and each."`
	Postconditions []conditionBlock `hcl:"postcondition,block" doc:"The same; it may also refer to the job, as self: self.role.worker.replicas. It is evaluated again on the running job."`
}

// place is where a job is declared.
type place struct {
	address string
	at      hcl.Range
}

// expand returns the body with its dynamic blocks expanded.
func (l *loader) expand(body *hclsyntax.Body, ctx *hcl.EvalContext) hcl.Body {
	return dynblock.Expand(body, ctx, dynblock.OptCheckForEach(l.checkForEach))
}

func (l *loader) checkForEach(val cty.Value, expr hcl.Expression, ctx *hcl.EvalContext) hcl.Diagnostics {
	bad := func(detail string) hcl.Diagnostics {
		return hcl.Diagnostics{{
			Severity: hcl.DiagError, Summary: "Invalid for_each", Detail: detail,
			Subject: expr.Range().Ptr(), Expression: expr, EvalContext: ctx,
		}}
	}
	if val.IsMarked() {
		return bad("A sensitive value cannot decide which blocks exist: the plan would reveal it.")
	}
	if !val.IsKnown() && !val.Type().IsPrimitiveType() {
		return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown for_each", Subject: expr.Range().Ptr(), Extra: undecidedBlocks{}}}
	}
	if !val.IsNull() && val.CanIterateElements() && !l.meter.spendBlocks(val.LengthInt()) {
		l.meter.at = expr.Range().Ptr()
		return exhausted(expr.Range())
	}
	return nil
}

func (l *loader) jobs() {
	seen := map[string]hcl.Range{}
	for _, b := range l.blocks["job"] {
		l.checkLabel("job", b.AsHCLBlock(), seen)
		repeated := b.Body.Attributes["for_each"]
		if repeated != nil {
			l.checkExpr(&repeated.Expr, scope{vars: true, locals: true, modules: true, where: "the for_each of a job"})
		}
		label := b.Labels[0]
		value := jobValue{repeated: repeated != nil}
		for _, inst := range l.instances(b, l.ctx) {
			d := l.jobInstance(b, inst)
			switch {
			case inst.each == nil:
				value.one = &d
			case inst.presence == present:
				value.add(inst.key, d)
			case inst.presence == undecided:
				value.undecided = true
				l.undecided[l.address+"job."+label] = true
			}
			switch max(l.presence, inst.presence) {
			case present:
				l.ownJobs = append(l.ownJobs, *d.job)
			case undecided:
				l.templates = append(l.templates, *d.job)
			}
		}
		if _, dup := l.jobValues[label]; !dup {
			l.jobValues[label] = value
		}
	}
}

// jobInstance evaluates one instance of a job block.
func (l *loader) jobInstance(b *hclsyntax.Block, inst instance) declaration {
	before := len(l.diags)
	block := b.AsHCLBlock()
	name := job.InstanceName(append(slices.Clone(l.path), inst.parts(b.Labels[0])...)...)
	taken := max(l.presence, inst.presence) == present
	address := l.address + inst.address("job", b.Labels[0])
	if taken && job.ValidName(b.Labels[0]) {
		l.checkName(name, place{address, b.LabelRanges[0]})
	}
	block.Labels = []string{name}
	ctx := inst.in(l.ctx)
	read := l.jobTree(b, block, inst, ctx)
	if !taken {
		read.failed["name"] = true
	}
	e := &jobEval{l: l, ctx: ctx, tree: read}
	j := l.job(e, before)
	j.Address = address
	if taken {
		l.checked(Checked{Kind: "job", Name: b.Labels[0], Key: inst.key}, e.conditions)
	}
	if unknown := read.unknown(); len(unknown) > 0 {
		l.cfg.Unknown[name] = unknown
	}
	return declaration{&j, read}
}

// maxName is the limit of job.ValidName, in bytes.
const maxName = 63

// checkName checks that a job's full name, including modules and key, is short enough and unique.
func (l *loader) checkName(name string, p place) {
	if len(name) > maxName {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Job name too long",
			Detail:  fmt.Sprintf("The full name of %s is %q, which has %d characters; the limit is %d.", p.address, name, len(name), maxName),
			Subject: &p.at,
		})
	}
	first, dup := l.names[name]
	if !dup {
		l.names[name] = p
		return
	}
	if first.address == p.address {
		return // reported as a duplicate block
	}
	l.report(&hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: fmt.Sprintf("Duplicate job name %q", name),
		Detail: fmt.Sprintf("This is the name of %s and of %s, at %s:%d: names of modules and keys of for_each become part of it. Rename one of them.",
			p.address, first.address, first.at.Filename, first.at.Start.Line),
		Subject: &p.at,
	})
}

// jobTree checks the references of a job block and reads the block.
func (l *loader) jobTree(b *hclsyntax.Block, block *hcl.Block, inst instance, ctx *hcl.EvalContext) *tree {
	t := reflect.TypeFor[jobBlock]()
	inside := scope{vars: true, locals: true, modules: true, each: inst.each != nil, where: "a job"}
	l.checkExpansion(b.Body, t, inside)
	block.Body = l.expand(b.Body, ctx)
	read := l.tree(block, t)
	// The roles are known only now. The check replaces expressions, so the tree is read again.
	inside.roles = map[string]bool{}
	for _, r := range read.blocks["role"] {
		inside.roles[r.label()] = true
	}
	inside.moreRoles = read.failed["role"]
	before := len(l.diags)
	l.checkBody(b.Body, t, inside)
	if len(l.diags) > before {
		block.Body = l.expand(b.Body, ctx)
		read = l.tree(block, t)
	}
	return read
}

// job evaluates and checks one job. Diagnostics from index before on are about it.
func (l *loader) job(e *jobEval, before int) job.Job {
	roles := e.tree.blocks["role"]
	var block jobBlock
	var secret secrets
	d := decoder{l: l, eval: e.value, references: e.references, sensitive: secret.add}
	d.into(reflect.ValueOf(&block).Elem(), e.tree)
	j := &block.Job
	j.Source = sourceOf(e.tree.def)
	j.Lifecycle = block.Lifecycle.Lifecycle
	for i, r := range roles {
		startAtMin(&j.Roles[i], r)
	}
	l.follow(e, j.Roles)
	for i, r := range roles {
		l.locate(&j.Roles[i], r)
		l.perSlot(&d, e, &j.Roles[i], r)
	}
	l.checkJob(j, e.tree)
	j.Secrets, j.Places = l.secretsIn(secret.values), secret.places
	e.conditions = l.requireOf(e, &block, !l.diags[before:].HasErrors())
	return *j
}

// startAtMin sets the replicas of an elastic role to its smallest legal size if they are not given: the
// schema's default of 1 is for roles of fixed size.
func startAtMin(r *job.Role, t *tree) {
	s := r.Scaling
	if t.attrs["replicas"] == nil && (!t.sound("scaling") || !soundBlock(t.block("scaling"))) {
		t.failed["replicas"] = true
		return
	}
	if s == nil || t.attrs["replicas"] != nil || s.Min < 1 || s.Max < s.Min || s.Max > MaxSlots {
		return
	}
	if n := r.Ceil(s.Min); n > 0 {
		r.Replicas = n
	}
}

// jobEval evaluates the arguments of one job. Arguments of roles may refer to each other, so they are nodes of a
// graph, by address ("role.worker.scaling.min").
type jobEval struct {
	l    *loader
	ctx  *hcl.EvalContext // with each, if the job has for_each
	tree *tree
	// nodes has every argument of every role, including omitted ones. It is built on first use.
	nodes map[string]*node
	path  []*node         // being evaluated, outermost first
	roles map[string]bool // by name; nil until a list of them is read
	slot  *cty.Value
	// conditions are the results of the job's preconditions and postconditions.
	conditions []verdict
}

type node struct {
	address string
	attr    *hcl.Attribute // nil if omitted
	field   job.Field
	absent  bool // in an omitted block without defaults
	state   visit
	value   cty.Value
	failed  bool
}

// collect adds the nodes of a role or of a block in it.
func (e *jobEval) collect(address string, t *tree) {
	for _, f := range job.Fields(t.typ) {
		inner := address + "." + f.Name
		switch f.Kind {
		case job.Label, job.References, job.Patterns:
		case job.Block:
			if f.Repeated() {
				continue
			}
			b := t.block(f.Name)
			switch {
			case t.failed[f.Name]:
				e.nodes[inner] = &node{address: inner, state: visited, value: cty.DynamicVal}
			case b == nil:
				e.collectAbsent(inner, f)
			default:
				e.collect(inner, b)
			}
		default:
			e.nodes[inner] = &node{address: inner, attr: t.attrs[f.Name], field: f}
		}
	}
}

// collectAbsent adds the nodes of an omitted block: its defaults if the block is a plain struct, else null.
func (e *jobEval) collectAbsent(address string, f job.Field) {
	if f.Type.Kind() == reflect.Struct {
		e.collect(address, &tree{typ: f.ElemType()})
		return
	}
	e.nodes[address] = &node{address: address, absent: true}
}

// value evaluates an argument anywhere in the job.
func (e *jobEval) value(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
	ctx := e.ctx.NewChild()
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

// roleObject returns the value of the root "role", with only what the references need.
func (e *jobEval) roleObject(refs []hcl.Traversal) (cty.Value, hcl.Diagnostics) {
	out := branch{}
	var diags hcl.Diagnostics
	for _, ref := range refs {
		nodes := e.named(ref)
		if name, ok := attrName(ref, 1); ok && len(nodes) == 0 && e.tree.failed["role"] {
			out.set([]string{name}, cty.DynamicVal) // a dynamic block may generate it
		}
		for _, n := range nodes {
			diags = append(diags, e.visit(n, ref.SourceRange())...)
			out.set(strings.Split(n.address, ".")[1:], n.value)
		}
	}
	return out.object(), diags
}

// named returns the nodes that a reference needs: one, or all of a block.
func (e *jobEval) named(ref hcl.Traversal) []*node {
	if e.nodes == nil { // most jobs have no reference to a role
		e.nodes = map[string]*node{}
		for _, r := range e.tree.blocks["role"] {
			e.collect("role."+r.label(), r)
		}
	}
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

// visit evaluates a node once. from is the reference to it.
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
	case n.attr == nil && n.field.Name == "replicas" && e.nodes[strings.TrimSuffix(n.address, "replicas")+"scaling.min"] != nil:
		return e.start(n, from)
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
			Detail:   fmt.Sprintf("%s refers to slot, so it has no single value to use here.", n.address),
			Subject:  &from,
		}}
	}
	n.state = visiting
	e.path = append(e.path, n)
	val, _, diags := e.value(n.attr)
	e.path = e.path[:len(e.path)-1]
	n.state = visited
	if !diags.HasErrors() {
		converted, err := convert.Convert(val, ValueType(n.field.Type))
		if err == nil {
			n.value = converted
			if converted.IsNull() && n.field.Kind != job.Required {
				n.value = defaultValue(n.field)
			}
			return nil
		}
		// The decoder converts it as well, and reports the error.
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

// references decodes an argument that consists of references, which are not evaluated.
func (e *jobEval) references(t *tree, attr *hcl.Attribute) []string {
	if f, _ := fieldNamed(t.typ, attr.Name); f.Kind == job.Paths {
		return e.paths(t, attr)
	}
	return e.roleNames(t, attr)
}

// roleNames decodes a list of role.NAME.
func (e *jobEval) roleNames(t *tree, attr *hcl.Attribute) []string {
	if e.roles == nil {
		e.roles = map[string]bool{}
		for _, r := range e.tree.blocks["role"] {
			e.roles[r.label()] = true
		}
	}
	exprs, diags := hcl.ExprList(attr.Expr)
	if diags.HasErrors() {
		e.l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid list of roles",
			Detail:  fmt.Sprintf("%s needs a list of roles of this job: [role.NAME, …].", attr.Name),
			Subject: attr.Expr.Range().Ptr(),
		})
		t.failed[attr.Name] = true
		return nil
	}
	var names []string
	named := map[string]bool{}
	for _, expr := range exprs {
		at := expr.Range()
		ref, diags := hcl.AbsTraversalForExpr(expr)
		name, ok := attrName(ref, 1)
		if diags.HasErrors() || !ok || len(ref) != 2 || ref.RootName() != "role" {
			e.l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Invalid reference to a role",
				Detail:  "Write role.NAME without quotes, for a role of this job.",
				Subject: &at, Context: attr.Expr.Range().Ptr(),
			})
			t.failed[attr.Name] = true
			continue
		}
		if !e.roles[name] && e.tree.failed["role"] {
			t.failed[attr.Name] = true // a dynamic block may generate it
			continue
		}
		if !e.roles[name] {
			e.l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Unknown role",
				Detail:  fmt.Sprintf("This job has no role %q.%s", name, suggestKey(name, e.roles)),
				Subject: &at, Context: attr.Expr.Range().Ptr(),
			})
			t.failed[attr.Name] = true
			continue
		}
		if !named[name] {
			named[name] = true
			names = append(names, name)
		}
	}
	return names
}

// secretsIn returns the strings to hide: all strings in the sensitive values used, and the parts of them that come from
// sensitive variables.
func (l *loader) secretsIn(used []cty.Value) []string {
	var whole, inputs []string
	for _, v := range used {
		whole = appendSecrets(whole, v)
	}
	if len(whole) == 0 {
		return nil
	}
	// A module's variables may be derived from its parents'.
	for m := l; m != nil; m = m.parent {
		for _, v := range m.declared {
			if v.value.Type() != cty.NilType {
				inputs = appendSecrets(inputs, v.value)
			}
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
	switch v.Type() {
	case cty.String:
		if v.AsString() != "" {
			to = append(to, v.AsString())
		}
		return to
	case cty.Number:
		if text := v.AsBigFloat().Text('f', -1); len(text) >= shortestNumber {
			to = append(to, text)
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
