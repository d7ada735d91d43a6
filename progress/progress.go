// Package progress reads how far a training is from the lines that its processes print, without being told which framework prints
// them: it has a table of recognizers, and finds the one that fits. It is pure: it must not know the clock, files or processes.
//
// The named groups of a pattern are what it reads:
//
//	step, total                              the step, of how many
//	n, of                                    the step within an epoch, of how many
//	epoch, epoch_from_0, epoch_from_1        the epoch as printed; the latter two say which is the first, and make a step of n and of
//	epochs, last_epoch                       the number of epochs, or the number of the last
//	loss, learning_rate, tokens_per_second, grad_norm, state_hash
//	batch_size, gradient_noise_scale
//
// Other groups are ignored.
package progress

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/eltrain/eltrain/internal/jsonlist"
	"github.com/eltrain/eltrain/internal/literals"
	"github.com/eltrain/eltrain/job"
)

// Limits of recognizers that a user adds: they are part of each agent's command line.
const (
	maxText        = 32 << 10 // bytes: one argument may have 128 KiB on Linux
	MaxRecognizers = 16
	maxPatterns    = 16
	maxPattern     = 1 << 10 // bytes
	maxName        = 64
	maxWords       = 64
)

//go:embed recognizers.json
var builtin []byte

// Builtin returns the recognizers of the known frameworks, the more specific first.
var Builtin = sync.OnceValue(func() []job.Recognizer {
	var all []job.Recognizer
	if err := json.Unmarshal(builtin, &all); err != nil {
		panic(err) // a test reads it
	}
	return all
})

// Table is what a Reader tries, compiled. It is immutable.
type Table struct {
	recognizers []recognizer
	literals    literals.Set
	partial     bool // a pattern has no literal in the set
}

type recognizer struct {
	name     string
	patterns []pattern // the first own are the Patterns, the others the Then
	own      int
	unless   words
}

// pattern is compiled when a line contains its literal: most of the table is never used.
type pattern struct {
	literal string // in every match
	id      int    // of the literal
	compile func() compiled
}

type compiled struct {
	*regexp.Regexp
	groups []group // by index
}

type group string

// The groups of patterns.
const (
	groupStep, groupTotal                           group = "step", "total"
	groupN, groupOf                                 group = "n", "of"
	groupEpoch, groupEpochFrom0, groupEpochFrom1    group = "epoch", "epoch_from_0", "epoch_from_1"
	groupEpochs, groupLastEpoch                     group = "epochs", "last_epoch"
	groupLoss, groupLearningRate, groupTokensPerSec group = "loss", "learning_rate", "tokens_per_second"
	groupGradNorm, groupStateHash                   group = "grad_norm", "state_hash"
	groupBatchSize, groupNoiseScale                 group = "batch_size", "gradient_noise_scale"
)

// New compiles a table of recognizers of the user's, which come first, and those of the known frameworks.
func New(own []job.Recognizer) (*Table, error) {
	if len(own) > MaxRecognizers {
		return nil, fmt.Errorf("%d recognizers: at most %d can be added", len(own), MaxRecognizers)
	}
	t := &Table{}
	for _, r := range slices.Concat(own, Builtin()) {
		made, err := newRecognizer(r)
		if err != nil {
			return nil, err
		}
		t.recognizers = append(t.recognizers, made)
	}
	t.index()
	return t, nil
}

// Only compiles a table of one pattern, which must have a group named step.
func Only(name, text string) (*Table, error) {
	made, err := newRecognizer(job.Recognizer{Name: name, Patterns: []string{text}})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(made.patterns[0].compile().groups, groupStep) {
		return nil, fmt.Errorf("%s: pattern %q has no group named step", name, text)
	}
	t := &Table{recognizers: []recognizer{made}}
	t.index()
	return t, nil
}

func newRecognizer(r job.Recognizer) (recognizer, error) {
	made := recognizer{name: r.Name, own: len(r.Patterns), unless: newWords(r.Unless)}
	for _, text := range slices.Concat(r.Patterns, r.Then) {
		p, err := newPattern(text)
		if err != nil {
			return made, fmt.Errorf("%s: %w", r.Name, err)
		}
		made.patterns = append(made.patterns, p)
	}
	return made, nil
}

func newPattern(text string) (pattern, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	return pattern{literal: literals.Required(tree), compile: sync.OnceValue(func() compiled {
		c := compiled{Regexp: regexp.MustCompile(text)} // it was parsed
		for _, name := range c.SubexpNames() {
			c.groups = append(c.groups, group(name))
		}
		return c
	})}, nil
}

// ParseRecognizers parses a JSON list of recognizers that a user adds; "" is none.
func ParseRecognizers(text string) ([]job.Recognizer, error) {
	return jsonlist.Parse[job.Recognizer](text, maxText)
}

// Check reports what is wrong with recognizers that a user adds, by the text of the first problem: each must have a name of its own,
// patterns that can yield a step, and at least one sample that it reads as it says.
func Check(own []job.Recognizer) error {
	t, err := New(own)
	if err != nil {
		return err
	}
	for i, r := range own {
		switch {
		case r.Name == "" || len(r.Name) > maxName || strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return fmt.Errorf("recognizer %d has no name of at most %d characters", i+1, maxName)
		case slices.ContainsFunc(t.recognizers[i+1:], func(other recognizer) bool { return other.name == r.Name }):
			return fmt.Errorf("there is another recognizer named %q", r.Name)
		case len(r.Patterns) == 0:
			return fmt.Errorf("%s has no patterns", r.Name)
		case len(r.Patterns)+len(r.Then) > maxPatterns:
			return fmt.Errorf("%s has more than %d patterns", r.Name, maxPatterns)
		case slices.ContainsFunc(slices.Concat(r.Patterns, r.Then), func(p string) bool { return len(p) > maxPattern }):
			return fmt.Errorf("%s has a pattern longer than %d bytes", r.Name, maxPattern)
		case len(r.Unless) > maxWords || slices.ContainsFunc(r.Unless, func(w string) bool { return !isWord(w) }):
			return fmt.Errorf("%s: unless must be at most %d words of lower-case letters, each at most %d long, with or without a * at its end", r.Name, maxWords, maxWord)
		case !t.recognizers[i].findsSteps():
			return fmt.Errorf("%s has no pattern with a group named step, or with the groups n and of", r.Name)
		case !slices.ContainsFunc(r.Samples, func(s job.Sample) bool { return s.Reading != nil && s.Reading.Step != nil }):
			return fmt.Errorf("%s has no sample with a step", r.Name)
		}
		for _, s := range r.Samples {
			if err := t.try(r.Name, s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recognizer) findsSteps() bool {
	return slices.ContainsFunc(r.patterns, func(p pattern) bool {
		groups := p.compile().groups
		return slices.Contains(groups, groupStep) || slices.Contains(groups, groupN) && slices.Contains(groups, groupOf)
	})
}

// try reads a sample with the whole table.
func (t *Table) try(name string, s job.Sample) error {
	r := t.NewReader()
	for _, line := range s.Lines {
		r.Read([]byte(line))
	}
	got, want := r.Reading(), job.Reading{}
	if s.Reading != nil {
		want = *s.Reading
	}
	switch by := r.Name(); {
	case s.Reading == nil && by != "":
		return fmt.Errorf("%s: %s recognizes %q, of which nothing should be read", name, by, s.Lines)
	case s.Reading != nil && by != name:
		return fmt.Errorf("%s: %q is recognized by %q", name, s.Lines, by)
	}
	g, _ := json.Marshal(got)
	if w, _ := json.Marshal(want); !bytes.Equal(g, w) { // a NaN differs from itself
		return fmt.Errorf("%s: from %q is read %s, not %s", name, s.Lines, g, w)
	}
	return nil
}

// read is what one line says.
type read struct {
	job.Reading
	n, of  int64 // -1 if not said
	epoch  int64 // the number of epochs before this one; -1 if not said
	epochs int64 // in all; 0 if not said
}

// find reads a line; ok is false if the pattern does not match, or if what it matches is no number.
func (p *pattern) find(line []byte) (found read, ok bool) {
	re := p.compile()
	at := re.FindSubmatchIndex(line)
	if at == nil {
		return found, false
	}
	found.n, found.of, found.epoch = -1, -1, -1
	for i, g := range re.groups {
		if g == "" || at[2*i] < 0 {
			continue
		}
		if !found.set(g, string(line[at[2*i]:at[2*i+1]])) {
			return found, false
		}
	}
	return found, true
}

func (r *read) set(g group, text string) bool {
	switch g {
	case groupStep, groupTotal, groupN, groupOf, groupEpochFrom0, groupEpochFrom1, groupEpochs, groupLastEpoch:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt32*int64(math.MaxInt16) { // epochs times steps must not overflow
			return false
		}
		r.setCount(g, n)
	case groupLoss:
		f, ok := number(text)
		loss := job.Loss(f)
		r.Loss = &loss
		return ok
	case groupEpoch:
		r.Epoch = finite(text)
	case groupLearningRate:
		r.LearningRate = finite(text)
	case groupTokensPerSec:
		r.TokensPerSecond = finite(text)
	case groupGradNorm:
		r.GradNorm = finite(text)
	case groupBatchSize:
		r.BatchSize = finite(text)
	case groupNoiseScale:
		r.NoiseScale = finite(text)
	case groupStateHash:
		r.StateHash = text[:min(len(text), job.MaxStateHash)]
	}
	return true
}

func (r *read) setCount(g group, n int64) {
	switch g {
	case groupStep:
		r.Step = &n
	case groupTotal:
		r.Total = &n
	case groupN:
		r.n = n
	case groupOf:
		r.of = n
	case groupEpochFrom0, groupEpochFrom1:
		epoch := float64(n)
		r.Epoch, r.epoch = &epoch, n
		if g == groupEpochFrom1 {
			r.epoch = max(0, n-1)
		}
	case groupEpochs:
		r.epochs = n
	case groupLastEpoch:
		r.epochs = n + 1
	}
}

// number parses a number as programs print them: 1,234.5 is one, and so are nan and inf.
func number(text string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	return f, err == nil || errors.Is(err, strconv.ErrRange) // beyond the range it is infinite
}

// finite is a number; nil if it is none, or not finite.
func finite(text string) *float64 {
	f, ok := number(text)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return &f
}
