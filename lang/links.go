package lang

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// maxLinks is how many symbolic links Linux follows in one path before it calls them a loop (path_resolution(7)).
const maxLinks = 40

// linkLoop follows the symbolic links of a path up to the first one seen twice. It returns nil if the links of the last
// element form no loop; then one of the directories in the path may.
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

// loopError names the links that form a cycle, or returns err if they are unknown.
func loopError(loop []string, err error) error {
	if loop == nil {
		return err
	}
	return fmt.Errorf("these symbolic links form a cycle: %s; remove them, or point one to a file", quoted(loop, " -> "))
}
