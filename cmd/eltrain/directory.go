package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/providers/volcano"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
	"github.com/eltrain/eltrain/state/kubernetes"
)

// jobDirectory is where the files are, after -chdir.
const jobDirectory = "."

// runDirectory is where run-time files are: beside the job files, or, where a deployment replaces that directory as a whole,
// in ELTRAIN_DATA_DIR, which is like Terraform's TF_DATA_DIR.
var runDirectory = cmp.Or(os.Getenv("ELTRAIN_DATA_DIR"), ".eltrain")

// journalDirectory is where the journal of a job directory is.
var journalDirectory = filepath.Join(runDirectory, "journal")

// options returns the options for reading the directory: the session's variables and the providers compiled in.
func (s *session) options(vars assignments) lang.Options {
	return lang.Options{
		Assignments: vars,
		Environ:     s.environ,
		Version:     version,
		Within:      s.within,
		Advice: lang.Advice{
			OtherDirectory: "Use -chdir=DIR for another one.",
			Outside:        "Use -root=PATH to allow a further file or directory, or -untrusted=false for files that were reviewed.",
			EndAll:         "To end all jobs, use eltrain destroy.",
			Assign:         "Or use -var 'NAME=VALUE'.",
		},
		Providers: map[string]reflect.Type{
			local.Name:   reflect.TypeFor[local.Config](),
			pods.Name:    reflect.TypeFor[pods.Config](),
			volcano.Name: reflect.TypeFor[volcano.Config](),
		},
	}
}

// directory is an opened job directory: its configuration, its state and its providers.
type directory struct {
	config    *lang.Config
	sealer    *job.Sealer // of the sensitive values in the jobs
	store     state.Store
	providers map[string]providers.Provider
	prior     map[string]state.Output // the outputs in the state when it was last read
	readOnly  bool                    // read-only: nothing made from it is stored
}

// readValid reads the configuration for a command that only shows it. It shows errors and returns ok false for any except
// variables without a value.
func (s *session) readValid(vars assignments) (cfg *lang.Config, ok bool) {
	cfg, diags := s.load(vars)
	diags = lang.WithoutUnset(diags)
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	return cfg, !diags.HasErrors()
}

// readAnyway reads the configuration for a read-only command. It uses what is valid and ignores errors, because the files
// may be in the middle of an edit.
func (s *session) readAnyway(vars assignments) *lang.Config {
	cfg, diags := s.read(vars)
	if lang.Unsound(diags) {
		cfg.Providers = nil // part of a provider's block is worse than none
	}
	return cfg
}

// open opens the state and the providers. It shows errors and returns ok false.
func (s *session) open(cfg *lang.Config) (d *directory, ok bool) {
	if d, ok = s.openState(cfg); !ok {
		return nil, false
	}
	return d, s.connect(d)
}

// openState opens the directory without its providers, which is enough to wait for the state's lock.
func (s *session) openState(cfg *lang.Config) (*directory, bool) {
	if err := regular.CheckPrivate(runDirectory); err != nil {
		s.fail("Unsafe directory of run-time files", fmt.Errorf("%w. Or set ELTRAIN_DATA_DIR to another directory", err))
		return nil, false
	}
	if refused := s.misplaced(cfg); len(refused) > 0 {
		s.diagnose(view.DiagnoseHCL(refused, cfg.Files)...)
		return nil, false
	}
	store, err := openStore(cfg.Settings.State)
	if err != nil {
		s.fail("Cannot open the state", err)
		return nil, false
	}
	return &directory{config: cfg, sealer: new(job.Sealer), store: store}, true
}

// connect opens the providers. It shows the error if one cannot be used.
func (s *session) connect(d *directory) (ok bool) {
	var err error
	if d.providers, err = s.openProviders(d.config); err != nil {
		s.fail("Cannot use a provider", err)
		return false
	}
	return true
}

// reread applies the current files, except the eltrain block, with which the state was opened.
func (s *session) reread(d *directory, a planning) (ok bool) {
	cfg, ok := s.readFor(a)
	if !ok {
		return false
	}
	cfg.Settings = d.config.Settings
	d.config = cfg
	return true
}

// seal replaces the sensitive values of the directory's jobs by seals. Plans, comparisons, records and messages have only
// the seals from then on.
func (d *directory) seal(ctx context.Context) error {
	jobs, err := d.sealed(ctx, d.config.Jobs)
	if err != nil {
		return fmt.Errorf("seal sensitive values: %w", err)
	}
	d.config.Jobs = jobs
	return nil
}

// sealed returns jobs with their sensitive values replaced by seals. The directory's sealer remembers the values.
func (d *directory) sealed(ctx context.Context, jobs []job.Job) ([]job.Job, error) {
	if slices.ContainsFunc(jobs, func(j job.Job) bool { return j.Sensitive() }) && !d.sealer.Keyed() {
		key, err := d.key(ctx)
		if err != nil {
			return nil, err
		}
		d.sealer.SetKey(key)
	}
	return d.sealer.Jobs(jobs), nil
}

// key returns the key that sensitive values are sealed with. A read-only command does not store a new one: without a key
// nothing in the state is sealed, so a temporary key will do.
func (d *directory) key(ctx context.Context) ([]byte, error) {
	if !d.readOnly {
		return d.store.MakeKey(ctx)
	}
	key, err := d.store.Key(ctx)
	if key == nil && err == nil {
		key = state.NewKey()
	}
	return key, err
}

// defaultState is the state's file if the settings name none.
const defaultState = "eltrain.state"

// openStore opens the store that the settings name.
func openStore(settings lang.State) (state.Store, error) {
	if settings.Type == "kubernetes" {
		return kubernetes.New(kubernetes.Options{
			Kubeconfig: settings.Kubeconfig, Context: settings.Context, Namespace: settings.Namespace, Name: settings.Name,
		})
	}
	return file.New(cmp.Or(settings.Path, defaultState), file.Options{})
}

// configurations returns the providers' configurations by name. The local provider is always there: without a block it is
// this machine as detected.
func configurations(cfg *lang.Config) map[string]any {
	configured := map[string]any{local.Name: local.Config{}}
	for _, p := range cfg.Providers {
		configured[p.Name] = p.Value
	}
	return configured
}

// openProviders opens the configured providers.
func (s *session) openProviders(cfg *lang.Config) (map[string]providers.Provider, error) {
	owner, err := ownerOf(cfg.Settings.State)
	if err != nil {
		return nil, err
	}
	opened := map[string]providers.Provider{}
	for name, value := range configurations(cfg) {
		p, err := s.openProvider(name, value, owner)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened[name] = p
	}
	return opened, nil
}

// ownerOf names a state uniquely among those that share a cluster: "kubernetes ml/team-a", or
// "file HOST:/home/me/jobs/eltrain.state".
func ownerOf(settings lang.State) (string, error) {
	if settings.Type == "kubernetes" {
		access := kube.Access{Kubeconfig: settings.Kubeconfig, Context: settings.Context, Namespace: settings.Namespace}
		_, namespace, err := access.Client(0)
		return "kubernetes " + namespace + "/" + settings.Name, err
	}
	path, err := filepath.Abs(cmp.Or(settings.Path, defaultState))
	if err != nil {
		return "", fmt.Errorf("find the state: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this machine: %w", err)
	}
	return "file " + host + ":" + path, nil
}

// openProvider opens one provider. owner is the state in whose name it launches.
func (s *session) openProvider(name string, value any, owner string) (providers.Provider, error) {
	switch c := value.(type) {
	case local.Config:
		return local.New(local.Options{Dir: jobDirectory, RunDir: runDirectory, Config: c, Logger: s.log})
	case pods.Config:
		return pods.New(pods.Options{Config: c, Logger: s.log, Version: version, Owner: owner})
	case volcano.Config:
		return volcano.New(volcano.Options{Config: c, Logger: s.log, Version: version, Owner: owner})
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

// close releases what the directory holds in this process. What is running keeps running.
func (d *directory) close(s *session) {
	if err := closeAll(d.providers); err != nil {
		s.log.Warn("closing", "error", err)
	}
}

// records reads the jobs' records from the state.
func (d *directory) records(ctx context.Context) (job.Records, error) {
	stored, err := d.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	d.prior = stored.Outputs
	return stored.Jobs, nil
}
