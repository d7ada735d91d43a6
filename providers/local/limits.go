package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// Memory and cpu limits are cgroups, one per incarnation, created before its agent starts. Of containerd/cgroups only the
// root package is used, for parsing; its cgroup1 and cgroup2 would link protobuf, eBPF and D-Bus into every agent for
// what is here a directory and three files.

// cfsPeriod is the kernel's default scheduling period in microseconds (Documentation/scheduler/sched-bwc),
// and minQuota the least quota that it accepts.
const (
	cfsPeriod = 100_000
	minQuota  = 1_000
)

// controller is where one kind of limit is set.
type controller struct {
	name    string // "memory" or "cpu"
	parent  string // directory below which ours are created; "" if limits cannot be set
	unified bool   // cgroup v2
	why     string // why they cannot be set, to follow a colon
}

// limiter sets the limits that this user may set. freezer limits nothing: with cgroup v1 it keeps processes from forking while
// they are killed, which v2 does by itself.
type limiter struct{ memory, cpu, freezer controller }

// newLimiter determines what this user may limit on this machine.
func newLimiter() limiter {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return limiter{memory: controller{name: "memory", why: err.Error()}, cpu: controller{name: "cpu", why: err.Error()}}
	}
	own, unified, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return limiter{memory: controller{name: "memory", why: err.Error()}, cpu: controller{name: "cpu", why: err.Error()}}
	}
	m := parseMounts(string(mounts))
	return limiter{m.find("memory", own, unified), m.find("cpu", own, unified), m.find("freezer", own, unified)}
}

// caveats says in full sentences which limits are not enforced, and why.
func (l limiter) caveats() []string {
	switch {
	case l.memory.parent != "" && l.cpu.parent != "":
		return nil
	case l.memory.why == l.cpu.why:
		return []string{"Memory and cpu limits are not enforced: " + l.memory.why + "."}
	}
	var out []string
	if l.memory.parent == "" {
		out = append(out, "Memory limits are not enforced: "+l.memory.why+".")
	}
	if l.cpu.parent == "" {
		out = append(out, "Cpu limits are not enforced: "+l.cpu.why+".")
	}
	return out
}

// cgroupMount is one mounted hierarchy.
type cgroupMount struct {
	root    string // the cgroup that is mounted: not "/" inside some containers
	point   string // mount point
	unified bool
	options []string // of v1: its controllers
}

type cgroupMounts []cgroupMount

// parseMounts reads /proc/self/mountinfo (proc_pid_mountinfo(5)): fields 4 and 5 are root and mount point,
// after " - " come type, source and options.
func parseMounts(mountinfo string) cgroupMounts {
	var mounts cgroupMounts
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || r[0] != "cgroup" && r[0] != "cgroup2" {
			continue
		}
		mounts = append(mounts, cgroupMount{root: l[3], point: l[4], unified: r[0] == "cgroup2", options: strings.Split(r[2], ",")})
	}
	return mounts
}

// find determines where limits of one controller can be set. own and unified are this process's own cgroups, by v1
// controller and in v2.
func (m cgroupMounts) find(name string, own map[string]string, unified string) controller {
	c := controller{name: name, why: "no cgroup hierarchy with the controller " + name + " is mounted"}
	if len(m) == 0 {
		c.why = "cgroups are not mounted"
	}
	for _, mount := range m {
		switch {
		case !mount.unified && slices.Contains(mount.options, name):
			// Below our own cgroup, so that the limits of this process apply to the agents too.
			dir := mount.dir(own[name])
			if why := unwritable(dir); why != "" {
				c.why = why
				continue
			}
			return controller{name: name, parent: dir}
		case mount.unified:
			// A v2 cgroup with processes in it cannot have limited children: use the nearest ancestor that this user may
			// write, such as user@UID.service, which systemd delegates.
			for dir := mount.dir(unified); strings.HasPrefix(dir, mount.point); dir = filepath.Dir(dir) {
				if !hasWord(filepath.Join(dir, "cgroup.controllers"), name) {
					continue
				}
				why := unwritable(dir, "cgroup.procs", "cgroup.subtree_control")
				if why != "" {
					c.why = why
					continue
				}
				if dir != mount.point && occupied(dir) {
					continue
				}
				return controller{name: name, parent: dir, unified: true}
			}
		}
	}
	return c
}

// dir is the directory of a cgroup's path in this mount.
func (m cgroupMount) dir(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return m.point
	}
	return filepath.Join(m.point, rel)
}

// unwritable is why the directory, or files in it, cannot be written; "" if they can.
func unwritable(dir string, files ...string) string {
	for _, path := range append([]string{""}, files...) {
		path = filepath.Join(dir, path)
		err := unix.Access(path, unix.W_OK)
		switch {
		case err == nil:
		case errors.Is(err, unix.EROFS):
			return path + " is mounted read-only"
		case errors.Is(err, unix.EACCES):
			return path + " is not writable by " + userName()
		default:
			return fmt.Sprintf("%s: %v", path, err)
		}
	}
	return ""
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return "user " + u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

func hasWord(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

func occupied(dir string) bool {
	pids, err := cgroupPIDs([]string{dir})
	return err != nil || len(pids) > 0
}

// dirs are the directories of one incarnation's cgroups: one in v2, one per controller and the freezer's in v1, none if nothing
// is reserved or can be limited.
func (l limiter) dirs(name string, reserved job.Resources) []string {
	var dirs []string
	if reserved.Memory > 0 && l.memory.parent != "" {
		dirs = append(dirs, l.memory.dir(name))
	}
	if reserved.CPU > 0 && l.cpu.parent != "" {
		dirs = append(dirs, l.cpu.dir(name))
	}
	if len(dirs) > 0 && l.freezer.parent != "" {
		dirs = append(dirs, l.freezer.dir(name))
	}
	return slices.Compact(dirs)
}

// make creates the cgroups that dirs returns.
func (l limiter) make(name string, reserved job.Resources) error {
	if reserved.Memory > 0 && l.memory.parent != "" {
		dir, err := l.memory.make(name)
		if err == nil {
			err = limitMemory(dir, l.memory.unified, int64(reserved.Memory))
		}
		if err != nil {
			return fmt.Errorf("limit memory to %s: %w", reserved.Memory, err)
		}
	}
	if reserved.CPU > 0 && l.cpu.parent != "" {
		dir, err := l.cpu.make(name)
		if err == nil {
			err = limitCPU(dir, l.cpu.unified, int64(reserved.CPU))
		}
		if err != nil {
			return fmt.Errorf("limit cpu to %s: %w", reserved.CPU, err)
		}
	}
	if dirs := l.dirs(name, reserved); slices.Contains(dirs, l.freezer.dir(name)) {
		if _, err := l.freezer.make(name); err != nil {
			return fmt.Errorf("make a cgroup to stop processes: %w", err)
		}
	}
	return nil
}

// dir is the directory of the controller's cgroup of that name.
func (c controller) dir(name string) string { return filepath.Join(c.parent, "eltrain", name) }

// make creates the controller's cgroup of that name. Its parents may be removed concurrently, when another incarnation ends:
// then it retries.
func (c controller) make(name string) (dir string, err error) {
	for range 10 {
		dir, err = c.tryMake(name)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return dir, err
}

// tryMake creates the cgroup and its parents. In v2 it enables the controller on the way down.
func (c controller) tryMake(name string) (string, error) {
	dir := c.parent
	for _, part := range strings.Split(filepath.Join("eltrain", name), "/") {
		if c.unified {
			if err := set(dir, "cgroup.subtree_control", "+"+c.name); err != nil {
				return "", err
			}
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

// limitMemory limits memory and swap together: a slot that swaps is no better than one that is killed.
func limitMemory(dir string, unified bool, bytes int64) error {
	limit := strconv.FormatInt(bytes, 10)
	if unified {
		return errors.Join(set(dir, "memory.max", limit), setIfThere(dir, "memory.swap.max", "0"))
	}
	// The kernel rejects a memory limit above that of memory and swap, so when a limit grows the latter is set first.
	setIfThere(dir, "memory.memsw.limit_in_bytes", limit)
	return errors.Join(set(dir, "memory.limit_in_bytes", limit), setIfThere(dir, "memory.memsw.limit_in_bytes", limit))
}

func limitCPU(dir string, unified bool, millis int64) error {
	quota := strconv.FormatInt(max(millis*cfsPeriod/1000, minQuota), 10)
	if unified {
		return set(dir, "cpu.max", quota+" "+strconv.Itoa(cfsPeriod))
	}
	if err := set(dir, "cpu.cfs_period_us", strconv.Itoa(cfsPeriod)); err != nil {
		return err
	}
	err := set(dir, "cpu.cfs_quota_us", quota)
	if errors.Is(err, unix.EINVAL) {
		// v1 rejects more than this process's own limit, v2 accepts it; in both, that limit applies to the agent too.
		err = set(dir, "cpu.cfs_quota_us", "-1")
	}
	return err
}

func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// setIfThere is set for files of optional kernel features, such as swap accounting.
func setIfThere(dir, file, value string) error {
	if err := set(dir, file, value); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// cgroupPIDs lists the processes in any of the cgroups. A removed cgroup has none.
func cgroupPIDs(dirs []string) ([]int, error) {
	var pids []int
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the processes of a cgroup: %w", err)
		}
		for _, word := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// freezeWait bounds how long processes may take to freeze. One that hangs in the kernel does not, and does not fork either.
const freezeWait = time.Second

// killCgroups sends SIGKILL to all processes of the cgroups, none of which can fork meanwhile: one that keeps forking could
// otherwise outrun a search for it. Where the kernel can do neither (v2 before Linux 5.14) it does nothing.
func killCgroups(dirs []string) error {
	for _, dir := range dirs {
		err := set(dir, "cgroup.kill", "1")
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return err // a v2 cgroup is the only one
		}
		if err := set(dir, "freezer.state", "FROZEN"); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		} else if err != nil {
			return err
		}
		for end := time.Now().Add(freezeWait); !hasWord(filepath.Join(dir, "freezer.state"), "FROZEN") && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		pids, err := cgroupPIDs([]string{dir})
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		return errors.Join(err, set(dir, "freezer.state", "THAWED"))
	}
	return nil
}

// oomKills is how many processes of the cgroups the kernel has killed for memory. Both versions count them
// in a line "oom_kill N".
func oomKills(dirs []string) int {
	for _, dir := range dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
					n, _ := strconv.Atoi(strings.TrimSpace(count))
					return n
				}
			}
		}
	}
	return 0
}

// sweep removes an incarnation's cgroups once nothing of it runs, and their parents once they are empty: the job's with its
// last incarnation, eltrain's with its last job. A copy's record names the original's cgroups, which stay. If it fails, it is
// retried whenever the incarnation is looked at. i.mu is held and the launch record was read.
func (p *Provider) sweep(i *incarnation) error {
	if i.swept {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(i.launch.Cgroups), func(dir string) bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(left) > 0 && p.copied(i) {
		return nil
	}
	for _, dir := range left {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
		removeParents(dir)
	}
	i.swept = true
	return nil
}

// removeParents removes the parents of an incarnation's cgroup if they are empty.
func removeParents(dir string) {
	if job := filepath.Dir(dir); os.Remove(job) == nil {
		os.Remove(filepath.Dir(job))
	}
}
