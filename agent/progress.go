package agent

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/progress"
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
	checkpoints matcher

	mu         sync.Mutex
	table      *progress.Table
	generation int
	ranks      []*rankMeter // of that generation, by local rank
	last       int64        // the step of the generation before, as long as none of them has shown one
	saved      job.Saved
	reportedAt time.Time // when due last returned true
}

// slotProgress is how far the process that is furthest is.
type slotProgress struct {
	step  int64
	first int64     // of its generation
	loss  *job.Loss // nil if unknown. What it points to is immutable
	rate  float64   // steps per second
}

// newMeter returns a meter that recognizes what known frameworks print. The pattern of checkpoints may be "".
func newMeter(checkpoint string) (*meter, error) {
	checkpoints, err := newMatcher("checkpoint", checkpoint)
	if err != nil {
		return nil, err
	}
	m := &meter{checkpoints: checkpoints}
	return m, m.readBy(nil)
}

// readBy has progress read in another way; nil is what known frameworks print. What was read of processes that run no longer counts,
// except what they said themselves: another pattern may count differently, or match nothing, and a step that stays would look like a hang.
func (m *meter) readBy(by *elastic.Progress) error {
	table, err := tableOf(by)
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = furthest(m.ranks, m.last, time.Time{}).step
	m.table = table
	for _, r := range m.ranks {
		r.restart(table)
	}
	return nil
}

func tableOf(by *elastic.Progress) (*progress.Table, error) {
	switch {
	case by == nil:
		return progress.New(nil)
	case by.Pattern != "":
		return progress.Only(job.OwnPattern, by.Pattern)
	}
	own, err := progress.ParseRecognizers(by.Recognizers)
	if err != nil {
		return nil, err
	}
	return progress.New(own)
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

// find returns the step in a line.
func (m *matcher) find(line []byte) (step int64, found bool) {
	if m.pattern == nil || !bytes.Contains(line, m.literal) {
		return 0, false
	}
	groups := m.pattern.FindSubmatch(line)
	if groups == nil {
		return 0, false
	}
	step, err := strconv.ParseInt(string(groups[m.step]), 10, 64)
	return step, err == nil && step >= 0
}

// rankMeter reads the output of one process.
type rankMeter struct {
	meter      *meter
	generation int

	mu      sync.Mutex
	reader  *progress.Reader
	first   *int64
	at      time.Time // when the step last changed
	samples []sample  // oldest first
	// intervals are the newest ones between steps that it showed: a ring of rateSamples.
	intervals []time.Duration
	next      int
	mark      *job.Mark // immutable
}

// markEvery is about how often a mark comes; see job.Mark.
const markEvery = 4 * time.Second

// noteMark notes what the process said at the step that has just ended, if that is one for a mark.
func (r *rankMeter) noteMark(said job.Reading, at time.Time) {
	every := int64(1)
	for most := r.rate(at) * markEvery.Seconds(); float64(every) < most; {
		every *= 2
	}
	if *said.Step%every == 0 && (said.Loss != nil || said.GradNorm != nil || said.StateHash != "") {
		r.mark = &job.Mark{Step: *said.Step, Loss: said.Loss, GradNorm: said.GradNorm, StateHash: said.StateHash}
	}
}

type sample struct {
	step int64
	at   time.Time
}

// begin returns the meter of a process that starts, as the next local rank of its generation.
func (m *meter) begin(generation int) *rankMeter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation != m.generation {
		m.last = furthest(m.ranks, m.last, time.Time{}).step
		m.generation, m.ranks = generation, nil
	}
	r := &rankMeter{meter: m, generation: generation, reader: m.table.NewReader()}
	m.ranks = append(m.ranks, r)
	return r
}

// see handles one line of output. worth is true if the progress should be reported now: it is the process's first, or the last
// report is a while ago. recognized is the recognizer's name if it has just been found.
func (r *rankMeter) see(line []byte, at time.Time) (worth bool, recognized string) {
	if step, found := r.meter.checkpoints.find(line); found {
		worth = r.meter.seeCheckpoint(job.Saved{Step: step, Generation: r.generation}, at)
	}
	seen, first := r.read(line, at)
	if first || seen.Read {
		worth = r.meter.due(at, first) || worth
	}
	return worth, seen.Name
}

// say takes a line that the process wrote about its progress itself.
func (r *rankMeter) say(line []byte, at time.Time) (worth bool, err error) {
	reading, err := progress.Parse(line)
	if err != nil {
		return false, err
	}
	_, first := r.take(at, func() progress.Seen { return r.reader.Say(reading) })
	return r.meter.due(at, first), nil
}

// read reads a line, and reports whether it has the process's first step.
func (r *rankMeter) read(line []byte, at time.Time) (seen progress.Seen, first bool) {
	return r.take(at, func() progress.Seen { return r.reader.Read(line) })
}

// take has the reader read something, and notes when the step changed.
func (r *rankMeter) take(at time.Time, read func() progress.Seen) (seen progress.Seen, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.reader.Reading()
	seen = read()
	if !seen.Step {
		return seen, false
	}
	step := *r.reader.Reading().Step
	if n := len(r.samples); seen.Name != "" || n > 0 && step < r.samples[n-1].step {
		r.forget() // it counts differently, or went back to an earlier step
	}
	if r.first != nil {
		r.keepInterval(at.Sub(r.at))
		if before.Step != nil && !before.Counted {
			r.noteMark(before, at)
		}
	}
	r.at = at
	if r.first == nil {
		r.first, first = &step, true
	}
	if n := len(r.samples); n > 0 && at.Sub(r.samples[n-1].at) < rateSpacing {
		return seen, first
	}
	if len(r.samples) == rateSamples {
		r.samples = append(r.samples[:0], r.samples[1:]...)
	}
	r.samples = append(r.samples, sample{step, at})
	return seen, first
}

// restart reads the output by another table from now on.
func (r *rankMeter) restart(t *progress.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader.Name() == progress.Said {
		return
	}
	r.reader = t.NewReader()
	r.forget()
}

// forget drops what was found out of the steps before.
func (r *rankMeter) forget() {
	r.samples, r.first, r.intervals, r.next, r.mark = r.samples[:0], nil, r.intervals[:0], 0, nil
}

func (r *rankMeter) keepInterval(d time.Duration) {
	if len(r.intervals) < rateSamples {
		r.intervals = append(r.intervals, d)
		return
	}
	r.intervals[r.next] = d
	r.next = (r.next + 1) % rateSamples
}

// interval is the time between steps that nine of ten do not exceed; 0 if none is known.
func (r *rankMeter) interval() time.Duration {
	if len(r.intervals) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.intervals))
	return sorted[len(sorted)*9/10]
}

// enterStill notes which processes have shown no step for long.
func (m *meter) enterStill(seen []glimpse, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.ranks[:min(len(m.ranks), len(seen))] {
		r.mu.Lock()
		seen[i].still = r.first != nil && now.Sub(r.at) >= job.StillAfter(r.interval())
		r.mu.Unlock()
	}
}

// progress is how far the process is; nil if nothing is known.
func (r *rankMeter) progress(now time.Time) *job.RankProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader.Name() == "" {
		return nil
	}
	p := &job.RankProgress{By: r.reader.Name(), Reading: r.reader.Reading(), FirstStep: r.first, StepRate: r.rate(now), Mark: r.mark}
	if p.Step != nil {
		age := max(0, now.Sub(r.at).Seconds())
		p.StepAge = &age
		if d := r.interval(); d > 0 {
			p.StepInterval = new(d.Seconds())
		}
	}
	return p
}

// rate falls once steps stop coming.
func (r *rankMeter) rate(now time.Time) float64 {
	if len(r.samples) < 2 {
		return 0
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	span := last.at.Sub(first.at)
	usual := span / time.Duration(len(r.samples)-1)
	if silent := now.Sub(last.at); silent > 2*usual {
		span += silent
	}
	return float64(last.step-first.step) / span.Seconds()
}

// seeCheckpoint records a checkpoint. If several ranks write parts of one, the highest step counts. A checkpoint of an earlier
// generation counts until this generation has written one.
func (m *meter) seeCheckpoint(saved job.Saved, at time.Time) (worth bool) {
	m.mu.Lock()
	newest := saved.Newest(m.saved)
	known := newest == m.saved
	m.saved = newest
	m.mu.Unlock()
	return !known && m.due(at, false)
}

// newestSaved is the newest checkpoint in the output.
func (m *meter) newestSaved() job.Saved {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saved
}

// readsCheckpoints reports whether the output says when a checkpoint is written.
func (m *meter) readsCheckpoints() bool { return m.checkpoints.pattern != nil }

// due reports whether the last report is a while ago, or this one cannot wait, and if so counts it as a report.
func (m *meter) due(at time.Time, now bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !now && at.Sub(m.reportedAt) < progressEvery {
		return false
	}
	m.reportedAt = at
	return true
}

// report enters the newest progress.
func (m *meter) report(r *outgoing, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := furthest(m.ranks, m.last, now)
	r.Step, r.FirstStep, r.Loss, r.StepRate, r.Saved = p.step, p.first, p.loss, p.rate, m.saved
	ranks := make([]job.RankReport, max(len(m.ranks), len(r.Ranks)))
	copy(ranks, r.Ranks) // with figures of the processes, which the agent keeps
	for i, rank := range m.ranks {
		ranks[i].Progress = rank.progress(now)
	}
	fitRanks(ranks, maxRanks)
	r.Ranks = ranks
}

// furthest is the progress of the rank with the highest step; of those with the same step, one that shows the loss. Steps that count
// from the start of a process are not the training's.
func furthest(ranks []*rankMeter, last int64, now time.Time) slotProgress {
	best := slotProgress{step: last} // its loss and rate are over
	found := false
	for _, r := range ranks {
		p := r.progress(now)
		if p == nil || p.Step == nil || p.Counted {
			continue
		}
		if found && (*p.Step < best.step || *p.Step == best.step && p.Loss == nil) {
			continue
		}
		best, found = slotProgress{*p.Step, *p.FirstStep, p.Loss, p.StepRate}, true
	}
	return best
}
