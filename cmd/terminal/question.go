package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Question asks for approval before something is done.
type Question struct {
	Ask, Explain string
	Instead      string // the flag that skips the prompt
}

// Approved reads a "yes" from the input, typed or piped. Any other answer and an interrupt count as no; end of input is an
// error.
func (q Question) Approved(ctx context.Context, in io.Reader, out io.Writer) (yes bool, err error) {
	fmt.Fprintf(out, "\n%s\n  %s\n  Only 'yes' will be accepted to approve.\n\n  Enter a value: ", q.Ask, q.Explain)
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	// A read from a terminal cannot be canceled: after an interrupt this goroutine is blocked until the process exits,
	// which is next.
	go func() {
		line, err := bufio.NewReader(io.LimitReader(in, 1<<10)).ReadString('\n')
		answers <- answer{line, err}
	}()
	select {
	case given := <-answers:
		fmt.Fprintln(out)
		if given.err != nil && given.line == "" {
			return false, fmt.Errorf("the input ended without an answer (%w). To run without a prompt, use %s", given.err, q.Instead)
		}
		return strings.TrimSpace(given.line) == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false, nil
	}
}
