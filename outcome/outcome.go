// Package outcome has the results of simulations as plain data, and compares those of two policies under the same faults.
package outcome

import (
	"maps"
	"math"
	"slices"

	"github.com/eltrain/eltrain/job"
)

// Run is the result of one simulation. Times are in seconds.
type Run struct {
	Seed      uint64  `json:"seed"`
	Simulated float64 `json:"simulated_seconds"`
	Jobs      []Job   `json:"jobs"` // by arrival
	Total     Total   `json:"total"`
	// Actions counts what was decided and what came of it, by type: those of incidents as "incident restart", worlds that formed as
	// "world_formed".
	Actions map[string]int `json:"actions"`
	Faults  int            `json:"faults"` // that hit something
	// Samples are taken at equal distances, for charts.
	Samples []Sample `json:"samples"`
}

// Job is what became of one job.
type Job struct {
	Name    string       `json:"name"`
	Arrived float64      `json:"arrived"`         // since the start
	Phase   job.JobPhase `json:"phase,omitempty"` // "" if it was not admitted
	// Completion is from its arrival until it succeeded; 0 if it has not.
	Completion float64 `json:"completion_seconds,omitempty"`
	// Waiting is the time without capacity, or before its slots ran.
	Waiting    float64      `json:"waiting_seconds"`
	Wall       float64      `json:"wall_seconds"`
	Productive float64      `json:"productive_seconds"`
	Lost       job.LostTime `json:"lost"`
	Restarts   int          `json:"restarts"` // worlds after the first
	Moves      int          `json:"moves"`    // slots that started on another node than before
	SlotHours  float64      `json:"slot_hours"`
	NodeHours  float64      `json:"node_hours"`        // a node counts while anything of the job runs there
	Samples    float64      `json:"samples,omitempty"` // of its work, that were done
}

// Goodput is the share of a job's time, from when its slots ran, that was productive; 0 before.
func (j *Job) Goodput() float64 {
	if ran := j.Wall - j.Lost.Scheduling - j.Lost.Suspended; ran > 0 {
		return j.Productive / ran
	}
	return 0
}

// Total is the result of all jobs.
type Total struct {
	Jobs       int     `json:"jobs"`
	Succeeded  int     `json:"succeeded"`
	Failed     int     `json:"failed"`
	Goodput    float64 `json:"goodput"` // productive time by the time that slots ran, of all jobs, each weighted by its slot hours
	Waiting    float64 `json:"waiting_mean_seconds"`
	Completion Times   `json:"completion"`
	Restarts   int     `json:"restarts"`
	Moves      int     `json:"moves"`
	SlotHours  float64 `json:"slot_hours"`
	NodeHours  float64 `json:"node_hours"`
	Used       float64 `json:"capacity_used"` // share of the places for slots that were reserved
}

// Times are those of jobs that succeeded, in seconds.
type Times struct {
	Mean float64 `json:"mean_seconds"`
	P50  float64 `json:"p50_seconds"`
	P99  float64 `json:"p99_seconds"`
}

// Sample is what there was at a moment.
type Sample struct {
	At      float64 `json:"at"`      // seconds since the start
	Slots   int     `json:"slots"`   // that ran
	Running int     `json:"running"` // jobs of which slots ran
	Waiting int     `json:"waiting"` // jobs that had arrived, and of which none did
}

// Sum fills in Total. used is what was reserved of the capacity, both in places for slots times seconds.
func (r *Run) Sum(used, capacity float64) {
	t := Total{Jobs: len(r.Jobs)}
	var times []float64
	productive, ran := 0.0, 0.0
	for i := range r.Jobs {
		j := &r.Jobs[i]
		switch j.Phase {
		case job.JobSucceeded:
			t.Succeeded++
			times = append(times, j.Completion)
		case job.JobFailed:
			t.Failed++
		}
		t.Waiting += j.Waiting / float64(len(r.Jobs))
		t.Restarts += j.Restarts
		t.Moves += j.Moves
		t.SlotHours += j.SlotHours
		t.NodeHours += j.NodeHours
		productive += j.Goodput() * j.SlotHours
		ran += j.SlotHours
	}
	if ran > 0 {
		t.Goodput = productive / ran
	}
	if capacity > 0 {
		t.Used = used / capacity
	}
	t.Completion = timesOf(times)
	r.Total = t
}

func timesOf(times []float64) Times {
	if len(times) == 0 {
		return Times{}
	}
	slices.Sort(times)
	sum := 0.0
	for _, v := range times {
		sum += v
	}
	return Times{Mean: sum / float64(len(times)), P50: Quantile(times, 0.5), P99: Quantile(times, 0.99)}
}

// Quantile returns the smallest of sorted values that at least a share of them do not exceed.
func Quantile(sorted []float64, share float64) float64 {
	return sorted[min(max(int(math.Ceil(share*float64(len(sorted))))-1, 0), len(sorted)-1)]
}

// Figures are the figures of a run that are compared, by name.
func (r *Run) Figures() map[string]float64 {
	t := &r.Total
	return map[string]float64{
		"goodput": t.Goodput, "succeeded": float64(t.Succeeded), "failed": float64(t.Failed), "waiting_mean_seconds": t.Waiting,
		"completion_mean_seconds": t.Completion.Mean, "completion_p50_seconds": t.Completion.P50, "completion_p99_seconds": t.Completion.P99,
		"restarts": float64(t.Restarts), "moves": float64(t.Moves), "slot_hours": t.SlotHours, "node_hours": t.NodeHours, "capacity_used": t.Used,
	}
}

// Difference is how a figure differs between two policies under the same faults: of the second less the first. The true mean is between Low
// and High with a probability of 95 %, by Student's t.
type Difference struct {
	Figure string  `json:"figure"`
	First  float64 `json:"first"` // means over the seeds
	Second float64 `json:"second"`
	Mean   float64 `json:"difference"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Seeds  int     `json:"seeds"`
}

// Known reports whether there are enough seeds for an interval.
func (d *Difference) Known() bool { return d.Seeds > 1 }

// Compare compares runs of two policies, which are in the order of the same seeds.
func Compare(first, second []Run) (all []Difference) {
	n := min(len(first), len(second))
	if n == 0 {
		return nil
	}
	a, b := figures(first[:n]), figures(second[:n])
	for _, name := range slices.Sorted(maps.Keys(a)) {
		all = append(all, compare(name, a[name], b[name]))
	}
	return all
}

func figures(runs []Run) map[string][]float64 {
	all := map[string][]float64{}
	for i := range runs {
		for name, v := range runs[i].Figures() {
			all[name] = append(all[name], v)
		}
	}
	return all
}

func compare(name string, a, b []float64) Difference {
	n := float64(len(a))
	d := Difference{Figure: name, Seeds: len(a)}
	for i := range a {
		d.First += a[i] / n
		d.Second += b[i] / n
	}
	d.Mean = d.Second - d.First
	d.Low, d.High = d.Mean, d.Mean
	if !d.Known() {
		return d
	}
	squares := 0.0
	for i := range a {
		squares += (b[i] - a[i] - d.Mean) * (b[i] - a[i] - d.Mean)
	}
	half := student(len(a)-1) * math.Sqrt(squares/(n-1)/n)
	d.Low, d.High = d.Mean-half, d.Mean+half
	return d
}

// student is the 97.5 % quantile of Student's t with so many degrees of freedom.
func student(degrees int) float64 {
	exact := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086}
	if degrees <= len(exact) {
		return exact[degrees-1]
	}
	// Cornish and Fisher's expansion around the normal quantile.
	const z = 1.959964
	v := float64(degrees)
	return z + (z*z*z+z)/(4*v) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*v*v)
}
