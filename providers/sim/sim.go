// Package sim is a simulated cluster on a virtual clock: nodes, slots and agents that come, go, fail and
// fall silent, without processes or sleeps. It replaces a real provider and real agents under the same plan, elastic and
// apply code.
//
// Everything happens on one goroutine, in the order of the virtual clock, which Advance moves.
//
// The package's tests add masters, with the production loop, planner and service, and the store that they share: step_test.go
// lists what can happen, store_test.go has the lock's rules, facts_test.go and invariants_test.go the invariants. Scenarios in
// testdata are written in these steps, and random walks draw them; a walk that fails is printed as a scenario.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/virtual"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Latencies of operations that take time in a real cluster. They differ, so that events interleave.
const (
	StartTime = 50 * time.Millisecond // from Launch to the agent's registration
	SpawnTime = 10 * time.Millisecond // from an order to run until the processes run
	StopTime  = 20 * time.Millisecond // from an order to stop until none runs

	// HungStopTime is StopTime if they hang, and are not to be killed at once.
	HungStopTime = 2 * time.Second
	ReplyTime    = time.Millisecond      // from a changed order until the agent has it
	NoticeTime   = 2 * time.Millisecond  // from an agent's end until Observe shows it
	BindTime     = 30 * time.Millisecond // from Launch, or from capacity becoming free, until the scheduler runs
)

// Master is the elastic service of one master, as simulated agents use it. It may answer at any later time.
type Master interface {
	Register(jobName string, r elastic.RegisterRequest, answer func(elastic.RegisterReply, error))
	Sync(jobName string, r elastic.SyncRequest, answer func(elastic.SyncReply, error))
}

// Cluster is the simulated infrastructure. It is a providers.Provider.
type Cluster struct {
	Name string // the provider's
	// Schedules means that a scheduler of the cluster (scheduler.go) places launched slots. Set it before use.
	Schedules bool
	// Packs makes that scheduler choose the fullest node with room instead of the emptiest.
	Packs bool
	// News is how long agents take to learn the address of a new master.
	News time.Duration
	// Lag is how far behind Observe is. Launches show at once.
	Lag time.Duration
	// Training is how fast processes are; by default they show no steps.
	Training Training
	// Net connects agents and masters.
	Net *Net
	// Trouble, if set, is called before each operation, such as "observe" or "launch", which fails if it returns an error.
	Trouble func(op string, slot job.Address) error
	// Acted, if set, is called when processes get a signal that was asked for.
	Acted func(a *Agent, act job.Act)

	clock   *virtual.Clock
	nodes   []job.Node
	agents  map[key]*Agent
	masters map[string]Master // by address
	service [2]string         // the master's addresses published to agents: the previous, and the current
	told    time.Time         // when the current one was published
	changes chan struct{}
	clients []*Client
	tokens  map[string]string
	saved   map[string]checkpoints   // by UID
	faults  map[string]job.CheckPart // by node: in what its checks fail
	meets   map[exchange]meeting
	reached map[string]int64             // the highest step of ended runs, by UID
	seen    *providers.Observation       // the last one; nil if something has changed since
	parts   map[string][]job.Incarnation // of jobs as last seen, by UID: of one of which nothing has changed, the same is shown again
	log     func(format string, args ...any)
}

var _ providers.Provider = (*Cluster)(nil)

type key struct {
	uid    string
	slot   job.Address
	number int
}

// New returns an empty cluster whose clock starts at start. log, if set, receives what happens in it.
func New(name string, start time.Time, log func(format string, args ...any)) *Cluster {
	if log == nil {
		log = func(string, ...any) {}
	}
	c := &Cluster{Name: name, clock: virtual.New(start), agents: map[key]*Agent{}, masters: map[string]Master{}, changes: make(chan struct{}, 1), tokens: map[string]string{}, reached: map[string]int64{}, faults: map[string]job.CheckPart{}, meets: map[exchange]meeting{}, parts: map[string][]job.Incarnation{}, saved: map[string]checkpoints{}, log: log}
	c.Net = newNet(c.After)
	return c
}

// Now is the virtual time.
func (c *Cluster) Now() time.Time { return c.clock.Now() }

// After schedules f at d from now.
func (c *Cluster) After(d time.Duration, f func()) { c.clock.After(d, f) }

// Advance runs all events that are due until t, and moves the clock to t. It calls between after each event, which
// steps the masters' loops.
func (c *Cluster) Advance(t time.Time, between func()) {
	for c.clock.Step(t) {
		between()
	}
	c.clock.MoveTo(t)
}

// Serve makes a master reachable at an address; nil removes it, and breaks its connections. Agents use the address that was
// last published to them.
func (c *Cluster) Serve(address string, m Master) {
	c.masters[address] = m
	if m != nil {
		return
	}
	for _, a := range c.Agents() {
		if mine := a.session; a.master == address {
			c.Net.Send(address, partyOf(a.node), func() {
				if a.hears(mine) {
					a.refused(errReset)
				}
			})
		}
	}
}

// address returns the master's address as agents know it.
func (c *Cluster) address() string {
	if c.Now().Before(c.told.Add(c.News)) {
		return c.service[0]
	}
	return c.service[1]
}

// tell publishes a master's address to agents.
func (c *Cluster) tell(address string) {
	if c.service[1] != address {
		c.service, c.told = [2]string{c.address(), address}, c.Now()
	}
}

// SetNode adds or changes a node.
func (c *Cluster) SetNode(n job.Node) {
	n.Provider = c.Name
	if i := slices.IndexFunc(c.nodes, func(o job.Node) bool { return o.Name == n.Name }); i >= 0 {
		c.nodes[i] = n
	} else {
		c.nodes = append(c.nodes, n)
	}
	c.reschedule()
	c.changed()
}

// Nodes lists the nodes.
func (c *Cluster) Nodes() []job.Node { return slices.Clone(c.nodes) }

// RemoveNode removes a node from the list. Its agents keep running, as after an edit of the declaration.
func (c *Cluster) RemoveNode(name string) {
	c.nodes = slices.DeleteFunc(c.nodes, func(n job.Node) bool { return n.Name == name })
	c.changed()
}

// CrashNode removes a node and ends its agents.
func (c *Cluster) CrashNode(name string) {
	for _, a := range c.Agents() {
		if a.node == name {
			c.end(a, nil, "")
		}
	}
	c.RemoveNode(name)
}

// Agents lists the living agents, by slot and incarnation.
func (c *Cluster) Agents() []*Agent {
	var live []*Agent
	for _, a := range c.agents {
		if !a.gone {
			live = append(live, a)
		}
	}
	slices.SortFunc(live, func(a, b *Agent) int {
		return cmp.Or(a.launch.Slot.Compare(b.launch.Slot), cmp.Compare(a.launch.Incarnation, b.launch.Incarnation), strings.Compare(a.launch.UID, b.launch.UID))
	})
	return live
}

// Agent returns the newest living agent of a slot; nil if there is none.
func (c *Cluster) Agent(slot job.Address) *Agent {
	var newest *Agent
	for _, a := range c.Agents() {
		if a.launch.Slot == slot {
			newest = a
		}
	}
	return newest
}

func (c *Cluster) trouble(op string, slot job.Address) error {
	if c.Trouble == nil {
		return nil
	}
	return c.Trouble(op, slot)
}

// changed invalidates the last observation and signals a change, both after Lag.
func (c *Cluster) changed() {
	if c.Lag > 0 {
		c.After(c.Lag, c.wake)
		return
	}
	c.wake()
}

func (c *Cluster) wake() {
	c.seen = nil
	nudge(c.changes)
	for _, client := range c.clients {
		nudge(client.changes)
	}
}

func nudge(changes chan<- struct{}) {
	select {
	case changes <- struct{}{}:
	default:
	}
}

// Capabilities: the planner places, unless a scheduler does.
func (c *Cluster) Capabilities() job.Capabilities {
	return job.Capabilities{Places: !c.Schedules, News: job.Duration(c.News)}
}

// Observe lists the nodes and every agent that ever ran for a job that was not forgotten.
func (c *Cluster) Observe(context.Context) (*providers.Observation, error) {
	if err := c.trouble("observe", job.Address{}); err != nil {
		return nil, err
	}
	if c.seen == nil {
		c.seen = c.observe()
	}
	return c.seen, nil
}

func (c *Cluster) observe() *providers.Observation {
	seen := &providers.Observation{Nodes: slices.Clone(c.nodes), Places: providers.Anywhere}
	var incs []job.Incarnation
	for _, a := range c.agents {
		if a.hidden {
			continue
		}
		inc := job.Incarnation{Slot: a.launch.Slot, UID: a.launch.UID, Number: a.launch.Incarnation, Node: a.node,
			Fingerprint: a.launch.Fingerprint, Reserved: a.launch.Reserved, State: job.Up, Started: a.started,
			Waiting: a.waiting, Drift: slices.Clone(a.drift)}
		switch {
		case a.gone || a.deleted:
			inc.State, inc.Exit, inc.Ended, inc.Cause = job.Gone, a.exit, a.reason, a.cause
		case a.node == "":
			inc.State = job.Starting
		}
		incs = append(incs, inc)
	}
	slices.SortFunc(incs, func(a, b job.Incarnation) int {
		return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(a.Number, b.Number), strings.Compare(a.UID, b.UID))
	})
	seen.Incarnations = job.InParts(incs)
	for i, part := range seen.Incarnations {
		if known := c.parts[part[0].UID]; reflect.DeepEqual(known, part) {
			seen.Incarnations[i] = known
		}
		c.parts[part[0].UID] = seen.Incarnations[i]
	}
	return seen
}

// Changes signals changes of nodes, and agents that have ended.
func (c *Cluster) Changes() <-chan struct{} { return c.changes }

// Publish publishes the master's address to agents.
func (c *Cluster) Publish(_ context.Context, s providers.Service) error {
	if err := c.trouble("publish", job.Address{}); err != nil {
		return err
	}
	c.tell(s.URL)
	return nil
}

// Prepare returns the job's token.
func (c *Cluster) Prepare(_ context.Context, g job.Group) (string, error) {
	if err := c.trouble("prepare", job.Address{Job: g.Name}); err != nil {
		return "", err
	}
	if c.tokens[g.UID] == "" {
		c.tokens[g.UID] = fmt.Sprintf("token-%d", len(c.tokens)+1)
	}
	return c.tokens[g.UID], nil
}

// Launch starts an agent.
func (c *Cluster) Launch(_ context.Context, l job.Launch) error {
	if err := c.trouble("launch", l.Slot); err != nil {
		return err
	}
	if !c.Prepared(l.UID) {
		return providers.ErrNotPrepared
	}
	c.seen = nil
	k := key{l.UID, l.Slot, l.Incarnation}
	if a := c.agents[k]; a != nil {
		a.drift = nil
		return nil
	}
	a := &Agent{c: c, launch: l, launched: len(c.agents), started: c.Now(), state: job.MemberWaiting}
	c.agents[k] = a
	if c.Schedules {
		c.log("launch %s incarnation %d", l.Slot.Short(), l.Incarnation)
		c.reschedule()
		return nil
	}
	c.log("launch %s incarnation %d on %s", l.Slot.Short(), l.Incarnation, l.Node)
	a.begin(l.Node)
	return nil
}

// Stop ends an agent at once, without a grace period.
func (c *Cluster) Stop(_ context.Context, uid string, slot job.Address, incarnation int, _ time.Duration) error {
	if err := c.trouble("stop", slot); err != nil {
		return err
	}
	a := c.agents[key{uid, slot, incarnation}]
	switch {
	case a == nil || a.gone:
	case c.unreachable(a):
		a.deleted = true // it ends once its node is ready again; until then its number fences it
		c.changed()
	default:
		c.end(a, nil, job.EndLeft)
	}
	return nil
}

// Logs is empty: simulated processes print nothing.
func (c *Cluster) Logs(context.Context, string, job.Address, providers.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// Prepared reports whether a job is prepared.
func (c *Cluster) Prepared(uid string) bool { return c.tokens[uid] != "" }

// Forget removes the remains of a job.
func (c *Cluster) Forget(_ context.Context, uid, name string) error {
	if err := c.trouble("forget", job.Address{Job: name}); err != nil {
		return err
	}
	c.seen = nil
	for _, a := range c.Agents() {
		if a.launch.UID == uid && !a.deleted {
			return fmt.Errorf("%s still runs", a.launch.Slot)
		}
	}
	for k, a := range c.agents {
		if k.uid == uid {
			a.gone = true
			delete(c.agents, k)
		}
	}
	delete(c.tokens, uid)
	delete(c.parts, uid)
	return nil
}

// Close does nothing.
func (c *Cluster) Close() error { return nil }

// end ends an agent.
func (c *Cluster) end(a *Agent, exit *job.Exit, reason job.EndReason) {
	a.stop()
	a.gone, a.hidden, a.exit, a.reason = true, false, exit, reason
	if c.Lag == 0 {
		c.seen = nil
	}
	c.reschedule()
	c.log("%s incarnation %d ended%s", a.launch.Slot.Short(), a.launch.Incarnation, prefixed(" ", string(reason)))
	c.After(NoticeTime, c.changed)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
