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

// The signals that the hook registers, SIGRTMIN+12 and +13 where SIGRTMIN is glibc's 34 and Python's. Programs have uses of their own
// for SIGUSR2. Python's own handler runs between two instructions of a main thread that runs Python. faulthandler interrupts it in the
// midst of one, which crashes Python 3.11 to 3.13 once in some hundred times, and is for a main thread that is in C.
const (
	hookSignal       = unix.Signal(46)
	hookPythonSignal = unix.Signal(47)
)

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
