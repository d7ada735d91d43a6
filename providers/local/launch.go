package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// Launch starts the agent of one incarnation, detached from this process. A missing working directory is no
// error: it is observed as an exit that was not started, as a missing command is.
func (p *Provider) Launch(ctx context.Context, l job.Launch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkLaunch(l); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.jobDir(l.UID), tokenFile)); err != nil {
		return fmt.Errorf("the job is not prepared: %w", err)
	}
	i := p.incarnation(key{l.UID, l.Slot.Role, l.Slot.Index, l.Incarnation})
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.started() {
		return nil
	}
	// Checked here: under a limit a shell is started, which would fail too late.
	if _, err := exec.LookPath(p.agent[0]); err != nil {
		return fmt.Errorf("find the agent's program: %w", err)
	}
	for _, dir := range []string{i.dir, filepath.Dir(p.logPath(l.Slot))} {
		if err := regular.MakePrivate(p.runDir, dir); err != nil {
			return err
		}
	}
	held, err := lock(i.dir)
	if err != nil || held == nil { // held by an agent that another master started
		return err
	}
	defer held.Close() // the agent has a copy
	home, err := filepath.EvalSymlinks(p.runDir)
	if err != nil {
		return err
	}
	name := cgroupName(home, i.key)
	record := &launchRecord{
		Slot: l.Slot, UID: l.UID, Incarnation: l.Incarnation, Node: l.Node, Fingerprint: l.Fingerprint,
		Reserved: l.Reserved, Asked: time.Now(), Cgroups: p.limits.dirs(name, l.Reserved), Home: home,
	}
	defer p.changed()
	// Before anything is created or started, so that the next master knows of it if this one crashes.
	if err := writeJSON(i.dir, launchFile, record); err != nil {
		return err
	}
	i.launch, i.ours = record, true
	work := p.absolute(l.Program.WorkingDir)
	if st, err := os.Stat(work); err != nil || !st.IsDir() {
		exit := &job.Exit{Code: 127, At: time.Now(), NotStarted: fmt.Sprintf("working directory %s does not exist", work)}
		if err == nil {
			exit.NotStarted = fmt.Sprintf("working directory %s is not a directory", work)
		}
		return writeJSON(i.dir, exitFile, job.LastWord{Exit: exit, State: job.MemberFailed, Reason: job.EndFailed})
	}
	if err := p.limits.make(name, l.Reserved); err != nil {
		return err
	}
	p.notify.Add(i.dir) // without it the agent's record is noticed when it registers
	return p.start(i, l, work, held)
}

func checkLaunch(l job.Launch) error {
	if err := checkUID(l.UID); err != nil {
		return err
	}
	switch {
	case !job.ValidName(l.Slot.Job) || !job.ValidName(l.Slot.Role) || l.Slot.Index < 0:
		return errors.New("the address is malformed")
	case l.Incarnation < 1:
		return fmt.Errorf("%d is not an incarnation: they are counted from 1", l.Incarnation)
	case len(l.Program.Command) == 0:
		return errors.New("the command is missing")
	}
	return nil
}

// started reports whether the incarnation was ever started, as far as is known. With only a launch record and no lock it
// was not: the master died in between, and it has to be started. i.mu is held.
func (i *incarnation) started() bool {
	if i.final != nil || i.agent != nil || i.child != nil {
		return true
	}
	for _, name := range []string{agentFile, exitFile, endedFile} {
		if _, err := os.Stat(filepath.Join(i.dir, name)); err == nil {
			return true
		}
	}
	return false
}

// intoCgroups is a shell script that enters the cgroups named before "--" and executes the command after it: the agent,
// and all that it starts, is in them from its first instruction.
const intoCgroups = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"`

// start forks the agent: in a session of its own, with no descriptor of ours except its lock. i.mu is held.
func (p *Provider) start(i *incarnation, l job.Launch, work string, held *os.File) error {
	argv := append(append([]string{}, p.agent...), p.agentConfig(i, l).Args()...)
	if len(i.launch.Cgroups) > 0 {
		argv = append(append(append([]string{"/bin/sh", "-c", intoCgroups, "sh"}, i.launch.Cgroups...), "--"), argv...)
	}
	out, err := regular.Open(filepath.Join(i.dir, agentLogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	fd := -1
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, out, out
	cmd.Env = environment(work, i.dir, l.Program.Env)
	cmd.ExtraFiles = []*os.File{held} // as descriptor lockFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &fd}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	defer cmd.Process.Release() // it is held by its pidfd
	// The pid cannot be reused until its pidfd was waited for, even if the process has ended.
	st, err := readStat(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	child := &process{identity: identity{cmd.Process.Pid, st.start}, fd: fd, done: make(chan struct{})}
	i.child = child
	p.track(child, i)
	return p.watcher.add(child)
}

// agentConfig is the agent's command line as a value. Paths are absolute: the agent runs in the job's
// working directory.
func (p *Provider) agentConfig(i *incarnation, l job.Launch) job.AgentConfig {
	c := job.AgentConfig{
		Job: l.Slot.Job, UID: l.UID, Slot: l.Slot.Short(), Incarnation: l.Incarnation, Node: l.Node,
		Host:        "127.0.0.1", // all nodes are this machine
		ServiceFile: filepath.Join(p.runDir, serviceFile), CAFile: filepath.Join(p.runDir, certificatesFile),
		TokenFile: filepath.Join(p.jobDir(l.UID), tokenFile),
		Dir:       i.dir, LockFD: lockFD,
		Log:       p.logPath(l.Slot),
		Processes: l.Processes, Ranked: l.Ranked, StopGrace: l.StopGrace, MaxRestarts: l.MaxRestarts,
		Command: l.Program.Command,
	}
	if l.Checkpoint != nil {
		c.CheckpointSignal, c.CheckpointPattern = l.Checkpoint.Signal, l.Checkpoint.Pattern
		if l.Checkpoint.Dir != "" {
			c.CheckpointDir = p.absolute(l.Checkpoint.Dir)
		}
	}
	if l.Accelerators != nil {
		c.Accelerators, c.DCGM = l.Accelerators.Command, l.Accelerators.DCGM
	}
	return c
}

// absolute resolves a path as written in a job file: relative to the job directory.
func (p *Provider) absolute(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(p.jobDirectory, path)
}

// environment is this process's environment without eltrain's own variables, the program's, and the incarnation's mark. Of
// duplicate names the last counts.
func environment(work, dir string, program map[string]string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "ELTRAIN_") {
			env = append(env, kv)
		}
	}
	env = append(env, "PWD="+work)
	for name, value := range program {
		env = append(env, name+"="+value)
	}
	return append(env, markName+"="+dir)
}
