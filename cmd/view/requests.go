package view

import (
	"bytes"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// RequestsFormat is the version of the JSON of requests. A new minor version only adds fields.
const RequestsFormat = "1.1"

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
	State     string      `json:"state"`           // waiting, accepted, done, refused, failed or unknown
	Reason    string      `json:"reason,omitempty"`
	Code      *job.Reason `json:"reason_code,omitempty"`
	// Results are what it has yielded.
	Results     []string     `json:"results,omitempty"`
	ResultCodes []job.Reason `json:"result_codes,omitempty"`
}

// RequestsModel are several.
type RequestsModel struct {
	FormatVersion string         `json:"format_version"`
	Requests      []RequestModel `json:"requests"`
}

// RequestStatus returns a request for JSON.
func RequestStatus(a state.Asked, r *Redactor) RequestModel {
	m := RequestModel{ID: a.ID, Verb: a.Verb, Addresses: a.Addresses(), By: a.By, At: a.At, Expires: a.Expires, Why: r.Text(a.Why), Value: a.Value, Mode: a.Mode, State: stateOf(a)}
	if !a.Until.IsZero() {
		m.Until = &a.Until
	}
	if !a.Reply.Reason.IsZero() {
		m.Reason, m.Code = r.Sentences([]job.Reason{a.Reply.Reason})[0], &r.Reasons([]job.Reason{a.Reply.Reason})[0]
	}
	if len(a.Reply.Results) > 0 {
		m.Results, m.ResultCodes = r.Sentences(a.Reply.Results), r.Reasons(a.Reply.Results)
		if len(m.Addresses) > 1 { // each is of one of the jobs
			for i := range m.Results {
				m.Results[i] = "job." + a.Reply.Results[i].Args["job"] + ": " + m.Results[i]
			}
		}
	}
	return m
}

// outcome says what has become of it.
func (m *RequestModel) outcome() string {
	text := m.State
	if m.Reason != "" {
		return text + ": " + m.Reason
	}
	if len(m.Results) > 0 {
		text += ": " + strings.Join(m.Results, "; ")
	}
	return text
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
	switch {
	case r.Value == "":
	case r.Verb == job.AskSignal:
		text += " " + r.Value
	case r.Verb == job.AskReload:
		text += " -step=" + r.Value
	}
	for i, sel := range r.On {
		text += " " + sel.String()
		if r.Verb == job.AskScale {
			text += "=" + r.ValueOf(i)
		}
	}
	for _, name := range r.Nodes {
		text += " " + name
	}
	return text
}

// RequestText says in a line what has become of a request.
func RequestText(a state.Asked, r *Redactor) string {
	m := RequestStatus(a, r)
	text := asked(&a.Request) + ": " + m.outcome()
	if m.Reason == "" && !a.Reply.State.Final() {
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
		rows = append(rows, []string{m.ID, clock(m.At), asked(&a.Request), m.By, m.Why, m.outcome()})
	}
	var b bytes.Buffer
	s.table(&b, rows)
	_, err := s.Write(bytes.TrimLeft(b.Bytes(), "\n"))
	return err
}
