package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// stacks runs the agent's own task in the slot.
func (b *bench) stacks(t *testing.T) []job.ProcessStacks {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, out, errors := b.dial(t, "env", asAgent+"=1", self, job.AgentStacks).await(t)
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, errors)
	}
	var all []job.ProcessStacks
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return all
}

// python makes the bench's processes those of a script.
func python(t *testing.T, script string) *bench {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, time.Second)
	b.write(t, "train.py", script)
	b.config.Command = []string{program, filepath.Join(b.dir, "train.py")}
	return b
}

const inCollective = `
import faulthandler, os, signal, threading, time
if path := os.environ.get("ELTRAIN_STACKS_FILE"):
    faulthandler.register(signal.SIGUSR2, file=open(path, "w"))
def wait_for_peers():
    open(os.environ["OUT"] + os.environ["RANK"], "w")
    threading.Event().wait()
def train():
    wait_for_peers()
train()
`

func TestStacksByFaulthandler(t *testing.T) {
	t.Parallel()
	b := python(t, inCollective)
	b.config.Processes = 2
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
	b.service.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{Generation: 1, RankBase: 2, WorldSize: 4, MasterAddr: "127.0.0.1", MasterPort: 29500}})
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "both train", func() bool { return slices.Equal(glob(t, b.dir, "there*"), []string{"there2", "there3"}) })
	for range 2 { // the second dump follows the first in the file
		all := b.stacks(t)
		if len(all) != 2 {
			t.Fatalf("stacks of %d processes: %+v", len(all), all)
		}
		for i, s := range all {
			if s.Rank != 2+i || s.LocalRank != i || s.PID != r.PIDs[i] || s.Child || s.Source != job.StacksFaulthandler || len(s.Threads) != 1 {
				t.Errorf("process %d: %+v", i, s)
				continue
			}
			frames := strings.Join(s.Threads[0].Frames, "\n")
			if !regexp.MustCompile(`(?s)wait_for_peers \(.*/train\.py:7\)\ntrain \(.*/train\.py:9\)\n<module> \(.*/train\.py:10\)$`).MatchString(frames) {
				t.Errorf("the frames are\n%s", frames)
			}
		}
	}
}

// A script that knows nothing of stacks has them all the same, and the sitecustomize that it would have had.
func TestStacksByTheHook(t *testing.T) {
	t.Parallel()
	b := python(t, "import os, signal, threading\n"+
		"signal.signal(signal.SIGUSR2, lambda *_: os._exit(9))\n"+
		"def wait_for_peers():\n    threading.Event().wait()\n"+
		"import sitecustomize\nopen(os.environ['OUT'] + sitecustomize.own, 'w')\nwait_for_peers()\n")
	b.write(t, "sitecustomize.py", "own = '-own'\n")
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"), "PYTHONPATH="+b.dir)
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there-own")) == 1 })
	all := b.stacks(t)
	if len(all) != 1 || all[0].Source != job.StacksFaulthandler || len(all[0].Threads) != 1 || !strings.HasPrefix(strings.Join(all[0].Threads[0].Frames[len(all[0].Threads[0].Frames)-2:], "\n"), "wait_for_peers (") {
		t.Errorf("%+v", all)
	}
}

// A process that runs Python is asked a thousand times for its stacks and lives: faulthandler's own handler would have crashed it, since
// frames are whole only between two instructions.
func TestStacksOfARunningProcess(t *testing.T) {
	t.Parallel()
	b := python(t, "import json, os, re\n"+
		"def work(n):\n    return len(re.sub('a', 'b', json.dumps({'a': n}))) + sum(map(lambda x: x * 2, range(n % 50)))\n"+
		"def each(n):\n    for i in range(n):\n        yield work(i)\n"+
		"def spin():\n    while True:\n        exec('def f(x): return [y for y in each(x)]\\nf(50)', globals())\n"+
		"open(os.environ['OUT'], 'w')\nspin()\n")
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there")) == 1 })
	all := b.stacks(t)
	if len(all) != 1 || all[0].Source != job.StacksFaulthandler || len(all[0].Threads) != 1 || strings.Contains(all[0].Threads[0].Frames[0], "sitecustomize") ||
		!slices.ContainsFunc(all[0].Threads[0].Frames, func(frame string) bool { return strings.HasPrefix(frame, "spin (") }) {
		t.Fatalf("%+v", all)
	}
	for range 1000 {
		if err := unix.Tgkill(r.PIDs[0], hookThread(r.PIDs[0]), askSignal); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if !alive(r.PIDs[0]) || hookThread(r.PIDs[0]) == 0 {
		t.Error("asking for stacks killed a process")
	}
}

// Taking stacks ends no sleep and no poll of a C library, whether it holds the interpreter or not: the call that the process is in
// is still its first when the test itself interrupts it.
func TestStacksInterruptNothing(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]string{
		"nanosleep":                           "ctypes.CDLL(None).nanosleep((ctypes.c_long * 2)(3600, 0), None)",
		"poll":                                "ctypes.CDLL(None).poll(None, 0, -1)",
		"poll that holds the interpreter":     "ctypes.PyDLL(None).poll(None, 0, -1)",
		"sigwait for what all others may get": "signal.sigwait([signal.SIGUSR1]); woken.append(1)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := python(t, "import ctypes, os, signal\n"+
				"woken = []\nsignal.signal(signal.SIGUSR1, lambda *_: woken.append(1))\n"+
				"if 'sigwait' in '"+name+"': signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"+
				"def wait_in_library():\n    "+wait+"\n"+
				"calls = 0\nopen(os.environ['OUT'], 'w')\n"+
				"while not woken:\n    calls += 1\n    wait_in_library()\n"+
				"os.rename(os.environ['OUT'], os.environ['OUT'] + '-calls-%d' % calls)\nsignal.pause()\n")
			b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
			b.service.run(1, 1)
			r := b.service.awaitState(t, job.MemberRunning, 1)
			eventually(t, "it sleeps", func() bool {
				st, ok := readStat(r.PIDs[0])
				return ok && len(glob(t, b.dir, "there")) == 1 && stateOf(st.state) == job.ThreadSleeps
			})
			for range 2 {
				s := b.stacks(t)[0]
				if s.Source != job.StacksFaulthandler || len(s.Threads) != 1 || !slices.ContainsFunc(s.Threads[0].Frames, func(frame string) bool { return strings.HasPrefix(frame, "wait_in_library (") }) {
					t.Errorf("%+v", s)
				}
			}
			if err := unix.Kill(r.PIDs[0], unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is woken", func() bool { return len(glob(t, b.dir, "there-calls-*")) == 1 })
			if got := glob(t, b.dir, "there-calls-*"); got[0] != "there-calls-1" {
				t.Errorf("its wait was interrupted: %s", got[0])
			}
		})
	}
}

// A process forks without the hook's thread. It and its children have their own afterwards.
func TestStacksAfterForks(t *testing.T) {
	t.Parallel()
	b := python(t, "import os, signal, sys, warnings\nwarnings.simplefilter('error')\n"+
		"for n in range(20):\n    pid = os.fork()\n    if pid == 0:\n        os._exit(3)\n    assert os.waitpid(pid, 0)[1] == 3 << 8\n"+
		"def wait_for_peers():\n    signal.pause()\n"+
		"pid = os.fork()\nsignal.alarm(300) # the child has no other end\nopen(os.environ['OUT'] + ('-parent' if pid else '-child'), 'w').close()\nwait_for_peers()\n")
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "both wait", func() bool { return len(glob(t, b.dir, "there-*")) == 2 })
	all := b.stacks(t)
	if len(all) != 2 || !all[1].Child {
		t.Fatalf("%+v", all)
	}
	for _, s := range all {
		if s.Source != job.StacksFaulthandler || len(s.Threads) != 1 || !strings.HasPrefix(s.Threads[0].Frames[0], "wait_for_peers (") {
			t.Errorf("%+v", s)
		}
	}
}

// A process that does not handle the signal, or has not opened the file, is never signalled: it would die.
func TestStacksKillNothing(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"handles nothing":                   `open(os.environ["ELTRAIN_STACKS_FILE"], "w")`,
		"holds the file, without a handler": `held = open(os.environ["ELTRAIN_STACKS_FILE"], "w")`,
		"another handler":                   `signal.signal(signal.SIGUSR2, lambda *_: os._exit(9))`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := python(t, "import os, signal, subprocess, threading\n"+script+"\nchild = subprocess.Popen(['sleep', '60'])\nopen(os.environ['OUT'], 'w')\nthreading.Event().wait()\n")
			b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"), "ELTRAIN_STACKS_HOOK=off")
			b.service.run(1, 1)
			r := b.service.awaitState(t, job.MemberRunning, 1)
			eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there")) == 1 })
			all := b.stacks(t)
			if len(all) != 2 || all[0].Source != job.StacksKernel || all[0].PID != r.PIDs[0] || all[1].Name != "sleep" || !all[1].Child {
				t.Fatalf("%+v", all)
			}
			for _, s := range all {
				if len(s.Threads) != 1 || s.Threads[0].State != "sleeping" {
					t.Errorf("%+v", s)
				}
			}
			if !strings.HasPrefix(all[1].Threads[0].Waits, "clock_nanosleep") && !strings.HasPrefix(all[1].Threads[0].Waits, "nanosleep") && all[1].Threads[0].Waits != "" {
				t.Errorf("a sleep waits in %q", all[1].Threads[0].Waits)
			}
			if !alive(r.PIDs[0]) || !alive(all[1].PID) {
				t.Error("asking for stacks killed a process")
			}
		})
	}
}

// A process that is stopped answers nothing: its stacks are the kernel's, at once.
func TestStacksOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	b := python(t, inCollective)
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+os.Getenv("PATH"))
	b.service.run(1, 1)
	r := b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there*")) == 1 })
	if err := syscall.Kill(r.PIDs[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(r.PIDs[0], syscall.SIGCONT)
	eventually(t, "it is stopped", func() bool {
		return strings.HasPrefix(statusOf(fmt.Sprintf("/proc/%d/status", r.PIDs[0]), "State"), "T")
	})
	all := b.stacks(t)
	if len(all) != 1 || all[0].Source != job.StacksKernel || len(all[0].Failed) > 0 || len(all[0].Threads) == 0 || all[0].Threads[0].State != "stopped" {
		t.Errorf("%+v", all)
	}
}

// With a signal for checkpoints that is the same there is no file.
func TestStacksLeaveTheCheckpointSignalAlone(t *testing.T) {
	c := job.AgentConfig{Job: "a", Slot: "w[0]", Processes: 1}
	has := func() bool {
		return slices.ContainsFunc(environ(nil, &c, elastic.Place{}, 0, processFiles{error: "/errors/1-0.json"}, ""), func(kv string) bool { return kv == job.StacksVariable+"=/errors/1-0.stacks" })
	}
	if !has() {
		t.Error("there is no file for stacks")
	}
	if c.CheckpointSignal = "SIGUSR2"; has() {
		t.Error("checkpoints and stacks have the same signal")
	}
}

// A py-spy in the slot is the first choice. One that fails is named.
func TestStacksByPySpy(t *testing.T) {
	t.Parallel()
	b := python(t, inCollective)
	tools := t.TempDir()
	spy := func(script string) {
		if err := os.WriteFile(filepath.Join(tools, "py-spy"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spy("exit 1")
	b.launch(t, "OUT="+filepath.Join(b.dir, "there"), "PATH="+tools+":"+os.Getenv("PATH"))
	b.service.run(1, 1)
	b.service.awaitState(t, job.MemberRunning, 1)
	eventually(t, "it trains", func() bool { return len(glob(t, b.dir, "there*")) == 1 })
	spy("echo Error: Permission Denied >&2; exit 1")
	if s := b.stacks(t)[0]; s.Source != job.StacksFaulthandler || len(s.Failed) != 1 || !strings.Contains(s.Failed[0], "Permission Denied") {
		t.Errorf("a py-spy that may not trace: %+v", s)
	}
	spy(`cat <<END
[{"process_id":1,"thread_id":140,"thread_name":"MainThread","os_thread_id":77,"active":true,"owns_gil":true,"frames":[{"name":"wait","filename":"/t.py","module":null,"short_filename":"t.py","line":7,"locals":null},{"name":"<module>","filename":"/t.py","line":10}]}]
END`)
	s := b.stacks(t)[0]
	want := job.ThreadStack{ID: "77", Name: "MainThread", State: "active+gil", Frames: []string{"wait (/t.py:7)", "<module> (/t.py:10)"}}
	if s.Source != job.StacksPySpy || len(s.Threads) != 1 || s.Threads[0].ID != want.ID || s.Threads[0].Name != want.Name || s.Threads[0].State != want.State || !slices.Equal(s.Threads[0].Frames, want.Frames) {
		t.Errorf("%+v, want %+v", s, want)
	}
}

func TestParseFaulthandler(t *testing.T) {
	got := parseFaulthandler(`Thread 0x00007f1 [loader] (most recent call first):
  File "/a b.py", line 3 in get
  File "/c.py", line ??? in <module>

Current thread 0x00007f2 (most recent call first):
  <no Python frame>
Thread 0x00007f1 [loader] (most recent call first):
  File "/c.py", line 9 in again
`)
	want := []job.ThreadStack{
		{ID: "0x00007f1", Name: "loader", Frames: []string{"get (/a b.py:3)", "<module> (/c.py:???)"}},
		{ID: "0x00007f2", Frames: []string{"<no Python frame>"}},
	}
	if len(got) != 2 || got[0].Name != want[0].Name || !slices.Equal(got[0].Frames, want[0].Frames) || got[1].ID != want[1].ID || !slices.Equal(got[1].Frames, want[1].Frames) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSignalsThatAreHandled(t *testing.T) {
	if handles(os.Getpid(), unix.SIGSTOP) || !handles(os.Getpid(), unix.SIGURG) { // the Go runtime's
		t.Error("/proc is misread")
	}
}

func glob(t *testing.T, dir, pattern string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}
