// Package kubernetes runs the built eltrain on a real control plane, as a user does: the job file of the local demo
// with another provider, pods that a real scheduler binds, real training processes in them, the rights that deploy/
// grants, and faults by what a cluster has for them. Every test ends by checking that a destroy leaves nothing in
// the namespace and no process, and what was healed that it has the losses of an undisturbed run.
package kubernetes

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/eltrain/eltrain/e2e/site"
	"github.com/eltrain/eltrain/testbed"
)

var (
	programs site.Programs
	cluster  *testbed.Cluster // shared: every test has a namespace and nodes of its own in it
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait far more than they work, for steps of 20 ms and each other's pods, also where there are two cores.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() || os.Geteuid() != 0 {
		return m.Run() // every test skips
	}
	dir, err := os.MkdirTemp("", "eltrain-e2e-kubernetes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if programs, err = site.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if cluster, err = testbed.Shared(testbed.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := cluster.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// newDemo makes the demo's job directory with the provider changed, for so many nodes. The test runs beside others.
func newDemo(t *testing.T, nodes int) *site.Demo {
	t.Helper()
	t.Parallel()
	return newDemoOf(t, site.Local("kubernetes", nodes))
}

// newDemoOf is newDemo of any example. Without t.Parallel no other test's nodes are there.
func newDemoOf(t *testing.T, e site.Example) *site.Demo {
	t.Helper()
	site.Needed(t)
	return site.NewDemo(t, cluster, programs, e)
}
