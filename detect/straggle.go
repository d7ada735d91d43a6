package detect

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// slower is how many times the work of the others a straggler's own work is at least.
	slower = 1.5
	// sure is by how many standard errors it has to be.
	sure = 3
	// compareEvery is how often the work of the ranks is compared; leastLooks is how often each has to have been looked at for that.
	compareEvery = 15 * time.Second
	leastLooks   = 20
)

// windows are over how many comparisons work is compared, shortest first: the noisier it is, the longer it takes to be sure.
var windows = []int{4, 8, 20, 40}

// work compares how long the ranks of a world work between waiting for each other.
type work struct {
	at    time.Time  // of the next comparison
	peers string     // the kernel function in which ranks wait for each other: where most waits are
	marks [][]count  // by comparison, oldest first, and rank
	found *straggler // nil if there is none
}

// count is how often a rank was looked at, and how often it waited for its peers then.
type count struct{ all, waits int64 }

// straggler is the rank that the others wait for.
type straggler struct {
	rank       *rank
	suspicion  job.Suspicion
	comparison int // since it was last slower
}

// own is the share of its time in which a rank works, rather than waits for its peers, and how often that was looked at.
type own struct {
	share float64
	looks float64
}

// compare looks for a straggler. It costs as much as the world has processes, each compareEvery.
func (d *Detector) compare() {
	w := &d.work
	if d.now.Before(w.at) || len(d.ranks) < 2 {
		return
	}
	w.at = d.now.Add(compareEvery)
	if d.moving == 0 {
		w.marks = nil // a pause is no step
		return
	}
	if peers := d.peers(); peers != w.peers {
		w.peers, w.marks = peers, nil
	}
	now := make([]count, len(d.ranks))
	for i, r := range d.ranks {
		now[i] = count{r.Looks.All, r.Looks.Waits[w.peers]}
	}
	w.marks = append(w.marks, now)
	if longest := windows[len(windows)-1]; len(w.marks) > longest+1 {
		w.marks = slices.Delete(w.marks, 0, len(w.marks)-longest-1)
	}
	for _, n := range windows {
		if n >= len(w.marks) {
			break
		}
		shares := sharesOf(w.marks[len(w.marks)-1-n], now)
		if shares == nil {
			continue
		}
		r, others, next := d.slowest(shares)
		if r == nil {
			continue
		}
		if w.found == nil || w.found.rank != r {
			w.found = &straggler{rank: r, suspicion: d.straggling(r, shares[r.number].share, others.share, next.share, d.now.Add(-time.Duration(n)*compareEvery))}
		}
		w.found.comparison = 0
		return
	}
	if w.found != nil {
		if w.found.comparison++; w.found.comparison >= windows[0] {
			w.found = nil
		}
	}
}

// exceeds reports whether a share is surely slower times another one: by the standard errors of both, as of samples.
func (o own) exceeds(other own) bool {
	variance := o.share*(1-o.share)/o.looks + slower*slower*other.share*(1-other.share)/other.looks
	return o.share-slower*other.share > sure*math.Sqrt(variance+1/(o.looks*o.looks))
}

// peers is the kernel function in which the ranks have waited most.
func (d *Detector) peers() (most string) {
	waits := map[string]int64{}
	for _, r := range d.ranks {
		for channel, n := range r.Looks.Waits {
			waits[channel] += n
		}
	}
	for channel, n := range waits {
		if n > waits[most] || n == waits[most] && channel < most {
			most = channel
		}
	}
	return most
}

// sharesOf are the shares of all ranks between two marks; nil if one was not looked at often enough.
func sharesOf(before, now []count) []own {
	shares := make([]own, len(now))
	for i := range now {
		looks := float64(now[i].all - before[i].all)
		if looks < leastLooks {
			return nil
		}
		shares[i] = own{1 - float64(now[i].waits-before[i].waits)/looks, looks}
	}
	return shares
}

// slowest is a rank that works longer than those that do the same, with their median and the next of them; nil if there is none.
func (d *Detector) slowest(shares []own) (slowest *rank, others, next own) {
	for _, alike := range d.alikes {
		slowest := slices.MaxFunc(alike, func(a, b *rank) int { return cmp.Compare(shares[a.number].share, shares[b.number].share) })
		rest := make([]own, 0, len(alike)-1)
		for _, r := range alike {
			if r != slowest {
				rest = append(rest, shares[r.number])
			}
		}
		slices.SortFunc(rest, func(a, b own) int { return cmp.Compare(a.share, b.share) })
		if others := rest[len(rest)/2]; shares[slowest.number].exceeds(others) {
			return slowest, others, rest[len(rest)-1]
		}
	}
	return nil, own{}, own{}
}

// straggling is the suspicion of a straggler. While it works longer than the next slowest, all others wait: that is what it costs.
func (d *Detector) straggling(r *rank, share, others, next float64, since time.Time) job.Suspicion {
	percent := func(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) }
	return job.Suspicion{
		Cause: job.Straggler, Generation: d.generation, Slots: []job.Address{r.slot.address}, Ranks: []int{r.number}, Since: since, Certain: true, Cost: share - next,
		Evidence: []job.Reason{d.because(RankSlow, []*rank{r}, "share", percent(share), "others", percent(others), "costs", percent(share-next),
			"since", since.UTC().Format(time.RFC3339))},
	}
}
