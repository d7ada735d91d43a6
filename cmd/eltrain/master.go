package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/state"
)

// defaultListen takes a free port that only this machine reaches.
const defaultListen = "127.0.0.1:0"

// closeTimeout bounds the answering of open requests at the end.
const closeTimeout = 5 * time.Second

// master is one run of the loop, with the service that agents talk to.
type master struct {
	*session
	*directory
	args     applyArgs
	progress *view.Progress
	server   *elastic.Server
	worlds   *ledger
	saved    *planfile.File // the plan that is carried out; nil if it is made anew
}

// newMaster does nothing yet.
func newMaster(s *session, d *directory, a applyArgs) *master {
	service := d.config.Settings.Service
	worlds := new(ledger)
	return &master{
		session: s, directory: d, args: a, worlds: worlds,
		progress: view.NewProgress(s.streams.Out, d.redactor, time.Now),
		server:   elastic.NewServer(elastic.ServerOptions{Ledger: worlds, CertFile: service.TLSCert, KeyFile: service.TLSKey, Log: s.log}),
	}
}

// attend has a watch's service listen before the state's lock is held, so that a standby can be probed: it is
// alive, and is ready with its first turn. Where the holder of the lock has the address itself, on the same
// machine, a standby listens after it.
func (m *master) attend() error {
	if !m.args.watch {
		return nil
	}
	err := m.listen()
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	return err
}

// listen begins to serve, if that was not begun.
func (m *master) listen() error {
	if m.server.Addr() != nil {
		return nil
	}
	address := m.config.Settings.Service.Listen
	if m.args.listen != "" {
		address = m.args.listen
	}
	if address == "" {
		address = defaultListen
	}
	return m.server.Start(address)
}

// ledger passes worlds on to the reconciler, which needs the server that has the ledger.
type ledger struct {
	form func(jobName, uid string, w job.World) error
}

func (l *ledger) Form(jobName, uid string, w job.World) error { return l.form(jobName, uid, w) }

// run carries out what was approved, and with -watch whatever comes after that.
func (m *master) run(ctx context.Context, lock state.Lock) int {
	journal, err := state.OpenJournal(journalDirectory, state.JournalOptions{
		Epoch:   lock.Info().Epoch,
		Damaged: func(d state.Damage) { m.diagnose(view.Caution("The journal's torn end was cut off", d.String())) },
	})
	if err != nil {
		return m.fail("The journal cannot be written", err)
	}
	defer journal.Close()

	o := m.reconciling(m.session, m.args.planning)
	o.Lock, o.Journal, o.Service, o.View, o.Parallelism = lock, journal, m.server, m.view(), m.args.parallelism
	if m.saved != nil {
		o.Approve = m.stillApproved
	}
	r, err := apply.New(ctx, o)
	if err != nil {
		return m.fail("The state cannot be read", err)
	}
	m.worlds.form = r.Form
	// Agents are to find no server any more when the lock is another's to take.
	defer closeServer(m.session, m.server)
	if err := m.serve(ctx); err != nil {
		return m.fail("The elastic training service cannot start", err)
	}
	if len(m.config.Jobs) == 0 && len(r.Records()) == 0 {
		m.server.SetReady() // nobody is wanted; otherwise the first turn says who is
	}
	live, err := apply.ServeLive(r, runDirectory)
	if err != nil {
		return m.fail("The status cannot be served", err)
	}
	defer live.Close()

	var watch *apply.Watch
	if m.args.watch {
		files, err := m.watchFiles()
		if err != nil {
			return m.fail("The files cannot be watched", err)
		}
		defer files.Close()
		watch = &apply.Watch{Changed: files.Changed(), Reload: m.reload}
		fmt.Fprintln(m.streams.Out, "Watching. Interrupt to stop; jobs keep running.")
	}
	last, err := r.Run(ctx, watch)
	if m.stream != nil {
		m.stream.Concluded(m.progress.Done(), m.args.operation())
	}
	return m.conclude(ctx, last, err)
}

// view is who is told: people, and programs if they want to be.
func (m *master) view() apply.View {
	if m.stream == nil {
		return m.progress
	}
	return view.Both{m.progress, view.NewStreamProgress(m.stream, m.redactor)}
}

// serve starts the service and tells agents where it is.
func (m *master) serve(ctx context.Context) error {
	if err := m.listen(); err != nil {
		return err
	}
	service := m.config.Settings.Service
	m.cautionAddress(m.server.Addr(), service)
	reached := providers.Service{URL: advertised(m.server.URL(), service.Advertise)}
	if service.TLSCert != "" {
		// Its own certificate vouches for it, or the chain up to a root that stands in the same file.
		var err error
		if reached.Certificates, err = os.ReadFile(service.TLSCert); err != nil {
			return err
		}
	}
	for name, p := range m.providers {
		if err := p.Publish(ctx, reached); err != nil {
			return fmt.Errorf("tell the agents of provider %q where it is: %w", name, err)
		}
	}
	return nil
}

// cautionAddress says what is doubtful about where the service is reached.
func (m *master) cautionAddress(a net.Addr, service lang.Service) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return
	}
	if service.TLSCert == "" {
		m.diagnose(view.Caution("The service is reached from other machines without TLS",
			fmt.Sprintf("It listens on %s, and tokens are sent in clear text. Set tls_cert and tls_key in service { }, or listen on 127.0.0.1.", tcp)))
	}
	if tcp.IP.IsUnspecified() && service.Advertise == "" {
		m.diagnose(view.Caution("Agents on other machines cannot find the service",
			fmt.Sprintf("It listens on %s, which is all addresses and no one's. Set advertise in service { } to the name or address that agents dial, with the port.", tcp)))
	}
}

// advertised is the URL that agents dial: the server's own, or its scheme with the advertised address.
func advertised(url, address string) string {
	if address == "" {
		return url
	}
	scheme, _, _ := strings.Cut(url, "://")
	return scheme + "://" + address
}

func closeServer(s *session, server *elastic.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := server.Close(ctx); err != nil {
		s.log.Warn("closing the service", "error", err)
	}
}

func (m *master) watchFiles() (*apply.FileWatcher, error) {
	dir, err := filepath.Abs(jobDirectory)
	if err != nil {
		return nil, err
	}
	return apply.WatchFiles(dir, m.log)
}

// reload reads the files again. Its error is the text of their diagnostics; then everything stays as it is.
func (m *master) reload() ([]job.Job, error) {
	cfg, diags := m.load(m.args.vars)
	if diags.HasErrors() {
		var text bytes.Buffer
		view.WriteDiagnostics(view.Screen{Writer: &text, Width: m.streams.Out.Width}, view.DiagnoseHCL(diags, cfg.Files))
		return nil, errors.New(strings.TrimSpace(text.String()))
	}
	before, configured := configurations(m.config), configurations(cfg)
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if err := reconfigure(m.providers[name], before[name], configured[name]); err != nil {
			return nil, fmt.Errorf("provider %q: %w", name, err)
		}
	}
	m.redactor.Add(cfg.Jobs)
	return cfg.Jobs, nil
}

// reconfigure gives a provider that is open its newest configuration, where before is the one that it was opened
// with. Only the local one takes another.
func reconfigure(p providers.Provider, before, value any) error {
	if p, ok := p.(*local.Provider); ok {
		return p.SetConfig(value.(local.Config))
	}
	switch {
	case p == nil:
		return errors.New("it cannot be added while a master runs: start the master again")
	case !reflect.DeepEqual(before, value):
		return errors.New("its block cannot be changed while a master runs: start the master again")
	}
	return nil
}

// unhealthy are the phases in which a job is not what was asked for though nothing is left to be done now.
var unhealthy = map[job.JobPhase]bool{job.JobPending: true, job.JobStarting: true, job.JobDegraded: true, job.JobFailed: true}

// conclude says how a run ended and gives the exit code.
func (m *master) conclude(ctx context.Context, last plan.Plan, err error) int {
	var refused *apply.RefusedError
	switch {
	case errors.As(err, &refused):
		return m.fail(notApplied, err)
	case err != nil:
		return m.fail("Apply ended early", err)
	case m.args.watch:
		return exitDone // it was interrupted, which is how a watch ends
	case ctx.Err() != nil:
		return m.fail("Apply was interrupted", m.soFar())
	case m.args.destroy && len(last.Changes) > 0:
		return m.fail("Destroy ended early", left(last))
	case m.args.destroy:
		m.progress.Destroyed()
		return exitDone
	}
	if problems := m.problems(last); len(problems) > 0 {
		m.progress.Incomplete()
		m.diagnose(problems...)
		return exitError
	}
	m.progress.Applied()
	return exitDone
}

// soFar is what an interrupted run has done.
func (m *master) soFar() error {
	done := m.progress.Done()
	return fmt.Errorf("%d added, %d changed, %d removed before that; jobs keep running, and the next apply goes on from here",
		done.Add, done.Change, done.Remove)
}

// left is what a destroy that gave up has not done.
func left(last plan.Plan) error {
	first := &last.Changes[0]
	address := "job." + first.Job
	if first.Slot != (job.Address{}) {
		address = first.Slot.String()
	}
	if more := len(last.Changes) - 1; more > 0 {
		address += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s could not be removed, for the reason given above; the next destroy goes on from here", address)
}

// problems are the declared jobs that are not what was asked for.
func (m *master) problems(last plan.Plan) []view.Diagnostic {
	status := view.Status(view.Facts{Records: last.Records, Waits: last.Waits}, m.redactor)
	var out []view.Diagnostic
	for _, j := range status.Jobs {
		if unhealthy[j.Phase] {
			out = append(out, view.Problem(fmt.Sprintf("%s is %s", j.Address, j.Phase), strings.Join(j.Reasons, "\n")))
		}
	}
	return out
}
