package providertest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Agent stands in for `eltrain agent` where a test is about a provider and nothing else: it keeps the same
// files in its directory and obeys SIGTERM in the same way, runs its command once, in a process group of its
// own, and talks to no service. It takes the agent's command line and returns its exit code. A test binary
// calls it from TestMain when it was started as an agent.
func Agent(args []string) int {
	if err := runAgent(args); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in agent:", err)
		return 1
	}
	return 0
}

func runAgent(args []string) error {
	c, err := job.ParseAgentArgs(args, io.Discard)
	if err != nil {
		return err
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	lock, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another agent runs: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "agent.json")); err == nil {
		return fmt.Errorf("this incarnation was started before")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	self, err := Identify(os.Getpid())
	if err != nil {
		return err
	}
	self["boot_id"], self["started"] = strings.TrimSpace(string(boot)), time.Now()
	if err := writeJSON(c.Dir, "agent.json", self); err != nil {
		return err
	}
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "ELTRAIN_TOKEN_FILE="+c.TokenFile, "ELTRAIN_SLOT="+c.Slot)
	if err := cmd.Start(); err != nil {
		return writeExit(c.Dir, job.MemberFailed, &job.Exit{Code: 127, NotStarted: err.Error()})
	}
	child, err := Identify(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := writeJSON(c.Dir, "processes.json", map[string]any{"boot_id": self["boot_id"], "processes": []any{child}}); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-asked:
		end(cmd.Process.Pid, ended, c.StopGrace.Std())
		return writeExit(c.Dir, job.MemberLeaving, nil)
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return writeExit(c.Dir, job.MemberFailed, &job.Exit{Code: 128 + int(status.Signal()), Signal: status.Signal().String()})
	case status.ExitStatus() != 0:
		return writeExit(c.Dir, job.MemberFailed, &job.Exit{Code: status.ExitStatus()})
	}
	return writeExit(c.Dir, job.MemberSucceeded, nil)
}

// end stops a process group: politely, by force after grace.
func end(group int, ended <-chan struct{}, grace time.Duration) {
	syscall.Kill(-group, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(grace):
	}
	syscall.Kill(-group, syscall.SIGKILL)
	<-ended
}

// Identify is a process as an agent records it: its pid and its start time, field 22 of /proc/PID/stat.
func Identify(pid int) (map[string]any, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
	start, err := strconv.ParseUint(f[19], 10, 64)
	return map[string]any{"pid": pid, "start_time": start}, err
}

func writeExit(dir string, state job.MemberState, exit *job.Exit) error {
	return writeJSON(dir, "exit.json", map[string]any{"exit": exit, "state": state})
}

func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".tmp", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
