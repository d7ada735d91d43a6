package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/job"
)

// scope is what an expression may refer to. It is known before evaluation, so that every unknown name is found
// in one pass, even in expressions that would not be evaluated.
type scope struct {
	vars      bool
	locals    bool
	modules   bool
	each      bool // in a block with for_each
	self      bool // in postconditions of a job
	jobs      bool
	roles     map[string]bool // nil outside jobs
	moreRoles bool            // there may be other roles, still unknown
	slot      bool
	iterators []string
	where     string // completes "… in "
}

func (s scope) with(iterator string) scope {
	s.iterators = append(slices.Clone(s.iterators), iterator)
	return s
}

// roots returns the possible first words of references, for suggestions.
func (s scope) roots() []string {
	roots := slices.Clone(s.iterators)
	if s.vars {
		roots = append(roots, "var")
	}
	if s.locals {
		roots = append(roots, "local")
	}
	for name, known := range map[string]bool{"module": s.modules, "each": s.each, "self": s.self, "job": s.jobs, "role": s.roles != nil} {
		if known {
			roots = append(roots, name)
		}
	}
	if s.slot {
		roots = append(roots, "slot")
	}
	return roots
}

// checkBody reports every unknown name in a block's arguments, and replaces those expressions so that
// evaluation does not report the same errors again.
func (l *loader) checkBody(body *hclsyntax.Body, t reflect.Type, s scope) {
	for _, attr := range body.Attributes {
		f, known := fieldNamed(t, attr.Name)
		if known && (f.Kind == job.References || f.Kind == job.Paths || f.Type == exprType) {
			continue
		}
		inner := s
		inner.slot = known && f.Late && s.roles != nil
		l.checkExpr(&attr.Expr, inner)
	}
	eachBlock(body, t, s, l.checkBody)
}

// checkExpansion is checkBody for the for_each and labels of dynamic blocks, which decide what blocks exist. It runs
// before any role has values.
func (l *loader) checkExpansion(body *hclsyntax.Body, t reflect.Type, s scope) {
	for _, b := range body.Blocks {
		if b.Type == "dynamic" && len(b.Labels) == 1 {
			l.checkDynamic(b, t, s)
		}
	}
	eachBlock(body, t, s, l.checkExpansion)
}

// eachBlock calls f for the bodies of all known nested blocks; for dynamic blocks, with the iterator in scope.
func eachBlock(body *hclsyntax.Body, t reflect.Type, s scope, f func(*hclsyntax.Body, reflect.Type, scope)) {
	for _, b := range body.Blocks {
		name := b.Type
		if b.Type == "dynamic" && len(b.Labels) == 1 {
			name = b.Labels[0]
		}
		field, known := fieldNamed(t, name)
		if !known || field.Kind != job.Block {
			continue
		}
		if b.Type != "dynamic" {
			f(b.Body, field.ElemType(), s)
			continue
		}
		for _, inner := range b.Body.Blocks {
			if inner.Type == "content" {
				f(inner.Body, field.ElemType(), s.with(iteratorOf(b)))
			}
		}
	}
}

// iteratorOf returns the name of the current element in the content of a dynamic block.
func iteratorOf(b *hclsyntax.Block) string {
	if attr := b.Body.Attributes["iterator"]; attr != nil {
		if name := hcl.ExprAsKeyword(attr.Expr); name != "" {
			return name
		}
	}
	return b.Labels[0]
}

func (l *loader) checkDynamic(b *hclsyntax.Block, t reflect.Type, s scope) {
	s.where = "the for_each or labels of a dynamic block"
	if attr := b.Body.Attributes["for_each"]; attr != nil {
		l.dynamic[attr.Expr.Range()] = b.Labels[0]
		l.checkExpr(&attr.Expr, s)
	}
	if attr := b.Body.Attributes["labels"]; attr != nil {
		inner := s.with(iteratorOf(b))
		if tuple, ok := unwrap(attr.Expr).(*hclsyntax.TupleConsExpr); ok {
			for i := range tuple.Exprs {
				l.dynamic[tuple.Exprs[i].Range()] = b.Labels[0]
				l.checkExpr(&tuple.Exprs[i], inner)
			}
		} else {
			l.checkExpr(&attr.Expr, inner)
		}
	}
	f, known := fieldNamed(t, b.Labels[0])
	if known && f.Kind == job.Block {
		return
	}
	var blocks []string
	for _, candidate := range job.Fields(t) {
		if candidate.Kind == job.Block {
			blocks = append(blocks, candidate.Name)
		}
	}
	// HCL reports it, too, without the suggestion; tidy keeps the longer one.
	l.report(&hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Unsupported block type",
		Detail:   fmt.Sprintf("Blocks of type %q are not expected here.%s", b.Labels[0], suggest(b.Labels[0], blocks)),
		Subject:  b.LabelRanges[0].Ptr(),
	})
}

// checkExpr reports unknown names in an expression. It returns true if there are none; otherwise it replaces the
// expression by one that fails silently.
func (l *loader) checkExpr(expr *hclsyntax.Expression, s scope) bool {
	if _, done := (*expr).(*broken); done {
		return false
	}
	var diags hcl.Diagnostics
	for _, ref := range (*expr).Variables() {
		if d := l.checkReference(ref, s); d != nil {
			diags = append(diags, d)
		}
	}
	hclsyntax.VisitAll(*expr, func(n hclsyntax.Node) hcl.Diagnostics {
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok {
			if d := l.checkCall(call); d != nil {
				diags = append(diags, d)
			}
		}
		return nil
	})
	if len(diags) == 0 {
		return true
	}
	l.report(diags...)
	*expr = &broken{*expr}
	return false
}

func (l *loader) checkReference(ref hcl.Traversal, s scope) *hcl.Diagnostic {
	root := ref.RootName()
	if slices.Contains(s.iterators, root) {
		return nil
	}
	switch {
	case root == "var" && s.vars:
		return l.silenceIfIncomplete(checkMember(ref, "variable", "var", l.declared))
	case root == "local" && s.locals:
		return l.silenceIfIncomplete(checkMember(ref, "local value", "local", l.locals))
	case root == "role" && s.roles != nil:
		return checkRoleReference(ref, s)
	case root == "slot" && s.slot:
		return checkSlotReference(ref)
	case root == "module" && s.modules:
		return l.checkModuleReference(ref)
	case root == "each" && s.each:
		return checkEachReference(ref)
	case root == "self" && s.self:
		return checkArguments(ref, 1, "self")
	case root == "job" && s.jobs:
		return l.checkJobReference(ref)
	}
	at := ref.SourceRange()
	switch root {
	case "count":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "count not available",
			Detail:   "Blocks are repeated with for_each and use each.key and each.value. The index of a slot in its role is slot.index.",
			Subject:  &at,
		}
	case "slot":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "slot not available here",
			Detail:   "slot.index, slot.role, slot.job and slot.address differ per slot: only a role's " + list(lateFields()) + " can refer to them.",
			Subject:  &at,
		}
	case "role":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "role not available here",
			Detail:   fmt.Sprintf("The values of roles are known only inside their job, not in %s. Use a variable or a local value for both.", s.where),
			Subject:  &at,
		}
	case "each":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Reference to each without for_each",
			Detail:   "each.key and each.value are known only inside a job, module or import block that has for_each.",
			Subject:  &at,
		}
	case "self":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "self not available here",
			Detail:   fmt.Sprintf("self is the job and exists only in the postconditions of its lifecycle block, not in %s.", s.where),
			Subject:  &at,
		}
	case "job":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "job not available here",
			Detail:   fmt.Sprintf("Jobs do not depend on each other: their values are known only in output and check blocks, not in %s. Use a variable or a local value for both.", s.where),
			Subject:  &at,
		}
	case "var", "local", "module":
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Reference not allowed",
			Detail:   fmt.Sprintf("%s cannot be used in %s.", ref.RootName(), s.where),
			Subject:  &at,
		}
	}
	detail := fmt.Sprintf("Nothing is named %q.%s", root, suggest(root, s.roots()))
	switch {
	case s.vars && l.declared[root] != nil:
		detail = fmt.Sprintf("Nothing is named %q. Did you mean var.%s?", root, root)
	case s.locals && l.locals[root] != nil:
		detail = fmt.Sprintf("Nothing is named %q. Did you mean local.%s?", root, root)
	case s.roles[root]:
		detail = fmt.Sprintf("Nothing is named %q. Did you mean role.%s?", root, root)
	case len(ref) == 1:
		detail += " A string must be quoted."
	}
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unknown reference", Detail: detail, Subject: &at}
}

// checkMember checks var.NAME, local.NAME and the like.
func checkMember[T any](ref hcl.Traversal, what, root string, known map[string]T) *hcl.Diagnostic {
	at := ref.SourceRange()
	name, ok := attrName(ref, 1)
	if !ok {
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Invalid reference",
			Detail:   fmt.Sprintf("A reference to a %s needs its name: %s.NAME.", what, root),
			Subject:  &at,
		}
	}
	if _, ok := known[name]; ok {
		return nil
	}
	hint := suggestKey(name, known)
	if hint == "" {
		block := map[string]string{"var": fmt.Sprintf("variable %q", name), "local": "locals", "module": fmt.Sprintf("module %q", name), "job": fmt.Sprintf("job %q", name)}[root]
		hint = fmt.Sprintf(" Declare it with a %s block.", block)
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Unknown " + what,
		Detail:   fmt.Sprintf("There is no %s %q.%s", what, name, hint),
		Subject:  &at,
	}
}

// checkRoleReference checks role.NAME.ARGUMENT and role.NAME.BLOCK.ARGUMENT.
func checkRoleReference(ref hcl.Traversal, s scope) *hcl.Diagnostic {
	at := ref.SourceRange()
	bad := func(summary, format string, args ...any) *hcl.Diagnostic {
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at}
	}
	role, ok := attrName(ref, 1)
	if !ok {
		return bad("Invalid reference", "A reference to a role needs its name and an argument: role.worker.replicas.")
	}
	if !s.roles[role] && !s.moreRoles {
		known := slices.Collect(maps.Keys(s.roles))
		return bad("Unknown role", "This job has no role %q.%s", role, suggest(role, known))
	}
	name, ok := attrName(ref, 2)
	if !ok {
		return bad("Invalid reference", "A role is not a value: name one of its arguments, like role.%s.replicas.", role)
	}
	t := reflect.TypeFor[job.Role]()
	path := "role." + role
	for i := 2; ; i++ {
		f, known := fieldNamed(t, name)
		if !known {
			var names []string
			for _, f := range job.Fields(t) {
				if f.Kind != job.Label {
					names = append(names, f.Name)
				}
			}
			return bad("Unknown argument", "%s has no argument %q.%s", path, name, suggest(name, names))
		}
		if f.Kind == job.References {
			return bad("Invalid reference", "%s.%s is not a value: it is the order in which roles start.", path, name)
		}
		if f.Kind == job.Patterns {
			return bad("Invalid reference", "%s.%s is not a value: it is the content of files. Put the patterns into a local.", path, name)
		}
		if f.Kind != job.Block {
			return nil
		}
		path, t = path+"."+name, f.ElemType()
		if len(ref) == i+1 {
			return nil // the whole block
		}
		if name, ok = attrName(ref, i+1); !ok {
			return bad("Invalid reference", "%s is a block: name one of its arguments.", path)
		}
	}
}

var eachAttributes = []string{"key", "value"}

func checkEachReference(ref hcl.Traversal) *hcl.Diagnostic {
	name, ok := attrName(ref, 1)
	if len(ref) == 1 || ok && slices.Contains(eachAttributes, name) {
		return nil
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Unknown attribute of each",
		Detail:   fmt.Sprintf("each has %s, not %q.%s", list(eachAttributes), name, suggest(name, eachAttributes)),
		Subject:  ref.SourceRange().Ptr(),
	}
}

// checkJobReference checks job.NAME.ARGUMENT, or job.NAME["KEY"].ARGUMENT of a job with for_each.
func (l *loader) checkJobReference(ref hcl.Traversal) *hcl.Diagnostic {
	if d := checkMember(ref, "job", "job", l.jobValues); d != nil {
		return l.silenceIfIncomplete(d)
	}
	name, _ := attrName(ref, 1)
	if !l.jobValues[name].repeated {
		return checkArguments(ref, 2, "job."+name)
	}
	if key, ok := attrName(ref, 2); ok {
		return checkArguments(ref, 3, fmt.Sprintf("job.%s[%q]", name, key))
	}
	return nil
}

// checkArguments checks the steps of a reference from i on against the arguments of a job; path is the text before them.
func checkArguments(ref hcl.Traversal, i int, path string) *hcl.Diagnostic {
	t := reflect.TypeFor[job.Job]()
	for i < len(ref) {
		name, ok := attrName(ref, i)
		if !ok {
			return nil // a computed step: evaluation reports errors
		}
		f, known := memberNamed(t, name)
		switch {
		case !known:
			return &hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Unknown argument",
				Detail:   fmt.Sprintf("%s has no argument %q.%s", path, name, suggest(name, memberNames(t))),
				Subject:  ref.SourceRange().Ptr(),
			}
		case f.Kind != job.Block:
			return nil
		}
		path, t, i = path+"."+name, f.ElemType(), i+1
		if f.Repeated() {
			name, ok := attrName(ref, i)
			if !ok {
				return nil
			}
			path, i = path+"."+name, i+1
		}
	}
	return nil
}

// memberNamed finds a field by name, including labels, which are values here: self.name.
func memberNamed(t reflect.Type, name string) (job.Field, bool) {
	for _, f := range job.Fields(t) {
		if f.Name == name {
			return f, true
		}
	}
	return job.Field{}, false
}

func memberNames(t reflect.Type) []string {
	var names []string
	for _, f := range job.Fields(t) {
		names = append(names, f.Name)
	}
	return names
}

var slotAttributes = []string{"address", "index", "job", "role"}

func checkSlotReference(ref hcl.Traversal) *hcl.Diagnostic {
	name, ok := attrName(ref, 1)
	if len(ref) == 1 || ok && slices.Contains(slotAttributes, name) {
		return nil
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Unknown attribute of slot",
		Detail:   fmt.Sprintf("A slot has %s, not %q.%s", list(slotAttributes), name, suggest(name, slotAttributes)),
		Subject:  ref.SourceRange().Ptr(),
	}
}

// attrName returns the name in step i of a reference, written .name or ["name"].
func attrName(ref hcl.Traversal, i int) (string, bool) {
	if i >= len(ref) {
		return "", false
	}
	switch step := ref[i].(type) {
	case hcl.TraverseAttr:
		return step.Name, true
	case hcl.TraverseIndex:
		if step.Key.Type().FriendlyName() == "string" && step.Key.IsKnown() && !step.Key.IsNull() {
			return step.Key.AsString(), true
		}
	}
	return "", false
}

// lateFields returns the arguments that may refer to slot.
func lateFields() []string {
	var names []string
	for _, f := range job.Fields(reflect.TypeFor[job.Role]()) {
		if f.Late {
			names = append(names, f.Name)
		}
	}
	return names
}

func (l *loader) checkCall(call *hclsyntax.FunctionCallExpr) *hcl.Diagnostic {
	if _, known := l.ctx.Functions[call.Name]; known {
		return nil
	}
	at := call.NameRange
	if why := unstable[call.Name]; why != "" {
		return &hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Function not available",
			Detail:   fmt.Sprintf("%s() %s. The same files must always mean the same jobs, or every plan would show changes. Pass such a value in as a variable.", call.Name, why),
			Subject:  &at,
		}
	}
	if strings.Contains(call.Name, "::") {
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Unknown function", Detail: "Function names have no namespaces.", Subject: &at}
	}
	known := slices.Collect(maps.Keys(l.ctx.Functions))
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Unknown function",
		Detail:   fmt.Sprintf("There is no function %q.%s", call.Name, suggest(call.Name, known)),
		Subject:  &at,
	}
}
