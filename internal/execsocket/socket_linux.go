package execsocket

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// at is the path of the socket in an open directory: an address has at most 108 bytes (unix(7)), and paths of directories may have
// more.
func at(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name) }

func open(dir string) (*os.File, error) {
	return os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Listen makes the socket, in a directory that only its user may enter.
func Listen(dir string) (*Listener, error) {
	d, err := open(dir)
	if err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at(d), Net: "unix"})
	if err == nil {
		err = os.Chmod(at(d), 0o600)
	}
	if err != nil {
		if l != nil {
			l.Close()
		}
		d.Close()
		return nil, err
	}
	return &Listener{l, d}, nil
}

// Accept returns the next caller, with its process id. Callers of other users than this process's and root are turned away.
func (l *Listener) Accept() (c Conn, pid int, err error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return Conn{}, 0, err
		}
		peer, err := peerOf(conn)
		if err == nil && trusted(peer.Uid) {
			return Conn{conn}, int(peer.Pid), nil
		}
		conn.Close()
	}
}

// trusted reports whether a user may run commands here.
func trusted(uid uint32) bool { return uid == 0 || uid == uint32(os.Geteuid()) }

func peerOf(c *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil {
		return nil, controlErr
	}
	return peer, err
}

// Dial connects to the agent whose directory is dir.
func Dial(ctx context.Context, dir string) (Conn, error) {
	d, err := open(dir)
	if err != nil {
		return Conn{}, err
	}
	defer d.Close()
	c, err := new(net.Dialer).DialContext(ctx, "unix", at(d))
	if err != nil {
		return Conn{}, err
	}
	return Conn{c.(*net.UnixConn)}, nil
}
