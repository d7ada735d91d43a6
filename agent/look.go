package agent

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// lookEvery is how often the training processes are looked at.
	lookEvery = 500 * time.Millisecond
	// recently is how far back the recent use of a processor goes.
	recently = 2 * time.Second
	// idleShare of a processor is what a process that only waits may use: of its helper threads. Likewise of an accelerator.
	idleShare = 0.05
	// blockedAfter is how long a process has to be blocked until that is told at once: disks block for moments all the time.
	blockedAfter = time.Second
	// tellEvery is how often a look is told at most.
	tellEvery = time.Second
)

// glimpse is what is seen of a process at one moment. Its zero value is nothing: it has ended, or cannot be read.
type glimpse struct {
	state   job.ThreadState // of its main thread
	channel string          // in which that waits
	ticks   uint64          // that it has used
	bytes   uint64          // that it has read and written; 0 if unknown
	lines   uint64          // that it has printed
	devices bool            // accelerators of its slot work
	still   bool            // it has shown no step for long
}

// lookout remembers what was seen of the training processes of one generation, by local rank.
type lookout struct {
	ranks []sightings
	told  time.Time // when a look was last told
}

// sightings are of one process.
type sightings struct {
	glimpse
	begun  time.Time // the first
	at     time.Time
	since  time.Time // its state has held it, or has not
	active time.Time // it last did anything
	ticked []ticked  // recently, oldest first
	busy   *float64
	looks  job.Looks
	tells  aspects // as last told
}

// ticked is the processor time that had been used at a moment.
type ticked struct {
	at    time.Time
	ticks uint64
}

// aspects are those of a process whose change is told at once.
type aspects struct {
	held  job.ThreadState
	still bool
	works bool // if still
}

// see takes one glimpse of each process, and reports whether that is to be told now.
func (l *lookout) see(now time.Time, seen []glimpse) (tell bool) {
	if len(l.ranks) != len(seen) {
		l.ranks = make([]sightings, len(seen))
	}
	for i := range seen {
		l.ranks[i].see(now, seen[i])
		tell = tell || l.ranks[i].aspects() != l.ranks[i].tells
	}
	if !tell || now.Sub(l.told) < tellEvery {
		return false
	}
	l.told = now
	for i := range l.ranks {
		l.ranks[i].tells = l.ranks[i].aspects()
	}
	return true
}

func (s *sightings) see(now time.Time, seen glimpse) {
	before := s.glimpse
	elapsed := now.Sub(s.at).Seconds()
	first := s.at.IsZero()
	s.glimpse, s.at = seen, now
	if first {
		s.begun = now
	}
	did := first || seen.devices || seen.bytes != before.bytes || seen.lines != before.lines ||
		float64(seen.ticks-min(before.ticks, seen.ticks))/ticksPerSecond > idleShare*elapsed
	if did {
		s.active = now
	}
	moves := seen.bytes != before.bytes || seen.ticks != before.ticks
	if first || seen.state.Held() != before.state.Held() || seen.state == job.ThreadBlocked && moves {
		s.since = now
	}
	if seen.state == "" {
		s.ticked, s.busy = nil, nil
		return
	}
	s.ticked = append(s.ticked, ticked{now, seen.ticks})
	for len(s.ticked) > 2 && now.Sub(s.ticked[1].at) >= recently {
		s.ticked = s.ticked[1:]
	}
	if from := s.ticked[0]; now.After(from.at) {
		s.busy = new(float64(seen.ticks-min(from.ticks, seen.ticks)) / ticksPerSecond / now.Sub(from.at).Seconds())
	}
	s.looks.All++
	if _, known := s.looks.Waits[seen.channel]; seen.state == job.ThreadSleeps && seen.channel != "" && (known || len(s.looks.Waits) < job.MaxWaits) {
		if s.looks.Waits == nil {
			s.looks.Waits = map[string]int64{}
		}
		s.looks.Waits[seen.channel]++
	}
}

func (s *sightings) aspects() aspects {
	a := aspects{held: s.state.Held(), still: s.still}
	if a.held == job.ThreadBlocked && s.at.Sub(s.since) < blockedAfter {
		a.held = s.tells.held
	}
	a.works = a.still && s.busy != nil && *s.busy >= job.Works
	return a
}

// enter completes the figures of the processes with what was seen of them last.
func (l *lookout) enter(ranks []job.RankReport, now time.Time) {
	for i := range l.ranks {
		s := &l.ranks[i]
		if i >= len(ranks) || ranks[i].Process == nil || s.state == "" {
			continue
		}
		age := func(since time.Time) *float64 { return new(max(0, now.Sub(since).Seconds())) }
		p := *ranks[i].Process // others read it
		p.State, p.WaitChannel = s.state, s.channel
		p.Age, p.StateAge, p.IdleAge, p.Busy = age(s.begun), age(s.since), age(s.active), s.busy
		p.Looks = &job.Looks{All: s.looks.All, Waits: maps.Clone(s.looks.Waits)}
		ranks[i].Process = &p
	}
}

// subject is a process to take evidence of.
type subject struct {
	pid    int
	stacks string   // the file for its stacks
	output []string // its last lines
}

const (
	// maxFrames, maxFrame, maxOutput and maxOutputLine bound the evidence of a process.
	maxFrames     = 16
	maxFrame      = 200
	maxOutput     = 3
	maxOutputLine = 300
	// maxEvidence bounds all evidence in a report, as JSON.
	maxEvidence = 20 << 10
)

// fitEvidence shortens evidence to at most so many bytes of JSON: of the last processes first.
func fitEvidence(found []job.RankEvidence, most int) {
	const empty = len("{},")
	most -= empty * len(found)
	for i := range found {
		e := &found[i]
		e.Frames, e.Output = shortened(e.Frames[:min(len(e.Frames), maxFrames)], maxFrame), shortened(e.Output, maxOutputLine)
		bare := *e
		bare.Output, bare.Frames = nil, nil
		for _, smaller := range []job.RankEvidence{*e, bare, {}} {
			*e = smaller
			if text, err := json.Marshal(smaller); err == nil && len(text)-len("{}") <= most {
				most -= len(text) - len("{}")
				break
			}
		}
	}
}

func shortened(texts []string, most int) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ToValidUTF8(text[:min(len(text), most)], ""))
	}
	return out
}
