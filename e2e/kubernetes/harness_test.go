// Package kubernetes runs the built eltrain on a real control plane, as a user does: the job file of the local demo
// with another provider, pods that a real scheduler binds, real training processes in them, the rights that deploy/
// grants, and faults by a cluster's own means. Every test ends by checking that a destroy leaves nothing in
// the namespace and no process, and that healed training has the losses of an undisturbed run.
package kubernetes

import (
	"testing"

	"github.com/eltrain/eltrain/e2e/podsite"
	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

var (
	programs site.Programs
	cluster  *testbed.Cluster // shared: every test has its own namespace and nodes in it
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

// newDemo makes the demo's job directory with the provider changed, in a parallel test.
func newDemo(t *testing.T, nodes int) *podsite.Demo {
	t.Helper()
	t.Parallel()
	return newDemoOf(t, podsite.Local("kubernetes", nodes))
}

// newDemoOf is newDemo for any example. It does not call t.Parallel: without it the cluster has no other test's nodes.
func newDemoOf(t *testing.T, e podsite.Example) *podsite.Demo {
	t.Helper()
	podsite.RequireCluster(t)
	return podsite.NewDemo(t, cluster, programs, e)
}
