package sim_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/soak"
)

var (
	seed  = flag.Int("seed", -1, "the walk to take, or the first of -seeds")
	seeds = flag.Int("seeds", 0, "how many walks to take; 0 takes 2000, or the one of -seed")
)

// TestWalks runs faults, edits and changes of masters in random order, checks the invariants after every step of a loop, and at
// the end, with everything repaired, that the loop comes to rest.
func TestWalks(t *testing.T) {
	first, number := max(*seed, 0), *seeds
	switch {
	case number > 0:
	case *seed >= 0:
		number = 1
	case testing.Short():
		number = 200
	default:
		number = 2000
	}
	takeAll(t.Context(), t, first, number)
}

// TestWalksThatNobodyTook takes walks for as long as SOAK says, from new seeds each time.
func TestWalksThatNobodyTook(t *testing.T) {
	soak.Only(t)
	d, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		d = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if end, set := t.Deadline(); set {
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Minute))
		defer cancel()
	}
	takeAll(ctx, t, rand.IntN(1<<50), 1<<50)
}

// takeAll takes walks, several at once, until one fails or ctx ends, and tells how many it took.
func takeAll(ctx context.Context, t *testing.T, first, number int) {
	const workers = 8
	var walking sync.WaitGroup
	var taken atomic.Int64
	defer func() { t.Logf("took %d walks from seed %d on", taken.Load(), first) }()
	for i := range workers {
		walking.Go(func() {
			for seed := first + i; seed < first+number && !t.Failed() && ctx.Err() == nil; seed += workers {
				take(t, seed)
				taken.Add(1)
			}
		})
	}
	walking.Wait()
}

// The same seed yields the same walk, to the millisecond, so that failures can be reproduced.
func TestAWalkRepeats(t *testing.T) {
	for seed := range 20 {
		once, again := draw(seed).run(t), draw(seed).run(t)
		if a, b := once.take(), again.take(); a != b {
			t.Fatalf("seed %d is once\n%s\nand then\n%s", seed, a, b)
		}
	}
}

// take takes one walk. If it fails, it is shrunk and printed as a scenario.
func take(t *testing.T, seed int) {
	t.Helper()
	k := draw(seed)
	w := k.run(t)
	if len(w.wrong) == 0 {
		return
	}
	short := k.shrink(t)
	last := short.run(t)
	t.Errorf("seed %d: %s\n\nrepeat it: go test ./providers/sim -run 'TestWalks$' -seed=%d\n\nas a scenario, with what it does:\n\n%s\n%s",
		seed, strings.Join(w.wrong, "\n"), seed, short.scenario(), last.take())
}

// walk is a list of steps on a cluster.
type walk struct {
	setup []step
	steps []step
}

// run takes the walk in a new world.
func (k walk) run(t testing.TB) (w *world) {
	w = newWorld(t)
	defer w.close()
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.text = walkJobs
	do := func(s step) {
		if err := w.do(s); err != nil {
			w.fail("%s: %v", s, err)
		}
		w.settle()
	}
	for _, s := range k.setup {
		do(s)
	}
	if err := w.declare(walkJobs); err != nil {
		w.fail("%v", err)
	}
	w.start("a")
	for _, s := range k.steps {
		if len(w.wrong) > 0 {
			return w
		}
		w.say("-- %s", s)
		do(s)
	}
	return w
}

// shrink drops steps for as long as the walk still fails.
func (k walk) shrink(t testing.TB) walk {
	const most = 500
	tries := 0
	for size := len(k.steps) / 2; size > 0; {
		dropped := false
		for at := 0; at+size <= len(k.steps) && tries < most; {
			tries++
			less := walk{k.setup, append(append([]step{}, k.steps[:at]...), k.steps[at+size:]...)}
			if len(less.run(t).wrong) > 0 {
				k, dropped = less, true
			} else {
				at += size
			}
		}
		if !dropped || size > 1 {
			size /= 2
		}
	}
	return k
}

// scenario renders the walk as a text for testdata.
func (k walk) scenario() string {
	var b strings.Builder
	lines := func(directive string, steps ...step) {
		b.WriteString(directive + "\n")
		for _, s := range steps {
			b.WriteString(string(s) + "\n")
		}
		b.WriteString("----\n\n")
	}
	lines("do", k.setup...)
	lines("apply", step(strings.TrimSpace(walkJobs)))
	lines("do", k.steps...)
	return b.String()
}
