package agent

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck/probe"
)

// wantedCheck is the check that the order wants done now; nil if there is none. Nothing is checked beside training processes.
func (l *life) wantedCheck() *elastic.Check {
	if l.order.Do != elastic.Wait || l.state != job.MemberWaiting || l.procs != idle || l.ending != "" {
		return nil
	}
	return l.order.Check
}

func (l *life) endCheck() []effect {
	if l.check.End(l.wantedCheck()) {
		return []effect{disregard{}}
	}
	return nil
}

func (l *life) beginCheck() []effect {
	c := l.wantedCheck()
	switch work, exchange := l.check.Begin(c); {
	case work:
		return []effect{inspect{*c}}
	case exchange:
		return []effect{meet{*c}}
	}
	return nil
}

// exchanged takes the outcome of an exchange.
func (l *life) exchanged(e exchanged) []effect {
	if l.check.Exchanged(e.number, e.Exchanged) {
		return []effect{report{}}
	}
	return nil
}

// checked takes the outcome of a check.
func (l *life) checked(e checked) []effect {
	switch {
	case e.notStarted != nil && l.check.NotStarted(e.Number):
		l.state, l.exit = job.MemberFailed, e.notStarted
		return []effect{disregard{}, report{}}
	case e.notStarted == nil && l.check.Worked(e.Checked):
		return []effect{report{}}
	}
	return nil
}

// checker does the work of checks, one at a time. Its methods are called by the agent's loop.
type checker struct {
	launcher *launcher
	token    func() string // the job's
	events   chan<- event
	ctx      context.Context    // of the newest check
	cancel   context.CancelFunc // nil before the first
	done     chan struct{}      // closed once its work has ended
	part     func()             // ends the newest exchange, and returns when nothing of it runs
	listener *net.TCPListener   // for partners; nil if there can be none
}

func newChecker(l *launcher, token func() string, events chan<- event) *checker {
	return &checker{launcher: l, token: token, events: events, part: func() {}}
}

// begin begins a check. Its outcome follows as an event, when nothing of it runs.
func (c *checker) begin(check elastic.Check) {
	c.end()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.ctx, c.cancel, c.done = ctx, cancel, done
	port := c.listen()
	go func() {
		defer close(done)
		outcome := c.work(ctx, check)
		outcome.Port = port
		killStrays()
		select {
		case c.events <- outcome:
		case <-ctx.Done():
		}
	}()
}

// end ends the work in progress, and returns when nothing of it runs: within seconds, whatever the program does.
func (c *checker) end() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	<-c.done
	c.part()
	if c.listener != nil {
		c.listener.Close()
		c.listener = nil
	}
}

// listen opens the port for partners, and returns it; 0 if there is none.
func (c *checker) listen() int {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		c.launcher.log.Warn("no partner can exchange data with this node", "error", err)
		return 0
	}
	c.listener = l.(*net.TCPListener)
	return c.listener.Addr().(*net.TCPAddr).Port
}

// meet exchanges data with a partner. The outcome follows as an event. An exchange before it is over: all use one listener.
func (c *checker) meet(check elastic.Check) {
	c.part()
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	c.part = func() {
		cancel()
		<-done
	}
	listener, pair := c.listener, *check.Pair
	x := probe.Exchange{Key: c.key(pair)}
	go func() {
		defer close(done)
		bounded, cancel := context.WithTimeout(ctx, time.Duration(pair.Seconds*float64(time.Second)))
		defer cancel()
		out := job.Exchanged{}
		if pair.Address != "" {
			out = x.Dial(bounded, pair.Address)
		} else {
			out = x.Accept(bounded, listener)
		}
		out.Set, out.Round = pair.Set, pair.Round
		text := "passed"
		if out.Failed != "" {
			text = "failed: " + out.Failed
		}
		fmt.Fprintf(c.launcher.sink, "[eltrain] node check: exchange with %s after %.1fs: %s\n", pair.Peer, out.Seconds, text)
		select {
		case c.events <- exchanged{check.Number, out}:
		case <-ctx.Done():
		}
	}()
}

// key is known to the members of the job alone, and to each pair another: it is made of the job's token.
func (c *checker) key(pair elastic.Pair) []byte {
	config := c.launcher.config
	slots := []string{config.Slot, pair.Peer}
	slices.Sort(slots)
	mac := hmac.New(sha256.New, []byte(c.token()))
	fmt.Fprintf(mac, "eltrain node check\x00%s\x00%d\x00%d\x00%s", config.UID, pair.Set, pair.Round, strings.Join(slots, "\x00"))
	return mac.Sum(nil)
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
		out.Checked = r.Own(ctx, ownCheck())
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
	case out.Unknown:
		text = "could not tell: " + out.Message
	case out.Failed != "":
		text = fmt.Sprintf("failed: %s: %s", out.Failed, out.Message)
	}
	fmt.Fprintf(c.launcher.sink, "[eltrain] node check after %.1fs: %s\n", out.Seconds, text)
	return out
}

// ownCheck is the command of the agent's program that checks the node in a process of its own: what it needs of memory is given back at its
// end, and if there is none, the agent lives on.
func ownCheck() []string {
	program := "/proc/self/exe" // it may have been replaced on disk
	if _, err := os.Stat(program); err != nil {
		program, _ = os.Executable() // "" cannot be started, which is said
	}
	command := []string{program}
	if len(os.Args) > 1 && os.Args[1] == "agent" { // of eltrain, not eltrain-agent
		command = append(command, os.Args[1])
	}
	return append(command, job.AgentCheck)
}

// checkHere checks the node in this process, which is the first that the kernel ends when memory runs out.
func checkHere(w io.Writer) error {
	runtime.GOMAXPROCS(min(maxProcs, runtime.GOMAXPROCS(0)))
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // only Linux has it
	return probe.Patterns(w)
}

// checkEnviron is the environment of a program that checks the node: what the user declared, the node, and the slot.
func checkEnviron(base []string, c *job.AgentConfig) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(job.ProcessVariables, name)
	})
	return append(env, "ELTRAIN_JOB="+c.Job, "ELTRAIN_ROLE="+roleOf(c.Slot), "ELTRAIN_SLOT="+c.Slot, "ELTRAIN_NODE="+c.Node)
}
