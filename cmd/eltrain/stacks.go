package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
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

type stacksArgs struct {
	json      bool
	vars      assignments
	selectors []job.Selector
}

func (a *stacksArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	a.vars.declare(fs)
	declareTrust(fs)
}

func stacksCommand() *command {
	return &command{
		name: "stacks", usage: "[options] [ADDRESS...]",
		synopsis: "Show what training processes do right now",
		about: `Shows the stacks of the training processes in the slots that the ADDRESSes name, or of all jobs, and of what they started. Processes
with equal stacks are shown once.

The stacks are those of Python if py-spy is installed in the slots, and may trace there, or if the script has registered
faulthandler:

    faulthandler.register(signal.SIGUSR2, file=open(os.environ["ELTRAIN_STACKS_FILE"], "w"))

Otherwise they are what the kernel tells of each thread. Nothing is signalled that does not handle it.`,
		exits: []string{
			"The stacks of at least one process are shown; slots without are named.",
			"No slot could be asked, or an error.",
		},
		declare: new(stacksArgs).declare,
		run:     runStacks,
	}
}

func runStacks(s *session, args []string) int {
	var a stacksArgs
	others, err := s.parse(newFlags("stacks", a.declare), args, manyArguments)
	if err == nil {
		a.selectors, err = selectors(others)
	}
	if err != nil {
		return s.misused("stacks", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, records, ok := s.openRecords(ctx, a.vars)
	if !ok {
		return exitError
	}
	defer d.Close()
	if len(others) == 0 {
		for _, name := range slices.Sorted(maps.Keys(records)) {
			if !records[name].Phase.Ended() {
				a.selectors = append(a.selectors, job.Selector{Job: name})
			}
		}
	}
	asked := map[job.Address]liveSlot{}
	for _, sel := range a.selectors {
		named, err := s.slotsNamed(ctx, d, records, sel)
		if err != nil {
			return s.fail("Cannot read the stacks", err)
		}
		for _, slot := range named {
			asked[slot.Address] = slot
		}
	}
	if len(asked) == 0 {
		return s.fail("Cannot read the stacks", errors.New("no job runs"))
	}
	found, unreachable := readStacks(ctx, asked)
	if ctx.Err() != nil {
		return exitInterrupted
	}
	model := view.NewStacks(found, unreachable, &s.redactor)
	if a.json {
		err = view.WriteJSON(s.streams.Out, model)
	} else {
		err = view.WriteStacks(s.streams.Out, model)
	}
	switch {
	case err != nil:
		return s.fail("Cannot show the stacks", err)
	case len(found) == 0:
		return exitError
	}
	return exitDone
}

// readStacks asks all slots.
func readStacks(ctx context.Context, asked map[job.Address]liveSlot) (found []view.SlotStacks, unreachable []view.Unreachable) {
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
func (l *liveSlot) stacks(ctx context.Context) ([]job.ProcessStacks, error) {
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
	code, err := l.run(ctx, providers.Command{Agent: true, Args: []string{job.AgentStacks}, Stdout: out.end, Stderr: errs.end})
	text, said := out.close(), errs.close()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer within %s", stacksWait)
	case err != nil:
		return nil, err
	case code != 0:
		return nil, errors.New(strings.TrimSpace(strings.TrimPrefix(string(said), "eltrain-agent: ")))
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
