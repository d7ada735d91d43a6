package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"strings"

	"github.com/eltrain/eltrain/agent"
	"github.com/eltrain/eltrain/job"
)

// agentCommand is the process that providers start in every slot. Its flags are those of job.AgentConfig:
// a provider writes them with Args, and ParseAgentArgs reads them back.
func agentCommand() *command {
	return &command{
		name: "agent", usage: "[options] -- COMMAND [args]",
		internal: true,
		synopsis: "Run in a slot; started by a provider",
		about: `Runs in every slot: joins worlds, runs COMMAND as the slot's training processes, and reports to the
elastic training service. Providers start it; users never do.`,
		exits: []string{
			"All processes succeeded.",
			"From 1: exit code of the failed process, or the agent had to leave its slot; its log says why.",
		},
		options: agentOptions,
		run:     runAgent,
	}
}

// agentOptions has no -no-color: an agent writes to files.
func agentOptions() string {
	var b strings.Builder
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	new(job.AgentConfig).Declare(fs)
	fs.VisitAll(func(f *flag.Flag) { b.WriteString("\n" + describe(f)) })
	return b.String()
}

func runAgent(s *session, args []string) int {
	if code, is := agent.InSlot(args, s.streams.Out, s.streams.Err); is {
		return code
	}
	cfg, err := job.ParseAgentArgs(args, s.streams.Err)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return s.misused("agent", err)
	}
	// The log is on by default: it is the only trace in a slot of what went wrong with its agent.
	log := s.log
	if s.getenv("ELTRAIN_LOG") == "" {
		log = slog.New(slog.NewTextHandler(s.streams.Err, nil))
	}
	return agent.Run(context.Background(), cfg, log)
}
