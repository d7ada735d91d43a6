package agent

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// A rate is computed from rateSamples samples at least rateSpacing apart: 16 s or more of fast steps, or the last 32 slow
	// ones.
	rateSamples = 32
	rateSpacing = 500 * time.Millisecond
	// progressEvery is how often progress is reported at least, if there is any; the beat may be slower. Only members whose
	// output shows progress report this often: usually rank 0.
	progressEvery = 2 * time.Second
)

// meter reads training progress and checkpoints from output lines. Safe for concurrent use.
type meter struct {
	steps       matcher
	loss        int // group of steps; -1 for none
	checkpoints matcher

	mu         sync.Mutex
	generation int
	now        progress
	samples    []sample  // oldest first
	reportedAt time.Time // when see last returned true
}

type progress struct {
	step  int64
	first int64     // of its generation
	loss  *job.Loss // nil if unknown. What it points to is immutable
	rate  float64   // steps per second
	saved job.Saved
}

type sample struct {
	step int64
	at   time.Time
}

// newMeter compiles a job's patterns, each of which may be "".
func newMeter(progress, checkpoint string) (*meter, error) {
	steps, err := newMatcher("progress", progress)
	if err != nil {
		return nil, err
	}
	checkpoints, err := newMatcher("checkpoint", checkpoint)
	if err != nil {
		return nil, err
	}
	m := &meter{steps: steps, loss: -1, checkpoints: checkpoints}
	if steps.pattern != nil {
		m.loss = steps.pattern.SubexpIndex("loss")
	}
	return m, nil
}

// matcher finds steps in output lines.
type matcher struct {
	pattern *regexp.Regexp // nil finds nothing
	literal []byte         // prefix of every match
	step    int            // group
}

// newMatcher compiles a pattern; "" makes a matcher that finds nothing. what names it in errors.
func newMatcher(what, pattern string) (matcher, error) {
	if pattern == "" {
		return matcher{}, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return matcher{}, fmt.Errorf("%s pattern: %w", what, err)
	}
	step := re.SubexpIndex("step")
	if step < 0 {
		return matcher{}, fmt.Errorf("%s pattern %q has no group named step", what, pattern)
	}
	literal, _ := re.LiteralPrefix()
	return matcher{re, []byte(literal), step}, nil
}

// find returns the step in a line, and all groups; nil groups if there is none.
func (m *matcher) find(line []byte) (step int64, groups [][]byte) {
	if m.pattern == nil || !bytes.Contains(line, m.literal) {
		return 0, nil
	}
	groups = m.pattern.FindSubmatch(line)
	if groups == nil {
		return 0, nil
	}
	step, err := strconv.ParseInt(string(groups[m.step]), 10, 64)
	if err != nil || step < 0 {
		return 0, nil
	}
	return step, groups
}

// see handles one line of a process of the given generation. worth is true if the progress should be reported now: it is the
// first of its generation, or the last report is a while ago.
func (m *meter) see(generation int, line []byte, at time.Time) (worth bool) {
	if step, groups := m.checkpoints.find(line); groups != nil {
		worth = m.seeCheckpoint(job.Saved{Step: step, Generation: generation}, at)
	}
	if step, groups := m.steps.find(line); groups != nil {
		worth = m.seeStep(generation, step, groups, at) || worth
	}
	return worth
}

// seeCheckpoint records a checkpoint. If several ranks write parts of one, the highest step counts, as with steps. A checkpoint
// of an earlier generation counts until this generation has written one.
func (m *meter) seeCheckpoint(saved job.Saved, at time.Time) (worth bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := saved.Newest(m.now.saved)
	if newest == m.now.saved {
		return false
	}
	m.now.saved = newest
	return m.due(at)
}

// newestSaved is the newest checkpoint in the output.
func (m *meter) newestSaved() job.Saved {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.saved
}

// readsCheckpoints reports whether the output says when a checkpoint is written.
func (m *meter) readsCheckpoints() bool { return m.checkpoints.pattern != nil }

// due reports whether the last report is a while ago, and if so counts this as a report.
func (m *meter) due(at time.Time) bool {
	if at.Sub(m.reportedAt) < progressEvery {
		return false
	}
	m.reportedAt = at
	return true
}

// seeStep records a step. If several ranks print steps, the highest counts; a later generation continues from its checkpoint,
// even if that is earlier.
func (m *meter) seeStep(generation int, step int64, groups [][]byte, at time.Time) (worth bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation < m.generation || generation == m.generation && step < m.now.step {
		return false
	}
	worth = m.due(at)
	if generation > m.generation {
		m.generation, m.samples = generation, m.samples[:0]
		m.now.first = step
		m.reportedAt, worth = at, true
	}
	m.now.step = step
	if m.loss >= 0 {
		m.now.loss = lossOf(string(groups[m.loss]))
	}
	if n := len(m.samples); n > 0 && at.Sub(m.samples[n-1].at) < rateSpacing {
		return worth
	}
	if len(m.samples) == rateSamples {
		m.samples = append(m.samples[:0], m.samples[1:]...)
	}
	m.samples = append(m.samples, sample{step, at})
	return worth
}

func lossOf(s string) *job.Loss {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // beyond the range it is infinite
		return nil
	}
	l := job.Loss(f)
	return &l
}

// read returns the newest progress. The rate falls once steps stop coming.
func (m *meter) read(now time.Time) progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.now
	if len(m.samples) < 2 {
		return p
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	span := last.at.Sub(first.at)
	usual := span / time.Duration(len(m.samples)-1)
	if silent := now.Sub(last.at); silent > 2*usual {
		span += silent
	}
	p.rate = float64(last.step-first.step) / span.Seconds()
	return p
}
