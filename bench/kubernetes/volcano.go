//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/eltrain/eltrain/testbed"
)

// withVolcano is the provider whose pods are gang-scheduled by Volcano.
const withVolcano = "volcano"

// groupAnnotation names a pod's PodGroup for the scheduler.
const groupAnnotation = "scheduling.k8s.io/group-name"

// makePodGroups creates PodGroups for the client's pods with the same fields as eltrain's.
func (c *bareClient) makePodGroups(ctx context.Context, groups dynamic.ResourceInterface, n int) error {
	resources := map[string]any{}
	for name, each := range c.template.Spec.Containers[0].Resources.Requests {
		sum := resource.Quantity{}
		for range c.gang {
			sum.Add(each)
		}
		resources[string(name)] = sum.String()
	}
	return c.each(ctx, 0, n, func(ctx context.Context, i int) error {
		group := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": testbed.PodGroups.GroupVersion().String(), "kind": "PodGroup", "metadata": map[string]any{"name": c.name(i)},
			"spec": map[string]any{
				"minMember": int64(c.gang), "minTaskMember": map[string]any{"worker": int64(c.gang)}, "minResources": resources, "queue": "default",
			},
		}}
		group.SetOwnerReferences(c.template.OwnerReferences)
		_, err := groups.Create(ctx, group, metav1.CreateOptions{})
		return err
	})
}

// gangPods is the total number of pods in the figure gangs, with one gang and with many.
const gangPods = 1000

// measureGangs measures the time from the start of the program until the Volcano scheduler has bound all pods.
func measureGangs(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n## Gangs\n\nSeconds from the start of the program until the last pod is created, bound, Running: median [least..most] n. The ceiling is "+
		"what the Volcano scheduler needs for the same pods in the same PodGroups of a bare client, %d writers, which waits for nothing.\n\n", gangWriters)
	t := table{head: []string{"", "created", "bound", "Running", "bound, of the ceiling", "API server, ms/pod", "of the ceiling"}}
	for _, w := range []workload{
		{name: "one gang", jobs: 1, pods: gangPods},
		{name: "100 gangs at once", jobs: 100, pods: gangPods / 100},
	} {
		var ours, bare []readiness
		for range cfg.n {
			a, err := b.rampBare(ctx, w.total(), bareKind{gang: w.pods})
			if err != nil {
				return fmt.Errorf("bare client, %s: %w", w.name, err)
			}
			bare = append(bare, a)
			fmt.Fprintf(os.Stderr, "gangs %-18s bare:    created %.1f s, bound %.1f s, running %.1f s\n", w.name, a.created, a.bound, a.running)
			if a, err = b.ramp(ctx, w); err != nil {
				return err
			}
			ours = append(ours, a)
			fmt.Fprintf(os.Stderr, "gangs %-18s eltrain: created %.1f s, bound %.1f s, running %.1f s\n", w.name, a.created, a.bound, a.running)
		}
		bound, cost := func(a readiness) float64 { return a.bound }, func(a readiness) float64 { return a.cost }
		row := func(who string, all []readiness) {
			of := func(f func(readiness) float64) string { return spreadText("%.1f", values(all, f)) }
			t.add(fmt.Sprintf("%s of %d, %s", w.name, w.pods, who), of(func(a readiness) float64 { return a.created }), of(bound), of(func(a readiness) float64 { return a.running }),
				ratioText(values(all, bound), values(bare, bound)), spreadText("%.2f", values(all, cost)), ratioText(values(all, cost), values(bare, cost)))
		}
		row("bare client", bare)
		row("eltrain", ours)
	}
	t.write(out)
	return nil
}

// measureReforming measures the time from the deletion of a node until the gang is complete again.
func measureReforming(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	w := workload{name: "gang", jobs: 1, pods: gangPods}
	var all []relaunch
	for range cfg.n {
		r, err := b.lose(ctx, w, 1)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "reform: %d pods of a node: created %.2f s, bound %.2f s, running %.2f s; bare %.2f s\n", r.pods, r.created, r.bound, r.running, r.ceiling)
		all = append(all, r)
	}
	of := func(f func(relaunch) float64) string { return spreadText("%.2f", values(all, f)) }
	bound, ceiling := func(r relaunch) float64 { return r.bound }, func(r relaunch) float64 { return r.ceiling }
	fmt.Fprintf(out, "\n## A gang formed again\n\nA gang of %d pods, and a node that is deleted with the pods on it. Seconds from the order to delete until the last lost slot's "+
		"next pod is created, bound, Running: median [least..most] n. The ceiling is a bare client that makes as many pods in one PodGroup, from its start "+
		"until they are bound.\n\n", gangPods)
	t := table{head: []string{"pods lost", "created", "bound", "Running", "bare client, bound", "bound / bare"}}
	t.add(countText(all, func(r relaunch) int { return r.pods }), of(func(r relaunch) float64 { return r.created }), of(bound),
		of(func(r relaunch) float64 { return r.running }), of(ceiling), ratioText(values(all, bound), values(all, ceiling)))
	t.write(out)
	return nil
}
