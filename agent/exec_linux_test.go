package agent

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/execsocket"
	"github.com/eltrain/eltrain/job"
)

// call is a command that runs in the slot of a bench.
type call struct {
	execsocket.Conn
	stdin       *os.File
	out, errors *os.File
}

// dial connects to the agent and sends a command, with pipes as its streams.
func (b *bench) dial(t *testing.T, command ...string) *call {
	t.Helper()
	conn, err := execsocket.Dial(t.Context(), b.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &call{Conn: conn}
	var theirs [3]*os.File
	for i, ours := range []**os.File{&c.stdin, &c.out, &c.errors} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		theirs[i], *ours = w, r
		if i == 0 {
			theirs[i], *ours = r, w
		}
	}
	err = conn.Send(execsocket.Request{Command: command}, theirs)
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for _, f := range []*os.File{c.stdin, c.out, c.errors} {
			f.Close()
		}
	})
	return c
}

// await returns the reply, and what the command wrote.
func (c *call) await(t *testing.T) (r execsocket.Reply, out, errors string) {
	t.Helper()
	c.stdin.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	o, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	e, err := io.ReadAll(c.errors)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = c.Await(); err != nil {
		t.Fatal(err)
	}
	return r, string(o), string(e)
}

// line reads one line of the command's output.
func (c *call) line(t *testing.T) string {
	t.Helper()
	c.out.SetReadDeadline(time.Now().Add(patience))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := c.out.Read(one); err != nil {
			t.Fatalf("%v after %q", err, line)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

func TestCommandRunsInTheEnvironmentOfTheProcesses(t *testing.T) {
	t.Parallel()
	// Longer than a socket's address can be.
	b := newBench(t, time.Second, "sh", "-c", `env > "$OUT.tmp"; mv "$OUT.tmp" "$OUT"; sleep 60`)
	b.config.Dir = filepath.Join(b.dir, strings.Repeat("d", 100), "agent")
	b.config.WorkingDir = b.dir
	if err := os.MkdirAll(filepath.Dir(b.config.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	a := b.launch(t, "OUT="+filepath.Join(b.dir, "env"), "MINE=yes")
	b.service.run(7, 1)
	b.service.awaitState(t, job.MemberRunning, 7)
	eventually(t, "the environment", func() bool { return b.read("env") != "" })

	r, out, _ := b.dial(t, "env").await(t)
	own := regexp.MustCompile(`(?m)^(_|SHLVL|OLDPWD)=.*\n`) // a shell's
	want := regexp.MustCompile(`(?m)^TORCHELASTIC_ERROR_FILE=.*\n`).ReplaceAllString(b.read("env"), "")
	if want == b.read("env") {
		t.Error("the process has no error file")
	}
	if sortedLines(own.ReplaceAllString(out, "")) != sortedLines(own.ReplaceAllString(want, "")) || r.Code != 0 {
		t.Errorf("exit code %d, the environment is\n%s\nwant\n%s", r.Code, out, want)
	}

	c := b.dial(t, "sh", "-c", `read word; echo "$word" in $(/bin/pwd); echo wrong >&2; exit 7`)
	io.WriteString(c.stdin, "hello\n")
	real, err := filepath.EvalSymlinks(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, out, errors := c.await(t); r.Code != 7 || out != "hello in "+real+"\n" || errors != "wrong\n" {
		t.Errorf("exit code %d, output %q, errors %q", r.Code, out, errors)
	}
	if r, _, _ := b.dial(t, "sh", "-c", "kill -9 $$").await(t); r.Code != 137 {
		t.Errorf("killed: exit code %d", r.Code)
	}
	if r, _, _ := b.dial(t, "no-such-command-here").await(t); r.Code != 127 || !strings.Contains(r.NotRun, "no-such-command-here") {
		t.Errorf("no such command: %+v", r)
	}
	if dir, err := os.Stat(b.config.Dir); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", dir, err)
	}
	if socket, err := os.Stat(filepath.Join(b.config.Dir, "exec.sock")); err != nil || socket.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", socket, err)
	}
	a.signal(t, unix.SIGTERM)
	a.code(t)
	if log := a.stderr.String(); strings.Count(log, `command="[sh -c kill -9 $$]"`) != 1 || !strings.Contains(log, "code=137") {
		t.Errorf("the agent's log does not say what ran:\n%s", log)
	}
}

func sortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(text, "\n")), "\n")
}

// Nobody waits for it any more: it gets SIGTERM first, and what ignores that is killed.
func TestCommandOfACallerThatIsGoneEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sleep", "60")
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	c := b.dial(t, "sh", "-c", `trap ": > '$DIR/told'" TERM; echo $$ > "$DIR/leader"; sleep 61 & echo $! > "$DIR/child"; while :; do wait; sleep 0.02; done`)
	leader, child := b.pidIn(t, "leader"), b.pidIn(t, "child")
	c.Close()
	for name, pid := range map[string]int{"leader": leader, "child": child} {
		eventually(t, "the end of the "+name, func() bool { return !alive(pid) })
	}
	if _, err := os.Stat(filepath.Join(b.dir, "told")); err != nil {
		t.Error("it got no SIGTERM first")
	}
}

// Its environment is that of a world: it ends with it. Between two worlds there is none.
func TestCommandEndsWithItsWorld(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100*time.Millisecond, "sleep", "60")
	a := b.launch(t)
	b.service.awaitState(t, job.MemberWaiting, 0)
	if r, _, _ := b.dial(t, "true").await(t); r.Code != 1 || r.NotRun != errIdle.Error() {
		t.Errorf("before there is a world: %+v", r)
	}
	for generation := 1; generation < 4; generation++ {
		b.service.run(generation, 1)
		b.service.awaitState(t, job.MemberRunning, generation)
		c := b.dial(t, "sh", "-c", "echo runs; exec sleep 60")
		c.line(t)
		b.service.give(elastic.Order{Do: elastic.Wait})
		b.service.awaitState(t, job.MemberWaiting, generation)
		if r, _, _ := c.await(t); r.Code != 137 {
			t.Errorf("generation %d: %+v", generation, r)
		}
	}
	// The exit codes of commands are theirs, whoever looks for orphans meanwhile: the beat is short.
	b.service.run(4, 1)
	b.service.awaitState(t, job.MemberRunning, 4)
	for range 20 {
		if r, _, _ := b.dial(t, "sh", "-c", "sleep 0.05; exit 9").await(t); r.Code != 9 {
			t.Fatalf("exit code %d", r.Code)
		}
	}
	a.signal(t, unix.SIGTERM)
	if code := a.code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
}

func TestCommandEndsWithAKilledAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sleep", "60")
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	c := b.dial(t, "sh", "-c", "echo runs; exec sleep 60")
	c.line(t)
	a.signal(t, unix.SIGKILL)
	if _, err := io.ReadAll(c.out); err != nil { // until its last writer has ended
		t.Fatal(err)
	}
	if _, err := c.Await(); !execsocket.Over(err) {
		t.Errorf("the reply is %v", err)
	}
}

// A caller that connects and says nothing holds up no other one, and not the agent's exit.
func TestSilentCallerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sleep", "60")
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	conn, err := execsocket.Dial(context.Background(), b.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0}); err != nil { // without streams
		t.Fatal(err)
	}
	if _, err := conn.Await(); !execsocket.Over(err) {
		t.Errorf("a request without streams: %v", err)
	}
	silent, err := execsocket.Dial(context.Background(), b.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if r, _, _ := b.dial(t, "true").await(t); r.Code != 0 {
		t.Errorf("exit code %d", r.Code)
	}
	a.signal(t, unix.SIGTERM)
	if code := a.code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
}
