package testbed

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proxy is between the API server and the users of its kubeconfigs, so that network faults reach only the program under
// test. It speaks TLS on both sides, and changes nothing but the injected faults.
type Proxy struct {
	cluster *Cluster
	address string
	tls     *tls.Config
	forward *httputil.ReverseProxy

	mu      sync.Mutex
	faults  []*Injected
	watches map[int]context.CancelFunc
	opened  int               // the number of watches so far
	counts  map[[2]string]int // requests by verb and resource
	server  *http.Server      // nil while connections are refused
	served  chan struct{}     // closed once server has returned
}

// Fault is what happens to a matching request.
type Fault struct {
	Verb     string // as in RBAC: get, list, watch, create, update, patch, delete, deletecollection; empty: any
	Resource string // pods, pods/status; empty: any

	Times    int     // how many requests are affected; zero: all until Remove
	Fraction float64 // the random fraction of matching requests that are affected; zero: all

	Delay      time.Duration // before anything else
	Status     int           // the answer instead of the API server's: 409, 429, 500; zero: the request is forwarded
	RetryAfter time.Duration // sent with Status, in whole seconds
	LoseAnswer bool          // the request is forwarded, and the connection breaks before the answer
	CutAnswer  bool          // the connection breaks after half of the answer; of a watch, after half of its first list
	Lag        time.Duration // of a watch: all events are delayed by this, in order
}

// Injected is an active fault.
type Injected struct {
	proxy *Proxy
	fault Fault
	hits  int
}

// Proxy starts a proxy that ends with the test.
func (c *Cluster) Proxy(t T) *Proxy {
	t.Helper()
	tlsConfig, err := c.ca.serveTLS(c.address)
	if err != nil {
		t.Fatalf("testbed: make the proxy's certificate: %v", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.certificate)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
	}
	p := &Proxy{
		cluster: c, address: net.JoinHostPort(c.address, "0"), tls: tlsConfig,
		watches: map[int]context.CancelFunc{}, counts: map[[2]string]int{},
		forward: &httputil.ReverseProxy{
			Transport:     transport,
			FlushInterval: -1,                         // forwards a watch's events as they arrive
			ErrorLog:      log.New(io.Discard, "", 0), // for an API server that is down: the client gets the error
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "https", Host: c.Address()})
			},
			// Like a broken connection: nothing at this address could answer for the API server.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
	}
	p.Accept(t)
	t.Cleanup(func() {
		p.Refuse(t)
		transport.CloseIdleConnections()
	})
	return p
}

// Kubeconfig is Cluster.Kubeconfig for a user that connects through the proxy.
func (p *Proxy) Kubeconfig(t T, user User) string {
	t.Helper()
	return p.cluster.kubeconfigFor(t, user, "https://"+p.address)
}

// Accept listens again, at the same address, after Refuse.
func (p *Proxy) Accept(t T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		t.Fatalf("testbed: proxy: %v", err)
		return
	}
	p.address = listener.Addr().String()
	const headerTimeout = 10 * time.Second // for a client that connects and sends nothing
	server := &http.Server{
		Handler: p, TLSConfig: p.tls.Clone(), ReadHeaderTimeout: headerTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // handshakes aborted by clients
	}
	served := make(chan struct{})
	p.server, p.served = server, served
	go func() {
		defer close(served)
		_ = server.ServeTLS(listener, "", "") // returns when it is closed
	}()
}

// Refuse breaks every connection and refuses new ones until Accept.
func (p *Proxy) Refuse(t T) {
	t.Helper()
	p.mu.Lock()
	server, served := p.server, p.served
	p.server = nil
	p.mu.Unlock()
	if server == nil {
		return
	}
	if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("testbed: proxy: %v", err)
	}
	<-served
}

// BreakWatches breaks the connections of all open watches and returns how many there were.
func (p *Proxy) BreakWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	broken := len(p.watches)
	for _, cancel := range p.watches {
		cancel()
	}
	clear(p.watches)
	return broken
}

// Requests returns how many requests of that verb for that resource were received so far, whatever their result.
// Either may be empty: any.
func (p *Proxy) Requests(verb, resource string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for key, count := range p.counts {
		if matches(verb, key[0]) && matches(resource, key[1]) {
			total += count
		}
	}
	return total
}

// Inject activates a fault. If several match a request, the one injected first applies.
func (p *Proxy) Inject(fault Fault) *Injected {
	p.mu.Lock()
	defer p.mu.Unlock()
	injected := &Injected{proxy: p, fault: fault}
	p.faults = append(p.faults, injected)
	return injected
}

// Remove deactivates the fault for future requests.
func (i *Injected) Remove() {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	for at, injected := range i.proxy.faults {
		if injected == i {
			i.proxy.faults = append(i.proxy.faults[:at:at], i.proxy.faults[at+1:]...)
			return
		}
	}
}

// Hits returns how many requests the fault has affected.
func (i *Injected) Hits() int {
	i.proxy.mu.Lock()
	defer i.proxy.mu.Unlock()
	return i.hits
}

// ServeHTTP forwards a request, or applies the first matching fault to it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, resource := requestInfo(r)
	fault := p.matchingFault(verb, resource)
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
			return
		}
	}
	switch {
	case fault.Status != 0:
		refuse(w, fault)
	case fault.LoseAnswer:
		p.forward.ServeHTTP(&discardedAnswer{header: http.Header{}}, r)
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	case fault.CutAnswer && verb == "watch":
		p.cutWatch(w, r)
	case fault.CutAnswer:
		whole := httptest.NewRecorder()
		p.forward.ServeHTTP(whole, r)
		maps.Copy(w.Header(), whole.Header())
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2]) // the client went away
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case verb == "watch":
		p.serveWatch(w, r, fault.Lag)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// matchingFault counts a request and returns the fault that applies to it; the zero value if none does.
func (p *Proxy) matchingFault(verb, resource string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[[2]string{verb, resource}]++
	for _, injected := range p.faults {
		fault := injected.fault
		if !matches(fault.Verb, verb) || !matches(fault.Resource, resource) {
			continue
		}
		if fault.Times > 0 && injected.hits >= fault.Times {
			continue
		}
		if fault.Fraction > 0 && rand.Float64() >= fault.Fraction {
			continue
		}
		injected.hits++
		return fault
	}
	return Fault{}
}

func matches(wanted, is string) bool { return wanted == "" || wanted == is }

func (p *Proxy) serveWatch(w http.ResponseWriter, r *http.Request, lag time.Duration) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mu.Lock()
	number := p.opened
	p.opened++
	p.watches[number] = cancel
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, number)
	}()
	if lag > 0 {
		late := newDelayedWriter(ctx, w, lag)
		defer late.close()
		w = late
	}
	p.forward.ServeHTTP(w, r.WithContext(ctx))
	if ctx.Err() != nil && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // broken, not ended
	}
}

// cutWatch breaks the connection in the middle of a watch's initial list, or at once if there is none.
func (p *Proxy) cutWatch(w http.ResponseWriter, r *http.Request) {
	if streamed, _ := strconv.ParseBool(r.URL.Query().Get("sendInitialEvents")); streamed {
		p.forward.ServeHTTP(&halfList{ResponseWriter: w}, r)
	}
	panic(http.ErrAbortHandler)
}

// halfList buffers a list until it is complete, forwards half of it, and fails.
type halfList struct {
	http.ResponseWriter
	text []byte
}

// Write implements http.ResponseWriter. Its error aborts the answer.
func (h *halfList) Write(text []byte) (int, error) {
	h.text = append(h.text, text...)
	if !bytes.Contains(h.text, []byte(metav1.InitialEventsAnnotationKey)) { // of the bookmark at the list's end
		return len(text), nil
	}
	_, _ = h.ResponseWriter.Write(h.text[:len(h.text)/2]) // the client went away
	_ = http.NewResponseController(h.ResponseWriter).Flush()
	return 0, io.ErrShortWrite
}

// refuse answers with an error like the API server's.
func refuse(w http.ResponseWriter, fault Fault) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     int32(fault.Status),
		Reason:   reasons[fault.Status],
		Message:  "injected by the testbed's proxy",
	}
	if seconds := int(fault.RetryAfter.Seconds()); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(fault.Status)
	_ = json.NewEncoder(w).Encode(status) // the client went away
}

// reasons are the reasons by which clients distinguish errors.
var reasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusGone:                metav1.StatusReasonExpired,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// discardedAnswer discards an answer.
type discardedAnswer struct{ header http.Header }

func (d *discardedAnswer) Header() http.Header         { return d.header }
func (d *discardedAnswer) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardedAnswer) WriteHeader(int)             {}

// requestInfo returns a request's verb and resource as in RBAC: "create", "pods" or "update", "pods/status". For a
// path that is not a resource's, such as /version, the resource is the path.
func requestInfo(r *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2: // api, version
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3: // apis, group, version
		parts = parts[3:]
	default:
		return strings.ToLower(r.Method), r.URL.Path
	}
	if parts[0] == "namespaces" && len(parts) > 2 { // of something inside the namespace
		parts = parts[2:]
	}
	named := len(parts) > 1
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		watch, _ := strconv.ParseBool(r.URL.Query().Get("watch")) // an invalid value is not a watch
		switch {
		case watch:
			return "watch", resource
		case named:
			return "get", resource
		}
		return "list", resource
	case http.MethodPost:
		return "create", resource
	case http.MethodPut:
		return "update", resource
	case http.MethodDelete:
		if named {
			return "delete", resource
		}
		return "deletecollection", resource
	}
	return strings.ToLower(r.Method), resource
}
