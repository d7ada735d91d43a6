// Package loopback gives tests addresses to listen on.
package loopback

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// given are the addresses that this process has returned.
var given sync.Map

// Free is an unused address of this machine that stays free until it is used, and between two uses: at 127.0.0.1 others listen
// on arbitrary free ports all the time, so the address is derived from the process's number. The testbed uses addresses from
// 127.1.0.0 on.
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
