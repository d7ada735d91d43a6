package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/sysfs"

	"github.com/eltrain/eltrain/job"
)

const (
	// pssEvery is how often PSS is read: the kernel walks all pages of a process, some 100 ms for 64 GiB in small pages, and holds
	// a lock that its allocations wait for. pssShare bounds the time that this takes.
	pssEvery = time.Minute
	pssShare = 500
	// slowTrust is how old a result may be: what has not been read since blocks.
	slowTrust = 3 * time.Minute
	// slowEnd is how long close waits for a read that blocks.
	slowEnd = time.Second
)

// slow reads what may take long, or block in the kernel, in a goroutine of its own: PSS waits for a lock of the process's memory, which
// one in a dead driver keeps, and counters of an RDMA device are read from its firmware.
type slow struct {
	proc  procfs.FS
	sys   sysfs.FS
	asked chan [][]procStat // capacity 1
	done  chan struct{}

	mu     sync.Mutex
	result slowResult
}

type slowResult struct {
	trees   [][]procStat // as asked
	pss     []*int64     // by local rank
	pssAt   time.Time
	pssTook time.Duration
	rdma    *job.RDMAFigures
	at      time.Time
}

func newSlow(proc procfs.FS) *slow {
	sys, _ := sysfs.NewFS("/sys")
	s := &slow{proc: proc, sys: sys, asked: make(chan [][]procStat, 1), done: make(chan struct{})}
	go s.run()
	return s
}

// close ends the goroutine, or leaves it to the end of the process if it blocks.
func (s *slow) close() {
	close(s.asked)
	select {
	case <-s.done:
	case <-time.After(slowEnd):
	}
}

// read returns the newest result, and asks for the next.
func (s *slow) read(trees [][]procStat) slowResult {
	select {
	case s.asked <- trees:
	default: // it is still busy
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.result
	if time.Since(r.at) > slowTrust {
		return slowResult{}
	}
	if !slices.EqualFunc(r.trees, trees, sameLeader) || time.Since(r.pssAt) > slowTrust {
		r.pss = nil
	}
	return r
}

func (r *slowResult) pssOf(rank int) *int64 {
	if rank >= len(r.pss) {
		return nil
	}
	return r.pss[rank]
}

func sameLeader(a, b []procStat) bool {
	return len(a) > 0 && len(b) > 0 && a[0].id() == b[0].id()
}

func (s *slow) run() {
	defer close(s.done)
	for trees := range s.asked {
		s.mu.Lock()
		r := s.result
		s.mu.Unlock()
		if !slices.EqualFunc(r.trees, trees, sameLeader) || time.Since(r.pssAt) >= max(pssEvery, pssShare*r.pssTook) {
			r.pssAt = time.Now()
			r.pss = make([]*int64, len(trees))
			for i, tree := range trees {
				r.pss[i] = s.pss(tree)
			}
			r.pssTook = time.Since(r.pssAt)
		}
		r.trees, r.rdma, r.at = trees, s.rdma(), time.Now()
		s.mu.Lock()
		s.result = r
		s.mu.Unlock()
	}
}

// pss sums the proportional memory of processes; nil if that of one cannot be read.
func (s *slow) pss(tree []procStat) *int64 {
	var sum uint64
	if !each(s.proc, tree, func(p procfs.Proc) error {
		maps, err := p.ProcSMapsRollup()
		sum += maps.Pss
		return err
	}) {
		return nil
	}
	return counter(sum)
}

// rdma sums the counters of all ports; nil without a device.
func (s *slow) rdma() *job.RDMAFigures {
	devices, err := s.sys.InfiniBandClass()
	if err != nil || len(devices) == 0 {
		return nil
	}
	out := &job.RDMAFigures{}
	add := func(sum **int64, count *uint64) {
		if count == nil {
			return
		}
		if *sum == nil {
			*sum = new(int64)
		}
		**sum = *counter(uint64(**sum) + *count)
	}
	for _, device := range devices {
		for _, port := range device.Ports {
			c, hw := &port.Counters, &port.HwCounters
			add(&out.Received, c.PortRcvData)
			add(&out.Sent, c.PortXmitData)
			add(&out.ReceiveErrors, c.PortRcvErrors)
			add(&out.SendDiscards, c.PortXmitDiscards)
			add(&out.SymbolErrors, c.SymbolError)
			add(&out.LinkDowned, c.LinkDowned)
			add(&out.OutOfSequence, hw.OutOfSequence)
			add(&out.SequenceErrors, hw.PacketSeqErr)
			add(&out.AckTimeouts, hw.LocalAckTimeoutErr)
			add(&out.ReceiverNotReady, hw.RnrNakRetryErr)
		}
	}
	return out
}
