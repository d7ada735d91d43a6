//go:build !linux

package execsocket

import "errors"

// Listen is for Linux: elsewhere a directory cannot be opened for the address, and no provider calls.
func Listen(string) (*Listener, error) { return nil, errors.ErrUnsupported }

// Accept returns the next caller, with its process id.
func (l *Listener) Accept() (Conn, int, error) { return Conn{}, 0, errors.ErrUnsupported }
