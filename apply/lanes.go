package apply

import (
	"cmp"
	"sync"
)

// mailbox is the events that wait for the Loop, in the order in which they came. Whoever posts never waits.
type mailbox struct {
	mu     sync.Mutex
	events []Event
	news   chan struct{} // gets a value when there are some
}

func newMailbox() mailbox { return mailbox{news: make(chan struct{}, 1)} }

func (m *mailbox) post(e Event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// lane is the effects that wait to be carried out, and the workers that take them: what stops or heals ahead of what is
// new, or a world would stand still while another job's 10,000 slots are launched, and each in the order in which it came.
// There are no more workers than may be at work at once: a goroutine for each of 10,000 effects would cost more than all
// else.
type lane struct {
	most      int  // workers
	lasts     bool // a run that ends still carries out what waits here
	workers   int
	mend, add []*ticket
}

func newLane(most int) *lane { return &lane{most: most} }

// ticket is one effect in its lane.
type ticket struct {
	id  ID
	run func(begin bool)
}

// provision is the lanes of a provider.
type provision struct{ changes, groups *lane }

// lanes are all of them.
type lanes struct {
	records   *lane // writes of the state and of notices, one after the other
	decisions *lane // for which nothing waits
	files     *lane // what was read is shared: one after the other
	providers map[string]provision

	mu      sync.Mutex
	closed  bool
	waiting map[ID]*ticket
}

// newLanes bounds what is in flight: the user's number is of all providers together, else each has its own. Jobs are
// prepared beside that, as many at a time: with fewer, a hundred gangs that come at once would wait for each other behind
// the pods of the first.
func newLanes(p Parts) *lanes {
	provisionOf := func(most int) provision { return provision{newLane(most), newLane(most)} }
	ls := &lanes{
		records: &lane{most: 1, lasts: true}, decisions: &lane{most: 1, lasts: true}, files: newLane(1),
		providers: map[string]provision{}, waiting: map[ID]*ticket{},
	}
	shared := provisionOf(p.Parallelism)
	for name, prov := range p.Providers {
		ls.providers[name] = shared
		if p.Parallelism == 0 {
			ls.providers[name] = provisionOf(cmp.Or(prov.Capabilities().Parallelism, DefaultParallelism))
		}
	}
	return ls
}

// lane is that of an effect.
func (ls *lanes) lane(e Effect) *lane {
	switch e := e.(type) {
	case Launch:
		return ls.providers[e.Provider].changes
	case Stop:
		return ls.providers[e.Provider].changes
	case Forget:
		return ls.providers[e.Provider].changes
	case Prepare:
		return ls.providers[e.Provider].groups
	case Publish:
		return ls.providers[e.Provider].groups
	case ReadFiles, Check, Approve:
		return ls.files
	case Chronicle:
		return ls.decisions
	}
	return ls.records
}

// add lets an effect wait for its turn. run is called once: to carry it out, or, when the lanes are closed before, to drop
// it.
func (ls *lanes) add(work *sync.WaitGroup, e Effect, run func(begin bool)) {
	l, w := ls.lane(e), &ticket{e.ID(), run}
	ls.mu.Lock()
	ls.waiting[w.id] = w
	if launch, is := e.(Launch); is && !launch.Mends {
		l.add = append(l.add, w)
	} else {
		l.mend = append(l.mend, w)
	}
	hire := l.workers < l.most
	if hire {
		l.workers++
	}
	ls.mu.Unlock()
	if !hire {
		return
	}
	work.Go(func() {
		for w, begin := ls.next(l); w != nil; w, begin = ls.next(l) {
			w.run(begin)
		}
	})
}

// next is the effect whose turn it is, and whether it is to be started; nil ends a worker.
func (ls *lanes) next(l *lane) (w *ticket, begin bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, list := range []*[]*ticket{&l.mend, &l.add} {
		for len(*list) > 0 {
			w = (*list)[0]
			(*list)[0] = nil
			*list = (*list)[1:]
			if ls.waiting[w.id] == w { // or it was dropped
				delete(ls.waiting, w.id)
				return w, l.lasts || !ls.closed
			}
		}
	}
	l.mend, l.add = nil, nil // what the lists held may be collected
	l.workers--
	return nil, false
}

// waits is how many effects wait for their turn.
func (l *lane) waits() int { return len(l.mend) + len(l.add) }

// drop takes an effect back that waits; false if it does not.
func (ls *lanes) drop(id ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	_, waits := ls.waiting[id]
	delete(ls.waiting, id)
	return waits
}

// queued reports whether changes wait for others to be carried out.
func (ls *lanes) queued() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, p := range ls.providers {
		if p.changes.waits()+p.groups.waits() > 0 {
			return true
		}
	}
	return false
}

// close ends the run: what waits for a provider is dropped, what is to be recorded is still written.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
}
