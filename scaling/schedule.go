package scaling

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/eltrain/eltrain/job"
)

// Calendar is a schedule that was read.
type Calendar struct {
	starts   cron.Schedule
	duration time.Duration
	zone     *time.Location
}

// ReadSchedule reads a schedule. The error says which of its arguments is wrong.
func ReadSchedule(s *job.Schedule) (*Calendar, error) {
	zone, err := time.LoadLocation(s.Timezone)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %q: write it as in \"Europe/Berlin\", or \"UTC\"", s.Timezone)
	}
	starts, err := cron.ParseStandard(s.Start)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time in cron's five fields (minute hour day month weekday), as \"0 20 * * 1-5\"", s.Start)
	}
	if _, fields := starts.(*cron.SpecSchedule); !fields {
		return nil, fmt.Errorf("%q is no time of a calendar: write cron's five fields (minute hour day month weekday), as \"0 20 * * 1-5\"", s.Start)
	}
	return &Calendar{starts: starts, duration: s.Duration.Std(), zone: zone}, nil
}

// Fires reports whether it ever begins after a time: "0 0 30 2 *" does not.
func (c *Calendar) Fires(after time.Time) bool { return !c.starts.Next(after.In(c.zone)).IsZero() }

// At reports whether the schedule is active, and when that changes; zero if it does not. Its duration is real time: clocks that are
// changed while it is active do not change it. A start in an hour that a clock leaves out is skipped that day.
func (c *Calendar) At(now time.Time) (active bool, until time.Time) {
	last := time.Time{} // the last start, if that is less than the duration ago
	for start := c.starts.Next(now.Add(-c.duration).In(c.zone)); ; start = c.starts.Next(start) {
		switch {
		case start.IsZero():
			if last.IsZero() {
				return false, time.Time{}
			}
			return true, last.Add(c.duration)
		case start.After(now) && last.IsZero():
			return false, start
		case start.After(now):
			return true, last.Add(c.duration)
		}
		last = start
	}
}
