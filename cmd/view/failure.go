package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// failure returns the last incident of a failed job as a reason: what failed where, with the evidence on the first slot named.
// The incident itself has all of the evidence. It returns zero for a job without incidents.
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
	if last.Evidence[0].Code == job.Verbatim { // from an older version: the slots of the others are unknown
		n = 1
	}
	for n < len(last.Evidence) && last.Evidence[n].Args["slot"] == slot {
		n++
	}
	if n == 0 { // the first evidence is about no slot
		n = len(last.Evidence)
	}
	return why.With(last.Evidence[:n]...)
}

// verdict is why an ended job was not continued: why it was failed although a fault may be healed, or who canceled it. It is zero if
// the record has none, as those of earlier versions, or the last incident says the same.
func verdict(record *job.Record) job.Reason {
	why := record.Verdict
	if record.Phase != job.JobFailed || why.IsZero() {
		return why
	}
	if n := len(record.Incidents); n > 0 && slices.ContainsFunc(record.Incidents[n-1].Evidence, why.Equal) {
		return job.Reason{}
	}
	return job.Because(notRestarted).With(why)
}

// Failure says in a line why a job failed: "Failed: process failed in worker[0]: exit code 7: out of data". It is "" for one that
// has not failed, or if that is unknown.
func Failure(record *job.Record, r *Redactor) string {
	why := failure(record)
	if record.Phase != job.JobFailed || why.IsZero() {
		return ""
	}
	return r.Text(Sentence(why))
}

// failureText returns a failure in a line, with the last output. of are the texts of its evidence.
func failureText(r job.Reason, of []string) string {
	text := spaced(r.Args["cause"])
	if slots := r.Args["slots"]; slots != "" {
		text += " in " + slots
	}
	for _, part := range firstEvidence(r.Of, of) {
		text += ": " + part
	}
	return text
}

// maxQuoted bounds the output that a line about a failure quotes, in bytes.
const maxQuoted = 300

// firstEvidence returns the evidence on the first slot named: how it ended, and its last output if there is any.
func firstEvidence(evidence []job.Reason, texts []string) (parts []string) {
	if len(evidence) == 0 {
		return nil
	}
	var facts, output []string
	slot, said, known := evidence[0].Args["slot"], "", ""
	for i, e := range evidence {
		own := e.Args["slot"] == slot
		switch {
		case own && e.Code == plan.ErrorFile:
			said = e.Args["message"]
		case own && e.Code == plan.Signature:
			known = e.Args["message"]
		case own && e.Code == plan.Output:
			output = append(output, e.Args["message"])
		case slot != "":
			facts = append(facts, strings.TrimPrefix(texts[i], slot+": "))
		default:
			facts = append(facts, texts[i])
		}
	}
	if said == "" {
		said = cmp.Or(known, lastOutput(output))
	}
	parts = append(parts, strings.Join(facts, "; "))
	if said = strings.Join(strings.Fields(said), " "); len(said) > maxQuoted {
		said = strings.ToValidUTF8(said[:maxQuoted], "") + "…"
	}
	if said != "" {
		parts = append(parts, said)
	}
	return parts
}

// lastOutput returns the last unindented line of an output and what follows it: of a traceback that is the error, which may
// have several lines.
func lastOutput(output []string) string {
	from := len(output) - 1
	for ; from > 0; from-- {
		if first, _ := utf8.DecodeRuneInString(output[from]); output[from] != "" && !unicode.IsSpace(first) {
			break
		}
	}
	return strings.Join(output[max(from, 0):], " ")
}

// restartAdvice returns the reason that says how to start a failed job again. holder holds the state's lock; nil if it is free.
func restartAdvice(holder *state.LockInfo) job.Reason {
	if holder == nil || !Watching(holder) {
		return job.Because(startAgain)
	}
	return job.Because(startAgainWatched)
}

// BudgetStatus is a job's restart budget, and how much of it is spent.
type BudgetStatus struct {
	Restarts int     `json:"restarts"`
	Spent    int     `json:"spent"`
	Window   float64 `json:"window_seconds"`
}

// budgetStatus counts the charges within the window that ends now, or ended when the job did. If now is zero, all recorded
// charges count.
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
	b.Spent = min(b.Spent, b.Restarts) // the fault that exceeds the budget is charged too
	return b
}

// text returns the budget as text; "" while nothing of it is spent.
func (b BudgetStatus) text() string {
	if b.Spent == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s used within %s", b.Spent, plural(b.Restarts, "restart"), job.Duration(b.Window*float64(time.Second)))
}
