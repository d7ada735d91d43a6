// Build builds the programs that package testbed runs and prints their folders: `make testbed`. With the argument
// terraform it builds terraform instead, which only a benchmark needs, and prints its path.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/eltrain/eltrain/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	made, err := build(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, path := range made {
		fmt.Println(path)
	}
}

func build(ctx context.Context, args []string) ([]string, error) {
	switch {
	case len(args) == 0:
		return testbed.Build(ctx, os.Stderr)
	case len(args) == 1 && args[0] == "terraform":
		path, err := testbed.Terraform(ctx, os.Stderr)
		return []string{path}, err
	}
	return nil, fmt.Errorf("unknown argument %q: use none, or terraform", args)
}
