package nodecheck

import (
	"testing"
	"time"

	"github.com/eltrain/eltrain/job"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func slot(i int) job.Address { return job.Address{Job: "a", Role: "w", Index: i} }

// A member waits for others that are still at work no longer than it may have worked itself, however many come later.
func TestMembersWaitNoLongerThanTheirOwnBound(t *testing.T) {
	const timeout = 8 * time.Second
	var c Checks
	c.Ask(epoch, slot(0), Place{}, 1, timeout)
	c.Ask(epoch.Add(time.Second), slot(1), Place{}, 1, timeout)
	c.Report(epoch, slot(0), &job.Checked{Number: 1, Seconds: 1, Port: 1})
	for i := 2; i < 20; i++ {
		now := epoch.Add(time.Duration(i) * time.Second)
		c.Ask(now, slot(i), Place{}, 1, timeout)
		c.Tick(now)
		if v := c.Outcome(slot(0)).Verdict; (v == job.CheckPassed) != (now.Sub(epoch) >= reportBound(timeout)) {
			t.Fatalf("after %s it is %s", now.Sub(epoch), v)
		}
		if now.Sub(epoch) >= reportBound(timeout) {
			return
		}
	}
}

// A whole check ends within its timeout, whoever says nothing; a service that stood still grants the time that it missed.
func TestChecksAreBounded(t *testing.T) {
	const timeout = 8 * time.Second
	for _, stood := range []time.Duration{0, time.Minute} {
		var c Checks
		for i := range 4 {
			c.Ask(epoch, slot(i), Place{}, 1, timeout)
		}
		c.Extend(stood)
		for i := range 3 {
			c.Report(epoch, slot(i), &job.Checked{Number: 1, Seconds: 1, Port: 1})
		}
		last := epoch
		for due := c.Next(); !due.IsZero(); due = c.Next() {
			last = due
			c.Tick(due)
		}
		if took := last.Sub(epoch); took > timeout+stood || took <= stood {
			t.Errorf("it ends after %s, having stood for %s", took, stood)
		}
		for i, want := range []job.CheckVerdict{job.CheckPassed, job.CheckPassed, job.CheckPassed, job.CheckFaulty} { // no exchange succeeded
			if v := c.Outcome(slot(i)).Verdict; v != want {
				t.Errorf("%d is %s", i, v)
			}
		}
	}
}

// One of an odd number has a single partner, which may be the slow one: that says nothing about it.
func TestASlowPartnerIsToldApart(t *testing.T) {
	for n := 3; n <= 9; n++ {
		var c Checks
		slow := slot(2)
		for i := range n {
			c.Ask(epoch, slot(i), Place{}, 1, time.Minute)
		}
		rounds := map[job.Address][]job.Exchanged{}
		for range 8 {
			for i := range n {
				if p, is := c.Pair(slot(i)); is && len(rounds[slot(i)]) < p.Round {
					x := job.Exchanged{Round: p.Round, Seconds: 0.2}
					if slot(i) == slow || p.Peer == slow {
						x.Seconds = 3
					}
					rounds[slot(i)] = append(rounds[slot(i)], x)
				}
				c.Report(epoch, slot(i), &job.Checked{Number: 1, Seconds: 1, Port: 1, Exchanges: rounds[slot(i)]})
			}
		}
		for i := range n {
			v := c.Outcome(slot(i)).Verdict
			if slot(i) != slow && v != job.CheckPassed || n >= 5 && slot(i) == slow && v != job.CheckStraggler {
				t.Errorf("of %d, %d is %s", n, i, v)
			}
		}
	}
}

// Of two partners that fail with each other, the one that succeeds with another is good.
func TestPartnersAreToldApart(t *testing.T) {
	var c Checks
	bad := slot(5)
	for i := range 7 {
		c.Ask(epoch, slot(i), Place{}, 1, time.Minute)
	}
	rounds := map[job.Address][]job.Exchanged{}
	for range 8 {
		for i := range 7 {
			if p, is := c.Pair(slot(i)); is && len(rounds[slot(i)]) < p.Round {
				x := job.Exchanged{Round: p.Round, Seconds: 0.1}
				if slot(i) == bad || p.Peer == bad {
					x.Failed = "cut off"
				}
				rounds[slot(i)] = append(rounds[slot(i)], x)
			}
			c.Report(epoch, slot(i), &job.Checked{Number: 1, Seconds: 1, Port: 1, Exchanges: rounds[slot(i)]})
		}
	}
	for i := range 7 {
		want := job.CheckPassed
		if slot(i) == bad {
			want = job.CheckFaulty
		}
		if v := c.Outcome(slot(i)).Verdict; v != want {
			t.Errorf("%d is %s", i, v)
		}
	}
}
