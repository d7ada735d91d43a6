// Package history remembers what was measured of training processes: the last hour as it was reported, a day thinned.
//
// History is a plain value: time is an argument, its memory is bounded, and it must not know what is reported how. Figures
// are kept with a precision of at least 0.2 %, so that a rank takes 17 KB.
package history

import (
	"math"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// Fine is the interval of points of the last hour, and of a member's beat by default; Coarse that of older ones.
	Fine   = 5 * time.Second
	Coarse = 10 * time.Minute
	// fineFor and coarseFor are how long points are kept at least.
	fineFor   = time.Hour
	coarseFor = 24 * time.Hour

	cells        = 30 // of a block
	fineBlocks   = int(fineFor/Fine)/cells + 1
	coarseBlocks = (int(coarseFor/Coarse)+cells-1)/cells + 1
	perRank      = fineBlocks + coarseBlocks
	thinning     = int32(Coarse / Fine)
	// mostRanks is how many ranks are remembered for each that New was told of: then each has its thinned day and little else.
	mostRanks = 4

	slab = 64 // blocks that are allocated together
)

// Rank is a training process: the one of a local rank in a slot.
type Rank struct {
	Slot  job.Address
	Local int
}

// Measured is what a report says of a rank.
type Measured struct {
	// At is when Process was read, by the clock of the agent. It is compared only with that of other reports of the same incarnation.
	At          time.Time
	Incarnation int
	Step        int64 // 0 if unknown
	Loss        *job.Loss
	Process     *job.ProcessFigures
}

// Rates are what a rank used per second between its two newest samples; nil if unknown.
type Rates struct {
	CPU     *float64 `json:"cpu,omitempty"` // cores
	Read    *float64 `json:"read_bytes_per_second,omitempty"`
	Written *float64 `json:"written_bytes_per_second,omitempty"`
}

// Point is what is remembered of an interval: the last step, loss and state, the largest memory, the mean of rates. What is unknown
// is nil, 0 or "".
type Point struct {
	At    time.Time       `json:"at"` // when the interval began, by the master's clock
	Step  int64           `json:"step,omitempty"`
	Loss  *job.Loss       `json:"loss,omitempty"`
	State job.ThreadState `json:"state,omitempty"`
	RSS   *float64        `json:"rss_bytes,omitempty"`
	Rates
}

// History is a value that its owner guards.
type History struct {
	ranks map[Rank]*series
	slabs [][]block
	free  []int32
	most  int    // blocks
	fine  []turn // fine blocks, in the order in which they were begun; the first may be gone
	swept int32  // coarse interval of the last sweep
}

// series is one rank's history.
type series struct {
	fine, coarse []run // oldest first
	thinned      int32 // begin of the newest fine run that is in coarse
	newest       int32 // interval
	sample       sample
	rates        Rates
}

// run is a block of consecutive cells from begin, which is a multiple of cells.
type run struct {
	begin int32 // interval, since 1970
	block int32
}

type turn struct {
	of    *series
	begin int32
}

// sample is what the next one is compared with.
type sample struct {
	at            time.Time
	incarnation   int
	cpu           *float64
	read, written *int64
}

// New returns a History for so many ranks. The memory of more is bounded as well: their last hour begins later.
func New(ranks int) *History {
	return &History{ranks: map[Rank]*series{}, most: ranks * perRank, swept: math.MinInt32}
}

// Add remembers a report about a rank. A report that repeats the last sample's figures changes no rate.
func (h *History) Add(now time.Time, rank Rank, m Measured) {
	cell := cellOf(now)
	h.sweep(cell)
	s := h.series(rank)
	if s == nil {
		return
	}
	s.measure(m)
	p := Point{Step: m.Step, Loss: m.Loss, Rates: s.rates}
	if m.Process != nil {
		p.State = m.Process.State
		if m.Process.RSS != nil {
			p.RSS = new(float64(*m.Process.RSS))
		}
	}
	h.enter(s, max(cell, s.newest), p) // not before: a clock may be set back
}

// series is that of a rank, which is created if there is room; else nil.
func (h *History) series(rank Rank) *series {
	s := h.ranks[rank]
	if s == nil && len(h.ranks)*perRank < h.most*mostRanks {
		s = &series{thinned: math.MinInt32, newest: math.MinInt32}
		h.ranks[rank] = s
	}
	return s
}

// enter puts a point into an interval that is not before the newest.
func (h *History) enter(s *series, cell int32, p Point) {
	s.newest = cell
	begin := floor[int32](cell, cells) * cells
	if (len(s.fine) == 0 || s.fine[len(s.fine)-1].begin != begin) && !h.begin(s, cell, begin) {
		return
	}
	h.block(s.fine[len(s.fine)-1].block).put(int(cell-begin), p)
}

// begin begins a fine run, unless there is no block for it.
func (h *History) begin(s *series, cell, begin int32) bool {
	h.expire(s, cell)
	if n := len(s.fine); n > 0 {
		h.thin(s, s.fine[n-1].begin)
	}
	block, ok := h.allocate()
	if !ok {
		return false
	}
	s.fine = append(s.fine, run{begin, block})
	for len(h.fine) > 0 && !h.fine[0].holds() {
		h.fine = h.fine[1:]
	}
	h.fine = append(h.fine, turn{s, begin})
	return true
}

// holds reports whether it is still the oldest fine run of its rank.
func (t turn) holds() bool { return len(t.of.fine) > 0 && t.of.fine[0].begin == t.begin }

// measure computes the rates since the last sample.
func (s *series) measure(m Measured) {
	if m.Process == nil {
		s.sample, s.rates = sample{}, Rates{}
		return
	}
	now := sample{m.At, m.Incarnation, m.Process.CPUSeconds, m.Process.Read, m.Process.Written}
	before := s.sample
	if now.incarnation == before.incarnation && now.at.Equal(before.at) {
		return
	}
	s.sample, s.rates = now, Rates{}
	elapsed := now.at.Sub(before.at).Seconds()
	if before.at.IsZero() || now.incarnation != before.incarnation || elapsed <= 0 {
		return
	}
	s.rates.CPU = perSecond(before.cpu, now.cpu, elapsed)
	s.rates.Read, s.rates.Written = perSecond(before.read, now.read, elapsed), perSecond(before.written, now.written, elapsed)
}

// perSecond is how fast a counter has grown; nil if unknown, or if it began again.
func perSecond[N int64 | float64](before, now *N, elapsed float64) *float64 {
	if before == nil || now == nil || *now < *before {
		return nil
	}
	return new(float64(*now-*before) / elapsed)
}

// Rates are the newest rates of a rank.
func (h *History) Rates(rank Rank) Rates {
	if s := h.ranks[rank]; s != nil {
		return s.rates
	}
	return Rates{}
}

// Points are those of a rank since a time, oldest first. They are thinned where nothing else is left; the interval of the last thinned
// one may reach over some that are not.
func (h *History) Points(rank Rank, since time.Time) (points []Point) {
	s := h.ranks[rank]
	if s == nil {
		return nil
	}
	from := int32(math.MaxInt32) // of the fine ones
	if len(s.fine) > 0 {
		from = s.fine[0].begin
	}
	add := func(runs []run, width time.Duration, until int32) {
		for _, r := range runs {
			for i := range cells {
				cell := r.begin + int32(i)
				at := time.Unix(int64(cell)*int64(width/time.Second), 0)
				if p := h.block(r.block).get(i); p != nil && !at.Before(since) && cell < until {
					p.At = at
					points = append(points, *p)
				}
			}
		}
	}
	add(s.coarse, Coarse, ceil(from, thinning))
	add(s.fine, Fine, math.MaxInt32)
	return points
}

// Forget forgets all ranks of a job.
func (h *History) Forget(job string) {
	for rank, s := range h.ranks {
		if rank.Slot.Job == job {
			h.remove(rank, s)
		}
	}
}

func (h *History) remove(rank Rank, s *series) {
	for _, r := range slices.Concat(s.fine, s.coarse) {
		h.free = append(h.free, r.block)
	}
	s.fine, s.coarse = nil, nil // for its turns
	delete(h.ranks, rank)
}

// sweep expires what is old of ranks that are not reported anymore, once in a coarse interval.
func (h *History) sweep(cell int32) {
	coarse := floor(cell, thinning)
	if coarse <= h.swept {
		return
	}
	h.swept = coarse
	for rank, s := range h.ranks {
		h.expire(s, cell)
		if len(s.fine)+len(s.coarse) == 0 {
			h.remove(rank, s)
		}
	}
}

// expire drops the runs that have ended for longer than they are kept.
func (h *History) expire(s *series, cell int32) {
	for len(s.fine) > 0 && s.fine[0].begin+cells <= cell-int32(fineFor/Fine) {
		h.dropFine(s)
	}
	for len(s.coarse) > 0 && s.coarse[0].begin+cells <= floor(cell, thinning)-int32(coarseFor/Coarse) {
		h.free = append(h.free, s.coarse[0].block)
		s.coarse = slices.Delete(s.coarse, 0, 1)
	}
}

// dropFine drops a rank's oldest fine run, thinned.
func (h *History) dropFine(s *series) {
	oldest := s.fine[0]
	h.thin(s, oldest.begin)
	if len(s.fine) > 0 && s.fine[0] == oldest { // thin may have taken its block
		h.free = append(h.free, oldest.block)
		s.fine = slices.Delete(s.fine, 0, 1)
	}
}

// thin enters the coarse interval of a fine run that is complete, from all fine runs of that interval.
func (h *History) thin(s *series, begin int32) {
	if begin <= s.thinned {
		return
	}
	s.thinned = begin
	cell := floor(begin, thinning)
	sum, any := h.summary(s, cell)
	if !any {
		return
	}
	at := floor[int32](cell, cells) * cells
	if n := len(s.coarse); n == 0 || s.coarse[n-1].begin != at {
		block, ok := h.allocate()
		if !ok {
			return
		}
		s.coarse = append(s.coarse, run{at, block})
	}
	h.block(s.coarse[len(s.coarse)-1].block).put(int(cell-at), sum)
}

// summary is that of the fine points of a coarse interval.
func (h *History) summary(s *series, coarse int32) (sum Point, any bool) {
	var cpu, read, written mean
	for _, r := range s.fine {
		if floor(r.begin, thinning) != coarse {
			continue
		}
		for i := range cells {
			p := h.block(r.block).get(i)
			if p == nil {
				continue
			}
			any = true
			cpu.add(p.CPU)
			read.add(p.Read)
			written.add(p.Written)
			if p.Step > 0 {
				sum.Step = p.Step
			}
			if p.Loss != nil {
				sum.Loss = p.Loss
			}
			if p.State != "" {
				sum.State = p.State
			}
			if p.RSS != nil && (sum.RSS == nil || *p.RSS > *sum.RSS) {
				sum.RSS = p.RSS
			}
		}
	}
	sum.CPU, sum.Read, sum.Written = cpu.of(), read.of(), written.of()
	return sum, any
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v *float64) {
	if v != nil {
		m.sum += *v
		m.n++
	}
}

func (m *mean) of() *float64 {
	if m.n == 0 {
		return nil
	}
	return new(m.sum / float64(m.n))
}

// allocate returns an empty block. If there are as many as there may be, it takes the oldest fine one of all ranks.
func (h *History) allocate() (int32, bool) {
	for len(h.free) == 0 && len(h.slabs)*slab >= h.most {
		if len(h.fine) == 0 {
			return 0, false
		}
		oldest := h.fine[0]
		h.fine = h.fine[1:]
		if oldest.holds() {
			h.free = append(h.free, oldest.of.fine[0].block)
			oldest.of.fine = slices.Delete(oldest.of.fine, 0, 1)
		}
	}
	if len(h.free) == 0 {
		first := int32(len(h.slabs) * slab)
		h.slabs = append(h.slabs, make([]block, slab))
		for i := range int32(slab) {
			h.free = append(h.free, first+i)
		}
	}
	block := h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	*h.block(block) = emptyBlock
	return block, true
}

func (h *History) block(n int32) *block { return &h.slabs[n/slab][n%slab] }

// floor divides and rounds down, ceil up.
func floor[N int32 | int64](a, b N) N {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func ceil(a, b int32) int32 { return -floor(-a, b) }
