package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programName is the name that completion is installed for, whatever this file is called.
const programName = "eltrain"

// completionLine and completionPoint are the environment variables in which a shell passes what is typed so far, and how
// many characters of it stand before the cursor (bash before 4.2: bytes). Then it asks for what may follow, a line for each.
//
// bash takes the answers as they are for what stands behind the last "=". The settings of other shells set
// completionWhole: those compare whole words, and quote what they insert.
const (
	completionLine  = "COMP_LINE"
	completionPoint = "COMP_POINT"
	completionWhole = "ELTRAIN_COMPLETION_WHOLE"
)

// completionTimeout bounds how long the person waits who pressed Tab: a state may be far away.
const completionTimeout = 2 * time.Second

// complete answers a shell. The line's own -chdir is obeyed, so that addresses and files are those that it is about.
// Whatever is wrong leaves the person without suggestions: they are in the middle of a line.
func (s *session) complete(line string) int {
	s.streams.Err.Writer = io.Discard
	runes := []rune(line)
	if point, err := strconv.Atoi(s.getenv(completionPoint)); err == nil && point >= 0 && point < len(runes) {
		line = string(runes[:point])
	}
	const cursor = "\x00" // no shell has it in a line: the last word is there even if nothing of it is
	words, open := splitWords(line + cursor)
	if len(words) < 2 {
		return exitDone
	}
	before, begun := words[1:len(words)-1], strings.TrimSuffix(words[len(words)-1], cursor)
	if _, err := changeDirectory(before); err != nil {
		return exitDone
	}
	whole := s.getenv(completionWhole) != ""
	prefix := ""
	if option, value, valued := strings.Cut(begun, "="); valued && strings.HasPrefix(option, "-") {
		before, begun = append(before, option), value
		if whole {
			prefix = option + "="
		}
	}
	for _, word := range s.following(before, begun) {
		if !strings.HasPrefix(word, begun) {
			continue
		}
		if !whole && !open {
			word = escaped(word)
		}
		fmt.Fprintln(s.streams.Out, prefix+word)
	}
	return exitDone
}

// escaped is a word with a backslash before each character that means something to bash.
func escaped(word string) string {
	var b strings.Builder
	for _, r := range word {
		if strings.ContainsRune(" \t\\'\"$`*?[]{}()<>|&;!#~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// following is what may stand after the words before, where begun has been typed of it.
func (s *session) following(before []string, begun string) []string {
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
		return predictDirectories(begun)
	}
	for _, c := range slices.Concat(mainCommands(), otherCommands()) {
		if !c.internal {
			all = append(all, c.name)
		}
	}
	options := []string{"-help", "-version", chdirOption + "=", installOption, uninstallOption}
	if strings.HasPrefix(begun, chdirOption[:2]) { // with directories: a shell ends a word that nothing else can be
		for _, dir := range append(predictDirectories(""), "../") {
			options = append(options, chdirOption+"="+dir)
		}
	}
	return append(all, dashed(begun, options)...)
}

// dashed are the options, which are offered to those who have typed a dash.
func dashed(begun string, options []string) []string {
	if strings.HasPrefix(begun, "-") {
		return options
	}
	return nil
}

// usageWords are the words of a usage that stand for something else: those in capital letters.
func usageWords(usage string) []string {
	return strings.FieldsFunc(usage, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// predictor returns the values that start with what was typed, and perhaps others.
type predictor func(begun string) []string

// unpredictable is a value that cannot be completed.
func unpredictable(string) []string { return nil }

// optionsOf are a command's options, and what completes the values of those that have one: that goes by the word that
// stands for the value in -help.
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

// predictors are by the word for a value in usages and in the texts of options.
func (s *session) predictors() map[string]predictor {
	return map[string]predictor{
		"FILE": predictFiles, "PATH": predictFiles, "DIR": predictDirectories,
		"ADDRESS": s.predictAddresses, "SOURCE": s.predictAddresses, "DESTINATION": s.predictAddresses,
	}
}

func predictFiles(begun string) []string {
	return entries(begun, func(bool) bool { return true })
}

func predictDirectories(begun string) []string {
	return entries(begun, func(directory bool) bool { return directory })
}

// entries are those of the directory in which begun is; hidden ones only for those who have typed the dot. A directory
// ends in a slash. One that is the only one comes with what is in it: a shell ends a word that nothing else can be.
func entries(begun string, wanted func(directory bool) bool) []string {
	dir, prefix := filepath.Split(begun)
	listed, _ := os.ReadDir(cmp.Or(dir, "."))
	var all []string
	for _, e := range listed {
		if !strings.HasPrefix(e.Name(), prefix) || prefix == "" && strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := dir + e.Name()
		info, err := os.Stat(path) // where a link leads
		directory := err == nil && info.IsDir()
		if !wanted(directory) {
			continue
		}
		if directory {
			path += "/"
		}
		all = append(all, path)
	}
	if len(all) == 1 && strings.HasSuffix(all[0], "/") && all[0] != begun {
		return append(all, entries(all[0], wanted)...)
	}
	return all
}

// predictAddresses are the addresses of what is in the state: the jobs, and once one is typed its roles, and once one
// of those is its slots. So a job of 10,000 slots does not fill the screen.
func (s *session) predictAddresses(begun string) []string {
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
