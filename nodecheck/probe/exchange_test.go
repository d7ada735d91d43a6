package probe

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

func TestExchanges(t *testing.T) {
	for name, test := range map[string]struct {
		between func(net.Conn) io.Reader // what the partner gets, and changes on its way
		other   string                   // its key
		passes  bool
	}{
		"as it was sent": {passes: true},
		"changed":        {between: func(c net.Conn) io.Reader { return &flipping{c, 3 << 20} }},
		"cut off":        {between: func(c net.Conn) io.Reader { return io.LimitReader(c, 3<<20) }},
		"by a stranger":  {other: "another key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			key := "a key"
			if test.other != "" {
				key = test.other
			}
			ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
			if test.other != "" {
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
			}
			defer cancel()
			answers := make(chan job.Exchanged, 1)
			go func() { answers <- Exchange{Key: []byte(key)}.Accept(ctx, l) }()
			address := l.Addr().String()
			if test.between != nil {
				address = proxy(t, address, test.between)
			}
			dialed := Exchange{Key: []byte("a key")}.Dial(ctx, address)
			if (dialed.Failed == "") != test.passes {
				t.Errorf("%+v", dialed)
			}
			if answer := <-answers; test.between == nil && (answer.Failed == "") != test.passes {
				t.Errorf("the other side: %+v", answer)
			}
		})
	}
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

// flipping changes a bit at an offset.
type flipping struct {
	io.Reader
	left int
}

func (f *flipping) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if f.left >= 0 && f.left < n {
		p[f.left] ^= 1
	}
	f.left -= n
	return n, err
}

// proxy connects one connection to another address. What the dialer sends goes through between.
func proxy(t *testing.T, address string, between func(net.Conn) io.Reader) string {
	l := listen(t)
	go func() {
		from, err := l.Accept()
		if err != nil {
			return
		}
		defer from.Close()
		to, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer to.Close()
		go func() {
			io.Copy(from, to)
			from.Close()
		}()
		io.Copy(to, between(from))
	}()
	return l.Addr().String()
}
