package view

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Watch shows a model again and again: redrawn in place on a terminal, and in blocks or lines of JSON elsewhere, one whenever
// something has changed.
type Watch struct {
	Screen Screen
	JSON   bool
	Now    func() time.Time

	begun bool
	drawn string // on a terminal
}

// StatusWatch is a Watch of a status.
type StatusWatch struct {
	Watch
	Brief bool // see WriteStatus

	shown StatusModel
}

// Show shows a status, if it differs from the one before. It returns an error of writing.
func (w *StatusWatch) Show(m StatusModel) error {
	same := w.begun && m.Same(w.shown)
	w.shown = m
	return w.show(m, same, func(s Screen) { WriteStatus(s, m, w.Brief) })
}

// show shows a model, which write writes for people. same: it is like the one before.
func (w *Watch) show(m any, same bool, write func(Screen)) error {
	first := !w.begun
	if w.begun = true; w.JSON {
		if same {
			return nil
		}
		enc := json.NewEncoder(w.Screen)
		enc.SetEscapeHTML(false)
		return enc.Encode(m)
	}
	var text bytes.Buffer
	s := w.Screen
	s.Writer = &text
	write(s)
	if w.Screen.Size != nil {
		return w.draw(text.String(), first)
	}
	if same {
		return nil
	}
	head := ""
	if !first {
		head = "\n"
	}
	_, err := io.WriteString(w.Screen, head+clock(w.Now())+"\n"+text.String())
	return err
}

// Overwritten notes that something else was written to the terminal.
func (w *Watch) Overwritten() { w.drawn = "" }

// Control sequences of terminals.
const (
	clearScreen = "\x1b[H\x1b[2J"
	home        = "\x1b[H"
	clearLine   = "\x1b[K" // to its end
	clearBelow  = "\x1b[J"
)

// draw replaces what the terminal shows. What does not fit is left out, since a terminal that scrolls would not be drawn in
// place.
func (w *Watch) draw(text string, first bool) error {
	begin := home
	if first {
		begin = clearScreen
	}
	columns, rows := w.Screen.Size()
	now := strings.ReplaceAll(fitting(text, columns, rows), "\n", clearLine+"\n") + clearBelow
	if now == w.drawn {
		return nil
	}
	w.drawn = now
	_, err := io.WriteString(w.Screen, begin+now)
	return err
}

var painted = regexp.MustCompile("\x1b\\[[0-9;]*m")

// fitting returns the lines of a text that fit a terminal, and how many do not. A line that is too long takes several rows; the
// last row is the cursor's.
func fitting(text string, columns, rows int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	height := func(line string) int {
		width := utf8.RuneCountInString(painted.ReplaceAllString(strings.TrimSuffix(line, "\n"), ""))
		return max(1, (width+columns-1)/max(1, columns))
	}
	used := 0
	for i, line := range lines {
		used += height(line)
		if used < rows || rows <= 2 || columns <= 0 {
			continue
		}
		for used > rows-2 && i > 0 { // a row is for the note
			used -= height(lines[i])
			i--
		}
		return strings.Join(lines[:i+1], "") + "... " + plural(len(lines)-i-1, "more line") + "\n"
	}
	return strings.Join(lines, "") + "\n"
}
