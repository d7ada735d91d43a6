package agent

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// patience bounds every wait in these tests. It is long because CI machines are slow, and is only reached if something is
// broken.
const patience = hang.Bound

// fakeService implements elastic's wire for one member, as scripted: a test gives orders and awaits reports. elastic.Server
// decides by itself, so it cannot be brought into every situation.
type fakeService struct {
	server *httptest.Server
	beat   time.Duration

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	order    elastic.Order
	members  *elastic.Peers
	version  uint64
	known    bool
	refusal  elastic.Code // the answer to every request
	token    string
	refused  int  // requests refused as not ready
	muted    bool // no sync is answered
	register []elastic.RegisterRequest
	sync     []elastic.SyncRequest
}

func newFakeService(t *testing.T, beat time.Duration) *fakeService {
	s := &fakeService{beat: beat, changed: make(chan struct{}), version: 1, order: elastic.Order{Do: elastic.Wait}, token: "secret"}
	s.server = httptest.NewUnstartedServer(s)
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // from refused handshakes
	s.server.StartTLS()
	t.Cleanup(s.close)
	return s
}

func (s *fakeService) close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// certificateOf is what an agent must trust to talk to a server, in PEM.
func certificateOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (s *fakeService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(status int, code elastic.Code) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]any{"code": code, "message": "refused by the test"})
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		refuse(http.StatusUnauthorized, elastic.Unauthorized)
	case s.refusal == elastic.Fenced:
		refuse(http.StatusGone, elastic.Fenced)
	case s.refusal == elastic.NoSuchSlot:
		refuse(http.StatusNotFound, elastic.NoSuchSlot)
	case s.refusal == elastic.NotReady:
		s.refused++
		refuse(http.StatusServiceUnavailable, elastic.NotReady)
	case strings.HasSuffix(r.URL.Path, "/v1/jobs/mnist/register"):
		var in elastic.RegisterRequest
		json.NewDecoder(r.Body).Decode(&in)
		s.register = append(s.register, in)
		s.known = true
		s.wake()
		json.NewEncoder(w).Encode(elastic.RegisterReply{BeatSeconds: s.beat.Seconds(), LeaseSeconds: 3 * s.beat.Seconds()})
	case !s.known:
		refuse(http.StatusConflict, elastic.RegisterFirst)
	default:
		var in elastic.SyncRequest
		json.NewDecoder(r.Body).Decode(&in)
		s.sync = append(s.sync, in)
		mine := len(s.sync)
		s.wake()
		s.hold(r, in.Seen, mine)
		if s.refusal == elastic.Fenced {
			refuse(http.StatusGone, elastic.Fenced)
			return
		}
		if !s.known {
			refuse(http.StatusConflict, elastic.RegisterFirst)
			return
		}
		json.NewEncoder(w).Encode(elastic.SyncReply{Version: s.version, Order: s.order, Members: s.members})
	}
}

// hold waits, as the real service does, for a newer order, a newer request, or the beat. s.mu is held.
func (s *fakeService) hold(r *http.Request, seen uint64, mine int) {
	due := time.NewTimer(s.beat)
	defer due.Stop()
	for s.muted || s.known && s.refusal == "" && s.version == seen && len(s.sync) == mine {
		changed := s.changed
		s.mu.Unlock()
		var over bool
		select {
		case <-changed:
		case <-due.C:
			over = !s.isMuted()
		case <-r.Context().Done():
			over = true
		}
		s.mu.Lock()
		if over {
			return
		}
	}
}

func (s *fakeService) isMuted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.muted
}

func (s *fakeService) mute(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = on
}

// refusals is how many requests were refused as set by refuse.
func (s *fakeService) refusals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *fakeService) registrations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.register)
}

// wake notifies waiters of a change. s.mu is held.
func (s *fakeService) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *fakeService) give(o elastic.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = o
	s.version++
	s.wake()
}

// list announces a list of members.
func (s *fakeService) list(p *elastic.Peers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = p
	s.version++
	s.wake()
}

func (s *fakeService) refuse(code elastic.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = code
	s.wake()
}

// run orders a world of one slot.
func (s *fakeService) run(generation, processes int) {
	s.give(elastic.Order{Do: elastic.Run, World: &elastic.Place{
		Generation: generation, GroupSize: 1, WorldSize: processes, RoleWorldSize: processes,
		MasterAddr: "127.0.0.1", MasterPort: 29500, RestartCount: generation - 1,
	}})
}

// await waits for a matching report, from a registration or a sync, and returns the newest.
func (s *fakeService) await(t *testing.T, what string, ok func(elastic.Report) bool) elastic.Report {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		for i := range s.register {
			if r := s.register[len(s.register)-1-i].Report; ok(r) {
				s.mu.Unlock()
				return r
			}
		}
		for i := range s.sync {
			if r := s.sync[len(s.sync)-1-i].Report; ok(r) {
				s.mu.Unlock()
				return r
			}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			last := "nothing"
			if n := len(s.sync); n > 0 {
				text, _ := json.Marshal(s.sync[n-1])
				last = string(text)
			}
			t.Fatalf("never reported: %s; the last report was %s", what, last)
		}
	}
}

func (s *fakeService) awaitState(t *testing.T, state job.MemberState, generation int) elastic.Report {
	t.Helper()
	return s.await(t, string(state), func(r elastic.Report) bool {
		return r.State == state && r.Generation == generation && (state != job.MemberRunning || len(r.PIDs) > 0)
	})
}

// bench is one agent's environment: a directory, a service, and the files by which it is found.
type bench struct {
	dir     string
	service *fakeService
	config  job.AgentConfig
	under   []string // a command that executes the agent; nil for none
}

func newBench(t *testing.T, beat time.Duration, command ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{dir: dir, service: newFakeService(t, beat)}
	b.config = job.AgentConfig{
		Job: "mnist", UID: "uid-1", Slot: "worker[3]", Incarnation: 2, Host: "127.0.0.1", Node: "n7",
		ServiceFile: filepath.Join(dir, "service"), CAFile: filepath.Join(dir, "ca.pem"), TokenFile: filepath.Join(dir, "token"),
		Dir: filepath.Join(dir, "agent"), Log: filepath.Join(dir, "log"),
		Processes: 1, Ranked: true, StopGrace: job.Duration(10 * time.Second), MaxRestarts: 10, Command: command,
	}
	b.find(t, b.service.server.URL+"\n", certificateOf(b.service.server))
	// A port released by one test may be reused by the next: the token keeps agents apart.
	b.service.token = "secret of " + t.Name()
	b.write(t, "token", b.service.token+"\n")
	return b
}

// find makes a service known to the agent, as a provider does.
func (b *bench) find(t *testing.T, url string, certificates []byte) {
	t.Helper()
	b.write(t, "ca.pem", string(certificates))
	b.write(t, "service", url)
}

func (b *bench) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.dir, name))
	return string(text)
}

func (b *bench) exists(name string) bool {
	_, err := os.Stat(filepath.Join(b.dir, name))
	return err == nil
}

// exit reads exit.json.
func (b *bench) exit(t *testing.T) job.LastWord {
	t.Helper()
	var e job.LastWord
	if err := json.Unmarshal([]byte(b.read("agent/exit.json")), &e); err != nil {
		t.Fatalf("exit.json: %v", err)
	}
	return e
}

// hangUp is a service that closes every connection without a reply. tried gets a value with the first.
func hangUp(t *testing.T) (url string, tried <-chan struct{}) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			select {
			case first <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "https://" + l.Addr().String(), first
}

// eventually polls for what no message reports.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
