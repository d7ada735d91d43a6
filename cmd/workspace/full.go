package workspace

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// MakeRoom adds advice to an error of a full disk. It returns others unchanged.
func MakeRoom(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	return fmt.Errorf("%w.\n\nNothing changes until it can be recorded; jobs keep running. Free a few MiB on that disk and run the command again. Of eltrain's own files, the logs of jobs that are gone (in %s) can be removed", err, filepath.Join(RunDirectory, "logs"))
}
