package view

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
)

const (
	// maxSlotLines is how many slots of a job get lines of their own before like ones are folded.
	maxSlotLines = 16
	// maxIncidentLines is how many of the newest incidents the text shows; the JSON has all that are kept.
	maxIncidentLines = 5
)

// WriteStatus shows a status to a person: all of each job, or a list of several jobs if brief. What is about no job of the status
// follows in full either way: what runs without a record, conditions, and who leads.
func WriteStatus(s Screen, m StatusModel, brief bool) {
	var b bytes.Buffer
	switch {
	case len(m.Jobs) == 0 && len(m.Unrecorded) == 0:
		b.WriteString("No jobs.\n")
	case brief && len(m.Jobs) > 1:
		s.jobList(&b, m)
	default:
		for i := range m.Jobs {
			if i > 0 {
				b.WriteString("\n")
			}
			s.jobText(&b, &m.Jobs[i], m.Conditions)
		}
	}
	for i := range m.Unrecorded {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		s.unrecordedText(&b, &m.Unrecorded[i])
	}
	s.conditions(&b, m)
	m.Budget.write(&b)
	if text := masterText(m); text != "" {
		b.WriteString("\n" + text + "\n")
	}
	s.Write(b.Bytes())
}

func masterText(m StatusModel) string {
	switch {
	case m.Master.Watching:
		return fmt.Sprintf("Watched by %s (pid %d) since %s.", m.Master.Who, m.Master.PID, clock(*m.Master.Since))
	case !slices.ContainsFunc(m.Jobs, func(j JobStatus) bool { return !j.Phase.Idle() }):
		return "" // nothing is left to heal
	case m.Master.Operation != "":
		return fmt.Sprintf("%s (pid %d) has been running eltrain %s since %s.", m.Master.Who, m.Master.PID, m.Master.Operation, clock(*m.Master.Since))
	}
	return "No master is running: training is shown as last seen, and nothing heals it. Run eltrain apply -watch."
}

// conditions writes those that are about no job of the status.
func (s Screen) conditions(b *bytes.Buffer, m StatusModel) {
	first := true
	for _, c := range m.Conditions {
		if slices.ContainsFunc(m.Jobs, func(j JobStatus) bool { return c.of(j.Address) }) {
			continue
		}
		if first {
			b.WriteString("\nConditions:\n")
			first = false
		}
		text := c.About + ": " + c.Message + " (since " + clock(c.Since) + ")"
		if c.Code == apply.ConfigurationApplied { // the normal state
			b.WriteString("  " + text + "\n")
			continue
		}
		s.reason(b, text)
	}
}

// jobList shows one line a job, without slots, incidents and sentences.
func (s Screen) jobList(b *bytes.Buffer, m StatusModel) {
	rows := [][]string{{"JOB", "PHASE", "WORLD", "STEP", "STEPS/S", "GOODPUT", "WHY"}}
	lines := []style{faint}
	more := false
	for i := range m.Jobs {
		j := &m.Jobs[i]
		speed, why := "-", j.briefly(m.Conditions)
		if j.StepsPerSecond > 0 {
			speed = rate(j.StepsPerSecond)
		}
		goodput, _, _ := strings.Cut(goodputText(j.Goodput), " ")
		rows = append(rows, []string{j.Address, string(j.Phase), orDash(j.WorldSize, 0), orDash(int(j.Step), 0), speed, dash(goodput), why})
		lines = append(lines, phaseStyle(j))
		more = more || why != ""
	}
	for i, line := range aligned(rows) {
		if lines[i] != green { // only what is not as configured stands out
			line = s.paint(line, lines[i])
		}
		b.WriteString(line + "\n")
	}
	if more {
		b.WriteString("\nFor all of a job: eltrain status ADDRESS\n")
	}
}

// maxBrief bounds why a job is not as configured in a list, in characters.
const maxBrief = 60

// briefly says in a few words why a job is not as configured: how its first reason begins, or else its first condition.
func (j *JobStatus) briefly(conditions []ConditionStatus) string {
	if len(j.Reasons) > 0 {
		return begins(j.Reasons[0], maxBrief)
	}
	for i := range conditions {
		if conditions[i].of(j.Address) {
			return begins(conditions[i].Message, maxBrief)
		}
	}
	return ""
}

// begins returns the words with which a text begins, at most so many characters, without its full stop.
func begins(text string, most int) string {
	text, _, _ = strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-1])
		if space := strings.LastIndexByte(text, ' '); space > 0 {
			text = text[:space]
		}
		return strings.TrimRight(text, " ,:;.") + "…"
	}
	return strings.TrimSuffix(text, ".")
}

// jobText shows a job, with the conditions that are not already among its reasons.
func (s Screen) jobText(b *bytes.Buffer, j *JobStatus, conditions []ConditionStatus) {
	fmt.Fprintf(b, "%s  %s\n", s.paint(j.Address, bold), s.paint(string(j.Phase), bold, phaseStyle(j)))
	facts := [][2]string{
		{"provider", j.Provider},
		{"uid", j.UID},
		{"world", worldText(j)},
		{"training", trainingText(j)},
		{"saved", savedText(j)},
		{"goodput", goodputText(j.Goodput)},
		{"budget", j.Budget.text()},
	}
	for _, fact := range facts {
		if fact[1] != "" {
			fmt.Fprintf(b, "  %-10s%s\n", fact[0], fact[1])
		}
	}
	for _, why := range j.Reasons {
		s.because(b, j.Phase, why)
	}
	for _, c := range j.TornCheckpoints {
		s.reason(b, printable("The "+strings.TrimPrefix(c.Reason, "the ")+"."))
	}
	for _, c := range conditions {
		given := slices.ContainsFunc(j.ReasonCodes, func(why job.Reason) bool { return why.Code == c.Code })
		if c.of(j.Address) && !given {
			s.reason(b, c.Message+" (since "+clock(c.Since)+")")
		}
	}
	roles := [][]string{{"ROLE", "DESIRED", "RUNNING", "MIN", "MAX"}}
	for _, r := range j.Roles {
		roles = append(roles, []string{r.Name, itoa(r.Desired), itoa(r.Running), itoa(r.Min), itoa(r.Max)})
	}
	s.table(b, roles)
	if len(j.Slots) > 0 {
		s.table(b, slotRows(j.Slots))
	}
	s.incidents(b, j.Incidents)
}

// because writes why a job is as it is. That it succeeded is as configured.
func (s Screen) because(b *bytes.Buffer, phase job.JobPhase, why string) {
	if phase == job.JobSucceeded {
		fmt.Fprintf(b, "  %s\n", why)
		return
	}
	s.reason(b, why)
}

// reason writes a sentence about what is not as configured, below its subject.
func (s Screen) reason(b *bytes.Buffer, why string) {
	fmt.Fprintf(b, "  %s\n", s.paint("! "+strings.ReplaceAll(why, "\n", "\n    "), yellow))
}

func phaseStyle(j *JobStatus) style {
	switch {
	case j.Healthy:
		return green
	case j.Phase == job.JobFailed:
		return red
	}
	return yellow
}

func worldText(j *JobStatus) string {
	switch {
	case j.Generation == 0:
		return ""
	case j.WorldSize == 0 && j.Phase.Ended():
		return fmt.Sprintf("generation %d was the last", j.Generation)
	case j.WorldSize == 0 && j.Phase.Idle():
		return fmt.Sprintf("generation %d has ended; the next one forms once the job is resumed", j.Generation)
	case j.WorldSize == 0:
		return fmt.Sprintf("generation %d has ended, the next has not formed yet", j.Generation)
	}
	size := plural(j.WorldSize, "process")
	if j.WorldSize != 1 {
		size = itoa(j.WorldSize) + " processes"
	}
	return fmt.Sprintf("generation %d, %s", j.Generation, size)
}

// mostLeft bounds a time left, which a rate close to 0 makes longer than a time.Duration can be.
const mostLeft = 10 * 365 * 24 * 3600

func trainingText(j *JobStatus) string {
	var parts []string
	p := j.Progress
	if p != nil && p.Percent != nil {
		done := fmt.Sprintf("%.0f%% of %d steps", math.Floor(*p.Percent), p.Total)
		if p.SecondsLeft != nil && j.WorldSize > 0 && !j.Phase.Ended() {
			done += ", " + short(time.Duration(min(*p.SecondsLeft, mostLeft)*float64(time.Second))) + " left"
		}
		parts = append(parts, done)
	}
	switch {
	case j.Step > 0:
		parts = append(parts, training(j.Step, j.loss, j.StepsPerSecond))
	case p != nil && p.Counted > 0:
		parts = append(parts, fmt.Sprintf("%d steps since it started", p.Counted))
	}
	if j.CheckpointStep > 0 {
		parts = append(parts, fmt.Sprintf("checkpoint at step %d", j.CheckpointStep))
	}
	if p != nil && p.By != job.OwnPattern {
		parts = append(parts, "read as "+p.By)
	}
	return strings.Join(parts, ", ")
}

func goodputText(g GoodputStatus) string {
	if g.Wall < 1 { // too short to mean anything
		return ""
	}
	share := func(seconds float64) string { return fmt.Sprintf("%.1f%%", 100*seconds/g.Wall) }
	text := share(g.Productive)
	if g.Productive == 0 && g.Unknown > 0 {
		text = "unknown"
	}
	text += " of " + short(time.Duration(g.Wall*float64(time.Second)))
	if g.Unknown > 0 && g.Productive > 0 {
		text += ", unknown " + share(g.Unknown)
	}
	if lost := lostMost(&g.Lost, leastShown*g.Wall); len(lost) > 0 {
		for i, reason := range lost {
			lost[i] = spaced(reason) + " " + share(g.Lost.Parts()[reason])
		}
		text += "; lost: " + strings.Join(lost, ", ")
	}
	return text
}

// leastShown is the share of the wall time from which on what was lost is shown: as much as the shown figures are exact to.
const leastShown = 0.001

// lostMost lists the reasons for which at least so many seconds were lost, the most first.
func lostMost(l *job.LostTime, least float64) []string {
	parts := l.Parts()
	reasons := slices.DeleteFunc(slices.Sorted(maps.Keys(parts)), func(reason string) bool { return parts[reason] < least || parts[reason] == 0 })
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(parts[b], parts[a]) })
	return reasons
}

// slotRows returns the table of slots. Many slots are folded if they differ in nothing that matters.
func slotRows(slots []SlotStatus) [][]string {
	rows := [][]string{{"SLOT", "PHASE", "RANK", "NODE", "INCARNATION", "PID", "STEP", "RESTARTS", "LAST FAULT", "NAME"}}
	if len(slots) <= maxSlotLines {
		for i := range slots {
			rows = append(rows, slotRow(&slots[i]))
		}
	} else {
		rows = append(rows, foldedRows(slots)...)
	}
	if !slices.ContainsFunc(slots, func(s SlotStatus) bool { return s.Name != "" }) {
		for i := range rows {
			rows[i] = rows[i][:nameColumn]
		}
	}
	return rows
}

// nameColumn is the last column, present only if the infrastructure has names.
const nameColumn = 9

// foldedRows returns the rows of many slots.
func foldedRows(slots []SlotStatus) (rows [][]string) {
	type likeness struct {
		role        string
		phase       job.Phase
		incarnation int
		restarts    int
		cause       job.Cause
	}
	groups := map[likeness][]*SlotStatus{}
	var order []likeness
	for i := range slots {
		s := &slots[i]
		l := likeness{s.slot.Role, s.Phase, s.Incarnation, s.Restarts, s.Cause}
		if groups[l] == nil {
			order = append(order, l)
		}
		groups[l] = append(groups[l], s)
	}
	for _, l := range order {
		rows = append(rows, foldedRow(groups[l]))
	}
	return rows
}

func slotRow(s *SlotStatus) []string {
	return []string{s.slot.Short(), string(s.Phase), orDash(s.Rank, -1), dash(s.Node), itoa(s.Incarnation),
		orDash(s.PID, 0), orDash(int(s.Step), 0), itoa(s.Restarts), dash(faultText(s)), dash(s.Name)}
}

// foldedRow returns one row for slots that share phase, incarnation, restarts and cause.
func foldedRow(group []*SlotStatus) []string {
	first := group[0]
	row := slotRow(first)
	if len(group) == 1 {
		return row
	}
	var slots []int
	nodes := map[string]bool{}
	low, high := first.Step, first.Step
	lowRank, highRank := first.Rank, first.Rank
	for _, s := range group {
		slots = append(slots, s.slot.Index)
		nodes[s.Node] = true
		low, high = min(low, s.Step), max(high, s.Step)
		lowRank, highRank = min(lowRank, s.Rank), max(highRank, s.Rank)
	}
	row[0] = fold(first.slot.Role, slots)
	if lowRank != highRank {
		row[2] = fmt.Sprintf("%s..%d", orDash(lowRank, -1), highRank)
	}
	if len(nodes) > 1 {
		row[3] = itoa(len(nodes)) + " nodes"
	}
	row[5] = "-"
	if low != high {
		row[6] = fmt.Sprintf("%d..%d", low, high)
	}
	row[8] = dash(spaced(string(first.Cause)))
	row[nameColumn] = "-"
	return row
}

func faultText(s *SlotStatus) string {
	text := spaced(string(s.Cause))
	if f := s.earlier; f != nil {
		switch {
		case f.Signal != "":
			return text + " (signal: " + printable(f.Signal) + ")"
		case f.Code != 0:
			return text + " (exit " + itoa(f.Code) + ")"
		}
		return text
	}
	if s.Exit == nil || s.Cause == "" {
		return text
	}
	switch {
	case s.Exit.Signal != "":
		return text + " (signal: " + printable(s.Exit.Signal) + ")"
	case s.Exit.NotStarted != "":
		return text + " (" + printable(s.Exit.NotStarted) + ")"
	case s.Exit.Code != 0:
		return text + " (exit " + itoa(s.Exit.Code) + ")"
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// orDash returns n, or "-" if n has the value that means none.
func orDash(n, none int) string {
	if n == none {
		return "-"
	}
	return itoa(n)
}

// table writes rows in columns. The first row has their names.
func (s Screen) table(b *bytes.Buffer, rows [][]string) {
	b.WriteString("\n")
	for i, line := range aligned(rows) {
		text := "  " + line
		if i == 0 {
			text = s.paint(text, faint)
		}
		b.WriteString(text + "\n")
	}
}

// aligned lays out rows in columns.
func aligned(rows [][]string) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var line strings.Builder
		for k, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[k]-utf8.RuneCountInString(cell)) + "  ")
		}
		lines[i] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

func (s Screen) incidents(b *bytes.Buffer, incidents []IncidentStatus) {
	if len(incidents) == 0 {
		return
	}
	shown := incidents[max(0, len(incidents)-maxIncidentLines):]
	b.WriteString("\n  Last incidents:\n")
	for _, in := range shown {
		fmt.Fprintf(b, "    %s  %s\n", clock(in.Time), s.paint(incidentText(in), yellow))
		for _, e := range in.Evidence {
			b.WriteString("      " + strings.ReplaceAll(e, "\n", "\n      ") + "\n")
		}
	}
}

// clock formats a time in the reader's own time zone.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
