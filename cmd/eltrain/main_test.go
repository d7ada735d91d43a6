package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/preview"
	"github.com/eltrain/eltrain/cmd/terminal"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/memory"
)

// binary is the path of eltrain, built once for all tests that run it as a user does.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workspace.ChildName { // of a session in this process
		main()
	}
	flag.Parse()
	// Tests that run eltrain as a user does wait far more than they work, so more than the cores is fine.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eltrain-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "eltrain")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build eltrain: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// screenless is a session in memory.
type screenless struct {
	session
	out, err bytes.Buffer
	exits    []int
}

// What is intended.
var (
	destroying = preview.Intent{Intent: apply.Intent{Destroy: true}}
	watching   = preview.Intent{Intent: apply.Intent{Watch: true}}
)

func newScreenless(input string, environ ...string) *screenless {
	s := new(screenless)
	s.streams = &view.Streams{In: strings.NewReader(input), Out: view.Screen{Writer: &s.out, Width: 78}, Err: view.Screen{Writer: &s.err, Width: 78}}
	s.environ = environ
	s.exit = func(code int) { s.exits = append(s.exits, code) }
	return s
}

// parsed parses a command's arguments, of which most are positional at most.
func parsed[T any, A interface {
	*T
	arguments
}](s *session, most int, args []string) (T, error) {
	var a T
	err := s.take("", A(&a), args, most)
	return a, err
}

func TestParseApply(t *testing.T) {
	cases := []struct {
		args string
		want func(*applyArgs)
		err  string
	}{
		{args: "-auto-approve"},
		{args: "--auto-approve"},
		{args: "-auto-approve -parallelism=3 -listen=127.0.0.1:7000", want: func(a *applyArgs) { a.parallelism, a.listen = 3, "127.0.0.1:7000" }},
		{args: "-watch -prune=false -auto-approve -lock-timeout=30s", want: func(a *applyArgs) {
			a.Watch, a.prune, a.Keep, a.Rerun, a.lockTimeout = true, false, true, false, 30*time.Second
		}},
		{args: "-destroy -auto-approve", want: func(a *applyArgs) { a.Destroy, a.Rerun = true, false }},
		{args: "", want: func(a *applyArgs) { a.autoApprove = false }},
		{args: "-auto-approve -prune=false -destroy", err: "cannot be used"},
		{args: "-auto-approve -prune=false -refresh-only", err: "-refresh-only"},
		{args: "-input=false", err: "-input=false cannot prompt"},
		{args: "-auto-approve -watch -destroy", err: "cannot be used"},
		{args: "-auto-approve -parallelism=0"},
		{args: "-auto-approve -parallelism=-1", err: "from 1"},
		{args: "-auto-approve -paralelism=2", err: `Did you mean "-parallelism"?`},
		{args: "-auto-approve plan extra", err: `"extra" is not expected`},
		{args: "-auto-approve -lock-timeout=30", err: "-lock-timeout: write a duration with its unit, such as 30s"},
		{args: "-auto-approve -lock-timeout=-5s", err: "-lock-timeout: write a duration with its unit, such as 30s"},
		{args: "-auto-approve -json -json-into=f", err: "-json and -json-into cannot be used together"},
		{args: "-json -json-into=f p", err: "-json and -json-into cannot be used together"},
	}
	for _, c := range cases {
		got, err := parsed[applyArgs](&newScreenless("").session, 1, strings.Fields(c.args))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("apply %s: error %v, want one with %q", c.args, err, c.err)
			}
			continue
		}
		want := applyArgs{planning: planning{Intent: preview.Intent{Intent: apply.Intent{Rerun: true}}, observes: true}, autoApprove: true, input: true, prune: true}
		if c.want != nil {
			c.want(&want)
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("apply %s:\n got %+v, %v\nwant %+v", c.args, got, err, want)
		}
	}
}

func TestParseDestroyIsApplyDestroy(t *testing.T) {
	a, err := parsed[destroyArgs](&newScreenless("").session, 0, []string{"-auto-approve"})
	if err != nil || !a.Destroy || a.operation() != "destroy" {
		t.Errorf("destroy gives %+v, %v", a, err)
	}
	if _, err := parsed[destroyArgs](&newScreenless("").session, 0, []string{"-auto-approve", "-watch"}); err == nil {
		t.Error("destroy takes -watch")
	}
}

// A plan never prompts: -input=false is accepted, for scripts, and -input=true is an error.
func TestParsePlan(t *testing.T) {
	for args, want := range map[string]string{
		"-input=false":           "",
		"-input=0":               "",
		"-input=true":            "never prompts",
		"-input":                 "never prompts",
		"-json -json-into=f":     "-json and -json-into cannot be used together",
		"-json -markdown":        "-json and -markdown cannot be used together",
		"-markdown -json-into=f": "",
		"-prune=false":           "",
		"-prune=false -destroy":  "cannot be used",
		"-lock-timeout=abc":      "as 30s",
	} {
		_, err := parsed[planArgs](&newScreenless("").session, 0, strings.Fields(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("plan %s: %v, want %q", args, err, want)
		}
	}
	if _, err := parsed[destroyArgs](&newScreenless("").session, 0, strings.Fields("-auto-approve -json -json-into=f")); err == nil {
		t.Error("destroy takes -json with -json-into")
	}
}

func TestParseKeepsTheOrderOfAssignments(t *testing.T) {
	var a planArgs
	args := []string{"-var", "a=1", "-var-file=x.vars", "--var=a=b=c", "-var", "empty="}
	if _, err := new(session).parse(newFlags("plan", a.declare), args, 0); err != nil {
		t.Fatal(err)
	}
	want := assignments{{From: "-var", Name: "a", Value: "1"}, {File: "x.vars"}, {From: "-var", Name: "a", Value: "b=c"}, {From: "-var", Name: "empty"}}
	if !slices.Equal(a.vars, want) {
		t.Errorf("got %+v, want %+v", a.vars, want)
	}
	for _, bad := range []string{"-var=novalue", "-var==x", "-var-file="} {
		if _, err := new(session).parse(newFlags("plan", new(planArgs).declare), []string{bad}, 0); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestParseLogs(t *testing.T) {
	for _, c := range []struct {
		args, want, err string
	}{
		{"job.a", "job.a false -1 -1", ""},
		{"-f -tail=5 job.a.w[0-3]", "job.a.w[0-3] true -1 5", ""},
		{"job.a.w -f -rank 2", "job.a.w true 2 -1", ""},
		{"-- job.a", "job.a false -1 -1", ""},
		{"", " false -1 -1", ""},
		{"a.w", "", `does not begin with "job."`},
		{"job.a job.b", "", "not expected"},
		{"-tail=-1 job.a", "", "from 0"},
		{"-rank=-1 job.a", "", "from 0"},
		{"-tail=some job.a", "", "from 0"},
		{"-tail=0 job.a", "job.a false -1 0", ""},
	} {
		a, err := parsed[logsArgs](new(session), 1, strings.Fields(c.args))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("logs %s: error %v, want one with %q", c.args, err, c.err)
			}
			continue
		}
		if got := fmt.Sprint(a.selector, a.follow, a.rank, a.tail); err != nil || got != c.want {
			t.Errorf("logs %s: %s, %v; want %s", c.args, got, err, c.want)
		}
	}
}

func TestParseFmt(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ". check=false diff=false recursive=false write=true list=true"},
		{"-check dir", "dir check=true diff=false recursive=false write=false list=true"},
		{"-diff -recursive -write=false -list=false -", "- check=false diff=true recursive=true write=false list=false"},
	} {
		a, err := parsed[fmtArgs](new(session), 1, strings.Fields(c.args))
		got := fmt.Sprintf("%s check=%t diff=%t recursive=%t write=%t list=%t", a.target, a.Check, a.Diff, a.Recursive, a.Write, a.List)
		if err != nil || got != c.want {
			t.Errorf("fmt %s: %s, %v; want %s", c.args, got, err, c.want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	a, err := parsed[statusArgs](new(session), manyArguments, []string{"-json", "job.a.w[*]", "-watch", "job.b"})
	if err != nil || !a.json || !a.watch || len(a.selectors) != 2 || a.selectors[0].String() != "job.a.w" || a.selectors[1].String() != "job.b" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := parsed[statusArgs](new(session), manyArguments, []string{"nonsense"}); err == nil {
		t.Error("an address that is none is accepted")
	}
}

func TestNoColorTurnsColoursOff(t *testing.T) {
	s := newScreenless("")
	s.streams.Out.Colour, s.streams.Err.Colour = true, true
	if _, err := s.parse(newFlags("plan", new(planArgs).declare), []string{"-no-color"}, 0); err != nil {
		t.Fatal(err)
	}
	if s.streams.Out.Colour || s.streams.Err.Colour {
		t.Error("-no-color leaves colours on")
	}
}

func TestInsertEnvironment(t *testing.T) {
	getenv := func(name string) string {
		return map[string]string{"ELTRAIN_CLI_ARGS": "-no-color", "ELTRAIN_CLI_ARGS_plan": "-var 'a=b c'"}[name]
	}
	for _, c := range []struct{ in, want []string }{
		{[]string{"plan", "-destroy"}, []string{"plan", "-no-color", "-var", "a=b c", "-destroy"}},
		{[]string{"validate"}, []string{"validate", "-no-color"}},
		{[]string{"-help"}, []string{"-help"}},
		{[]string{"agent", "--", "plan"}, []string{"agent", "--", "plan"}},
		{nil, nil},
	} {
		got, err := insertEnvironment(c.in, otherCommands(), getenv)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q becomes %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestChangeDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		rest string
		dir  string
		bad  bool
	}{
		{args: "-chdir=" + dir + " plan -x", rest: "plan -x", dir: dir},
		{args: "--chdir=" + dir + " plan", rest: "plan", dir: dir},
		{args: "plan -chdir=" + dir, rest: "plan -chdir=" + dir},
		{args: "-chdir plan", bad: true},
		{args: "-chdir= destroy -auto-approve", bad: true},
		{args: "--chdir= plan", bad: true},
		{args: "-chdir=" + dir + "/missing plan", bad: true},
	} {
		t.Chdir(os.TempDir())
		rest, err := changeDirectory(strings.Fields(c.args))
		if c.bad {
			if err == nil {
				t.Errorf("%s is accepted", c.args)
			}
			continue
		}
		at, _ := os.Getwd()
		if err != nil || strings.Join(rest, " ") != c.rest || c.dir != "" && at != c.dir || c.dir == "" && at == dir {
			t.Errorf("%s leaves %q in %s, %v", c.args, rest, at, err)
		}
	}
}

func TestSentence(t *testing.T) {
	for in, want := range map[string]string{
		"there is none":      "There is none.",
		"open x: no file":    "Open x: no file.",
		"-parallelism is":    "-parallelism is.",
		"eltrain.state is":   "eltrain.state is.",
		"Is it?":             "Is it?",
		"now run:\n  cp a b": "Now run:\n  cp a b",
		"one\ntwo":           "One\ntwo.",
	} {
		if got := view.Explain(errors.New(in)); got != want {
			t.Errorf("sentence(%q) is %q, want %q", in, got, want)
		}
	}
}

// Every command's help has the same form: usage, what it does, each option with a sentence. A command with exit codes other than
// 0 and 1, or with special meanings of them, documents them.
func TestHelpIsComplete(t *testing.T) {
	for _, c := range allCommands() {
		help := c.help()
		usage, rest, _ := strings.Cut(help, "\n\n")
		if usage != "Usage: eltrain [global options] "+c.name+" "+c.usage {
			t.Errorf("%s: the usage is %q", c.name, usage)
		}
		if about, _, _ := strings.Cut(rest, "\n\n"); !strings.HasPrefix(about, "  ") || !strings.ContainsAny(about[len(about)-1:], ".:") || c.about != strings.TrimSpace(c.about) {
			t.Errorf("%s: what it does is %q", c.name, about)
		}
		if c.synopsis == "" || len(c.synopsis) > 50 || strings.HasSuffix(c.synopsis, ".") || !unicode.IsUpper([]rune(c.synopsis)[0]) {
			t.Errorf("%s: the synopsis is %q", c.name, c.synopsis)
		}
		if listed := strings.Contains(overview(), "  "+c.name+" "); listed == (c.internal || strings.Contains(c.name, " ")) {
			t.Errorf("%s: listed is %t", c.name, listed)
		}
		for line := range strings.SplitSeq(help, "\n") {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s: a line of the help is longer than 80 columns: %s", c.name, line)
			}
		}
		if c.subcommands != nil {
			continue
		}
		if !strings.Contains(help, "\n\nOptions:\n\n  -") {
			t.Errorf("%s: the help lists no options", c.name)
		}
		optionsOf(c).VisitAll(func(f *flag.Flag) {
			if !strings.Contains(help, "\n  -"+f.Name) {
				t.Errorf("%s: -%s is not described", c.name, f.Name)
			}
			if f.Usage == "" || !unicode.IsUpper([]rune(f.Usage)[0]) && f.Usage[0] != '`' || !strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s: the text of -%s is not a sentence: %q", c.name, f.Name, f.Usage)
			}
			if value, _ := flag.UnquoteUsage(f); !isBool(f) && value != strings.ToUpper(value) {
				t.Errorf("%s: the value of -%s is called %q: put a word in capitals into backquotes", c.name, f.Name, value)
			}
		})
	}
}

func optionsOf(c *command) *flag.FlagSet {
	if c.declare != nil {
		return newFlags(c.name, c.declare).FlagSet
	}
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	new(job.AgentConfig).Declare(fs)
	return fs
}

// Every command without subcommands lists its exit codes, each with a sentence: the common 0 and 1, and its own.
func TestHelpTellsOfExitCodes(t *testing.T) {
	more := map[string]int{"plan": exitChanges, "apply": exitChanges, "fmt": exitUnclean, "replay": exitDiffers}
	for _, c := range allCommands() {
		if c.subcommands != nil {
			if c.exits != nil {
				t.Errorf("%s does nothing itself, and has exit codes", c.name)
			}
			continue
		}
		_, list, found := strings.Cut(c.help(), "\n\nExit codes:\n")
		if !found {
			t.Errorf("the help of %s lists no exit codes:\n%s", c.name, c.help())
			continue
		}
		if highest := max(exitError, more[c.name]); len(c.exitCodes()) != highest+1 {
			t.Errorf("%s lists %d exit codes, and has those from 0 to %d:%s", c.name, len(c.exitCodes()), highest, list)
		}
		for code, meaning := range c.exitCodes() {
			if !unicode.IsUpper([]rune(meaning)[0]) || !strings.HasSuffix(meaning, ".") {
				t.Errorf("%s: the meaning of exit code %d is not a sentence: %q", c.name, code, meaning)
			}
			if line := fmt.Sprintf("\n  %-*d%s", helpColumn-2, code, strings.Fields(meaning)[0]); !strings.Contains(list, line) {
				t.Errorf("%s: exit code %d is not listed like the others:%s", c.name, code, list)
			}
		}
	}
}

// For every command an unknown option is an error that points to its help, and -help succeeds.
func TestEveryCommandKnowsItsHelp(t *testing.T) {
	jobDir(t, "")
	for _, c := range allCommands() {
		args := strings.Fields(c.name)
		s := newScreenless("")
		if code := s.run(append(slices.Clone(args), "-help")); code != exitDone || !strings.Contains(s.out.String(), "Usage: eltrain [global options] "+c.name) || s.err.Len() > 0 {
			t.Errorf("%s -help: exit code %d\n%s%s", c.name, code, &s.out, &s.err)
		}
		if c.subcommands != nil || c.internal {
			continue
		}
		s = newScreenless("")
		if code := s.run(append(slices.Clone(args), "-nonsense")); code != exitError || !strings.Contains(s.err.String(), "Unknown flag -nonsense") || !strings.Contains(s.err.String(), "eltrain "+c.name+" -help") {
			t.Errorf("%s -nonsense: exit code %d\n%s%s", c.name, code, &s.out, &s.err)
		}
	}
}

func TestAgentHelpListsItsFlags(t *testing.T) {
	if help := agentCommand().help(); !strings.Contains(help, "-incarnation") || !strings.Contains(help, "-token-file") {
		t.Errorf("the agent's help is\n%s", help)
	}
}

func TestNoAnswerIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, q := range []terminal.Question{applyQuestion, destroyQuestion, refreshQuestion, unlockQuestion} {
		if yes, err := newScreenless("").approved(context.Background(), q); yes || err == nil || !strings.Contains(err.Error(), "use "+q.Instead) || q.Instead == "" {
			t.Errorf("%s %t, %v", q.Ask, yes, err)
		}
	}
}

// Nothing is in flight at a prompt, so an interrupt waits for nothing.
func TestAnInterruptOfAQuestionSaysThatNothingWasBegun(t *testing.T) {
	s := newScreenless("")
	r, w := io.Pipe()
	defer w.Close()
	s.streams.In = r
	ctx, cancel := context.WithCancel(t.Context())
	text := ""
	var obeying sync.WaitGroup
	obeying.Go(func() {
		for deadline := time.Now().Add(hang.Bound); !s.asking.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("there is no prompt")
				break // the interrupt cancels the prompt anyway
			}
		}
		text = s.interrupts().Reply()
		cancel()
	})
	if yes, err := s.approved(ctx, applyQuestion); yes || err != nil {
		t.Errorf("an interrupt approves: %t, %v", yes, err)
	}
	obeying.Wait()
	if !strings.Contains(text, "Interrupt received. Nothing was started.") || strings.Contains(text, "wait") {
		t.Errorf("an interrupt of a question says %q", text)
	}
}

// Invalid values are reported in eltrain's words, before anything else is done.
func TestWrongValuesOfOptions(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": twoWorkers})
	for line, want := range map[string]string{
		"plan -detailed-exitcode=x":      `Invalid value "x" for -detailed-exitcode: write true or false.`,
		"apply -parallelism=x":           `Invalid value "x" for -parallelism: write a whole number.`,
		"plan -lock-timeout=3":           `Invalid value "3" for -lock-timeout: write a duration with its unit`,
		"plan -var=\"x":                  `Invalid value "\"x" for -var: NAME= is missing: write -var=NAME=VALUE.`,
		"plan -out":                      "The flag -out needs a value: write -out=FILE.",
		"plan ---x":                      "---x is not a flag.",
		"apply -listen=foo":              `Invalid value "foo" for -listen: write an optional host`,
		"apply -listen=127.0.0.1:99999":  "a port from 0 to 65535",
		"apply -listen=127.0.0.1:http":   "a port from 0 to 65535",
		"destroy -listen=127.0.0.1:1:2 ": "a port from 0 to 65535",
	} {
		o := eltrain(t, dir, strings.Fields(line)...).unwrapped().check(t, exitError, "Invalid command line", want)
		if strings.Contains(o.err, "flag provided") || strings.Contains(o.err, "parse error") || o.out != "" {
			t.Errorf("%s: %s%s", line, o.out, o.err)
		}
	}
}

// How a run ended decides its messages and the exit code.
func TestConclude(t *testing.T) {
	interrupted, cancel := context.WithCancel(context.Background())
	cancel()
	ended := func(phase job.JobPhase) plan.Plan {
		return plan.Plan{Records: job.Records{"a": {Spec: job.Job{Name: "a"}, Phase: phase, Incidents: []job.Incident{{Cause: job.ProcessFailed, Evidence: said("exit code 3")}}}}}
	}
	waiting := ended(job.JobPending)
	waiting.Waits = []plan.Wait{{Job: "a", Role: "w", Reasons: said("2 gpu are wanted, 1 is available")}}
	elsewhere := ended(job.JobRunning) // as last observed
	elsewhere.Waits = []plan.Wait{{Job: "a", Never: true, Reasons: said("It runs in another namespace.")}}
	for name, c := range map[string]struct {
		ctx  context.Context
		args applyArgs
		last plan.Plan
		err  error
		code int
		text string
	}{
		"running":             {last: ended(job.JobRunning), text: "Apply complete! Resources: 0 added"},
		"succeeded":           {last: ended(job.JobSucceeded), text: "Apply complete!"},
		"canceled by hand":    {last: ended(job.JobCanceled), text: "Apply complete!"},
		"failed":              {last: ended(job.JobFailed), code: exitError, text: "job.a is Failed"},
		"failed, counts":      {last: ended(job.JobFailed), code: exitError, text: "Apply ended, but not all jobs are running as configured. Resources: 0 added"},
		"degraded":            {last: ended(job.JobDegraded), code: exitError, text: "job.a is Degraded"},
		"waiting":             {last: waiting, code: exitError, text: "2 gpu are wanted, 1 is available"},
		"runs elsewhere":      {last: elsewhere, code: exitError, text: "It runs in another namespace."},
		"interrupted":         {ctx: interrupted, last: ended(job.JobRunning), code: exitError, text: "Apply was interrupted"},
		"watch, interrupted":  {ctx: interrupted, args: applyArgs{planning: planning{Intent: watching}}, last: ended(job.JobFailed)},
		"destroyed":           {args: applyArgs{planning: planning{Intent: destroying}}, text: "Destroy complete!"},
		"destroy interrupted": {ctx: interrupted, args: applyArgs{planning: planning{Intent: destroying}}, code: exitError, text: "Run eltrain destroy again"},
		"destroy, lock lost":  {args: applyArgs{planning: planning{Intent: destroying}}, err: apply.ErrLockLost, code: exitError, text: "Destroy ended early"},
		"lock lost":           {err: apply.ErrLockLost, code: exitError, text: "lock was lost"},
		"watch, lock lost":    {args: applyArgs{planning: planning{Intent: watching}}, err: apply.ErrLockLost, code: exitError, text: "lock was lost"},
	} {
		s := newScreenless("")
		m := newApply(&s.session, &workspace.Workspace{Config: new(lang.Config)}, c.args)
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		if code := m.conclude(c.ctx, c.last, c.err); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		if text := s.out.String() + s.err.String(); !strings.Contains(text, c.text) {
			t.Errorf("%s: %q is missing in\n%s", name, c.text, text)
		}
	}
}

func TestPlanWaitsForAnApplyThatWillEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	store := memory.New()
	d := workspace.Workspace{Store: store}
	hold := func(operation string) state.Lock {
		lock, err := store.Lock(ctx, state.LockInfo{Operation: operation}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	watch := hold("apply -watch")
	if err := d.AwaitApply(ctx, time.Hour); err != nil {
		t.Errorf("a master that watches is waited for: %v", err)
	}
	watch.Unlock(ctx)
	other := hold("apply")
	if err := d.AwaitApply(ctx, 0); err != nil {
		t.Errorf("without -lock-timeout: %v", err)
	}
	interrupted, interrupt := context.WithCancel(ctx)
	interrupt()
	if err := d.AwaitApply(interrupted, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt gives %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- d.AwaitApply(ctx, time.Hour) }()
	select {
	case err := <-waited:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	other.Unlock(ctx)
	if err := <-waited; err != nil {
		t.Errorf("after the apply has ended: %v", err)
	}
}

func TestOptionsNameThisVersion(t *testing.T) {
	dir := directoryWith(t, map[string]string{"main.hcl": "eltrain {\n  required_version = \">= 99\"\n}\n"})
	eltrain(t, dir, "validate").check(t, exitError, version, ">= 99")
}

// said returns reasons with verbatim texts.
func said(texts ...string) []job.Reason {
	reasons := make([]job.Reason, len(texts))
	for i, text := range texts {
		reasons[i] = job.Because(job.Verbatim, "message", text)
	}
	return reasons
}
