// Command alone reads a job directory, and says what came of it. A test that holds how much memory and time a directory
// takes runs it: in a process of its own, built without the race detector, nothing else counts.
package main

import (
	"fmt"
	"os"

	"github.com/eltrain/eltrain/lang"
)

func main() {
	cfg, diags := lang.Load(os.Args[1], lang.Options{})
	fmt.Println(len(cfg.Jobs), len(diags), diags.HasErrors())
}
