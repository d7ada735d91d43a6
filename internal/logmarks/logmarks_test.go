package logmarks

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func at(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0).UTC() }

func TestMarksAreReadAsWritten(t *testing.T) {
	log := filepath.Join(t.TempDir(), "a.log")
	w := Begin(log, Mark{Incarnation: 1, UID: "u1"})
	w.Write(at(0), 0)
	w.Write(at(0), 50_000) // too soon
	w.Write(at(2), 100)    // too little
	w.Write(at(3), 60_000)
	w.Write(at(13), 60_100)
	w.Close()
	f, err := os.OpenFile(log+Ext, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(at(20).Format(time.RFC3339) + " 70") // killed
	f.Close()
	w = Begin(log, Mark{Incarnation: 2, UID: "u1"})
	w.Write(at(21), 70_000)
	defer w.Close()
	check := func(want ...Mark) {
		t.Helper()
		got, err := Read(log)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%v, %v; want %v", got, err, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v, want %v", got[i], want[i])
			}
		}
	}
	check(Mark{at(0), 0, 1, "u1"}, Mark{at(3), 60_000, 1, "u1"}, Mark{at(13), 60_100, 1, "u1"}, Mark{at(21), 70_000, 2, "u1"})
	w.Write(at(40), 10) // the log was truncated
	check(Mark{at(0), 0, 1, "u1"}, Mark{at(40), 10, 2, "u1"})
	w.Rotate(log + ".1")
	check()
	w.Write(at(41), 0)
	check(Mark{at(41), 0, 2, "u1"})
}

func TestWhatMarksSelect(t *testing.T) {
	marks := []Mark{{at(0), 0, 1, "u0"}, {at(100), 10, 1, "u1"}, {at(105), 20, 1, "u1"}, {at(200), 30, 3, "u1"}, {at(300), 40, 4, "u1"}}
	for seconds, want := range map[int]int64{-50: 0, 9: 0, 10: 10, 50: 10, 104: 10, 105: 20, 114: 20, 115: 30, 250: 40, 309: 40, 310: 99} {
		if got := Since(marks, at(seconds), 99); got != want {
			t.Errorf("since %d: %d, want %d", seconds, got, want)
		}
	}
	if got := Since(nil, at(0), 99); got != 0 {
		t.Errorf("without marks: %d", got)
	}
	for uid, want := range map[string]int64{"u0": 0, "u1": 10, "other": 99} {
		if got := Of(marks, uid, 99); got != want {
			t.Errorf("of %s: %d, want %d", uid, got, want)
		}
	}
	for _, c := range []struct {
		uid      string
		before   int
		from, to int64
		found    bool
	}{
		{"u1", 1, 0, 0, false}, {"u1", 3, 10, 30, true}, {"u1", 4, 30, 40, true}, {"u1", 5, 40, 99, true},
		{"", 4, 30, 40, true}, {"u0", 2, 0, 10, true}, {"other", 9, 0, 0, false},
	} {
		if from, to, found := Previous(marks, c.uid, c.before, 99); from != c.from || to != c.to || found != c.found {
			t.Errorf("%q before %d: %d, %d, %v", c.uid, c.before, from, to, found)
		}
	}
}
