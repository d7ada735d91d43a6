package simulate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// cluster is the infrastructure: nodes, and what runs on them.
type cluster struct {
	nodes []job.Node // as shown; replaced, not changed
	at    map[string]int
	on    [][]*agent // by node: those that live there, in the order in which they came
	lost  []int      // by node: how many faults have taken it away; it is back when all are over
	jobs  []*running // with incarnations that are shown, by name and UID
	seen  *providers.Observation
	news  bool // the Loop has not been woken since something changed
	owned bool // nodes is not part of an observation
}

func newCluster(nodes []job.Node) cluster {
	c := cluster{nodes: slices.Clone(nodes), at: make(map[string]int, len(nodes)), on: make([][]*agent, len(nodes)), lost: make([]int, len(nodes))}
	for i := range c.nodes {
		c.nodes[i].Provider = Provider
		c.at[c.nodes[i].Name] = i
	}
	return c
}

// observe is what there is. Parts of jobs of which nothing has changed are the same as before.
func (c *cluster) observe() *providers.Observation {
	if c.seen == nil {
		c.seen = &providers.Observation{Nodes: c.nodes, Places: providers.Anywhere, Incarnations: make(job.Incarnations, 0, len(c.jobs))}
		c.owned = false
		for _, j := range c.jobs {
			if part := j.incarnations(); len(part) > 0 {
				c.seen.Incarnations = append(c.seen.Incarnations, part)
			}
		}
	}
	return c.seen
}

// changed makes the next observation another.
func (c *cluster) changed() { c.seen, c.news = nil, true }

// change changes a node.
func (c *cluster) change(node int, change func(*job.Node)) {
	if !c.owned {
		c.nodes, c.owned = slices.Clone(c.nodes), true
	}
	change(&c.nodes[node])
	c.changed()
}

// add adds a job that has incarnations.
func (c *cluster) add(j *running) {
	at, _ := slices.BinarySearchFunc(c.jobs, j, compareJobs)
	c.jobs = slices.Insert(c.jobs, at, j)
}

func (c *cluster) remove(j *running) {
	if at, found := slices.BinarySearchFunc(c.jobs, j, compareJobs); found {
		c.jobs = slices.Delete(c.jobs, at, at+1)
		c.changed()
	}
}

func compareJobs(a, b *running) int {
	return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.uid, b.uid))
}

// incarnations are those of a job, as its provider sees them.
func (j *running) incarnations() []job.Incarnation {
	if j.part != nil || len(j.agents) == 0 {
		return j.part
	}
	j.part = make([]job.Incarnation, len(j.agents))
	for i, a := range j.agents {
		inc := &j.part[i]
		*inc = job.Incarnation{Slot: a.slot, UID: j.uid, Number: a.number, Node: a.node, Fingerprint: a.fingerprint, Reserved: a.reserved, State: job.Up, Started: a.started}
		if a.gone {
			inc.State, inc.Exit, inc.Ended = job.Gone, a.exit, a.reason
		}
	}
	return j.part
}
