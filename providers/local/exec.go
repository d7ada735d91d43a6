package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/execsocket"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Exec asks the incarnation's agent to run a command: only a child of the agent is in its cgroups and ends with it.
func (p *Provider) Exec(ctx context.Context, uid string, slot job.Address, incarnation int, c providers.Command) (code int, err error) {
	if err := checkUID(uid); err != nil {
		return 0, err
	}
	dir := p.dir(key{uid, slot.Role, slot.Index, incarnation})
	if err := regular.CheckPrivate(dir); err != nil {
		return 0, err
	}
	if pid, is := p.stopped(dir); is {
		return 0, fmt.Errorf("its agent (pid %d) is stopped by a signal, and silent: kill -CONT %d lets it go on", pid, pid)
	}
	conn, err := execsocket.Dial(ctx, dir)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing && locked(dir):
		return 0, errors.New("its agent does not run commands: it is starting, or of an earlier version and has to be restarted")
	case missing || errors.Is(err, syscall.ECONNREFUSED):
		return 0, providers.ErrNotRunning
	case err != nil:
		return 0, fmt.Errorf("reach the agent: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request := execsocket.Request{Command: c.Args, Terminal: c.Sizes != nil, Term: cmp.Or(c.Term, "dumb")}
	if c.Agent {
		request.Command = slices.Concat(p.agent, c.Args)
	}
	reply, err := run(conn, request, c)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case execsocket.Over(err):
		return 0, fmt.Errorf("%w any more: it ended before the command did", providers.ErrNotRunning)
	case err != nil:
		return 0, err
	}
	if reply.NotRun != "" {
		fmt.Fprintf(c.Stderr, "eltrain-agent: exec: %s\n", reply.NotRun)
	}
	return reply.Code, nil
}

// stopped returns the agent of an incarnation's directory if it is stopped by a signal.
func (p *Provider) stopped(dir string) (pid int, is bool) {
	var r agentRecord
	if found, err := readJSON(dir, agentFile, &r); err != nil || !found || r.BootID != p.boot {
		return 0, false
	}
	st, err := readStat(r.PID)
	return r.PID, err == nil && st.start == r.Start && st.stopped
}

// run sends a request and waits for the reply.
func run(conn execsocket.Conn, r execsocket.Request, c providers.Command) (execsocket.Reply, error) {
	if r.Terminal {
		return runInTerminal(conn, r, c)
	}
	stdin := c.Stdin
	if stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return execsocket.Reply{}, err
		}
		defer null.Close()
		stdin = null
	}
	if err := conn.Send(r, [...]*os.File{stdin, c.Stdout, c.Stderr}); err != nil {
		return execsocket.Reply{}, err
	}
	return conn.Await()
}

// runInTerminal gives the command a new terminal, and copies between it and the command's streams.
func runInTerminal(conn execsocket.Conn, r execsocket.Request, c providers.Command) (reply execsocket.Reply, err error) {
	master, terminal, err := openTerminal()
	if err != nil {
		return reply, fmt.Errorf("open a terminal: %w", err)
	}
	defer master.Close()
	err = conn.Send(r, [...]*os.File{terminal, terminal, terminal})
	terminal.Close()
	if err != nil {
		return reply, err
	}
	ended := make(chan struct{})
	var copies sync.WaitGroup
	copies.Go(func() { resize(master, c.Sizes, ended) })
	var lost error
	copies.Go(func() {
		if lost = drain(c.Stdout, master, ended); lost != nil {
			conn.Close() // which ends the command: nobody reads what it prints
		}
	})
	if c.Stdin != nil {
		go io.Copy(master, c.Stdin) // until master is closed, and one more byte was read
	}
	reply, err = conn.Await()
	close(ended)
	copies.Wait()
	if lost != nil {
		return execsocket.Reply{Code: 128 + int(unix.SIGPIPE)}, nil
	}
	return reply, err
}

// resize gives a terminal the sizes as they come.
func resize(master *os.File, sizes <-chan providers.TerminalSize, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case size, more := <-sizes:
			if !more {
				return
			}
			control(master, func(fd int) error {
				return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Lines, Col: size.Columns})
			})
		}
	}
}

// drainTime is how long to read a terminal whose command has ended: what it wrote takes no time, and a process that it left behind
// may hold the terminal open.
const drainTime = 250 * time.Millisecond

// drain copies a terminal's output until no process has it open, or its command has ended and no more is there. It fails if it
// cannot write.
func drain(to io.Writer, master *os.File, ended <-chan struct{}) error {
	stop, woken := make(chan struct{}), make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ended:
			master.SetReadDeadline(time.Now()) // for a Read that waits
			close(woken)
		case <-stop:
		}
	}()
	last := false // everything is read from here on until there is no more
	for buf := make([]byte, 32<<10); ; {
		n, err := master.Read(buf)
		if _, lost := to.Write(buf[:n]); lost != nil {
			return lost
		}
		if late := errors.Is(err, os.ErrDeadlineExceeded); err != nil && (!late || last) {
			return nil // without the deadline it is EIO: no process has it open
		} else if late {
			<-woken
		}
		select {
		case <-woken:
			last = true
			master.SetReadDeadline(time.Now().Add(drainTime))
		default:
		}
	}
}

// openTerminal opens a new pseudoterminal: the side of the copier, with deadlines, and the side of the command.
func openTerminal() (master, terminal *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open /dev/ptmx", err)
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	number := 0
	err = control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil { // unlocked
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, terminal, nil
}

// control calls f with a file's descriptor, and leaves it nonblocking.
func control(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(controlErr, err)
}
