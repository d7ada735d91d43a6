package view

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/eltrain/eltrain/job"
)

func TestStacksAreFolded(t *testing.T) {
	process := func(rank int, frame string) job.ProcessStacks {
		idle := func(n int) job.ThreadStack {
			return job.ThreadStack{ID: "9", Name: fmt.Sprintf("Thread-%d (loader)", n), State: "sleeping", Waits: "futex"}
		}
		return job.ProcessStacks{Rank: rank, PID: 100 + rank, Name: "python3", Source: job.StacksPySpy, Threads: []job.ThreadStack{
			idle(rank + 1), {ID: "1", Name: "MainThread", State: "active", Frames: []string{frame, "<module> (/t.py:9)"}}, idle(rank + 2),
		}}
	}
	slot := func(role string, index int, all ...job.ProcessStacks) SlotStacks {
		return SlotStacks{Slot: job.Address{Job: "gpt", Role: role, Index: index}, Processes: all}
	}
	child := job.ProcessStacks{Rank: 4, PID: 7, Child: true, Name: "sh\x1b", Source: job.StacksKernel, Threads: []job.ThreadStack{{ID: "7", State: "sleeping"}}}
	server := job.ProcessStacks{Rank: -1, Name: "ps", Source: job.StacksKernel, Failed: []string{"py-spy: Permission Denied"}, Threads: []job.ThreadStack{{ID: "1", Name: "ps", State: "running"}}}
	var r Redactor
	r.AddTexts("hunter2-hunter2")
	m := NewStacks([]SlotStacks{
		slot("worker", 2, process(5, "all_reduce (/t.py:3)"), child),
		slot("worker", 0, process(0, "all_reduce (/t.py:3)"), process(1, "all_reduce (/t.py:3)")),
		slot("worker", 1, process(2, "load hunter2-hunter2 (/t.py:5)")),
		slot("ps", 0, server), slot("ps", 1, server),
	}, []Unreachable{
		{job.Address{Job: "gpt", Role: "worker", Index: 4}, "no answer within 30s"}, {job.Address{Job: "gpt", Role: "worker", Index: 3}, "no answer within 30s"},
	}, &r)
	var out bytes.Buffer
	if err := WriteStacks(Kept(&out), m); err != nil {
		t.Fatal(err)
	}
	const want = `job.gpt

  ps[0-1]: ps, as the kernel sees it; py-spy: Permission Denied
    ps, running

  ranks 0-1,5: python3, by py-spy
    MainThread, active
      all_reduce (/t.py:3)
      <module> (/t.py:9)
    2 x Thread (loader), sleeping, futex

  rank 2: python3, by py-spy
    MainThread, active
      load (sensitive value) (/t.py:5)
      <module> (/t.py:9)
    2 x Thread (loader), sleeping, futex

  rank 4: sh\x1b, a child, as the kernel sees it
    a thread, sleeping

job.gpt.worker[3-4]: no answer within 30s
`
	if got := out.String(); got != want {
		t.Errorf("it prints\n%s\nwant\n%s", got, want)
	}
}
