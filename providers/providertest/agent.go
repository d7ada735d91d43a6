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

	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/job"
)

// Agent stands in for `eltrain agent` in tests of providers: it keeps the same files in its directory, writes its last word
// where configured, obeys SIGTERM in the same way, runs its command once, in a process group of its own, and talks to no
// service. It takes the agent's command line and returns its exit code. A test binary calls it from TestMain when it was
// started as an agent.
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
	files, err := openFiles(c)
	if err != nil {
		return err
	}
	out := os.Stdout
	if c.Log != "" {
		if out, err = os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
		marks := logmarks.Begin(c.Log, logmarks.Mark{UID: c.UID, Incarnation: c.Incarnation})
		if info, err := out.Stat(); err == nil {
			marks.Write(time.Now(), info.Size())
		}
		marks.Close()
		defer out.Close()
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "ELTRAIN_TOKEN_FILE="+c.TokenFile, "ELTRAIN_SLOT="+c.Slot)
	if err := cmd.Start(); err != nil {
		return files.ended(job.LastWord{State: job.MemberFailed, Reason: job.EndFailed, Exit: &job.Exit{Code: 127, NotStarted: err.Error()}})
	}
	if err := files.runs(cmd.Process.Pid); err != nil {
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
		return files.ended(job.LastWord{State: job.MemberLeaving, Reason: job.EndLeft})
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	failed := job.LastWord{State: job.MemberFailed, Reason: job.EndFailed}
	switch {
	case status.Signaled():
		failed.Exit = &job.Exit{Code: 128 + int(status.Signal()), Signal: status.Signal().String()}
		return files.ended(failed)
	case status.ExitStatus() != 0:
		failed.Exit = &job.Exit{Code: status.ExitStatus()}
		return files.ended(failed)
	}
	return files.ended(job.LastWord{State: job.MemberSucceeded, Reason: job.EndFinished})
}

// files are what an agent leaves for its provider: in its directory, or its last word alone.
type files struct {
	dir, lastWord, boot string
}

func openFiles(c job.AgentConfig) (*files, error) {
	f := &files{dir: c.Dir, lastWord: c.LastWordFile}
	if f.dir == "" {
		return f, nil
	}
	syscall.CloseOnExec(c.LockFD) // the lock is held until this process exits, and no longer
	if _, err := os.Stat(filepath.Join(f.dir, "agent.json")); err == nil {
		return nil, fmt.Errorf("this incarnation was already started")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	f.boot = strings.TrimSpace(string(boot))
	self, err := Identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	self["boot_id"], self["started"] = f.boot, time.Now()
	return f, writeJSON(f.dir, "agent.json", self)
}

// runs records the process that the agent started.
func (f *files) runs(pid int) error {
	if f.dir == "" {
		return nil
	}
	child, err := Identify(pid)
	if err != nil {
		return err
	}
	return writeJSON(f.dir, "processes.json", map[string]any{"boot_id": f.boot, "processes": []any{child}})
}

// ended records how it ended.
func (f *files) ended(word job.LastWord) error {
	if f.lastWord != "" {
		b, err := json.Marshal(word)
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.lastWord, b, 0o600); err != nil {
			return err
		}
	}
	if f.dir == "" {
		return nil
	}
	return writeJSON(f.dir, "exit.json", map[string]any{"exit": word.Exit, "state": word.State})
}

// end stops a process group: with SIGTERM, then with SIGKILL after grace.
func end(group int, ended <-chan struct{}, grace time.Duration) {
	syscall.Kill(-group, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(grace):
	}
	syscall.Kill(-group, syscall.SIGKILL)
	<-ended
}

// Identify returns a process as an agent records it: its pid and its start time, field 22 of /proc/PID/stat.
func Identify(pid int) (map[string]any, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
	start, err := strconv.ParseUint(f[19], 10, 64)
	return map[string]any{"pid": pid, "start_time": start}, err
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
