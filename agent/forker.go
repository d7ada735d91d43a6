package agent

import (
	"os/exec"
	"runtime"
)

// forker starts processes from one thread that lives as long as the agent does. PDEATHSIG is sent when the
// thread that forked ends, not the process; Go ends threads as it likes, so processes started from any
// goroutine could be killed at any time.
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
		// The main thread does not end before the process. While it is held here, the other is on another.
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

// serve forks until close. Its goroutine is locked to its thread and never unlocked: the thread ends with it.
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

// close ends the thread, and with it what it started.
func (f *forker) close() {
	close(f.work)
	<-f.done
}
