// Command eltrain-agent is `eltrain agent` without what only a master needs: every slot has one, and the Kubernetes client
// library would take 25 MB of resident memory in each. The local provider uses it if it is next to eltrain; in pods an init
// container installs it, which is this program with -copy-to.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/eltrain/eltrain/agent"
	"github.com/eltrain/eltrain/job"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	if path, asked, err := copyAsked(args); asked || err != nil {
		if err == nil {
			err = copySelf(path)
		}
		return failed(stderr, err)
	}
	if code, is := agent.InSlot(args, os.Stdout, stderr); is {
		return code
	}
	config, err := job.ParseAgentArgs(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return failed(stderr, err)
	}
	return agent.Run(context.Background(), config, slog.New(slog.NewTextHandler(stderr, nil)))
}

// failed reports an error, if there is one, and returns the exit code.
func failed(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "eltrain-agent:", err)
	return agent.ExitConfig
}
