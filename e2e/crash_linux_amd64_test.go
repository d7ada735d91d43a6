package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// destroyed checks that a destroy leaves nothing after a run was killed.
func (c *crashing) destroyed(moment string) {
	c.T.Helper()
	if out, code := c.Run("destroy", "-auto-approve"); code != 0 {
		c.T.Fatalf("%s: destroy: exit code %d\n%s", moment, code, out)
	}
	site.Until(c.T, moment+": everything has ended", func() bool { return len(c.Processes()) == 0 })
	if out := c.Must("state", "list"); out != "" {
		c.T.Fatalf("%s: the state still has\n%s", moment, out)
	}
	if left, err := os.ReadDir(filepath.Join(c.Dir, ".eltrain", "jobs")); err != nil || len(left) > 0 {
		c.T.Fatalf("%s: of jobs there still is %v, %v", moment, left, err)
	}
	c.neverTwice(moment)
}

// shards is how many sites share the steps of a run. Each mostly waits: for agents, locks and exiting processes.
const shards = 8

// atEveryStep kills a run before its first step, the next one before its second, and so on until a run ends by itself.
// kill makes one run, killed before step n, and checks what comes after.
//
// The shards run in parallel whatever -parallel says: they use little CPU.
func atEveryStep(t *testing.T, prepare func(*crashing), kill func(c *crashing, n int) (step string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("some hundred runs of eltrain")
	}
	needTracing(t)
	begun := time.Now()
	var killed atomic.Int64
	var working sync.WaitGroup
	for shard := range shards {
		working.Go(func() {
			t.Run(fmt.Sprintf("%d of %d", shard+1, shards), func(t *testing.T) {
				c := newCrashing(t)
				prepare(c)
				for n := shard + 1; ; n += shards {
					if step := kill(c, n); step == "" {
						t.Logf("a run has fewer than %d steps", n)
						return
					}
					killed.Add(1)
				}
			})
		})
	}
	working.Wait()
	t.Logf("%d runs were killed, in %s", killed.Load(), time.Since(begun).Round(time.Second))
}

func before(n int, step string) string { return fmt.Sprintf("killed before step %d (%s)", n, step) }

// A run killed with SIGKILL before any of its steps leaves no lock to break and nothing that the state does not know; no slot
// runs twice.
func TestKilledAtEveryStepOfACreation(t *testing.T) {
	soak.Only(t)
	atEveryStep(t, func(*crashing) {}, func(c *crashing, n int) string {
		step := c.killedBefore(n, "apply", "-auto-approve")
		c.settled(before(n, step))
		c.destroyed(before(n, step))
		return step
	})
}

func TestKilledAtEveryStepOfAReplacement(t *testing.T) {
	soak.Only(t)
	atEveryStep(t, func(c *crashing) { c.Must("apply", "-auto-approve") }, func(c *crashing, n int) string {
		c.edit()
		step := c.killedBefore(n, "apply", "-auto-approve")
		c.settled(before(n, step))
		return step
	})
}

// What a killed destroy had begun is completed by the next destroy, or restored by an apply.
func TestKilledAtEveryStepOfADestruction(t *testing.T) {
	soak.Only(t)
	atEveryStep(t, func(c *crashing) { c.Must("apply", "-auto-approve") }, func(c *crashing, n int) string {
		step := c.killedBefore(n, "destroy", "-auto-approve")
		if n/shards%2 == 0 {
			c.settled(before(n, step))
			return step
		}
		c.destroyed(before(n, step))
		c.Must("apply", "-auto-approve")
		return step
	})
}
