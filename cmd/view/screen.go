// Package view is what people and machines see of eltrain: diagnostics, plans, progress, status and events,
// as text and as JSON. Each has one model, and the text is made from that model.
//
// It decides nothing and reads nothing by itself. It must not know providers, stores' contents or HCL
// beyond diagnostics. Every text that may contain a user's value passes a Redactor, and control characters in programs'
// output, and those that reorder text, are escaped.
package view

import (
	"io"
	"os"
	"strings"

	"github.com/mitchellh/go-wordwrap"
	"golang.org/x/term"
)

// Screen is one output. Colour is set only if it is a terminal that understands escape sequences and the user wants them. Width
// is in columns; 0 means lines are never wrapped.
type Screen struct {
	io.Writer
	Terminal bool
	Colour   bool
	Width    int
	// Size returns the current size of a terminal on which the cursor can be moved; nil for any other output.
	Size func() (columns, lines int)
}

// Streams are a command's input and outputs. Results go to Out, diagnostics to Err.
type Streams struct {
	In io.Reader
	// Interactive: a person sits at In, so a question will be answered.
	Interactive bool
	Out, Err    Screen
}

// Kept writes text that is stored, and therefore the same for every terminal.
func Kept(w io.Writer) Screen { return Screen{Writer: w, Width: defaultWidth} }

// defaultWidth is used to wrap text if the output is not a terminal.
const defaultWidth = 78

// Standard returns the process's own streams. Colour is used on a terminal unless the environment has a
// non-empty NO_COLOR (no-color.org) or TERM=dumb.
func Standard() *Streams {
	colours := os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &Streams{
		In:          os.Stdin,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())),
		Out:         fileScreen(os.Stdout, colours),
		Err:         fileScreen(os.Stderr, colours),
	}
}

func fileScreen(f *os.File, colours bool) Screen {
	s := Screen{Writer: f, Width: defaultWidth}
	if !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal, s.Colour = true, colours
	if os.Getenv("TERM") != "dumb" {
		s.Size = func() (columns, lines int) {
			columns, lines, _ = term.GetSize(int(f.Fd()))
			return columns, lines
		}
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 20 {
		s.Width = width
	}
	return s
}

// style is an SGR escape sequence.
type style string

const (
	reset     style = "\x1b[0m"
	bold      style = "\x1b[1m"
	faint     style = "\x1b[2m"
	underline style = "\x1b[4m"
	red       style = "\x1b[31m"
	green     style = "\x1b[32m"
	yellow    style = "\x1b[33m"
	cyan      style = "\x1b[36m"
)

// paint wraps text in styles if the screen has colors.
func (s Screen) paint(text string, styles ...style) string {
	if !s.Colour || text == "" {
		return text
	}
	var b strings.Builder
	for _, st := range styles {
		b.WriteString(string(st))
	}
	b.WriteString(text)
	b.WriteString(string(reset))
	return b.String()
}

// wrap breaks lines at width columns. It keeps a line that begins with a space, which is already laid out.
func wrap(text string, width int) string {
	if width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			lines[i] = wordwrap.WrapString(line, uint(width))
		}
	}
	return strings.Join(lines, "\n")
}

// plural writes a count with its noun: "1 slot", "3 slots".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return itoa(n) + " " + noun + "s"
}
