//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// readiness has the seconds from the start of the program until all pods were created, bound and running.
type readiness struct {
	created, bound, running float64
	memory                  float64 // peak of eltrain, MB
	cpu                     float64 // CPU seconds of eltrain
	cost                    float64 // CPU time of the API server, ms per pod
}

func readinessOf(o *observer, began time.Time) readiness {
	since := func(of func(*sighting) time.Time) float64 {
		_, last := o.span(of)
		return last.Sub(began).Seconds()
	}
	return readiness{created: since(created), bound: since(bound), running: since(running)}
}

// ramp measures eltrain starting a workload until all its pods run.
func (b *bed) ramp(ctx context.Context, w workload) (a readiness, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	perPod, err := b.serverTime()
	if err != nil {
		return a, err
	}
	m, err := b.apply(w, b.ours.kubeconfig)
	if err != nil {
		return a, err
	}
	if a, err = b.awaitRamp(ctx, m, w); err == nil {
		a.cost, err = perPod(w.total())
	}
	return a, errors.Join(err, m.close(), b.clear(ctx, b.ours))
}

// awaitRamp waits until all pods of a running master run.
func (b *bed) awaitRamp(ctx context.Context, m *master, w workload) (readiness, error) {
	if err := m.await(ctx, b.ours.seen, func(o *observer) bool { return o.running >= w.total() }); err != nil {
		return readiness{}, fmt.Errorf("eltrain, %s: %w", w.name, err)
	}
	a := readinessOf(b.ours.seen, m.began)
	memory, err := m.peakMemory()
	if err != nil {
		return a, err
	}
	cpu, err := m.cpuTime()
	a.memory, a.cpu = float64(memory)/1e6, cpu.Seconds()
	return a, err
}

// bareKind says how the bare client creates its pods.
type bareKind struct {
	gated      bool // with scheduling gates, which are removed once all pods of a part are created
	parts      int  // number of equal parts; the next one is created while the gates are removed; 0: one
	surrounded bool // with a Service and a PodDisruptionBudget
	gang       int  // pods per PodGroup; 0: no PodGroups
}

// gangWriters is a number of writers that was among the best on all machines tried.
const gangWriters = 64

func (b *bed) rampBare(ctx context.Context, n int, kind bareKind) (a readiness, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	c, err := b.newBareClient(ctx, gangWriters)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, b.clear(ctx, b.bare)) }()
	perPod, err := b.serverTime()
	if err != nil {
		return a, err
	}
	began := time.Now()
	if kind.surrounded {
		if err := c.addServiceAndBudget(ctx, n); err != nil {
			return a, err
		}
	}
	if c.gang = kind.gang; c.gang > 0 {
		if err := c.makePodGroups(ctx, b.bare.groups, n/c.gang); err != nil {
			return a, err
		}
	}
	if kind.gated {
		c.template.Spec.SchedulingGates = gang
	}
	parts := max(kind.parts, 1)
	var lifting errgroup.Group
	for part := range parts {
		first, size := part*(n/parts), n/parts
		if err = c.each(ctx, first, size, c.create); err != nil {
			break
		}
		if kind.gated {
			lifting.Go(func() error { return c.each(ctx, first, size, c.ungate) })
		}
	}
	if err := errors.Join(err, lifting.Wait()); err != nil {
		return a, err
	}
	if err := b.bare.seen.await(ctx, func(o *observer) bool { return o.running >= n }); err != nil {
		return a, err
	}
	a = readinessOf(b.bare.seen, began)
	a.cost, err = perPod(n)
	return a, err
}

// variant is one way to start a number of pods.
type variant struct {
	name, title string
	measure     func(ctx context.Context, b *bed, n int) (readiness, error)
}

// manyJobs is the number of jobs in variants with several.
const manyJobs = 10

// variants alternates between eltrain and the bare client. The first one is the ceiling.
var variants = []variant{
	{"bare", "bare client", bareVariant(bareKind{})},
	{"elastic", fmt.Sprintf("eltrain, %d elastic jobs, min 1", manyJobs), func(ctx context.Context, b *bed, n int) (readiness, error) {
		return b.ramp(ctx, workload{name: "elastic", jobs: manyJobs, pods: n / manyJobs, min: 1})
	}},
	{"bare-surrounded", "bare client, with a Service and a budget", bareVariant(bareKind{surrounded: true})},
	{"gang", "eltrain, one gang", func(ctx context.Context, b *bed, n int) (readiness, error) {
		return b.ramp(ctx, workload{name: "gang", jobs: 1, pods: n})
	}},
	{"bare-gated", "bare client, gated until all are made", bareVariant(bareKind{gated: true})},
	{"bare-gated-parts", fmt.Sprintf("bare client, gated in %d parts, each until all of it are made", manyJobs), bareVariant(bareKind{gated: true, parts: manyJobs})},
	{"gangs", fmt.Sprintf("eltrain, %d gangs", manyJobs), func(ctx context.Context, b *bed, n int) (readiness, error) {
		return b.ramp(ctx, workload{name: "gangs", jobs: manyJobs, pods: n / manyJobs})
	}},
}

func bareVariant(kind bareKind) func(context.Context, *bed, int) (readiness, error) {
	return func(ctx context.Context, b *bed, n int) (readiness, error) { return b.rampBare(ctx, n, kind) }
}

func variantNames() []string {
	var names []string
	for _, v := range variants {
		names = append(names, v.name)
	}
	return names
}

func matches(patterns, name string) bool {
	for p := range strings.SplitSeq(patterns, ",") {
		if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}

// measureRuns measures the time until all pods run, with the whole control plane.
func measureRuns(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	n := cfg.pods / manyJobs * manyJobs
	measured := map[string][]readiness{}
	for range cfg.n {
		for _, v := range variants {
			if !matches(cfg.variants, v.name) {
				continue
			}
			a, err := v.measure(ctx, b, n)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			measured[v.name] = append(measured[v.name], a)
			fmt.Fprintf(os.Stderr, "run %d %-18s created %.1f s, bound %.1f s, running %.1f s, peak %.0f MB, cpu %.1f s, API server %.2f ms/pod\n",
				n, v.name, a.created, a.bound, a.running, a.memory, a.cpu, a.cost)
		}
	}
	fmt.Fprintf(out, "\n## %d pods until all run\n\nThe whole control plane on this machine. Seconds from the start of the program to the last pod created, bound, "+
		"Running: median [least..most] n. The ceiling is what the scheduler needs for the same pods of a bare client, %d writers, without gates.\n\n", n, gangWriters)
	t := table{head: []string{"", "created", "bound", "Running", "of the ceiling", "API server, ms/pod", "of the ceiling", "eltrain's peak memory, MB", "eltrain's cpu, s"}}
	running, cost := func(a readiness) float64 { return a.running }, func(a readiness) float64 { return a.cost }
	ceiling := measured[variants[0].name]
	for _, v := range variants {
		all := measured[v.name]
		if len(all) == 0 {
			continue
		}
		of := func(f func(readiness) float64) string { return spreadText("%.1f", values(all, f)) }
		memory, cpu := "", ""
		if all[0].memory > 0 {
			memory = spreadText("%.0f", values(all, func(a readiness) float64 { return a.memory }))
			cpu = of(func(a readiness) float64 { return a.cpu })
		}
		t.add(v.title, of(func(a readiness) float64 { return a.created }), of(func(a readiness) float64 { return a.bound }),
			of(running), ratioText(values(all, running), values(ceiling, running)),
			spreadText("%.2f", values(all, cost)), ratioText(values(all, cost), values(ceiling, cost)), memory, cpu)
	}
	t.write(out)
	return nil
}
