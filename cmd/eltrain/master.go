package main

import (
	"bytes"
	"cmp"
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
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

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

// defaultListen is a free port, reachable only from this machine.
const defaultListen = "127.0.0.1:0"

// keyTimeout bounds reading the state's key: for the service's certificate, and when an edit adds the first sensitive value.
const keyTimeout = 10 * time.Second

// closeTimeout bounds answering the open requests at shutdown.
const closeTimeout = 5 * time.Second

// master is one run of the loop, with the service that agents talk to.
type master struct {
	*session
	*directory
	args     applyArgs
	progress *view.Progress
	server   *elastic.Server
	worlds   *ledger
	asked    *webhook
	renewals *renewals
	inForce  *lang.Config          // the newest configuration without errors
	further  []string              // what else than the job directory it was read from; absolute
	saved    *planfile.File        // the plan to carry out; nil if the loop makes it
	shown    []plan.Wait           // waits of the plan that was shown
	withheld map[string]job.Reason // jobs that -max-destroy holds back in that plan, with the reason
}

// newMaster starts nothing.
func newMaster(s *session, d *directory, a applyArgs) *master {
	service := d.config.Settings.Service
	worlds, asked, renewals := new(ledger), new(webhook), new(renewals)
	o := elastic.ServerOptions{Ledger: worlds, Certificates: d.authority(), Log: s.log}
	if service.TLSCert != "" {
		o.Certificates = elastic.NewCertificateFiles(service.TLSCert, service.TLSKey, renewals.tell, s.log)
	}
	if file := service.ReconcileTokenFile; file != "" && a.watch {
		asked.tokenFile = file
		o.Reconcile, o.Webhook = asked.answer, asked.token
	}
	return &master{
		session: s, directory: d, args: a, worlds: worlds, asked: asked, renewals: renewals,
		progress: view.NewProgress(s.streams.Out, &s.redactor, time.Now),
		inForce:  d.config,
		server:   elastic.NewServer(o),
	}
}

// attend makes a watch's service listen before it holds the state's lock, so that a standby can be probed: it is live, and
// becomes ready with its first turn. If the lock's holder has the address, on the same machine, the standby listens after it.
func (m *master) attend() error {
	if !m.args.watch {
		return nil
	}
	if file := m.config.Settings.Service.ReconcileTokenFile; file != "" {
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

// openJournal opens the journal for the holder of the state's lock.
func (s *session) openJournal(lock state.Lock) (*state.Journal, error) {
	return state.OpenJournal(journalDirectory, state.JournalOptions{
		Epoch: lock.Info().Epoch,
		Damaged: func(d state.Damage) {
			s.diagnose(view.Caution("Removed an incomplete entry at the end of the journal", d.String()))
		},
	})
}

// run carries out what was approved, and continues with -watch. It reports the result only after it released the lock: a
// blocked terminal must not hold up the next run.
func (m *master) run(ctx context.Context, lock state.Lock) int {
	conclude := m.lead(ctx, lock)
	m.unlock(lock)
	return conclude()
}

// lead is the part of a run that needs the lock. conclude reports how it ended and returns the exit code.
func (m *master) lead(ctx context.Context, lock state.Lock) (conclude func() int) {
	failed := func(summary string, err error) func() int { return func() int { return m.fail(summary, err) } }
	journal, err := m.openJournal(lock)
	if err != nil {
		return failed("Cannot write the journal", err)
	}
	defer journal.Close()

	// The server must be down before the lock is released.
	defer closeServer(m.session, m.server)
	if err := m.listen(); err != nil {
		return failed("Cannot start the elastic training service", err)
	}
	m.inForce = m.config
	setup := m.setup(m.args.planning, state.State{})
	setup.Shown = m.shown
	parts := apply.Parts{Store: m.store, Lock: lock, Journal: journal, Service: m.server, Reached: m.reached(m.server.Certificates()), Providers: m.providers,
		View: m.view(), Sealer: m.sealer, Parallelism: m.args.parallelism}
	if m.args.watch {
		files, err := m.watchFiles()
		if err != nil {
			return failed("Cannot watch the files", err)
		}
		defer files.Close()
		parts.Changed, parts.Reload, parts.Check = files.Changed(), func(ctx context.Context) (apply.Files, error) { return m.reload(ctx, files) }, m.conditions
		setup.Files.Commit = commitOf(ctx, m.config)
	} else {
		parts.Approve = m.stillApproved
	}
	d, err := apply.NewDriver(ctx, setup, parts)
	switch {
	case err != nil && ctx.Err() != nil:
		return func() int { return m.interruptedEarly(m.args, "before it started") }
	case err != nil:
		return failed("Cannot read the state", err)
	}
	m.worlds.form, m.asked.reconcile, m.asked.report = d.Form, d.Reconcile, d.ReportWebhook
	m.cautionAddress(m.server.Addr(), m.config.Settings.Service)
	m.renewals.follow(func(certificates []byte) { d.Republish(m.reached(certificates)) })
	live, err := apply.ServeLive(d.Live, runDirectory)
	if err != nil {
		return failed("Cannot serve the status", err)
	}
	defer live.Close()
	if m.args.watch {
		fmt.Fprintln(m.streams.Out, "Watching. Interrupt to stop; jobs keep running.")
	}
	last, err := d.Run(ctx)
	if m.args.watch {
		last.Records = d.Records() // last may be empty (interrupted before the first plan) or older than the last outcomes
	}
	m.keepObservation(d.Observed())
	return func() int { return m.conclude(ctx, last, err) }
}

// view shows progress as text, and as JSON if requested.
func (m *master) view() apply.View {
	if m.stream == nil {
		return m.progress
	}
	return view.Both{m.progress, view.NewStreamProgress(m.stream, &m.redactor)}
}

// authority makes the service's certificates if no files have one. Its key is the state's: agents that one master has launched
// trust the next, wherever it runs.
func (d *directory) authority() *elastic.Authority {
	names := []string{d.config.Settings.Service.Advertise}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	return &elastic.Authority{Names: names, Key: func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
		defer cancel()
		return d.store.MakeKey(ctx)
	}}
}

// reached returns how agents reach the service: its URL, and the certificates that they trust: its authority's, or those of
// tls_cert.
func (m *master) reached(certificates []byte) providers.Service {
	return providers.Service{URL: advertised(m.server.URL(), m.config.Settings.Service.Advertise), Certificates: certificates}
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
func (m *master) cautionAddress(a net.Addr, service lang.Service) {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && service.Advertise == "" {
		m.diagnose(view.Caution("Agents on other machines cannot find the service",
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

func closeServer(s *session, server *elastic.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := server.Close(ctx); err != nil {
		s.log.Warn("Cannot close the service", "error", err)
	}
}

func (m *master) watchFiles() (*apply.FileWatcher, error) {
	m.cautionSwap()
	files, err := apply.WatchFiles(m.home(), m.log)
	if paths := m.watched(furtherOf(m.config)); err == nil && paths != nil {
		m.further = paths[1:]
		files.Further(m.further)
	}
	return files, err
}

// cautionSwap warns about files that would be left behind if the job directory, a link, was pointed elsewhere.
func (m *master) cautionSwap() {
	real, err := filepath.EvalSymlinks(m.home())
	if err != nil || real == filepath.Clean(m.home()) {
		return
	}
	settings := m.config.Settings.State
	var left []string
	if !filepath.IsAbs(runDirectory) {
		left = append(left, runDirectory)
	}
	if path := cmp.Or(settings.Path, defaultState); settings.Type != "kubernetes" && !filepath.IsAbs(path) {
		left = append(left, path)
	}
	if len(left) == 0 {
		return
	}
	m.diagnose(view.Caution("The job directory is a symbolic link", fmt.Sprintf(
		"%s points to %s. When the link is replaced, as git-sync does, %s stay in the old directory and may be deleted with it. Keep them elsewhere: set ELTRAIN_DATA_DIR, and path in state \"file\" { }. See docs/gitops.md.",
		m.home(), real, strings.Join(left, " and "))))
}

// reload reads the files again, and watches those that they now refer to. After an error the configuration in force stays.
func (m *master) reload(ctx context.Context, files *apply.FileWatcher) (apply.Files, error) {
	now, err := m.args.reader.read(ctx, m.session, m.args.vars, nil)
	switch {
	case err != nil:
		return apply.Files{}, err
	case now.Unsteady != nil:
		return apply.Files{}, now.Unsteady
	case len(now.Paths) == 0: // the directory is gone: once it is back everything is read again
		now.Paths = append([]string{m.home()}, m.further...)
	}
	cfg, further := now.config, now.Paths[1:]
	diags := append(now.Diagnostics, view.DiagnoseHCL(emptied(m.inForce, cfg), nil)...)
	lost := lostJobs(addressesOf(m.inForce.Jobs), cfg)
	either := slices.Compact(slices.Sorted(slices.Values(slices.Concat(m.further, further))))
	if !view.HaveErrors(diags) && len(lost) > 0 {
		files.Further(either) // the missing jobs may be written to any of them
		if err := files.Still(now.Print, lost); err != nil {
			return apply.Files{}, err
		}
	}
	read := apply.Files{Commit: now.Commit, Caution: now.Caution}
	if view.HaveErrors(diags) {
		files.Further(either) // the correction may be written to any of them
		var text bytes.Buffer
		view.WriteDiagnostics(view.Kept(&text), m.redactor.Diagnostics(diags))
		return read, &apply.UnusableError{Brief: m.redactor.Hide(brief(cfg, diags)), Text: strings.TrimSpace(text.String())}
	}
	files.Further(further)
	read.Blocks, read.Outputs = blocksOf(cfg), outputsOf(cfg)
	if detail, _ := misnamed(cfg, addressesOf(m.inForce.Jobs), lost); detail != "" {
		read.Misnamed = job.Because(apply.RemovedMisnamed, "message", detail)
	}
	if read.Jobs, err = m.sealed(ctx, cfg.Jobs); err != nil {
		return read, err
	}
	if err := reconfigure(m.providers, configurations(m.config), configurations(cfg)); err != nil {
		return read, err
	}
	m.inForce, m.further = cfg, further
	return read, nil
}

// emptied returns an error for each file of zero bytes that was not empty when it was last in force. A person who removes all
// blocks removes the file, or leaves a line in it; zero bytes are left by an editor or a disk that failed midway.
func emptied(before, now *lang.Config) (diags hcl.Diagnostics) {
	if len(before.Directories) == 0 || len(now.Directories) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(now.Sizes)) {
		within, err := filepath.Rel(now.Directories[0], name)
		if err != nil || now.Sizes[name] > 0 || before.Sizes[filepath.Join(before.Directories[0], within)] == 0 {
			continue
		}
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: within + " is empty",
			Detail: "It was not empty when it was last applied: an editor or a full disk may have truncated it. To remove everything it declared, remove the file.",
		})
	}
	return diags
}

// lostJobs returns the names of the jobs in before that are no longer in the files, and that no moved or removed block
// mentions. before has their addresses by name.
func lostJobs(before map[string]string, now *lang.Config) (lost []string) {
	declared, said := addressesOf(now.Jobs), blocksOf(now)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := declared[name]; !is && said.Moved[name] == "" && !said.Forgets(name, before[name]) {
			lost = append(lost, name)
		}
	}
	return lost
}

// addressesOf returns the addresses of jobs as declared, by name.
func addressesOf(jobs []job.Job) map[string]string {
	addresses := map[string]string{}
	for i := range jobs {
		addresses[jobs[i].Name] = jobs[i].Address
	}
	return addresses
}

// reconfigure gives the open providers their new configurations; before has those that they were opened with. Only the local
// provider accepts a change. It gets it last, once no other provider had to refuse.
func reconfigure(open map[string]providers.Provider, before, configured map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		_, takes := open[name].(*local.Provider)
		switch {
		case open[name] == nil:
			return fmt.Errorf("provider %q: cannot be added while a master is running: restart the master", name)
		case !takes && !reflect.DeepEqual(before[name], configured[name]):
			return fmt.Errorf("provider %q: its block cannot change while a master is running: restart the master", name)
		}
	}
	for name, value := range configured {
		if p, takes := open[name].(*local.Provider); takes {
			if err := p.SetConfig(value.(local.Config)); err != nil {
				return fmt.Errorf("provider %q: %w", name, err)
			}
		}
	}
	return nil
}

// unhealthy are the phases of a job that is not as configured although an apply has nothing left to do.
var unhealthy = map[job.JobPhase]bool{job.JobPending: true, job.JobStarting: true, job.JobDegraded: true, job.JobFailed: true}

// conclude reports how a run ended and returns the exit code.
func (m *master) conclude(ctx context.Context, last plan.Plan, err error) int {
	var notApproved *apply.RefusedError
	var refused *RefusedPlanError
	switch {
	case errors.As(err, &refused):
		m.refused(m.inForce, refused.Refusals)
		return exitError
	case errors.As(err, &notApproved) && m.saved == nil:
		return m.fail("Planning failed", err)
	case errors.As(err, &notApproved):
		return m.notApplied(m.args, err)
	case err != nil:
		return m.fail(m.args.title()+" ended early", makeRoom(err))
	case m.args.watch: // interrupted, the normal end of a watch
		m.progress.Unwatched(last.Records)
		if m.stream != nil {
			m.stream.Unwatched(m.progress.Done())
		}
		return exitDone
	case ctx.Err() != nil && m.args.destroy:
		return m.fail("Destroy was interrupted", m.soFar("slots that were stopping have ended, the rest keeps running. Run eltrain destroy again: an apply would start the ended ones again"))
	case ctx.Err() != nil:
		next := "jobs keep running, and the next apply continues from here"
		if m.progress.Done().Remove > 0 {
			next = "slots that were stopping have ended, the rest keeps running; the next apply continues from here and starts those again that are declared"
		}
		return m.fail("Apply was interrupted", m.soFar(next))
	case m.args.destroy && len(last.Changes) > 0:
		return m.fail("Destroy ended early", left(last))
	case m.args.destroy:
		if held := m.heldBack(last); len(held) > 0 {
			m.progress.DestroyIncomplete()
			m.diagnose(held...)
			return exitError
		}
		m.progress.Destroyed()
		if m.stream != nil {
			m.stream.Destroyed(m.progress.Done())
		}
		return m.done()
	}
	if problems := m.problems(last); len(problems) > 0 {
		m.progress.Incomplete()
		m.diagnose(problems...)
		return exitError
	}
	conditions := unmet(m.inForce, last.Records)
	m.diagnose(view.DiagnoseHCL(conditions, m.inForce.Files)...)
	if conditions.HasErrors() {
		m.progress.Incomplete()
		return exitError
	}
	m.progress.Applied()
	if m.stream != nil {
		m.stream.Applied(m.progress.Done())
	}
	m.showOutputs()
	return m.done()
}

// done returns the exit code of a successful run.
func (m *master) done() int {
	m.diagnose(m.args.incomplete()...)
	if m.args.detailedExitCode && m.progress.Done() != (plan.Summary{}) {
		return exitChanges
	}
	return exitDone
}

// soFar returns an error that says what an interrupted run has done, and what is next.
func (m *master) soFar(next string) error {
	done := m.progress.Done()
	return fmt.Errorf("%d added, %d changed, %d destroyed before that; %s", done.Add, done.Change, done.Remove, next)
}

// left returns an error that names what a destroy could not destroy.
func left(last plan.Plan) error {
	first := &last.Changes[0]
	address := "job." + first.Job
	if first.Slot != (job.Address{}) {
		address = first.Slot.String()
	}
	if more := len(last.Changes) - 1; more > 0 {
		address += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s could not be destroyed, for the reason shown above; the next destroy continues from here", address)
}

// heldBack returns an error for each job whose changes in scope were not made because they cannot be made alone. Those that
// -max-destroy holds back are reported by problems.
func (m *master) heldBack(last plan.Plan) []view.Diagnostic {
	var out []view.Diagnostic
	for _, w := range last.Waits {
		if w.Held && !slices.ContainsFunc(w.Reasons, m.withheld[w.Job].Equal) {
			out = append(out, m.problem(w.Job, "job."+w.Job+" was only partly changed", m.redactor.Sentences(w.Reasons)...))
		}
	}
	return out
}

// problem returns an error about a job, with the line that declares it.
func (m *master) problem(name, summary string, details ...string) view.Diagnostic {
	found := view.DiagnoseHCL(hcl.Diagnostics{{
		Severity: hcl.DiagError, Summary: summary, Detail: strings.Join(details, "\n"), Subject: lineOf(m.inForce, sourceOf(m.inForce, name)),
	}}, m.inForce.Files)
	found[0].Address = "job." + name
	return found[0]
}

// problems returns an error for each job in scope that is not as configured.
func (m *master) problems(last plan.Plan) []view.Diagnostic {
	status := view.Status(view.Facts{Records: last.Records, Waits: last.Waits}, &m.redactor)
	out := m.heldBack(last)
	scope := plan.Scope{Targets: m.args.targets, Excludes: m.args.excludes}.Named(m.inForce.Jobs, last.Records)
	for _, j := range status.Jobs {
		name := strings.TrimPrefix(j.Address, "job.")
		// The phase is out of date for a job that can never run, or that runs where its provider does not look.
		never := slices.ContainsFunc(last.Waits, func(w plan.Wait) bool { return w.Never && w.Job == name })
		is := fmt.Sprintf("%s is %s", j.Address, j.Phase)
		switch {
		case !scope.Touches(name):
		case unhealthy[j.Phase] && !m.withheld[name].IsZero():
			out = append(out, m.problem(name, is, fmt.Sprintf("-max-destroy=%d holds it back, as the plan above shows.", *m.args.maxDestroy)))
		case unhealthy[j.Phase]:
			out = append(out, m.problem(name, is, j.Reasons...))
		case never:
			out = append(out, m.problem(name, j.Address+" is not as configured", j.Reasons...))
		}
	}
	return out
}
