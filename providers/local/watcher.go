package local

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher watches for exits of processes: one epoll over all their pidfds, read by one goroutine.
type watcher struct {
	epoll   int
	wake    int            // eventfd that stops run
	onEnd   func(*process) // called from run, after the process was reaped
	stopped chan struct{}

	mu    sync.Mutex
	procs map[int32]*process // by pidfd
}

func newWatcher(onEnd func(*process)) (*watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(epoll)
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	if err != nil {
		unix.Close(wake)
		unix.Close(epoll)
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	w := &watcher{epoll: epoll, wake: wake, onEnd: onEnd, stopped: make(chan struct{}), procs: map[int32]*process{}}
	go w.run()
	return w, nil
}

// add watches p, which must not be shared yet, until it ends.
func (w *watcher) add(p *process) error {
	fd := int32(p.fd)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.procs[fd] = p
	err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: fd})
	if err != nil {
		delete(w.procs, fd)
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}
	return nil
}

func (w *watcher) run() {
	defer close(w.stopped)
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // an open epoll returns no other error
			slog.Error("Can no longer watch for process exits.", "error", err)
			return
		}
		for _, e := range events[:n] {
			if e.Fd == int32(w.wake) {
				return
			}
			w.mu.Lock()
			p := w.procs[e.Fd]
			delete(w.procs, e.Fd)
			w.mu.Unlock()
			if p != nil {
				// Closing the pidfd would not suffice while a child being forked has it too.
				unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, p.fd, nil)
				p.finish()
				w.onEnd(p)
			}
		}
	}
}

// close stops run and releases every pidfd. The processes keep running.
func (w *watcher) close() {
	one := [8]byte{0: 1}
	unix.Write(w.wake, one[:])
	<-w.stopped
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.procs {
		p.mu.Lock()
		p.release()
		p.mu.Unlock()
	}
	w.procs = nil
	unix.Close(w.epoll)
	unix.Close(w.wake)
}
