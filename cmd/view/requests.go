package view

import (
	"bytes"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// RequestsFormat is the version of the JSON of requests. A new minor version only adds fields.
const RequestsFormat = "1.0"

// RequestModel is one operator's request.
type RequestModel struct {
	ID        string      `json:"id"`
	Verb      job.Verb    `json:"verb"`
	Addresses []string    `json:"addresses"`
	By        string      `json:"by"`
	At        time.Time   `json:"at"`
	Expires   time.Time   `json:"expires"`
	Why       string      `json:"why,omitempty"`
	Until     *time.Time  `json:"until,omitempty"`
	Value     string      `json:"value,omitempty"` // what the verb takes; for several addresses separated by commas
	Mode      string      `json:"mode,omitempty"`  // the verb's flavor
	State     string      `json:"state"`           // waiting, accepted, done, refused or failed
	Reason    string      `json:"reason,omitempty"`
	Code      *job.Reason `json:"reason_code,omitempty"`
}

// RequestsModel are several.
type RequestsModel struct {
	FormatVersion string         `json:"format_version"`
	Requests      []RequestModel `json:"requests"`
}

// RequestStatus returns a request for JSON.
func RequestStatus(a state.Asked, r *Redactor) RequestModel {
	m := RequestModel{ID: a.ID, Verb: a.Verb, Addresses: []string{}, By: a.By, At: a.At, Expires: a.Expires, Why: r.Text(a.Why), Value: a.Value, Mode: a.Mode, State: stateOf(a)}
	for _, sel := range a.On {
		m.Addresses = append(m.Addresses, sel.String())
	}
	if !a.Until.IsZero() {
		m.Until = &a.Until
	}
	if !a.Reply.Reason.IsZero() {
		m.Reason, m.Code = r.Sentences([]job.Reason{a.Reply.Reason})[0], &r.Reasons([]job.Reason{a.Reply.Reason})[0]
	}
	return m
}

// RequestList returns requests for JSON.
func RequestList(all []state.Asked, r *Redactor) RequestsModel {
	m := RequestsModel{FormatVersion: RequestsFormat, Requests: []RequestModel{}}
	for _, a := range all {
		m.Requests = append(m.Requests, RequestStatus(a, r))
	}
	return m
}

func stateOf(a state.Asked) string {
	if a.Reply.State == "" {
		return "waiting"
	}
	return string(a.Reply.State)
}

// asked returns a request as its command says it.
func asked(r *job.Request) string {
	text := string(r.Verb)
	if r.Mode != "" {
		text += " -" + r.Mode
	}
	for i, sel := range r.On {
		text += " " + sel.String()
		if r.Verb == job.AskScale {
			text += "=" + r.ValueOf(i)
		}
	}
	return text
}

// RequestText says in a line what has become of a request.
func RequestText(a state.Asked, r *Redactor) string {
	m := RequestStatus(a, r)
	text := asked(&a.Request) + ": " + m.State
	switch {
	case m.Reason != "":
		text += ": " + m.Reason
	case !a.Reply.State.Final():
		text += " (request " + m.ID + ")"
	}
	return text
}

// WriteRequests writes a table of requests.
func WriteRequests(s Screen, all []state.Asked, r *Redactor) error {
	if len(all) == 0 {
		_, err := s.Write([]byte("No requests.\n"))
		return err
	}
	rows := [][]string{{"ID", "TIME", "REQUEST", "BY", "WHY", "STATE"}}
	for _, a := range all {
		m := RequestStatus(a, r)
		outcome := m.State
		if m.Reason != "" {
			outcome += ": " + m.Reason
		}
		rows = append(rows, []string{m.ID, clock(m.At), asked(&a.Request), m.By, m.Why, outcome})
	}
	var b bytes.Buffer
	s.table(&b, rows)
	_, err := s.Write(bytes.TrimLeft(b.Bytes(), "\n"))
	return err
}
