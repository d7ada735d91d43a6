// Package signature finds the cause of a failure in what a training process printed last: it has a table of texts that libraries,
// drivers and interpreters print, each with the cause that it speaks for. It is pure: it must not know the clock, files or processes.
package signature

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/eltrain/eltrain/internal/jsonlist"
	"github.com/eltrain/eltrain/internal/literals"
	"github.com/eltrain/eltrain/job"
)

// Signature says what a text that a failed process printed means. Patterns are regular expressions (RE2) for one line each.
type Signature struct {
	Name  string    `json:"name"`
	Cause job.Cause `json:"cause"` // one of Causes
	// Permanent: a script_error that comes again in the next run.
	Permanent bool `json:"permanent,omitempty"`
	// Vague: it counts only if no other signature matches an exception of the same chain.
	Vague bool `json:"vague,omitempty"`
	// Exception: the patterns match only the line of an exception that ended the process, which begins with its class, and what an
	// error file says. The other signatures match any line.
	Exception bool `json:"exception,omitempty"`
	// ExitCode is the only exit code for which it counts; 0 is any.
	ExitCode int `json:"exit_code,omitempty"`
	// Hint is what a user can change about it, one of Hints; "" if that depends.
	Hint   Hint   `json:"hint,omitempty"`
	Source string `json:"source,omitempty"` // where the text is documented, or what prints it
	// Patterns match the lines, except those that one of Unless matches.
	Patterns []string `json:"patterns"`
	Unless   []string `json:"unless,omitempty"`
	// Samples are last lines of output for which it is the signature, Others those for which it is not.
	Samples []Sample `json:"samples"`
	Others  []Sample `json:"others,omitempty"`
}

// Sample is the last output of a process.
type Sample struct {
	Source string   `json:"source,omitempty"` // what printed it
	Lines  []string `json:"lines"`
}

// Causes are those that a signature may have.
var Causes = []job.Cause{job.Network, job.DeviceOutOfMemory, job.Accelerator, job.ScriptError, job.OutOfMemory, job.ProcessFailed}

// Hint is a code for what a user can change about a failure.
type Hint string

// The hints.
const (
	HintDeviceMemory      Hint = "device_memory"      // batch size, gradient accumulation, sharding
	HintHostMemory        Hint = "host_memory"        // resources { memory }, workers that load data
	HintSharedMemory      Hint = "shared_memory"      // resources { shm }, workers that load data
	HintDiskSpace         Hint = "disk_space"         // remove old checkpoints, a larger disk
	HintStorage           Hint = "storage"            // the file server, or the disk
	HintRemoteService     Hint = "remote_service"     // a service outside of the job, or the way to it
	HintOpenFiles         Hint = "open_files"         // the limit of open files
	HintThreads           Hint = "threads"            // the limit of threads and processes
	HintPackages          Hint = "packages"           // what is installed
	HintArguments         Hint = "arguments"          // the command's arguments
	HintFiles             Hint = "files"              // command, working_dir, source
	HintKernelImage       Hint = "kernel_image"       // a build for this accelerator
	HintDevices           Hint = "devices"            // resources { devices }, processes
	HintLaunchBlocking    Hint = "launch_blocking"    // an environment that makes the error come where it is made
	HintCollectiveTimeout Hint = "collective_timeout" // the timeout of collectives, or the rank that did not come
)

// Hints are those that a signature may have.
var Hints = []Hint{HintDeviceMemory, HintHostMemory, HintSharedMemory, HintDiskSpace, HintStorage, HintRemoteService, HintOpenFiles, HintThreads, HintPackages,
	HintArguments, HintFiles, HintKernelImage, HintDevices, HintLaunchBlocking, HintCollectiveTimeout}

// Limits of signatures that a user adds: they are part of each job's record.
const (
	maxText       = 32 << 10 // bytes
	MaxSignatures = 16
	maxPatterns   = 16
	maxPattern    = 1 << 10 // bytes
	minLiteral    = 3       // bytes of fixed text in a pattern for any line: without one it would be tried on every line
	maxName       = 64
)

//go:embed signatures.json
var builtin []byte

// Builtin returns the known signatures. Of several that match, the first counts: what starts a failure comes before what follows
// from it.
var Builtin = sync.OnceValue(func() []Signature {
	var all []Signature
	if err := json.Unmarshal(builtin, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
})

// known is the table without signatures of a user's.
var known = sync.OnceValue(func() *Table {
	t, err := New(nil)
	if err != nil {
		panic(err) // a test makes it
	}
	return t
})

// Table is a list of signatures, compiled. It is immutable.
type Table struct {
	signatures []signature
	literals   literals.Set
	partial    bool // a pattern for any line has no literal in the set
}

type signature struct {
	Signature
	patterns, unless []pattern
}

// pattern is compiled when a line contains its literal: most of the table is never used.
type pattern struct {
	literal string // in every match
	id      int    // of the literal
	compile func() *regexp.Regexp
}

// New compiles a table of signatures of a user's, which come first, and the known ones.
func New(own []Signature) (*Table, error) {
	if len(own) > MaxSignatures {
		return nil, fmt.Errorf("%d signatures: at most %d can be added", len(own), MaxSignatures)
	}
	t := &Table{}
	for _, s := range slices.Concat(own, Builtin()) {
		made := signature{Signature: s}
		for _, of := range []struct {
			texts []string
			to    *[]pattern
		}{{s.Patterns, &made.patterns}, {s.Unless, &made.unless}} {
			for _, text := range of.texts {
				p, err := newPattern(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.Name, err)
				}
				p.id = t.literals.Add(p.literal)
				t.partial = t.partial || p.id == literals.None && !s.Exception
				*of.to = append(*of.to, p)
			}
		}
		t.signatures = append(t.signatures, made)
	}
	return t, nil
}

// For compiles the table of a job whose own signatures are text, as ParseSignatures takes them. If they are invalid, it is the table
// without them: the language has checked them.
func For(text string) *Table {
	if text == "" {
		return known()
	}
	own, err := ParseSignatures(text)
	if err != nil {
		return known()
	}
	t, err := New(own)
	if err != nil {
		return known()
	}
	return t
}

func newPattern(text string) (pattern, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	return pattern{literal: literals.Required(tree), compile: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}, nil // it was parsed
}

// ParseSignatures parses a JSON list of signatures that a user adds; "" is none.
func ParseSignatures(text string) ([]Signature, error) {
	return jsonlist.Parse[Signature](text, maxText)
}

// Check reports what is wrong with signatures that a user adds, by the text of the first problem: each must have a name of its own, a
// cause, patterns with some fixed text, and at least one sample; each sample must be what it says.
func Check(own []Signature) error {
	t, err := New(own)
	if err != nil {
		return err
	}
	for i := range own {
		s := &t.signatures[i]
		switch {
		case s.Name == "" || len(s.Name) > maxName || strings.ContainsFunc(s.Name, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return fmt.Errorf("signature %d has no name of at most %d characters", i+1, maxName)
		case slices.ContainsFunc(t.signatures[i+1:], func(other signature) bool { return other.Name == s.Name }):
			return fmt.Errorf("there is another signature named %q", s.Name)
		case !slices.Contains(Causes, s.Cause):
			return fmt.Errorf("%s: the cause %q is none of %s", s.Name, s.Cause, join(Causes))
		case s.Permanent && s.Cause != job.ScriptError:
			return fmt.Errorf("%s: only a %s can be permanent", s.Name, job.ScriptError)
		case s.Hint != "" && !slices.Contains(Hints, s.Hint):
			return fmt.Errorf("%s: the hint %q is none of %s", s.Name, s.Hint, join(Hints))
		case s.ExitCode < 0 || s.ExitCode > 255:
			return fmt.Errorf("%s: the exit code %d is not from 1 to 255", s.Name, s.ExitCode)
		case len(s.Patterns) == 0:
			return fmt.Errorf("%s has no patterns", s.Name)
		case len(s.Patterns)+len(s.Unless) > maxPatterns:
			return fmt.Errorf("%s has more than %d patterns", s.Name, maxPatterns)
		case slices.ContainsFunc(slices.Concat(s.Patterns, s.Unless), func(p string) bool { return len(p) > maxPattern }):
			return fmt.Errorf("%s has a pattern longer than %d bytes", s.Name, maxPattern)
		case len(s.Samples) == 0:
			return fmt.Errorf("%s has no sample", s.Name)
		}
		if text, ok := s.withoutLiteral(); ok {
			return fmt.Errorf("%s: pattern %q has no fixed text of at least %d characters that every match contains", s.Name, text, minLiteral)
		}
		if err := t.try(s); err != nil {
			return err
		}
	}
	return nil
}

// withoutLiteral returns a pattern for any line that has hardly any fixed text.
func (s *signature) withoutLiteral() (text string, ok bool) {
	for i, p := range s.patterns {
		if !s.Exception && len(p.literal) < minLiteral || !s.Exception && p.id == literals.None {
			return s.Patterns[i], true
		}
	}
	return "", false
}

// try classifies a signature's samples with the whole table.
func (t *Table) try(s *signature) error {
	for _, sample := range s.Samples {
		switch m, ok := t.Classify(s.exit(sample)); {
		case !ok:
			return fmt.Errorf("%s: no pattern matches the sample %q", s.Name, sample.Lines)
		case m.Name != s.Name:
			return fmt.Errorf("%s: the signature of the sample %q is %q", s.Name, sample.Lines, m.Name)
		}
	}
	for _, sample := range s.Others {
		if m, _ := t.Classify(s.exit(sample)); m.Name == s.Name {
			return fmt.Errorf("%s: it is the signature of %q, which others has", s.Name, sample.Lines)
		}
	}
	return nil
}

// exit is a failure with a sample as its output.
func (s *signature) exit(sample Sample) *job.Exit {
	return &job.Exit{Code: max(1, s.ExitCode), Tail: sample.Lines}
}

func join[T ~string](names []T) string {
	var b bytes.Buffer
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}
