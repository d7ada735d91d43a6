package plan

import (
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

// wantCheck is which members of a job check their node before they join a world; nil if none does.
func (p *pass) wantCheck(w *work, spec *job.Job) *job.WantCheck {
	c := spec.Detect.NodeCheck()
	if c.When == job.CheckNever {
		return nil
	}
	if spec.Detect.Check == nil { // what is declared was compared
		c.Timeout = max(min(c.Timeout, spec.Rendezvous.Timeout/2), job.Duration(job.LeastCheck))
	}
	if c.Timeout >= spec.Rendezvous.Timeout { // there is no time for one
		return nil
	}
	want := &job.WantCheck{Timeout: c.Timeout, Command: c.Command, All: c.When == job.CheckAlways, ExcludeSlow: w.excludesSlow()}
	for _, s := range w.slots {
		number := 0
		switch {
		case s.Incarnation == 0 || !s.Phase.Live():
		case w.rec.Check > w.world.Generation && inWorld(spec, s):
			number = w.rec.Check
		case p.suspectsNode(spec.Provider, s.Node):
			number = 1
		}
		if number == 0 {
			continue
		}
		if want.Slots == nil {
			want.Slots = map[string]int{}
		}
		want.Slots[s.Address.Short()] = number
	}
	if !want.All && want.Slots == nil {
		return nil
	}
	return want
}

// suspectsNode reports whether there is enough against a node to mark it.
func (p *pass) suspectsNode(provider, name string) bool {
	if len(p.out.Nodes) == 0 {
		return false
	}
	pl := p.space(provider).byName[name]
	return pl != nil && pl.rec != nil && len(pl.rec.Incidents) > 0 && weightOf(pl.rec, pl.node) >= markedAfter
}

// excludesSlow reports whether a node that is slow in a check is not trained on.
func (w *work) excludesSlow() bool {
	action := w.policy(job.Straggler).Action
	return action == job.RemedyReplace || action == job.RemedyFail
}

// judgeNode makes a fault of a check that a slot's node has not passed. A slow node is a suspicion of the node, and no fault unless the job
// has stragglers healed.
func (p *pass) judgeNode(w *work, s *job.Slot, c *job.CheckOutcome) {
	switch {
	case c == nil || s.Phase != job.Registered && s.Phase != job.Running:
	case c.Verdict == job.CheckFaulty:
		p.fault(w, s, job.NodeFaulty, nil, checkFailed(s, c))
	case c.Verdict == job.CheckStraggler:
		why, known := checkSlow(s, c), p.knowsSlow(w, s, c)
		if !known {
			p.nodeFaults = append(p.nodeFaults, nodeFault{slot: s, cause: job.Straggler, at: onNode{w.spec.Provider, s.Node}, why: []job.Reason{why}})
		}
		switch {
		case s.Phase == job.Registered && w.excludesSlow(): // no world takes it
			p.fault(w, s, job.Straggler, nil, why)
			return
		case known:
			return
		}
		p.noteFault(w, incident.Fault{SlotFault: incident.FaultOf(s.Address, job.Straggler, nil), Evidence: []job.Reason{why}, Reported: true})
	}
}

// knowsSlow reports whether it is, or was, recorded that a node was slow in a check.
func (p *pass) knowsSlow(w *work, s *job.Slot, c *job.CheckOutcome) bool {
	n := p.nodeRecord(w.spec.Provider, s.Node)
	return s.Node == "" || p.in.Now.Sub(c.At) >= incidentWindow || n != nil && slices.ContainsFunc(n.Incidents, func(i job.NodeIncident) bool {
		return i.Cause == job.Straggler && i.At.After(c.At.Add(-sameEvent))
	})
}

// checkFailed is the evidence of a check that failed.
func checkFailed(s *job.Slot, c *job.CheckOutcome) job.Reason {
	args := []string{"slot", s.Address.Short(), "seconds", seconds(c.Seconds)}
	if c.Part != job.CheckTime {
		args = append(args, "part", string(c.Part))
	}
	if s.Node != "" {
		args = append(args, "node", s.Node)
	}
	if c.Message != "" {
		args = append(args, "message", c.Message)
	}
	if c.Part == job.CheckTime {
		return job.Because(NodeCheckLate, args...)
	}
	return job.Because(NodeCheckFailed, args...)
}

// checkSlow is the evidence of a check that took long.
func checkSlow(s *job.Slot, c *job.CheckOutcome) job.Reason {
	return job.Because(NodeCheckSlow, "slot", s.Address.Short(), "node", s.Node, "seconds", seconds(c.Seconds), "median", seconds(c.Median))
}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) }

// reportChecks reports the slots whose node is being checked.
func (p *pass) reportChecks(w *work) {
	checked := map[string][]int{}
	for _, s := range w.slots {
		inc := w.current(s)
		if s.Phase == job.Registered && inc != nil && inc.Member != nil && inc.Member.Check != nil && inc.Member.Check.Verdict == job.CheckRuns {
			checked[s.Address.Role] = append(checked[s.Address.Role], s.Address.Index)
		}
	}
	for i := range w.spec.Roles {
		if role := w.spec.Roles[i].Name; len(checked[role]) > 0 {
			p.out.Waits = append(p.out.Waits, Wait{Job: w.name, Role: role, Passing: true, Reasons: []job.Reason{
				job.Because(CheckingNodes, "slots", job.Fold(role, checked[role]))}})
		}
	}
}
