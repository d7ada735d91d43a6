package kubernetes

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eltrain/eltrain/kube"
)

// These transports are between a store and the real API server.

// through returns a handle whose requests go through trip.
func (p *place) through(trip func(*http.Request, http.RoundTripper) (*http.Response, error)) *Store {
	p.t.Helper()
	s := p.open()
	config, _, err := kube.Access{Kubeconfig: p.options.Kubeconfig}.Client(0)
	if err != nil {
		p.t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return trip(r, next) })
	})
	if err := s.connect(config); err != nil {
		p.t.Fatal(err)
	}
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dying lets some modifying requests through, and then no requests, as if the process were killed.
type dying struct {
	left int
	die  func()
	died bool
}

func (d *dying) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if r.Method != http.MethodGet {
		d.left--
	}
	if d.left < 0 {
		d.died = true
		d.die()
		return nil, errors.New("the process is dead")
	}
	return next.RoundTrip(r)
}

// stalled holds back the first matching request until release is closed.
type stalled struct {
	holds            func(*http.Request) bool
	once             sync.Once
	reached, release chan struct{}
}

func (h *stalled) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if h.holds(r) {
		h.once.Do(func() {
			close(h.reached)
			<-h.release
		})
	}
	return next.RoundTrip(r)
}

// await waits until a request is held. It fails if the operation, whose result is sent to ended, ends without one.
func (h *stalled) await(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case <-h.reached:
	case err := <-ended:
		t.Fatalf("it ended without the request to hold: %v", err)
	case <-time.After(enough):
		t.Fatal("the request to hold was never made")
	}
}

func stall(holds func(*http.Request) bool) *stalled {
	return &stalled{holds: holds, reached: make(chan struct{}), release: make(chan struct{})}
}

// late delays the answer to the first claim of the lock.
type late struct {
	by   time.Duration
	once sync.Once
}

func (l *late) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	answer, err := next.RoundTrip(r)
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/leases") {
		l.once.Do(func() { time.Sleep(l.by) })
	}
	return answer, err
}

func changesSecret(r *http.Request) bool {
	return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/secrets")
}

func putsHead(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/secrets")
}

func looksAtLease(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/leases/")
}

func listsParts(r *http.Request) bool { return r.URL.Query().Has("labelSelector") }

func removes(r *http.Request) bool { return r.Method == http.MethodDelete }

// lossy executes every modification and loses every other answer about an object.
type lossy struct {
	lost atomic.Int32
	seen sync.Map // *atomic.Int32 by request
}

func (l *lossy) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	answer, err := next.RoundTrip(r)
	if err != nil || r.Method == http.MethodGet {
		return answer, err
	}
	n, _ := l.seen.LoadOrStore(r.Method+" "+r.URL.Path, new(atomic.Int32))
	if n.(*atomic.Int32).Add(1)%2 == 0 {
		return answer, nil
	}
	answer.Body.Close()
	l.lost.Add(1)
	return nil, errors.New("read: connection reset by peer")
}

// busy answers the first attempts of a request with temporary errors of an API server.
type busy struct {
	refused atomic.Int32
	seen    sync.Map // *atomic.Int32 by request
}

func (b *busy) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	says := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	n, _ := b.seen.LoadOrStore(r.Method+" "+r.URL.Path, new(atomic.Int32))
	try := int(n.(*atomic.Int32).Add(1)) - 1
	if try >= len(says) {
		return next.RoundTrip(r)
	}
	b.refused.Add(1)
	status := says[try]
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("busy")), Request: r,
	}, nil
}

// counting counts requests by method and resource.
type counting struct {
	mu    sync.Mutex
	count map[string]int
}

// unanswered prefixes the additional counts of requests without an answer.
const unanswered = "unanswered "

func (c *counting) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	what := r.Method + " secrets"
	if strings.Contains(r.URL.Path, "/leases") {
		what = r.Method + " leases"
	}
	answer, err := next.RoundTrip(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[what]++
	if err != nil {
		c.count[unanswered+what]++
	}
	return answer, err
}

// reset resets the counts.
func (c *counting) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = map[string]int{}
}

func (c *counting) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

// restarting is an API server that is unreachable for a while, and then knows no roles for a while.
type restarting struct {
	back, settled time.Time
}

func (a *restarting) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	switch now := time.Now(); {
	case now.Before(a.back):
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	case now.Before(a.settled):
		return said(r, http.StatusForbidden, `secrets \"s\" is forbidden: User \"ada\" cannot get resource \"secrets\" in API group \"\"`, "Forbidden"), nil
	}
	return next.RoundTrip(r)
}

// expiring rejects the token from some moment on.
type expiring struct{ expired atomic.Bool }

func (e *expiring) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if e.expired.Load() {
		return said(r, http.StatusUnauthorized, "Unauthorized", "Unauthorized"), nil
	}
	return next.RoundTrip(r)
}

// refusing answers the first renewal with a refusal, and no further one: they time out.
type refusing struct{ from, asked atomic.Bool }

func (f *refusing) trip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	if r.Method != http.MethodPut || !f.from.Load() {
		return next.RoundTrip(r)
	}
	if f.asked.CompareAndSwap(false, true) {
		return said(r, http.StatusForbidden, "leases.coordination.k8s.io is forbidden: User cannot update resource leases", "Forbidden"), nil
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// said is a refusal in the API server's format.
func said(r *http.Request, status int, message, reason string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s","reason":"%s","code":%d}`, message, reason, status)
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}
