// Package lang turns a job directory's HCL into declared jobs: parsing, variables, locals, evaluation,
// validation and formatting. Every mistake in the files becomes a diagnostic with its position and what to
// do about it, and all of them are reported in one pass.
//
// The schema is not repeated here: arguments, blocks, defaults and docs are the tags that job.Fields reads
// from the declared types, and a provider's own block is decoded by the same rules into the type that the
// caller names. The package knows no provider, uses no clock and opens no connection; it only reads files
// of the job directory, and files that expressions name.
//
// Input is untrusted: size, nesting and evaluation work are bounded (see bounds.go).
package lang

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
)

// Options holds what the meaning of a directory depends on besides its files.
type Options struct {
	// BaseDir is the directory that module sources and the paths of file() and templatefile() are relative to.
	// Load sets it to its directory.
	BaseDir string
	// Assignments are values given by the user, in order: the last one wins.
	Assignments []Assignment
	// Environ holds NAME=VALUE pairs as os.Environ gives them; ELTRAIN_VAR_x sets variable x.
	Environ []string
	// Given are files that Load reads besides those of its directory, by name.
	Given map[string][]byte
	// Providers maps a provider's name to the type of its configuration: a struct with the tags that job.Fields reads.
	Providers map[string]reflect.Type
	// Within are the directories, or single files, that whatever the files name must be in, links resolved, for files that are not trusted: all
	// that is read, except a file of an Assignment. They are absolute and without links; none allows everything.
	Within []string
	// Version is eltrain's version, checked against required_version. Empty skips the check.
	Version string
	// Advice is what diagnostics add on how to do something with the program that reads the files.
	Advice Advice
}

// Assignment sets one variable, or those in a file if File is set.
type Assignment struct {
	From  string // where the user gave it, such as "-var"
	Name  string
	Value string
	File  string
}

// Advice is sentences for a program's users. An empty one is left out.
type Advice struct {
	OtherDirectory string // how to read files elsewhere
	EndAll         string // how to end all jobs
	Outside        string // how to allow files outside of Options.Within
	Assign         string // how to set a variable, besides in files and the environment
}

// Config is the evaluated directory. After errors it holds whatever could be evaluated, for tools that
// display it; then only Files is reliable.
type Config struct {
	Settings Settings
	// StateErrors are the errors in the state block: where the state is, is unknown.
	StateErrors hcl.Diagnostics
	Providers   []ProviderConfig
	Jobs        []job.Job // including those of modules, under their instance names; the directory's own come first
	// Templates holds one job for each job block, or block of a module with jobs, whose for_each depends on a variable
	// without a value. Its instances are unknown, so none of them is in Jobs.
	Templates []job.Job
	// Unknown lists, by the names of Jobs and Templates, the arguments that depend on a variable without a value, and
	// the block types whose blocks are unknown: "replicas", "role.worker.env", "role". They are zero in the job.
	Unknown   map[string][]string
	Variables []Variable
	Outputs   []Output
	Notify    []Notify // nil if the files were not read
	Moved     []Moved
	Removed   []Removed
	Imports   []Import
	Checked   []Checked // results of conditions, except validations of variables
	// Directories lists the directories that were read: the job directory, then its modules'.
	Directories []string
	// Named lists the files that were read because an expression or the command line names them, and those that were missing.
	// One that ends in a slash is a directory that patterns were matched in: the names there matter.
	Named []string
	// Invalid reports errors other than failed conditions; see Unsound.
	Invalid bool
	// Files are the sources that diagnostics may quote, by the name in their ranges. Variables files are not among them:
	// if one does not parse, or misspells a name, it is unknown what in it is sensitive.
	Files map[string]*hcl.File
	// Sizes holds the size in bytes of every file that was read, including variables files, by name.
	Sizes map[string]int

	loader *loader // of the job directory, for Evaluate and ValueReferences
}

// ProviderConfig is one provider block. Value has the type that Options.Providers gives for Name.
type ProviderConfig struct {
	Name   string
	Value  any
	Source job.Source
	// Unknown reports that some argument depends on a variable without a value; it is zero in Value.
	Unknown bool
}

// Load reads all *.hcl, eltrain.vars and *.auto.vars of dir (not of its subdirectories), and the -var-files.
// The Config is never nil. A missing or empty directory is an error, and so are files that are
// all empty: that must not be taken for "no jobs wanted".
func Load(dir string, o Options) (*Config, hcl.Diagnostics) {
	o.BaseDir = dir
	files, diags := o.readDirectory(dir, func(base string) bool { return isConfig(base) || isVars(base) })
	if files == nil {
		return &Config{Files: map[string]*hcl.File{}, Sizes: map[string]int{}, Invalid: true}, diags
	}
	incomplete := diags.HasErrors()
	maps.Copy(files, o.Given)
	var named []string
	for _, a := range o.Assignments {
		if a.File == "" {
			continue
		}
		named = append(named, a.File)
		src, err := regular.ReadNamed(a.File, maxFileBytes)
		if err != nil {
			diags = append(diags, unreadable(a.File, err))
			continue
		}
		files[a.File] = src
	}
	l := newLoader(o)
	l.report(diags...)
	l.incomplete = incomplete
	for _, path := range named {
		l.named[path] = true
	}
	return l.run(files)
}

// readDirectory reads the wanted files of a directory (not of its subdirectories), by path. The map is nil if the
// directory cannot be listed.
func (o *Options) readDirectory(dir string, wanted func(base string) bool) (map[string][]byte, hcl.Diagnostics) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, hcl.Diagnostics{unreadable(dir, err)}
	}
	files := map[string][]byte{}
	var diags hcl.Diagnostics
	looped := map[string]bool{} // links of loops that were reported
	for _, e := range entries {
		if e.IsDir() || !wanted(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		src, err := o.read(path, maxFileBytes)
		switch {
		case errors.Is(err, syscall.ELOOP):
			loop := linkLoop(path)
			if !slices.ContainsFunc(loop, func(link string) bool { return looped[link] }) {
				diags = append(diags, unreadable(path, loopError(loop, err)))
			}
			for _, link := range loop {
				looped[link] = true
			}
		case errors.Is(err, fs.ErrNotExist):
			// The files are being replaced. Those that remain may be valid and yet declare too little.
			diags = append(diags, unreadable(path, errors.New("the file, or what it links to, was removed after the directory was listed; try again")))
		case err != nil:
			diags = append(diags, unreadable(path, err))
		default:
			files[path] = src
		}
	}
	return files, diags
}

// Parse is Load for files in memory; modules are still read from disk. Files are by name: *.hcl are configuration,
// eltrain.vars and *.auto.vars set variables, and others are read if an assignment names them.
func Parse(files map[string][]byte, o Options) (*Config, hcl.Diagnostics) {
	return newLoader(o).run(files)
}

func (l *loader) run(files map[string][]byte) (*Config, hcl.Diagnostics) {
	l.parse(files)
	l.variables()
	l.values()
	l.settings()
	l.providers()
	l.contents()
	l.cfg.Jobs = l.all(func(m *loader) []job.Job { return m.ownJobs })
	l.cfg.Templates = l.all(func(m *loader) []job.Job { return m.templates })
	l.notifies()
	l.moves()
	l.imports()
	l.cfg.Named = slices.Sorted(maps.Keys(l.named))
	l.reportOutside()
	diags := l.finish()
	l.cfg.Invalid = Unsound(diags)
	return l.cfg, diags
}

// contents evaluates a module's jobs, outputs and checks.
func (l *loader) contents() {
	l.jobs()
	l.outputs()
	l.checks()
}

// root is the schema of the top level.
type root struct {
	Settings  *Settings       `hcl:"eltrain,block" doc:"Settings of the directory. At most once, and not in a module."`
	Variables []variableBlock `hcl:"variable,block" doc:"An input, set from outside."`
	Locals    []struct{}      `hcl:"locals,block" doc:"Named values: any arguments."`
	Outputs   []outputBlock   `hcl:"output,block" doc:"A value to show, or that a module returns to its caller."`
	Providers []providerBlock `hcl:"provider,block" doc:"Where jobs run. Its arguments depend on the provider. Not in a module."`
	Jobs      []jobBlock      `hcl:"job,block" doc:"A training job."`
	Modules   []moduleBlock   `hcl:"module,block" doc:"The jobs of another directory. All other arguments set its variables."`
	Checks    []checkBlock    `hcl:"check,block" doc:"A condition. If it does not hold, that is a warning."`
	Notify    []notifyBlock   `hcl:"notify,block" doc:"Who is notified of what happens to jobs. Not in a module."`
	Moved     []movedBlock    `hcl:"moved,block" doc:"A job, or a module with its jobs, that was renamed: it keeps running under the new name."`
	Removed   []removedBlock  `hcl:"removed,block" doc:"A job, or a module with its jobs, that is no longer declared."`
	Imports   []importBlock   `hcl:"import,block" doc:"Something that is already running, to be managed as a job or a slot. Not in a module."`
}

type providerBlock struct {
	Name string `hcl:"name,label" doc:"The provider's name."`
}

// shared is the state that all modules of one Parse share.
type shared struct {
	opts        Options
	cfg         *Config
	diags       hcl.Diagnostics
	meter       *meter
	varFiles    map[string]*hclsyntax.Body
	named       map[string]bool       // see Config.Named
	outside     map[string]error      // why paths that expressions name are not read; see Options.Within
	sources     map[string]*source    // module directories by path
	files       map[string]foundFiles // of source arguments, by directory and pattern
	sourceSizes map[*tree]int64       // of the source files of each role, in bytes
	slots       int                   // declared so far, in all jobs
	names       map[string]place      // all jobs by name
	// undecided holds the addresses of job and module blocks whose for_each is unknown.
	undecided map[string]bool
	// dynamic holds the block types that dynamic blocks generate, by the ranges of their for_each and labels.
	dynamic map[hcl.Range]string

	postconditions []postconditions
	observed       map[string]map[string]int // slot counts by job and role, during CheckObserved
}

func (s *shared) report(d ...*hcl.Diagnostic) { s.diags = append(s.diags, d...) }

// loader evaluates the job directory, or one instance of a module in it.
type loader struct {
	*shared
	*source

	parent   *loader // nil for the job directory
	call     *call   // the parent's module block
	given    map[string]givenValue
	path     []string // module names and keys, outermost first, as InstanceName takes them
	address  string   // the same as an address: "module.a[\"k\"]."
	presence presence

	declared map[string]*variable
	locals   map[string]*named
	calls    map[string]*call

	ownJobs   []job.Job
	templates []job.Job
	jobValues map[string]jobValue  // by block label
	results   map[string]cty.Value // output values

	ctx *hcl.EvalContext // var, local, module and functions
}

func newLoader(o Options) *loader {
	s := &shared{
		opts:        o,
		cfg:         &Config{Files: map[string]*hcl.File{}, Sizes: map[string]int{}, Directories: []string{o.BaseDir}, Unknown: map[string][]string{}},
		meter:       newMeter(),
		varFiles:    map[string]*hclsyntax.Body{},
		named:       map[string]bool{},
		outside:     map[string]error{},
		sources:     map[string]*source{},
		files:       map[string]foundFiles{},
		sourceSizes: map[*tree]int64{},
		names:       map[string]place{},

		undecided: map[string]bool{},
		dynamic:   map[hcl.Range]string{},
	}
	l := s.loader(&source{dir: o.BaseDir, blocks: map[string][]*hclsyntax.Block{}})
	s.cfg.loader = l
	return l
}

func (s *shared) loader(src *source) *loader {
	l := &loader{
		shared: s, source: src,
		declared: map[string]*variable{}, locals: map[string]*named{}, calls: map[string]*call{},
		jobValues: map[string]jobValue{}, results: map[string]cty.Value{},
	}
	if src.functions == nil {
		src.functions = l.makeFunctions()
	}
	l.ctx = &hcl.EvalContext{Functions: src.functions}
	return l
}

// parse parses the job directory's files and sorts the top-level blocks by type.
func (l *loader) parse(files map[string][]byte) {
	wanted := map[string]bool{}
	for _, a := range l.opts.Assignments {
		wanted[a.File] = true
	}
	configs := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		base := filepath.Base(name)
		vars := isVars(base) || wanted[name]
		if !isConfig(base) && !vars {
			continue
		}
		body := l.parseFile(name, files[name])
		if vars {
			l.varFiles[name] = body
			delete(l.cfg.Files, name)
			continue
		}
		configs++
		l.sortBlocks(l.source, body)
	}
	switch {
	case configs == 0 && !l.incomplete:
		l.missing("There is no .hcl file in %q. Jobs are read from all *.hcl files of the directory.", l.opts.Advice.OtherDirectory)
	case len(l.blocks) == 0 && !l.diags.HasErrors():
		// Files that were truncated, on a full disk for instance, must not be taken for "no jobs wanted" either.
		l.missing("All .hcl files in %q are empty.", l.opts.Advice.EndAll)
	}
}

// sortBlocks adds a file's blocks to the directory's, by type. A nil body is that of a file that did not parse.
func (s *shared) sortBlocks(src *source, body *hclsyntax.Body) {
	if body == nil {
		src.incomplete = true
		return
	}
	schema := bodySchema(reflect.TypeFor[root]())
	content, diags := body.Content(schema)
	s.report(explain("", schema.Blocks, diags)...)
	accepted := map[hcl.Range]bool{}
	for _, b := range content.Blocks {
		accepted[b.TypeRange] = true
	}
	for _, b := range body.Blocks {
		if accepted[b.TypeRange] {
			src.blocks[b.Type] = append(src.blocks[b.Type], b)
		}
	}
}

// blank marks the error that there are no files or that all of them are empty.
type blank struct{}

// WithoutBlank removes the error that there are no files or that all of them are empty, for callers that need none.
func WithoutBlank(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(slices.Clone(diags), func(d *hcl.Diagnostic) bool {
		_, is := d.Extra.(blank)
		return is
	})
}

func (l *loader) missing(format, advice string) {
	l.report(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "No configuration", Detail: advised(fmt.Sprintf(format, l.dir), advice), Extra: blank{}})
}

func advised(detail, advice string) string { return strings.TrimSpace(detail + " " + advice) }

// parseFile returns the file's body, or nil after syntax errors.
func (s *shared) parseFile(name string, src []byte) *hclsyntax.Body {
	s.cfg.Files[name], s.cfg.Sizes[name] = &hcl.File{Bytes: src}, len(src)
	if d := checkSource(src, name, hclsyntax.LexConfig); d != nil {
		s.report(d)
		return nil
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	s.report(withoutFollowUps(diags)...)
	s.cfg.Files[name] = file
	if diags.HasErrors() {
		// The parser only guesses at the rest of a file after an error: diagnostics about it would mislead.
		return nil
	}
	body := file.Body.(*hclsyntax.Body)
	s.meter.attach(body)
	return body
}

// finish returns the diagnostics without duplicates, in file order.
func (l *loader) finish() hcl.Diagnostics {
	if d := l.meter.diagnostic(); d != nil {
		l.report(d)
	}
	return limit(tidy(l.diags))
}

// limit returns at most maxDiagnostics, plus a note about the rest. Those of variables without a value go last, so
// that callers of WithoutUnset see as many others as possible.
func limit(diags hcl.Diagnostics) hcl.Diagnostics {
	if len(diags) <= maxDiagnostics {
		return diags
	}
	others := WithoutUnset(diags)
	missing := slices.DeleteFunc(diags, func(d *hcl.Diagnostic) bool { return d.Extra != unset{} })
	kept := min(len(others), maxDiagnostics)
	left := min(len(missing), maxDiagnostics-kept)
	out := slices.Concat(others[:kept], missing[:left])
	if rest := others[kept:]; len(rest) > 0 {
		out = append(out, omitted(rest))
	}
	if rest := missing[left:]; len(rest) > 0 {
		d := omitted(rest)
		d.Extra = unset{}
		out = append(out, d)
	}
	return out
}

// omitted summarizes diagnostics that are left out. It is an error if any of them is.
func omitted(rest hcl.Diagnostics) *hcl.Diagnostic {
	d := &hcl.Diagnostic{
		Severity: hcl.DiagWarning, Summary: "More problems",
		Detail:  fmt.Sprintf("%d more problems start here. Fix the ones above to see them.", len(rest)),
		Subject: subject(rest[0]).Ptr(),
	}
	if rest.HasErrors() {
		d.Severity = hcl.DiagError
	}
	return d
}

func tidy(diags hcl.Diagnostics) hcl.Diagnostics {
	type key struct {
		summary, detail string
		at              hcl.Range
	}
	seen := map[key]int{} // index in out
	var out hcl.Diagnostics
	for _, d := range diags {
		if _, silent := d.Extra.(alreadyReported); silent {
			continue
		}
		// Two that differ only in a suggestion are duplicates.
		stem, _, _ := strings.Cut(d.Detail, " Did you mean")
		k := key{d.Summary, stem, subject(d)}
		i, dup := seen[k]
		switch {
		case !dup:
			seen[k] = len(out)
			out = append(out, d)
		case len(d.Detail) > len(out[i].Detail):
			out[i] = d
		}
	}
	slices.SortStableFunc(out, func(a, b *hcl.Diagnostic) int {
		ra, rb := subject(a), subject(b)
		if c := strings.Compare(ra.Filename, rb.Filename); c != 0 {
			return c
		}
		if c := ra.Start.Byte - rb.Start.Byte; c != 0 {
			return c
		}
		return strings.Compare(a.Summary+a.Detail, b.Summary+b.Detail)
	})
	return out
}

func subject(d *hcl.Diagnostic) hcl.Range {
	if d.Subject == nil {
		return hcl.Range{}
	}
	return *d.Subject
}

func isConfig(base string) bool { return strings.HasSuffix(base, ".hcl") && !isHidden(base) }

func isVars(base string) bool {
	return base == defaultVarsFile || strings.HasSuffix(base, autoVarsSuffix) && !isHidden(base)
}

// isHidden reports whether a file is one that editors keep beside an open file, or any other hidden file.
func isHidden(base string) bool {
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "#") || strings.HasSuffix(base, "~")
}

func unreadable(path string, err error) *hcl.Diagnostic {
	if errors.Is(err, fs.ErrNotExist) {
		return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Cannot read configuration", Detail: fmt.Sprintf("The file or directory %s does not exist.", path)}
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  "Cannot read configuration",
		Detail:   fmt.Sprintf("Reading failed: %s.", err),
		Subject:  &hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos},
	}
}

func sourceOf(r hcl.Range) job.Source { return job.Source{File: r.Filename, Line: r.Start.Line} }
