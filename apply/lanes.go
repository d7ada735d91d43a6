package apply

import (
	"cmp"
	"sync"
)

// mailbox is an unbounded FIFO queue of events for the Loop: post never blocks.
type mailbox struct {
	mu     sync.Mutex
	events []Event
	news   chan struct{} // receives a value when there are events
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

// lane is a queue of effects and its workers. Launches that heal, and the forgetting of jobs, precede launches of new work, so that a world
// is not stalled while another job's 10,000 slots are launched; otherwise the order is FIFO. The number of workers is
// bounded, since a goroutine for each of 10,000 effects would cost more than everything else.
type lane struct {
	most           int  // workers
	lasts          bool // queued effects are carried out even after close
	workers        int
	urgent, normal []*ticket
}

func newLane(most int) *lane { return &lane{most: most} }

// ticket is one effect in its lane.
type ticket struct {
	id  ID
	run func(begin bool)
}

// providerLanes has the lanes of a provider. A stop waits until its incarnation has ended, for up to its grace: in a lane shared with
// launches, a job whose slots do not end would delay another's healing.
type providerLanes struct{ changes, stops, groups *lane }

// lanes has all lanes.
type lanes struct {
	records   *lane // writes of the state and of notices, one at a time
	decisions *lane // journaled decisions, for which nothing waits
	replies   *lane // to operators' requests, in order
	messages  *lane // of notify blocks, of each one at a time
	sources   *lane // of scaling policies
	files     *lane // one at a time, since what was read is shared
	providers map[string]providerLanes

	mu      sync.Mutex
	closed  bool
	waiting map[ID]*ticket
}

// notifyParallelism is how many messages are delivered at once: more than any directory has receivers that hang.
const notifyParallelism = 16

// sourceParallelism is how many sources are asked at once.
const sourceParallelism = 32

// newLanes makes the lanes. The user's parallelism is shared by all providers; otherwise each has its own. Preparations have
// a lane of the same size: sharing one, a hundred gangs submitted at once would wait behind the pods of the first.
func newLanes(p Parts) *lanes {
	newProviderLanes := func(most int) providerLanes { return providerLanes{newLane(most), newLane(most), newLane(most)} }
	ls := &lanes{
		records: &lane{most: 1, lasts: true}, decisions: &lane{most: 1, lasts: true}, replies: &lane{most: 1, lasts: true}, files: newLane(1), messages: newLane(notifyParallelism), sources: newLane(sourceParallelism),
		providers: map[string]providerLanes{}, waiting: map[ID]*ticket{},
	}
	shared := newProviderLanes(p.Parallelism)
	for name, prov := range p.Providers {
		ls.providers[name] = shared
		if p.Parallelism == 0 {
			ls.providers[name] = newProviderLanes(cmp.Or(prov.Capabilities().Parallelism, DefaultParallelism))
		}
	}
	return ls
}

// lane returns an effect's lane.
func (ls *lanes) lane(e Effect) *lane {
	switch e := e.(type) {
	case Launch:
		return ls.providers[e.Provider].changes
	case Forget:
		return ls.providers[e.Provider].changes
	case Stop:
		return ls.providers[e.Provider].stops
	case Prepare:
		return ls.providers[e.Provider].groups
	case Publish:
		return ls.providers[e.Provider].groups
	case ReadFiles, Check, Approve:
		return ls.files
	case Chronicle:
		return ls.decisions
	case Respond:
		return ls.replies
	case Notify:
		return ls.messages
	case Sample:
		return ls.sources
	}
	return ls.records
}

// add queues an effect. run is called once: to carry it out, or, if the lanes are closed before that, to drop it. It is not
// called after drop.
func (ls *lanes) add(work *sync.WaitGroup, e Effect, run func(begin bool)) {
	l, w := ls.lane(e), &ticket{e.ID(), run}
	ls.mu.Lock()
	ls.waiting[w.id] = w
	if launch, is := e.(Launch); is && !launch.Urgent {
		l.normal = append(l.normal, w)
	} else {
		l.urgent = append(l.urgent, w)
	}
	spawn := l.workers < l.most
	if spawn {
		l.workers++
	}
	ls.mu.Unlock()
	if !spawn {
		return
	}
	work.Go(func() {
		for w, begin := ls.next(l); w != nil; w, begin = ls.next(l) {
			w.run(begin)
		}
	})
}

// next dequeues the next effect and reports whether to start it; nil ends the worker.
func (ls *lanes) next(l *lane) (w *ticket, begin bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, list := range []*[]*ticket{&l.urgent, &l.normal} {
		for len(*list) > 0 {
			w = (*list)[0]
			(*list)[0] = nil
			*list = (*list)[1:]
			if ls.waiting[w.id] == w { // else it was dropped
				delete(ls.waiting, w.id)
				return w, l.lasts || !ls.closed
			}
		}
	}
	l.urgent, l.normal = nil, nil // release the backing arrays
	l.workers--
	return nil, false
}

// waits returns the length of the queue.
func (l *lane) waits() int { return len(l.urgent) + len(l.normal) }

// drop removes an effect from its queue; false if it is not queued.
func (ls *lanes) drop(id ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	_, waits := ls.waiting[id]
	delete(ls.waiting, id)
	return waits
}

// queued reports whether any changes or preparations are queued.
func (ls *lanes) queued() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, p := range ls.providers {
		if p.changes.waits()+p.stops.waits()+p.groups.waits() > 0 {
			return true
		}
	}
	return false
}

// close drops what is queued, except what is to be recorded.
func (ls *lanes) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
}
