package view

import (
	"bytes"
	"io"
	"testing"
)

// Each line of a message has the time, an empty one too, and a line that is written in parts has it once.
func TestTimestamps(t *testing.T) {
	var out bytes.Buffer
	s := Timestamped(Screen{Writer: &out, Width: 78}, still)
	for _, part := range []string{"one\ntwo\n", "\n", "Enter", " a value: ", "yes\n", "", "last\n\n"} {
		if n, err := io.WriteString(s, part); n != len(part) || err != nil {
			t.Errorf("writing %q: %d, %v", part, n, err)
		}
	}
	const at = "2026-01-01T00:00:00.000Z"
	want := at + " one\n" + at + " two\n" + at + "\n" + at + " Enter a value: yes\n" + at + " last\n" + at + "\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if s.Width != 78 {
		t.Errorf("a file is wrapped at %d", s.Width)
	}
}
