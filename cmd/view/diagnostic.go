package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
)

// Diagnostic is one error or warning, shaped as Terraform's machine-readable form, so that tools written
// for `terraform validate -json` read it. The text for people is made from it too.
type Diagnostic struct {
	Severity string   `json:"severity"` // "error" or "warning"
	Summary  string   `json:"summary"`
	Detail   string   `json:"detail"`
	Address  string   `json:"address,omitempty"` // of the job that it is about, if it is about one
	Range    *Range   `json:"range,omitempty"`
	Snippet  *Snippet `json:"snippet,omitempty"`

	ReasonCode *job.Reason `json:"reason_code,omitempty"` // the detail in a code, where it has one; see docs/reasons.md
}

// Range is a half-open range of a file.
type Range struct {
	Filename string   `json:"filename"`
	Start    Position `json:"start"`
	End      Position `json:"end"`
}

// Position counts lines and columns from 1 and bytes from 0.
type Position struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Byte   int `json:"byte"`
}

// Snippet is the source that a diagnostic is about. The highlight offsets are bytes within Code.
type Snippet struct {
	Context   *string           `json:"context"` // the block around, as `job "mnist"`; null at the top level
	Code      string            `json:"code"`
	StartLine int               `json:"start_line"`
	Start     int               `json:"highlight_start_offset"`
	End       int               `json:"highlight_end_offset"`
	Values    []ExpressionValue `json:"values"`
}

// ExpressionValue is the value of a term in the failing expression.
type ExpressionValue struct {
	Traversal string `json:"traversal"` // "var.replicas"
	Statement string `json:"statement"` // "is 3"
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

// Diagnose turns an error into diagnostics, one for each of hcl.Diagnostics or of joined errors. Source is quoted from files.
func Diagnose(err error, files map[string]*hcl.File) []Diagnostic {
	return newSources(files).diagnose(err)
}

func (s *sources) diagnose(err error) []Diagnostic {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []Diagnostic
		for _, e := range joined.Unwrap() {
			out = append(out, s.diagnose(e)...)
		}
		return out
	}
	var diags hcl.Diagnostics
	if errors.As(err, &diags) {
		return s.describeAll(diags)
	}
	var diag *hcl.Diagnostic
	if errors.As(err, &diag) {
		return []Diagnostic{s.describe(diag)}
	}
	return []Diagnostic{{Severity: severityError, Summary: err.Error()}}
}

// DiagnoseHCL turns HCL's diagnostics into ours.
func DiagnoseHCL(diags hcl.Diagnostics, files map[string]*hcl.File) []Diagnostic {
	return newSources(files).describeAll(diags)
}

func (s *sources) describeAll(diags hcl.Diagnostics) []Diagnostic {
	out := make([]Diagnostic, 0, len(diags))
	for _, d := range diags {
		out = append(out, s.describe(d))
	}
	return out
}

// Problem is one error without source.
func Problem(summary, detail string) Diagnostic {
	return Diagnostic{Severity: severityError, Summary: summary, Detail: detail}
}

// Caution is one warning without source.
func Caution(summary, detail string) Diagnostic {
	return Diagnostic{Severity: severityWarning, Summary: summary, Detail: detail}
}

// Explain returns an error as sentences, with a capital letter and a full stop, and what to do about it if that is known.
func Explain(err error) string {
	text := explained(err)
	if what := remedy(err); what != "" {
		text += " " + what
	}
	return text
}

func explained(err error) string {
	if unread := (*apply.UnreadError)(nil); errors.As(err, &unread) {
		return Sentence(unread.Why)
	}
	text := err.Error()
	if first, size := utf8.DecodeRuneInString(text); size > 0 && !strings.ContainsAny(firstWord(text), "/._=-\"") {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if strings.HasPrefix(last, " ") || strings.HasSuffix(last, ".") || strings.HasSuffix(last, "?") {
		return text // an indented line is something to copy
	}
	return text + "."
}

// firstWord returns a text's first word; a name or a path must not be capitalized.
func firstWord(text string) string {
	word, _, _ := strings.Cut(text, " ")
	return word
}

func (s *sources) describe(d *hcl.Diagnostic) Diagnostic {
	out := Diagnostic{Severity: severityError, Summary: d.Summary, Detail: d.Detail}
	if d.Severity == hcl.DiagWarning {
		out.Severity = severityWarning
	}
	if d.Subject == nil {
		return out
	}
	subject := *d.Subject
	if subject.Empty() { // nothing to underline: take one character, as HCL's own writer does
		subject.End.Byte++
		subject.End.Column++
	}
	out.Range = &Range{Filename: subject.Filename, Start: position(subject.Start), End: position(subject.End)}
	src := s.source(subject.Filename)
	if src == nil {
		return out
	}
	shown := subject
	if d.Context != nil {
		shown = hcl.RangeOver(shown, *d.Context)
	}
	out.Snippet = src.snippet(subject, shown)
	out.Snippet.Values = values(d.Expression, d.EvalContext)
	return out
}

func position(p hcl.Pos) Position { return Position{Line: p.Line, Column: p.Column, Byte: p.Byte} }

// values returns the value of each variable in an expression, as far as it is known.
func values(expr hcl.Expression, ctx *hcl.EvalContext) []ExpressionValue {
	out := []ExpressionValue{}
	if expr == nil || ctx == nil {
		return out
	}
	seen := map[string]bool{}
	for _, traversal := range expr.Variables() {
		name := traversalText(traversal)
		if seen[name] {
			continue
		}
		seen[name] = true
		val, diags := traversal.TraverseAbs(ctx)
		if diags.HasErrors() {
			continue // that is most likely the very error being shown
		}
		if statement := statementOf(val); statement != "" {
			out = append(out, ExpressionValue{Traversal: name, Statement: statement})
		}
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Traversal < out[k].Traversal })
	return out
}

func traversalText(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			if step.Key.Type().IsPrimitiveType() && !step.Key.IsMarked() {
				b.WriteString("[" + valueText(step.Key) + "]")
			} else {
				b.WriteString("[…]")
			}
		}
	}
	return b.String()
}

// statementOf says what a value is. Any mark on a value means that it is sensitive: the language has no other.
func statementOf(val cty.Value) string {
	switch {
	case val.ContainsMarked():
		return "is " + sensitive
	case !val.IsKnown():
		return ""
	case val.IsNull():
		return "is null"
	}
	return "is " + valueText(val)
}

func valueText(val cty.Value) string {
	ty := val.Type()
	switch {
	case val.IsNull():
		return "null"
	case !val.IsKnown():
		return "not known yet"
	case ty == cty.Bool:
		if val.True() {
			return "true"
		}
		return "false"
	case ty == cty.Number:
		return val.AsBigFloat().Text('g', 10)
	case ty == cty.String:
		return fmt.Sprintf("%q", val.AsString())
	case ty.IsCollectionType() || ty.IsTupleType():
		if n := val.LengthInt(); n > 0 {
			return ty.FriendlyName() + " with " + plural(n, "element")
		}
		return "empty " + ty.FriendlyName()
	case ty.IsObjectType():
		return "object with " + plural(len(ty.AttributeTypes()), "attribute")
	}
	return ty.FriendlyName()
}

// Ordered sorts diagnostics by severity, place and text, as Terraform does: warnings first, so that errors are read last, and
// those without a place before the others.
func Ordered(diags []Diagnostic) []Diagnostic {
	return slices.SortedStableFunc(slices.Values(diags), func(a, b Diagnostic) int {
		return cmp.Or(
			-cmp.Compare(a.Severity, b.Severity), // "warning" before "error"
			compareRanges(a.Range, b.Range),
			cmp.Compare(a.Summary, b.Summary), cmp.Compare(a.Detail, b.Detail),
		)
	})
}

func compareRanges(a, b *Range) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Filename, b.Filename), cmp.Compare(a.Start.Line, b.Start.Line), cmp.Compare(a.Start.Column, b.Start.Column))
}

// WriteDiagnostics shows diagnostics to a person: in a box with colors, plain without.
func WriteDiagnostics(s Screen, diags []Diagnostic) {
	for _, d := range diags {
		io.WriteString(s, s.diagnostic(d))
	}
}

// HaveErrors reports whether any is an error.
func HaveErrors(diags []Diagnostic) bool {
	return slices.ContainsFunc(diags, func(d Diagnostic) bool { return d.Severity == severityError })
}

// OnlyWarnings reports whether there are warnings and no errors.
func OnlyWarnings(diags []Diagnostic) bool {
	return len(diags) > 0 && !HaveErrors(diags)
}

// WriteWarnings shows only the summaries of warnings, one line each, as Terraform does with -compact-warnings. Equal
// summaries are shown once.
func WriteWarnings(s Screen, diags []Diagnostic) {
	var order []string
	of := map[string][]Diagnostic{}
	for _, d := range diags {
		if of[d.Summary] == nil {
			order = append(order, d.Summary)
		}
		of[d.Summary] = append(of[d.Summary], d)
	}
	var b strings.Builder
	b.WriteString("\n" + s.paint("Warnings:", bold, yellow) + "\n\n")
	for _, summary := range order {
		b.WriteString("- " + printable(summary) + "\n")
		first, more := of[summary][0], len(of[summary])-1
		switch {
		case first.Range != nil && more > 0:
			fmt.Fprintf(&b, "  on %s (and %d more)\n", first.Place(), more)
		case first.Range != nil:
			fmt.Fprintf(&b, "  on %s\n", first.Place())
		case more > 0:
			fmt.Fprintf(&b, "  (%d occurrences of this warning)\n", more+1)
		}
	}
	b.WriteString("\nTo see the full warning notes, run eltrain without -compact-warnings.\n")
	io.WriteString(s, b.String())
}

func (s Screen) diagnostic(d Diagnostic) string {
	width := s.Width
	if s.Colour {
		width -= 2 // the box
	}
	var b strings.Builder
	b.WriteString(s.headline(d) + "\n\n")
	if d.Range != nil {
		b.WriteString(s.source(d) + "\n")
	}
	if d.Detail != "" {
		b.WriteString(wrap(printable(d.Detail), width) + "\n")
	}
	body := strings.TrimRight(b.String(), "\n")
	if !s.Colour {
		return "\n" + body + "\n"
	}
	shade := severityStyle(d.Severity)
	var boxed strings.Builder
	boxed.WriteString(s.paint("╷", shade) + "\n")
	for line := range strings.SplitSeq(body, "\n") {
		boxed.WriteString(strings.TrimRight(s.paint("│", shade)+" "+line, " ") + "\n")
	}
	boxed.WriteString(s.paint("╵", shade) + "\n")
	return boxed.String()
}

// Place returns where a diagnostic is, as "main.hcl line 3"; "" if it has no place. For a range at the very beginning of a
// source without lines, such as an unreadable file or a flag, it names no line.
func (d Diagnostic) Place() string {
	switch {
	case d.Range == nil || d.Range.Filename == "":
		return ""
	case d.quoted() || d.Range.Start.Byte > 0 || d.Range.Start.Line > 1:
		return fmt.Sprintf("%s line %d", printable(d.Range.Filename), d.Range.Start.Line)
	}
	return printable(d.Range.Filename)
}

// quoted reports whether lines of its file can be shown.
func (d Diagnostic) quoted() bool { return d.Snippet != nil && d.Snippet.Code != "" }

func (s Screen) headline(d Diagnostic) string {
	name := "Error: "
	if d.Severity == severityWarning {
		name = "Warning: "
	}
	return s.paint(name, bold, severityStyle(d.Severity)) + s.paint(printable(d.Summary), bold)
}

func severityStyle(severity string) style {
	if severity == severityWarning {
		return yellow
	}
	return red
}

// source returns where a diagnostic is, and the quoted lines.
func (s Screen) source(d Diagnostic) string {
	var b strings.Builder
	b.WriteString("  on " + d.Place())
	if d.Snippet != nil && d.Snippet.Context != nil {
		b.WriteString(", in " + *d.Snippet.Context)
	}
	if !d.quoted() {
		return b.String() + "\n"
	}
	b.WriteString(":\n")
	line, offset := d.Snippet.StartLine, 0
	for code := range strings.SplitSeq(d.Snippet.Code, "\n") {
		from := min(max(d.Snippet.Start-offset, 0), len(code))
		to := min(max(d.Snippet.End-offset, from), len(code))
		fmt.Fprintf(&b, "%4d: %s%s%s\n", line,
			printable(code[:from]), s.paint(printable(code[from:to]), underline), printable(code[to:]))
		line, offset = line+1, offset+len(code)+1
	}
	if len(d.Snippet.Values) > 0 {
		b.WriteString("    ├────────────────\n")
		for _, v := range d.Snippet.Values {
			fmt.Fprintf(&b, "    │ %s %s\n", s.paint(v.Traversal, bold), printable(v.Statement))
		}
	}
	return b.String()
}

// Validation is the JSON of `validate -json`.
type Validation struct {
	FormatVersion string       `json:"format_version"`
	Valid         bool         `json:"valid"`
	ErrorCount    int          `json:"error_count"`
	WarningCount  int          `json:"warning_count"`
	Diagnostics   []Diagnostic `json:"diagnostics"`
}

// NewValidation makes the JSON of a validation.
func NewValidation(diags []Diagnostic) Validation {
	v := Validation{FormatVersion: "1.0", Diagnostics: append([]Diagnostic{}, Ordered(diags)...)}
	for _, d := range diags {
		if d.Severity == severityWarning {
			v.WarningCount++
		} else {
			v.ErrorCount++
		}
	}
	v.Valid = v.ErrorCount == 0
	return v
}

// WriteJSON writes v indented, with a newline at the end. HTML characters are not escaped: no browser reads this.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// WriteSuccess shows text after a green "Success!".
func WriteSuccess(s Screen, text string) {
	io.WriteString(s, s.paint("Success!", bold, green)+" "+text+"\n")
}
