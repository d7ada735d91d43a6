package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/eltrain/eltrain/providers"
)

// Lend gives a command a terminal like the one that this process has, if it has one: with its sizes, and with its input as it is
// typed, so that Ctrl-C reaches the command. restore ends that.
func Lend(ctx context.Context, c *providers.Command) (restore func(), err error) {
	own := c.Stdout
	if c.Stdin != nil {
		own = c.Stdin
		before, err := term.MakeRaw(int(own.Fd()))
		if err != nil {
			return nil, err
		}
		defer func() {
			stop := restore
			restore = func() {
				stop()
				term.Restore(int(own.Fd()), before)
			}
		}()
	}
	ctx, cancel := context.WithCancel(ctx)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	sizes, done := make(chan providers.TerminalSize), make(chan struct{})
	c.Sizes = sizes
	go func() {
		defer close(done)
		defer close(sizes)
		for {
			if columns, lines, err := term.GetSize(int(own.Fd())); err == nil {
				select {
				case sizes <- providers.TerminalSize{Columns: uint16(columns), Lines: uint16(lines)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		cancel()
		<-done
	}, nil
}
