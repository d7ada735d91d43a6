package incident

import (
	"cmp"
	"slices"
	"time"

	"github.com/eltrain/eltrain/job"
)

// Restarts of a slot without progress in between are delayed: the first is not, the next by FirstDelay or what the job says for
// the cause, doubling to mostDoubled times that.
const (
	FirstDelay  = time.Second
	mostDoubled = 60
)

// Policy is what a job does about a cause.
type Policy struct {
	Action job.Remedy
	// Limit is how often Action is taken for one slot within Window, before Then is; 0 is without limit. Without a Window, all that
	// is remembered counts.
	Limit   int
	Window  time.Duration
	Then    job.Remedy
	Memory  job.Factor // 0 for none
	Backoff time.Duration
	After   time.Duration // of PendingTimeout; 0 for never
}

// PolicyOf returns the table's policy for a cause with what a job says of it.
func PolicyOf(h *job.Heal, c job.Cause) Policy {
	row := Of(c)
	p := Policy{Action: row.Default, Limit: row.Limit, Window: row.Window, Then: row.Then, Memory: row.Memory, Backoff: FirstDelay}
	for _, on := range h.On {
		if on.Cause != string(c) {
			continue
		}
		p.Action = cmp.Or(on.Action, p.Action)
		p.Limit = cmp.Or(on.Limit, p.Limit)
		p.Window = cmp.Or(on.Window.Std(), p.Window)
		p.Backoff = cmp.Or(on.Backoff.Std(), p.Backoff)
		p.Memory = cmp.Or(on.Memory, p.Memory)
		p.After = on.After.Std()
	}
	switch {
	case p.Memory > 0 && p.Action == row.Default: // the limit is of the memory
		p.Then = p.Action
	case p.Limit > 0 && severity(p.Then) <= severity(p.Action):
		p.Then = job.RemedyFail
	}
	return p
}

// severity orders remedies from cheap to expensive.
func severity(r job.Remedy) int { return slices.Index(job.Remedies, r) }

// For returns what is to be done about a slot's fault that is in the incidents.
func (p Policy) For(incidents []job.Incident, c job.Cause, slot job.Address, now time.Time) job.Remedy {
	if p.Limit == 0 || p.Then == p.Action || times(incidents, c, slot, now, p.Window) <= p.Limit {
		return p.Action
	}
	return p.Then
}

// times counts the incidents of a cause with a slot among the culprits, if it stood out.
func times(incidents []job.Incident, c job.Cause, slot job.Address, now time.Time, window time.Duration) (n int) {
	for i := range incidents {
		if incidents[i].Action == job.Report {
			continue
		}
		recent := window == 0 || now.Sub(incidents[i].Time) <= window
		if recent && slices.ContainsFunc(faultsOf(&incidents[i]), func(f Fault) bool { return f.Slot == slot && f.Cause == c && !f.Alike }) {
			n++
		}
	}
	return n
}

// Delay is how long the next start of a slot waits that has failed so often without progress in between.
func (p Policy) Delay(crashes int) time.Duration {
	if crashes < 2 {
		return 0
	}
	return min(p.Backoff<<min(crashes-2, 10), p.Backoff*mostDoubled)
}

// SameError reports whether the newest incident is the same error of the program as the one before it, at the same step.
func SameError(incidents []job.Incident) bool {
	n := len(incidents)
	if n < 2 || len(incidents[n-1].Faults) == 0 || len(incidents[n-2].Faults) == 0 {
		return false
	}
	a, b := incidents[n-1].Faults[0], incidents[n-2].Faults[0]
	return a.Cause == job.ScriptError && b.Cause == job.ScriptError && a.Error != "" && a.Error == b.Error && a.Step == b.Step
}

// LongestDelay is how long a restart is delayed at most.
func (p Policy) LongestDelay() time.Duration { return p.Backoff * mostDoubled }

// StuckAt returns the step at which the newest incidents that were charged have ended their worlds, one after the other, after how many
// restarts, and how long these took; 0 if that step is not known or not the same.
func StuckAt(h *job.Heal, incidents []job.Incident) (step int64, restarts int, took time.Duration) {
	var newest time.Time
	for _, i := range slices.Backward(incidents) {
		if i.Generation == 0 || !charged(h, &i) || len(i.Faults) == 0 {
			break
		}
		switch at := i.Faults[0].Step; {
		case step == 0:
			step, newest = at, i.Time
		case at != step:
			return step, restarts, took
		default:
			restarts++
			took = newest.Sub(i.Time)
		}
		if step == 0 {
			break
		}
	}
	return step, restarts, took
}
