package local

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/providertest"
)

// TestMain: the test binary is also the agent, and other helpers of tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(providertest.Agent(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "real-agent" {
		os.Exit(realAgent(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "eat" {
		eatMemory(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == "caveats" {
		fmt.Println(strings.Join(newLimiter().caveats(), "\n"))
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or each agent under the race detector takes a second to exit
	goleak.VerifyTestMain(m)
}

func sh(script string) job.Program { return job.Program{Command: []string{"/bin/sh", "-c", script}} }

func TestConformance(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		dir := t.TempDir()
		t.Cleanup(func() {
			endAll(t, dir)
			sweepAll(t, dir)
		})
		return providertest.Harness{
			Open:     func() (providers.Provider, error) { return New(options(t, dir)) },
			Node:     "n1",
			Trains:   sh("sleep 300 & setsid sleep 300 & echo training; wait"),
			Stubborn: sh("trap '' TERM; sleep 300 & echo training; while :; do wait; sleep 1; done"),
			Ends:     sh("echo done"),
			KillAgent: func(i job.Incarnation) error {
				return syscall.Kill(i.AgentPID, syscall.SIGKILL)
			},
			Remains: func() []string { return remains(t, dir) },
		}
	})
}

func options(t *testing.T, dir string) Options {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Dir: dir, Agent: []string{self, "agent"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// remains finds what runs of a job directory without the provider: every agent has the directory in its arguments,
// every process in its environment.
func remains(t *testing.T, dir string) []string {
	table, err := processTable()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for pid := range table {
		if pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if bytes.Contains(args, []byte(dir+"/")) || bytes.Contains(env, []byte("ELTRAIN_TOKEN_FILE="+dir+"/")) {
			left = append(left, fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(args, []byte{0}, []byte(" "))))
		}
	}
	return left
}

// endAll cleans up after failed tests.
func endAll(t *testing.T, dir string) {
	for _, line := range remains(t, dir) {
		word, _, _ := strings.Cut(line, " ")
		if pid, err := strconv.Atoi(word); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// sweepAll is a last master, which removes the cgroups of what was killed by other means. Tests may have broken its files.
func sweepAll(t *testing.T, dir string) {
	p, err := New(options(t, dir))
	if err != nil {
		t.Log(err)
		return
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	if _, err := p.Observe(ctx); err != nil {
		t.Log(err)
	}
}

// bench is one provider on a directory of its own with one prepared job.
type bench struct {
	*testing.T
	*Provider
	dir string
	ctx context.Context
}

// testUID differs in each run: it names cgroups, which concurrent runs would share.
var testUID = uuid.NewString()

func newBench(t *testing.T) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	b := &bench{T: t, dir: t.TempDir(), ctx: ctx}
	t.Cleanup(func() {
		if b.Provider != nil {
			b.Provider.Close()
		}
		cancel()
		endAll(t, b.dir)
		sweepAll(t, b.dir)
	})
	b.reopen()
	return b
}

func (b *bench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// reopen is the next master. The old one is closed, which leaves what its death would: its files.
func (b *bench) reopen() {
	b.Helper()
	if b.Provider != nil {
		b.ok(b.Provider.Close())
	}
	p, err := New(options(b.T, b.dir))
	b.ok(err)
	b.Provider = p
	_, err = p.Prepare(b.ctx, job.Group{UID: testUID, Name: "gpt"})
	b.ok(err)
}

func worker(index int) job.Address { return job.Address{Job: "gpt", Role: "worker", Index: index} }

func (b *bench) launchOf(program job.Program) job.Launch {
	return job.Launch{UID: testUID, Slot: worker(0), Incarnation: 1, Node: "n1", Program: program, Processes: 1, StopGrace: job.Duration(time.Second)}
}

func (b *bench) handle(number int) *incarnation {
	return b.incarnation(key{testUID, "worker", 0, number})
}

func (b *bench) find(number int) *job.Incarnation {
	b.Helper()
	o, err := b.Observe(b.ctx)
	b.ok(err)
	for i := range o.Incarnations.All() {
		if i.Number == number {
			return i
		}
	}
	return nil
}

func (b *bench) await(number int, state job.IncarnationState) job.Incarnation {
	b.Helper()
	for {
		if i := b.find(number); i != nil && i.State == state {
			return *i
		}
		select {
		case <-b.Changes():
		case <-b.ctx.Done():
			b.Fatalf("incarnation %d is not %s: %+v", number, state, b.find(number))
		}
	}
}

// until polls for something that no provider signals.
func (b *bench) until(what string, holds func() bool) {
	b.Helper()
	for !holds() {
		if b.ctx.Err() != nil {
			b.Fatalf("%s: not so in time", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *bench) log() string {
	text, _ := os.ReadFile(b.logPath(worker(0)))
	return string(text)
}

func (b *bench) nothingRemains() {
	b.Helper()
	if left := remains(b.T, b.dir); len(left) > 0 {
		b.Errorf("still running: %q", left)
	}
}

func TestReusedPIDIsNeverTouched(t *testing.T) {
	for name, change := range map[string]func(*agentRecord){
		"other start time": func(r *agentRecord) { r.Start-- },
		"other boot":       func(r *agentRecord) { r.BootID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			foreign := startForeign(t)
			record := agentRecord{identity: foreign, BootID: b.boot, Started: time.Now()}
			change(&record)
			i := b.handle(1)
			b.ok(os.MkdirAll(i.dir, 0o700))
			b.ok(writeJSON(i.dir, launchFile, launchRecord{Slot: worker(0), UID: testUID, Incarnation: 1}))
			b.ok(writeJSON(i.dir, agentFile, record))
			b.ok(writeJSON(i.dir, processesFile, processesRecord{BootID: record.BootID, Processes: []identity{record.identity}}))
			b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
			if seen := b.find(1); seen == nil || seen.State != job.Gone || seen.Exit != nil {
				t.Errorf("observed %+v, want gone without an exit", seen)
			}
			if st, err := readStat(foreign.PID); err != nil || st.start != foreign.Start {
				t.Errorf("the process with the reused pid was killed: %v", err)
			}
		})
	}
}

// startForeign starts a foreign process: a session leader with a child in its group.
func startForeign(t *testing.T) identity {
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 300 & wait"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
	})
	st, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return identity{pid, st.start}
}

// A session with a reused number belongs to another leader.
func TestSessionOfAnotherLeaderIsNotOurs(t *testing.T) {
	ours := identity{100, 10}
	table := map[int]stat{
		100: {session: 100, ppid: 1, start: 99}, // it reused the pid
		101: {session: 100, ppid: 100, start: 99},
		200: {session: 200, ppid: 1, start: 20},   // recorded, and still the same
		201: {session: 200, ppid: 1, start: 21},   // in its session; its parent is dead
		202: {session: 202, ppid: 201, start: 22}, // in a session of its own; found by its parent
		300: {session: 300, ppid: 1, start: 30},   // in the cgroup
		301: {session: 301, ppid: 1, start: 30},   // a foreign process
	}
	got := indexed(table).collect([]identity{ours, {200, 20}}, []int{300, 404})
	slices.SortFunc(got, func(a, b identity) int { return a.PID - b.PID })
	if want := []identity{{200, 20}, {201, 21}, {202, 22}, {300, 30}}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
}

func TestMasterDiedBetweenMkdirAndExec(t *testing.T) {
	b := newBench(t)
	i := b.handle(1)
	b.ok(os.MkdirAll(i.dir, 0o700))
	l := b.launchOf(sh("echo training; sleep 300"))
	for _, step := range []string{"directory alone", "launch record too"} {
		if seen := b.find(1); seen != nil {
			t.Fatalf("%s: an incarnation that never started is observed: %+v", step, seen)
		}
		b.ok(writeJSON(i.dir, launchFile, launchRecord{Slot: l.Slot, UID: testUID, Incarnation: 1, Node: "n1"}))
	}
	b.reopen()
	b.ok(b.Launch(b.ctx, l))
	b.await(1, job.Up)
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
	b.nothingRemains()
}

// The agent was forked and has not written its record when its master dies. The next master does not know of it and
// launches: one of the two lives, and Stop finds either.
func TestMasterDiedBetweenExecAndRecord(t *testing.T) {
	b := newBench(t)
	l := b.launchOf(sh("echo training; sleep 300"))
	for range 20 { // each at another moment of the agent's start
		b.ok(b.Launch(b.ctx, l))
		b.reopen()
		b.ok(b.Launch(b.ctx, l))
		b.await(l.Incarnation, job.Up)
		text := l.Incarnation
		b.until("the program runs", func() bool { return strings.Count(b.log(), "training\n") >= text })
		b.ok(b.Stop(b.ctx, testUID, worker(0), l.Incarnation, time.Second))
		b.nothingRemains()
		if n := strings.Count(b.log(), "training\n"); n != l.Incarnation {
			t.Fatalf("%d incarnations trained %d times", l.Incarnation, n)
		}
		l.Incarnation++
	}
}

// The same, but it is stopped instead: an agent without a record is found by its environment.
func TestStopFindsAnAgentWithoutRecord(t *testing.T) {
	b := newBench(t)
	i := b.handle(1)
	b.ok(os.MkdirAll(i.dir, 0o700))
	b.ok(writeJSON(i.dir, launchFile, launchRecord{Slot: worker(0), UID: testUID, Incarnation: 1}))
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "sleep 300 & wait"}, &syscall.ProcAttr{Env: []string{markName + "=" + i.dir}, Sys: &syscall.SysProcAttr{Setsid: true}})
	b.ok(err)
	ended := make(chan struct{})
	go func() {
		syscall.Wait4(pid, nil, 0, nil)
		close(ended)
	}()
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
	select {
	case <-ended:
	case <-b.ctx.Done():
		syscall.Kill(-pid, syscall.SIGKILL)
		t.Fatal("the agent lives")
	}
}

// A master killed with -9 leaves agents without a parent. They are found, and their exit is noticed.
func TestKilledMasterLeavesAgentsRunning(t *testing.T) {
	if os.Getenv("LOCAL_TEST_MASTER") != "" {
		masterUntilKilled(t, os.Getenv("LOCAL_TEST_MASTER"))
		return
	}
	b := newBench(t)
	self, err := os.Executable()
	b.ok(err)
	master, err := os.StartProcess(self, []string{self, "-test.run=^TestKilledMasterLeavesAgentsRunning$"},
		&os.ProcAttr{Env: append(os.Environ(), "LOCAL_TEST_MASTER="+b.dir, "LOCAL_TEST_UID="+testUID), Files: []*os.File{nil, nil, os.Stderr}})
	b.ok(err)
	b.until("the other master's agent trains", func() bool { return strings.Contains(b.log(), "training\n") })
	b.ok(master.Kill())
	master.Wait()
	before := b.await(1, job.Up)
	if st, err := readStat(before.AgentPID); err != nil || st.ppid == os.Getpid() || st.session != before.AgentPID {
		t.Fatalf("the agent is not detached: %+v, %v", st, err)
	}
	b.reopen()
	if now := b.await(1, job.Up); now.AgentPID != before.AgentPID {
		t.Errorf("agent %d, was %d", now.AgentPID, before.AgentPID)
	}
	begin := time.Now()
	b.ok(syscall.Kill(before.AgentPID, syscall.SIGKILL))
	b.await(1, job.Gone)
	t.Logf("the end of an adopted agent was reported after %s", time.Since(begin))
	b.nothingRemains()
}

func masterUntilKilled(t *testing.T, dir string) {
	testUID = os.Getenv("LOCAL_TEST_UID")
	p, err := New(options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, Provider: p, dir: dir, ctx: context.Background()}
	b.ok(p.Launch(b.ctx, b.launchOf(sh("echo training; sleep 300"))))
	time.Sleep(time.Minute) // the parent kills this process long before
}

func TestStoppedAgentEndsWithinTheBound(t *testing.T) {
	b := newBench(t)
	b.ok(b.Launch(b.ctx, b.launchOf(sh("echo training; sleep 300 & wait"))))
	i := b.await(1, job.Up)
	b.until("the program runs", func() bool { return strings.Contains(b.log(), "training") })
	var r processesRecord
	b.until("the agent says what it started", func() bool {
		var err error
		r, err = b.recorded(b.handle(1))
		b.ok(err)
		return len(r.Processes) > 0
	})
	b.ok(syscall.Kill(i.AgentPID, syscall.SIGSTOP))
	b.ok(syscall.Kill(-r.Processes[0].PID, syscall.SIGSTOP))
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, 5*time.Second))
	b.nothingRemains()
	if exit := b.find(1).Exit; exit != nil {
		t.Errorf("it was continued and asked, so it should exit in order: %+v", exit)
	}
}

func TestKilledAgentIsToldFromOneThatEnded(t *testing.T) {
	b := newBench(t)
	b.ok(b.Launch(b.ctx, b.launchOf(sh("sleep 300"))))
	b.ok(syscall.Kill(b.await(1, job.Up).AgentPID, syscall.SIGKILL))
	exit := b.await(1, job.Gone).Exit
	if exit == nil || exit.Signal != "killed" || exit.Code != 137 || exit.OOM {
		t.Errorf("killed by hand: %+v", exit)
	}
	l := b.launchOf(sh("exit 3"))
	l.Incarnation = 2
	b.ok(b.Launch(b.ctx, l))
	if exit := b.await(2, job.Gone).Exit; exit == nil || exit.Code != 3 {
		t.Errorf("exit 3 of the program: %+v", exit)
	}
	b.reopen()
	if exit := b.find(1).Exit; exit == nil || exit.Signal != "killed" {
		t.Errorf("the next master does not know how it ended: %+v", exit)
	}
}

func TestMissingWorkingDirectoryIsAnExit(t *testing.T) {
	b := newBench(t)
	l := b.launchOf(sh("true"))
	l.Program.WorkingDir = "not/there"
	b.ok(b.Launch(b.ctx, l))
	exit := b.await(1, job.Gone).Exit
	want := "working directory " + filepath.Join(b.dir, "not/there") + " does not exist"
	if exit == nil || exit.NotStarted != want {
		t.Errorf("exit %+v, want not started: %s", exit, want)
	}
}

func TestAgentThatCannotStartIsAnErrorOrAnExit(t *testing.T) {
	b := newBench(t)
	b.agent = []string{filepath.Join(b.dir, "no-such-program")}
	if err := b.Launch(b.ctx, b.launchOf(sh("true"))); err == nil {
		t.Error("a missing agent was launched")
	}
	if i := b.find(1); i != nil {
		t.Errorf("an agent that was not started is observed: %+v", i)
	}
	b.agent = []string{"/bin/sh", "-c", "echo cannot run here >&2; exit 9"}
	b.ok(b.Launch(b.ctx, b.launchOf(sh("true"))))
	exit := b.await(1, job.Gone).Exit
	if exit == nil || exit.Code != 9 || strings.Join(exit.Tail, "") != "cannot run here" {
		t.Errorf("an agent that exits before it writes its record: %+v", exit)
	}
}

// The agent is another program here, so that the test can read back what the provider passes to it.
func TestAgentGetsAbsolutePathsAndACleanEnvironment(t *testing.T) {
	t.Setenv("ELTRAIN_VAR_secret", "mine")
	t.Setenv("INHERITED", "yes")
	b := newBench(t)
	b.ok(os.Mkdir(filepath.Join(b.dir, "sub"), 0o700))
	out := filepath.Join(b.dir, "seen")
	b.agent = []string{"/bin/sh", "-c", `{ pwd; env; printf '%s\n' "$@"; ls -l /proc/self/fd; } >"$OUT.new"; mv "$OUT.new" "$OUT"`, "sh"}
	l := b.launchOf(job.Program{Command: []string{"train", "-x"}, WorkingDir: "sub", Env: map[string]string{"OUT": out, "ELTRAIN_OWN": "kept"}})
	l.Checkpoint = &job.Checkpoint{Dir: "ckpt", Signal: "SIGUSR1", Pattern: "saved (?P<step>\\d+)"}
	b.ok(b.Launch(b.ctx, l))
	b.await(1, job.Gone)
	text, err := os.ReadFile(out)
	b.ok(err)
	for _, line := range []string{
		filepath.Join(b.dir, "sub"), "INHERITED=yes", "ELTRAIN_OWN=kept", "PWD=" + filepath.Join(b.dir, "sub"),
		"-slot=worker[0]", "-uid=" + testUID, "-node=n1", "-dir=" + b.handle(1).dir,
		"-service-file=" + filepath.Join(b.runDir, "service"), "-token-file=" + filepath.Join(b.runDir, "jobs", testUID, "token"),
		"-log=" + filepath.Join(b.runDir, "logs/gpt/worker-0.log"), "-checkpoint-dir=" + filepath.Join(b.dir, "ckpt"),
		"-checkpoint-signal=SIGUSR1", "-checkpoint-pattern=saved (?P<step>\\d+)", "--", "train", "-x",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("the agent did not get %q in\n%s", line, text)
		}
	}
	if strings.Contains(string(text), "ELTRAIN_VAR_secret") {
		t.Error("eltrain's own environment reached the agent")
	}
	record, err := os.ReadFile(filepath.Join(b.handle(1).dir, launchFile))
	if err != nil || strings.Contains(string(record), "kept") {
		t.Errorf("the program's environment, which may be secret, is on disk: %s, %v", record, err)
	}
}

// A master that was suspended during Publish continues after another has taken over.
func TestPrepareTellsAgainWhereTheServiceIs(t *testing.T) {
	b := newBench(t)
	b.ok(b.Publish(b.ctx, providers.Service{URL: "https://127.0.0.1:4711"}))
	file := filepath.Join(b.runDir, serviceFile)
	b.ok(os.WriteFile(file, []byte("http://127.0.0.1:1\n"), 0o600))
	_, err := b.Prepare(b.ctx, job.Group{UID: "u1", Name: "a"})
	b.ok(err)
	if text, _ := os.ReadFile(file); string(text) != "https://127.0.0.1:4711\n" {
		t.Errorf("agents read %q", text)
	}
}

// A token that agents of an older version have sent in clear is worth nothing once the service has TLS.
func TestATokenThatWasSentInClearIsReplaced(t *testing.T) {
	b := newBench(t)
	tokenAfter := func(url string) string {
		t.Helper()
		b.reopen()
		b.ok(b.Publish(b.ctx, providers.Service{URL: url}))
		token, err := b.Prepare(b.ctx, job.Group{UID: testUID, Name: "gpt"})
		b.ok(err)
		return token
	}
	sent := tokenAfter("http://127.0.0.1:1") // by an older version
	next := tokenAfter("https://127.0.0.1:1")
	if next == sent || next == "" {
		t.Errorf("the token was %q and is %q", sent, next)
	}
	if kept := tokenAfter("https://127.0.0.1:2"); kept != next {
		t.Errorf("a token that nobody can have heard was %q and is %q", next, kept)
	}
}

func TestModesAndPublish(t *testing.T) {
	b := newBench(t)
	b.ok(b.Publish(b.ctx, providers.Service{URL: "https://127.0.0.1:4711"}))
	b.ok(b.Launch(b.ctx, b.launchOf(sh("true"))))
	b.await(1, job.Gone)
	err := filepath.Walk(b.runDir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
		return err
	})
	b.ok(err)
	if text, _ := os.ReadFile(filepath.Join(b.runDir, "service")); strings.TrimSpace(string(text)) != "https://127.0.0.1:4711" {
		t.Errorf("service file: %q", text)
	}
}

func TestRemovedNodeKeepsItsIncarnations(t *testing.T) {
	b := newBench(t)
	b.ok(b.SetConfig(Config{Nodes: []Node{{Name: "n1", CPU: 2000}, {Name: "n2"}}}))
	b.ok(b.Launch(b.ctx, b.launchOf(sh("sleep 300"))))
	before := b.await(1, job.Up)
	for len(b.Changes()) > 0 {
		<-b.Changes()
	}
	b.ok(b.SetConfig(Config{Nodes: []Node{{Name: "n2"}}}))
	select {
	case <-b.Changes():
	case <-b.ctx.Done():
		t.Error("changed nodes are not signalled")
	}
	o, err := b.Observe(b.ctx)
	b.ok(err)
	if len(o.Nodes) != 1 || o.Nodes[0].Name != "n2" {
		t.Errorf("nodes %+v", o.Nodes)
	}
	if now := b.find(1); now == nil || now.Node != "n1" || now.AgentPID != before.AgentPID || now.State != job.Up {
		t.Errorf("incarnation on the removed node: %+v", now)
	}
	if err := b.SetConfig(Config{Nodes: []Node{{Name: "n2"}, {Name: "n2"}}}); err == nil {
		t.Error("an invalid config was accepted")
	}
	if o, err := b.Observe(b.ctx); err != nil || len(o.Nodes) != 1 {
		t.Errorf("after a refused config: %+v, %v", o.Nodes, err)
	}
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
}

func TestUnreadableRunDirectoryIsNoEmptyObservation(t *testing.T) {
	b := newBench(t)
	b.ok(os.RemoveAll(filepath.Join(b.runDir, "jobs")))
	b.ok(os.WriteFile(filepath.Join(b.runDir, "jobs"), nil, 0o600))
	if o, err := b.Observe(b.ctx); err == nil {
		t.Errorf("observed %+v from unreadable records", o)
	}
}

func TestForgetCutShortIsCompleted(t *testing.T) {
	b := newBench(t)
	b.ok(os.Rename(b.jobDir(testUID), filepath.Join(b.runDir, "jobs", "."+testUID)))
	b.reopen()
	if left, _ := filepath.Glob(filepath.Join(b.runDir, "jobs", ".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestHostilePathsAreRefused(t *testing.T) {
	b := newBench(t)
	for _, uid := range []string{"", "..", "a/b", ".x", strings.Repeat("x", 200)} {
		if _, err := b.Prepare(b.ctx, job.Group{UID: uid, Name: "gpt"}); err == nil {
			t.Errorf("UID %q was prepared", uid)
		}
		if err := b.Forget(b.ctx, uid, "gpt"); err == nil {
			t.Errorf("UID %q was forgotten", uid)
		}
	}
	for _, change := range []func(*job.Launch){
		func(l *job.Launch) { l.Slot.Role = "../x" },
		func(l *job.Launch) { l.Slot.Job = "" },
		func(l *job.Launch) { l.Incarnation = 0 },
		func(l *job.Launch) { l.Program.Command = nil },
	} {
		l := b.launchOf(sh("true"))
		change(&l)
		if err := b.Launch(b.ctx, l); err == nil {
			t.Errorf("launched %+v", l)
		}
	}
}

// 1,000 ended incarnations: their files are read only once.
func BenchmarkObserve1000Ended(b *testing.B) {
	dir := b.TempDir()
	p, err := New(Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for n := range 1000 {
		i := p.incarnation(key{testUID, "worker", n, 1})
		if err := os.MkdirAll(i.dir, 0o700); err != nil {
			b.Fatal(err)
		}
		l := launchRecord{Slot: worker(n), UID: testUID, Incarnation: 1}
		if err := writeJSON(i.dir, launchFile, l); err != nil {
			b.Fatal(err)
		}
		if err := writeJSON(i.dir, endedFile, job.Incarnation{Slot: l.Slot, UID: testUID, Number: 1, State: job.Gone}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if o, err := p.Observe(context.Background()); err != nil || o.Incarnations.Len() != 1000 {
			b.Fatal(o.Incarnations.Len(), err)
		}
	}
}

// Observing many running incarnations is what a watching master does most.
func BenchmarkObserve100Up(b *testing.B) {
	dir := b.TempDir()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	p, err := New(Options{Dir: dir, Agent: []string{self, "agent"}})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	ctx := context.Background()
	if _, err := p.Prepare(ctx, job.Group{UID: testUID, Name: "gpt"}); err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	for n := range 100 {
		l := job.Launch{UID: testUID, Slot: worker(n), Incarnation: 1, Program: sh("sleep 300"), StopGrace: job.Duration(time.Second)}
		if err := p.Launch(ctx, l); err != nil {
			b.Fatal(err)
		}
		defer p.Stop(ctx, testUID, worker(n), 1, 0)
	}
	for up := 0; up < 100; {
		<-p.Changes()
		o, err := p.Observe(ctx)
		if err != nil {
			b.Fatal(err)
		}
		up = 0
		for i := range o.Incarnations.All() {
			if i.State == job.Up {
				up++
			}
		}
	}
	launched := time.Since(begin)
	for b.Loop() {
		if _, err := p.Observe(ctx); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(launched.Milliseconds()), "ms-until-100-up")
}

// Every process sees an agent from its start, even before it has written its record, however long that takes.
func TestALaunchedAgentIsNeverUnseen(t *testing.T) {
	b := newBench(t)
	b.agent = []string{"/bin/sh", "-c", `exec sleep 300`, "sh"}
	l := b.launchOf(job.Program{Command: []string{"true"}})
	b.ok(b.Launch(b.ctx, l))
	pid := b.handle(1).child.PID
	b.reopen()
	if i := b.find(1); i == nil || i.State != job.Starting {
		t.Errorf("the next master sees %+v", i)
	}
	b.ok(b.Launch(b.ctx, l))
	if child := b.handle(1).child; child != nil {
		t.Errorf("besides %d, %d was started", pid, child.PID)
	}
	b.ok(syscall.Kill(pid, syscall.SIGKILL))
	b.until("nothing is left of one that died without a record", func() bool { return b.find(1) == nil })
}

// An agent that was just started by a master that was then killed is found by its lock alone. It is not reported as gone
// before it has released the lock: it might live.
func TestStopAwaitsAnAgentThatCannotBeFoundYet(t *testing.T) {
	b := newBench(t)
	l := b.launchOf(job.Program{Command: []string{"true"}})
	dir := b.handle(1).dir
	b.ok(os.MkdirAll(dir, 0o700))
	b.ok(writeJSON(dir, launchFile, &launchRecord{Slot: l.Slot, UID: l.UID, Incarnation: 1, Node: "n1", Asked: time.Now(), Home: b.dir}))
	held, err := lock(dir)
	b.ok(err)
	b.reopen()
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop(b.ctx, l.UID, l.Slot, 1, 0) }()
	b.until("its end is asked for", func() bool {
		b.reaper.mu.Lock()
		defer b.reaper.mu.Unlock()
		return len(b.reaper.pending) > 0
	})
	if b.reaper.work() || b.find(1).State == job.Gone {
		t.Error("it is considered gone")
	}
	held.Close()
	b.ok(<-stopped)
	if i := b.find(1); i.State != job.Gone {
		t.Errorf("observed %+v", i)
	}
}

// A probe of the lock holds it for an instant.
func TestLockIsTakenAfterAnInstantOfAnother(t *testing.T) {
	dir := t.TempDir()
	other, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lockPause, func() { other.Close() })
	f, err := lock(dir)
	if err != nil || f == nil {
		t.Fatalf("the lock was not acquired: %v", err)
	}
	defer f.Close()
	if !locked(dir) {
		t.Error("the lock is not held")
	}
	if second, err := lock(dir); err != nil || second != nil {
		t.Errorf("the lock was acquired twice (%v)", err)
	}
}

// The first agent's record would stop a second one; it is not even started. This agent keeps no files.
func TestLaunchForksOnce(t *testing.T) {
	b := newBench(t)
	b.agent = []string{"/bin/sh", "-c", `echo started >>"$OUT"; [ -e "$OUT.end" ] || exec sleep 300`, "sh"}
	out := filepath.Join(b.dir, "out")
	l := b.launchOf(job.Program{Command: []string{"true"}, Env: map[string]string{"OUT": out}})
	started := func() int {
		text, _ := os.ReadFile(out)
		return strings.Count(string(text), "started\n")
	}
	for len(b.Changes()) > 0 {
		<-b.Changes()
	}
	b.ok(b.Launch(b.ctx, l))
	select {
	case <-b.Changes():
	case <-b.ctx.Done():
		t.Fatal("a launch is not signaled")
	}
	if i := b.find(1); i == nil || i.State != job.Starting || i.Node != "n1" {
		t.Errorf("an agent without a record: %+v", i)
	}
	b.until("it started", func() bool { return started() == 1 })
	b.ok(os.WriteFile(out+".end", nil, 0o600)) // another one would exit at once
	b.ok(b.Launch(b.ctx, l))
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
	b.nothingRemains()
	b.ok(b.Launch(b.ctx, l))
	b.reopen()
	b.ok(b.Launch(b.ctx, l))
	b.await(1, job.Gone)
	if started() != 1 {
		t.Errorf("it was started %d times", started())
	}
}
