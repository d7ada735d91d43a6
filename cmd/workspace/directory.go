// Package workspace opens a job directory: its files, variables and settings, its state and providers, and the sensitive values
// in them. The working directory is the job directory.
package workspace

import (
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/eltrain/eltrain/lang"
	pods "github.com/eltrain/eltrain/providers/kubernetes"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/providers/volcano"
)

// JobDirectory is where the files are, after -chdir.
const JobDirectory = "."

// DefaultState is the state's file if the settings name none.
const DefaultState = "eltrain.state"

// RunDirectory is where run-time files are: beside the job files, or, where a deployment replaces that directory as a whole,
// in ELTRAIN_DATA_DIR, which is like Terraform's TF_DATA_DIR.
var RunDirectory = cmp.Or(os.Getenv("ELTRAIN_DATA_DIR"), ".eltrain")

// JournalDirectory is where the journal of a job directory is.
var JournalDirectory = filepath.Join(RunDirectory, "journal")

// Directory is a job directory that is not opened, and how its files are read.
type Directory struct {
	Path    string // absolute; links are not resolved, since they may be changed
	Environ []string
	Version string // of this program
	Advice  lang.Advice
	Within  []string          // what the files are not trusted to leave; see lang.Options
	Given   map[string][]byte // files besides those of the directory; see lang.Options
	Log     *slog.Logger
	// Secret is told the sensitive values that are read.
	Secret func(texts ...string)
}

// options returns the options for reading the files: the environment's variables, and the providers compiled in.
func (d *Directory) options(vars []lang.Assignment) lang.Options {
	return lang.Options{Assignments: vars, Environ: d.Environ, Version: d.Version, Within: d.Within, Given: d.Given, Advice: d.Advice, Providers: ProviderTypes()}
}

// ProviderTypes returns the types of the providers' configurations by name.
func ProviderTypes() map[string]reflect.Type {
	return map[string]reflect.Type{
		local.Name:   reflect.TypeFor[local.Config](),
		pods.Name:    reflect.TypeFor[pods.Config](),
		volcano.Name: reflect.TypeFor[volcano.Config](),
	}
}

// Load reads the files and has the providers' code validate what concerns it, without network access. A variable without a
// value is an error; lang.WithoutUnset drops those.
func (d *Directory) Load(vars []lang.Assignment) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := d.Read(vars)
	if !lang.WithoutUnset(diags).HasErrors() {
		diags = append(diags, slices.Concat(misfits(cfg), d.misplaced(cfg), cautions(cfg))...)
	}
	return cfg, diags
}

// Read reads the files as the language defines them.
func (d *Directory) Read(vars []lang.Assignment) (*lang.Config, hcl.Diagnostics) {
	cfg, diags := d.steady(vars)
	d.Secret(cfg.Secrets()...)
	return cfg, diags
}

// ReadAnyway reads the files for a read-only command. It uses what is valid and ignores errors, because the files may be in the
// middle of an edit.
func (d *Directory) ReadAnyway(vars []lang.Assignment) *lang.Config {
	cfg, diags := d.Read(vars)
	if lang.Unsound(diags) {
		cfg.Providers = nil // part of a provider's block is worse than none
	}
	return cfg
}
