package agent

import (
	"strconv"
	"strings"
	"sync"

	"github.com/eltrain/eltrain/job"
)

// atOnce is how many processes' stacks are taken at a time.
const atOnce = 8

// evidenceOf takes evidence of processes. It is bounded in time as the taking of stacks is.
func evidenceOf(subjects []subject) []job.RankEvidence {
	found := make([]job.RankEvidence, len(subjects))
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, s := range subjects {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] = examined(s)
		})
	}
	wait.Wait()
	fitEvidence(found, maxEvidence)
	return found
}

// examined is the evidence of one process. One that is held writes no stack of its own.
func examined(s subject) (e job.RankEvidence) {
	dir := "/proc/" + strconv.Itoa(s.pid)
	st, ok := readStat(s.pid)
	if !ok {
		return e
	}
	e.State = stateOf(st.state)
	e.Output = s.output[max(0, len(s.output)-maxOutput):]
	kernel := kernelStacks(s.pid)
	if len(kernel) <= maxThreads {
		e.Threads = &job.ThreadsByKind{}
		buf := make([]byte, maxProc)
		for _, t := range kernel {
			if thread, ok := readStatOf(dir+"/task/"+t.ID+"/stat", buf); ok {
				e.Threads.Count(job.ThreadState(thread.state))
			}
		}
	}
	main := mainThread(kernel, s.pid)
	if main == nil {
		return e
	}
	e.Waits = main.Waits
	if at := strings.LastIndexByte(main.Waits, ' '); at >= 0 {
		e.WaitChannel = main.Waits[at+1:]
	}
	e.Source, e.Frames = job.StacksKernel, main.Frames
	if e.State.Held() == "" {
		if better := stacksOf(s.pid, s.stacks); better.Source != job.StacksKernel {
			if main := mainThread(better.Threads, s.pid); main != nil {
				e.Source, e.Frames = better.Source, main.Frames
			}
		}
		e.Collectives = collectivesOf(s.stacks)
	}
	return e
}

// mainThread is the thread in which the program runs: the process's first, or that of Python's main module; nil if there is none.
func mainThread(threads []job.ThreadStack, pid int) *job.ThreadStack {
	for i := range threads {
		if threads[i].ID == strconv.Itoa(pid) {
			return &threads[i]
		}
	}
	for i := range threads {
		if f := threads[i].Frames; len(f) > 0 && strings.HasPrefix(f[len(f)-1], "<module>") {
			return &threads[i]
		}
	}
	if len(threads) > 0 {
		return &threads[0]
	}
	return nil
}
