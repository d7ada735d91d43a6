package view

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// WriteEvent shows one notice to a person: when, what kind, where, and what; an incident with its evidence.
func WriteEvent(s Screen, r *Redactor, n job.Notice) {
	io.WriteString(s, s.paint(clock(n.Time), faint)+"  "+s.paint(n.Type, eventStyle(n))+"  "+s.notice(n, r)+"\n")
}

// notice is where and what, in one line; under an incident its evidence.
func (s Screen) notice(n job.Notice, r *Redactor) string {
	if n.Incident == nil {
		return located(n, r.Text(n.Message))
	}
	in := incidentStatus(*n.Incident, r)
	var b strings.Builder
	b.WriteString(s.paint(located(n, incidentText(in)), eventStyle(n)))
	for i, e := range in.Evidence {
		if i == maxEvidence {
			b.WriteString("\n    … and " + plural(len(in.Evidence)-i, "more line"))
			break
		}
		b.WriteString("\n    " + strings.ReplaceAll(e, "\n", "\n    "))
	}
	return b.String()
}

// toldByChanges tells whether a run that shows its changes has told of a notice by them.
func toldByChanges(n job.Notice) bool {
	switch n.Type {
	case "removed", "replaced", "destroyed", "forgotten", "refused":
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

// incidentText is an incident in a line: "process killed in worker[2] -> restart in place".
func incidentText(in IncidentStatus) string {
	text := spaced(string(in.Cause))
	if culprits := shortCulprits(in); len(culprits) > 0 {
		text += " in " + strings.Join(culprits, ", ")
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

// eventOf is a notice without sensitive values, and without what only the state is to know of its incident.
func eventOf(n job.Notice, r *Redactor) job.Notice {
	n.Message = r.Text(n.Message)
	if n.Incident != nil {
		in := *n.Incident
		in.Told = false
		in.Evidence = make([]string, len(n.Incident.Evidence))
		for i, e := range n.Incident.Evidence {
			in.Evidence[i] = r.Text(e)
		}
		n.Incident = &in
	}
	return n
}
