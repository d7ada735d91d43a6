package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// nodeVerbs are the overrides that requests about nodes put in place; "" ends it.
var nodeVerbs = map[job.Verb]string{job.AskCordon: job.PathCordon, job.AskUncordon: "", job.AskDrain: job.PathDrain}

// openNodes copies the records of nodes to work on. It ends overrides whose time is over, and forgets old incidents, and requests that
// have their final reply, as prune does for jobs.
func (p *pass) openNodes() {
	for _, n := range p.in.Nodes {
		p.out.Nodes = append(p.out.Nodes, n.Clone())
	}
	for i := range p.out.Nodes {
		n := &p.out.Nodes[i]
		if before := len(n.Handled); p.in.Requests != nil {
			n.Handled = slices.DeleteFunc(n.Handled, func(h job.Handled) bool { return !p.asks(h.ID) })
			p.out.Dirty = p.out.Dirty || len(n.Handled) != before
		}
		p.forgetIncidents(n)
		switch o := n.Override; {
		case o == nil || o.Until.IsZero():
		case p.in.Now.Before(o.Until):
			p.wakeAt(o.Until)
		default:
			p.note(job.NodeAddress(n.Name), "override", job.Because(OverrideExpired, "path", o.Path, "by", o.By, "value", o.Value))
			n.Override, p.out.Dirty = nil, true
		}
	}
}

// nodeRecord is what is recorded about a node; nil for most.
func (p *pass) nodeRecord(provider, name string) *job.NodeRecord {
	if i := slices.IndexFunc(p.out.Nodes, func(n job.NodeRecord) bool { return n.Provider == provider && n.Name == name }); i >= 0 {
		return &p.out.Nodes[i]
	}
	return nil
}

// addNodeRecord makes the record of a node that has none. It moves the others.
func (p *pass) addNodeRecord(at onNode) {
	i, found := slices.BinarySearchFunc(p.out.Nodes, at, func(n job.NodeRecord, at onNode) int {
		return cmp.Or(cmp.Compare(n.Provider, at.provider), cmp.Compare(n.Name, at.node))
	})
	if !found {
		p.out.Nodes = slices.Insert(p.out.Nodes, i, job.NodeRecord{Provider: at.provider, Name: at.node})
	}
}

// nodesWait reports whether an earlier request about one of the nodes waits.
func (p *pass) nodesWait(r *job.Request, waiting map[string]bool) bool {
	return slices.ContainsFunc(r.Nodes, func(name string) bool { return waiting[job.NodeAddress(name)] })
}

// KnowsNodes reports whether it is known of all these nodes that they exist.
func (in *Input) KnowsNodes(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(in.Snapshot.Nodes, func(n job.Node) bool { return n.Name == name }) && !in.recordsNode(name)
	})
}

func (in *Input) recordsNode(name string) bool {
	return slices.ContainsFunc(in.Nodes, func(n job.NodeRecord) bool { return n.Name == name })
}

// ends reports whether there is something about a node that a request can end or follow, wherever the node is.
func (in *Input) ends(r *job.Request, name string) bool {
	return slices.ContainsFunc(in.Nodes, func(n job.NodeRecord) bool {
		return n.Name == name && (n.Override != nil || len(n.Handled) > 0 || r.Verb == job.AskUncordon)
	})
}

// refuseNodes is why a request about nodes cannot take effect; zero if it can. Where a scheduler places slots, only the scheduler can
// be kept off a node.
func (p *pass) refuseNodes(r *job.Request) job.Reason {
	for _, name := range r.Nodes {
		if p.in.ends(r, name) {
			continue
		}
		there := slices.Collect(func(yield func(job.Node) bool) {
			for _, n := range p.in.Snapshot.Nodes {
				if n.Name == name && !yield(n) {
					return
				}
			}
		})
		if len(there) == 0 {
			if provider := p.hidesNodes(); provider != "" {
				return job.Because(NodeScheduled, "verb", string(r.Verb), "node", name, "provider", provider)
			}
			return p.noSuchNode(name)
		}
		if !slices.ContainsFunc(there, p.placesOn) {
			return job.Because(NodeScheduled, "verb", string(r.Verb), "node", name, "provider", there[0].Provider)
		}
	}
	return job.Reason{}
}

// placesOn reports whether the planner chooses which slots run on the node.
func (p *pass) placesOn(n job.Node) bool { return p.in.Capabilities[n.Provider].Places }

// hidesNodes is a provider that may have more nodes than it lists; "" if none has.
func (p *pass) hidesNodes() string {
	for _, provider := range slices.Sorted(maps.Keys(p.in.Capabilities)) {
		if p.in.Capabilities[provider].NodesUnknown {
			return provider
		}
	}
	return ""
}

// noSuchNode says which nodes there are instead.
func (p *pass) noSuchNode(name string) job.Reason {
	var names []string
	for _, n := range p.in.Snapshot.Nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	more := ""
	if left := len(names) - nodesNamed; left > 0 {
		names, more = names[:nodesNamed], strconv.Itoa(left)
	}
	return job.Because(NoSuchNode, "node", name, "there", strings.Join(names, ", "), "more", more)
}

// acceptOn enters a request about a node into its record, where it takes effect at once.
func (p *pass) acceptOn(n *job.NodeRecord, r *job.Request) {
	p.note(job.NodeAddress(n.Name), "request", job.Because(RequestAccepted, "verb", string(r.Verb), "by", r.By, "why", r.Why, "request", r.ID))
	n.Override = nil
	if path := nodeVerbs[r.Verb]; path != "" {
		n.Override = &job.Override{Path: path, Value: "true", Request: r.ID, By: r.By, At: r.At, Why: r.Why, Until: r.Until}
		if !r.Until.IsZero() {
			p.wakeAt(r.Until)
		}
	}
	if r.Verb == job.AskUncordon {
		n.Incidents, n.Mark = nil, nil
	}
	n.Handled = append(n.Handled, job.Handled{Reply: job.Reply{ID: r.ID, State: job.Accepted}})
}

// recordsFor returns the records of the nodes of a request, and makes those that are missing.
func (p *pass) recordsFor(r *job.Request) []*job.NodeRecord {
	named := func(name string) bool { return slices.Contains(r.Nodes, name) }
	for _, n := range p.in.Snapshot.Nodes {
		if named(n.Name) && p.placesOn(n) {
			p.addNodeRecord(onNode{n.Provider, n.Name})
		}
	}
	return p.nodesThat(func(n *job.NodeRecord) bool { return named(n.Name) })
}

// nodesWith returns the records in which a request is in effect.
func (p *pass) nodesWith(id string) []*job.NodeRecord {
	return p.nodesThat(func(n *job.NodeRecord) bool { return n.InEffect(id) != nil })
}

func (p *pass) nodesThat(is func(*job.NodeRecord) bool) (all []*job.NodeRecord) {
	for i := range p.out.Nodes {
		if n := &p.out.Nodes[i]; is(n) {
			all = append(all, n)
		}
	}
	return all
}

// Cordons says who keeps new slots off which nodes, by address ("node.n1").
func Cordons(nodes []job.NodeRecord) map[string]job.Reason {
	all := map[string]job.Reason{}
	for i := range nodes {
		if n := &nodes[i]; n.Override != nil {
			all[job.NodeAddress(n.Name)] = keptFromUse(n)
		}
	}
	return all
}

// keptFromUse says who keeps new slots off a node.
func keptFromUse(n *job.NodeRecord) job.Reason {
	o, code, until := n.Override, Cordoned, ""
	if n.Draining() {
		code = Draining
	}
	if !o.Until.IsZero() {
		until = o.Until.UTC().Format(time.RFC3339)
	}
	return job.Because(code, "node", n.Name, "by", o.By, "at", o.At.UTC().Format(time.RFC3339), "why", o.Why, "until", until, "request", o.Request)
}

// nodeOutcome is how far a request has come on a node, with what it waits for if it is not done.
func (p *pass) nodeOutcome(n *job.NodeRecord, r *job.Request) (job.ReplyState, job.Reason) {
	asked, is := nodeVerbs[r.Verb], ""
	if n.Override != nil {
		is = n.Override.Path
	}
	cordons := asked == job.PathCordon && is == job.PathDrain // which includes it
	switch last := n.Handled[len(n.Handled)-1].ID; {
	case asked == is && n.Draining() && p.occupied(n):
		return job.Accepted, p.stuckAt(n)
	case asked == is || cordons:
		return job.Done, job.Reason{}
	case last != r.ID:
		return job.Undone, job.Because(RequestSuperseded, "request", last)
	}
	return job.Undone, job.Because(OverrideExpired, "path", asked, "value", "true", "by", r.By)
}

// occupied reports whether anything runs on a node, or is about to.
func (p *pass) occupied(n *job.NodeRecord) bool {
	return p.in.Snapshot.Incarnations.Any(func(inc *job.Incarnation) bool {
		return inc.Provider == n.Provider && inc.Node == n.Name && inc.State != job.Gone
	}) || slices.ContainsFunc(p.jobs, func(w *work) bool { return w.occupies(n) })
}

// occupies reports whether slots of a job are on a node.
func (w *work) occupies(n *job.NodeRecord) bool {
	return w.spec != nil && w.spec.Provider == n.Provider && slices.ContainsFunc(w.slots, func(s *job.Slot) bool { return s.Node == n.Name && s.Phase.Live() })
}

// stuckAt says which slots have to stay on a drained node; zero if all can leave.
func (p *pass) stuckAt(n *job.NodeRecord) job.Reason {
	for i := range p.out.Waits {
		x := &p.out.Waits[i]
		if w := p.byName[x.Job]; w != nil && x.Reasons[0].Code == StuckOnDrained && w.occupies(n) {
			return x.Reasons[0]
		}
	}
	return job.Reason{}
}
