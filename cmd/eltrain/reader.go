package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

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
)

// A watch has its files opened, read and evaluated by a child process, so that whatever they contain, and wherever they are,
// neither its memory nor its healing depends on them. So does status, which must answer then. Other commands read them
// themselves: one more start of the program would double the 10 ms of validate, and their user is there to interrupt them.
const (
	readFilesName = "read-files"
	// readMemory limits the child's memory, in bytes. With the 200 MB of a master of 10,000 slots it fits into the 1 GiB of
	// deploy/; 100,000 slots, each with arguments of its own, take 212 MB.
	readMemory = 512 << 20
	// maxReading limits what it returns, in bytes of JSON.
	maxReading = 64 << 20
	// maxQuoted limits the text of files returned for quoting, in bytes. Beyond it, refusals of a plan name no line.
	maxQuoted = 4 << 20
)

func readFilesCommand() *command {
	return &command{
		name: readFilesName, usage: "[options]", internal: true,
		synopsis: "Read the job directory's files for a watch",
		about:    "Reads the files of the job directory within limits of memory and time. A watch starts it; users never do.",
		declare:  func(*flags) {},
		run:      runReadFiles,
	}
}

// readRequest is what the child is to read.
type readRequest struct {
	Home string // see session.jobPath
	Vars assignments
	// Slots, if not nil, are numbers of running slots by job and role, on which the files' conditions are evaluated.
	Slots map[string]map[string]int
}

// reading is what a child has read: plain data of a lang.Config, and what only the files themselves can tell.
type reading struct {
	Settings    lang.Settings
	Providers   []planfile.Provider
	Jobs        []job.Job
	Hidden      []hidden // of each job
	Moved       []lang.Moved
	Removed     []lang.Removed
	Imports     []lang.Import
	Checked     []lang.Checked
	Directories []string
	Named       []string
	Sizes       map[string]int
	Invalid     bool
	Variables   map[string]view.GivenValue
	Outputs     map[string]view.GivenValue
	Secrets     []string
	Sources     []quotable

	Diagnostics []view.Diagnostic
	Unmet       []view.Diagnostic // conditions that do not hold for the requested Slots
	Unsteady    *apply.UnsteadyError
	Caution     job.Reason
	Commit      string
	// Paths are absolute: of all that was read, the job directory first, also what could not be. Print is their fingerprint.
	Paths []string
	Print string

	config *lang.Config // made of the above
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

func runReadFiles(s *session, args []string) int {
	if len(args) > 0 {
		return s.misused(readFilesName, errors.New("it takes no arguments"))
	}
	text, err := confine.Enter(readMemory)
	if err != nil {
		return s.fail("Cannot read the files", err)
	}
	var request readRequest
	if err = json.Unmarshal(text, &request); err == nil {
		s.jobPath = request.Home
		var r reading
		if r, err = s.readAll(request); err == nil {
			text, err = json.Marshal(r)
		}
	}
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		return s.fail("Cannot read the files", err)
	}
	return exitDone
}

// readAll reads the files, in the child.
func (s *session) readAll(request readRequest) (r reading, err error) {
	cfg, diags := s.load(request.Vars)
	r = reading{
		Settings: cfg.Settings, Jobs: cfg.Jobs, Moved: cfg.Moved, Removed: cfg.Removed, Imports: cfg.Imports, Checked: cfg.Checked,
		Directories: cfg.Directories, Named: cfg.Named, Sizes: cfg.Sizes, Invalid: cfg.Invalid, Secrets: cfg.Secrets(),
		Diagnostics: view.DiagnoseHCL(diags, cfg.Files), Commit: commitOf(context.Background(), cfg), Paths: s.watched(furtherOf(cfg)),
	}
	r.Print = apply.Fingerprint(r.Paths...)
	var gitErr error
	if r.Caution, gitErr = apply.Git(r.Paths...); gitErr != nil && !errors.As(gitErr, &r.Unsteady) {
		return r, gitErr
	}
	if !cfg.Invalid { // part of a provider's block is worse than none
		if r.Providers, err = encodeProviders(cfg.Providers); err != nil {
			return r, err
		}
	}
	if diags.HasErrors() {
		r.Jobs, r.Checked = nil, nil // nothing uses them
		return r, nil
	}
	if request.Slots != nil {
		r.Unmet = unmetOn(cfg, request.Slots)
	}
	for i := range cfg.Jobs {
		r.Hidden = append(r.Hidden, hidden{cfg.Jobs[i].Secrets, cfg.Jobs[i].Places})
	}
	r.Sources = quotables(cfg.Files)
	r.Variables, r.Outputs, err = given(cfg)
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
func (r *reading) decode(known map[string]reflect.Type) (err error) {
	r.config = &lang.Config{
		Settings: r.Settings, Jobs: r.Jobs, Moved: r.Moved, Removed: r.Removed, Imports: r.Imports, Checked: r.Checked,
		Directories: r.Directories, Named: r.Named, Sizes: r.Sizes, Invalid: r.Invalid, Files: map[string]*hcl.File{},
	}
	for i := range r.Hidden {
		r.Jobs[i].Secrets, r.Jobs[i].Places = r.Hidden[i].Secrets, r.Hidden[i].Places
	}
	for _, q := range r.Sources {
		r.config.Files[q.Name] = &hcl.File{Bytes: q.Text, Body: &hclsyntax.Body{Blocks: q.Blocks}}
	}
	if r.config.Providers, err = decodeProviders(r.Providers, known); err != nil {
		return err
	}
	for name, given := range r.Variables {
		v := lang.Variable{Name: name, Sensitive: given.Sensitive}
		if v.Value, err = valueOf(given); err != nil {
			return err
		}
		r.config.Variables = append(r.config.Variables, v)
	}
	for name, given := range r.Outputs {
		o := lang.Output{Name: name, Sensitive: given.Sensitive}
		if o.Value, err = valueOf(given); err != nil {
			return err
		}
		r.config.Outputs = append(r.config.Outputs, o)
	}
	return nil
}

// valueOf is the inverse of givenValue. Of a sensitive value only the type is left.
func valueOf(given view.GivenValue) (v cty.Value, err error) {
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

// fileReader has the files of a watch read.
type fileReader struct {
	child confine.Runner

	checked map[string]map[string]int // for which unmet was found, in the configuration of
	of      *lang.Config
	unmet   []view.Diagnostic
}

func newReader(s *session) *fileReader {
	return &fileReader{child: confine.Runner{Args: []string{readFilesName}, Env: s.environ, Result: maxReading}}
}

// read reads the files. Their sensitive values are redacted from then on. An apply.UnreadError says which limit was hit.
func (r *fileReader) read(ctx context.Context, s *session, vars assignments, slots map[string]map[string]int) (*reading, error) {
	request, err := json.Marshal(readRequest{Home: s.jobPath, Vars: vars, Slots: slots})
	if err != nil {
		return nil, err
	}
	text, err := r.child.Run(ctx, request)
	if err != nil {
		return nil, limited(err)
	}
	var now reading
	if err := json.Unmarshal(text, &now); err != nil {
		return nil, fmt.Errorf("decode what %s returned: %w", readFilesName, err)
	}
	s.redactor.AddTexts(now.Secrets...)
	return &now, now.decode(s.options(nil).Providers)
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

// first reads the files for a command that begins.
func (r *fileReader) first(s *session, vars assignments, timeout time.Duration) (*reading, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return r.read(ctx, s, vars, nil)
}

// check returns the conditions of cfg that the running slots do not satisfy. They are evaluated on the files as they are now:
// their expressions need all that the files contain. While these have errors, the result is an error, and is unknown.
func (r *fileReader) check(ctx context.Context, s *session, vars assignments, cfg *lang.Config, slots map[string]map[string]int) ([]view.Diagnostic, error) {
	if len(slots) == 0 || len(cfg.Checked) == 0 {
		return nil, nil
	}
	if r.of == cfg && reflect.DeepEqual(r.checked, slots) {
		return r.unmet, nil
	}
	now, err := r.read(ctx, s, vars, slots)
	switch {
	case err != nil:
		return nil, err
	case now.Unsteady != nil:
		return nil, now.Unsteady
	case view.HaveErrors(now.Diagnostics):
		return nil, errors.New("the files have errors")
	}
	r.of, r.checked, r.unmet = cfg, slots, now.Unmet
	return r.unmet, nil
}

// told is an error with its reason as a sentence.
func told(err error) error {
	if unread := (*apply.UnreadError)(nil); errors.As(err, &unread) {
		return errors.New(view.Sentence(unread.Why))
	}
	return err
}
