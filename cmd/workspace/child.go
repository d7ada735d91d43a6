package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/internal/confine"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// A watch has its files opened, read and evaluated by a child process, so that whatever they contain, and wherever they are,
// neither its memory nor its healing depends on them. So does status, which must answer then. Other commands read them
// themselves: one more start of the program would double the 10 ms of validate, and their user is there to interrupt them.
const (
	// ChildName is the command that a child process runs: ServeChild.
	ChildName = "read-files"
	// readMemory limits the child's memory, in bytes. With the 200 MB of a master of 10,000 slots it fits into the 1 GiB of
	// deploy/; 100,000 slots, each with arguments of its own, take 212 MB.
	readMemory = 512 << 20
	// maxReading limits what it returns, in bytes of JSON.
	maxReading = 64 << 20
	// maxQuoted limits the text of files returned for quoting, in bytes. Beyond it, refusals of a plan name no line.
	maxQuoted = 4 << 20
)

// request is what a child is to read.
type request struct {
	Path string // see Directory
	Vars []lang.Assignment
	// Within is what the files are not trusted to leave.
	Within []string
	// Slots, if not nil, are numbers of running slots by job and role, on which the files' conditions are evaluated.
	Slots map[string]map[string]int
}

// Reading is what a child has read: plain data of a lang.Config, and what only the files themselves can tell.
type Reading struct {
	Settings    lang.Settings
	Providers   []planfile.Provider
	Jobs        []job.Job
	Hidden      []hidden // of each job
	Notify      []lang.Notify
	Moved       []lang.Moved
	Removed     []lang.Removed
	Imports     []lang.Import
	Checked     []lang.Checked
	Directories []string
	Named       []string
	Sizes       map[string]int
	Invalid     bool
	Values      state.Values
	Secrets     []string
	Sources     []quotable

	StateErrors hcl.Diagnostics
	Diagnostics []view.Diagnostic
	Unmet       []view.Diagnostic // conditions that do not hold for the requested Slots
	Unsteady    *apply.UnsteadyError
	Caution     job.Reason
	Commit      string
	// Paths are absolute: of all that was read, the job directory first, also what could not be. Print is their fingerprint.
	Paths []string
	Print string

	// Config is made of the above. Without Sources its diagnostics name no line.
	Config *lang.Config `json:"-"`
}

// hidden is what the JSON of a job leaves out.
type hidden struct {
	Secrets []string
	Places  []job.Place
}

// quotable is a file, and the headers of its blocks.
type quotable struct {
	Name   string
	Text   []byte
	Blocks hclsyntax.Blocks // without their bodies
}

// ServeChild reads what the standard input asks for, within limits of memory, and writes it to the standard output. It ends the
// child's process, which does nothing else.
func (d *Directory) ServeChild() error {
	text, err := confine.Enter(readMemory)
	if err != nil {
		return err
	}
	var asked request
	if err := json.Unmarshal(text, &asked); err != nil {
		return err
	}
	d.Path, d.Within = asked.Path, asked.Within
	r, err := d.readAll(asked)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(r); err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// readAll reads the files, in the child.
func (d *Directory) readAll(asked request) (r Reading, err error) {
	cfg, diags := d.Load(asked.Vars)
	r = Reading{
		Settings: cfg.Settings, StateErrors: cfg.StateErrors, Jobs: cfg.Jobs, Notify: cfg.Notify, Moved: cfg.Moved, Removed: cfg.Removed, Imports: cfg.Imports, Checked: cfg.Checked,
		Directories: cfg.Directories, Named: cfg.Named, Sizes: cfg.Sizes, Invalid: cfg.Invalid, Secrets: cfg.Secrets(),
		Diagnostics: view.DiagnoseHCL(diags, cfg.Files), Commit: Commit(context.Background(), cfg), Paths: d.Watched(cfg.Further()),
	}
	r.Print = apply.Fingerprint(r.Paths...)
	var gitErr error
	if r.Caution, gitErr = apply.Git(r.Paths...); gitErr != nil && !errors.As(gitErr, &r.Unsteady) {
		return r, gitErr
	}
	if !cfg.Invalid { // part of a provider's block is worse than none
		if r.Providers, err = EncodeProviders(cfg.Providers); err != nil {
			return r, err
		}
	}
	if diags.HasErrors() {
		r.Jobs, r.Checked = nil, nil // nothing uses them
		return r, nil
	}
	if asked.Slots != nil {
		r.Unmet = unmetOn(cfg, asked.Slots)
	}
	for i := range cfg.Jobs {
		r.Hidden = append(r.Hidden, hidden{cfg.Jobs[i].Secrets, cfg.Jobs[i].Places})
	}
	r.Sources = quotables(cfg.Files)
	r.Values, err = Given(cfg)
	return r, err
}

func quotables(files map[string]*hcl.File) (all []quotable) {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		q := quotable{Name: name, Text: files[name].Bytes}
		if body, is := files[name].Body.(*hclsyntax.Body); is {
			for _, b := range body.Blocks {
				q.Blocks = append(q.Blocks, &hclsyntax.Block{Type: b.Type, Labels: b.Labels, TypeRange: b.TypeRange, CloseBraceRange: b.CloseBraceRange})
			}
		}
		if size += len(q.Text); size > maxQuoted {
			return nil
		}
		all = append(all, q)
	}
	return all
}

// decode makes the configuration.
func (r *Reading) decode() (err error) {
	r.Config = &lang.Config{
		Settings: r.Settings, StateErrors: r.StateErrors, Jobs: r.Jobs, Notify: r.Notify, Moved: r.Moved, Removed: r.Removed, Imports: r.Imports, Checked: r.Checked,
		Directories: r.Directories, Named: r.Named, Sizes: r.Sizes, Invalid: r.Invalid, Files: map[string]*hcl.File{},
	}
	for i := range r.Hidden {
		r.Jobs[i].Secrets, r.Jobs[i].Places = r.Hidden[i].Secrets, r.Hidden[i].Places
	}
	for _, q := range r.Sources {
		r.Config.Files[q.Name] = &hcl.File{Bytes: q.Text, Body: &hclsyntax.Body{Blocks: q.Blocks}}
	}
	if r.Config.Providers, err = DecodeProviders(r.Providers); err != nil {
		return err
	}
	for name, given := range r.Values.Variables {
		v := lang.Variable{Name: name, Description: given.Description, Sensitive: given.Sensitive}
		if v.Value, err = valueOf(given); err != nil {
			return err
		}
		r.Config.Variables = append(r.Config.Variables, v)
	}
	for name, given := range r.Values.Outputs {
		o := lang.Output{Name: name, Sensitive: given.Sensitive}
		if o.Value, err = valueOf(given); err != nil {
			return err
		}
		r.Config.Outputs = append(r.Config.Outputs, o)
	}
	return nil
}

// valueOf is the inverse of givenValue. Of a sensitive value only the type is left.
func valueOf(given state.Value) (v cty.Value, err error) {
	kind := cty.DynamicPseudoType
	if given.Type != nil {
		if kind, err = ctyjson.UnmarshalType(given.Type); err != nil {
			return v, err
		}
	}
	if given.Sensitive {
		return cty.UnknownVal(kind).Mark(lang.Sensitive), nil
	}
	return ctyjson.Unmarshal(given.Value, kind)
}

// Child has the files of a directory read by a process with limits of memory and time, one at a time.
type Child struct {
	directory *Directory
	vars      []lang.Assignment
	process   confine.Runner

	checked map[string]map[string]int // for which unmet was found, in the configuration of
	of      *lang.Config
	unmet   []view.Diagnostic
}

// Child returns what reads the directory's files with these variables. It starts nothing yet.
func (d *Directory) Child(vars []lang.Assignment) *Child {
	return &Child{directory: d, vars: vars, process: confine.Runner{Args: []string{ChildName}, Env: d.Environ, Result: maxReading}}
}

// Read reads the files. An apply.UnreadError says which limit was hit; ctx is one.
func (c *Child) Read(ctx context.Context) (*Reading, error) { return c.read(ctx, nil) }

func (c *Child) read(ctx context.Context, slots map[string]map[string]int) (*Reading, error) {
	text, err := json.Marshal(request{Path: c.directory.Path, Vars: c.vars, Within: c.directory.Within, Slots: slots})
	if err != nil {
		return nil, err
	}
	if text, err = c.process.Run(ctx, text); err != nil {
		return nil, limited(err)
	}
	var now Reading
	if err := json.Unmarshal(text, &now); err != nil {
		return nil, fmt.Errorf("decode what %s returned: %w", ChildName, err)
	}
	c.directory.Secret(now.Secrets...)
	return &now, now.decode()
}

// limited says in a code which limit ended a reading.
func limited(err error) error {
	limit := (*confine.LimitError)(nil)
	if !errors.As(err, &limit) {
		return err
	}
	because := func(code job.Code, limit string) error {
		return &apply.UnreadError{Why: job.Because(code, "limit", limit)}
	}
	switch limit.Limit {
	case confine.Memory:
		return because(apply.ReadMemory, job.Bytes(readMemory).String())
	case confine.Size:
		return because(apply.ReadSize, job.Bytes(maxReading).String())
	case confine.Time:
		return because(apply.ReadTime, apply.ReadTimeout.String())
	}
	return because(apply.ReadHangs, apply.ReadTimeout.String())
}

// Check returns the conditions of cfg that running jobs do not satisfy, of those whose size differs from the declared one. They are evaluated on the files as they are now:
// their expressions need all that the files contain. While these have errors, the result is an error, and is unknown.
func (c *Child) Check(ctx context.Context, cfg *lang.Config, records job.Records) ([]view.Diagnostic, error) {
	slots := resized(cfg, records)
	if len(slots) == 0 || len(cfg.Checked) == 0 {
		return nil, nil
	}
	if c.of == cfg && reflect.DeepEqual(c.checked, slots) {
		return c.unmet, nil
	}
	now, err := c.read(ctx, slots)
	switch {
	case err != nil:
		return nil, err
	case now.Unsteady != nil:
		return nil, now.Unsteady
	case view.HaveErrors(now.Diagnostics):
		return nil, errors.New("the files have errors")
	}
	c.of, c.checked, c.unmet = cfg, slots, now.Unmet
	return c.unmet, nil
}
