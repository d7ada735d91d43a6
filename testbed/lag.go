package testbed

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// delayedWriter forwards an answer's body with a delay, in order. Only its own goroutine writes to the client once the header is
// sent.
type delayedWriter struct {
	http.ResponseWriter
	ctx   context.Context
	lag   time.Duration
	parts chan latePart
	done  chan struct{}
}

type latePart struct {
	due  time.Time
	text []byte
}

// lagQueue is how many parts of a body may be delayed before the API server has to wait.
const lagQueue = 1024

// newDelayedWriter starts it; close stops it. What is not due when ctx ends is dropped, as on a broken connection.
func newDelayedWriter(ctx context.Context, w http.ResponseWriter, lag time.Duration) *delayedWriter {
	l := &delayedWriter{ResponseWriter: w, ctx: ctx, lag: lag, parts: make(chan latePart, lagQueue), done: make(chan struct{})}
	go l.deliver()
	return l
}

func (l *delayedWriter) deliver() {
	defer close(l.done)
	flusher := http.NewResponseController(l.ResponseWriter)
	for part := range l.parts {
		select {
		case <-time.After(time.Until(part.due)):
		case <-l.ctx.Done():
			continue
		}
		if _, err := l.ResponseWriter.Write(part.text); err == nil {
			_ = flusher.Flush() // the client went away
		}
	}
}

// Write implements http.ResponseWriter. It keeps a copy and returns at once.
func (l *delayedWriter) Write(text []byte) (int, error) {
	if !l.enter(latePart{time.Now().Add(l.lag), bytes.Clone(text)}) {
		return 0, l.ctx.Err()
	}
	return len(text), nil
}

// Flush implements http.Flusher. Each part is flushed when it is due; a flush before any is of the header, which is not
// delayed: a watch is open before its first event.
func (l *delayedWriter) Flush() { l.enter(latePart{}) }

func (l *delayedWriter) enter(part latePart) bool {
	select {
	case l.parts <- part:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// close waits until all received parts were forwarded.
func (l *delayedWriter) close() {
	close(l.parts)
	<-l.done
}
