// Share runs a command with a cluster that all packages tested by the command share, see testbed.Shared:
//
//	share [-volcano-conf FILE] COMMAND...
//
// It brings up the cluster, with Volcano, sets testbed.SharedEnv for the command, and exits with its code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/eltrain/eltrain/testbed"
)

func main() {
	configuration := flag.String("volcano-conf", "", "configuration of Volcano's scheduler; without it that of Volcano's chart")
	flag.Parse()
	code, err := share(*configuration, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func share(configuration string, command []string) (code int, err error) {
	if len(command) == 0 {
		return 0, errors.New("missing command")
	}
	volcano := &testbed.Volcano{}
	if configuration != "" {
		text, err := os.ReadFile(configuration)
		if err != nil {
			return 0, err
		}
		volcano.Configuration = string(text)
	}
	cluster, err := testbed.New(testbed.Options{Volcano: volcano})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	// An interrupt is passed to the command; the tests' folders are removed afterwards.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), testbed.SharedEnv+"="+cluster.Dir())
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
