package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/eltrain/eltrain/job"
)

// InSlot carries out a task of the agent's program beside an agent, if args name one (see job.AgentExec), and returns its exit
// code.
func InSlot(args []string, stdout, stderr io.Writer) (code int, is bool) {
	if len(args) == 0 {
		return 0, false
	}
	var err error
	switch args[0] {
	case job.AgentExec:
		err = become(args[1:])
	case job.AgentStacks:
		err = printStacks(stdout)
	case job.AgentCheck:
		err = checkHere(stdout)
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintf(stderr, "eltrain-agent: %s: %v\n", args[0], err)
		return codeOf(err), true
	}
	return 0, true
}

// become replaces this process by a command in the environment of the first training process of this container.
func become(args []string) error {
	term, command, err := job.ParseExecArgs(args)
	if err != nil {
		return err
	}
	all := trainees(func([]string) bool { return true })
	if len(all) == 0 {
		return errIdle
	}
	first := slices.MinFunc(all, func(a, b trainee) int { return cmp.Compare(a.number("LOCAL_RANK"), b.number("LOCAL_RANK")) })
	path, err := exec.LookPath(command[0]) // the role's PATH is that of the container
	if err != nil {
		return err
	}
	if dir := first.variable("PWD"); dir != "" { // where it was started; it may have gone elsewhere
		if err := os.Chdir(dir); err != nil {
			return err
		}
	}
	env := guestEnvironment(first.env)
	if term != "" {
		env = append(slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") }), "TERM="+term)
	}
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, command, env)}
}

// trainee is a training process as /proc shows it.
type trainee struct {
	pid, parent int
	env         []string // as of its start
}

func (t *trainee) variable(name string) string {
	for _, kv := range t.env {
		if value, is := strings.CutPrefix(kv, name+"="); is {
			return value
		}
	}
	return ""
}

// number is a variable as a number; -1 if it is not set.
func (t *trainee) number(name string) int {
	n, err := strconv.Atoi(t.variable(name))
	if err != nil {
		return -1
	}
	return n
}

// trainees finds the training processes in this file system's root that mine accepts by their environment: those with an error
// file whose parent has none. Commands that run beside them have none: see guestEnvironment.
func trainees(mine func(env []string) bool) []trainee {
	found := map[int]trainee{}
	for _, pid := range pids() {
		env := environOf(pid)
		if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, errorFileVariable+"=") }) && mine(env) && sameRoot(pid) {
			if st, ok := readStat(pid); ok && !st.ended() {
				found[pid] = trainee{pid, st.parent, env}
			}
		}
	}
	var roots []trainee
	for _, t := range found {
		if _, child := found[t.parent]; !child {
			roots = append(roots, t)
		}
	}
	slices.SortFunc(roots, func(a, b trainee) int { return cmp.Compare(a.pid, b.pid) })
	return roots
}

func pids() []int {
	names, _ := filepath.Glob("/proc/[0-9]*")
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// environOf is the environment a process was started with; none if it cannot be read.
func environOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// sameRoot reports whether a process has this one's root directory: with a shared process namespace, the processes of other
// containers are visible too.
func sameRoot(pid int) bool {
	own, err := os.Stat("/proc/self/root/.")
	other, otherErr := os.Stat(fmt.Sprintf("/proc/%d/root/.", pid))
	return errors.Join(err, otherErr) == nil && os.SameFile(own, other)
}
