// Package metrics serves what a master knows to Prometheus, on an address of its own and without a token: whoever reaches it can
// read, and nothing else. It must not know how a master leads.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/connlimit"
	"github.com/eltrain/eltrain/job"
)

// Bounds of scrapes: of their number at once, and of what a client may take for one.
const (
	maxScrapes     = 4
	maxConnections = 64
	maxHeader      = 8 << 10
	requestTimeout = 5 * time.Second
	replyTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Options are those of an Exporter.
type Options struct {
	Version string
	BySlot  bool                // also metrics of each training process
	Service prometheus.Gatherer // those of the elastic training service
	// Redactor hides sensitive values in what conditions are about.
	Redactor *view.Redactor
	Log      *slog.Logger
}

// Exporter serves the metrics of one master.
type Exporter struct {
	options   Options
	incidents incidents
	http      *http.Server
	serving   sync.WaitGroup
	addr      net.Addr

	mu     sync.Mutex
	source Source // nil until the master leads
}

// New returns an Exporter that does not listen yet.
func New(o Options) *Exporter {
	e := &Exporter{options: o}
	own := prometheus.NewRegistry()
	own.MustRegister(collector{e})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{own, o.Service}, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	}))
	e.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: replyTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return e
}

// Start listens on an address and serves until Close.
func (e *Exporter) Start(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err // it names the address
	}
	e.addr = listener.Addr()
	listener = connlimit.Limit(listener, maxConnections, func() {
		e.options.Log.Warn("the metrics have as many connections as they may: others wait", "connections", maxConnections)
	})
	e.serving.Go(func() {
		if err := e.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.options.Log.Error("the metrics are not served any more", "error", err)
		}
	})
	return nil
}

// Addr is where it listens; nil before Start.
func (e *Exporter) Addr() net.Addr { return e.addr }

// Lead has the metrics of jobs and nodes come from a source.
func (e *Exporter) Lead(s Source) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.source = s
}

func (e *Exporter) leading() Source {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.source
}

// Close stops serving, and ends scrapes that do not end until ctx does.
func (e *Exporter) Close(ctx context.Context) error {
	err := e.http.Shutdown(ctx)
	if err != nil {
		e.http.Close()
		err = fmt.Errorf("close the metrics: %w", err)
	}
	e.serving.Wait()
	return err
}

// Counting returns a view that counts incidents for the metrics, and passes everything on.
func (e *Exporter) Counting(v apply.View) apply.View { return counting{v, &e.incidents} }

type counting struct {
	apply.View
	to *incidents
}

func (c counting) Noticed(n job.Notice) {
	c.to.noticed(n)
	c.View.Noticed(n)
}

// incidents counts incidents. One that is reported again, with another cause, stays counted by the first.
type incidents struct {
	mu     sync.Mutex
	counts map[incident]int
	last   map[lastOf]job.Incident
}

// lastOf is a job, and a cause that is only reported; "" for what healing acts on.
type lastOf struct {
	job      string
	reported job.Cause
}

type incident struct {
	job           string
	cause, action string
}

func (c *incidents) noticed(n job.Notice) {
	i := n.Incident
	const prefix = "job."
	if i == nil || len(n.Address) <= len(prefix) {
		return
	}
	name := n.Address[len(prefix):]
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts, c.last = map[incident]int{}, map[lastOf]job.Incident{}
	}
	kind := lastOf{job: name}
	if i.Action == job.Report {
		kind.reported = i.Cause
	}
	if last, known := c.last[kind]; known && (last.Time.Equal(i.Time) || i.Generation > 0 && last.Generation == i.Generation) {
		return
	}
	c.last[kind] = *i
	c.counts[incident{name, string(i.Cause), string(i.Action)}]++
}

// collect sends the counts of jobs that are recorded, and forgets those of others.
func (c *incidents) collect(s sink, records job.Records) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, n := range c.counts {
		if records[i.job] == nil {
			delete(c.counts, i)
			maps.DeleteFunc(c.last, func(of lastOf, _ job.Incident) bool { return of.job == i.job })
			continue
		}
		s.set(jobIncidents, float64(n), i.job, i.cause, i.action)
	}
}
