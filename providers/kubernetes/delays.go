package kubernetes

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// delays are the writes that do not come about: they have had no answer for a while, or the API server failed at them and
// they are tried again. An admission webhook may take half a minute for each answer, and four attempts are made before
// whoever asked hears of a failure: a person is told before.
type delays struct {
	changed func() // called when there is a new one, or an old one is over

	mu    sync.Mutex
	class map[string]*delay
}

// delay is what is known of a class of writes that are being carried out.
type delay struct {
	writes int   // of the class, waiting for their turn or not
	slow   bool  // one had no answer for slowAfter
	err    error // of the last that the API server failed at; nil once one was answered
}

// slowAfter is when a write counts as slow that has no answer. On an API server with more to do than it can, that of a
// benchmark on a machine that others used too, none took longer than three seconds.
const slowAfter = 5 * time.Second

func newDelays(changed func()) *delays {
	return &delays{changed: changed, class: map[string]*delay{}}
}

// begin enters a write; its end takes it out, and with the last one what was known of the class.
func (d *delays) begin(class string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.class[class]
	if of == nil {
		of = &delay{}
		d.class[class] = of
	}
	of.writes++
	return func() { d.end(class) }
}

func (d *delays) end(class string) {
	d.mu.Lock()
	of := d.class[class]
	of.writes--
	over := of.writes == 0 && of.told()
	if of.writes == 0 {
		delete(d.class, class)
	}
	d.mu.Unlock()
	if over {
		d.changed()
	}
}

// told tells whether there is something to say of the class.
func (of *delay) told() bool { return of.slow || of.err != nil }

// watch has the class count as slow if it is not stopped in time.
func (d *delays) watch(class string) *time.Timer {
	return time.AfterFunc(slowAfter, func() { d.enter(class, func(of *delay) { of.slow = true }) })
}

// answered enters how a write went: err is what the API server failed with, nil if it did what it was asked to or said
// why not.
func (d *delays) answered(class string, err error) {
	d.enter(class, func(of *delay) { of.slow, of.err = false, err })
}

func (d *delays) enter(class string, change func(*delay)) {
	d.mu.Lock()
	of := d.class[class]
	if of == nil { // it ended just now
		d.mu.Unlock()
		return
	}
	before := of.told()
	change(of)
	news := before != of.told()
	d.mu.Unlock()
	if news {
		d.changed()
	}
}

// byJob says what of which job does not come about, by UID, in words that stay the same as long as it is so; nil if all
// does.
func (d *delays) byJob() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all map[string]string
	for class, of := range d.class {
		if !of.told() {
			continue
		}
		uid, what, _ := strings.Cut(class, " ")
		text := fmt.Sprintf("%s: the API server has not answered for %s; an admission webhook may be what takes so long", what, slowAfter)
		if of.err != nil {
			text = fmt.Sprintf("%s is tried again: %v", what, explain(of.err))
		}
		if all == nil {
			all = map[string]string{}
		}
		if before, more := all[uid]; !more || text < before { // one of a job will do, and always the same
			all[uid] = text
		}
	}
	return all
}
