package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/cmd/ask"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// asking are the arguments of a verb: a request to whoever leads.
type asking struct {
	verb    job.Verb
	on      []job.Selector
	nodes   []string // instead of on
	value   string   // what the verb takes
	mode    string
	why     string
	until   time.Duration
	expires time.Duration
	detach  bool
	json    bool
	vars    assignments
}

// lasting are the verbs whose effect has an end.
var lasting = map[job.Verb]bool{job.AskSuspend: true, job.AskResume: true, job.AskScale: true, job.AskCordon: true, job.AskDrain: true}

// modes are the flavors of verbs, each a flag.
var modes = map[job.Verb][]struct{ name, doc string }{
	job.AskSuspend: {{job.Keep, "Keep the slots with their places: only the training processes end."}},
	job.AskCancel:  {{job.Force, "Kill the processes at once, without a checkpoint and without their grace."}},
	job.AskRestart: {{job.InPlace, "Restart the training processes, and keep the slots where they are."}, {job.Elsewhere, "Start the next incarnations on other nodes than they are on now."}},
}

func (a *asking) declare(fs *flags) {
	a.expires = ask.Expiry
	fs.BoolVar(&a.detach, "detach", false, "Do not wait for the outcome.")
	fs.waitVar(&a.expires, "expires", "Expire the request if it is not accepted within `DURATION`.")
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	fs.StringVar(&a.why, "reason", "", "Say why, for those who read events and status: `TEXT`.")
	if a.verb == job.AskReload {
		fs.Func("step", "Resume from the checkpoint of step `N`, instead of the newest.", a.takeStep)
	}
	for _, m := range modes[a.verb] {
		fs.BoolFunc(m.name, m.doc, func(text string) error {
			switch on, err := strconv.ParseBool(text); {
			case err != nil:
				return errors.New("write true or false")
			case on && a.mode != "" && a.mode != m.name:
				return fmt.Errorf("it cannot be used with -%s", a.mode)
			case on:
				a.mode = m.name
			}
			return nil
		})
	}
	if lasting[a.verb] {
		fs.waitVar(&a.until, "until", "End it by itself after `DURATION`, such as 2h.")
	}
	a.vars.declare(fs)
}

// verbCommand makes the command of a verb.
func verbCommand(verb job.Verb, synopsis, about string) *command {
	before := ""
	if verb == job.AskSignal {
		before = "SIGNAL "
	}
	return takingFrom(command{
		name: string(verb), usage: "[options] " + before + operand(verb) + "...", synopsis: synopsis, about: about + `

It is a request to whoever leads the jobs: a running watch acts on it within a second. If nobody does, this command leads
itself, and does only what was asked; with a state and jobs in a cluster the request waits for a master there. eltrain requests lists
requests and what became of them.`,
		exits: []string{
			"It is done; with -detach, it was asked.",
			"It was refused, has failed, its outcome is unknown, or an error.",
		},
	}, manyArguments, func() *asking { return &asking{verb: verb} }, func(s *session, a *asking) int { return s.ask(*a) })
}

func (a *asking) take(_ *session, others []string) (err error) {
	if a.verb == job.AskSignal {
		if others, err = a.takeSignal(others); err != nil {
			return err
		}
	}
	if len(others) == 0 {
		return errors.New(missing[operand(a.verb)])
	}
	if a.verb == job.AskScale {
		if others, a.value, err = sizes(others); err != nil {
			return err
		}
	}
	if operand(a.verb) == "NODE" {
		a.nodes = others
		return nil
	}
	a.on, err = selectors(others)
	return err
}

// operand is what a verb takes, as its usage says.
func operand(verb job.Verb) string {
	switch verb {
	case job.AskScale:
		return "ADDRESS=SIZE"
	case job.AskCordon, job.AskUncordon, job.AskDrain:
		return "NODE"
	}
	return "ADDRESS"
}

// missing says what to write if there is no operand.
var missing = map[string]string{
	"ADDRESS":      "an address is missing: write job.NAME",
	"ADDRESS=SIZE": "an address is missing: write job.NAME.ROLE=SIZE",
	"NODE":         "a node is missing: eltrain nodes lists them",
}

// sizes splits ADDRESS=SIZE into the addresses and the value of the request. Which sizes are legal is known to whoever leads.
func sizes(args []string) (addresses []string, value string, err error) {
	var all []string
	for _, arg := range args {
		address, size, found := strings.Cut(arg, "=")
		n, bad := strconv.Atoi(size)
		switch {
		case !found:
			return nil, "", fmt.Errorf("%q has no size: write %s=SIZE", arg, arg)
		case size != job.AutoSize && size != job.PausedSize && (bad != nil || n < 1):
			return nil, "", fmt.Errorf("invalid size %q for %s: write a number of slots, %s, or %s", size, address, job.PausedSize, job.AutoSize)
		case slices.Contains(addresses, address):
			return nil, "", fmt.Errorf("%s is given two sizes", address)
		}
		addresses, all = append(addresses, address), append(all, size)
	}
	return addresses, strings.Join(all, ","), nil
}

func scaleCommand() *command {
	return verbCommand(job.AskScale, "Resize elastic roles",
		`Gives each role that an ADDRESS names, as job.NAME.ROLE, SIZE slots: a number that its scaling block allows. It is what the role
grows or shrinks to in place of what scaling would decide; if there is no room it has fewer, down to its min. ADDRESS=paused pauses
scaling: the role stays as large as it is, and policies only tell what they propose. Either lasts until
ADDRESS=auto, which lets scaling decide again, or -until; the former also until an edit of replicas in the files, the latter until one of
the scaling block. Several roles are resized together or, if one of the sizes is not legal, none is.`)
}

func suspendCommand() *command {
	return verbCommand(job.AskSuspend, "Suspend jobs",
		`Suspends the jobs that the ADDRESSes name: they are asked for a checkpoint and stopped, and their places are given back.
Their records stay. It lasts until eltrain resume, an edit of suspend in the files, or -until. With -keep
they keep their places: the training processes end after the checkpoint, the agents stay and wait, and train again as soon as the jobs
are resumed. A job without places is suspended as without -keep.`)
}

func resumeCommand() *command {
	return verbCommand(job.AskResume, "Resume suspended jobs",
		`Resumes the jobs that the ADDRESSes name: they queue again at their priorities, and continue from their checkpoints.`)
}

func cancelCommand() *command {
	return verbCommand(job.AskCancel, "End jobs for good",
		`Cancels the jobs that the ADDRESSes name: running ones are asked for a checkpoint and stopped. They stay in the files and
in the state as Canceled, and no watch and no apply starts them again: eltrain restart does, or an edit of what their
slots are started from.`)
}

func restartCommand() *command {
	return verbCommand(job.AskRestart, "Restart slots, or jobs that have ended",
		`Replaces the slots that the ADDRESSes name by their next incarnations, after a checkpoint; the world forms again with them. With
-in-place no slot is replaced: the world ends and forms again, with new training processes in all its slots; a slot of an unranked
role gets new ones by itself. A job that succeeded, failed or was canceled starts anew, as a new run. ADDRESS is job.NAME, job.NAME.ROLE,
job.NAME.ROLE[3], or a set: [0-3,7], [*].`)
}

func checkpointCommand() *command {
	return verbCommand(job.AskCheckpoint, "Ask jobs for a checkpoint",
		`Asks the jobs that the ADDRESSes name for a checkpoint, as before a planned stop, and training goes on: their processes get the
signal of checkpoint { signal }. Waits until a new checkpoint is complete, and prints its step and path. It has failed if none is
complete within the role's stop_grace.`)
}

func signalCommand() *command {
	return verbCommand(job.AskSignal, "Send a signal to training processes",
		`Sends SIGNAL to each training process of the slots that the ADDRESSes name, at most once. It is a name as for kill, with or
without SIG: USR2, SIGUSR2. The signal goes to the processes that the role's command starts, as kill would send it, and not to what
they start themselves. A process that it ends is a fault like any other, and is healed. ADDRESS is job.NAME, job.NAME.ROLE,
job.NAME.ROLE[3], or a set: [0-3,7], [*].`)
}

func reloadCommand() *command {
	return verbCommand(job.AskReload, "Resume jobs from a checkpoint",
		`Ends the worlds of the jobs that the ADDRESSes name, without a checkpoint, and forms them again: the training processes start anew
from the newest complete checkpoint, or from the one of -step, which they find in ELTRAIN_RESUME_STEP. It is refused if that
checkpoint is not in the directory of checkpoint { dir }.`)
}

// takeSignal takes the name of a signal from the front of the arguments.
func (a *asking) takeSignal(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New("a signal is missing: write its name, such as SIGUSR2")
	}
	a.value = "SIG" + strings.TrimPrefix(strings.ToUpper(args[0]), "SIG")
	if unix.SignalNum(a.value) == 0 {
		return nil, fmt.Errorf("%q is not a signal: write its name, such as SIGUSR2", args[0])
	}
	return args[1:], nil
}

// takeStep takes the value of -step.
func (a *asking) takeStep(text string) error {
	step, err := strconv.ParseInt(text, 10, 64)
	if err != nil || step < 1 {
		return errors.New("it must be a step, a whole number from 1")
	}
	a.value = strconv.FormatInt(step, 10)
	return nil
}

// ask stores a request, and follows it until its outcome is known.
func (s *session) ask(a asking) int {
	ctx, stop := s.interruptible()
	defer stop()
	defer s.outlive()()
	w, ok := s.openState(s.dir.ReadAnyway(a.vars))
	if !ok {
		return exitError
	}
	defer w.Close()
	to, err := ask.Find(ctx, w)
	if err != nil {
		return s.fail("Cannot ask", err)
	}
	now := time.Now()
	r := job.Request{Verb: a.verb, On: a.on, Nodes: a.nodes, Why: a.why, Value: a.value, Mode: a.mode, At: now, Expires: now.Add(a.expires)}
	if a.until > 0 {
		r.Until = now.Add(a.until)
	}
	if r, err = to.Ask(ctx, r); err != nil {
		return s.fail("Cannot ask", err)
	}
	asked := state.Asked{Request: r}
	for runs := 0; runs < 2; { // who leads may end at any moment
		if !to.Led {
			led, code := s.leadFor(ctx, w, r, a.json)
			if code != exitDone {
				s.diagnose(view.Caution("The request stays", stays(&r)))
				return code
			}
			if led {
				runs++
			}
		} else if a.detach {
			break
		}
		if asked, err = to.Await(ctx, r, s.diagnose); !errors.Is(err, ask.ErrNobodyLeads) {
			break
		}
	}
	if err != nil && !errors.Is(err, ask.ErrNobodyLeads) {
		return s.noOutcome(&r, err)
	}
	if a.json {
		err = view.WriteJSON(s.streams.Out, view.RequestStatus(asked, &s.redactor))
	} else {
		_, err = fmt.Fprintln(s.streams.Out, view.RequestText(asked, &s.redactor))
	}
	switch {
	case err != nil:
		return s.fail("Cannot write the outcome", err)
	case asked.Reply.State == job.Done || a.detach && !asked.Reply.State.Final():
		return exitDone
	}
	return exitError
}

// noOutcome shows why the outcome of a request is not known.
func (s *session) noOutcome(r *job.Request, err error) int {
	if errors.Is(err, ask.ErrNoReply) {
		return s.fail("No reply yet", fmt.Errorf("%w. The request has expired: a master that starts now refuses it. If one has taken it after all, eltrain requests %s shows that", err, r.ID))
	}
	return s.fail("The outcome is not known", fmt.Errorf("%w. %s", err, stays(r)))
}

// stays says what may become of a request whose outcome is not known.
func stays(r *job.Request) string {
	return fmt.Sprintf("If it is not in effect yet, a watch that starts before %s carries it out, and no other command does. eltrain requests %s shows what becomes of it.", r.Expires.Local().Format(time.TimeOnly), r.ID)
}

// leadFor leads for one request, if nobody else does by now: with the jobs as they were last applied, so that no edit of the files
// that is still to be applied comes along.
func (s *session) leadFor(ctx context.Context, w *workspace.Workspace, r job.Request, quiet bool) (led bool, code int) {
	lock, _, err := s.lock(ctx, w.Store, string(r.Verb), 0)
	if errors.As(err, new(*state.LockedError)) {
		return false, exitDone // who leads now may act on it
	}
	if err != nil {
		return false, s.fail("Cannot lock the state", err)
	}
	defer s.unlock(lock)
	setup, err := ask.AsApplied(ctx, w, &r)
	if err != nil {
		return false, s.fail("Cannot read the state", err)
	}
	if !s.connect(w) {
		return false, exitError
	}
	out := s.streams.Out
	if quiet {
		out = view.Kept(io.Discard)
	}
	progress := view.NewProgress(out, &s.redactor, time.Now)
	m := master.New(master.Options{
		Directory: &s.dir, Workspace: w, View: progress, Leads: func() {}, Diagnose: s.diagnose, Redactor: &s.redactor, Version: version, Log: s.log,
	})
	if _, err := m.Lead(ctx, lock, setup); err != nil {
		return true, s.fail("It ended early", err)
	}
	return true, exitDone
}

// requestsArgs are the arguments of the command requests.
type requestsArgs struct {
	showing
	ids []string
}

func (a *requestsArgs) take(_ *session, others []string) error {
	a.ids = others
	return nil
}

func requestsCommand() *command {
	return taking(command{
		name: "requests", usage: "[options] [ID...]",
		synopsis: "List operators' requests and their outcome",
		about: `Lists the requests that were made here or, with a state in a cluster, there, oldest first, with who asked, why, and what became
of them; with IDs only these. Those that were answered are kept for 7 days, at most 1,000.`,
	}, manyArguments, (*session).requests)
}

func (s *session) requests(a *requestsArgs) int {
	ctx, cancel := context.WithTimeout(context.Background(), workspace.LookTimeout)
	defer cancel()
	w, ok := s.openState(s.dir.ReadAnyway(a.vars))
	if !ok {
		return exitError
	}
	all, err := w.Requests().All(ctx)
	if err != nil {
		return s.fail("Cannot read the requests", err)
	}
	for _, id := range a.ids {
		if !slices.ContainsFunc(all, func(r state.Asked) bool { return r.ID == id }) {
			return s.fail("No such request", fmt.Errorf("there is no request %s; those that were answered are kept for %d days", id, state.KeptRequestDays))
		}
	}
	if len(a.ids) > 0 {
		all = slices.DeleteFunc(all, func(r state.Asked) bool { return !slices.Contains(a.ids, r.ID) })
	}
	err = a.show(s, view.RequestList(all, &s.redactor), func() error { return view.WriteRequests(s.streams.Out, all, &s.redactor) })
	if err != nil {
		return s.fail("Cannot write the requests", err)
	}
	return exitDone
}
