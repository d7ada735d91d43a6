package view

import (
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
)

// conditionTexts say what holds, by code: a summary and, where it is other than the error or message, its detail.
var conditionTexts = map[job.Code]func(c *conditions.Condition) (summary, detail string){
	apply.ProviderUnobserved: func(c *conditions.Condition) (string, string) {
		return "Provider " + subject(c) + " cannot be observed", ""
	},
	apply.NotPublished: func(c *conditions.Condition) (string, string) {
		return "The agents of provider " + subject(c) + " cannot be told where the service is", ""
	},
	apply.NotPrepared: func(c *conditions.Condition) (string, string) {
		return "Job " + subject(c) + " cannot be prepared", ""
	},
	apply.HeldUp:      func(c *conditions.Condition) (string, string) { return "Job " + subject(c) + " is held up", "" },
	apply.Refused:     func(c *conditions.Condition) (string, string) { return c.About, "" },
	apply.CheckFailed: func(c *conditions.Condition) (string, string) { return c.About, "" },
	apply.FilesInvalid: func(*conditions.Condition) (string, string) {
		return "The configuration has errors; the last good one stays in force", ""
	},
	apply.FilesUnsteady: func(*conditions.Condition) (string, string) {
		return "The files are not read while they are being written", ""
	},
	apply.FilesDoubtful: func(*conditions.Condition) (string, string) {
		return "The files may be half of what was to be written", ""
	},
	apply.RemovedMisnamed: func(*conditions.Condition) (string, string) { return apply.MisnamedTrouble, "" },
	apply.NotStored: func(*conditions.Condition) (string, string) {
		return "The state cannot be stored; nothing is changed until it can", ""
	},
	apply.NotChronicled: func(*conditions.Condition) (string, string) { return "A decision could not be journalled", "" },
	apply.NotStopped: func(c *conditions.Condition) (string, string) {
		which := c.About
		if n := c.Reason.Args["slots"]; n != "1" {
			which += ", first of " + n
		}
		return "What was told to leave could not be stopped", fmt.Sprintf("%s: %s. The next run tries it again.", which, c.Reason.Args["error"])
	},
	apply.OutputLeftOut: func(c *conditions.Condition) (string, string) {
		lines := c.Reason.Args["lines"] + " lines were"
		if c.Reason.Args["lines"] == "1" {
			lines = "1 line was"
		}
		return "Not all was shown", "The output took nothing for a while, and " + lines + " left out. `eltrain events` has what happened."
	},
}

// subject is what a condition is about, without its kind: "gpt" of job.gpt.
func subject(c *conditions.Condition) string {
	_, name, _ := strings.Cut(c.About, ".")
	return name
}

// conditionText is a condition for a person.
func conditionText(c *conditions.Condition) (summary, detail string) {
	text, known := conditionTexts[c.Reason.Code]
	if !known {
		return c.About, c.Reason.String()
	}
	if summary, detail = text(c); detail == "" {
		detail = c.Reason.Args["error"] + c.Reason.Args["message"]
	}
	return summary, detail
}
