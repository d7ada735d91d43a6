package apply

import (
	"fmt"
	"time"

	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// publisher publishes the service's address to the agents of each provider.
type publisher struct {
	service providers.Service
	known   bool                    // service is set
	of      map[string]*publication // by provider
}

// publication is what was published to the agents of one provider.
type publication struct {
	number   int // of the last Publish
	done     bool
	inFlight bool
	retry    retry
}

func newPublisher(order []string) publisher {
	p := publisher{of: map[string]*publication{}}
	for _, name := range order {
		p.of[name] = &publication{}
	}
	return p
}

// serve records where the service is now reached.
func (p *publisher) serve(s providers.Service) {
	p.service, p.known = s, true
	for _, of := range p.of {
		of.done, of.retry = false, retry{}
	}
}

// publish publishes the address where that is due. The first turn waits for it, so that launched agents find the service.
func (p *publisher) publish(l *Loop) {
	all := p.known
	for _, name := range l.sight.order {
		of := p.of[name]
		all = all && of.done
		if !p.known || of.done || of.inFlight || l.now.Before(of.retry.until) || l.end.stopped() {
			continue
		}
		of.inFlight, of.done, of.number = true, true, l.number() // done is reset by a new address or a failure
		all = false
		l.do(Publish{name, of.number, p.service})
	}
	if all && l.turn.phase == starting && !p.busy() {
		l.rests()
	}
}

func (p *publisher) busy() bool {
	for _, of := range p.of {
		if of.inFlight {
			return true
		}
	}
	return false
}

// published handles the outcome of a publication. At the start of a run an error ends it: launched agents could not
// reach the service.
func (p *publisher) published(l *Loop, e Publish, err error) {
	of := p.of[e.Provider]
	of.inFlight = false
	if err != nil {
		var tell bool
		if of.retry, tell = of.retry.next(l.now, err, l.setup.Jitter()); !tell && !l.end.stopped() {
			of.inFlight = true
			l.again(e, of.retry.until)
			return
		}
	}
	if err != nil && l.turn.phase == starting {
		l.finish(plan.Plan{}, fmt.Errorf("publish the service's address to the agents of provider %q: %w", e.Provider, err))
		return
	}
	if err != nil {
		of.done = false
		err = of.retry.err
	}
	l.holds.raiseIf(l, err, "provider."+e.Provider, NotPublished)
}

// due returns when the next failed publication is retried; zero is never. One in flight is due with its outcome.
func (p *publisher) due() (at time.Time) {
	for _, of := range p.of {
		if !of.done && !of.inFlight {
			at = earliest(at, of.retry.until)
		}
	}
	return at
}
