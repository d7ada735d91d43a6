package plan

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"github.com/eltrain/eltrain/job"
)

// space is one provider's nodes and what is free on each, while a plan is made.
type space struct {
	places       []*place
	byName       map[string]*place
	listed       map[string]*job.Node
	dims         map[string]int // device name -> position in an amount
	bars         bars
	extras       extras
	actualExtras map[job.Address]actualExtra
	// cursors remember, by slot size and bars, which nodes can take another. They are valid while free only shrinks.
	cursors map[string]*cursor
	key     []byte // scratch of cursorFor
	empty   *space // the same nodes with nothing on them; computed on demand
	drained bool   // some nodes are drained
	// last names the nodes that are used last, recorded those about which anything is recorded.
	last, recorded []string
	// anyDevice: devices that no node lists are unlimited.
	anyDevice bool
	// amounts are those of the places, one after another. base are those without what jobs hold that are not at rest.
	amounts, base amount
	uses          *[]use // what is held is noted here; nil if it is not
}

// place is one node. Amounts are cpu, memory, slots, then devices as in space.dims.
type place struct {
	node *job.Node
	rec  *job.NodeRecord // what is recorded about it; nil for most
	last bool            // it is marked: used once no other has room
	at   int             // its position in its space's amounts
	free amount          // now
	soon amount          // once what is being stopped permanently has exited
}

// open reports whether new slots may be placed.
func (pl *place) open() bool { return pl.node.Closed == "" && !pl.draining() && !pl.cordoned() }

// draining reports whether running slots are to leave if they can.
func (pl *place) draining() bool {
	return pl.node.Drained != "" || pl.rec != nil && pl.rec.Draining()
}

// cordoned reports whether an operator keeps new slots off the node.
func (pl *place) cordoned() bool { return pl.rec != nil && pl.rec.Override != nil }

// takes reports whether a slot of a role with these bars may be placed.
func (pl *place) takes(b *barred) bool { return pl.open() && b.at(pl.node.Name) == "" }

// firstDevice is where the devices begin in an amount, after cpu, memory and slots.
const firstDevice = 3

// unlimited is the slot count of a node that limits slots only by its resources.
const unlimited = 1 << 40

type amount []int64

func (a amount) fits(free amount) bool {
	for i, n := range a {
		if n > free[i] {
			return false
		}
	}
	return true
}

func (a amount) take(n amount) {
	for i := range n {
		a[i] -= n[i]
	}
}

func (a amount) give(n amount) {
	for i := range n {
		a[i] += n[i]
	}
}

// times is how often n fits into a, at most most.
func (a amount) times(n amount, most int) int {
	for i := range n {
		if n[i] > 0 {
			most = min(most, int(max(a[i], 0)/n[i]))
		}
	}
	return most
}

func (p *pass) space(provider string) *space {
	if sp := p.spaces[provider]; sp != nil {
		return sp
	}
	if p.memory != nil && p.memory.spaces[provider] != nil {
		sp := p.memory.spaces[provider]
		sp.reuse(p)
		p.spaces[provider] = sp
		p.attachRecords(provider, sp)
		return sp
	}
	sp := &space{byName: map[string]*place{}, listed: map[string]*job.Node{}, dims: dimensions(p.in.Snapshot.Nodes, provider), bars: p.bars, extras: p.extras, actualExtras: map[job.Address]actualExtra{}, cursors: map[string]*cursor{}}
	p.spaces[provider] = sp
	nodes := p.in.Snapshot.Nodes
	for i := range nodes {
		if nodes[i].Provider != provider {
			continue
		}
		sp.listed[nodes[i].Name] = &nodes[i]
		sp.anyDevice = sp.anyDevice || nodes[i].AnyDevice
	}
	for i := range nodes {
		if nodes[i].Provider != provider {
			continue
		}
		free := sp.capacity(&nodes[i])
		foreign, _ := sp.amount(nodes[i].Foreign)
		free.take(foreign)
		sp.amounts = append(append(sp.amounts, free...), free...)
		pl := &place{node: &nodes[i]}
		sp.places = append(sp.places, pl)
		sp.byName[nodes[i].Name] = pl
	}
	width := len(sp.dims) + firstDevice
	for i, pl := range sp.places {
		at := sp.amounts[2*i*width:]
		pl.free, pl.soon, pl.at = at[:width:width], at[width:2*width:2*width], 2*i*width
	}
	if p.memory != nil {
		sp.base = slices.Clone(sp.amounts)
		for _, w := range p.jobs {
			if w.rest != nil && w.spec.Provider == provider {
				sp.use(w.rest.uses, 1)
			}
		}
		copy(sp.amounts, sp.base)
	}
	p.attachRecords(provider, sp)
	return sp
}

// dimensions are the positions of a provider's devices in an amount.
func dimensions(nodes []job.Node, provider string) map[string]int {
	dims := map[string]int{}
	for i := range nodes {
		if nodes[i].Provider == provider {
			for name := range nodes[i].Capacity.Devices {
				dims[name] = 0
			}
		}
	}
	for i, name := range slices.Sorted(maps.Keys(dims)) {
		dims[name] = i + firstDevice
	}
	return dims
}

// attachRecords gives the nodes what is recorded about them.
func (p *pass) attachRecords(provider string, sp *space) {
	sp.last = nil
	for _, name := range sp.recorded {
		pl := sp.byName[name]
		pl.rec, pl.last = nil, false
	}
	sp.recorded = nil
	clear(sp.cursors)
	for i := range p.out.Nodes {
		rec := &p.out.Nodes[i]
		if pl := sp.byName[rec.Name]; pl != nil && rec.Provider == provider {
			sp.recorded = append(sp.recorded, rec.Name)
			if pl.rec, pl.last = rec, rec.Marked(p.in.Now); pl.last {
				sp.last = append(sp.last, rec.Name)
			}
		}
	}
	sp.drained = slices.ContainsFunc(sp.places, (*place).draining)
}

// reuse begins another pass with the same nodes.
func (sp *space) reuse(p *pass) {
	sp.bars, sp.extras = p.bars, p.extras
	clear(sp.actualExtras)
	sp.restore()
}

// restore sets the amounts to those without what jobs hold that are not at rest.
func (sp *space) restore() {
	copy(sp.amounts, sp.base)
	clear(sp.cursors)
}

// use adds what a job at rest holds to the base, or with -1 removes it.
func (sp *space) use(uses []use, sign int64) {
	width := len(sp.dims) + firstDevice
	for _, u := range uses {
		pl := sp.byName[u.node]
		if pl == nil {
			continue
		}
		at := sp.base[pl.at:]
		for i := range u.free {
			at[i] -= sign * u.free[i]
			at[width+i] -= sign * u.soon[i]
		}
	}
}

// usesOf is what measuring holds.
func (sp *space) usesOf(measure func()) []use {
	var uses []use
	sp.uses = &uses
	measure()
	sp.uses = nil
	return uses
}

// note notes what is held of a node.
func (sp *space) note(node string, a amount, leaving bool) {
	if sp.uses == nil {
		return
	}
	n := len(*sp.uses)
	if n == 0 || (*sp.uses)[n-1].node != node {
		*sp.uses = append(*sp.uses, use{node, make(amount, len(a)), make(amount, len(a))})
		n++
	}
	u := &(*sp.uses)[n-1]
	u.free.give(a)
	if !leaving {
		u.soon.give(a)
	}
}

// capacity is all that a node has.
func (sp *space) capacity(n *job.Node) amount {
	a, _ := sp.amount(n.Capacity)
	a[2] = unlimited
	if n.Slots > 0 {
		a[2] = int64(n.Slots)
	}
	return a
}

// slot is the amount that a slot with these resources takes. False: they include a device that no node has.
func (sp *space) slot(r job.Resources) (amount, bool) {
	a, known := sp.amount(r)
	a[2] = 1
	return a, known
}

// amount converts resources. False: they include a device that no node has.
func (sp *space) amount(r job.Resources) (amount, bool) {
	a := make(amount, len(sp.dims)+firstDevice)
	a[0], a[1] = int64(r.CPU), int64(r.Memory)
	known := true
	for name, n := range r.Devices {
		i, ok := sp.dims[name]
		if !ok {
			known = known && (n == 0 || sp.anyDevice)
			continue
		}
		a[i] = int64(n)
	}
	return a, known
}

// measure subtracts from the spaces what is held: by slots, and by incarnations that no slot accounts for.
func (p *pass) measure() {
	p.servingOrder = p.sortForServing()
	for _, w := range p.jobs {
		sp := p.space(w.spec.Provider)
		if w.rest != nil {
			continue // the space has it
		}
		for _, s := range w.slots {
			sp.noteExtra(s, w.current(s))
		}
		p.measureJob(w, sp)
	}
	for _, inc := range p.unseen {
		for _, sp := range p.spaces {
			if inc.State != job.Gone {
				sp.holdRunning(&inc, !p.isReleased(inc.UID))
			}
		}
	}
	p.measureHints()
}

// measureJob subtracts what a job holds, but for what it only is hinted to.
func (p *pass) measureJob(w *work, sp *space) {
	for _, s := range w.slots {
		if !w.active() || w.frozen || w.outside(s.Address) || !s.Phase.Live() || !p.hinted(w, s) {
			p.measureSlot(sp, s)
		}
		for _, inc := range w.seen[s.Address] { // before any hint: it already runs, whichever job is served first
			p.measureRunning(sp, s, inc)
		}
	}
}

func (p *pass) measureSlot(sp *space, s *job.Slot) {
	if s.Node != "" && s.Phase.Live() {
		leaving := s.Phase == job.Canceling && !s.Return
		sp.holdSlot(s, leaving)
	}
}

// measureRunning counts what an incarnation holds beyond its slot's reservation, until it has exited: on other nodes than the
// slot's, all of it; on the slot's node, what exceeds the reservation.
func (p *pass) measureRunning(sp *space, s *job.Slot, inc *job.Incarnation) {
	switch {
	case inc.State == job.Gone:
	case inc.Node != s.Node || !s.Phase.Live():
		sp.holdRunning(inc, true)
	case !inc.Reserved.Equal(s.Reserved) || !inc.Extra.Equal(sp.extras.of(s.Address)):
		extra, _ := sp.amount(taken(inc).Beyond(sp.held(s)))
		sp.hold(inc.Node, extra, true)
	}
}

// measureAlone counts the part of the slot's reservation that running incarnations use on its node, before the slot loses that
// reservation.
func (p *pass) measureAlone(w *work, sp *space, s *job.Slot) {
	for _, inc := range w.seen[s.Address] {
		if inc.State == job.Gone || inc.Node != s.Node {
			continue
		}
		covered, _ := sp.slot(taken(inc))
		extra, _ := sp.amount(taken(inc).Beyond(sp.held(s)))
		covered.take(extra)
		sp.hold(inc.Node, covered, true)
	}
}

// holdSlot subtracts what a slot holds from its node.
func (sp *space) holdSlot(s *job.Slot, leaving bool) {
	a, _ := sp.slot(sp.held(s))
	sp.hold(s.Node, a, leaving)
}

// holdRunning subtracts what an incarnation holds from its node.
func (sp *space) holdRunning(inc *job.Incarnation, leaving bool) {
	a, _ := sp.slot(taken(inc))
	sp.hold(inc.Node, a, leaving)
}

// hold subtracts an amount from a node. What is leaving is free soon.
func (sp *space) hold(node string, a amount, leaving bool) {
	sp.note(node, a, leaving) // also of a node that is not listed: it may come back
	pl := sp.byName[node]
	if pl == nil {
		return
	}
	pl.free.take(a)
	if !leaving {
		pl.soon.take(a)
	}
}

// release gives back what a slot holds.
func (sp *space) release(s *job.Slot) {
	pl := sp.byName[s.Node]
	if pl == nil {
		return
	}
	a, _ := sp.slot(sp.held(s))
	pl.free.give(a)
	pl.soon.give(a)
	clear(sp.cursors)
}

// leave counts what a slot holds as free soon.
func (sp *space) leave(s *job.Slot) {
	if pl := sp.byName[s.Node]; pl != nil {
		a, _ := sp.slot(sp.held(s))
		pl.soon.give(a)
		clear(sp.cursors)
	}
}

// cursor walks the nodes that can take slots of one size, fullest first, so that large gaps stay whole.
type cursor struct {
	need  amount
	order []*place
	at    int
}

// total is the sum of what the slots take.
func (sp *space) total(slots []*job.Slot) amount {
	sum := make(amount, len(sp.dims)+firstDevice)
	for _, s := range slots {
		need, _ := sp.slot(sp.needs(s.Address, s.Reserved))
		sum.give(need)
	}
	return sum
}

// room is the sum of what will soon be free on the open nodes: what exceeds it never fits.
func (sp *space) room() amount {
	sum := make(amount, len(sp.dims)+firstDevice)
	for _, pl := range sp.places {
		for i, n := range pl.soon {
			if pl.open() {
				sum[i] += max(n, 0)
			}
		}
	}
	return sum
}

// emptied is the same nodes, open and empty.
func (sp *space) emptied() *space {
	if sp.empty != nil {
		return sp.empty
	}
	sp.empty = &space{byName: map[string]*place{}, dims: sp.dims, bars: sp.bars, extras: sp.extras, anyDevice: sp.anyDevice, cursors: map[string]*cursor{}}
	for _, pl := range sp.places {
		free := sp.capacity(pl.node)
		node := *pl.node
		node.Closed, node.Drained = "", ""
		copied := &place{node: &node, free: free, soon: slices.Clone(free)}
		sp.empty.places = append(sp.empty.places, copied)
		sp.empty.byName[node.Name] = copied
	}
	return sp.empty
}

// The levels of what counts as free.
func now(pl *place) amount  { return pl.free }
func soon(pl *place) amount { return pl.soon }

// cursorFor is the cursor for slots of the given size and bars, by level.
func (sp *space) cursorFor(need amount, b *barred, soonToo bool) *cursor {
	sp.key = strconv.AppendBool(sp.key[:0], soonToo)
	sp.key = binary.AppendVarint(sp.key, int64(b.id()))
	for _, n := range need {
		sp.key = binary.AppendVarint(sp.key, n)
	}
	c := sp.cursors[string(sp.key)]
	if c == nil {
		level := now
		if soonToo {
			level = soon
		}
		c = &cursor{need: need, order: sp.order(need, b, level)}
		sp.cursors[string(sp.key)] = c
	}
	return c
}

// next is a node that can take one more slot, by level; nil if there is none. Nodes in avoid are skipped.
func (sp *space) next(need amount, b *barred, soonToo bool, avoid job.Avoided) *place {
	level := now
	if soonToo {
		level = soon
	}
	c := sp.cursorFor(need, b, soonToo)
	for c.at < len(c.order) && !need.fits(level(c.order[c.at])) {
		c.at++
	}
	for i := c.at; i < len(c.order); i++ {
		if pl := c.order[i]; !slices.Contains(avoid, pl.node.Name) && need.fits(level(pl)) {
			return pl
		}
	}
	return nil
}

// order lists the open nodes that can take at least one, ascending by how many they can take; those that are used last come last.
func (sp *space) order(need amount, b *barred, level func(*place) amount) []*place {
	type fit struct {
		pl *place
		n  int
	}
	var fits []fit
	for _, pl := range sp.places {
		if !pl.takes(b) {
			continue
		}
		if n := level(pl).times(need, 1<<20); n > 0 {
			fits = append(fits, fit{pl, n})
		}
	}
	slices.SortStableFunc(fits, func(a, b fit) int {
		switch {
		case a.pl.last == b.pl.last:
			return cmp.Compare(a.n, b.n)
		case a.pl.last:
			return 1
		}
		return -1
	})
	order := make([]*place, len(fits))
	for i, f := range fits {
		order[i] = f.pl
	}
	return order
}

// txn is a set of placements that are committed or undone together.
type txn struct {
	sp    *space
	taken []placement
}

type placement struct {
	slot   *job.Slot
	at     *place
	size   job.Resources
	amount amount
	now    bool // it fits what is free now
}

// put places one slot: on prefer if it fits there and that is not used last, else on the next node, else on a node of avoid, in the
// order of avoid. False if nothing fits.
func (t *txn) put(s *job.Slot, r job.Resources, prefer string, avoid job.Avoided, soonToo bool) bool {
	need, known := t.sp.slot(t.sp.needs(s.Address, r))
	if !known {
		return false
	}
	b := t.sp.bars.of(s)
	level := now
	if soonToo {
		level = soon
	}
	at := t.sp.byName[prefer]
	if at == nil || at.last || !at.takes(b) || !need.fits(level(at)) {
		at = t.sp.next(need, b, soonToo, avoid)
	}
	for i := 0; at == nil && i < len(avoid); i++ {
		if left := t.sp.byName[avoid[i]]; left != nil && left.takes(b) && need.fits(level(left)) {
			at = left
		}
	}
	if at == nil {
		return false
	}
	t.taken = append(t.taken, placement{s, at, r, need, need.fits(at.free)})
	at.free.take(need)
	at.soon.take(need)
	return true
}

// putAll places the slots on what is or soon will be free, all or none.
func (t *txn) putAll(slots []*job.Slot) bool {
	for _, s := range slots {
		if !t.put(s, s.Reserved, "", nil, true) {
			t.undo()
			return false
		}
	}
	return true
}

// undo gives everything back.
func (t *txn) undo() {
	for _, x := range t.taken {
		x.at.free.give(x.amount)
		x.at.soon.give(x.amount)
	}
	t.taken = nil
	clear(t.sp.cursors)
}

// now reports whether everything fits what is free now.
func (t *txn) now() bool {
	return !slices.ContainsFunc(t.taken, func(x placement) bool { return !x.now })
}
