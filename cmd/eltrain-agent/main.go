// Command eltrain-agent is `eltrain agent` alone, without what only a master needs: there is one in every slot of a
// machine, and Kubernetes' client library would be 25 MB of resident memory in each. The local provider starts it
// where it stands beside eltrain.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/eltrain/eltrain/agent"
	"github.com/eltrain/eltrain/job"
)

func main() {
	config, err := job.ParseAgentArgs(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "eltrain-agent:", err)
		os.Exit(agent.ExitConfig)
	default:
		os.Exit(agent.Run(context.Background(), config, slog.New(slog.NewTextHandler(os.Stderr, nil))))
	}
}
