package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// evaluated returns the diagnostics of evaluating every attribute of testdata/diagnostics/input.hcl.
func evaluated(t *testing.T) (hcl.Diagnostics, map[string]*hcl.File) {
	t.Helper()
	src, err := os.ReadFile("testdata/diagnostics/input.hcl")
	if err != nil {
		t.Fatal(err)
	}
	file, diags := hclsyntax.ParseConfig(src, "main.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{"var": cty.ObjectVal(map[string]cty.Value{
		"replicas": cty.NumberIntVal(3),
		"token":    cty.StringVal("s3cret").Mark("sensitive"),
		"names":    cty.MapVal(map[string]cty.Value{"a": cty.StringVal("b")}),
		"nothing":  cty.NullVal(cty.Number),
	})}}
	attrs, _ := file.Body.(*hclsyntax.Body).Blocks[0].Body.JustAttributes()
	for _, name := range []string{"even", "secret", "list"} {
		_, more := attrs[name].Expr.Value(ctx)
		diags = append(diags, more...)
	}
	diags = append(diags,
		&hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "A warning", Detail: "It has no place, and its text is so long that it has to be broken over more than one line to be read.\n  this stays as it is laid out, however long the line happens to be, since it starts with space"},
		&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No source", Subject: &hcl.Range{Filename: "gone.hcl", Start: hcl.Pos{Line: 7, Column: 1}}})
	return diags, map[string]*hcl.File{"main.hcl": file}
}

func TestDiagnostics(t *testing.T) {
	diags, files := evaluated(t)
	described := DiagnoseHCL(diags, files)
	var plain, coloured, machine bytes.Buffer
	WriteDiagnostics(Screen{Writer: &plain, Width: 60}, described)
	WriteDiagnostics(Screen{Writer: &coloured, Width: 60, Colour: true}, described)
	if err := WriteJSON(&machine, NewValidation(described)); err != nil {
		t.Fatal(err)
	}
	golden(t, "diagnostics/plain.txt", plain.String())
	golden(t, "diagnostics/colour.txt", coloured.String())
	golden(t, "diagnostics/validation.json", machine.String())
	if strings.Contains(plain.String()+machine.String(), "s3cret") {
		t.Error("a diagnostic shows the value of a sensitive variable")
	}
	if strings.Contains(plain.String(), "\x1b[") {
		t.Error("the plain text has escape sequences")
	}
}

// No line is named or shown if there is none: for a flag, an empty or missing file, the end of a file.
func TestNoLineIsShownWhereThereIsNone(t *testing.T) {
	files := map[string]*hcl.File{"empty.yaml": {Bytes: []byte{}}, "open.hcl": {Bytes: []byte("a {\n")}}
	for want, at := range map[string]hcl.Pos{
		"  on <-var x>\n":        hcl.InitialPos,
		"  on empty.yaml\n":      hcl.InitialPos,
		"  on open.hcl line 2\n": {Line: 2, Column: 1, Byte: 4},
		"  on gone.hcl line 7\n": {Line: 7, Column: 1},
		"  on a.vars line 1\n":   {Line: 1, Column: 9, Byte: 8}, // not to be quoted
	} {
		name := strings.TrimPrefix(strings.Split(strings.TrimSpace(want), " line ")[0], "on ")
		var out bytes.Buffer
		told := DiagnoseHCL(hcl.Diagnostics{{Summary: "Wrong", Detail: "It is.", Subject: &hcl.Range{Filename: name, Start: at, End: at}}}, files)
		WriteDiagnostics(Screen{Writer: &out, Width: 60}, told)
		if got := "\nError: Wrong\n\n" + want + "\nIt is.\n"; out.String() != got {
			t.Errorf("got %q, want %q", out.String(), got)
		}
		for n, more := range map[int]string{1: "", 2: " (and 1 more)"} { // in short
			out.Reset()
			WriteWarnings(Screen{Writer: &out}, slices.Repeat(told, n))
			if got := "- Wrong\n" + strings.TrimSuffix(want, "\n") + more + "\n\nTo see"; !strings.Contains(out.String(), got) {
				t.Errorf("in short %d of them are %q, want %q", n, out.String(), got)
			}
		}
	}
	if at := Problem("Wrong", "It is.").Place(); at != "" {
		t.Errorf("what has no place is at %q", at)
	}
}

func TestValidationCounts(t *testing.T) {
	for _, c := range []struct {
		diags            []Diagnostic
		valid            bool
		errors, warnings int
	}{
		{nil, true, 0, 0},
		{[]Diagnostic{Caution("w", "")}, true, 0, 1},
		{[]Diagnostic{Caution("w", ""), Problem("e", ""), Problem("e", "")}, false, 2, 1},
	} {
		v := NewValidation(c.diags)
		if v.Valid != c.valid || v.ErrorCount != c.errors || v.WarningCount != c.warnings {
			t.Errorf("%d diagnostics are counted as %+v", len(c.diags), v)
		}
		out, err := json.Marshal(v)
		if err != nil || !strings.Contains(string(out), `"diagnostics":[`) {
			t.Errorf("%s, %v: diagnostics must be a list even when there are none", out, err)
		}
	}
}

func TestDiagnoseErrors(t *testing.T) {
	diag := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "inner"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"none":       {nil, ""},
		"plain":      {errors.New("full disk"), "full disk"},
		"joined":     {errors.Join(errors.New("one"), hcl.Diagnostics{diag, diag}), "one inner inner"},
		"wrapped":    {fmt.Errorf("load: %w", hcl.Diagnostics{diag}), "inner"},
		"diagnostic": {fmt.Errorf("load: %w", diag), "inner"},
	} {
		var got []string
		for _, d := range Diagnose(c.err, nil) {
			got = append(got, d.Summary)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Short warnings are those of Terraform's -compact-warnings: a line each, equal ones once. An error among them is not hidden.
func TestWriteWarnings(t *testing.T) {
	at := func(line int) *Range { return &Range{Filename: "main.hcl", Start: Position{Line: line}} }
	warnings := []Diagnostic{
		Caution("Resource targeting is in effect", "A long text."),
		{Severity: severityWarning, Summary: "Deprecated", Detail: "Another.", Range: at(3)},
		{Severity: severityWarning, Summary: "Deprecated", Detail: "Another.", Range: at(9)},
		{Severity: severityWarning, Summary: "Old", Range: at(4)},
		Caution("Twice", ""), Caution("Twice", ""),
	}
	if !OnlyWarnings(warnings) || OnlyWarnings(append(warnings, Problem("Wrong", ""))) || OnlyWarnings(nil) {
		t.Error("OnlyWarnings does not distinguish warnings from errors")
	}
	var out bytes.Buffer
	WriteWarnings(Screen{Writer: &out}, warnings)
	const want = `
Warnings:

- Resource targeting is in effect
- Deprecated
  on main.hcl line 3 (and 1 more)
- Old
  on main.hcl line 4
- Twice
  (2 occurrences of this warning)

To see the full warning notes, run eltrain without -compact-warnings.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// A generated file may be one line of megabytes: only the highlight and some columns around it are quoted.
func TestLongLinesAreCutAroundTheirPlace(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for name, c := range map[string]struct{ before, after string }{
		"at the end": {long, ""}, "at the beginning": {"", long}, "in between": {long, long},
	} {
		src := []byte("a = 1\n" + c.before + "HERE" + c.after + "\nb = 2")
		at := bytes.Index(src, []byte("HERE"))
		subject := hcl.Range{Filename: "x.hcl", Start: hcl.Pos{Line: 2, Column: 1 + at, Byte: at}, End: hcl.Pos{Line: 2, Column: 5 + at, Byte: at + 4}}
		described := DiagnoseHCL(hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Wrong", Subject: &subject}}, map[string]*hcl.File{"x.hcl": {Bytes: src}})
		s := new(Redactor).Diagnostics(described)[0].Snippet
		if len(s.Code) > 2*maxSnippetLine || !utf8.ValidString(s.Code) || s.Code[s.Start:s.End] != "HERE" {
			t.Errorf("%s: %d bytes are quoted, and pointed at is %q", name, len(s.Code), s.Code[s.Start:s.End])
		}
	}
	// The whole line is highlighted, and a secret spans the cut.
	secret := strings.Repeat("k3y", 50)
	src := []byte(strings.Repeat("x", maxSnippetLine-20) + secret + long)
	subject := hcl.Range{Filename: "x.hcl", Start: hcl.InitialPos, End: hcl.Pos{Line: 1, Column: len(src), Byte: len(src)}}
	described := DiagnoseHCL(hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Wrong", Subject: &subject}}, map[string]*hcl.File{"x.hcl": {Bytes: src}})
	s := hiding(secret).Diagnostics(described)[0].Snippet
	if strings.Contains(s.Code, "k3y") || s.Start != 0 || s.End > len(s.Code) || len(s.Code) > 2*maxSnippetLine {
		t.Errorf("%d to %d of %q", s.Start, s.End, s.Code)
	}
}
