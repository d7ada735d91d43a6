package view

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// HoursStatus is what all jobs of the directory have used of its budget.
type HoursStatus struct {
	NodeHours float64 `json:"node_hours"`      // the budget
	Used      float64 `json:"used_node_hours"` // of it
	Nodes     int     `json:"nodes"`           // in use now
}

// hoursStatus returns what was used of a budget until s.At; nil if none is recorded.
func hoursStatus(s job.Spent) *HoursStatus {
	if s.Budget <= 0 {
		return nil
	}
	return &HoursStatus{s.Budget, s.NodeHours, s.Nodes}
}

// plannedHours is what is used of the declared budget when a plan is made; nil if none is declared.
func plannedHours(in *plan.Input) *HoursStatus {
	if in.Directory.Budget == nil {
		return nil
	}
	return &HoursStatus{in.Directory.Budget.NodeHours, in.Spent.Until(in.Now), in.Spent.Nodes}
}

// text is "6 of 10 node hours used (60 %), 2 nodes in use". It says 100 % only once all is used.
func (h *HoursStatus) text() string {
	return fmt.Sprintf("%s of %s node hours used (%d %%), %s in use", nodeHours(h.Used), nodeHours(h.NodeHours), int(100*h.Used/h.NodeHours), plural(h.Nodes, "node"))
}

// lines are the text as a list; none without a budget.
func (h *HoursStatus) lines() []string {
	if h == nil {
		return nil
	}
	return []string{h.text()}
}

// write adds the budget to a status.
func (h *HoursStatus) write(b *bytes.Buffer) {
	if h != nil {
		fmt.Fprintf(b, "\nBudget of the directory: %s.\n", h.text())
	}
}

// nodeHours is a number of hours to a tenth.
func nodeHours(hours float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(hours, 'f', 1, 64), ".0")
}
