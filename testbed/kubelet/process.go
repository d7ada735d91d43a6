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

// initScript is what runs between the fork and the container's command, as pid 1 of the new pid namespace: only
// from in there can its /proc be mounted. The line it reads is written once the process is in its cgroup. It
// ends by becoming the command, which so is pid 1 itself: like in a container, a signal that it has no handler
// for is ignored, and its end is the end of all. Its first argument is where the container's root is.
const initScript = `mount -t proc proc "$1/proc" && shift && read -r _ <&3 && exec 3<&- && exec "$@"`

// bareRoot is where the root of a container of a scratch image is while what leads to its command, which that does not
// have, still runs in the machine's.
const bareRoot = "/.image"

// chroot is the last of what leads to such a command. It is in coreutils.
const chroot = "/usr/sbin/chroot"

// defaultShm is the size of /dev/shm that a container runtime gives when no volume is mounted there.
const defaultShm = "64m"

// devices are the nodes in /dev that the OCI runtime specification asks for.
var devices = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

var deviceLinks = [][2]string{
	{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
}

// processSpec is a container as the runtime sees it.
type processSpec struct {
	namespace *os.File // the pod's mount namespace
	hostname  string
	scratch   string // an empty directory, over which the container's own layer is mounted
	mounts    []bind
	bare      bool   // there is nothing but the mounts, nothing of this machine's root
	readOnly  bool   // the root, not what is mounted
	dir       string // working directory, made if it is not there; "/" if bare
	argv      []string
	env       []string
	user      *user
	log       string // file that takes stdout and stderr
	cgroup    string // directory of its memory cgroup; "" for none
}

// bind is one file or directory of the pod's mount namespace and where the container sees it.
type bind struct {
	from, to string
	readOnly bool
	root     bool // is of the container's root: read-only where that is, once all is mounted
	create   bool // from becomes a directory if it is not there, as a subPath does
}

type user struct{ uid, gid, group int64 } // group is the one beside gid

// process is a started container. Its fields after done are valid once done is closed.
type process struct {
	os      *os.Process
	started time.Time

	done     chan struct{}
	finished time.Time
	code     int // exit code, 128+n when signal n ended it
	oom      bool
}

// errCommand is a command that cannot be run, in the words of containerd and runc.
type errCommand struct{ reason string }

func (e errCommand) Error() string {
	return "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: " + e.reason + ": unknown"
}

// onThread runs f on an operating-system thread that nothing else ever runs on: what f does to its namespaces
// ends with it. The thread lives until f returns, so children of f may be bound to it by Pdeathsig.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The main thread would not end, and its namespaces are what /proc shows of the process. Hold it until
		// another has been found.
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

// startProcess starts a container. The error is an errCommand when it is the command that cannot be run.
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

// end notes how the container ended. The kernel lets its first process be waited for when all others of its pid
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
		// A change of user clears Pdeathsig, so it is set once more.
		argv = append(argv, "setpriv", "--reuid", strconv.FormatInt(s.user.uid, 10), "--regid", strconv.FormatInt(s.user.gid, 10), "--groups", strconv.FormatInt(s.user.group, 10), "--pdeathsig", "KILL")
		if s.bare { // the user is to change the root; the command keeps that right
			argv = append(argv, "--inh-caps", "+sys_chroot", "--ambient-caps", "+sys_chroot")
		}
	}
	// The shell drops variables whose names it does not like, and adds its own. env gives exactly these.
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

// awaitCommand waits until pid 1 of the new namespace is no longer what leads to the command, which ignores a
// SIGTERM. The proc that it mounted is seen from here. It gives up after a second: then somebody waits for a
// container's whole grace.
func awaitCommand(proc string) {
	const tries, pause = 1000, time.Millisecond
	for range tries {
		b, err := os.ReadFile(filepath.Join(proc, "1", "cmdline"))
		mounting := errors.Is(err, fs.ErrNotExist) && !exists(filepath.Join(proc, "self"))
		// One that turns into the next has no command line for a moment, as has one that has ended.
		turning := err == nil && len(b) == 0 && !zombie(filepath.Join(proc, "1"))
		if !mounting && !turning && !leads(string(b)) {
			return
		}
		time.Sleep(pause)
	}
}

// zombie reports whether the process with this folder in /proc has ended, and nobody has waited for it yet.
func zombie(proc string) bool {
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	return err == nil && strings.Contains(string(status), "\nState:\tZ")
}

// leads reports whether a command line is one of what leads to a container's command.
func leads(line string) bool {
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

// root is where enter leaves the container's root, for the calling thread: "" where that is its own.
func (s processSpec) root() string {
	if s.bare {
		return bareRoot
	}
	return ""
}

// enter takes the calling thread into new namespaces and makes the container's files its root.
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
	// Sources are opened before the root changes, and attached after it: only then do absolute links on the way
	// to a mount point (/var/run is one) lead to where the container would find it.
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
	for _, dir := range slices.Compact([]string{"/dev", within("/dev")}) { // what leads to the command has a standard input too
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
	// The hosts file is replaced as a whole when it changes, which a mount of the file itself would not show.
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

// writeUnforked writes a file while nothing forks: a child would have the file open until it comes to its exec, and for so long
// the mount that it is in cannot be made read-only.
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

// podEtc is where a container finds the directory of files that its pod's containers share.
const podEtc = "/etc/.pod"

// overlayRoot makes an overlay of the root, with all changes in memory below scratch, the new root. The layer
// cannot be on the root's own file system: overlayfs refuses a layer inside another.
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
	// The old root is stacked on the new one at the same point, and detached from there (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return unix.Chdir("/")
}

// makeDev makes what containers have in /dev at another place, which is made if it is not there.
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
		if err := unix.Chmod(path, 0o666); err != nil { // the umask does not count
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

// lookPath finds the command as the container would, from where enter leaves the caller.
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
