package view

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/job"
)

// What time alone changes is no change; a step is.
func TestStatusWatchShowsOnlyWhatChanged(t *testing.T) {
	for _, machine := range []bool{false, true} {
		var in statusCase
		input(t, filepath.Join("status", "running", "facts.json"), &in)
		var out bytes.Buffer
		w := StatusWatch{Watch: Watch{Screen: Screen{Writer: &out}, JSON: machine, Now: still}}
		show := func() string {
			t.Helper()
			out.Reset()
			if err := w.Show(in.model()); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		first := show()
		if !machine && !strings.HasPrefix(first, "2026-01-01 00:00:00\njob.") {
			t.Errorf("the first block is\n%s", first)
		}
		for _, record := range in.Facts.Records {
			record.Goodput.Wall += 100
		}
		if again := show(); again != "" {
			t.Errorf("JSON %t: nothing changed but the time, and it prints\n%s", machine, again)
		}
		in.Facts.Records["mnist"].Phase = job.JobFailed
		changed := show()
		if machine && (strings.Count(changed, "\n") != 1 || !json.Valid([]byte(changed))) {
			t.Errorf("a change is no line of JSON: %q", changed)
		}
		if !machine && !strings.HasPrefix(changed, "\n2026-01-01 00:00:00\n") {
			t.Errorf("a later block is\n%s", changed)
		}
	}
}

// A terminal is cleared once, and then redrawn from its first row, without scrolling.
func TestStatusWatchRedrawsATerminal(t *testing.T) {
	var in statusCase
	input(t, filepath.Join("status", "running", "facts.json"), &in)
	var out bytes.Buffer
	lines := 100
	w := StatusWatch{Watch: Watch{Screen: Screen{Writer: &out, Terminal: true, Size: func() (int, int) { return 300, lines }}, Now: still}, Brief: true}
	for i, begin := range []string{clearScreen, "", home} {
		out.Reset()
		if i == 2 {
			lines = 5
		}
		if err := w.Show(in.model()); err != nil {
			t.Fatal(err)
		}
		switch got := out.String(); {
		case begin == "" && got != "":
			t.Errorf("an unchanged text is drawn again: %q", got)
		case begin != "" && (!strings.HasPrefix(got, begin+"JOB") || !strings.HasSuffix(got, clearBelow)):
			t.Errorf("draw %d is %q", i, got)
		case i == 2 && (strings.Count(got, "\n") != 4 || !strings.Contains(got, "more lines")):
			t.Errorf("on a terminal of 5 lines it draws %q", got)
		}
	}
}

func TestFittingCountsTheRowsOfLongLines(t *testing.T) {
	for _, c := range []struct {
		text          string
		columns, rows int
		want          string
	}{
		{"a\nb\n", 10, 3, "a\nb\n"},
		{"a\nb\nc\n", 10, 3, "a\n... 2 more lines\n"},
		{"aaaaaaaaaaa\nb\n", 10, 4, "aaaaaaaaaaa\nb\n"},
		{"x\naaaaaaaaaaa\nb\nc\n", 10, 4, "x\n... 3 more lines\n"},
		{"\x1b[1maaaaaaaaaa\x1b[0m\nb\n", 10, 3, "\x1b[1maaaaaaaaaa\x1b[0m\nb\n"},
		{"a\nb\nc\n", 0, 0, "a\nb\nc\n"}, // of unknown size
	} {
		if got := fitting(c.text, c.columns, c.rows); got != c.want {
			t.Errorf("%q on %dx%d gives %q, want %q", c.text, c.columns, c.rows, got, c.want)
		}
	}
}
