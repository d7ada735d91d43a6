package elastic

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/internal/trusting"
	"github.com/eltrain/eltrain/job"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchClientsEnv) != "" {
		benchClients()
		return
	}
	goleak.VerifyTestMain(m)
}

// testServer is a started server with a ledger in memory.
type testServer struct {
	*Server
	base   string
	client *http.Client

	mu     sync.Mutex
	worlds []job.World
}

func (s *testServer) Form(_, _ string, w job.World) error {
	s.Observe() // a ledger may call the service: no lock is held
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worlds = append(s.worlds, w)
	return nil
}

// startServer starts a server with the job gpt, UID u1, token secret and two workers; tokens of other jobs may be given.
func startServer(t testing.TB, otherJob string) *testServer {
	t.Helper()
	s := &testServer{}
	s.Server = NewServer(ServerOptions{Ledger: s})
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.base, s.client = s.URL(), trusting.Client(t, s.Certificates())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s.SetReady()
	s.Set("gpt", desiredOf("gpt", 2, 15*time.Second))
	if otherJob != "" {
		d := desiredOf(otherJob, 1, 15*time.Second)
		d.Token = "other"
		s.Set(otherJob, d)
	}
	return s
}

// desiredOf wants n workers at once.
func desiredOf(name string, n int, lease time.Duration) Desired {
	d := Desired{UID: "u1", Token: "secret"}
	d.Want = job.Want{Settle: job.Duration(time.Minute), Lease: job.Duration(lease)}
	role := job.WantRole{Role: "worker", Sizes: job.Sizes{Min: 1, Max: n}, Processes: 1}
	for i := range n {
		role.Slots = append(role.Slots, i)
		d.Slots = append(d.Slots, DesiredSlot{Address: job.Address{Job: name, Role: "worker", Index: i}, Incarnation: 1, Rank: -1})
	}
	d.Want.Roles = []job.WantRole{role}
	return d
}

// send makes a raw request; the default token is "secret". It returns the status and the body.
func (s *testServer) send(t testing.TB, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token == "" {
		token = "secret"
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// testMember is one member over a Client; every exchange is checked against the OpenAPI description.
type testMember struct {
	*Client
	t       testing.TB
	request SyncRequest
}

func (s *testServer) member(t testing.TB, index int) *testMember {
	t.Helper()
	c, err := NewClient(s.base, "secret", trusting.Pool(t, s.Certificates()))
	if err != nil {
		t.Fatal(err)
	}
	inner := c.http.Transport
	checker := newAPIChecker(t, s.base)
	checker.inner = inner
	c.http.Transport = checker
	t.Cleanup(inner.(*http.Transport).CloseIdleConnections)
	return &testMember{Client: c, t: t, request: SyncRequest{
		UID: "u1", Slot: job.Address{Role: "worker", Index: index}.Short(), Incarnation: 1, Report: Report{State: job.MemberWaiting, Port: 1000 + index},
	}}
}

func (m *testMember) register() RegisterReply {
	m.t.Helper()
	reply, err := m.Register(m.t.Context(), "gpt", RegisterRequest{
		UID: "u1", Slot: m.request.Slot, Incarnation: m.request.Incarnation, Host: "127.0.0.1", AgentPID: 1, Report: m.request.Report,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.request.Seen = 0
	return reply
}

// until syncs until the order is do.
func (m *testMember) until(do Do) Order {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), hang.Bound)
	defer cancel()
	for {
		reply, err := m.Sync(ctx, "gpt", m.request)
		if err != nil {
			m.t.Fatalf("%s waits for %q: %v", m.request.Slot, do, err)
		}
		m.request.Seen = reply.Version
		if reply.Order.Do == do {
			return reply.Order
		}
	}
}

// say reports a state without waiting for a new order.
func (m *testMember) say(state job.MemberState, generation int) {
	m.t.Helper()
	m.request.State, m.request.Generation = state, generation
	now := m.request
	now.Seen = 0
	if _, err := m.Sync(m.t.Context(), "gpt", now); err != nil {
		m.t.Fatal(err)
	}
}

// train brings two members into world 1.
func (s *testServer) train(t testing.TB) (a, b *testMember) {
	a, b = s.member(t, 0), s.member(t, 1)
	a.register()
	b.register()
	a.until(Run)
	a.say(job.MemberRunning, 1)
	b.until(Run)
	b.say(job.MemberRunning, 1)
	return a, b
}

// TestMemberByCurl: a member written with curl alone registers, joins, runs and finishes.
func TestMemberByCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed; the same is shown with net/http by the other tests")
	}
	s := startServer(t, "")
	s.Set("gpt", desiredOf("gpt", 1, 15*time.Second))
	header := filepath.Join(t.TempDir(), "header") // keeps the token out of argv
	if err := os.WriteFile(header, []byte("Authorization: Bearer secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(roots, s.Certificates(), 0o600); err != nil {
		t.Fatal(err)
	}
	post := func(verb, body string, into any) {
		t.Helper()
		out, err := exec.Command(curl, "-sS", "--fail-with-body", "--max-time", "10", "--cacert", roots, "-H", "@"+header, "-d", body, s.base+"/v1/jobs/gpt/"+verb).CombinedOutput()
		if err != nil {
			t.Fatalf("curl %s: %v: %s", verb, err, out)
		}
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("curl %s: %v: %s", verb, err, out)
		}
	}
	who := `"uid": "u1", "slot": "worker[0]", "incarnation": 1`
	var registered RegisterReply
	post("register", `{`+who+`, "host": "127.0.0.1", "state": "waiting", "port": 29500}`, &registered)
	if registered.BeatSeconds != 5 || registered.LeaseSeconds != 15 {
		t.Errorf("registered with %+v", registered)
	}
	var reply SyncReply
	for deadline := time.Now().Add(hang.Bound); reply.Order.Do != Run; {
		if time.Now().After(deadline) {
			t.Fatalf("not told to run: %+v", reply)
		}
		post("sync", fmt.Sprintf(`{%s, "seen": %d, "state": "waiting", "port": 29500}`, who, reply.Version), &reply)
	}
	want := Place{Generation: 1, GroupSize: 1, WorldSize: 1, RoleWorldSize: 1, MasterAddr: "127.0.0.1", MasterPort: 29500}
	if *reply.Order.World != want {
		t.Errorf("told to run %+v", *reply.Order.World)
	}
	post("sync", fmt.Sprintf(`{%s, "seen": 0, "state": "running", "generation": 1, "world_slots": 1, "step": 7, "saved": {"step": 5, "generation": 1}, "memory": "3MiB", "cpu": 250}`, who), &reply)
	post("sync", fmt.Sprintf(`{%s, "seen": 0, "state": "succeeded", "generation": 1, "world_slots": 1, "step": 9, "saved": {"step": 7, "generation": 1}}`, who), &reply)
	m := s.Observe()["gpt"].Members
	if len(m) != 1 || m[0].Member.State != job.MemberSucceeded || m[0].Member.Step != 9 || m[0].Member.Saved != (job.Saved{Step: 7, Generation: 1}) {
		t.Errorf("observed %+v", m)
	}
}

// unhurried is a lease whose beat, a third of it, is longer than hang.Bound.
const unhurried = 10 * time.Minute

// TestSurvivorsAreToldAtOnce: the open request of a member returns when another one fails, long before its beat.
func TestSurvivorsAreToldAtOnce(t *testing.T) {
	s := startServer(t, "")
	s.Set("gpt", desiredOf("gpt", 2, unhurried))
	a, b := s.train(t)
	told := make(chan Order, 1)
	go func() { told <- a.until(Wait) }()
	s.awaitPolls(t, 1)
	b.request.Exit = &job.Exit{Code: 137, Signal: "killed", At: time.Now()}
	b.say(job.MemberFailed, 1)
	select {
	case o := <-told:
		if o.Checkpoint {
			t.Error("asked for a checkpoint although a peer is dead")
		}
	case <-time.After(hang.Bound):
		t.Fatal("no order before the beat")
	}
	f := s.Observe()["gpt"]
	if !f.World.Broken || f.Members[1].Member.Exit == nil || f.Members[1].Member.Exit.Signal != "killed" {
		t.Errorf("observed %+v", f)
	}
	d := desiredOf("gpt", 2, unhurried)
	d.Slots[1].InPlace = 1
	s.Set("gpt", d)
	if o := b.until(Wait); o.InPlace != 1 {
		t.Errorf("granted %+v", o)
	}
	b.request.Exit, b.request.InPlace = nil, 1
	a.say(job.MemberWaiting, 1)
	b.say(job.MemberWaiting, 1)
	if o := a.until(Run); o.World.Generation != 2 {
		t.Errorf("told to run %+v", o.World)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.worlds) != 2 {
		t.Errorf("the ledger has %+v", s.worlds)
	}
}

// awaitPolls waits until n requests are held.
func (s *testServer) awaitPolls(t testing.TB, n int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < hang.Bound; time.Sleep(5 * time.Millisecond) {
		s.Server.mu.Lock()
		open := len(s.polls)
		s.Server.mu.Unlock()
		if open == n {
			return
		}
	}
	t.Fatalf("there are never %d open requests", n)
}

// TestNewerSyncSupersedes: the open request of an incarnation is answered when it sends another one.
func TestNewerSyncSupersedes(t *testing.T) {
	s := startServer(t, "")
	s.Set("gpt", desiredOf("gpt", 2, unhurried))
	a := s.member(t, 0)
	a.register()
	a.until(Wait)
	answered := make(chan error, 1)
	go func() {
		_, err := a.Sync(context.Background(), "gpt", a.request)
		answered <- err
	}()
	s.awaitPolls(t, 1)
	a.say(job.MemberWaiting, 0)
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hang.Bound):
		t.Fatal("the older request is still open")
	}
}

// TestFencedBeat: an open request of a replaced incarnation is refused at once, and so are its later ones.
func TestFencedBeat(t *testing.T) {
	s := startServer(t, "")
	_, b := s.train(t)
	refused := make(chan error, 1)
	go func() {
		_, err := b.Sync(context.Background(), "gpt", b.request)
		refused <- err
	}()
	s.awaitPolls(t, 1)
	d := desiredOf("gpt", 2, 15*time.Second)
	d.Slots[1].Incarnation = 2
	s.Set("gpt", d)
	if err := <-refused; !errors.Is(err, ErrFenced) {
		t.Errorf("the open request ends with %v", err)
	}
	if _, err := b.Sync(t.Context(), "gpt", b.request); !errors.Is(err, ErrFenced) {
		t.Errorf("the next ends with %v", err)
	}
	b.request.Incarnation = 2
	if _, err := b.Sync(t.Context(), "gpt", b.request); !errors.Is(err, ErrRegisterFirst) {
		t.Errorf("the successor, unregistered, is answered %v", err)
	}
	s.Remove("gpt")
	if _, err := b.Sync(t.Context(), "gpt", b.request); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("with the job removed the answer is %v", err)
	}
}

// TestRefusals: invalid requests are refused with the right status and code, and change nothing.
func TestRefusals(t *testing.T) {
	s := startServer(t, "other")
	who := `"uid": "u1", "slot": "worker[0]", "incarnation": 1`
	ok := `{` + who + `, "host": "h", "state": "waiting"}`
	for _, c := range []struct {
		name, verb, token, body string
		status                  int
		code                    Code
	}{
		{"wrong token", "register", "wrong", ok, 401, Unauthorized},
		{"another job's token", "register", "other", ok, 401, Unauthorized},
		{"wrong token with a body that is no JSON", "register", "wrong", "}", 401, Unauthorized},
		{"empty body", "register", "", "", 400, Malformed},
		{"no JSON", "register", "", "hello", 400, Malformed},
		{"an array", "register", "", "[]", 400, Malformed},
		{"trailing garbage", "register", "", ok + "x", 400, Malformed},
		{"two values", "register", "", ok + ok, 400, Malformed},
		{"cut off", "register", "", ok[:20], 400, Malformed},
		{"huge body", "register", "", `{"host": "` + strings.Repeat("x", maxBody) + `"}`, 413, TooLarge},
		{"deep nesting", "register", "", strings.Repeat("[", 30000), 400, Malformed},
		{"invalid UTF-8", "register", "", strings.Replace(ok, "}", ", \"note\": \"\xff\"}", 1), 400, Malformed},
		{"no host", "register", "", `{` + who + `, "state": "waiting"}`, 400, Malformed},
		{"a host with a newline", "register", "", strings.Replace(ok, `"h"`, `"a\nb"`, 1), 400, Malformed},
		{"a host that is no name", "register", "", strings.Replace(ok, `"h"`, `"$(reboot)"`, 1), 400, Malformed},
		{"a node of no length that a name has", "register", "", strings.Replace(ok, `"h"`, `"h", "node": "`+strings.Repeat("n", maxHost+1)+`"`, 1), 400, Malformed},
		{"unknown state", "register", "", strings.Replace(ok, "waiting", "fine", 1), 400, Malformed},
		{"no state", "sync", "", `{` + who + `}`, 400, Malformed},
		{"negative incarnation", "register", "", strings.Replace(ok, `"incarnation": 1`, `"incarnation": -1`, 1), 400, Malformed},
		{"negative generation", "sync", "", `{` + who + `, "state": "running", "generation": -1}`, 400, Malformed},
		{"pid that is every process", "sync", "", `{` + who + `, "state": "running", "pids": [-1]}`, 400, Malformed},
		{"generation that would overflow", "register", "", strings.Replace(ok, "}", `, "generation": 9223372036854775807}`, 1), 410, Fenced},
		{"checkpoint of a generation that would overflow", "register", "", strings.Replace(ok, "}", `, "saved": {"step": 1, "generation": 9223372036854775807}}`, 1), 410, Fenced},
		{"restart in place that nobody granted", "register", "", strings.Replace(ok, "}", `, "in_place": 9223372036854775807}`, 1), 410, Fenced},
		{"a rank that nothing recognized", "sync", "", `{` + who + `, "state": "running", "ranks": [{}, {"progress": {"step": 5}}]}`, 400, Malformed},
		{"a rank whose recognizer is no name", "sync", "", `{` + who + `, "state": "running", "ranks": [{"progress": {"by": "a\u001b[31m"}}]}`, 400, Malformed},
		{"a rank at a negative step", "sync", "", `{` + who + `, "state": "running", "ranks": [{"progress": {"by": "tqdm", "step": -5}}]}`, 400, Malformed},
		{"a rank of a negative total", "sync", "", `{` + who + `, "state": "running", "ranks": [{"progress": {"by": "tqdm", "total": -5}}]}`, 400, Malformed},
		{"a rank ahead of its time", "sync", "", `{` + who + `, "state": "running", "ranks": [{"progress": {"by": "tqdm", "step": 5, "step_age_seconds": -1}}]}`, 400, Malformed},
		{"a rank with a loss that is a word", "sync", "", `{` + who + `, "state": "running", "ranks": [{"progress": {"by": "tqdm", "loss": "high"}}]}`, 400, Malformed},
		{"more ranks than pids", "sync", "", `{` + who + `, "state": "running", "ranks": [{}` + strings.Repeat(",{}", maxPIDs) + `]}`, 400, Malformed},
		{"a rank without a process", "sync", "", `{` + who + `, "state": "running", "ranks": [{}, {"process": {"state": "R"}}]}`, 400, Malformed},
		{"a rank in an unknown state", "sync", "", `{` + who + `, "state": "running", "ranks": [{"process": {"pid": 7, "state": "ok"}}]}`, 400, Malformed},
		{"a rank with negative memory", "sync", "", `{` + who + `, "state": "running", "ranks": [{"process": {"pid": 7, "state": "R", "rss_bytes": -1}}]}`, 400, Malformed},
		{"a rank with negative threads", "sync", "", `{` + who + `, "state": "running", "ranks": [{"process": {"pid": 7, "state": "R", "thread_states": {"stopped": -1}}}]}`, 400, Malformed},
		{"a rank that waits in a novel", "sync", "", `{` + who + `, "state": "running", "ranks": [{"process": {"pid": 7, "state": "S", "wait_channel": "` + strings.Repeat("w", maxSymbol+1) + `"}}]}`, 400, Malformed},
		{"more ranks than pids", "sync", "", `{` + who + `, "state": "running", "ranks": [{}` + strings.Repeat(",{}", maxPIDs) + `]}`, 400, Malformed},
		{"negative pressure", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "io_stalled_seconds": -0.1}}`, 400, Malformed},
		{"accelerator without a possible number", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": 64}]}}`, 400, Malformed},
		{"accelerator twice", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": 1}, {"device": 1}]}}`, 400, Malformed},
		{"negative figure of an accelerator", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": 1, "xid": -1}]}}`, 400, Malformed},
		{"negative number of an accelerator", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": -1}]}}`, 400, Malformed},
		{"utilization as a percentage", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": 1, "utilization": 93}]}}`, 400, Malformed},
		{"UUID with a line end", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [{"device": 1, "uuid": "a\nb"}]}}`, 400, Malformed},
		{"more accelerators than there can be", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "accelerators": [` + devices(17) + `]}}`, 400, Malformed},
		{"negative count of an RDMA device", "sync", "", `{` + who + `, "state": "running", "figures": {"at": "2026-01-01T00:00:00Z", "rdma": {"link_downed": -1}}}`, 400, Malformed},
		{"negative step", "sync", "", `{` + who + `, "state": "running", "step": -5}`, 400, Malformed},
		{"checkpoint of a negative step", "sync", "", `{` + who + `, "state": "running", "saved": {"step": -5, "generation": 1}}`, 400, Malformed},
		{"checkpoint of no generation", "sync", "", `{` + who + `, "state": "running", "saved": {"step": 5, "generation": -1}}`, 400, Malformed},
		{"checkpoint of a negative size", "sync", "", `{` + who + `, "state": "running", "checkpoint": {"newest": {"path": "a", "layout": "file", "size_bytes": -1}}}`, 400, Malformed},
		{"checkpoint without a path", "sync", "", `{` + who + `, "state": "running", "checkpoint": {"torn": [{"layout": "file"}]}}`, 400, Malformed},
		{"checkpoint with a bell", "sync", "", `{` + who + `, "state": "running", "checkpoint": {"torn": [{"path": "a\u0007", "layout": "file"}]}}`, 400, Malformed},
		{"checkpoint with a flaw of a novel", "sync", "", `{` + who + `, "state": "running", "checkpoint": {"torn": [{"path": "a", "layout": "file", "flaw": {"code": "cut", "file": "` + strings.Repeat("f", maxPath+1) + `"}}]}}`, 400, Malformed},
		{"more torn checkpoints than are told", "sync", "", `{` + who + `, "state": "running", "checkpoint": {"torn": [{"path": "a", "layout": "file"}` + strings.Repeat(`, {"path": "a", "layout": "file"}`, maxTorn) + `]}}`, 400, Malformed},
		{"negative memory", "sync", "", `{` + who + `, "state": "running", "memory": "-5B"}`, 400, Malformed},
		{"no such port", "sync", "", `{` + who + `, "state": "waiting", "port": 70000}`, 400, Malformed},
		{"rank outside the world", "sync", "", `{` + who + `, "state": "running", "rank": 4, "world_slots": 4}`, 400, Malformed},
		{"negative seen", "sync", "", `{` + who + `, "state": "running", "seen": -1}`, 400, Malformed},
		{"no slot", "register", "", strings.Replace(ok, "worker[0]", "worker", 1), 400, Malformed},
		{"a set of slots", "register", "", strings.Replace(ok, "worker[0]", "worker[0-1]", 1), 400, Malformed},
		{"a slot that does not exist", "register", "", strings.Replace(ok, "worker[0]", "worker[9]", 1), 404, NoSuchSlot},
		{"a role that does not exist", "register", "", strings.Replace(ok, "worker[0]", "ps[0]", 1), 404, NoSuchSlot},
		{"another UID", "register", "", strings.Replace(ok, "u1", "u0", 1), 404, NoSuchJob},
		{"not registered", "sync", "", `{` + who + `, "state": "waiting"}`, 409, RegisterFirst},
		{"replaced", "register", "", strings.Replace(ok, `"incarnation": 1`, `"incarnation": 0`, 1), 410, Fenced},
		{"newer than the plan", "register", "", strings.Replace(ok, `"incarnation": 1`, `"incarnation": 2`, 1), 503, NotReady},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := s.send(t, "POST", "/v1/jobs/gpt/"+c.verb, c.token, c.body)
			var e ErrorReply
			if err := json.Unmarshal([]byte(body), &e); err != nil || e.Message == "" {
				t.Fatalf("the answer is no ErrorReply: %s", body)
			}
			if status != c.status || e.Code != c.code {
				t.Errorf("answered %d %+v, want %d %s", status, e, c.status, c.code)
			}
		})
	}
	if m := s.Observe()["gpt"].Members; len(m) != 0 {
		t.Errorf("something was registered: %+v", m)
	}
	unknown, a := s.send(t, "GET", "/v1/jobs/nojob/members", "", "")
	wrong, b := s.send(t, "GET", "/v1/jobs/gpt/members", "wrong", "")
	if unknown != 401 || wrong != 401 || a != b {
		t.Errorf("an unknown job is distinguishable from a wrong token: %d %s, %d %s", unknown, a, wrong, b)
	}
	if status, _ := s.send(t, "POST", "/v1/jobs/gpt/register", "", strings.Replace(ok, "}", `, "from_the_future": {"x": 1}}`, 1)); status != 200 {
		t.Errorf("an unknown field is answered %d", status)
	}
}

// TestHeadersAreBounded: a huge header is refused before it is read completely.
func TestHeadersAreBounded(t *testing.T) {
	s := startServer(t, "")
	if status, _ := s.send(t, "GET", "/healthz", strings.Repeat("x", 64<<10), ""); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB is answered %d", status)
	}
}

func TestExitIsBounded(t *testing.T) {
	e := &job.Exit{Message: strings.Repeat("é", maxText), Signal: strings.Repeat("é", maxText), Tail: make([]string, 200)}
	e.Tail[199] = strings.Repeat("x", 10*maxText) + "end"
	r := Report{State: job.MemberFailed, Exit: e}
	if err := checkMember("worker[0]", 1, &r); err != nil {
		t.Fatal(err)
	}
	if len(e.Tail) != maxTail || !strings.HasSuffix(e.Tail[maxTail-1], "end") || len(e.Tail[maxTail-1]) > maxText || len(e.Message) > maxText || len(e.Signal) > maxSignal {
		t.Errorf("%d lines, the last of %d bytes, a message of %d, a signal of %d", len(e.Tail), len(e.Tail[maxTail-1]), len(e.Message), len(e.Signal))
	}
	if strings.ContainsRune(e.Message, '\uFFFD') {
		t.Error("a character was split")
	}
}

// TestReadiness: until the desired state is known, members are told to retry, not refused permanently.
func TestReadiness(t *testing.T) {
	s := NewServer(ServerOptions{})
	get := func(method, path string) int {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 503, "/v1/jobs/gpt/members": 503} {
		if got := get("GET", path); got != want {
			t.Errorf("%s is answered %d before it is ready, want %d", path, got, want)
		}
	}
	s.Set("other", desiredOf("other", 1, time.Second)) // more jobs may follow
	if got := get("POST", "/v1/jobs/gpt/register"); got != 503 {
		t.Errorf("register is answered %d before all is known", got)
	}
	s.SetReady()
	if got := get("GET", "/readyz"); got != 200 {
		t.Errorf("/readyz is answered %d", got)
	}
	if got := get("POST", "/v1/jobs/gpt/register"); got != 401 {
		t.Errorf("register with an unknown job is answered %d", got)
	}
}

// TestWakesOnlyForFacts: a beat, a step or a load does not wake the planner; a state, a world's first step or a broken connection does.
func TestWakesOnlyForFacts(t *testing.T) {
	s := startServer(t, "")
	a, _ := s.train(t)
	drain := func() bool {
		select {
		case <-s.Wake():
			return true
		default:
			return false
		}
	}
	drain()
	a.request.Step = 99
	a.say(job.MemberRunning, 1)
	if !drain() {
		t.Error("a world's first step does not wake the planner")
	}
	a.request.Step, a.request.CPU, a.request.Memory, a.request.Loss = 100, 900, 1<<20, new(job.Loss)
	a.say(job.MemberRunning, 1)
	if drain() {
		t.Error("a step wakes the planner")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Sync(ctx, "gpt", a.request)
	}()
	s.awaitPolls(t, 1)
	if drain() {
		t.Error("an open request wakes the planner")
	}
	cancel()
	<-done
	select {
	case <-s.Wake():
	case <-time.After(hang.Bound):
		t.Error("a broken connection does not wake the planner")
	}
	if f := s.Observe()["gpt"]; f.World.Broken || f.Members[0].Member.Silent {
		t.Errorf("a broken connection alone decides something: %+v", f)
	}
}

// TestLeaseRunsOut: with the real clock, a silent member is lost after its lease, and a survivor is notified.
func TestLeaseRunsOut(t *testing.T) {
	s := startServer(t, "")
	s.Set("gpt", desiredOf("gpt", 2, 5*time.Second))
	a, _ := s.train(t)
	a.until(Wait)
	f := s.Observe()["gpt"]
	if !f.World.Broken || !f.Members[1].Member.Expired || f.Members[0].Member.Expired {
		t.Errorf("observed %+v", f)
	}
}

// TestLedgerThatFails: a world that could not be written is not announced, and is retried.
func TestLedgerThatFails(t *testing.T) {
	ledger := &failingLedger{failures: 2}
	s := &testServer{Server: NewServer(ServerOptions{Ledger: ledger})}
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.base = s.URL()
	defer s.Close(context.Background())
	s.SetReady()
	s.Set("gpt", desiredOf("gpt", 1, 15*time.Second))
	a := s.member(t, 0)
	a.register()
	if o := a.until(Run); o.World.Generation != 1 {
		t.Errorf("told to run %+v", o.World)
	}
	if ledger.calls() != 3 {
		t.Errorf("the ledger was called %d times", ledger.calls())
	}
}

type failingLedger struct {
	mu       sync.Mutex
	failures int
	called   int
}

func (l *failingLedger) Form(string, string, job.World) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.called++
	if l.called <= l.failures {
		return errors.New("no space left on device")
	}
	return nil
}

func (l *failingLedger) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.called
}

func TestCloseAnswersOpenRequests(t *testing.T) {
	s := startServer(t, "")
	s.Set("gpt", desiredOf("gpt", 2, 10*time.Minute))
	a := s.member(t, 0)
	a.register()
	a.until(Wait)
	answered := make(chan error, 1)
	go func() {
		_, err := a.Sync(context.Background(), "gpt", a.request)
		answered <- err
	}()
	s.awaitPolls(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the open request ends with %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	s := startServer(t, "")
	err := NewServer(ServerOptions{}).Start(s.Addr().String())
	if err == nil || !strings.Contains(err.Error(), s.Addr().String()) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port in use gives %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, key, pool := selfSigned(t)
	s := NewServer(ServerOptions{Certificates: NewCertificateFiles(cert, key, nil, nil)})
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	s.SetReady()
	s.Set("gpt", desiredOf("gpt", 1, 15*time.Second))
	members := func(roots *x509.CertPool) error {
		c, err := NewClient(s.URL(), "secret", roots)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Members(t.Context(), "gpt")
		return err
	}
	if members(nil) == nil || members(x509.NewCertPool()) == nil {
		t.Error("an untrusted certificate is accepted")
	}
	if err := members(pool); err != nil {
		t.Error(err)
	}
	if err := NewServer(ServerOptions{Certificates: NewCertificateFiles(cert, cert, nil, nil)}).Start("127.0.0.1:0"); err == nil {
		t.Error("a file without a key is accepted")
	}
	// The group may read root's file, as when Kubernetes mounts a Secret for an fsGroup.
	for mode, allowed := range map[os.FileMode]bool{0o400: true, 0o440: os.Getuid() == 0, 0o604: false, 0o644: false, 0o620: false} {
		if err := os.Chmod(key, mode); err != nil {
			t.Fatal(err)
		}
		s := NewServer(ServerOptions{Certificates: NewCertificateFiles(cert, key, nil, nil)})
		err := s.Start("127.0.0.1:0")
		if (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "chmod 600 "+key) {
			t.Errorf("a key of mode %04o: %v", mode, err)
		}
		if err == nil {
			s.Close(context.Background())
		}
	}
}

// A renewed certificate replaces the files. Agents that trust only the old one keep working until they can have received the
// new one.
func TestARenewedCertificateIsTakenUp(t *testing.T) {
	cert, key, before := selfSigned(t)
	told := make(chan []byte, 8)
	refuse := errors.New("the API server is away")
	refusals := 1
	files := NewCertificateFiles(cert, key, func(certificates []byte) error {
		if refusals--; refusals >= 0 {
			return refuse
		}
		told <- certificates
		return nil
	}, slog.New(slog.DiscardHandler))
	files.interval = time.Hour // the test triggers the reloads
	s := NewServer(ServerOptions{Certificates: files})
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	trusts := func(roots *x509.CertPool) bool {
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{RootCAs: roots})
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	pool := func(certificates []byte) *x509.CertPool {
		p := x509.NewCertPool()
		p.AppendCertsFromPEM(certificates)
		return p
	}
	now := time.Now()
	nextCert, nextKey, after := selfSigned(t)
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	rename(nextCert, cert)
	files.renew(now) // only half of the renewal is written
	if !trusts(before) || len(told) > 0 {
		t.Fatal("half a renewal was applied")
	}
	rename(nextKey, key)
	files.renew(now) // the announcement fails
	files.renew(now.Add(certificateDelay))
	if !trusts(before) || trusts(after) {
		t.Fatal("it is served before it was announced")
	}
	both := pool(<-told)
	files.renew(now.Add(2*certificateDelay - time.Second))
	if !trusts(before) || !trusts(both) {
		t.Fatal("it is served before all agents can have received it")
	}
	refusals = 1
	files.renew(now.Add(2 * certificateDelay)) // the announcement without the old certificate fails
	if trusts(before) || !trusts(after) || !trusts(both) {
		t.Fatal("it is not served when its time has come")
	}
	files.renew(now.Add(2*certificateDelay + time.Second))
	if len(told) == 0 {
		t.Fatal("the withdrawal of the old certificate is not retried")
	}
	if last := pool(<-told); !last.Equal(after) || !pool(s.Certificates()).Equal(after) {
		t.Error("the old certificate is still announced")
	}
	files.renew(now.Add(3 * certificateDelay))
	if len(told) > 0 {
		t.Error("an unchanged certificate was announced")
	}
	expired := files.served.certificate.Leaf.NotAfter.Add(time.Second)
	nextCert, nextKey, after = selfSigned(t)
	rename(nextCert, cert)
	rename(nextKey, key)
	files.renew(expired)
	if !trusts(after) {
		t.Error("an expired certificate is still served")
	}
}

// The files are reloaded periodically.
func TestTheCertificateIsLookedAt(t *testing.T) {
	cert, key, _ := selfSigned(t)
	told := make(chan []byte, 1)
	files := NewCertificateFiles(cert, key, func(certificates []byte) error {
		told <- certificates
		return nil
	}, slog.New(slog.DiscardHandler))
	files.interval = time.Millisecond
	s := NewServer(ServerOptions{Certificates: files})
	if err := s.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	nextCert, nextKey, _ := selfSigned(t)
	for from, to := range map[string]string{nextCert: cert, nextKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-told:
	case <-time.After(hang.Bound):
		t.Error("the renewal was not announced")
	}
}

func selfSigned(t *testing.T) (cert, key string, pool *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "eltrain"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(
		os.WriteFile(cert, certPEM, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

// TestClientTellsServicesFromOthers: a proxy's page, a redirect or an endless answer does not count as a refusal of the
// service.
func TestClientTellsServicesFromOthers(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a page":         func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>Gone fishing", http.StatusGone) },
		"a redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
		"endless answer": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("[", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewTLSServer(handler)
			defer other.Close()
			c, err := NewClient(other.URL, "secret", other.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Members(t.Context(), "gpt")
			var refusal *Error
			if err == nil || errors.As(err, &refusal) {
				t.Errorf("it counts as the service: %v", err)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
	for _, bad := range []string{"", "127.0.0.1:80", "ftp://x", "https://", "::", "http://127.0.0.1:80"} {
		if _, err := NewClient(bad, "t", nil); err == nil {
			t.Errorf("%q is accepted as a URL", bad)
		}
	}
}

// TestNoTokenOpensNothing: a job without a token is closed, not open.
func TestNoTokenOpensNothing(t *testing.T) {
	c := NewCoordinator()
	d := desiredOf("gpt", 1, 15*time.Second)
	d.Token = ""
	c.Set(time.Now(), "gpt", d)
	if err := c.Authorize("gpt", ""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("no token is answered %v", err)
	}
	if _, err := c.Owner(""); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("the empty token belongs to a job: %v", err)
	}
}

// TestSameNameIsAnotherJob: a job that is created again under an old name does not know the old one's members.
func TestSameNameIsAnotherJob(t *testing.T) {
	s := startServer(t, "")
	a, _ := s.train(t)
	d := desiredOf("gpt", 2, 15*time.Second)
	d.UID = "u2"
	s.Set("gpt", d)
	if _, err := a.Sync(t.Context(), "gpt", a.request); !errors.Is(err, ErrNoSuchJob) {
		t.Errorf("a member of the old one is answered %v", err)
	}
	if f := s.Observe()["gpt"]; f.World.Generation != 0 || len(f.Members) != 0 {
		t.Errorf("observed %+v", f)
	}
}

// TestMetrics: a job's token gives access to that job's metrics only, and they are right.
func TestMetrics(t *testing.T) {
	s := startServer(t, "other")
	s.train(t)
	if status, _ := s.send(t, "GET", "/metrics", "wrong", ""); status != 401 {
		t.Errorf("a wrong token is answered %d", status)
	}
	s.send(t, "POST", "/v1/jobs/gpt/register", "", `{"uid": "u1", "slot": "worker[0]", "incarnation": 0, "host": "h", "state": "waiting"}`)
	status, text := s.send(t, "GET", "/metrics", "", "")
	if status != 200 {
		t.Fatalf("answered %d %s", status, text)
	}
	for _, line := range []string{
		`eltrain_members{job_name="gpt",state="running"} 2`,
		`eltrain_members{job_name="gpt",state="failed"} 0`,
		`eltrain_world_slots{job_name="gpt"} 2`,
		`eltrain_world_generation{job_name="gpt"} 1`,
		`eltrain_worlds_formed_total{job_name="gpt"} 1`,
		`eltrain_leases_expired_total{job_name="gpt"} 0`,
		`eltrain_requests_fenced_total{job_name="gpt"} 1`,
		`eltrain_service_requests_total{code="410",route="register"} 1`,
		`eltrain_service_requests_total{code="401",route="metrics"} 1`,
		`eltrain_service_request_seconds_count{route="register"} 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	if strings.Contains(text, `job="other"`) {
		t.Error("another job's figures are shown")
	}
	if strings.Contains(text, "secret") {
		t.Error("the token is shown")
	}
}

// FuzzHandlers: whatever is sent, the answer is a JSON reply with a known status, and the coordinator stays consistent.
func FuzzHandlers(f *testing.F) {
	f.Add("register", `{"uid":"u1","slot":"worker[0]","incarnation":1,"host":"h","state":"waiting"}`)
	f.Add("sync", `{"uid":"u1","slot":"worker[0]","incarnation":1,"seen":9,"state":"running","generation":1,"world_slots":2,"exit":{"code":1,"tail":["x"]}}`)
	f.Add("sync", `{"uid":"u1","slot":"worker[1]","incarnation":1,"state":"failed","memory":"1GiB","pids":[1,2]}`)
	f.Add("members", "")
	f.Add("sync", "\xff")
	f.Fuzz(func(t *testing.T, verb, body string) {
		s := NewServer(ServerOptions{})
		s.SetReady()
		s.Set("gpt", desiredOf("gpt", 2, 15*time.Second))
		close(s.closing) // no request is held open
		for _, b := range []string{`{"uid":"u1","slot":"worker[0]","incarnation":1,"host":"h","state":"waiting"}`, body} {
			for _, v := range []string{"register", verb} {
				r := httptest.NewRequest("POST", "/v1/jobs/gpt/x", strings.NewReader(b))
				r.URL.Path = "/v1/jobs/gpt/" + v
				r.Header.Set("Authorization", "Bearer secret")
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				if w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect {
					continue // the mux cleans paths
				}
				if !json.Valid(w.Body.Bytes()) {
					t.Fatalf("%d %q", w.Code, w.Body)
				}
				if w.Code == http.StatusInternalServerError {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		}
		s.Observe()
		s.c.Membership("gpt")
	})
}

// devices are n accelerators in JSON.
func devices(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"device": %d}`, i))
	}
	return strings.Join(all, ", ")
}
