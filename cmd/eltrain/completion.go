package main

import (
	"context"
	"flag"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posener/complete"
)

// programName is the name that completion is installed for, whatever this file is called.
const programName = "eltrain"

// The global options that change the user's shell, as Terraform's do.
const (
	installFlag   = "install-autocomplete"
	uninstallFlag = "uninstall-autocomplete"
)

// completionLine is the environment variable in which a shell gives what is typed so far, and asks for what may follow.
const completionLine = "COMP_LINE"

// completionTimeout bounds how long the person waits who pressed Tab: a state may be far away.
const completionTimeout = 2 * time.Second

// complete answers a shell. The line's own -chdir is obeyed, so that addresses and files are those that it is about.
// Whatever is wrong leaves the person without suggestions: they are in the middle of a line.
func (s *session) complete(line string) int {
	s.streams.Err.Writer = io.Discard
	words := strings.Fields(line)
	if len(words) == 0 {
		return exitDone
	}
	if _, err := changeDirectory(words[1:]); err != nil {
		return exitDone
	}
	if _, err := s.app(allCommands()).Run(); err != nil {
		return exitError
	}
	return exitDone
}

// installs tells whether a command line begins with what changes the user's shell: a command's own option of that name
// is none of ours.
func installs(args []string) bool {
	if len(args) == 0 {
		return false
	}
	name := strings.TrimLeft(args[0], "-")
	return args[0] != name && (name == installFlag || name == uninstallFlag)
}

// AutocompleteArgs completes what follows a command by the words of its usage.
func (b bound) AutocompleteArgs() complete.Predictor {
	var all []complete.Predictor
	for word, values := range b.s.predictors() {
		if slices.Contains(usageWords(b.usage), word) {
			all = append(all, values)
		}
	}
	if len(all) == 0 {
		return complete.PredictNothing
	}
	return complete.PredictOr(all...)
}

// usageWords are the words of a usage that stand for something else: those in capital letters.
func usageWords(usage string) []string {
	return strings.FieldsFunc(usage, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// AutocompleteFlags completes a command's options, and their values by the word that stands for them in -help.
func (b bound) AutocompleteFlags() complete.Flags {
	out := complete.Flags{"-help": complete.PredictNothing}
	if b.declare == nil {
		return out
	}
	known := b.s.predictors()
	newFlags(b.name, b.declare).VisitAll(func(f *flag.Flag) {
		word, _ := flag.UnquoteUsage(f)
		switch values, named := known[word]; {
		case isBool(f):
			out["-"+f.Name] = complete.PredictNothing
		case named:
			out["-"+f.Name] = values
		default:
			out["-"+f.Name] = complete.PredictAnything
		}
	})
	return out
}

// predictors are by the word for a value in usages and in the texts of options.
func (s *session) predictors() map[string]complete.Predictor {
	files, addresses := complete.PredictFiles("*"), complete.PredictFunc(s.predictAddresses)
	return map[string]complete.Predictor{
		"FILE": files, "PATH": files, "DIR": complete.PredictDirs("*"),
		"ADDRESS": addresses, "SOURCE": addresses, "DESTINATION": addresses,
	}
}

// predictAddresses are the addresses of what is in the state: the jobs, and once one is typed its roles, and once one
// of those is its slots. So a job of 10,000 slots does not fill the screen.
func (s *session) predictAddresses(a complete.Args) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	d, ok := s.openState(s.readAnyway(nil))
	if !ok {
		return nil
	}
	records, err := d.records(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(records)) {
		address := "job." + name
		out = append(out, address)
		if !strings.HasPrefix(a.Last, address) {
			continue
		}
		for i := range records[name].Spec.Roles {
			role := address + "." + records[name].Spec.Roles[i].Name
			out = append(out, role)
			if !strings.HasPrefix(a.Last, role) {
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
