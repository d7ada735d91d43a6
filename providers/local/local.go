// Package local runs agents as detached processes of this machine, on declared nodes.
//
// What runs is known from files in the run directory and from the process table, never from this process's
// memory alone: the next master finds everything again. A process is identified by its pid, its start time and its
// boot, so that one with a reused pid is never touched. The package is for Linux (5.4 and later: it needs
// pidfds) and must not know plans, the service or any policy.
package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Name is the value of a job's provider argument and of Node.Provider.
const Name = "local"

// Options configure a Provider.
type Options struct {
	Dir    string   // the job directory
	RunDir string   // the directory of run-time files; .eltrain in Dir if ""
	Agent  []string // the agent's program and its leading arguments; eltrain-agent beside this program, or this program and "agent", if nil
	Config Config
	Logger *slog.Logger // slog.Default() if nil
}

// Provider is the local provider. Make it with New and Close it.
type Provider struct {
	jobDirectory string
	runDir       string
	site         string
	agent        []string
	log          *slog.Logger
	boot         string
	limits       limiter
	changes      chan struct{}

	watcher *watcher
	notify  *fsnotify.Watcher // on directories where an agent has yet to write its record
	reaper  *reaper
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	owned   sync.WaitGroup

	mu           sync.Mutex
	service      *providers.Service // published by this process; nil before
	nodes        []job.Node
	seen         *providers.Observation // the latest; nil before the first
	incarnations map[key]*incarnation
	byProcess    map[*process]*incarnation
}

var _ providers.Provider = (*Provider)(nil)

// New starts the goroutines that watch processes. It launches nothing, and touches nothing that runs except the
// remains of dead agents.
func New(o Options) (*Provider, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("local provider: %w", err)
	}
	runDir := filepath.Join(dir, runDirName)
	if o.RunDir != "" {
		if runDir, err = filepath.Abs(o.RunDir); err != nil {
			return nil, fmt.Errorf("local provider: %w", err)
		}
	}
	agent := slices.Clone(o.Agent)
	if len(agent) > 0 && strings.Contains(agent[0], "/") { // it is run in other directories
		if agent[0], err = filepath.Abs(agent[0]); err != nil {
			return nil, fmt.Errorf("local provider: %w", err)
		}
	}
	if len(agent) == 0 {
		if agent, err = ownAgent(); err != nil {
			return nil, fmt.Errorf("local provider: find the agent's program: %w", err)
		}
	}
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("local provider: this system has no pidfds, as Linux 5.4 and later have: %w", err)
	}
	unix.Close(fd)
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("local provider: %w", err)
	}
	site, err := siteOf(runDir)
	if err != nil {
		return nil, fmt.Errorf("local provider: %w", err)
	}
	p := &Provider{
		jobDirectory: dir, runDir: runDir, site: site, agent: agent, log: log, boot: boot, limits: newLimiter(),
		changes:      make(chan struct{}, 1),
		incarnations: map[key]*incarnation{}, byProcess: map[*process]*incarnation{},
	}
	if err := p.SetConfig(o.Config); err != nil {
		return nil, err
	}
	p.removeForgotten()
	if p.notify, err = fsnotify.NewWatcher(); err != nil {
		return nil, fmt.Errorf("local provider: watch files: %w", err)
	}
	if p.watcher, err = newWatcher(p.processEnded); err != nil {
		p.notify.Close()
		return nil, fmt.Errorf("local provider: %w", err)
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.reaper = newReaper(p)
	p.owned.Go(func() { p.reaper.run(p.ctx) })
	p.owned.Go(p.readNotifications)
	return p, nil
}

// ownAgent is the eltrain-agent beside this program, which is built with it and needs less memory in every slot; if there
// is none, this program.
func ownAgent() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if small, err := exec.LookPath(filepath.Join(filepath.Dir(self), "eltrain-agent")); err == nil {
		return []string{small}, nil
	}
	return []string{self, "agent"}, nil
}

// SetConfig replaces the declared nodes. What runs on a node that is no longer declared keeps running and is
// still observed.
func (p *Provider) SetConfig(c Config) error {
	nodes, err := c.nodes()
	if err != nil {
		return fmt.Errorf("local provider: %w", err)
	}
	p.mu.Lock()
	same := reflect.DeepEqual(nodes, p.nodes)
	p.nodes = nodes
	p.mu.Unlock()
	if !same { // the master rereads its files periodically
		p.changed()
	}
	return nil
}

// Capabilities: the planner places; images and pods are not supported. Caveats say which limits are not enforced.
func (p *Provider) Capabilities() job.Capabilities {
	return job.Capabilities{Places: true, Site: p.site, Caveats: p.limits.caveats()}
}

// Changes implements providers.Provider.
func (p *Provider) Changes() <-chan struct{} { return p.changes }

// changed signals a change. It never blocks: values coalesce.
func (p *Provider) changed() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// Publish replaces the files that agents read, the certificates first, so that an agent with the new URL has them too.
func (p *Provider) Publish(_ context.Context, s providers.Service) error {
	if err := regular.MakePrivate(p.runDir, p.runDir); err != nil { // not by New: a master that only observes needs no write permission
		return fmt.Errorf("make the run directory: %w", err)
	}
	if err := writeOnce(filepath.Join(p.runDir, siteFile), p.site); err != nil {
		return fmt.Errorf("record where the run directory is: %w", err)
	}
	p.mu.Lock()
	first := p.service == nil
	p.service = &s
	p.mu.Unlock()
	if first {
		if err := p.retireTokens(); err != nil {
			return fmt.Errorf("replace the jobs' tokens: %w", err)
		}
	}
	for _, f := range serviceFiles(s) {
		path := filepath.Join(p.runDir, f.name)
		atomicfile.Sweep(path) // left by killed masters: there is one at a time
		if err := atomicfile.Write(path, f.text, 0o600); err != nil {
			return fmt.Errorf("publish the service's address: %w", err)
		}
	}
	return nil
}

// retireTokens removes the tokens that agents have sent in clear, to a service of a version without TLS: Prepare makes others.
// An agent whose token is refused reads it again.
func (p *Provider) retireTokens() error {
	if text, _ := regular.Read(filepath.Join(p.runDir, serviceFile), maxRecord); !bytes.HasPrefix(text, []byte("http:")) {
		return nil
	}
	uids, err := list(filepath.Join(p.runDir, "jobs"))
	for _, uid := range uids {
		if gone := os.Remove(filepath.Join(p.jobDir(uid), tokenFile)); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

type namedText struct {
	name string
	text []byte
}

// serviceFiles are the files through which agents find the service.
func serviceFiles(s providers.Service) []namedText {
	return []namedText{{certificatesFile, s.Certificates}, {serviceFile, []byte(s.URL + "\n")}}
}

// republish rewrites the service's files if they differ from what was published: a master that was suspended during Publish
// may write its address after another has taken over.
func (p *Provider) republish(ctx context.Context) error {
	p.mu.Lock()
	s := p.service
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	for _, f := range serviceFiles(*s) {
		if there, err := regular.Read(filepath.Join(p.runDir, f.name), maxRecord); err != nil || !bytes.Equal(there, f.text) {
			return p.Publish(ctx, *s)
		}
	}
	return nil
}

// Prepare makes the job's directory and its token, with mode 0600. It republishes the service's address if its files differ.
func (p *Provider) Prepare(ctx context.Context, g job.Group) (string, error) {
	token, err := p.prepare(g.UID, g.Name)
	if err == nil {
		err = p.republish(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("prepare job.%s: %w", g.Name, err)
	}
	return token, nil
}

func (p *Provider) prepare(uid, name string) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	dir := p.jobDir(uid)
	if err := regular.MakePrivate(p.runDir, filepath.Join(dir, "slots")); err != nil {
		return "", err
	}
	if err := writeOnce(filepath.Join(dir, nameFile), name); err != nil {
		return "", err
	}
	path := filepath.Join(dir, tokenFile)
	if err := writeOnce(path, rand.Text()); err != nil {
		return "", err
	}
	token, err := regular.Read(path, maxRecord)
	return strings.TrimSpace(string(token)), err
}

// writeOnce makes a file atomically unless it exists. When two race, both find the text of the first.
func writeOnce(path, text string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := atomicfile.Create(path, []byte(text+"\n"), 0o600); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Forget removes the job's directory. It fails while anything of the job runs. Logs stay.
func (p *Provider) Forget(ctx context.Context, uid, name string) error {
	if err := p.forget(ctx, uid); err != nil {
		return fmt.Errorf("forget job.%s: %w", name, err)
	}
	return nil
}

func (p *Provider) forget(ctx context.Context, uid string) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	seen, err := p.Observe(ctx)
	if err != nil {
		return err
	}
	for i := range seen.Incarnations.All() {
		if i.UID == uid && i.State != job.Gone {
			return fmt.Errorf("%s incarnation %d still runs (pid %d)", i.Slot, i.Number, i.AgentPID)
		}
	}
	if err := p.removeJobCgroups(uid); err != nil {
		return err
	}
	// Renamed first: a partly removed directory must not be observed.
	forgotten := filepath.Join(p.runDir, "jobs", "."+uid)
	err = os.Rename(p.jobDir(uid), forgotten)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	for k := range p.incarnations {
		if k.uid == uid {
			delete(p.incarnations, k)
		}
	}
	p.mu.Unlock()
	p.changed()
	return os.RemoveAll(forgotten)
}

// removeJobCgroups removes the cgroups of launches that were cut short; the others were removed with their incarnation.
func (p *Provider) removeJobCgroups(uid string) error {
	keys, err := p.keys()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.uid != uid {
			continue
		}
		if err := p.removeCgroupsOf(p.incarnation(k)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) removeCgroupsOf(i *incarnation) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if found, err := i.readLaunch(); err != nil || !found {
		return err
	}
	return p.sweep(i)
}

// removeForgotten completes a Forget that was cut short.
func (p *Provider) removeForgotten() {
	left, _ := filepath.Glob(filepath.Join(p.runDir, "jobs", ".*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			p.log.Warn("Cannot remove what is left of a forgotten job.", "error", err)
		}
	}
}

// Close stops all that New started. Agents keep running.
func (p *Provider) Close() error {
	p.cancel()
	err := p.notify.Close()
	p.owned.Wait()
	p.watcher.close()
	return err
}
