package view

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

// TopFormat is the version of the JSON of `eltrain top`. A new minor version only adds fields.
const TopFormat = "1.0"

// TopModel is all that `eltrain top` shows.
type TopModel struct {
	FormatVersion string   `json:"format_version"`
	Jobs          []TopJob `json:"jobs"` // by address
}

// TopJob is one job's training processes.
type TopJob struct {
	Address    string    `json:"address"` // job.NAME
	UID        string    `json:"uid"`
	Generation int       `json:"generation"`
	Ranks      []TopRank `json:"ranks"` // by rank, then those outside of the world
}

// TopRank is one training process. What is unknown is left out.
type TopRank struct {
	Address       string              `json:"address"` // of its slot
	Incarnation   int                 `json:"incarnation"`
	LocalRank     int                 `json:"local_rank"`
	Rank          int                 `json:"rank"` // -1 outside a world
	MemberState   job.MemberState     `json:"member_state"`
	Silent        bool                `json:"silent,omitempty"` // its agent missed a beat
	Reported      time.Time           `json:"reported"`
	Step          int64               `json:"step,omitempty"`
	Loss          *job.Loss           `json:"loss,omitempty"`
	StepsPerSec   float64             `json:"steps_per_second,omitempty"`
	history.Rates                     // recent use
	Process       *job.ProcessFigures `json:"process,omitempty"`
	Figures       *job.SlotFigures    `json:"figures,omitempty"` // of its slot
	History       []history.Point     `json:"history,omitempty"` // oldest first

	slot job.Address
}

// Top returns what training processes do and use, for display.
func Top(usage map[string]elastic.Usage, r *Redactor) TopModel {
	m := TopModel{FormatVersion: TopFormat, Jobs: []TopJob{}}
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		u := usage[name]
		j := TopJob{Address: "job." + name, UID: u.UID, Generation: u.Generation, Ranks: []TopRank{}}
		for i := range u.Ranks {
			j.Ranks = append(j.Ranks, topRank(&u.Ranks[i], r))
		}
		slices.SortStableFunc(j.Ranks, func(a, b TopRank) int {
			outside := func(r TopRank) int { return cmp.Compare(0, r.Rank) } // 1 for -1
			return cmp.Or(cmp.Compare(max(outside(a), 0), max(outside(b), 0)), cmp.Compare(a.Rank, b.Rank))
		})
		m.Jobs = append(m.Jobs, j)
	}
	return m
}

func topRank(u *elastic.RankUsage, r *Redactor) TopRank {
	out := TopRank{
		Address: u.Slot.String(), Incarnation: u.Incarnation, LocalRank: u.Local, Rank: u.Rank, MemberState: u.State, Silent: u.Silent, Reported: u.Heard,
		Step: u.Step, Loss: u.Loss, StepsPerSec: u.StepRate, Rates: u.Rates, Process: u.Process, Figures: u.Figures, History: u.Points, slot: u.Slot,
	}
	if u.Process != nil {
		p := *u.Process
		p.WaitChannel = r.Text(p.WaitChannel)
		out.Process = &p
	}
	return out
}

// Select keeps the slots that selectors name.
func (m TopModel) Select(selectors ...job.Selector) TopModel {
	jobs := []TopJob{}
	for _, j := range m.Jobs {
		j.Ranks = slices.DeleteFunc(slices.Clone(j.Ranks), func(r TopRank) bool {
			return !slices.ContainsFunc(selectors, func(s job.Selector) bool { return s.Matches(r.slot) })
		})
		if len(j.Ranks) > 0 {
			jobs = append(jobs, j)
		}
	}
	m.Jobs = jobs
	return m
}

// TopWatch is a Watch of what `eltrain top` shows.
type TopWatch struct {
	Watch
	shown TopModel
}

// Show shows a model, if it differs from the one before. It returns an error of writing.
func (w *TopWatch) Show(m TopModel) error {
	same := w.begun && reflect.DeepEqual(m, w.shown)
	w.shown = m
	return w.show(m, same, func(s Screen) { WriteTop(s, m) })
}

// WriteTop shows training processes to a person.
func WriteTop(s Screen, m TopModel) error {
	var b bytes.Buffer
	if len(m.Jobs) == 0 {
		b.WriteString("No jobs.\n")
	}
	for i := range m.Jobs {
		if i > 0 {
			b.WriteString("\n")
		}
		s.topJob(&b, &m.Jobs[i])
	}
	_, err := s.Write(b.Bytes())
	return err
}

func (s Screen) topJob(b *bytes.Buffer, j *TopJob) {
	b.WriteString(s.paint(j.Address+"  generation "+itoa(j.Generation), bold) + "\n")
	if len(j.Ranks) == 0 {
		b.WriteString("  No agent has registered.\n")
		return
	}
	rows := [][]string{{"RANK", "SLOT", "STATE", "STEP", "STEPS/S", "LOSS", "CPU", "MEMORY", "LIMIT"}}
	devices := slices.ContainsFunc(j.Ranks, func(r TopRank) bool { return r.Figures != nil && len(r.Figures.Accelerators) > 0 })
	if devices {
		rows[0] = append(rows[0], "ACCEL", "ACCEL MEMORY")
	}
	rows[0] = append(rows[0], "READ/S", "WRITTEN/S", "THREADS", "FILES", "WAITS IN")
	looks := []style{faint}
	for i := range j.Ranks {
		r := &j.Ranks[i]
		state, look := r.state()
		speed := "-"
		if r.StepsPerSec > 0 {
			speed = rate(r.StepsPerSec)
		}
		row := []string{orDash(r.Rank, -1), r.slot.Short(), state, orDash(int(r.Step), 0), speed, lossText(r.Loss), cores(r.CPU)}
		var memory, files, limit *int64
		threads, waits := 0, ""
		if p := r.Process; p != nil {
			memory, files, threads, waits = p.RSS, p.OpenFiles, p.Threads, p.WaitChannel
		}
		if r.Figures != nil {
			limit = r.Figures.MemoryLimit
		}
		count := "-"
		if files != nil {
			count = itoa(int(*files))
		}
		row = append(row, amount(memory), amount(limit))
		if devices {
			used, memory := accelerators(r.Figures)
			row = append(row, used, memory)
		}
		rows = append(rows, append(row, perSecond(r.Read), perSecond(r.Written), orDash(threads, 0), count, dash(waits)))
		looks = append(looks, look)
	}
	for i, line := range aligned(rows) {
		if line = "  " + line; looks[i] != "" {
			line = s.paint(line, looks[i])
		}
		b.WriteString(line + "\n")
	}
	for i := range j.Ranks {
		s.topHistory(b, &j.Ranks[i])
	}
}

// accelerators returns the mean utilization of a slot's accelerators and the memory in use of all, where known.
func accelerators(f *job.SlotFigures) (use, memory string) {
	if f == nil {
		return "-", "-"
	}
	var sum, n float64
	var used *int64
	for i := range f.Accelerators {
		a := &f.Accelerators[i]
		if a.Utilization != nil {
			sum, n = sum+*a.Utilization, n+1
		}
		if a.MemoryUsed != nil {
			if used == nil {
				used = new(int64)
			}
			*used += *a.MemoryUsed
		}
	}
	use = "-"
	if n > 0 {
		use = strconv.FormatFloat(100*sum/n, 'f', 0, 64) + "%"
	}
	return use, amount(used)
}

// topHistory shows a rank's history, if there is one.
func (s Screen) topHistory(b *bytes.Buffer, r *TopRank) {
	if len(r.History) == 0 {
		return
	}
	b.WriteString("\n  " + s.paint(r.slot.Short()+", local rank "+itoa(r.LocalRank), bold) + "\n")
	rows := [][]string{{"TIME", "STATE", "STEP", "LOSS", "CPU", "MEMORY", "READ/S", "WRITTEN/S"}}
	for _, p := range r.History {
		memory := "-"
		if p.RSS != nil {
			memory = job.Bytes(*p.RSS).Approx()
		}
		state, _ := threadState(p.State)
		rows = append(rows, []string{clock(p.At), dash(state), orDash(int(p.Step), 0), lossText(p.Loss), cores(p.CPU), memory, perSecond(p.Read), perSecond(p.Written)})
	}
	for i, line := range aligned(rows) {
		if line = "  " + line; i == 0 {
			line = s.paint(line, faint)
		}
		b.WriteString(line + "\n")
	}
}

// state says what a process does, and how that is shown.
func (r *TopRank) state() (string, style) {
	switch {
	case r.Silent:
		return "silent", yellow
	case r.MemberState != job.MemberRunning || r.Process == nil:
		return string(r.MemberState), faint
	}
	return threadState(r.Process.State)
}

func threadState(s job.ThreadState) (string, style) {
	switch s {
	case job.ThreadRuns:
		return "running", ""
	case job.ThreadSleeps, job.ThreadIdles:
		return "sleeping", ""
	case job.ThreadBlocked:
		return "uninterruptible", yellow
	case job.ThreadStopped:
		return "stopped", yellow
	case job.ThreadTraced:
		return "traced", yellow
	case job.ThreadZombie:
		return "exited", yellow
	}
	return string(s), ""
}

func lossText(l *job.Loss) string {
	finite, other := l.Finite()
	if finite == nil {
		return dash(other)
	}
	return strconv.FormatFloat(*finite, 'g', 4, 64)
}

func cores(cpu *float64) string {
	if cpu == nil {
		return "-"
	}
	return strconv.FormatFloat(*cpu, 'f', 2, 64)
}

func amount(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	return job.Bytes(*bytes).Approx()
}

func perSecond(bytes *float64) string {
	if bytes == nil {
		return "-"
	}
	return job.Bytes(*bytes).Approx()
}
