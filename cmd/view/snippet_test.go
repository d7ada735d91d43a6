package view

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// at returns the range of a part of a text. The text must contain it.
func at(t *testing.T, text, part string) hcl.Range {
	t.Helper()
	before, _, found := strings.Cut(text, part)
	if !found {
		t.Fatalf("no %q in %q", part, text)
	}
	pos := func(before string) hcl.Pos {
		return hcl.Pos{Line: 1 + strings.Count(before, "\n"), Column: len(before) - strings.LastIndex(before, "\n"), Byte: len(before)}
	}
	return hcl.Range{Filename: "x.hcl", Start: pos(before), End: pos(before + part)}
}

func TestSnippet(t *testing.T) {
	const plain = "a = 1\n\njob \"x\" {\n  b = 2\n\n  c = [\n    3,\n  ]\n}\nd = 4"
	const manyLines = "1\n2\n3\n4\n5\n6\n7\n8\n"
	for name, c := range map[string]struct {
		text, subject, shown string
		line                 int
		code, pointed        string
	}{
		"a part of a line":                    {plain, "2", "2", 4, "  b = 2", "2"},
		"the first line":                      {plain, "a = 1", "a = 1", 1, "a = 1", "a = 1"},
		"the last line, which nothing ends":   {plain, "4", "4", 10, "d = 4", "4"},
		"what is around":                      {plain, "3", "c = [\n    3,\n  ]", 6, "  c = [\n    3,\n  ]", "3"},
		"an empty line in between":            {plain, "b = 2\n\n  c", "b = 2\n\n  c", 4, "  b = 2\n\n  c = [", "b = 2\n\n  c"},
		"a newline ends it":                   {plain, "b = 2\n", "b = 2\n", 4, "  b = 2", "b = 2"},
		"a newline itself":                    {plain, "\n\njob", "\n\njob", 1, "a = 1\n\njob \"x\" {", "\n\njob"},
		"an empty line":                       {"a\n\nb", "\n\n", "\n\n", 1, "a\n", "\n"},
		"lines that end as they do elsewhere": {"a = 1\r\nb = 2\r\nc = 3\r\n", "2\r\nc", "2\r\nc", 2, "b = 2\nc = 3", "2\nc"},
		"more than is shown":                  {manyLines, "2\n3\n4\n5\n6\n7\n8", "2\n3\n4\n5\n6\n7\n8", 2, "2\n3\n4\n5\n6\n7", "2\n3\n4\n5\n6\n7"},
		"begins after what is shown":          {manyLines, "8", manyLines, 1, "1\n2\n3\n4\n5\n6", ""},
	} {
		src := newSource(&hcl.File{Bytes: []byte(c.text)})
		s := src.snippet(at(t, c.text, c.subject), at(t, c.text, c.shown))
		if s.Code != c.code || s.StartLine != c.line || s.Code[s.Start:s.End] != c.pointed {
			t.Errorf("%s: from line %d %q, of which %q", name, s.StartLine, s.Code, s.Code[s.Start:s.End])
		}
	}
}

// An error at the end of a file, about an unclosed block for example, is on a line that does not exist.
func TestSnippetAtTheEndOfTheFile(t *testing.T) {
	for text, want := range map[string]string{"a {\n": "", "a {": "a {", "": "", "\n": ""} {
		end := hcl.Pos{Line: 1 + strings.Count(text, "\n"), Column: len(text) - strings.LastIndex(text, "\n"), Byte: len(text)}
		described := DiagnoseHCL(hcl.Diagnostics{{Summary: "Wrong", Subject: &hcl.Range{Filename: "x.hcl", Start: end, End: end}}},
			map[string]*hcl.File{"x.hcl": {Bytes: []byte(text)}})
		if s := described[0].Snippet; s.Code != want || s.StartLine != end.Line || s.Start != len(want) || s.End != len(want) {
			t.Errorf("%q: %+v", text, *s)
		}
	}
}

func TestSnippetNamesTheBlockAround(t *testing.T) {
	const text = "a = 1\njob \"x\" {\n  role \"y\" {\n    b = 2\n  }\n}\nc = 3\nlocals {\n  d = 4\n}\n"
	file, diags := hclsyntax.ParseConfig([]byte(text), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	src := newSource(file)
	for part, want := range map[string]string{
		"1": "", "job": `job "x"`, "2": `job "x"`, "}\nc": `job "x"`, "3": "", "d": "locals", "}\n": `job "x"`,
	} {
		subject := at(t, text, part)
		if s := src.snippet(subject, subject); s.Context == nil && want != "" || s.Context != nil && *s.Context != want {
			t.Errorf("around %q is %v, want %q", part, s.Context, want)
		}
	}
}

// Quoting a thousand diagnostics in a file of megabytes takes as long as reading the file a few times, not a thousand times,
// which would be minutes.
func TestAThousandDiagnosticsOfALargeFile(t *testing.T) {
	const jobs, told = 20_000, 1000
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "job \"job-%d\" {\n  role \"worker\" {\n    command = [\"python3\", \"train.py\", \"--seed\", %d]\n  }\n}\n\n", i, i)
	}
	file, diags := hclsyntax.ParseConfig([]byte(text.String()), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	blocks := file.Body.(*hclsyntax.Body).Blocks
	var wrong hcl.Diagnostics
	for i := range told {
		block := blocks[len(blocks)-1-i]
		wrong = append(wrong, &hcl.Diagnostic{Summary: "Wrong", Subject: block.Body.Blocks[0].DefRange().Ptr(), Context: block.Range().Ptr()})
	}
	described := DiagnoseHCL(wrong, map[string]*hcl.File{"x.hcl": file})
	for i, d := range described {
		if want := fmt.Sprintf("job \"job-%d\"", jobs-1-i); *d.Snippet.Context != want || !strings.HasPrefix(d.Snippet.Code, want+" {\n  role") {
			t.Fatalf("diagnostic %d quotes %q of %s", i, d.Snippet.Code, *d.Snippet.Context)
		}
	}
}

// A line of megabytes is not copied for each of them either.
func TestAThousandDiagnosticsOfALongLine(t *testing.T) {
	const told = 1000
	src := []byte("a = [" + strings.Repeat("x, ", 1<<20) + "]\n")
	var wrong hcl.Diagnostics
	for i := range told {
		at := hcl.Pos{Line: 1, Column: 6 + 3*i, Byte: 5 + 3*i}
		end := hcl.Pos{Line: 1, Column: at.Column + 1, Byte: at.Byte + 1}
		wrong = append(wrong, &hcl.Diagnostic{Summary: "Wrong", Subject: &hcl.Range{Filename: "x.hcl", Start: at, End: end}})
	}
	files := map[string]*hcl.File{"x.hcl": {Bytes: src}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	described := new(Redactor).Diagnostics(DiagnoseHCL(wrong, files))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 10*uint64(len(src)) {
		t.Errorf("%d diagnostics of a line of %d bytes took %d bytes", told, len(src), took)
	}
	if s := described[told-1].Snippet; s.Code[s.Start:s.End] != "x" {
		t.Errorf("pointed at is %q", s.Code[s.Start:s.End])
	}
}
