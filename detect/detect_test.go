package detect

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var faults = []fault{stops, blocks, loops, locks, locksAll, goesSilent, fallsBehind}

// TestLabelledTraces holds the bars for the culprits that are named.
func TestLabelledTraces(t *testing.T) {
	t.Parallel()
	counts := map[fault]*tally{}
	all := &tally{}
	for seed := range uint64(560) {
		f := faults[seed%uint64(len(faults))]
		tr := drawn(seed, f)
		r := tr.run(New())
		if counts[f] == nil {
			counts[f] = &tally{}
		}
		for _, c := range []*tally{counts[f], all} {
			c.add(r)
		}
		if testing.Verbose() && !r.right() {
			t.Logf("%v: %s, certain %+v at %v, fault of %v at %v", tr, f, r.certain, r.certainAt, r.culprit, r.faultAt)
		}
	}
	for f, c := range counts {
		t.Logf("%-20s %v", f, c)
	}
	t.Logf("%-20s %v", "all", all)
	if all.precision() < 0.97 || all.recall() < 0.95 {
		t.Errorf("precision %.3f, recall %.3f", all.precision(), all.recall())
	}
}

// TestNoFalseAlarm is of days without a fault.
func TestNoFalseAlarm(t *testing.T) {
	t.Parallel()
	named := 0
	for seed := range uint64(20) {
		tr := drawn(1000+seed, healthy)
		r := tr.run(New())
		named += r.falseNames
		if r.certain != nil {
			t.Errorf("%v: at %v of %s: %+v", tr, r.certainAt, r.doing(), *r.certain)
		}
	}
	t.Logf("%d suspicions ended by themselves in 20 days", named)
}

type tally struct {
	faults, told, right int
	named, certain      []time.Duration
}

func (r *running) right() bool {
	if r.certain == nil || r.certainAt < r.faultAt {
		return false
	}
	got := r.certain.Ranks
	if got == nil {
		for i := range r.ranks() {
			got = append(got, i)
		}
	}
	return slices.Equal(got, r.culprit)
}

func (c *tally) add(r *running) {
	c.faults++
	if r.certain == nil {
		return
	}
	c.told++
	if r.right() {
		c.right++
		c.named = append(c.named, r.namedAt-r.faultAt)
		c.certain = append(c.certain, r.certainAt-r.faultAt)
	}
}

func (c *tally) precision() float64 { return float64(c.right) / float64(max(1, c.told)) }
func (c *tally) recall() float64    { return float64(c.right) / float64(max(1, c.faults)) }

func (c *tally) String() string {
	return fmt.Sprintf("%d faults, precision %.3f, recall %.3f, named after %v, certain after %v (medians)", c.faults, c.precision(), c.recall(), median(c.named), median(c.certain))
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
