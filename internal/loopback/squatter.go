package loopback

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
)

// Squatter listens on somebody else's address, without TLS, and records what it hears.
type Squatter struct {
	http http.Server
	done chan struct{}

	mu          sync.Mutex
	connections int
	heard       bytes.Buffer
}

// Squat listens on an address until Close. It answers every HTTP request with a body.
func Squat(t testing.TB, address, body string) *Squatter {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &Squatter{done: make(chan struct{})}
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
	s.http.ErrorLog = log.New(io.Discard, "", 0)
	go func() {
		defer close(s.done)
		s.http.Serve(eavesdropper{listener, s})
	}()
	t.Cleanup(s.Close)
	return s
}

// Close stops listening.
func (s *Squatter) Close() {
	s.http.Close()
	<-s.done
}

// Heard returns how many connections there were, and all bytes that they sent.
func (s *Squatter) Heard() (connections int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections, s.heard.String()
}

type eavesdropper struct {
	net.Listener
	to *Squatter
}

func (e eavesdropper) Accept() (net.Conn, error) {
	conn, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	e.to.mu.Lock()
	defer e.to.mu.Unlock()
	e.to.connections++
	return overheard{conn, e.to}, nil
}

type overheard struct {
	net.Conn
	by *Squatter
}

func (o overheard) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	o.by.mu.Lock()
	defer o.by.mu.Unlock()
	o.by.heard.Write(b[:n])
	return n, err
}
