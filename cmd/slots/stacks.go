package slots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

const (
	// stacksWait bounds how long one slot is waited for: its processes are asked one after the other.
	stacksWait = 30 * time.Second
	// stacksAtOnce is how many slots are asked at the same time.
	stacksAtOnce = 32
	// maxStacks bounds the answer of one slot.
	maxStacks = 16 << 20
)

// Stacks asks all slots what their training processes do. found and unreachable are in no order.
func Stacks(ctx context.Context, asked map[job.Address]Slot) (found []view.SlotStacks, unreachable []view.Unreachable) {
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(stacksAtOnce)
	for address, slot := range asked {
		all.Go(func() error {
			processes, err := slot.stacks(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unreachable = append(unreachable, view.Unreachable{Slot: address, Why: view.Explain(err)})
			} else {
				found = append(found, view.SlotStacks{Slot: address, Processes: processes})
			}
			return nil
		})
	}
	all.Wait()
	return found, unreachable
}

// stacks asks one slot.
func (l *Slot) stacks(ctx context.Context) ([]job.ProcessStacks, error) {
	ctx, cancel := context.WithTimeout(ctx, stacksWait)
	defer cancel()
	out, err := newCapture()
	if err != nil {
		return nil, err
	}
	defer out.close()
	errs, err := newCapture()
	if err != nil {
		return nil, err
	}
	defer errs.close()
	code, err := l.Run(ctx, providers.Command{Agent: true, Args: []string{job.AgentStacks}, Stdout: out.end, Stderr: errs.end})
	text, said := out.close(), errs.close()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer within %s", stacksWait)
	case err != nil:
		return nil, err
	case code != 0:
		if why := strings.TrimSpace(strings.TrimPrefix(string(said), "eltrain-agent: ")); why != "" {
			return nil, errors.New(why)
		}
		return nil, fmt.Errorf("what was to read them ended with code %d: perhaps its slot was being stopped. Try again", code)
	}
	var stacks []job.ProcessStacks
	if err := json.Unmarshal(text, &stacks); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return stacks, nil
}

// capture reads what is written to a pipe.
type capture struct {
	end  *os.File // for the writer
	read *os.File
	done chan struct{}
	text bytes.Buffer
}

func newCapture() (*capture, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &capture{end: w, read: r, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		io.Copy(&c.text, io.LimitReader(r, maxStacks))
		io.Copy(io.Discard, r) // the writer must not block
	}()
	return c, nil
}

// close returns all that was written, by now if somebody still holds the pipe. It can be called again.
func (c *capture) close() []byte {
	c.end.Close()
	c.read.SetReadDeadline(time.Now().Add(captureDrain))
	<-c.done
	c.read.Close()
	return c.text.Bytes()
}

// captureDrain bounds the wait for a pipe that a process left behind holds open.
const captureDrain = time.Second
