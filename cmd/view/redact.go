package view

import (
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
)

// sensitive replaces a value that must not be shown.
const sensitive = job.Sensitive

// Redactor hides sensitive values wherever they occur: in an attribute, a reason, a line of output. It also hides the seals
// that replace them where they are not kept; the zero value hides only those. It is safe for concurrent use.
type Redactor struct {
	mu      sync.RWMutex
	secrets job.Secrets
}

// NewRedactor returns a Redactor that hides the secrets of the given jobs.
func NewRedactor(jobs []job.Job) *Redactor {
	r := new(Redactor)
	r.Add(jobs)
	return r
}

// Add hides the secrets of more jobs. What was hidden before stays hidden.
func (r *Redactor) Add(jobs []job.Job) {
	for i := range jobs {
		r.AddTexts(jobs[i].Secrets...)
	}
}

// AddTexts hides more sensitive values.
func (r *Redactor) AddTexts(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets.Add(secrets...)
}

// Text returns s with each sensitive value replaced, and with what is not displayable made visible: s may be
// a line that a training program wrote, and must not move the reader's cursor.
func (r *Redactor) Text(s string) string { return printable(r.Hide(s)) }

// Hide returns s with each sensitive value replaced, and nothing else.
func (r *Redactor) Hide(s string) string {
	return r.replace(s, func(string) string { return sensitive })
}

func (r *Redactor) replace(s string, by func(string) string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.secrets.Replace(s, by)
}

// Texts applies Text to each line.
func (r *Redactor) Texts(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = r.Text(line)
	}
	return out
}

// Value returns an attribute's value, hidden as a whole if any part of it is sensitive.
func (r *Redactor) Value(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.secrets.In(s) {
		return sensitive
	}
	return printable(s)
}

// Diagnostics returns diags without sensitive values, and with long source lines cut. In a quoted line each byte of a
// sensitive value becomes an asterisk, so that the highlighted columns stay in place.
func (r *Redactor) Diagnostics(diags []Diagnostic) []Diagnostic {
	out := slices.Clone(diags)
	for i := range out {
		d := &out[i]
		d.Summary, d.Detail = r.Hide(d.Summary), r.Hide(d.Detail)
		if d.ReasonCode != nil {
			why := d.ReasonCode.Map(r.Hide)
			d.ReasonCode = &why
		}
		if d.Snippet == nil {
			continue
		}
		shown := *d.Snippet
		shown.Code = r.replace(shown.Code, func(secret string) string { return strings.Repeat("*", len(secret)) })
		shown.Values = slices.Clone(shown.Values)
		for k := range shown.Values {
			shown.Values[k].Statement = r.Hide(shown.Values[k].Statement)
		}
		shown = shown.cut()
		d.Snippet = &shown
	}
	return out
}

// Writer returns a writer to w that hides sensitive values. Each Write must have whole lines.
func (r *Redactor) Writer(w io.Writer) io.Writer { return hidingWriter{w, r.Hide} }

// Output is Writer for what programs wrote. A terminal gets it as Text without colors: it must not carry out a program's
// commands, such as to set the clipboard. A pipe or file gets the program's own bytes.
func (r *Redactor) Output(s Screen) io.Writer {
	if !s.Terminal {
		return r.Writer(s)
	}
	return hidingWriter{s, func(lines string) string { return r.Text(anyStyle.ReplaceAllString(lines, "")) }}
}

// anyStyle matches SGR escape sequences.
var anyStyle = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

type hidingWriter struct {
	w    io.Writer
	show func(lines string) string
}

func (h hidingWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.show(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printable shows what is not displayable as Go escapes.
func printable(s string) string {
	clean := func(r rune) bool { return r != utf8.RuneError && job.Displayable(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if clean(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func itoa(n int) string { return strconv.Itoa(n) }
