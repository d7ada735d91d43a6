package view

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// sources are the files that diagnostics quote. Each is looked through once for all that are about it: there may be a
// thousand, and the file may have megabytes.
type sources struct {
	files  map[string]*hcl.File
	looked map[string]*source
}

func newSources(files map[string]*hcl.File) *sources {
	return &sources{files: files, looked: map[string]*source{}}
}

// source is nil for a file whose content is not there.
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

// source is a file, its text, and the byte at which each line of it begins. What is quoted shares the text: a generated file
// may be one line of megabytes.
type source struct {
	body   hcl.Body
	text   string
	starts []int
}

func newSource(file *hcl.File) *source {
	s := &source{body: file.Body, text: string(file.Bytes)}
	s.starts = make([]int, 0, strings.Count(s.text, "\n")+1)
	for at := 0; at < len(s.text); { // after a newline that ends the file is no empty line
		s.starts = append(s.starts, at)
		end := strings.IndexByte(s.text[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	return s
}

// lines are those from the first to the last, counted from 1, without what ends the last, and the byte at which they begin.
// There must be such lines.
func (s *source) lines(first, last int) (text string, at int) {
	at, end := s.starts[first-1], len(s.text)
	if last < len(s.starts) {
		end = s.starts[last]
	}
	text = strings.TrimSuffix(s.text[at:end], "\n")
	return strings.TrimSuffix(text, "\r"), at
}

// header is that of the outermost block around a byte, as `job "mnist"`; "" if there is none.
func (s *source) header(offset int) string {
	body, ok := s.body.(*hclsyntax.Body)
	if !ok {
		return ""
	}
	// They are in the order of the file.
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

// snippet is the lines of shown, and where in them the subject is.
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
		return out // the end of the file, or no place in it
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
// subject stay, to be seen where it is.
const (
	maxSnippetLine = 240
	snippetLead    = 60
)

// cut is s with its long lines cut off around what is pointed at. Sensitive values must be hidden before: of half of
// one nobody can tell that it is.
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
