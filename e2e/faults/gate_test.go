package faults

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/eltrain/eltrain/testbed"
)

// gate stands between one user and the API server, and stops the n-th request that changes something.
type gate struct {
	server *httptest.Server
	proxy  *testbed.Proxy

	mu      sync.Mutex
	writes  []string // what was asked for so far: "create pods"
	stop    int      // the number, from 1, of the write to stop; 0: the first of that kind, if there is a kind
	kind    string
	done    bool // the API server gets that one, and only the answer is held back
	held    chan struct{}
	release chan struct{}
}

func newGate(t *testing.T, c *testbed.Cluster) *gate {
	t.Helper()
	g := &gate{proxy: c.Proxy(t)}
	g.server = httptest.NewTLSServer(g)
	t.Cleanup(func() {
		g.server.CloseClientConnections() // watches
		g.server.Close()
	})
	return g
}

// stopAt counts from the start again and stops the n-th write, or with 0 the first of a kind; done: when the API
// server has done it. held is closed when it comes. It is held until release is closed, and then its connection breaks, unless it
// has not reached the API server: then it goes there.
func (g *gate) stopAt(n int, kind string, done bool) (held <-chan struct{}, release chan<- struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.stop, g.kind, g.done = nil, n, kind, done
	g.held, g.release = make(chan struct{}), make(chan struct{})
	return g.held, g.release
}

// asked lists the writes since stopAt.
func (g *gate) asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.writes)
}

// ServeHTTP passes on what is not to be stopped.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stopped, done, release := g.count(r)
	switch {
	case !stopped:
		g.proxy.ServeHTTP(w, r)
	case done:
		g.proxy.ServeHTTP(httptest.NewRecorder(), r)
		close(g.held)
		<-release
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	default:
		close(g.held)
		<-release
		g.proxy.ServeHTTP(w, r)
	}
}

// count counts a write. That the holder of a lock renews it is none: it comes by the clock.
func (g *gate) count(r *http.Request) (stopped, done bool, release <-chan struct{}) {
	if r.Method == http.MethodGet || r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/leases/") {
		return false, false, nil
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := parts[slices.Index(parts, "namespaces")+2]
	g.mu.Lock()
	defer g.mu.Unlock()
	write := strings.ToLower(r.Method) + " " + resource
	first := !slices.Contains(g.writes, write)
	g.writes = append(g.writes, write)
	return len(g.writes) == g.stop || g.stop == 0 && first && write == g.kind, g.done, g.release
}
