// Package logs shows what training processes print: of the slots that are asked for, once, or as it comes, also while the jobs are led.
package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/eltrain/eltrain/job"
)

// Source is a slot whose output is shown.
type Source struct {
	Slot   job.Address
	Prefix string // before each line; "" for none
	Only   string // show only lines with this prefix
	Bare   bool   // and show them without it
}

// Launched reports whether a slot was ever started.
func Launched(s job.Slot) bool { return s.Incarnation > 0 }

// HolderOf returns the slot that has a process rank in the newest world, and the slot's number of processes. A rank of -1
// matches none.
func HolderOf(record *job.Record, rank int) (slot job.Address, processes int, err error) {
	if rank < 0 {
		return job.Address{}, 0, nil
	}
	first := 0
	for _, m := range record.World.Members {
		if rank < first+m.Processes {
			return m.Slot, m.Processes, nil
		}
		first += m.Processes
	}
	if record.UID == "" {
		return job.Address{}, 0, errors.New("the ranks of a job that is gone are unknown: name a slot instead")
	}
	if len(record.World.Members) == 0 {
		return job.Address{}, 0, fmt.Errorf("there is no rank %d: no world has formed yet", rank)
	}
	return job.Address{}, 0, fmt.Errorf("there is no rank %d: the newest world has %d processes", rank, first)
}

// Open opens the output of one slot.
type Open func(ctx context.Context, slot job.Address) (io.ReadCloser, error)

// Print prints the slots' output in order, and returns the slots without output.
func Print(ctx context.Context, out io.Writer, sources []Source, open Open) (mute []job.Address, err error) {
	for _, source := range sources {
		switch err := source.copy(ctx, out, open); {
		case errors.Is(err, fs.ErrNotExist):
			mute = append(mute, source.Slot)
		case err != nil:
			return nil, err
		}
	}
	return mute, nil
}

// Follow shows the output of all slots as it comes, until ctx ends or all slots have ended.
func Follow(ctx context.Context, out io.Writer, sources []Source, open Open) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shared := &lockedWriter{w: out}
	errs := make([]error, len(sources))
	var readers sync.WaitGroup
	for i, source := range sources {
		readers.Go(func() {
			if errs[i] = source.copy(ctx, shared, open); errs[i] != nil {
				cancel()
			}
		})
	}
	readers.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// maxLine is where a longer line is broken, in bytes.
const maxLine = 64 << 10

// copy writes the slot's output line by line, each with one Write.
func (l Source) copy(ctx context.Context, out io.Writer, open Open) error {
	r, err := open(ctx, l.Slot)
	if err != nil {
		return err // the provider's error names the slot
	}
	defer r.Close()
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 && strings.HasPrefix(string(line), l.Only) {
			text := string(line)
			if l.Bare {
				text = text[len(l.Only):]
			}
			text = l.Prefix + text
			if !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("logs of %s: %w", l.Slot, err)
		}
	}
}

// lockedWriter keeps lines of several writers whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
