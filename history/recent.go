package history

import (
	"math"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Recent are the last points of a rank in a form that is passed on: a row for each interval of Fine, oldest first, without gaps. What is
// unknown is 0, nil or "". It has no times, so the clocks of those who pass it on may differ.
type Recent struct {
	// Age is how long ago the interval of the last row began, in seconds.
	Age     float64           `json:"age_seconds"`
	Step    []int64           `json:"step"`
	Loss    []*job.Loss       `json:"loss,omitempty"`
	State   []job.ThreadState `json:"state,omitempty"`
	RSS     []*float64        `json:"rss_bytes,omitempty"`
	CPU     []*float64        `json:"cpu,omitempty"` // cores
	Read    []*float64        `json:"read_bytes_per_second,omitempty"`
	Written []*float64        `json:"written_bytes_per_second,omitempty"`
}

// RowBytes is more than a row takes as JSON.
const RowBytes = 80

// Recent returns the last rows of a rank, at most so many; nil if there are none.
func (h *History) Recent(now time.Time, rank Rank, most int) *Recent {
	s := h.ranks[rank]
	if s == nil || most <= 0 {
		return nil
	}
	points := h.Points(rank, timeOf(s.newest-int32(most)+1))
	for len(points) > 0 && points[0].At.Before(timeOf(s.newest-int32(most)+1)) { // thinned
		points = points[1:]
	}
	if len(points) == 0 {
		return nil
	}
	r := &Recent{Age: now.Sub(timeOf(s.newest)).Seconds()}
	next := cellOf(points[0].At)
	for _, p := range points {
		for ; next < cellOf(p.At); next++ {
			r.add(Point{})
		}
		r.add(p)
		next++
	}
	return r
}

func (r *Recent) add(p Point) {
	r.Step, r.State = append(r.Step, p.Step), append(r.State, p.State)
	r.Loss = append(r.Loss, (*job.Loss)(short((*float64)(p.Loss))))
	r.RSS, r.CPU = append(r.RSS, short(p.RSS)), append(r.CPU, short(p.CPU))
	r.Read, r.Written = append(r.Read, short(p.Read)), append(r.Written, short(p.Written))
}

// short rounds to the precision of a History, so that it takes few digits.
func short(v *float64) *float64 {
	if v == nil {
		return nil
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(*v, 'g', 4, 64), 64) // of its own text
	return &rounded
}

// Restore adds the rows of a rank that are newer than what is remembered of it.
func (h *History) Restore(now time.Time, rank Rank, r *Recent) {
	if r == nil || !(r.Age >= 0) || len(r.Step) == 0 {
		return
	}
	newest := cellOf(now.Add(-time.Duration(min(r.Age, fineFor.Seconds()) * float64(time.Second))))
	for i := max(0, len(r.Step)-int(fineFor/Fine)); i < len(r.Step); i++ {
		p := r.row(i)
		cell := newest - int32(len(r.Step)-1-i)
		if s := h.ranks[rank]; p == (Point{}) || s != nil && cell <= s.newest {
			continue
		}
		if s := h.series(rank); s != nil {
			h.enter(s, cell, p)
		}
	}
}

func (r *Recent) row(i int) Point {
	return Point{Step: r.Step[i], Loss: at(r.Loss, i), State: at(r.State, i), RSS: at(r.RSS, i),
		Rates: Rates{CPU: at(r.CPU, i), Read: at(r.Read, i), Written: at(r.Written, i)}}
}

// at is an item of a column, which may be shorter than others.
func at[T any](column []T, i int) (item T) {
	if i < len(column) {
		item = column[i]
	}
	return item
}

func timeOf(cell int32) time.Time { return time.Unix(int64(cell)*int64(Fine/time.Second), 0) }

func cellOf(t time.Time) int32 {
	return int32(min(max(floor(t.Unix(), int64(Fine/time.Second)), 0), math.MaxInt32))
}
