package view

import (
	"cmp"
	"strings"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// MisnamedTrouble is the summary of the warning about a removed block, also in a plan.
const MisnamedTrouble = "A removed block matches nothing"

// conditionSummaries are the short texts of conditions by code. ${name} is their subject without its kind.
var conditionSummaries = map[job.Code]string{
	apply.ProviderUnobserved: "Provider ${name} cannot be observed",
	apply.NotPublished:       "The service's address cannot be published to the agents of provider ${name}",
	apply.PreparationRefused: "Job ${name} cannot be prepared",
	apply.Delayed:            "Job ${name} is delayed",
	apply.FilesUnusable:      "The configuration has errors; the last valid one stays in effect",
	apply.FilesUnsteady:      "The files are not read while they are being written",
	apply.FilesDoubtful:      "The files may be only half written",
	apply.RemovedMisnamed:    MisnamedTrouble,
	apply.NotJournaled:       "Events cannot be written to the journal; no changes are made until they can be",
	apply.NotStored:          "The state cannot be stored; no changes are made until it can be",
	apply.NotChronicled:      "A decision could not be written to the journal",
	apply.WebhookRefused:     "POST /v1/reconcile is disabled",
	apply.RequestsUnread:     "Operators' requests cannot be read",
	apply.NotReplied:         "The reply to an operator's request cannot be stored",
	apply.NotNotified:        "Messages of notify ${name} cannot be delivered",
	plan.TooManyToMark:       "Too many nodes of provider ${name} fail",
	apply.NotStopped:         "Slots could not be stopped",
	apply.OutputLeftOut:      "Some output was dropped",
}

// conditionText returns a condition's summary, and as its detail the reported message.
func conditionText(c *conditions.Condition) (summary, detail string) {
	_, name, _ := strings.Cut(c.About, ".")
	summary, known := conditionSummaries[c.Reason.Code]
	switch {
	case known:
		summary = strings.ReplaceAll(summary, "${name}", name)
	case headlines[c.Reason.Code] != "": // a refusal
		return headlines[c.Reason.Code] + ": " + c.About, Sentence(c.Reason)
	default: // a condition in the files, under its own name
		summary = c.About
	}
	switch c.Reason.Code {
	case apply.NotStopped, apply.OutputLeftOut:
		return summary, Sentence(c.Reason)
	case apply.FilesUnusable:
		if len(c.Reason.Of) > 0 {
			return summary, strings.Join(each(c.Reason.Of), " ")
		}
		if c.Reason.Args["commit"] != "" {
			return summary, c.Reason.Args["message"] + "\n\n" + filesInForce(c.Reason)
		}
	}
	return summary, cmp.Or(c.Reason.Args["message"], strings.TrimPrefix(Sentence(c.Reason), summary+": "))
}

// conditionLine returns the one-line text of a condition about one job or about the files in force; false if it needs more.
func conditionLine(c *conditions.Change) (text string, is bool) {
	switch kind := apply.EventType(&c.Condition); {
	case kind == "withheld", kind == "left", c.Reason.Code == plan.Cordoned, c.Reason.Code == plan.Draining, c.Reason.Code == plan.NodeMarked:
		text = c.About + ": "
	case c.Reason.Code != apply.ConfigurationApplied:
		return "", false
	}
	if c.Type == conditions.Cleared {
		return text + Sentence(c.Why), true
	}
	return text + Sentence(c.Reason), true
}

// shownElsewhere reports whether a condition is already shown by a run's changes, or for all jobs by the files' condition.
func shownElsewhere(c *conditions.Condition) bool {
	switch kind := apply.EventType(c); kind {
	case "refused":
		return c.Reason.Code != apply.PreparationRefused
	case "withheld":
		return c.Reason.Code == apply.FilesUnusable
	default:
		return kind == "removed"
	}
}

// held says since when a condition holds that an earlier run reported; "" for a new one.
func held(c *conditions.Change) string {
	if c.Type != conditions.Held {
		return ""
	}
	return " (since " + clock(c.Since) + ")"
}

// waits reports whether a condition is that a job or role waits.
func waits(c *conditions.Condition) bool { return apply.EventType(c) == "waiting" }

// notStopped says which slots could not be stopped.
func notStopped(r job.Reason, _ []string) string {
	which := r.Args["slot"]
	if n := r.Args["count"]; n != "1" {
		which += ", first of " + n
	}
	return which + ": " + r.Args["message"] + ". The next run retries."
}

// leftOut says how much of the output is missing.
func leftOut(r job.Reason, _ []string) string {
	lines := "lines were"
	if r.Args["count"] == "1" {
		lines = "line was"
	}
	return "Output was blocked, and " + r.Args["count"] + " " + lines + " dropped. `eltrain events` shows what happened."
}
