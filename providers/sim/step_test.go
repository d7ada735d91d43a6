package sim_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/sim"
)

// step is one thing that happens, as a line of text. Scenarios are written in steps, and walks draw them.
//
//	run 1.5s                                time passes
//	start a | once a | destroy a | crash a | pause a [5s] | resume a | interrupt a
//	                                        an eltrain process: one that watches, one that applies and ends, one that destroys
//	clock a -90s                            the clock offset of its next process
//	force-unlock                            the lock is force-unlocked
//	set most=3 | drop b | declare b | suspend b | unsuspend b
//	                                        edits of the files: a variable is set; a job is removed, and added again; suspended
//	ask a | serve a                         a request to reconcile; its service gets another address
//	request suspend b | request scale b.worker=2 | request signal b.worker[0]=SIGUSR2 | request reload b=100
//	request drain node.n1 node.n2           an operator's request
//	fault launch job.a.worker[1] crash after
//	fault store delay before 3s             a fault of the next effect of a kind: crash, pause, delay, and error, busy,
//	                                        conflict, which after it mean a lost answer
//	link a>store cut                        the link in one direction, or a<>store in both: cut, late=2s, lost=30, doubled=20
//	                                        (percent), or reset; parties are processes, store, cluster, agents,
//	                                        agents/n1
//	trouble write 20s [busy]                an operation fails, or all of the store or the cluster
//	quota 5                                 launches are refused while there are so many agents; 0 ends it
//	lag 3s | news 20s                       the age of observations; how long agents take to learn of a master
//	trains 2s 100ms 50                      processes show their first step after 2s, one each 100ms, and save each 50th
//	progress 2s                             training reports its steps at this interval, until everything is repaired
//	finish [a]                              all processes, or those of a job, exit with 0
//	hang job.a.worker[1]                    its processes do nothing, which detection finds after hangTime
//	kill-process | exit CODE | kill-agent | silence | wake | hide | show | evict | preempt | delete | edit job.a.worker[1]
//	node n1 cpu=1 | remove-node | crash-node | delete-node | not-ready | ready | cordon | fill n1 ...
//	faulty n1 memory|exchange|time          checks of the node fail; without a part they do no more
//	scheduler [packs]                       a scheduler places
//	remote                                  masters are on different machines: the death of the lock's holder is not noticed
//	checks                                  the files check that each job runs
//	rest                                    all faults end, and the loop must come to rest
type step string

// do carries out a step. A step about something that does not exist does nothing.
func (w *world) do(s step) error {
	words := strings.Fields(string(s))
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	verb, args := words[0], words[1:]
	if agents, is := agentSteps[verb]; is && len(args) > 0 {
		return w.doAgent(agents, args)
	}
	if nodes, is := nodeSteps[verb]; is {
		for _, name := range args {
			nodes(w.cluster, name)
		}
		return nil
	}
	return w.doWorld(verb, args)
}

// agentSteps are about the newest agent of a slot.
var agentSteps = map[string]func(w *world, a *sim.Agent, args []string){
	"kill-process": func(_ *world, a *sim.Agent, _ []string) { a.Fail(job.Exit{Code: 137, Signal: "killed"}) },
	"exit":         func(_ *world, a *sim.Agent, args []string) { a.Fail(job.Exit{Code: number(args)}) },
	"kill-agent":   func(_ *world, a *sim.Agent, _ []string) { a.Kill() },
	"hang":         func(w *world, a *sim.Agent, _ []string) { w.hang(a) },
	"silence":      func(_ *world, a *sim.Agent, _ []string) { a.Silence() },
	"wake":         func(_ *world, a *sim.Agent, _ []string) { a.Wake() },
	"hide":         func(_ *world, a *sim.Agent, _ []string) { a.Hide(true) },
	"show":         func(_ *world, a *sim.Agent, _ []string) { a.Hide(false) },
	"evict":        func(w *world, a *sim.Agent, _ []string) { w.cluster.Terminate(a, job.Eviction) },
	"preempt":      func(w *world, a *sim.Agent, _ []string) { w.cluster.Terminate(a, job.Preemption) },
	"delete":       func(w *world, a *sim.Agent, _ []string) { w.cluster.Terminate(a, job.Deletion) },
	"edit": func(_ *world, a *sim.Agent, _ []string) {
		a.Edit(job.FieldChange{Path: "image", Before: "theirs", After: "ours"})
	},
}

func number(args []string) int {
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil {
			return n
		}
	}
	return 1
}

// doAgent carries out a step on the newest living agent of a slot.
func (w *world) doAgent(do func(*world, *sim.Agent, []string), args []string) error {
	slot, err := job.ParseAddress(args[0])
	if err != nil {
		return err
	}
	if a := w.cluster.Agent(slot); a != nil {
		do(w, a, args[1:])
	}
	return nil
}

// nodeSteps are about a node.
var nodeSteps = map[string]func(c *sim.Cluster, name string){
	"remove-node": (*sim.Cluster).RemoveNode,
	"crash-node":  (*sim.Cluster).CrashNode,
	"delete-node": (*sim.Cluster).DeleteNode,
	"not-ready":   (*sim.Cluster).NotReady,
	"ready":       (*sim.Cluster).Ready,
	"cordon":      changing(func(n *job.Node) { n.Closed, n.Drained = "cordoned", "cordoned" }),
	"fill":        changing(func(n *job.Node) { n.Foreign = n.Capacity }),
}

// changing changes a node, if it exists.
func changing(change func(*job.Node)) func(*sim.Cluster, string) {
	return func(c *sim.Cluster, name string) {
		for _, n := range c.Nodes() {
			if n.Name == name {
				change(&n)
				c.SetNode(n)
			}
		}
	}
}

// doWorld carries out the other steps.
func (w *world) doWorld(verb string, args []string) (err error) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	m := w.masters[arg(0)]
	switch verb {
	case "run":
		var d time.Duration
		if d, err = time.ParseDuration(arg(0)); err == nil {
			w.run(d)
		}
	case "start":
		w.start(arg(0))
	case "once":
		w.startFor(arg(0), apply.Intent{})
	case "destroy":
		w.startFor(arg(0), apply.Intent{Destroy: true})
	case "crash":
		if m != nil {
			m.crash()
		}
	case "pause":
		if m != nil {
			m.pause(duration(arg(1)))
		}
	case "resume":
		if m != nil {
			m.resume()
		}
	case "interrupt":
		if m.leads() {
			m.do(func() { m.step(apply.Interrupted{}) })
		}
	case "ask":
		if m.leads() && m.intent.Watch {
			m.do(m.request)
		}
	case "request":
		return w.request(args)
	case "serve":
		if m.leads() {
			m.do(m.move)
		}
	case "clock":
		w.skews[arg(0)] = duration(arg(1))
	case "force-unlock":
		w.store.breakLock()
	case "set":
		name, value, _ := strings.Cut(arg(0), "=")
		w.set[name] = value
		return w.declare(w.text)
	case "drop", "declare":
		w.dropped[arg(0)] = verb == "drop"
		return w.declare(w.text)
	case "suspend", "unsuspend":
		w.suspended[arg(0)] = verb == "suspend"
		return w.declare(w.text)
	case "fault":
		f, err := parseFault(args)
		w.armed, w.repaired = append(w.armed, f), false
		return err
	case "link":
		return w.link(args)
	case "trouble":
		until := w.cluster.Now().Add(duration(arg(1)))
		ops := map[string][]string{"store": storeOps, "cluster": clusterOps}[arg(0)]
		if ops == nil {
			ops = args[:1]
		}
		for _, op := range ops {
			w.troubles[op] = trouble{until, arg(2) == "busy"}
		}
	case "quota":
		w.quota = number(args)
	case "lag":
		w.cluster.Lag = duration(arg(0))
	case "news":
		w.cluster.News = duration(arg(0))
	case "node":
		n, err := parseNode(strings.Join(args, " "))
		w.cluster.SetNode(n)
		w.nodes[n.Name] = n
		return err
	case "faulty":
		part := job.CheckPart(arg(1))
		w.cluster.SetFault(arg(0), part)
		w.facts.faulty(arg(0), part, w.cluster.Now())
	case "scheduler":
		w.cluster.Schedules, w.cluster.Packs = true, arg(0) == "packs"
	case "checks":
		w.checks = true
	case "remote":
		w.store.remote = true
	case "trains":
		t := &w.cluster.Training
		t.Imports, t.Step = duration(arg(0)), duration(arg(1))
		t.Saves, err = strconv.ParseInt(arg(2), 10, 64)
	case "progress":
		w.progress(duration(arg(0)))
	case "finish":
		w.finish(func(a *sim.Agent) bool { return arg(0) == "" || arg(0) == a.Slot().Job })
	case "rest":
		w.rest()
	default:
		return fmt.Errorf("unknown step %q", verb)
	}
	return err
}

// progress makes training report progress at intervals, until everything is repaired.
func (w *world) progress(every time.Duration) {
	w.cluster.After(every, func() {
		for _, a := range w.cluster.Agents() {
			a.Progress()
		}
		if !w.repaired {
			w.progress(every)
		}
	})
}

// finish makes the processes of some agents exit with 0.
func (w *world) finish(some func(*sim.Agent) bool) {
	for _, a := range w.cluster.Agents() {
		if some(a) && a.Finish() {
			w.finished[a.UID()] = true
		}
	}
}

// duration returns zero for text that is no duration.
func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text)
	return d
}

// parseFault reads KIND [SLOT] WHAT before|after [DURATION].
func parseFault(args []string) (f effectFault, err error) {
	at := slices.IndexFunc(args, func(a string) bool { return a == "before" || a == "after" })
	if at < 2 {
		return f, fmt.Errorf("fault %v: what goes wrong, before or after what?", args)
	}
	f = effectFault{Kind: args[0], What: args[at-1], After: args[at] == "after"}
	if at == 3 {
		if f.Slot, err = job.ParseAddress(args[1]); err != nil {
			return f, err
		}
	}
	if len(args) > at+1 {
		f.For, err = time.ParseDuration(args[at+1])
	}
	return f, err
}

// link reads A>B or A<>B with the link's settings.
func (w *world) link(args []string) error {
	var l sim.Link
	for _, a := range args[1:] {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "cut":
			l.Cut = true
		case "late":
			l.Late = duration(value)
		case "lost":
			l.Lost, _ = strconv.Atoi(value)
		case "doubled":
			l.Doubled, _ = strconv.Atoi(value)
		default:
			return fmt.Errorf("link: unknown %q", a)
		}
	}
	if a, b, both := strings.Cut(args[0], "<>"); both {
		w.cluster.Net.Set(a, b, l)
		w.cluster.Net.Set(b, a, l)
		return nil
	}
	from, to, one := strings.Cut(args[0], ">")
	if !one {
		return fmt.Errorf("link %q: between whom?", args[0])
	}
	w.cluster.Net.Set(from, to, l)
	return nil
}

// parseNode reads NAME cpu=N [closed=WHY] [LABEL=VALUE].
func parseNode(line string) (job.Node, error) {
	fields := strings.Fields(line)
	n := job.Node{Name: fields[0], Labels: map[string]string{}}
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, "=")
		switch name {
		case "cpu":
			cores, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return n, err
			}
			n.Capacity.CPU, _ = job.Cores(cores)
		case "closed":
			n.Closed = value
		default:
			n.Labels[name] = value
		}
	}
	return n, nil
}
