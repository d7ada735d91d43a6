// Package connlimit limits the open connections of a listener, so that clients cannot use up the descriptors of a process that has
// files to write.
package connlimit

import (
	"net"
	"sync"
	"syscall"
)

// reserve is how many descriptors are kept for everything but connections: the state, its lock and journal, logs, processes being
// started, requests to a cluster. Under a small limit it is half of it.
const reserve = 128

// Descriptors is how many connections the process's limit on descriptors allows besides everything else that it opens.
func Descriptors() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return reserve
	}
	return besides(limit.Cur)
}

func besides(limit uint64) int {
	n := int(min(limit, 1<<20))
	return n - min(reserve, n/2)
}

// listener takes a place for each connection.
type listener struct {
	net.Listener
	places chan struct{} // one value for each taken
	full   func()
	told   bool // full was called, and more than half of the places were taken since
	closed chan struct{}
	once   sync.Once
}

// Limit returns l with at most n open connections. Others wait in the system's queue, without a descriptor, until one is closed.
// Accept, which one goroutine calls, calls full when all n are open, and again once half of them were closed.
func Limit(l net.Listener, n int, full func()) net.Listener {
	return &listener{Listener: l, places: make(chan struct{}, n), full: full, closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	if len(l.places) <= cap(l.places)/2 {
		l.told = false
	}
	if len(l.places) == cap(l.places) && !l.told {
		l.told = true
		l.full()
	}
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &conn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite lets a server end its answer without closing the connection before the client has read it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
