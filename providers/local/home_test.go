package local

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

// The original's agents cannot find a service that runs in a copy of their directory, or in the place that it was moved to:
// its master would consider them lost, and kill them.
func TestACopyLeavesTheOriginalsAgentsAlone(t *testing.T) {
	b := newBench(t)
	var agents []string
	for number := range 2 {
		l := b.launchOf(sh("sleep 300"))
		l.Incarnation = number + 1
		b.ok(b.Launch(b.ctx, l))
		agents = append(agents, strconv.Itoa(b.await(l.Incarnation, job.Up).AgentPID))
		b.until("the agent has written all that it writes", func() bool { // a directory that changes is copied inconsistently
			r, err := b.recorded(b.handle(l.Incarnation))
			b.ok(err)
			return len(r.Processes) > 0
		})
	}
	slices.Sort(agents)
	there := func(dir string) string {
		t.Helper()
		_, err := b.elsewhere(dir).Observe(b.ctx)
		return fmt.Sprint(err)
	}
	// tells checks that one error reports all agents, in any order of their starts.
	tells := func(text, rest string) {
		t.Helper()
		list, after, _ := strings.Cut(strings.TrimPrefix(text, "observe local processes: agents "), " run for ")
		named := strings.Split(list, ", ")
		slices.Sort(named)
		if !slices.Equal(named, agents) || after != rest {
			t.Errorf("%s\nwant the agents %v, and %q", text, agents, rest)
		}
	}
	copied := filepath.Join(t.TempDir(), "exp")
	b.ok(os.CopyFS(copied, os.DirFS(b.dir)))
	tells(there(copied), fmt.Sprintf("%s, and this is a copy: run eltrain there, or remove %s/.eltrain and the state, eltrain.state, here and start over", b.dir, copied))
	link := filepath.Join(t.TempDir(), "link")
	b.ok(os.Symlink(b.dir, link))
	if text := there(link); text != "<nil>" {
		t.Errorf("by another name: %s", text)
	}
	moved := b.dir + "-moved"
	b.ok(os.Rename(b.dir, moved))
	tells(there(moved), b.dir+", which was moved or removed: move it back, or end those processes, to continue here")
	b.ok(os.Rename(moved, b.dir))
	for number := range agents {
		if now := b.await(number+1, job.Up); !slices.Contains(agents, strconv.Itoa(now.AgentPID)) {
			t.Errorf("agent %d, were %v", now.AgentPID, agents)
		}
		b.ok(b.Stop(b.ctx, testUID, worker(0), number+1, time.Second))
	}
}

// elsewhere is a master of the same job in another directory: a copy's state has the same UID.
func (b *bench) elsewhere(dir string) *Provider {
	b.Helper()
	p, err := New(options(b.T, dir))
	b.ok(err)
	b.Cleanup(func() {
		p.Close()
		endAll(b.T, dir)
		sweepAll(b.T, dir)
	})
	return p
}

// A copy's state continues with the same UID and incarnation numbers: whether it was copied at rest, or, as the error advises,
// without its run directory while the original's agents run, its limits and stops affect only itself.
func TestACopysStopsEndNothingOfTheOriginals(t *testing.T) {
	for name, begin := range map[string]func(b *bench, copied string, l job.Launch){
		"copied at rest": func(b *bench, copied string, l job.Launch) {
			b.ok(b.Launch(b.ctx, l))
			b.await(l.Incarnation, job.Up)
			b.ok(b.Stop(b.ctx, l.UID, l.Slot, l.Incarnation, time.Second))
			b.ok(os.CopyFS(copied, os.DirFS(b.dir)))
		},
		"without its run directory": func(b *bench, copied string, _ job.Launch) { b.ok(os.Mkdir(copied, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			l := b.limited(sh("sleep 300"))
			copied := filepath.Join(t.TempDir(), "exp")
			begin(b, copied, l)
			l.Incarnation = 2
			b.ok(b.Launch(b.ctx, l))
			original := b.await(2, job.Up)
			p := b.elsewhere(copied)
			_, err := p.Prepare(b.ctx, job.Group{UID: l.UID, Name: "gpt"})
			b.ok(err)
			b.ok(p.Launch(b.ctx, l))
			c := &bench{T: t, Provider: p, dir: copied, ctx: b.ctx}
			c.await(2, job.Up)
			for n, dir := range c.handle(2).launch.Cgroups {
				pids, err := cgroupPIDs([]string{dir})
				b.ok(err)
				if dir == b.handle(2).launch.Cgroups[n] || slices.Contains(pids, original.AgentPID) {
					t.Errorf("both are limited by %s", dir)
				}
			}
			b.ok(p.Stop(b.ctx, l.UID, l.Slot, 2, time.Second))
			b.ok(p.Forget(b.ctx, l.UID, "gpt"))
			if left := remains(t, copied); len(left) > 0 {
				t.Errorf("left of the copy: %q", left)
			}
			for _, dir := range b.handle(2).launch.Cgroups {
				if pids, err := cgroupPIDs([]string{dir}); err != nil || !slices.Contains(pids, original.AgentPID) {
					t.Errorf("in the original's %s are %v, %v", dir, pids, err)
				}
			}
			if now := b.find(2); now == nil || now.State != job.Up || now.AgentPID != original.AgentPID {
				t.Fatalf("the copy's stop killed the original's agent: %+v", now)
			}
			b.ok(b.Stop(b.ctx, l.UID, l.Slot, 2, time.Second))
		})
	}
}

// orphaned launches a slot whose program leaves a process that only the cgroup shows, and kills the agent while there is
// no master. There is none until reopen.
func (b *bench) orphaned() (orphan *process, cgroups []string) {
	b.Helper()
	b.ok(b.Launch(b.ctx, b.limited(sh("env -i setsid sleep 300 & echo $! >orphan; exec sleep 300"))))
	agent := b.await(1, job.Up)
	cgroups = b.handle(1).launch.Cgroups
	var pid int
	b.until("the orphan runs", func() bool {
		text, _ := os.ReadFile(filepath.Join(b.dir, "orphan"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return strings.HasPrefix(string(args), "sleep\x00")
	})
	st, err := readStat(pid)
	b.ok(err)
	orphan, err = openProcess(identity{pid, st.start})
	b.ok(err)
	b.Cleanup(func() {
		orphan.signal(syscall.SIGKILL)
		orphan.release()
	})
	b.ok(b.Close())
	b.Provider = nil
	b.ok(syscall.Kill(agent.AgentPID, syscall.SIGKILL))
	b.until("the agent has ended", func() bool {
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", agent.AgentPID))
		return err != nil || strings.Contains(string(st), ") Z ")
	})
	return orphan, cgroups
}

// Only the original kills what its dead agent left behind, and removes its cgroup. To the copy the incarnation has ended.
func TestACopyLeavesWhatTheOriginalsDeadAgentLeft(t *testing.T) {
	b := newBench(t)
	orphan, cgroups := b.orphaned()
	copied := filepath.Join(t.TempDir(), "exp")
	b.ok(os.CopyFS(copied, os.DirFS(b.dir)))
	p := b.elsewhere(copied)
	c := &bench{T: t, Provider: p, dir: copied, ctx: b.ctx}
	c.await(1, job.Gone)
	b.ok(p.Forget(b.ctx, testUID, "gpt"))
	if pids, err := cgroupPIDs(cgroups); err != nil || !slices.Contains(pids, orphan.PID) || ended(orphan.fd) {
		t.Fatalf("the original's process %d is no longer in its cgroups, which have %v, %v", orphan.PID, pids, err)
	}
	b.reopen()
	b.await(1, job.Gone)
	b.swept(cgroups)
	if !ended(orphan.fd) {
		t.Error("the original's next master did not kill it")
	}
}

// The records of a moved directory are found in its new place.
func TestAMovedDirectoryEndsWhatItsDeadAgentLeft(t *testing.T) {
	b := newBench(t)
	orphan, cgroups := b.orphaned()
	b.dir += "-moved"
	b.ok(os.Rename(strings.TrimSuffix(b.dir, "-moved"), b.dir))
	b.reopen()
	b.await(1, job.Gone)
	b.swept(cgroups)
	if !ended(orphan.fd) {
		t.Error("it keeps running but is not observed")
	}
	l := b.limited(sh("sleep 300"))
	l.Incarnation = 2
	b.ok(b.Launch(b.ctx, l))
	b.await(2, job.Up)
	b.ok(b.Stop(b.ctx, testUID, worker(0), 2, time.Second))
	b.ok(b.Forget(b.ctx, testUID, "gpt"))
}

// Before the run directory was recorded, cgroups were named by the job's UID alone. After an upgrade, what runs in them is
// found by the record, and stopped with all that it started.
func TestWhatAnOlderVersionLaunchedIsStopped(t *testing.T) {
	b := newBench(t)
	l := b.limited(sh("env -i setsid sleep 300 & echo training; exec sleep 300"))
	name := testUID + "/worker-0-1"
	b.ok(b.limits.make(name, l.Reserved))
	i := b.handle(1)
	b.ok(os.MkdirAll(i.dir, 0o700))
	b.ok(os.MkdirAll(filepath.Dir(b.logPath(l.Slot)), 0o700))
	i.launch = &launchRecord{Slot: l.Slot, UID: testUID, Incarnation: 1, Node: "n1", Reserved: l.Reserved, Asked: time.Now(), Cgroups: b.limits.dirs(name, l.Reserved)}
	b.ok(writeJSON(i.dir, launchFile, i.launch))
	b.ok(b.notify.Add(i.dir))
	held, err := lock(i.dir)
	b.ok(err)
	i.mu.Lock()
	err = b.start(i, l, b.dir, held)
	i.mu.Unlock()
	held.Close()
	b.ok(err)
	agent := b.await(1, job.Up).AgentPID
	cgroups := i.launch.Cgroups
	b.until("agent, program and daemon are in "+cgroups[0], func() bool {
		pids, err := cgroupPIDs(cgroups[:1])
		b.ok(err)
		return len(pids) == 3
	})
	b.reopen()
	if now := b.await(1, job.Up); now.AgentPID != agent {
		t.Errorf("agent %d, was %d", now.AgentPID, agent)
	}
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
	b.swept(cgroups)
	b.nothingRemains()
}

// The name depends on the path, so that a restarted master finds its predecessor's cgroup, and no other's.
func TestCgroupNames(t *testing.T) {
	k := key{testUID, "worker", 3, 2}
	name := cgroupName("/exp1/.eltrain", k)
	if name != cgroupName("/exp1/.eltrain", k) || name == cgroupName("/exp2/.eltrain", k) {
		t.Errorf("%s, of another directory %s", name, cgroupName("/exp2/.eltrain", k))
	}
	if !strings.HasPrefix(name, testUID+"-") || !strings.HasSuffix(name, "/worker-3-2") {
		t.Error(name)
	}
}

// A process that held a cgroup when its slot ended exits later: the next look removes the cgroup, in this process or the next.
func TestEmptyCgroupOfAnEndedSlotIsRemovedWhenItIsLookedAt(t *testing.T) {
	for name, look := range map[string]func(b *bench){
		"by the same master": func(*bench) {},
		"by the next":        (*bench).reopen,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.ok(b.Launch(b.ctx, b.limited(sh("sleep 300"))))
			b.await(1, job.Up)
			cgroups := b.handle(1).launch.Cgroups
			for _, dir := range cgroups {
				b.ok(os.Mkdir(filepath.Join(dir, "held"), 0o755))
			}
			b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
			for _, dir := range cgroups {
				b.ok(os.Remove(filepath.Join(dir, "held")))
			}
			look(b)
			b.await(1, job.Gone)
			b.swept(cgroups)
		})
	}
}

// An agent is killed with -9 like its master, and its processes too: nothing that ran could remove the cgroup. The next look
// does.
func TestCgroupsOfWhatWasKilledWithItsMaster(t *testing.T) {
	b := newBench(t)
	_, cgroups := b.orphaned()
	b.until("its cgroups are empty", func() bool {
		pids, err := cgroupPIDs(cgroups)
		b.ok(err)
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	})
	b.reopen()
	b.await(1, job.Gone)
	b.swept(cgroups)
}

// swept checks that nothing is left of an incarnation's cgroups, nor of its job's, which had only this one.
func (b *bench) swept(cgroups []string) {
	b.Helper()
	for _, dir := range cgroups {
		for _, dir := range []string{dir, filepath.Dir(dir)} {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				b.Errorf("cgroup %s is left: %v", dir, err)
			}
		}
	}
}
