package probe

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/eltrain/eltrain/job"
)

const (
	// exchangeSize is what is sent to a partner, and back: some tenths of a second at a gigabit.
	exchangeSize = 16 << 20
	chunkSize    = 64 << 10
	// dialAgain is the pause between attempts to reach a partner.
	dialAgain = 50 * time.Millisecond
)

// Exchange is one exchange with a partner. Both know the key, which is another for each: whoever else connects is ignored.
type Exchange struct {
	Key []byte
}

// proof shows that one side knows the key.
func (x Exchange) proof(side string) []byte {
	mac := hmac.New(sha256.New, x.Key)
	io.WriteString(mac, side)
	return mac.Sum(nil)
}

// Dial connects to a partner, sends data, and compares what comes back. A partner that is not there yet, or has not begun this exchange,
// is tried again.
func (x Exchange) Dial(ctx context.Context, address string) job.Exchanged {
	for {
		conn, err := x.greet(ctx, address)
		if err == nil {
			defer conn.Close()
			defer during(ctx, func() { conn.Close() })()
			begun := time.Now()
			return result(begun, send(conn))
		}
		select {
		case <-ctx.Done():
			return result(time.Now(), err)
		case <-time.After(dialAgain):
		}
	}
}

// greet connects to a partner that shows that it is the one.
func (x Exchange) greet(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer during(ctx, func() { conn.Close() })()
	if _, err = conn.Write(x.proof("dial")); err == nil {
		err = x.expect(conn, "answer")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// send sends the data, and compares what comes back.
func send(conn net.Conn) error {
	sent := make(chan error, 1)
	go func() {
		for offset := 0; offset < exchangeSize; offset += chunkSize {
			if _, err := conn.Write(chunk(offset)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	err := receive(conn)
	if err != nil {
		conn.Close() // ends the other
	}
	return errors.Join(err, <-sent)
}

func receive(conn net.Conn) error {
	got := make([]byte, chunkSize)
	for offset := 0; offset < exchangeSize; offset += chunkSize {
		if _, err := io.ReadFull(conn, got); err != nil {
			return err
		}
		if !bytes.Equal(got, chunk(offset)) {
			return errors.New("data came back changed")
		}
	}
	return nil
}

func (x Exchange) expect(conn net.Conn, side string) error {
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(got, x.proof(side)) != 1 {
		return errors.New("it is not the partner")
	}
	return nil
}

// Accept waits for the partner at a listener, and sends back what comes.
func (x Exchange) Accept(ctx context.Context, l *net.TCPListener) job.Exchanged {
	l.SetDeadline(time.Time{})
	defer during(ctx, func() { l.SetDeadline(time.Unix(1, 0)) })()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = errors.New("the partner did not connect")
			}
			return result(time.Now(), err)
		}
		begun := time.Now()
		stranger, err := x.answer(ctx, conn)
		if !stranger {
			return result(begun, err)
		}
	}
}

// during calls f once ctx ends. Once the function that it returns has returned, f does not run and will not.
func during(ctx context.Context, f func()) (end func()) {
	ran := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ran)
		f()
	})
	return func() {
		if !stop() {
			<-ran
		}
	}
}

// strangerWait is how long a connection may take to show that it is the partner's. Others wait for their turn.
const strangerWait = time.Second

// answer sends back what comes, if it is from the partner.
func (x Exchange) answer(ctx context.Context, conn net.Conn) (stranger bool, err error) {
	defer conn.Close()
	defer during(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(strangerWait))
	if err := x.expect(conn, "dial"); err != nil {
		return true, err
	}
	conn.SetDeadline(time.Time{})
	if _, err := conn.Write(x.proof("answer")); err != nil {
		return false, err
	}
	_, err = io.CopyN(conn, conn, exchangeSize)
	return false, err
}

func result(begun time.Time, err error) job.Exchanged {
	r := job.Exchanged{Seconds: time.Since(begun).Seconds()}
	if err != nil {
		r.Failed = displayable(fmt.Append(nil, err))
	}
	return r
}

// chunk is the data at an offset.
func chunk(offset int) []byte {
	out := make([]byte, chunkSize)
	next := uint64(offset)*0x9E3779B97F4A7C15 + 1
	for i := range out {
		if i%8 == 0 {
			next ^= next << 13
			next ^= next >> 7
			next ^= next << 17
		}
		out[i] = byte(next >> (8 * (i % 8)))
	}
	return out
}
