package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/file"
)

// jobDirectory is where the files are: -chdir has been obeyed by then. Run-time files are in runDirectory.
const (
	jobDirectory = "."
	runDirectory = ".eltrain"
)

// journalDirectory is where the journal of a job directory is.
var journalDirectory = filepath.Join(runDirectory, "journal")

// options is how the directory is read: the session's variables, and the providers compiled in.
func (s *session) options(vars assignments) lang.Options {
	return lang.Options{
		Assignments: vars,
		Environ:     s.environ,
		Version:     version,
		Providers:   map[string]reflect.Type{local.Name: reflect.TypeFor[local.Config]()},
	}
}

// directory is an opened job directory: its configuration, its state and its providers.
type directory struct {
	config    *lang.Config
	redactor  *view.Redactor
	store     state.Store
	providers map[string]providers.Provider
}

// openValid opens the directory for a command that acts on its configuration: errors in it end the
// command. What is wrong is shown, and ok is false.
func (s *session) openValid(vars assignments) (d *directory, ok bool) {
	cfg, diags := lang.Load(jobDirectory, s.options(vars))
	s.diagnose(view.DiagnoseHCL(diags, cfg.Files)...)
	if diags.HasErrors() {
		return nil, false
	}
	return s.openAs(cfg)
}

// openAnyway opens the directory for a command that shows what is there. It has to work while somebody
// is in the middle of editing the files, so it makes do with what of them can be understood.
func (s *session) openAnyway(vars assignments) (d *directory, ok bool) {
	cfg, diags := lang.Load(jobDirectory, s.options(vars))
	if diags.HasErrors() {
		cfg.Providers = nil // half of a provider's block is worse than none
	}
	return s.openAs(cfg)
}

func (s *session) openAs(cfg *lang.Config) (*directory, bool) {
	d := &directory{config: cfg, redactor: view.NewRedactor(cfg.Jobs)}
	store, err := openStore(cfg.Settings.State)
	if err != nil {
		s.fail("The state cannot be opened", err)
		return nil, false
	}
	d.store = store
	if d.providers, err = s.openProviders(cfg); err != nil {
		s.fail("A provider cannot be used", err)
		return nil, false
	}
	return d, true
}

// openStore opens the store that the settings name; the file eltrain.state where they name none.
func openStore(settings lang.State) (state.Store, error) {
	path := settings.Path
	if path == "" {
		path = "eltrain.state"
	}
	return file.New(path, file.Options{})
}

// configurations are those of the providers by name. The local one is always there: without a block it is
// this machine as detected.
func configurations(cfg *lang.Config) map[string]any {
	configured := map[string]any{local.Name: local.Config{}}
	for _, p := range cfg.Providers {
		configured[p.Name] = p.Value
	}
	return configured
}

// openProviders opens the providers that are configured.
func (s *session) openProviders(cfg *lang.Config) (map[string]providers.Provider, error) {
	opened := map[string]providers.Provider{}
	for name, value := range configurations(cfg) {
		p, err := s.openProvider(name, value)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened[name] = p
	}
	return opened, nil
}

func (s *session) openProvider(name string, value any) (providers.Provider, error) {
	switch c := value.(type) {
	case local.Config:
		return local.New(local.Options{Dir: jobDirectory, RunDir: runDirectory, Config: c, Logger: s.log})
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

// close releases what the directory holds in this process. What runs, runs on.
func (d *directory) close(s *session) {
	if err := closeAll(d.providers); err != nil {
		s.log.Warn("closing", "error", err)
	}
}

// records are what the state remembers of jobs.
func (d *directory) records(ctx context.Context) (job.Records, error) {
	stored, err := d.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	return stored.Jobs, nil
}
