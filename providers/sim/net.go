package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// Everybody are the agents of all nodes: their link is that of each node that has none of its own.
const Everybody = "agents"

// partyOf are the agents of one node.
func partyOf(node string) string { return Everybody + "/" + node }

// ErrNoAnswer is what whoever asked knows of a request that was not answered in time: it may have been done.
var ErrNoAnswer = errors.New("no answer in time")

// Net carries messages between parties, which are known by name: masters, the store, the cluster, and agents by their node,
// as "agents/n1".
// A message arrives at once and once, unless the link says otherwise.
type Net struct {
	after func(d time.Duration, f func())
	rnd   *rand.Rand
	links map[way]Link
}

// way is one direction between two parties.
type way struct{ from, to string }

// Link is how messages go one way.
type Link struct {
	Cut     bool
	Late    time.Duration // each takes up to so long, so that they overtake each other
	Lost    int           // of a hundred
	Doubled int           // of a hundred
}

func newNet(after func(time.Duration, func())) *Net {
	return &Net{after: after, rnd: rand.New(rand.NewPCG(1, 2)), links: map[way]Link{}}
}

// Set says how messages go from one party to another from now on. Those that are under way arrive.
func (n *Net) Set(from, to string, l Link) {
	if l == (Link{}) {
		delete(n.links, way{from, to})
		return
	}
	n.links[way{from, to}] = l
}

// Mend has all messages arrive at once again.
func (n *Net) Mend() { clear(n.links) }

// link is how messages go from one party to another.
func (n *Net) link(from, to string) Link {
	if l, set := n.links[way{from, to}]; set {
		return l
	}
	return n.links[way{group(from), group(to)}]
}

func group(party string) string {
	all, _, _ := strings.Cut(party, "/")
	return all
}

// Send has a message delivered, or not.
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

// Call asks a party for something. do is called with each request that arrives, and answers when it likes; done is called
// once: with the first answer that comes back, or with ErrNoAnswer after the bound.
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
	if open {
		n.after(bound, func() {
			var none T
			end(none, ErrNoAnswer)
		})
	}
}
