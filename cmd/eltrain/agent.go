package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/eltrain/eltrain/agent"
	"github.com/eltrain/eltrain/job"
)

// agentCommand is started by providers, in every slot. Its flags are job.AgentConfig's: a provider makes
// them with Args, and ParseAgentArgs reads them back.
func agentCommand() *command {
	return &command{
		name: "agent", usage: "[options] -- COMMAND [args]",
		internal: true,
		synopsis: "Run in a slot, started by a provider",
		about: `Runs in every slot: joins worlds, runs COMMAND as the slot's training processes, and reports to the
elastic training service. Providers start it; people have no need to.`,
		options: agentOptions,
		run:     runAgent,
	}
}

// agentOptions is the flag package's own text, without its headline: the flags belong to job.AgentConfig.
func agentOptions() string {
	var usage strings.Builder
	_, err := job.ParseAgentArgs([]string{"-help"}, &usage)
	if !errors.Is(err, flag.ErrHelp) {
		return ""
	}
	_, options, _ := strings.Cut(usage.String(), "\n")
	return "  -" + copyTo + " string\n    \tcopy this program to this path and end; alone\n" + options
}

// copyTo is the flag with which an agent only puts its program somewhere: an init container brings it into
// any image by it. It belongs to no agent's configuration.
const copyTo = "copy-to"

func runAgent(s *session, args []string) int {
	if len(args) > 0 && strings.HasPrefix(strings.TrimLeft(args[0], "-"), copyTo) {
		return s.copySelf(args)
	}
	cfg, err := job.ParseAgentArgs(args, s.streams.Err)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return s.misused("agent", err)
	}
	// An agent's log is its slot's only trace of what went wrong with it, so it is on by default.
	log := s.log
	if s.getenv("ELTRAIN_LOG") == "" {
		log = slog.New(slog.NewTextHandler(s.streams.Err, nil))
	}
	return agent.Run(context.Background(), cfg, log)
}

// copySelf puts this program at the path that is given, whole or not at all.
func (s *session) copySelf(args []string) int {
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	path := fs.String(copyTo, "", "")
	if err := fs.Parse(args); err != nil || *path == "" || fs.NArg() > 0 {
		return s.misused("agent", fmt.Errorf("-%s takes one path, and nothing else", copyTo))
	}
	if err := copyProgram(*path); err != nil {
		return s.fail("The program cannot be copied", err)
	}
	return exitDone
}

func copyProgram(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(path), ".eltrain-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		os.Remove(to.Name())
		return fmt.Errorf("copy %s to %s: %w", self, path, err)
	}
	return nil
}
