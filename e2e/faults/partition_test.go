package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/loopback"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/internal/trusting"
)

// relay is a proxy at the address that agents get, in front of the master. It can cut off single agents, since there is no
// firewall between pods on this one machine.
type relay struct {
	server  *httptest.Server
	forward *httputil.ReverseProxy

	mu     sync.Mutex
	cut    []string // "worker[2] 1": slots with their incarnations
	open   map[int]passing
	opened int // number of requests so far
}

// passing is a request in flight.
type passing struct {
	agent  string
	hangUp func()
}

// newRelay returns a relay with the master's own certificate.
func newRelay(t *testing.T, master, certFile, keyFile string) *relay {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{open: map[int]passing{}}
	r.forward = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: master})
	r.forward.Transport = trusting.ClientOf(t, certFile).Transport
	r.forward.ErrorLog = log.New(io.Discard, "", 0) // errors while the master does not listen yet
	r.server = httptest.NewUnstartedServer(r)
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	r.server.Config.ErrorLog = r.forward.ErrorLog
	r.server.StartTLS()
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

func (r *relay) address() string { return r.server.Listener.Addr().String() }

// cutOff stops these agents from reaching the master.
func (r *relay) cutOff(agents ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = agents
	for _, p := range r.open {
		if slices.Contains(agents, p.agent) {
			p.hangUp()
		}
	}
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var from struct {
		Slot        string `json:"slot"`
		Incarnation int    `json:"incarnation"`
	}
	if err := json.Unmarshal(body, &from); err != nil {
		panic(http.ErrAbortHandler)
	}
	ctx, hangUp := context.WithCancel(request.Context())
	defer hangUp()
	agent := fmt.Sprintf("%s %d", from.Slot, from.Incarnation)
	r.mu.Lock()
	cut, open := slices.Contains(r.cut, agent), r.opened
	r.opened++
	r.open[open] = passing{agent, hangUp}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, open)
	}()
	if cut {
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	r.forward.ServeHTTP(w, request.WithContext(ctx))
}

// Half of a job's agents cannot reach the master, but still reach each other: their processes train on with the others until
// their leases expire. Then they are replaced, the zombies exit, and the job's losses are right.
func TestHalfOfTheAgentsCutOffFromTheService(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	s := newTrial(t, calm.start(t))
	listen := loopback.Free(t)
	host, _, err := net.SplitHostPort(listen)
	s.OK(err)
	s.Certify("127.0.0.1", host)
	r := newRelay(t, listen, filepath.Join(s.Dir, "service.pem"), filepath.Join(s.Dir, "service.key"))
	service := fmt.Sprintf("eltrain {\n  service {\n    advertise = %q\n    tls_cert = \"service.pem\"\n    tls_key = \"service.key\"\n  }", r.address())
	s.Write("job.hcl", strings.Replace(settings, "eltrain {", service, 1)+provider()+s.training(2, 4))
	m := s.Watch("-listen=" + listen)
	before := s.AwaitWorld(4, 1)
	s.MakesProgress()               // all have noted their start: a step needs each
	begun := len(s.noted("starts")) // of this world, and of a smaller one before it if an agent came late
	zombies := s.Processes()        // of all slots: the others restart for the next world
	for _, lost := range []site.Slot{before.Worker(2), before.Worker(3)} {
		agent, err := s.Cluster.Kubelet.PID(s.Namespace, lost.Name, podsite.MainContainer)
		s.OK(err)
		zombies[agent] = "agent of " + lost.Address
	}
	lease, err := time.ParseDuration(briefly)
	s.OK(err)
	from, cut := s.Step(), time.Now()
	r.cutOff("worker[2] 1", "worker[3] 1")
	to := from
	site.Until(t, "the next world's processes start", func() bool {
		if len(s.noted("starts")) > begun {
			return true
		}
		to = s.Step()
		return false
	})
	if lasted := time.Since(cut); lasted < lease/2 || to < from+site.ProgressSteps { // up to a third of the lease had passed at the cut
		t.Errorf("of a lease of %v the world trained on for %v, from step %d to %d", lease, lasted, from, to)
	}
	after := s.AwaitWorld(4, before.Generation+1)
	for pid := range zombies {
		site.AwaitExit(t, pid)
	}
	for _, slot := range after.Slots {
		lost := strings.HasSuffix(slot.Address, "[2]") || strings.HasSuffix(slot.Address, "[3]")
		if want := 1 + map[bool]int{true: 1}[lost]; slot.Incarnation != want {
			t.Errorf("%s is incarnation %d, wanted %d", slot.Address, slot.Incarnation, want)
		}
	}
	var culprits []string // of one incident, or of two if the leases expire at different times
	for _, i := range after.Incidents {
		if i.Cause != "lease_lost" {
			t.Errorf("an incident is %+v", i)
		}
		culprits = append(culprits, i.Culprits...)
	}
	slices.Sort(culprits)
	if want := []string{before.Worker(2).Address, before.Worker(3).Address}; !slices.Equal(culprits, want) {
		t.Errorf("the incidents %+v blame %q, wanted %q", after.Incidents, culprits, want)
	}
	s.EndsRight(steps)
	m.Interrupt()
	s.destroyed()
}
