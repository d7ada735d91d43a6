package agent

import (
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

const (
	// remembered is of how many minutes a new master is told, and maxRecent what that takes at most as JSON; see maxRanks.
	remembered = 5 * time.Minute
	maxRecent  = 8 << 10
)

// memory is what the session has reported, or tried to, for a master that does not know it.
type memory struct {
	history     *history.History
	processes   int
	incarnation int
}

func newMemory(c *job.AgentConfig) *memory {
	processes := max(c.Processes, 1)
	return &memory{history.New(processes), processes, c.Incarnation}
}

func (m *memory) add(now time.Time, r *elastic.Report) {
	if r.State != job.MemberRunning {
		return
	}
	for local := range m.processes {
		m.history.Add(now, history.Rank{Local: local}, r.Measured(local, m.incarnation))
	}
}

// recent is by local rank.
func (m *memory) recent(now time.Time) (all []*history.Recent) {
	rows := min(int(remembered/history.Fine), maxRecent/history.RowBytes/m.processes)
	known := false
	for local := range m.processes {
		r := m.history.Recent(now, history.Rank{Local: local}, rows)
		known = known || r != nil
		all = append(all, r)
	}
	if !known {
		return nil
	}
	return all
}
