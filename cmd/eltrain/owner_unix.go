//go:build unix

package main

import (
	"io/fs"
	"syscall"
)

// ownedByRoot tells whether a file is root's.
func ownedByRoot(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
