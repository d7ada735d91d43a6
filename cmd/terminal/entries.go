package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// The prompts for an expression and for its further lines.
const (
	prompt     = "> "
	promptRest = ": "
)

// maxEntryLines bounds one expression: with each new line all of it is parsed again.
const maxEntryLines = 1000

// Entry reads lines until they form a complete expression. more is false at the end of the input.
func Entry(line func(prompt string) (string, error), unfinished func(entry string) bool) (entry string, more bool, err error) {
	ask := prompt
	for range maxEntryLines {
		text, err := line(ask)
		entry += text
		switch {
		case errors.Is(err, io.EOF):
			return entry, false, nil
		case err != nil:
			return "", false, err
		case !unfinished(entry):
			return entry, true, nil
		}
		if !strings.HasSuffix(entry, "\n") {
			entry += "\n"
		}
		ask = promptRest
	}
	return "", false, fmt.Errorf("an expression is longer than %d lines: a bracket may not be closed", maxEntryLines)
}

// Prompter reads lines from a terminal, with editing and history.
type Prompter struct {
	keyboard *os.File
	terminal *term.Terminal
}

// NewPrompter has a keyboard and a screen of the same terminal.
func NewPrompter(keyboard *os.File, screen io.Writer) *Prompter {
	both := struct {
		io.Reader
		io.Writer
	}{keyboard, screen}
	return &Prompter{keyboard, term.NewTerminal(both, prompt)}
}

// Line reads one line. It restores the terminal's mode before it returns.
func (p *Prompter) Line(prompt string) (text string, err error) {
	usual, err := term.MakeRaw(int(p.keyboard.Fd()))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, term.Restore(int(p.keyboard.Fd()), usual)) }()
	p.terminal.SetPrompt(prompt)
	text, err = p.terminal.ReadLine()
	if errors.Is(err, term.ErrPasteIndicator) {
		err = nil
	}
	return text, err
}
