package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// maxThreads is how many threads of a rank are looked at. Of more, the states are not counted.
const maxThreads = 1024

// sampler reads the figures of training processes and of all that they start. It must not block: what may is read by slow.
type sampler struct {
	at     time.Time
	before map[processID]uint64 // ticks of all descendants

	leaders []processID // the training processes, by local rank
	ranks   []rankTotals
	owners  map[processID]int // local ranks of their descendants
	proc    procfs.FS
	buf     []byte
	slow    *slow
}

// rankTotals are the counters of a rank.
type rankTotals struct {
	ticks, read, written, fromStorage, toStorage total
	peak                                         int64
}

func newSampler() *sampler {
	proc, _ := procfs.NewFS("/proc") // without it nothing can be read, and all is absent
	return &sampler{proc: proc, buf: make([]byte, maxProc), slow: newSlow(proc)}
}

func (s *sampler) close() { s.slow.close() }

// read samples the training processes with all that they started, and reaps adopted processes that have exited; reaps reports which
// processes are not adopted.
func (s *sampler) read(now time.Time, leaders []processID, reaps func(pid int) bool) (out figures) {
	if !slices.Equal(s.leaders, leaders) {
		s.leaders, s.ranks, s.owners, s.before = slices.Clone(leaders), make([]rankTotals, len(leaders)), nil, nil
	}
	self := os.Getpid()
	ticks := map[processID]uint64{}
	var spent uint64
	var pages int64
	below := descendants(self)
	for _, st := range below {
		if st.ended() {
			if st.parent == self && !reaps(st.pid) {
				unix.Wait4(st.pid, nil, unix.WNOHANG, nil)
			}
			continue
		}
		if !slices.ContainsFunc(leaders, func(l processID) bool { return l.PID == st.group }) && len(out.strays) < maxStrays {
			out.strays = append(out.strays, st.id())
		}
		ticks[st.id()] = st.ticks
		spent += st.ticks - min(s.before[st.id()], st.ticks)
		pages += st.rss
	}
	if elapsed := now.Sub(s.at).Seconds(); s.before != nil && elapsed > 0 {
		out.cpu = job.CPU(float64(spent) / ticksPerSecond / elapsed * 1000)
	}
	s.before, s.at = ticks, now
	out.memory = job.Bytes(pages * int64(os.Getpagesize()))

	trees := s.divide(below)
	slowly := s.slow.read(trees)
	out.ranks = make([]job.RankReport, len(leaders))
	for i, tree := range trees {
		out.ranks[i].Process = s.process(i, tree, slowly.pssOf(i))
	}
	out.slot = &job.SlotFigures{At: now, RDMA: slowly.rdma, TCPRetransmits: s.retransmits()}
	if text, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		readCgroup(string(text), out.slot)
	}
	return out
}

// glimpse looks at a process, in a few tens of microseconds.
func (s *sampler) glimpse(pid int) (seen glimpse) {
	dir := "/proc/" + strconv.Itoa(pid)
	st, ok := readStatOf(dir+"/stat", s.buf)
	if !ok || st.ended() {
		return glimpse{}
	}
	seen = glimpse{state: stateOf(st.state), channel: s.waitChannel(pid), ticks: st.ticks + st.reapedTicks}
	if text, err := readProc(dir+"/io", s.buf); err == nil {
		seen.bytes = parseTransferred(text)
	}
	return seen
}

// parseTransferred sums rchar and wchar of /proc/PID/io (proc_pid_io(5)).
func parseTransferred(text []byte) (sum uint64) {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		if string(name) == "rchar" || string(name) == "wchar" {
			sum += decimal(bytes.TrimSpace(value))
		}
	}
	return sum
}

// divide returns the living processes of each rank, its leader first: what descends from it, and what is in its process group or was
// its descendant before it was orphaned. below lists parents before their children.
func (s *sampler) divide(below []procStat) [][]procStat {
	trees, owners, byPID := make([][]procStat, len(s.leaders)), map[processID]int{}, map[int]int{}
	for _, st := range below {
		rank := slices.Index(s.leaders, st.id())
		if of, known := byPID[st.parent]; rank < 0 && known {
			rank = of
		}
		if rank < 0 {
			rank = slices.IndexFunc(s.leaders, func(l processID) bool { return l.PID == st.group })
		}
		if of, known := s.owners[st.id()]; rank < 0 && known {
			rank = of
		}
		if rank < 0 {
			continue
		}
		byPID[st.pid], owners[st.id()] = rank, rank
		if !st.ended() || st.id() == s.leaders[rank] {
			trees[rank] = append(trees[rank], st)
		}
	}
	for rank, tree := range trees {
		leads := func(st procStat) bool { return st.id() == s.leaders[rank] }
		if i := slices.IndexFunc(tree, leads); i > 0 {
			tree[0], tree[i] = tree[i], tree[0]
		}
	}
	s.owners = owners
	return trees
}

// process returns the figures of a rank; nil if none of its processes is there.
func (s *sampler) process(rank int, tree []procStat, pss *int64) *job.ProcessFigures {
	if len(tree) == 0 {
		return nil
	}
	main := s.mainOf(tree)
	p := &job.ProcessFigures{PID: main.pid, State: stateOf(main.state), WaitChannel: s.waitChannel(main.pid), Processes: len(tree), PSS: pss}
	var ticks uint64
	var resident int64
	for _, st := range tree {
		ticks += st.ticks + st.reapedTicks
		resident += st.rss
		p.Threads += st.threads
	}
	totals := &s.ranks[rank]
	p.CPUSeconds = new(float64(totals.ticks.follow(ticks)) / ticksPerSecond)
	resident *= int64(os.Getpagesize())
	totals.peak = max(totals.peak, resident, s.peakOf(main.pid))
	p.RSS, p.PeakRSS = &resident, new(totals.peak)
	p.ThreadStates = s.threadStates(tree, p.Threads)
	p.OpenFiles = s.openFiles(tree)
	if io, ok := s.io(tree); ok {
		p.Read, p.Written = counter(totals.read.follow(io.RChar)), counter(totals.written.follow(io.WChar))
		p.ReadFromStorage, p.WrittenToStorage = counter(totals.fromStorage.follow(io.ReadBytes)), counter(totals.toStorage.follow(io.WriteBytes))
	}
	return p
}

// mainOf returns the process of which the state is told: the leader, or what it starts and waits for as a shell does, with its only
// thread and as its only child.
func (s *sampler) mainOf(tree []procStat) procStat {
	main := tree[0]
	for range tree {
		var child procStat
		children := 0
		for _, st := range tree {
			if st.parent == main.pid {
				child = st
				children++
			}
		}
		if children != 1 || main.threads != 1 || main.state != 'S' || !waitsForChild(s.waitChannel(main.pid)) {
			break
		}
		main = child
	}
	return main
}

// waitsForChild reports whether a thread that sleeps there may wait for a child. An empty channel could not be read.
func waitsForChild(channel string) bool {
	switch channel {
	case "", "do_wait", "kernel_wait4", "do_sigsuspend", "sigsuspend", "__do_sys_rt_sigsuspend":
		return true
	}
	return false
}

func stateOf(letter byte) job.ThreadState {
	if s := job.ThreadState(letter); slices.Contains(job.ThreadStates, s) {
		return s
	}
	return job.ThreadZombie // X: it is just being removed
}

func (s *sampler) waitChannel(pid int) string {
	text, err := readProc("/proc/"+strconv.Itoa(pid)+"/wchan", s.buf)
	if err != nil || string(text) == "0" {
		return ""
	}
	return string(text)
}

// peakOf is the most memory that was ever resident of a process; 0 if unknown.
func (s *sampler) peakOf(pid int) int64 {
	text, err := readProc("/proc/"+strconv.Itoa(pid)+"/status", s.buf)
	if err != nil {
		return 0
	}
	return parsePeak(string(text))
}

func parsePeak(status string) int64 {
	_, rest, found := strings.Cut(status, "\nVmHWM:")
	fields := strings.Fields(rest)
	if !found || len(fields) < 2 || fields[1] != "kB" {
		return 0
	}
	return int64(min(decimal([]byte(fields[0])), math.MaxInt64>>10)) << 10
}

// threadStates counts the threads of processes; nil if there are too many.
func (s *sampler) threadStates(tree []procStat, threads int) *job.ThreadsByKind {
	if threads > maxThreads {
		return nil
	}
	out := &job.ThreadsByKind{}
	for _, st := range tree {
		if st.threads == 1 {
			out.Count(job.ThreadState(st.state))
			continue
		}
		dir := "/proc/" + strconv.Itoa(st.pid) + "/task/"
		tasks, err := os.Open(dir)
		if err != nil {
			continue // it has just ended
		}
		names, _ := tasks.Readdirnames(maxThreads) // they may have become more
		tasks.Close()
		for _, name := range names {
			if thread, ok := readStatOf(dir+name+"/stat", s.buf); ok {
				out.Count(job.ThreadState(thread.state))
			}
		}
	}
	return out
}

// ended reports whether a process is not there any more.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// openFiles counts the open files of processes; nil if those of one cannot be read.
func (s *sampler) openFiles(tree []procStat) *int64 {
	var sum int64
	if !each(s.proc, tree, func(p procfs.Proc) error {
		n, err := p.FileDescriptorsLen()
		sum += int64(n)
		return err
	}) {
		return nil
	}
	return &sum
}

// io sums the counters of processes; false if those of one cannot be read.
func (s *sampler) io(tree []procStat) (sum procfs.ProcIO, ok bool) {
	ok = each(s.proc, tree, func(p procfs.Proc) error {
		io, err := p.IO()
		sum.RChar, sum.WChar = sum.RChar+io.RChar, sum.WChar+io.WChar
		sum.ReadBytes, sum.WriteBytes = sum.ReadBytes+io.ReadBytes, sum.WriteBytes+io.WriteBytes
		return err
	})
	return sum, ok
}

// each reads something of each process, and reports whether it could be read of one, and of all that have not ended meanwhile.
func each(proc procfs.FS, tree []procStat, read func(procfs.Proc) error) (whole bool) {
	for _, st := range tree {
		p, err := proc.Proc(st.pid)
		if err == nil {
			err = read(p)
		}
		switch {
		case err == nil:
			whole = true
		case !ended(err):
			return false
		}
	}
	return whole
}

// counter is a counter for a report.
func counter(n uint64) *int64 { return new(int64(min(n, math.MaxInt64))) }

// retransmits counts TCP segments that were sent again in this network namespace.
func (s *sampler) retransmits() *int64 {
	self, err := s.proc.Self()
	if err != nil {
		return nil
	}
	snmp, err := self.Snmp()
	if err != nil || snmp.Tcp.RetransSegs == nil {
		return nil
	}
	return counter(uint64(max(0, *snmp.Tcp.RetransSegs)))
}

// readCgroup enters the limit, use and pressure of this process's cgroup.
func readCgroup(cgroups string, out *job.SlotFigures) {
	for _, dir := range memoryCgroups(cgroups) {
		used, limit := "memory.current", "memory.max"
		if dir.v1 {
			used, limit = "memory.usage_in_bytes", "memory.limit_in_bytes"
		}
		text, err := os.ReadFile(filepath.Join(dir.path, used))
		if err != nil {
			continue // of the root of version 2 as well: it has no such file
		}
		out.MemoryUsed = parseAmount(string(text))
		for at := dir.path; strings.HasPrefix(at, dir.root); at = filepath.Dir(at) {
			if text, err := os.ReadFile(filepath.Join(at, limit)); err == nil {
				out.MemoryLimit = lower(out.MemoryLimit, parseAmount(string(text)))
			}
		}
		stalled := func(file string) *float64 {
			text, err := os.ReadFile(filepath.Join(dir.path, file))
			if err != nil {
				return nil
			}
			return parsePressure(string(text))
		}
		out.MemoryStalled, out.CPUStalled, out.IOStalled = stalled("memory.pressure"), stalled("cpu.pressure"), stalled("io.pressure")
		return
	}
}

// noLimit is what version 1 of cgroups has for no limit, rounded down to pages of 64 KiB.
const noLimit = math.MaxInt64 >> 16 << 16

// parseAmount reads an amount of memory; nil if it is none ("max"), or no limit.
func parseAmount(text string) *int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n >= noLimit {
		return nil
	}
	return &n
}

func lower(a, b *int64) *int64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

// parsePressure reads the time in which some threads were stalled from a pressure file (Documentation/accounting/psi.rst); nil if it
// has none.
func parsePressure(text string) *float64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "some" {
			continue
		}
		for _, field := range fields[1:] {
			if total, is := strings.CutPrefix(field, "total="); is {
				if us, err := strconv.ParseUint(total, 10, 63); err == nil {
					return new(float64(us) / 1e6)
				}
			}
		}
	}
	return nil
}
