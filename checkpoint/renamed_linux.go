package checkpoint

import (
	"io/fs"
	"syscall"
)

// renamed reports whether a file's status changed after its last write, as a rename does on Linux's file systems (rename(3p) does not
// require it).
func renamed(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st != nil && st.Ctim.Nano() > st.Mtim.Nano()
}
