package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// twoRoles has three slots in two waves, which need next to nothing.
func twoRoles(word string) string {
	role := func(name string, replicas int, more string) string {
		return fmt.Sprintf("  role %q {\n    replicas   = %d\n    command    = [\"sh\", \"-c\", \"echo %s; exec sleep 600\"]\n    stop_grace = \"1s\"\n    %s\n    resources { cpu = 0.1 }\n  }\n",
			name, replicas, word, more)
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

// killer passes on a run's output and ends the run at once after some of its lines.
type killer struct {
	mu    sync.Mutex
	after int // lines; a run that has fewer is left alone
	seen  int
	kill  func()
	text  bytes.Buffer
}

func (k *killer) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text.Write(b)
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if k.seen++; k.seen == k.after {
			k.kill()
		}
	}
	return len(b), nil
}

// killed runs a command and kills it after that many lines of its output, or after that long. It tells whether the
// run ended by itself before.
func (s *site) killed(lines int, after time.Duration, args ...string) (ended bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := s.command(ctx, args...)
	k := &killer{after: lines, kill: func() { cmd.Process.Kill() }}
	cmd.Stdout, cmd.Stderr = k, k
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if after > 0 {
		timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
		defer timer.Stop()
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		s.t.Fatalf("eltrain %v, to be killed after %d lines: exit code %d\n%s", args, lines, code, &k.text)
	}
	return cmd.ProcessState.Exited()
}

// settled checks what is there after a run was killed: nobody has to break a lock, the next plan is made, the next apply
// completes it, and each slot runs once, on what is declared now.
func (s *site) settled(moment string) {
	s.t.Helper()
	if out, code := s.run("plan", "-detailed-exitcode"); code != 0 && code != 2 {
		s.t.Fatalf("%s: plan: exit code %d\n%s", moment, code, out)
	}
	if out, code := s.run("apply", "-auto-approve"); code != 0 {
		s.t.Fatalf("%s: apply: exit code %d\n%s", moment, code, out)
	}
	if out, code := s.run("plan", "-detailed-exitcode"); code != 0 {
		s.t.Fatalf("%s: there is more to do after the apply\n%s", moment, out)
	}
	once := fmt.Sprint(map[string]int{"ps[0]": 1, "worker[0]": 1, "worker[1]": 1})
	s.until(moment+": each slot runs once", func() bool {
		agents, trainers := s.perSlot()
		return fmt.Sprint(agents) == once && fmt.Sprint(trainers) == once
	})
}

// crashing is a site whose runs are killed.
type crashing struct {
	*site
	rng  *rand.Rand
	word int
}

func newCrashing(t *testing.T) *crashing {
	t.Helper()
	if testing.Short() {
		t.Skip("some hundred runs of eltrain")
	}
	t.Parallel()
	return &crashing{site: newSite(t, map[string]string{"job.hcl": twoRoles("first"), "nodes.hcl": nodes("n1", "n2")}), rng: rand.New(rand.NewPCG(5, 6))}
}

// edit declares another command: all slots are to be replaced.
func (c *crashing) edit() { c.word++; c.write("job.hcl", twoRoles("w"+strconv.Itoa(c.word))) }

// moments are after how many lines of its output a run is killed: from the end of what the plan prints, since nothing is
// done before.
func (c *crashing) moments(plan ...string) (first int) {
	c.t.Helper()
	out, _ := c.run(plan...)
	shown := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	return max(1, len(shown)-3)
}

func (c *crashing) destroyed(moment string) {
	c.t.Helper()
	if out, code := c.run("destroy", "-auto-approve"); code != 0 {
		c.t.Fatalf("%s: destroy: exit code %d\n%s", moment, code, out)
	}
	c.until(moment+": everything has ended", func() bool { return len(c.processes()) == 0 })
	if out := c.must("state", "list"); out != "" {
		c.t.Fatalf("%s: the state still has\n%s", moment, out)
	}
}

// inBetween is how many runs are killed at a moment that no line tells.
const inBetween = 4

// A run that is killed, at each line that it prints and at moments in between, leaves no lock that somebody must break
// and nothing that the state forgot; what runs, runs once.
func TestKilledAtEveryStepOfACreation(t *testing.T) {
	c := newCrashing(t)
	for lines, ended := c.moments("plan"), false; !ended; lines++ {
		moment := fmt.Sprintf("killed at line %d", lines)
		ended = c.killed(lines, 0, "apply", "-auto-approve")
		c.settled(moment)
		c.destroyed(moment)
	}
	for range inBetween {
		after := time.Duration(c.rng.IntN(600)+20) * time.Millisecond
		moment := fmt.Sprintf("killed after %v", after)
		c.killed(0, after, "apply", "-auto-approve")
		c.settled(moment)
		c.destroyed(moment)
	}
}

func TestKilledAtEveryStepOfAReplacement(t *testing.T) {
	c := newCrashing(t)
	c.must("apply", "-auto-approve")
	c.edit()
	for lines, ended := c.moments("plan"), false; !ended; lines++ {
		c.edit()
		ended = c.killed(lines, 0, "apply", "-auto-approve")
		c.settled(fmt.Sprintf("killed at line %d", lines))
	}
	for range inBetween {
		c.edit()
		after := time.Duration(c.rng.IntN(2500)+20) * time.Millisecond
		c.killed(0, after, "apply", "-auto-approve")
		c.settled(fmt.Sprintf("killed after %v", after))
	}
}

func TestKilledAtEveryStepOfADestruction(t *testing.T) {
	c := newCrashing(t)
	c.must("apply", "-auto-approve")
	for lines, ended := c.moments("plan", "-destroy"), false; !ended; lines++ {
		ended = c.killed(lines, 0, "destroy", "-auto-approve")
		c.destroyed(fmt.Sprintf("killed at line %d", lines))
		c.must("apply", "-auto-approve")
	}
}
