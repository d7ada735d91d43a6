package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/providers/volcano"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
	"github.com/eltrain/eltrain/state/kubernetes"
)

// Workspace is an opened job directory: its configuration, its state and its providers.
type Workspace struct {
	Config    *lang.Config
	Sealer    *job.Sealer // of the sensitive values in the jobs
	Store     state.Store
	Providers map[string]providers.Provider // nil until Connect
	Prior     state.Values                  // the values in the state when it was last read
	ReadOnly  bool                          // nothing made from it is stored

	log      *slog.Logger
	version  string
	requests *Requests // nil until they are used
}

// Open opens the state, which is enough to wait for its lock, but no provider. Its diagnostics are errors: why it cannot be used.
func (d *Directory) Open(cfg *lang.Config) (*Workspace, []view.Diagnostic) {
	if err := regular.CheckPrivate(RunDirectory); err != nil {
		return nil, problem("Unsafe directory of run-time files", fmt.Errorf("%w. Or set ELTRAIN_DATA_DIR to another directory", err))
	}
	if refused := slices.Concat(cfg.StateErrors, d.misplaced(cfg)); len(refused) > 0 {
		return nil, view.DiagnoseHCL(refused, cfg.Files)
	}
	store, err := openStore(cfg.Settings.State)
	if err != nil {
		return nil, problem("Cannot open the state", err)
	}
	return &Workspace{Config: cfg, Sealer: new(job.Sealer), Store: store, log: d.Log, version: d.Version}, nil
}

func problem(summary string, err error) []view.Diagnostic {
	return []view.Diagnostic{view.Problem(summary, view.Explain(err))}
}

// Connect opens the providers.
func (w *Workspace) Connect() (err error) {
	w.Providers, err = w.openProviders()
	return err
}

// Seal replaces the sensitive values of the workspace's jobs by seals. Plans, comparisons, records and messages have only
// the seals from then on.
func (w *Workspace) Seal(ctx context.Context) error {
	jobs, err := w.Sealed(ctx, w.Config.Jobs)
	if err != nil {
		return fmt.Errorf("seal sensitive values: %w", err)
	}
	w.Config.Jobs = jobs
	return nil
}

// Sealed returns jobs with their sensitive values replaced by seals. The workspace's sealer remembers the values.
func (w *Workspace) Sealed(ctx context.Context, jobs []job.Job) ([]job.Job, error) {
	if slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Sensitive() }) && !w.Sealer.Keyed() {
		key, err := w.key(ctx)
		if err != nil {
			return nil, err
		}
		w.Sealer.SetKey(key)
	}
	return w.Sealer.Jobs(jobs), nil
}

// key returns the key that sensitive values are sealed with. A read-only command does not store a new one: without a key
// nothing in the state is sealed, so a temporary key will do.
func (w *Workspace) key(ctx context.Context) ([]byte, error) {
	if !w.ReadOnly {
		return w.Store.MakeKey(ctx)
	}
	key, err := w.Store.Key(ctx)
	if key == nil && err == nil {
		key = state.NewKey()
	}
	return key, err
}

// openStore opens the store that the settings name.
func openStore(settings lang.State) (state.Store, error) {
	if settings.Type == "kubernetes" {
		return kubernetes.New(kubernetes.Options{
			Kubeconfig: settings.Kubeconfig, Context: settings.Context, Namespace: settings.Namespace, Name: settings.Name,
		})
	}
	return file.New(cmp.Or(settings.Path, DefaultState), file.Options{})
}

// Configurations returns the providers' configurations by name. The local provider is always there: without a block it is
// this machine as detected.
func Configurations(cfg *lang.Config) map[string]any {
	configured := map[string]any{local.Name: local.Config{}}
	for _, p := range cfg.Providers {
		configured[p.Name] = p.Value
	}
	return configured
}

// openProviders opens the configured providers.
func (w *Workspace) openProviders() (map[string]providers.Provider, error) {
	owner, err := ownerOf(w.Config.Settings.State)
	if err != nil {
		return nil, err
	}
	opened := map[string]providers.Provider{}
	for name, value := range Configurations(w.Config) {
		p, err := w.openProvider(name, value, owner)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened[name] = p
	}
	return opened, nil
}

// openProvider opens one provider. owner is the state in whose name it launches.
func (w *Workspace) openProvider(name string, value any, owner string) (providers.Provider, error) {
	switch c := value.(type) {
	case local.Config:
		return local.New(local.Options{Dir: JobDirectory, RunDir: RunDirectory, Config: c, Logger: w.log})
	case pods.Config:
		return pods.New(pods.Options{Config: c, Logger: w.log, Version: w.version, Owner: owner})
	case volcano.Config:
		return volcano.New(volcano.Options{Config: c, Logger: w.log, Version: w.version, Owner: owner})
	}
	return nil, fmt.Errorf("provider %q has a configuration of the unknown type %T", name, value)
}

func closeAll(opened map[string]providers.Provider) error {
	var errs []error
	for name, p := range opened {
		if err := p.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close provider %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Close releases what the workspace holds in this process. What is running keeps running.
func (w *Workspace) Close() {
	w.requests.close()
	if err := closeAll(w.Providers); err != nil {
		w.log.Warn("closing", "error", err)
	}
}

// Records reads the jobs' records from the state.
func (w *Workspace) Records(ctx context.Context) (job.Records, error) {
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return nil, err
	}
	w.Prior = stored.Values
	return stored.Jobs, nil
}
