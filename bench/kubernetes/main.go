//go:build linux

// Kubernetes measures eltrain's performance on a cluster: the built program as a user runs it, with the rights that
// deploy/ grants, on a real control plane with KWOK nodes, each figure compared with its ceiling in the same run. See
// ../README.md.
//
//	make build testbed
//	go run ./bench/kubernetes -eltrain=bin/eltrain -out=kubernetes.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/eltrain/eltrain/bench/internal/report"
)

type config struct {
	provider string // of the jobs; volcano is installed if needed
	eltrain  string
	roles    string
	out      string
	samples  report.Samples
	figures  []figure
	sizes    []int // numbers of pods of the figure create
	n        int
	pods     int // of the figures run and steady
	events   int // status changes of the figure decide
	nodes    int
	// variants are patterns for the variants of the figure run.
	variants string
	// writers is the number of writers of the bare client in the figure create; 0 finds the best. If it is set, the figure
	// compares eltrain with the bare client only, without DLRover's way.
	writers int
}

// A figure measures one thing and writes its section of the report.
type figure struct {
	name    string
	measure func(context.Context, *bed, config, io.Writer) error
}

// figures lists the figures of each provider. create is last because it stops parts of the control plane that others need.
var figures = map[string][]figure{
	"kubernetes": {
		{"decide", measureDecisions},
		{"loss", measureLosses},
		{"silent", measureSilence},
		{"run", measureRuns},
		{"steady", measureSteady},
		{"create", measureCreation},
	},
	withVolcano: {
		{"gangs", measureGangs},
		{"reform", measureReforming},
	},
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == bareProgram {
		if err := runBareClient(context.Background(), os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var cfg config
	var names, sizes string
	flag.StringVar(&cfg.eltrain, "eltrain", "bin/eltrain", "the eltrain binary to measure")
	flag.StringVar(&cfg.roles, "roles", "deploy/base/rbac.yaml", "the manifest with the rights that it gets")
	flag.StringVar(&cfg.out, "out", "", "file for the report (Markdown); the standard output if empty")
	flag.StringVar((*string)(&cfg.samples), "samples", "", "file to which each sample of the figures decide and create is added for benchstat")
	flag.StringVar(&cfg.provider, "provider", "kubernetes", "of the jobs: kubernetes, or volcano with its scheduler")
	flag.StringVar(&names, "figures", "", "which, by comma-separated names; empty: all of the provider")
	flag.StringVar(&sizes, "sizes", "1000,5000,10000", "numbers of pods of the figure create")
	flag.IntVar(&cfg.n, "n", 2, "rounds of all figures but decide and steady")
	flag.IntVar(&cfg.pods, "pods", 10_000, "pods of the figures run and steady")
	flag.IntVar(&cfg.events, "events", 300, "status changes of the figure decide")
	flag.IntVar(&cfg.nodes, "nodes", 120, "KWOK nodes, of 110 pods each")
	flag.StringVar(&cfg.variants, "variants", "*", "of the figure run, by comma-separated names or patterns: "+strings.Join(variantNames(), ", "))
	flag.IntVar(&cfg.writers, "writers", 0, "the bare client's in the figure create, which is then quick: no sweep of them, and not DLRover's way; 0 finds the best")
	flag.Parse()
	if err := cfg.read(names, sizes); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "kubernetes:", err)
		stop()
		os.Exit(1)
	}
}

func (c *config) read(names, sizes string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	for word := range strings.SplitSeq(sizes, ",") {
		size, err := strconv.Atoi(word)
		if err != nil || size < 2 {
			return fmt.Errorf("-sizes: %q is not a number of pods (minimum 2)", word)
		}
		c.sizes = append(c.sizes, size)
	}
	all := figures[c.provider]
	if all == nil {
		return fmt.Errorf("-provider: unknown provider %q", c.provider)
	}
	if names == "" {
		c.figures = all
	} else {
		for name := range strings.SplitSeq(names, ",") {
			at := slices.IndexFunc(all, func(f figure) bool { return f.name == name })
			if at < 0 {
				return fmt.Errorf("-figures: provider %s has no %q", c.provider, name)
			}
			c.figures = append(c.figures, all[at])
		}
	}
	for pattern := range strings.SplitSeq(c.variants, ",") {
		if !slices.ContainsFunc(variantNames(), func(name string) bool { return matches(pattern, name) }) {
			return fmt.Errorf("-variants: no variant matches %q; variants are %s", pattern, strings.Join(variantNames(), ", "))
		}
	}
	var err error
	c.eltrain, err = filepath.Abs(c.eltrain)
	return err
}

func bench(ctx context.Context, cfg config) (err error) {
	// Results are written as they come, so that a failure does not lose them: a run takes half an hour.
	out := io.Writer(os.Stdout)
	if cfg.out != "" {
		file, err := os.Create(cfg.out)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	b, err := newBed(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Fprintf(out, "# Provider %s\n\n%s; control plane, bench and eltrain on it together.\n", cfg.provider, report.Machine())
	for _, f := range cfg.figures {
		before := report.Load()
		if err := b.host.attempt(func() error { return f.measure(ctx, b, cfg, out) }); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Fprintf(out, "\nLoad of the machine %s before, %s after.\n", before, report.Load())
	}
	return nil
}
