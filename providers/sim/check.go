package sim

import (
	"fmt"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
)

const (
	// CheckTime is how long a node takes for what a check does alone, and ExchangeTime for an exchange with a partner.
	CheckTime    = 400 * time.Millisecond
	ExchangeTime = 100 * time.Millisecond
)

// exchange names one exchange of two members.
type exchange struct {
	uid   string
	set   int64
	round int
	slots [2]string
}

// SetFault makes checks of a node fail in a part from now on; "" ends that.
func (c *Cluster) SetFault(node string, part job.CheckPart) {
	delete(c.faults, node)
	if part != "" {
		c.faults[node] = part
	}
}

// Fault is the part in which checks of a node fail; "" if it is sound.
func (c *Cluster) Fault(node string) job.CheckPart { return c.faults[node] }

// wantedCheck is what its order wants checked now; nil for nothing.
func (a *Agent) wantedCheck() *elastic.Check {
	if a.order.Do != elastic.Wait || a.state != job.MemberWaiting || a.gone {
		return nil
	}
	return a.order.Check
}

// check does what the newest order wants checked, as the real agent does.
func (a *Agent) check() {
	want := a.wantedCheck()
	a.checking.End(want)
	switch work, exchange := a.checking.Begin(want); {
	case work:
		number, took := want.Number, CheckTime
		part := a.c.faults[a.node]
		if part == job.CheckTime {
			took = time.Duration(want.Seconds * float64(time.Second))
		}
		a.c.After(took, func() {
			found := job.Checked{Number: number, Seconds: took.Seconds(), Port: 1}
			if part != "" && part != job.CheckExchange {
				found.Failed, found.Message = part, "faulty"
			}
			if a.checking.Worked(found) {
				a.tellCheck()
			}
		})
	case exchange:
		a.meet(*want)
	}
}

// meet exchanges data with a partner. It fails if one of their nodes is faulty, or the partner does not come.
func (a *Agent) meet(check elastic.Check) {
	e := exchange{a.launch.UID, check.Pair.Set, check.Pair.Round, [2]string{a.launch.Slot.Short(), check.Pair.Peer}}
	if e.slots[1] < e.slots[0] {
		e.slots[0], e.slots[1] = e.slots[1], e.slots[0]
	}
	open := true
	end := func(failed string) {
		if !open {
			return
		}
		open = false
		if a.checking.Exchanged(check.Number, job.Exchanged{Set: e.set, Round: e.round, Failed: failed, Seconds: ExchangeTime.Seconds()}) {
			a.tellCheck()
		}
	}
	other, waits := a.c.meets[e]
	if !waits {
		a.c.meets[e] = meeting{a, end}
		a.c.After(time.Duration(check.Pair.Seconds*float64(time.Second)), func() {
			delete(a.c.meets, e)
			end("the partner did not come")
		})
		return
	}
	failed := ""
	for _, b := range []*Agent{a, other.agent} {
		if a.c.faults[b.node] == job.CheckExchange {
			failed = fmt.Sprintf("node %s cuts it off", b.node)
		}
	}
	a.c.After(ExchangeTime, func() {
		end(failed)
		other.end(failed)
	})
}

// meeting is the member of an exchange that came first.
type meeting struct {
	agent *Agent
	end   func(failed string)
}

// tellCheck reports what was found, unless the agent has ended or is suspended.
func (a *Agent) tellCheck() {
	if a.registered && a.hears(a.session) {
		a.sync()
	}
}
