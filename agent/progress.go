package agent

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"
)

const (
	// A rate is taken over rateSamples samples that are at least rateSpacing apart: 16 s or more of fast
	// steps, or the last 32 slow ones.
	rateSamples = 32
	rateSpacing = 500 * time.Millisecond
	// progressEvery is how often progress goes out at least while there is some; the beat may be slower. Only
	// members whose output shows progress speak so often: rank 0, as a rule.
	progressEvery = 2 * time.Second
)

// meter reads training progress from output lines. Safe for concurrent use.
type meter struct {
	pattern    *regexp.Regexp // nil reads nothing
	literal    []byte         // every match begins with it
	step, loss int            // groups; loss is -1 without one

	mu         sync.Mutex
	generation int
	now        progress
	samples    []sample  // oldest first
	toldAt     time.Time // when see last said that it is worth telling
}

type progress struct {
	step  int64
	first int64   // of its generation
	loss  float64 // 0 if unknown or not finite: JSON has no NaN
	rate  float64 // steps per second
}

type sample struct {
	step int64
	at   time.Time
}

// newMeter compiles the job's pattern; "" makes a meter that reads nothing.
func newMeter(pattern string) (*meter, error) {
	if pattern == "" {
		return &meter{}, nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("progress pattern: %w", err)
	}
	m := &meter{pattern: re, step: re.SubexpIndex("step"), loss: re.SubexpIndex("loss")}
	if m.step < 0 {
		return nil, fmt.Errorf("progress pattern %q has no group named step", pattern)
	}
	literal, _ := re.LiteralPrefix()
	m.literal = []byte(literal)
	return m, nil
}

// see takes one line of a process of the given generation. Of several ranks that print the same steps the
// foremost counts; a later generation goes on from its checkpoint, even if that is earlier. worth tells that
// the progress should go out now: it is the first of its generation, or the last that did is a while ago.
func (m *meter) see(generation int, line []byte, at time.Time) (worth bool) {
	if m.pattern == nil || !bytes.Contains(line, m.literal) {
		return false
	}
	match := m.pattern.FindSubmatch(line)
	if match == nil {
		return false
	}
	step, err := strconv.ParseInt(string(match[m.step]), 10, 64)
	if err != nil || step < 0 {
		return false
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if generation < m.generation || generation == m.generation && step < m.now.step {
		return false
	}
	worth = at.Sub(m.toldAt) >= progressEvery
	if generation > m.generation {
		m.generation, m.samples = generation, m.samples[:0]
		m.now.first = step
		worth = true
	}
	if worth {
		m.toldAt = at
	}
	m.now.step = step
	if m.loss >= 0 {
		m.now.loss = finite(string(match[m.loss]))
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

func finite(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// read gives the newest progress. The rate falls once steps stop coming.
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
