package agent

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

const (
	// backoffMin and backoffMax bound the time between attempts when the service does not answer. A restarted master is up
	// within a second or two, and must not be stampeded by a job of 10,000 agents.
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second
	// notReadyMax bounds the backoff while the service is up but has not planned yet, which takes only a moment.
	notReadyMax = 400 * time.Millisecond
	// filePoll is how often the service's file is checked between attempts, to find a new master at once.
	filePoll = 250 * time.Millisecond
	// defaultBeat applies until the service has announced its beat.
	defaultBeat = 5 * time.Second
	// maxOpen requests: the one that the service holds, and one with news that supersedes it.
	maxOpen = 2
	// maxNamed bounds the files of the service's URL, token and certificates.
	maxNamed = 1 << 20
)

// outgoing is the member's current report.
type outgoing struct {
	elastic.Report
	// acknowledge: answer at once, not when the beat is due.
	acknowledge bool
}

// abilities are what this version of the agent can do for a request or an order.
var abilities = append(slices.Clone(job.ActKinds), job.CanCheck)

// session is the agent's conversation with the service: one request is always open. Results go to events.
type session struct {
	config        *job.AgentConfig
	currentReport func() outgoing
	events        chan<- event
	beats         chan<- time.Duration // the beat of each registration; never blocks
	log           *slog.Logger
	memory        *memory
	news          chan struct{} // capacity 1

	client      service                // nil if the files must be read again
	token       atomic.Pointer[string] // nil if its file must be read again
	beat        time.Duration
	unreachable bool   // a warning was logged that the service does not answer
	answered    bool   // since the registration
	seen        uint64 // version of the newest order
	seq         uint64 // number of the newest request
}

// service is what a session needs of an elastic.Client.
type service interface {
	Register(ctx context.Context, jobName string, r elastic.RegisterRequest) (elastic.RegisterReply, error)
	Sync(ctx context.Context, jobName string, r elastic.SyncRequest) (elastic.SyncReply, error)
	Close()
}

func newSession(c *job.AgentConfig, report func() outgoing, events chan<- event, beats chan<- time.Duration, log *slog.Logger) *session {
	return &session{
		config: c, currentReport: report, events: events, beats: beats, log: log, memory: newMemory(c), news: make(chan struct{}, 1),
	}
}

// reportNow sends the report now. Calls coalesce.
func (s *session) reportNow() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// run talks to the service until ctx ends, or the service permanently refuses this member.
func (s *session) run(ctx context.Context) {
	defer s.disconnect()
	backoff := backoffMin
	for ctx.Err() == nil {
		err := s.register(ctx)
		if err == nil {
			if s.unreachable {
				s.log.Info("the service is reachable again")
			}
			s.unreachable = false
			err = s.converse(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, elastic.ErrFenced):
			s.log.Warn("fenced", "reason", err)
			s.send(ctx, fenced{})
			return
		case errors.Is(err, elastic.ErrNoSuchSlot), errors.Is(err, elastic.ErrNoSuchJob):
			s.log.Warn("no longer needed", "reason", err)
			s.send(ctx, ordered{Order: elastic.Order{Do: elastic.Leave}})
			return
		case errors.Is(err, elastic.ErrUnauthorized):
			s.token.Store(nil) // its file may have another by now
		}
		s.disconnect() // the file may name another service by now
		if s.answered {
			backoff = backoffMin
		}
		if errors.Is(err, elastic.ErrRegisterFirst) && s.answered {
			s.answered = false
			continue
		}
		s.answered = false
		if !s.unreachable && !errors.Is(err, elastic.ErrNotReady) {
			s.unreachable = true
			s.log.Warn("cannot reach the service: training continues, retrying", "error", err)
		}
		if errors.Is(err, elastic.ErrNotReady) {
			backoff = min(backoff, notReadyMax)
		}
		s.pause(ctx, backoff)
		backoff = min(2*backoff, backoffMax)
	}
}

// pause waits for d/2 to 3d/2, or until the service's file has changed.
func (s *session) pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d/2+rand.N(d))
	defer cancel()
	before := s.fileStamp()
	look := time.NewTicker(filePoll)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if s.fileStamp() != before {
				return
			}
		}
	}
}

// report is the newest report, which is remembered.
func (s *session) report() outgoing {
	r := s.currentReport()
	s.memory.add(time.Now(), &r.Report)
	return r
}

// fileStamp changes when the service's file is written or replaced.
func (s *session) fileStamp() time.Time {
	info, err := os.Stat(s.config.ServiceFile)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// connect makes a client from the current files.
func (s *session) connect() error {
	if s.client != nil {
		return nil
	}
	url, err := serviceURL(s.config)
	if err != nil {
		return err
	}
	if s.token.Load() == nil && s.config.TokenFile != "" {
		text, err := regular.ReadNamed(s.config.TokenFile, maxNamed)
		if err != nil {
			return fmt.Errorf("read the token: %w", err)
		}
		token := strings.TrimSpace(string(text))
		s.token.Store(&token)
	}
	roots, err := certificates(s.config.CAFile)
	if err != nil {
		return err
	}
	client, err := elastic.NewClient(url, s.currentToken(), roots)
	if err != nil {
		return err
	}
	s.client = client
	return nil
}

// currentToken is the job's token; "" if there is none, or it must be read again. It may be called at any time.
func (s *session) currentToken() string {
	if t := s.token.Load(); t != nil {
		return *t
	}
	return ""
}

// certificates are the service's CA certificates; nil, which means the system's, if there is no file or it is empty. They are
// read for each connection: a certificate is renewed while agents run.
func certificates(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := regular.ReadNamed(file, maxNamed)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the service's certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the service's certificates: %s has none in PEM", file)
	}
	return pool, nil
}

func (s *session) disconnect() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// serviceURL is the service's current URL.
func serviceURL(c *job.AgentConfig) (string, error) {
	if c.ServiceFile == "" {
		return c.Service, nil
	}
	text, err := regular.ReadNamed(c.ServiceFile, maxNamed)
	if url := strings.TrimSpace(string(text)); url != "" {
		return url, nil
	}
	if c.Service != "" {
		return c.Service, nil
	}
	if err == nil {
		err = errors.New("the file is empty")
	}
	return "", fmt.Errorf("read the service's URL: %w", err)
}

func (s *session) register(ctx context.Context) error {
	recent, report := s.memory.recent(time.Now()), s.report().Report
	if err := s.connect(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, elastic.RegisterBound(s.beat))
	defer cancel()
	s.seq++
	reply, err := s.client.Register(ctx, s.config.Job, elastic.RegisterRequest{
		UID: s.config.UID, Slot: s.config.Slot, Incarnation: s.config.Incarnation, Seq: s.seq,
		Host: s.config.Host, Node: s.config.Node, Can: abilities, AgentPID: os.Getpid(), Recent: recent, Report: report,
	})
	if err != nil {
		return err
	}
	s.beat = defaultBeat
	if reply.BeatSeconds > 0 {
		s.beat = time.Duration(reply.BeatSeconds * float64(time.Second))
	}
	select {
	case s.beats <- s.beat:
	default:
	}
	s.seen = 0 // each master has its own versions
	return nil
}

// exchange is one request and its answer.
type exchange struct {
	cancel context.CancelFunc
	sent   outgoing
	reply  elastic.SyncReply
	err    error
}

// errUnanswered ends a conversation in which nothing was answered, whatever was sent meanwhile: the service hangs, or the network
// is cut, which may never cause an error. An agent that was suspended (SIGSTOP, a paused machine) wakes up past this time, registers,
// and learns that it is fenced.
var errUnanswered = errors.New("the service has not answered in time")

// converse syncs until an error. News do not wait for the open request: they go out in a second one, upon which the service
// answers the first.
func (s *session) converse(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	unanswered := time.NewTimer(elastic.AnswerBound(s.beat))
	defer unanswered.Stop()
	results := make(chan *exchange, maxOpen+1)
	var open []*exchange
	begun, ended := 0, 0
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			<-results
		}
	}()
	drop := func(x *exchange) bool {
		for i := range open {
			if open[i] == x {
				open = append(open[:i], open[i+1:]...)
				return true
			}
		}
		return false
	}
	startSync := func() {
		if len(open) == maxOpen {
			// A third request: the answer to the oldest is late, and nothing new.
			open[0].cancel()
			drop(open[0])
		}
		x := &exchange{sent: s.report()}
		open = append(open, x)
		begun++
		s.exchange(ctx, x, results)
	}

	startSync()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-unanswered.C:
			return errUnanswered
		case <-s.news:
			startSync()
		case x := <-results:
			ended++
			wanted := drop(x)
			if x.err == nil {
				unanswered.Reset(elastic.AnswerBound(s.beat))
			}
			if !wanted {
				break
			}
			if x.err != nil {
				return x.err
			}
			s.take(ctx, x)
			if len(open) == 0 {
				startSync()
			}
		}
	}
}

// exchange sends x's report and puts x into results when it is answered or has failed.
func (s *session) exchange(ctx context.Context, x *exchange, results chan<- *exchange) {
	s.seq++
	request := elastic.SyncRequest{
		UID: s.config.UID, Slot: s.config.Slot, Incarnation: s.config.Incarnation,
		Seen: s.seen, Seq: s.seq, Report: x.sent.Report,
	}
	if x.sent.acknowledge {
		request.Seen = 0 // any order is newer, so the answer comes at once
	}
	ctx, x.cancel = context.WithCancel(ctx)
	client := s.client
	go func() {
		defer x.cancel()
		x.reply, x.err = client.Sync(ctx, s.config.Job, request)
		results <- x
	}()
}

// take handles an answer. If two answers cross, the older order is dropped.
func (s *session) take(ctx context.Context, x *exchange) {
	s.answered = true
	s.send(ctx, answered{x.sent.State, len(x.sent.PIDs)})
	if x.reply.Version > s.seen {
		s.seen = x.reply.Version
		s.send(ctx, ordered{x.reply.Order, x.reply.Members})
	}
}

func (s *session) send(ctx context.Context, e event) {
	select {
	case s.events <- e:
	case <-ctx.Done():
	}
}
