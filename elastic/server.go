package elastic

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/internal/connlimit"
	"github.com/eltrain/eltrain/job"
)

const (
	maxHeader     = 8 << 10
	headerTimeout = 5 * time.Second
	// readTimeout bounds reading a request, from its first byte, and writeTimeout its answer, from when that is known; between
	// them a sync may be held open for longer. Both apply before authentication, so they bound strangers as well.
	readTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	// idleTimeout closes connections of members that vanished. A live agent has a request open nearly all the time.
	idleTimeout = 2 * time.Minute
)

// ServerOptions configure a Server.
type ServerOptions struct {
	// Ledger is called by one goroutine, without any lock of the server.
	Ledger Ledger
	// Certificates are the service's. nil is an Authority that nobody else has the key of.
	Certificates Certificates
	// Reconcile answers POST /v1/reconcile for clients with Webhook's token. Without Webhook all are refused.
	Reconcile func(context.Context, ReconcileRequest) ReconcileReply
	Webhook   func() (token string, err error)
	Log       *slog.Logger // nil discards
}

// Server is the HTTP interface of a Coordinator. All methods are safe for concurrent use.
type Server struct {
	opts    ServerOptions
	log     *slog.Logger
	handler http.Handler
	http    *http.Server
	traffic *traffic
	wake    chan struct{}
	sooner  chan struct{} // a Tick is due earlier than before
	writing chan struct{} // forming is not empty
	closing chan struct{} // closed by Close: open requests are answered
	closed  sync.Once
	running sync.WaitGroup
	addr    net.Addr

	mu       sync.Mutex
	c        *Coordinator
	ready    bool
	signaled uint64 // the Changes last signaled on wake
	polls    map[Told]*poll
	forming  []Forming
}

// poll is a member's open request.
type poll struct {
	incarnation int
	answer      chan struct{} // capacity 1: the order may have changed
}

// NewServer returns a server that does not listen yet.
func NewServer(opts ServerOptions) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Certificates == nil {
		opts.Certificates = &Authority{Key: newKey}
	}
	s := &Server{
		opts:    opts,
		log:     opts.Log,
		wake:    make(chan struct{}, 1),
		sooner:  make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
		closing: make(chan struct{}),
		c:       NewCoordinator(),
		polls:   map[Told]*poll{},
	}
	s.traffic = newTraffic(s)
	s.handler = s.routes()
	s.http = &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,  // until the body is read
		WriteTimeout:      writeTimeout, // set again by reply
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	// A member has one request open on one connection: HTTP/2 would only add buffers.
	s.http.Protocols.SetHTTP1(true)
	return s
}

// Start listens on addr ("127.0.0.1:0" takes any free port) and serves until Close.
func (s *Server) Start(addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err // it names the address
	}
	most := connlimit.Descriptors()
	listener = connlimit.Limit(listener, most, func() {
		s.log.Warn("the service has as many connections as the limit on open files allows: others wait", "connections", most)
	})
	if err := s.opts.Certificates.start(listener.Addr()); err != nil {
		listener.Close()
		return err
	}
	listener = tls.NewListener(listener, &tls.Config{GetCertificate: s.opts.Certificates.certificate, MinVersion: tls.VersionTLS12})
	s.running.Go(func() { s.opts.Certificates.watch(s.closing) })
	s.addr = listener.Addr()
	s.running.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the service stopped listening", "error", err)
		}
	})
	s.running.Go(s.runTicks)
	s.running.Go(s.writeWorlds)
	return nil
}

// Addr is the address that the server listens on; nil before Start.
func (s *Server) Addr() net.Addr { return s.addr }

// URL is the server's address for clients that can reach the listening address.
func (s *Server) URL() string { return "https://" + s.addr.String() }

// Certificates are the service's CA certificates, in PEM; nil before Start.
func (s *Server) Certificates() []byte { return s.opts.Certificates.roots() }

// Handler is the server's handler, for use without Start.
func (s *Server) Handler() http.Handler { return s.handler }

// Close answers open requests with the current order, and waits for all goroutines, up to ctx.
func (s *Server) Close(ctx context.Context) error {
	s.closed.Do(func() { close(s.closing) })
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	ended := make(chan struct{})
	go func() {
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done(): // a ledger that does not return
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("close the service: %w", err)
	}
	return nil
}

// SetReady opens the service: the desired state is known. Before, everything but health is answered with 503.
func (s *Server) SetReady() {
	s.mu.Lock()
	s.ready = true
	s.unlock()
}

// Set updates the desired state of a job.
func (s *Server) Set(jobName string, d Desired) {
	s.mu.Lock()
	s.c.Set(time.Now(), jobName, d)
	s.unlock()
}

// Remove drops a job.
func (s *Server) Remove(jobName string) {
	s.mu.Lock()
	s.c.Remove(jobName)
	s.unlock()
}

// Gone reports that nothing of an incarnation is running. The caller must be certain.
func (s *Server) Gone(slot job.Address, incarnation int, succeeded bool) {
	s.mu.Lock()
	s.c.Gone(time.Now(), slot, incarnation, succeeded)
	s.unlock()
}

// Changes returns a different number once a fact that a plan depends on has changed.
func (s *Server) Changes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.Changes()
}

// Observe returns the facts about all jobs.
func (s *Server) Observe() map[string]Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.Observe()
}

// Usage returns what the training processes of all jobs do and use; see Coordinator.Usage.
func (s *Server) Usage() map[string]Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.Usage()
}

// Points is the history of a training process since a time.
func (s *Server) Points(rank history.Rank, since time.Time) []history.Point {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c.history.Points(rank, since)
}

// Wake receives a value when a fact that a plan depends on has changed. Values coalesce.
func (s *Server) Wake() <-chan struct{} { return s.wake }

// unlock releases s.mu after the coordinator was stepped, and dispatches the resulting work.
func (s *Server) unlock() {
	work := s.c.Ready()
	for _, t := range work.Told {
		if p := s.polls[t]; p != nil {
			nudge(p.answer)
		}
	}
	s.forming = append(s.forming, work.Form...)
	if changes := s.c.Changes(); changes != s.signaled {
		s.signaled = changes
		nudge(s.wake)
	}
	if work.Sooner {
		nudge(s.sooner)
	}
	if len(s.forming) > 0 {
		nudge(s.writing)
	}
	s.mu.Unlock()
}

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runTicks calls Tick when it is due.
func (s *Server) runTicks() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-timer.C:
		case <-s.sooner:
		}
		s.mu.Lock()
		now := time.Now()
		next := s.c.Tick(now)
		s.unlock()
		timer.Reset(next.Sub(now))
	}
}

// writeWorlds writes worlds to the ledger, one after the other.
func (s *Server) writeWorlds() {
	for {
		select {
		case <-s.closing:
			return
		case <-s.writing:
		}
		s.mu.Lock()
		forming := s.forming
		s.forming = nil
		s.mu.Unlock()
		for _, f := range forming {
			err := s.opts.Ledger.Form(f.Job, f.UID, f.World)
			if err != nil {
				s.log.Warn("cannot record a world: not announced, retrying", "job", f.Job, "generation", f.World.Generation, "error", err)
			}
			s.mu.Lock()
			s.c.Formed(time.Now(), f, err)
			s.unlock()
		}
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/jobs/{job}/register", s.route("register", http.MethodPost, s.register))
	mux.Handle("/v1/jobs/{job}/sync", s.route("sync", http.MethodPost, s.sync))
	mux.Handle("/v1/jobs/{job}/members", s.route("members", http.MethodGet, s.members))
	mux.Handle("/v1/reconcile", s.route("reconcile", http.MethodPost, s.reconcile))
	mux.Handle("/metrics", s.route("metrics", http.MethodGet, s.metrics))
	mux.Handle("/healthz", s.route("healthz", http.MethodGet, s.health))
	mux.Handle("/readyz", s.route("readyz", http.MethodGet, s.readiness))
	mux.Handle("/", s.route("other", "", func(w http.ResponseWriter, r *http.Request) error {
		return &Error{NoSuchPath, fmt.Sprintf("%.100q is not a path of this service", r.URL.Path)}
	}))
	return mux
}

// errClientGone: the client disconnected. It is counted as 499, nginx's status for that.
var errClientGone = errors.New("the connection broke before the answer")

const statusClientGone = 499

// handler answers a request, or returns an *Error or errClientGone instead.
type handler func(w http.ResponseWriter, r *http.Request) error

// route counts requests, checks the method and turns errors into replies. An empty method allows all.
func (s *Server) route(name, method string, h handler) http.Handler {
	count := s.traffic.of(name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		status := http.StatusOK
		var err error
		if method != "" && r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
			w.Header().Set("Allow", method)
			err = &Error{MethodNotAllowed, fmt.Sprintf("%.20q is not a method of this path: use %s", r.Method, method)}
		} else {
			err = h(w, r)
		}
		if r.Body != http.NoBody {
			// What has not arrived of a body that nobody wants is not waited for: the connection is closed after the answer.
			http.NewResponseController(w).SetReadDeadline(time.Now()) // best effort: a test's recorder has no deadlines
		}
		switch {
		case errors.Is(err, errClientGone):
			status = statusClientGone
		case err != nil:
			status = refuse(w, err)
		}
		count.done(status, time.Since(begun))
	})
}

// statusOf is the HTTP status of a refusal.
var statusOf = map[Code]int{
	Malformed:        http.StatusBadRequest,
	Unauthorized:     http.StatusUnauthorized,
	NoSuchJob:        http.StatusNotFound,
	NoSuchSlot:       http.StatusNotFound,
	NoSuchPath:       http.StatusNotFound,
	MethodNotAllowed: http.StatusMethodNotAllowed,
	RegisterFirst:    http.StatusConflict,
	Fenced:           http.StatusGone,
	TooLarge:         http.StatusRequestEntityTooLarge,
	NotReady:         http.StatusServiceUnavailable,
}

func refuse(w http.ResponseWriter, err error) int {
	var refusal *Error
	if !errors.As(err, &refusal) {
		panic(fmt.Sprintf("elastic: %v is not a refusal", err)) // a bug of ours
	}
	status := statusOf[refusal.Code]
	switch refusal.Code {
	case Unauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case NotReady:
		w.Header().Set("Retry-After", "1")
	}
	reply(w, status, ErrorReply{refusal.Code, refusal.Message})
	return status
}

func reply(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("elastic: a reply does not encode: %v", err)) // our own types always encode
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // best effort, as in route
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(raw)+1))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(raw, '\n')) // a broken connection shows at the member's next request
}

// bearer returns the request's token; "" if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// authorize checks the token for the job in the path, before reading the body.
func (s *Server) authorize(r *http.Request) error {
	token := bearer(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return &Error{NotReady, "the service is starting: the desired state is not known yet"}
	}
	return s.c.Authorize(r.PathValue("job"), token)
}

// receive authorizes a request and reads its body.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, into interface{ check() error }) error {
	if err := s.authorize(r); err != nil {
		return err
	}
	return readBody(w, r, into)
}

// readBody reads the body of an authorized request.
func readBody(w http.ResponseWriter, r *http.Request, into interface{ check() error }) error {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &Error{TooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	}
	if err != nil {
		return &Error{Malformed, "the body could not be read: " + err.Error()}
	}
	r.Body = http.NoBody // all of it is read
	if err := decode(raw, into); err != nil {
		return err
	}
	return into.check()
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) error {
	var req RegisterRequest
	if err := s.receive(w, r, &req); err != nil {
		return err
	}
	s.mu.Lock()
	out, err := s.c.Register(time.Now(), r.PathValue("job"), req)
	s.unlock()
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, out)
	return nil
}

// sync records a member's report, and answers once there is an order that it has not seen, a newer request of the same member
// came, the beat is due, or the server closes.
func (s *Server) sync(w http.ResponseWriter, r *http.Request) error {
	var req SyncRequest
	if err := s.receive(w, r, &req); err != nil {
		return err
	}
	name := r.PathValue("job")
	slot, err := job.ParseShort(name, req.Slot)
	if err != nil {
		return &Error{Malformed, err.Error()}
	}
	who := Told{name, slot}
	s.mu.Lock()
	overtaken := s.c.overtaken(name, slot, req.Incarnation, req.Seq)
	out, err := s.c.Sync(time.Now(), name, req)
	if err == nil && !overtaken {
		s.supersede(who, req.Incarnation)
	}
	if err != nil || overtaken || out.Version != req.Seen {
		s.unlock()
		if err != nil {
			return err
		}
		reply(w, http.StatusOK, out)
		return nil
	}
	hold := s.c.Hold(name)
	p := &poll{incarnation: req.Incarnation, answer: make(chan struct{}, 1)}
	s.polls[who] = p
	s.unlock()

	timer := time.NewTimer(hold)
	defer timer.Stop()
	gone := false
	select {
	case <-p.answer:
	case <-timer.C:
	case <-s.closing:
	case <-r.Context().Done():
		gone = true
	}

	s.mu.Lock()
	if s.polls[who] == p {
		delete(s.polls, who)
		if gone {
			s.c.Disconnected(time.Now(), slot, req.Incarnation)
		}
	}
	if gone {
		s.unlock()
		return errClientGone
	}
	out, err = s.c.Order(name, req.UID, slot, req.Incarnation)
	s.unlock()
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, out.since(req.Seen))
	return nil
}

// supersede answers the open request of the same or an older incarnation. s.mu is held.
func (s *Server) supersede(t Told, incarnation int) {
	if p := s.polls[t]; p != nil && p.incarnation <= incarnation {
		nudge(p.answer)
		delete(s.polls, t)
	}
}

func (s *Server) members(w http.ResponseWriter, r *http.Request) error {
	if err := s.authorize(r); err != nil {
		return err
	}
	s.mu.Lock()
	out, err := s.c.Membership(r.PathValue("job"))
	s.mu.Unlock()
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, out)
	return nil
}

// reconcile passes on a request to read the files and plan now.
func (s *Server) reconcile(w http.ResponseWriter, r *http.Request) error {
	if err := s.authorizeWebhook(r); err != nil {
		return err
	}
	var req ReconcileRequest
	if err := readBody(w, r, &req); err != nil && err != errNoBody {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	var watching sync.WaitGroup
	watching.Go(func() { // Close does not wait for a plan
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	out := s.opts.Reconcile(ctx, req)
	cancel()
	watching.Wait()
	reply(w, http.StatusAccepted, out)
	return nil
}

// authorizeWebhook checks the reconcile token, before reading the body.
func (s *Server) authorizeWebhook(r *http.Request) error {
	if s.opts.Webhook == nil {
		return &Error{Unauthorized, "reconcile requests are disabled: service { reconcile_token_file } is not set, or no watch is running"}
	}
	want, err := s.opts.Webhook()
	if err != nil { // the client's token may be right
		s.log.Warn("reconcile request refused: cannot read its token", "error", err)
		return &Error{NotReady, "the token of service { reconcile_token_file } cannot be read or is not secure; see the master's output"}
	}
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(bearer(r)))
	if want == "" || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return &Error{Unauthorized, "the bearer token is not the one of service { reconcile_token_file }"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return &Error{NotReady, "the service is starting: the desired state is not known yet"}
	}
	return nil
}

// Health is the body of /healthz and /readyz.
type Health struct {
	Status string `json:"status"`
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	reply(w, http.StatusOK, Health{"ok"})
	return nil
}

func (s *Server) readiness(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	if !ready {
		return &Error{NotReady, "the service is starting: the desired state is not known yet"}
	}
	reply(w, http.StatusOK, Health{"ready"})
	return nil
}

// jitter keeps members that were notified at the same time from beating in step ever after.
func jitter(beat time.Duration) time.Duration {
	return beat - rand.N(beat/5+1)
}
