package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// question is what has to be approved before something is done.
type question struct{ ask, explain string }

var (
	applyQuestion = question{
		"Do you want to perform these actions?",
		"eltrain will perform the actions described above.",
	}
	destroyQuestion = question{
		"Do you really want to destroy all jobs?",
		"eltrain will stop everything that is shown above. There is no undo.",
	}
)

// approved asks for a typed "yes". Anything else, the end of the input and an interrupt are a no.
func (s *session) approved(ctx context.Context, q question) bool {
	fmt.Fprintf(s.streams.Out, "\n%s\n  %s\n  Only 'yes' will be accepted to approve.\n\n  Enter a value: ", q.ask, q.explain)
	answer := make(chan string, 1)
	// A read of a terminal cannot be ended from here: after an interrupt this goroutine stays in it until the
	// process exits, which is next.
	go func() {
		line, err := bufio.NewReader(io.LimitReader(s.streams.In, 1<<10)).ReadString('\n')
		if err != nil && line == "" {
			line = "no"
		}
		answer <- strings.TrimSpace(line)
	}()
	select {
	case text := <-answer:
		fmt.Fprintln(s.streams.Out)
		return text == "yes"
	case <-ctx.Done():
		fmt.Fprintln(s.streams.Out)
		return false
	}
}
