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

// index is the observed state of the cluster: our pods (here), nodes and the load of other pods on them (nodes.go).
// It is fed by watches and by this process's own writes, in either order.
type index struct {
	changes chan struct{} // gets a value when the result of Observe may have changed
	version atomic.Uint64 // grows whenever the result of Observe changes
	config  Config        // of the provider
	name    string        // of the provider
	owner   string        // the state of this master

	mu          sync.Mutex
	jobs        map[string]*podsOf   // by UID of the job
	entries     map[types.UID]*entry // of existing pods
	removed     recent[types.UID]    // pods that are gone: later events about them are stale
	asked       recent[types.UID]    // pods whose deletion this process requested
	order       []*entry             // every entry, as Observe lists them; nil until first needed
	dead        int                  // entries of pods that are gone
	deaths      int                  // how many pods have gone, ever
	subscribers map[chan struct{}]struct{}
	cluster     cluster
	load        damper // limits wakeups for changes of foreign load
	latest      string // the highest resource version received from a watch
}

// podsOf holds what is known of one job's pods.
type podsOf struct {
	slots map[place][]*entry // the entries of each slot, few
	live  liveByRole
	gated int // how many live pods our gate holds
	// texts and records intern what many pods share: names, and the record in their annotation.
	texts   map[string]string
	records map[string]launched
}

// place is a slot within its job.
type place struct {
	role  string
	index int
}

func (k key) place() place { return place{k.role, k.index} }

// entry is one incarnation: an existing pod, or the last known state of one that is gone.
type entry struct {
	key   key
	slot  job.Address
	pod   *pod            // nil once it is gone
	last  job.Incarnation // of a pod that is gone
	death int             // its sequence number among deaths
}

// maxDead bounds how many pods that are gone are still reported: twice the slots of the largest benchmarked cluster.
// The oldest are dropped first.
const maxDead = 20_000

func newIndex() *index {
	return &index{
		changes: make(chan struct{}, 1), jobs: map[string]*podsOf{}, entries: map[types.UID]*entry{}, subscribers: map[chan struct{}]struct{}{},
		cluster: newCluster(),
	}
}

// get returns the existing pod of an incarnation, even if it has ended; nil if it is gone.
func (x *index) get(k key) *pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.find(k); e != nil {
		return e.pod
	}
	return nil
}

// lookup is like get, but distinguishes a pod that is gone from one never seen: launched is set for both existing and gone pods.
func (x *index) lookup(k key) (there *pod, launched bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.find(k)
	if e == nil {
		return nil, false
	}
	return e.pod, true
}

// ofSlot lists the existing pods of a slot.
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

// ofJob lists the existing pods of a job, in no order.
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

// whole reports whether a gang's live pods are complete, as the function whole does.
func (x *index) whole(g job.Group) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[g.UID]
	return j != nil && whole(g, j.live)
}

// releasable lists the pods of a whole gang that our gate still holds. It iterates over the pods only if there are some: it
// is called on every change, while thousands of pods come up.
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

// subscribe returns a channel that gets a value after each change of our pods or of the prepared jobs, and a function that
// unsubscribes. Values coalesce: subscribe, then look, then wait.
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

// announce notifies subscribers that a job was prepared.
func (x *index) announce() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.notify()
}

// put enters a pod as the API server returned it: from a create, patch, get, graceful delete, or watch.
// A version older than the index, or of a pod removed since, changes nothing.
func (x *index) put(o *corev1.Pod) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.enter(o)
}

// made enters a created pod as requested, with the metadata that the API server returned. If a watch was faster, its pod stays.
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

// released enters that a pod's gate was removed as of a version. The watch delivers the rest of that version.
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

// markDeletion marks a deletion that we requested. It returns false if it was marked before.
func (x *index) markDeletion(uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked.has(uid) {
		return false
	}
	x.asked.add(uid)
	return true
}

// unmarkDeletion removes the mark: the deletion was refused, or never requested.
func (x *index) unmarkDeletion(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked.remove(uid)
}

// deleted removes a pod that the API server reported as gone. Events about it that are still in transit do not bring it back.
func (x *index) deleted(k key, uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removed.add(uid)
	if e := x.find(k); e != nil && e.pod != nil && e.pod.uid == uid {
		x.finalize(e)
	}
}

// forget drops what is kept of a job's pods that are gone.
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

// watched enters a watch event: the pod as it is now or, with gone, its last state.
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
	if x.cluster.leave(o.UID, malformed) {
		x.signalLoad()
	}
	e := x.entries[o.UID]
	if e == nil {
		return
	}
	x.replacePod(e, x.read(o, e)) // its last state may have the reason
	x.finalize(e)
}

// reached records the resource version of a watch event or list.
func (x *index) reached(version string) {
	if x.latest == "" || newer(version, x.latest) {
		x.latest = version
	}
}

// listed enters a complete list: known pods that are older than it and not in it are gone.
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
	if x.cluster.keep(malformed, there) {
		x.signalLoad()
	}
}

// restored starts over with a complete list that is older than what was seen before: the API server's data were restored
// from a backup, and versions count again from there. Pods not in the list count as gone; the watch reports any created since.
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

// enter is put with x.mu held.
func (x *index) enter(o *corev1.Pod) {
	if e := x.outdated(o); e != nil {
		x.renew(e, x.read(o, e))
	}
}

// outdated finds or makes the entry of our pod o if o is newer than what is known, else nil. A pod that is not ours is
// entered as foreign load.
func (x *index) outdated(o *corev1.Pod) *entry {
	if x.removed.has(o.UID) {
		return nil
	}
	e := x.entries[o.UID]
	if e == nil {
		k, slot, ours := identify(o)
		if !ours { // it takes room as any other does
			if x.cluster.enter(o, malformed) {
				x.signalLoad()
			}
			return nil
		}
		e = x.entryOf(k, slot)
	}
	// A pod's incarnation was determined when it was first seen. Labels changed since are drift.
	if e.pod != nil && !newer(o.ResourceVersion, e.pod.version) && !(e.pod.partial && o.ResourceVersion == e.pod.version) {
		return nil
	}
	return e
}

func (x *index) renew(e *entry, p *pod) {
	x.replacePod(e, p)
	x.dropSuperseded(e.key)
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

// read makes a pod's compact value, sharing what is common to the pods of its job.
func (x *index) read(o *corev1.Pod, e *entry) *pod {
	j := x.jobs[e.key.uid]
	annotation := o.Annotations[annotationLaunch]
	record, known := j.records[annotation]
	if !known {
		record = recordOf(annotation)
	}
	same := e.pod == nil || e.pod.uid != o.UID || reflect.DeepEqual(record, e.pod.launched)
	if !same && !owned(o, "metadata", "annotations", annotationLaunch) {
		record = e.pod.launched // the annotation was edited by somebody else
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

// replacePod replaces what was known of a pod with a newer value.
func (x *index) replacePod(e *entry, p *pod) {
	old := e.pod
	if old == nil && e.death > 0 { // created again under its name
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
	x.notify()
}

// count counts a newer value of a pod instead of an older one; either may be nil.
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

// finalize replaces the pod of an entry that is gone with its last state.
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
	x.dropUnlistedNode(p.node)
	x.dropSuperseded(e.key)
	x.dropOldest()
	x.signal()
	x.notify()
}

// dropSuperseded drops gone pods of a slot that has newer incarnations: they are no longer needed.
func (x *index) dropSuperseded(k key) {
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

// dropOldest drops the oldest tenth of the pods that are gone, once there are too many.
func (x *index) dropOldest() {
	if x.dead <= maxDead {
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

// find returns the entry of an incarnation; nil if it was never seen or was dropped.
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

// observe copies all that is known. What incarnations and nodes point to is shared and immutable.
func (x *index) observe() *providers.Observation {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := &providers.Observation{Nodes: x.cluster.list(), Places: x.places()}
	for i := range o.Nodes {
		o.Nodes[i].Provider = x.name
	}
	incs := make([]job.Incarnation, 0, len(x.sorted()))
	for _, e := range x.sorted() {
		switch {
		case e.pod == nil:
			incs = append(incs, e.last)
		case !e.pod.deleting && !x.cluster.lostNodes(): // the common case
			incs = append(incs, e.pod.seen)
		default:
			incs = append(incs, x.cluster.fate(e.pod, e.pod.seen))
		}
	}
	o.Incarnations = job.InParts(incs)
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

// dropUnlistedNode drops an unlisted node once the last of our pods on it is gone.
func (x *index) dropUnlistedNode(name string) {
	if n := x.cluster.nodes[name]; n != nil && n.unlisted && !x.hosts()[name] {
		delete(x.cluster.nodes, name)
		x.cluster.changed()
	}
}

// signal reports that the result of Observe changed. It never blocks: values coalesce.
func (x *index) signal() {
	x.version.Add(1)
	wake(x.changes)
}

// signalLoad is signal for a change of foreign load.
func (x *index) signalLoad() {
	x.version.Add(1)
	x.load.pass(func() { wake(x.changes) })
}

// close stops pending signals.
func (x *index) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.load.stop()
}

// loadPause is the least time between two wakeups for foreign load: in a busy cluster it changes many times a second, and
// each wakeup makes a plan.
const loadPause = time.Second

// damper lets the first of many calls pass at once, and coalesces those of the loadPause after it. It is part of the index
// and under its lock.
type damper struct {
	last  time.Time
	later *time.Timer // nil if none is scheduled
}

func (d *damper) pass(do func()) {
	now := time.Now()
	switch wait := d.last.Add(loadPause).Sub(now); {
	case wait <= 0:
		d.last = now
		do()
	case d.last.After(now): // one is scheduled already
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

// notify wakes the subscribers: a pod changed.
func (x *index) notify() {
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

// newer compares resource versions of objects of one kind, which Kubernetes guarantees to be ordered since 1.35, and which
// always were with etcd. A version that is not a number counts as newer: then the order of arrival decides.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// recent remembers the newest maxDead values that were added.
type recent[K comparable] struct {
	in   map[K]struct{}
	ring []K
	next int // position in the ring, once it is full
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
	if len(r.ring) < maxDead {
		r.ring = append(r.ring, k)
		return
	}
	delete(r.in, r.ring[r.next]) // the zero value if it was removed
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
