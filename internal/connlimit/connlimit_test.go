package connlimit

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
)

// Enough is left for everything else, and no agent is refused whose descriptor is allowed.
func TestConnectionsLeaveDescriptors(t *testing.T) {
	for limit, most := range map[uint64]int{20: 10, 160: 80, 256: 128, 1024: 896, 10_200: 10_072, 1<<64 - 1: 1<<20 - 128} {
		if got := besides(limit); got != most {
			t.Errorf("with %d descriptors there may be %d connections, want %d", limit, got, most)
		}
	}
	if Descriptors() < 1 {
		t.Errorf("this process may have %d connections", Descriptors())
	}
}

// pipes is a listener whose queue has no bound.
type pipes struct{ queue chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.queue
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipes) Close() error   { close(p.queue); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestOthersWaitUntilOneIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		inner := &pipes{make(chan net.Conn, 100)}
		l := Limit(inner, 4, func() { told++ })
		var open []net.Conn
		var ended error
		go func() {
			for ended == nil {
				var c net.Conn
				if c, ended = l.Accept(); ended == nil {
					open = append(open, c)
				}
			}
		}()
		expect := func(conns, tellings int) {
			t.Helper()
			if synctest.Wait(); len(open) != conns || told != tellings {
				t.Fatalf("%d accepted, told %d times; want %d, %d", len(open), told, conns, tellings)
			}
		}
		for range 9 {
			client, server := net.Pipe()
			defer client.Close()
			inner.queue <- server
		}
		expect(4, 1)
		first := open[0] // read before the next one is accepted
		first.Close()
		first.Close() // counts once
		expect(5, 1)
		open[1].Close()
		expect(6, 1)
		for _, c := range open[2:] { // all: the remaining three are accepted, and the limit is far
			c.Close()
		}
		expect(9, 1)
		for range 2 { // it is reached again
			client, server := net.Pipe()
			defer client.Close()
			inner.queue <- server
		}
		expect(10, 2) // the other waits
		l.Close()
		if synctest.Wait(); !errors.Is(ended, net.ErrClosed) {
			t.Errorf("a closed listener ends with %v", ended)
		}
		for _, c := range open {
			c.Close()
		}
	})
}
