package job

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
)

// AgentConfig is the configuration of an agent. A provider converts it to the command line of
// eltrain agent, which parses it back. It holds no secret: the token is in a file.
type AgentConfig struct {
	Job               string
	UID               string
	Slot              string // as worker[3]
	Incarnation       int
	Node              string
	Host              string // address of this member for peers
	Service           string // URL of the service; or
	ServiceFile       string // a file with the URL, reread whenever the service does not answer
	TokenFile         string
	CAFile            string // PEM file with the CA certificates of the service; "" for the system's
	Dir               string // the incarnation's own directory; "" for none
	LockFD            int    // inherited descriptor that holds the lock of Dir until the agent exits; 0 for none
	LastWordFile      string // an existing file for its LastWord; "" for none
	WorkingDir        string // of the processes, relative to the agent's; "" for the agent's
	Log               string // file for the slot's output; "" for the agent's stdout
	Processes         int
	Ranked            bool
	StopGrace         Duration
	MaxRestarts       int
	CheckpointDir     string
	CheckpointSignal  string
	CheckpointPattern string // regular expression with the group step
	Accelerators      Words  // command that prints figures of the slot's accelerators
	DCGM              string // URL of a DCGM exporter
	Command           []string
}

// Words is a command as the value of a flag, in JSON.
type Words []string

func (w *Words) String() string {
	if w == nil || len(*w) == 0 {
		return ""
	}
	text, _ := json.Marshal([]string(*w)) // of strings: it cannot fail
	return string(text)
}

func (w *Words) Set(text string) error { return json.Unmarshal([]byte(text), (*[]string)(w)) }

// Declare defines the agent's flags on fs, bound to c.
func (c *AgentConfig) Declare(fs *flag.FlagSet) {
	fs.StringVar(&c.Job, "job", "", "The job's `NAME`.")
	fs.StringVar(&c.UID, "uid", "", "The job's `UID`.")
	fs.StringVar(&c.Slot, "slot", "", "The `SLOT`, as worker[3].")
	fs.IntVar(&c.Incarnation, "incarnation", 1, "Incarnation number `N`, by default 1.")
	fs.StringVar(&c.Node, "node", "", "The node's `NAME`.")
	fs.StringVar(&c.Host, "host", "127.0.0.1", "The `ADDRESS` for peers, by default 127.0.0.1.")
	fs.StringVar(&c.Service, "service", "", "The service's `URL`.")
	fs.StringVar(&c.ServiceFile, "service-file", "", "The service's URL is in `FILE`, read again when the service does not answer.")
	fs.StringVar(&c.TokenFile, "token-file", "", "The job's bearer token is in `FILE`.")
	fs.StringVar(&c.CAFile, "ca-file", "", "CA certificates of the service (PEM `FILE`), instead of the system's.")
	fs.StringVar(&c.Dir, "dir", "", "The incarnation's `DIR`.")
	fs.IntVar(&c.LockFD, "lock-fd", 0, "Hold the lock of DIR by the inherited descriptor `N`.")
	fs.StringVar(&c.LastWordFile, "last-word", "", "Existing `FILE` for the agent's Kubernetes termination message.")
	fs.StringVar(&c.WorkingDir, "working-dir", "", "Run the processes in `DIR`, by default the agent's.")
	fs.StringVar(&c.Log, "log", "", "Write the processes' output to `FILE`, by default standard output.")
	fs.IntVar(&c.Processes, "processes", 1, "Run `N` processes, by default 1.")
	fs.BoolVar(&c.Ranked, "ranked", true, "Members of this role have no ranks.")
	fs.TextVar(&c.StopGrace, "stop-grace", Duration(30e9), "`DURATION` from SIGTERM to SIGKILL, by default 30s.")
	fs.IntVar(&c.MaxRestarts, "max-restarts", 0, "Set TORCHELASTIC_MAX_RESTARTS to `N`.")
	fs.StringVar(&c.CheckpointDir, "checkpoint-dir", "", "Set ELTRAIN_CHECKPOINT_DIR to `DIR`.")
	fs.StringVar(&c.CheckpointSignal, "checkpoint-signal", "", "Request a checkpoint before a planned stop by `SIGNAL`.")
	fs.StringVar(&c.CheckpointPattern, "checkpoint-pattern", "", "Regular expression `PATTERN` for checkpoint steps in the output.")
	c.Accelerators = nil // Var sets no default
	fs.Var(&c.Accelerators, "accelerators", "Figures of accelerators are printed by a command, a `JSON` list.")
	fs.StringVar(&c.DCGM, "dcgm", "", "Figures of accelerators are served by the DCGM exporter at `URL`.")
}

// Args returns the command line for ParseAgentArgs: flags that differ from their defaults, then "--" and the
// command.
func (c AgentConfig) Args() []string {
	var args []string
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	bound := c
	bound.Declare(fs) // sets bound's fields to their defaults
	defaults := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { defaults[f.Name] = f.Value.String() })
	command := c.Command
	bound = c
	fs.VisitAll(func(f *flag.Flag) {
		if v := f.Value.String(); v != defaults[f.Name] {
			args = append(args, "-"+f.Name+"="+v)
		}
	})
	return append(append(args, "--"), command...)
}

// ParseAgentArgs parses an agent's command line. It writes the usage to usage if the flags are invalid or help is requested.
func ParseAgentArgs(args []string, usage io.Writer) (AgentConfig, error) {
	var c AgentConfig
	fs := flag.NewFlagSet("agent", flag.ContinueOnError)
	fs.SetOutput(usage)
	c.Declare(fs)
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	c.Command = fs.Args()
	switch {
	case c.Job == "" || c.Slot == "":
		return c, fmt.Errorf("the job or the slot is missing")
	case c.Service == "" && c.ServiceFile == "":
		return c, fmt.Errorf("the service is missing: its address or a file with it")
	case len(c.Command) == 0:
		return c, fmt.Errorf("a command is missing after --")
	}
	_, err := ParseShort(c.Job, c.Slot)
	return c, err
}
