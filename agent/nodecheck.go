package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck/probe"
)

// nodeCheck is what life knows of checks of the node.
type nodeCheck struct {
	begun int          // the number of the newest that was begun
	runs  bool         // it has not ended
	done  *job.Checked // the newest that has ended
}

// wantedCheck is the check that the order wants done now; nil if there is none. Nothing is checked beside training processes.
func (l *life) wantedCheck() *elastic.Check {
	if l.order.Do != elastic.Wait || l.state != job.MemberWaiting || l.procs != idle || l.ending != "" {
		return nil
	}
	return l.order.Check
}

// endCheck ends a check that is not wanted any more. It is begun anew if it is wanted again.
func (l *life) endCheck() []effect {
	if c := l.wantedCheck(); !l.check.runs || c != nil && c.Number == l.check.begun {
		return nil
	}
	l.check.runs, l.check.begun = false, l.check.begun-1
	return []effect{disregard{}}
}

// beginCheck begins the check that is wanted, unless it was begun.
func (l *life) beginCheck() []effect {
	c := l.wantedCheck()
	if c == nil || c.Number <= l.check.begun {
		return nil
	}
	l.check.begun, l.check.runs = c.Number, true
	return []effect{inspect{*c}}
}

// checked takes the outcome of a check. A program that cannot be started says nothing about the node.
func (l *life) checked(e checked) []effect {
	if !l.check.runs || e.Number != l.check.begun {
		return nil
	}
	l.check.runs = false
	if e.notStarted != nil {
		l.state, l.exit, l.check.begun = job.MemberFailed, e.notStarted, l.check.begun-1
		return []effect{report{}}
	}
	l.check.done = &e.Checked
	return []effect{report{}}
}

// checker does the work of checks, one at a time. Its methods are called by the agent's loop.
type checker struct {
	launcher *launcher
	events   chan<- event
	cancel   context.CancelFunc // of the newest work
	done     chan struct{}      // closed once that has ended; nil before the first
}

func newChecker(l *launcher, events chan<- event) *checker {
	return &checker{launcher: l, events: events}
}

// begin begins a check. Its outcome follows as an event, when nothing of it runs.
func (c *checker) begin(check elastic.Check) {
	c.end()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.cancel, c.done = cancel, done
	go func() {
		defer close(done)
		outcome := c.work(ctx, check)
		killStrays()
		select {
		case c.events <- outcome:
		case <-ctx.Done():
		}
	}()
}

// end ends the work in progress, and returns when nothing of it runs: within seconds, whatever the program does.
func (c *checker) end() {
	if c.done != nil {
		c.cancel()
		<-c.done
	}
}

// busy reports whether a check may have processes.
func (c *checker) busy() bool {
	select {
	case <-c.done:
		return false
	default:
		return c.done != nil
	}
}

// work does a check, and says in the log what came of it.
func (c *checker) work(ctx context.Context, check elastic.Check) checked {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(check.Seconds*float64(time.Second)))
	defer cancel()
	config := c.launcher.config
	r := probe.Runner{Start: c.launcher.forker.start, Attributes: attributes(), Env: checkEnviron(c.launcher.base, config), Dir: config.WorkingDir}
	out := checked{}
	if len(check.Command) == 0 {
		out.Checked = r.Own(ctx)
	} else if done, err := r.Program(ctx, check.Command); err != nil {
		out.notStarted = notStarted(0, fmt.Errorf("node check: %w", err))
	} else {
		out.Checked = done
	}
	out.Number = check.Number
	text := "passed"
	switch {
	case out.notStarted != nil:
		text = out.notStarted.NotStarted
	case out.Failed != "":
		text = fmt.Sprintf("failed: %s: %s", out.Failed, out.Message)
	}
	fmt.Fprintf(c.launcher.sink, "[eltrain] node check after %.1fs: %s\n", out.Seconds, text)
	return out
}

// checkEnviron is the environment of a program that checks the node: what the user declared, the node, and the slot.
func checkEnviron(base []string, c *job.AgentConfig) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(job.ProcessVariables, name)
	})
	return append(env, "ELTRAIN_JOB="+c.Job, "ELTRAIN_ROLE="+roleOf(c.Slot), "ELTRAIN_SLOT="+c.Slot, "ELTRAIN_NODE="+c.Node)
}
