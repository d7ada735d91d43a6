package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/trusting"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
)

// collected collects a process's output, readable while it runs.
type collected struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *collected) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *collected) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// watchProcess is a process of apply -watch.
type watchProcess struct {
	cmd  *exec.Cmd
	out  collected // both streams
	url  string
	http *http.Client // verifies nothing: before a master leads it has published no certificates
	done chan struct{}
}

func startWatch(t *testing.T, dir string, args ...string) *watchProcess {
	t.Helper()
	address := loopback.Free(t)
	w := &watchProcess{url: "https://" + address, http: trusting.Kubelet(t), done: make(chan struct{})}
	w.cmd = commandIn(dir, append([]string{"apply", "-watch", "-auto-approve", "-timestamps=false", "-listen=" + address}, args...)...)
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		w.cmd.Wait()
		close(w.done)
	}()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.done
		if t.Failed() {
			t.Logf("%v said:\n%s", args, w.out.String())
		}
	})
	return w
}

// probe returns the HTTP status of a path; 0 without an answer.
func (w *watchProcess) probe(path string) int {
	resp, err := w.http.Get(w.url + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (w *watchProcess) code(t *testing.T) int {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(hang.Bound):
		t.Fatal("the watch does not end")
	}
	return w.cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang.Bound); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// leader holds a directory's lock, as a master on another machine does.
func leader(t *testing.T, dir string) (resign func()) {
	t.Helper()
	store, err := file.New(filepath.Join(dir, "eltrain.state"), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lock, err := store.Lock(context.Background(), state.LockInfo{Operation: "apply -watch", Who: "ada@lovelace"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := lock.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A standby as in a pod: it is probed, it gets SIGTERM, it takes over.
func TestStandbyIsAliveAndReadyOnceItLeads(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	resign := leader(t, dir)
	w := startWatch(t, dir, "-lock-timeout=15m")
	eventually(t, "it says what it waits for", func() bool { return strings.Contains(w.out.String(), "ada@lovelace") })
	if alive, ready := w.probe("/healthz"), w.probe("/readyz"); alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("a standby answers /healthz with %d and /readyz with %d", alive, ready)
	}

	// The files that it read at its start are out of date by the time that it leads.
	newer := strings.Replace(twoWorkers, "replicas   = 2", "replicas   = 3", 1)
	if err := os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(newer), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	resign()
	eventually(t, "it is ready", func() bool { return w.probe("/readyz") == http.StatusOK })
	eventually(t, "all of the newest file runs", func() bool {
		_, running, _ := status(t, dir)
		return running == 3
	})
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.code(t); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	text := w.out.String()
	if strings.Count(text, "ada@lovelace") != 1 || strings.Contains(text, "worker[0-1]") {
		t.Errorf("it did not wait quietly, or planned from the older file:\n%s", text)
	}
	if strings.ContainsAny(text, "\x1b\r") {
		t.Errorf("a log has colours or is redrawn:\n%q", text)
	}
}

// A moved directory takes the state and its lock with it. The lock was not taken over: the master says what happened.
func TestAMasterWhoseDirectoryIsMovedSaysSo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(directoryWith(t, map[string]string{"repo/main.hcl": twoWorkers}), "repo")
	w := startWatch(t, dir)
	eventually(t, "it watches", func() bool { return w.probe("/readyz") == http.StatusOK })
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	code := w.code(t)
	eventually(t, "it is moved back", func() bool {
		os.RemoveAll(dir) // run-time files that it wrote to the old path at its end
		return os.Rename(dir+"2", dir) == nil
	})
	eltrain(t, dir, "destroy", "-auto-approve").check(t, exitDone)
	said := strings.Join(strings.Fields(w.out.String()), " ")
	if code != exitError || !strings.Contains(said, "no longer exists: it, or one of its parent directories, was moved or removed") || strings.Contains(said, "another process") {
		t.Errorf("it ends with %d", code)
	}
}

func TestInterruptEndsTheWaitForTheLock(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	defer leader(t, dir)()
	w := startWatch(t, dir, "-lock-timeout=15m")
	eventually(t, "it waits", func() bool { return strings.Contains(w.out.String(), "Waiting for it") })
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := w.code(t); code != exitDone {
		t.Errorf("a standby exits with %d on SIGTERM", code)
	}

	apply := commandIn(dir, "apply", "-auto-approve", "-lock-timeout=15m")
	var out collected
	apply.Stdout, apply.Stderr = &out, &out
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	defer apply.Process.Kill()
	eventually(t, "it waits", func() bool { return strings.Contains(out.String(), "Waiting for it") })
	if err := apply.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := apply.Wait(); apply.ProcessState.ExitCode() != exitError || !strings.Contains(out.String(), "nothing was done") {
		t.Errorf("an apply that is interrupted: %v\n%s", err, out.String())
	}
	if _, err := os.Stat(filepath.Join(dir, ".eltrain", "jobs")); err == nil {
		t.Error("something was started")
	}
}

// Whoever binds a killed master's address hears no token, and status does not ask there.
func TestAKilledMastersAddressIsWorthNothing(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	eventually(t, "two workers train", func() bool { _, running, _ := status(t, dir); return running == 2 })
	before := slotsOf(t, dir)
	w.cmd.Process.Kill()
	w.code(t)
	tokens, err := filepath.Glob(filepath.Join(dir, ".eltrain", "jobs", "*", "token"))
	if err != nil || len(tokens) != 1 {
		t.Fatalf("%q, %v", tokens, err)
	}
	token, err := os.ReadFile(tokens[0])
	if err != nil {
		t.Fatal(err)
	}
	squatter := loopback.Squat(t, strings.TrimPrefix(w.url, "https://"), `{"order": {"do": "leave"}, "version": 99, "records": {}}`)
	eventually(t, "both agents try it", func() bool { n, _ := squatter.Heard(); return n > 4 })
	eltrain(t, dir, "status").check(t, exitDone, "job.tiny  Running")
	squatter.Close()
	if _, heard := squatter.Heard(); heard == "" || strings.Contains(heard, strings.TrimSpace(string(token))) || strings.Contains(heard, "Bearer") {
		t.Errorf("the squatter heard %q", heard)
	}
	w = startWatch(t, dir)
	eventually(t, "the next master is ready", func() bool { return w.probe("/readyz") == http.StatusOK })
	for address, s := range slotsOf(t, dir) {
		if before[address] != s {
			t.Errorf("%s was %+v and is %+v", address, before[address], s)
		}
	}
}

// The requests in docs/api.md work as written.
func TestTheDocumentedRequestsWork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "```sh\nservice=")
	script, _, found := strings.Cut("service="+script, "```")
	if !found {
		t.Fatal("the page has no such requests")
	}
	dir := directoryWith(t, map[string]string{"main.hcl": strings.Replace(twoWorkers, `job "tiny"`, `job "mnist"`, 1)})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	startWatch(t, dir)
	eventually(t, "two workers train", func() bool { _, running, _ := status(t, dir); return running == 2 })
	requests := exec.Command("sh", "-e", "-c", script)
	requests.Dir = dir
	out, err := requests.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, `"status":"ready"`) || !strings.Contains(text, `"slot":"worker[1]"`) || !strings.Contains(text, "eltrain_members{") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Without jobs there is nothing to wait for: the master must become ready.
func TestMasterWithoutJobsIsReady(t *testing.T) {
	w := startWatch(t, directoryWith(t, map[string]string{"main.hcl": "locals {}\n"}))
	eventually(t, "it is ready", func() bool { return w.probe("/readyz") == http.StatusOK })
}

// A file truncated to zero bytes destroys nothing while a master runs. A removed file does.
func TestAFileThatIsEmptyAllAtOnceIsNotMeant(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"a.hcl": sleeper("a", ""), "b.hcl": sleeper("b", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	w := startWatch(t, dir)
	eventually(t, "training", func() bool { return strings.Contains(w.out.String(), "job.b: Running") })
	if err := os.Truncate(filepath.Join(dir, "b.hcl"), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "reported", func() bool { return strings.Contains(w.out.String(), "job.b: Degraded") })
	eltrain(t, dir, "status").unwrapped().check(t, exitDone, "job.b Degraded", "For all of a job: eltrain status ADDRESS")
	eltrain(t, dir, "status", "job.b").unwrapped().check(t, exitDone, "job.b Degraded", "b.hcl is empty")
	if err := os.Remove(filepath.Join(dir, "b.hcl")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is destroyed", func() bool { return strings.Contains(w.out.String(), "job.b: Removal complete") })
}

// writing keeps writing a file, like a checkout in progress, until end is called.
func writing(t *testing.T, path string) (end func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `while :; do touch "$0"; sleep 0.5; done`, path) // a process of its own, which continues if this one pauses
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(end)
	return end
}

// A watch that starts while a checkout has removed a job's file waits until the file is back; a file that stays away counts as
// removed once nothing is written there any more. If no job is gone, the start does not wait.
func TestAStartBelievesLateThatAJobIsGone(t *testing.T) {
	t.Parallel()
	dir := directoryWith(t, map[string]string{"a.hcl": sleeper("a", ""), "b.hcl": sleeper("b", "")})
	t.Cleanup(func() { eltrain(t, dir, "destroy", "-auto-approve") })
	eltrain(t, dir, "apply", "-auto-approve").check(t, exitDone, "Apply complete!")
	before := slotsOf(t, dir)
	file, away := filepath.Join(dir, "b.hcl"), filepath.Join(dir, "b.away")
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	const gone = "Jobs of the state are not in the files"
	end := func(w *watchProcess) string {
		t.Helper()
		if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := w.code(t); code != exitDone {
			t.Errorf("it ends with %d", code)
		}
		return w.out.String()
	}

	rename(file, away)
	written := writing(t, filepath.Join(dir, "a.hcl"))
	w := startWatch(t, dir)
	eventually(t, "it says that it waits", func() bool { return strings.Contains(w.out.String(), gone) })
	if code := w.probe("/readyz"); code == http.StatusOK {
		t.Error("it is ready before it is known what is wanted")
	}
	rename(away, file)
	written()
	eventually(t, "ready", func() bool { return w.probe("/readyz") == http.StatusOK })
	if out := end(w); strings.Contains(out, "will be destroyed") || strings.Contains(out, "Destroying") {
		t.Error("a job that was away for a moment is destroyed")
	}
	for address, s := range slotsOf(t, dir) {
		if before[address] != s {
			t.Errorf("%s was %+v and is %+v", address, before[address], s)
		}
	}

	w = startWatch(t, dir)
	eventually(t, "ready", func() bool { return w.probe("/readyz") == http.StatusOK })
	if out := end(w); strings.Contains(out, gone) {
		t.Error("it waits although no job is gone")
	}

	rename(file, away)
	written = writing(t, filepath.Join(dir, "a.hcl"))
	w = startWatch(t, dir)
	eventually(t, "it says that it waits", func() bool { return strings.Contains(w.out.String(), gone) })
	if out := end(w); !strings.Contains(out, "Interrupted while observing what is running.") || strings.Contains(out, "will be destroyed") {
		t.Error("after an interrupt it did not exit without changes")
	}
	written()
	for _, safe := range []string{"-prune=false", "-max-destroy=0"} {
		w = startWatch(t, dir, safe)
		eventually(t, "ready", func() bool { return w.probe("/readyz") == http.StatusOK })
		if out := end(w); strings.Contains(out, gone) {
			t.Errorf("%s: it waits for what it leaves alone in any case", safe)
		}
	}
	w = startWatch(t, dir)
	eventually(t, "the job is destroyed", func() bool { return strings.Contains(w.out.String(), "job.b: Removal complete") })
	if out := end(w); !strings.Contains(out, gone) || strings.Index(out, gone) > strings.Index(out, "will be destroyed") {
		t.Error("it is destroyed without a wait")
	}
}
