//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/testbed"
)

const (
	lossPods = 2000 // pods of the job
	lostPods = 1000 // minimum number lost with the nodes that are deleted together
)

// relaunch is the result of a loss: seconds from the deletion of the nodes, or from when a node went silent.
type relaunch struct {
	nodes, pods             int
	created, bound, running float64
	ceiling                 float64 // of a bare client that creates as many pods at once, until all are bound
}

// measureLosses measures the time from the deletion of nodes until new pods of the lost slots are bound elsewhere.
func measureLosses(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n## Nodes lost\n\nA job of %d pods, and nodes that are deleted with the pods on them. Seconds from the order to delete to the last lost slot's "+
		"next pod created, bound, Running: median [least..most] n. The ceiling is a bare client that makes as many pods, from its start until they "+
		"are bound. A user of DLRover saw 30 of 1,000 pods relaunched in 10 minutes.\n\n", lossPods)
	t := table{head: []string{"job", "nodes", "pods lost", "created", "bound", "Running", "bare client, bound", "bound / bare"}}
	for _, w := range []workload{
		{name: "elastic, min 1", jobs: 1, pods: lossPods, min: 1},
		{name: "gang", jobs: 1, pods: lossPods},
	} {
		for _, lost := range []int{1, lostPods} {
			var all []relaunch
			for range cfg.n {
				r, err := b.lose(ctx, w, lost)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "loss %-15s %d nodes, %d pods: created %.2f s, bound %.2f s, running %.2f s; bare %.2f s\n",
					w.name, r.nodes, r.pods, r.created, r.bound, r.running, r.ceiling)
				all = append(all, r)
			}
			of := func(f func(relaunch) float64) string { return spreadText("%.2f", values(all, f)) }
			bound, ceiling := func(r relaunch) float64 { return r.bound }, func(r relaunch) float64 { return r.ceiling }
			t.add(w.name, countText(all, func(r relaunch) int { return r.nodes }), countText(all, func(r relaunch) int { return r.pods }),
				of(func(r relaunch) float64 { return r.created }), of(bound), of(func(r relaunch) float64 { return r.running }), of(ceiling),
				ratioText(values(all, bound), values(all, ceiling)))
		}
	}
	t.write(out)
	return nil
}

func countText(all []relaunch, of func(relaunch) int) string {
	return spreadText("%.0f", values(all, func(r relaunch) float64 { return float64(of(r)) }))
}

// lose starts the job and deletes nodes with at least the given number of pods.
func (b *bed) lose(ctx context.Context, w workload, lost int) (r relaunch, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	m, err := b.apply(w, b.ours.kubeconfig)
	if err != nil {
		return r, err
	}
	if r, err = b.loseNodes(ctx, m, w, lost); err != nil {
		err = fmt.Errorf("eltrain, %s: %w", w.name, err)
	}
	if err := errors.Join(err, m.close(), b.clear(ctx, b.ours)); err != nil {
		return r, err
	}
	b.cluster.AddNodes(b.host, r.nodes, testbed.KWOKNode{})
	// The same number of pods, created by a client that does not need to detect the loss.
	var kind bareKind
	if b.provider == withVolcano {
		kind.gang = r.pods
	}
	bare, err := b.rampBare(ctx, r.pods, kind)
	r.ceiling = bare.bound
	return r, err
}

func (b *bed) loseNodes(ctx context.Context, m *master, w workload, lost int) (r relaunch, err error) {
	if _, err := b.awaitRamp(ctx, m, w); err != nil {
		return r, err
	}
	if err := pause(ctx, restTime); err != nil {
		return r, err
	}
	on := map[string][]string{} // indices of slots, by node
	for _, s := range b.ours.seen.sightings() {
		on[s.node] = append(on[s.node], s.index)
	}
	var nodes []string
	slots := map[string]bool{}
	for node, indexes := range on {
		if len(slots) >= lost {
			break
		}
		nodes = append(nodes, node)
		for _, i := range indexes {
			slots[i] = true
		}
	}
	r.nodes, r.pods = len(nodes), len(slots)
	began := time.Now()
	deletions, deleting := errgroup.WithContext(ctx)
	for _, node := range nodes {
		deletions.Go(func() error {
			return b.cluster.Admin().CoreV1().Nodes().Delete(deleting, node, metav1.DeleteOptions{})
		})
	}
	if err := deletions.Wait(); err != nil {
		return r, err
	}
	total := w.total()
	if err := m.await(ctx, b.ours.seen, func(o *observer) bool { return o.running >= total+len(slots) }); err != nil {
		return r, err
	}
	return r, r.since(began, b.ours.seen, slots)
}

// since sets the times of the lost slots' next pods, and checks that no other slot got a new pod.
func (r *relaunch) since(began time.Time, o *observer, lost map[string]bool) error {
	for _, s := range o.sightings() {
		if !s.created.After(began) {
			continue
		}
		if !lost[s.index] {
			return fmt.Errorf("slot %s was replaced, and was not lost", s.index)
		}
		r.created = max(r.created, s.created.Sub(began).Seconds())
		r.bound = max(r.bound, s.bound.Sub(began).Seconds())
		r.running = max(r.running, s.running.Sub(began).Seconds())
	}
	return nil
}
