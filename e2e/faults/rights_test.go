package faults

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/eltrain/eltrain/testbed"
)

// granted lists every verb on every resource that deploy/ grants, once.
func granted(t *testing.T) []testbed.Permission {
	t.Helper()
	text, err := os.ReadFile(rights)
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

// lacking is a job whose master has not one of the rights.
type lacking struct {
	*site
	without testbed.Permission
	master  *master
	named   bool // some command has named it
}

// grant sets the user's rights.
func (l *lacking) grant(without ...testbed.Permission) {
	user := l.user()
	user.Without = without
	l.cluster.Token(l.t, user)
}

func (l *lacking) String() string { return l.without.Verb + " " + l.without.Resource }

// namedIn tells whether the words name the verb and the resource, and that the right to them is what lacks.
func (l *lacking) namedIn(text string) bool {
	resource, sub, _ := strings.Cut(l.without.Resource, "/")
	return regexp.MustCompile(`\b`+l.without.Verb+`\b`).MatchString(text) && strings.Contains(text, resource) && strings.Contains(text, sub) &&
		(strings.Contains(text, "forbidden") || strings.Contains(text, "right"))
}

// loggedOnly are the rights whose lack is told in the log alone: a gang's gates are lifted beside the loop.
var loggedOnly = []string{"patch pods"}

// elsewhere tells whether a right is for what a job that comes up and goes without a fault does not meet. Such a
// one need not be missed here.
func (l *lacking) elsewhere() bool {
	switch l.without.Resource {
	case "podgroups", "queues", "hypernodes": // with provider "volcano"
		return true
	}
	return slices.Contains([]string{
		"delete pods", // an agent that does not leave by itself
		"get pods",    // a create whose answer was lost, and one that is mended
		"list pods",   // where the watch brings the first list, too
		"list nodes",
		"delete secrets",    // of a state that is beyond one Secret, and a token whose anchor is gone
		"delete configmaps", // the anchor: destroy stops before, at what it owns
		"delete services",
		"get services",
		"get poddisruptionbudgets", // what stands beside the pods is looked at when a job is prepared again
	}, l.String())
}

// outcome waits for the command's end. One that goes on trying though it has said what is lacking is interrupted.
func (l *lacking) outcome() (code int, named bool) {
	l.t.Helper()
	named = func() bool {
		for deadline := time.Now().Add(bound); time.Now().Before(deadline); time.Sleep(poll) {
			select {
			case <-l.master.ended:
				return false
			default:
			}
			if l.namedIn(unwrapped(l.master.out.String())) {
				return true
			}
		}
		return false
	}()
	select {
	case <-l.master.ended:
	case <-time.After(persistence):
		l.master.cmd.Process.Signal(syscall.SIGTERM)
	}
	code = l.master.wait()
	return code, named || l.namedIn(unwrapped(l.master.out.String()))
}

// persistence is how long a command may go on trying after it has said what is lacking: what fails is tried some
// times, with growing pauses.
const persistence = 15 * time.Second

// Without any one of its verbs eltrain says which is lacking, or does without; and with the right back the next
// command does what was left undone.
func TestEachRightThatIsLackingIsNamed(t *testing.T) {
	t.Parallel()
	c := calm.start(t)
	var all []*lacking
	for _, p := range granted(t) {
		l := &lacking{site: newSite(t, c), without: p}
		l.grant(p)
		l.write("job.hcl", settings+provider()+l.resting(workers))
		all = append(all, l)
	}
	failing := func(args ...string) {
		for _, l := range all {
			l.grant(l.without)
		}
		for _, l := range all {
			if slices.Contains(loggedOnly, l.String()) {
				l.env = []string{"ELTRAIN_LOG=warn"}
			}
			l.master = l.start(args...)
		}
		for _, l := range all {
			code, named := l.outcome()
			l.named = l.named || named
			if code != 0 && !named {
				t.Errorf("without the right to %v, %s does not name it:\n%s", l, args[0], l.master.out)
			}
		}
	}
	completing := func(args []string, problems func(*site) []string) {
		for _, l := range all {
			l.grant()
		}
		for _, l := range all {
			l.master = l.start(args...)
		}
		for _, l := range all {
			if code := l.master.wait(); code != 0 {
				t.Errorf("with the right to %v back, %s ends with exit code %d:\n%s", l, args[0], code, l.master.out)
			} else if found := problems(l.site); len(found) > 0 {
				t.Errorf("with the right to %v back, after %s: %v\n%s", l, args[0], found, l.master.out)
			}
		}
	}
	failing(applying...)
	completing(applying, func(s *site) []string { return s.disturbances(workers) })
	failing("plan", "-input=false")
	failing("logs", "job.gpt.worker[0]")
	failing(destroying...)
	completing(destroying, func(s *site) []string { return s.remains() })
	for _, l := range all {
		if !l.named && !l.elsewhere() {
			t.Errorf("nobody missed the right to %v: it is not needed, or its lack is not told", l)
		}
	}
}
