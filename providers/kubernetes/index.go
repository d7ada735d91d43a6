package kubernetes

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// index is what is known of the cluster: pods of ours (here), nodes and the load that others put on them (nodes.go).
// It is fed by watches and by this process's own writes, whichever come first.
type index struct {
	changes chan struct{} // gets a value when Observe may answer otherwise
	version atomic.Uint64 // grows with whatever Observe answers otherwise for
	config  Config        // of the provider
	name    string        // of the provider
	owner   string        // the state of this master

	mu          sync.Mutex
	jobs        map[string]*podsOf   // by UID of the job
	entries     map[types.UID]*entry // of pods that are there
	removed     recent[types.UID]    // pods that are gone: what still comes of them is old
	asked       recent[types.UID]    // pods whose deletion this process has asked for
	order       []*entry             // every entry, as Observe lists them; nil before the first time
	dead        int                  // entries of pods that are gone
	deaths      int                  // counts them, ever
	subscribers map[chan struct{}]struct{}
	cluster     cluster
	load        damper // of changes of what others use
	latest      string // the highest resource version that a watch has brought
}

// podsOf is what is known of one job's pods.
type podsOf struct {
	slots map[place][]*entry // those of a slot, few
	live  liveByRole
	gated int // of the live ones, those that a gate of ours holds
	// texts and records hold what many pods share once: names, and the record in their annotation.
	texts   map[string]string
	records map[string]launched
}

// place is a slot within its job.
type place struct {
	role  string
	index int
}

func (k key) place() place { return place{k.role, k.index} }

// entry is one incarnation: a pod that is there, or what was last known of one that is gone.
type entry struct {
	key   key
	slot  job.Address
	pod   *pod            // nil once it was removed
	last  job.Incarnation // of a pod that was removed
	death int             // when it was, among others
}

// mostDead bounds how many pods that are gone are told of: twice the slots of the largest cluster that this is
// measured with. The oldest go first.
const mostDead = 20_000

func newIndex() *index {
	return &index{
		changes: make(chan struct{}, 1), jobs: map[string]*podsOf{}, entries: map[types.UID]*entry{}, subscribers: map[chan struct{}]struct{}{},
		cluster: newCluster(),
	}
}

// get finds the pod of an incarnation that is there, also one that has ended; nil once it was removed.
func (x *index) get(k key) *pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.find(k); e != nil {
		return e.pod
	}
	return nil
}

// look is get that tells a pod which was removed from one that was never seen: launched is set for both that are there
// and that were.
func (x *index) look(k key) (there *pod, launched bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.find(k)
	if e == nil {
		return nil, false
	}
	return e.pod, true
}

// ofSlot lists the pods of a slot that are there.
func (x *index) ofSlot(uid string, at place) []*pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[uid]
	if j == nil {
		return nil
	}
	var all []*pod
	for _, e := range j.slots[at] {
		if e.pod != nil {
			all = append(all, e.pod)
		}
	}
	return all
}

// ofJob lists the pods of a job that are there, in no order.
func (x *index) ofJob(uid string) []*pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[uid]
	if j == nil {
		return nil
	}
	var all []*pod
	for _, entries := range j.slots {
		for _, e := range entries {
			if e.pod != nil {
				all = append(all, e.pod)
			}
		}
	}
	return all
}

// whole reports whether a gang exists, as whole of its live pods.
func (x *index) whole(g job.Group) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[g.UID]
	return j != nil && whole(g, j.live)
}

// releasable lists the pods of a whole gang that a gate of ours still holds. It looks at the pods only if there are some: it
// is asked with every change, while thousands of them come up.
func (x *index) releasable(g job.Group) []*pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[g.UID]
	if j == nil || j.gated == 0 || !whole(g, j.live) {
		return nil
	}
	held := make([]*pod, 0, j.gated)
	for _, entries := range j.slots {
		for _, e := range entries {
			if e.pod != nil && e.pod.live() && e.pod.gated {
				held = append(held, e.pod)
			}
		}
	}
	return held
}

// subscribe returns a channel that gets a value after each change of a pod of ours, and of which jobs are prepared, and what
// ends that. Values coalesce: subscribe, then look, then wait.
func (x *index) subscribe() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	x.mu.Lock()
	x.subscribers[c] = struct{}{}
	x.mu.Unlock()
	return c, func() {
		x.mu.Lock()
		delete(x.subscribers, c)
		x.mu.Unlock()
	}
}

// announce has those who wait for changes look again: a job was prepared.
func (x *index) announce() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tell()
}

// put enters a pod as the API server gave it: to a create, a patch, a get, a delete that leaves it time, or by a watch.
// What is older than the index, or was removed since, changes nothing.
func (x *index) put(o *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.enter(o)
}

// made enters a pod as it was asked for, with the metadata that the API server gave it. A watch that was faster knows more.
func (x *index) made(o *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.entries[o.UID] != nil {
		return
	}
	if e := x.outdated(o); e != nil {
		p := x.read(o, e)
		p.partial = true
		x.renew(e, p)
	}
}

// released enters that a pod's gate was removed as of a version. The watch brings what else is new of it.
func (x *index) released(uid types.UID, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || !newer(version, e.pod.version) {
		return
	}
	free := *e.pod
	free.gated, free.version, free.partial = false, version, true
	x.renew(e, &free)
}

// ordered marks a deletion that we requested.
// False: it was marked before.
func (x *index) ordered(uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked.has(uid) {
		return false
	}
	x.asked.add(uid)
	return true
}

// unordered takes the mark off: the deletion was refused, or never asked for.
func (x *index) unordered(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked.remove(uid)
}

// deleted removes a pod of which the API server has said that it is gone. Events of it that are still on their way
// do not bring it back.
func (x *index) deleted(k key, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removed.add(uid)
	if e := x.find(k); e != nil && e.pod != nil && e.pod.uid == uid {
		x.finalize(e)
	}
}

// forget drops what is remembered of a job's pods that are gone.
func (x *index) forget(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[uid]
	if j == nil {
		return
	}
	for _, entries := range j.slots {
		for _, e := range slices.Clone(entries) {
			if e.pod == nil {
				x.drop(e)
			}
		}
	}
	x.signal()
}

// watched enters what a watch says of a pod: that it is there, or, with gone, that this was its last state.
func (x *index) watched(o *corev1.Pod, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !gone {
		x.reached(o.ResourceVersion)
		x.enter(o)
		return
	}
	x.removed.add(o.UID)
	x.reached(o.ResourceVersion)
	if x.cluster.leave(o.UID, odd) {
		x.signalLoad()
	}
	e := x.entries[o.UID]
	if e == nil {
		return
	}
	x.replacePod(e, x.read(o, e)) // its last state may say why
	x.finalize(e)
}

// reached notes the resource version of what a watch or a list has brought.
func (x *index) reached(version string) {
	if x.latest == "" || newer(version, x.latest) {
		x.latest = version
	}
}

// listed enters a complete list: whatever is older than it and not in it is gone.
func (x *index) listed(all []*corev1.Pod, version string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(x.latest, version); err == nil && order > 0 {
		x.restored(all)
	}
	x.latest = version
	there := make(map[types.UID]struct{}, len(all))
	for _, o := range all {
		there[o.UID] = struct{}{}
		x.enter(o)
	}
	for _, e := range slices.Clone(x.sorted()) {
		if e.pod == nil || newer(e.pod.version, version) {
			continue
		}
		if _, is := there[e.pod.uid]; !is {
			x.removed.add(e.pod.uid)
			x.finalize(e)
		}
	}
	if x.cluster.keep(odd, there) {
		x.signalLoad()
	}
}

// restored starts over with a complete list that is older than what was seen before: the API server's data were set
// back to a backup, and versions count again from there. Pods that are not in it are gone, for all that is known;
// one that was made since will be told of.
func (x *index) restored(all []*corev1.Pod) {
	x.removed = recent[types.UID]{}
	there := make(map[types.UID]struct{}, len(all))
	for _, o := range all {
		there[o.UID] = struct{}{}
	}
	for _, e := range slices.Clone(x.sorted()) {
		if e.pod == nil {
			continue
		}
		if _, is := there[e.pod.uid]; !is {
			x.finalize(e)
			continue
		}
		again := *e.pod
		again.version = "0"
		e.pod = &again
	}
}

// enter is put under the lock.
func (x *index) enter(o *corev1.Pod) {
	if e := x.outdated(o); e != nil {
		x.renew(e, x.read(o, e))
	}
}

// outdated finds or makes the entry of a pod of ours that o says more of than is known; nil if there is none. What others
// take enters here.
func (x *index) outdated(o *corev1.Pod) *entry {
	if x.removed.has(o.UID) {
		return nil
	}
	e := x.entries[o.UID]
	if e == nil {
		k, slot, ours := identify(o)
		if !ours { // it takes room as any other
			if x.cluster.enter(o, odd) {
				x.signalLoad()
			}
			return nil
		}
		e = x.entryOf(k, slot)
	}
	// Which incarnation it is was said when it was first seen. Labels that say otherwise since are drift.
	if e.pod != nil && !newer(o.ResourceVersion, e.pod.version) && !(e.pod.partial && o.ResourceVersion == e.pod.version) {
		return nil
	}
	return e
}

func (x *index) renew(e *entry, p *pod) {
	x.replacePod(e, p)
	x.settle(e.key)
}

// entryOf finds or makes the entry of an incarnation.
func (x *index) entryOf(k key, slot job.Address) *entry {
	if e := x.find(k); e != nil {
		return e
	}
	j := x.jobs[k.uid]
	if j == nil {
		j = &podsOf{slots: map[place][]*entry{}, live: liveByRole{}, texts: map[string]string{}, records: map[string]launched{}}
		x.jobs[k.uid] = j
	}
	for _, s := range []*string{&k.uid, &k.role, &slot.Job} {
		*s = j.share(*s)
	}
	slot.Role = k.role
	e := &entry{key: k, slot: slot}
	j.slots[k.place()] = append(j.slots[k.place()], e)
	if x.order != nil {
		at, _ := slices.BinarySearchFunc(x.order, e, byAddress)
		x.order = slices.Insert(x.order, at, e)
	}
	return e
}

// read makes a pod's compact value with what it shares with others of its job.
func (x *index) read(o *corev1.Pod, e *entry) *pod {
	j := x.jobs[e.key.uid]
	annotation := o.Annotations[annotationLaunch]
	record, known := j.records[annotation]
	if !known {
		record = recordOf(annotation)
	}
	same := e.pod == nil || e.pod.uid != o.UID || reflect.DeepEqual(record, e.pod.launched)
	if !same && !owned(o, "metadata", "annotations", annotationLaunch) {
		record = e.pod.launched // somebody edited it
	} else if !known {
		j.records[annotation] = record
	}
	p := read(o, e.key, e.slot, record, x.asked.has(o.UID))
	if e.pod != nil && e.pod.uid == p.uid {
		p.recall(e.pod)
	}
	if p.seen.State != job.Gone {
		p.seen.Drift = drift(o, e.slot, e.key, record, x.owner)
	}
	p.node = j.share(p.node)
	p.seen.Owner, p.seen.Group = j.share(p.seen.Owner), j.share(p.seen.Group)
	p.seen.Node = p.node
	return p
}

func (j *podsOf) share(s string) string {
	if kept, known := j.texts[s]; known {
		return kept
	}
	j.texts[s] = s
	return s
}

// replacePod puts a newer value of a pod in the place of what was known of it.
func (x *index) replacePod(e *entry, p *pod) {
	old := e.pod
	if old == nil && e.death > 0 { // made again under its name
		x.dead--
		e.last, e.death = job.Incarnation{}, 0
	}
	if old != nil && old.uid != p.uid {
		delete(x.entries, old.uid)
	}
	x.jobs[e.key.uid].count(old, p)
	e.pod = p
	x.entries[p.uid] = e
	if x.cluster.move(old, p) || old == nil || old.deleting != p.deleting || !reflect.DeepEqual(&old.seen, &p.seen) {
		x.signal()
	}
	x.tell()
}

// count has a newer value of a pod counted instead of an older one; nil is none.
func (j *podsOf) count(old, p *pod) {
	add := func(p *pod, n int) {
		if p == nil || !p.live() {
			return
		}
		j.live[p.key.role] += n
		if p.gated {
			j.gated += n
		}
	}
	add(old, -1)
	add(p, 1)
}

// finalize turns the entry of a pod that is gone into what is remembered of it.
func (x *index) finalize(e *entry) {
	p := e.pod
	e.last = x.cluster.fate(p, vanished(p, x.asked.has(p.uid)))
	x.jobs[e.key.uid].count(p, nil)
	e.pod = nil
	delete(x.entries, p.uid)
	x.cluster.move(p, nil)
	x.deaths++
	x.dead++
	e.death = x.deaths
	x.leaveNode(p.node)
	x.settle(e.key)
	x.thin()
	x.signal()
	x.tell()
}

// settle drops what is remembered of removed pods of a slot that has newer incarnations: nobody asks for it anymore.
func (x *index) settle(k key) {
	siblings := x.jobs[k.uid].slots[k.place()]
	newest := 0
	for _, e := range siblings {
		newest = max(newest, e.key.number)
	}
	for _, e := range slices.Clone(siblings) {
		if e.pod == nil && e.key.number < newest {
			x.drop(e)
		}
	}
}

// thin drops the oldest tenth of what is remembered of removed pods, once there is too much of it.
func (x *index) thin() {
	if x.dead <= mostDead {
		return
	}
	var dead []*entry
	for _, e := range x.sorted() {
		if e.pod == nil {
			dead = append(dead, e)
		}
	}
	slices.SortFunc(dead, func(a, b *entry) int { return cmp.Compare(a.death, b.death) })
	for _, e := range dead[:len(dead)/10] {
		x.drop(e)
	}
}

// drop removes the entry of a removed pod.
func (x *index) drop(e *entry) {
	j := x.jobs[e.key.uid]
	at := e.key.place()
	left := slices.DeleteFunc(j.slots[at], func(o *entry) bool { return o == e })
	j.slots[at] = left
	if len(left) == 0 {
		delete(j.slots, at)
	}
	if len(j.slots) == 0 {
		delete(x.jobs, e.key.uid)
	}
	x.dead--
	if at, found := slices.BinarySearchFunc(x.order, e, byAddress); found {
		x.order = slices.Delete(x.order, at, at+1)
	}
}

// find returns the entry of an incarnation; nil if it was never seen, or is forgotten.
func (x *index) find(k key) *entry {
	j := x.jobs[k.uid]
	if j == nil {
		return nil
	}
	for _, e := range j.slots[k.place()] {
		if e.key.number == k.number {
			return e
		}
	}
	return nil
}

// sorted lists every entry by slot, job and number.
func (x *index) sorted() []*entry {
	if x.order != nil {
		return x.order
	}
	for _, j := range x.jobs {
		for _, entries := range j.slots {
			x.order = append(x.order, entries...)
		}
	}
	slices.SortFunc(x.order, byAddress)
	return x.order
}

func byAddress(a, b *entry) int {
	return cmp.Or(a.slot.Compare(b.slot), cmp.Compare(a.key.uid, b.key.uid), cmp.Compare(a.key.number, b.key.number))
}

// observe copies all that is known. What incarnations and nodes point to is shared, and is never changed.
func (x *index) observe() *providers.Observation {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &providers.Observation{Nodes: x.cluster.list(), Incarnations: make([]job.Incarnation, 0, len(x.sorted())), Places: x.places()}
	for i := range o.Nodes {
		o.Nodes[i].Provider = x.name
	}
	for _, e := range x.sorted() {
		switch {
		case e.pod == nil:
			o.Incarnations = append(o.Incarnations, e.last)
		case !e.pod.deleting && !x.cluster.lostNodes(): // as nearly always
			o.Incarnations = append(o.Incarnations, e.pod.seen)
		default:
			o.Incarnations = append(o.Incarnations, x.cluster.fate(e.pod, e.pod.seen))
		}
	}
	return o
}

// hosts are the nodes that pods of ours are bound to.
func (x *index) hosts() map[string]bool {
	hosts := map[string]bool{}
	for _, e := range x.entries {
		hosts[e.pod.node] = true
	}
	return hosts
}

// leaveNode drops a node that no list has anymore with the last pod of ours on it.
func (x *index) leaveNode(name string) {
	if n := x.cluster.nodes[name]; n != nil && n.unlisted && !x.hosts()[name] {
		delete(x.cluster.nodes, name)
		x.cluster.changed()
	}
}

// signal says that Observe answers otherwise from now on. It never blocks: values coalesce.
func (x *index) signal() {
	x.version.Add(1)
	wake(x.changes)
}

// signalLoad is signal for what others use of nodes.
func (x *index) signalLoad() {
	x.version.Add(1)
	x.load.pass(func() { wake(x.changes) })
}

// close ends what is still to be signalled.
func (x *index) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.load.stop()
}

// loadPause is the least time between two wakings for what others use of nodes: in a cluster that others are busy in
// it changes many times a second, and each waking makes a plan.
const loadPause = time.Second

// damper lets the first of many things pass at once, and those of a loadPause after it as one. It is part of the index
// and under its lock.
type damper struct {
	last  time.Time
	later *time.Timer // nil if none is to come
}

func (d *damper) pass(do func()) {
	now := time.Now()
	switch wait := d.last.Add(loadPause).Sub(now); {
	case wait <= 0:
		d.last = now
		do()
	case d.last.After(now): // one is to come
	default:
		d.last = d.last.Add(loadPause)
		d.later = time.AfterFunc(wait, do)
	}
}

func (d *damper) stop() {
	if d.later != nil {
		d.later.Stop()
	}
}

// tell wakes whoever waits for a change of a pod.
func (x *index) tell() {
	for c := range x.subscribers {
		wake(c)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// newer compares resource versions of objects of one kind, which are ordered since Kubernetes 1.35 by promise and have
// been on etcd ever since. What is no number counts as newer: then the order of arrival decides.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// recent remembers the newest mostDead values that were added.
type recent[K comparable] struct {
	in   map[K]struct{}
	ring []K
	next int // of the ring, once it is full
}

func (r *recent[K]) has(k K) bool {
	_, in := r.in[k]
	return in
}

func (r *recent[K]) add(k K) {
	if r.has(k) {
		return
	}
	if r.in == nil {
		r.in = map[K]struct{}{}
	}
	r.in[k] = struct{}{}
	if len(r.ring) < mostDead {
		r.ring = append(r.ring, k)
		return
	}
	delete(r.in, r.ring[r.next]) // the zero value where it was removed
	r.ring[r.next] = k
	r.next = (r.next + 1) % len(r.ring)
}

func (r *recent[K]) remove(k K) {
	if !r.has(k) {
		return
	}
	delete(r.in, k)
	var none K
	r.ring[slices.Index(r.ring, k)] = none
}
