package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/eltrain/eltrain/internal/atomicfile"
)

// copyTo is the flag that makes the program only copy itself: with it an init container installs it in any image. It is not
// part of an agent's configuration.
const copyTo = "-copy-to="

// copyAsked returns the path of -copy-to=PATH, which must be the only argument.
func copyAsked(args []string) (path string, asked bool, err error) {
	if len(args) == 0 {
		return "", false, nil
	}
	if path, asked = strings.CutPrefix(args[0], copyTo); asked && (path == "" || len(args) > 1) {
		return "", false, errors.New(copyTo + "PATH takes exactly one path")
	}
	return path, asked, nil
}

// copySelf copies this program to path, atomically.
func copySelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(path, program, 0o755); err != nil {
		return fmt.Errorf("copy %s to %s: %w", self, path, err)
	}
	return nil
}
