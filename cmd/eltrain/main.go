// Command eltrain reconciles elastic distributed training jobs: it makes what runs match what HCL files declare.
// This package is the command line: it parses arguments, calls lang, apply and the providers, and shows their results through
// cmd/view. One file per subcommand.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/eltrain/eltrain/cmd/output"
	"github.com/eltrain/eltrain/cmd/shells"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
)

func main() {
	// client-go logs its problems to the terminal with klog. eltrain reports those that matter itself.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	s := &session{streams: view.Standard(), environ: os.Environ(), exit: os.Exit}
	os.Exit(s.run(os.Args[1:]))
}

// Exit codes, as Terraform's.
const (
	exitDone    = 0
	exitError   = 1
	exitChanges = 2 // plan -detailed-exitcode: there are changes
	exitDiffers = 2 // replay: a decision comes out differently
	exitParse   = 2 // fmt: a file does not parse
	exitUnclean = 3 // fmt -check: a file is not in canonical format
)

// session is a command's environment. The job directory is the working directory.
type session struct {
	streams *view.Streams
	environ []string
	log     *slog.Logger
	dir     workspace.Directory
	// stream gets the output as JSON; if machine is set it is the only output.
	stream  *view.Stream
	machine bool
	compact bool              // show only the summaries of warnings, unless there are errors
	later   []view.Diagnostic // the files' warnings, to be shown below the plan, or with the error if there is no plan
	asking  atomic.Bool       // at the approval prompt: nothing is in flight
	exit    func(code int)    // exits at once, on a second interrupt
	// interrupted is the reply to a first interrupt, if it is not the common one.
	interrupted string
	// redactor knows every sensitive value that was read. All output goes through it.
	redactor view.Redactor
}

// command is one subcommand.
type command struct {
	name     string
	usage    string // what follows the name on the command line
	synopsis string // one line for the list of commands
	about    string // paragraphs for -help
	// declare declares the command's flags, for -help. Parsing uses the same function.
	declare func(*flags)
	// options returns the text on options in -help, if it does not come from declare.
	options func() string
	// exits are the meanings of its exit codes, from 0 on; nil for the common ones.
	exits []string
	// internal commands are run by eltrain itself, and not listed.
	internal bool
	// The name of each subcommand begins with this command's and a space. A command with subcommands does nothing itself.
	subcommands []*command
	run         func(s *session, args []string) int
}

// mainCommands are in the order of their use.
func mainCommands() []*command {
	return []*command{validateCommand(), planCommand(), applyCommand(), statusCommand(), destroyCommand()}
}

func otherCommands() []*command {
	return []*command{
		agentCommand(), cancelCommand(), checkpointCommand(), consoleCommand(), cordonCommand(), drainCommand(), eventsCommand(), execCommand(), fmtCommand(), forceUnlockCommand(), graphCommand(), importCommand(), initCommand(),
		logsCommand(), nodesCommand(), outputCommand(), providersCommand(), readFilesCommand(), reloadCommand(), replayCommand(), requestsCommand(), restartCommand(), resumeCommand(), runCommand(), scaleCommand(), showCommand(), signalCommand(), stacksCommand(), stateCommand(), suspendCommand(), topCommand(), uncordonCommand(), versionCommand(), whyCommand(),
	}
}

// allCommands returns all commands, each before its subcommands.
func allCommands() []*command {
	var all []*command
	for _, c := range append(mainCommands(), otherCommands()...) {
		all = append(append(all, c), c.subcommands...)
	}
	return all
}

// group returns a command that has only subcommands.
func group(name, synopsis, about string, subcommands ...*command) *command {
	c := &command{name: name, usage: "SUBCOMMAND [options]", synopsis: synopsis, about: about, subcommands: subcommands}
	c.run = func(s *session, args []string) int {
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			io.WriteString(s.streams.Err, c.help())
			return exitError
		}
		var names []string
		for _, sub := range subcommands {
			names = append(names, sub.last())
		}
		s.unknown("eltrain "+name, args[0], names)
		return exitError
	}
	return c
}

// last returns the last word of the command's name.
func (c *command) last() string { return c.name[strings.LastIndexByte(c.name, ' ')+1:] }

// unknown reports an unknown command, and which one was perhaps meant.
func (s *session) unknown(of, typed string, names []string) {
	fmt.Fprintf(s.streams.Err, "%s has no command named %q%s\n\nTo see all of its commands, run:\n  %s -help\n", of, typed, view.DidYouMean(typed, names), of)
}

// run carries out one command line and returns its exit code.
func (s *session) run(args []string) int {
	return s.failIfOutputLost(func() int { return s.carryOut(args) })
}

func (s *session) carryOut(args []string) int {
	s.dir = workspace.Directory{Path: workspace.JobDirectory, Environ: s.environ, Version: version, Advice: advice, Secret: s.redactor.AddTexts}
	if line := s.getenv(completionLine); line != "" {
		return s.complete(line)
	}
	args, err := changeDirectory(args)
	if err != nil {
		return s.fail("Cannot use the directory given with -chdir", err)
	}
	known := allCommands()
	// Of a master whose directory was replaced, the processes begin in one that is gone.
	if s.dir.Path, err = os.Getwd(); err != nil && !internal(args, known) {
		return s.fail("Cannot find the working directory", err)
	}
	if s.log, err = logger(s.getenv("ELTRAIN_LOG"), s.redactor.Writer(s.streams.Err)); err != nil {
		return s.fail("Invalid value of ELTRAIN_LOG", err)
	}
	slog.SetDefault(s.log)
	s.dir.Log = s.log
	args, err = insertEnvironment(args, known, s.getenv)
	if err != nil {
		return s.fail("Invalid arguments in the environment", err)
	}
	return s.execute(readLine(args, known))
}

// line is a command line, parsed up to its command.
type line struct {
	global  []string // options before the command
	name    string   // the word in the place of the command's name, known or not; "" without one
	command *command // nil if name is unknown
	args    []string // the words after the name
}

// readLine finds the command with the longest name that matches: "state" and "state list" are both commands.
func readLine(args []string, known []*command) line {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if at < 0 {
		at = len(args)
	}
	l := line{global: args[:at]}
	if at == len(args) {
		return l
	}
	l.name, l.command, l.args = args[at], named(known, args[at]), args[at+1:]
	if len(l.args) > 0 {
		if sub := named(known, l.name+" "+l.args[0]); sub != nil {
			l.name, l.command, l.args = sub.name, sub, l.args[1:]
		}
	}
	return l
}

func named(known []*command, name string) *command {
	for _, c := range known {
		if c.name == name {
			return c
		}
	}
	return nil
}

// chdirOption comes before all others: see changeDirectory.
const chdirOption = "-chdir"

// The options that every command has, and those that stand alone.
var (
	helpFlags    = []string{"-h", "-help", "--help"}
	versionFlags = []string{"-v", "-version", "--version"}
)

// asksForHelp reports whether a help option follows the command. After "--" nothing is an option.
func (l line) asksForHelp() bool {
	for _, a := range l.args {
		if a == "--" {
			break
		}
		if slices.Contains(helpFlags, a) {
			return true
		}
	}
	return false
}

// globals are the options of eltrain itself.
type globals struct{ help, version, install, uninstall bool }

// readGlobals parses the options before the command. If one is unknown, it returns an error and none takes effect.
func (l line) readGlobals() (globals, error) {
	var g globals
	for _, option := range l.global {
		switch {
		case slices.Contains(helpFlags, option):
			g.help = true
		case slices.Contains(versionFlags, option):
			g.version = true
		case option == installOption || option == "-"+installOption:
			g.install = true
		case option == uninstallOption || option == "-"+uninstallOption:
			g.uninstall = true
		default:
			return globals{}, fmt.Errorf("unknown global flag %s; the flags of a command come after the command", option)
		}
	}
	switch {
	case g.install && g.uninstall:
		return globals{}, fmt.Errorf("%s and %s cannot be used together", installOption, uninstallOption)
	case (g.install || g.uninstall) && l.name != "":
		return globals{}, fmt.Errorf("%s and %s do not take a command", installOption, uninstallOption)
	}
	return g, nil
}

// execute carries out a line and returns the exit code.
func (s *session) execute(l line) int {
	if l.command == nil && l.name != "" {
		var names []string
		for _, c := range allCommands() {
			if !c.internal {
				names = append(names, c.name)
			}
		}
		s.unknown(shells.Program, l.name, names)
		return exitError
	}
	g, err := l.readGlobals()
	if err != nil {
		return s.misused("", err)
	}
	help := g.help || l.asksForHelp()
	switch {
	case g.version:
		fmt.Fprintln(s.streams.Out, versionText())
		return exitDone
	case help && l.command == nil:
		fmt.Fprintln(s.streams.Out, overview())
		return exitDone
	case help:
		io.WriteString(s.streams.Out, l.command.help())
		return exitDone
	case g.install:
		return s.changeShells(shells.Setting.Install, true)
	case g.uninstall:
		return s.changeShells(shells.Setting.Remove, false)
	case l.command == nil:
		fmt.Fprintln(s.streams.Err, overview())
		return exitError
	}
	return l.command.run(s, l.args)
}

// overview returns the help of eltrain itself.
func overview() string {
	var b strings.Builder
	b.WriteString(`Usage: eltrain [global options] <command> [args]

The main commands are listed in the order in which they are used. All *.hcl
files of the current directory together declare what should run.

Main commands:
`)
	list := func(commands []*command) {
		for _, c := range commands {
			if !c.internal {
				fmt.Fprintf(&b, "  %-12s  %s\n", c.name, c.synopsis)
			}
		}
	}
	list(mainCommands())
	b.WriteString("\nAll other commands:\n")
	list(otherCommands())
	b.WriteString(`
Global options (before the command):
  -chdir=DIR    Change to DIR first.
  -help         Show this text, or a command's help.
  -version      Same as the command version.
  -install-autocomplete    Install completion for your shell: bash, zsh or fish.
  -uninstall-autocomplete  Remove it again.

Environment:
  ELTRAIN_VAR_x          Sets the variable x.
  ELTRAIN_CLI_ARGS       Arguments of every command, placed before its own.
  ELTRAIN_CLI_ARGS_plan  The same for one command.
  ELTRAIN_DATA_DIR       Directory of run-time files, instead of .eltrain.
  CI                     If set, and not false: -untrusted is the default.
  ELTRAIN_LOG            debug, info, warn or error: logs on standard error.
  NO_COLOR               No colors, like -no-color.`)
	return b.String()
}

// getenv returns the last value of a variable in the session's environment.
func (s *session) getenv(name string) string {
	for _, pair := range slices.Backward(s.environ) {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// errNoDirectory: Terraform also requires the form -chdir=DIR.
var errNoDirectory = errors.New("the flag needs a directory: write -chdir=DIR")

// changeDirectory applies -chdir=DIR, which must precede the command, and returns args without it.
func changeDirectory(args []string) ([]string, error) {
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			return args, nil // the command's own arguments follow
		}
		dir, ok := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-chdir=")
		if !ok {
			dir, ok = strings.CutPrefix(arg, "-chdir=")
		}
		if !ok {
			if arg == "-chdir" || arg == "--chdir" {
				return nil, errNoDirectory
			}
			continue
		}
		if dir == "" { // probably an unset shell variable: do not take it for the current directory
			return nil, errNoDirectory
		}
		dir, err := filepath.Abs(dir)
		if err == nil {
			err = os.Chdir(dir)
		}
		if err == nil {
			err = os.Setenv("PWD", dir) // the path with its links, which may point elsewhere later
		}
		if err != nil {
			return nil, err
		}
		return slices.Delete(slices.Clone(args), i, i+1), nil
	}
	return args, nil
}

// insertEnvironment puts the arguments of ELTRAIN_CLI_ARGS and ELTRAIN_CLI_ARGS_command right after the
// command, so that those typed come last and win. In a subcommand's variable its space is an underscore. Internal
// commands get none: the arguments are meant for the user's commands, and an agent inherits its master's environment.
func insertEnvironment(args []string, known []*command, getenv func(string) string) ([]string, error) {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	if at < 0 || internal(args, known) {
		return args, nil
	}
	suffix := "_" + args[at]
	if at+1 < len(args) && slices.ContainsFunc(known, func(c *command) bool { return c.name == args[at]+" "+args[at+1] }) {
		at++
		suffix += "_" + args[at]
	}
	var extra []string
	for _, name := range []string{"ELTRAIN_CLI_ARGS", "ELTRAIN_CLI_ARGS" + suffix} {
		words, open := shells.Words(getenv(name))
		if open {
			return nil, fmt.Errorf("%s: %q ends inside quotes or after a backslash", name, getenv(name))
		}
		extra = append(extra, words...)
	}
	return slices.Insert(slices.Clone(args), at+1, extra...), nil
}

// internal reports whether args are those of an internal command.
func internal(args []string, known []*command) bool {
	at := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	return at >= 0 && slices.ContainsFunc(known, func(c *command) bool { return c.internal && c.name == args[at] })
}

// logger writes records of the given level and above as text; nothing if level is empty.
func logger(level string, w io.Writer) (*slog.Logger, error) {
	if level == "" {
		return slog.New(slog.DiscardHandler), nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%q is not a level: write debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// fail shows an error and returns the exit code for it. Lost output is reported only once, at the end: see failIfOutputLost.
func (s *session) fail(summary string, err error) int {
	if errors.As(err, new(*output.LostError)) {
		return exitError
	}
	s.diagnose(view.Problem(summary, view.Explain(err)))
	return exitError
}

// misused shows an error in a command's arguments and returns the exit code for it.
func (s *session) misused(name string, err error) int {
	s.diagnose(view.Problem("Invalid command line", view.Explain(err)+"\n\nFor help, run "+strings.TrimSpace(shells.Program+" "+name)+" -help"))
	return exitError
}

// diagnose shows errors and warnings. An error also releases the warnings held for below the plan: no plan follows.
func (s *session) diagnose(diags ...view.Diagnostic) {
	if len(diags) > 0 && !view.OnlyWarnings(diags) {
		diags = append(s.held(), diags...)
	}
	diags = view.Ordered(s.redactor.Diagnostics(diags))
	if s.stream != nil {
		s.stream.Diagnostics(diags)
	}
	if !s.machine {
		write := view.WriteDiagnostics
		if s.compact && view.OnlyWarnings(diags) {
			write = view.WriteWarnings
		}
		write(s.streams.Err, diags)
	}
}

// held returns the warnings that are not shown yet, and forgets them.
func (s *session) held() []view.Diagnostic {
	warnings := s.later
	s.later = nil
	return warnings
}
