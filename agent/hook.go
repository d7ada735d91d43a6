package agent

import (
	_ "embed"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/internal/atomicfile"
	"github.com/eltrain/eltrain/internal/regular"
)

// hookVariable set to off in a role's env starts Python without the hook.
const hookVariable = "ELTRAIN_STACKS_HOOK"

// hookSignal is the one that the hook registers, SIGRTMIN+12 where SIGRTMIN is glibc's 34 and Python's. Programs have uses of their own
// for SIGUSR2.
const hookSignal = unix.Signal(46)

//go:embed hook/sitecustomize.py
var hook []byte

// writeHook writes a directory below dir that is to be in PYTHONPATH, and returns its path.
func writeHook(dir string) (string, error) {
	path := filepath.Join(dir, "python")
	if err := regular.MakePrivate(dir, path); err != nil {
		return "", err
	}
	return path, atomicfile.Write(filepath.Join(path, "sitecustomize.py"), hook, 0o600)
}
