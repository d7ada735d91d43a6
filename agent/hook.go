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

// The signals of the hook's thread, SIGRTMIN+12 and +13 where SIGRTMIN is glibc's 34 and Python's. Programs have uses of their own for
// SIGUSR2. The thread waits for askSignal, and then writes the stacks once it has the interpreter: all others stand between two
// instructions or in C. Upon dumpSignal faulthandler writes them at once, which crashes Python 3.11 to 3.13 once in some hundred times
// if a thread is in the midst of an instruction, and is for an interpreter that is held in C.
const (
	dumpSignal = unix.Signal(46)
	askSignal  = unix.Signal(47)
)

// stacksThread is the name of the hook's thread.
const stacksThread = "eltrain-stacks"

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
