package progress

import (
	"bytes"

	"github.com/eltrain/eltrain/internal/literals"
	"github.com/eltrain/eltrain/job"
)

// maxLine is the longest line that is tried: those that frameworks print are a few hundred bytes.
const maxLine = 4 << 10

// farAhead is how many of its usual strides a training may advance from one reading to the next; firstAhead is how many steps before
// any stride is known. Beyond it, and backwards, the next reading must confirm it: other lines look like a step, too.
const (
	farAhead   = 1000
	firstAhead = 100_000
)

// Reader reads one process's output. It finds the recognizer that fits, and stays with it unless a more specific one finds a step.
type Reader struct {
	table  *Table
	states []state      // one for each recognizer
	chosen int          // len(states) before any
	plain  []byte       // the line without colors
	found  []bool       // literals in the line
	said   *job.Reading // what the program said itself; nil if nothing
}

// state is what one recognizer has read.
type state struct {
	own     bool // a pattern of its own matched
	now     job.Reading
	stride  int64  // the longest step from one reading to the next
	pending *int64 // a step that the next must confirm

	bar   job.Reading // the last of Then
	bound int64       // the total of the bar that counts; 0 before there is one

	// Of a bar that starts again in each epoch without saying which: steps before it, its position and length, and how often in
	// turn one of another length was read.
	base, n, of  int64
	other, times int64
}

// Seen is what a line changed.
type Seen struct {
	Read bool   // something was read
	Step bool   // the step is another
	Name string // of the recognizer, if it is another
}

// NewReader makes the reader of one process.
func (t *Table) NewReader() *Reader {
	return &Reader{table: t, states: make([]state, len(t.recognizers)), chosen: len(t.recognizers), found: make([]bool, t.literals.Len())}
}

// Name is the recognizer that fits; "" if none was found yet.
func (r *Reader) Name() string {
	if r.said != nil {
		return Said
	}
	if r.chosen == len(r.states) {
		return ""
	}
	return r.table.recognizers[r.chosen].name
}

// Reading is what was read last of everything.
func (r *Reader) Reading() job.Reading {
	if r.said != nil {
		return *r.said
	}
	if r.chosen == len(r.states) {
		return job.Reading{}
	}
	return r.states[r.chosen].now
}

// Read reads one line of output. Once the program said something itself, its output does not count.
func (r *Reader) Read(line []byte) (seen Seen) {
	if r.said != nil || len(line) > maxLine {
		return seen
	}
	line = r.uncolored(line)
	if clear(r.found); !r.table.literals.In(line, r.found) && !r.table.partial {
		return seen
	}
	before := r.Reading().Step
	for i := range r.table.recognizers {
		known := r.chosen < len(r.states) && r.states[r.chosen].now.Step != nil
		if known && i > r.chosen {
			break
		}
		if !r.try(i, line) {
			continue
		}
		s := &r.states[i]
		if i != r.chosen {
			if !s.own || r.chosen < len(r.states) && s.now.Step == nil {
				continue
			}
			r.chosen, seen.Name = i, r.table.recognizers[i].name
		}
		seen.Read = true
		seen.Step = s.now.Step != nil && (before == nil || *before != *s.now.Step)
		return seen
	}
	return seen
}

// try reads the line with a recognizer.
func (r *Reader) try(i int, line []byte) bool {
	recognizer := &r.table.recognizers[i]
	for k := range recognizer.patterns {
		p := &recognizer.patterns[k]
		if p.id != literals.None && !r.found[p.id] {
			continue
		}
		found, ok := p.find(line)
		if !ok {
			continue
		}
		if recognizer.unless.in(line) {
			return false
		}
		if k < recognizer.own {
			return r.states[i].take(found)
		}
		return r.states[i].takeBar(found)
	}
	return false
}

// take takes what a pattern of its own has read, and reports whether it was anything new.
func (s *state) take(found read) bool {
	s.own = true
	reading := found.Reading
	if found.n >= 0 && found.of > 0 {
		step, ok := s.within(found)
		if !ok {
			return false
		}
		reading.Step, reading.Counted = &step, found.epoch < 0
		if found.epoch >= 0 && found.epochs > 0 {
			total := found.epochs * found.of
			reading.Total = &total
		}
	}
	if reading.Step != nil && !s.advance(*reading.Step) {
		return false
	}
	s.now = s.now.With(reading)
	if s.bar.Total != nil && *s.bar.Total != s.bound { // a training prints both
		s.bound = *s.bar.Total
		s.now.Step, s.now.Total, s.pending = s.bar.Step, s.bar.Total, nil
	}
	return true
}

// takeBar takes what others print as well: the bar that was there when a pattern of its own matched, which has the same total.
func (s *state) takeBar(found read) bool {
	if found.Step == nil || found.Total == nil {
		return false
	}
	s.bar = found.Reading
	if s.bound == 0 || *found.Total != s.bound || !s.advance(*found.Step) {
		return false
	}
	s.now = s.now.With(found.Reading)
	return true
}

// within is the step of a position in an epoch. Without the epoch's number it counts from where the process began.
func (s *state) within(found read) (step int64, ok bool) {
	if found.epoch >= 0 {
		return found.epoch*found.of + found.n, true
	}
	const usual = 10 // readings of another bar in turn before it is the one that counts: two bars take turns
	switch {
	case s.of == 0:
		s.of = found.of
	case found.of != s.of:
		if found.of != s.other {
			s.other, s.times = found.of, 0
		}
		if s.times++; s.times < usual {
			return 0, false
		}
		s.base, s.of = s.base+s.n, found.of
	case found.n < s.n:
		s.base += s.of
	}
	s.n, s.times = found.n, 0
	return s.base + s.n, true
}

// advance reports whether a step is one that the training may have reached.
func (s *state) advance(step int64) bool {
	if s.now.Step == nil {
		return true
	}
	now := *s.now.Step
	ahead := int64(firstAhead)
	if s.stride > 0 {
		ahead = farAhead * s.stride
	}
	likely := func(from int64) bool { return step > from && step-from <= ahead }
	confirmed := s.pending != nil && (likely(*s.pending) || step > *s.pending && step-*s.pending <= *s.pending-now)
	switch {
	case step == now:
	case likely(now):
		s.stride = max(s.stride, step-now)
	case confirmed:
		s.stride = max(s.stride, step-*s.pending)
	default:
		s.pending = &step
		return false
	}
	s.pending = nil
	return true
}

// uncolored is the line without the escape sequences of colors (SGR). Those that move the cursor stay: a bar below another one ends
// with one.
func (r *Reader) uncolored(line []byte) []byte {
	if bytes.IndexByte(line, escape) < 0 {
		return line
	}
	r.plain = r.plain[:0]
	for len(line) > 0 {
		i := bytes.IndexByte(line, escape)
		if i < 0 {
			break
		}
		r.plain = append(r.plain, line[:i]...)
		n := colorLength(line[i:])
		if n == 0 {
			r.plain, n = append(r.plain, escape), 1
		}
		line = line[i+n:]
	}
	r.plain = append(r.plain, line...)
	return r.plain
}

const escape = 0x1b

// colorLength is the length of the color sequence at the start of b; 0 if there is none.
func colorLength(b []byte) int {
	if len(b) < 3 || b[1] != '[' {
		return 0
	}
	for i, c := range b[2:] {
		switch {
		case c == 'm':
			return i + 3
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}
