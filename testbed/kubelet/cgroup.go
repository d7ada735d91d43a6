package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// memoryCgroups sets containers' memory limits.
type memoryCgroups struct {
	parent  string // directory of this Kubelet's cgroup; "" if limits cannot be set
	unified bool   // cgroup v2
	err     error  // why they cannot be set
}

// newMemoryCgroups makes a cgroup for this Kubelet. Without one, containers are unlimited, and the error says why.
func newMemoryCgroups() (memoryCgroups, error) {
	m := memoryCgroups{}
	m.err = m.find()
	if m.err != nil {
		m.parent = ""
		m.err = fmt.Errorf("memory limits cannot be set: %w", m.err)
	}
	return m, m.err
}

func (m *memoryCgroups) find() error {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	own, unified, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return err
	}
	base := ""
	for line := range strings.Lines(string(mountinfo)) {
		// proc_pid_mountinfo(5): fields 4 and 5 are root and mount point; after " - " type, source, options.
		left, right, _ := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		switch {
		case r[0] == "cgroup" && slices.Contains(strings.Split(r[2], ","), "memory"):
			base = below(l[4], l[3], own["memory"])
		case r[0] == "cgroup2" && base == "":
			// A v2 cgroup with processes in it cannot have limited children: use the nearest ancestor without processes, or
			// the root, which is exempt from that rule.
			dir := below(l[4], l[3], unified)
			for dir != l[4] && occupied(dir) {
				dir = filepath.Dir(dir)
			}
			if set(dir, "cgroup.subtree_control", "+memory") == nil {
				base, m.unified = dir, true
			}
		}
	}
	if base == "" {
		return errors.New("no cgroup hierarchy with the controller memory can be used")
	}
	removeStaleCgroups(base)
	m.parent, err = os.MkdirTemp(base, fmt.Sprintf("%s%d-", cgroupPrefix, os.Getpid()))
	if err != nil {
		return err
	}
	if m.unified {
		return set(m.parent, "cgroup.subtree_control", "+memory")
	}
	return nil
}

// cgroupPrefix is the prefix of a Kubelet's cgroup; the process id of its owner follows.
const cgroupPrefix = "eltrain-kubelet-"

// removeStaleCgroups removes the cgroups of killed owners. The kernel refuses while one has processes.
func removeStaleCgroups(base string) {
	parents, err := filepath.Glob(filepath.Join(base, cgroupPrefix+"*"))
	if err != nil {
		return // the pattern is well formed
	}
	for _, parent := range parents {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(parent), cgroupPrefix), "-")
		if exists("/proc/" + owner) {
			continue
		}
		children, _ := filepath.Glob(filepath.Join(parent, "*", "cgroup.procs"))
		for _, procs := range children {
			os.Remove(filepath.Dir(procs))
		}
		os.Remove(parent)
	}
}

// below is the directory of a cgroup's path in a mount of root at point.
func below(point, root, path string) string {
	rel, err := filepath.Rel(root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return point
	}
	return filepath.Join(point, rel)
}

func occupied(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err != nil || len(b) > 0
}

// limit makes a cgroup limited to so many bytes of memory and swap together; "" if limits cannot be set.
func (m memoryCgroups) limit(name string, bytes int64) (string, error) {
	if m.parent == "" {
		return "", nil
	}
	dir := filepath.Join(m.parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("limit memory: %w", err)
	}
	limit := strconv.FormatInt(bytes, 10)
	var err error
	if m.unified {
		// Since 1.28, a kubelet has the whole container killed at once (memory.oom.group).
		err = errors.Join(set(dir, "memory.max", limit), setIfThere(dir, "memory.swap.max", "0"), setIfThere(dir, "memory.oom.group", "1"))
	} else {
		err = errors.Join(set(dir, "memory.limit_in_bytes", limit), setIfThere(dir, "memory.memsw.limit_in_bytes", limit))
	}
	if err != nil {
		return "", fmt.Errorf("limit memory to %d bytes: %w", bytes, err)
	}
	return dir, nil
}

func (m memoryCgroups) close() { removeCgroup(m.parent) }

// oomKills is how many processes of the cgroup the kernel has killed for memory. Both versions count them in a
// line "oom_kill N".
func oomKills(dir string) int {
	if dir == "" {
		return 0
	}
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
	return 0
}

// removeCgroup removes a cgroup whose processes are dead. The kernel may take a moment to release the last one.
func removeCgroup(dir string) {
	if dir == "" {
		return
	}
	const tries, pause = 50, 10 * time.Millisecond
	for range tries {
		if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			return
		}
		time.Sleep(pause)
	}
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
