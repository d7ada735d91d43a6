// Package master leads the jobs of a workspace: it serves their agents, carries out what is planned under the state's lock, and
// follows the files.
package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/metrics"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/state"
)

// defaultListen is a free port, reachable only from this machine.
const defaultListen = "127.0.0.1:0"

// keyTimeout bounds reading the state's key: for the service's certificate, and when an edit adds the first sensitive value.
const keyTimeout = 10 * time.Second

// closeTimeout bounds answering the open requests at shutdown.
const closeTimeout = 5 * time.Second

// Options are what a Master leads with.
type Options struct {
	Directory *workspace.Directory
	Workspace *workspace.Workspace
	// Files follows the files; without it a Master leads the jobs as they are declared in the setup.
	Files *workspace.Child
	// Approve checks the first plan of a Master that does not follow the files, before anything is stored or done.
	Approve     func(*plan.Input, *plan.Plan) error
	Listen      string // instead of the settings' address
	Parallelism int    // see apply.Parts
	View        apply.View
	Leads       func() // is called before the first turn
	Diagnose    func(...view.Diagnostic)
	Redactor    *view.Redactor
	Version     string // of eltrain
	Log         *slog.Logger
}

// Master is one run of the loop, with the service that agents talk to.
type Master struct {
	o        Options
	server   *elastic.Server
	worlds   *ledger
	asked    *webhook
	hooks    *hooks
	renewals *renewals
	metrics  *metrics.Exporter // nil unless a watch leads, and the files have an address for it
	driver   *apply.Driver     // nil until it leads
	inForce  *lang.Config      // the newest configuration without errors
	further  []string          // what else than the job directory it was read from; absolute
}

// New returns a Master. It starts nothing.
func New(o Options) *Master {
	service := o.Workspace.Config.Settings.Service
	m := &Master{o: o, worlds: new(ledger), asked: new(webhook), hooks: new(hooks), renewals: new(renewals), inForce: o.Workspace.Config}
	serve := elastic.ServerOptions{Ledger: m.worlds, Certificates: authority(o.Workspace), Log: o.Log}
	if service.TLSCert != "" {
		serve.Certificates = elastic.NewCertificateFiles(service.TLSCert, service.TLSKey, m.renewals.tell, o.Log)
	}
	if file := service.ReconcileTokenFile; file != "" && m.follows() {
		m.asked.tokenFile = file
		serve.Reconcile, serve.Webhook = m.asked.answer, m.asked.token
	}
	m.server = elastic.NewServer(serve)
	return m
}

// Records returns the jobs' records as they are now. Leads must have been called.
func (m *Master) Records() job.Records { return m.driver.Records() }

// follows reports whether this Master follows the files.
func (m *Master) follows() bool { return m.o.Files != nil }

// InForce returns the newest configuration without errors.
func (m *Master) InForce() *lang.Config { return m.inForce }

// Attend makes a watch's service listen before it holds the state's lock, so that a standby can be probed: it is live, and
// becomes ready with its first turn. If the lock's holder has the address, on the same machine, the standby listens after it.
func (m *Master) Attend() error {
	if !m.follows() {
		return nil
	}
	if file := m.o.Workspace.Config.Settings.Service.ReconcileTokenFile; file != "" {
		if _, err := webhookToken(file); err != nil {
			return err
		}
	}
	err := m.listen()
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	return err
}

// listen starts serving unless attend already did.
func (m *Master) listen() error {
	if m.server.Addr() != nil {
		return nil
	}
	address := m.o.Workspace.Config.Settings.Service.Listen
	if m.o.Listen != "" {
		address = m.o.Listen
	}
	if address == "" {
		address = defaultListen
	}
	err := m.server.Start(address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another process has this address, perhaps another master. Choose another port with -listen or service { listen }", err)
	}
	return err
}

// ledger passes worlds on to the reconciler. It breaks a cycle: the reconciler needs the server, which needs the ledger.
type ledger struct {
	form func(jobName, uid string, w job.World) error
}

func (l *ledger) Form(jobName, uid string, w job.World) error { return l.form(jobName, uid, w) }

// OpenJournal opens the journal for the holder of the state's lock. It diagnoses an entry that was left incomplete.
func OpenJournal(lock state.Lock, diagnose func(...view.Diagnostic)) (*state.Journal, error) {
	if err := regular.MakePrivate(workspace.RunDirectory, workspace.JournalDirectory); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return state.OpenJournal(workspace.JournalDirectory, state.JournalOptions{
		Epoch: lock.Info().Epoch,
		Damaged: func(d state.Damage) {
			diagnose(view.Caution("Removed an incomplete entry at the end of the journal", d.String()))
		},
	})
}

// StartError says why a Master could not lead. Nothing was done.
type StartError struct {
	Summary string
	Err     error
}

func (e *StartError) Error() string { return e.Summary + ": " + e.Err.Error() }

func (e *StartError) Unwrap() error { return e.Err }

// Lead carries out what setup describes, until nothing is left to do or ctx ends. It returns the last plan, with the records as
// they are at the end. An error is a StartError, or says why it ended early.
func (m *Master) Lead(ctx context.Context, lock state.Lock, setup apply.Setup) (last plan.Plan, err error) {
	failed := func(summary string, err error) (plan.Plan, error) { return plan.Plan{}, &StartError{summary, err} }
	w := m.o.Workspace
	journal, err := OpenJournal(lock, m.o.Diagnose)
	if err != nil {
		return failed("Cannot write the journal", err)
	}
	defer journal.Close()

	// The server must be down before the lock is released.
	defer m.Close()
	if err := m.listen(); err != nil {
		return failed("Cannot start the elastic training service", err)
	}
	m.inForce = w.Config
	m.hooks.set(w.Config)
	shown := m.o.View
	if settings := w.Config.Settings.Service; settings.Metrics != "" && setup.Watch { // others end before anybody scrapes them
		m.metrics = metrics.New(metrics.Options{
			Version: m.o.Version, BySlot: settings.MetricsBySlot, Service: m.server.Traffic(), Redactor: m.o.Redactor, Log: m.o.Log,
		})
		if err := m.metrics.Start(settings.Metrics); err != nil {
			return failed("Cannot serve the metrics", err)
		}
		shown = m.metrics.Counting(shown)
	}
	parts := apply.Parts{Store: w.Store, Lock: lock, Journal: journal, Service: m.server, Reached: m.reached(m.server.Certificates()), Providers: w.Providers,
		View: shown, Sealer: w.Sealer, Parallelism: m.o.Parallelism, Approve: m.o.Approve, Requests: w.Requests(), Notify: m.notify, Sample: m.sample}
	declared := setup.Files
	parts.Reload = func(context.Context) (apply.Files, error) { return declared, nil }
	if m.follows() {
		files, err := m.watchFiles()
		if err != nil {
			return failed("Cannot watch the files", err)
		}
		defer files.Close()
		parts.Changed, parts.Reload, parts.Check = files.Changed(), func(ctx context.Context) (apply.Files, error) { return m.reload(ctx, files) }, m.conditions
		setup.Files.Commit = workspace.Commit(ctx, w.Config)
	}
	d, err := apply.NewDriver(ctx, setup, parts)
	if err != nil {
		return failed("Cannot read the state", err)
	}
	m.driver = d
	m.worlds.form, m.asked.reconcile, m.asked.report = d.Form, d.Reconcile, d.ReportWebhook
	m.cautionAddress(m.server.Addr(), w.Config.Settings.Service)
	m.renewals.follow(func(certificates []byte) { d.Republish(m.reached(certificates)) })
	live, err := apply.ServeLive(d.Live, d.Nodes, d.Usage, workspace.RunDirectory)
	if err != nil {
		return failed("Cannot serve the status", err)
	}
	defer live.Close()
	if m.metrics != nil {
		m.metrics.Lead(d)
	}
	m.o.Leads()
	last, err = d.Run(ctx)
	if setup.Watch {
		last.Records = d.Records() // last may be empty (interrupted before the first plan) or older than the last outcomes
	}
	w.KeepObservation(d.Observed())
	return last, err
}

// authority makes the service's certificates if no files have one. Its key is the state's: agents that one master has launched
// trust the next, wherever it runs.
func authority(d *workspace.Workspace) *elastic.Authority {
	names := []string{d.Config.Settings.Service.Advertise}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return &elastic.Authority{Names: names, Key: func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
		defer cancel()
		return d.Store.MakeKey(ctx)
	}}
}

// reached returns how agents reach the service: its URL, and the certificates that they trust: its authority's, or those of
// tls_cert.
func (m *Master) reached(certificates []byte) providers.Service {
	return providers.Service{URL: advertised(m.server.URL(), m.o.Workspace.Config.Settings.Service.Advertise), Certificates: certificates}
}

// renewals passes renewed certificates on to be published. A master that waits for the lock publishes none.
type renewals struct {
	mu      sync.Mutex
	publish func(certificates []byte) // nil until this master leads
}

func (r *renewals) tell(certificates []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.publish != nil {
		r.publish(certificates)
	}
	return nil
}

// follow publishes later renewals with publish.
func (r *renewals) follow(publish func(certificates []byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publish = publish
}

// cautionAddress warns about an address that agents cannot dial.
func (m *Master) cautionAddress(a net.Addr, service lang.Service) {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && service.Advertise == "" {
		m.o.Diagnose(view.Caution("Agents on other machines cannot find the service",
			fmt.Sprintf("It listens on %s, which is not an address that agents can dial. Set advertise in service { } to a name or address that they can, with the port.", tcp)))
	}
}

// advertised returns the URL that agents dial: the server's own, or with the advertised address.
func advertised(url, address string) string {
	if address == "" {
		return url
	}
	return "https://" + address
}

// Close stops serving. What is running keeps running.
func (m *Master) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := m.server.Close(ctx); err != nil {
		m.o.Log.Warn("Cannot close the service", "error", err)
	}
	if m.metrics != nil {
		if err := m.metrics.Close(ctx); err != nil {
			m.o.Log.Warn("Cannot close the metrics", "error", err)
		}
	}
}
