package faults

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// workers is the number of slots of the jobs in these tests: enough for two parallel creates, and for a gang.
const workers = 2

var (
	applying   = []string{"apply", "-auto-approve", "-input=false", waiting}
	destroying = []string{"destroy", "-auto-approve", "-input=false", waiting}
)

// stopped is a job whose command is stopped at one of its writes: the n-th, or with 0 the first of a kind. A number alone may
// miss a kind: on a busy machine news arrives piecemeal and takes more writes to store.
type stopped struct {
	*trial
	gate    *podsite.Gate
	n       int
	which   int    // with n 0: index of the kind
	kind    string // that kind; "" if the command has fewer kinds
	done    bool   // stop after the API server has carried it out
	victim  corev1.Pod
	begun   time.Time // when the command started
	master  *site.Master
	held    <-chan struct{}
	release chan<- struct{}
}

// breaks deletes one of the job's pods.
func (s *stopped) breaks() {
	s.T.Helper()
	pods := s.Pods()
	if len(pods) == 0 {
		s.T.Fatalf("%v: there is no pod to delete", s)
	}
	s.victim = pods[0]
	s.DeletePod(s.victim.Name, podsite.AtOnce())
	site.Until(s.T, "the pod is gone", func() bool {
		return !slices.ContainsFunc(s.Pods(), func(p corev1.Pod) bool { return p.UID == s.victim.UID })
	})
}

// unhealed lists what differs from the state after one replacement: the victim's slot has its second pod, each slot trains for
// the second time, and the job has each of its other objects, once.
func (s *stopped) unhealed() []string {
	s.T.Helper()
	problems := append(s.notReplacedOnce(s.victim), s.unaccompanied()...)
	for _, p := range s.settled() {
		if p.Status.Phase != corev1.PodRunning {
			problems = append(problems, fmt.Sprintf("pod %s is %s", p.Name, p.Status.Phase))
		}
	}
	return append(problems, s.startedOtherThan(workers, 2)...)
}

// writes returns what each of the rounds writes when undisturbed, in order.
func writes(t *testing.T, c *testbed.Cluster, rounds []round) (all [][]string) {
	t.Helper()
	s := &stopped{trial: newTrial(t, c)}
	s.gate = s.Through()
	s.Write("job.hcl", settings+provider()+s.resting(workers))
	for _, r := range rounds {
		if r.before != nil {
			r.before(s)
		}
		s.gate.StopAt(0, "", false)
		s.Must(r.args...)
		for _, problem := range r.problems(s) {
			t.Errorf("undisturbed: %s: %s", r.args[0], problem)
		}
		all = append(all, s.gate.Asked())
	}
	return all
}

// eachWrite returns one job for each write of the longest round and one for each kind of write, in each of the gate's modes.
func eachWrite(t *testing.T, c *testbed.Cluster, rounds []round, modes ...bool) []*stopped {
	t.Helper()
	var all []*stopped
	add := func(s *stopped) {
		s.trial = newTrial(t, c)
		s.gate = s.Through()
		s.Write("job.hcl", settings+provider()+s.resting(workers))
		all = append(all, s)
	}
	for _, done := range modes {
		for n := range most(rounds, func(r round) int { return len(r.writes) }) {
			add(&stopped{n: n + 1, done: done})
		}
	}
	for which := range most(rounds, func(r round) int { return len(r.kinds()) }) {
		add(&stopped{which: which, done: modes[which%len(modes)]})
	}
	return all
}

func most(rounds []round, of func(round) int) (n int) {
	for _, r := range rounds {
		n = max(n, of(r))
	}
	return n
}

func (s *stopped) String() string {
	when := "before"
	if s.done {
		when = "after"
	}
	asked := s.gate.Asked()
	if s.n > 0 {
		return fmt.Sprintf("%s: %s write %d of %v", s.Namespace, when, s.n, asked[:min(s.n, len(asked))])
	}
	return fmt.Sprintf("%s: %s the first %q of %v", s.Namespace, when, s.kind, asked)
}

// round is a command that is stopped at each of its writes, and the check once the next command has completed it.
type round struct {
	before   func(*stopped) // breaks what the command repairs; nil if nothing
	args     []string
	writes   []string // when undisturbed, in order
	problems func(*stopped) []string
}

// kinds returns the kinds of its writes, in the order of their first occurrence.
func (r round) kinds() (kinds []string) {
	for _, write := range r.writes {
		if !slices.Contains(kinds, write) {
			kinds = append(kinds, write)
		}
	}
	return kinds
}

// underWay is how many commands work at a time. One that is stopped at its write does not count.
const underWay = 8

// ofALife returns the rounds of a job that is created, healed and destroyed.
func ofALife(t *testing.T, c *testbed.Cluster) []round {
	t.Helper()
	rounds := []round{
		{args: applying, problems: func(s *stopped) []string { return s.disturbances(workers) }},
		{before: (*stopped).breaks, args: applying, problems: (*stopped).unhealed},
		{args: destroying, problems: func(s *stopped) []string { return s.remains() }},
	}
	for i, all := range writes(t, c, rounds) {
		rounds[i].writes = all
	}
	return rounds
}

// stopEach runs the command for every job and waits until each is stopped at its write, or has ended if it has fewer writes.
// Each kind must be reached. Commands that stop at early writes start last: a held request times out.
func (r round) stopEach(t *testing.T, all []*stopped) {
	t.Helper()
	if r.before != nil {
		for _, s := range all {
			r.before(s)
		}
	}
	kinds := r.kinds()
	for _, s := range all {
		s.kind = ""
		if s.n == 0 && s.which < len(kinds) {
			s.kind = kinds[s.which]
		}
	}
	from := func(s *stopped) int { return max(s.n, slices.Index(r.writes, s.kind)+1) }
	starting := slices.SortedFunc(slices.Values(all), func(a, b *stopped) int { return cmp.Compare(from(b), from(a)) })
	working := make(chan struct{}, underWay)
	for _, s := range starting {
		working <- struct{}{}
		s.held, s.release = s.gate.StopAt(s.n, s.kind, s.done)
		s.begun, s.master = time.Now(), s.Start(r.args...)
		go func() {
			select {
			case <-s.held:
			case <-s.master.Ended:
			case <-time.After(site.Bound):
			}
			<-working
		}()
	}
	for _, s := range all {
		select {
		case <-s.held:
		case <-s.master.Ended:
			if !slices.Contains(s.gate.Asked(), s.kind) && s.kind != "" {
				t.Errorf("%v: not stopped there:\n%s", s, s.master.Out)
			}
		case <-time.After(site.Bound):
			t.Fatalf("%v: it comes to no end:\n%s", s, s.master.Out)
		}
	}
}

// complete waits for the commands, and checks the result.
func (r round) complete(t *testing.T, all []*stopped) {
	t.Helper()
	for _, s := range all {
		if code := s.master.Wait(); code != 0 {
			t.Errorf("%v: %s ends with exit code %d:\n%s", s, r.args[0], code, s.master.Out)
		} else if problems := r.problems(s); len(problems) > 0 {
			t.Errorf("%v: %s: %v\n%s", s, r.args[0], problems, s.master.Out)
		}
	}
}

// What a master killed after any of its writes has begun, the next one completes: the same job, no pod created twice, nothing
// started twice. The same holds while healing and destroying.
func TestMasterKilledAfterEachWrite(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	c := calm.start(t)
	rounds := ofALife(t, c)
	all := eachWrite(t, c, rounds, true)
	for _, r := range rounds {
		r.stopEach(t, all)
		for _, s := range all {
			s.master.Kill()
			s.gate.Open()
		}
		for _, s := range all {
			s.master = s.Start(r.args...)
		}
		r.complete(t, all)
	}
}

// An API server that is killed before or after any write of a master, and comes back, costs only time.
func TestAPIServerKilledAtEachWrite(t *testing.T) {
	soak.Only(t)
	for name, done := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			c := startOwn(t)
			rounds := ofALife(t, c)
			all := eachWrite(t, c, rounds, done)
			for _, r := range rounds {
				r.stopEach(t, all)
				c.APIServer.Kill(t)
				for _, s := range all {
					close(s.release)
				}
				c.APIServer.Start(t)
				back := time.Now()
				for _, s := range all {
					if s.master.Wait() != 0 && s.awayTooLong(s.master, s.begun, back) {
						s.master = s.Start(r.args...)
					}
				}
				r.complete(t, all)
			}
		})
	}
}
