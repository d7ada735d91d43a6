package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/sysfs"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// The texts are of Linux 6.18; that of version 1 of cgroups without a limit is of 4.19.
func TestParseFigures(t *testing.T) {
	for text, want := range map[string]int64{
		"Name:\tpython3\nVmPeak:\t 9000 kB\nVmHWM:\t  812344 kB\nVmRSS:\t    1796 kB\n": 812344 << 10,
		"Name:\tkthreadd\nThreads:\t1\n":                                                0, // a kernel thread has no memory
		"VmHWM:\n":                                                                      0,
		"Name:\tVmHWM: 5 kB\nVmHWM:\t 99999999999999999999 kB":                          0,
	} {
		if got := parsePeak(text); got != want {
			t.Errorf("the peak in %q is %d, not %d", text, got, want)
		}
	}
	for text, want := range map[string]*int64{
		"4294967296\n": new(int64(4 << 30)), "0\n": new(int64(0)), "max\n": nil, "": nil, "-1\n": nil,
		"9223372036854771712\n": nil, // version 1: none
		"9223372036854710272\n": nil, // the same with pages of 64 KiB
	} {
		if diff := cmp.Diff(want, parseAmount(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]*float64{
		"some avg10=0.00 avg60=0.00 avg300=0.00 total=2695052\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=548238\n": new(2.695052),
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=548238\n":                                                       nil,
		"some avg10=0.00 total=x\n": nil, "": nil,
	} {
		if diff := cmp.Diff(want, parsePressure(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestCountersOfARankOnlyGrow(t *testing.T) {
	var c total
	var got []uint64
	for _, sum := range []uint64{100, 150, 30 /* one has ended */, 40, 0, math.MaxUint32, 5 /* it wrapped */} {
		got = append(got, c.follow(sum))
	}
	want := []uint64{100, 150, 150, 160, 160, 160 + math.MaxUint32, 160 + math.MaxUint32}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProcessesBelongToTheRankThatStartedThem(t *testing.T) {
	id := func(pid int) processID { return processID{pid, uint64(pid)} }
	st := func(pid, parent, group int) procStat {
		return procStat{pid: pid, start: uint64(pid), parent: parent, group: group, state: 'S'}
	}
	s := sampler{leaders: []processID{id(10), id(20)}}
	zombie := st(23, 20, 20)
	zombie.state = 'Z'
	pids := func(below ...procStat) (out [][]int) {
		for _, tree := range s.divide(below) {
			var pids []int
			for _, st := range tree {
				pids = append(pids, st.pid)
			}
			out = append(out, pids)
		}
		return out
	}
	got := pids(st(30, 1, 20), st(20, 1, 20), st(10, 1, 10), st(40, 1, 40), st(11, 10, 11), zombie, st(12, 11, 11))
	if diff := cmp.Diff([][]int{{10, 11, 12}, {20, 30}}, got); diff != "" {
		t.Errorf("with an orphan in a group and a command that is of neither (-want +got):\n%s", diff)
	}
	got = pids(st(12, 1, 11), st(20, 1, 20), st(13, 12, 13))
	if diff := cmp.Diff([][]int{{12, 13}, {20}}, got); diff != "" {
		t.Errorf("once its ancestors have ended (-want +got):\n%s", diff)
	}
}

func TestFiguresFitIntoAReport(t *testing.T) {
	ranks := make([]job.RankReport, 1000)
	for i := range ranks {
		ranks[i].Progress = &job.RankProgress{By: strings.Repeat("n", 64)}
		ranks[i].Process = &job.ProcessFigures{PID: 1, State: job.ThreadRuns, WaitChannel: strings.Repeat("x", 100)}
	}
	fitRanks(ranks, maxRanks)
	text, err := json.Marshal(ranks)
	if err != nil || len(text) > maxRanks {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if ranks[0].Process == nil || ranks[999].Process != nil {
		t.Error("the first rank has no figures, or the last has")
	}
}

// sampled samples processes until a condition holds.
func sampled(t testing.TB, what string, leaders []processID, holds func(*job.ProcessFigures) bool) *job.ProcessFigures {
	t.Helper()
	s := newSampler()
	defer s.close()
	var last *job.ProcessFigures
	for deadline := time.Now().Add(hang.Bound); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		f := s.read(time.Now(), leaders, func(int) bool { return true })
		if last = f.ranks[0].Process; last != nil && holds(last) {
			return last
		}
	}
	text, _ := json.Marshal(last)
	t.Fatalf("%s: not seen; the last figures are %s", what, text)
	return nil
}

func leader(t *testing.T, command ...string) (processID, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = attributes()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	f := newForker()
	if err := f.start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
		f.close()
	})
	return identify(cmd.Process.Pid), bufio.NewReader(out)
}

const worker = `
import os, sys, threading, time
block = bytearray(64 << 20)
for i in range(0, len(block), 4096): block[i] = 1
opened = [open('/dev/null') for _ in range(20)]
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
with open(sys.argv[1], 'wb') as f: f.write(b'x' * 3000000)
child = os.fork()
if child == 0:
	end = time.process_time() + 0.3
	while time.process_time() < end: pass
	os._exit(0)
os.waitpid(child, 0)
print('ready', flush=True)
time.sleep(3600)
`

// TestFiguresOfRealProcesses: memory, threads, files, written bytes and the processor time of a child that has ended, of a script
// under a shell whose name could be mistaken for other fields.
func TestFiguresOfRealProcesses(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	dir := t.TempDir()
	shell := filepath.Join(dir, "a) R 1 (b")
	if err := os.Symlink("/bin/sh", shell); err != nil {
		t.Fatal(err)
	}
	id, out := leader(t, shell, "-c", `"$0" -c "$1" "$2"; true`, python, worker, filepath.Join(dir, "written"))
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	p := sampled(t, "PSS", []processID{id}, func(p *job.ProcessFigures) bool { return p.PSS != nil })
	text, _ := json.Marshal(p)
	for what, holds := range map[string]bool{
		"the state is that of the script, not of the shell": p.PID != id.PID && p.State == job.ThreadSleeps && p.WaitChannel != "do_wait",
		"processes":                  p.Processes == 2,
		"threads":                    p.Threads == 3 && *p.ThreadStates == job.ThreadsByKind{Sleeping: 3},
		"open files":                 *p.OpenFiles >= 20 && *p.OpenFiles < 100,
		"RSS":                        *p.RSS >= 64<<20 && *p.RSS < 512<<20,
		"PSS":                        *p.PSS >= 64<<20 && *p.PSS <= *p.RSS,
		"peak":                       *p.PeakRSS >= *p.RSS,
		"written":                    *p.Written >= 3000000,
		"cpu with that of the child": *p.CPUSeconds >= 0.3,
	} {
		if !holds {
			t.Errorf("%s: wrong in %s", what, text)
		}
	}
}

// TestStatesOfRealProcesses: stopped and running ones are told from those that wait.
func TestStatesOfRealProcesses(t *testing.T) {
	id, _ := leader(t, "sh", "-c", "while :; do :; done")
	sampled(t, "running", []processID{id}, func(p *job.ProcessFigures) bool { return p.State == job.ThreadRuns && p.ThreadStates.Running == 1 })
	unix.Kill(id.PID, unix.SIGSTOP)
	sampled(t, "stopped", []processID{id}, func(p *job.ProcessFigures) bool { return p.State == job.ThreadStopped && p.ThreadStates.Stopped == 1 })
	unix.Kill(id.PID, unix.SIGKILL)
	sampled(t, "a zombie", []processID{id}, func(p *job.ProcessFigures) bool { return p.State == job.ThreadZombie })
}

// TestUnreadableFiguresAreAbsent: of a process that is not there, and of one whose files cannot be read, nothing is 0.
func TestUnreadableFiguresAreAbsent(t *testing.T) {
	s := newSampler()
	defer s.close()
	if f := s.read(time.Now(), []processID{{PID: 1 << 30}}, func(int) bool { return true }); f.ranks[0].Process != nil {
		t.Errorf("figures of no process: %+v", f.ranks[0].Process)
	}
	none, err := procfs.NewFS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.proc = none
	id, _ := leader(t, "sleep", "3600")
	f := s.read(time.Now(), []processID{id}, func(int) bool { return true })
	if p := f.ranks[0].Process; p == nil || p.OpenFiles != nil || p.Read != nil || f.slot.TCPRetransmits != nil || f.slot.RDMA != nil {
		t.Errorf("got %+v, %+v", p, f.slot)
	}
}

func TestCgroupOfThisProcess(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no cgroups")
	}
	var f job.SlotFigures
	readCgroup(string(text), &f)
	if f.MemoryUsed == nil {
		t.Skip("no memory cgroup that can be read")
	}
	if *f.MemoryUsed <= 0 || f.MemoryLimit != nil && *f.MemoryLimit <= 0 {
		t.Errorf("%d used of %v", *f.MemoryUsed, f.MemoryLimit)
	}
}

// TestRDMACounters reads a tree as that of a ConnectX: two ports, one without the counters of its driver.
func TestRDMACounters(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, "class/infiniband/mlx5_0", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("fw_ver", "28.39.1002")
	for port, received := range map[int]string{1: "100", 2: "20"} {
		dir := fmt.Sprintf("ports/%d/", port)
		write(dir+"link_layer", "InfiniBand")
		write(dir+"state", "4: ACTIVE")
		write(dir+"phys_state", "5: LinkUp")
		write(dir+"rate", "400 Gb/sec (4X NDR)")
		write(dir+"counters/port_rcv_data", received) // in lanes of 4
		write(dir+"counters/symbol_error", "0")
	}
	write("ports/1/hw_counters/out_of_sequence", "7")
	write("ports/1/hw_counters/lifespan", "10")
	sys, err := sysfs.NewFS(root)
	if err != nil {
		t.Fatal(err)
	}
	want := &job.RDMAFigures{Received: new(int64(480)), SymbolErrors: new(int64(0)), OutOfSequence: new(int64(7))}
	if diff := cmp.Diff(want, (&slow{sys: sys}).rdma()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFiguresAreReportedWhileProcessesRun: with the beat, by local rank, and not after the processes have ended.
func TestFiguresAreReportedWhileProcessesRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sh", "-c", "sleep 3600")
	b.config.Processes = 2
	b.launch(t)
	b.service.run(1, 1)
	r := b.service.await(t, "figures", func(r elastic.Report) bool {
		return len(r.Ranks) == 2 && r.Ranks[0].Process != nil && r.Ranks[1].Process != nil
	})
	if r.Figures == nil || r.Figures.At.IsZero() || r.Ranks[0].Process.PID == r.Ranks[1].Process.PID {
		t.Errorf("got %+v, %+v", r.Figures, r.Ranks)
	}
	b.service.give(elastic.Order{Do: elastic.Wait})
	b.service.await(t, "no figures", func(r elastic.Report) bool {
		has := func(r job.RankReport) bool { return r.Process != nil }
		return r.State == job.MemberWaiting && !slices.ContainsFunc(r.Ranks, has) && r.Figures == nil
	})
}

// BenchmarkSample samples one rank as PyTorch has it: a process of 64 threads with four children of 8. bench/README.md says how the
// share of a core follows from it.
func BenchmarkSample(b *testing.B) {
	python, err := exec.LookPath("python3")
	if err != nil {
		b.Skip("no python3")
	}
	const script = `
import os, threading, time
def threads(n):
	for _ in range(n): threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
for _ in range(4):
	if os.fork() == 0:
		threads(7)
		time.sleep(3600)
threads(63)
time.sleep(3600)`
	cmd := exec.Command(python, "-c", script)
	cmd.SysProcAttr = attributes()
	f := newForker()
	defer f.close()
	if err := f.start(cmd); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	leaders := []processID{identify(cmd.Process.Pid)}
	s := newSampler()
	defer s.close()
	read := func() *job.ProcessFigures {
		return s.read(time.Now(), leaders, func(int) bool { return true }).ranks[0].Process
	}
	sampled(b, "all threads", leaders, func(p *job.ProcessFigures) bool { return p.Threads >= 96 })
	read() // a later sample is compared with it
	b.ReportAllocs()
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		read()
	}
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(100*spent.Seconds()/float64(b.N)/defaultBeat.Seconds(), "%core")
}

// BenchmarkGlimpse looks at a process once, as each half second, and decides whether that is to be told.
func BenchmarkGlimpse(b *testing.B) {
	s := newSampler()
	defer s.close()
	var l lookout
	now, pid := time.Now(), os.Getpid()
	b.ReportAllocs()
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		now = now.Add(lookEvery)
		l.see(now, []glimpse{s.glimpse(pid)})
	}
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*spent.Seconds()/float64(b.N)/lookEvery.Seconds(), "%core")
}
