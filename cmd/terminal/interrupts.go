// Package terminal is how a command deals with who runs it: interrupts, questions, lines that are typed, and a terminal that is lent to
// another process. It must not know the commands.
package terminal

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Interrupts is what SIGINT and SIGTERM do to a run: the first ends it in order, the second at once.
type Interrupts struct {
	Out   io.Writer     // for the replies
	Reply func() string // to the first
	Exit  func()        // ends the process
}

// Handle returns a context that the first signal cancels. stop restores the signals; call it once.
func (i Interrupts) Handle() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() { i.handle(signals, done, cancel) })
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		owned.Wait()
		cancel()
	}
}

// ackTimeout bounds the wait for printing that an interrupt was received.
const ackTimeout = time.Second

// acknowledge prints that an interrupt was received, before anything is done about it. It does not wait for a blocked
// reader: the write cannot be canceled, and is abandoned.
func (i Interrupts) acknowledge(text string) {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		io.WriteString(i.Out, text)
	}()
	select {
	case <-printed:
	case <-time.After(ackTimeout):
	}
}

// handle handles up to two signals.
func (i Interrupts) handle(signals <-chan os.Signal, done <-chan struct{}, cancel func()) {
	select {
	case <-signals:
	case <-done:
		return
	}
	i.acknowledge(i.Reply())
	cancel()
	select {
	case <-signals:
	case <-done:
		select {
		case <-signals: // it came before done
		default:
			return
		}
	}
	i.acknowledge("\nTwo interrupts received. Exiting immediately.\n")
	i.Exit()
}
