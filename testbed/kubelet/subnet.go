package kubelet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// kubeletPort is where every node serves logs, on its own address. It is below the range of ephemeral ports, so
// that no outgoing connection uses it.
const kubeletPort = 20250

// nodeAddresses is the number of addresses for nodes: 127.x.0.1 up to 127.x.0.254.
const nodeAddresses = 254

// subnet allocates addresses of 127.x.0.0/16, which belong to this machine without any set-up. Kubelets of other
// processes have other values of x: the listener on 127.x.0.0:kubeletPort owns it.
type subnet struct {
	second byte
	lock   net.Listener

	mu    sync.Mutex
	nodes int
	pods  int
}

func newSubnet() (*subnet, error) {
	first := rand.IntN(254)
	var errs []error
	for i := range 254 {
		second := byte(1 + (first+i)%254)
		lock, err := net.Listen("tcp4", net.JoinHostPort(net.IPv4(127, second, 0, 0).String(), strconv.Itoa(kubeletPort)))
		if err == nil {
			return &subnet{second: second, lock: lock}, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no block of loopback addresses is free: %w", errors.Join(errs[0], errs[len(errs)-1]))
}

// node is the next address for a node.
func (s *subnet) node() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nodeAddresses {
		return "", fmt.Errorf("one Kubelet serves at most %d nodes", nodeAddresses)
	}
	s.nodes++
	return net.IPv4(127, s.second, 0, byte(s.nodes)).String(), nil
}

// pod is the next address for a pod. An address is reused only after 65,000 others.
func (s *subnet) pod() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	const size = 255 * 256
	n := 256 + s.pods%size
	s.pods++
	return net.IPv4(127, s.second, byte(n>>8), byte(n)).String()
}

func (s *subnet) close() { s.lock.Close() }
