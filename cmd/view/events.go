package view

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// WriteEvent shows one notice to a person: when, what kind, where, and what; an incident with its evidence.
func WriteEvent(s Screen, r *Redactor, n job.Notice) {
	io.WriteString(s, s.paint(clock(n.Time), faint)+"  "+s.paint(n.Type, eventStyle(n))+"  "+s.notice(n, r)+"\n")
}

// notice returns where and what, in one line; under an incident its evidence.
func (s Screen) notice(n job.Notice, r *Redactor) string {
	if n.Incident == nil {
		return located(n, r.Text(noticeText(&n)))
	}
	in := incidentStatus(*n.Incident, r)
	var b strings.Builder
	b.WriteString(s.paint(located(n, incidentText(in)), eventStyle(n)))
	evidence := toldOnce(in.Evidence, in.EvidenceCodes)
	for i, e := range evidence {
		if i == maxEvidence {
			b.WriteString("\n    … and " + plural(len(evidence)-i, "more line"))
			break
		}
		b.WriteString("\n    " + strings.ReplaceAll(e, "\n", "\n    "))
	}
	return b.String()
}

// toldOnce leaves out what a slot's evidence repeats: its error is often in its error file, in its output, and in the line that is a
// signature. The signature stays, because it may have a hint.
func toldOnce(texts []string, codes []job.Reason) (once []string) {
	type line struct{ slot, message string }
	said := func(e job.Reason) line { return line{e.Args["slot"], strings.TrimSpace(e.Args["message"])} }
	rank := map[job.Code]int{plan.Signature: 3, plan.ErrorFile: 2, plan.Output: 1}
	best := map[line]int{}
	for _, e := range codes {
		if best[said(e)] < rank[e.Code] {
			best[said(e)] = rank[e.Code]
		}
	}
	for i, text := range texts {
		if i >= len(codes) || rank[codes[i].Code] == 0 || rank[codes[i].Code] == best[said(codes[i])] {
			once = append(once, text)
		}
	}
	return once
}

// noticeText returns a notice's journaled text if it has one, else that of its reason.
func noticeText(n *job.Notice) string {
	if n.Message == "" && !n.Reason.IsZero() {
		return Sentence(n.Reason)
	}
	return n.Message
}

// shownByChanges reports whether the lines about changes already show a notice.
func shownByChanges(n job.Notice) bool {
	switch n.Type {
	case "added", "removed", "replaced", "destroyed", "forgotten":
		return true
	}
	return false
}

func located(n job.Notice, text string) string {
	if n.Address == "" || strings.HasPrefix(text, n.Address) {
		return text
	}
	return n.Address + ": " + text
}

// incidentText returns an incident in a line: "process killed in worker[2], then 3 more exits -> restart in place".
func incidentText(in IncidentStatus) string {
	text := spaced(string(in.Cause))
	if culprits := shortCulprits(in.slots); len(culprits) > 0 {
		text += " in " + strings.Join(culprits, ", ")
	}
	if in.cascaded > 0 {
		text += ", then " + plural(in.cascaded, "more exit")
	}
	if in.Action != "" {
		text += " -> " + spaced(string(in.Action))
	}
	return text
}

// spaced writes a name like restart_in_place as words.
func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// maxEvidence bounds the lines of evidence under an incident; `status -json` has all of them.
const maxEvidence = 20

func eventStyle(n job.Notice) style {
	switch {
	case n.Type == "refused":
		return yellow
	case n.Incident == nil:
		return cyan
	}
	if n.Incident.Action == job.FailJob {
		return red
	}
	return yellow
}

// WriteEventJSON writes one notice as one line of JSON.
func WriteEventJSON(w io.Writer, r *Redactor, n job.Notice) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(eventOf(n, r))
}

// event is a notice as JSON.
type event struct {
	Seq        uint64         `json:"seq,omitempty"`
	Time       time.Time      `json:"time"`
	Type       string         `json:"type"`
	Address    string         `json:"address,omitempty"`
	Message    string         `json:"message"`
	ReasonCode job.Reason     `json:"reason_code,omitzero"` // the message in a code; see docs/reasons.md
	Condition  string         `json:"condition,omitempty"`  // "raised", "changed" or "cleared", of what holds for a while
	Incident   *eventIncident `json:"incident,omitempty"`
}

// eventIncident is a notice's incident, without what only the state keeps of it.
type eventIncident struct {
	Time          time.Time     `json:"time"`
	Cause         job.Cause     `json:"cause"`
	Culprits      []job.Address `json:"culprits"`
	Action        job.Action    `json:"action"`
	Evidence      []string      `json:"evidence"`
	EvidenceCodes []job.Reason  `json:"evidence_codes"` // the evidence in codes; see docs/reasons.md
	Generation    int           `json:"generation,omitempty"`
	Cascade       []string      `json:"cascade,omitempty"` // slots whose processes ended because of it, as worker[0-3,7]
	Confidence    float64       `json:"confidence"`
	Added         time.Time     `json:"added,omitzero"`
}

// eventOf returns a notice without sensitive values.
func eventOf(n job.Notice, r *Redactor) event {
	e := event{Seq: n.Seq, Time: n.Time, Type: n.Type, Address: n.Address, Message: r.Text(noticeText(&n)), ReasonCode: n.Reason.Map(r.Text), Condition: n.Condition}
	if in := n.Incident; in != nil {
		e.Incident = &eventIncident{
			Time: in.Time, Cause: in.Cause, Culprits: in.Culprits, Action: in.Action, Evidence: r.Sentences(in.Evidence),
			EvidenceCodes: r.Reasons(in.Evidence), Generation: in.Generation, Cascade: in.Cascade, Confidence: in.Confidence, Added: in.Added,
		}
	}
	return e
}
