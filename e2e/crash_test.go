package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
)

// twoRoles has three slots in two waves, which use almost nothing. Each program holds a lock of its slot while it runs, and
// notes it in the file "twice" if the lock is already held. It reports a step at once, because an apply waits some seconds
// for a job that reports none.
func twoRoles(word string) string {
	program := `exec 9>>"$ELTRAIN_SLOT.lock"; flock -n 9 || echo "$ELTRAIN_SLOT" >> twice; echo ` + word + `; echo step 1; exec sleep 600`
	role := func(name string, replicas int, more string) string {
		return fmt.Sprintf("  role %q {\n    replicas   = %d\n    command    = [\"sh\", \"-c\", %q]\n    stop_grace = \"1s\"\n    %s\n    resources { cpu = 0.1 }\n  }\n",
			name, replicas, program, more)
	}
	return "job \"s\" {\n" + role("ps", 1, "ranked = false") + role("worker", 2, "depends_on = [role.ps]") + `  rendezvous { settle = "1s" }
  progress { pattern = "step (?P<step>\\d+)" }
}
`
}

// declared is how many slots twoRoles has.
const declared = 3

// crashing is a site whose eltrain runs are killed.
type crashing struct {
	*site.Site
	word int
}

func newCrashing(t *testing.T) *crashing {
	t.Helper()
	return &crashing{Site: newSite(t, map[string]string{"job.hcl": twoRoles("first"), "nodes.hcl": site.Nodes("n1", "n2")})}
}

// edit declares another command, so that all slots must be replaced.
func (c *crashing) edit() { c.word++; c.Write("job.hcl", twoRoles("w"+strconv.Itoa(c.word))) }

// perSlot counts the live agents and training processes by slot.
func perSlot(s *site.Site) (agents, trainers map[string]int) {
	agents, trainers = map[string]int{}, map[string]int{}
	slot := regexp.MustCompile(` -slot=(\S+) `)
	for pid, args := range s.Processes() {
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

// The counts in the output of a plan and of an apply: added, changed and destroyed.
var (
	planCounts  = regexp.MustCompile(`(?m)^Plan: (\d+) to add, (\d+) to change, (\d+) to destroy\.`)
	applyCounts = regexp.MustCompile(`(?m)^Apply complete! Resources: (\d+) added, (\d+) changed, (\d+) destroyed\.`)
)

// counts returns the counts that a pattern finds in a text; three zeros without a match.
func counts(pattern *regexp.Regexp, text string) (n [3]int) {
	for i, digits := range pattern.FindStringSubmatch(text) {
		if i > 0 {
			n[i-1], _ = strconv.Atoi(digits)
		}
	}
	return n
}

// beyond reports whether an apply did more of anything than the plan before it said. It may do less: between the two, an agent
// that the killed run was starting may come up, or one that it was stopping may exit.
func beyond(did, planned [3]int) bool {
	return did[0] > planned[0] || did[1] > planned[1] || did[2] > planned[2]
}

// startAgain matches the number of slots that will start once others of their job have ended. The plan's counts leave them out.
var startAgain = regexp.MustCompile(`(\d+) slots? start again if they fit`)

// promised reports whether an apply did at most what the plan's counts and its Waiting announced: slots that a destroy was
// stopping start again.
func promised(planned string, did [3]int) bool {
	count := counts(planCounts, planned)
	for _, said := range startAgain.FindAllStringSubmatch(site.Unwrapped(planned), -1) {
		n, _ := strconv.Atoi(said[1])
		count[0] += n
	}
	return !beyond(did, count)
}

// settled checks the site after a run was killed: no lock has to be broken, the next apply does what the next plan says
// (nothing, if it has no changes) and completes what was begun, and each slot runs once, as now declared.
func (c *crashing) settled(moment string) {
	c.T.Helper()
	// Between its fork and its exec a child has all descriptors of the killed run, including the locks of other slots, which
	// then look as if they were being started.
	site.Until(c.T, moment+": what it forked has become an agent", func() bool { return runs(c.Site, programs.Eltrain+" ") == 0 })
	planned, code := c.Run("plan", "-detailed-exitcode")
	if code != 0 && code != 2 {
		c.T.Fatalf("%s: plan: exit code %d\n%s", moment, code, planned)
	}
	atRest := code == 0
	for _, n := range counts(planCounts, planned) {
		if n > declared {
			c.T.Errorf("%s: of %d slots the plan is\n%s", moment, declared, planned)
		}
	}
	var found map[int]string
	site.Until(c.T, moment+": no agent is forking its program", func() bool { found = c.Processes(); return !forking(found) })
	applied, code := c.Run("apply", "-auto-approve")
	if code != 0 || !applyCounts.MatchString(applied) {
		c.T.Fatalf("%s: apply: exit code %d\n%s", moment, code, applied)
	}
	if did := counts(applyCounts, applied); !promised(planned, did) {
		c.T.Errorf("%s: the plan was\n%s\nand the apply did\n%s", moment, planned, applied)
	}
	if atRest {
		c.untouched(moment, found, applied)
	}
	if out, code := c.Run("plan", "-detailed-exitcode"); code != 0 {
		c.T.Fatalf("%s: there is more to do after the apply\n%s", moment, out)
	}
	once := fmt.Sprint(map[string]int{"ps[0]": 1, "worker[0]": 1, "worker[1]": 1})
	site.Until(c.T, moment+": each slot runs once", func() bool {
		agents, trainers := perSlot(c.Site)
		return fmt.Sprint(agents) == once && fmt.Sprint(trainers) == once
	})
	c.neverTwice(moment)
}

// forking reports whether one of the processes is an agent's fork before its exec.
func forking(processes map[int]string) bool {
	agents := map[string]bool{}
	for _, args := range processes {
		if strings.Contains(args, " -slot=") && agents[args] {
			return true
		}
		agents[args] = true
	}
	return false
}

// untouched checks that an apply has done nothing: the agents and programs that it found still run.
func (c *crashing) untouched(moment string, found map[int]string, applied string) {
	c.T.Helper()
	if did := counts(applyCounts, applied); did != [3]int{} {
		c.T.Errorf("%s: the plan has no changes, and the apply did\n%s", moment, applied)
	}
	now := c.Processes()
	for _, pid := range slices.Sorted(maps.Keys(found)) {
		passing := !strings.Contains(found[pid], " -slot=") && !strings.HasPrefix(found[pid], "sleep ") // short-lived, at a program's start
		if !passing && now[pid] == "" {
			c.T.Errorf("%s: the plan has no changes, and the apply ended %s:\n%s", moment, found[pid], applied)
		}
	}
}

// neverTwice checks that no slot's program was started while another one was running.
func (c *crashing) neverTwice(moment string) {
	c.T.Helper()
	if text, err := os.ReadFile(filepath.Join(c.Dir, "twice")); err == nil {
		c.T.Fatalf("%s: these slots ran twice at one time:\n%s", moment, text)
	}
}

// Between its steps a run waits, usually for agents. Here it is killed at random times.
func TestKilledBetweenTheSteps(t *testing.T) {
	soak.Only(t)
	if testing.Short() {
		t.Skip("some fifty runs of eltrain")
	}
	t.Parallel()
	const (
		moments = 12
		usual   = time.Second // at least what a replacement takes here
	)
	c := newCrashing(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for range moments {
		after := time.Duration(rng.Int64N(int64(usual)))
		c.edit()
		ctx, cancel := context.WithTimeout(context.Background(), after)
		c.Command(ctx, "apply", "-auto-approve").Run() // usually killed; settled checks its outcome in any case
		cancel()
		c.settled(fmt.Sprintf("killed after %v", after))
	}
}
