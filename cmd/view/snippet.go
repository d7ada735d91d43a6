package view

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// sources are the files that diagnostics quote. Each file is indexed once for all its diagnostics: there may be a thousand, and
// the file may have megabytes.
type sources struct {
	files  map[string]*hcl.File
	looked map[string]*source
}

func newSources(files map[string]*hcl.File) *sources {
	return &sources{files: files, looked: map[string]*source{}}
}

// source returns nil for a file without content.
func (s *sources) source(name string) *source {
	file := s.files[name]
	if file == nil || file.Bytes == nil {
		return nil
	}
	src := s.looked[name]
	if src == nil {
		src = newSource(file)
		s.looked[name] = src
	}
	return src
}

// source is a file, its text, and the byte offset of each line. Quotes share the text's memory: a generated file may be one
// line of megabytes.
type source struct {
	body   hcl.Body
	text   string
	starts []int
}

func newSource(file *hcl.File) *source {
	s := &source{body: file.Body, text: string(file.Bytes)}
	s.starts = make([]int, 0, strings.Count(s.text, "\n")+1)
	for at := 0; at < len(s.text); { // a final newline begins no further line
		s.starts = append(s.starts, at)
		end := strings.IndexByte(s.text[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	return s
}

// lines returns the lines from first to last, counted from 1, without the last one's newline, and the byte offset at which they
// begin. The lines must exist.
func (s *source) lines(first, last int) (text string, at int) {
	at, end := s.starts[first-1], len(s.text)
	if last < len(s.starts) {
		end = s.starts[last]
	}
	text = strings.TrimSuffix(s.text[at:end], "\n")
	return strings.TrimSuffix(text, "\r"), at
}

// header returns the header of the outermost block around an offset, as `job "mnist"`; "" if there is none.
func (s *source) header(offset int) string {
	body, ok := s.body.(*hclsyntax.Body)
	if !ok {
		return ""
	}
	// Blocks are in the order of the file.
	next := sort.Search(len(body.Blocks), func(i int) bool { return body.Blocks[i].TypeRange.Start.Byte > offset })
	if next == 0 || !body.Blocks[next-1].Range().ContainsOffset(offset) {
		return ""
	}
	block := body.Blocks[next-1]
	header := block.Type
	for _, label := range block.Labels {
		header += fmt.Sprintf(" %q", label)
	}
	return header
}

// snippet returns the lines of shown, and where in them the subject is.
func (s *source) snippet(subject, shown hcl.Range) *Snippet {
	out := &Snippet{StartLine: subject.Start.Line, Values: []ExpressionValue{}}
	if header := s.header(subject.Start.Byte); header != "" {
		out.Context = &header
	}
	first, last := shown.Start.Line, shown.End.Line
	if shown.End.Column == 1 && last > first {
		last-- // it ends with a newline
	}
	first, last = max(first, 1), min(last, first+maxSnippetLines-1, len(s.starts))
	if first > last {
		return out // at the end of the file, or outside it
	}
	out.StartLine = first
	code, at := s.lines(first, last)
	within := func(offset int) int {
		offset = min(max(offset-at, 0), len(code))
		return offset - strings.Count(code[:offset], "\r\n")
	}
	out.Start = within(subject.Start.Byte)
	out.End = max(out.Start, within(subject.End.Byte))
	out.Code = strings.ReplaceAll(code, "\r\n", "\n")
	return out
}

// maxSnippetLines bounds the quoted source: the subject of a diagnostic can be a whole job.
const maxSnippetLines = 6

// maxSnippetLine bounds each quoted line, in bytes: generated files have lines of megabytes. Some columns before the
// subject stay as context.
const (
	maxSnippetLine = 240
	snippetLead    = 60
)

// cut returns s with long lines cut around the highlight. Sensitive values must be hidden before: part of one would not be
// found.
func (s Snippet) cut() Snippet {
	var code strings.Builder
	start, end, at := s.Start, s.End, 0
	for i, line := range strings.Split(s.Code, "\n") {
		if i > 0 {
			code.WriteByte('\n')
		}
		from, to := 0, len(line)
		if to > maxSnippetLine {
			if s.Start >= at && s.Start <= at+len(line) {
				from = max(s.Start-at-snippetLead, 0)
			}
			for from > 0 && !utf8.RuneStart(line[from]) {
				from--
			}
			for to = min(from+maxSnippetLine, len(line)); to < len(line) && !utf8.RuneStart(line[to]); {
				to--
			}
		}
		before, after := "", ""
		if from > 0 {
			before = "…"
		}
		if to < len(line) {
			after = "…"
		}
		inner := func(offset int) int { return code.Len() + len(before) + min(max(offset-at-from, 0), to-from) }
		if s.Start >= at && s.Start <= at+len(line) {
			start = inner(s.Start)
		}
		if s.End >= at && s.End <= at+len(line) {
			end = inner(s.End)
		}
		code.WriteString(before + line[from:to] + after)
		at += len(line) + 1
	}
	s.Code, s.Start, s.End = code.String(), start, end
	return s
}
