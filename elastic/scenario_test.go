package elastic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
)

// TestScenarios runs the scripts in testdata/scenarios. A command is an event; under it is the coordinator's
// response: worlds written to the ledger, changed orders, refusals.
//
//	want [settle=5s] [lease=15s] [hang=(3s,10m)] [hold] [rank-by=(rack,switch)] [group=(tensor,2)]     lines: ROLE 0-3 min=2 max=4 [step=2] [sizes=(2,4)] [processes=2]
//	                                                                       ROLE 0-1 unranked
//	slot worker[1] [incarnation=2] [in-place=1] [leave [return] [force]] [back] [rank=3] [levels=(r1,s1)]      with the planned node's levels
//	register worker[0-3] [incarnation=1] [state=running gen=1 rank=0 slots=4] [seq=1] [levels=(r1,s1)] [can]      with its node's levels; knows acts
//	say worker[0] waiting|running|failed|succeeded|leaving [incarnation=1] [gen=1] [in-place=1] [code=1] [saved=1] [seq=3]      with a checkpoint of generation 1
//	act r1 signal [value=SIGUSR2] worker[0-1], acted worker[0] r1 done, settled r1
//	                                         the planner wants an act; a member reports its outcome; the planner has taken them
//	reload 1 [step=100] [save]               worlds up to generation 1 are to end
//	does worker[1] [step=5] [state=T] [busy=0.9] [in=ep_poll] [stack=(a,b)] [entered=(GROUP,6)] [waits=(GROUP,7)]     what its process does from now on; a stack and collectives are evidence
//	check [all] [worker[1]=2] [timeout=8s]   which members check their node; none without arguments. register with checks: can do so
//	checked worker[0] [number=1] [took=1.5] [port] [failed=matmul]    what a member has found out; with port, it can be reached
//	exchanged worker[0] [took=0.1] [failed]    how a member's newest exchange went
//	kill through=1                           worlds up to generation 1 hang
//	gone worker[1] [incarnation=1] [succeeded]
//	disconnect worker[1]
//	silence worker[1], speak worker[1]       stops its beats, or resumes them
//	pass 5s                                  time passes, members beat
//	stall 20s                                the master itself does not run
//	ledger fail|ok|mute|answer
//	record                                   the planner stores the current world
//	restart [lost] [news=2m]                 a new master, with the record or without; news is how long until all agents know it
//	facts, members, peers ps[0]              the last: the list that its member was last told
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newScenario()
		datadriven.RunTest(t, path, s.run)
	})
}

const scenarioJob = "gpt"

// scenario is a coordinator with a clock, a ledger, and agents that only beat.
type scenario struct {
	c       *Coordinator
	now     time.Time
	tickAt  time.Time
	want    job.Want
	slots   map[job.Address]DesiredSlot
	listed  []job.Address
	nodes   map[string][]string // their levels, by name
	world   job.World           // as the ledger has it
	ledger  string              // fail, mute, or ok
	pending []Forming
	agents  map[job.Address]*scriptedAgent
	news    time.Duration
	changes uint64
	out     strings.Builder
}

// scriptedAgent is what the harness knows about a member.
type scriptedAgent struct {
	begun       time.Time // of its process; zero if it does not say
	incarnation int
	report      Report
	silent      bool
	seen        uint64
	told        string // the newest order
	peers       *Peers
	said        time.Time
	steps, held time.Time // when its process showed its step, and since when it is in its state
}

func newScenario() *scenario {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return &scenario{c: NewCoordinator(), now: start, ledger: "ok", slots: map[job.Address]DesiredSlot{}, nodes: map[string][]string{}, agents: map[job.Address]*scriptedAgent{}}
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "want":
		s.wants(t, d)
	case "slot":
		for _, a := range s.selected(t, d) {
			s.editSlot(t, d, a)
		}
		s.set()
	case "register":
		for _, a := range s.selected(t, d) {
			s.register(t, d, a)
		}
	case "say":
		for _, a := range s.selected(t, d) {
			s.say(t, d, a)
		}
	case "act":
		act := job.WantAct{Act: job.Act{ID: d.CmdArgs[0].Key, Kind: job.ActKind(d.CmdArgs[1].Key)}, Slots: map[string]int{}}
		for _, arg := range d.CmdArgs[2:] {
			if arg.Key == "value" {
				act.Value = arg.Vals[0]
				continue
			}
			d.CmdArgs[0].Key = arg.Key
			for _, a := range s.selected(t, d) {
				act.Slots[a.Short()] = s.slots[a].Incarnation
			}
		}
		s.want.Acts = append(slices.Clone(s.want.Acts), act)
		s.set()
	case "settled":
		s.want.Acts = slices.DeleteFunc(slices.Clone(s.want.Acts), func(a job.WantAct) bool { return a.ID == d.CmdArgs[0].Key })
		s.set()
	case "acted":
		for _, a := range s.selected(t, d) {
			r := &s.agents[a].report
			r.Acts = append(slices.Clone(r.Acts), job.ActResult{ID: d.CmdArgs[1].Key, State: job.ActState(d.CmdArgs[2].Key)})
			s.sync(a, s.agents[a].incarnation, 0)
		}
	case "reload":
		through, err := strconv.Atoi(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.want.Reload = job.Reload{Request: "r", Through: through, Step: int64(number(t, d, "step", 0)), Save: d.HasArg("save")}
		s.set()
	case "check":
		s.checks(t, d)
	case "checked":
		for _, a := range s.selected(t, d) {
			s.checked(t, d, a)
		}
	case "exchanged":
		for _, a := range s.selected(t, d) {
			s.exchanged(t, d, a)
		}
	case "progress": // by a pattern, or by what is known of frameworks
		s.want.Progress = nil
		if len(d.CmdArgs) > 0 {
			s.want.Progress = &job.Progress{Pattern: d.CmdArgs[0].Key}
		}
		s.set()
	case "kill":
		s.want.Kill = number(t, d, "through", 0)
		s.set()
	case "gone":
		for _, a := range s.selected(t, d) {
			s.c.Gone(s.now, a, number(t, d, "incarnation", s.slots[a].Incarnation), d.HasArg("succeeded"))
		}
	case "does":
		for _, a := range s.selected(t, d) {
			s.does(t, d, a)
		}
	case "disconnect":
		for _, a := range s.selected(t, d) {
			s.c.Disconnected(s.now, a, s.slots[a].Incarnation)
		}
	case "silence", "speak":
		for _, a := range s.selected(t, d) {
			s.agents[a].silent = d.Cmd == "silence"
		}
	case "pass":
		s.pass(duration(t, d))
	case "stall":
		s.now = s.now.Add(duration(t, d))
		s.tick()
	case "ledger":
		s.setLedger(d.CmdArgs[0].Key)
	case "record":
		s.world = s.c.Observe()[scenarioJob].World
	case "restart":
		if d.HasArg("lost") {
			s.world = job.World{}
		}
		s.news = 0
		if d.HasArg("news") {
			var text string
			d.ScanArgs(t, "news", &text)
			s.news = parsedDuration(t, text).Std()
		}
		s.c, s.tickAt, s.pending, s.changes = NewCoordinator(), time.Time{}, nil, 0
		for _, a := range s.agents {
			a.seen, a.told, a.silent = 0, "", true // until it registers
		}
		s.set()
	case "remove":
		s.c.Remove(scenarioJob)
	case "facts":
		s.facts()
		return s.text()
	case "members":
		m, err := s.c.Membership(scenarioJob)
		s.sayError("", err)
		fmt.Fprintf(&s.out, "generation %d\n", m.Generation)
		for _, i := range m.Members {
			fmt.Fprintf(&s.out, "%s incarnation %d at %s, rank %d, %s\n", i.Slot, i.Incarnation, at(i.Peer), i.Rank, i.State)
		}
		return s.text()
	case "peers":
		for _, a := range s.selected(t, d) {
			p := s.agents[a].peers
			if p == nil {
				continue
			}
			fmt.Fprintf(&s.out, "generation %d, %d members\n", p.Generation, p.Total)
			for _, i := range p.Members {
				fmt.Fprintf(&s.out, "%s incarnation %d at %s, rank %d\n", i.Slot, i.Incarnation, at(i), i.Rank)
			}
		}
		return s.text()
	default:
		t.Fatalf("%s: no such command %q", d.Pos, d.Cmd)
	}
	s.settle()
	return s.text()
}

// at is where a member is, with its port if it has one.
func at(p Peer) string {
	if p.Port == 0 {
		return p.Host
	}
	return fmt.Sprintf("%s:%d", p.Host, p.Port)
}

func (s *scenario) text() string {
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

// settle does the coordinator's work, and reports it.
func (s *scenario) settle() {
	for {
		work := s.c.Ready()
		s.pending = append(s.pending, work.Form...)
		if work.Sooner {
			s.tick()
			continue
		}
		if len(s.pending) == 0 || s.ledger == "mute" {
			break
		}
		s.writeDown()
	}
	s.tellOrders()
	if c := s.c.Changes(); c != s.changes {
		s.changes = c
		s.out.WriteString("(wakes the planner)\n")
	}
}

func (s *scenario) writeDown() {
	forming := s.pending
	s.pending = nil
	for _, f := range forming {
		if s.ledger == "fail" {
			fmt.Fprintf(&s.out, "ledger: cannot write world %d\n", f.World.Generation)
			s.c.Formed(s.now, f, errors.New("no space left on device"))
			continue
		}
		var names []string
		for _, m := range f.World.Members {
			names = append(names, m.Slot.Short())
		}
		fmt.Fprintf(&s.out, "ledger: world %d is %s\n", f.World.Generation, strings.Join(names, " "))
		s.world = f.World
		s.c.Formed(s.now, f, nil)
	}
}

func (s *scenario) setLedger(mode string) {
	if mode == "answer" {
		s.ledger = "ok"
		s.writeDown()
		return
	}
	s.ledger = mode
}

func (s *scenario) tellOrders() {
	for _, addr := range slices.SortedFunc(maps.Keys(s.agents), job.Address.Compare) {
		a := s.agents[addr]
		reply, err := s.c.Order(scenarioJob, "u1", addr, a.incarnation)
		if err != nil {
			continue // it learns of that with its next request
		}
		if reply.Version == a.seen {
			continue
		}
		if reply.Version < a.seen {
			fmt.Fprintf(&s.out, "version of %s went back from %d to %d\n", addr.Short(), a.seen, reply.Version)
		}
		a.seen = reply.Version
		if reply.Members != nil {
			a.peers = reply.Members
		}
		text := orderText(reply.Order)
		if text == a.told {
			text = "has other peers"
		} else {
			a.told = text
		}
		fmt.Fprintf(&s.out, "%s %s\n", addr.Short(), text)
	}
}

func orderText(o Order) string {
	var b strings.Builder
	switch o.Do {
	case Wait:
		b.WriteString("waits")
		if o.Force {
			b.WriteString(", by force")
		}
	case Leave:
		b.WriteString("leaves")
		if o.Force {
			b.WriteString(" by force")
		}
	case Run:
		p := o.World
		fmt.Fprintf(&b, "runs in world %d as %d of %d", p.Generation, p.GroupRank, p.GroupSize)
		if p.WorldSize != p.GroupSize || p.RoleWorldSize != p.WorldSize {
			fmt.Fprintf(&b, ", processes from %d of %d, in its role %d of %d", p.RankBase, p.WorldSize, p.RoleRankBase, p.RoleWorldSize)
		}
		fmt.Fprintf(&b, ", master %s:%d", p.MasterAddr, p.MasterPort)
	}
	if o.World != nil && o.World.ResumeStep > 0 {
		fmt.Fprintf(&b, ", from step %d", o.World.ResumeStep)
	}
	if o.Progress != nil {
		fmt.Fprintf(&b, ", reads progress by %s", o.Progress.Pattern)
	}
	if o.Evidence > 0 {
		fmt.Fprintf(&b, ", gives evidence %d", o.Evidence)
	}
	for _, a := range o.Acts {
		fmt.Fprintf(&b, ", %s: %s %s", a.ID, a.Kind, a.Value)
	}
	if o.Check != nil {
		fmt.Fprintf(&b, ", does %s", checkText(o.Check))
	}
	if o.Checkpoint {
		b.WriteString(", after a checkpoint")
	}
	if o.InPlace > 0 {
		fmt.Fprintf(&b, ", in-place restart %d", o.InPlace)
	}
	return b.String()
}

func (s *scenario) sayError(who string, err error) {
	var refusal *Error
	if errors.As(err, &refusal) {
		fmt.Fprintf(&s.out, "%s refused: %s: %s\n", who, refusal.Code, refusal.Message)
	}
}

func (s *scenario) wants(t *testing.T, d *datadriven.TestData) {
	s.want.Settle, s.want.Lease = job.Duration(5*time.Second), job.Duration(15*time.Second)
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "settle":
			s.want.Settle = parsedDuration(t, a.Vals[0])
		case "lease":
			s.want.Lease = parsedDuration(t, a.Vals[0])
		case "hang":
			s.want.Hang = job.HangLimits{Floor: parsedDuration(t, a.Vals[0]), Ceiling: parsedDuration(t, a.Vals[1])}
		case "rank-by":
			s.want.RankBy = a.Vals
		case "group":
			size, err := strconv.Atoi(a.Vals[1])
			if err != nil {
				t.Fatal(err)
			}
			s.want.Layout = append(s.want.Layout, job.Dimension{Name: a.Vals[0], Size: size})
		}
	}
	s.want.Idle, s.want.Steps = d.HasArg("idle"), d.HasArg("steps")
	s.want.Hold = s.want.Idle || d.HasArg("hold")
	if d.Input != "" {
		s.want.Roles, s.want.Unranked = nil, nil
		s.listed = slices.DeleteFunc(s.listed, func(a job.Address) bool { return !s.slots[a].Leave })
		for _, line := range strings.Split(d.Input, "\n") {
			s.wantRole(t, line)
		}
	}
	s.set()
}

func (s *scenario) wantRole(t *testing.T, line string) {
	fields := strings.Fields(line)
	sel, err := job.ParseSelector("job." + scenarioJob + "." + fields[0] + "[" + fields[1] + "]")
	if err != nil {
		t.Fatal(err)
	}
	role := job.WantRole{Role: fields[0], Processes: 1, Sizes: job.Sizes{Step: 1}}
	unranked, unstarted := false, false
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "min":
			role.Sizes.Min = n
		case "max":
			role.Sizes.Max = n
		case "step":
			role.Sizes.Step = n
		case "sizes":
			for _, v := range strings.Split(value, ",") {
				n, _ := strconv.Atoi(v)
				role.Sizes.List = append(role.Sizes.List, n)
			}
		case "processes":
			role.Processes = n
		case "unranked":
			unranked = true
		case "unstarted":
			unranked, unstarted = true, true
		default:
			t.Fatalf("no such word in a want: %q", f)
		}
	}
	for _, r := range sel.Ranges {
		for i := r[0]; i <= r[1]; i++ {
			a := job.Address{Job: scenarioJob, Role: fields[0], Index: i}
			if _, ok := s.slots[a]; !ok {
				s.slots[a] = DesiredSlot{Address: a, Incarnation: 1, Rank: -1}
			}
			s.listed = append(s.listed, a)
			role.Slots = append(role.Slots, i)
			if unranked && !unstarted {
				s.want.Unranked = append(s.want.Unranked, a)
			}
		}
	}
	if !unranked {
		s.want.Roles = append(s.want.Roles, role)
	}
}

func (s *scenario) editSlot(t *testing.T, d *datadriven.TestData, a job.Address) {
	slot, ok := s.slots[a]
	if !ok {
		slot = DesiredSlot{Address: a, Rank: -1}
	}
	if !slices.Contains(s.listed, a) {
		s.listed = append(s.listed, a)
	}
	slot.Incarnation = number(t, d, "incarnation", slot.Incarnation)
	slot.InPlace = number(t, d, "in-place", slot.InPlace)
	slot.Rank = number(t, d, "rank", slot.Rank)
	slot.Leave = slot.Leave || d.HasArg("leave")
	slot.Return, slot.Force = d.HasArg("return"), d.HasArg("force")
	if d.HasArg("back") {
		slot.Leave = false
	}
	for _, arg := range d.CmdArgs {
		if arg.Key == "levels" {
			slot.Node = s.node(arg.Vals)
		}
	}
	s.slots[a] = slot
}

// node returns the name of a node with these levels.
func (s *scenario) node(levels []string) string {
	name := strings.Join(levels, "-")
	s.nodes[name] = levels
	return name
}

func (s *scenario) set() {
	d := Desired{UID: "u1", Token: "secret", Want: s.want, World: s.world, News: s.news, Nodes: map[string]map[string]string{}}
	for name, levels := range s.nodes {
		d.Nodes[name] = map[string]string{}
		for i, label := range s.want.RankBy[:min(len(levels), len(s.want.RankBy))] {
			d.Nodes[name][label] = levels[i]
		}
	}
	for _, a := range s.listed {
		d.Slots = append(d.Slots, s.slots[a])
	}
	s.c.Set(s.now, scenarioJob, d)
	s.tick()
}

func (s *scenario) register(t *testing.T, d *datadriven.TestData, a job.Address) {
	agent := &scriptedAgent{incarnation: number(t, d, "incarnation", max(1, s.slots[a].Incarnation)), said: s.now}
	agent.report = Report{State: job.MemberWaiting, Port: 1000 + a.Index}
	if d.HasArg("state") {
		var state string
		d.ScanArgs(t, "state", &state)
		agent.report.State = job.MemberState(state)
	}
	agent.report.Generation = number(t, d, "gen", 0)
	agent.report.Rank = number(t, d, "rank", 0)
	agent.report.WorldSlots = number(t, d, "slots", 0)
	agent.report.InPlace = number(t, d, "in-place", 0)
	if d.HasArg("checked") { // for another master
		agent.report.Check = s.agents[a].report.Check
	}
	progress(t, d, &agent.report)
	request := RegisterRequest{UID: "u1", Slot: a.Short(), Incarnation: agent.incarnation, Host: "h" + strconv.Itoa(a.Index), Seq: uint64(number(t, d, "seq", 0)), Report: agent.report}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "levels":
			request.Node = s.node(arg.Vals)
		case "can":
			request.Can = job.ActKinds
		case "checks":
			request.Can = []job.ActKind{job.CanCheck}
		}
	}
	_, err := s.c.Register(s.now, scenarioJob, request)
	if err != nil {
		s.sayError(a.Short(), err)
		return
	}
	s.agents[a] = agent
	s.settle()
}

// progress enters what the arguments say of steps.
func progress(t *testing.T, d *datadriven.TestData, r *Report) {
	if d.HasArg("step") {
		first, step, age := int64(number(t, d, "first", number(t, d, "step", 0))), int64(number(t, d, "step", 0)), float64(number(t, d, "age", 0))
		r.Ranks = []job.RankReport{{Progress: &job.RankProgress{By: job.OwnPattern, Reading: job.Reading{Step: &step}, FirstStep: &first, StepAge: &age, StepRate: float64(number(t, d, "rate", 0))}}}
		r.Step = step
	} else if d.HasArg("no-step") { // of the new world
		r.Ranks, r.Step = []job.RankReport{{}}, int64(number(t, d, "no-step", 0))
	}
}

func (s *scenario) say(t *testing.T, d *datadriven.TestData, a job.Address) {
	agent := s.agents[a]
	if agent == nil {
		agent = &scriptedAgent{incarnation: 1}
		s.agents[a] = agent
	}
	r := agent.report
	r.State, r.Exit, r.Ranks = job.MemberState(d.CmdArgs[1].Key), nil, nil
	if r.State == job.MemberRunning {
		if o, err := s.c.Order(scenarioJob, "u1", a, agent.incarnation); err == nil && o.Order.World != nil {
			r.Generation, r.Rank, r.WorldSlots = o.Order.World.Generation, o.Order.World.GroupRank, o.Order.World.GroupSize
		}
	}
	r.Generation = number(t, d, "gen", r.Generation)
	r.InPlace = number(t, d, "in-place", r.InPlace)
	if generation := number(t, d, "saved", 0); generation > 0 {
		r.Saved = job.Saved{Step: 1, Generation: generation}
	}
	progress(t, d, &r)
	if d.HasArg("loss") {
		var text string
		d.ScanArgs(t, "loss", &text)
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		r.Loss = new(job.Loss(f))
	}
	if d.HasArg("code") {
		r.Exit = &job.Exit{Code: number(t, d, "code", 0), At: s.now}
	}
	agent.report = r
	s.sync(a, number(t, d, "incarnation", agent.incarnation), number(t, d, "seq", 0))
	s.settle()
}

func (s *scenario) sync(a job.Address, incarnation, seq int) {
	agent := s.agents[a]
	agent.said = s.now
	agent.age(s.now)
	_, err := s.c.Sync(s.now, scenarioJob, SyncRequest{
		UID: "u1", Slot: a.Short(), Incarnation: incarnation, Seen: agent.seen, Seq: uint64(seq), Report: agent.report,
	})
	if err != nil {
		agent.silent = true // it registers again, or stops: the script says which
	}
	s.sayError(a.Short(), err)
}

// does is what a member's process does from now on. Its agent reports that at once.
func (s *scenario) does(t *testing.T, d *datadriven.TestData, a job.Address) {
	agent := s.agents[a]
	rank := job.RankReport{Process: &job.ProcessFigures{PID: 7, State: job.ThreadRuns}}
	if len(agent.report.Ranks) > 0 {
		rank.Progress = agent.report.Ranks[0].Progress
	}
	agent.held, agent.report.Evidence, agent.report.Saving = s.now, nil, d.HasArg("saving")
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "step":
			step := int64(number(t, d, "step", 0))
			rank.Progress, agent.steps = &job.RankProgress{By: "plain", Reading: job.Reading{Step: &step}, StepInterval: new(0.1)}, s.now
		case "ran":
			agent.begun = s.now.Add(-parsedDuration(t, arg.Vals[0]).Std())
		case "state":
			rank.Process.State = job.ThreadState(arg.Vals[0])
		case "busy":
			busy, err := strconv.ParseFloat(arg.Vals[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			rank.Process.Busy = &busy
		case "in":
			rank.Process.WaitChannel = arg.Vals[0]
		case "stack":
			agent.report.Evidence = &job.Evidence{Ranks: []job.RankEvidence{{Frames: arg.Vals}}}
		case "entered", "waits": // (group,number)
			n, err := strconv.ParseInt(arg.Vals[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			c := job.Collective{Group: arg.Vals[0], Op: "gloo:all_reduce", Entered: n}
			if arg.Key == "waits" {
				c.Waits = n
			}
			agent.report.Evidence = &job.Evidence{Ranks: []job.RankEvidence{{Collectives: []job.Collective{c}}}}
		}
	}
	agent.report.Ranks = []job.RankReport{rank}
	s.sync(a, agent.incarnation, 0)
}

// age makes the report of its process one as of now.
func (a *scriptedAgent) age(now time.Time) {
	if len(a.report.Ranks) == 0 || a.report.Ranks[0].Process == nil {
		return
	}
	rank := a.report.Ranks[0]
	process := *rank.Process
	process.StateAge = new(now.Sub(a.held).Seconds())
	if !a.begun.IsZero() {
		process.Age = new(now.Sub(a.begun).Seconds())
	}
	if rank.Progress != nil {
		progress := *rank.Progress
		progress.StepAge = new(now.Sub(a.steps).Seconds())
		rank.Progress = &progress
	}
	rank.Process = &process
	a.report.Ranks = []job.RankReport{rank}
}

// pass advances the time in small steps: members beat, and Tick is called when it is due.
func (s *scenario) pass(d time.Duration) {
	const step = 100 * time.Millisecond
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(min(step, end.Sub(s.now)))
		for _, a := range slices.SortedFunc(maps.Keys(s.agents), job.Address.Compare) {
			agent := s.agents[a]
			if !agent.silent && s.now.Sub(agent.said) >= 5*time.Second {
				s.sync(a, agent.incarnation, 0)
			}
		}
		if !s.now.Before(s.tickAt) {
			s.tick()
		}
		before := s.out.Len()
		s.settle()
		if said := s.out.String()[before:]; said != "" {
			text := s.out.String()[:before]
			s.out.Reset()
			fmt.Fprintf(&s.out, "%s%s later:\n%s", text, d-end.Sub(s.now), said)
		}
	}
}

func (s *scenario) tick() { s.tickAt = s.c.Tick(s.now) }

func (s *scenario) facts() {
	f := s.c.Observe()[scenarioJob]
	state := "trains"
	if f.World.Broken {
		state = "broken"
	}
	if !f.World.Ordered.IsZero() {
		state = fmt.Sprintf("broken by order %s ago", s.now.Sub(f.World.Ordered))
	}
	if f.World.Generation > 0 {
		if first := f.World.FirstStep; !first.IsZero() {
			state += fmt.Sprintf(", first step %s ago", s.now.Sub(first))
		}
		fmt.Fprintf(&s.out, "world %d of %d %s\n", f.World.Generation, len(f.World.Members), state)
	}
	for _, suspicion := range f.Suspicions {
		certain := "certain"
		if !suspicion.Certain {
			certain = fmt.Sprintf("from %s on", suspicion.Due.Sub(s.now))
		}
		fmt.Fprintf(&s.out, "%s of ranks %v for %s, %s: %v\n", suspicion.Cause, suspicion.Ranks, s.now.Sub(suspicion.Since), certain, suspicion.Evidence)
	}
	for _, m := range f.Members {
		fmt.Fprintf(&s.out, "%s incarnation %d %s", m.Slot.Short(), m.Incarnation, m.Member.State)
		if m.Member.Generation > 0 {
			fmt.Fprintf(&s.out, " in world %d", m.Member.Generation)
		}
		if m.Member.Exit != nil {
			fmt.Fprintf(&s.out, ", exit %d", m.Member.Exit.Code)
		}
		for _, a := range m.Member.Acts {
			fmt.Fprintf(&s.out, ", %s %s", a.ID, a.State)
		}
		if c := m.Member.Check; c != nil {
			fmt.Fprintf(&s.out, ", check %d %s", c.Number, outcomeText(c))
		}
		if len(m.Member.Can) > 0 {
			fmt.Fprintf(&s.out, ", can %s", m.Member.Can)
		}
		if !m.Member.Left.IsZero() {
			fmt.Fprintf(&s.out, ", left %s ago", s.now.Sub(m.Member.Left))
		}
		if m.Member.Silent {
			s.out.WriteString(", silent")
		}
		if m.Member.Expired {
			s.out.WriteString(", expired")
		}
		s.out.WriteString("\n")
	}
}

func (s *scenario) selected(t *testing.T, d *datadriven.TestData) []job.Address {
	sel, err := job.ParseSelector("job." + scenarioJob + "." + d.CmdArgs[0].Key)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	var out []job.Address
	for _, r := range sel.Ranges {
		for i := r[0]; i <= r[1]; i++ {
			out = append(out, job.Address{Job: scenarioJob, Role: sel.Role, Index: i})
		}
	}
	return out
}

func number(t *testing.T, d *datadriven.TestData, key string, otherwise int) int {
	if d.HasArg(key) {
		d.ScanArgs(t, key, &otherwise)
	}
	return otherwise
}

func duration(t *testing.T, d *datadriven.TestData) time.Duration {
	return parsedDuration(t, d.CmdArgs[0].Key).Std()
}

func parsedDuration(t *testing.T, text string) job.Duration {
	d, err := job.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
