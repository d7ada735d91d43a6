// Command alone reads a job directory, and says what came of it and how many bytes of memory it had at most. A test that
// holds how much memory and time a directory takes runs it: in a process of its own, built without the race detector, nothing
// else counts.
package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/eltrain/eltrain/lang"
)

func main() {
	cfg, diags := lang.Load(os.Args[1], lang.Options{})
	fmt.Println(len(cfg.Jobs), len(diags), diags.HasErrors(), peak())
}

// peak is the most memory that this process had; 0 where the system does not say. What wait4(2) tells its parent is no
// measure of it: between vfork and exec a child has its parent's memory, and that counts.
func peak() (size int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &size); err == nil {
			return size << 10
		}
	}
	return 0
}
