package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck/probe"
)

// partner is another member's checker.
func (b *bench) partner(slot string) *checker {
	return newChecker(&launcher{config: &job.AgentConfig{Slot: slot, UID: b.config.UID}}, func() string { return b.service.token }, nil)
}

// orderExchange orders an exchange of a check.
func (s *fakeService) orderExchange(number int, pair elastic.Pair) {
	s.give(elastic.Order{Do: elastic.Wait, Check: &elastic.Check{Number: number, Seconds: 1, Pair: &pair}})
}

// An agent exchanges data with a partner that has the job's token, whoever else connects meanwhile; with one that has not, it fails.
func TestNodesExchangeData(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t)
	b.service.orderCheck(1, patience, "true")
	port := b.service.awaitCheck(t, 1).Check.Port
	address := fmt.Sprintf("127.0.0.1:%d", port)
	stranger, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	stranger.Write(make([]byte, 64))

	c := b.partner("worker[1]")
	pair := elastic.Pair{Round: 1, Peer: "worker[1]", Seconds: hang.Bound.Seconds()}
	b.service.orderExchange(1, pair)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
	defer cancel()
	if r := (probe.Exchange{Key: c.key(elastic.Pair{Round: 1, Peer: b.config.Slot})}).Dial(ctx, address); r.Failed != "" || r.Seconds <= 0 {
		t.Errorf("%+v", r)
	}
	report := b.service.await(t, "the exchange", func(r elastic.Report) bool { return r.Check != nil && len(r.Check.Exchanges) == 1 })
	if x := report.Check.Exchanges[0]; x.Failed != "" || x.Round != 1 {
		t.Errorf("%+v", x)
	}

	// The next partner is cut off: nobody connects, within the bound.
	b.service.orderExchange(1, elastic.Pair{Round: 2, Peer: "worker[2]", Seconds: 0.1})
	report = b.service.await(t, "the second exchange", func(r elastic.Report) bool { return r.Check != nil && len(r.Check.Exchanges) == 2 })
	if x := report.Check.Exchanges[1]; x.Failed != "the partner did not connect" {
		t.Errorf("%+v", x)
	}
	b.service.give(elastic.Order{Do: elastic.Wait})
	eventually(t, "the port is closed", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

// An exchange that the service has given up ends before the next begins, which has the listener to itself.
func TestLateExchangesEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, 10*time.Minute, "sleep", "60")
	b.launch(t)
	b.service.orderCheck(1, patience, "true")
	address := fmt.Sprintf("127.0.0.1:%d", b.service.awaitCheck(t, 1).Check.Port)
	c := b.partner("worker[1]")
	ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
	defer cancel()
	for round := 1; round <= 8; round += 2 {
		b.service.orderExchange(1, elastic.Pair{Round: round, Peer: "worker[2]", Seconds: time.Hour.Seconds()})
		dismissStranger(t, address)
		b.service.orderExchange(1, elastic.Pair{Round: round + 1, Peer: "worker[1]", Seconds: hang.Bound.Seconds()})
		key := c.key(elastic.Pair{Round: round + 1, Peer: b.config.Slot})
		if r := (probe.Exchange{Key: key}).Dial(ctx, address); r.Failed != "" {
			t.Fatalf("round %d: %+v", round+1, r)
		}
		b.service.await(t, "the exchange", func(r elastic.Report) bool { return r.Check != nil && len(r.Check.Exchanges) > round/2 })
		if n := strings.Count(b.read("log"), "exchange with worker[2] after"); n != round/2+1 {
			t.Fatalf("round %d: %d others have ended", round+1, n)
		}
	}
}

// dismissStranger returns once an exchange waits for its partner: a stranger is dismissed.
func dismissStranger(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(hang.Bound))
	conn.Write(make([]byte, sha256.Size))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("nobody accepts")
	}
}
