package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/trusting"
	"github.com/eltrain/eltrain/job"
)

// ledger keeps the newest world, as the state does.
type ledger struct {
	mu    sync.Mutex
	world job.World
}

func (l *ledger) Form(_, _ string, w job.World) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.world = w
	return nil
}

const masterToken = "token of the real service"

// master is the real service with the want of a plan for a job of two workers.
type master struct {
	server *elastic.Server
	ledger *ledger
	want   elastic.Desired
}

// authority is that of the masters of one state.
func authority(key string) *elastic.Authority {
	return &elastic.Authority{Key: func() ([]byte, error) { return []byte(strings.Repeat(key, 8)), nil }}
}

func newMaster(t *testing.T, l *ledger, inPlace int) *master {
	t.Helper()
	m := &master{server: elastic.NewServer(elastic.ServerOptions{Ledger: l, Certificates: authority("of the state")}), ledger: l}
	if err := m.server.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.close(t) })
	m.want = elastic.Desired{
		UID: "uid-1", Token: masterToken, World: l.world,
		Want: job.Want{
			Roles:  []job.WantRole{{Role: "worker", Slots: []int{0, 1}, Sizes: job.Sizes{Min: 1, Max: 2}, Processes: 1}},
			Settle: job.Duration(time.Minute), Lease: job.Duration(15 * time.Second),
		},
	}
	for i := range 2 {
		m.want.Slots = append(m.want.Slots, elastic.DesiredSlot{
			Address: job.Address{Job: "mnist", Role: "worker", Index: i}, Incarnation: 2, InPlace: inPlace, Rank: -1,
		})
	}
	m.server.SetReady()
	m.server.Set("mnist", m.want)
	return m
}

func (m *master) close(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.server.Close(ctx); err != nil {
		t.Error(err)
	}
}

// await waits until the job's members satisfy ok, and returns them by slot index.
func (m *master) await(t *testing.T, what string, ok func(elastic.Facts) bool) elastic.Facts {
	t.Helper()
	var f elastic.Facts
	eventually(t, what, func() bool {
		f = m.server.Observe()["mnist"]
		return ok(f)
	})
	return f
}

func allRun(generation, slots int) func(elastic.Facts) bool {
	return func(f elastic.Facts) bool {
		n := 0
		for _, m := range f.Members {
			if m.Member.State == job.MemberRunning && m.Member.Generation == generation && len(m.Member.PIDs) > 0 {
				n++
			}
		}
		return n == slots
	}
}

func TestTwoAgentsUnderTheRealService(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	m := newMaster(t, l, 0)
	var agents []*runningAgent
	var dirs []*bench
	for _, slot := range []string{"worker[0]", "worker[1]"} {
		b := newBench(t, time.Second, "sh", "-c", `echo "at $MASTER_ADDR:$MASTER_PORT"; sleep 60`)
		b.config.Slot = slot
		b.write(t, "token", masterToken)
		b.find(t, m.server.URL(), m.server.Certificates())
		dirs = append(dirs, b)
		agents = append(agents, b.launch(t))
	}
	first := m.await(t, "generation 1 runs", allRun(1, 2))

	// The master dies; training continues, and its successor finds the same processes.
	m.close(t)
	next := newMaster(t, l, 0)
	for _, b := range dirs {
		b.find(t, next.server.URL(), next.server.Certificates())
	}
	adopted := next.await(t, "generation 1 is adopted", allRun(1, 2))
	for i := range 2 {
		if was, is := first.Members[i].Member.PIDs[0], adopted.Members[i].Member.PIDs[0]; was != is || !alive(is) {
			t.Errorf("member %d: pid %d, before %d", i, is, was)
		}
	}

	// A process is killed, and restarted in place; its peer is notified at once and gets a new process too.
	unix.Kill(adopted.Members[1].Member.PIDs[0], unix.SIGKILL)
	next.await(t, "the failure", func(f elastic.Facts) bool {
		e := f.Members[1].Member.Exit
		return f.Members[1].Member.State == job.MemberFailed && e != nil && e.Signal == "killed"
	})
	next.want.Slots[1].InPlace = 1
	next.server.Set("mnist", next.want)
	healed := next.await(t, "generation 2 runs", allRun(2, 2))
	if healed.Members[1].Member.InPlace != 1 || alive(adopted.Members[0].Member.PIDs[0]) {
		t.Errorf("healed to %+v", healed.Members)
	}
	for _, b := range dirs {
		eventually(t, "both generations have said where rank 0 is", func() bool { return strings.Count(b.read("log"), "] at 127.0.0.1:") == 2 })
	}

	// An agent is asked to stop: the other keeps training alone.
	next.want.Want.Settle = job.Duration(100 * time.Millisecond)
	next.server.Set("mnist", next.want)
	agents[1].signal(t, unix.SIGTERM)
	if code := agents[1].code(t); code != ExitLeft {
		t.Errorf("exit code %d", code)
	}
	next.await(t, "generation 3 of one", allRun(3, 1))

	// The slot is to be stopped.
	next.want.Slots[0].Leave = true
	next.server.Set("mnist", next.want)
	if code := agents[0].code(t); code != ExitDone {
		t.Errorf("exit code %d", code)
	}
}

// Whoever gets the address of a master that was killed learns no token from its agents, and even with the token gives them no
// orders. They train on until the next master of the same state is there.
func TestASquatterLearnsNothingAndIsNotObeyed(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	m := newMaster(t, l, 0)
	var dirs []*bench
	for _, slot := range []string{"worker[0]", "worker[1]"} {
		b := newBench(t, time.Second, "sleep", "60")
		b.config.Slot = slot
		b.write(t, "token", masterToken)
		b.find(t, m.server.URL(), m.server.Certificates())
		dirs = append(dirs, b)
		b.launch(t)
	}
	first := m.await(t, "generation 1 runs", allRun(1, 2))
	address := m.server.Addr().String()
	m.close(t)

	plain := loopback.Squat(t, address, `{"beat_seconds": 1, "lease_seconds": 3, "version": 99, "order": {"do": "leave"}}`)
	eventually(t, "the agents try it, and again", func() bool { n, _ := plain.Heard(); return n > 4 })
	plain.Close()
	if _, heard := plain.Heard(); heard == "" || strings.Contains(heard, masterToken) || strings.Contains(heard, "uid-1") {
		t.Errorf("a service without TLS hears %q", heard)
	}

	said := new(messages)
	stranger := elastic.NewServer(elastic.ServerOptions{
		Certificates: authority("a stranger's"), Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err := stranger.Start(address); err != nil {
		t.Fatal(err)
	}
	stranger.SetReady()
	orders := m.want // all that a master knows, with the token
	for i := range orders.Slots {
		orders.Slots[i].Leave = true
	}
	stranger.Set("mnist", orders)
	eventually(t, "the agents try it, and again", func() bool { return strings.Count(said.String(), "TLS handshake error") > 4 })
	if f := stranger.Observe()["mnist"]; len(f.Members) > 0 {
		t.Errorf("a service with another certificate has the members %+v", f.Members)
	}
	if err := stranger.Close(t.Context()); err != nil {
		t.Error(err)
	}

	next := newMaster(t, l, 0)
	for _, b := range dirs {
		b.write(t, "service", next.server.URL()) // its certificates are known
	}
	adopted := next.await(t, "generation 1 is adopted", allRun(1, 2))
	for i := range 2 {
		if was, is := first.Members[i].Member.PIDs[0], adopted.Members[i].Member.PIDs[0]; was != is || !alive(is) {
			t.Errorf("member %d: pid %d, before %d", i, is, was)
		}
	}
}

// messages collects what is written to it by several goroutines.
type messages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *messages) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *messages) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// A slot is stopped, and the other one's process fails without its peer before its agent has the order that ends the world. The
// service's facts must let a planner treat that failure as collateral.
func TestAPeerStopsBeforeTheOrderIsHeard(t *testing.T) {
	t.Parallel()
	m := newMaster(t, &ledger{}, 0)
	// Rank 0 runs as long as the file exists; its peer fails once it is gone.
	peer := filepath.Join(t.TempDir(), "rank0-is-up")
	script := `
		if [ "$RANK" = 0 ]; then
			trap 'rm "$0"; exit 0' TERM
			: > "$0"
			while :; do sleep 0.02; done
		fi
		until [ -e "$0" ]; do sleep 0.02; done
		: > "$0.seen"
		while [ -e "$0" ]; do sleep 0.02; done
		exit 17`
	var hear chan struct{}
	for i, slot := range []string{"worker[0]", "worker[1]"} {
		b := newBench(t, time.Second, "sh", "-c", script, peer)
		b.config.Slot = slot
		b.write(t, "token", masterToken)
		service, certificates := m.server.URL(), m.server.Certificates()
		if i == 1 {
			service, certificates, hear = deafly(t, service, certificates)
		}
		b.find(t, service, certificates)
		b.launch(t)
	}
	m.await(t, "generation 1 runs", allRun(1, 2))
	eventually(t, "rank 1 has seen rank 0", func() bool { _, err := os.Stat(peer + ".seen"); return err == nil })

	m.want.Slots[0].Leave = true
	m.want.Want.Roles[0].Slots = []int{1}
	m.server.Set("mnist", m.want)
	failed := m.await(t, "the failure", func(f elastic.Facts) bool { return f.Members[1].Member.State == job.MemberFailed })
	ordered, exit := failed.World.Ordered, failed.Members[1].Member.Exit
	if ordered.IsZero() || exit.Code != 17 || exit.At.Before(ordered) || failed.Members[1].Member.Generation != failed.World.Generation {
		t.Errorf("exit %+v of world %+v", exit, failed.World)
	}

	// The planner lets it continue.
	m.want.Slots[1].InPlace = 1
	m.server.Set("mnist", m.want)
	close(hear)
	m.await(t, "generation 2 of one", allRun(2, 1))
}

// deafly forwards an agent's requests to the service, and holds back the replies until hear is closed.
func deafly(t *testing.T, service string, trusted []byte) (at string, certificates []byte, hear chan struct{}) {
	t.Helper()
	target, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	hear = make(chan struct{})
	transport := trusting.Client(t, trusted).Transport
	proxy := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			told, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			r.Body = io.NopCloser(bytes.NewReader(told))
			if !bytes.Contains(told, []byte(`"checkpoint":true`)) {
				return nil
			}
			select {
			case <-hear:
				return nil
			case <-r.Request.Context().Done():
				return r.Request.Context().Err()
			}
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // from connections that agents gave up
	})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	return proxy.URL, certificateOf(proxy), hear
}
