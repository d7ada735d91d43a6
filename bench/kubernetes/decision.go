//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	decisionPods = 1000
	// decisionTimeout bounds the wait for one action.
	decisionTimeout = 30 * time.Second
	// decisionPause is the maximum of the random pause between two changes, so that they occur at any point of
	// eltrain's periodic work.
	decisionPause = 300 * time.Millisecond
)

// lost is the status of a pod whose node is gone. With registered agents, other causes are healed as fast; but KWOK's pods
// have no agents, and after agents that exit before they register the next start is delayed more and more, unless the node
// is gone.
const lost = `{"status":{"phase":"Failed","reason":"NodeLost","message":"The node was lost."}}`

// measureDecisions measures the time from the API server's response to a change of a pod's status until the slot's next
// pod exists.
func measureDecisions(ctx context.Context, b *bed, cfg config, out io.Writer) (err error) {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	w := workload{name: "decisions", jobs: 1, pods: decisionPods, min: 1}
	m, err := b.apply(w, b.ours.kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close(), b.clear(ctx, b.ours), b.clear(ctx, b.bare)) }()
	if _, err := b.awaitRamp(ctx, m, w); err != nil {
		return err
	}
	c, err := b.newBareClient(ctx, 1)
	if err != nil {
		return err
	}
	if err := pause(ctx, restTime); err != nil {
		return err
	}
	var ours, floor []float64
	for i := range cfg.events {
		d, err := b.decide(ctx, m, i%decisionPods)
		if err != nil {
			return err
		}
		ours = append(ours, d.Seconds()*1000)
		if d, err = b.react(ctx, c, i); err != nil {
			return err
		}
		floor = append(floor, d.Seconds()*1000)
		if err := pause(ctx, rand.N(decisionPause)); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "decide: eltrain p50 %.1f p99 %.1f ms, floor p50 %.1f p99 %.1f ms\n",
		percentile(ours, 50), percentile(ours, 99), percentile(floor, 50), percentile(floor, 99))
	fmt.Fprintf(out, "\n## From a pod's status to the action\n\nA job of %d pods; %d times the status of one is set to Failed, its node lost. Milliseconds from the API server's "+
		"answer to that until the bench's own watch shows the slot's next pod. The floor is a loop that watches, and creates a pod when it sees the "+
		"change, alternating with eltrain.\n\n", decisionPods, cfg.events)
	t := table{head: []string{"", "p50", "p90", "p99", "most"}}
	for _, row := range []struct {
		name string
		ms   []float64
	}{{"eltrain", ours}, {"floor", floor}} {
		for _, ms := range row.ms {
			if err := cfg.samples.Add("Decide/"+row.name, ms/1000, "sec/op"); err != nil {
				return err
			}
		}
		t.add(row.name, fmt.Sprintf("%.1f", percentile(row.ms, 50)), fmt.Sprintf("%.1f", percentile(row.ms, 90)),
			fmt.Sprintf("%.1f", percentile(row.ms, 99)), fmt.Sprintf("%.1f", percentile(row.ms, 100)))
	}
	t.write(out)
	return nil
}

// decide fails the pod of one slot and waits for the next.
func (b *bed) decide(ctx context.Context, m *master, index int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	slot := fmt.Sprint(index)
	victim := ""
	var newest sighting
	before := b.ours.seen.sightings()
	for name, s := range before {
		if s.index == slot && (victim == "" || s.created.After(newest.created)) {
			victim, newest = name, s
		}
	}
	if victim == "" {
		return 0, fmt.Errorf("slot %d has no pod", index)
	}
	_, err := b.cluster.Admin().CoreV1().Pods(b.ours.namespace).Patch(ctx, victim, types.StrategicMergePatchType, []byte(lost), metav1.PatchOptions{}, "status")
	if err != nil {
		return 0, err
	}
	answered := time.Now()
	var next time.Time
	err = m.await(ctx, b.ours.seen, func(o *observer) bool {
		if len(o.pods) == len(before) {
			return false
		}
		for name, s := range o.pods {
			if _, old := before[name]; !old && s.index == slot {
				next = s.created
				return true
			}
		}
		return false
	})
	if err != nil {
		return 0, fmt.Errorf("after the loss of %s: %w", victim, err)
	}
	// Wait until all pods run again before the next change.
	err = m.await(ctx, b.ours.seen, func(o *observer) bool { return o.running == len(o.pods) })
	return next.Sub(answered), err
}

// react measures the minimum possible reaction: create a pod when the watch shows the change.
func (b *bed) react(ctx context.Context, c *bareClient, i int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	victim, next := c.name(2*i), c.name(2*i+1)
	if err := c.create(ctx, 2*i); err != nil {
		return 0, err
	}
	if err := b.bare.seen.await(ctx, func(o *observer) bool { s := o.pods[victim]; return s != nil && !s.running.IsZero() }); err != nil {
		return 0, err
	}
	reacted := make(chan error, 1)
	go func() {
		err := b.bare.seen.await(ctx, func(o *observer) bool { return o.pods[victim].failed })
		if err == nil {
			err = c.create(ctx, 2*i+1)
		}
		reacted <- err
	}()
	_, err := b.cluster.Admin().CoreV1().Pods(c.namespace).Patch(ctx, victim, types.StrategicMergePatchType, []byte(lost), metav1.PatchOptions{}, "status")
	answered := time.Now()
	if err := errors.Join(err, <-reacted); err != nil {
		return 0, err
	}
	if err := b.bare.seen.await(ctx, func(o *observer) bool { return o.pods[next] != nil }); err != nil {
		return 0, err
	}
	return b.bare.seen.sightings()[next].created.Sub(answered), nil
}
