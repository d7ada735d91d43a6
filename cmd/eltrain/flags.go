package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mitchellh/go-wordwrap"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/lang"
)

// flags is the standard library's flag set: it takes -x and --x, as Terraform does. The name in
// backquotes in a flag's usage is the placeholder of its value in -help.
type flags struct {
	*flag.FlagSet
	noColor bool
	rest    *[]string              // gets what follows "--", which is else positional; nil if there is no "--"
	parsed  []func(*session) error // called, in order, once all flags are parsed
}

func newFlags(name string, declare func(*flags)) *flags {
	fs := &flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	fs.SetOutput(io.Discard) // errors are shown as diagnostics, usage by -help
	declare(fs)
	fs.BoolVar(&fs.noColor, "no-color", false, "No colors in the output.")
	return fs
}

// parse reads a command's flags, which may come before and after positional arguments, and returns the latter, at most want
// of them.
func (s *session) parse(fs *flags, args []string, want int) ([]string, error) {
	var others []string
	if at := slices.Index(args, "--"); at >= 0 && fs.rest != nil {
		args, *fs.rest = args[:at], args[at+1:]
	}
	for {
		if err := fs.Parse(args); err != nil {
			return nil, hinted(err, fs)
		}
		rest := fs.Args()
		if len(rest) == 0 {
			break
		}
		if consumed := len(args) - len(rest); consumed > 0 && args[consumed-1] == "--" {
			others = append(others, rest...)
			break
		}
		others, args = append(others, rest[0]), rest[1:]
	}
	if len(others) > want {
		return nil, fmt.Errorf("too many arguments: %q is not expected here", others[want])
	}
	if fs.noColor {
		s.streams.Out.Colour, s.streams.Err.Colour = false, false
	}
	for _, use := range fs.parsed {
		if err := use(s); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// arguments are what a command takes from its command line.
type arguments interface {
	// declare declares the flags.
	declare(*flags)
	// take takes the positional arguments, which do not exceed the command's maximum, and checks all that was given.
	take(s *session, others []string) error
}

// noOperands is embedded by arguments that are flags alone.
type noOperands struct{}

func (noOperands) take(*session, []string) error { return nil }

// taking completes a command that takes arguments, of which most are positional at most, and then runs.
func taking[T any, A interface {
	*T
	arguments
}](c command, most int, run func(*session, A) int) *command {
	return takingFrom(c, most, func() A { return A(new(T)) }, run)
}

// takingFrom is taking for arguments that are not blank at first.
func takingFrom[A arguments](c command, most int, blank func() A, run func(*session, A) int) *command {
	c.declare = blank().declare
	c.run = func(s *session, args []string) int {
		a := blank()
		if err := s.take(c.name, a, args, most); err != nil {
			return s.misused(c.name, err)
		}
		return run(s, a)
	}
	return &c
}

// explainer are arguments that know what an error of parsing them may come from.
type explainer interface {
	// explain gets what was given, up to "--".
	explain(err error, args []string) error
}

// take parses a command's arguments.
func (s *session) take(name string, a arguments, args []string, most int) error {
	others, err := s.parse(newFlags(name, a.declare), args, most)
	if err != nil {
		if e, is := a.(explainer); is {
			if at := slices.Index(args, "--"); at >= 0 {
				args = args[:at]
			}
			err = e.explain(err, args)
		}
		return err
	}
	return a.take(s, others)
}

// waitVar declares an option for a maximum wait; 0 if it is not given.
func (fs *flags) waitVar(to *time.Duration, name, usage string) {
	fs.Var((*wait)(to), name, usage)
}

// momentVar declares an option for a time: one that has a date, or how long ago; zero if it is not given.
func (fs *flags) momentVar(to *time.Time, name, usage string) {
	fs.Func(name, usage, func(text string) error {
		if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
			*to = time.Now().Add(-ago)
			return nil
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("write how long ago that was, a duration with its unit such as 30m or 2h, or a time such as 2026-12-01T08:00:00Z")
		}
		*to = at
		return nil
	})
}

// addressVar declares an option for an address to listen on; "" if it is not given.
func (fs *flags) addressVar(to *string, name, usage string) {
	fs.Func(name, usage, func(text string) error {
		_, port, err := net.SplitHostPort(text)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return errors.New("write an optional host and a port from 0 to 65535, such as 127.0.0.1:7000 or :7000")
		}
		*to = text
		return nil
	})
}

// wait is a maximum wait: a duration with its unit, not negative.
type wait time.Duration

func (w *wait) String() string { return time.Duration(*w).String() }

func (w *wait) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("write a duration with its unit, such as 30s or 5m, from 0s")
	}
	*w = wait(d)
	return nil
}

// hinted rewrites the flag package's error, with the option that was perhaps meant.
func hinted(err error, fs *flags) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		var names []string
		fs.VisitAll(func(f *flag.Flag) { names = append(names, "-"+f.Name) })
		return fmt.Errorf("unknown flag -%s%s", name, view.DidYouMean("-"+name, names))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		value, _ := flag.UnquoteUsage(fs.Lookup(name))
		return fmt.Errorf("the flag -%s needs a value: write -%s=%s", name, name, value)
	}
	if typed, ok := strings.CutPrefix(text, "bad flag syntax: "); ok {
		return fmt.Errorf("%s is not a flag", typed)
	}
	wrong := wrongValue.FindStringSubmatch(text)
	if wrong == nil {
		return err
	}
	typed, name, why := wrong[1], wrong[2], wrong[3]
	if f := fs.Lookup(name); f != nil {
		why = expected(f, why)
	}
	return fmt.Errorf("invalid value %s for -%s: %s", typed, name, why)
}

// wrongValue matches the flag package's errors about a value: the quoted value, the option's name, and the reason.
var wrongValue = regexp.MustCompile(`(?s)^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-([^:]+): (.*)$`)

// expected replaces the flag package's "parse error" for a value of a built-in type by what to write. Our own types' errors
// already say that.
func expected(f *flag.Flag, why string) string {
	own, ok := f.Value.(flag.Getter)
	if !ok {
		return why
	}
	switch own.Get().(type) {
	case bool:
		return "write true or false"
	case int:
		return "write a whole number"
	}
	return why
}

// helpWidth is where help texts are wrapped, and helpColumn where descriptions of options begin.
const (
	helpWidth  = 78
	helpColumn = 24
)

// help is the whole text of -help.
func (c *command) help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: eltrain [global options] %s\n\n", strings.TrimSpace(c.name+" "+c.usage))
	for paragraph := range strings.SplitSeq(strings.TrimSpace(c.about), "\n\n") {
		b.WriteString(indent(wordwrap.WrapString(strings.Join(strings.Fields(paragraph), " "), helpWidth-2), 2) + "\n\n")
	}
	if c.subcommands != nil {
		b.WriteString("Subcommands:\n")
		for _, sub := range c.subcommands {
			fmt.Fprintf(&b, "    %-*s    %s\n", longestName(c.subcommands), sub.last(), sub.synopsis)
		}
		return b.String()
	}
	b.WriteString("Options:\n")
	if c.options != nil {
		b.WriteString(c.options())
	} else {
		newFlags(c.name, c.declare).VisitAll(func(f *flag.Flag) {
			b.WriteString("\n" + describe(f))
		})
	}
	b.WriteString("\nExit codes:\n")
	for code, meaning := range c.exitCodes() {
		b.WriteString("\n" + entry(fmt.Sprintf("  %d", code), meaning))
	}
	return b.String()
}

// exitCodes returns the meaning of a command's exit codes, from 0 on.
func (c *command) exitCodes() []string {
	if c.exits == nil {
		return []string{"Done.", "An error, which is shown."}
	}
	return c.exits
}

func longestName(subcommands []*command) int {
	longest := 0
	for _, sub := range subcommands {
		longest = max(longest, len(sub.last()))
	}
	return longest
}

func describe(f *flag.Flag) string {
	value, usage := flag.UnquoteUsage(f)
	head := "  -" + f.Name
	switch {
	case !isBool(f):
		head += "=" + value
	case f.DefValue == "true":
		head += "=false"
	}
	return entry(head, usage)
}

// entry formats one line of help: head left of the column, meaning right of it.
func entry(head, meaning string) string {
	text := indent(wordwrap.WrapString(meaning, helpWidth-helpColumn), helpColumn) + "\n"
	if len(head) >= helpColumn-1 {
		return head + "\n" + text
	}
	return head + text[len(head):]
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// asksNothing is -input of a command that never prompts: it accepts -input=false, for scripts, and rejects -input=true.
type asksNothing struct{}

func (asksNothing) String() string   { return "true" } // Terraform's default, so that -help shows -input=false
func (asksNothing) IsBoolFlag() bool { return true }

func (asksNothing) Set(text string) error {
	if ask, err := strconv.ParseBool(text); err != nil || ask {
		return errors.New("write -input=false: this command never prompts")
	}
	return nil
}

func indent(text string, by int) string {
	pad := strings.Repeat(" ", by)
	return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
}

// assignments are -var and -var-file in the order in which they were given.
type assignments []lang.Assignment

func (a *assignments) declare(fs *flags) {
	fs.Func("var", "Set a variable: `NAME=VALUE`. Can be repeated; the last one wins, also over -var-file.", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return errors.New("NAME= is missing: write -var=NAME=VALUE")
		}
		*a = append(*a, lang.Assignment{From: "-var", Name: name, Value: value})
		return nil
	})
	fs.Func("var-file", "Set variables from `FILE`, in addition to eltrain.vars and *.auto.vars.", func(file string) error {
		if file == "" {
			return errors.New("write -var-file=FILE")
		}
		*a = append(*a, lang.Assignment{File: file})
		return nil
	})
}
