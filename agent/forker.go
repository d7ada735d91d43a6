package agent

import (
	"os/exec"
	"runtime"
)

// forker starts processes from one thread that lives as long as the agent. PDEATHSIG is sent when the forking thread exits, not
// the process; Go may end threads at any time, so processes started from arbitrary goroutines could be killed at any time.
type forker struct {
	work chan func()
	done chan struct{}
}

func newForker() *forker {
	f := &forker{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		if !onMainThread() {
			f.serve()
			return
		}
		// The main thread never exits before the process. While this goroutine holds it, the new one gets another thread.
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f.serve()
		}()
		<-locked
		runtime.UnlockOSThread()
	}()
	return f
}

// serve forks until close. Its goroutine stays locked to its thread, so the thread exits with it.
func (f *forker) serve() {
	defer close(f.done)
	for fork := range f.work {
		fork()
	}
}

func (f *forker) start(cmd *exec.Cmd) error {
	result := make(chan error)
	f.work <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the thread, and with it the processes that it started.
func (f *forker) close() {
	close(f.work)
	<-f.done
}
