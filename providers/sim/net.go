package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// Everybody is the party of the agents of all nodes. Its link applies to each node without a link of its own.
const Everybody = "agents"

// partyOf is the party of the agents of one node.
func partyOf(node string) string { return Everybody + "/" + node }

// ErrNoAnswer means that a request was not answered in time. It may have been carried out.
var ErrNoAnswer = errors.New("no answer in time")

// Net carries messages between named parties: masters, the store, the cluster, and agents by their node, such as "agents/n1". A
// master that was given another address, such as "a/2", has the links of "a".
// A message arrives once, and at once, unless the link says otherwise.
type Net struct {
	after func(d time.Duration, f func())
	rnd   *rand.Rand
	links map[direction]Link
}

// direction is one direction between two parties.
type direction struct{ from, to string }

// Link is the quality of one direction.
type Link struct {
	Cut     bool
	Late    time.Duration // maximum delay, drawn for each message, so that they overtake each other
	Lost    int           // percent
	Doubled int           // percent
}

func newNet(after func(time.Duration, func())) *Net {
	return &Net{after: after, rnd: rand.New(rand.NewPCG(1, 2)), links: map[direction]Link{}}
}

// Set sets the link from one party to another. Messages in flight still arrive.
func (n *Net) Set(from, to string, l Link) {
	if l == (Link{}) {
		delete(n.links, direction{from, to})
		return
	}
	n.links[direction{from, to}] = l
}

// Heal resets all links.
func (n *Net) Heal() { clear(n.links) }

// link returns the link from one party to another.
func (n *Net) link(from, to string) Link {
	for _, d := range []direction{{from, to}, {group(from), to}, {from, group(to)}} {
		if l, set := n.links[d]; set {
			return l
		}
	}
	return n.links[direction{group(from), group(to)}]
}

func group(party string) string {
	all, _, _ := strings.Cut(party, "/")
	return all
}

// Send delivers a message according to the link: never, once or twice, now or later.
func (n *Net) Send(from, to string, deliver func()) {
	l := n.link(from, to)
	if l.Cut || l.Lost > 0 && n.rnd.IntN(100) < l.Lost {
		return
	}
	times := 1
	if l.Doubled > 0 && n.rnd.IntN(100) < l.Doubled {
		times = 2
	}
	for range times {
		if l.Late == 0 {
			deliver()
			continue
		}
		n.after(time.Duration(n.rnd.Int64N(int64(l.Late)))+1, deliver)
	}
}

// unbounded is the bound of a Call whose caller does not wait for this answer alone.
const unbounded = time.Duration(0)

// Call makes a request to a party. do is called for each copy of the request that arrives, and may answer at any later time;
// done is called once: with the first answer that comes back, or with ErrNoAnswer after the bound.
func Call[T any](n *Net, from, to string, bound time.Duration, do func(answer func(T, error)), done func(T, error)) {
	open := true
	end := func(result T, err error) {
		if open {
			open = false
			done(result, err)
		}
	}
	n.Send(from, to, func() {
		do(func(result T, err error) {
			n.Send(to, from, func() { end(result, err) })
		})
	})
	if open && bound != unbounded {
		n.after(bound, func() {
			var none T
			end(none, ErrNoAnswer)
		})
	}
}
