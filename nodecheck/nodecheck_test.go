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
			c.Tick(epoch.Add(gatherTime(time.Minute)))
			for i := range n {
				if p, is := c.Pair(slot(i)); is && len(rounds[slot(i)]) < p.Round {
					x := job.Exchanged{Set: p.Set, Round: p.Round, Seconds: 0.2}
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
		c.Tick(epoch.Add(gatherTime(time.Minute)))
		for i := range 7 {
			if p, is := c.Pair(slot(i)); is && len(rounds[slot(i)]) < p.Round {
				x := job.Exchanged{Set: p.Set, Round: p.Round, Seconds: 0.1}
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

// What members did for another master is not the outcome of this one's exchanges, whoever their partners were.
func TestExchangesOfAnotherMasterDoNotCount(t *testing.T) {
	var c Checks
	for i := range 4 {
		c.Ask(epoch, slot(i), Place{}, 1, time.Minute)
	}
	for i := range 4 {
		c.Report(epoch, slot(i), &job.Checked{Number: 1, Seconds: 1, Port: 1, Exchanges: []job.Exchanged{{Set: 7, Round: 1, Failed: "cut off"}, {Set: 7, Round: 2}}})
	}
	c.Tick(epoch.Add(gatherTime(time.Minute)))
	for i := range 4 {
		if p, is := c.Pair(slot(i)); !is || p.Round != 1 {
			t.Errorf("%d: %+v", i, p)
		}
	}
}

// A member that was silent for its whole check, and comes back, is judged by what it has found. Meanwhile the others did not wait for it.
func TestLateReportsCount(t *testing.T) {
	const timeout = 8 * time.Second
	for failed, want := range map[job.CheckPart]job.CheckVerdict{"": job.CheckPassed, job.CheckMemory: job.CheckFaulty} {
		var c Checks
		c.Ask(epoch, slot(0), Place{}, 1, timeout)
		c.Ask(epoch, slot(1), Place{}, 1, timeout)
		c.Report(epoch, slot(0), &job.Checked{Number: 1, Seconds: 1})
		now := epoch.Add(reportBound(timeout))
		c.Tick(now)
		if o := c.Outcome(slot(1)); o.Verdict != job.CheckFaulty || o.Part != job.CheckTime {
			t.Fatalf("%+v", o)
		}
		c.Report(now.Add(time.Second), slot(1), &job.Checked{Number: 1, Seconds: 1, Failed: failed})
		if o := c.Outcome(slot(1)); o.Verdict != want || o.Part != failed {
			t.Errorf("%+v", o)
		}
		if v := c.Outcome(slot(0)).Verdict; v != job.CheckPassed {
			t.Errorf("the other is %s", v)
		}
		c.Drop(now, slot(0))
		c.Drop(now, slot(1))
		c.Ask(now, slot(2), Place{}, 1, timeout) // the counts are right
		c.Report(now, slot(2), &job.Checked{Number: 1, Seconds: 1})
		c.Tick(now.Add(gatherTime(timeout)))
		if v := c.Outcome(slot(2)).Verdict; v != job.CheckPassed {
			t.Errorf("a later one is %s", v)
		}
	}
}
