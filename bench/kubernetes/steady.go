//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/eltrain/eltrain/testbed"
)

const (
	// settleTime lets eltrain finish its work after the last pod runs.
	settleTime = 15 * time.Second
	// steadyTime is the duration of the measurement, in which nothing changes. The loop still runs every 30 s.
	steadyTime = 70 * time.Second
)

// measureSteady measures the cost of an idle master. Its state is in the cluster, as with deploy/.
func measureSteady(ctx context.Context, b *bed, cfg config, out io.Writer) (err error) {
	proxy := b.cluster.Proxy(b.host)
	kubeconfig := proxy.Kubeconfig(b.host, testbed.User{Namespace: b.ours.namespace, Roles: []string{b.roles}})
	const jobs = 10
	w := workload{name: "steady", jobs: jobs, pods: cfg.pods / jobs, min: 1, state: clusterState(kubeconfig)}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	m, err := b.apply(w, kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close(), b.clear(ctx, b.ours)) }()
	if _, err := b.awaitRamp(ctx, m, w); err != nil {
		return err
	}
	if err := pause(ctx, settleTime); err != nil {
		return err
	}
	before, cpuBefore := requestsOf(proxy), time.Duration(0)
	if cpuBefore, err = m.cpuTime(); err != nil {
		return err
	}
	if err := pause(ctx, steadyTime); err != nil {
		return err
	}
	after := requestsOf(proxy)
	cpuAfter, err := m.cpuTime()
	if err != nil {
		return err
	}
	memory, err := m.peakMemory()
	if err != nil {
		return err
	}
	minutes := steadyTime.Minutes()
	fmt.Fprintf(out, "\n## A master at rest\n\n%d pods of %d jobs run on %d nodes, and nothing changes for %v. Pods of KWOK have no agents; what heartbeats cost is measured with "+
		"the service. Counted by a proxy in between.\n\n", w.total(), jobs, cfg.nodes, steadyTime)
	t := table{head: []string{"", "measured", "wanted"}}
	t.add("writes to the API server a minute, the lock's Lease apart", fmt.Sprintf("%.1f", float64(after.writes-before.writes)/minutes), "0")
	t.add("renewals of the Lease a minute", fmt.Sprintf("%.1f", float64(after.leases-before.leases)/minutes), "")
	t.add("reads a minute, watches that are opened again with them", fmt.Sprintf("%.1f", float64(after.reads-before.reads)/minutes), "")
	t.add("processor, of a core", fmt.Sprintf("%.2f %%", 100*(cpuAfter-cpuBefore).Seconds()/steadyTime.Seconds()), "under 1 %")
	t.add("peak memory since its start (VmHWM)", fmt.Sprintf("%.0f MB", float64(memory)/1e6), "under 200 MB")
	t.write(out)
	return nil
}

// clusterState returns the state block for a state in the cluster.
func clusterState(kubeconfig string) string {
	return fmt.Sprintf("state \"kubernetes\" {\n    name       = \"bench\"\n    kubeconfig = %q\n  }", kubeconfig)
}

// requests counts eltrain's requests.
type requests struct{ writes, leases, reads int }

func requestsOf(p *testbed.Proxy) requests {
	var r requests
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		leases := p.Requests(verb, "leases")
		r.leases += leases
		r.writes += p.Requests(verb, "") - leases
	}
	for _, verb := range []string{"get", "list", "watch"} {
		r.reads += p.Requests(verb, "")
	}
	return r
}
