package lang

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// maxLinks is how many symbolic links Linux follows in one path before it calls them a loop (path_resolution(7)).
const maxLinks = 40

// linkLoop follows the symbolic links that a path leads through, as far as the first that was met before. It is nil if
// they are no loop by themselves: one of the directories on the way may be.
func linkLoop(path string) []string {
	var chain []string
	for range maxLinks {
		path = filepath.Clean(path)
		chain = append(chain, path)
		if slices.Index(chain, path) < len(chain)-1 {
			return chain
		}
		to, err := os.Readlink(path)
		if err != nil {
			return nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return nil
}

// loopError says which links lead round in a circle. Where that is not known, err has to do.
func loopError(loop []string, err error) error {
	if loop == nil {
		return err
	}
	return fmt.Errorf("these symbolic links form a cycle: %s; remove them, or point one to a file", quoted(loop, " -> "))
}
