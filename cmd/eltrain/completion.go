package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/cmd/shells"
	"github.com/eltrain/eltrain/state"
)

// completionLine and completionPoint are the environment variables in which a shell passes the typed line and the number of
// characters before the cursor (bash before 4.2: bytes). It expects one completion per line. bash replaces only the part after the
// last "=" and inserts completions verbatim; other shells set shells.Whole.
const (
	completionLine  = "COMP_LINE"
	completionPoint = "COMP_POINT"
)

// completionTimeout bounds the wait after Tab: the state may be remote.
const completionTimeout = 2 * time.Second

// complete answers a shell's completion request. It applies the line's own -chdir, so that addresses and files are those
// of that directory. On any error there are no completions and no message: the user is in the middle of a line.
func (s *session) complete(line string) int {
	s.streams.Err.Writer = io.Discard
	runes := []rune(line)
	if point, err := strconv.Atoi(s.getenv(completionPoint)); err == nil && point >= 0 && point < len(runes) {
		line = string(runes[:point])
	}
	const cursor = "\x00" // never occurs in a line; makes an empty last word count as a word
	words, open := shells.Words(line + cursor)
	if len(words) < 2 {
		return exitDone
	}
	before, begun := words[1:len(words)-1], strings.TrimSuffix(words[len(words)-1], cursor)
	if _, err := changeDirectory(before); err != nil {
		return exitDone
	}
	whole := s.getenv(shells.Whole) != ""
	prefix := ""
	if option, value, valued := strings.Cut(begun, "="); valued && strings.HasPrefix(option, "-") {
		before, begun = append(before, option), value
		if whole {
			prefix = option + "="
		}
	}
	for _, word := range s.candidates(before, begun) {
		if !strings.HasPrefix(word, begun) {
			continue
		}
		if !whole && !open {
			word = shells.Escaped(word)
		}
		fmt.Fprintln(s.streams.Out, prefix+word)
	}
	return exitDone
}

// candidates returns the candidates for the word after before, of which begun has been typed.
func (s *session) candidates(before []string, begun string) []string {
	var all []string
	l := readLine(before, allCommands())
	if l.command != nil && !l.command.internal {
		options := s.optionsOf(l.command)
		if len(l.args) > 0 {
			if values := options["-"+strings.TrimLeft(l.args[len(l.args)-1], "-")]; values != nil {
				return values(begun)
			}
		}
		for _, sub := range l.command.subcommands {
			all = append(all, sub.last())
		}
		known := s.predictors()
		for _, word := range usageWords(l.command.usage) {
			if values := known[word]; values != nil {
				all = append(all, values(begun)...)
			}
		}
		return append(all, dashed(begun, slices.Sorted(maps.Keys(options)))...)
	}
	if n := len(l.global); l.command == nil && n > 0 && "-"+strings.TrimLeft(l.global[n-1], "-") == chdirOption {
		return shells.Directories(begun)
	}
	for _, c := range slices.Concat(mainCommands(), otherCommands()) {
		if !c.internal {
			all = append(all, c.name)
		}
	}
	options := []string{"-help", "-version", chdirOption + "=", installOption, uninstallOption}
	if strings.HasPrefix(begun, chdirOption[:2]) { // with directories: a shell adds a space after the only candidate
		for _, dir := range append(shells.Directories(""), "../") {
			options = append(options, chdirOption+"="+dir)
		}
	}
	return append(all, dashed(begun, options)...)
}

// dashed returns the options once a dash has been typed.
func dashed(begun string, options []string) []string {
	if strings.HasPrefix(begun, "-") {
		return options
	}
	return nil
}

// usageWords returns the placeholders of a usage: the words in capital letters.
func usageWords(usage string) []string {
	return strings.FieldsFunc(usage, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// predictor returns the values that start with begun; it may return others too.
type predictor func(begun string) []string

// unpredictable is the predictor of a value that cannot be completed.
func unpredictable(string) []string { return nil }

// optionsOf returns a command's options, each with the predictor of its value, which is chosen by the value's placeholder in
// -help. The predictor is nil for an option without a value.
func (s *session) optionsOf(c *command) map[string]predictor {
	out := map[string]predictor{"-help": nil}
	if c.declare == nil {
		return out
	}
	known := s.predictors()
	newFlags(c.name, c.declare).VisitAll(func(f *flag.Flag) {
		word, _ := flag.UnquoteUsage(f)
		values := known[word]
		switch {
		case isBool(f):
			values = nil
		case values == nil:
			values = unpredictable
		}
		out["-"+f.Name] = values
	})
	return out
}

// predictors are by the placeholder for a value in usages and option texts.
func (s *session) predictors() map[string]predictor {
	return map[string]predictor{
		"FILE": shells.Files, "PATH": shells.Files, "DIR": shells.Directories, "JOURNAL": shells.Directories,
		"ADDRESS": s.predictAddresses, "SOURCE": s.predictAddresses, "DESTINATION": s.predictAddresses,
		"NAME": s.predictOutputs, "SIGNAL": predictSignals, "NODE": s.predictNodes,
	}
}

// lastSignal is the last of the signals with a name; real-time ones follow.
const lastSignal = 31

// predictSignals returns the names of signals; without SIG unless that is typed.
func predictSignals(begun string) (names []string) {
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		name := unix.SignalName(n)
		if !strings.HasPrefix(begun, "SIG") {
			name = strings.TrimPrefix(name, "SIG")
		}
		names = append(names, name)
	}
	return names
}

// predictAddresses returns the addresses of the state's jobs; of a job's roles once the job is typed, and of a role's slots
// once the role is. So a job of 10,000 slots does not fill the screen.
func (s *session) predictAddresses(begun string) []string {
	records := s.storedNow().Jobs
	var out []string
	for _, name := range slices.Sorted(maps.Keys(records)) {
		address := "job." + name
		out = append(out, address)
		if !strings.HasPrefix(begun, address) {
			continue
		}
		for i := range records[name].Spec.Roles {
			role := address + "." + records[name].Spec.Roles[i].Name
			out = append(out, role)
			if !strings.HasPrefix(begun, role) {
				continue
			}
			for k := range records[name].Slots {
				if slot := records[name].Slots[k].Address.String(); strings.HasPrefix(slot, role+"[") {
					out = append(out, slot)
				}
			}
		}
	}
	return out
}

// predictOutputs returns the names of the state's outputs.
func (s *session) predictOutputs(string) []string {
	return slices.Sorted(maps.Keys(s.storedNow().Outputs))
}

// predictNodes returns the names of the nodes that the state knows.
func (s *session) predictNodes(string) []string {
	stored, names := s.storedNow(), map[string]bool{}
	for _, n := range stored.Nodes {
		names[n.Name] = true
	}
	for _, rec := range stored.Jobs {
		for i := range rec.Slots {
			if node := rec.Slots[i].Node; node != "" {
				names[node] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// storedNow returns the state, or an empty one if it cannot be read in time.
func (s *session) storedNow() (stored state.State) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if d, ok := s.openState(s.dir.ReadAnyway(nil)); ok {
		stored, _ = d.Store.Read(ctx)
	}
	return stored
}

// The global options that change the user's shells, as Terraform's do.
const (
	installOption   = "-install-autocomplete"
	uninstallOption = "-uninstall-autocomplete"
)

// changeShells changes the settings of each of the user's shells, and lists the changed files.
func (s *session) changeShells(change func(shells.Setting) (changed bool, err error), installs bool) int {
	defer s.outlive()()
	program, err := os.Executable()
	var all []shells.Setting
	if err == nil {
		all, err = shells.Settings(program, s.getenv)
	}
	if err == nil && len(all) == 0 && installs {
		err = fmt.Errorf("no settings of bash, zsh or fish found in %s", s.getenv("HOME"))
	}
	changed := false
	for _, shell := range all {
		does, failed := change(shell)
		if does {
			fmt.Fprintf(s.streams.Out, "Changed %s.\n", shell.File)
		}
		changed, err = changed || does, errors.Join(err, failed)
	}
	if err != nil {
		return s.fail("Cannot change the shell's settings", err)
	}
	if !changed {
		fmt.Fprintln(s.streams.Out, "Nothing to change.")
		return exitDone
	}
	fmt.Fprintln(s.streams.Out, "The next shell that starts uses it.")
	return exitDone
}
