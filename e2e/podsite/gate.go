package podsite

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/eltrain/eltrain/testbed"
)

// Gate is a proxy between one user and the API server that stops the n-th write.
type Gate struct {
	Proxy  *testbed.Proxy // for other kinds of faults
	server *httptest.Server

	mu      sync.Mutex
	writes  []string // the writes so far: "post pods"
	stop    int      // the number, from 1, of the write to stop; 0: the first of that kind, if there is a kind
	kind    string
	done    bool // the API server gets that write, and only the response is held
	held    chan struct{}
	release chan struct{}
	stopped string        // method and path of the stopped write, once it has come
	over    chan struct{} // closed when the test ends: then nothing is held
}

// Through routes the user's requests to the API server through a gate, until the test ends.
func (s *Site) Through() *Gate {
	s.T.Helper()
	g := &Gate{Proxy: s.Cluster.Proxy(s.T), over: make(chan struct{})}
	g.server = httptest.NewTLSServer(g)
	direct := s.Env
	s.T.Cleanup(func() {
		s.Env = direct
		close(g.over)
		g.server.CloseClientConnections() // watches
		g.server.Close()
	})
	config, err := clientcmd.LoadFromFile(s.kubeconfig())
	s.OK(err)
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority = g.server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	}
	path := filepath.Join(s.T.TempDir(), "kubeconfig")
	s.OK(clientcmd.WriteToFile(*config, path))
	s.use(path)
	return g
}

// StopAt restarts the count and stops the n-th write, or with 0 the first of a kind. With done the API server has already
// carried it out. held is closed when the write comes. It is held until release is closed. Then it goes to the API server, or,
// with done, its connection breaks. If the client is killed while the write is held, it never reaches the API server.
//
// Writes of the same method and path wait too: they may be retries. Creations of other objects, as of the next pod, cannot be
// distinguished from those.
func (g *Gate) StopAt(n int, kind string, done bool) (held <-chan struct{}, release chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.stop, g.kind, g.done, g.stopped = nil, n, kind, done, ""
	g.held, g.release = make(chan struct{}), make(chan struct{})
	return g.held, g.release
}

// Open stops no further writes: the stopped client is dead, and another should continue.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop, g.kind, g.stopped = 0, "", ""
}

// Asked lists the writes since StopAt.
func (g *Gate) Asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

// ServeHTTP implements http.Handler. It passes on requests that are not stopped.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stopped, again, done, release := g.count(r)
	if !stopped && !again {
		g.Proxy.ServeHTTP(w, r)
		return
	}
	// net/http notices that the client is gone only after the whole request was read.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if stopped {
		if done {
			g.Proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		close(g.held)
	}
	if goes := g.hold(r.Context(), release); stopped && done || !goes {
		panic(http.ErrAbortHandler)
	}
	g.Proxy.ServeHTTP(w, r)
}

// hold waits until the request is released, and reports whether the client still waits for the response.
func (g *Gate) hold(asking context.Context, release <-chan struct{}) bool {
	select {
	case <-release:
		return true
	case <-asking.Done():
		return false
	case <-g.over:
		return false
	}
}

// count counts a write, and reports whether it is the one to stop, or a retry of it. Renewals of a lock do not count: they come
// by the clock.
func (g *Gate) count(r *http.Request) (stopped, again, done bool, release <-chan struct{}) {
	if r.Method == http.MethodGet || r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/leases/") {
		return false, false, false, nil
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[slices.Index(parts, "namespaces")+2]
	g.mu.Lock()
	defer g.mu.Unlock()
	write := strings.ToLower(r.Method) + " " + resource
	first := !slices.Contains(g.writes, write)
	g.writes = append(g.writes, write)
	if request := r.Method + r.URL.Path; len(g.writes) == g.stop || g.stop == 0 && first && write == g.kind {
		stopped, g.stopped = true, request
	} else {
		again = request == g.stopped
	}
	return stopped, again, g.done, g.release
}
