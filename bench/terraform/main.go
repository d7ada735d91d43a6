//go:build linux

// Terraform compares eltrain's command line with terraform's: whole processes, in the same run, on as many
// terraform_data objects as slots. See ../README.md.
//
//	make build
//	go run ./bench/terraform -eltrain=bin/eltrain -out=terraform.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/bench/internal/report"
)

type config struct {
	eltrain   string
	terraform string
	out       string
	sizes     []int
	n         int
	large     int
	bound     time.Duration
}

// figure is a command that is measured in a directory.
type figure string

const (
	noop  figure = "no-op plan"
	full  figure = "full plan"
	valid figure = "validate"
)

var figures = []figure{noop, full, valid}

// largeSize is the size from which a no-op plan takes terraform minutes, so that such sizes get fewer rounds (-large).
const largeSize = 5000

// tool is one of the two programs.
type tool interface {
	name() string
	// prepare declares n objects, none of which exists; settle declares n objects that all exist and are up to date.
	prepare(ctx context.Context, dir string, n int) error
	settle(ctx context.Context, dir string, n int) error
	// unsettle stops what settle left running.
	unsettle(ctx context.Context, dir string) error
	command(dir string, f figure, n int) command
}

func main() {
	var cfg config
	var sizes string
	flag.StringVar(&cfg.eltrain, "eltrain", "bin/eltrain", "the eltrain binary to measure")
	flag.StringVar(&cfg.terraform, "terraform", "", "the terraform binary to measure it beside; by default the one that testbed/terraform pins, built into the user's cache")
	flag.StringVar(&cfg.out, "out", "", "file for the report (Markdown); the standard output if empty")
	flag.StringVar(&sizes, "sizes", "1000,10000", "numbers of slots and objects")
	flag.IntVar(&cfg.n, "n", 5, "rounds")
	flag.IntVar(&cfg.large, "large", 1, fmt.Sprintf("rounds from %d objects on", largeSize))
	flag.DurationVar(&cfg.bound, "bound", 30*time.Minute, "longest time of one process")
	flag.Parse()
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "-sizes=%s: %q is not a number of slots\n", sizes, size)
			os.Exit(2)
		}
		cfg.sizes = append(cfg.sizes, n)
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "terraform:", err)
		stop()
		os.Exit(1)
	}
}

func bench(ctx context.Context, cfg config) (err error) {
	if cfg.eltrain, err = filepath.Abs(cfg.eltrain); err != nil {
		return err
	}
	if cfg.terraform == "" {
		if cfg.terraform, err = buildTerraform(ctx); err != nil {
			return err
		}
	}
	root, err := os.MkdirTemp("", "bench-terraform-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	tools := []tool{eltrain{cfg.eltrain}, terraform{cfg.terraform}}
	res := &result{began: report.Load(), samples: map[key][]sample{}, sizes: cfg.sizes}
	for _, t := range tools {
		res.tools = append(res.tools, t.name())
	}
	if err := startup(ctx, cfg, filepath.Join(root, "startup"), res); err != nil {
		return err
	}
	if err := floor(ctx, filepath.Join(root, "floor"), res); err != nil {
		return err
	}
	for _, n := range cfg.sizes {
		if err := compare(ctx, cfg, tools, filepath.Join(root, strconv.Itoa(n)), n, res); err != nil {
			return err
		}
	}
	return report.Write(cfg.out, res.write)
}

// buildTerraform builds the terraform that testbed/terraform pins, once, and returns its path. Package testbed is not
// linked into this program, because its memory would count as the children's peak (see resetPeak).
func buildTerraform(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./build", "terraform")
	cmd.Dir, cmd.Stderr = "testbed", os.Stderr
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build terraform: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}

// startupRounds is higher than for other figures: a start is short, and thus sensitive to other load.
const startupRounds = 20

// startup measures the minimum time of every command: version, and validate of one small file.
func startup(ctx context.Context, cfg config, dir string, res *result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	e, t := eltrain{cfg.eltrain}, terraform{cfg.terraform}
	if err := errors.Join(e.prepare(ctx, dir, 1), t.prepare(ctx, dir, 1)); err != nil {
		return err
	}
	for range startupRounds {
		for _, m := range []struct {
			tool string
			what figure
			c    command
		}{
			{e.name(), showVersion, e.in(dir, 0, "version")},
			{t.name(), showVersion, t.in(dir, 0, "version")},
			{e.name(), validateOne, e.command(dir, valid, 1)},
			{t.name(), validateOne, t.command(dir, valid, 1)},
		} {
			s, err := m.c.measure(ctx)
			if err != nil {
				return err
			}
			res.add(m.tool, m.what, 1, s)
		}
	}
	return nil
}

// compare measures all figures at one size, round by round, so that other load affects both tools alike.
func compare(ctx context.Context, cfg config, tools []tool, root string, n int, res *result) (err error) {
	at := func(t tool, what string) string { return filepath.Join(root, t.name()+"-"+what) }
	for _, t := range tools {
		for what, make := range map[string]func(context.Context, string, int) error{"new": t.prepare, "settled": t.settle} {
			if err := os.MkdirAll(at(t, what), 0o755); err != nil {
				return err
			}
			if err := make(ctx, at(t, what), n); err != nil {
				return fmt.Errorf("%s, %d objects: %w", t.name(), n, err)
			}
		}
		defer func() {
			err = errors.Join(err, t.unsettle(context.WithoutCancel(ctx), at(t, "settled")))
		}()
	}
	rounds := cfg.n
	if n >= largeSize {
		rounds = cfg.large
	}
	for round := range rounds {
		for _, f := range figures {
			for _, t := range tools {
				dir := at(t, "new")
				if f == noop {
					dir = at(t, "settled")
				}
				bound, cancel := context.WithTimeout(ctx, cfg.bound)
				s, err := t.command(dir, f, n).measure(bound)
				cancel()
				if err != nil {
					return err
				}
				res.add(t.name(), f, n, s)
				fmt.Fprintf(os.Stderr, "%d/%d %5d %-10s %-10s %9.3f s %6d MiB\n", round+1, rounds, n, f, t.name(), s.took.Seconds(), s.peak>>20)
			}
		}
	}
	return nil
}
