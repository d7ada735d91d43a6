// Package execsocket is the Unix socket through which an agent runs commands for other processes of its user. The caller passes
// the command's standard streams as open files, so their content does not pass through the agent.
//
// A connection is one command: the caller sends a Request with its files, and the agent answers with a Reply when the command has
// ended. If the caller closes the connection before, as the kernel does when it is killed, the agent ends the command.
package execsocket

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// name is the socket's file in the incarnation's directory.
	name = "exec.sock"
	// maxRequest bounds a request: no command line is longer (MAX_ARG_STRLEN of execve(2) times a few).
	maxRequest = 1 << 20
	// requestWait is how long an agent waits for the request of a caller that has connected.
	requestWait = 10 * time.Second
	streams     = 3
)

// Request is a command.
type Request struct {
	Command []string `json:"command"`
	// Terminal makes the input stream, a terminal, the controlling terminal of the command. Its TERM is Term.
	Terminal bool   `json:"terminal,omitempty"`
	Term     string `json:"term,omitempty"`
}

// Reply is how a command ended, or why it was not started.
type Reply struct {
	Code   int    `json:"code"` // as shells report it
	NotRun string `json:"not_run,omitempty"`
}

// Listener accepts callers. Close also removes the socket.
type Listener struct {
	*net.UnixListener
	dir *os.File
}

// Close stops listening.
func (l *Listener) Close() error { return errors.Join(l.UnixListener.Close(), l.dir.Close()) }

// Conn is one command, at either end.
type Conn struct{ *net.UnixConn }

// Send sends a request with the command's input, output and error streams. They can be closed afterwards.
func (c Conn) Send(r Request, files [streams]*os.File) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(text) > maxRequest {
		return fmt.Errorf("the command line has more than %d bytes", maxRequest)
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err = c.Write(text)
	return err
}

// Receive returns the caller's request, and the streams, which the caller of Receive closes.
func (c Conn) Receive() (r Request, files [streams]*os.File, err error) {
	if err := c.SetReadDeadline(time.Now().Add(requestWait)); err != nil {
		return r, files, err
	}
	oob := make([]byte, unix.CmsgSpace(streams*4)) // more descriptors than that are closed by the kernel
	first := make([]byte, 1)
	n, oobn, _, _, err := c.ReadMsgUnix(first, oob)
	if err != nil {
		return r, files, err
	}
	fds, err := descriptors(oob[:oobn])
	if err == nil && (n != 1 || len(fds) != streams) {
		err = errors.New("the request has no streams")
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(c, maxRequest)).Decode(&r)
	}
	if err == nil && len(r.Command) == 0 {
		err = errors.New("the request has no command")
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return r, files, err
	}
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "stream")
	}
	return r, files, nil
}

// descriptors are the open files in a control message.
func descriptors(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return all, err
		}
		all = slices.Concat(all, fds)
	}
	return all, nil
}

// Reply sends how the command ended.
func (c Conn) Reply(r Reply) error { return json.NewEncoder(c).Encode(r) }

// Await waits for the reply. If the agent has ended before, the error is io.EOF or syscall.ECONNRESET.
func (c Conn) Await() (r Reply, err error) {
	err = json.NewDecoder(io.LimitReader(c, maxRequest)).Decode(&r)
	return r, err
}

// Over reports whether an error of Await means that the agent ended first.
func Over(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
