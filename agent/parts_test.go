package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/checkpoint"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/logmarks"
	"github.com/eltrain/eltrain/job"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func TestErrorFiles(t *testing.T) {
	long := strings.Repeat("x", 2*maxErrorFile)
	tensors := strings.Repeat("mismatch,", 10_000)
	tests := []struct {
		name, text string
		want       failure
		ok         bool
	}{
		{"as @record writes it", `{"message": {"message": "ValueError: boom", "extraInfo": {"timestamp": "1795188327"}}}`, failure{message: "ValueError: boom", at: 1795188327}, true},
		{"plain message, timestamp beside it", `{"message": "boom", "timestamp": 1795188327}`, failure{message: "boom", at: 1795188327}, true},
		{"no timestamp", `{"message": "boom"}`, failure{message: "boom", at: 0}, true},
		{"timestamp that is none", `{"message": "boom", "timestamp": "soon"}`, failure{message: "boom", at: 0}, true},
		{"fraction of a second", `{"message": {"message": "boom", "extraInfo": {"timestamp": 1795188327.9}}}`, failure{message: "boom", at: 1795188327}, true},
		{"no JSON", "boom\n", failure{message: "boom", at: 0}, true},
		{"message of neither shape", `{"message": 3}`, failure{message: `{"message": 3}`, at: 0}, true},
		{"cut off", `{"message": {"mess`, failure{message: `{"message": {"mess`, at: 0}, true},
		{"not UTF-8, and an escape", "{\"message\": \"a\xff\\u001bb\"}", failure{message: "a\uFFFD\uFFFDb", at: 0}, true},
		{"a right-to-left override", `{"message": "a\u202eb\u2066"}`, failure{message: "a\uFFFDb\uFFFD", at: 0}, true},
		{"empty", "  \n", failure{}, false},
		{"long, with its call stack", `{"message": {"message": "` + tensors + `", "extraInfo": {"py_callstack": "Traceback\\n` + tensors + `", "timestamp": "1795188327"}}}`,
			failure{message: tensors[:maxMessage], at: 1795188327}, true},
		{"far too long", long, failure{message: long[:maxMessage], at: 0}, true},
	}
	for _, test := range tests {
		path := filepath.Join(t.TempDir(), "error.json")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, ok := readErrorFile(path)
		if ok == got.written.IsZero() {
			t.Errorf("%s: written at %v", test.name, got.written)
		}
		if got.written = (time.Time{}); got != test.want || ok != test.ok {
			t.Errorf("%s: got %.200q at %d, %v", test.name, got.message, got.at, ok)
		}
	}
	if _, ok := readErrorFile("/no/such/file"); ok {
		t.Error("read a file that does not exist")
	}
}

// A training process can put anything in place of its error file and of the slot's log.
func TestIrregularFilesAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink("/dev/zero", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, dir} {
		if f, ok := readErrorFile(path); ok {
			t.Errorf("%s as an error file: %.80q", path, f.message)
		}
		if s, err := openSink(path, logmarks.Mark{}, quiet); err == nil {
			s.close()
			t.Errorf("%s is opened as a log", path)
		}
	}
}

func TestLogIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s, err := openSink(path, logmarks.Mark{}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v", info, err)
	}
}

// A report that the service refuses for its size would never get through.
func TestExitFitsIntoAReport(t *testing.T) {
	e := job.Exit{Code: 1, Message: strings.Repeat("<", maxMessage)}
	for range tailLines {
		e.Tail = append(e.Tail, strings.Repeat("&", maxTailLine))
	}
	text, err := json.Marshal(fit(e, maxExit))
	if err != nil || len(text) > maxExit {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if e = fit(e, job.LastWordSize); len(e.Tail) != 0 || len(e.Message) < (job.LastWordSize-200)/len("\\u003c")/2 {
		t.Errorf("%d bytes of the message are left, and the tail %q", len(e.Message), e.Tail)
	}
	where := job.Exit{NotStarted: "directory " + strings.Repeat("é", job.LastWordSize)}
	if text, err := json.Marshal(fit(where, job.LastWordSize)); err != nil || len(text) > job.LastWordSize || strings.Contains(string(text), `\ufffd`) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	small := job.Exit{Code: 1, Message: "boom", Tail: []string{"last"}}
	if diff := cmp.Diff(small, fit(small, maxExit)); diff != "" {
		t.Errorf("a small exit was changed:\n%s", diff)
	}
}

// linesOf runs a reader over pieces of output.
func linesOf(t require, pieces ...[]byte) (lines []string, r *reader) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r = newReader(out, "[p] ", &log, func([]byte) {})
	go r.run()
	for _, piece := range pieces {
		if _, err := in.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	r.drain()
	for line := range strings.Lines(log.String()) {
		text, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "[p] ")
		if !ok {
			t.Fatalf("%q has no prefix", line)
		}
		lines = append(lines, text)
	}
	return lines, r
}

// held is a writer that blocks for a while.
type held struct {
	bytes.Buffer
	until <-chan struct{}
}

func (h *held) Write(b []byte) (int, error) {
	<-h.until
	return h.Buffer.Write(b)
}

// What is in the pipe at the deadline is still read, without waiting for whoever holds the pipe open.
func TestOutputThatIsReadLateIsWhole(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() // like a process that left the group
	free := make(chan struct{})
	log := &held{until: free}
	r := newReader(out, "", log, func([]byte) {})
	go r.run()
	line := strings.Repeat("x", 99) + "\n"
	const lines = 3 * readSize / 100
	if _, err := in.WriteString(strings.Repeat(line, lines)); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		r.drain()
		close(drained)
	}()
	time.Sleep(2 * drainTime)
	close(free)
	select {
	case <-drained:
	case <-time.After(patience):
		t.Fatal("it waits for more")
	}
	if n := strings.Count(log.String(), line); n != lines {
		t.Errorf("%[2]d of %[1]d lines in the pipe were read", lines, n)
	}
}

type require interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// However output is split into pieces, the lines are the same.
func TestOutputIsTheSameHoweverItIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n\r")), 0, 60, -1).Draw(t, "text")
		var pieces [][]byte
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		got, _ := linesOf(t, pieces...)
		ended := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
		want := strings.Split(ended, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
			t.Fatalf("%q gave %q", text, got)
		}
	})
}

func TestLongLinesAreSplit(t *testing.T) {
	lines, r := linesOf(t, bytes.Repeat([]byte("x"), 2*maxLine+5), []byte("\nnext\n"))
	var lengths []int
	for _, line := range lines {
		lengths = append(lengths, len(line))
	}
	if diff := cmp.Diff([]int{maxLine, maxLine, 5, 4}, lengths); diff != "" {
		t.Errorf("lengths (-want +got):\n%s", diff)
	}
	if tail := r.last(); len(tail) != 4 || len(tail[0]) != maxTailLine || tail[3] != "next" {
		t.Errorf("the tail has %d lines", len(tail))
	}
	if cap(r.out) > 4*readSize {
		t.Errorf("one long line costs %d bytes forever", cap(r.out))
	}
}

func TestLogIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxLog-11); err != nil {
		t.Fatal(err)
	}
	s, err := openSink(path, logmarks.Mark{UID: "u", Incarnation: 2}, quiet) // the existing content is incomplete
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	fmt.Fprint(s, "fits\n")
	fmt.Fprint(s, "does not fit\n")
	now, err := os.ReadFile(path)
	if err != nil || string(now) != "does not fit\n" {
		t.Errorf("the log has %q, %v", now, err)
	}
	if marks, err := logmarks.Read(path); err != nil || len(marks) != 1 || marks[0].Offset != 0 {
		t.Errorf("the new log has the marks %v, %v", marks, err)
	}
	old, err := os.ReadFile(path + ".1")
	if err != nil || len(old) != maxLog-10+5 || !bytes.HasSuffix(old, []byte("\x00\nfits\n")) {
		t.Errorf("the old log has %d bytes, %v", len(old), err)
	}
}

// An incomplete last line of a killed agent is not joined with its successor's first line.
func TestLogGoesOnAtALineOfItsOwn(t *testing.T) {
	for before, want := range map[string]string{"": "new\n", "old\n": "old\nnew\n", "[rank 0] hal": "[rank 0] hal\nnew\n"} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := openSink(path, logmarks.Mark{}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.Write([]byte("new\n")); n != len("new\n") || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		s.close()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("after %q the log has %q, %v", before, got, err)
		}
	}
}

// No part of a line that is too long is taken for a line: it may begin or end with anything.
func TestSplitLinesTellNoProgress(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	r := newReader(out, "", io.Discard, func(line []byte) { seen = append(seen, string(line)) })
	go r.run()
	whole := strings.Repeat("x", maxLine)
	fmt.Fprint(in, whole+"saved step 5\nsaved step 10\n"+whole+"\n"+whole+"x\rsaved step 20\n")
	in.Close()
	<-r.done
	if !slices.Equal(seen, []string{"saved step 10", whole, "saved step 20"}) {
		t.Errorf("seen are %d lines: %.100q", len(seen), seen)
	}
}

// Whatever was in the place of a FIFO is gone, and nobody who writes to it after its process has ended is waited for.
func TestAFIFOIsTheAgentsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1-0.progress")
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Fatal(err)
	}
	if f, err := openFIFO("/dev/null", syscall.O_RDONLY); err == nil {
		f.Close()
		t.Error("a device was opened as a FIFO")
	}
	var seen []string
	s, err := openSaid(path, func(line []byte) { seen = append(seen, string(line)) })
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.OpenFile(path, os.O_WRONLY, 0) // as by a process that left the group
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	fmt.Fprint(left, "one\ntwo\nthr")
	s.close()
	if !slices.Equal(seen, []string{"one", "two"}) {
		t.Errorf("read %q", seen)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if s, err := openSaid(filepath.Join(t.TempDir(), "no", "directory"), nil); err == nil {
		s.close()
		t.Error("a FIFO was made where there is no directory")
	}
}

// An incomplete last line is kept, but no progress is read from it.
func TestUnendedLineTellsNoProgress(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var seen []string
	r := newReader(out, "", &log, func(line []byte) { seen = append(seen, string(line)) })
	go r.run()
	fmt.Fprint(in, "saved step 5\nsaved step 10")
	in.Close()
	r.drain()
	if !slices.Equal(seen, []string{"saved step 5"}) || log.String() != "saved step 5\nsaved step 10\n" || !slices.Equal(r.last(), []string{"saved step 5", "saved step 10"}) {
		t.Errorf("seen %q, the log has %q, the last are %q", seen, log.String(), r.last())
	}
}

func TestFullDiskDoesNotStopTraining(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	var said bytes.Buffer
	s := &sink{log: slog.New(slog.NewTextHandler(&said, nil)), w: full}
	for range 3 {
		if n, err := s.Write([]byte("line\n")); n != 5 || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
	}
	if n := strings.Count(said.String(), "cannot write the output of the processes"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// reported is the progress that a meter would report.
func reported(m *meter, at time.Time) elastic.Report {
	var r outgoing
	m.report(&r, at)
	return r.Report
}

func meterBy(t *testing.T, by *elastic.Progress, checkpoint string) *meter {
	t.Helper()
	m, err := newMeter(checkpoint)
	if err == nil {
		err = m.readBy(by)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What is read in another way begins anew, in processes that run too, except what a process says itself.
func TestProgressIsReadInAnotherWay(t *testing.T) {
	m := meterBy(t, &elastic.Progress{Pattern: `step (?P<step>\d+)`}, "")
	at := time.Unix(1000, 0)
	prints, says := m.begin(1), m.begin(1)
	prints.see([]byte("step 7 of batch 70"), at)
	if _, err := says.say([]byte(`{"step": 5}`), at); err != nil {
		t.Fatal(err)
	}
	if err := m.readBy(&elastic.Progress{Pattern: "("}); err == nil || *reported(m, at).Ranks[0].Progress.Step != 7 {
		t.Errorf("an invalid pattern changes something, or is none (%v)", err)
	}
	if err := m.readBy(&elastic.Progress{Pattern: `batch (?P<step>\d+)`}); err != nil {
		t.Fatal(err)
	}
	if got := reported(m, at); got.Step != 5 || got.Ranks[0].Progress != nil || *got.Ranks[1].Progress.Step != 5 {
		t.Errorf("before the next line: %+v", got)
	}
	if worth, _ := prints.see([]byte("step 8 of batch 80"), at); !worth {
		t.Error("the first step of the other way waits for the beat")
	}
	if got := reported(m, at); got.Step != 80 || got.FirstStep != 80 || *got.Ranks[1].Progress.Step != 5 {
		t.Errorf("after it: %+v", got)
	}
}

func TestProgress(t *testing.T) {
	m := meterBy(t, &elastic.Progress{Pattern: `step (?P<step>\d+)(?: loss (?P<loss>\S+))?`}, "")
	at := time.Unix(1000, 0)
	ahead, behind := m.begin(1), m.begin(1)
	see := func(r *rankMeter, line string) elastic.Report {
		r.see([]byte(line), at)
		return reported(m, at)
	}
	if r := see(ahead, "epoch 3"); r.Step != 0 || r.Ranks[0].Progress != nil {
		t.Errorf("read %+v from another line", r)
	}
	for step := range 100 {
		see(ahead, fmt.Sprintf("step %d loss 0.25", step))
		at = at.Add(100 * time.Millisecond)
	}
	r := reported(m, at)
	if r.Step != 99 || r.FirstStep != 0 || *r.Loss != 0.25 || r.StepRate < 9.9 || r.StepRate > 10.1 {
		t.Errorf("after 100 steps at 10/s: %+v", r)
	}
	if p := r.Ranks[0].Progress; p.By != job.OwnPattern || *p.Step != 99 || *p.FirstStep != 0 || *p.StepAge <= 0 || *p.StepAge > 0.2 {
		t.Errorf("the rank is at %+v", p)
	}
	if r := see(behind, "step 50 loss 9"); r.Step != 99 || *r.Loss != 0.25 || *r.Ranks[1].Progress.Step != 50 {
		t.Errorf("a slower rank counts: %+v", r)
	}
	if r := reported(m, at.Add(100*time.Second)); r.StepRate > 1 || *r.Ranks[0].Progress.StepAge < 100 {
		t.Errorf("the rate does not fall when steps stop: %+v", r)
	}
	second := m.begin(2)
	if r := reported(m, at); r.Step != 99 || r.Loss != nil || r.StepRate != 0 || len(r.Ranks) != 1 || r.Ranks[0].Progress != nil {
		t.Errorf("a new generation that has shown nothing yet: %+v", r)
	}
	if r := see(second, "step 40 loss 9"); r.Step != 40 || r.FirstStep != 40 || *r.Loss != 9 || r.StepRate != 0 {
		t.Errorf("a new generation from an older checkpoint: %+v", r)
	}
	if r := see(ahead, "step 100 loss 1"); r.Step != 40 {
		t.Errorf("a late line of the old generation counts: %+v", r)
	}
	see(second, "step 20")
	if r := see(second, "step 21"); r.Step != 21 || r.FirstStep != 21 {
		t.Errorf("a program that went back to step 20: %+v", r)
	}
	for _, bad := range []string{"(", "loss (?P<loss>.*)"} {
		if _, err := tableOf(&elastic.Progress{Pattern: bad}); err == nil {
			t.Errorf("pattern %q was accepted", bad)
		}
		if _, err := newMeter(bad); err == nil || !strings.Contains(err.Error(), "checkpoint pattern") {
			t.Errorf("pattern %q of checkpoints: %v", bad, err)
		}
	}
}

// Without a pattern known frameworks are recognized. A bar that says only how much of an epoch is done does not say the step.
func TestProgressWithoutAPattern(t *testing.T) {
	m := meterBy(t, nil, "")
	r, at := m.begin(1), time.Unix(1000, 0)
	r.see([]byte("train:  52%|█████▏    | 1044/2000 [00:01<00:01, 864.83it/s, loss=0.5]"), at)
	if got := reported(m, at); got.Step != 0 || *got.Ranks[0].Progress.Step != 1044 || !got.Ranks[0].Progress.Counted {
		t.Errorf("from a bar of an epoch: %+v", got)
	}
	worth, recognized := r.see([]byte("iter 3010: loss nan, time 1019.95ms, mfu 14.12%"), at)
	if got := reported(m, at); !worth || recognized != "nanogpt" || got.Step != 3010 || got.FirstStep != 3010 {
		t.Errorf("recognized %q: %+v", recognized, got)
	}
	if _, other := reported(m, at).Loss.Finite(); other != "NaN" {
		t.Errorf("the loss is %q", other)
	}
}

// Recognizers of the job's own come before the known ones.
func TestProgressByOwnRecognizers(t *testing.T) {
	m := meterBy(t, &elastic.Progress{Recognizers: `[{"name": "mine", "patterns": ["step (?P<epoch>\\d+) loss (?P<step>\\d+)"]}]`}, "")
	r, at := m.begin(1), time.Unix(1000, 0)
	r.see([]byte("step 7 loss 12"), at)
	if got := reported(m, at); got.Step != 12 || got.Ranks[0].Progress.By != "mine" {
		t.Errorf("read %+v", got.Ranks[0].Progress)
	}
	if _, err := tableOf(&elastic.Progress{Recognizers: "{"}); err == nil {
		t.Error("half a list was accepted")
	}
}

func TestCheckpointsAreReadFromTheOutput(t *testing.T) {
	m := meterBy(t, &elastic.Progress{Pattern: `step (?P<step>\d+) loss`}, `saved step (?P<step>\d+)`)
	at := time.Unix(1000, 0)
	ranks := map[int]*rankMeter{1: m.begin(1)}
	for _, line := range []struct {
		what       string
		generation int
		text       string
		want       job.Saved
		wantStep   int64
	}{
		{"a step is no checkpoint", 1, "step 9 loss 1", job.Saved{}, 9},
		{"the first", 1, "saved step 5 loss 7", job.Saved{Step: 5, Generation: 1}, 9},
		{"a newer one", 1, "rank 0: saved step 10", job.Saved{Step: 10, Generation: 1}, 9},
		{"a rank that lags behind", 1, "saved step 5", job.Saved{Step: 10, Generation: 1}, 9},
		{"a number beyond all", 1, "saved step 99999999999999999999", job.Saved{Step: 10, Generation: 1}, 9},
		{"a world that has written none yet", 2, "step 8 loss 1", job.Saved{Step: 10, Generation: 1}, 8},
		{"a late line of the old world", 1, "saved step 11", job.Saved{Step: 11, Generation: 1}, 8},
		{"of a world that went on from an older one", 2, "saved step 7", job.Saved{Step: 7, Generation: 2}, 8},
		{"a later line of the old world", 1, "saved step 12", job.Saved{Step: 7, Generation: 2}, 8},
	} {
		if ranks[line.generation] == nil {
			ranks[line.generation] = m.begin(line.generation)
		}
		ranks[line.generation].see([]byte(line.text), at)
		if r := reported(m, at); r.Saved != line.want || r.Step != line.wantStep {
			t.Errorf("%s: %+v, want %+v and step %d", line.what, r, line.want, line.wantStep)
		}
	}
}

// A checkpoint is reported at once, like a first step; shortly after another report it goes with the next.
func TestACheckpointIsWorthTelling(t *testing.T) {
	m := meterBy(t, &elastic.Progress{Pattern: `step (?P<step>\d+)`}, `saved (?P<step>\d+)`)
	begin := time.Unix(1000, 0)
	r := m.begin(1)
	for _, line := range []struct {
		after time.Duration
		text  string
		want  bool
	}{
		{0, "saved 5", true},
		{time.Second, "saved 6", false},   // it goes with the next
		{progressEvery, "saved 6", false}, // already known
		{progressEvery, "saved 7", true},
		{progressEvery, "step 8", true}, // the first of its process
		{progressEvery + time.Second, "saved 8", false},
		{2 * progressEvery, "step 9", true},
	} {
		if got, _ := r.see([]byte(line.text), begin.Add(line.after)); got != line.want {
			t.Errorf("%s after %s: worth reporting is %v", line.text, line.after, got)
		}
	}
}

func TestReservedPortIsNobodyElses(t *testing.T) {
	r, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", r.Port)
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		c.Close()
		t.Error("an early peer was accepted: it must be refused, and retry")
	}
	if l, err := net.Listen("tcp", address); err == nil {
		l.Close()
		t.Error("another process could listen on the reserved port")
	}
	r.release()
	r.release()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("rank 0 cannot listen on the released port: %v", err)
	}
	l.Close()
	if _, err := claimPort(r.Port); runtime.GOOS == "linux" && err == nil {
		t.Error("another agent could reserve the port that rank 0 is to listen on")
	}
	r.end()
	r.end()
	claim, err := claimPort(r.Port)
	if err != nil {
		t.Errorf("after its end the port is still claimed: %v", err)
	}
	closeSocket(&claim)
	next, err := reservePort(r.Port)
	if err != nil {
		t.Fatal(err)
	}
	defer next.end()
	if next.Port == r.Port {
		t.Error("the same port again")
	}
}

func TestWhatWasWrittenLast(t *testing.T) {
	dir := t.TempDir()
	d := openDirectory(filepath.Join(dir, "none"))
	if got := newest(d.look()); got.Path != "" {
		t.Errorf("a missing directory has %+v", got)
	}
	d = openDirectory(dir)
	write := func(name string, at int64) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
	}
	write("8.pt", 100)
	write("9.pt.tmp", 300)
	if err := os.Mkdir(filepath.Join(dir, "checkpoint-9"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := newest(d.look()); got.Path != "8.pt" {
		t.Errorf("an unfinished checkpoint counts: %+v", got)
	}
	write("2.pt", 200)
	if got := newest(d.look()); got.Path != "2.pt" || got.Step != 2 {
		t.Errorf("one of an earlier step does not count, though it was written later: %+v", got)
	}
	write("checkpoint-9/trainer_state.json", 400)
	if err := os.WriteFile(filepath.Join(dir, "checkpoint-9/trainer_state.json"), []byte(`{"global_step": 9}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := newest(d.look()); got.Path != "checkpoint-9" || got.Step != 9 {
		t.Errorf("a complete directory does not count: %+v", got)
	}
}

func TestAFileIsSeenToBeMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "step-1")
	d := openDirectory(filepath.Dir(path))
	moved := func() bool { return newest(d.look()).Renamed }
	write := func(path string) {
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(path)
	if moved() {
		t.Error("a file that was written in place counts as moved")
	}
	eventually(t, "a renamed file counts as moved", func() bool { // file times have a resolution of some milliseconds
		write(path + ".tmp")
		time.Sleep(time.Millisecond)
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
		return moved()
	})
	write(path)
	if moved() {
		t.Error("a file rewritten in place counts as moved")
	}
}

func TestACheckpointIsFinishedOnceItStays(t *testing.T) {
	written := func(name string, at, size int64, moved bool) (c checkpoint.Checkpoint) {
		c.Path, c.Mark, c.Marked, c.MarkSize, c.Renamed = name, name, time.Unix(at, 0), size, moved
		return c
	}
	none := checkpoint.Checkpoint{}
	old := written("1", 100, 5, true)
	a := arrival{before: old}
	for _, look := range []struct {
		seen checkpoint.Checkpoint
		at   time.Duration
		want bool
	}{
		{old, 0, false},
		{old, time.Hour, false},
		{written("2", 200, 0, true), time.Hour, false}, // its mode was set
		{written("2", 200, 0, false), time.Hour + checkpoint.Still, false},
		{written("2", 200, 0, false), time.Hour + emptyStill - 1, false},
		{written("2", 200, 0, false), time.Hour + emptyStill, true}, // a marker
		{written("2", 200, 10, false), 2 * time.Hour, false},
		{written("2", 201, 20, false), 2*time.Hour + checkpoint.Still, false},
		{written("2", 201, 20, false), 2*time.Hour + 2*checkpoint.Still, true},
		{none, 3 * time.Hour, false}, // the directory cannot be read
		{none, 3*time.Hour + emptyStill, false},
		{written("1.bak", 100, 5, true), 4 * time.Hour, false}, // the old one was moved away
		{written("1.bak", 100, 5, true), 5 * time.Hour, false},
		{written("0", 50, 5, true), 6 * time.Hour, false}, // or deleted
		{written("0", 50, 5, true), 7 * time.Hour, false},
		{written("2", 201, 20, true), 8 * time.Hour, true},
	} {
		if got := a.finished(look.seen, time.Unix(0, 0).Add(look.at)); got != look.want {
			t.Errorf("%+v after %v: %v", look.seen, look.at, got)
		}
	}
}
