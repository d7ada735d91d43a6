//go:build linux

// Recovery measures how long a training job makes no progress after an incident, under torchrun
// and under eltrain, with the same script, on the same machine, in the same run. See ../README.md.
//
//	go build -o /tmp/eltrain ./cmd/eltrain
//	go run ./bench/recovery -eltrain=/tmp/eltrain -n=5 -out=recovery.md
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/eltrain/eltrain/bench/internal/report"
)

type config struct {
	n            int
	scenarios    string
	launchers    string
	out          string
	samples      report.Samples
	eltrain      string
	installTorch bool
	python       string // of the training process, for all launchers
	script       string
	bound        time.Duration
	pgTimeout    time.Duration
	// phase is the maximum of the random delay between a start and its incident: launchers poll
	// at intervals (torchrun 1.13 every 5 s), and an incident may occur anywhere in between.
	phase time.Duration
}

func main() {
	cfg := config{phase: 5 * time.Second}
	flag.IntVar(&cfg.n, "n", 3, "measurements of each scenario with each launcher")
	flag.StringVar(&cfg.scenarios, "scenarios", "*", "which, by comma-separated names or patterns: "+strings.Join(scenarioNames(), ", "))
	flag.StringVar(&cfg.launchers, "launchers", "*", "which, by comma-separated names or patterns: torchrun-1.13 and torchrun-2, each also with -tuned and -ka; eltrain, eltrain-3s")
	flag.StringVar(&cfg.out, "out", "", "file for the report (Markdown); the standard output if empty")
	flag.StringVar((*string)(&cfg.samples), "samples", "", "file to which each recovery is added for benchstat")
	flag.StringVar(&cfg.eltrain, "eltrain", "", "the eltrain binary to measure; without it eltrain is left out")
	flag.BoolVar(&cfg.installTorch, "install-torch", false, "download PyPI's current PyTorch into the user's cache if it is not there: 3 GB, 5 GB unpacked")
	flag.StringVar(&cfg.python, "python", "/usr/bin/python3", "Python of the training process, whoever launches it")
	flag.StringVar(&cfg.script, "script", "examples/mnist-local/train.py", "training script; needs its --events")
	flag.DurationVar(&cfg.bound, "bound", 90*time.Second, "longest wait for a world to step")
	flag.DurationVar(&cfg.pgTimeout, "pg-timeout", 20*time.Second, "collective timeout of the script: what a silent peer costs if the launcher does not notice")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "recovery:", err)
		stop()
		os.Exit(1)
	}
}

func bench(ctx context.Context, cfg config) (err error) {
	if cfg.script, err = filepath.Abs(cfg.script); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.script); err != nil {
		return err
	}
	res := &result{bound: cfg.bound, pgTimeout: cfg.pgTimeout, samples: map[[2]string][]sample{}}
	for _, sc := range scenarios {
		if matches(cfg.scenarios, sc.name) {
			res.scenarios = append(res.scenarios, sc)
		}
	}
	res.launchers, res.notes = findLaunchers(ctx, cfg)
	if len(res.scenarios) == 0 || len(res.launchers) == 0 {
		return fmt.Errorf("nothing to measure: %s", strings.Join(res.notes, "; "))
	}
	loadBefore := report.Load()

	// Round by round, so that other load affects all launchers alike.
	for round := range cfg.n {
		for _, sc := range res.scenarios {
			for _, l := range res.launchers {
				s, err := measure(ctx, l, sc, cfg)
				if ctx.Err() != nil {
					return errors.Join(ctx.Err(), err)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					first, _, _ := strings.Cut(err.Error(), "\n")
					res.notes = append(res.notes, "failed: "+first)
					continue
				}
				res.add(l, sc, s)
				if s.ended() {
					if err := cfg.samples.Add("Recovery/"+sc.name+"/"+l.Name(), s.total, "sec/op"); err != nil {
						return err
					}
				}
				outcome := fmt.Sprintf("not within %v", cfg.bound)
				if s.ended() {
					outcome = fmt.Sprintf("%.2f s, %.2f less import, world %d", s.total, s.launcher, s.size)
				}
				fmt.Fprintf(os.Stderr, "%d/%d %-14s %-20s %s\n", round+1, cfg.n, sc.name, l.Name(), outcome)
			}
		}
	}

	res.machine = fmt.Sprintf("%s. Load %s before, %s after.", machine(ctx, cfg), loadBefore, report.Load())
	return report.Write(cfg.out, res.write)
}

// findLaunchers returns the requested launchers that are available, and a note for each that is not.
func findLaunchers(ctx context.Context, cfg config) (found []launcher, notes []string) {
	offer := func(all []launcher) {
		for _, l := range all {
			if matches(cfg.launchers, l.Name()) {
				found = append(found, l)
			}
		}
	}
	note := func(what string, err error) {
		text := fmt.Sprintf("%s is skipped: %v", what, err)
		fmt.Fprintln(os.Stderr, text)
		notes = append(notes, text)
	}
	const old, current = "torchrun-1.13", "torchrun-2"
	if anyMatches(cfg.launchers, old, old+"-tuned", old+"-ka") {
		const debian = "/usr/bin/python3"
		version, err := torchVersion(ctx, debian)
		if err == nil && !strings.HasPrefix(version, "1.13") {
			err = fmt.Errorf("%s has PyTorch %s", debian, version)
		}
		if err == nil {
			offer(torchruns(old, debian, version, true))
		} else {
			note(old, err)
		}
	}
	if anyMatches(cfg.launchers, current, current+"-tuned", current+"-ka") {
		if python, version, err := currentTorch(ctx, cfg.installTorch); err == nil {
			offer(torchruns(current, python, version, false))
		} else {
			note(current, err)
		}
	}
	if anyMatches(cfg.launchers, "eltrain", "eltrain-3s") {
		if cfg.eltrain == "" {
			note("eltrain", errors.New("-eltrain names no binary"))
		} else if all, err := eltrains(ctx, cfg.eltrain); err == nil {
			offer(all)
		} else {
			note("eltrain", err)
		}
	}
	return found, notes
}

func matches(patterns, name string) bool {
	for p := range strings.SplitSeq(patterns, ",") {
		if ok, _ := path.Match(strings.TrimSpace(p), name); ok {
			return true
		}
	}
	return false
}

func anyMatches(patterns string, names ...string) bool {
	for _, n := range names {
		if matches(patterns, n) {
			return true
		}
	}
	return false
}

func scenarioNames() []string {
	var names []string
	for _, sc := range scenarios {
		names = append(names, sc.name)
	}
	return names
}

// machine describes what the figures were measured on.
func machine(ctx context.Context, cfg config) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	python, _ := exec.CommandContext(ctx, cfg.python, "--version").Output()
	return fmt.Sprintf("%s, %s, %s", report.Machine(), strings.TrimSpace(string(python)), filepath.Base(cfg.script))
}
