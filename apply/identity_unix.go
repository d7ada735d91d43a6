//go:build unix

package apply

import (
	"io/fs"
	"syscall"
)

// identity is the file's inode, which distinguishes files of the same size and time.
func identity(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}
