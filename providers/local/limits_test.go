package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// limited skips if this user cannot set limits, and returns a launch with both limits.
func (b *bench) limited(program job.Program) job.Launch {
	b.Helper()
	if caveats := b.Capabilities().Caveats; len(caveats) > 0 {
		b.Skip(strings.Join(caveats, " "))
	}
	l := b.launchOf(program)
	l.Reserved = job.Resources{CPU: 500, Memory: 96 << 20}
	return l
}

// eatMemory is an agent that writes its record and then allocates all memory.
func eatMemory(args []string) {
	c, err := job.ParseAgentArgs(args, io.Discard)
	if err != nil {
		panic(err)
	}
	boot, _ := bootID()
	st, _ := readStat(os.Getpid())
	if err := writeJSON(c.Dir, agentFile, agentRecord{identity{os.Getpid(), st.start}, boot, time.Now()}); err != nil {
		panic(err)
	}
	for {
		eaten = append(eaten, bytes.Repeat([]byte{1}, 1<<20))
	}
}

var eaten [][]byte

func TestMemoryLimitIsInForce(t *testing.T) {
	b := newBench(t)
	self := b.agent[0]
	for number, agent := range [][]string{
		{"/bin/sh", "-c", "exec tail /dev/zero"}, // ends before it writes its record
		{self, "eat"},
	} {
		b.agent = agent
		l := b.limited(sh("true"))
		l.Incarnation = number + 1
		b.ok(b.Launch(b.ctx, l))
		exit := b.await(l.Incarnation, job.Gone).Exit
		if exit == nil || !exit.OOM || exit.Signal != "killed" || exit.Code != 137 {
			t.Errorf("%q beyond its limit: %+v, want killed for memory", agent, exit)
		}
	}
}

func TestKilledByHandUnderALimitIsNotOOM(t *testing.T) {
	b := newBench(t)
	b.ok(b.Launch(b.ctx, b.limited(sh("sleep 300"))))
	b.ok(syscall.Kill(b.await(1, job.Up).AgentPID, syscall.SIGKILL))
	if exit := b.await(1, job.Gone).Exit; exit == nil || exit.OOM || exit.Signal != "killed" {
		t.Errorf("killed by hand: %+v", exit)
	}
}

// Whatever a training process starts, however detached, is in the cgroup. Nothing is left of the cgroup after the
// end.
func TestWholeTreeIsInTheCgroup(t *testing.T) {
	b := newBench(t)
	b.ok(b.Launch(b.ctx, b.limited(sh("(env -i setsid sleep 300 &); echo training; exec sleep 300"))))
	agent := b.await(1, job.Up).AgentPID
	b.until("the program runs", func() bool { return strings.Contains(b.log(), "training") })
	i := b.handle(1)
	dirs := i.launch.Cgroups
	if len(dirs) == 0 {
		t.Fatal("no cgroup was made")
	}
	for _, dir := range dirs {
		b.until("agent, program and daemon are in "+dir, func() bool {
			pids, err := cgroupPIDs([]string{dir})
			b.ok(err)
			return len(pids) == 3 && slices.Contains(pids, agent)
		})
	}
	pids, err := cgroupPIDs(dirs[:1])
	b.ok(err)
	var held []*process
	for _, pid := range pids {
		st, err := readStat(pid)
		b.ok(err)
		proc, err := openProcess(identity{pid, st.start})
		b.ok(err)
		defer proc.release()
		held = append(held, proc)
	}
	b.ok(syscall.Kill(agent, syscall.SIGKILL))
	b.await(1, job.Gone)
	for _, proc := range held {
		if !ended(proc.fd) {
			t.Errorf("process %d is left: without our session, parent or environment, it has to be found by its cgroup", proc.PID)
		}
	}
	b.swept(dirs)
}

func TestCPULimitIsInForce(t *testing.T) {
	b := newBench(t)
	b.ok(b.Launch(b.ctx, b.limited(sh("while :; do :; done"))))
	b.await(1, job.Up)
	i := b.handle(1)
	stat := filepath.Join(b.limits.cpu.dir(cgroupName(i.launch.Home, i.key)), "cpu.stat")
	b.until("the kernel holds it to half a core", func() bool {
		text, err := os.ReadFile(stat)
		b.ok(err)
		return strings.Contains(string(text), "nr_throttled ") && !strings.Contains(string(text), "nr_throttled 0\n")
	})
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
}

// An eltrain that is itself limited to less than a slot reserves, as in a container, launches the slot: its own limit applies.
func TestCPULimitAboveOurOwn(t *testing.T) {
	b := newBench(t)
	b.limited(sh("true")) // skips if nothing can be limited
	cpu := b.limits.cpu
	own, err := os.MkdirTemp(cpu.parent, "eltrain-test-")
	b.ok(err)
	t.Cleanup(func() { b.ok(os.Remove(own)) })
	b.ok(limitCPU(own, cpu.unified, 500))
	within := filepath.Join(own, "slot")
	b.ok(os.Mkdir(within, 0o755))
	t.Cleanup(func() { b.ok(os.Remove(within)) })
	if cpu.unified {
		b.ok(set(own, "cgroup.subtree_control", "+cpu"))
	}
	b.ok(limitCPU(within, cpu.unified, 2000))
	b.ok(limitCPU(within, cpu.unified, 250))
}

// The master dies after the cgroup was created and before the agent was started, or the agent's program is missing; then
// the job is forgotten.
func TestForgetRemovesCgroupsOfWhatNeverStarted(t *testing.T) {
	b := newBench(t)
	l := b.limited(sh("true"))
	b.agent = []string{filepath.Join(b.dir, "no-such-program")}
	if err := b.Launch(b.ctx, l); err == nil {
		t.Error("a missing agent was launched")
	}
	b.ok(b.limits.make(testUID+"/over", l.Reserved))
	dirs := b.limits.dirs(testUID+"/over", l.Reserved)
	i := b.handle(2)
	b.ok(os.MkdirAll(i.dir, 0o700))
	b.ok(writeJSON(i.dir, launchFile, launchRecord{Slot: worker(0), UID: testUID, Incarnation: 2, Cgroups: dirs}))
	b.ok(b.Forget(b.ctx, testUID, "gpt"))
	b.swept(dirs)
}

// The last slot of a job ends while another is launched: the parents of both cgroups are removed and created concurrently.
func TestCgroupsAreMadeWhileOthersAreRemoved(t *testing.T) {
	b := newBench(t)
	l := b.limited(sh("true"))
	done := make(chan error, 4)
	for n := range cap(done) {
		go func() {
			for range 200 {
				name := fmt.Sprintf("%s/%d", testUID, n)
				err := b.limits.make(name, l.Reserved)
				if err == nil {
					err = b.sweep(&incarnation{launch: &launchRecord{Cgroups: b.limits.dirs(name, l.Reserved)}})
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestCaveatsSayWhatIsNotEnforcedAndWhy(t *testing.T) {
	no := controller{name: "memory", why: "cgroups are not mounted"}
	yes := controller{name: "cpu", parent: "/x"}
	for _, test := range []struct {
		limits limiter
		want   []string
	}{
		{limiter{memory: yes, cpu: yes}, nil},
		{limiter{memory: no, cpu: no}, []string{"Memory and cpu limits are not enforced: cgroups are not mounted."}},
		{limiter{memory: no, cpu: yes}, []string{"Memory limits are not enforced: cgroups are not mounted."}},
		{limiter{memory: yes, cpu: no}, []string{"Cpu limits are not enforced: cgroups are not mounted."}},
	} {
		if got := test.limits.caveats(); !slices.Equal(got, test.want) {
			t.Errorf("caveats %q, want %q", got, test.want)
		}
	}
}

// Another user may not write root's cgroups: a caveat says so, and jobs run without limits.
func TestUserWithoutRights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	if caveats := newLimiter().caveats(); len(caveats) > 0 {
		t.Skip(strings.Join(caveats, " "))
	}
	// A copy that the other user can access.
	dir, err := os.MkdirTemp("", "eltrain-caveats")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, _ := os.Executable()
	program, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "program"), program, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "program"), "caveats")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); !strings.Contains(text, "limits are not enforced: /") || !strings.Contains(text, " is not writable by user ") {
		t.Errorf("caveats of another user: %q", text)
	}
}

func TestNoCgroupsMounted(t *testing.T) {
	c := parseMounts("22 1 0:21 / /proc rw,nosuid - proc proc rw\n").find("memory", nil, "")
	if c.parent != "" || c.why != "cgroups are not mounted" {
		t.Errorf("%+v", c)
	}
}

// The layout of cgroup v2 in a directory of its own, since this machine may have only v1: a user's delegated cgroup, with
// this process in a child of it.
func TestUnifiedHierarchy(t *testing.T) {
	point := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(point, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"user/app", "user", "user/eltrain", "user/eltrain/u", "user/eltrain/u/worker-0-1"} {
		write(dir+"/cgroup.controllers", "cpu memory\n")
		write(dir+"/cgroup.subtree_control", "")
		write(dir+"/cgroup.procs", "")
	}
	write("user/app/cgroup.procs", "123\n") // this process is here: no children with limits
	for _, file := range []string{"memory.max", "memory.swap.max", "cpu.max"} {
		write("user/eltrain/u/worker-0-1/"+file, "max\n")
	}
	m := parseMounts(fmt.Sprintf("30 22 0:27 / %s rw - cgroup2 cgroup2 rw,nsdelegate\n", point))
	l := limiter{m.find("memory", nil, "/user/app"), m.find("cpu", nil, "/user/app"), m.find("freezer", nil, "/user/app")}
	if l.memory.parent != filepath.Join(point, "user") || len(l.caveats()) > 0 {
		t.Fatalf("%+v", l)
	}
	reserved := job.Resources{CPU: 1500, Memory: 1 << 30}
	err := l.make("u/worker-0-1", reserved)
	dirs := l.dirs("u/worker-0-1", reserved)
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	for file, want := range map[string]string{"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000"} {
		got, err := os.ReadFile(filepath.Join(dirs[0], file))
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s is %q, want %q (%v)", file, got, want, err)
		}
	}
	for _, dir := range []string{"user", "user/eltrain", "user/eltrain/u"} {
		if got, _ := os.ReadFile(filepath.Join(point, dir, "cgroup.subtree_control")); len(got) == 0 {
			t.Errorf("no controller is enabled below %s", dir)
		}
	}
	write("user/eltrain/u/worker-0-1/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
	if n := oomKills(dirs); n != 2 {
		t.Errorf("%d kills for memory, want 2", n)
	}
}

// A process that keeps forking, without our session, parent or environment, outruns a search for it. Its cgroup has it.
func TestForkStormEndsWithItsCgroup(t *testing.T) {
	b := newBench(t)
	l := b.limited(sh("env -i setsid sh storm & echo training; exec sleep 300"))
	b.ok(os.WriteFile(filepath.Join(b.dir, "storm"), []byte("sh \"$0\" &\n"), 0o644))
	b.ok(b.Launch(b.ctx, l))
	agent := b.await(1, job.Up).AgentPID
	b.until("the program runs", func() bool { return strings.Contains(b.log(), "training") })
	dirs := b.handle(1).launch.Cgroups
	if state := filepath.Join(dirs[len(dirs)-1], "freezer.state"); !b.limits.memory.unified {
		if _, err := os.Stat(state); err != nil {
			t.Skip("no freezer: ", err)
		}
	} else if _, err := os.Stat(filepath.Join(dirs[0], "cgroup.kill")); err != nil {
		t.Skip("the kernel cannot kill a cgroup: ", err)
	}
	b.ok(syscall.Kill(agent, syscall.SIGKILL))
	b.await(1, job.Gone)
	b.swept(dirs)
}

// Under cgroup v2, which this machine may not have, the kernel kills.
func TestUnifiedCgroupIsKilledByTheKernel(t *testing.T) {
	dir := t.TempDir()
	kill := filepath.Join(dir, "cgroup.kill")
	if err := os.WriteFile(kill, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := killCgroups([]string{dir}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(kill); err != nil || string(text) != "1" {
		t.Errorf("cgroup.kill has %q, %v", text, err)
	}
}

func TestCgroupOfAContainerIsFoundThroughItsMount(t *testing.T) {
	m := cgroupMount{root: "/docker/abc", point: "/sys/fs/cgroup/memory"}
	if got := m.dir("/docker/abc/sub"); got != "/sys/fs/cgroup/memory/sub" {
		t.Error(got)
	}
	if got := m.dir("/elsewhere"); got != "/sys/fs/cgroup/memory" {
		t.Error(got)
	}
}

// OOM kills that the agent counted were of its processes: an agent killed by hand later is not an OOM kill.
func TestEarlierOOMOfAProcessIsNotTheAgents(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	b.ok(os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom_kill 1\n"), 0o600))
	for known, want := range map[int]bool{0: true, 1: false} {
		i := b.handle(known + 1)
		b.ok(os.MkdirAll(i.dir, 0o700))
		b.ok(writeJSON(i.dir, processesFile, processesRecord{OOMKills: known}))
		i.launch = &launchRecord{Cgroups: []string{dir}}
		exit, _ := b.exitOf(i)
		if got := exit != nil && exit.OOM; got != want {
			text, _ := json.Marshal(exit)
			t.Errorf("with %d of 1 known, exit %s", known, text)
		}
	}
}
