package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

// WriteTime is how long processes take to write a checkpoint that was asked for.
const WriteTime = 40 * time.Millisecond

// checkpoints are the checkpoints of one job: the request of each. The first is of step 100, the next of 200.
type checkpoints []string

// actOn does the acts in an order that were not begun before, as the real agent does.
func (a *Agent) actOn(o elastic.Order) {
	a.did = slices.DeleteFunc(slices.Clone(a.did), func(r job.ActResult) bool {
		return !slices.ContainsFunc(o.Acts, func(act job.Act) bool { return act.ID == r.ID })
	})
	runs := a.state == job.MemberRunning && o.Do == elastic.Run && o.World.Generation == a.place.Generation
	for _, act := range o.Acts {
		if slices.ContainsFunc(a.did, func(r job.ActResult) bool { return r.ID == act.ID }) {
			continue
		}
		r := job.ActResult{ID: act.ID}
		switch {
		case act.ID <= a.newestAct:
			r.State = job.ActUnknown
		case act.Kind == job.ActFind:
			r = a.c.find(a.launch.UID, act)
		case !runs:
			r.State = job.ActNoProcess
		case act.Kind == job.ActSignal:
			r.State = job.ActDone
			a.perform(act)
		case act.Kind == job.ActRestart:
			a.perform(act)
			a.act(StopTime, func() { a.become(job.MemberWaiting) })
		default:
			a.perform(act)
			a.checkpoint(act)
		}
		a.newestAct = max(a.newestAct, act.ID)
		a.did = append(a.did, r)
		if r.State != "" && a.registered {
			a.sync()
		}
	}
}

// perform sends the processes a signal.
func (a *Agent) perform(act job.Act) {
	a.c.log("%s incarnation %d: processes get %s %s", a.launch.Slot.Short(), a.launch.Incarnation, act.Kind, act.Value)
	if a.c.Acted != nil {
		a.c.Acted(a, act)
	}
}

// restarted ends the acts that were to end the processes, once none runs.
func (a *Agent) restarted() {
	a.did = slices.Clone(a.did) // reports have the old ones
	for i := range a.did {
		if slices.ContainsFunc(a.order.Acts, func(act job.Act) bool { return act.ID == a.did[i].ID && act.Kind == job.ActRestart }) {
			a.did[i].State = cmp.Or(a.did[i].State, job.ActDone)
		}
	}
}

// checkpoint reports a checkpoint once it is written, or that the processes ended before.
func (a *Agent) checkpoint(act job.Act) {
	generation := a.place.Generation
	a.c.After(WriteTime, func() {
		i := slices.IndexFunc(a.did, func(r job.ActResult) bool { return r.ID == act.ID })
		if a.gone || i < 0 {
			return
		}
		a.did = slices.Clone(a.did) // reports have the old ones
		a.did[i].State = job.ActNoProcess
		if running, runs := a.Running(); runs && running == generation {
			a.did[i] = a.c.write(a.launch.UID, act)
		}
		if a.registered && a.hears(a.session) {
			a.sync()
		}
	})
}

// write writes a job's checkpoint; that of the same request is the same.
func (c *Cluster) write(uid string, act job.Act) job.ActResult {
	if !slices.Contains(c.saved[uid], act.ID) {
		c.saved[uid] = append(c.saved[uid], act.ID)
	}
	return resultAt(act, slices.Index(c.saved[uid], act.ID))
}

// find looks for a job's checkpoint.
func (c *Cluster) find(uid string, act job.Act) job.ActResult {
	at := len(c.saved[uid]) - 1
	if act.Value != "" {
		step, _ := strconv.Atoi(act.Value) // the planner checks it
		at = step/stepsApart - 1
	}
	if at < 0 || at >= len(c.saved[uid]) {
		return job.ActResult{ID: act.ID, State: job.ActAbsent}
	}
	return resultAt(act, at)
}

// stepsApart is how far apart checkpoints are.
const stepsApart = 100

func resultAt(act job.Act, i int) job.ActResult {
	step := int64(i+1) * stepsApart
	return job.ActResult{ID: act.ID, State: job.ActDone, Step: step, Path: fmt.Sprintf("/ckpt/step-%d", step)}
}

// ended are the outcomes to report.
func (a *Agent) ended() (ended []job.ActResult) {
	for _, r := range a.did {
		if r.State != "" {
			ended = append(ended, r)
		}
	}
	return ended
}
