// Package kubernetes runs the built eltrain on a real control plane, as a user does: the job file of the local demo
// with another provider, pods that a real scheduler binds, real training processes in them, the rights that deploy/
// grants, and faults by what a cluster has for them. Every test ends by checking that a destroy leaves nothing in
// the namespace and no process, and what was healed that it has the losses of an undisturbed run.
package kubernetes

import (
	"testing"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

var (
	programs site.Programs
	cluster  *testbed.Cluster // shared: every test has a namespace and nodes of its own in it
)

func TestMain(m *testing.M) {
	site.Main(m, 8, func(built site.Programs) (err error) {
		if programs = built; podsite.Runnable() {
			cluster, err = testbed.Shared(testbed.Options{})
		}
		return err
	}, func(bool) error {
		if cluster == nil {
			return nil
		}
		return cluster.Close()
	})
}

// newDemo makes the demo's job directory with the provider changed, for so many nodes. The test runs beside others.
func newDemo(t *testing.T, nodes int) *podsite.Demo {
	t.Helper()
	t.Parallel()
	return newDemoOf(t, podsite.Local("kubernetes", nodes))
}

// newDemoOf is newDemo of any example. Without t.Parallel no other test's nodes are there.
func newDemoOf(t *testing.T, e podsite.Example) *podsite.Demo {
	t.Helper()
	podsite.Needed(t)
	return podsite.NewDemo(t, cluster, programs, e)
}
