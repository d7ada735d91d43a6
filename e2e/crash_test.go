//go:build linux && amd64

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// twoRoles has three slots in two waves, which need next to nothing. Each program holds a lock of its slot as long as it
// runs, and one that finds it held says so in the file "twice".
func twoRoles(word string) string {
	program := `exec 9>>"$ELTRAIN_SLOT.lock"; flock -n 9 || echo "$ELTRAIN_SLOT" >> twice; echo ` + word + `; exec sleep 600`
	role := func(name string, replicas int, more string) string {
		return fmt.Sprintf("  role %q {\n    replicas   = %d\n    command    = [\"sh\", \"-c\", %q]\n    stop_grace = \"1s\"\n    %s\n    resources { cpu = 0.1 }\n  }\n",
			name, replicas, program, more)
	}
	return "job \"s\" {\n" + role("ps", 1, "ranked = false") + role("worker", 2, "depends_on = [role.ps]") + "  rendezvous { settle = \"1s\" }\n}\n"
}

// perSlot counts the live agents and training processes by slot.
func (s *site) perSlot() (agents, trainers map[string]int) {
	agents, trainers = map[string]int{}, map[string]int{}
	slot := regexp.MustCompile(` -slot=(\S+) `)
	for pid, args := range s.processes() {
		if found := slot.FindStringSubmatch(args); found != nil {
			agents[found[1]]++
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !strings.HasPrefix(args, "sleep ") {
			continue
		}
		for pair := range bytes.SplitSeq(environ, []byte{0}) {
			if address, ok := strings.CutPrefix(string(pair), "ELTRAIN_SLOT="); ok {
				trainers[address[strings.LastIndexByte(address, '.')+1:]]++
			}
		}
	}
	return agents, trainers
}

// settled checks what is there after a run was killed: nobody has to break a lock, the next apply does what the next plan
// says and completes what was begun, and each slot runs once, on what is declared now.
func (c *crashing) settled(moment string) {
	c.t.Helper()
	planned, code := c.run("plan", "-detailed-exitcode")
	if code != 0 && code != 2 {
		c.t.Fatalf("%s: plan: exit code %d\n%s", moment, code, planned)
	}
	applied, code := c.run("apply", "-auto-approve")
	if code != 0 {
		c.t.Fatalf("%s: apply: exit code %d\n%s", moment, code, applied)
	}
	if strings.Contains(planned, "No changes") != strings.Contains(applied, "Resources: 0 added, 0 changed, 0 destroyed") {
		c.t.Errorf("%s: the plan was\n%s\nand the apply did\n%s", moment, planned, applied)
	}
	if out, code := c.run("plan", "-detailed-exitcode"); code != 0 {
		c.t.Fatalf("%s: there is more to do after the apply\n%s", moment, out)
	}
	once := fmt.Sprint(map[string]int{"ps[0]": 1, "worker[0]": 1, "worker[1]": 1})
	c.until(moment+": each slot runs once", func() bool {
		agents, trainers := c.perSlot()
		return fmt.Sprint(agents) == once && fmt.Sprint(trainers) == once
	})
	c.neverTwice(moment)
}

// neverTwice checks that no slot's program was started while another was at work in it.
func (c *crashing) neverTwice(moment string) {
	c.t.Helper()
	if text, err := os.ReadFile(filepath.Join(c.dir, "twice")); err == nil {
		c.t.Fatalf("%s: these slots ran twice at one time:\n%s", moment, text)
	}
}

// destroyed checks that after a run was killed a destroy leaves nothing.
func (c *crashing) destroyed(moment string) {
	c.t.Helper()
	if out, code := c.run("destroy", "-auto-approve"); code != 0 {
		c.t.Fatalf("%s: destroy: exit code %d\n%s", moment, code, out)
	}
	c.until(moment+": everything has ended", func() bool { return len(c.processes()) == 0 })
	if out := c.must("state", "list"); out != "" {
		c.t.Fatalf("%s: the state still has\n%s", moment, out)
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, ".eltrain", "jobs")); err != nil || len(left) > 0 {
		c.t.Fatalf("%s: of jobs there still is %v, %v", moment, left, err)
	}
	c.neverTwice(moment)
}

// crashing is a site whose runs are killed.
type crashing struct {
	*site
	word int
}

// edit declares another command: all slots are to be replaced.
func (c *crashing) edit() { c.word++; c.write("job.hcl", twoRoles("w"+strconv.Itoa(c.word))) }

// shards is how many sites the steps of a run are divided among: most of the time a run waits.
const shards = 4

// atEveryStep kills a run before its first step, the next one before its second, and so on until a run ends by itself.
// kill makes one run, killed before step n, and checks what comes after.
func atEveryStep(t *testing.T, prepare func(*crashing), kill func(c *crashing, n int) (step string)) {
	t.Helper()
	if testing.Short() {
		t.Skip("some hundred runs of eltrain")
	}
	needTracing(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("%d of %d", shard+1, shards), func(t *testing.T) {
			t.Parallel()
			c := &crashing{site: newSite(t, map[string]string{"job.hcl": twoRoles("first"), "nodes.hcl": nodes("n1", "n2")})}
			prepare(c)
			for n := shard + 1; ; n += shards {
				step := kill(c, n)
				if step == "" {
					t.Logf("a run has fewer than %d steps", n)
					return
				}
			}
		})
	}
}

func before(n int, step string) string { return fmt.Sprintf("killed before step %d (%s)", n, step) }

// A run that is killed with SIGKILL, before each step that it makes, leaves no lock that somebody must break and nothing
// that the state forgot; what runs, runs once.
func TestKilledAtEveryStepOfACreation(t *testing.T) {
	atEveryStep(t, func(*crashing) {}, func(c *crashing, n int) string {
		step := c.killedBefore(n, "apply", "-auto-approve")
		c.settled(before(n, step))
		c.destroyed(before(n, step))
		return step
	})
}

func TestKilledAtEveryStepOfAReplacement(t *testing.T) {
	atEveryStep(t, func(c *crashing) { c.must("apply", "-auto-approve") }, func(c *crashing, n int) string {
		c.edit()
		step := c.killedBefore(n, "apply", "-auto-approve")
		c.settled(before(n, step))
		return step
	})
}

// What a destroy that was killed had begun is completed by the next, or made good by an apply.
func TestKilledAtEveryStepOfADestruction(t *testing.T) {
	atEveryStep(t, func(c *crashing) { c.must("apply", "-auto-approve") }, func(c *crashing, n int) string {
		step := c.killedBefore(n, "destroy", "-auto-approve")
		if n/shards%2 == 0 {
			c.settled(before(n, step))
			return step
		}
		c.destroyed(before(n, step))
		c.must("apply", "-auto-approve")
		return step
	})
}

// Between its steps a run waits, for agents as a rule. There it is killed at some moments that a clock says.
func TestKilledBetweenTheSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("some ten runs of eltrain")
	}
	t.Parallel()
	c := &crashing{site: newSite(t, map[string]string{"job.hcl": twoRoles("first"), "nodes.hcl": nodes("n1", "n2")})}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 8 {
		after := time.Duration(rng.IntN(2500)+20) * time.Millisecond
		c.edit()
		ctx, cancel := context.WithTimeout(context.Background(), after)
		c.command(ctx, "apply", "-auto-approve").Run() // killed as a rule, and otherwise settled shows
		cancel()
		c.settled(fmt.Sprintf("killed after %v", after))
	}
}
