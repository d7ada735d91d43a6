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

// Gate stands between one user and the API server, and stops the n-th request that changes something.
type Gate struct {
	Proxy  *testbed.Proxy // faults of other kinds
	server *httptest.Server

	mu      sync.Mutex
	writes  []string // what was asked for so far: "create pods"
	stop    int      // the number, from 1, of the write to stop; 0: the first of that kind, if there is a kind
	kind    string
	done    bool // the API server gets that one, and only the answer is held back
	held    chan struct{}
	release chan struct{}
	stopped string        // method and path of the write that is stopped, once it has come
	over    chan struct{} // closed when the test ends: then nothing is held
}

// Through makes the user reach the API server by a gate, until the test ends.
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

// StopAt counts from the start again and stops the n-th write, or with 0 the first of a kind; done: when the API
// server has done it. held is closed when it comes. It is held until release is closed, and then its connection breaks, unless it
// has not reached the API server: then it goes there. Who asked is killed before that: it never reaches the API server.
// A write of the same method and path meanwhile waits as well: who gave it up asks for it again. Those of another object that
// is made beside it, as of the next pod, cannot be told from that.
func (g *Gate) StopAt(n int, kind string, done bool) (held <-chan struct{}, release chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.stop, g.kind, g.done, g.stopped = nil, n, kind, done, ""
	g.held, g.release = make(chan struct{}), make(chan struct{})
	return g.held, g.release
}

// Open stops nothing more of what comes from now on: who was stopped is killed, and another is to go on.
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

// ServeHTTP implements http.Handler. It passes on what is not to be stopped.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stopped, again, done, release := g.count(r)
	if !stopped && !again {
		g.Proxy.ServeHTTP(w, r)
		return
	}
	// Only once it has the whole request does net/http see that whoever asked is gone.
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

// hold waits until the request is released, and reports whether somebody still waits for its answer.
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

// count counts a write, and reports whether it is the one to stop, or that one again. That the holder of a lock renews it is
// none: it comes by the clock.
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
