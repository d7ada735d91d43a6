package view

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/eltrain/eltrain/plan"
)

// maxMarkdown is the maximum length of a comment on GitHub in characters, of up to four bytes each: the limit in bytes is
// 262,144.
const maxMarkdown = 65_536

// The table and each of the lists get a share of that, and the notes on what was left out; the diff gets the rest.
const (
	maxTable = maxMarkdown / 4
	maxList  = maxMarkdown / 16
	noteRoom = 200
)

// WritePlanMarkdown writes a plan as a comment for a pull request: a line with the counts, a table by job, the plan's costs,
// what waits, and the changes as a diff in a collapsed section. It has at most 65,536 characters; what does not fit is counted.
func WritePlanMarkdown(w io.Writer, m *PlanModel) error {
	var out markdown
	out.line("**eltrain plan:** %s", headline(m))
	out.table(m)
	out.list("What it costs", costItems(m))
	out.list("Budget of the directory", m.Eltrain.Budget.lines())
	out.list("Scaled", m.kept())
	out.list("Failed", failedItems(m))
	out.list("Ended", m.endedItems())
	waits, held, _ := parted(m.Eltrain.Waits)
	out.list("Waiting", waitItems(waits))
	out.list("Held back", waitItems(held))
	out.list("In effect beside the files", m.overrideItems())
	out.list("Cordoned", m.nodeItems())
	out.list("Partial plan", m.boundItems())
	out.list("Left unchanged", m.leftItems())
	out.list("Taken to the pods", m.shippedItems())
	out.list("Not enforced here", m.Eltrain.Caveats)
	out.list("Failed checks", m.failedChecks())
	out.list("Applied with these settings", settingItems(m))
	out.diff(m)
	_, err := w.Write(out.buf.Bytes())
	return err
}

// headline returns the plan's counts. What limits its scope is listed further down.
func headline(m *PlanModel) string {
	bounds := ""
	switch {
	case len(m.Eltrain.Targets) > 0:
		bounds = "-target"
	case len(m.Eltrain.Excludes) > 0:
		bounds = "-exclude"
	}
	t := planText{}
	if text := t.conclusion(m, bounds); text != "" {
		return strings.TrimPrefix(text, "Plan: ")
	}
	return "Changes to outputs only. Nothing that is running changes."
}

type markdown struct{ buf bytes.Buffer }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(&m.buf, format+"\n", args...) }

// left returns how many characters still fit.
func (m *markdown) left() int { return maxMarkdown - noteRoom - utf8.RuneCount(m.buf.Bytes()) }

// jobRow is a job's line in the table.
type jobRow struct {
	plan.Summary
	note  string // text besides the counts
	world string
	waits int
}

func jobRows(m *PlanModel) map[string]*jobRow {
	rows := map[string]*jobRow{}
	of := func(address string) *jobRow {
		name, _, _ := strings.Cut(strings.TrimPrefix(address, "job."), ".")
		if rows[name] == nil {
			rows[name] = &jobRow{}
		}
		return rows[name]
	}
	for _, c := range m.changes() {
		row := of("job." + c.Job)
		switch c.Action {
		case plan.Create:
			row.Add++
		case plan.Update, plan.Restart:
			row.Change++
		case plan.Replace:
			row.Add++
			row.Remove++
		case plan.Delete:
			if !c.ofJob() {
				row.Remove++
			}
		case plan.Forget:
			row.note = "forgotten"
		}
		if c.From != "" {
			row.note = "moved from `job." + c.From + "`"
		}
		if c.Import != "" {
			row.note = "imported"
		}
	}
	for _, c := range m.Eltrain.Costs {
		of(c.Address).world = c.World
	}
	for _, f := range m.Eltrain.Failed {
		of(f.Address).note = "failed"
	}
	waits, held, _ := parted(m.Eltrain.Waits)
	for _, w := range slices.Concat(waits, held) {
		of(w.Address).waits++
	}
	return rows
}

func (m *markdown) table(model *PlanModel) {
	rows := jobRows(model)
	if len(rows) == 0 {
		return
	}
	m.line("\n| job | add | change | destroy | note | world | waits |\n|---|---:|---:|---:|---|---|---|")
	budget := maxTable
	names := slices.SortedFunc(maps.Keys(rows), natural)
	for i, name := range names {
		r := rows[name]
		waits := ""
		if r.waits > 0 {
			waits = "yes"
		}
		line := fmt.Sprintf("| `job.%s` | %d | %d | %d | %s | %s | %s |", name, r.Add, r.Change, r.Remove, r.note, r.world, waits)
		if budget -= utf8.RuneCountInString(line) + 1; budget < 0 {
			m.line("\n… and %s.", plural(len(names)-i, "more job"))
			return
		}
		m.line("%s", line)
	}
}

func costItems(m *PlanModel) []string {
	var items []string
	for i := range m.Eltrain.Costs {
		items = append(items, m.Eltrain.Costs[i].sentences()...)
	}
	return items
}

func failedItems(m *PlanModel) []string {
	var items []string
	for i := range m.Eltrain.Failed {
		f := &m.Eltrain.Failed[i]
		items = append(items, f.Address+": "+strings.Join(folded(f.sentences()), " "))
	}
	return items
}

// boundItems say what the plan leaves out.
func (m *PlanModel) boundItems() []string {
	var items []string
	for _, a := range m.Eltrain.Targets {
		items = append(items, "-target="+a)
	}
	for _, a := range m.Eltrain.Excludes {
		items = append(items, "-exclude="+a)
	}
	return items
}

func waitItems(waits []PlanWait) []string {
	var items []string
	for _, w := range waits {
		for _, reason := range folded(w.Reasons) {
			items = append(items, w.Address+": "+reason)
		}
	}
	return items
}

// maxSetting is how much of the settings of one block a comment has: a pod overlay may be pages.
const maxSetting = 1000

func settingItems(m *PlanModel) []string {
	var items []string
	for _, text := range m.Eltrain.Settings {
		if all := []rune(text); len(all) > maxSetting {
			text = fmt.Sprintf("%s … and %d more characters, which eltrain show has", string(all[:maxSetting]), len(all)-maxSetting)
		}
		items = append(items, text)
	}
	return items
}

func (m *markdown) list(title string, items []string) {
	if len(items) == 0 {
		return
	}
	m.line("\n**%s**\n", title)
	budget := maxList
	for i, item := range items {
		line := "- " + inline(item)
		if budget -= utf8.RuneCountInString(line) + 1; budget < 0 {
			m.line("- … and %d more", len(items)-i)
			return
		}
		m.line("%s", line)
	}
}

// inlineEscapes escape all of Markdown: reasons quote what programs and people wrote. An @name would notify that person.
var inlineEscapes = strings.NewReplacer("\\", "\\\\", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]",
	"<", "&lt;", ">", "&gt;", "|", "\\|", "@", "&#64;", "#", "\\#", "~", "\\~", "\n", " ")

func inline(s string) string { return inlineEscapes.Replace(s) }

// diff writes the changes in a collapsed section. Their marks are in the first column, which gives a diff its colors: "!" for
// updates and replacements.
func (m *markdown) diff(model *PlanModel) {
	t := planText{}
	for _, b := range blocks(append(model.changes(), model.unasked()...)) {
		t.block(b)
	}
	if model.changesOutputs() {
		t.line("\nChanges to Outputs:")
		t.outputRows(model)
	}
	if t.buf.Len() == 0 {
		return
	}
	lines := strings.Split(strings.Trim(t.buf.String(), "\n"), "\n")
	fence := fenceAround(t.buf.String())
	m.line("\n<details><summary>Show the changes</summary>\n\n%sdiff", fence)
	budget := m.left()
	for i, line := range lines {
		line = diffLine(line)
		if budget -= utf8.RuneCountInString(line) + 1; budget < 0 {
			m.line("%s\n\n… and %s. `eltrain show` has all of the plan.\n\n</details>", fence, plural(len(lines)-i, "more line"))
			return
		}
		m.line("%s", line)
	}
	m.line("%s\n\n</details>", fence)
}

// fenceAround is longer than any run of backquotes in the text.
func fenceAround(text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return strings.Repeat("`", longest+1)
}

// In a plan's text a block's mark ends in the third column, and an attribute's is in the seventh.
const (
	blockMark     = 2
	attributeMark = 6
)

// diffLine moves a line's mark to the first column, and the rest two columns to the left.
func diffLine(line string) string {
	if strings.HasPrefix(line, "-/+ ") {
		return "!" + line[blockMark+1:]
	}
	line = strings.TrimPrefix(line, "  ")
	const at = attributeMark - blockMark
	if len(line) > at+1 && strings.TrimLeft(line[:at], " ") == "" && strings.IndexByte("+-~", line[at]) >= 0 && line[at+1] == ' ' {
		line = string(line[at]) + line[:at] + line[at+1:]
	}
	if strings.HasPrefix(line, "~") {
		return "!" + line[1:]
	}
	return line
}
