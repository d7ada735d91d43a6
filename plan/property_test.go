package plan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

// TestRandomClusters applies random events to random jobs on random nodes, and checks every plan against what no plan may do.
// In the end everything comes to rest, and stays there.
func TestRandomClusters(t *testing.T) {
	for i := range 10 { // of 100 cases each, unless -rapid.checks says otherwise
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, randomCluster)
		})
	}
}

// TestRandomClustersWithAScheduler does the same where a scheduler places, in its own order, and roles are barred from nodes.
func TestRandomClustersWithAScheduler(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				randomWorld(t, job.Capabilities{NodesUnknown: rapid.Bool().Draw(t, "nodes unknown"), Attributes: rapid.Bool().Draw(t, "attributes")})
			})
		})
	}
}

func randomCluster(t *rapid.T) { randomWorld(t, job.Capabilities{Places: true}) }

func randomWorld(t *rapid.T, can job.Capabilities) {
	c := &checker{world: newWorld(), launched: map[string]job.Launch{}, newest: map[string]int{}}
	c.can = can
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		c.nodes = append(c.nodes, randomNode(t, i))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
		c.jobs = append(c.jobs, randomJob(t, fmt.Sprint("j", i)))
	}
	if rapid.IntRange(0, 3).Draw(t, "together") == 0 {
		c.directory.Limits = &job.Limits{}
		cores := job.CPU(1000 * rapid.IntRange(1, 12).Draw(t, "cores together"))
		c.directory.Limits.CPU = &cores
	}
	if rapid.IntRange(0, 5).Draw(t, "budget") == 0 {
		c.directory.Budget = &job.HourBudget{NodeHours: float64(rapid.IntRange(1, 20).Draw(t, "node hours")) / 10, Then: rapid.SampledFrom(job.BudgetActions).Draw(t, "then")}
	}
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		c.event(t)
		for range rapid.IntRange(0, 3).Draw(t, "passes") {
			c.plan(t)
			if !can.Places && rapid.Bool().Draw(t, "scheduler") {
				c.schedule()
			}
			if rapid.Bool().Draw(t, "service") {
				c.serve()
			}
		}
	}
	c.rest(t)
}

// checker is a world in which every plan is checked.
type checker struct {
	*world
	launched map[string]job.Launch // by UID, slot and number
	newest   map[string]int        // incarnation by UID and slot
	asked    int                   // requests
	shown    string                // the plan being checked
	memory   plan.Memory
	parts    job.Incarnations // as memory last saw them
	seen     []job.Node
}

func randomNode(t *rapid.T, i int) job.Node {
	n := jobtest.Node(fmt.Sprint("n", i), job.Resources{CPU: job.CPU(1000 * rapid.IntRange(1, 6).Draw(t, "cpu")), Memory: job.Bytes(rapid.IntRange(1, 6).Draw(t, "mem")) << 30})
	if rapid.Bool().Draw(t, "has gpus") {
		n.Capacity.Devices = map[string]int{"gpu": rapid.IntRange(1, 4).Draw(t, "gpus")}
	}
	return n
}

func randomRole(t *rapid.T, name string) job.Role {
	r := jobtest.Role(name, rapid.IntRange(1, 4).Draw(t, "replicas"), jobtest.Needs(job.Resources{
		CPU: job.CPU(500 * rapid.IntRange(0, 4).Draw(t, "cpu")), Memory: job.Bytes(rapid.IntRange(0, 2).Draw(t, "mem")) << 30}))
	if rapid.IntRange(0, 3).Draw(t, "gpus") == 0 {
		r.Resources.Devices = map[string]int{"gpu": 1}
	}
	if rapid.IntRange(0, 3).Draw(t, "elastic") > 0 {
		min := rapid.IntRange(1, 3).Draw(t, "min")
		r.Scaling = &job.Scaling{Min: min, Max: min + rapid.IntRange(0, 5).Draw(t, "span"), Step: 1}
		r.Replicas = min
		switch rapid.IntRange(0, 3).Draw(t, "sizes") {
		case 0:
			r.Scaling.Min, r.Scaling.Step = 2*min, 2
			r.Scaling.Max, r.Replicas = r.Scaling.Min+4, r.Scaling.Min
		case 1:
			r.Scaling.Sizes = []int{min, r.Scaling.Max}
		}
	}
	return r
}

func randomJob(t *rapid.T, name string) job.Job {
	j := jobtest.Job(name, randomRole(t, "worker"))
	if rapid.IntRange(0, 2).Draw(t, "roles") == 0 {
		helper := randomRole(t, "helper")
		helper.Ranked = rapid.Bool().Draw(t, "ranked")
		if together := rapid.IntRange(0, 3).Draw(t, "together"); !helper.Ranked && together > 0 {
			helper.Update = &job.Updating{MaxUnavailable: together}
		}
		if rapid.Bool().Draw(t, "after") {
			j.Roles[0].DependsOn = []string{"helper"}
		}
		if worker := &j.Roles[0]; helper.Scaling == nil && worker.Scaling != nil {
			if slope := rapid.IntRange(-1, 3).Draw(t, "follows"); slope > 0 {
				f := &job.Follows{Role: "worker"}
				for size := range worker.Sizes().All() {
					f.Add(size, (size+slope-1)/slope)
				}
				helper.Follows, helper.Replicas = f, f.At(worker.Replicas)
			}
		}
		j.Roles = append(j.Roles, helper)
	}
	j.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
	j.Preempt = rapid.IntRange(0, 3).Draw(t, "preempt") == 0
	j.Preemptible = rapid.Bool().Draw(t, "preemptible")
	j.Suspend = rapid.IntRange(0, 5).Draw(t, "suspend") == 0
	if rapid.IntRange(0, 3).Draw(t, "limits") == 0 {
		c := job.CPU(1000 * rapid.IntRange(0, 4).Draw(t, "limit"))
		for i := range j.Roles { // a job whose min exceeds its limits is rejected before planning
			r := &j.Roles[i]
			least, _ := r.Bounds()
			c += r.Resources.CPU * job.CPU(r.Ceil(least))
		}
		j.Limits = &job.Limits{CPU: &c}
	}
	j.Lifecycle.PreventDestroy = rapid.IntRange(0, 4).Draw(t, "prevent") == 0
	j.Heal.Budget.Restarts = rapid.IntRange(0, 4).Draw(t, "budget")
	j.Rendezvous.Timeout = 0
	if rapid.Bool().Draw(t, "timeout") {
		j.Rendezvous.Timeout = job.Duration(time.Minute)
	}
	return j
}

// cordon makes a request about a node.
func (c *checker) cordon(t *rapid.T, node *job.Node) {
	verb := rapid.SampledFrom([]job.Verb{job.AskCordon, job.AskUncordon, job.AskUncordon, job.AskDrain, job.AskDrain}).Draw(t, "verb")
	c.asked++
	c.requests = append(c.requests, job.Request{ID: fmt.Sprintf("r%03d", c.asked), Verb: verb, Nodes: []string{node.Name}, By: "ann", At: c.now})
}

// event applies one random event.
func (c *checker) event(t *rapid.T) {
	var live []*job.Incarnation
	for _, inc := range c.incs {
		if inc.State != job.Gone && inc.Member != nil {
			live = append(live, inc)
		}
	}
	events := []string{"nothing", "nothing", "time", "node", "node dies", "node dropped", "closed", "foreign", "capacity",
		"fault", "fault", "fault", "fault", "slow", "stopped", "edit", "undeclare", "forget", "rerun", "move", "let go", "import", "import", "block", "scope", "unscoped", "refresh"}
	if c.can.Places {
		events = append(events, "cordoned")
	} else {
		events = append(events, "bars", "extra", "drained", "slots", "ended", "ended", "waiting", "drift")
	}
	what := rapid.SampledFrom(events).Draw(t, "event")
	node := &c.nodes[0]
	if len(c.nodes) > 0 {
		node = &c.nodes[rapid.IntRange(0, len(c.nodes)-1).Draw(t, "node")]
	}
	switch what {
	case "time":
		c.now = c.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 10 * time.Second, 2 * time.Minute}).Draw(t, "span"))
	case "node":
		name := rapid.IntRange(0, 6).Draw(t, "name")
		if c.node(fmt.Sprint("n", name)) == nil {
			c.nodes = append(c.nodes, randomNode(t, name))
		}
	case "node dies", "node dropped":
		if len(c.nodes) > 1 {
			c.removeNode(node.Name, what == "node dies")
		}
	case "bars":
		c.bars = maps.Clone(c.bars) // the previous plan has the old map
		c.bars[rapid.SampledFrom([]string{"job.j0.worker", "job.j1.worker"}).Draw(t, "barred")] = map[string]string{node.Name: "taint"}
	case "extra":
		c.extra = maps.Clone(c.extra)
		c.extra[rapid.SampledFrom([]string{"job.j0.worker", "job.j1.worker"}).Draw(t, "role")] = job.Resources{CPU: job.CPU(rapid.IntRange(0, 2).Draw(t, "halves") * 500)}
	case "drained":
		node.Drained = rapid.SampledFrom([]string{"", "cordoned"}).Draw(t, "why")
	case "cordoned":
		c.cordon(t, node)
	case "slots":
		node.Slots = rapid.IntRange(0, 3).Draw(t, "slots")
	case "ended", "waiting", "drift":
		c.clusterEvent(t, what)
	case "closed":
		node.Closed = rapid.SampledFrom([]string{"", "cordoned"}).Draw(t, "why")
	case "foreign":
		node.Foreign = jobtest.Cores(float64(rapid.IntRange(0, 3).Draw(t, "cores")))
	case "capacity":
		node.Capacity.CPU = job.CPU(1000 * rapid.IntRange(1, 6).Draw(t, "cpu"))
	case "fault":
		if len(live) > 0 {
			c.randomFault(t, rapid.SampledFrom(live).Draw(t, "culprit"))
		}
	case "slow":
		c.slowStop = true
	case "stopped":
		c.stopped()
	case "edit":
		i := rapid.IntRange(0, 2).Draw(t, "job")
		j := randomJob(t, fmt.Sprint("j", i))
		c.jobs = slices.DeleteFunc(c.jobs, func(old job.Job) bool { return old.Name == j.Name })
		c.jobs = append(c.jobs, j)
		delete(c.moved, j.Name) // the old name of a move is not declared
		delete(c.removed, j.Name)
	case "undeclare":
		i := rapid.IntRange(0, 2).Draw(t, "job")
		c.jobs = slices.DeleteFunc(c.jobs, func(old job.Job) bool { return old.Name == fmt.Sprint("j", i) })
	case "forget":
		c.lose()
		clear(c.launched) // lost with the records: what was planned and not carried out
		clear(c.newest)
	case "rerun":
		c.rerun = true
	case "move", "let go", "import", "block":
		c.blockEvent(t, what)
	case "refresh":
		c.refresh(t)
	case "scope", "unscoped":
		c.scope = plan.Scope{}
		if what == "scope" {
			c.randomScope(t)
		}
	}
}

// blockEvent is a random edit of the moved, removed and import blocks.
func (c *checker) blockEvent(t *rapid.T, what string) {
	if what == "block" || len(c.jobs) == 0 {
		clear(c.moved)
		clear(c.removed)
		c.imports = nil
		return
	}
	i := rapid.IntRange(0, len(c.jobs)-1).Draw(t, "whose")
	name := c.jobs[i].Name
	switch what {
	case "move":
		to := rapid.SampledFrom([]string{"j0", "j1", "m0", "m1"}).Draw(t, "to")
		if slices.ContainsFunc(c.jobs, func(j job.Job) bool { return j.Name == to }) {
			return
		}
		for from, last := range c.moved { // chains are resolved beforehand
			if last == name {
				c.moved[from] = to
			}
		}
		delete(c.moved, to)
		delete(c.removed, to)
		c.jobs[i].Name, c.moved[name] = to, to
		c.imports = slices.DeleteFunc(c.imports, func(m plan.Import) bool { return m.To.Job == name })
	case "let go":
		c.jobs = slices.Delete(c.jobs, i, i+1)
		c.removed[name] = true
		c.imports = slices.DeleteFunc(c.imports, func(m plan.Import) bool { return m.To.Job == name })
	case "import":
		live := slices.DeleteFunc(slices.Clone(c.incs), func(i *job.Incarnation) bool { return i.State == job.Gone })
		if len(live) > 0 {
			c.imports = []plan.Import{{To: job.Selector{Job: name}, ID: rapid.SampledFrom(live).Draw(t, "what").UID}}
		}
	}
}

// clusterEvent is what a cluster does to an incarnation, bound or not.
func (c *checker) clusterEvent(t *rapid.T, what string) {
	live := slices.DeleteFunc(slices.Clone(c.incs), func(i *job.Incarnation) bool { return i.State == job.Gone })
	if len(live) == 0 {
		return
	}
	inc := rapid.SampledFrom(live).Draw(t, "whom")
	switch {
	case what == "ended":
		c.end(inc, job.EndLeft, &job.Exit{Code: 143})
		inc.Cause = rapid.SampledFrom([]job.Cause{job.Preemption, job.Eviction, job.Deletion, job.NodeGone}).Draw(t, "cause")
	case what == "waiting" && inc.State == job.Starting:
		inc.Waiting = "Unschedulable"
	case what == "drift":
		inc.Drift = []job.FieldChange{{Path: "image", Before: "b", After: "a"}}
	}
}

func (c *checker) randomFault(t *rapid.T, inc *job.Incarnation) {
	switch rapid.IntRange(0, 8).Draw(t, "fault") {
	case 0, 1:
		c.fail(inc.Slot, job.Exit{Code: 17})
	case 2:
		c.fail(inc.Slot, job.Exit{Code: 137, Signal: "killed", OOM: rapid.Bool().Draw(t, "oom")})
	case 3, 4:
		c.end(inc, "", &job.Exit{Code: 137, Signal: "killed"})
	case 5:
		inc.Member.State, inc.Member.Left = job.MemberLeaving, c.now
	case 6:
		inc.Member.Silent = true
	case 7:
		inc.Member.Silent, inc.Member.Expired = true, true
	case 8:
		if inc.Member.State == job.MemberRunning {
			c.end(inc, job.EndFinished, &job.Exit{})
		}
	}
}

func asJSON(t *rapid.T, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plan makes a plan, checks it, and carries it out.
func (c *checker) plan(t *rapid.T) plan.Plan {
	in := c.input()
	before := asJSON(t, in)
	p := plan.Make(in)
	if after := asJSON(t, in); !bytes.Equal(before, after) {
		t.Fatalf("the input was modified:\n%s\n%s", before, after) // the worst kind of bug: show everything
	}
	c.shown = render(p)
	if a, b := asJSON(t, p), asJSON(t, plan.Make(c.input())); !bytes.Equal(a, b) {
		t.Fatalf("the same input gives two different plans:\n%s\n%s", a, b)
	}
	c.checkReplay(t, in, p)
	p = c.remembered(t, p)
	refuses := slices.ContainsFunc(p.Replies, func(r job.Reply) bool { return r.State == job.Refused }) // which is stored first
	sameNodes := len(in.Nodes)+len(p.Nodes) == 0 || bytes.Equal(asJSON(t, in.Nodes), asJSON(t, p.Nodes))
	if same := bytes.Equal(asJSON(t, in.Records), asJSON(t, p.Records)) && maps.Equal(in.Released, p.Released) && sameNodes && in.Spent == p.Spent && !refuses; same == p.Dirty {
		t.Fatalf("dirty is %v:\n%s\n%s", p.Dirty, c.status(), c.shown)
	}
	for _, n := range p.Notices {
		if n.Type == "rejected" {
			t.Fatalf("%s: %s", n.Address, n.Reason)
		}
	}
	c.checkPlaces(t, in, p)
	c.checkReplacements(t, p)
	c.checkRolls(t, in, p)
	for i := range in.Jobs {
		c.checkSizes(t, &in.Jobs[i], in.Records, p.Records[in.Jobs[i].Name])
	}
	c.checkTogether(t, in.Records, p.Records)
	c.checkNumbers(t, p)
	c.checkSpared(t, in, p)
	c.checkQueued(t, in, p)
	c.checkHeard(t, in, p)
	c.checkScope(t, in, p)
	c.take(p)
	c.carryOut(p)
	return p
}

// checkReplay checks that the plan follows from what a journal keeps of its input: the JSON, and the UIDs of new jobs.
func (c *checker) checkReplay(t *rapid.T, in plan.Input, p plan.Plan) {
	var kept plan.Input
	if err := json.Unmarshal(asJSON(t, in), &kept); err != nil {
		t.Fatalf("the input cannot be read back: %v", err)
	}
	uids := plan.NewUIDs(&in, &p)
	kept.NewUID = func(name string) string { return uids[name] }
	again := plan.Make(kept)
	if a, b := digests(t, &p), digests(t, &again); !maps.Equal(a, b) {
		t.Fatalf("read back from JSON, the input gives another plan: %v and %v\n%s\n%s", a, b, asJSON(t, p), asJSON(t, again))
	}
}

func digests(t *rapid.T, p *plan.Plan) map[string]string {
	d, err := p.Digests()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// remembered makes the plan with the memory of those before it: it is the same.
func (c *checker) remembered(t *rapid.T, p plan.Plan) plan.Plan {
	in := c.input()
	for i, part := range in.Snapshot.Incarnations {
		for _, known := range c.parts {
			if reflect.DeepEqual(part, known) {
				in.Snapshot.Incarnations[i] = known
			}
		}
	}
	c.parts = in.Snapshot.Incarnations
	if reflect.DeepEqual(in.Snapshot.Nodes, c.seen) {
		in.Snapshot.Nodes = c.seen
	}
	c.seen = in.Snapshot.Nodes
	again := c.memory.Make(in)
	if a, b := asJSON(t, p), asJSON(t, again); !bytes.Equal(a, b) {
		t.Fatalf("a plan with memory differs:\n%s\n%s", a, b)
	}
	return again
}

// held reports whether the slot holds, as the planner counts it.
func held(s job.Slot) bool {
	switch s.Phase {
	case job.Pending:
		return s.Recover
	case job.Canceling:
		return s.Return
	case job.Canceled, job.Failed:
		return false
	}
	return true
}

// reserved is what counts towards the limits. A slot that succeeded holds nothing anymore; one that lost its place, or was
// edited, holds nothing until it has a place that the limits allow.
func reserved(s job.Slot) job.Resources {
	if !s.Phase.Live() || s.Phase == job.Pending {
		return job.Resources{}
	}
	return s.Reserved
}

func reserves(s job.Slot) bool { return s.Phase.Live() && s.Node != "" }

// checkReplacements: a slot that is replaced counts once, and goes to a node that may take it; a slot without a place to return
// to is not shown as replaced.
func (c *checker) checkReplacements(t *rapid.T, p plan.Plan) {
	type slotOf struct {
		uid  string
		slot job.Address
	}
	made, gone := map[slotOf]bool{}, map[slotOf]bool{}
	for i := range p.Changes {
		change := &p.Changes[i]
		at := slotOf{change.UID, change.Slot}
		made[at] = made[at] || change.Action == plan.Create || change.Action == plan.Replace
		gone[at] = gone[at] || change.Action == plan.Delete
		if made[at] && gone[at] {
			t.Fatalf("%s is both created and deleted:\n%s", change.Slot, c.shown)
		}
		if change.Action != plan.Replace || change.Launch != nil || !c.can.Places {
			continue
		}
		s := p.Records[change.Job].Slot(change.Slot.Role, change.Slot.Index)
		if n := c.node(change.Node); n == nil && (change.Node != "" || s == nil || s.Node == "") {
			t.Fatalf("%s is replaced on %q, which does not exist:\n%s", change.Slot, change.Node, c.shown)
		}
	}
}

// checkRolls: an edit stops no more running slots of an unranked role than may be down, counting those that are down already.
func (c *checker) checkRolls(t *rapid.T, in plan.Input, p plan.Plan) {
	before := map[string]*job.Record{}
	for _, rec := range in.Records {
		before[rec.UID] = rec
	}
	edited, named := map[string]bool{}, map[job.Address]bool{}
	for _, r := range in.Scope.Replace {
		named[r.Slot] = true
	}
	for _, change := range p.Changes {
		if len(change.Reasons) > 0 && change.Reasons[0].Code == plan.DeclarationChanged { // else it stops for another reason as well
			edited[change.Slot.String()] = true
		}
	}
	up := func(s *job.Slot) bool { return s.Phase == job.Running || s.Phase == job.Succeeded }
	for _, rec := range p.Records {
		was := before[rec.UID]
		for i := range rec.Spec.Roles {
			role := &rec.Spec.Roles[i]
			stopped, down := 0, 0
			for k := range rec.Slots {
				s := &rec.Slots[k]
				if was == nil || s.Address.Role != role.Name {
					continue
				}
				switch old := was.Slot(s.Address.Role, s.Address.Index); {
				case old == nil || !held(*s) || up(s):
				case named[s.Address]: // it does not wait for its turn, edited or not
					down++
				case old.Phase == job.Running && edited[s.Address.String()] && s.Phase == job.Canceling:
					stopped++
				case old.Phase == job.Running && s.Phase == job.Canceling, held(*old) && !up(old):
					down++
				}
			}
			if was != nil {
				if old := was.Spec.Role(role.Name); old != nil && old.Ranked {
					continue // its world ends as a whole
				}
			}
			if !role.Ranked && stopped > 0 && stopped+down > role.Together() {
				t.Fatalf("an edit stops %d slots of %s, and %d are down:\n%s%s", stopped, role.Name, down, c.status(), c.shown)
			}
		}
	}
}

// checkPlaces: no new placement overloads a node, whatever holds its resources.
func (c *checker) checkPlaces(t *rapid.T, in plan.Input, p plan.Plan) {
	type key struct {
		uid, role string // a UID belongs to one job, whatever its name
		index     int
	}
	keyOf := func(uid string, a job.Address) key { return key{uid, a.Role, a.Index} }
	before := map[key]string{}
	for _, rec := range in.Records {
		for _, s := range rec.Slots {
			if reserves(s) {
				before[keyOf(rec.UID, s.Address)] = s.Node
			}
		}
	}
	for inc := range in.Snapshot.Incarnations.All() { // adopted with their places
		if k := keyOf(inc.UID, inc.Slot); inc.State != job.Gone && before[k] == "" {
			before[k] = inc.Node
		}
	}
	there := map[key]string{}
	for _, inc := range c.incs {
		if inc.State != job.Gone {
			there[keyOf(inc.UID, inc.Slot)] = inc.Node
		}
	}
	sums := map[string]job.Resources{}
	fresh := map[string]job.Address{}
	taken := map[string]job.Resources{} // by new placements
	places := map[key]string{}
	for _, rec := range p.Records {
		for _, s := range rec.Slots {
			if !reserves(s) {
				continue
			}
			k := keyOf(rec.UID, s.Address)
			places[k] = s.Node
			extra := in.Extra[fmt.Sprintf("job.%s.%s", s.Address.Job, s.Address.Role)]
			for inc := range in.Snapshot.Incarnations.All() {
				if inc.UID == rec.UID && inc.Slot == s.Address && inc.Number == s.Incarnation && inc.State != job.Gone && inc.Node == s.Node {
					extra = inc.Extra
				}
			}
			sums[s.Node] = sums[s.Node].Add(s.Reserved).Add(extra)
			if there[k] == s.Node {
				continue // it runs, whoever placed it
			}
			if !c.lookedAt(in, p, s.Address) {
				continue
			}
			if before[k] != s.Node || !c.can.Places && s.Phase == job.Scheduling {
				fresh[s.Node] = s.Address
				taken[s.Node] = taken[s.Node].Add(s.Reserved).Add(extra)
			}
		}
	}
	for inc := range in.Snapshot.Incarnations.All() {
		if inc.State != job.Gone && places[keyOf(inc.UID, inc.Slot)] != inc.Node {
			sums[inc.Node] = sums[inc.Node].Add(inc.Reserved).Add(inc.Extra)
		}
	}
	for name, a := range fresh {
		n := c.node(name)
		if n == nil {
			t.Fatalf("%s was placed on %s, which does not exist", a, name)
		}
		if n.Closed != "" || n.Drained != "" {
			t.Fatalf("%s was placed on %s, which is closed or drained", a, name)
		}
		if slices.ContainsFunc(p.Nodes, func(r job.NodeRecord) bool { return r.Name == name && r.Override != nil }) {
			t.Fatalf("%s was placed on %s, which is cordoned", a, name)
		}
		if why := in.Bars[fmt.Sprintf("job.%s.%s", a.Job, a.Role)][name]; why != "" {
			t.Fatalf("%s was placed on %s, which is barred to it: %s", a, name, why)
		}
		// A node that lost the devices of slots still stopping on it may take slots that need no devices.
		if r := ofKinds(sums[name], taken[name]); !r.Fits(n.Capacity.Sub(n.Foreign)) {
			t.Fatalf("with %s, %s holds %s of %s (others %s):\n%s%s", a, name, r, n.Capacity, n.Foreign, c.status(), c.shown)
		}
	}
}

// ofKinds is the part of r of the kinds that taken has any of.
func ofKinds(r, taken job.Resources) job.Resources {
	if taken.CPU == 0 {
		r.CPU = 0
	}
	if taken.Memory == 0 {
		r.Memory = 0
	}
	r.Devices = maps.Clone(r.Devices)
	maps.DeleteFunc(r.Devices, func(name string, _ int) bool { return taken.Devices[name] == 0 })
	return r
}

// checkSizes: within limits and max, legal sizes only, and never below min by choice.
func (c *checker) checkSizes(t *rapid.T, j *job.Job, before job.Records, is *job.Record) {
	if is == nil {
		return // it was refused
	}
	var was *job.Record
	for _, rec := range before { // perhaps under another name
		if rec.UID == is.UID {
			was = rec
		}
	}
	if is.Phase.Ended() {
		return
	}
	var total, totalWas job.Resources
	rolling := false // slots that are not replaced yet hold what they were started with
	for i := range j.Roles {
		r := &j.Roles[i]
		n, nWas, finished := 0, 0, false
		for _, s := range is.Slots {
			if s.Address.Role == r.Name {
				finished = finished || s.Phase == job.Succeeded
				if held(s) {
					n++
					total = total.Add(reserved(s))
					rolling = rolling || !reserved(s).Equal(r.Resources)
				}
			}
		}
		if was != nil {
			for _, s := range was.Slots {
				if s.Address.Role == r.Name && held(s) {
					nWas++
					totalWas = totalWas.Add(reserved(s))
				}
			}
		}
		least, most := r.Bounds()
		same := was != nil && was.Spec.Role(r.Name) != nil && len(job.Diff(*was.Spec.Role(r.Name), *r)) == 0
		switch {
		case finished || n == 0: // ended, or nothing held: it queues
		case !same && n <= nWas: // just edited
		case r.Follows != nil && same && n > nWas && n > r.Follows.At(heldOf(is, r.Follows.Role)):
			t.Fatalf("%s.%s grew to %d slots beside %d of %s:\n%s%s", j.Name, r.Name, n, heldOf(is, r.Follows.Role), r.Follows.Role, c.status(), c.shown)
		case n > most && n >= nWas+1:
			t.Fatalf("%s.%s grew to %d slots, at most %d", j.Name, r.Name, n, most)
		case same && n < least && nWas >= least:
			t.Fatalf("%s.%s shrank to %d slots, min is %d:\n%s%s", j.Name, r.Name, n, least, c.status(), c.shown)
		case same && n >= least && n != nWas && !r.Legal(n):
			t.Fatalf("%s.%s went from %d to %d slots, which is no legal size:\n%s%s", j.Name, r.Name, nWas, n, c.status(), c.shown)
		}
	}
	limits := is.Spec.Limits // those in effect: a scope with a part of the job leaves the declared ones out
	if limits != nil && was != nil && !rolling && total.CPU > *limits.CPU && total.CPU > totalWas.CPU {
		t.Fatalf("%s holds %s, over its limits:\n%s%s", j.Name, total, c.status(), c.shown)
	}
}

// heldOf counts the slots of a role that hold a place.
func heldOf(rec *job.Record, role string) (n int) {
	for _, s := range rec.Slots {
		if s.Address.Role == role && held(s) {
			n++
		}
	}
	return n
}

// checkTogether: all jobs together grow within the directory's limits. An edit may make what they hold larger.
func (c *checker) checkTogether(t *rapid.T, before, is job.Records) {
	if c.directory.Limits == nil {
		return
	}
	sizes := map[string]job.CPU{} // of slots, by UID and address
	total := func(records job.Records) (cores job.CPU, rolling bool) {
		for _, rec := range records {
			for _, s := range rec.Slots {
				if held(s) && s.Phase.Live() {
					cores += s.Reserved.CPU
					key := rec.UID + s.Address.Short()
					size, known := sizes[key]
					rolling = rolling || known && size != s.Reserved.CPU
					sizes[key] = s.Reserved.CPU
					r := rec.Spec.Role(s.Address.Role)
					rolling = rolling || r == nil || !s.Reserved.Equal(r.Resources)
				}
			}
		}
		return cores, rolling
	}
	was, _ := total(before)
	if n, rolling := total(is); n > *c.directory.Limits.CPU && n > was && !rolling {
		t.Fatalf("all jobs hold %s together, at most %s:\n%s%s", n, *c.directory.Limits.CPU, c.status(), c.shown)
	}
}

// checkNumbers: a number identifies one start, and numbers only grow.
func (c *checker) checkNumbers(t *rapid.T, p plan.Plan) {
	for _, ch := range p.Changes {
		if ch.Launch == nil || ch.Wave > 0 {
			continue
		}
		l := *ch.Launch
		key := fmt.Sprintf("%s %s %d", l.UID, l.Slot, l.Incarnation)
		if old, known := c.launched[key]; known && (c.can.Places && old.Node != l.Node || old.Fingerprint != l.Fingerprint) {
			t.Fatalf("%s is launched again, on %s instead of %s", key, l.Node, old.Node)
		}
		c.launched[key] = l
		slot := l.UID + " " + l.Slot.String()
		if l.Incarnation < c.newest[slot] {
			t.Fatalf("%s is launched after %d", key, c.newest[slot])
		}
		c.newest[slot] = l.Incarnation
	}
}

// checkSpared: forgotten jobs, and those that must not be destroyed, are not stopped permanently; moved jobs keep their UID and
// incarnations.
func (c *checker) checkSpared(t *rapid.T, in plan.Input, p plan.Plan) {
	spared := map[string]bool{}
	for uid := range p.Released {
		spared[uid] = true
	}
	for _, name := range p.Kept {
		if rec := p.Records[name]; rec == nil || !isOver(in.Records[name]) && isOver(rec) && rec.Phase == job.JobCanceled {
			t.Fatalf("%s was to be kept:\n%s", name, c.shown)
		}
	}
	for _, ch := range p.Changes {
		if spared[ch.UID] && (len(ch.Stop) > 0 || ch.Launch != nil || ch.Action == plan.Delete) {
			t.Fatalf("%s of %s, which was forgotten:\n%s", ch.Action, ch.UID, c.shown)
		}
		if ch.From == "" {
			continue
		}
		before, after := in.Records[ch.From], p.Records[ch.Job]
		if after == nil && !declares(in, ch.Job) && !runs(in, before.UID) {
			continue // declared under neither name, it is destroyed, and nothing may wait for it
		}
		if after != nil && before.UID != after.UID && isOver(before) && in.Rerun[ch.From] {
			continue // it had ended, and starts anew
		}
		if after == nil || before.UID != after.UID || after.LaunchedAs(ch.Job) != before.LaunchedAs(ch.From) || len(after.Slots) < len(before.Slots) {
			t.Fatalf("%s was moved to %s, but has another UID:\n%s", ch.From, ch.Job, c.shown)
		}
	}
}

func declares(in plan.Input, name string) bool {
	return slices.ContainsFunc(in.Jobs, func(j job.Job) bool { return j.Name == name })
}

func runs(in plan.Input, uid string) bool {
	return in.Snapshot.Incarnations.Any(func(i *job.Incarnation) bool { return i.UID == uid && i.State != job.Gone })
}

func isOver(rec *job.Record) bool { return rec != nil && rec.Phase.Ended() }

// checkQueued: what a scheduler has not placed yet costs nothing. It may be withdrawn, but no other incarnation takes its slot
// while its declaration stays the same.
func (c *checker) checkQueued(t *rapid.T, in plan.Input, p plan.Plan) {
	if c.can.Places {
		return
	}
	for inc := range in.Snapshot.Incarnations.All() {
		was, is := in.Records[inc.Slot.Job], p.Records[inc.Slot.Job]
		if inc.State != job.Starting || was == nil || is == nil || was.UID != is.UID || inc.UID != is.UID {
			continue
		}
		before, after := was.Slot(inc.Slot.Role, inc.Slot.Index), is.Slot(inc.Slot.Role, inc.Slot.Index)
		if before == nil || after == nil || before.Incarnation != inc.Number || before.Phase != job.Scheduling {
			continue
		}
		if after.Incarnation != before.Incarnation {
			t.Fatalf("%s was queued, but is started again as %d:\n%s", inc.Slot, after.Incarnation, c.shown)
		}
	}
}

// checkHeard: where a scheduler places, an incarnation in contact on a node that is not listed is kept, unless its declaration
// or its job ended it.
func (c *checker) checkHeard(t *rapid.T, in plan.Input, p plan.Plan) {
	if c.can.Places {
		return
	}
	for inc := range in.Snapshot.Incarnations.All() {
		m := inc.Member
		if c.node(inc.Node) != nil || m == nil || m.Silent || m.Expired || m.State != job.MemberRunning {
			continue
		}
		was, is := in.Records[inc.Slot.Job], p.Records[inc.Slot.Job]
		if was == nil || is == nil || was.UID != is.UID || inc.UID != is.UID {
			continue
		}
		before, after := was.Slot(inc.Slot.Role, inc.Slot.Index), is.Slot(inc.Slot.Role, inc.Slot.Index)
		if before == nil || before.Incarnation != inc.Number || before.Phase != job.Running {
			continue
		}
		if after.Cause == job.NodeGone && after.Incarnation != before.Incarnation {
			t.Fatalf("%s is in contact, but counts as gone with its node:\n%s", inc.Slot, c.shown)
		}
	}
}

// rest lets time pass without events. Eventually no plan has a change or anything to store, and no number of passes and hours
// brings one.
func (c *checker) rest(t *rapid.T) {
	c.slowStop = false
	c.scope = plan.Scope{}
	c.stopped()
	c.kind = true // an unkind scheduler would disagree with the planner forever, and jobs would be retried forever
	quiet := 0
	for pass := 0; quiet < 4; pass++ {
		if pass == 120 {
			t.Fatalf("plans do not come to rest:\n%s%s", render(c.plan(t)), c.status())
		}
		p := c.plan(t)
		before := c.fingerprint()
		if !c.can.Places {
			c.schedule()
		}
		c.serve()
		due := slices.ContainsFunc(p.Changes, func(ch plan.Change) bool { return ch.Wave == 0 }) // later ones may wait forever
		if due || p.Dirty || before != c.fingerprint() {
			quiet = 0
			continue
		}
		quiet++
		switch {
		case !p.Wake.IsZero():
			c.now = p.Wake
		case quiet > 1:
			c.now = c.now.Add(5 * time.Minute)
		}
	}
}
