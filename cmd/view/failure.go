package view

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// failure is the last incident of a job that failed, in a line: what failed where, how it ended, and its last words. It is
// "" if it had none. All of the evidence is with the incident.
func failure(record *job.Record, r *Redactor) string {
	if len(record.Incidents) == 0 {
		return ""
	}
	last := incidentStatus(record.Incidents[len(record.Incidents)-1], r)
	text := spaced(string(last.Cause))
	if culprits := shortCulprits(last); len(culprits) > 0 {
		text += " in " + strings.Join(culprits, ", ")
	}
	for _, part := range toldBy(last) {
		text += ": " + part
	}
	return text
}

// The evidence of an exit, as plan writes it, each line after the slot that it is of.
const (
	saidInFile = "error file: " // what the process wrote to its error file
	saidLast   = "output: "     // one of its last lines of output
)

// maxSaid bounds what a line on a failure quotes of a process, in bytes.
const maxSaid = 300

// toldBy is what an incident's evidence says of the first slot that it names: how it ended, and its last words if there are
// any.
func toldBy(in IncidentStatus) (parts []string) {
	if len(in.Evidence) == 0 {
		return nil
	}
	slot := ""
	if at, _, named := strings.Cut(in.Evidence[0], ": "); named && len(in.Culprits) > 0 && strings.HasSuffix(in.Culprits[0], "."+at) {
		slot = at + ": "
	}
	var facts, output []string
	said := ""
	for _, line := range in.Evidence {
		line, of := strings.CutPrefix(line, slot)
		if !of {
			break // another slot's
		}
		if message, is := strings.CutPrefix(line, saidInFile); is {
			said = message
		} else if one, is := strings.CutPrefix(line, saidLast); is {
			output = append(output, one)
		} else {
			facts = append(facts, line)
		}
	}
	if said == "" {
		said = lastWords(output)
	}
	parts = append(parts, strings.Join(facts, "; "))
	if said = strings.Join(strings.Fields(said), " "); len(said) > maxSaid {
		said = strings.ToValidUTF8(said[:maxSaid], "") + "…"
	}
	if said != "" {
		parts = append(parts, said)
	}
	return parts
}

// lastWords are the last line of an output that is not indented, and what is under it: of a traceback that is the error
// itself, whose text may have several lines.
func lastWords(output []string) string {
	from := len(output) - 1
	for ; from > 0; from-- {
		if first, _ := utf8.DecodeRuneInString(output[from]); output[from] != "" && !unicode.IsSpace(first) {
			break
		}
	}
	return strings.Join(output[max(from, 0):], " ")
}

// howToGoOn says how a job that failed is started anew. holder is who holds the state's lock; nil if nobody.
func howToGoOn(holder *state.LockInfo) string {
	if holder == nil || !Watching(holder) {
		return "To start it anew, with a new budget, run eltrain apply."
	}
	return "A watch does not start it anew by itself. Edit what its slots are started from, as command or env: the watch takes that up. " +
		"If the files need no edit, interrupt the watch, run eltrain apply, and watch again."
}

// BudgetStatus is a job's budget of restarts, and what of it is spent.
type BudgetStatus struct {
	Restarts int     `json:"restarts"`
	Spent    int     `json:"spent"`
	Window   float64 `json:"window_seconds"`
}

// budgetStatus counts what is charged within the window that ends now, or ended when the job did. now may be zero: then all
// counts that is recorded.
func budgetStatus(record *job.Record, now time.Time) BudgetStatus {
	budget := record.Spec.Heal.Budget
	if !record.Ended.IsZero() {
		now = record.Ended
	}
	b := BudgetStatus{Restarts: budget.Restarts, Window: budget.Window.Std().Seconds()}
	for _, at := range record.Charges {
		if now.Sub(at) <= budget.Window.Std() {
			b.Spent++
		}
	}
	b.Spent = min(b.Spent, b.Restarts) // the fault that ends a job is charged as well
	return b
}

// text is the budget for a person; "" while nothing of it is spent.
func (b BudgetStatus) text() string {
	if b.Spent == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s within %s spent", b.Spent, plural(b.Restarts, "restart"), job.Duration(b.Window*float64(time.Second)))
}
