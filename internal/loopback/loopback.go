// Package loopback gives tests addresses to listen on.
package loopback

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// given are the addresses that this process got.
var given sync.Map

// Free is an address of this machine that nobody listens at, and that stays free until it is used, and between two uses: at
// 127.0.0.1 others listen all the time on whichever port is free, and this one goes by the process's number. What lies from
// 127.1.0.0 on is the testbed's.
func Free(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	for {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.%d.%d:0", 1+pid>>8%254, 1+pid%254))
		if err != nil {
			t.Fatal(err)
		}
		address := listener.Addr().String()
		listener.Close()
		if _, again := given.LoadOrStore(address, true); !again {
			return address
		}
	}
}
