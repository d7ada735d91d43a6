package job

import "time"

// Directory is what holds for all jobs of a directory together.
type Directory struct {
	Limits *Limits     `hcl:"limits,block" json:"limits,omitempty" doc:"The maximum that all slots of all jobs may hold together, as limits of a job do for its own. A job that does not fit waits, or others shrink for it."`
	Budget *HourBudget `hcl:"budget,block" json:"budget,omitempty" doc:"How long all jobs may use nodes."`
}

// HourBudget is how long all jobs of a directory may use nodes.
type HourBudget struct {
	NodeHours float64      `hcl:"node_hours,required" doc:"Hours of nodes that slots of the jobs use, however many of them a node has. From 80 % on no role grows."`
	Then      BudgetAction `hcl:"then,optional" default:"hold" doc:"What happens at 100 %: \"hold\" (no job starts and no role grows; what runs continues), \"suspend\" (jobs are asked for a checkpoint and stopped; a larger budget lets them continue), or \"cancel\" (they end; those with prevent_destroy are suspended)."`
}

// BudgetAction is what happens once a budget is spent.
type BudgetAction string

const (
	HoldAtBudget    BudgetAction = "hold"
	SuspendAtBudget BudgetAction = "suspend"
	CancelAtBudget  BudgetAction = "cancel"
)

// BudgetActions are all of them; the first is the default.
var BudgetActions = []BudgetAction{HoldAtBudget, SuspendAtBudget, CancelAtBudget}

// Spent is how long all jobs of a directory have used nodes, since it has a budget.
type Spent struct {
	NodeHours float64   `json:"node_hours"` // until At
	At        time.Time `json:"at"`
	Nodes     int       `json:"nodes"` // in use from then on
	// Budget is the directory's, in node hours. It is here so that a status needs no files.
	Budget float64 `json:"budget,omitempty"`
}

// AsOf returns what was used until a time.
func (s Spent) AsOf(now time.Time) Spent {
	if s != (Spent{}) {
		s.NodeHours, s.At = s.Until(now), now
	}
	return s
}

// Until returns the node hours until a time. A clock that was set back adds none.
func (s Spent) Until(now time.Time) float64 {
	return s.NodeHours + float64(s.Nodes)*max(0, now.Sub(s.At).Hours())
}
