package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// interruptible returns a context that the first SIGINT or SIGTERM cancels: changes in flight are finished, and the rest
// keeps running. The second signal exits at once. stop restores the signals; call it once.
func (s *session) interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() { s.handleSignals(signals, done, cancel) })
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		owned.Wait()
		cancel()
	}
}

// The replies to a first interrupt, in general and at the approval prompt, where nothing was started.
const (
	interruptedAtWork = `
Interrupt received.
Please wait for eltrain to finish what is in flight; everything else keeps running.
A second interrupt exits at once.

`
	interruptedAsking = "\n\nInterrupt received. Nothing was started.\n"
)

// ackTimeout bounds the wait for printing that an interrupt was received.
const ackTimeout = time.Second

// acknowledge prints that an interrupt was received, before anything is done about it. It does not wait for a blocked
// reader: the write cannot be canceled, and is abandoned.
func (s *session) acknowledge(text string) {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		io.WriteString(s.streams.Err, text)
	}()
	select {
	case <-printed:
	case <-time.After(ackTimeout):
	}
}

// handleSignals handles up to two signals.
func (s *session) handleSignals(signals <-chan os.Signal, done <-chan struct{}, cancel func()) {
	select {
	case <-signals:
	case <-done:
		return
	}
	reply := cmp.Or(s.interrupted, interruptedAtWork)
	if s.asking.Load() {
		reply = interruptedAsking
	}
	s.acknowledge(reply)
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
	s.acknowledge("\nTwo interrupts received. Exiting immediately.\n")
	s.exit(exitError)
}

// detached lets a run outlive the reader of its output: `eltrain apply | head` must not die of SIGPIPE in
// the middle of a change. The first failed write counts as an interrupt instead. Call release once.
//
// It is for commands that change something, or whose exit code matters: see outlive. The others only show something, and die
// of SIGPIPE as other tools do.
func (s *session) detached(ctx context.Context) (run context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	// Catching SIGPIPE makes the write return an error. Ignoring it would too, but agents would inherit that.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGPIPE)
	s.streams.Out.Writer = &pipe{Writer: s.streams.Out.Writer, broken: cancel}
	return ctx, func() {
		signal.Stop(caught)
		cancel()
	}
}

// outlive is detached for short work that needs no interrupt. Call the returned function once, at the end.
func (s *session) outlive() (release func()) {
	_, release = s.detached(context.Background())
	return release
}

// pipe calls broken when its reader is gone, and then discards what is written.
type pipe struct {
	io.Writer
	broken func()
}

func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.broken()
		return len(b), nil
	}
	return n, err
}
