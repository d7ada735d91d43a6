package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/master"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
	"github.com/eltrain/eltrain/state/kubernetes"
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

// defaultExpiry is how long a request waits for a leader.
const defaultExpiry = 10 * time.Minute

// lasting are the verbs whose effect has an end.
var lasting = map[job.Verb]bool{job.AskSuspend: true, job.AskResume: true, job.AskScale: true, job.AskCordon: true, job.AskDrain: true}

// modes are the flavors of verbs, each a flag.
var modes = map[job.Verb][]struct{ name, doc string }{
	job.AskSuspend: {{job.Keep, "Keep the slots with their places: only the training processes end."}},
	job.AskCancel:  {{job.Force, "Kill the processes at once, without a checkpoint and without their grace."}},
	job.AskRestart: {{job.InPlace, "Restart the training processes, and keep the slots where they are."}, {job.Elsewhere, "Start the next incarnations on other nodes than they are on now."}},
}

func (a *asking) declare(fs *flags) {
	a.expires = defaultExpiry
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
	c := &command{
		name: string(verb), usage: "[options] " + before + operand(verb) + "...", synopsis: synopsis, about: about + `

It is a request to whoever leads the jobs: a running watch acts on it within a second. If nobody does, this command leads
itself, and does only what was asked; with a state and jobs in a cluster the request waits for a master there. eltrain requests lists
requests and what became of them.`,
		exits: []string{
			"It is done; with -detach, it was asked.",
			"It was refused, has failed, its outcome is unknown, or an error.",
		},
		declare: (&asking{verb: verb}).declare,
	}
	c.run = func(s *session, args []string) int {
		a := asking{verb: verb}
		others, err := s.parse(newFlags(c.name, a.declare), args, manyArguments)
		if err == nil && verb == job.AskSignal {
			others, err = a.takeSignal(others)
		}
		if err == nil && len(others) == 0 {
			err = errors.New(missing[operand(verb)])
		}
		if err == nil && verb == job.AskScale {
			others, a.value, err = sizes(others)
		}
		switch {
		case err != nil:
		case operand(verb) == "NODE":
			a.nodes = others
		default:
			a.on, err = selectors(others)
		}
		if err != nil {
			return s.misused(c.name, err)
		}
		return s.ask(a)
	}
	return c
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
		case size != job.AutoSize && (bad != nil || n < 1):
			return nil, "", fmt.Errorf("invalid size %q for %s: write a number of slots, or %s", size, address, job.AutoSize)
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
grows or shrinks to in place of what scaling would decide; if there is no room it has fewer, down to its min. It lasts until
ADDRESS=auto, which lets scaling decide again, an edit of replicas in the files, or -until. Several roles are resized
together or, if one of the sizes is not legal, none is.`)
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
	to, err := routeOf(ctx, w)
	if err != nil {
		return s.fail("Cannot ask", err)
	}
	now := time.Now()
	r := job.Request{Verb: a.verb, On: a.on, Nodes: a.nodes, Why: a.why, Value: a.value, Mode: a.mode, At: now, Expires: now.Add(a.expires)}
	if a.until > 0 {
		r.Until = now.Add(a.until)
	}
	if !to.led {
		if err := known(ctx, w, a.on); err != nil {
			return s.fail("Cannot ask", err)
		}
	}
	if r, err = to.requests.Ask(ctx, r); err != nil {
		return s.fail("Cannot ask", notAsked(err))
	}
	asked := state.Asked{Request: r}
	for range 2 { // who leads may end at any moment
		if !to.led {
			if code := s.leadFor(ctx, w, a); code != exitDone {
				s.diagnose(view.Caution("The request stays", fmt.Sprintf("Whoever leads next acts on it. eltrain requests %s shows what becomes of it.", r.ID)))
				return code
			}
		} else if a.detach {
			break
		}
		if asked, err = s.await(ctx, w, to, r, now.Add(a.expires)); !errors.Is(err, errNobodyLeads) {
			break
		}
		to.led = false
	}
	if errors.Is(err, errExpired) {
		return s.fail(hasExpired, err)
	}
	if err != nil && !errors.Is(err, errNobodyLeads) {
		return s.fail("The outcome is not known", fmt.Errorf("%w. The request stays: eltrain requests %s shows what becomes of it", err, r.ID))
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

// route is how a request reaches whoever leads.
type route struct {
	requests state.Requests
	poll     time.Duration // how often its outcome is looked for
	led      bool          // somebody leads, or this command cannot
	alone    bool          // if nobody leads, this command can
}

// routeOf returns the route to whoever leads. With jobs in a cluster it reads neither records nor lock, so asking takes no right to
// them: if nobody leads, the request waits.
func routeOf(ctx context.Context, w *workspace.Workspace) (route, error) {
	requests := w.Requests()
	here := route{requests: requests.Here, poll: askPoll, led: true, alone: w.LeadsAlone()}
	if requests.Cluster != nil {
		if _, err := apply.Fetch(ctx, workspace.RunDirectory); err == nil {
			return here, nil
		}
	}
	cluster := route{requests: requests.Cluster, poll: clusterPoll, led: true, alone: here.alone}
	if !here.alone {
		return cluster, nil
	}
	holder, err := w.Store.Holder(ctx)
	if holder != nil && requests.Cluster != nil {
		return cluster, err
	}
	here.led = holder != nil
	return here, err
}

// known returns an error for an address of a job that was never applied: nobody could act on it.
func known(ctx context.Context, w *workspace.Workspace, on []job.Selector) error {
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return err
	}
	for _, sel := range on {
		if _, destroyed := stored.Destroyed[sel.Job]; stored.Jobs[sel.Job] == nil && !destroyed {
			names := slices.Sorted(maps.Keys(stored.Jobs))
			return fmt.Errorf("there is no job %q%s", sel.Job, whatThereIs(didYouMean(sel.Job, names), "There are", names))
		}
	}
	return nil
}

// askPoll and clusterPoll are how often the outcome of a request is looked for, and leaderPoll how often whether anybody leads.
const (
	askPoll     = 100 * time.Millisecond
	clusterPoll = 500 * time.Millisecond
	leaderPoll  = time.Second
	// untaken is how long a request may wait for a leader until that is reported: one that leads takes it within a second.
	untaken = 3 * time.Second
)

var (
	errNobodyLeads = errors.New("nobody leads")
	errExpired     = errors.New("no master has taken it in time: none leads these jobs, or it cannot read requests")
)

const hasExpired = "The request has expired"

// notAsked explains why a request could not be stored.
func notAsked(err error) error {
	if errors.As(err, new(*kubernetes.UndefinedError)) {
		return fmt.Errorf("%w. Or run this command where the master runs, for example with kubectl exec in its pod", err)
	}
	return makeRoom(err)
}

// await waits for a request's final reply, and says what an accepted one waits for. It ends early with errNobodyLeads once the last
// leader has gone, and with errExpired once the request has expired without being accepted.
func (s *session) await(ctx context.Context, w *workspace.Workspace, to route, r job.Request, expires time.Time) (state.Asked, error) {
	begun, reported, said := time.Now(), false, false
	looked := begun
	for {
		asked, err := to.requests.Get(ctx, r.ID)
		if err != nil || asked.Reply.State.Final() {
			return asked, err
		}
		if why := asked.Reply.Reason; !why.IsZero() && !said {
			said = true
			s.diagnose(view.Caution("Waiting", view.Sentence(why)+" The request stays if this command is interrupted."))
		}
		if to.alone && time.Since(looked) > leaderPoll {
			holder, err := w.Store.Holder(ctx)
			if err != nil {
				return asked, err
			}
			if asked, err = to.requests.Get(ctx, r.ID); holder == nil && err == nil && !asked.Reply.State.Final() {
				return asked, errNobodyLeads
			}
			looked = time.Now()
		}
		if asked.Reply.State == "" {
			if time.Now().After(expires) {
				return asked, errExpired
			}
			if !reported && time.Since(begun) > untaken {
				reported = true
				s.diagnose(view.Caution("No master has taken the request yet",
					fmt.Sprintf("Perhaps none leads these jobs now, or it hangs. The request waits for one until %s; -detach does not wait. eltrain requests %s shows what becomes of it.", expires.Format(time.TimeOnly), r.ID)))
			}
		}
		select {
		case <-ctx.Done():
			return asked, errors.New("interrupted")
		case <-time.After(to.poll):
		}
	}
}

// leadFor leads for one request, if nobody else does by now: with the jobs as they were last applied, so that no edit of the files
// that is still to be applied comes along.
func (s *session) leadFor(ctx context.Context, w *workspace.Workspace, a asking) (code int) {
	lock, err := w.Store.Lock(ctx, state.LockInfo{Operation: string(a.verb), Who: whoami()}, 0)
	if errors.As(err, new(*state.LockedError)) {
		return exitDone // who leads now acts on it
	}
	if err != nil {
		return s.fail("Cannot lock the state", makeRoom(err))
	}
	defer s.unlock(lock)
	setup, err := s.asApplied(ctx, w, a)
	if err != nil {
		return s.fail("Cannot read the state", err)
	}
	if !s.connect(w) {
		return exitError
	}
	out := s.streams.Out
	if a.json {
		out = view.Kept(io.Discard)
	}
	progress := view.NewProgress(out, &s.redactor, time.Now)
	m := master.New(master.Options{
		Directory: &s.dir, Workspace: w, View: progress, Leads: func() {}, Diagnose: s.diagnose, Redactor: &s.redactor, Log: s.log,
	})
	if _, err := m.Lead(ctx, lock, setup); err != nil {
		return s.fail("It ended early", err)
	}
	return exitDone
}

// asApplied is the setup of a run over some of the jobs as they were last applied.
func (s *session) asApplied(ctx context.Context, w *workspace.Workspace, a asking) (setup apply.Setup, err error) {
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return setup, err
	}
	declared, err := w.Sealed(ctx, w.Config.Jobs) // what starts again needs the sensitive values
	if err != nil {
		return setup, err
	}
	setup = apply.Setup{
		Intent: apply.Intent{Keep: true, Scope: plan.Scope{}},
		Files:  apply.Files{Values: stored.Values}, NewUID: workspace.NewUID, Words: view.Words{},
	}
	for _, name := range slices.Sorted(maps.Keys(stored.Jobs)) {
		setup.Files.Jobs = append(setup.Files.Jobs, stored.Jobs[name].Spec)
	}
	for i := range declared { // of a destroyed job nothing else is left
		if _, destroyed := stored.Destroyed[declared[i].Name]; destroyed && stored.Jobs[declared[i].Name] == nil {
			setup.Files.Jobs = append(setup.Files.Jobs, declared[i])
		}
	}
	for _, sel := range a.on {
		setup.Scope.Targets = append(setup.Scope.Targets, job.Selector{Job: sel.Job})
	}
	for i := 0; i < len(setup.Files.Jobs) && len(a.nodes) > 0; i++ {
		name := setup.Files.Jobs[i].Name
		if a.verb != job.AskDrain || stored.Jobs[name] == nil || !usesAny(stored.Jobs[name], a.nodes) {
			setup.Scope.Excludes = append(setup.Scope.Excludes, job.Selector{Job: name})
		}
	}
	return setup, nil
}

// usesAny reports whether a job has slots on any of these nodes.
func usesAny(record *job.Record, nodes []string) bool {
	return slices.ContainsFunc(record.Slots, func(s job.Slot) bool { return s.Phase.Live() && slices.Contains(nodes, s.Node) })
}

// requestsArgs are the arguments of the command requests.
type requestsArgs struct {
	json bool
	vars assignments
	ids  []string
}

func (a *requestsArgs) declare(fs *flags) {
	fs.BoolVar(&a.json, "json", false, "Print JSON.")
	a.vars.declare(fs)
	declareTrust(fs)
}

func requestsCommand() *command {
	return &command{
		name: "requests", usage: "[options] [ID...]",
		synopsis: "List operators' requests and their outcome",
		about: `Lists the requests that were made here or, with a state in a cluster, there, oldest first, with who asked, why, and what became
of them; with IDs only these. Those that were answered are kept for 7 days, at most 1,000.`,
		declare: new(requestsArgs).declare,
		run:     runRequests,
	}
}

func runRequests(s *session, args []string) int {
	var a requestsArgs
	var err error
	if a.ids, err = s.parse(newFlags("requests", a.declare), args, manyArguments); err != nil {
		return s.misused("requests", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
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
	if a.json {
		err = view.WriteJSON(s.streams.Out, view.RequestList(all, &s.redactor))
	} else {
		err = view.WriteRequests(s.streams.Out, all, &s.redactor)
	}
	if err != nil {
		return s.fail("Cannot write the requests", err)
	}
	return exitDone
}
