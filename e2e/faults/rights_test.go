package faults

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/internal/soak"
	"github.com/eltrain/eltrain/testbed"
)

// granted lists every verb on every resource that deploy/ grants, once.
func granted(t *testing.T) []testbed.Permission {
	t.Helper()
	text, err := os.ReadFile(podsite.Rights)
	if err != nil {
		t.Fatal(err)
	}
	const lookAhead = 4096 // bytes, to tell YAML from JSON
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), lookAhead)
	var all []testbed.Permission
	for {
		var role rbacv1.ClusterRole // a Role has the same fields
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(role.Kind, "Role") {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if p := (testbed.Permission{Verb: verb, Resource: resource}); !slices.Contains(all, p) {
						all = append(all, p)
					}
				}
			}
		}
	}
}

// lacking is a job whose master lacks one right.
type lacking struct {
	*trial
	without testbed.Permission
	master  *site.Master
	named   bool // a command has named it
}

// grant sets the user's rights.
func (l *lacking) grant(without ...testbed.Permission) {
	user := l.User()
	user.Without = without
	l.Cluster.Token(l.T, user)
}

func (l *lacking) String() string { return l.without.Verb + " " + l.without.Resource }

// namedIn reports whether text says that the right to the verb and resource is missing.
func (l *lacking) namedIn(text string) bool {
	resource, sub, _ := strings.Cut(l.without.Resource, "/")
	return regexp.MustCompile(`\b`+l.without.Verb+`\b`).MatchString(text) && strings.Contains(text, resource) && strings.Contains(text, sub) &&
		(strings.Contains(text, "forbidden") || strings.Contains(text, "permission"))
}

// notNeeded reports whether a right is not needed by a job that starts and is destroyed without a fault, so that no command
// here need name it. The provider's own tests cover its rights: TestARightThatIsMissedLaterIsNamed and
// TestAListThatIsNotAllowedIsNamed.
func (l *lacking) notNeeded() bool {
	switch l.without.Resource {
	case "podgroups", "queues", "hypernodes": // with provider "volcano"
		return true
	case "runtimeclasses": // for pods that name one
		return true
	case "requests", "requests/status", "validatingadmissionpolicies", "validatingadmissionpolicybindings": // where requests are installed
		return true
	}
	return slices.Contains([]string{
		"delete pods", // for an agent that does not exit by itself
		"get pods",    // after a create whose response was lost, and to revert drift
		"list pods",   // if the watch does not bring the first list
		"list nodes",
		"delete secrets",    // for a state larger than one Secret, and for a token whose anchor is gone
		"delete configmaps", // for the anchor: destroy stops before, at what the anchor owns
		"delete services",
		"get services",
		"get poddisruptionbudgets", // when a job is prepared again
	}, l.String())
}

// outcome waits for the command's end. It interrupts a command that keeps trying after it has named the missing right.
func (l *lacking) outcome() (code int, named bool) {
	l.T.Helper()
	named = func() bool {
		for deadline := time.Now().Add(site.Bound); time.Now().Before(deadline); time.Sleep(site.Poll) {
			select {
			case <-l.master.Ended:
				return false
			default:
			}
			if l.namedIn(site.Unwrapped(l.master.Out.String())) {
				return true
			}
		}
		return false
	}()
	select {
	case <-l.master.Ended:
		code = l.master.Wait()
	case <-time.After(persistence):
		code = l.master.Interrupt()
	}
	return code, named || l.namedIn(site.Unwrapped(l.master.Out.String()))
}

// persistence is how long a command may keep trying after it has named the missing right: it retries with backoff.
const persistence = 15 * time.Second

// atOnce is how many commands run in parallel: few enough that a small machine answers the first requests of each in time.
const atOnce = 12

// Without any one of its rights eltrain names the missing one, or does without it. With the right back, the next command does
// the rest.
func TestEachRightThatIsLackingIsNamed(t *testing.T) {
	soak.Only(t)
	t.Parallel()
	c := calm.start(t)
	var all []*lacking
	for _, p := range granted(t) {
		l := &lacking{trial: newTrial(t, c), without: p}
		l.grant(p)
		l.Write("job.hcl", settings+provider()+l.resting(workers))
		all = append(all, l)
	}
	failing := func(args ...string) {
		for _, l := range all {
			l.grant(l.without)
		}
		for some := range slices.Chunk(all, atOnce) {
			for _, l := range some {
				l.master = l.Start(args...)
			}
			for _, l := range some {
				code, named := l.outcome()
				l.named = l.named || named
				if code != 0 && !named {
					t.Errorf("without the right to %v, %s does not name it:\n%s", l, args[0], l.master.Out)
				}
			}
		}
	}
	completing := func(args []string, problems func(*trial) []string) {
		for _, l := range all {
			l.grant()
		}
		for some := range slices.Chunk(all, atOnce) {
			for _, l := range some {
				l.master = l.Start(args...)
			}
			for _, l := range some {
				if code := l.master.Wait(); code != 0 {
					t.Errorf("with the right to %v back, %s ends with exit code %d:\n%s", l, args[0], code, l.master.Out)
				} else if found := problems(l.trial); len(found) > 0 {
					t.Errorf("with the right to %v back, after %s: %v\n%s", l, args[0], found, l.master.Out)
				}
			}
		}
	}
	failing(applying...)
	completing(applying, func(s *trial) []string { return s.disturbances(workers) })
	failing("plan", "-input=false")
	failing("logs", "job.gpt.worker[0]")
	failing(destroying...)
	completing(destroying, func(s *trial) []string { return s.remains() })
	for _, l := range all {
		if !l.named && !l.notNeeded() {
			t.Errorf("no command named the missing right to %v: it is not needed, or not reported", l)
		}
	}
}
