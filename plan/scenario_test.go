package plan_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/signature"
)

// TestScenarios plays the files of testdata: events in, plans out. Each command is one of
//
//	nodes          one per line: NAME cpu=4 mem=8GiB gpu=2 foreign=1 closed=cordoned problem=KernelDeadlock (changes a known node)
//	drop, die NAME  a node: removed from the declaration; removed with all that runs on it
//	job NAME       declares a job, or changes it: one role per line, and lines for the job itself
//	undeclare NAME removes a job from the files
//	fault          one per line: SLOT exit=17 [ago=1s] | signal=killed | oom | cannot=TEXT | unstarted=TEXT (by its node) | init=CODE (a container before its agent) | cause=CAUSE [MESSAGE] (its processes exit for that reason, and its agent) | agent | leave | asked=CAUSE (the infrastructure says why) | silent | heard | expired | finish,
//	               prints=SIGNATURE (a sample of its output) | raises=EXCEPTION (of Python) |
//	               or by the infrastructure: SLOT preempted | evicted | deleted | nodegone [EVIDENCE]
//	stuck SLOT     agents of the slot start and never register from now on, until unstuck SLOT
//	barren, fertile worlds make no progress from now on; they do again
//	suspect        one per line: JOB CAUSE SLOT ... [unsure] [nobody-differs] [cost=0.5]: what detection says of the newest worlds; empty removes it all
//	late           worlds show no step from now on, until they are told to
//	shows JOB STEP RATE [TOTAL]    the job's world is at a step, of so many
//	suspected JOB CAUSE AGO [certain] [cost=0.5]    detection suspects its world, since so long; without CAUSE nothing any more
//	check NODE VERDICT [PART]    what checks of the node yield from now on; without VERDICT they pass
//	checked        the newest check of each slot's node
//	goodput        where the time went until now, of each job
//	deaf SLOT      its agent does not learn that its world has ended, until one of its processes fails
//	restarts       how often slots were healed, and restarted in place
//	causes         each slot's last fault
//	incidents      the recorded incidents of each job
//	plan           plans, and shows the plan without carrying it out
//	sizes          plans, and shows the plan's sizes of elastic roles
//	pass           one pass: plan, carry out; the service does nothing
//	run            passes, with the service in between, until nothing more happens
//	advance 5s     lets time pass
//	forget         loses the state
//	ask ID VERB JOB[=VALUE] [by=] [expires=] [until=] [mode=] [value=] [node=(n1,n2)]    a request (JOB.ROLE=SIZE for scale); answered once its reply is final
//	acts           what the service is to tell members, and which worlds are to end
//	acted SLOT ID STATE [step=] [path=]    a member reports the outcome of an act
//	saved SLOT GENERATION STEP    a member reports a checkpoint
//	loss SLOT VALUE    a member reports a loss
//	old SLOT       its agent knows no acts
//	use            what is known of the use of the nodes
//	unheard        replies are lost from now on, until "replies": whoever leads crashes before they are stored
//	rerun          the next pass is an explicit apply
//	once, watch    from now on plans are for a run that ends; for one that continues, the default
//	slow, stopped  stops are not completed until "stopped"
//	lag, seen      what is launched is not in the snapshots until "seen"
//	keep           the jobs that are no longer declared continue
//	status         what runs
//
// and for a provider with a scheduler:
//
//	capabilities   the provider's capabilities, instead of placing: scheduler, needs-image, shared, nodes-unknown, owner=, site=
//	schedule       binds what fits, in the scheduler's own order
//	bind           one per line: SLOT NODE [starting] (bound, but not up yet)
//	registers      one per line: SLOT: its agent has registered, but its node is not observed yet
//	waiting        one per line: SLOT TEXT: why it is not up yet
//	drift          one per line: SLOT PATH BEFORE AFTER: somebody edited it
//	held           one per line: JOB TEXT: why nothing of it may be launched yet; without lines, no job is held
//	stray          one per line: JOB UID [OWNER]: a slot of a job of that UID runs
//	extra ROLE     cpu=, mem=, gpu=: what a pod of it takes in addition to its reservation; nothing if empty
//	bars           one per line: ROLE NODE REASON; "open ROLE" removes them
//	groups         what the provider is told about the jobs
//	away, back     the provider shows another site; it shows the first one again
//	graces         plans, and shows the grace of each stop
//	gated          which running slots were launched to wait for their gang
//	moved FROM TO, removed NAME, removed-declared ADDRESS, removed-module NAME, import SELECTOR ID    blocks of the files; blocks removes them all
//	named SLOT NAME   sets the infrastructure's name of a slot's incarnation
//	released       what is remembered of forgotten jobs
//	destroy        everything, from now on
//	avoided        which nodes slots avoid
//	marks          which nodes are used last, and why
//	target, exclude, replace   one address per line, from now on; unscoped removes them all. "references" are lines
//	               of target: ROLE < ROLE takes values from the other
//	refresh        updates the records from the snapshot; drifted shows what would change
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			w := newWorld()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "new" {
					w = newWorld()
					return ""
				}
				out, err := w.command(d)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return out
			})
		})
	}
}

func (w *world) command(d *datadriven.TestData) (string, error) {
	arg := ""
	if len(d.CmdArgs) > 0 {
		arg = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "nodes":
		for _, line := range lines(d.Input) {
			if err := w.declareNode(line); err != nil {
				return "", err
			}
		}
	case "drop", "die":
		w.removeNode(arg, d.Cmd == "die")
	case "job":
		if len(d.CmdArgs) != 1 {
			return "", errors.New("write only a name after job, and the rest in lines below, such as: job priority=1")
		}
		return "", w.declareJob(arg, lines(d.Input))
	case "limits": // of all jobs: limits cpu=4
		w.directory.Limits = nil
		for _, a := range d.CmdArgs {
			cores, err := strconv.Atoi(a.Vals[0])
			if err != nil {
				return "", err
			}
			c := job.CPU(1000 * cores)
			w.directory.Limits = &job.Limits{CPU: &c}
		}
	case "budget": // budget 10 suspend
		hours, err := strconv.ParseFloat(arg, 64)
		w.directory.Budget = &job.HourBudget{NodeHours: hours, Then: job.BudgetAction(d.CmdArgs[1].Key)}
		return "", err
	case "spent":
		return fmt.Sprintf("%.1f node hours, %d nodes\n", w.spent.Until(w.now), w.spent.Nodes), nil
	case "undeclare":
		w.jobs = slices.DeleteFunc(w.jobs, func(j job.Job) bool { return j.Name == arg })
	case "fault":
		for _, line := range lines(d.Input) {
			if err := w.hurt(strings.Fields(line)); err != nil {
				return "", err
			}
		}
	case "stuck", "unstuck":
		a, err := job.ParseAddress("job." + arg)
		w.stuck[a] = d.Cmd == "stuck"
		return "", err
	case "barren", "fertile":
		w.barren = d.Cmd == "barren"
	case "suspect":
		return "", w.suspect(d)
	case "late":
		w.late = true
	case "shows":
		step, err := strconv.ParseInt(d.CmdArgs[1].Key, 10, 64)
		if err != nil {
			return "", err
		}
		rate, err := strconv.ParseFloat(d.CmdArgs[2].Key, 64)
		var total int64
		if len(d.CmdArgs) > 3 {
			total, err = strconv.ParseInt(d.CmdArgs[3].Key, 10, 64)
		}
		w.shows(arg, step, rate, total)
		return "", err
	case "suspected":
		return "", w.suspected(arg, d.CmdArgs[1:])
	case "goodput":
		return w.goodput(), nil
	case "deaf":
		a, err := job.ParseAddress("job." + arg)
		w.deaf[a] = true
		return "", err
	case "restarts":
		return w.restarts(), nil
	case "causes":
		return w.causes(), nil
	case "incidents":
		return w.incidents(), nil
	case "plan":
		return render(plan.Make(w.input())), nil
	case "sizes":
		return sizesText(plan.Make(w.input())), nil
	case "pass":
		return render(w.pass()), nil
	case "run":
		return w.run()
	case "advance":
		span, err := time.ParseDuration(arg)
		w.now = w.now.Add(span)
		return "", err
	case "forget":
		w.lose()
	case "moved":
		w.moved[arg] = d.CmdArgs[1].Key
	case "removed":
		w.removed[arg] = true
	case "removed-declared":
		w.declared = append(w.declared, arg)
	case "removed-module":
		w.modules = append(w.modules, plan.Module{Address: "module." + arg, Begins: arg + "-"})
	case "import":
		to, err := job.ParseSelector("job." + arg)
		w.imports = append(w.imports, plan.Import{To: to, ID: d.CmdArgs[1].Key})
		return "", err
	case "blocks": // without any
		clear(w.moved)
		clear(w.removed)
		w.declared, w.modules = nil, nil
		w.imports = nil
	case "named":
		return "", w.name(arg, d.CmdArgs[1].Key)
	case "released":
		return w.releasedText(), nil
	case "destroy":
		w.destroy = true
	case "target", "exclude", "replace", "unscoped", "refresh", "drifted":
		return w.scopeCommand(d)
	case "use":
		return w.use(), nil
	case "ask":
		return "", w.ask(d)
	case "acts":
		return w.actsText(), nil
	case "acted", "saved", "loss", "old":
		return "", w.report(d)
	case "unheard", "replies":
		w.unheard = d.Cmd == "unheard"
	case "rerun":
		w.rerun = true
	case "once", "watch":
		w.once = d.Cmd == "once"
	case "keep":
		w.keep = true
	case "removals":
		in := w.input()
		p := plan.Make(in)
		return fmt.Sprintln(plan.Removals(&in, &p)), nil
	case "withhold":
		why := map[string]job.Reason{}
		for _, a := range d.CmdArgs {
			why[a.Key] = job.Because(job.Verbatim, "message", "The files are held back.")
		}
		return render(plan.Make(plan.Withhold(w.input(), why))), nil
	case "lag":
		w.lag = true
	case "seen":
		w.lag = false
		clear(w.unseen)
	case "slow":
		w.slowStop = true
	case "stopped":
		w.stopped()
	case "status":
		return w.status(), nil
	case "capabilities":
		return "", w.setCapabilities(d)
	case "schedule":
		w.schedule()
	case "bind", "registers", "waiting", "drift":
		for _, line := range lines(d.Input) {
			if err := w.setIncarnation(d.Cmd, line); err != nil {
				return "", err
			}
		}
	case "held":
		w.held = map[string]string{}
		for _, line := range lines(d.Input) {
			name, why, _ := strings.Cut(line, " ")
			w.held[name] = why
		}
	case "stray":
		for _, line := range lines(d.Input) {
			name, rest, _ := strings.Cut(line, " ")
			uid, owner, _ := strings.Cut(rest, " ")
			w.incs = append(w.incs, &job.Incarnation{Slot: job.Address{Job: name, Role: "worker"}, UID: uid, Owner: owner, Number: 1, State: job.Up, Node: w.nodes[0].Name, Provider: "local"})
		}
	case "bars":
		for _, line := range lines(d.Input) {
			words := strings.SplitN(line, " ", 3)
			role := "job." + words[0]
			if w.bars[role] == nil {
				w.bars[role] = map[string]string{}
			}
			w.bars[role][words[1]] = words[2]
		}
	case "open":
		delete(w.bars, "job."+arg)
	case "extra":
		var extra job.Resources
		for _, a := range d.CmdArgs[1:] {
			if known, err := resource(&extra, a.Key, a.Vals[0]); err != nil || !known {
				return "", fmt.Errorf("%s: %v", a, err)
			}
		}
		w.extra["job."+arg] = extra
	case "groups":
		return w.groupsText(), nil
	case "away":
		w.incs, w.far = nil, w.incs
	case "back":
		w.incs, w.far = append(w.far, w.incs...), nil
	case "graces":
		return graces(plan.Make(w.input())), nil
	case "gated":
		return w.gatedText(), nil
	case "avoided":
		return w.avoided(), nil
	case "marks":
		return w.marks(), nil
	case "check":
		return "", w.setCheck(d.CmdArgs)
	case "checked":
		return w.checked(), nil
	default:
		return "", fmt.Errorf("no such command")
	}
	return "", nil
}

// suspect sets what detection says of a job's newest world.
func (w *world) suspect(d *datadriven.TestData) error {
	w.suspicions = map[string][]job.Suspicion{}
	for _, line := range lines(d.Input) {
		words := strings.Fields(line)
		s := job.Suspicion{Cause: job.Cause(words[1]), Generation: w.worlds[words[0]].Generation, Since: w.now, Certain: true, Ranks: []int{0}}
		s.Evidence = []job.Reason{job.Because("evidence")}
		for _, word := range words[2:] {
			switch word {
			case "unsure":
				s.Certain = false
			case "nobody-differs":
				s.Ranks = nil
			default:
				if share, is := strings.CutPrefix(word, "cost="); is {
					var err error
					if s.Cost, err = strconv.ParseFloat(share, 64); err != nil {
						return err
					}
					continue
				}
				a, err := job.ParseShort(words[0], word)
				if err != nil {
					return err
				}
				s.Slots = append(s.Slots, a)
			}
		}
		w.suspicions[words[0]] = append(w.suspicions[words[0]], s)
	}
	return nil
}

// name sets the name of a slot's newest incarnation, and its owner's from its job.
func (w *world) name(slot, name string) error {
	a, err := job.ParseAddress("job." + slot)
	if err != nil {
		return err
	}
	inc := w.at(a)
	inc.Name, inc.Group = name, "group-of-"+inc.UID
	return nil
}

func (w *world) releasedText() string {
	var b strings.Builder
	for _, uid := range slices.Sorted(maps.Keys(w.released)) {
		fmt.Fprintf(&b, "%s, launched as %s\n", uid, w.released[uid].Name)
	}
	for _, inc := range w.incs {
		if _, is := w.released[inc.UID]; is && inc.State != job.Gone {
			fmt.Fprintf(&b, "%s#%d %s\n", inc.Slot.Short(), inc.Number, inc.State)
		}
	}
	return b.String()
}

func (w *world) setCapabilities(d *datadriven.TestData) error {
	w.can = job.Capabilities{Places: true}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "nodes-unknown":
			w.can.NodesUnknown = true
		case "owner":
			w.can.Owner = a.Vals[0]
		case "site":
			w.can.Site = a.Vals[0]
		case "scheduler":
			w.can.Places = false
		case "attributes":
			w.can.Attributes = true
		case "needs-image":
			w.can.NeedsImage, w.can.Images = true, true
		case "images":
			w.can.Images = true
		case "shared":
			w.can.Shared = true
		case "refused":
			w.can.Refused = "This cluster has no gangs. Install them."
		default:
			return fmt.Errorf("no capability %s", a.Key)
		}
	}
	return nil
}

// setIncarnation changes the newest incarnation of a slot.
func (w *world) setIncarnation(what, line string) error {
	name, rest, _ := strings.Cut(line, " ")
	a, err := job.ParseAddress("job." + name)
	if err != nil {
		return err
	}
	inc := w.at(a)
	if inc == nil {
		return fmt.Errorf("%s does not run", a)
	}
	words := strings.Fields(rest)
	switch {
	case what == "waiting":
		inc.Waiting = rest
	case what == "registers":
		inc.Member = &job.Member{State: job.MemberWaiting, Registered: w.now}
	case what == "drift":
		inc.Drift = append(inc.Drift, job.FieldChange{Path: words[0], Before: words[1], After: words[2]})
	case len(words) == 2 && words[1] == "starting":
		inc.Node = words[0]
	default:
		w.bind(inc, words[0])
	}
	return nil
}

func (w *world) groupsText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		fmt.Fprintf(&b, "%s:", name)
		for _, r := range w.groups[name].Roles {
			fmt.Fprintf(&b, " %s %d of %s", r.Role, r.Min, r.Each)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func sizesText(p plan.Plan) string {
	var b strings.Builder
	for _, s := range p.Sizes {
		fmt.Fprintf(&b, "%s.%s replicas = %d", s.Job, s.Role, s.Replicas)
		if s.Changes() {
			fmt.Fprintf(&b, ", %d -> %d", s.Before, s.Now)
		} else {
			fmt.Fprintf(&b, ", now %d", s.Now)
		}
		fmt.Fprintf(&b, " within %d..%d", s.Min, s.Max)
		if len(s.Reasons) > 0 {
			b.WriteString(": " + texts(s.Reasons, "; "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func texts(reasons []job.Reason, between string) string {
	var all []string
	for _, r := range reasons {
		all = append(all, r.String())
	}
	return strings.Join(all, between)
}

func graces(p plan.Plan) string {
	var b strings.Builder
	for _, c := range p.Changes {
		if len(c.Stop) > 0 {
			fmt.Fprintf(&b, "%s %s\n", c.Slot, c.Grace)
		}
	}
	return b.String()
}

func (w *world) gatedText() string {
	var b strings.Builder
	for _, inc := range w.incs {
		if inc.State != job.Gone && w.gated[inc] {
			fmt.Fprintf(&b, "%s\n", inc.Slot)
		}
	}
	return b.String()
}

func (w *world) restarts() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		for _, s := range w.records[name].Slots {
			if s.Restarts+s.InPlace > 0 {
				fmt.Fprintf(&b, "%s restarts=%d in-place=%d\n", s.Address.Short(), s.Restarts, s.InPlace)
			}
		}
	}
	return b.String()
}

func (w *world) causes() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		for _, s := range w.records[name].Slots {
			fmt.Fprintf(&b, "%s %s\n", s.Address.Short(), cmp.Or(s.Cause, "none"))
		}
	}
	return b.String()
}

func (w *world) incidents() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		for _, i := range w.records[name].Incidents {
			culprits := make([]string, len(i.Culprits))
			for k, c := range i.Culprits {
				culprits[k] = c.Short()
			}
			fmt.Fprintf(&b, "%s generation %d %s in %s: %s: %s\n", name, i.Generation, i.Cause, strings.Join(culprits, ", "), i.Action, texts(i.Evidence, "; "))
		}
	}
	return b.String()
}

func (w *world) avoided() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		for _, s := range w.records[name].Slots {
			if len(s.Avoid) > 0 {
				fmt.Fprintf(&b, "%s avoids %s\n", s.Address, strings.Join(s.Avoid, ", "))
			}
		}
	}
	return b.String()
}

// marks shows what plan.Marks says, a line for each node or provider.
func (w *world) marks() string {
	var b strings.Builder
	reasons := plan.Marks(w.marked, w.nodes, w.now)
	for _, about := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "%s %s\n", about, reasons[about])
	}
	return cmp.Or(b.String(), "none\n")
}

// setCheck sets what checks of a node yield.
func (w *world) setCheck(args []datadriven.CmdArg) error {
	o := job.CheckOutcome{Seconds: 1}
	if len(args) > 1 {
		o.Verdict = job.CheckVerdict(args[1].Key)
		switch o.Verdict {
		case job.CheckFaulty:
			o.Part, o.Message = job.CheckPart(args[2].Key), "wrong"
		case job.CheckUnknown:
			o.Message = "no such tool"
		case job.CheckStraggler:
			o.Seconds, o.Median = 3.2, 1
		case job.CheckRuns:
		default:
			return fmt.Errorf("no verdict %s", o.Verdict)
		}
	}
	if w.checks == nil {
		w.checks = map[string]job.CheckOutcome{}
	}
	w.checks[args[0].Key] = o
	return nil
}

// checked shows the newest check of each running slot's node.
func (w *world) checked() string {
	var b strings.Builder
	for _, inc := range w.incs {
		if inc.State != job.Gone && inc.Member != nil && inc.Member.Check != nil {
			fmt.Fprintf(&b, "%s #%d on %s: check %d %s\n", inc.Slot.Short(), inc.Number, inc.Node, inc.Member.Check.Number, inc.Member.Check.Verdict)
		}
	}
	return cmp.Or(b.String(), "none\n")
}

func lines(s string) []string {
	var out []string
	for _, l := range strings.Split(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// settings reads "a=1 b" as pairs.
func settings(words []string) [][2]string {
	var pairs [][2]string
	for _, word := range words {
		k, v, _ := strings.Cut(word, "=")
		pairs = append(pairs, [2]string{k, v})
	}
	return pairs
}

// resource reads one amount into r; false if the key names none.
func resource(r *job.Resources, key, value string) (bool, error) {
	n, _ := strconv.ParseFloat(value, 64)
	var err error
	switch key {
	case "cpu":
		r.CPU, err = job.Cores(n)
	case "mem":
		r.Memory, err = job.ParseBytes(value)
	case "gpu":
		r.Devices = map[string]int{"gpu": int(n)}
	default:
		return false, nil
	}
	return true, err
}

func (w *world) declareNode(line string) error {
	words := strings.Fields(line)
	n := w.node(words[0])
	if n == nil {
		w.nodes = append(w.nodes, jobtest.Node(words[0], job.Resources{}))
		n = w.node(words[0])
	}
	for _, kv := range settings(words[1:]) {
		switch kv[0] {
		case "closed":
			n.Closed = kv[1]
		case "drained":
			n.Drained = kv[1]
		case "devices":
			n.AnyDevice = kv[1] == "any"
		case "problem":
			n.Problems = nil
			if kv[1] != "" {
				n.Problems = []job.NodeProblem{{Name: kv[1], Message: "reported"}}
			}
		case "slots":
			slots, err := strconv.Atoi(kv[1])
			if err != nil {
				return err
			}
			n.Slots = slots
		case "foreign":
			if _, err := resource(&n.Foreign, "cpu", kv[1]); err != nil {
				return err
			}
		default:
			if known, err := resource(&n.Capacity, kv[0], kv[1]); err != nil || !known {
				return fmt.Errorf("%s: %v", line, err)
			}
		}
	}
	return nil
}

func (w *world) declareJob(name string, text []string) error {
	j := jobtest.Job(name)
	for _, line := range text {
		words := strings.Fields(line)
		pairs := settings(words[1:])
		switch words[0] {
		case "job":
			for _, kv := range pairs {
				if err := setJob(&j, kv[0], kv[1]); err != nil {
					return err
				}
			}
		default:
			r := jobtest.Role(words[0], 1)
			for _, kv := range pairs {
				if err := setRole(&r, kv[0], kv[1]); err != nil {
					return err
				}
			}
			j.Roles = append(j.Roles, r)
		}
	}
	w.jobs = slices.DeleteFunc(w.jobs, func(old job.Job) bool { return old.Name == name })
	w.jobs = append(w.jobs, j)
	return nil
}

func setJob(j *job.Job, key, value string) error {
	n, _ := strconv.Atoi(value)
	var err error
	switch key {
	case "address":
		j.Address = value
	case "priority":
		j.Priority = n
	case "restarts":
		j.Heal.Budget.Restarts = n
	case "exit": // exit=3:fail,75:retry
		j.Heal.ExitCodes = map[string]string{}
		for _, pair := range strings.Split(value, ",") {
			code, verdict, _ := strings.Cut(pair, ":")
			j.Heal.ExitCodes[code] = verdict
		}
	case "oom":
		var f job.Factor
		f, err = job.ParseFactor(value)
		j.Heal.On = []job.On{{Cause: "oom", Memory: f, Limit: 1}}
	case "on": // on=hang:action=replace:limit=2:window=1h:backoff=10s
		words := strings.Split(value, ":")
		on := job.On{Cause: words[0]}
		for _, kv := range settings(words[1:]) {
			switch kv[0] {
			case "action":
				on.Action = job.Remedy(kv[1])
			case "limit":
				on.Limit, err = strconv.Atoi(kv[1])
			case "window":
				on.Window, err = job.ParseDuration(kv[1])
			case "after":
				on.After, err = job.ParseDuration(kv[1])
			case "backoff":
				on.Backoff, err = job.ParseDuration(kv[1])
			default:
				err = fmt.Errorf("on has no %s", kv[0])
			}
			if err != nil {
				return err
			}
		}
		j.Heal.On = append(j.Heal.On, on)
	case "check":
		c := job.DefaultCheck
		c.When = job.CheckWhen(value)
		j.Detect.Check = &c
	case "limit":
		c := job.CPU(n * 1000)
		j.Limits = &job.Limits{CPU: &c}
	case "limitmem":
		var m job.Bytes
		m, err = job.ParseBytes(value)
		j.Limits = &job.Limits{Memory: &m}
	case "limitgpu":
		j.Limits = &job.Limits{Devices: map[string]int{"gpu": n}}
	case "timeout":
		j.Rendezvous.Timeout, err = job.ParseDuration(value)
	case "provider":
		j.Provider = value
	case "suspend":
		j.Suspend = true
	case "preempt":
		j.Preempt = true
	case "preemptible":
		j.Preemptible = true
	case "prevent":
		j.Lifecycle.PreventDestroy = true
	case "ignore":
		j.Lifecycle.IgnoreChanges = strings.Split(value, ",")
	case "progress":
		j.Progress = &job.Progress{Pattern: cmp.Or(value, `step (?P<step>\d+)`)}
	case "signal":
		j.Checkpoint = &job.Checkpoint{Dir: "ckpt", Signal: value}
	case "pattern": // after signal
		j.Checkpoint.Pattern = value
	default:
		err = fmt.Errorf("job has no %s", key)
	}
	return err
}

func setRole(r *job.Role, key, value string) error {
	if key == "follows" { // follows=worker:1-1,5-2
		leader, counts, _ := strings.Cut(value, ":")
		r.Follows = &job.Follows{Role: leader}
		for _, pair := range strings.Split(counts, ",") {
			from, count, _ := strings.Cut(pair, "-")
			size, err := strconv.Atoi(from)
			if err != nil {
				return err
			}
			if r.Replicas, err = strconv.Atoi(count); err != nil {
				return err
			}
			r.Follows.Add(size, r.Replicas)
		}
		r.Replicas = r.Follows.At(0)
		return nil
	}
	if known, err := resource(&r.Resources, key, value); known || err != nil {
		return err
	}
	n, _ := strconv.Atoi(value)
	if slices.Contains([]string{"min", "max", "step", "sizes"}, key) && r.Scaling == nil {
		r.Scaling = &job.Scaling{Step: 1}
	}
	switch key {
	case "replicas":
		r.Replicas = n
	case "min":
		r.Scaling.Min = n
	case "max":
		r.Scaling.Max = n
	case "step":
		r.Scaling.Step = n
	case "sizes":
		for _, size := range strings.Split(value, ",") {
			k, err := strconv.Atoi(size)
			if err != nil {
				return err
			}
			r.Scaling.Sizes = append(r.Scaling.Sizes, k)
		}
	case "together":
		r.Update = &job.Updating{MaxUnavailable: n}
	case "after":
		r.DependsOn = strings.Split(value, ",")
	case "command":
		r.Command = []string{value}
	case "image":
		r.Image = value
	case "source": // train.py:DIGEST,lib/a.py:DIGEST
		r.Source = job.Files{}
		for _, file := range strings.Split(value, ",") {
			path, digest, _ := strings.Cut(file, ":")
			r.Source[path] = digest
		}
	case "unranked":
		r.Ranked = false
	default:
		return fmt.Errorf("role has no %s", key)
	}
	return nil
}

func (w *world) hurt(words []string) error {
	a, err := job.ParseAddress("job." + words[0])
	if err != nil {
		return err
	}
	inc := w.at(a)
	key, value, _ := strings.Cut(words[1], "=")
	cause := map[string]job.Cause{"preempted": job.Preemption, "evicted": job.Eviction, "deleted": job.Deletion, "nodegone": job.NodeGone}[key]
	if inc == nil || inc.Member == nil && words[1] != "agent" && key != "unstarted" && key != "init" && cause == "" {
		return fmt.Errorf("%s does not run", a)
	}
	if cause != "" { // what the infrastructure stops was asked to stop first, and exits with some code
		w.end(inc, job.EndLeft, &job.Exit{Code: 143, Signal: "terminated"})
		inc.Cause = cause
		if len(words) > 2 {
			inc.Evidence = []string{strings.Join(words[2:], " ")}
		}
		return nil
	}
	switch key {
	case "exit":
		code, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		exit := job.Exit{Code: code}
		if len(words) > 2 {
			ago, err := time.ParseDuration(strings.TrimPrefix(words[2], "ago="))
			if err != nil {
				return err
			}
			exit.At = w.now.Add(-ago)
		}
		w.fail(a, exit)
	case "signal":
		w.fail(a, job.Exit{Code: 137, Signal: value})
	case "oom":
		w.fail(a, job.Exit{Code: 137, Signal: "killed", OOM: true})
	case "cannot":
		w.fail(a, job.Exit{Code: 127, NotStarted: value})
	case "unstarted":
		w.end(inc, "", &job.Exit{Code: 128, NotStarted: value})
		inc.Cause = job.NodeFailed
	case "init":
		code, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		exit := &job.Exit{Code: code}
		if code > 128 {
			exit.Signal = syscall.Signal(code - 128).String()
		}
		w.end(inc, "", exit)
		inc.Cause, inc.Evidence = exit.Cause(), []string{"init container fetch"}
	case "agent":
		w.end(inc, "", &job.Exit{Code: 137, Signal: "killed"})
	case "prints": // the last output of a sample
		i := slices.IndexFunc(signature.Builtin(), func(s signature.Signature) bool { return s.Name == value })
		if i < 0 {
			return fmt.Errorf("no such signature: %s", value)
		}
		s := signature.Builtin()[i]
		w.fail(a, job.Exit{Code: max(1, s.ExitCode), Tail: s.Samples[0].Lines})
	case "raises":
		exception := strings.TrimPrefix(strings.Join(words[1:], " "), "raises=")
		w.fail(a, job.Exit{Code: 1, Tail: []string{"Traceback (most recent call last):", `  File "train.py", line 1, in <module>`, exception}})
	case "cause": // cause=network [MESSAGE]
		exit := &job.Exit{Code: 1, Message: strings.Join(words[2:], " ")}
		w.end(inc, job.EndFailed, exit)
		inc.Cause = job.Cause(value)
	case "leave":
		inc.Member.State, inc.Member.Left = job.MemberLeaving, w.now
	case "asked":
		inc.Cause = job.Cause(value)
	case "silent":
		inc.Member.Silent = true
	case "heard":
		inc.Member.Silent, inc.Member.Expired = false, false
	case "expired":
		inc.Member.Silent, inc.Member.Expired = true, true
	case "finish":
		w.end(inc, job.EndFinished, &job.Exit{})
	case "lingers": // its processes have succeeded, and its agent stays
		inc.Member.State, inc.Member.Exit = job.MemberSucceeded, &job.Exit{At: w.now}
	default:
		return fmt.Errorf("no such fault: %s", key)
	}
	return nil
}

// run settles the world and shows every pass in which something happened, then what runs.
func (w *world) run() (string, error) {
	var b strings.Builder
	last := "nothing\n"
	err := w.settle(30, func(p plan.Plan) {
		if text := render(p); text != last {
			b.WriteString(text)
			last = text
		}
	})
	b.WriteString(w.status())
	return b.String(), err
}

// status is a line per job, and a line per slot that has a place or a future.
func (w *world) status() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		rec := w.records[name]
		fmt.Fprintf(&b, "= %s %s generation %d", name, rec.Phase, rec.World.Generation)
		if n := len(rec.Charges); n > 0 {
			fmt.Fprintf(&b, " charged %d", n)
		}
		if !rec.Verdict.IsZero() {
			fmt.Fprintf(&b, ", %s", rec.Verdict)
		}
		b.WriteString(":")
		var order []string
		groups := map[string][]job.Slot{}
		for _, s := range rec.Slots {
			if s.Phase == job.Canceled {
				continue
			}
			key := fmt.Sprintf("%s %s#%d %s", s.Address.Role, s.Phase, s.Incarnation, s.Node)
			if groups[key] == nil {
				order = append(order, key)
			}
			groups[key] = append(groups[key], s)
		}
		for i, key := range order {
			var indices []int
			for _, s := range groups[key] {
				indices = append(indices, s.Address.Index)
			}
			role, rest, _ := strings.Cut(key, " ")
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, " %s %s", job.Fold(role, indices), strings.TrimSpace(rest))
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "= nothing\n"
	}
	return b.String()
}

// render is a plan in short: equal changes of a role are folded.
func render(p plan.Plan) string {
	var b strings.Builder
	for _, n := range p.Notices {
		switch n.Type {
		case "rejected":
			fmt.Fprintf(&b, "REJECTED %s: %s\n", n.Address, n.Reason)
		case "incident":
			fmt.Fprintf(&b, "! %s %s: %s\n", n.Address, n.Reason, texts(n.Incident.Evidence, "; "))
		default:
			fmt.Fprintf(&b, "* %s %s\n", n.Address, n.Reason)
		}
	}
	type kind struct {
		text, role string
	}
	var order []kind
	folded := map[kind][]int{}
	signs := map[plan.Action]string{plan.Create: "+", plan.Update: "~", plan.Restart: "~ restart", plan.Replace: "-/+", plan.Delete: "-", plan.Forget: ".", plan.NoOp: "="}
	for _, c := range p.Changes {
		text := signs[c.Action] + " " + c.Job + "."
		if c.Slot == (job.Address{}) {
			text = strings.TrimSuffix(text, ".")
		}
		after := ""
		if c.Action == plan.Create || c.Launch != nil {
			after += fmt.Sprintf(" #%d on %s", c.Incarnation, c.Node)
		} else if c.Action == plan.Replace {
			after += " to " + cmp.Or(c.Node, "?")
		}
		if c.From != "" {
			after += " from " + c.From
		}
		if c.Import != "" {
			after += " imported as " + c.Import
		}
		if len(c.Stop) > 0 {
			after += fmt.Sprintf(" stop %s", strings.Trim(fmt.Sprint(c.Stop), "[]"))
		}
		if c.Force {
			after += " by force"
		}
		if c.Wave > 0 {
			after += fmt.Sprintf(" (wave %d)", c.Wave)
		}
		if len(c.Reasons) > 0 {
			after += ": " + texts(c.Reasons, "; ")
		}
		if c.Action == plan.Update || c.Action == plan.Replace {
			for _, f := range c.Fields {
				after += fmt.Sprintf(" [%s %s -> %s]", f.Path, cmp.Or(f.Before, "none"), cmp.Or(f.After, "none"))
			}
		}
		k := kind{text + "%s" + after, c.Slot.Role}
		if _, known := folded[k]; !known {
			order = append(order, k)
		}
		folded[k] = append(folded[k], c.Slot.Index)
	}
	for _, k := range order {
		slots := ""
		if k.role != "" {
			slots = job.Fold(k.role, folded[k])
		}
		before, after, _ := strings.Cut(k.text, "%s")
		fmt.Fprintln(&b, before+slots+after)
	}
	for _, x := range p.Waits {
		what := "waits"
		if x.Never {
			what = "can never run"
		}
		if x.Passing {
			what = "is queued"
		}
		if x.Held {
			what = "is held back"
		}
		fmt.Fprintf(&b, "? %s %s: %s\n", strings.TrimSuffix(x.Job+"."+x.Role, "."), what, texts(x.Reasons, " "))
	}
	cordons := plan.Cordons(p.Nodes)
	for _, node := range slices.Sorted(maps.Keys(cordons)) {
		fmt.Fprintf(&b, "/ %s %s\n", node, cordons[node])
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(&b, "REFUSED %s: %s\n", r.Job, r.Reason)
	}
	for _, r := range p.Replies {
		text := fmt.Sprintf("> %s %s", r.ID, r.State)
		if !r.Reason.IsZero() {
			text += ": " + r.Reason.String()
		}
		for _, result := range r.Results {
			text += ", " + result.String()
		}
		fmt.Fprintln(&b, text)
	}
	if !p.Wake.IsZero() {
		fmt.Fprintf(&b, "wake +%s\n", p.Wake.Sub(jobtest.Epoch))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// use shows what plan.Nodes says, a line for each node.
func (w *world) use() string {
	var b strings.Builder
	for _, u := range plan.Nodes(w.input()) {
		fmt.Fprintf(&b, "%s %s: %s free", u.Name, map[bool]string{true: "usable", false: "not usable"}[u.Usable], u.Free)
		for _, h := range u.Held {
			fmt.Fprintf(&b, ", %s#%d %s", h.Slot, h.Incarnation, h.Resources)
			if h.Leaving {
				b.WriteString(" leaving")
			}
		}
		for _, why := range u.Reasons {
			fmt.Fprintf(&b, "\n  %s", why)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// ask makes a request.
func (w *world) ask(d *datadriven.TestData) error {
	r := job.Request{ID: d.CmdArgs[0].Key, Verb: job.Verb(d.CmdArgs[1].Key), By: "ann", At: w.now}
	var values []string
	for _, a := range d.CmdArgs[2:] {
		var err error
		span := func() (t time.Time) {
			var d time.Duration
			d, err = time.ParseDuration(a.Vals[0])
			return w.now.Add(d)
		}
		switch a.Key {
		case "by":
			r.By = a.Vals[0]
		case "value":
			r.Value = a.Vals[0]
		case "expires":
			r.Expires = span()
		case "until":
			r.Until = span()
		case "mode":
			r.Mode = a.Vals[0]
		case "node":
			r.Nodes = a.Vals
		default:
			var sel job.Selector
			sel, err = job.ParseSelector("job." + a.Key)
			r.On = append(r.On, sel)
			if len(a.Vals) > 0 {
				values = append(values, a.Vals[0])
			}
		}
		if err != nil {
			return err
		}
	}
	if len(values) > 0 {
		r.Value = strings.Join(values, ",")
	}
	w.requests = append(w.requests, r)
	slices.SortFunc(w.requests, job.CompareRequests)
	return nil
}

// actsText is what the newest wants say about acts and reloads.
func (w *world) actsText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.wants)) {
		want := w.wants[name]
		for _, a := range want.Acts {
			fmt.Fprintf(&b, "%s: %s %s %s:", name, a.ID, a.Kind, a.Value)
			for _, slot := range slices.Sorted(maps.Keys(a.Slots)) {
				fmt.Fprintf(&b, " %s#%d", slot, a.Slots[slot])
			}
			b.WriteString("\n")
		}
		if r := want.Reload; r.Request != "" {
			fmt.Fprintf(&b, "%s: %s ends worlds through %d, resume %d", name, r.Request, r.Through, r.Step)
			if r.Save {
				b.WriteString(", after a checkpoint")
			}
			b.WriteString("\n")
		}
		if want.Kill > 0 {
			fmt.Fprintf(&b, "%s: worlds through %d are killed\n", name, want.Kill)
		}
	}
	return b.String()
}

// report changes what a member reports.
func (w *world) report(d *datadriven.TestData) error {
	a, err := job.ParseAddress("job." + d.CmdArgs[0].Key)
	if err != nil {
		return err
	}
	m := w.at(a).Member
	number := func(text string) (n int64) {
		n, err = strconv.ParseInt(text, 10, 64)
		return n
	}
	switch d.Cmd {
	case "old":
		m.Can = nil
	case "loss":
		var loss float64
		loss, err = strconv.ParseFloat(d.CmdArgs[1].Key, 64)
		m.Loss = (*job.Loss)(&loss)
	case "saved":
		m.Saved = job.Saved{Generation: int(number(d.CmdArgs[1].Key)), Step: number(d.CmdArgs[2].Key)}
	case "acted":
		r := job.ActResult{ID: d.CmdArgs[1].Key, State: job.ActState(d.CmdArgs[2].Key)}
		for _, arg := range d.CmdArgs[3:] {
			switch text := arg.Vals[0]; arg.Key {
			case "step":
				r.Step = number(text)
			case "flaw":
				r.Flaw.Code = job.FlawCode(text)
			case "file":
				r.Flaw.File = text
			default:
				r.Path = text
			}
		}
		m.Acts = append(slices.Clone(m.Acts), r)
	}
	return err
}

func (w *world) suspected(name string, args []datadriven.CmdArg) error {
	delete(w.suspicions, name)
	if len(args) == 0 {
		return nil
	}
	ago, err := time.ParseDuration(args[1].Key)
	s := job.Suspicion{Cause: job.Cause(args[0].Key), Generation: w.worlds[name].Generation, Since: w.now.Add(-ago)}
	for _, arg := range args[2:] {
		if arg.Key == "certain" {
			s.Certain = true
		} else if s.Cost, err = strconv.ParseFloat(arg.Vals[0], 64); err != nil {
			return err
		}
	}
	w.suspicions[name] = []job.Suspicion{s}
	return err
}

func (w *world) goodput() string {
	in := w.input()
	ledgers := plan.Goodput(w.records, &in.Snapshot, w.now)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ledgers)) {
		g := ledgers[name]
		parts := g.Lost.Parts()
		parts["productive"], parts["unknown"] = g.Productive, g.Unknown
		fmt.Fprintf(&b, "%s %.1fs:", name, g.Wall)
		for _, part := range slices.Sorted(maps.Keys(parts)) {
			if parts[part] > 0 {
				fmt.Fprintf(&b, " %s %.1fs", part, parts[part])
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
