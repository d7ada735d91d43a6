// Package trainlog reads the events that the training scripts of the tests, the examples and the benchmarks write with
// --events: JSON lines that all processes of a job append to one file, each line in one write(2).
package trainlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// first is the beginning of each line. It cannot occur later in a line, because strings have their quotes escaped.
const first = `{"ev": `

// Read returns the events in a file so far, in the order of their lines. It skips a line that is still incomplete, and one
// whose process was killed during the write: Linux cuts such a write at a page of the file, and the next process's line follows
// there. It is an error if there is no file (fs.ErrNotExist), or if it contains anything else.
func Read[T any](path string) ([]T, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []T
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		whole := line[max(0, bytes.LastIndex(line, []byte(first))):]
		var event T
		if err := json.Unmarshal(whole, &event); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, line)
		}
		all = append(all, event)
	}
	return all, nil
}
