package view

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
)

// sensitive stands for a value that must not be shown.
const sensitive = job.Sensitive

// Redactor hides sensitive values by value, wherever they turn up: in an attribute, a reason, a line of
// output; and what stands for them where they are not kept. The zero value hides only the latter. It may be used and
// added to by several goroutines.
type Redactor struct {
	mu      sync.RWMutex
	secrets job.Secrets
}

// NewRedactor hides the secrets of the given jobs.
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

// Text is s with each sensitive value in it replaced, and with control characters made visible: s may be
// a line that a training program wrote, and must not move the reader's cursor.
func (r *Redactor) Text(s string) string { return printable(r.Hide(s)) }

// Hide is s with each sensitive value in it replaced, and nothing else.
func (r *Redactor) Hide(s string) string {
	return r.replace(s, func(string) string { return sensitive })
}

func (r *Redactor) replace(s string, by func(string) string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.secrets.Replace(s, by)
}

// Texts is Text of each.
func (r *Redactor) Texts(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = r.Text(line)
	}
	return out
}

// Value is an attribute's value: hidden whole if any part of it is sensitive.
func (r *Redactor) Value(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.secrets.In(s) {
		return sensitive
	}
	return printable(s)
}

// Diagnostics are diags without sensitive values, and with long lines of source cut. In a quoted line each byte of a
// value is an asterisk, so that what is pointed at stays in its place.
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

// Writer passes on to w what is written, without sensitive values. Each Write must be of whole lines.
func (r *Redactor) Writer(w io.Writer) io.Writer { return hidingWriter{r, w} }

type hidingWriter struct {
	redactor *Redactor
	w        io.Writer
}

func (h hidingWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.redactor.Hide(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printable shows control characters as Go escapes; newlines and tabs stay.
func printable(s string) string {
	clean := func(r rune) bool { return r == '\n' || r == '\t' || r != utf8.RuneError && !unicode.IsControl(r) }
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
