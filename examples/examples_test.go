//go:build unix

// Package examples_test runs the example training scripts without a launcher: it does the
// launcher's work (environment, kills, restarts) and checks what the scripts' headers
// promise. All tests and benchmarks of eltrain that use these scripts rely on these
// properties.
package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/soak"
)

const exitPeerLost = 17

// A trainer is one of the example scripts, with limits for its tests.
type trainer struct {
	name      string
	python    string
	script    string
	tolerance float64 // maximum difference of the losses of two worlds
}

var stdlib = trainer{
	name: "stdlib", python: "python3", script: "mnist-local/train.py",
}

// torch returns the script for Debian's PyTorch. Without PyTorch the test is skipped, or
// fails where it is required: make test sets WITH_TORCH.
func torch(t *testing.T) trainer {
	t.Helper()
	tr := trainer{
		name: "torch", python: "/usr/bin/python3", script: "mnist-torch/train.py",
		tolerance: 1e-9,
	}
	if out, err := exec.Command(tr.python, "-c", "import torch").CombinedOutput(); err != nil {
		msg := fmt.Sprintf("%s cannot import torch (apt-get install python3-torch): %v\n%s", tr.python, err, out)
		if os.Getenv("WITH_TORCH") != "" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	return tr
}

func TestLossDoesNotDependOnTheWorld(t *testing.T) {
	t.Parallel()
	testLossDoesNotDependOnTheWorld(t, stdlib, 1, 2, 3, 4)
}

func TestTorchLossDoesNotDependOnTheWorld(t *testing.T) {
	soak.Only(t)
	testLossDoesNotDependOnTheWorld(t, torch(t), 1, 2, 3)
}

func testLossDoesNotDependOnTheWorld(t *testing.T, tr trainer, sizes ...int) {
	t.Helper()
	dir := t.TempDir()
	var first map[int]string
	for _, size := range sizes {
		ckpt := filepath.Join(dir, strconv.Itoa(size))
		w := tr.start(t, size, nil, "--ckpt-dir", ckpt, "--steps=60", "--log-every=1", "--step-ms=0")
		w.mustExit(0)
		got := w.losses()
		if len(got) != 60 {
			t.Fatalf("world %d printed the loss of %d steps, want 60:\n%s", size, len(got), w)
		}
		if first == nil {
			first = got
		}
		tr.mustAgree(t, first, got)
		if tr.tolerance == 0 {
			mustBeSameBytes(t, newestCheckpoint(t, filepath.Join(dir, strconv.Itoa(sizes[0]))), newestCheckpoint(t, ckpt))
		}
	}
}

func TestLearnsTheDigits(t *testing.T) {
	t.Parallel()
	w := stdlib.start(t, 2, nil, "--steps=500", "--step-ms=0", "--ckpt-dir", t.TempDir())
	w.mustExit(0)
	m := regexp.MustCompile(`(?m)^accuracy (\S+) on`).FindStringSubmatch(w.ranks[0].out.String())
	if m == nil {
		t.Fatalf("no accuracy printed:\n%s", w)
	}
	if a, err := strconv.ParseFloat(m[1], 64); err != nil || a < 0.85 {
		t.Errorf("accuracy %s, want at least 0.85", m[1])
	}
}

func TestLostPeerEndsTheWorldAndTheNextResumes(t *testing.T) {
	t.Parallel()
	for _, victim := range []int{0, 2} {
		t.Run(fmt.Sprintf("rank%d", victim), func(t *testing.T) {
			t.Parallel()
			testLostPeer(t, stdlib, victim)
		})
	}
}

func TestTorchLostPeerEndsTheWorldAndTheNextResumes(t *testing.T) {
	soak.Only(t)
	testLostPeer(t, torch(t), 2)
}

func testLostPeer(t *testing.T, tr trainer, victim int) {
	t.Helper()
	flags := []string{"--steps=300", "--log-every=1", "--ckpt-every=10"}
	undisturbed := tr.start(t, 1, nil, append(flags, "--step-ms=0", "--ckpt-dir", t.TempDir())...)
	undisturbed.mustExit(0)

	dir := t.TempDir()
	w := tr.start(t, 4, nil, append(flags, "--step-ms=20", "--ckpt-dir", dir)...)
	w.until("step 30", func() bool { return w.lastStep() >= 30 })
	w.ranks[victim].signal(t, syscall.SIGKILL)
	for _, r := range w.ranks {
		if r.rank == victim {
			continue
		}
		if code := r.wait(t); code != exitPeerLost {
			t.Errorf("rank %d exited with %d after rank %d was killed, want %d:\n%s", r.rank, code, victim, exitPeerLost, w)
		}
		if msg := r.errorMessage(t); !strings.HasPrefix(msg, "PeerLost: ") {
			t.Errorf("rank %d wrote %q into the error file, want PeerLost", r.rank, msg)
		}
	}

	next := tr.start(t, 3, nil, append(flags, "--step-ms=0", "--ckpt-dir", dir)...)
	next.mustExit(0)
	if from := next.beganAfter(); from < 20 || from%10 != 0 {
		t.Errorf("the next world began after step %d, want the newest checkpoint", from)
	}
	want := undisturbed.losses()
	tr.mustAgree(t, want, w.losses())
	tr.mustAgree(t, want, next.losses())
	if _, ok := next.losses()[300]; !ok {
		t.Errorf("the next world did not reach the last step:\n%s", next)
	}
}

func TestSignalMakesACheckpoint(t *testing.T) {
	t.Parallel()
	testSignalMakesACheckpoint(t, stdlib)
}

func TestTorchSignalMakesACheckpoint(t *testing.T) {
	soak.Only(t)
	testSignalMakesACheckpoint(t, torch(t))
}

func testSignalMakesACheckpoint(t *testing.T, tr trainer) {
	t.Helper()
	dir := t.TempDir()
	w := tr.start(t, 2, nil, "--steps=100000", "--log-every=1", "--ckpt-every=100000", "--ckpt-dir", dir)
	w.until("a step", func() bool { return w.lastStep() > 0 })
	if got := checkpoints(t, dir); len(got) > 0 {
		t.Fatalf("checkpoints before anybody asked: %v", got)
	}
	// Any rank may get the signal; rank 0 writes the checkpoint.
	for _, r := range []int{1, 0} {
		had, at := len(checkpoints(t, dir)), w.lastStep()
		w.ranks[r].signal(t, syscall.SIGUSR1)
		w.until("a checkpoint", func() bool { return len(checkpoints(t, dir)) > had })
		newest := newestCheckpoint(t, dir)
		w.until("training to go on", func() bool { return w.lastStep() > stepOf(t, newest) })
		w.until("its line in the output", func() bool { return w.lastSaved() == stepOf(t, newest) })
		if step := stepOf(t, newest); step < at || step > at+1000 {
			t.Errorf("asked after step %d, checkpoint of step %d, want it at once", at, step)
		}
	}
	w.kill()
	if got := checkpoints(t, dir); len(got) != 2 {
		t.Errorf("asked twice, got %v", got)
	}
}

func TestCrashWritesTheErrorFile(t *testing.T) {
	t.Parallel()
	testCrash(t, stdlib)
}

func TestTorchCrashWritesTheErrorFile(t *testing.T) {
	soak.Only(t)
	testCrash(t, torch(t))
}

func testCrash(t *testing.T, tr trainer) {
	t.Helper()
	dir := t.TempDir()
	for range 2 { // in every world, including resumed ones
		w := tr.start(t, 2, nil, "--steps=50", "--ckpt-every=10", "--crash-at=25", "--step-ms=0", "--ckpt-dir", dir)
		if code := w.ranks[1].wait(t); code != 1 {
			t.Errorf("crashed rank exited with %d, want 1:\n%s", code, w)
		}
		if code := w.ranks[0].wait(t); code != exitPeerLost {
			t.Errorf("its peer exited with %d, want %d:\n%s", code, exitPeerLost, w)
		}
		if got, want := w.ranks[1].errorMessage(t), "RuntimeError: crash asked for at step 25"; got != want {
			t.Errorf("error file says %q, want %q", got, want)
		}
	}
	w := tr.start(t, 2, []string{"TORCHELASTIC_RESTART_COUNT=1"},
		"--steps=50", "--crash-at=25", "--fault-once", "--step-ms=0", "--ckpt-dir", dir)
	w.mustExit(0)
}

func TestHungPeerIsGivenUpAfterTheTimeout(t *testing.T) {
	t.Parallel()
	w := stdlib.start(t, 3, nil, "--hang-at=5", "--fault-rank=1", "--pg-timeout=10", "--step-ms=0", "--ckpt-dir", t.TempDir())
	for _, rank := range []int{0, 2} {
		if code := w.ranks[rank].wait(t); code != exitPeerLost {
			t.Errorf("rank %d exited with %d, want %d:\n%s", rank, code, exitPeerLost, w)
		}
	}
	if w.ranks[1].exited() {
		t.Errorf("rank 1 was to hang, but exited:\n%s", w)
	}
}

func TestWorldThatCannotFormEnds(t *testing.T) {
	t.Parallel()
	for rank := range 2 {
		t.Run(fmt.Sprintf("rank%d", rank), func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, trainer: stdlib, port: freePort(t)}
			w.add(rank, 2, nil, "--pg-timeout=0.3", "--ckpt-dir", t.TempDir())
			w.mustExit(exitPeerLost)
		})
	}
}

func TestRankOfAnEarlierWorldIsKeptOut(t *testing.T) {
	t.Parallel()
	now, before := []string{"ELTRAIN_GENERATION=2"}, []string{"ELTRAIN_GENERATION=1"}
	dir := t.TempDir()
	w := &world{t: t, trainer: stdlib, port: freePort(t)}
	rank0 := w.add(0, 2, now, "--steps=20", "--step-ms=0", "--ckpt-dir", dir)
	var conn net.Conn
	w.until("rank 0 to listen", func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.port))
		return err == nil
	})
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil { // an unrelated connection must be harmless, too
		t.Fatal(err)
	}
	stale := &world{t: t, trainer: stdlib, port: w.port}
	stale.add(1, 2, before, "--steps=20", "--pg-timeout=1", "--ckpt-dir", dir)
	stale.mustExit(exitPeerLost)
	if rank0.exited() {
		t.Fatalf("rank 0 did not wait for the right peer:\n%s", w)
	}
	w.add(1, 2, now, "--steps=20", "--step-ms=0", "--ckpt-dir", dir)
	w.mustExit(0)
	conn.Close()
}

func TestUnfinishedAndGarbledCheckpointsArePassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(steps int) *world {
		w := stdlib.start(t, 1, nil, fmt.Sprintf("--steps=%d", steps), "--ckpt-every=10", "--step-ms=0", "--ckpt-dir", dir)
		w.mustExit(0)
		return w
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"step": 90, "wei`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("step-00000090.json.tmp.4242")
	if from := run(20).beganAfter(); from != 0 {
		t.Errorf("began after step %d with nothing but an unfinished checkpoint", from)
	}
	write("step-00000095.json")
	if from := run(100).beganAfter(); from != 20 {
		t.Errorf("began after step %d, want 20, the newest that can be read", from)
	}
	if got := checkpoints(t, dir); len(got) != 2 {
		t.Errorf("kept %v, want the newest two", got)
	}
}

func TestEventsTellTheTimesOfAStart(t *testing.T) {
	t.Parallel()
	events := filepath.Join(t.TempDir(), "events")
	w := stdlib.start(t, 2, []string{"TRAIN_EVENTS=" + events}, "--steps=10", "--step-ms=0", "--ckpt-dir", t.TempDir())
	w.mustExit(0)
	data, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int][]string{}
	last := map[int]float64{}
	for line := range bytes.Lines(data) {
		var e struct {
			Ev   string
			T    float64
			Rank int
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.T < last[e.Rank] {
			t.Errorf("time goes back: %s", line)
		}
		last[e.Rank] = e.T
		seen[e.Rank] = append(seen[e.Rank], e.Ev)
	}
	want := []string{"start imported pg ready first_step step ckpt done", "start imported pg ready first_step done"}
	for rank, w := range want {
		if got := strings.Join(seen[rank], " "); got != w {
			t.Errorf("events of rank %d: %s\nwant: %s", rank, got, w)
		}
	}
}

// ---- running ranks ----------------------------------------------------------------------

// A world is a set of ranks started by a test, as a launcher would.
type world struct {
	t       *testing.T
	trainer trainer
	port    int
	ranks   []*rank
}

type rank struct {
	rank      int
	cmd       *exec.Cmd
	out       *output
	errorFile string
	done      chan struct{} // closed when it has exited and all its output is in out
}

// start runs a world of the given size.
func (tr trainer) start(t *testing.T, size int, env []string, args ...string) *world {
	t.Helper()
	w := &world{t: t, trainer: tr, port: freePort(t)}
	for r := range size {
		w.add(r, size, env, args...)
	}
	return w
}

func (w *world) add(n, size int, env []string, args ...string) *rank {
	w.t.Helper()
	r := &rank{
		rank: n, out: &output{}, done: make(chan struct{}),
		errorFile: filepath.Join(w.t.TempDir(), "error.json"),
	}
	r.cmd = exec.Command(w.trainer.python, append([]string{w.trainer.script}, args...)...)
	r.cmd.Env = append(os.Environ(), "RANK="+strconv.Itoa(n), "WORLD_SIZE="+strconv.Itoa(size),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(w.port), "TORCHELASTIC_ERROR_FILE="+r.errorFile)
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // the result is in ProcessState
	}()
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	w.ranks = append(w.ranks, r)
	return r
}

// mustExit waits for all ranks, and fails the test unless each exits with this code.
func (w *world) mustExit(code int) {
	w.t.Helper()
	for _, r := range w.ranks {
		if got := r.wait(w.t); got != code {
			w.t.Fatalf("rank %d exited with %d, want %d:\n%s", r.rank, got, code, w)
		}
	}
}

func (w *world) kill() {
	for _, r := range w.ranks {
		_ = r.cmd.Process.Kill()
		<-r.done
	}
}

// until polls, and fails the test if the condition does not become true or a rank exits.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(hang.Bound); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("waited %v for %s:\n%s", hang.Bound, what, w)
		}
		for _, r := range w.ranks {
			if r.exited() {
				w.t.Fatalf("rank %d ended before %s:\n%s", r.rank, what, w)
			}
		}
	}
}

func (w *world) String() string {
	var b strings.Builder
	for _, r := range w.ranks {
		fmt.Fprintf(&b, "--- rank %d\n%s", r.rank, r.out)
	}
	return b.String()
}

var (
	stepLine  = regexp.MustCompile(`(?m)^step (?P<step>\d+) loss (?P<loss>\S+)`) // as in job.hcl
	savedLine = regexp.MustCompile(`(?m)^saved step (?P<step>\d+)`)              // likewise
	beginLine = regexp.MustCompile(`(?m)^rank 0 of \d+ begins after step (\d+)`)
)

// losses returns the losses that rank 0 printed, by step.
func (w *world) losses() map[int]string {
	all := map[int]string{}
	for _, m := range stepLine.FindAllStringSubmatch(w.ranks[0].out.String(), -1) {
		step, _ := strconv.Atoi(m[1])
		all[step] = m[2]
	}
	return all
}

func (w *world) lastStep() int {
	last := 0
	for step := range w.losses() {
		last = max(last, step)
	}
	return last
}

// lastSaved returns the step of the last checkpoint in the output; 0 if there is none.
func (w *world) lastSaved() int {
	lines := savedLine.FindAllStringSubmatch(w.ranks[0].out.String(), -1)
	if len(lines) == 0 {
		return 0
	}
	step, _ := strconv.Atoi(lines[len(lines)-1][1])
	return step
}

func (w *world) beganAfter() int {
	m := beginLine.FindStringSubmatch(w.ranks[0].out.String())
	if m == nil {
		return -1
	}
	step, _ := strconv.Atoi(m[1])
	return step
}

func (r *rank) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal rank %d: %v", r.rank, err)
	}
}

// wait returns the exit code, -1 if a signal killed it.
func (r *rank) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-r.done:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(hang.Bound):
		t.Fatalf("rank %d still runs after %v:\n%s", r.rank, hang.Bound, r.out)
		return -1
	}
}

func (r *rank) exited() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// errorMessage reads the error file as torchelastic does.
func (r *rank) errorMessage(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(r.errorFile)
	if err != nil {
		t.Fatalf("rank %d: %v", r.rank, err)
	}
	var file struct {
		Message struct {
			Message   string
			ExtraInfo struct {
				Callstack string `json:"py_callstack"`
				Timestamp string
			}
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatalf("rank %d: %v in %s", r.rank, err, data)
	}
	if !strings.HasPrefix(file.Message.ExtraInfo.Callstack, "Traceback ") {
		t.Errorf("rank %d: no call stack in %s", r.rank, data)
	}
	if _, err := strconv.ParseInt(file.Message.ExtraInfo.Timestamp, 10, 64); err != nil {
		t.Errorf("rank %d: timestamp: %v in %s", r.rank, err, data)
	}
	return file.Message.Message
}

// output collects what a process has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// freePort returns a port below the ephemeral range, so that no outgoing connection of a
// parallel test can take it before rank 0 listens.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatal("no free port")
	return 0
}

// ---- comparing --------------------------------------------------------------------------

// mustAgree checks that losses are equal at equal steps. got may have fewer steps.
func (tr trainer) mustAgree(t *testing.T, want, got map[int]string) {
	t.Helper()
	if len(got) == 0 {
		t.Error("no losses to compare")
	}
	for step, g := range got {
		w := want[step]
		a, errA := strconv.ParseFloat(w, 64)
		b, errB := strconv.ParseFloat(g, 64)
		// Slightly more than the tolerance, because both were rounded to nine decimals.
		if errA != nil || errB != nil || math.Abs(a-b) > tr.tolerance*1.01 || (tr.tolerance == 0 && w != g) {
			t.Errorf("loss at step %d: %s, want %s", step, g, w)
		}
	}
}

var complete = regexp.MustCompile(`^step-(\d{8})\.(json|pt)$`)

// checkpoints returns the names of complete checkpoints, oldest first.
func checkpoints(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if complete.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

func newestCheckpoint(t *testing.T, dir string) string {
	t.Helper()
	names := checkpoints(t, dir)
	if len(names) == 0 {
		t.Fatalf("no checkpoint in %s", dir)
	}
	return filepath.Join(dir, names[len(names)-1])
}

func stepOf(t *testing.T, checkpoint string) int {
	t.Helper()
	step, err := strconv.Atoi(complete.FindStringSubmatch(filepath.Base(checkpoint))[1])
	if err != nil {
		t.Fatal(err)
	}
	return step
}

func mustBeSameBytes(t *testing.T, a, b string) {
	t.Helper()
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}
