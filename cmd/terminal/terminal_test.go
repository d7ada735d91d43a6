package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

var question = Question{"Do it?", "It is done.", "-yes"}

func TestOnlyYesApproves(t *testing.T) {
	for input, want := range map[string]bool{"yes\n": true, "yes": true, " yes \n": true, "y\n": false, "YES\n": false, "no\n": false, "\n": false, "yes please\n": false} {
		var out bytes.Buffer
		if got, err := question.Approved(t.Context(), strings.NewReader(input), &out); got != want || err != nil {
			t.Errorf("%q approves: %t, %v", input, got, err)
		}
		if !strings.Contains(out.String(), "Only 'yes' will be accepted to approve.") {
			t.Errorf("the question is %q", out.String())
		}
	}
	if yes, err := question.Approved(t.Context(), strings.NewReader(""), io.Discard); yes || err == nil || !strings.Contains(err.Error(), "use -yes") {
		t.Errorf("the end of the input: %t, %v", yes, err)
	}
}

func TestAQuestionEndsWithAnInterrupt(t *testing.T) {
	defer goleak.VerifyNone(t)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if yes, err := question.Approved(ctx, r, io.Discard); yes || err != nil {
		t.Errorf("an interrupt approves: %t, %v", yes, err)
	}
	w.Close() // releases the read that an interrupt cannot cancel
}

// interrupted has n signals handled, and returns how often they cancel and exit.
func interrupted(n int, out io.Writer) (cancelled, exits int) {
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	for range n {
		signals <- syscall.SIGTERM
	}
	if n < 2 {
		close(done)
	}
	i := Interrupts{Out: out, Reply: func() string { return "It ends.\n" }, Exit: func() { exits++ }}
	i.handle(signals, done, func() { cancelled++ })
	return cancelled, exits
}

func TestTheSecondInterruptExits(t *testing.T) {
	var out bytes.Buffer
	if cancelled, exits := interrupted(2, &out); cancelled != 1 || exits != 1 {
		t.Errorf("two interrupts cancel %d times and exit %d times", cancelled, exits)
	}
	if out.String() != "It ends.\n\nTwo interrupts received. Exiting immediately.\n" {
		t.Errorf("the replies are %q", out.String())
	}
	if cancelled, exits := interrupted(0, io.Discard); cancelled != 0 || exits != 0 {
		t.Errorf("no interrupt cancels %d times and exits %d times", cancelled, exits)
	}
}

func TestHandlingEndsWithTheCommand(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, stop := Interrupts{}.Handle()
	if ctx.Err() != nil {
		t.Error("the context has ended before anything happened")
	}
	stop()
}

// unread is a terminal that blocks until it is closed.
type unread chan struct{}

func (u unread) Write(b []byte) (int, error) {
	<-u
	return len(b), nil
}

// An interrupt takes effect even if nobody reads its acknowledgment.
func TestInterruptsAreObeyedThoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen := make(unread)
		defer close(screen) // releases the writes that an interrupt cannot cancel
		if cancelled, exits := interrupted(2, screen); cancelled != 1 || exits != 1 {
			t.Errorf("two interrupts cancel %d times and exit %d times", cancelled, exits)
		}
	})
}

// A line is read further as long as the entry is unfinished, with another prompt; an entry cannot grow without bounds.
func TestEntry(t *testing.T) {
	unfinished := func(entry string) bool { return strings.Count(entry, "(") > strings.Count(entry, ")") }
	for typed, want := range map[string]struct {
		entry string
		more  bool
	}{
		"1 + 1\nrest\n": {"1 + 1\n", true},
		"(1,\n2)\nrest": {"(1,\n2)\n", true},
		"(1,\n":         {"(1,\n", false},
		"":              {"", false},
	} {
		rest := strings.SplitAfter(typed, "\n")
		prompts := ""
		entry, more, err := Entry(func(prompt string) (string, error) {
			prompts += prompt
			line := rest[0]
			if rest = rest[1:]; line == "" || !strings.HasSuffix(line, "\n") {
				return line, io.EOF
			}
			return line, nil
		}, unfinished)
		if entry != want.entry || more != want.more || err != nil {
			t.Errorf("of %q it reads %q, %t, %v", typed, entry, more, err)
		}
		if several := strings.Contains(prompts, promptRest); several != strings.Contains(typed, "(") {
			t.Errorf("for %q the prompts are %q", typed, prompts)
		}
	}
	if _, _, err := Entry(func(string) (string, error) { return "(\n", nil }, unfinished); err == nil {
		t.Error("an entry without end is read")
	}
	failed := errors.New("failed")
	if _, _, err := Entry(func(string) (string, error) { return "", failed }, unfinished); !errors.Is(err, failed) {
		t.Errorf("the error of a read becomes %v", err)
	}
}
