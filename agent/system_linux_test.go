package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// The texts are of Linux 6.18.
func TestParseStat(t *testing.T) {
	const most = 1<<64 - 1
	rest := func(state string, utime uint64) string {
		return state + fmt.Sprintf(" 17 4242 4242 0 -1 4194560 100 0 0 0 %d 50 9 9 20 0 1 0 987654 1000000 321 18446744073709551615 1 1", utime)
	}
	want := procStat{pid: 4242, parent: 17, group: 4242, state: 'S', ticks: 200, reapedTicks: 18, threads: 1, start: 987654, rss: 321}
	stopped, wrapped := want, want
	stopped.state, wrapped.ticks = 't', 49 // the sum wraps as well
	for name, c := range map[string]struct {
		text string
		want procStat
	}{
		"plain":                  {"4242 (python3) " + rest("S", 150), want},
		"parentheses and spaces": {"4242 (a) b (c) " + rest("S", 150), want},
		"like other fields":      {"4242 () R 1 2 (3) " + rest("S", 150), want},
		"a newline":              {"4242 (a\nb) " + rest("S", 150) + "\n", want},
		"no name":                {"4242 () " + rest("S", 150), want},
		"more fields than known": {"4242 (x) " + rest("S", 150) + strings.Repeat(" 7", 1000), want},
		"traced":                 {"4242 (x) " + rest("t", 150), stopped},
		"the largest number":     {"4242 (x) " + rest("S", most), wrapped},
	} {
		if st, ok := parseStat([]byte(c.text)); !ok || st != c.want {
			t.Errorf("%s: got %+v, %v", name, st, ok)
		}
	}
	for _, bad := range []string{"", "1", "1 (x", "1 (x) S 1 2", ") (", "4242 (x)", strings.Repeat("(", maxProc)} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%.40q was accepted", bad)
		}
	}
	if st, ok := readStat(os.Getpid()); !ok || st.parent != os.Getppid() || st.start == 0 || st.rss == 0 || st.threads == 0 {
		t.Errorf("this process is %+v, %v", st, ok)
	}
}

// TestReadProcIsBounded: no more is read of a file than there is room for.
func TestReadProcIsBounded(t *testing.T) {
	if text, err := readProc("/dev/zero", make([]byte, 100)); err != nil || len(text) != 100 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := readProc("/proc/none", make([]byte, 100)); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("4242 (a) b (c) S 17 4242 4242 0 -1 4194560 100 0 0 0 150 50 9 9 20 0 1 0 987654 1000000 321 18446744073709551615 1 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		st, ok := parseStat(text)
		if ok && (st.state == 0 || st.state == ' ') {
			t.Errorf("%q has no state", text)
		}
		parsePeak(string(text))
		parsePressure(string(text))
		parseAmount(string(text))
	})
}

// PDEATHSIG is sent when the thread that forked exits, and Go may end threads at any time.
func TestProcessesOutliveThreadsThatEnd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newForker()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = attributes()
	if err := f.start(cmd); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // never unlocked: its thread exits with it
		}()
		<-ended
	}
	if !alive(cmd.Process.Pid) {
		t.Error("the process was killed with some thread")
	}
	f.close()
	cmd.Wait()
	if s := cmd.ProcessState.String(); s != "signal: killed" {
		t.Errorf("at the agent's exit the process was killed by %q", s)
	}
}

func TestUsageIsOfAllDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'while :; do :; done' & wait`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer killStrays()
	keep := func(int) bool { return true }
	s := newSampler()
	defer s.close()
	s.read(time.Now(), nil, keep)
	eventually(t, "processor time of a grandchild", func() bool {
		f := s.read(time.Now(), nil, keep)
		return f.cpu > 100 && f.memory > 100<<10
	})
}

func TestOOMKillsAreCounted(t *testing.T) {
	for text, want := range map[string]uint64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":             3, // v1 memory.oom_control
		"low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0": 1, // v2 memory.events
	} {
		if got, ok := parseOOMKills(text); !ok || got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	if _, ok := parseOOMKills("oom_kill_disable 0\n"); ok {
		t.Error("an old kernel without the counter has one")
	}
	got := oomFiles("4:memory:/job/a\n1:cpu,cpuacct:/x\n0::/slice\n")
	want := []string{
		"/sys/fs/cgroup/memory/job/a/memory.oom_control", "/sys/fs/cgroup/memory/memory.oom_control",
		"/sys/fs/cgroup/slice/memory.events", "/sys/fs/cgroup/memory.events",
		"/sys/fs/cgroup/unified/slice/memory.events", "/sys/fs/cgroup/unified/memory.events",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestProcessKilledForMemoryIsToldFromOneKilledByHand(t *testing.T) {
	t.Parallel()
	group := memoryGroup(t, 256<<20)
	b := newBench(t, 10*time.Minute, "sh", "-c", `if [ $ELTRAIN_GENERATION = 1 ]; then exec tail /dev/zero; fi; exec sleep 60`)
	b.under = []string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.await(t, "failed, nothing runs", func(r elastic.Report) bool {
		return r.State == job.MemberFailed && len(r.PIDs) == 0
	})
	if !r.Exit.OOM || r.Exit.Signal != "killed" || r.Exit.Code != 137 {
		t.Errorf("killed for memory: %+v", r.Exit)
	}
	var listed processesRecord
	if err := json.Unmarshal([]byte(b.read("agent/processes.json")), &listed); err != nil || listed.OOMKills != 1 {
		t.Errorf("processes.json has %+v, %v", listed, err)
	}

	b.service.give(elastic.Order{Do: elastic.Wait, InPlace: 1})
	b.service.await(t, "waiting again", func(r elastic.Report) bool { return r.State == job.MemberWaiting && r.InPlace == 1 })
	b.service.run(2, 1)
	unix.Kill(b.service.awaitState(t, job.MemberRunning, 2).PIDs[0], unix.SIGKILL)
	if r := b.service.awaitState(t, job.MemberFailed, 2); r.Exit.OOM || r.Exit.Signal != "killed" {
		t.Errorf("killed by hand: %+v", r.Exit)
	}
}

// memoryGroup makes a memory cgroup below this process's own. It skips the test where that is not permitted.
func memoryGroup(t *testing.T, limit int64) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	for _, file := range oomFiles(string(text)) {
		dir, name := filepath.Split(file)
		group := filepath.Join(dir, fmt.Sprintf("eltrain-test-%d", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { eventually(t, "the cgroup is empty", func() bool { return unix.Rmdir(group) == nil }) })
		limitFile := map[string]string{"memory.oom_control": "memory.limit_in_bytes", "memory.events": "memory.max"}[name]
		if err := os.WriteFile(filepath.Join(group, limitFile), fmt.Append(nil, limit), 0); err == nil {
			return group
		}
	}
	t.Skip("no memory cgroup can be made here")
	return ""
}
