package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/filetest"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/progress"
)

// asAgent makes the test binary an agent: the tests start it as a separate process, as a provider does.
const asAgent = "ELTRAIN_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == job.AgentCheck { // by an agent
		code, _ := InSlot(os.Args[1:], os.Stdout, os.Stderr)
		os.Exit(code)
	}
	if os.Getenv(asAgent) != "" {
		os.Unsetenv(asAgent)
		if code, is := InSlot(os.Args[1:], os.Stdout, os.Stderr); is {
			os.Exit(code)
		}
		c, err := job.ParseAgentArgs(os.Args[1:], os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(Run(context.Background(), c, slog.New(slog.NewTextHandler(os.Stderr, nil))))
	}
	goleak.VerifyTestMain(m)
}

// runningAgent is an agent process.
type runningAgent struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func (b *bench) launch(t *testing.T, env ...string) *runningAgent {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(append(slices.Clone(b.under), self), b.config.Args()...)
	a := &runningAgent{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	a.cmd.Env = append(append(os.Environ(), asAgent+"=1"), env...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.stderr
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		a.cmd.Wait()
		close(a.done)
	}()
	t.Cleanup(func() {
		a.cmd.Process.Kill()
		<-a.done
		if t.Failed() {
			t.Logf("output of the agent:\n%s", &a.stderr)
		}
	})
	return a
}

func (a *runningAgent) signal(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// code waits for the agent to exit and returns its exit code.
func (a *runningAgent) code(t *testing.T) int {
	t.Helper()
	select {
	case <-a.done:
	case <-time.After(patience):
		t.Fatal("the agent does not exit")
	}
	return a.cmd.ProcessState.ExitCode()
}

// alive reports whether the process runs: it exists and is not a zombie.
func alive(pid int) bool {
	if unix.Kill(pid, 0) != nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux" // or it was just reaped
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(state, "Z")
}

// pidIn waits for a pid that a script writes to a file.
func (b *bench) pidIn(t *testing.T, name string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+name, func() bool {
		text, whole := strings.CutSuffix(b.read(name), "\n")
		pid, _ = strconv.Atoi(text)
		return whole && pid > 0
	})
	return pid
}

func TestProcessesSeeTorchrunsEnvironment(t *testing.T) {
	t.Parallel()
	b := newBench(t, 30*time.Second, "sh", "-c", `env > "$OUT.$LOCAL_RANK.tmp"; mv "$OUT.$LOCAL_RANK.tmp" "$OUT.$LOCAL_RANK"; sleep 60`)
	b.config.Processes = 2
	b.config.CheckpointDir = filepath.Join(b.dir, "ckpt")
	b.launch(t, "OUT="+filepath.Join(b.dir, "env"), "MINE=yes", "RANK=77", "ELTRAIN_GENERATION=66", "PYTHONUNBUFFERED=", "PYTHONPATH=mine")
	b.service.awaitState(t, job.MemberWaiting, 0)
	b.service.list(membersAt(1))
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{
		Generation: 3, GroupRank: 1, GroupSize: 4, RankBase: 2, WorldSize: 8, RoleRankBase: 2, RoleWorldSize: 6,
		MasterAddr: "10.0.0.1", MasterPort: 23456, RestartCount: 2,
	}})
	eventually(t, "the environment of local rank 1", func() bool { return b.read("env.1") != "" })

	ours := []string{"RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCH", "NCCL_", "OMP_", "PYTHONPATH", "PYTHONUNBUFFERED", "ELTRAIN_", "MINE"}
	var got []string
	for line := range strings.Lines(strings.ReplaceAll(b.read("env.1"), b.dir, "DIR")) {
		line = strings.ReplaceAll(strings.TrimSpace(line), b.service.server.URL, "URL")
		if slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(line, p) }) {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	want := []string{
		"ELTRAIN_CA_FILE=DIR/ca.pem",
		"ELTRAIN_CHECKPOINT_DIR=DIR/ckpt",
		"ELTRAIN_GENERATION=3",
		"ELTRAIN_INCARNATION=2",
		"ELTRAIN_JOB=mnist",
		"ELTRAIN_MEMBERS_FILE=DIR/agent/members.json",
		"ELTRAIN_PROGRESS=DIR/agent/errors/3-1.progress",
		"ELTRAIN_ROLE=worker",
		"ELTRAIN_SERVICE=URL",
		"ELTRAIN_SLOT=worker[3]",
		"ELTRAIN_STACKS_FILE=DIR/agent/errors/3-1.stacks",
		"ELTRAIN_TOKEN_FILE=DIR/token",
		"GROUP_RANK=1",
		"GROUP_WORLD_SIZE=4",
		"LOCAL_RANK=1",
		"LOCAL_WORLD_SIZE=2",
		"MASTER_ADDR=10.0.0.1",
		"MASTER_PORT=23456",
		"MINE=yes",
		"NCCL_ASYNC_ERROR_HANDLING=1",
		"OMP_NUM_THREADS=1",
		"PYTHONPATH=DIR/agent/errors/python:mine",
		"PYTHONUNBUFFERED=",
		"RANK=3",
		"ROLE_NAME=worker",
		"ROLE_RANK=3",
		"ROLE_WORLD_SIZE=6",
		"TORCHELASTIC_ERROR_FILE=DIR/agent/errors/3-1.json",
		"TORCHELASTIC_MAX_RESTARTS=10",
		"TORCHELASTIC_RESTART_COUNT=2",
		"TORCHELASTIC_RUN_ID=uid-1",
		"TORCHELASTIC_USE_AGENT_STORE=False",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
		"WORLD_SIZE=8",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if strings.Contains(b.read("env.1"), "=secret") {
		t.Error("the token is in the environment")
	}
	if r := b.service.awaitState(t, job.MemberRunning, 3); r.Rank != 1 || r.WorldSlots != 4 || len(r.PIDs) != 2 {
		t.Errorf("reported %+v", r)
	}
}

// membersAt is a list whose only member has a port.
func membersAt(port int) *elastic.Peers {
	return &elastic.Peers{Total: 1, Members: []elastic.Peer{{Slot: "ps[0]", Incarnation: 1, Host: "h0", Port: port, Rank: -1}}}
}

// TestMembersFile: in a world it is as of the start, outside it follows the list.
func TestMembersFile(t *testing.T) {
	for _, ranked := range []bool{true, false} {
		t.Run(fmt.Sprintf("ranked=%t", ranked), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 10*time.Minute, "sh", "-c", `cat "$ELTRAIN_MEMBERS_FILE" > "$DIR/seen.$ELTRAIN_GENERATION"; exec sleep 60`)
			b.config.Ranked = ranked
			b.launch(t, "DIR="+b.dir)
			port := func() int {
				var p elastic.Peers
				json.Unmarshal([]byte(b.read("agent/members.json")), &p)
				if len(p.Members) == 0 {
					return 0
				}
				return p.Members[0].Port
			}
			b.service.list(membersAt(1))
			b.service.run(1, 1)
			r := b.service.awaitState(t, job.MemberRunning, 1)
			if r.Port != 29500 { // a master that does not know it learns it from the report
				t.Errorf("it reports port %d", r.Port)
			}
			b.service.list(membersAt(2))
			if !ranked {
				eventually(t, "the new list", func() bool { return port() == 2 })
			}
			b.service.list(membersAt(3))
			b.service.give(elastic.Order{Do: elastic.Wait, Checkpoint: true})
			b.service.awaitState(t, job.MemberWaiting, 1)
			if p := port(); ranked && p != 1 {
				t.Errorf("in the world the list has port %d", p)
			}
			b.service.run(2, 1)
			b.service.awaitState(t, job.MemberRunning, 2)
			eventually(t, "what the process sees", func() bool { return strings.Contains(b.read("seen.2"), `"port":3`) })
		})
	}
}

// TestMembersFileThatCannotBeWritten: the processes start without one, and nothing names an old one.
func TestMembersFileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `echo "file=$ELTRAIN_MEMBERS_FILE."; exec sleep 60`)
	b.launch(t)
	b.service.awaitState(t, job.MemberWaiting, 0)
	if err := os.Mkdir(filepath.Join(b.dir, "agent/members.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.service.list(membersAt(1))
	b.service.run(1, 1)
	eventually(t, "the process runs without", func() bool { return strings.Contains(b.read("log"), "file=.") })
}

func TestRestartInPlaceKeepsTheAgentAndTakesAnotherPort(t *testing.T) {
	t.Parallel()
	// Beats are rare here: what is awaited below cannot come with one.
	b := newBench(t, 10*time.Minute, "sh", "-c", "sleep 60")
	a := b.launch(t)
	first := b.service.awaitState(t, job.MemberWaiting, 0)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first.Port)); err != nil {
		t.Errorf("the offered port is not free for the process: %v", err)
	} else {
		l.Close()
	}
	unix.Kill(r.PIDs[0], unix.SIGKILL)
	failed := b.service.awaitState(t, job.MemberFailed, 1)
	if e := failed.Exit; e == nil || e.Code != 137 || e.Signal != "killed" || e.OOM {
		t.Errorf("exit is %+v", e)
	}
	b.service.give(elastic.Order{Do: elastic.Wait, InPlace: 1})
	again := b.service.await(t, "waiting after a restart in place", func(r elastic.Report) bool { return r.State == job.MemberWaiting && r.InPlace == 1 })
	if again.Exit != nil || again.Port == 0 || again.Port == first.Port {
		t.Errorf("waiting reports %+v, before port %d", again, first.Port)
	}
	b.service.run(2, 1)
	second := b.service.awaitState(t, job.MemberRunning, 2)
	if second.PIDs[0] == r.PIDs[0] || !alive(second.PIDs[0]) || !alive(a.cmd.Process.Pid) {
		t.Errorf("pids %v, before %v", second.PIDs, r.PIDs)
	}
	if n := b.service.registrations(); n != 1 {
		t.Errorf("registered %d times", n)
	}
}

func TestStopEndsWhateverTheProcessesStarted(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what leaves its process group is only found on Linux")
	}
	b := newBench(t, 10*time.Minute, "sh", "-c",
		`sh -c 'trap ": > \"$DIR/told\"" TERM; echo $$ > "$DIR/child"; while :; do sleep 0.02; done' & setsid sh -c 'echo $$ > "$DIR/fled"; sleep 61' & wait`)
	b.config.StopGrace = job.Duration(5 * time.Second) // how long the stop may take
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	child, fled := b.pidIn(t, "child"), b.pidIn(t, "fled")
	b.service.give(elastic.Order{Do: elastic.Wait, Checkpoint: true}) // only planned stops have the whole grace
	b.service.awaitState(t, job.MemberWaiting, 1)
	for name, pid := range map[string]int{"leader": r.PIDs[0], "child": child, "fled": fled} {
		eventually(t, "the end of the "+name, func() bool { return !alive(pid) })
	}
	if _, err := os.Stat(filepath.Join(b.dir, "told")); err != nil {
		t.Error("the child got no SIGTERM first")
	}
}

func TestKilledAgentTakesItsProcessesWithIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no PDEATHSIG here: the provider ends what processes.json lists")
	}
	b := newBench(t, time.Second, "sleep", "60")
	b.config.Processes = 2
	a := b.launch(t)
	b.service.run(1, 2)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	var listed processesRecord
	if err := json.Unmarshal([]byte(b.read("agent/processes.json")), &listed); err != nil {
		t.Fatal(err)
	}
	if len(listed.Processes) != 2 || listed.Processes[0].PID != r.PIDs[0] || listed.Processes[1].PID != r.PIDs[1] || listed.Generation != 1 {
		t.Errorf("processes.json has %+v; pids are %v", listed, r.PIDs)
	}
	if listed.Processes[0].StartTime == 0 || listed.BootID == "" {
		t.Errorf("processes.json has no start time or boot id: %+v", listed)
	}
	a.signal(t, unix.SIGKILL)
	eventually(t, "the processes have ended", func() bool { return !alive(r.PIDs[0]) && !alive(r.PIDs[1]) })
	if b.read("agent/exit.json") != "" {
		t.Error("a killed agent has written exit.json")
	}
}

func TestSigtermIsToldBeforeTheProcessesStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap 'while [ ! -e "$DIR/go" ]; do sleep 0.01; done; echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done`)
	a := b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "the trap is set", func() bool { return strings.Contains(b.read("log"), "ready") })
	a.signal(t, unix.SIGTERM)
	leaving := b.service.awaitState(t, job.MemberLeaving, 1)
	if !alive(r.PIDs[0]) || len(leaving.PIDs) != 1 {
		t.Error("it reported only after the processes had exited")
	}
	b.write(t, "go", "")
	if code := a.code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
	b.service.await(t, "the last word: leaving, nothing runs", func(r elastic.Report) bool {
		return r.State == job.MemberLeaving && len(r.PIDs) == 0
	})
	if e := b.exit(t); e.Reason != "left" || e.State != job.MemberLeaving {
		t.Errorf("exit.json has %+v", e)
	}
	if !strings.Contains(b.read("log"), "[rank 0] bye") {
		t.Error("the process had no time to exit")
	}
}

func TestSigtermEndsAnAgentThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "sleep", "60")
	url, tried := hangUp(t)
	b.write(t, "service", url)
	a := b.launch(t)
	select {
	case <-tried: // it handles signals before it reaches the service
	case <-time.After(patience):
		t.Fatal("the agent does not contact the service")
	}
	a.signal(t, unix.SIGTERM)
	if code := a.code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
}

func TestFencedIncarnationStopsItselfFast(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	b.config.StopGrace = job.Duration(10 * time.Minute) // nobody waits that long here
	a := b.launch(t)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "the trap is set", func() bool { return strings.Contains(b.read("log"), "ready") })
	b.service.refuse(elastic.Fenced)
	if code := a.code(t); code != ExitFenced {
		t.Errorf("exit code %d", code)
	}
	if alive(r.PIDs[0]) {
		t.Error("the process still runs")
	}
	if e := b.exit(t); e.Reason != "fenced" {
		t.Errorf("exit.json has %+v", e)
	}
}

// A silent host: agent and processes are suspended, so no connection breaks. When they wake up, a newer incarnation has the
// slot.
func TestWokenAgentLearnsThatItIsFenced(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sleep", "60")
	a := b.launch(t)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	a.signal(t, unix.SIGSTOP)
	unix.Kill(r.PIDs[0], unix.SIGSTOP)
	b.service.refuse(elastic.Fenced)
	a.signal(t, unix.SIGCONT)
	unix.Kill(r.PIDs[0], unix.SIGCONT)
	if code := a.code(t); code != ExitFenced {
		t.Errorf("exit code %d", code)
	}
	if alive(r.PIDs[0]) {
		t.Error("the process still runs")
	}
}

func TestStoppedProcessIsEndedWithinTheGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	b.config.StopGrace = job.Duration(10 * time.Minute) // a broken world's grace is shorter
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "the trap is set", func() bool { return strings.Contains(b.read("log"), "ready") })
	unix.Kill(r.PIDs[0], unix.SIGSTOP)
	b.service.give(elastic.Order{Do: elastic.Wait}) // the world broke
	b.service.awaitState(t, job.MemberWaiting, 1)
	if alive(r.PIDs[0]) {
		t.Error("the process still runs")
	}
}

func TestNewMasterAtAnotherPortFindsTheSameProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sleep", "60")
	a := b.launch(t)
	b.service.run(4, 1)
	before := b.service.awaitState(t, job.MemberRunning, 4)
	b.service.close()

	next := newFakeService(t, 300*time.Millisecond)
	next.token = "another"
	next.run(4, 1)
	next.refuse(elastic.NotReady)
	b.write(t, "token", "another")
	b.write(t, "service", next.server.URL)
	// The new master does not know its job yet: the agent is refused and has to register again.
	eventually(t, "the agent comes too early", func() bool { return next.refusals() > 0 })
	next.refuse("")

	r := next.awaitState(t, job.MemberRunning, 4)
	if !slices.Equal(r.PIDs, before.PIDs) || !alive(before.PIDs[0]) {
		t.Errorf("pids %v, before %v", r.PIDs, before.PIDs)
	}
	next.mu.Lock()
	first := next.register[0]
	next.mu.Unlock()
	if first.State != job.MemberRunning || first.Generation != 4 || first.Slot != "worker[3]" || first.Incarnation != 2 || first.Node != "n7" || first.AgentPID != a.cmd.Process.Pid {
		t.Errorf("registered as %+v", first)
	}
	// Its versions start over, and are obeyed.
	next.give(elastic.Order{Do: elastic.Leave})
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	if e := b.exit(t); e.Reason != "ordered" {
		t.Errorf("exit.json has %+v", e)
	}
}

func TestUnknownMemberRegistersAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t)
	b.service.run(1, 1)
	before := b.service.awaitState(t, job.MemberRunning, 1)
	b.service.mu.Lock()
	b.service.known, b.service.version = false, 1
	b.service.wake()
	b.service.mu.Unlock()
	eventually(t, "a second registration", func() bool { return b.service.registrations() == 2 })
	b.service.mu.Lock()
	again := b.service.register[1]
	b.service.mu.Unlock()
	if again.State != job.MemberRunning || !slices.Equal(again.PIDs, before.PIDs) {
		t.Errorf("registered again as %+v", again)
	}
	// Versions start over with a registration: earlier ones are forgotten.
	eventually(t, "a first sync that knows no order", func() bool {
		b.service.mu.Lock()
		defer b.service.mu.Unlock()
		last := b.service.sync[len(b.service.sync)-1]
		first := slices.IndexFunc(b.service.sync, func(r elastic.SyncRequest) bool { return r.Seq == again.Seq+1 })
		return first >= 0 && b.service.sync[first].Seen == 0 && last.Seen == 1
	})
}

// The network is cut: the connection stays, and nothing arrives anymore.
func TestMuteServiceIsHeldToBeGone(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sleep", "60")
	b.launch(t)
	b.service.run(1, 1)
	before := b.service.awaitState(t, job.MemberRunning, 1)
	registered := b.service.registrations()
	b.service.mute(true)
	eventually(t, "another registration", func() bool { return b.service.registrations() > registered })
	if !alive(before.PIDs[0]) {
		t.Error("training did not continue")
	}
}

// Replies hang, but requests still arrive: news go out anyway, on another connection.
func TestNewsDoNotWaitForAnswersThatHang(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	b.service.mute(true)
	unix.Kill(r.PIDs[0], unix.SIGKILL)
	b.service.await(t, "failed, nothing runs", func(r elastic.Report) bool {
		return r.State == job.MemberFailed && len(r.PIDs) == 0
	})
}

func TestSlotThatIsNotWantedLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.service.refuse(elastic.NoSuchSlot)
	a := b.launch(t)
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
}

func TestSuccessIsToldBeforeTheAgentEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "true")
	a := b.launch(t)
	begun := time.Now()
	b.service.run(1, 1)
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	told := b.service.awaitState(t, job.MemberSucceeded, 1)
	// Including the time: a later master needs it.
	if e := b.exit(t); e.Reason != "finished" || e.State != job.MemberSucceeded || e.Exit == nil || e.Exit.Code != 0 ||
		!e.Exit.At.After(begun) || e.Exit.At.After(time.Now()) || told.Exit == nil || !told.Exit.At.Equal(e.Exit.At) {
		t.Errorf("exit.json has %+v with %+v, the service received %+v", e, e.Exit, told.Exit)
	}
}

func TestSuccessWithoutAServiceIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `while [ ! -e "$DIR/go" ]; do sleep 0.01; done`)
	a := b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	b.service.close()
	b.write(t, "go", "")
	if code := a.code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
	if e := b.exit(t); e.Reason != job.EndFinished || e.State != job.MemberSucceeded || e.Exit == nil || e.Exit.At.IsZero() {
		t.Errorf("exit.json has %+v with %+v", e, e.Exit)
	}
}

func TestHowProcessesFail(t *testing.T) {
	t.Parallel()
	notExecutable := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(notExecutable, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		command   []string
		processes int
		want      job.Exit
		agentCode int
	}{
		{"exit code", []string{"sh", "-c", "echo out; echo err >&2; exit 17"}, 1,
			job.Exit{Code: 17, Tail: []string{"out", "err"}}, 17},
		{"signal", []string{"sh", "-c", "kill -SEGV $$"}, 1,
			job.Exit{Code: 139, Signal: "segmentation fault", Tail: []string{}}, 139},
		{"command not found", []string{"no-such-command-here"}, 1,
			job.Exit{Code: 127, NotStarted: `exec: "no-such-command-here": executable file not found in $PATH`}, 127},
		{"no such file", []string{"/no/such/file"}, 1,
			job.Exit{Code: 127, NotStarted: "fork/exec /no/such/file: no such file or directory"}, 127},
		{"not executable", []string{notExecutable}, 1,
			job.Exit{Code: 126, NotStarted: "fork/exec " + notExecutable + ": permission denied"}, 126},
		{"error file as @record writes it", []string{"sh", "-c",
			`echo '{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1795188327"}}}' > $TORCHELASTIC_ERROR_FILE; exit 1`}, 1,
			job.Exit{Code: 1, Message: "ValueError: boom", Tail: []string{}}, 1},
		{"of two processes the first that failed", []string{"sh", "-c", `if [ $LOCAL_RANK = 1 ]; then echo guilty; exit 5; fi; sleep 60`}, 2,
			job.Exit{Code: 5, LocalRank: 1, Tail: []string{"guilty"}}, 5},
		{"of two processes the one whose error file is older, though it ends later", []string{"sh", "-c",
			`if [ $LOCAL_RANK = 1 ]; then echo '{"message": "root", "timestamp": 1000}' > $TORCHELASTIC_ERROR_FILE; touch $TORCHELASTIC_ERROR_FILE.done; exit 6; fi
			 while [ ! -e ${TORCHELASTIC_ERROR_FILE%0.json}1.json.done ]; do sleep 0.01; done; exit 7`}, 2,
			job.Exit{Code: 6, LocalRank: 1, Message: "root", Tail: []string{}}, 6},
		{"a grandchild that holds the output open", []string{"sh", "-c", `setsid sleep 60 & echo last; exit 3`}, 1,
			job.Exit{Code: 3, Tail: []string{"last"}}, 3},
		{"much output", []string{"sh", "-c", `i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; done; printf %600d 7; exit 4`}, 1,
			job.Exit{Code: 4, Tail: tailOf(200)}, 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 10*time.Minute, test.command...)
			b.config.Processes = test.processes
			a := b.launch(t)
			b.service.run(1, test.processes)
			r := b.service.await(t, "failed, nothing runs", func(r elastic.Report) bool {
				return r.State == job.MemberFailed && len(r.PIDs) == 0
			})
			got := *r.Exit
			if time.Since(got.At) > patience {
				t.Errorf("the exit was at %s", got.At)
			}
			got.At = time.Time{}
			if got.Tail == nil && test.want.Tail != nil {
				got.Tail = []string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("exit (-want +got):\n%s", diff)
			}
			b.service.give(elastic.Order{Do: elastic.Leave})
			if code := a.code(t); code != test.agentCode {
				t.Errorf("the agent's exit code is %d", code)
			}
			if e := b.exit(t); e.Reason != "failed" || e.State != job.MemberFailed || e.Exit == nil || e.Exit.Code != test.want.Code {
				t.Errorf("exit.json has %+v", e)
			}
		})
	}
}

// tailOf is what is kept of lines 1 to n followed by a long one.
func tailOf(n int) []string {
	var tail []string
	for i := n - tailLines + 2; i <= n; i++ {
		tail = append(tail, fmt.Sprint("line ", i))
	}
	return append(tail, "") // the beginning of the long line is blank
}

func TestMissingWorkingDirectoryIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "true")
	dir := filepath.Join(b.dir, "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := exec.Command(self, b.config.Args()...)
	a.Env, a.Dir = append(os.Environ(), asAgent+"=1"), dir
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	defer a.Wait()
	defer a.Process.Kill()
	b.service.awaitState(t, job.MemberWaiting, 0)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberFailed, 1)
	if !strings.Contains(r.Exit.NotStarted, "working directory") || !strings.Contains(r.Exit.NotStarted, "no such file or directory") {
		t.Errorf("exit is %+v", r.Exit)
	}
}

func TestLogHasWholeLinesWithRanks(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `printf 'one\r\ntwo\rthree\n\nlast without end'`)
	b.config.Processes = 2
	b.config.Slot = "ps[0]"
	b.config.Ranked = false
	a := b.launch(t)
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, RoleRankBase: 4, RoleWorldSize: 6}})
	a.code(t)
	for _, i := range []string{"4", "5"} {
		var got []string
		for line := range strings.Lines(b.read("log")) {
			if text, ok := strings.CutPrefix(line, "[ps "+i+"] "); ok {
				got = append(got, strings.TrimSuffix(text, "\n"))
			}
		}
		if diff := cmp.Diff([]string{"one", "two", "three", "", "last without end"}, got); diff != "" {
			t.Errorf("role rank %s (-want +got):\n%s", i, diff)
		}
	}
	if log := b.read("log"); !strings.Contains(log, "[eltrain] generation 1: starts\n") || !strings.Contains(log, "[eltrain] generation 1: ended\n") {
		t.Errorf("the generation's start and end are not in the log:\n%s", log)
	}
}

// Logs are named by jobs, and a job that is destroyed and created again is another one: its output is separated from the old.
func TestTheOutputOfAnEarlierJobIsToldApart(t *testing.T) {
	t.Parallel()
	const mark = "[eltrain] the output of an earlier job of this name ends here\n"
	for _, c := range []struct {
		incarnation int
		before      string
		marked      bool
	}{
		{1, "old\n", true},
		{1, "", false},
		{2, "mine\n", false},
	} {
		b := newBench(t, 300*time.Millisecond, "sh", "-c", "echo new; sleep 60")
		b.config.Incarnation = c.incarnation
		if err := os.WriteFile(b.config.Log, []byte(c.before), 0o644); err != nil {
			t.Fatal(err)
		}
		b.launch(t)
		b.service.run(1, 1)
		b.service.await(t, "the start", func(r elastic.Report) bool { return r.State == job.MemberRunning })
		if log := b.read("log"); strings.HasPrefix(log, c.before+mark) != c.marked {
			t.Errorf("incarnation %d after %q writes\n%s", c.incarnation, c.before, log)
		}
	}
}

func TestProgressIsReportedWithTheBeat(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sh", "-c", `echo step 41 loss 0.5; echo noise; echo step 42 loss nan; sleep 60`)
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.await(t, "step 42", func(r elastic.Report) bool { return r.Step == 42 })
	if _, other := r.Loss.Finite(); other != "NaN" {
		t.Errorf("the loss is %v, not NaN", r.Loss)
	}
	if runtime.GOOS == "linux" {
		b.service.await(t, "memory", func(r elastic.Report) bool { return r.Memory > 100<<10 })
	}
}

// The checkpoint that a planned stop requests is the last that a world prints: it is in the report that its member waits.
func TestTheCheckpointOfAPlannedStopIsReported(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap 'echo saved step 77; exit 0' USR1; echo saved step 50; while :; do sleep 0.02; done`)
	b.config.CheckpointSignal, b.config.CheckpointPattern = "SIGUSR1", `saved step (?P<step>\d+)`
	b.launch(t)
	b.service.run(1, 1)
	b.service.await(t, "the first checkpoint", func(r elastic.Report) bool { return r.Saved == job.Saved{Step: 50, Generation: 1} })
	b.service.give(elastic.Order{Do: elastic.Wait, Checkpoint: true})
	b.service.await(t, "the second", func(r elastic.Report) bool {
		return r.State == job.MemberWaiting && r.Saved == job.Saved{Step: 77, Generation: 1}
	})
}

// withTraps runs a script that is asked for checkpoints with SIGUSR1, until it has set its traps and its helper runs. It has an older
// checkpoint.
func withTraps(t *testing.T, script, older string) *bench {
	t.Helper()
	b := newBench(t, 10*time.Minute, "sh", "-c", script)
	b.config.StopGrace = job.Duration(10 * time.Minute) // nobody waits that long here
	b.config.CheckpointDir, b.config.CheckpointSignal = filepath.Join(b.dir, "ckpt"), "SIGUSR1"
	if err := os.Mkdir(b.config.CheckpointDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write(t, older, "an older one")
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	eventually(t, "the traps are set", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "helper"))
		return err == nil && strings.Contains(b.read("log"), "ready")
	})
	return b
}

func TestPlannedStopAwaitsACheckpoint(t *testing.T) {
	t.Parallel()
	// The script writes a checkpoint on SIGUSR1 and keeps training; SIGTERM ends it. The helper reports the signal, which would
	// kill a process without a handler, if it receives it too.
	script := `sh -c 'trap ": > \"$DIR/disturbed\"" USR1; : > "$DIR/helper"; while [ -e "$DIR/helper" ]; do sleep 0.01; done' &
	trap 'sleep 0.2; : > "$DIR/ckpt/9.tmp"; mv "$DIR/ckpt/9.tmp" "$DIR/ckpt/9"' USR1
	trap 'ls "$DIR/ckpt" > "$DIR/at-term"; exit 0' TERM
	echo ready; while :; do sleep 0.02; done`
	b := withTraps(t, script, "ckpt/5")
	b.service.give(elastic.Order{Do: elastic.Wait, Checkpoint: true})
	b.service.awaitState(t, job.MemberWaiting, 1)
	if got := b.read("at-term"); got != "5\n9\n" {
		t.Errorf("at SIGTERM the checkpoints were %q", got)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "disturbed")); err == nil {
		t.Error("the helper got the checkpoint signal")
	}
}

// Acts reach the processes once each, however often they are told, and training goes on.
func TestActsAreDoneOnce(t *testing.T) {
	t.Parallel()
	script := `sh -c 'trap ": > \"$DIR/disturbed\"" USR1 USR2; : > "$DIR/helper"; while [ -e "$DIR/helper" ]; do sleep 0.01; done' &
	trap 'echo got >> "$DIR/signals"' USR2
	trap 'echo 12 > "$DIR/ckpt/step-0012.pt.tmp"; mv "$DIR/ckpt/step-0012.pt.tmp" "$DIR/ckpt/step-0012.pt"' USR1
	echo ready; while :; do sleep 0.02; done`
	b := withTraps(t, script, "ckpt/step-0005.pt")
	before := b.service.awaitState(t, job.MemberRunning, 1)
	ordered := elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, GroupSize: 1, WorldSize: 1}}
	told := func(acts ...job.Act) elastic.Report {
		ordered.Acts = append(slices.Clone(ordered.Acts), acts...)
		b.service.give(ordered)
		return b.service.await(t, "the outcomes", func(r elastic.Report) bool { return len(r.Acts) == len(ordered.Acts) })
	}
	path := func(name string) string { return filepath.Join(b.config.CheckpointDir, name) }
	told(job.Act{ID: "r1", Kind: job.ActSignal, Value: "SIGUSR2"})
	eventually(t, "the signal arrives", func() bool { return b.read("signals") == "got\n" })
	told(job.Act{ID: "r2", Kind: job.ActFind, Value: "12"})
	told(job.Act{ID: "r3", Kind: job.ActCheckpoint})
	told(job.Act{ID: "r4", Kind: job.ActFind}, job.Act{ID: "r5", Kind: job.ActFind, Value: "5"}, job.Act{ID: "r6", Kind: "dance"})
	after := told(job.Act{ID: "r7", Kind: job.ActSignal, Value: "SIGUSR2"})
	want := []job.ActResult{
		{ID: "r1", State: job.ActDone},
		{ID: "r2", State: job.ActAbsent, Steps: [10]int64{5}},
		{ID: "r3", State: job.ActDone, Step: 12, Path: path("step-0012.pt")},
		{ID: "r4", State: job.ActDone, Step: 12, Path: path("step-0012.pt")},
		{ID: "r5", State: job.ActDone, Step: 5, Path: path("step-0005.pt")},
		{ID: "r6", State: job.ActUnsupported},
		{ID: "r7", State: job.ActDone},
	}
	if !slices.Equal(after.Acts, want) {
		t.Errorf("the outcomes are %+v", after.Acts)
	}
	eventually(t, "the second signal arrives", func() bool { return b.read("signals") == "got\ngot\n" })
	if !slices.Equal(after.PIDs, before.PIDs) || after.State != job.MemberRunning {
		t.Errorf("it was disturbed: %+v", after)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "disturbed")); err == nil {
		t.Error("the helper got a signal")
	}
}

// Processes that restart in place write a checkpoint before, and run again when they are given another place.
func TestProcessesRestartInPlace(t *testing.T) {
	t.Parallel()
	script := `: > "$DIR/helper"
	trap ': > "$DIR/ckpt/9.tmp"; mv "$DIR/ckpt/9.tmp" "$DIR/ckpt/9"' USR1
	trap 'ls "$DIR/ckpt" > "$DIR/at-term"; exit 0' TERM
	echo ready; while :; do sleep 0.02; done`
	b := withTraps(t, script, "ckpt/5")
	before := b.service.awaitState(t, job.MemberRunning, 1)
	restart := job.Act{ID: "r1", Kind: job.ActRestart}
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, GroupSize: 1, WorldSize: 1}, Acts: []job.Act{restart}})
	ended := b.service.awaitState(t, job.MemberWaiting, 1)
	if want := []job.ActResult{{ID: "r1", State: job.ActDone}}; !slices.Equal(ended.Acts, want) || ended.Exit != nil {
		t.Errorf("it reports %+v", ended)
	}
	if got := b.read("at-term"); got != "5\n9\n" {
		t.Errorf("at SIGTERM the checkpoints were %q", got)
	}
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 2, GroupSize: 1, WorldSize: 1}, Acts: []job.Act{restart}})
	if after := b.service.awaitState(t, job.MemberRunning, 2); slices.Equal(after.PIDs, before.PIDs) {
		t.Errorf("it has the processes %v as before", after.PIDs)
	}
}

// A checkpoint that a process announces in its output, without a directory; and one that never comes, of which the stop grace is the end.
func TestACheckpointIsReadFromTheOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap 'n=$((n+1)); test $n -gt 1 || echo saved step 77' USR1; echo saved step 50; while :; do sleep 0.02; done`)
	b.config.CheckpointSignal, b.config.CheckpointPattern = "SIGUSR1", `saved step (?P<step>\d+)`
	b.config.StopGrace = job.Duration(time.Second)
	b.launch(t)
	b.service.run(1, 1)
	b.service.await(t, "the first checkpoint", func(r elastic.Report) bool { return r.Saved.Step == 50 })
	ordered := elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, GroupSize: 1, WorldSize: 1}}
	for i, want := range []job.ActResult{{ID: "r1", State: job.ActDone, Step: 77}, {ID: "r2", State: job.ActAbsent}} {
		ordered.Acts = append(slices.Clone(ordered.Acts), job.Act{ID: want.ID, Kind: job.ActCheckpoint})
		b.service.give(ordered)
		got := b.service.await(t, "the outcome", func(r elastic.Report) bool { return len(r.Acts) == i+1 })
		if got.Acts[i] != want {
			t.Errorf("the outcome is %+v, not %+v", got.Acts[i], want)
		}
	}
}

// What a process says of its progress itself counts in place of its output, up to its last line.
func TestAProcessSaysItsProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "python3", "-c", `
import json, os, sys, time
def progress(**said):
    if path := os.environ.get("ELTRAIN_PROGRESS"):
        with open(path, "a") as to:
            to.write(json.dumps(said) + "\n")
print("step 70 loss 9.5")
progress(step=7, total=10, loss=float("nan"))
with open(os.environ["ELTRAIN_PROGRESS"], "a") as to:
    to.write("no JSON\n")
print("step 71 loss 9.5")
while not os.path.exists(os.environ["DIR"] + "/go"):
    time.sleep(0.02)
progress(step=10)
sys.exit(3)`)
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	rank := func(r elastic.Report) *job.RankProgress {
		if len(r.Ranks) != 1 || r.Ranks[0].Progress == nil || r.Ranks[0].Progress.Step == nil {
			return &job.RankProgress{Reading: job.Reading{Step: new(int64)}}
		}
		return r.Ranks[0].Progress
	}
	said := b.service.await(t, "what it says", func(r elastic.Report) bool { return rank(r).By == progress.Said })
	if p := rank(said); *p.Step != 7 || *p.Total != 10 || said.Step != 7 {
		t.Errorf("it is at %+v of %d", p.Reading, *p.Total)
	}
	if _, other := said.Loss.Finite(); other != "NaN" {
		t.Errorf("its loss is %v", said.Loss)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.service.await(t, "its last line", func(r elastic.Report) bool {
		return r.State == job.MemberFailed && r.Exit.Code == 3 && *rank(r).Step == 10
	})
	if left, err := filepath.Glob(filepath.Join(b.dir, "agent", "errors", "*.progress")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A process that has just started does not handle the signal yet, which would end it: it is asked once it does.
func TestAStartingProcessIsAskedForACheckpointLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `while ! test -e "$DIR/imported"; do sleep 0.02; done; trap 'echo saved step 9' USR1; while :; do sleep 0.02; done`)
	b.config.CheckpointSignal, b.config.CheckpointPattern = "SIGUSR1", `saved step (?P<step>\d+)`
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	ordered := elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, GroupSize: 1, WorldSize: 1}}
	ordered.Acts = []job.Act{{ID: "r1", Kind: job.ActCheckpoint}, {ID: "r2", Kind: job.ActSignal, Value: "SIGCONT"}}
	b.service.give(ordered)
	b.service.await(t, "the second act is done, after the first was begun", func(r elastic.Report) bool { return len(r.Acts) == 1 })
	filetest.Put(t, filepath.Join(b.dir, "imported"), "")
	got := b.service.await(t, "the outcome", func(r elastic.Report) bool { return len(r.Acts) == 2 })
	if want := (job.ActResult{ID: "r1", State: job.ActDone, Step: 9}); got.Acts[0] != want {
		t.Errorf("the outcome is %+v, not %+v", got.Acts[0], want)
	}
}

// A world that resumes from a step says so to its processes.
func TestProcessesLearnWhereToResume(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `echo "from ${ELTRAIN_RESUME_STEP-newest}"; exec sleep 600`)
	b.launch(t, "ELTRAIN_RESUME_STEP=7")
	b.service.run(1, 1)
	eventually(t, "nothing is said", func() bool { return strings.Contains(b.read("log"), "from newest") })
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 2, GroupSize: 1, WorldSize: 1, ResumeStep: 120}})
	eventually(t, "the step", func() bool { return strings.Contains(b.read("log"), "from 120") })
}

// The first failure is determined by when each process failed, and an exit may be observed late: the process takes long to
// exit, or the host is busy.
func TestAFailureIsAsOldAsItsErrorFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `echo boom > $TORCHELASTIC_ERROR_FILE; sleep 0.2; : > "$DIR/later"; exit 3`)
	b.launch(t, "DIR="+b.dir)
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberFailed, 1)
	later, err := os.Stat(filepath.Join(b.dir, "later"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Exit == nil || r.Exit.Message != "boom" || r.Exit.At.IsZero() || !r.Exit.At.Before(later.ModTime()) {
		t.Errorf("it failed at %+v, and continued at %v", r.Exit, later.ModTime())
	}
}

// On a busy host an agent may notice a failure only when its peers' failures have already broken the world, and together with the
// order to wait. It reports what had failed by itself, and nothing that ended because it was asked to.
func TestAFailureIsNoticedAfterTheOrderToStop(t *testing.T) {
	for _, test := range []struct {
		name, script string
		processes    int
		ended        int // how many end by themselves, the last ones
		state        job.MemberState
		code         int
	}{
		{"killed", `kill -KILL $$`, 1, 1, job.MemberFailed, 137},
		{"failed", `exit 3`, 1, 1, job.MemberFailed, 3},
		{"with a peer that needs SIGKILL", `[ $LOCAL_RANK = 1 ] && kill -KILL $$; trap "" TERM; while :; do sleep 0.02; done`, 2, 1, job.MemberFailed, 137},
		{"killed, and its peers failed", `[ $LOCAL_RANK = 1 ] && kill -KILL $$; exit 17`, 4, 4, job.MemberFailed, 137},
		{"asked to stop", `trap "exit 3" TERM; : > "$DIR/trapped"; while :; do sleep 0.02; done`, 1, 0, job.MemberWaiting, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 10*time.Minute, "sh", "-c", `echo $$ > "$DIR/pid.$LOCAL_RANK"; until [ -e "$DIR/go" ]; do sleep 0.02; done; `+test.script)
			b.config.Processes = test.processes
			b.config.StopGrace = job.Duration(200 * time.Millisecond)
			a := b.launch(t, "DIR="+b.dir)
			b.service.run(1, test.processes)
			b.service.awaitState(t, job.MemberRunning, 1)
			pids := make([]int, test.processes)
			for local := range pids {
				pids[local] = b.pidIn(t, fmt.Sprintf("pid.%d", local))
			}
			a.signal(t, unix.SIGSTOP)
			b.write(t, "go", "")
			eventually(t, "what the script does", func() bool {
				return !slices.ContainsFunc(pids[test.processes-test.ended:], alive) && (test.ended > 0 || b.exists("trapped"))
			})
			b.service.give(elastic.Order{Do: elastic.Wait})
			a.signal(t, unix.SIGCONT)
			r := b.service.await(t, "how it ended", func(r elastic.Report) bool {
				return r.Generation == 1 && r.State != job.MemberRunning && len(r.PIDs) == 0
			})
			if r.State != test.state || r.Exit != nil && r.Exit.Code != test.code {
				t.Errorf("it reports %s with %+v", r.State, r.Exit)
			}
		})
	}
}

// A pointer file is often written in place: truncated, then filled. SIGTERM must not come between the two.
func TestPlannedStopLeavesNoEmptyPointer(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sh", "-c", `trap 'exec 3> "$CKPT/latest"; sleep 0.1; echo step-9 >&3' USR1; echo ready; while :; do sleep 0.02; done`)
	b.config.CheckpointDir, b.config.CheckpointSignal = filepath.Join(b.dir, "ckpt"), "SIGUSR1"
	b.config.StopGrace = job.Duration(time.Minute)
	if err := os.Mkdir(b.config.CheckpointDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write(t, "ckpt/latest", "step-5\n")
	b.launch(t, "CKPT="+b.config.CheckpointDir)
	b.service.run(1, 1)
	eventually(t, "the trap is set", func() bool { return strings.Contains(b.read("log"), "ready") })
	b.service.give(elastic.Order{Do: elastic.Wait, Checkpoint: true})
	b.service.awaitState(t, job.MemberWaiting, 1)
	if got := b.read("ckpt/latest"); got != "step-9\n" {
		t.Errorf("the pointer is %q", got)
	}
}

func TestSecondLaunchOfAnIncarnationDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	a := b.launch(t)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	before := b.read("agent/agent.json")
	if code := b.launch(t).code(t); code != ExitStarted {
		t.Errorf("a second agent next to the first exited with %d", code)
	}
	a.signal(t, unix.SIGKILL)
	a.code(t)
	if code := b.launch(t).code(t); code != ExitStarted {
		t.Errorf("a second agent after the first exited with %d", code)
	}
	if b.read("agent/agent.json") != before || b.read("agent/exit.json") != "" {
		t.Error("the second agent changed the first one's files")
	}
	if n := b.service.registrations(); n != 1 {
		t.Errorf("%d registrations", n)
	}
	var self agentRecord
	if err := json.Unmarshal([]byte(before), &self); err != nil || self.PID != a.cmd.Process.Pid || self.Started.IsZero() {
		t.Errorf("agent.json is %s (%v)", before, err)
	}
}

func TestUnusableConfigurationIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second, "true")
	b.config.CheckpointSignal = "SIGNONSENSE"
	a := b.launch(t)
	if code := a.code(t); code != ExitConfig {
		t.Errorf("exit code %d", code)
	}
	if e := b.exit(t); e.Reason != "failed" || !strings.Contains(e.Exit.NotStarted, "SIGNONSENSE") {
		t.Errorf("exit.json has %+v", e)
	}
}

// The session may report at any moment, even while the processes are being started.
func TestNothingIsSaidToRunBeforeItIsRecorded(t *testing.T) {
	b := newBench(t, time.Second, "true")
	b.config.Processes = 2
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	rec, err := openRecord(b.config.Dir, 0, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer rec.close()
	a, err := newAgent(b.config, rec, log)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.launcher.forker.close()
	a.launcher.forker = &forker{work: make(chan func()), done: make(chan struct{})}
	var said []string
	go func() {
		defer close(a.launcher.forker.done)
		for fork := range a.launcher.forker.work {
			r := a.currentReport().Report
			said = append(said, fmt.Sprintf("%s in generation %d, pids %v", r.State, r.Generation, r.PIDs))
			fork()
		}
	}()
	world := func(generation int) ordered {
		return ordered{Order: elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: generation, GroupSize: 1, WorldSize: 2}}}
	}
	a.publish()
	a.step(world(1))
	first := a.currentReport().Report
	if first.State != job.MemberRunning || len(first.PIDs) != 2 {
		t.Errorf("once started it reports %+v", first)
	}
	for number := range 2 {
		var recorded processesRecord
		if err := json.Unmarshal([]byte(b.read("agent/processes.json")), &recorded); err != nil || len(recorded.Processes) != 2 || recorded.Generation != number+1 {
			t.Errorf("generation %d is recorded as %+v, %v", number+1, recorded, err)
		}
		if number == 0 { // the next world comes while this one is being stopped
			a.step(world(2))
		}
		for done := false; !done; {
			e := <-a.events
			_, done = e.(stopped)
			a.step(e)
		}
	}
	want := []string{
		"waiting in generation 0, pids []", "waiting in generation 0, pids []",
		fmt.Sprintf("running in generation 1, pids %v", first.PIDs), fmt.Sprintf("running in generation 1, pids %v", first.PIDs),
	}
	if d := cmp.Diff(want, said); d != "" {
		t.Errorf("reports while processes are being started (-want +got):\n%s", d)
	}
}

// In the test's own process, so that goleak checks a whole agent's life.
func TestRunLeavesNoGoroutine(t *testing.T) {
	b := newBench(t, 300*time.Millisecond, "sleep", "60")
	b.config.Dir = "" // as in a pod
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	code := make(chan int)
	go func() { code <- Run(ctx, b.config, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	cancel()
	select {
	case got := <-code:
		if got != ExitLeft {
			t.Errorf("exit code %d", got)
		}
	case <-time.After(patience):
		t.Fatal("Run does not return")
	}
	if alive(r.PIDs[0]) {
		t.Error("the process still runs")
	}
}
