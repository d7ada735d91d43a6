package lang

import (
	"fmt"
	"iter"
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

// Moved says that the job From continues as the job To. Chains are resolved: To is not moved any further.
// Both are full names, including modules and keys.
type Moved struct {
	From, To string
	Source   job.Source
}

// Removed says what happens to a job, or to all jobs of a module, that is no longer declared.
type Removed struct {
	Job    string // full name; "" for a module
	Module string // prefix of the names of the module's jobs; no declared job's name has it. "" for a job
	// Address is the address of what was removed, with modules and keys.
	Address string
	// Destroy is whether it is destroyed. If not, it keeps running, and eltrain forgets it.
	Destroy bool
	Source  job.Source
	// Was lists its earlier addresses according to the moved blocks, if it is not destroyed: jobs recorded under one of them,
	// or moved to one of them, keep running with it.
	Was []Removed `json:",omitempty"`
}

// Import says that something already running, which its provider knows as ID, is to be managed as To: a job, or
// one slot of a job.
type Import struct {
	To     job.Selector
	ID     string
	Source job.Source
}

type movedBlock struct {
	From hcl.Expression `hcl:"from,required" doc:"What it was: job.NAME, job.NAME[\"KEY\"], module.NAME for all its jobs, or module.NAME.job.NAME."`
	To   hcl.Expression `hcl:"to,required" doc:"The new address, in the same form."`
}

type removedBlock struct {
	From      hcl.Expression    `hcl:"from,required" doc:"What is no longer declared: job.NAME, module.NAME for all its jobs, or module.NAME.job.NAME. With [\"KEY\"] it is one of a block with for_each, without all of them."`
	Destroy   bool              `hcl:"destroy,optional" default:"true" doc:"Whether the job is destroyed. With false it keeps running and eltrain forgets it."`
	Lifecycle *removedLifecycle `hcl:"lifecycle,block" doc:"Terraform's place for destroy."`
}

type removedLifecycle struct {
	Destroy bool `hcl:"destroy,required" doc:"The same as destroy outside."`
}

type importBlock struct {
	To      hcl.Expression `hcl:"to,required" doc:"The job or slot that it becomes: job.NAME, or job.NAME.ROLE[0]."`
	ID      string         `hcl:"id,required" doc:"The provider's identifier: the UID of a job; for kubernetes also the name of a pod, or of the ConfigMap that owns the objects of a job."`
	ForEach hcl.Expression `hcl:"for_each,optional" doc:"A map or a set of strings: one block per element. to and id may refer to each.key and each.value."`
}

// moves reads the moved and removed blocks of the directory and of its modules.
func (l *loader) moves() {
	moved := moves{from: map[string]*move{}, onto: map[string]*move{}, written: map[string][]bulkMove{}}
	l.collectMoves(&moved)
	l.followMoves(&moved)
	l.collectRemoved(&moved)
}

// moves holds the moved blocks of a directory and its modules.
type moves struct {
	from    map[string]*move // by old name
	onto    map[string]*move // those written for a single job, by new name
	bulk    []bulkMove
	written map[string][]bulkMove // all moved blocks, by the outermost block of "to"
}

// eachModule calls f for this module and all modules in it, in block order.
func (l *loader) eachModule(f func(*loader)) {
	f(l)
	for _, b := range l.blocks["module"] {
		if c := l.calls[b.Labels[0]]; c.block == b {
			for _, child := range c.instances {
				if child.presence == present {
					child.eachModule(f)
				}
			}
		}
	}
}

// move is one job's move, as written or as implied by a bulkMove.
type move struct {
	to      string
	address string // old address
	at      hcl.Range
	implied bool // by a bulkMove

	state visit
	last  string // final name of the chain of moves; "" in a cycle
}

// bulkMove is a moved block that may apply to several jobs: all jobs of a module, or all instances of a block where the
// block, or a module around it, has for_each.
type bulkMove struct {
	from, to target
	at       hcl.Range
}

// origin returns the old address of the job that now has the given address; "" if m does not apply to it. As in Terraform,
// instances keep their keys: where "to" omits a key, "from" must omit it, too, and both get the job's key.
func (m bulkMove) origin(address string) string {
	to, now := job.Steps(m.to.text), job.Steps(address)
	if len(now) < len(to) || !m.to.module && len(now) > len(to) {
		return ""
	}
	was := job.Steps(m.from.text)
	beyond := len(was) - len(to) // steps are matched from the innermost outwards: job to job, its module to its module
	carried := len(now) > len(to)
	for i, st := range to {
		switch {
		case st.Kind != now[i].Kind || st.Name != now[i].Name:
			return ""
		case st.Key == now[i].Key:
		case st.Key != "" || beyond+i < 0 || was[beyond+i].Key != "":
			return ""
		default:
			was[beyond+i].Key, carried = now[i].Key, true
		}
	}
	if !carried {
		return "" // exactly the job that the block names
	}
	return job.Declared(append(was, now[len(to):]...))
}

// block returns an address without its keys, and the number of keys removed.
func block(address string) (text string, keys int) {
	steps := job.Steps(address)
	for i := range steps {
		if steps[i].Key != "" {
			steps[i].Key = ""
			keys++
		}
	}
	return job.Declared(steps), keys
}

// outermost returns the outermost block of an address, without its key.
func outermost(address string) string {
	text, _ := block(job.Declared(job.Steps(address)[:1]))
	return text
}

// overlap returns the address of the intersection of two addresses, "" if it is empty. An omitted key matches any key, and
// a module includes everything in it.
func overlap(a, b string) string {
	long, short := job.Steps(a), job.Steps(b)
	if len(long) < len(short) {
		long, short = short, long
	}
	for i, st := range short {
		switch {
		case st.Kind != long[i].Kind || st.Name != long[i].Name:
			return ""
		case long[i].Key == "":
			long[i].Key = st.Key
		case st.Key != "" && st.Key != long[i].Key:
			return ""
		}
	}
	return job.Declared(long)
}

func (l *loader) collectMoves(moved *moves) {
	onto := map[string][]bulkMove{} // moves of jobs, by new address without keys
	l.eachModule(func(m *loader) {
		for _, b := range m.blocks["moved"] {
			var decl movedBlock
			m.decode(b, reflect.ValueOf(&decl).Elem(), m.plain)
			from, ok1 := m.target(decl.From, m.ctx, jobsAndModules)
			to, ok2 := m.target(decl.To, m.ctx, jobsAndModules)
			if ok1 && ok2 {
				moved.written[outermost(to.text)] = append(moved.written[outermost(to.text)], bulkMove{from, to, b.DefRange()})
			}
			switch at := b.DefRange(); {
			case !ok1 || !ok2:
			case from.module != to.module:
				l.report(&hcl.Diagnostic{
					Severity: hcl.DiagError, Summary: "Invalid move",
					Detail:  fmt.Sprintf("%s and %s are of different kinds: a job moves to a job, a module to a module.", from.text, to.text),
					Subject: &at,
				})
			case from.module:
				moved.bulk = append(moved.bulk, bulkMove{from, to, at})
			default:
				l.enterMove(moved, from.name, &move{to: to.name, address: from.text, at: at})
				block, _ := block(to.text)
				onto[block] = append(onto[block], bulkMove{from, to, at})
			}
		}
	})
	moved.bulk = append(moved.bulk, l.bulkMovesOf(onto)...)
	// The result of one module's move can be the start of another's.
	for known := -1; known < len(moved.from) && len(moved.bulk) > 0; {
		known = len(moved.from)
		for _, m := range moved.bulk {
			l.applyBulk(moved, m)
		}
	}
}

// bulkMovesOf returns the moves of jobs that lead, directly or through others, to more than one job because they omit a
// key, and removes them from onto, which holds the moves by new address without keys.
func (l *loader) bulkMovesOf(onto map[string][]bulkMove) []bulkMove {
	ends := map[string]int{} // number of keys, by address without keys
	for _, p := range l.names {
		block, keys := block(p.address)
		ends[block] = max(ends[block], keys)
	}
	var found []bulkMove
	for next := slices.Sorted(maps.Keys(ends)); len(next) > 0; next = next[1:] {
		var exact []bulkMove
		for _, m := range onto[next[0]] {
			_, keys := block(m.to.text)
			if keys >= ends[next[0]] {
				exact = append(exact, m)
				continue
			}
			found = append(found, m)
			from, named := block(m.from.text)
			ends[from] = max(ends[from], named+ends[next[0]]-keys)
			next = append(next, from)
		}
		onto[next[0]] = exact
	}
	return found
}

// applyBulk adds a move for each job that m applies to. The jobs of a module that is no longer used are not known here;
// known are the declared jobs and the old names of moved ones.
func (l *loader) applyBulk(moved *moves, m bulkMove) {
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
	outer := outermost(m.to.text)
	for _, name := range slices.Sorted(maps.Keys(within)) {
		if !strings.HasPrefix(within[name], outer) {
			continue
		}
		address := m.origin(within[name])
		was, err := job.ParseSelector(address)
		if err != nil { // there is none, or its name is too long
			continue
		}
		from := was.Job
		if first := moved.from[from]; first != nil && first.at == m.at {
			continue // added in an earlier round
		}
		l.enterMove(moved, from, &move{to: name, address: address, at: m.at, implied: true})
	}
}

func (l *loader) enterMove(moved *moves, from string, m *move) {
	bad := func(summary, format string, args ...any) {
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &m.at})
	}
	if from == m.to {
		bad("Move to itself", "The job %q already has this name. Remove the block.", from)
		return
	}
	if p, declared := l.names[from]; declared {
		bad("Moved job still exists", "%s is still declared, at %s:%d. It cannot also become the job %q: remove one of the two.", p.address, p.at.Filename, p.at.Start.Line, m.to)
		return
	}
	if first := moved.from[from]; first != nil {
		if first.to != m.to {
			bad("Ambiguous move", "%s is already moved to the job %q, at %s:%d. Remove one of the two.", m.address, first.to, first.at.Filename, first.at.Start.Line)
		}
		return
	}
	moved.from[from] = m
	if m.implied {
		return
	}
	if o := moved.onto[m.to]; o != nil {
		bad("Ambiguous move", "%s is also moved to the job %q, at %s:%d: only one can become that job.", o.address, m.to, o.at.Filename, o.at.Start.Line)
		return
	}
	moved.onto[m.to] = m
}

// followMoves resolves each move to its final name.
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

// lastName follows a chain of moves to its end and caches the result, so that a long chain is walked once. A cycle is
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
			Detail:  fmt.Sprintf("These jobs are moved to each other: %s. Remove one of the blocks.", strings.Join(append(chain[slices.Index(chain, name):], name), " -> ")),
			Subject: &moved.from[from].at,
		})
	}
	last := name
	if m != nil {
		last = m.last // "" if this is a cycle
	}
	for _, name := range chain {
		moved.from[name].state, moved.from[name].last = visited, last
	}
	return moved.from[from].last, moved.from[from].last != ""
}

// compareRanges orders by range, then by name.
func compareRanges(a, b hcl.Range, nameA, nameB string) int {
	if c := strings.Compare(a.Filename, b.Filename); c != 0 {
		return c
	}
	if c := a.Start.Byte - b.Start.Byte; c != 0 {
		return c
	}
	return strings.Compare(nameA, nameB)
}

// removal is a removed block.
type removal struct {
	from target
	at   hcl.Range
}

func (l *loader) collectRemoved(moved *moves) {
	seen := map[string]removal{} // by address
	declared := l.declaredBlocks()
	calls := map[string]hcl.Range{}
	l.eachModule(func(m *loader) {
		for _, c := range m.calls {
			calls[m.address+c.address] = c.at
		}
	})
	l.eachModule(func(m *loader) {
		for _, b := range m.blocks["removed"] {
			var decl removedBlock
			read := m.decode(b, reflect.ValueOf(&decl).Elem(), m.plain)
			from, ok := m.target(decl.From, m.ctx, jobsAndModules)
			if !ok || !l.checkRemoved(removal{from, b.DefRange()}, moved, calls, declared, seen) {
				continue
			}
			if inner := decl.Lifecycle; inner != nil {
				if read.attrs["destroy"] != nil && read.sound("destroy") && soundBlock(read.block("lifecycle")) && decl.Destroy != inner.Destroy {
					m.complain(read.at("destroy"), read, "Contradicting arguments", "destroy is %t here and %t in the lifecycle block. Write it once.", decl.Destroy, inner.Destroy)
				}
				decl.Destroy = inner.Destroy
			}
			removed := Removed{Job: from.name, Address: from.text, Destroy: decl.Destroy, Source: sourceOf(b.DefRange())}
			if from.module {
				removed.Job, removed.Module = "", from.name
			}
			if !removed.Destroy {
				removed.Was = l.formerAddresses(removal{from, b.DefRange()}, moved)
			}
			l.cfg.Removed = append(l.cfg.Removed, removed)
		}
	})
	l.checkNested(seen)
}

func (l *loader) checkRemoved(r removal, moved *moves, calls map[string]hcl.Range, declared map[string][]place, seen map[string]removal) bool {
	bad := func(summary, format string, args ...any) bool {
		l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &r.at})
		return false
	}
	if first, dup := seen[r.from.text]; dup {
		return bad("Duplicate removed block", "There is already one for %s, at %s:%d.", r.from.text, first.at.Filename, first.at.Start.Line)
	}
	seen[r.from.text] = r
	if at, declared := calls[r.from.text]; declared {
		return bad("Removed module still exists", "%s is still declared, at %s:%d. Remove it, or this block.", r.from.text, at.Filename, at.Start.Line)
	}
	if r.from.module {
		return l.checkRemovedModule(r, moved, bad)
	}
	if p, there := l.stillDeclared(r, declared); there {
		return bad("Removed job still exists", "%s is still declared, at %s:%d. Remove it, or this block.", p.address, p.at.Filename, p.at.Start.Line)
	}
	if m := moved.from[r.from.name]; m != nil {
		return bad("Removed job was moved", "%s becomes the job %q, by the moved block at %s:%d. Remove one of the two.", r.from.text, m.to, m.at.Filename, m.at.Start.Line)
	}
	return true
}

// checkRemovedModule checks that no declared job can be mistaken for one of the module's: a job of the same name takes over
// its record, and a running job without a record is known by name only.
func (l *loader) checkRemovedModule(r removal, moved *moves, bad func(summary, format string, args ...any) bool) bool {
	if !l.meter.spend(len(l.names) + len(moved.bulk)) {
		l.meter.blame(r.at)
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		if !strings.HasPrefix(name, r.from.name) {
			continue
		}
		p := l.names[name]
		if strings.HasPrefix(p.address, r.from.text+".") || strings.HasPrefix(p.address, r.from.text+"[") {
			return bad("Removed module still exists", "%s is still declared, at %s:%d. Remove its key from the module's for_each, or this block.", p.address, p.at.Filename, p.at.Start.Line)
		}
		return bad("Ambiguous name of a removed module's job",
			"%s, at %s:%d, has the name %q, which a job of %s may have had: they could be confused. Remove this block once that module's jobs are gone from the state, or rename the job.",
			p.address, p.at.Filename, p.at.Start.Line, name, r.from.text)
	}
	for _, m := range moved.bulk {
		if m.from.text == r.from.text {
			return bad("Removed module was moved", "%s becomes %s, by the moved block at %s:%d. Remove one of the two.", r.from.text, m.to.text, m.at.Filename, m.at.Start.Line)
		}
	}
	return true
}

// stepsPerMove is the cost, in steps of the meter, of following one move back, which parses and formats addresses. Moves of
// a module into itself could otherwise be followed without end.
const stepsPerMove = 200

// formerAddresses follows the moved blocks back from what a removed block forgets. The keys of a for_each block that is no longer
// declared are unknown, and so are the names of its jobs; recorded jobs have the address that they were moved from.
func (l *loader) formerAddresses(r removal, moved *moves) []Removed {
	var was []Removed
	seen := map[string]bool{r.from.text: true}
	for next := []string{r.from.text}; len(next) > 0; next = next[1:] {
		blocks := moved.written[outermost(next[0])]
		if !l.meter.spend(stepsPerMove * len(blocks)) {
			l.meter.blame(r.at)
			return nil
		}
		for _, m := range blocks {
			now := overlap(next[0], m.to.text)
			before := m.origin(now)
			if now == m.to.text {
				before = m.from.text
			}
			for _, address := range []string{now, before} {
				t, err := parseAddress(address)
				if err != nil || seen[address] { // there is none, or its name is too long
					continue
				}
				seen[address] = true
				next = append(next, address)
				if m := moved.from[t.name]; m != nil && l.declares(m.last) {
					continue // this job continues under another name
				}
				was = append(was, forgotten(t, r.at))
			}
		}
	}
	return was
}

// declares reports whether a job of that name is declared.
func (l *loader) declares(name string) bool {
	_, declared := l.names[name]
	return declared
}

// forgotten returns the Removed of a target that keeps running.
func forgotten(t target, at hcl.Range) Removed {
	if t.module {
		return Removed{Module: t.name, Address: t.text, Source: sourceOf(at)}
	}
	return Removed{Job: t.name, Address: t.text, Source: sourceOf(at)}
}

// declaredBlocks returns the declared jobs by address without keys, each list in the order of names.
func (l *loader) declaredBlocks() map[string][]place {
	declared := map[string][]place{}
	for _, name := range slices.Sorted(maps.Keys(l.names)) {
		block, _ := block(l.names[name].address)
		declared[block] = append(declared[block], l.names[name])
	}
	return declared
}

// stillDeclared finds a declared job that a removed block of a job covers: the one of that name, or one with a key that the
// block omits.
func (l *loader) stillDeclared(r removal, declared map[string][]place) (place, bool) {
	if p, there := l.names[r.from.name]; there {
		return p, true
	}
	text, keys := block(r.from.text)
	instances := declared[text]
	if len(instances) == 0 {
		return place{}, false
	}
	if _, all := block(instances[0].address); keys == all {
		return place{}, false // its name would have matched
	}
	if !l.meter.spend(len(instances)) {
		l.meter.blame(r.at)
		return place{}, false
	}
	i := slices.IndexFunc(instances, func(p place) bool { return job.Selector{Declared: r.from.text}.Covers(p.address) })
	if i < 0 {
		return place{}, false
	}
	return instances[i], true
}

// checkNested reports removed blocks that another one covers: of a job in a removed module, or of one key of a removed block.
func (l *loader) checkNested(all map[string]removal) {
	type group struct {
		block string
		keys  int
	}
	groups := map[group][]removal{}
	addresses := slices.Sorted(maps.Keys(all))
	for _, address := range addresses {
		block, keys := block(address)
		groups[group{block, keys}] = append(groups[group{block, keys}], all[address])
	}
	wholeOf := func(r removal) (removal, bool) {
		own, keys := block(r.from.text)
		for _, outer := range append([]string{own}, slices.Collect(outerModules(own))...) {
			for n := range keys + 1 {
				if outer == own && n == keys {
					continue // with the same number of keys it is another one, or the same
				}
				wholes := groups[group{outer, n}]
				if !l.meter.spend(len(wholes)) {
					l.meter.blame(r.at)
					return removal{}, false
				}
				i := slices.IndexFunc(wholes, func(w removal) bool { return job.Selector{Declared: w.from.text}.Covers(r.from.text) })
				if i >= 0 {
					return wholes[i], true
				}
			}
		}
		return removal{}, false
	}
	for _, address := range addresses {
		r := all[address]
		whole, within := wholeOf(r)
		if !within {
			continue
		}
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Duplicate removed block",
			Detail:  fmt.Sprintf("%s is in %s, which already has one, at %s:%d. Remove one of the two.", r.from.text, whole.from.text, whole.at.Filename, whole.at.Start.Line),
			Subject: &r.at,
		})
	}
}

// outerModules iterates over the addresses of the modules around an address, innermost first, with and without their keys.
func outerModules(address string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			block, keyed := cutKey(address)
			if !keyed {
				at := strings.LastIndexByte(address, '.') // before the name
				if at < 0 {
					return
				}
				kind := strings.LastIndexByte(address[:at], '.') // before "job" or "module"
				if kind < 0 {
					return
				}
				block = address[:kind]
			}
			if address = block; !yield(address) {
				return
			}
		}
	}
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
			if inst.presence != present || decl.To == nil {
				continue
			}
			if !l.checkKeys(decl.To, s) {
				continue
			}
			to, ok := l.target(decl.To, ctx, jobsAndSlots)
			if !ok {
				continue
			}
			if first, dup := byTarget[to.selector.String()]; dup {
				l.complain(read.at("to"), read, "Duplicate import", "There is already an import to %s, at %s:%d.", to.text, first.Filename, first.Start.Line)
				continue
			}
			byTarget[to.selector.String()] = read.def
			if !l.checkImport(to, decl.ID, read, jobs) || !read.sound("id") {
				continue
			}
			if first, dup := byID[decl.ID]; dup {
				l.complain(read.at("id"), read, "Duplicate import", "%q is already imported, at %s:%d.", decl.ID, first.Filename, first.Start.Line)
				continue
			}
			byID[decl.ID] = read.def
			l.cfg.Imports = append(l.cfg.Imports, Import{To: to.selector, ID: decl.ID, Source: sourceOf(read.def)})
		}
	}
}

func sensitiveID(attr *hcl.Attribute) *hcl.Diagnostic {
	return &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "Sensitive import",
		Detail:  "The id cannot be sensitive: the plan shows it.",
		Subject: attr.Expr.Range().Ptr(),
	}
}

// checkImport checks that the target of an import is declared; jobs maps the names of declared jobs to their indices.
func (l *loader) checkImport(to target, id string, t *tree, jobs map[string]int) bool {
	if id == "" && t.sound("id") {
		l.complain(t.at("id"), t, "Import of nothing", "id is empty: write the provider's identifier of what is running.")
		return false
	}
	i, declared := jobs[to.name]
	switch {
	case !declared && (l.anyIncomplete() || l.unsettled(to.jobText())):
		return false
	case !declared:
		l.complain(t.at("to"), t, "Import to an undeclared job", "%s", l.undeclared(to.jobText()))
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
	unknown := func(path string) bool { return slices.Contains(l.cfg.Unknown[to.name], path) }
	if role == nil && unknown("role") {
		return false
	}
	if role == nil {
		l.complain(t.at("to"), t, "Import to an undeclared role", "The job %q has no role %q.%s", to.name, to.selector.Role, suggest(to.selector.Role, roles))
		return false
	}
	size := "role." + role.Name + ".scaling"
	switch {
	case unknown(size):
		return true
	case role.Scaling == nil:
		size = "role." + role.Name + ".replicas"
	default:
		size += ".max"
	}
	if _, most := role.Bounds(); !unknown(size) && to.selector.Ranges[0][0] >= most {
		l.complain(t.at("to"), t, "Import to an undeclared slot", "%s has %d slots, counted from 0.", role.Name, most)
		return false
	}
	return true
}

// undeclared describes what is wrong with the address of a job that is not declared.
func (l *loader) undeclared(address string) string {
	known := l.addresses()
	if i := slices.IndexFunc(known, func(of string) bool { return job.Selector{Declared: address}.Covers(of) }); i >= 0 {
		return fmt.Sprintf("%s stands for all instances of for_each: write the key of one, as in %s.", address, known[i])
	}
	hint := ""
	if meant := closest(address, known); meant != "" {
		hint = fmt.Sprintf(" Did you mean %s?", meant)
	}
	return fmt.Sprintf("%s is not declared.%s Declare it as it should run; import says which running job it is.", address, hint)
}

// decode decodes a block that has no scope of its own.
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

// target is a parsed address.
type target struct {
	text     string // full address, from the job directory
	module   bool
	name     string // of the job; for a module, the prefix of its jobs' names
	selector job.Selector
}

// jobText is the part of the address that names the job.
func (t target) jobText() string {
	if t.selector.Role == "" {
		return t.text
	}
	return t.text[:strings.LastIndexByte(t.text, '.')]
}

// cutKey removes the key from the address of an instance: job.gpt["a"] becomes job.gpt.
func cutKey(address string) (block string, keyed bool) {
	open := strings.LastIndexByte(address, '[')
	if open < 0 || !strings.HasSuffix(address, "]") {
		return address, false
	}
	return address[:open], true
}

// targetKind is what an address may name.
type targetKind string

const (
	jobsAndModules targetKind = "a job or a module: job.NAME or module.NAME, with [\"KEY\"] if it has for_each, prefixed with module.NAME. if it is in another module"
	jobsAndSlots   targetKind = "a job or one slot of it: job.NAME or job.NAME.ROLE[0]"
)

// target parses an address, which is relative to the module that it is written in.
func (l *loader) target(expr hcl.Expression, ctx *hcl.EvalContext, kind targetKind) (target, bool) {
	if expr == nil {
		return target{}, false // reported as missing
	}
	bad := func(why string) (target, bool) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Invalid address",
			Detail:  fmt.Sprintf("%sWrite the address of %s without quotes.", why, kind),
			Subject: expr.Range().Ptr(),
		})
		return target{}, false
	}
	if !l.settledKeys(expr, ctx) {
		return target{}, false
	}
	text, ok := l.addressText(expr, ctx)
	if !ok {
		return bad("")
	}
	t, err := parseAddress(l.address + text)
	switch sel := t.selector; {
	case err != nil, t.module && kind != jobsAndModules:
		return bad("")
	case sel.Role != "" && kind != jobsAndSlots:
		return bad("A role is part of its job and cannot be named by itself here. ")
	case sel.Role != "" && (len(sel.Ranges) != 1 || sel.Ranges[0][0] != sel.Ranges[0][1]):
		return bad("")
	}
	return t, true
}

// parseAddress parses a full address.
func parseAddress(text string) (target, error) {
	sel, err := job.ParseTarget(text)
	if err != nil || sel.Job != "" {
		sel.Declared = ""
		return target{text: text, name: sel.Job, selector: sel}, err
	}
	// The names of a module's jobs begin with the module's name; the rest does not matter here.
	const some = "x"
	sel, err = job.ParseSelector(text + ".job." + some)
	return target{text: text, module: true, name: strings.TrimSuffix(sel.Job, some)}, err
}

// addressText formats an address expression with its keys evaluated: job.gpt["a"].worker[0].
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
		step, isKey := keyText(key)
		return before + step, ok && isKey && !diags.HasErrors()
	}
	return "", false
}

// plainExpr strips the meter and parentheses from an expression.
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

// keyText formats a key or an index in brackets: a number is the index of a slot, a string a key of for_each.
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

// checkKeys reports unknown names in the keys of an address. The address itself is not a reference to a value.
func (l *loader) checkKeys(expr hcl.Expression, s scope) bool {
	for _, key := range keysOf(expr) {
		if !l.checkExpr(key, s) {
			return false
		}
	}
	return true
}

// keysOf returns the key expressions of an address, the last one first.
func keysOf(expr hcl.Expression) []*hclsyntax.Expression {
	switch e := plainExpr(expr).(type) {
	case *hclsyntax.RelativeTraversalExpr:
		return keysOf(e.Source)
	case *hclsyntax.IndexExpr:
		return append([]*hclsyntax.Expression{&e.Key}, keysOf(e.Collection)...)
	}
	return nil
}
