package view

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// How many differences between similar slots are written out. A plan of 10,000 slots must fit a page.
const (
	maxReasonBlocks = 2 // blocks that differ in nothing but their reasons
	maxReasons      = 8 // of different slots within a block
	maxValues       = 4 // values of one attribute within a block
	maxNodes        = 8 // names of nodes within a block
)

// WritePlan shows a plan as text: what will be done and why, the costs, what waits for what, and the counts. Like slots are
// folded into one block. It takes time linear in the number of changes.
func WritePlan(s Screen, m *PlanModel) {
	t := planText{Screen: s}
	changes := m.changes()
	t.drift(m)
	if len(changes) > 0 {
		t.legend(changes)
		t.line("\neltrain will perform the following actions:")
		for _, b := range blocks(changes) {
			t.block(b)
		}
	}
	t.costs(m.Eltrain.Costs)
	t.list("Budget of the directory:", m.Eltrain.Budget.lines())
	t.list("Scaled:", m.kept())
	t.failed(m.Eltrain.Failed)
	t.list("Ended:", m.endedItems())
	t.waits(m.Eltrain.Waits)
	t.list("In effect beside the files:", m.overrideItems())
	t.list("Cordoned:", m.nodeItems())
	t.list("Left unchanged:", m.leftItems())
	t.list("Taken to the pods:", m.shippedItems())
	t.list("Not enforced here:", m.Eltrain.Caveats)
	t.list("Failed checks:", m.failedChecks())
	t.list("Applied with these settings:", m.Eltrain.Settings)
	if text := t.conclusion(m, someOf(m.boundItems())); text != "" {
		t.line("\n%s", text)
	}
	t.outputs(m)
	s.Write(t.buf.Bytes())
}

// changes returns what is done, in the plan's own order.
func (m *PlanModel) changes() []*PlannedChange {
	var out []*PlannedChange
	if m.Eltrain.RefreshOnly {
		return out
	}
	for i := range m.ResourceChanges {
		if c := m.ResourceChanges[i].Eltrain; c != nil {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *PlannedChange) int { return a.at - b.at })
	return out
}

// unasked returns the drift that a refresh-only plan shows; nil for any other plan.
func (m *PlanModel) unasked() []*PlannedChange {
	if !m.Eltrain.RefreshOnly {
		return nil
	}
	out := make([]*PlannedChange, len(m.ResourceDrift))
	for i := range m.ResourceDrift {
		out[i] = m.ResourceDrift[i].Eltrain
	}
	return out
}

var driftVerbs = map[plan.Action]string{
	plan.Create: "has been created", plan.Update: "has changed", plan.Delete: "has been deleted",
}

// drift shows what others changed, in a refresh-only plan.
func (t *planText) drift(m *PlanModel) {
	changes := m.unasked()
	if len(changes) == 0 {
		return
	}
	t.line("%s", t.paint("Note: Objects have changed outside of eltrain", bold, cyan))
	t.line("\neltrain detected the following changes made outside of eltrain since the last \"eltrain apply\":")
	for _, b := range blocks(changes) {
		t.block(b)
	}
}

// planText builds the text of one plan.
type planText struct {
	Screen
	buf bytes.Buffer
}

func (t *planText) line(format string, args ...any) {
	fmt.Fprintf(&t.buf, format, args...)
	t.buf.WriteByte('\n')
}

// symbolOf is the mark of an action, right-aligned as Terraform does, with its colors.
type symbolOf struct {
	mark   string
	legend string
	colour style
}

var symbols = []symbolOf{
	{"  +", "create", green},
	{"  ~", "update in-place", yellow},
	{"  -", "destroy", red},
	{"-/+", "destroy and then create replacement", red},
	{"  .", "forget", red},
	{mark: "   "},
}

func symbol(a plan.Action) symbolOf {
	switch a {
	case plan.Create:
		return symbols[0]
	case plan.Update, plan.Restart:
		return symbols[1]
	case plan.Delete:
		return symbols[2]
	case plan.Forget:
		return symbols[4]
	case plan.NoOp:
		return symbols[5]
	default:
		return symbols[3]
	}
}

// mark returns the symbol in color. In a replacement "-" is red and "+" is green.
func (t *planText) mark(sym symbolOf) string {
	if sym.mark == "-/+" {
		return t.paint("-", red) + "/" + t.paint("+", green)
	}
	return t.paint(sym.mark, sym.colour)
}

func (t *planText) legend(changes []*PlannedChange) {
	used := map[string]bool{}
	for _, c := range changes {
		if sym := symbol(c.Action); sym.legend != "" {
			used[sym.mark] = true
		}
	}
	if len(used) == 0 {
		return
	}
	t.line("Actions are indicated with the following symbols:")
	for _, sym := range symbols {
		if used[sym.mark] {
			t.line("%s %s", t.mark(sym), sym.legend)
		}
	}
}

// block is changes that are shown as one: of the same job, role, action and wave, with the same attributes.
type block struct {
	changes []*PlannedChange
	reasons []reason
}

// reason is a text with the slots that it applies to; no slots means all of the block.
type reason struct {
	slots []int
	texts []string
}

// blocks folds a plan's changes, in their order but grouped by job and role. Slots with different reasons get different
// blocks, unless there would be too many.
func blocks(changes []*PlannedChange) []block {
	type shape struct {
		first    int
		byReason map[string]*block
		order    []*block
	}
	shapes := map[string]*shape{}
	var order []*shape
	jobs := map[string]int{} // first change of each job: its blocks stay together
	var key strings.Builder
	for i, c := range changes {
		if _, ok := jobs[c.Job]; !ok {
			jobs[c.Job] = i
		}
		key.Reset()
		fmt.Fprintf(&key, "%s\x00%s\x00%s\x00%d", c.Job, c.Role, c.Action, c.Wave)
		for _, f := range c.Fields {
			key.WriteString("\x00" + f.Path)
		}
		sh := shapes[key.String()]
		if sh == nil {
			sh = &shape{first: i, byReason: map[string]*block{}}
			shapes[key.String()] = sh
			order = append(order, sh)
		}
		why := strings.Join(c.Reasons, "\x00")
		b := sh.byReason[why]
		if b == nil {
			b = &block{reasons: []reason{{texts: c.Reasons}}}
			sh.byReason[why] = b
			sh.order = append(sh.order, b)
		}
		b.changes = append(b.changes, c)
	}
	slices.SortStableFunc(order, func(a, b *shape) int {
		return jobs[changes[a.first].Job] - jobs[changes[b.first].Job]
	})
	var out []block
	for _, sh := range order {
		if len(sh.order) > maxReasonBlocks {
			out = append(out, merge(sh.order))
			continue
		}
		for _, b := range sh.order {
			out = append(out, *b)
		}
	}
	return out
}

// merge makes one block of several that differ in their reasons only, keeping the first few reasons.
func merge(parts []*block) block {
	var out block
	for i, b := range parts {
		out.changes = append(out.changes, b.changes...)
		if i < maxReasons {
			out.reasons = append(out.reasons, reason{slots: indices(b.changes), texts: b.reasons[0].texts})
		}
	}
	if left := len(parts) - maxReasons; left > 0 {
		out.reasons = append(out.reasons, reason{texts: []string{"and " + plural(left, "other reason")}})
	}
	return out
}

func indices(changes []*PlannedChange) []int {
	out := make([]int, len(changes))
	for i, c := range changes {
		out[i] = c.index
	}
	return out
}

func (t *planText) block(b block) {
	c := b.changes[0]
	sym := symbol(c.Action)
	t.line("")
	t.line("  %s", t.paint("# "+address(b)+" "+verb(b), bold))
	if c.From != "" && c.Action != plan.NoOp {
		t.line("  # (moved from job.%s)", c.From)
	}
	if c.Action == plan.Forget {
		t.line("  # (destroy = false is set in the configuration)")
	}
	if c.Import != "" {
		t.line("  # (imported from %q)", c.Import)
	}
	for _, why := range b.reasons {
		for _, text := range why.texts {
			if len(why.slots) > 0 {
				text = fold(c.Role, why.slots) + ": " + text
			}
			t.line("  # (%s)", strings.TrimSuffix(text, "."))
		}
	}
	if text := order(c); text != "" {
		t.line("  # %s", text)
	}
	kind, label := "role", c.Role
	if c.ofJob() {
		kind, label = "job", c.Job
	}
	rows := t.rows(b)
	if len(rows) == 0 {
		t.line("%s %s %q", t.mark(sym), kind, label)
		return
	}
	t.line("%s %s %q {", t.mark(sym), kind, label)
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.name))
	}
	for _, row := range rows {
		t.row(row, width)
	}
	t.line("    }")
}

func ofJob(c *plan.Change) bool { return c.Slot == job.Address{} }

func (c *PlannedChange) ofJob() bool { return c.Role == "" }

func address(b block) string {
	c := b.changes[0]
	switch {
	case c.Action == plan.NoOp && c.Import == "":
		return "job." + c.From
	case c.remains:
		return "an earlier job." + c.Job
	case c.ofJob():
		return "job." + c.Job
	}
	return "job." + c.Job + "." + fold(c.Role, indices(b.changes))
}

func verb(b block) string {
	c := b.changes[0]
	if c.drift {
		return driftVerbs[c.Action]
	}
	switch c.Action {
	case plan.Create:
		return "will be created"
	case plan.Update:
		if !c.ofJob() {
			return "was edited and will be repaired in-place"
		}
		return "will be updated in-place"
	case plan.Forget:
		return "will no longer be managed by eltrain, but will not be destroyed"
	case plan.NoOp:
		if c.Import != "" {
			return "will be imported"
		}
		return "has moved to job." + c.Job
	case plan.Restart:
		return "will be restarted in place"
	case plan.Replace:
		if slices.ContainsFunc(c.Fields, func(f FieldShown) bool { return f.Forces }) {
			return "must be replaced"
		}
		return "will be replaced"
	}
	switch {
	case c.remains:
		return "will be cleaned up"
	case c.ofJob():
		return "will be removed from the state"
	}
	return "will be destroyed"
}

func forces(f job.FieldChange) bool { return f.Change == job.Replaces }

// order returns what a change of a later wave waits for.
func order(c *PlannedChange) string {
	switch {
	case c.Wave == 0:
		return ""
	case len(c.Follows) == 0:
		return "follows in wave " + itoa(c.Wave+1)
	case c.Action == plan.Delete:
		return "stops after " + strings.Join(c.Follows, ", ")
	}
	return "starts after " + strings.Join(c.Follows, ", ")
}

// roleName takes a reference as written, role.ps, or a bare name.
func roleName(reference string) string { return strings.TrimPrefix(reference, "role.") }

// row is one attribute of a block.
type row struct {
	mark  string // "+", "~", "-" or " "
	name  string
	value string
	note  string // after "#"
}

func (t *planText) row(r row, width int) { t.rowAt("      ", r, width) }

func (t *planText) rowAt(indent string, r row, width int) {
	mark := r.mark
	switch mark {
	case "+":
		mark = t.paint(mark, green)
	case "~":
		mark = t.paint(mark, yellow)
	case "-":
		mark = t.paint(mark, red)
	}
	pad := strings.Repeat(" ", width-utf8.RuneCountInString(r.name))
	note := ""
	if r.note != "" {
		note = " # " + r.note
		if r.note == forcesReplacement {
			note = " " + t.paint("# "+r.note, red)
		}
	}
	t.line("%s%s %s%s = %s%s", indent, mark, r.name, pad, r.value, note)
}

const forcesReplacement = "forces replacement"

// rows returns a block's attributes: those that differ, with their values before and after, and the nodes.
func (t *planText) rows(b block) []row {
	var rows []row
	for i := range b.changes[0].Fields {
		rows = append(rows, t.fieldRows(b, i)...)
	}
	if r := nodesRow(b.changes); r.value != "" {
		rows = append(rows, r)
	}
	return rows
}

// knownLater is shown for a value that is known only after apply, as in Terraform.
const knownLater = "(known after apply)"

// Why the node of a slot is known only after apply.
const (
	schedulerChooses = "where it fits now; the scheduler decides during apply"
	placesInUse      = "its place is still used by slots being replaced"
)

// nodesRow shows the current and planned nodes of a block's slots.
func nodesRow(changes []*PlannedChange) row {
	r := row{mark: " ", name: "nodes", value: nodesText(changes, func(c *PlannedChange) string { return c.Node })}
	switch changes[0].Action {
	case plan.Create:
		r.mark = "+"
	case plan.Replace:
		was := nodesText(changes, func(c *PlannedChange) string { return c.was })
		r.value = strings.TrimPrefix(r.value+laterText(changes), ", ")
		if was != "" && was != r.value {
			r.mark, r.value = "~", was+" -> "+r.value
		}
	}
	switch {
	case changes[0].hinted && slices.ContainsFunc(changes, func(c *PlannedChange) bool { return c.Node != "" }):
		r.note = schedulerChooses
	case changes[0].hinted: // no slot fits now
	case strings.Contains(r.value, knownLater):
		r.note = placesInUse
	}
	return r
}

// laterText says how many slots of a replacement have no node yet; "" if all have one.
func laterText(changes []*PlannedChange) string {
	n := 0
	for _, c := range changes {
		if c.Node == "" {
			n++
		}
	}
	switch {
	case n == 0:
		return ""
	case n == 1 || n == len(changes):
		return ", " + knownLater
	}
	return ", " + knownLater + " (" + itoa(n) + " slots)"
}

// fieldRows returns a row for each value that one attribute has in a block's slots: usually one.
func (t *planText) fieldRows(b block, field int) []row {
	type values struct{ before, after string }
	slots := map[values][]int{}
	var order []values
	for _, c := range b.changes {
		v := values{c.Fields[field].Before, c.Fields[field].After}
		if slots[v] == nil {
			order = append(order, v)
		}
		slots[v] = append(slots[v], c.index)
	}
	c := b.changes[0]
	shown := order
	if len(order) > maxValues {
		shown = order[:maxValues-1]
	}
	var rows []row
	for _, v := range shown {
		r := fieldRow(FieldShown{
			Path: c.Fields[field].Path, Forces: c.Fields[field].Forces, Before: v.before, After: v.after,
		})
		if len(order) > 1 {
			r.note = strings.TrimSuffix(fold(c.Role, slots[v])+", "+r.note, ", ")
		}
		rows = append(rows, r)
	}
	if left := len(order) - len(shown); left > 0 {
		last := rows[len(rows)-1]
		rows = append(rows, row{mark: last.mark, name: last.name, value: "…", note: "and " + plural(left, "other value") + ", by slot"})
	}
	return rows
}

func fieldRow(f FieldShown) row {
	r := row{name: f.Path}
	switch {
	case f.Before == "":
		r.mark, r.value = "+", f.After
	case f.After == "":
		r.mark, r.value = "-", f.Before+" -> null"
	default:
		r.mark, r.value = "~", f.Before+" -> "+f.After
		if f.Before == sensitive && f.After == sensitive {
			r.value = sensitive
		}
	}
	if f.Forces {
		r.note = forcesReplacement
	}
	return r
}

// nodesText lists nodes of a block's slots with how many slots each has: "n1, n2 (2 slots)".
func nodesText(changes []*PlannedChange, nodeOf func(*PlannedChange) string) string {
	count := map[string]int{}
	for _, c := range changes {
		if node := nodeOf(c); node != "" {
			count[node]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(count), natural)
	shown := names
	if len(names) > maxNodes {
		shown = names[:maxNodes-1]
	}
	parts := make([]string, len(shown))
	for i, name := range shown {
		parts[i] = name
		if count[name] > 1 {
			parts[i] += " (" + itoa(count[name]) + " slots)"
		}
	}
	if len(shown) == len(names) {
		return strings.Join(parts, ", ")
	}
	left := 0
	for _, name := range names[len(shown):] {
		left += count[name]
	}
	return fmt.Sprintf("%s and %s with %s", strings.Join(parts, ", "),
		plural(len(names)-len(shown), "more node"), plural(left, "slot"))
}

// maxFolded bounds a folded name in bytes: every second of 10,000 slots does not fold into ranges.
const maxFolded = 80

// fold names several slots of one role in short, and very many in part: worker[0,2,4,…] (5000 slots).
func fold(role string, indices []int) string {
	name := job.Fold(role, indices)
	if len(name) <= maxFolded {
		return name
	}
	return name[:strings.LastIndexByte(name[:maxFolded], ',')+1] + "…] (" + itoa(len(indices)) + " slots)"
}

// natural compares names with numbers by value: n2 before n10.
func natural(a, b string) int {
	whole := strings.Compare(a, b) // decides between n1 and n01
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if len(na) != len(nb) {
				return len(na) - len(nb)
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return whole
}

// digits is the length of the number at the beginning of s.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// costs shows what the plan costs running jobs.
func (t *planText) costs(costs []JobCost) {
	var lines []string
	for i := range costs {
		lines = append(lines, costs[i].sentences()...)
	}
	t.list("What it costs:", lines)
}

// list shows lines under a title; nothing if there are none.
func (t *planText) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	t.line("\n%s", t.paint(title, bold))
	for _, text := range lines {
		t.line("  - %s", text)
	}
}

// failed shows which jobs have failed, and what happens to them.
func (t *planText) failed(jobs []FailedJob) {
	if len(jobs) == 0 {
		return
	}
	t.line("\n%s", t.paint("Failed:", bold, red))
	for i := range jobs {
		t.line("  %s", jobs[i].Address)
		for _, text := range folded(jobs[i].sentences()) {
			t.line("    - %s", text)
		}
	}
}

func (t *planText) waits(all []PlanWait) {
	waits, held, _ := parted(all)
	t.listed("Waiting:", waits)
	t.listed("Held back:", held)
}

// parted separates what waits from what the plan's scope holds back, and from what is as an operator asked.
func parted(all []PlanWait) (waits, held, overrides []PlanWait) {
	for _, w := range all {
		switch {
		case w.Held:
			held = append(held, w)
		case w.overrides():
			overrides = append(overrides, w)
		default:
			waits = append(waits, w)
		}
	}
	return waits, held, overrides
}

// overrides reports whether it is that an operator asked for something else than the files say.
func (w *PlanWait) overrides() bool {
	return len(w.ReasonCodes) > 0 && w.ReasonCodes[0].Code == plan.Overridden
}

// overrideItems say what holds beside the files: who asked for it, why, how long ago, and how it ends.
func (m *PlanModel) overrideItems() (items []string) {
	_, _, overrides := parted(m.Eltrain.Waits)
	for _, w := range overrides {
		for i, text := range folded(w.Reasons) {
			about := w.Address
			if at, err := time.Parse(time.RFC3339, w.ReasonCodes[min(i, len(w.ReasonCodes)-1)].Args["at"]); err == nil && m.Timestamp.After(at) {
				about += ", for " + short(m.Timestamp.Sub(at).Round(time.Second))
			}
			items = append(items, about+": "+text)
		}
	}
	return items
}

func (t *planText) listed(title string, waits []PlanWait) {
	if len(waits) == 0 {
		return
	}
	t.line("\n%s", t.paint(title, bold))
	for _, w := range waits {
		t.line("  %s", w.Address)
		for _, text := range folded(w.Reasons) {
			t.line("    - %s", text)
		}
	}
}

const (
	// maxWaitReasons is how many reasons of one wait a text shows; the JSON has all.
	maxWaitReasons = 8
	// maxWaitReason bounds a reason in a text, in bytes: a scheduler may name every node.
	maxWaitReason = 600
)

// folded shortens reasons for the text. They must be redacted before: part of a secret cannot be found.
func folded(reasons []string) []string {
	var out []string
	for i, text := range reasons {
		if i == maxWaitReasons {
			return append(out, "and "+plural(len(reasons)-i, "more reason"))
		}
		if len(text) > maxWaitReason {
			text = strings.ToValidUTF8(text[:maxWaitReason], "") + "…"
		}
		out = append(out, text)
	}
	return out
}

// planWaits returns waits as shown.
func planWaits(all []plan.Wait, r *Redactor) []PlanWait {
	var out []PlanWait
	for _, w := range all {
		out = append(out, PlanWait{w.Address(), r.Sentences(w.Reasons), r.Reasons(w.Reasons), w.Never, w.Held, w.Unheard})
	}
	return out
}

// maxBounds is how many addresses that bound a plan its text names.
const maxBounds = 4

// someOf lists the first addresses that bound a plan.
func someOf(bounds []string) string {
	if more := len(bounds) - maxBounds; more > 0 {
		return strings.Join(bounds[:maxBounds], " ") + " and " + itoa(more) + " more"
	}
	return strings.Join(bounds, " ")
}

// conclusion returns the plan's last sentence; "" if only outputs change, which the rest of the text is about. bounds has the
// option that limits the plan, as "-target", with addresses or without; "" for none.
func (t *planText) conclusion(m *PlanModel, bounds string) string {
	waits, held, overrides := parted(m.Eltrain.Waits)
	lacks := len(waits)+len(held) > 0
	switch {
	case m.Eltrain.RefreshOnly && m.Applyable:
		return "This is a refresh-only plan, so eltrain will not take any actions to undo these. If you were expecting these changes then you can apply this plan to record them in the eltrain state without changing anything that is running."
	case m.Eltrain.RefreshOnly && len(m.ResourceDrift) > 0:
		return t.paint("No changes.", bold, green) + " None of this is recorded in the state: the next apply repairs it."
	case m.Eltrain.RefreshOnly && slices.ContainsFunc(m.Eltrain.Waits, func(w PlanWait) bool { return w.Unheard }):
		return t.paint("No changes.", bold, yellow) + " None of this is recorded in the state: processes have ended, and only an apply can read how."
	case m.Eltrain.RefreshOnly:
		return t.paint("No changes.", bold, green) + " What is running still matches the state. eltrain has checked that it still matches the result of your most recent changes, and found no differences."
	case m.Applyable && len(m.changes()) > 0:
		return t.paint("Plan:", bold) + " " + m.counts()
	case lacks && m.destroy:
		return t.paint("No changes for now.", bold, yellow) + " Not everything can be destroyed: see what is waiting or held back."
	case !m.destroy && len(m.leftFailed()) > 0:
		return t.paint("No changes.", bold, yellow) + " Not everything in the configuration is running: see what failed."
	case !m.destroy && slices.ContainsFunc(m.Eltrain.Ended, func(e EndedJob) bool { return e.Phase == job.JobCanceled }):
		return t.paint("No changes.", bold, yellow) + " Not everything in the configuration is running: see what was canceled."
	case m.Unheard():
		return t.paint("No changes for now.", bold, yellow) + " Processes have ended, and the reason is not known yet: an apply reads it from the agents and continues from there."
	case !m.destroy && (lacks || m.Errored):
		return t.unlike(waits, held)
	case m.changesOutputs():
		return "" // the rest of the text is about the outputs
	case m.destroy:
		return t.paint("No changes.", bold, green) + " No objects need to be destroyed."
	}
	if bounds != "" {
		rest := " Only what " + bounds + " names, with its dependencies, was planned."
		if len(m.Eltrain.Excludes) > 0 {
			rest = " What " + bounds + " names, with its dependents, was left out."
		}
		scope := " Everything in scope is running as configured."
		if len(overrides) > 0 {
			scope = " Apart from what operators asked for, everything in scope is running as configured."
		}
		return t.paint("No changes.", bold, green) + scope + rest
	}
	if len(overrides) > 0 {
		return t.paint("No changes.", bold, green) + " Apart from what operators asked for, what is running matches the configuration."
	}
	if len(m.Eltrain.Left) > 0 {
		return t.paint("No changes.", bold, green) + " What is running matches the configuration, apart from jobs that -prune=false keeps."
	}
	return t.paint("No changes.", bold, green) + " What is running matches the configuration."
}

// unlike concludes a plan that does nothing although not all is as configured. Waiting does not help what is held back.
func (t *planText) unlike(waits, held []PlanWait) string {
	const unlike = " Not everything in the configuration is running: see what "
	switch {
	case len(held) == 0:
		return t.paint("No changes for now.", bold, yellow) + unlike + "it is waiting for."
	case len(waits) == 0:
		return t.paint("No changes.", bold, yellow) + unlike + "is held back."
	}
	return t.paint("No changes for now.", bold, yellow) + unlike + "it is waiting for, and what is held back."
}

// counts returns the counts of changes: to slots, in Terraform's words, then to jobs of which only the record is left.
func (m *PlanModel) counts() string {
	text, records := planCounts(m.Eltrain.Summary), 0
	for _, c := range m.changes() {
		if c.Action == plan.Delete && c.ofJob() && !c.remains {
			records++
		}
	}
	if records == 0 {
		return text
	}
	return text + " " + plural(records, "job") + " to be removed from the state."
}

// withinRole returns a field's path relative to its role's block.
func withinRole(path string) string {
	if rest, inRole := strings.CutPrefix(path, "role."); inRole {
		if _, name, found := strings.Cut(rest, "."); found {
			return name
		}
	}
	return path
}
