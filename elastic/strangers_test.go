package elastic

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// pipes is a listener in memory: connections through it are part of a synctest bubble, as sockets are not.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// inBubble runs a test with a server of the job gpt, whose beat is minutes long, on a virtual clock.
func inBubble(t *testing.T, test func(*testing.T, *Server, *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerOptions{})
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		s.running.Go(func() { s.http.Serve(p) })
		s.SetReady()
		s.Set("gpt", desiredOf("gpt", 2, unhurried))
		test(t, s, p)
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func post(path, token, more string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n" + more
}

// Strangers open connections and do not finish, or do not start, what they send; some keep sending a little. Each connection is
// closed within the time of one request, and at once where the answer is known before the body.
func TestUnfinishedRequestsAreClosed(t *testing.T) {
	const unfinished = "Content-Length: 10\r\n\r\n"
	const chunks = "Transfer-Encoding: chunked\r\n\r\n"
	for name, c := range map[string]struct {
		sent    string
		trickle string // again every second
		answer  string // "" if there may be none
		within  time.Duration
	}{
		"nothing":             {"", "", "", headerTimeout},
		"half a header":       {"GET /healthz HT", "", "", headerTimeout},
		"endless header":      {"GET /healthz HTTP/1.1\r\n", "X-A: b\r\n", "", headerTimeout},
		"health":              {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + unfinished, "", "200", 0},
		"health, chunked":     {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + chunks, "", "200", 0},
		"health, half chunk":  {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + chunks + "5\r\nab", "", "200", 0},
		"no such path":        {post("/nowhere", "", unfinished), "", "404", 0},
		"not the method":      {post("/healthz", "", chunks), "", "405", 0},
		"wrong token":         {post("/v1/jobs/gpt/sync", "wrong", unfinished), "", "401", 0},
		"wrong token, chunks": {post("/v1/jobs/gpt/sync", "wrong", chunks), "", "401", 0},
		"reconcile":           {post("/v1/reconcile", "wrong", unfinished), "", "401", 0},
		"no job":              {post("/v1/jobs/nojob/register", "secret", unfinished), "", "401", 0},
		"a member":            {post("/v1/jobs/gpt/sync", "secret", unfinished), "", "400", readTimeout},
		"a member, chunks":    {post("/v1/jobs/gpt/sync", "secret", chunks), "", "400", readTimeout},
		"a member, slowly":    {post("/v1/jobs/gpt/sync", "secret", chunks), "1\r\n \r\n", "400", readTimeout},
		"too large":           {post("/v1/jobs/gpt/sync", "secret", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 2*maxBody, strings.Repeat(" ", maxBody+1))), "", "413", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *Server, p *pipes) {
				var all sync.WaitGroup
				for range 200 {
					conn, begun := p.dial(), time.Now()
					all.Go(func() {
						defer conn.Close()
						all.Go(func() {
							_, err := io.WriteString(conn, c.sent)
							for c.trickle != "" && err == nil {
								time.Sleep(time.Second)
								_, err = io.WriteString(conn, c.trickle)
							}
						})
						answer, _ := io.ReadAll(conn)
						if took := time.Since(begun); took > c.within {
							t.Errorf("closed after %v", took)
						}
						if c.answer != "" && !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.answer) {
							t.Errorf("answered %q", answer)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// A client that never reads its answers is closed.
func TestClientsThatNeverReadAreClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Server, p *pipes) {
		var all sync.WaitGroup
		for _, request := range []string{
			"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
			post("/v1/jobs/gpt/sync", "wrong", "Content-Length: 2\r\n\r\n{}"),
			"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n",
		} {
			for range 200 {
				conn, begun := p.dial(), time.Now()
				all.Go(func() {
					defer conn.Close()
					for { // the server reads no second request before it has answered the first
						if _, err := io.WriteString(conn, request); err != nil {
							break
						}
					}
					if took := time.Since(begun); took > writeTimeout {
						t.Errorf("closed after %v", took)
					}
				})
			}
		}
		all.Wait()
	})
}

// The deadlines do not end a request that is held open, nor the next ones on its connection.
func TestHeldRequestsOutliveTheDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server, p *pipes) {
		conn := p.dial()
		defer conn.Close()
		answers := bufio.NewReader(conn)
		who := `{"uid": "u1", "slot": "worker[0]", "incarnation": 1, "host": "h", "state": "waiting", "seen": `
		ask := func(path, token, body string) (status int) {
			t.Helper()
			if _, err := io.WriteString(conn, post(path, token, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			return res.StatusCode
		}
		// What is refused with its body at hand closes nothing.
		if status := ask("/v1/jobs/gpt/register", "wrong", who+"0}"); status != 401 {
			t.Errorf("a wrong token is answered %d", status)
		}
		if status := ask("/v1/jobs/gpt/register", "secret", who+"}"); status != 400 {
			t.Errorf("no JSON is answered %d", status)
		}
		if status := ask("/v1/jobs/gpt/register", "secret", who+"0}"); status != 200 {
			t.Fatalf("a registration is answered %d", status)
		}
		_, version := s.c.jobs["gpt"].rdzv.Order(desiredOf("gpt", 1, 0).Slots[0].Address)
		for range 3 {
			begun := time.Now()
			if status := ask("/v1/jobs/gpt/sync", "secret", fmt.Sprintf("%s%d}", who, version)); status != 200 {
				t.Errorf("a held request is answered %d", status)
			}
			if held := time.Since(begun); held < 10*writeTimeout {
				t.Errorf("held for %v", held)
			}
		}
	})
}

// Strangers hold as many connections as they can open. The service keeps descriptors for the files of its process, says that it
// has reached its limit, and accepts others once there is room.
func TestConnectionsLeaveDescriptorsForFiles(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < 600 {
		t.Skipf("only %d descriptors for 200 connections, both ends of which are here", limit.Cur)
	}
	few := limit
	few.Cur = 160
	log := make(chan string, 100)
	s := NewServer(ServerOptions{Log: slog.New(slog.NewTextHandler(lines(log), nil))})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := s.Start("127.0.0.1:0")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil { // the clients are in the same process
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	var open atomic.Int32
	var all sync.WaitGroup
	full := make(chan struct{})
	for range 200 {
		all.Go(func() {
			conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Error(err)
			}
			if n := open.Add(1); n > 80 {
				t.Errorf("%d connections are open", n)
			}
			<-full
			open.Add(-1)
		})
	}
	select {
	case line := <-log:
		if !strings.Contains(line, "connections=80") {
			t.Errorf("told %q", line)
		}
	case <-time.After(hang.Bound):
		t.Error("never told")
	}
	close(full)
	all.Wait()
}

// lines is a log that a test reads.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
