// Package volcano runs the built eltrain on a real control plane with the real Volcano, as a user does: the job file of
// the local demo with another provider, as a gang that Volcano's scheduler admits and places, with the rights that
// deploy/ grants, on pods that are real processes. Every test ends by checking that a destroy leaves nothing in the
// namespace, no PodGroup either, and no process; and that disturbed training has the losses of an undisturbed run. What
// can be tested without training processes is in providers/volcano.
package volcano

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

var (
	programs site.Programs
	cluster  *testbed.Cluster // shared: every test has its own namespace and nodes in it
)

// charted is a cluster with the API of Volcano 1.12, configured as by its chart. The first test that needs it starts it.
var charted struct {
	once    sync.Once
	cluster *testbed.Cluster
	err     error
}

func newCharted(t *testing.T) *testbed.Cluster {
	t.Helper()
	charted.once.Do(func() {
		charted.cluster, charted.err = testbed.New(testbed.Options{Volcano: &testbed.Volcano{Definitions: testbed.Volcano112}})
	})
	if charted.err != nil {
		t.Fatal(charted.err)
	}
	return charted.cluster
}

// preempting is a scheduler configuration in which a higher priority preempts others' pods above min, and a queue reclaims what
// it deserves. docs/volcano.md explains each line.
//
//go:embed testdata/preempting.conf
var preempting string

func TestMain(m *testing.M) {
	site.Main(m, 8, func(built site.Programs) (err error) {
		if programs = built; podsite.Runnable() {
			cluster, err = testbed.Shared(testbed.Options{Volcano: &testbed.Volcano{Configuration: preempting}})
		}
		return err
	}, func(failed bool) (err error) {
		if failed && cluster != nil && testing.Verbose() {
			fmt.Fprintln(os.Stderr, cluster.Logs())
		}
		for _, c := range []*testbed.Cluster{cluster, charted.cluster} {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		return err
	})
}

// newDemo makes the demo's job directory with provider "volcano", on nodes of one core each, in a parallel test.
func newDemo(t *testing.T, nodes int) *podsite.Demo {
	t.Helper()
	t.Parallel()
	return newDemoAlone(t, nodes)
}

// newDemoAlone is newDemo for a test that would disturb others.
func newDemoAlone(t *testing.T, nodes int) *podsite.Demo {
	t.Helper()
	podsite.RequireCluster(t)
	return podsite.NewDemo(t, cluster, programs, podsite.Local("volcano", nodes))
}

// podGroup returns the job's PodGroup; nil if there is none.
func podGroup(s *podsite.Demo) *v1beta1.PodGroup {
	s.T.Helper()
	object := podGroupIn(s, cluster)
	if object == nil {
		return nil
	}
	var group v1beta1.PodGroup
	s.OK(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &group))
	return &group
}

// podGroupIn returns the job's PodGroup as a cluster serves it; nil if there is none.
func podGroupIn(s *podsite.Demo, c *testbed.Cluster) *unstructured.Unstructured {
	s.T.Helper()
	list, err := c.Dynamic().Resource(testbed.PodGroups).Namespace(s.Namespace).List(s.T.Context(), metav1.ListOptions{LabelSelector: "eltrain.dev/job=" + s.Job})
	s.OK(err)
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}
