package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initScript runs between the fork and the container's command, as pid 1 of the new pid namespace: only from inside can
// its /proc be mounted. The line that it reads is written once the process is in its cgroup. It execs the command, which
// so is pid 1 itself: as in a container, signals without a handler are ignored, and when it exits all others are killed.
// Its first argument is the path of the container's root.
const initScript = `mount -t proc proc "$1/proc" && shift && read -r _ <&3 && exec 3<&- && exec "$@"`

// bareRoot is where the root of a scratch image's container is mounted, while the launching programs, which are not in it,
// still run in the machine's.
const bareRoot = "/.image"

// chroot is the last of the launching programs for such a container. It is in coreutils.
const chroot = "/usr/sbin/chroot"

// defaultShm is the default size of /dev/shm of container runtimes, if no volume is mounted there.
const defaultShm = "64m"

// devices are the device nodes in /dev that the OCI runtime specification requires.
var devices = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

var deviceLinks = [][2]string{
	{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
}

// processSpec describes a container to the runtime.
type processSpec struct {
	namespace *os.File // the pod's mount namespace
	hostname  string
	scratch   string // an empty directory, on which the container's own layer is mounted
	mounts    []bind
	bare      bool   // there are only the mounts, without this machine's root
	readOnly  bool   // the root, not the mounts
	dir       string // working directory, created if missing; "/" if bare
	argv      []string
	env       []string
	user      *user
	log       string // file for stdout and stderr
	cgroup    string // directory of its memory cgroup; "" for none
}

// bind is a file or directory of the pod's mount namespace and its path in the container.
type bind struct {
	from, to string
	readOnly bool
	root     bool // it belongs to the container's root: read-only if that is, once all is mounted
	create   bool // from is created as a directory if missing, as for a subPath
}

type user struct{ uid, gid, group int64 } // group is a supplementary one

// process is a started container. The fields after done are valid once done is closed.
type process struct {
	os      *os.Process
	inside  inside
	started time.Time

	done     chan struct{}
	finished time.Time
	code     int // exit code; 128+n if killed by signal n
	oom      bool
}

// errCommand is a command that cannot be executed, with the message of containerd and runc.
type errCommand struct{ reason string }

func (e errCommand) Error() string {
	return "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: " + e.reason + ": unknown"
}

// onThread runs f on an operating-system thread that nothing else ever runs on: f's changes to its namespaces end with
// it. The thread lives until f returns, so children of f may be tied to it by Pdeathsig.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread would not end, and /proc shows its namespaces as those of the process. Hold it until another
		// thread was found.
		found := make(chan struct{})
		onThread(func() { close(found); f() })
		<-found
		runtime.UnlockOSThread()
	}()
}

// podNamespace makes a mount namespace for a pod, in which the given directories are tmpfs with those options. It
// lives as long as the file is open or a container is in it.
func podNamespace(tmpfs map[string]string) (*os.File, error) {
	var namespace *os.File
	result := make(chan error, 1)
	onThread(func() {
		result <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("make a mount namespace: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			for dir, options := range tmpfs {
				if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
					return fmt.Errorf("mount a tmpfs: %w", err)
				}
			}
			namespace, err = os.Open("/proc/thread-self/ns/mnt")
			return err
		}()
	})
	err := <-result
	return namespace, err
}

// startProcess starts a container. If the command cannot be executed the error is an errCommand.
func startProcess(s processSpec) (*process, error) {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var procs *os.File
	if s.cgroup != "" { // the container sees cgroups read-only
		if procs, err = os.OpenFile(filepath.Join(s.cgroup, "cgroup.procs"), os.O_WRONLY, 0); err != nil {
			return nil, err
		}
		defer procs.Close()
	}
	p := &process{done: make(chan struct{})}
	started, ended := make(chan error, 1), make(chan *os.ProcessState, 1)
	onThread(func() {
		cmd, err := s.start(log, procs)
		if err != nil {
			started <- err
			return
		}
		p.os, p.started = cmd.Process, time.Now()
		p.inside = inside{cmd.Process.Pid, s.env, s.user}
		started <- nil
		cmd.Wait() // its error repeats the state
		ended <- cmd.ProcessState
	})
	if err := <-started; err != nil {
		return nil, err
	}
	go func() { p.end(<-ended, s.cgroup) }()
	return p, nil
}

// end records how the container ended. The kernel reports the exit of its first process only when all others of its pid
// namespace are gone.
func (p *process) end(state *os.ProcessState, cgroup string) {
	p.finished, p.code = time.Now(), state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.code = 128 + int(status.Signal())
	}
	p.oom = oomKills(cgroup) > 0
	removeCgroup(cgroup)
	close(p.done)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// start makes the container around the calling thread, and forks its first process into it.
func (s processSpec) start(log, procs *os.File) (*exec.Cmd, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	path, err := s.lookPath()
	if err != nil {
		return nil, err
	}
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gate.Close()
	defer open.Close()
	argv := []string{"-c", initScript, "init", s.root()}
	if s.user != nil {
		// A change of user clears Pdeathsig, so it is set again.
		argv = append(argv, "setpriv", "--reuid", strconv.FormatInt(s.user.uid, 10), "--regid", strconv.FormatInt(s.user.gid, 10), "--groups", strconv.FormatInt(s.user.group, 10), "--pdeathsig", "KILL")
		if s.bare { // the user has to change the root; the command keeps that capability
			argv = append(argv, "--inh-caps", "+sys_chroot", "--ambient-caps", "+sys_chroot")
		}
	}
	// The shell drops variables with unusual names, and adds its own. env sets exactly these.
	argv = append(argv, "env", "-i")
	argv = append(argv, s.env...)
	if s.bare {
		argv = append(argv, chroot, bareRoot)
	}
	cmd := exec.Command("/bin/sh", append(append(argv, path), s.argv[1:]...)...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + defaultPath}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{gate}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: unix.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	if procs != nil {
		_, err = procs.WriteString(strconv.Itoa(cmd.Process.Pid))
	}
	if err == nil {
		_, err = open.WriteString("\n")
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, err
	}
	awaitCommand(filepath.Join("/", s.root(), "proc"))
	return cmd, nil
}

// awaitCommand waits until pid 1 of the new namespace is no longer a launching program, which ignores SIGTERM. It reads
// the proc that pid 1 mounted. It gives up after a second; in the worst case somebody then waits for a container's whole
// grace.
func awaitCommand(proc string) {
	const tries, pause = 1000, time.Millisecond
	for range tries {
		b, err := os.ReadFile(filepath.Join(proc, "1", "cmdline"))
		mounting := errors.Is(err, fs.ErrNotExist) && !exists(filepath.Join(proc, "self"))
		// During an exec the command line is empty for a moment, and so is that of a process that has ended.
		turning := err == nil && len(b) == 0 && !zombie(filepath.Join(proc, "1"))
		if !mounting && !turning && !isLauncher(string(b)) {
			return
		}
		time.Sleep(pause)
	}
}

// zombie reports whether the process with this folder in /proc has ended but was not waited for.
func zombie(proc string) bool {
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	return err == nil && strings.Contains(string(status), "\nState:\tZ")
}

// isLauncher reports whether a command line is that of a launching program.
func isLauncher(line string) bool {
	for _, words := range [][]string{{"/bin/sh", "-c", initScript}, {"setpriv", "--reuid"}, {"env", "-i"}, {chroot, bareRoot}} {
		if strings.HasPrefix(line, strings.Join(words, "\x00")+"\x00") {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// root is where enter mounts the container's root, as the calling thread sees it: "" if it is the thread's own root.
func (s processSpec) root() string {
	if s.bare {
		return bareRoot
	}
	return ""
}

// enter moves the calling thread into new namespaces and makes the container's files its root.
func (s processSpec) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the shared working directory: %w", err)
	}
	if err := unix.Setns(int(s.namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the pod's mount namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if err := unix.Sethostname([]byte(s.hostname)); err != nil {
		return fmt.Errorf("set the host name %q: %w", s.hostname, err)
	}
	// Sources are opened before the root changes, and attached afterwards: only then are absolute links on the way to a
	// mount point (such as /var/run) resolved as in the container.
	trees := make([]int, 0, len(s.mounts)+1)
	defer func() {
		for _, tree := range trees {
			unix.Close(tree)
		}
	}()
	mounts := append([]bind{{from: "/sys", to: "/sys", readOnly: true}}, s.mounts...)
	kinds := make([]fs.FileMode, len(mounts))
	for i, m := range mounts {
		info, err := os.Stat(m.from)
		if m.create && errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(m.from, 0o777); err != nil {
				return fmt.Errorf("mount %s: %w", m.to, err)
			}
			info, err = os.Stat(m.from)
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
		kinds[i] = info.Mode()
		tree, err := unix.OpenTree(unix.AT_FDCWD, m.from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.from, m.to, err)
		}
		trees = append(trees, tree)
		if !m.readOnly {
			continue
		}
		attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
			return fmt.Errorf("mount %s read-only: %w", m.to, err)
		}
	}
	if err := overlayRoot(s.scratch); err != nil {
		return err
	}
	if s.bare {
		if err := makeBareRoot(); err != nil {
			return fmt.Errorf("make an empty root: %w", err)
		}
	}
	within := func(path string) string { return filepath.Join("/", s.root(), path) }
	for _, dir := range slices.Compact([]string{"/dev", within("/dev")}) { // the launching programs have a standard input too
		if err := makeDev(dir); err != nil {
			return fmt.Errorf("make /dev: %w", err)
		}
	}
	for i, m := range mounts {
		if err := makeMountPoint(within(m.to), kinds[i].IsDir()); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, within(m.to), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	// The hosts file is replaced atomically when it changes, which a mount of the file itself would not show.
	os.Remove(within("/etc/hosts"))
	if err := os.Symlink(filepath.Join(podEtc, "hosts"), within("/etc/hosts")); err != nil {
		return err
	}
	if err := writeUnforked(within("/etc/hostname"), s.hostname+"\n"); err != nil {
		return err
	}
	if err := os.MkdirAll(within(s.dir), 0o755); err != nil {
		return fmt.Errorf("make the working directory: %w", err)
	}
	if !s.readOnly {
		return nil
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err := unix.MountSetattr(unix.AT_FDCWD, within("/"), 0, attr)
	for i, m := range mounts {
		if m.root && err == nil {
			err = unix.MountSetattr(trees[i], "", unix.AT_EMPTY_PATH, attr)
		}
	}
	if err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

// writeUnforked writes a file while nothing forks: a forked child would keep the file open until its exec, during which
// the mount cannot be made read-only.
func writeUnforked(path, content string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(content), 0o644)
}

// makeBareRoot makes an empty root, with a directory for proc.
func makeBareRoot() error {
	if err := os.Mkdir(bareRoot, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", bareRoot, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(bareRoot, "proc"), 0o755)
}

// podEtc is where a container finds the files shared by its pod's containers.
const podEtc = "/etc/.pod"

// overlayRoot makes an overlay of the root the new root, with all changes in memory below scratch. The upper layer
// cannot be on the root's own file system: overlayfs rejects a layer inside another.
func overlayRoot(scratch string) error {
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount the container's layer: %w", err)
	}
	if err := unix.Chdir(scratch); err != nil {
		return err
	}
	for _, dir := range []string{"upper", "work", "root"} {
		if err := unix.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", "root", "overlay", 0, "lowerdir=/,upperdir=upper,workdir=work"); err != nil {
		return fmt.Errorf("mount an overlay of the root: %w", err)
	}
	if err := unix.Chdir("root"); err != nil {
		return err
	}
	// The old root is stacked on the new one at the same path, and detached from there (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// makeDev makes a container's /dev at dir, which is created if missing.
func makeDev(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "mode=0755,size=64k"); err != nil {
		return err
	}
	for _, d := range devices {
		path := filepath.Join(dir, d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := unix.Chmod(path, 0o666); err != nil { // Mknod applies the umask
			return err
		}
	}
	for _, link := range deviceLinks {
		if err := os.Symlink(link[0], filepath.Join(dir, link[1])); err != nil {
			return err
		}
	}
	for _, m := range []struct{ name, kind, options string }{
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"},
		{"shm", "tmpfs", "mode=1777,size=" + defaultShm},
	} {
		at := filepath.Join(dir, m.name)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, at, m.kind, unix.MS_NOSUID|unix.MS_NODEV, m.options); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func makeMountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// lookPath finds the command as the container would, after enter.
func (s processSpec) lookPath() (string, error) {
	command := s.argv[0]
	if strings.Contains(command, "/") {
		path := command
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.dir, path)
		}
		if err := executable(filepath.Join("/", s.root(), path)); err != nil {
			return "", errCommand{fmt.Sprintf("%q: stat %s: %v", command, command, err)}
		}
		return path, nil
	}
	search := defaultPath
	for _, variable := range s.env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			search = value
		}
	}
	for _, in := range filepath.SplitList(search) {
		path := filepath.Join(in, command)
		if filepath.IsAbs(path) && executable(filepath.Join("/", s.root(), path)) == nil {
			return path, nil
		}
	}
	return "", errCommand{fmt.Sprintf("%q: executable file not found in $PATH", command)}
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("no such file or directory")
		}
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errors.New("permission denied")
	}
	return nil
}
