package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/incident"
	"github.com/eltrain/eltrain/job"
)

// A node is marked once it has had markedAfter incidents within incidentWindow. What its monitoring reports counts as one. Faults
// within sameEvent are one: a node that reboots takes slots of several jobs with it.
const (
	markedAfter    = 2
	incidentWindow = 24 * time.Hour
	sameEvent      = time.Minute
)

// A mark lasts for firstMark, and twice as long each time, up to longestMark. After a pause of longestMark it begins anew.
const (
	firstMark   = time.Hour
	longestMark = 24 * time.Hour
)

// Of a provider's nodes, one in markedShare may be marked, and always leastMarked: if it were more, the cause would rather be
// something that they have in common.
const (
	markedShare = 5
	leastMarked = 2
)

// What is kept: incidents of a node, and nodes with incidents. An outage of a whole cluster must not fill the state.
const (
	incidentsKept    = 8
	faultyNodesKept  = 512
	nodeProblemsTold = 4
)

// nodeFault is a fault of a slot that lies in its node, or a suspicion of the node by itself.
type nodeFault struct {
	slot  *job.Slot
	cause job.Cause
	at    onNode
	why   []job.Reason
}

// noteNodeFault notes the slot's newest fault if it lies in the node. What a check has found is kept with it.
func (p *pass) noteNodeFault(w *work, s *job.Slot, why []job.Reason) {
	if s.Node == "" || !incident.Of(s.Cause).OfNode {
		return
	}
	if s.Cause != job.NodeFaulty {
		why = nil
	}
	p.nodeFaults = append(p.nodeFaults, nodeFault{s, s.Cause, onNode{w.spec.Provider, s.Node}, why})
}

// weightOf is how much there is against a node, in incidents. A check that it has failed is enough to mark it, one that did not end in time
// is not: that may have other reasons.
func weightOf(n *job.NodeRecord, node *job.Node) (weight int) {
	for _, i := range n.Incidents {
		if weight++; slices.ContainsFunc(i.Why, func(r job.Reason) bool { return r.Code == NodeCheckFailed }) {
			weight += markedAfter - 1
		}
	}
	if len(problems(node)) > 0 {
		weight++
	}
	return weight
}

// forgetIncidents drops what no longer counts against a node.
func (p *pass) forgetIncidents(n *job.NodeRecord) {
	before := len(n.Incidents)
	n.Incidents = slices.DeleteFunc(n.Incidents, func(i job.NodeIncident) bool { return p.in.Now.Sub(i.At) >= incidentWindow })
	p.out.Dirty = p.out.Dirty || len(n.Incidents) != before
	if n.Mark != nil && p.in.Now.Sub(n.Mark.Until) >= longestMark {
		n.Mark, p.out.Dirty = nil, true
	}
}

// markNodes records this pass's faults that lie in nodes, and marks the nodes that have had too many. Nodes are then placed on
// accordingly.
func (p *pass) markNodes() {
	if len(p.out.Nodes) == 0 && len(p.nodeFaults) == 0 {
		return
	}
	for _, f := range p.nodeFaults {
		if f.slot.Cause != f.cause && f.cause != job.Straggler {
			continue // another's fault explains it
		}
		p.addNodeRecord(f.at)
		n := p.nodeRecord(f.at.provider, f.at.node)
		if k := len(n.Incidents); k > 0 && p.in.Now.Sub(n.Incidents[k-1].At) < sameEvent && (f.why == nil || n.Incidents[k-1].Cause == f.cause) {
			continue // what a check has found counts by itself
		}
		n.Incidents = append(n.Incidents, job.NodeIncident{At: p.in.Now, Job: f.slot.Address.Job, Cause: f.cause, Why: f.why})
		n.Incidents = n.Incidents[max(0, len(n.Incidents)-incidentsKept):]
		p.out.Dirty = true
	}
	p.boundFaultyNodes()
	listed := byPlace(p.in.Snapshot.Nodes)
	due, tooMany := dueMarks(p.out.Nodes, listed, p.in.Now)
	for _, n := range due {
		p.mark(n, listed[onNode{n.Provider, n.Name}])
	}
	for i := range p.out.Nodes {
		switch n := &p.out.Nodes[i]; {
		case n.Marked(p.in.Now):
			p.wakeAt(n.Mark.Until)
		case slices.Contains(tooMany[n.Provider], n.Name):
			p.wakeAt(n.Incidents[0].At.Add(incidentWindow))
		}
	}
	if len(p.nodeFaults) > 0 || len(due) > 0 { // spaces were made before
		for provider, sp := range p.spaces {
			p.attachRecords(provider, sp)
		}
	}
}

// mark marks a node for longer than the last time.
func (p *pass) mark(n *job.NodeRecord, node *job.Node) {
	times := 1
	if n.Mark != nil {
		times += n.Mark.Times
	}
	lasts := min(firstMark<<min(times-1, 10), longestMark)
	why := problems(node)
	for _, i := range n.Incidents {
		why = append(why, job.Because(NodeIncident, "job", "job."+i.Job, "cause", string(i.Cause), "at", i.At.UTC().Format(time.RFC3339)).With(i.Why...))
	}
	n.Mark = &job.NodeMark{At: p.in.Now, Until: p.in.Now.Add(lasts), Times: times, Why: why}
	p.out.Dirty = true
}

// boundFaultyNodes forgets the incidents of the nodes whose newest is the oldest, if there are too many.
func (p *pass) boundFaultyNodes() {
	var faulty []*job.NodeRecord
	for i := range p.out.Nodes {
		if n := &p.out.Nodes[i]; len(n.Incidents) > 0 {
			faulty = append(faulty, n)
		}
	}
	if len(faulty) <= faultyNodesKept {
		return
	}
	slices.SortStableFunc(faulty, func(a, b *job.NodeRecord) int { return newest(b).Compare(newest(a)) })
	for _, n := range faulty[faultyNodesKept:] {
		n.Incidents, p.out.Dirty = nil, true
	}
	p.out.Nodes = slices.DeleteFunc(p.out.Nodes, func(n job.NodeRecord) bool { return n.Empty() })
}

// newest is the time of the newest incident of a node; zero if it has none.
func newest(n *job.NodeRecord) time.Time {
	if len(n.Incidents) == 0 {
		return time.Time{}
	}
	return n.Incidents[len(n.Incidents)-1].At
}

// byPlace returns nodes by provider and name.
func byPlace(nodes []job.Node) map[onNode]*job.Node {
	all := make(map[onNode]*job.Node, len(nodes))
	for i := range nodes {
		all[onNode{nodes[i].Provider, nodes[i].Name}] = &nodes[i]
	}
	return all
}

// dueMarks returns the nodes that are to be marked, and by provider those that are not because they are too many. A marked node
// is due again with its next incident.
func dueMarks(records []job.NodeRecord, listed map[onNode]*job.Node, now time.Time) (due []*job.NodeRecord, tooMany map[string][]string) {
	total, marked, fresh := map[string]int{}, map[string]int{}, map[string][]*job.NodeRecord{}
	for at := range listed {
		total[at.provider]++
	}
	for i := range records {
		n := &records[i]
		reports := len(problems(listed[onNode{n.Provider, n.Name}])) > 0
		isDue := len(n.Incidents) > 0 && weightOf(n, listed[onNode{n.Provider, n.Name}]) >= markedAfter
		isDue = isDue && (n.Mark == nil || newest(n).After(n.Mark.At) || reports && !n.Marked(now))
		switch {
		case n.Marked(now):
			marked[n.Provider]++
			if isDue {
				due = append(due, n)
			}
		case isDue:
			fresh[n.Provider] = append(fresh[n.Provider], n)
		}
	}
	for provider, nodes := range fresh {
		if marked[provider]+len(nodes) <= max(leastMarked, total[provider]/markedShare) {
			due = append(due, nodes...)
			continue
		}
		if tooMany == nil {
			tooMany = map[string][]string{}
		}
		for _, n := range nodes {
			tooMany[provider] = append(tooMany[provider], n.Name)
		}
	}
	return due, tooMany
}

// Marks says which nodes are used last, by address ("node.n1"), and which providers have more such nodes than are marked
// ("provider.local").
func Marks(records []job.NodeRecord, nodes []job.Node, now time.Time) map[string]job.Reason {
	if len(records) == 0 {
		return nil
	}
	all := map[string]job.Reason{}
	for i := range records {
		if n := &records[i]; n.Marked(now) {
			all[job.NodeAddress(n.Name)] = marked(n)
		}
	}
	_, tooMany := dueMarks(records, byPlace(nodes), now)
	for provider, names := range tooMany {
		count := len(names)
		all["provider."+provider] = job.Because(TooManyToMark, "provider", provider, "nodes", strings.Join(names[:min(count, nodesNamed)], ", "), "count", strconv.Itoa(count))
	}
	return all
}

// marked says why a node is used last.
func marked(n *job.NodeRecord) job.Reason {
	return job.Because(NodeMarked, "node", n.Name, "at", n.Mark.At.UTC().Format(time.RFC3339), "until", n.Mark.Until.UTC().Format(time.RFC3339)).With(n.Mark.Why...)
}

// problems is what monitoring reports of a node, which may be nil.
func problems(n *job.Node) (why []job.Reason) {
	if n == nil {
		return nil
	}
	for _, x := range n.Problems[:min(len(n.Problems), nodeProblemsTold)] {
		why = append(why, job.Because(NodeProblem, "node", n.Name, "name", x.Name, "message", cmp.Or(x.Message, x.Name)))
	}
	return why
}
