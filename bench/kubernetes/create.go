//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/bench/internal/report"
)

const (
	// createTimeout bounds the creation of pods, at a tenth of the lowest rate ever seen.
	createTimeout = 5 * time.Minute
	// runTimeout bounds the time until pods run.
	runTimeout = 10 * time.Minute
	// templatePods is the number of pods created to learn the template.
	templatePods = 10
	// shortRound is the number of pods below which garbage collection in the API server dominates the result, so that more
	// rounds are run.
	shortRound = 5_000
)

// bareWriters are the numbers of writers tried for the bare client.
var bareWriters = []int{1, 4, 32, 64, 128}

// learnTemplate sets the template from a pod created by eltrain, unless it is set.
func (b *bed) learnTemplate(ctx context.Context) error {
	if b.template != nil {
		return nil
	}
	if _, err := b.creation(ctx, workload{jobs: 1, pods: templatePods}); err != nil {
		return err
	}
	return nil
}

// creation is the result of a creation of pods, as the bench observed it.
type creation struct {
	rate  float64 // pods/s from the first to the last
	whole float64 // pods/s from the start of the program to the last
	cost  float64 // CPU time of the API server, ms per pod
}

// creation measures eltrain creating the pods of a workload.
func (b *bed) creation(ctx context.Context, w workload) (c creation, err error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	perPod, err := b.serverTime()
	if err != nil {
		return c, err
	}
	m, err := b.apply(w, b.ours.kubeconfig)
	if err != nil {
		return c, err
	}
	ended := false
	end := func() error {
		if ended {
			return nil
		}
		ended = true
		return m.close()
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := m.await(ctx, b.ours.seen, func(o *observer) bool { return len(o.pods) >= w.total() }); err != nil {
		return c, fmt.Errorf("eltrain, %s: %w", w.name, err)
	}
	c = creationOf(b.ours.seen, m.began)
	if c.cost, err = perPod(w.total()); err != nil {
		return c, err
	}
	if err := end(); err != nil {
		return c, err
	}
	if b.template == nil {
		list, err := b.cluster.Admin().CoreV1().Pods(b.ours.namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return c, err
		}
		b.template = newTemplate(&list.Items[0])
	}
	return c, b.clear(ctx, b.ours)
}

func creationOf(o *observer, began time.Time) creation {
	first, last := o.span(created)
	o.mu.Lock()
	n := len(o.pods)
	o.mu.Unlock()
	return creation{
		rate:  float64(n-1) / last.Sub(first).Seconds(),
		whole: float64(n) / last.Sub(began).Seconds(),
	}
}

// bareCreation measures the creation of n pods by do, in the bare namespace.
func (b *bed) bareCreation(ctx context.Context, n int, do func(context.Context) error) (creation, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	perPod, err := b.serverTime()
	if err != nil {
		return creation{}, err
	}
	began := time.Now()
	if err := do(ctx); err != nil {
		return creation{}, err
	}
	if err := b.bare.seen.await(ctx, func(o *observer) bool { return len(o.pods) >= n }); err != nil {
		return creation{}, err
	}
	c := creationOf(b.bare.seen, began)
	if c.cost, err = perPod(n); err != nil {
		return c, err
	}
	return c, b.clear(ctx, b.bare)
}

// bareCreationBy measures a bare client with the given number of writers, from the start of its process, as for eltrain.
func (b *bed) bareCreationBy(ctx context.Context, n, writers int) (creation, error) {
	c, err := b.newBareClient(ctx, writers)
	if err != nil {
		return creation{}, err
	}
	run, err := c.program(b.bare.kubeconfig, n)
	if err != nil {
		return creation{}, err
	}
	return b.bareCreation(ctx, n, run)
}

// measureCreation measures pods created per second, on an otherwise idle API server and etcd.
func measureCreation(ctx context.Context, b *bed, cfg config, out io.Writer) error {
	if err := b.learnTemplate(ctx); err != nil {
		return err
	}
	b.cluster.Scheduler.Kill(b.host)
	b.cluster.ControllerManager.Kill(b.host)
	b.cluster.KWOK.Kill(b.host)

	fmt.Fprintf(out, "\n## Creating pods\n\nThe API server and etcd alone: scheduler, controllers and KWOK are down. Pods/s from the first pod to the "+
		"last, median [least..most] n; below it, from the start of the program; below that, milliseconds of the API server's processor time per pod.\n\n")
	t := table{head: []string{"pods", "eltrain apply", "bare client", "eltrain / bare", "DLRover's way", "eltrain / DLRover's"}}
	best, quick := cfg.writers, cfg.writers > 0
	var sweep table
	if !quick {
		var err error
		if best, sweep, err = b.sweep(ctx, cfg.sizes[0], cfg.n); err != nil {
			return err
		}
	}
	for _, size := range cfg.sizes {
		// A first, unmeasured round, in which the memory of the API server and etcd grows to this size.
		if _, err := b.bareCreationBy(ctx, size, best); err != nil {
			return err
		}
		var ours, bare, dlrover []creation
		contest := []contestant{
			{&ours, "eltrain", func() (creation, error) {
				return b.creation(ctx, workload{name: "one gang", jobs: 1, pods: size})
			}},
			{&bare, "bare", func() (creation, error) { return b.bareCreationBy(ctx, size, best) }},
		}
		for range cfg.n * max(1, shortRound/size) {
			for _, one := range contest {
				if err := one.run(size); err != nil {
					return err
				}
				made := (*one.all)[len(*one.all)-1]
				if err := cfg.samples.Add(fmt.Sprintf("Create/%s/%d", one.name, size), made.whole, "pods/s"); err != nil {
					return err
				}
			}
			slices.Reverse(contest) // so that they take turns in going first
		}
		far := "not measured"
		if !quick { // only once: it takes minutes, and is far slower
			way := contestant{&dlrover, "DLRover's way", func() (creation, error) {
				return b.bareCreation(ctx, size, func(ctx context.Context) error { return b.dlrover(ctx, size) })
			}}
			far = fmt.Sprintf("not in %v", createTimeout)
			err := way.run(size)
			if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				err = b.clear(ctx, b.bare) // reported as too slow
			}
			if err != nil {
				return err
			}
		}
		rate, whole, cost := func(c creation) float64 { return c.rate }, func(c creation) float64 { return c.whole }, func(c creation) float64 { return c.cost }
		cell := func(all []creation) string {
			return spreadText("%.0f", values(all, rate)) + "<br>" + spreadText("%.0f", values(all, whole)) + "<br>" + spreadText("%.2f", values(all, cost))
		}
		against := func(others []creation) string {
			return ratioText(values(ours, rate), values(others, rate)) + "<br>" + ratioText(values(ours, whole), values(others, whole)) +
				"<br>" + ratioText(values(ours, cost), values(others, cost))
		}
		if len(dlrover) > 0 {
			far = cell(dlrover)
		}
		t.add(fmt.Sprint(size), cell(ours), fmt.Sprintf("%s<br>%d writers", cell(bare), best), against(bare), far, against(dlrover))
	}
	t.write(out)
	if !quick {
		fmt.Fprintf(out, "\nThe bare client by its number of writers, %d pods, from the start:\n\n", cfg.sizes[0])
		sweep.write(out)
	}
	b.cluster.ControllerManager.Start(b.host)
	b.cluster.KWOK.Start(b.host)
	b.cluster.Scheduler.Start(b.host)
	return nil
}

// contestant is one of the compared clients.
type contestant struct {
	all    *[]creation
	name   string
	create func() (creation, error)
}

func (c contestant) run(size int) error {
	made, err := c.create()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "create %d %-14s %.0f/s, from the start %.0f/s, API server %.2f ms/pod\n", size, c.name, made.rate, made.whole, made.cost)
	*c.all = append(*c.all, made)
	return nil
}

// sweep finds the best number of writers among bareWriters, in alternating rounds.
func (b *bed) sweep(ctx context.Context, size, rounds int) (best int, t table, err error) {
	rates := make([][]float64, len(bareWriters))
	for range rounds {
		for i, writers := range bareWriters {
			c, err := b.bareCreationBy(ctx, size, writers)
			if err != nil {
				return 0, t, err
			}
			fmt.Fprintf(os.Stderr, "create %d bare, %d writers: %.0f/s\n", size, writers, c.whole)
			rates[i] = append(rates[i], c.whole)
		}
	}
	t.head = []string{"writers", "pods/s"}
	most := 0.0
	for i, writers := range bareWriters {
		t.add(fmt.Sprint(writers), spreadText("%.0f", rates[i]))
		if m := report.Median(rates[i]); m > most {
			best, most = writers, m
		}
	}
	return best, t, nil
}
