package view

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// failure is the last incident of a job that failed: what failed where, with the evidence on the first slot that it names. It
// is zero if it had none. All of the evidence is with the incident.
func failure(record *job.Record) job.Reason {
	if len(record.Incidents) == 0 {
		return job.Reason{}
	}
	last := &record.Incidents[len(record.Incidents)-1]
	why := job.Because(jobFailedBy, "cause", string(last.Cause), "slots", strings.Join(shortCulprits(last.Culprits), ", "))
	if len(last.Evidence) == 0 || len(last.Culprits) == 0 {
		return why.With(last.Evidence...)
	}
	slot, n := last.Culprits[0].Short(), 0
	if last.Evidence[0].Code == job.Verbatim { // of an older version: which slot the others are of is not known
		n = 1
	}
	for n < len(last.Evidence) && last.Evidence[n].Args["slot"] == slot {
		n++
	}
	if n == 0 { // it begins with what is of no slot
		n = len(last.Evidence)
	}
	return why.With(last.Evidence[:n]...)
}

// failureText is a failure in a line, with its last words. of are the texts of its evidence.
func failureText(r job.Reason, of []string) string {
	text := spaced(r.Args["cause"])
	if slots := r.Args["slots"]; slots != "" {
		text += " in " + slots
	}
	for _, part := range toldBy(r.Of, of) {
		text += ": " + part
	}
	return text
}

// maxSaid bounds what a line on a failure quotes of a process, in bytes.
const maxSaid = 300

// toldBy is the evidence on the first slot that it names: how it ended, and its last output if there is any.
func toldBy(evidence []job.Reason, texts []string) (parts []string) {
	if len(evidence) == 0 {
		return nil
	}
	var facts, output []string
	slot, said := evidence[0].Args["slot"], ""
	for i, e := range evidence {
		own := e.Args["slot"] == slot
		switch {
		case own && e.Code == plan.ErrorFile:
			said = e.Args["message"]
		case own && e.Code == plan.Output:
			output = append(output, e.Args["message"])
		case slot != "":
			facts = append(facts, strings.TrimPrefix(texts[i], slot+": "))
		default:
			facts = append(facts, texts[i])
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

// howToGoOn says how a job that failed is started again. holder is who holds the state's lock; nil if nobody.
func howToGoOn(holder *state.LockInfo) job.Reason {
	if holder == nil || !Watching(holder) {
		return job.Because(startAnew)
	}
	return job.Because(editAnew)
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
	return fmt.Sprintf("%d of %s used within %s", b.Spent, plural(b.Restarts, "restart"), job.Duration(b.Window*float64(time.Second)))
}
