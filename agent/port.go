package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// firstPort and portCount are the range for MASTER_PORT: below Linux's default range for outgoing connections (32768 and
	// up), where any connection could take the port between the agent's release and rank 0's bind, which can be seconds because
	// of importing torch; and outside Kubernetes' node ports.
	firstPort = 20000
	portCount = 10000
	portTries = 64
)

// reservation holds a port for a training process of this host until release, and keeps other agents off it until end.
type reservation struct {
	fd    int
	claim int // a socket with the port in its name; -1 for none
	Port  int
}

// reservePort reserves a free port other than last. The socket is bound but does not listen: a peer that connects before rank 0
// is refused and retries, instead of being accepted here and cut off.
func reservePort(last int) (*reservation, error) {
	var err error
	for range portTries {
		port := firstPort + rand.IntN(portCount)
		if port == last {
			continue
		}
		var claim int
		if claim, err = claimPort(port); err != nil {
			continue
		}
		var r *reservation
		if r, err = bindPort(port); err == nil {
			r.claim = claim
			return r, nil
		}
		closeSocket(&claim)
	}
	// The range is full or forbidden: use any port.
	r, anyErr := bindPort(0)
	if anyErr != nil {
		return nil, fmt.Errorf("reserve a port for MASTER_PORT: %w (and %w)", err, anyErr)
	}
	return r, nil
}

// claimPort marks a port as taken for other agents, by a name that is bound as long as the socket is open. Without it another
// agent could reserve the port between release and rank 0's bind. An abstract name (unix(7)) has the same scope as the port:
// the network namespace, including pods that share their node's. Other systems have none.
func claimPort(port int) (int, error) {
	if runtime.GOOS != "linux" {
		return -1, nil
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return -1, nil // forbidden here: do without
	}
	unix.CloseOnExec(fd)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@eltrain-port-%d", port)})
	if err != nil {
		closeSocket(&fd)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, err
	}
	return fd, nil
}

// bindPort binds a port on all addresses; 0 is any. Without SO_REUSEADDR, so that nobody else can bind it meanwhile.
func bindPort(port int) (*reservation, error) {
	// Nothing may fork before the socket is close-on-exec, or a child would keep the port.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet6{Port: port})
		}
	} else if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err == nil { // a host without IPv6
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: port})
	} else {
		return nil, err
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	unix.CloseOnExec(fd)
	r := &reservation{fd: fd, claim: -1, Port: port}
	if port != 0 {
		return r, nil
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		r.release()
		return nil, err
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet6:
		r.Port = sa.Port
	case *unix.SockaddrInet4:
		r.Port = sa.Port
	}
	return r, nil
}

// release frees the port. It may be called again, and on nil.
func (r *reservation) release() {
	if r != nil {
		closeSocket(&r.fd)
	}
}

// end frees the port for other agents too. It may be called again, and on nil.
func (r *reservation) end() {
	if r != nil {
		closeSocket(&r.fd)
		closeSocket(&r.claim)
	}
}

func closeSocket(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
	}
	*fd = -1
}
