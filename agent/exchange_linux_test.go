package agent

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/nodecheck/probe"
)

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

	c := &checker{launcher: &launcher{config: &job.AgentConfig{Slot: "worker[1]", UID: b.config.UID, TokenFile: b.config.TokenFile}}}
	pair := elastic.Pair{Round: 1, Peer: "worker[1]", Seconds: hang.Bound.Seconds()}
	b.service.give(elastic.Order{Do: elastic.Wait, Check: &elastic.Check{Number: 1, Seconds: 1, Pair: &pair}})
	ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
	defer cancel()
	if r := (probe.Exchange{Key: c.key(elastic.Pair{Round: 1, Peer: b.config.Slot}), Round: 1}).Dial(ctx, address); r.Failed != "" || r.Seconds <= 0 {
		t.Errorf("%+v", r)
	}
	report := b.service.await(t, "the exchange", func(r elastic.Report) bool { return r.Check != nil && len(r.Check.Exchanges) == 1 })
	if x := report.Check.Exchanges[0]; x.Failed != "" || x.Round != 1 {
		t.Errorf("%+v", x)
	}

	// The next partner is cut off: nobody connects, within the bound.
	b.service.give(elastic.Order{Do: elastic.Wait, Check: &elastic.Check{Number: 1, Seconds: 1, Pair: &elastic.Pair{Round: 2, Peer: "worker[2]", Seconds: 0.1}}})
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
