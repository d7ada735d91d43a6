package lang

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// Moved says that what ran as the job From goes on as the job To. Chains are followed: To is a name that is
// moved no further. The names are whole, with modules and keys in them.
type Moved struct {
	From, To string
	Source   job.Source
}

// Removed says what becomes of a job that is declared no more.
type Removed struct {
	Job string
	// Destroy is whether it is ended. If not, it goes on, and eltrain forgets it.
	Destroy bool
	Source  job.Source
}

// Import says that something that runs, known to its provider by ID, is to be looked after as To: a job, or
// one slot of it.
type Import struct {
	To     job.Selector
	ID     string
	Source job.Source
}

type movedBlock struct {
	From hcl.Expression `hcl:"from,required" doc:"What it was: job.NAME, job.NAME[\"KEY\"], module.NAME for all its jobs, or module.NAME.job.NAME."`
	To   hcl.Expression `hcl:"to,required" doc:"What it is now, written in the same way."`
}

type removedBlock struct {
	From      hcl.Expression    `hcl:"from,required" doc:"The job that is declared no more: job.NAME or module.NAME.job.NAME, with [\"KEY\"] where it had one."`
	Destroy   bool              `hcl:"destroy,optional" default:"true" doc:"Whether the job is ended. With false it goes on, and eltrain forgets it."`
	Lifecycle *removedLifecycle `hcl:"lifecycle,block" doc:"Terraform's place for destroy."`
}

type removedLifecycle struct {
	Destroy bool `hcl:"destroy,required" doc:"The same as destroy outside."`
}

type importBlock struct {
	To      hcl.Expression `hcl:"to,required" doc:"The job or slot that it becomes: job.NAME, or job.NAME.ROLE[0]."`
	ID      string         `hcl:"id,required" doc:"What it is known by where it runs: the UID of a job; for kubernetes also the name of a pod, or of the ConfigMap that owns all of a job."`
	ForEach hcl.Expression `hcl:"for_each,optional" doc:"A map or a set of strings: the block is there once for each element. to and id may refer to each.key and each.value."`
}

// moves reads the moved and removed blocks of the directory and of its modules.
func (l *loader) moves() {
	moved := moves{from: map[string]*move{}, onto: map[string]*move{}}
	l.collectMoves(&moved)
	l.followMoves(&moved)
	l.collectRemoved(&moved, map[string]hcl.Range{})
}

// moves are those of a directory and its modules.
type moves struct {
	from map[string]*move // by the name that was
	onto map[string]*move // those written for a job, by the name that is
}

// everyModule calls f for this module and all in it, in the order of their blocks.
func (l *loader) everyModule(f func(*loader)) {
	f(l)
	for _, b := range l.blocks["module"] {
		if c := l.calls[b.Labels[0]]; c.block == b {
			for _, child := range c.instances {
				child.everyModule(f)
			}
		}
	}
}

// move is one job's move as it is written, or as it follows from a module's.
type move struct {
	to      string
	address string // of what is moved, as declared
	at      hcl.Range
	implied bool // by the move of its module

	state visit
	last  string // the end of the chain of moves; "" in a cycle
}

// moduleMove is a moved block that concerns all jobs of a module.
type moduleMove struct {
	from, to target
	at       hcl.Range
}

func (l *loader) collectMoves(moved *moves) {
	var modules []moduleMove
	l.everyModule(func(m *loader) {
		for _, b := range m.blocks["moved"] {
			var decl movedBlock
			m.decode(b, reflect.ValueOf(&decl).Elem(), m.plain)
			from, ok1 := m.target(decl.From, m.ctx, jobsAndModules)
			to, ok2 := m.target(decl.To, m.ctx, jobsAndModules)
			switch at := b.DefRange(); {
			case !ok1 || !ok2:
			case from.module != to.module:
				l.report(&hcl.Diagnostic{
					Severity: hcl.DiagError, Summary: "Invalid move",
					Detail:  fmt.Sprintf("%s and %s are not of one kind: a job becomes a job, and a module a module.", from.text, to.text),
					Subject: &at,
				})
			case from.module:
				modules = append(modules, moduleMove{from, to, at})
			default:
				l.enterMove(moved, from.name, &move{to: to.name, address: from.text, at: at})
			}
		}
	})
	// A module's move can lead to one that another module's begins with.
	for known := -1; known < len(moved.from) && len(modules) > 0; {
		known = len(moved.from)
		for _, m := range modules {
			l.enterModuleMove(moved, m)
		}
	}
}

// enterModuleMove enters a module's move for each of its jobs. What is left of a module that is used no more is
// not known here; what it is now, and what jobs in it were called, is.
func (l *loader) enterModuleMove(moved *moves, m moduleMove) {
	if !l.meter.spend(len(l.names) + len(moved.from)) {
		l.meter.blame(m.at)
		return
	}
	within := map[string]string{} // addresses by name
	for name, p := range l.names {
		within[name] = p.address
	}
	for name, other := range moved.from {
		within[name] = other.address
	}
	for _, name := range slices.Sorted(maps.Keys(within)) {
		rest, ok := strings.CutPrefix(within[name], m.to.text+".")
		if !ok {
			continue
		}
		from := m.from.name + strings.TrimPrefix(name, m.to.name)
		if first := moved.from[from]; first != nil && first.at == m.at {
			continue // in the round before
		}
		l.enterMove(moved, from, &move{to: name, address: m.from.text + "." + rest, at: m.at, implied: true})
	}
}

func (l *loader) enterMove(moved *moves, from string, m *move) {
	bad := func(summary, format string, args ...any) {
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &m.at})
	}
	if from == m.to {
		bad("Move to itself", "The job %q has this name already. Remove the block.", from)
		return
	}
	if p, declared := l.names[from]; declared {
		bad("Moved job still exists", "%s is still declared, at %s:%d. What runs under that name cannot be the job %q too: remove one of both.", p.address, p.at.Filename, p.at.Start.Line, m.to)
		return
	}
	if first := moved.from[from]; first != nil {
		if first.to != m.to {
			bad("Ambiguous move", "%s is moved to the job %q already, at %s:%d. Remove one of both.", m.address, first.to, first.at.Filename, first.at.Start.Line)
		}
		return
	}
	moved.from[from] = m
	if m.implied {
		return
	}
	if o := moved.onto[m.to]; o != nil {
		bad("Ambiguous move", "%s is moved to the job %q as well, at %s:%d: only one can become that job.", o.address, m.to, o.at.Filename, o.at.Start.Line)
		return
	}
	moved.onto[m.to] = m
}

// followMoves gives each move's last name.
func (l *loader) followMoves(moved *moves) {
	for _, from := range slices.SortedFunc(maps.Keys(moved.from), func(a, b string) int {
		return compareRanges(moved.from[a].at, moved.from[b].at, a, b)
	}) {
		m := moved.from[from]
		last, ok := l.lastName(moved, from)
		if ok {
			l.cfg.Moved = append(l.cfg.Moved, Moved{From: from, To: last, Source: sourceOf(m.at)})
		}
	}
}

// lastName follows a chain of moves to its end, and shortens it, so that a long one is walked once. A cycle is
// reported once.
func (l *loader) lastName(moved *moves, from string) (string, bool) {
	var chain []string
	name := from
	for moved.from[name] != nil && moved.from[name].state == unvisited {
		moved.from[name].state = visiting
		chain = append(chain, name)
		name = moved.from[name].to
	}
	m := moved.from[name]
	looped := m != nil && m.state == visiting
	if looped {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Moves in a cycle",
			Detail:  fmt.Sprintf("Each of these jobs becomes the next one: %s. Remove one of the blocks.", strings.Join(append(chain[slices.Index(chain, name):], name), " -> ")),
			Subject: &moved.from[from].at,
		})
	}
	last := name
	if m != nil {
		last = m.last // not known yet if this is a cycle: there is none
	}
	for _, name := range chain {
		moved.from[name].state, moved.from[name].last = visited, last
	}
	return moved.from[from].last, moved.from[from].last != ""
}

// compareRanges orders by place, then by name.
func compareRanges(a, b hcl.Range, nameA, nameB string) int {
	if c := strings.Compare(a.Filename, b.Filename); c != 0 {
		return c
	}
	if c := a.Start.Byte - b.Start.Byte; c != 0 {
		return c
	}
	return strings.Compare(nameA, nameB)
}

func (l *loader) collectRemoved(moved *moves, seen map[string]hcl.Range) {
	l.everyModule(func(m *loader) {
		for _, b := range m.blocks["removed"] {
			var decl removedBlock
			read := m.decode(b, reflect.ValueOf(&decl).Elem(), m.plain)
			from, ok := m.target(decl.From, m.ctx, jobsOnly)
			if !ok || !m.checkRemoved(from, b, moved, seen) {
				continue
			}
			if inner := decl.Lifecycle; inner != nil {
				if read.attrs["destroy"] != nil && decl.Destroy != inner.Destroy {
					m.complain(read.at("destroy"), read, "Contradicting arguments", "destroy is %t here and %t in the lifecycle block. Write it once.", decl.Destroy, inner.Destroy)
				}
				decl.Destroy = inner.Destroy
			}
			l.cfg.Removed = append(l.cfg.Removed, Removed{Job: from.name, Destroy: decl.Destroy, Source: sourceOf(b.DefRange())})
		}
	})
}

func (l *loader) checkRemoved(from target, b *hclsyntax.Block, moved *moves, seen map[string]hcl.Range) bool {
	at := b.DefRange()
	bad := func(summary, format string, args ...any) bool {
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at})
		return false
	}
	if p, declared := l.names[from.name]; declared {
		return bad("Removed job still exists", "%s is still declared, at %s:%d. Remove it, or this block.", p.address, p.at.Filename, p.at.Start.Line)
	}
	if m := moved.from[from.name]; m != nil {
		return bad("Removed job was moved", "%s becomes the job %q, by the moved block at %s:%d. Remove one of both.", from.text, m.to, m.at.Filename, m.at.Start.Line)
	}
	if first, dup := seen[from.name]; dup {
		return bad("Duplicate removed block", "There is one for %s already, at %s:%d.", from.text, first.Filename, first.Start.Line)
	}
	seen[from.name] = at
	return true
}

// imports reads the import blocks.
func (l *loader) imports() {
	jobs := map[string]int{} // index by name
	for i := range l.cfg.Jobs {
		jobs[l.cfg.Jobs[i].Name] = i
	}
	byTarget, byID := map[string]hcl.Range{}, map[string]hcl.Range{}
	for _, b := range l.blocks["import"] {
		s := scope{vars: true, locals: true, modules: true, where: "an import block"}
		if attr := b.Body.Attributes["for_each"]; attr != nil {
			l.checkExpr(&attr.Expr, s)
			s.each = true
		}
		l.checkBody(b.Body, reflect.TypeFor[importBlock](), s)
		for _, inst := range l.instances(b, l.ctx) {
			ctx := inst.in(l.ctx)
			var decl importBlock
			read := l.decode(b, reflect.ValueOf(&decl).Elem(), func(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
				v, diags := attr.Expr.Value(ctx)
				if v.ContainsMarked() {
					diags = append(diags, sensitiveID(attr))
				}
				return v, ctx, diags
			})
			if inst.trial || decl.To == nil || !read.sound("id") {
				continue
			}
			if !l.checkKeys(decl.To, s) {
				continue
			}
			to, ok := l.target(decl.To, ctx, jobsAndSlots)
			if !ok || !l.checkImport(to, decl.ID, read, jobs) {
				continue
			}
			if first, dup := byTarget[to.selector.String()]; dup {
				l.complain(read.at("to"), read, "Duplicate import", "There is an import to %s already, at %s:%d.", to.text, first.Filename, first.Start.Line)
				continue
			}
			if first, dup := byID[decl.ID]; dup {
				l.complain(read.at("id"), read, "Duplicate import", "%q is imported already, at %s:%d: one thing cannot be two.", decl.ID, first.Filename, first.Start.Line)
				continue
			}
			byTarget[to.selector.String()], byID[decl.ID] = read.def, read.def
			l.cfg.Imports = append(l.cfg.Imports, Import{To: to.selector, ID: decl.ID, Source: sourceOf(read.def)})
		}
	}
}

func sensitiveID(attr *hcl.Attribute) *hcl.Diagnostic {
	return &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "Sensitive import",
		Detail:  "What is imported cannot be sensitive: the plan shows it.",
		Subject: attr.Expr.Range().Ptr(),
	}
}

// checkImport holds that what is imported to is declared; jobs are the indices of those that are.
func (l *loader) checkImport(to target, id string, t *tree, jobs map[string]int) bool {
	if id == "" {
		l.complain(t.at("id"), t, "Import of nothing", "id is empty: it is what the provider knows the running thing by.")
		return false
	}
	i, declared := jobs[to.name]
	if !declared {
		l.complain(t.at("to"), t, "Import to an undeclared job", "No job %q is declared.%s Declare it as it is to run; import says which running one it is.",
			to.name, suggestKey(to.name, l.names))
		return false
	}
	if to.selector.Role == "" {
		return true
	}
	var roles []string
	for _, r := range l.cfg.Jobs[i].Roles {
		roles = append(roles, r.Name)
	}
	role := l.cfg.Jobs[i].Role(to.selector.Role)
	if role == nil {
		l.complain(t.at("to"), t, "Import to an undeclared role", "The job %q has no role %q.%s", to.name, to.selector.Role, suggest(to.selector.Role, roles))
		return false
	}
	if _, most := role.Bounds(); to.selector.Ranges[0][0] >= most {
		l.complain(t.at("to"), t, "Import to an undeclared slot", "%s has %d slots, which count from 0.", role.Name, most)
		return false
	}
	return true
}

// decode reads a block that has no scope of its own.
func (l *loader) decode(b *hclsyntax.Block, to reflect.Value, eval evaluator) *tree {
	t := l.tree(b.AsHCLBlock(), to.Type())
	if to.Type() != reflect.TypeFor[importBlock]() {
		l.checkBody(b.Body, to.Type(), scope{vars: true, locals: true, modules: true, where: fmt.Sprintf("a %s block", b.Type)})
		t = l.tree(b.AsHCLBlock(), to.Type())
	}
	d := decoder{l: l, eval: eval}
	d.into(to, t)
	return t
}

// target is what an address in a block stands for.
type target struct {
	text     string // whole, as from the job directory
	module   bool
	name     string // of the job; of a module, what the names of its jobs begin with
	selector job.Selector
}

// targetKind is what an address may name.
type targetKind string

const (
	jobsOnly       targetKind = "a job: job.NAME, with [\"KEY\"] if it has for_each, and module.NAME. before it if it is in a module"
	jobsAndModules targetKind = "a job or a module: job.NAME or module.NAME, with [\"KEY\"] if it has for_each"
	jobsAndSlots   targetKind = "a job or one slot of it: job.NAME or job.NAME.ROLE[0]"
)

// target reads an address. It is relative to the module that it is written in.
func (l *loader) target(expr hcl.Expression, ctx *hcl.EvalContext, kind targetKind) (target, bool) {
	if expr == nil {
		return target{}, false // reported as missing
	}
	bad := func(why string) (target, bool) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid address",
			Detail:  fmt.Sprintf("%sWrite, without quotes, the address of %s.", why, kind),
			Subject: expr.Range().Ptr(),
		})
		return target{}, false
	}
	text, ok := l.addressText(expr, ctx)
	if !ok {
		return bad("")
	}
	t := target{text: l.address + text}
	_, hasJob, _ := cutJob(text)
	if !hasJob {
		// A module's jobs have its name before theirs, whatever that is.
		const some = "x"
		sel, err := job.ParseSelector(t.text + ".job." + some)
		if err != nil || kind != jobsAndModules || strings.HasPrefix(text, "job.") {
			return bad("")
		}
		t.module, t.name = true, strings.TrimSuffix(sel.Job, some)
		return t, true
	}
	sel, err := job.ParseSelector(t.text)
	switch {
	case err != nil:
		return bad("")
	case sel.Role != "" && kind != jobsAndSlots:
		return bad("A role is a part of its job, and cannot be named by itself here. ")
	case sel.Role != "" && (len(sel.Ranges) != 1 || sel.Ranges[0][0] != sel.Ranges[0][1]):
		return bad("")
	}
	t.name, t.selector = sel.Job, sel
	return t, true
}

// cutJob finds the job in an address: what comes before "job." is modules.
func cutJob(text string) (before string, found bool, after string) {
	if after, ok := strings.CutPrefix(text, "job."); ok {
		return "", true, after
	}
	before, after, found = strings.Cut(text, ".job.")
	return before, found, after
}

// addressText writes an address that is given as an expression, with its keys evaluated: job.gpt["a"].worker[0].
func (l *loader) addressText(expr hcl.Expression, ctx *hcl.EvalContext) (string, bool) {
	switch e := plainExpr(expr).(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return traversalText(e.Traversal)
	case *hclsyntax.RelativeTraversalExpr:
		before, ok1 := l.addressText(e.Source, ctx)
		after, ok2 := traversalText(e.Traversal)
		return before + after, ok1 && ok2
	case *hclsyntax.IndexExpr:
		before, ok := l.addressText(e.Collection, ctx)
		key, diags := e.Key.Value(ctx)
		if l.report(diags...); diags.HasErrors() || !ok {
			return "", false
		}
		step, ok := keyText(key)
		return before + step, ok
	}
	return "", false
}

// plainExpr is an expression without what only counts its work, and without parentheses.
func plainExpr(expr hcl.Expression) hcl.Expression {
	for {
		switch e := expr.(type) {
		case *metered:
			expr = e.Expression
		case *hclsyntax.ParenthesesExpr:
			expr = e.Expression
		default:
			return expr
		}
	}
}

func traversalText(ref hcl.Traversal) (string, bool) {
	var b strings.Builder
	for _, step := range ref {
		switch s := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(s.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + s.Name)
		case hcl.TraverseIndex:
			key, ok := keyText(s.Key)
			if !ok {
				return "", false
			}
			b.WriteString(key)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// keyText writes a key or an index in brackets. A number is the index of a slot, a text a key of for_each.
func keyText(key cty.Value) (string, bool) {
	if key.IsMarked() || !key.IsKnown() || key.IsNull() {
		return "", false
	}
	switch key.Type() {
	case cty.String:
		return "[" + strconv.Quote(key.AsString()) + "]", true
	case cty.Number:
		return "[" + key.AsBigFloat().Text('f', -1) + "]", true
	}
	return "", false
}

// checkKeys reports the unknown names in the keys of an address. The address itself names things, and refers
// to no value.
func (l *loader) checkKeys(expr hcl.Expression, s scope) bool {
	switch e := plainExpr(expr).(type) {
	case *hclsyntax.RelativeTraversalExpr:
		return l.checkKeys(e.Source, s)
	case *hclsyntax.IndexExpr:
		return l.checkExpr(&e.Key, s) && l.checkKeys(e.Collection, s)
	}
	return true
}
