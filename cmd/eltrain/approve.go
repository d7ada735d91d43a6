package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// question asks for approval before something is done.
type question struct {
	ask, explain string
	instead      string // the flag that skips the prompt
}

var (
	applyQuestion = question{
		"Do you want to perform these actions?",
		"eltrain will perform the actions described above.",
		"-auto-approve",
	}
	destroyQuestion = question{
		"Do you really want to destroy all jobs?",
		"eltrain will stop everything that is shown above. There is no undo.",
		"-auto-approve",
	}
)

// approved reads a "yes" from the input, typed or piped. Any other answer and an interrupt count as no; end of input is an
// error.
func (s *session) approved(ctx context.Context, q question) (yes bool, err error) {
	s.asking.Store(true)
	defer s.asking.Store(false)
	fmt.Fprintf(s.streams.Out, "\n%s\n  %s\n  Only 'yes' will be accepted to approve.\n\n  Enter a value: ", q.ask, q.explain)
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	// A read from a terminal cannot be canceled: after an interrupt this goroutine is blocked until the process exits,
	// which is next.
	go func() {
		line, err := bufio.NewReader(io.LimitReader(s.streams.In, 1<<10)).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	case given := <-answers:
		fmt.Fprintln(s.streams.Out)
		if given.err != nil && given.line == "" {
			return false, fmt.Errorf("the input ended without an answer (%w). To run without a prompt, use %s", given.err, q.instead)
		}
		return strings.TrimSpace(given.line) == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(s.streams.Out)
		return false, nil
	}
}
