package local

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/agent"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// realAgent runs `eltrain agent`.
func realAgent(args []string) int {
	c, err := job.ParseAgentArgs(args, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return agent.Run(context.Background(), c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// oneWorld is a service with a single order: run in a world of one.
func oneWorld(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/register") {
		fmt.Fprint(w, `{"beat_seconds": 0.2, "lease_seconds": 0.6}`)
		return
	}
	if r.Context().Err() == nil {
		time.Sleep(20 * time.Millisecond) // the agent asks again at once
	}
	fmt.Fprint(w, `{"version": 1, "order": {"do": "run", "world": {"generation": 1, "group_world_size": 1, "world_size": 1,
		"role_world_size": 1, "master_addr": "127.0.0.1", "master_port": 29500}}}`)
}

// reached returns how agents reach a server with TLS.
func reached(s *httptest.Server) providers.Service {
	return providers.Service{URL: s.URL, Certificates: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
}

// The real agent, not the stand-in, writes the files that this package reads.
func TestRealAgent(t *testing.T) {
	service := httptest.NewTLSServer(http.HandlerFunc(oneWorld))
	defer service.Close()
	b := newBench(t)
	b.agent = []string{b.agent[0], "real-agent"}
	b.ok(b.Publish(b.ctx, reached(service)))
	launch := func(number int, script string) job.Incarnation {
		l := b.launchOf(sh(script))
		l.Ranked, l.Incarnation = true, number
		b.ok(b.Launch(b.ctx, l))
		i := b.await(number, job.Up)
		b.until("the program runs", func() bool { return strings.Count(b.log(), "training") >= number })
		return i
	}

	i := launch(1, "sleep 300 & setsid sleep 300 & echo training; wait")
	if b.handle(1).record.BootID != b.boot {
		t.Errorf("boot id %q", b.handle(1).record.BootID)
	}
	b.reopen()
	if now := b.await(1, job.Up); now.AgentPID != i.AgentPID {
		t.Errorf("agent %d, was %d", now.AgentPID, i.AgentPID)
	}
	begin := time.Now()
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, 10*time.Second))
	t.Logf("stopped after %s", time.Since(begin))
	b.nothingRemains()

	i = launch(2, "sleep 300 & setsid sleep 300 & echo training; wait")
	begin = time.Now()
	b.ok(syscall.Kill(i.AgentPID, syscall.SIGKILL))
	b.await(2, job.Gone)
	t.Logf("killed, and gone with all its processes after %s", time.Since(begin))
	b.nothingRemains()

	launch(3, "echo training; until [ -e end ]; do sleep 0.02; done")
	b.ok(os.WriteFile(filepath.Join(b.dir, "end"), nil, 0o644))
	if exit := b.await(3, job.Gone).Exit; exit == nil || exit.Code != 0 {
		t.Errorf("a program that ended with 0: %+v", exit)
	}
}

// A daemon that has left its parents, its session and its environment ends with its agent, also if that is killed. No cgroup has it.
func TestDaemonOfAKilledAgentEnds(t *testing.T) {
	service := httptest.NewTLSServer(http.HandlerFunc(oneWorld))
	defer service.Close()
	b := newBench(t)
	b.agent = []string{b.agent[0], "real-agent"}
	b.ok(b.Publish(b.ctx, reached(service)))
	l := b.launchOf(sh(`env -i setsid sh -c 'sleep 300 & echo $! >daemon' & exec sleep 300`))
	l.Ranked = true
	b.ok(b.Launch(b.ctx, l))
	agent := b.await(1, job.Up).AgentPID
	var daemon *process
	b.until("the agent has recorded the daemon", func() bool {
		recorded, err := b.recorded(b.handle(1))
		b.ok(err)
		text, _ := os.ReadFile(filepath.Join(b.dir, "daemon"))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		i := slices.IndexFunc(recorded.Descendants, func(id identity) bool { return id.PID == pid })
		if pid == 0 || i < 0 {
			return false
		}
		daemon, err = openProcess(recorded.Descendants[i])
		b.ok(err)
		return true
	})
	defer daemon.release()
	b.ok(syscall.Kill(agent, syscall.SIGKILL))
	b.await(1, job.Gone)
	if !ended(daemon.fd) {
		t.Error("the daemon outlives its incarnation")
		daemon.signal(syscall.SIGKILL)
	}
}

// Where no agent can be asked, the error says why: it has ended, or it runs and has no socket, as the stand-in of these tests and
// agents of earlier versions.
func TestExecWithoutAnAgentToAsk(t *testing.T) {
	b := newBench(t)
	exec := func() error {
		_, err := b.Exec(b.ctx, testUID, worker(0), 1, providers.Command{Args: []string{"true"}, Stdout: os.Stdout, Stderr: os.Stderr})
		return err
	}
	if err := exec(); !errors.Is(err, providers.ErrNotRunning) {
		t.Errorf("never launched: %v", err)
	}
	b.ok(b.Launch(b.ctx, b.launchOf(sh("echo training; sleep 300"))))
	b.await(1, job.Up)
	if err := exec(); err == nil || errors.Is(err, providers.ErrNotRunning) || !strings.Contains(err.Error(), "earlier version") {
		t.Errorf("an agent without a socket: %v", err)
	}
	agent := b.await(1, job.Up).AgentPID
	b.ok(syscall.Kill(agent, syscall.SIGSTOP))
	b.until("the agent is stopped", func() bool { st, err := readStat(agent); return err == nil && st.stopped })
	if err := exec(); err == nil || errors.Is(err, providers.ErrNotRunning) || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", agent)) {
		t.Errorf("an agent that is stopped: %v", err)
	}
	b.ok(syscall.Kill(agent, syscall.SIGCONT))
	b.ok(b.Stop(b.ctx, testUID, worker(0), 1, time.Second))
	if err := exec(); !errors.Is(err, providers.ErrNotRunning) {
		t.Errorf("stopped: %v", err)
	}
}
