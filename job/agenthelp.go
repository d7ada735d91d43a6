package job

import (
	"errors"
	"flag"
	"io"
)

// Besides being an agent, its program has tasks in a slot, named by its first argument: to start a command in the environment of the
// training processes, where no agent can be asked to (in pods), and to print their stacks.
const (
	AgentExec   = "exec"
	AgentStacks = "stacks"
	// AgentCheck checks the node's processors and memory, and prints what it has found.
	AgentCheck = "check"
)

// ExecArgs are the arguments of the agent's program that start a command, on a terminal of the kind term.
func ExecArgs(term string, command []string) []string {
	return append([]string{AgentExec, "-term=" + term, "--"}, command...)
}

// ParseExecArgs parses what follows AgentExec.
func ParseExecArgs(args []string) (term string, command []string, err error) {
	fs := flag.NewFlagSet(AgentExec, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&term, "term", "", "")
	if err := fs.Parse(args); err != nil {
		return "", nil, err
	}
	if fs.NArg() == 0 {
		return "", nil, errors.New("a command is missing after --")
	}
	return term, fs.Args(), nil
}
