//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eltrain/eltrain/testbed/kubelet"
)

// The figure silent uses nodes that really run their pods, with the agent in each.
const (
	silentNodes = 3
	silentCores = 4 // cores per node, with one per slot: the slots of one node fit on the others
	silentSlots = 8
	silentLease = 5 * time.Second

	silentPool  = "bench.eltrain.dev/pool"
	silentImage = "host"
	agentImage  = "eltrain"
)

// silentJob trains nothing: its processes only exist, and its agents send heartbeats.
const silentJob = `provider "kubernetes" {
  kubeconfig  = %q
  agent_image = %q
  pod = {
    spec = {
      nodeSelector = {
        %q = %q
      }
    }
  }
}

job "gpt" {
  provider = "kubernetes"
  role "worker" {
    image    = %q
    replicas = %d
    command  = ["/bin/sh", "-c", "while :; do sleep 1; done"]
    resources {
      cpu    = 1
      memory = "64MiB"
    }
    scaling {
      min = 1
      max = %d
    }
  }
  detect {
    lease = %q
  }
}
`

// stage has the nodes of one measurement.
type stage struct {
	kubelet *kubelet.Kubelet
	pool    string
	nodes   []string
}

// silentHCL returns the job file.
func silentHCL(kubeconfig, pool string) string {
	return fmt.Sprintf(silentJob, kubeconfig, agentImage, silentPool, pool, silentImage, silentSlots, silentSlots, silentLease)
}

// measureSilence measures the time from when a node goes silent until the next pods of its slots are bound elsewhere.
func measureSilence(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if os.Geteuid() != 0 {
		fmt.Fprint(out, "\n## A node falls silent\n\nNot measured: nodes that run their pods make mounts and namespaces, which needs root.\n")
		return nil
	}
	fmt.Fprintf(out, "\n## A node falls silent\n\nA job of %d slots on %d nodes that run its pods, with a lease of %v. All of one node stops without a word: its kubelet, "+
		"and the agents. Seconds from then to the last of its slots' next pods created, bound, Running: median [least..most] n. The ceiling is "+
		"the lease, which counts from an agent's last beat: that is up to a third of it old. Kubernetes by itself gives a node up 50 s after its "+
		"last word, and its pods 300 s later.\n\n", silentSlots, silentNodes, silentLease)
	var all []relaunch
	for n := range cfg.n {
		r, err := b.silence(ctx, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "silent %d pods: created %.2f s, bound %.2f s, running %.2f s\n", r.pods, r.created, r.bound, r.running)
		all = append(all, r)
	}
	of := func(f func(relaunch) float64) string { return spreadText("%.2f", values(all, f)) }
	bound := func(r relaunch) float64 { return r.bound }
	t := table{head: []string{"pods lost", "created", "bound", "Running", "bound / lease"}}
	t.add(countText(all, func(r relaunch) int { return r.pods }), of(func(r relaunch) float64 { return r.created }), of(bound),
		of(func(r relaunch) float64 { return r.running }), ratioText(values(all, bound), []float64{silentLease.Seconds()}))
	t.write(out)
	return nil
}

// silence runs one round, on its own nodes.
func (b *bed) silence(ctx context.Context, round int) (r relaunch, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	s, err := b.stage(ctx, round)
	if err != nil {
		return r, err
	}
	defer func() {
		s.kubelet.Close()
		for _, node := range s.nodes {
			b.cluster.RemoveNode(b.host, node)
		}
		err = errors.Join(err, b.clear(ctx, b.ours))
	}()
	m, err := b.start(silentHCL(b.ours.kubeconfig, s.pool))
	if err != nil {
		return r, err
	}
	r, err = b.silenceNode(ctx, m, s)
	return r, errors.Join(err, m.close())
}

func (b *bed) stage(ctx context.Context, round int) (s stage, err error) {
	s.pool = fmt.Sprintf("silent-%d", round)
	var nodes []kubelet.Node
	for n := range silentNodes {
		name := fmt.Sprintf("%s-%d", s.pool, n)
		s.nodes = append(s.nodes, name)
		nodes = append(nodes, kubelet.Node{Name: name, Labels: map[string]string{silentPool: s.pool}, Capacity: corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewQuantity(silentCores, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("8Gi"),
		}})
	}
	dir, err := os.MkdirTemp(b.dir, "nodes-*")
	if err != nil {
		return s, err
	}
	s.kubelet, err = kubelet.Start(ctx, kubelet.Options{Config: b.cluster.Config(), Nodes: nodes, Dir: dir, Images: map[string]kubelet.Image{
		silentImage: {},
		agentImage: {Scratch: true, User: "65532:65532", Mounts: []kubelet.Mount{
			{HostPath: filepath.Join(filepath.Dir(b.eltrain), "eltrain-agent"), Path: "/usr/local/bin/eltrain-agent", ReadOnly: true},
		}, Env: []string{"PATH=/usr/local/bin"}},
	}})
	return s, err
}

// silenceNode waits until the job trains, and silences the node with the most slots.
func (b *bed) silenceNode(ctx context.Context, m *master, s stage) (r relaunch, err error) {
	if err := m.awaitOutput(ctx, "job.gpt: Running"); err != nil {
		return r, err
	}
	if err := pause(ctx, restTime); err != nil {
		return r, err
	}
	on := map[string][]string{} // pod names, by node
	slots := map[string]string{}
	for name, seen := range b.ours.seen.sightings() {
		on[seen.node] = append(on[seen.node], name)
		slots[name] = seen.index
	}
	victim := s.nodes[0]
	for _, node := range s.nodes {
		if len(on[node]) > len(on[victim]) {
			victim = node
		}
	}
	lost := map[string]bool{}
	var agents []int
	for _, name := range on[victim] {
		pid, err := s.kubelet.PID(b.ours.namespace, name, "main")
		if err != nil {
			return r, err
		}
		agents = append(agents, pid)
		lost[slots[name]] = true
	}
	r.nodes, r.pods = 1, len(lost)
	if err := s.kubelet.Disconnect(victim); err != nil {
		return r, err
	}
	for _, pid := range agents {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return r, err
		}
	}
	began := time.Now()
	if err := m.await(ctx, b.ours.seen, func(o *observer) bool { return o.running >= silentSlots+len(lost) }); err != nil {
		return r, err
	}
	return r, r.since(began, b.ours.seen, lost)
}

// awaitOutput waits until the master's output contains a text.
func (m *master) awaitOutput(ctx context.Context, what string) error {
	for {
		text, err := os.ReadFile(m.log)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), what) {
			return nil
		}
		select {
		case <-m.ended:
			return fmt.Errorf("eltrain has ended\n%s", m.tail())
		case <-ctx.Done():
			return fmt.Errorf("eltrain did not say %q\n%s", what, m.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
