package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/sim"
	"github.com/eltrain/eltrain/state"
)

// TestScenarios runs the scenarios under testdata/scenarios. Each command is something that happens; its output is the effects
// that the Loop requests ("do …") and what it reports, in order. Effects are carried out at once, on simulated providers and a
// stored state, unless the scenario says otherwise. Observations (hear, observe, gauge) and messages to the service are only
// printed after: show.
//
//	scenario        begins a new scenario from scratch
//	provider local [places] [nodes=8] [news=1m] [held] [refused] [site=west] [ships]    makes a provider with one node of this many cores;
//	                a line says why objects take long to create
//	node local-2 [provider=local] [cores=1] [closed] [gone]    adds a node, changes it, or removes it with all that is on it
//	run [watch] [destroy] [keep] [rerun] [refresh] [unread] [max-destroy=2] [approve] [check] [target=a] [exclude=a] [providers=(local)]
//	                begins a loop over the stored state
//	                lines are the files: JOB ROLE=2 [ROLE=2-4] [provider=west] [command=x] [settle=1s] [grace=1s] [priority=1]
//	                [suspend] [after=ROLE] [follows=POLICY] (the last role's size is what an exec source of the policy says, asked every 30s) [stop=1.5] (when the loss is below, for 1m), commit=1a2b3c4, import=a u1, moved=a b, removed=a or
//	                notify=NAME EVENT … [for=5m] [job=a]; unread means that no files were read
//	files [error=(…) [brief=(…)]] [unread=read_hangs] [unsteady=5s [lost=(a)]] [caution=(…)] [misnamed=(…)]    what the files say from now on
//	says POLICY=4 …  what sources say from now on; without a value they fail
//	unmet           lines are the files' conditions that do not hold from now on: SUMMARY: DETAIL
//	pass 5s         time passes, with the ticks that are due
//	wake            a provider has news
//	hold KIND …     effects of these kinds are carried out, but their outcomes come with: answer
//	queue KIND …    effects of these kinds stay queued until: answer
//	answer [KIND]   the held outcomes come, in order, or are errors with the text below
//	fail KIND [OF] [unprepared|passing]    effects of this kind, or one of them, fail from now on with the text below; without
//	                text they succeed again
//	feign KIND …    the next effects of these kinds are reported as carried out, but are not
//	end worker[0] [code=1] [cause=deleted] [job=a]    the slot's agent ends
//	stray worker[0-1] [job=a]    an agent of no recorded job runs
//	member worker[0] [state=running] [gen=1] [step=5] [loss=nan] [acted=r1]    what the service knows of a slot; it has done an act
//	world a 1 worker[0-1]             the service forms a world
//	ask [max-destroy=3]               a request to reconcile; new content of the files may be given as for: files
//	request r1 VERB a [b] [node=(local-1)] [by=bob] [value=SIGUSR2]    an operator's request; replies are those that are stored
//	crash [unheard] of the run: what is held or queued never comes back; its agents have not reported to the next service yet
//	serve           the service's address changes
//	interrupt, lose-lock
//	show KIND …     effects of these kinds are printed
//	conditions, stored (the conditions in the state), waits, records, next
//
// The argument quietly suppresses a command's output.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newScenario(t)
		datadriven.RunTest(t, path, s.run)
	})
}

// scenario is a Loop with a simulated environment.
type scenario struct {
	t         *testing.T
	loop      *Loop
	now       time.Time
	providers map[string]*site
	stored    state.State
	epoch     uint64
	files     Files
	reading   error             // why the files cannot be read
	again     time.Duration     // when unsteady files are to be read again
	unmet     map[string]string // the files' conditions that do not hold, by summary
	requests  []job.Request     // without a stored final reply
	replies   []job.Reply       // as stored
	facts     map[string]elastic.Facts
	version   uint64
	failing   map[string]error // by kind of effect, or by prefix of an effect's ID
	holding   map[string]bool  // kinds of effects
	held      []Outcome
	asked     map[ID]asked    // of held and queued effects
	later     []Again         // pending retries
	queueing  map[string]bool // kinds of effects
	queued    []Effect
	feigned   map[string]bool // kinds of effects
	shown     map[string]bool
	says      map[string]float64 // what sources of scaling policies say
	uids      int
	number    int
	over      bool
	out       strings.Builder
}

// asked is an effect with its text when the Loop requested it: the Loop must not change it afterwards.
type asked struct {
	Effect
	text string
}

func textOf(e Effect) string {
	text, _ := json.Marshal(e)
	return string(text)
}

// site is a simulated provider whose capabilities and observations can be set.
type site struct {
	*sim.Cluster
	can  job.Capabilities
	held string   // why a queue holds back all jobs
	slow string   // why objects take long to create
	uids []string // of prepared jobs
	last *providers.Observation
	seen *providers.Observation
}

func (s *site) observe() (*providers.Observation, error) {
	seen, err := s.Cluster.Observe(context.Background())
	if err != nil || seen == s.last {
		return s.seen, err
	}
	s.last = seen
	now := *seen
	every := func(why string) map[string]string {
		of := map[string]string{}
		for _, uid := range append(s.uids, "another's") {
			if why != "" {
				of[uid] = why
			}
		}
		return of
	}
	now.Held, now.Delayed = every(s.held), every(s.slow)
	s.seen = &now
	return s.seen, nil
}

func newScenario(t *testing.T) *scenario {
	return &scenario{t: t, now: jobtest.Epoch, providers: map[string]*site{}, facts: map[string]elastic.Facts{}, version: 1,
		failing: map[string]error{}, holding: map[string]bool{}, asked: map[ID]asked{}, shown: map[string]bool{}, queueing: map[string]bool{}, feigned: map[string]bool{}, says: map[string]float64{}}
}

func (s *scenario) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *scenario) sayWaits(waits []plan.Wait) {
	for _, w := range waits {
		s.say("%s: %s", strings.TrimSpace("job."+w.Job+" "+w.Role), reasonsText(w.Reasons))
	}
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	s.out.Reset()
	switch d.Cmd {
	case "serve":
		s.step(Served{})
	case "scenario":
		*s = *newScenario(t)
	case "says":
		for _, a := range d.CmdArgs {
			if delete(s.says, a.Key); len(a.Vals) > 0 {
				v, err := strconv.ParseFloat(a.Vals[0], 64)
				must(t, err)
				s.says[a.Key] = v
			}
		}
	case "unmet":
		s.unmet = map[string]string{}
		for line := range strings.Lines(d.Input) {
			summary, detail, _ := strings.Cut(strings.TrimSpace(line), ": ")
			s.unmet[summary] = detail
		}
	case "provider":
		s.provider(d)
	case "run":
		s.begin(d)
	case "files":
		s.read(d)
		s.step(FilesChanged{})
	case "pass":
		s.pass(length(t, d.CmdArgs[0].Key))
	case "wake":
		s.step(Woken{})
	case "hold":
		for _, arg := range d.CmdArgs {
			s.holding[arg.Key] = true
		}
	case "answer":
		s.answer(d)
	case "fail":
		which, why, passing := d.CmdArgs[0].Key, error(nil), false
		for _, arg := range d.CmdArgs[1:] {
			switch arg.Key {
			case "unprepared":
				why = providers.ErrNotPrepared
			case "passing":
				passing = true
			default:
				which += " " + arg.Key
			}
		}
		if d.Input != "" {
			why = errors.New(strings.TrimSpace(d.Input))
		}
		if passing && why != nil {
			why = &providers.TransientError{Err: why}
		}
		delete(s.failing, which)
		if why != nil {
			s.failing[which] = why
		}
	case "end":
		for _, a := range s.slots(d, 0) {
			if cause := text(d, "cause", ""); cause != "" {
				s.clusterOf(a).Terminate(s.agent(a), job.Cause(cause))
				continue
			}
			code := number(d, "code", 0)
			s.agent(a).Fail(job.Exit{Code: code})
			s.agent(a).Kill()
		}
		s.advance()
		s.step(Woken{})
	case "member":
		s.member(d)
		s.version++
		s.step(Woken{})
	case "world":
		s.world(d)
	case "suspect":
		s.suspect(t, d)
	case "ask":
		if d.Input != "" || d.HasArg("error") || d.HasArg("unsteady") {
			s.read(d)
		}
		s.number++
		asked := Triggered{Request: s.number}
		if n := number(d, "max-destroy", -1); n >= 0 {
			asked.MaxDestroy = &n
		}
		s.step(asked)
	case "request":
		s.request(d)
		if s.loop != nil && !s.over {
			s.step(Requested{slices.Clone(s.requests)})
		}
	case "replies":
		for _, r := range s.replies {
			s.say("%s", replyText(r))
		}
	case "crash": // of the run, before anything that is held or queued comes back
		s.over, s.held, s.queued, s.later = true, nil, nil, nil
		clear(s.holding)
		clear(s.queueing)
		if d.HasArg("unheard") {
			clear(s.facts)
		}
	case "interrupt":
		s.step(Interrupted{})
	case "lose-lock":
		s.step(LockLost{ErrLockLost})
	case "show":
		for _, arg := range d.CmdArgs {
			s.shown[arg.Key] = true
		}
	case "conditions", "stored":
		held := s.loop.holds.All()
		if d.Cmd == "stored" {
			held = s.stored.Conditions
		}
		for _, c := range held {
			s.say("%s %s, since %s", c.About, c.Reason, c.Since.Sub(jobtest.Epoch))
		}
	case "waits":
		s.sayWaits(s.loop.Live(s.now, nil).Waits)
	case "records":
		s.records()
	case "next":
		if next := s.loop.next(); !next.IsZero() {
			s.say("a tick after %s", next.Sub(s.now))
		}
	case "queue":
		for _, arg := range d.CmdArgs {
			s.queueing[arg.Key] = true
		}
	case "feign":
		for _, arg := range d.CmdArgs {
			s.feigned[arg.Key] = true
		}
	case "node":
		s.node(d)
	case "stray":
		local := s.providers["local"]
		_, err := local.Prepare(context.Background(), job.Group{UID: "stray"})
		must(t, err)
		for _, a := range s.slots(d, 0) {
			must(t, local.Launch(context.Background(), job.Launch{UID: "stray", Slot: a, Incarnation: 1}))
		}
		s.step(Woken{})
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	if d.HasArg("quietly") {
		return "…\n"
	}
	return cmp.Or(s.out.String(), "nothing\n")
}

// do runs one command with lines of input, for tests that inspect the loop.
func (s *scenario) do(command string, input ...string) string {
	s.t.Helper()
	cmd, args, err := datadriven.ParseLine(command)
	must(s.t, err)
	return s.run(s.t, &datadriven.TestData{Pos: "test", Cmd: cmd, CmdArgs: args, Input: strings.Join(input, "\n")})
}

func (s *scenario) provider(d *datadriven.TestData) {
	name := d.CmdArgs[0].Key
	p := s.providers[name]
	if p == nil {
		p = &site{Cluster: sim.New(name, s.now, nil)}
		p.Schedules = !d.HasArg("places")
		p.can = job.Capabilities{Places: d.HasArg("places")}
		s.providers[name] = p
	}
	p.held, p.slow, p.last = "", strings.TrimSpace(d.Input), nil
	if d.HasArg("held") {
		p.held = "the queue is closed"
	}
	p.can.Refused = ""
	if d.HasArg("refused") {
		p.can.Refused = "No job is let in."
	}
	p.can.Site, p.can.Ships = text(d, "site", ""), d.HasArg("ships")
	p.can.News = job.Duration(length(s.t, text(d, "news", "0s")))
	p.SetNode(jobtest.Node(name+"-1", jobtest.Cores(float64(number(d, "nodes", 8)))))
}

func (s *scenario) begin(d *datadriven.TestData) {
	s.read(d)
	if d.HasArg("unread") {
		s.files.Notify = nil
	}
	s.advance()
	s.over, s.epoch = false, s.epoch+1
	setup := Setup{
		Intent: Intent{Watch: d.HasArg("watch"), Destroy: d.HasArg("destroy"), Keep: d.HasArg("keep"), Rerun: d.HasArg("rerun"), Refresh: d.HasArg("refresh"), UntilEnded: d.HasArg("until-ended")},
		Files:  s.files, Providers: slices.Collect(maps.Keys(s.providers)), State: s.stored, Epoch: s.epoch,
		NewUID: func(name string) string { s.uids++; return fmt.Sprintf("u%d", s.uids) }, Approve: d.HasArg("approve"), Check: d.HasArg("check"),
		Request: text(d, "for", ""),
	}
	if n := number(d, "max-destroy", -1); n >= 0 {
		setup.MaxDestroy = &n
	}
	if d.HasArg("providers") {
		setup.Providers = list(d, "providers")
	}
	for _, name := range list(d, "target") {
		setup.Scope.Targets = append(setup.Scope.Targets, job.Selector{Job: name})
	}
	for _, name := range list(d, "exclude") {
		setup.Scope.Excludes = append(setup.Scope.Excludes, job.Selector{Job: name})
	}
	setup.Requests = s.requests != nil
	s.loop = New(s.now, setup)
	s.step(Served{})
	if setup.Requests {
		s.step(Requested{slices.Clone(s.requests)})
	}
}

// request adds an operator's request.
func (s *scenario) request(d *datadriven.TestData) {
	r := job.Request{ID: d.CmdArgs[0].Key, Verb: job.Verb(d.CmdArgs[1].Key), By: text(d, "by", "ann"), At: s.now}
	if r.Files = text(d, "files", ""); r.Files == "same" {
		r.Files = s.files.Digest()
	}
	for _, a := range d.CmdArgs[2:] {
		switch a.Key {
		case "by", "files":
		case "node":
			r.Nodes = a.Vals
		case "mode":
			r.Mode = a.Vals[0]
		case "value":
			r.Value = a.Vals[0]
		default:
			sel, err := job.ParseSelector("job." + a.Key)
			if err != nil {
				d.Fatalf(s.t, "%v", err)
			}
			r.On = append(r.On, sel)
			if len(a.Vals) > 0 {
				r.Value = strings.Join(a.Vals, ",")
			}
		}
	}
	s.requests = append(s.requests, r)
}

func replyText(r job.Reply) string {
	if r.Reason.IsZero() {
		return fmt.Sprintf("%s is %s", r.ID, r.State)
	}
	return fmt.Sprintf("%s is %s: %s", r.ID, r.State, r.Reason)
}

// read sets the files' content.
func (s *scenario) read(d *datadriven.TestData) {
	s.files, s.reading = Files{Notify: []job.Notify{}}, nil
	if d.HasArg("caution") {
		s.files.Caution = job.Because(FilesDoubtful, "path", text(d, "caution", ""))
	}
	if d.HasArg("misnamed") {
		s.files.Misnamed = job.Because(RemovedMisnamed, "message", text(d, "misnamed", ""))
	}
	if why := text(d, "error", ""); why != "" {
		s.reading = &UnusableError{Brief: text(d, "brief", why), Text: why}
	}
	if code := text(d, "unread", ""); code != "" {
		s.reading = &UnreadError{job.Because(job.Code(code))}
	}
	if d.HasArg("unsteady") {
		s.reading, s.again = &UnsteadyError{Since: s.now, Why: job.Because(GitBusy), Lost: list(d, "lost")}, length(s.t, text(d, "unsteady", ""))
	}
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch what, value, _ := strings.Cut(line, "="); what {
		case "commit":
			s.files.Commit = value
		case "import":
			to, id, _ := strings.Cut(value, " ")
			s.files.Blocks.Imports = append(s.files.Blocks.Imports, plan.Import{To: job.Selector{Job: to}, ID: id})
		case "notify":
			s.files.Notify = append(s.files.Notify, notifyOf(s.t, strings.Fields(value)))
		case "removed":
			s.files.Blocks.Forget = map[string]bool{value: true}
		case "moved":
			from, to, _ := strings.Cut(value, " ")
			s.files.Blocks.Moved = map[string]string{from: to}
		default:
			s.files.Jobs = append(s.files.Jobs, jobOf(s.t, fields))
		}
	}
}

func notifyOf(t *testing.T, fields []string) job.Notify {
	n := job.Notify{Name: fields[0], All: true}
	for _, f := range fields[1:] {
		switch name, value, is := strings.Cut(f, "="); {
		case !is:
			n.On = append(n.On, job.NotifyEvent(name))
		case name == "for":
			n.For = job.Duration(length(t, value))
		default:
			n.Jobs, n.All = append(n.Jobs, value), false
		}
	}
	return n
}

func jobOf(t *testing.T, fields []string) job.Job {
	j, command, grace := jobtest.Job(fields[0]), "train", jobtest.Role("worker", 1).StopGrace
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "provider":
			j.Provider = value
		case "command":
			command = value
		case "suspend":
			j.Suspend = true
		case "grace":
			grace = job.Duration(length(t, value))
		case "priority":
			n, err := strconv.Atoi(value)
			must(t, err)
			j.Priority = n
		case "restarts":
			n, err := strconv.Atoi(value)
			must(t, err)
			j.Heal.Budget.Restarts = n
		case "after":
			j.Roles[len(j.Roles)-1].DependsOn = []string{value}
		case "follows":
			scaling := j.Roles[len(j.Roles)-1].Scaling
			scaling.Stabilization, scaling.Cooldown = &job.Stabilization{}, &job.Cooldown{}
			scaling.Policies = append(scaling.Policies, job.Policy{Name: value, Source: &job.MetricSource{Kind: job.ExecSource, Command: []string{value}}, Strategy: &job.Strategy{Kind: job.PassThrough}})
		case "stop":
			below, err := strconv.ParseFloat(value, 64)
			must(t, err)
			j.StopWhen = &job.StopWhen{Metric: job.LossMetric, Below: &below, For: "1m"}
		case "source": // of train.py, a digest
			j.Roles[len(j.Roles)-1].Source = job.Files{"train.py": value}
		case "settle":
			j.Rendezvous.Settle = job.Duration(length(t, value))
		default:
			least, most, elastic := strings.Cut(value, "-")
			n, err := strconv.Atoi(least)
			must(t, err)
			r := jobtest.Role(name, n, jobtest.Command(command))
			if elastic {
				m, err := strconv.Atoi(most)
				must(t, err)
				jobtest.Elastic(n, m)(&r)
			}
			j.Roles = append(j.Roles, r)
		}
	}
	for i := range j.Roles {
		j.Roles[i].Command, j.Roles[i].StopGrace = []string{command}, grace
	}
	return j
}

// step passes events to the Loop, and carries out the effects that it requests.
func (s *scenario) step(events ...Event) {
	for n := 0; len(events) > 0 && s.loop != nil && !s.over; n++ {
		if n > 10_000 {
			s.t.Fatalf("the loop does not come to rest:\n%s", s.out.String())
		}
		s.loop.Step(s.now, events[0])
		events = events[1:]
		ready := s.loop.Ready()
		for _, m := range ready.Tell {
			m((*scenarioView)(s))
		}
		for _, e := range ready.Effects {
			s.tellEffect(e)
			if _, drop := e.(Drop); drop {
				events = append(events, s.drop(e.ID())...)
				continue
			}
			if again, is := e.(Again); is {
				s.later = append(s.later, again)
				continue
			}
			if s.queueing[e.ID().Kind] {
				s.queued = append(s.queued, e)
				s.asked[e.ID()] = asked{e, textOf(e)}
				continue
			}
			o := s.carryOut(e)
			if s.holding[o.Of.Kind] {
				s.held = append(s.held, o)
				s.asked[o.Of] = asked{e, textOf(e)}
				continue
			}
			events = append(events, o)
		}
		if ready.Over != nil {
			s.over = true
			if refused := (*RefusedError)(nil); errors.As(ready.Over.Err, &refused) {
				s.say("the plan was refused")
			}
			s.say("over: %v", ready.Over.Err)
			s.sayWaits(ready.Over.Plan.Waits)
		}
	}
}

// tellEffect prints an effect, unless every turn has it.
func (s *scenario) tellEffect(e Effect) {
	kind := e.ID().Kind
	usual := map[string]bool{"hear": true, "observe": true, "gauge": true, "tell": true, "chronicle": true, "publish": true}
	if usual[kind] && !s.shown[kind] {
		return
	}
	switch e := e.(type) {
	case Drop:
		s.say("drop %s", e.Effect)
	case Again:
		s.say("again, after %s: %s", e.At.Sub(s.now), e.ID())
	case Tell:
		s.say("tell the service: %s", newsText(e.News))
	case Journal:
		for _, n := range e.Notices {
			s.say("do journal: %s", strings.TrimPrefix(fmt.Sprintf("%s %s%s: %s", n.Address, n.Type, prefixed(" ", n.Condition), n.Message), " "))
		}
	case Answer:
		s.say("do %s: %s%s", e.ID(), e.Reply.Status, changesText(e.Reply))
	case Approve:
		n := e.Plan.Summary()
		s.say("do approve of +%d ~%d -%d", n.Add, n.Change, n.Remove)
	case Check, Reread:
		s.say("do %s", kind)
	case Respond:
		s.say("do respond: %s", replyText(e.Reply))
	case Notify:
		s.say("do %s: %s %s: %s", e.ID(), e.Message.Address, e.Message.Event, e.Message.Reason)
	case Prepare:
		s.say("do %s of job.%s%s", e.ID(), e.Group.Name, rolesText(e.Group))
	case Launch:
		ahead := ""
		if e.Urgent {
			ahead = " ahead of what is new"
		}
		s.say("do %s%s", e.ID(), ahead)
	default:
		s.say("do %s", e.ID())
	}
}

func newsText(n News) string {
	switch n := n.(type) {
	case Wanted:
		var slots []string
		for _, d := range n.Desired.Slots {
			text := fmt.Sprintf("%s#%d", d.Address.Short(), d.Incarnation)
			if d.Leave {
				text += " leaves"
			}
			if d.Force {
				text += " by force"
			}
			slots = append(slots, text)
		}
		text := "job " + n.Job + " of " + n.Desired.Token + " is to be " + cmp.Or(strings.Join(slots, ", "), "nothing yet")
		for _, a := range n.Desired.Want.Acts {
			text += fmt.Sprintf("; %s: %s %s in %v", a.ID, a.Kind, a.Value, a.Slots)
		}
		if r := n.Desired.Want.Reload; r.Request != "" {
			text += fmt.Sprintf("; %s ends worlds through %d", r.Request, r.Through)
		}
		return text
	case Unwanted:
		return "job " + n.Job + " is no more"
	case Ended:
		return fmt.Sprintf("%s#%d has ended", n.Slot, n.Incarnation)
	case Recorded:
		return fmt.Sprintf("world recorded: %v", n.Err)
	}
	return "open"
}

func changesText(r elastic.ReconcileReply) (text string) {
	if r.Changes != nil {
		text += fmt.Sprintf(" +%d ~%d -%d", r.Changes.Add, r.Changes.Change, r.Changes.Remove)
	}
	if r.Error != "" {
		text += " error: " + r.Error
	}
	for _, w := range r.Withheld {
		text += "; withheld is " + w.Job
	}
	return text
}

func rolesText(g job.Group) (text string) {
	for _, r := range g.Roles {
		text += fmt.Sprintf(", %d of %s together", r.Min, r.Role)
		if r.Source != nil {
			text += " with " + r.Source.Files["train.py"]
		}
	}
	return text
}

// carryOut carries out an effect.
func (s *scenario) carryOut(e Effect) Outcome {
	id := e.ID()
	o := Outcome{Of: id}
	for which, err := range s.failing {
		if strings.HasPrefix(id.String()+" ", which+" ") {
			o.Err = err
			return o
		}
	}
	if s.feigned[id.Kind] {
		delete(s.feigned, id.Kind)
		return o
	}
	ctx := context.Background()
	switch e := e.(type) {
	case Hear:
		o.Result = Facts{s.version, maps.Clone(s.facts)}
	case Observe:
		p := s.providers[e.Provider]
		seen, err := p.observe()
		o.Result, o.Err = Sight{p.can, seen}, err
	case Gauge:
		o.Result = gauge(s.facts)
	case Sample:
		if e.Source.Kind == job.TrainingSource {
			o.Result, o.Err = MeasureTraining(s.facts[e.Job], &e.Source)
			break
		}
		value, says := s.says[e.Policy]
		if o.Result = value; !says {
			o.Err = errors.New("connection refused")
		}
	case Store:
		var next state.State
		if next, o.Err = state.Accept(s.stored, e.State, s.epoch); o.Err == nil {
			s.stored = next
		}
	case Reread:
		o.Result = s.stored
	case Prepare:
		p := s.providers[e.Provider]
		if p.uids = append(p.uids, e.Group.UID); p.held+p.slow != "" {
			p.last = nil
		}
		o.Result, o.Err = p.Prepare(ctx, e.Group)
	case Launch:
		o.Err = s.providers[e.Provider].Launch(ctx, e.Launch)
	case Stop:
		o.Err = s.providers[e.Provider].Stop(ctx, e.UID, e.Slot, e.Incarnation, e.Grace)
	case Forget:
		o.Err = s.providers[e.Provider].Forget(ctx, e.UID, e.Name)
	case ReadFiles:
		o.Result, o.Err = s.files, s.reading
		if unsteady, is := s.reading.(*UnsteadyError); is {
			again := *unsteady
			again.Again = s.now.Add(s.again)
			o.Err = &again
		}
	case Check:
		o.Result = maps.Clone(s.unmet)
	case Respond:
		s.replies = append(s.replies, e.Reply)
		if e.Reply.State.Final() {
			s.requests = slices.DeleteFunc(s.requests, func(r job.Request) bool { return r.ID == e.Reply.ID })
		}
	case Tell:
		if gone, is := e.News.(Unwanted); is {
			delete(s.facts, gone.Job)
		}
	}
	return o
}

// drop drops a queued effect or an observation.
func (s *scenario) drop(id ID) []Event {
	of := func(waits ID) bool { return waits == id }
	if i := slices.IndexFunc(s.later, func(a Again) bool { return of(a.ID()) }); i >= 0 {
		s.later = slices.Delete(s.later, i, i+1)
		return []Event{Outcome{Of: id, Err: ErrDropped}}
	}
	if n := len(s.queued); n > 0 {
		s.queued = slices.DeleteFunc(s.queued, func(e Effect) bool { return of(e.ID()) })
		if len(s.queued) < n {
			return []Event{Outcome{Of: id, Err: ErrDropped}}
		}
	}
	if i := slices.IndexFunc(s.held, func(o Outcome) bool { return of(o.Of) }); i >= 0 && id.Kind == "observe" {
		s.held = slices.Delete(s.held, i, i+1)
		return []Event{Outcome{Of: id, Err: ErrDropped}}
	}
	return nil
}

func (s *scenario) answer(d *datadriven.TestData) {
	kind := ""
	if len(d.CmdArgs) > 0 {
		kind = d.CmdArgs[0].Key
	}
	is := func(id ID) bool { return kind == "" || id.Kind == kind }
	all, waiting := s.held, s.queued
	s.held, s.queued = nil, nil
	var events []Event
	for _, o := range all {
		if !is(o.Of) {
			s.held = append(s.held, o)
			continue
		}
		delete(s.holding, o.Of.Kind)
		if d.Input != "" {
			o = Outcome{Of: o.Of, Err: errors.New(strings.TrimSpace(d.Input))}
		}
		events = append(events, o)
	}
	for _, e := range waiting {
		if !is(e.ID()) {
			s.queued = append(s.queued, e)
			continue
		}
		delete(s.queueing, e.ID().Kind)
		events = append(events, s.carryOut(e))
	}
	for _, e := range events {
		if asked, held := s.asked[e.(Outcome).Of]; held && textOf(asked.Effect) != asked.text {
			s.t.Fatalf("%s was changed while it was carried out:\n%s\n%s", asked.ID(), asked.text, textOf(asked.Effect))
		}
		s.step(e)
	}
}

// node adds, changes or removes a node.
func (s *scenario) node(d *datadriven.TestData) {
	p, name := s.providers[text(d, "provider", "local")], d.CmdArgs[0].Key
	if d.HasArg("gone") {
		p.CrashNode(name)
	} else {
		n := jobtest.Node(name, jobtest.Cores(float64(number(d, "cores", 8))))
		if d.HasArg("closed") {
			n.Closed = "not ready"
		}
		p.SetNode(n)
	}
	s.advance()
	s.step(Woken{})
}

// pass lets time pass, with the ticks that are due.
func (s *scenario) pass(d time.Duration) {
	end := s.now.Add(d)
	for range 10_000 {
		next := s.loop.next()
		due := slices.IndexFunc(s.later, func(a Again) bool { return a.At.Before(next) && !a.At.After(end) })
		if !s.over && due >= 0 {
			again := s.later[due]
			s.later = slices.Delete(s.later, due, due+1)
			if again.At.After(s.now) {
				s.now = again.At
			}
			s.step(s.carryOut(again.Effect))
			continue
		}
		if s.over || next.IsZero() || next.After(end) {
			s.now = end
			if s.advance() {
				s.step(Woken{})
			}
			return
		}
		if next.After(s.now) {
			s.now = next
		}
		if s.advance() {
			s.step(Woken{})
		}
		s.step(Tick{})
	}
	s.t.Fatalf("the loop does not come to rest:\n%s", s.out.String())
}

// advance advances the simulated providers to now. It reports whether one has news.
func (s *scenario) advance() (news bool) {
	for _, name := range slices.Sorted(maps.Keys(s.providers)) {
		p := s.providers[name]
		p.Advance(s.now, func() {})
		select {
		case <-p.Changes():
			news = true
		default:
		}
	}
	return news
}

func (s *scenario) agent(a job.Address) *sim.Agent { return s.clusterOf(a).Agent(a) }

// clusterOf returns the cluster in which the agent of a slot runs.
func (s *scenario) clusterOf(a job.Address) *sim.Cluster {
	for _, p := range s.providers {
		if p.Agent(a) != nil {
			return p.Cluster
		}
	}
	s.t.Fatalf("no agent of %s runs", a)
	return nil
}

// slots returns the slots that an argument names, such as worker[0-1], of the job in the argument job.
func (s *scenario) slots(d *datadriven.TestData, arg int) (all []job.Address) {
	name := text(d, "job", "a")
	role, indices, _ := strings.Cut(strings.TrimSuffix(d.CmdArgs[arg].Key, "]"), "[")
	if len(d.CmdArgs[arg].Vals) > 0 { // worker=0-1 works as well
		indices = d.CmdArgs[arg].Vals[0]
	}
	first, last, several := strings.Cut(cmp.Or(indices, "0"), "-")
	from, err := strconv.Atoi(first)
	must(s.t, err)
	to := from
	if several {
		to, err = strconv.Atoi(last)
		must(s.t, err)
	}
	for i := from; i <= to; i++ {
		all = append(all, job.Address{Job: name, Role: role, Index: i})
	}
	return all
}

// member sets what the service knows of slots: `member worker[0-1] state=running gen=1 step=5 incarnation=1`.
func (s *scenario) member(d *datadriven.TestData) {
	for _, a := range s.slots(d, 0) {
		f := s.facts[a.Job]
		f.UID = cmp.Or(s.uid(a.Job), f.UID)
		m := elastic.MemberFacts{Slot: a, Incarnation: number(d, "incarnation", 1), Member: job.Member{
			State: job.MemberState(text(d, "state", "running")), Generation: number(d, "gen", f.World.Generation), Step: int64(number(d, "step", 0)), Registered: s.now, Can: job.ActKinds}}
		if loss, err := strconv.ParseFloat(text(d, "loss", ""), 64); err == nil {
			m.Member.Loss = new(job.Loss(loss))
			m.Member.Ranks = []job.RankStatus{{Progress: &job.RankProgress{Reading: job.Reading{Loss: m.Member.Loss}, FirstStep: new(int64(1))}}}
		}
		if id := text(d, "acted", ""); id != "" {
			m.Member.Acts = []job.ActResult{{ID: id, State: job.ActDone}}
		}
		f.Members = slices.DeleteFunc(slices.Clone(f.Members), func(o elastic.MemberFacts) bool { return o.Slot == a })
		f.Members = append(f.Members, m)
		if m.Member.Step > 0 && m.Member.Generation == f.World.Generation && f.World.FirstStep.IsZero() {
			f.World.FirstStep = s.now
		}
		s.facts[a.Job] = f
	}
}

// world lets the service form a world: `world worker[0-1] gen=1`.
func (s *scenario) world(d *datadriven.TestData) {
	slots := s.slots(d, 0)
	name := slots[0].Job
	w := job.World{Generation: number(d, "gen", 1), Formed: s.now}
	for i, a := range slots {
		w.Members = append(w.Members, job.WorldMember{Slot: a, Incarnation: number(d, "incarnation", 1), Rank: i, Processes: 1})
	}
	s.number++
	s.step(Forming{s.number, name, s.uid(name), w})
	f := s.facts[name]
	f.UID, f.World = s.uid(name), w
	s.facts[name] = f
	s.version++
	s.step(Woken{})
}

// suspect is what detection says of a world: of some slots, since a time ago, certain after another; or nothing more.
func (s *scenario) suspect(t *testing.T, d *datadriven.TestData) {
	f := s.facts["a"]
	f.Suspicions = nil
	if len(d.CmdArgs) > 0 {
		since := s.now.Add(-length(t, text(d, "since", "0s")))
		x := job.Suspicion{Cause: job.Hang, Generation: f.World.Generation, Slots: s.slots(d, 0), Ranks: []int{number(d, "rank", 0)}, Since: since, Certain: d.HasArg("certain")}
		if d.HasArg("due") {
			x.Due = since.Add(length(t, text(d, "due", "")))
		}
		f.Suspicions = []job.Suspicion{x}
	}
	s.facts["a"] = f
	s.version++
	s.step(Woken{})
}

// uid returns the UID of the job that agents know by a name; "" if there is none.
func (s *scenario) uid(launched string) string {
	for name, rec := range s.loop.Records() {
		if rec.LaunchedAs(name) == launched {
			return rec.UID
		}
	}
	return ""
}

func (s *scenario) records() {
	for _, name := range slices.Sorted(maps.Keys(s.stored.Jobs)) {
		rec := s.stored.Jobs[name]
		s.say("job.%s %s generation %d", name, rec.Phase, rec.World.Generation)
		for _, slot := range rec.Slots {
			s.say("  %s %s #%d", slot.Address.Short(), slot.Phase, slot.Incarnation)
		}
	}
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// scenarioView prints what is reported to it.
type scenarioView scenario

func (v *scenarioView) say(format string, args ...any) { (*scenario)(v).say("tell "+format, args...) }

func (v *scenarioView) Planned(p *plan.Plan) {
	n := p.Summary()
	v.say("plan +%d ~%d -%d", n.Add, n.Change, n.Remove)
	for _, size := range p.Sizes {
		if size.Changes() {
			v.say("job.%s.%s is to have %d slots, not %d", size.Job, size.Role, size.Now, size.Before)
		}
	}
}
func (v *scenarioView) Started(c *plan.Change) {
	v.say("%s %s begins%s", c.Action, changeName(c), prefixed(": ", c.Why().String()))
}
func (v *scenarioView) Still(c *plan.Change, d time.Duration) {
	v.say("%s %s takes %s", c.Action, changeName(c), d)
}
func (v *scenarioView) Finished(c *plan.Change, d time.Duration, err error) {
	if err != nil {
		v.say("%s %s failed after %s: %v", c.Action, changeName(c), d, err)
		return
	}
	v.say("%s %s is done after %s", c.Action, changeName(c), d)
}
func (v *scenarioView) Withdrawn(c *plan.Change, d time.Duration) {
	v.say("%s %s is withdrawn after %s", c.Action, changeName(c), d)
}
func (v *scenarioView) Noticed(n job.Notice) {
	v.say("%s", strings.TrimPrefix(fmt.Sprintf("%s %s: %s", n.Address, n.Type, n.Message), " "))
}
func (v *scenarioView) Condition(c conditions.Change) {
	more := prefixed(": ", c.Why.String())
	if c.Why.Code == ConditionOver {
		more = ""
	}
	if c.Type == conditions.Held {
		more = fmt.Sprintf(", since %s", c.Since.Sub(jobtest.Epoch))
	}
	v.say("%s %s %s%s", c.Type, c.About, strings.ReplaceAll(c.Reason.String(), "\n\n", " "), more)
}
func (v *scenarioView) Progressed(name string, p Progress) {
	v.say("job.%s is at step %d", name, p.Step)
}

func reasonsText(reasons []job.Reason) string {
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.String())
	}
	return strings.Join(texts, " ")
}

func changeName(c *plan.Change) string {
	if c.Slot == (job.Address{}) {
		return "job." + c.Job
	}
	return fmt.Sprintf("%s#%d", c.Slot, c.Incarnation)
}

func length(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	must(t, err)
	return d
}

func text(d *datadriven.TestData, name, otherwise string) string {
	for _, arg := range d.CmdArgs {
		if arg.Key == name && len(arg.Vals) > 0 {
			return arg.Vals[0]
		}
	}
	return otherwise
}

func list(d *datadriven.TestData, name string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == name {
			return arg.Vals
		}
	}
	return nil
}

func number(d *datadriven.TestData, name string, otherwise int) int {
	n, err := strconv.Atoi(text(d, name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("%s: %s: %v", d.Pos, name, err))
	}
	return n
}
