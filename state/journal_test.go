package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 4, 12, 0, 0, 123456789, time.UTC)

// memoryDir is a directory on a file system with cheap fsync, if there is one.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "eltrain-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func openJournal(t testing.TB, dir string, o JournalOptions) *Journal {
	t.Helper()
	j, err := OpenJournal(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func appendAll(t testing.TB, j *Journal, entries ...Entry) {
	t.Helper()
	if err := j.Append(entries...); err != nil {
		t.Fatal(err)
	}
}

func entry(text string) Entry {
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return Entry{Time: noon, Kind: NoticeEntry, Data: data}
}

// readAll returns each entry as "SEQ DATA", and the damage.
func readAll(t testing.TB, dir string, from uint64) (entries []string, damage []Damage) {
	t.Helper()
	r := Reader{Dir: dir, Damaged: func(d Damage) { damage = append(damage, d) }}
	err := r.Read(from, func(e Entry) error {
		entries = append(entries, fmt.Sprintf("%d %s", e.Seq, e.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries, damage
}

// expect checks that the journal has exactly these entries and no damage.
func expect(t testing.TB, dir string, want ...string) {
	t.Helper()
	got, damage := readAll(t, dir, 1)
	if d := cmp.Diff(want, got); d != "" || damage != nil {
		t.Fatalf("(-want +got):\n%s\ndamage: %v", d, damage)
	}
}

func journalNames(t testing.TB, dir string) []string {
	t.Helper()
	names, err := journalFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// onlyFile is the path of a journal's only file.
func onlyFile(t testing.TB, dir string) string {
	t.Helper()
	names := journalNames(t, dir)
	if len(names) != 1 {
		t.Fatalf("files: %v", names)
	}
	return filepath.Join(dir, names[0])
}

func TestJournalGivesBackWhatWasAppended(t *testing.T) {
	dir := memoryDir(t)
	notice, err := json.Marshal(job.Notice{Time: noon, Type: "world_formed", Address: "job.gpt", Message: "4 of 4 <ü>\n"})
	if err != nil {
		t.Fatal(err)
	}
	large, err := json.Marshal(strings.Repeat("a plan of many like slots ", 10_000))
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Seq: 1, Time: noon, Kind: NoticeEntry, Data: notice},
		{Seq: 2, Time: noon.Add(time.Second), Kind: DecisionEntry, Data: large},
		{Seq: 3, Time: noon, Kind: "mark"},
	}
	j := openJournal(t, dir, JournalOptions{})
	appendAll(t, j)
	appendAll(t, j, want[0], want[1])
	appendAll(t, j, want[2])
	var got []Entry
	if err := (Reader{Dir: dir}).Read(0, func(e Entry) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	text := cmp.Transformer("text", func(m json.RawMessage) string { return string(m) })
	if d := cmp.Diff(want, got, text); d != "" {
		t.Fatalf("(-appended +read):\n%s", d)
	}
	info, err := os.Stat(onlyFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if int(info.Size()) > len(large)/10 {
		t.Fatalf("%d bytes of data take %d in the journal", len(large), info.Size())
	}
}

func TestJournalIsReadableByPeople(t *testing.T) {
	dir := memoryDir(t)
	appendAll(t, openJournal(t, dir, JournalOptions{}), entry("hello"))
	content, err := os.ReadFile(onlyFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	line := `^[0-9a-f]{8} 1 72 \{"time":"2026-03-04T12:00:00.123456789Z","kind":"notice","data":"hello"\}` + "\n$"
	if !regexp.MustCompile(line).Match(content) {
		t.Fatalf("%q is not like %s", content, line)
	}
}

func TestJournalReadsFromASequenceNumber(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{FileSize: 250, Files: 100}) // two or three per file
	var all []string
	for i := range 20 {
		appendAll(t, j, entry(fmt.Sprint("e", i)))
		all = append(all, fmt.Sprintf("%d %q", i+1, fmt.Sprint("e", i)))
	}
	for from := range 22 {
		got, damage := readAll(t, dir, uint64(from))
		if d := cmp.Diff(strings.Join(all[min(max(from-1, 0), 20):], "\n"), strings.Join(got, "\n")); d != "" || damage != nil {
			t.Fatalf("from %d: %s\n%v", from, d, damage)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := (Reader{Dir: dir}).Read(5, func(Entry) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Fatalf("%v after %d entries", err, n)
	}
}

func TestMissingJournalIsEmpty(t *testing.T) { expect(t, filepath.Join(memoryDir(t), "none")) }

func TestSequenceGrowsAcrossRestartsAndRotations(t *testing.T) {
	dir := memoryDir(t)
	const files = 3
	last := uint64(0)
	for range 12 {
		j, err := OpenJournal(dir, JournalOptions{FileSize: 400, Files: files})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			appendAll(t, j, entry(fmt.Sprint(last+1)))
			last++
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(journalNames(t, dir)); n > files {
			t.Fatalf("%d files", n)
		}
	}
	got, damage := readAll(t, dir, 1)
	if damage != nil || len(got) < 6 {
		t.Fatalf("%v, %v", got, damage)
	}
	for i, e := range got {
		seq := last - uint64(len(got)-1-i)
		if e != fmt.Sprintf(`%d "%d"`, seq, seq) {
			t.Fatalf("%v; want them up to %d without a gap", got, last)
		}
	}
	for _, name := range journalNames(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() > 400 {
			t.Fatalf("%s: %d bytes, %v", name, info.Size(), err)
		}
	}
}

func TestAnEntryLargerThanAFileHasAFileOfItsOwn(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{FileSize: 100})
	for _, text := range []string{"a", strings.Repeat("b", 2000), "c"} {
		appendAll(t, j, entry(text))
	}
	expect(t, dir, `1 "a"`, fmt.Sprintf("2 %q", strings.Repeat("b", 2000)), `3 "c"`)
	if n := len(journalNames(t, dir)); n != 3 {
		t.Fatalf("%d files", n)
	}
}

func TestTornTailIsCutOffAndReported(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{})
	appendAll(t, j, entry("first"), entry("second"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := onlyFile(t, dir)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(content, '\n') + 1
	tails := map[string][]byte{"zeros": make([]byte, 50), "garbage": []byte("oh\nno\n"), "a number": []byte("12")}
	for n := first + 1; n < len(content); n++ {
		tails[fmt.Sprint(n)] = content[first:n]
	}
	for name, tail := range tails {
		torn := append(bytes.Clone(content[:first]), tail...)
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(t, dir, `1 "first"`) // to a reader it may be a record being written
		var damage []Damage
		j, err := OpenJournal(dir, JournalOptions{Damaged: func(d Damage) { damage = append(damage, d) }})
		if err != nil {
			t.Fatal(err)
		}
		if len(damage) != 1 || damage[0].Offset != int64(first) || damage[0].Bytes != int64(len(tail)) || damage[0].File != path {
			t.Fatalf("tail %s: reported %v", name, damage)
		}
		appendAll(t, j, entry("next"))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		expect(t, dir, `1 "first"`, `2 "next"`)
	}
}

// A file of any size, without line ends, takes no more memory than an entry. What is larger than any entry is not taken for
// one that is being written.
func TestAHugeFileTakesLittleMemory(t *testing.T) {
	const huge = 3 * maxRecord / 2
	header := "00000000 3 " + strconv.Itoa(maxJSON) + " " // the only damage that is kept in memory
	for _, c := range []struct {
		tail string
		most uint64
	}{{"", 1 << 20}, {header, 3 * maxRecord}, {"00000000 3 " + strconv.Itoa(maxJSON+1) + " ", 1 << 20}} {
		dir := memoryDir(t)
		j := openJournal(t, dir, JournalOptions{})
		appendAll(t, j, entry("a"), entry("b"))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		path := onlyFile(t, dir)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, append(whole, c.tail...), 0o600), os.Truncate(path, huge)); err != nil {
			t.Fatal(err)
		}
		want := Damage{path, int64(len(whole)), huge - int64(len(whole)), noRecord}

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		entries, damage := readAll(t, dir, 1)
		runtime.ReadMemStats(&after)
		if len(entries) != 2 || !slices.Equal(damage, []Damage{want}) {
			t.Errorf("after %q: read %v, damage %v", c.tail, entries, damage)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > c.most {
			t.Errorf("after %q: reading took %d bytes", c.tail, took)
		}

		// Whoever follows is told once, and a writer goes on after the last entry.
		damage = nil
		follower := cursor{reader: Reader{Dir: dir, Damaged: func(d Damage) { damage = append(damage, d) }}, from: 1}
		var got []string
		follow := func() {
			t.Helper()
			if err := follower.advance(func(e Entry) error { got = append(got, string(e.Data)); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		follow()
		follow()
		var removed []Damage
		j = openJournal(t, dir, JournalOptions{Damaged: func(d Damage) { removed = append(removed, d) }})
		appendAll(t, j, entry("c"))
		follow()
		if len(removed) != 1 || !slices.Equal(damage, []Damage{want}) || strings.Join(got, "") != `"a""b""c"` {
			t.Errorf("after %q: the writer removed %v; a follower read %v, damage %v", c.tail, removed, got, damage)
		}
	}
}

func TestOneDamagedByteCostsOneRecordAtMost(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{})
	var whole []string
	for i := range 5 {
		appendAll(t, j, entry(fmt.Sprint("e", i)))
		whole = append(whole, fmt.Sprintf(`%d "e%d"`, i+1, i))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := onlyFile(t, dir)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lastLine := bytes.LastIndexByte(content[:len(content)-1], '\n') + 1
	for at := range content {
		for _, b := range []byte{content[at] ^ 1, '\n', ' ', '9', 0} {
			if b == content[at] {
				continue
			}
			damaged := bytes.Clone(content)
			damaged[at] = b
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			got, damage := readAll(t, dir, 1)
			if missing := without(whole, got); len(missing) > 1 || len(got) != len(whole)-len(missing) {
				t.Fatalf("byte %d as %q: read %v", at, b, got)
			} else if len(missing) == 1 && at < lastLine && len(damage) == 0 {
				t.Fatalf("byte %d as %q: %v was lost and nothing reported", at, b, missing)
			}
		}
	}
	// A writer keeps records after damage in the middle.
	damaged := bytes.Clone(content)
	damaged[lastLine-20] ^= 1
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	appendAll(t, openJournal(t, dir, JournalOptions{}), entry("e5"))
	got, damage := readAll(t, dir, 1)
	if d := cmp.Diff([]string{whole[0], whole[1], whole[2], whole[4], `6 "e5"`}, got); d != "" || len(damage) == 0 {
		t.Fatalf("%s %v", d, damage)
	}
}

// without returns what is in all but not in some.
func without(all, some []string) (rest []string) {
	in := map[string]bool{}
	for _, s := range some {
		in[s] = true
	}
	for _, s := range all {
		if !in[s] {
			rest = append(rest, s)
		}
	}
	return rest
}

func TestDamageAtTheEndOfAnOlderFileIsReported(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{FileSize: 1})
	appendAll(t, j, entry("a"))
	appendAll(t, j, entry("b"))
	first := filepath.Join(dir, journalNames(t, dir)[0])
	if err := os.Truncate(first, 30); err != nil {
		t.Fatal(err)
	}
	got, damage := readAll(t, dir, 1)
	if len(got) != 1 || got[0] != `2 "b"` || len(damage) != 1 || damage[0].File != first || damage[0].Bytes != 30 {
		t.Fatalf("%v, %v", got, damage)
	}
}

func TestASequenceNumberIsReadOnce(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{})
	appendAll(t, j, entry("a"), entry("b"))
	path := onlyFile(t, dir)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, content...), 0o600); err != nil {
		t.Fatal(err)
	}
	got, damage := readAll(t, dir, 1)
	if len(got) != 2 || len(damage) != 2 {
		t.Fatalf("%v, %v", got, damage)
	}
}

func TestJournalHasOneWriter(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{FileSize: 200})
	for i := range 6 { // even after rotations
		appendAll(t, j, entry(fmt.Sprint(i)))
		second, err := OpenJournal(dir, JournalOptions{})
		var busy *JournalBusyError
		if !errors.As(err, &busy) || busy.Dir != dir {
			t.Fatalf("%v, %v; want a JournalBusyError", second, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, openJournal(t, dir, JournalOptions{}), entry("second"))
	if err := j.Append(entry("late")); err == nil {
		t.Fatal("a closed journal accepted an entry")
	}
	if err := j.Sync(); err == nil {
		t.Fatal("a closed journal synced")
	}
}

func TestNewerEpochTakesTheJournalOver(t *testing.T) {
	dir := memoryDir(t)
	first := openJournal(t, dir, JournalOptions{Epoch: 3})
	appendAll(t, first, entry("first"))
	for _, epoch := range []uint64{0, 2, 3} {
		var busy *JournalBusyError
		if _, err := OpenJournal(dir, JournalOptions{Epoch: epoch}); !errors.As(err, &busy) {
			t.Fatalf("epoch %d against 3: %v", epoch, err)
		}
	}
	appendAll(t, first, entry("still first"))
	// The first still has it open: it is suspended, for instance in the middle of a write.
	files, err := journalFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, files[0])
	whole, err := os.ReadFile(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(torn, append(whole, "0123"...), 0o600); err != nil {
		t.Fatal(err)
	}
	second := openJournal(t, dir, JournalOptions{Epoch: 4})
	appendAll(t, second, entry("second"))
	if err := first.Append(entry("late")); !errors.Is(err, ErrFenced) {
		t.Errorf("the first still appends: %v", err)
	}
	appendAll(t, second, entry("second again"))
	if after, err := os.ReadFile(torn); err != nil || len(after) != len(whole)+4 {
		t.Errorf("the first's file was changed: %d bytes, then %d, %v", len(whole)+4, len(after), err)
	}
	got, damage := readAll(t, dir, 1)
	if len(got) != 4 || len(damage) != 1 {
		t.Errorf("%v, %v", got, damage)
	}
	// A third takes over from the second, which has the file that replaced the first's.
	third := openJournal(t, dir, JournalOptions{Epoch: 5})
	if err := second.Append(entry("late")); !errors.Is(err, ErrFenced) {
		t.Errorf("the second still appends: %v", err)
	}
	// A released journal can be opened by anybody.
	for _, j := range []*Journal{first, second, third} {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(t, openJournal(t, dir, JournalOptions{Epoch: 1}), entry("restored"))
}

func TestRefusedEntriesLeaveNoTrace(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{})
	for _, data := range []string{"{", strings.Repeat("[", compressAbove+1)} {
		if err := j.Append(entry("good"), Entry{Kind: "bad", Data: json.RawMessage(data)}); err == nil {
			t.Fatalf("%.10s was accepted", data)
		}
	}
	appendAll(t, j, entry("next"))
	expect(t, dir, `1 "next"`)
}

func TestJournalRefusesBoundsThatHoldNothing(t *testing.T) {
	for _, o := range []JournalOptions{{FileSize: -1}, {Files: -1}} {
		if _, err := OpenJournal(memoryDir(t), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestOpenJournalSaysWhatFailed(t *testing.T) {
	file := filepath.Join(memoryDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJournal(file, JournalOptions{}); err == nil || !strings.HasPrefix(err.Error(), "open journal") {
		t.Fatal(err)
	}
}

// follow collects what a follower gets until it has n entries, and sends each on a channel.
func follow(t *testing.T, dir string, from uint64, n int) (got <-chan string, damage <-chan []Damage) {
	entries, damages := make(chan string, n), make(chan []Damage, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
		defer cancel()
		var damaged []Damage
		r := Reader{Dir: dir, Damaged: func(d Damage) { damaged = append(damaged, d) }}
		seen := 0
		err := r.Follow(ctx, from, func(e Entry) error {
			entries <- fmt.Sprintf("%d %s", e.Seq, e.Data)
			if seen++; seen == n {
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		close(entries)
		damages <- damaged
	}()
	return entries, damages
}

// rewritten is a file whose end is replaced while it is first read.
type rewritten struct {
	first string
	then  *strings.Reader
}

func (r *rewritten) ReadAt(b []byte, at int64) (int, error) {
	if r.first == "" {
		return r.then.ReadAt(b, at)
	}
	n, err := strings.NewReader(r.first).ReadAt(b, at)
	r.first = ""
	return n, err
}

// A torn tail may be removed and overwritten during a read: the next writer's records are whole.
func TestReadPassesOverNoRecordThatIsWrittenMeanwhile(t *testing.T) {
	var text []byte
	var ends []int
	for n := range 4 {
		e := entry(fmt.Sprint(n))
		e.Seq = uint64(n + 1)
		var err error
		if text, err = appendRecord(text, e); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, len(text))
	}
	torn := "00000000 3 torn by a crash"
	mixed := string(text[:ends[1]]) + torn + string(text[ends[1]+len(torn):])
	var damaged []Damage
	c := cursor{reader: Reader{Damaged: func(d Damage) { damaged = append(damaged, d) }}}
	var seqs []uint64
	_, err := c.scan(&rewritten{mixed, strings.NewReader(string(text))}, "journal", true, func(e Entry) error {
		seqs = append(seqs, e.Seq)
		return nil
	})
	if err != nil || !slices.Equal(seqs, []uint64{1, 2, 3, 4}) || len(damaged) > 0 {
		t.Errorf("read %v, damage %v, error %v", seqs, damaged, err)
	}
	// What stays unreadable is damage.
	c, seqs = cursor{reader: c.reader}, nil
	if _, err := c.scan(strings.NewReader(mixed), "journal", true, func(e Entry) error {
		seqs = append(seqs, e.Seq)
		return nil
	}); err != nil || !slices.Equal(seqs, []uint64{1, 2, 4}) || len(damaged) != 2 { // the damaged range, and the gap
		t.Errorf("read %v, damage %v, error %v", seqs, damaged, err)
	}
}

func TestFollowGoesOnAcrossRotationsAndWriters(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "journal") // created after the follower starts
	const writers, each, from = 5, 12, 3
	got, damage := follow(t, dir, from, writers*each-from+1)
	late, _ := follow(t, dir, writers*each, 1)
	seq := 0
	for range writers {
		j, err := OpenJournal(dir, JournalOptions{FileSize: 500, Files: 100})
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			seq++
			appendAll(t, j, entry(fmt.Sprint(seq)))
			if seq < from || seq%2 > 0 {
				continue
			}
			// Now and then the follower has read everything while this continues.
			for want := max(from, seq-1); want <= seq; want++ {
				if e := <-got; e != fmt.Sprintf(`%d "%d"`, want, want) {
					t.Fatalf("followed %q, want %d", e, want)
				}
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		// A torn tail is removed by the next writer, and does not stop a follower.
		names := journalNames(t, dir)
		f, err := os.OpenFile(filepath.Join(dir, names[len(names)-1]), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("00000000 1 torn\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if e, more := <-got; more {
		t.Fatalf("followed %q at the end", e)
	}
	if d := <-damage; d != nil {
		t.Fatal(d)
	}
	if e := <-late; e != fmt.Sprintf(`%d "%d"`, seq, seq) {
		t.Fatal(e)
	}
}

func TestFollowIsToldAtOnce(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), hang.Bound)
	defer cancel()
	const n = 10
	appendAll(t, j, entry("go"))
	start := time.Now()
	seen := 0
	err := Reader{Dir: dir}.Follow(ctx, 1, func(Entry) error {
		if seen++; seen > n {
			cancel()
			return nil
		}
		return j.Append(entry("next")) // each is found by the event of the previous one
	})
	if err != nil || seen <= n {
		t.Fatalf("%d entries, %v", seen, err)
	}
	if took := time.Since(start); took > n*followRescan/2 {
		t.Fatalf("%d entries took %v: they are found by rescans only", n, took)
	}
}

func TestAFollowerLeftBehindByRotationIsTold(t *testing.T) {
	dir := memoryDir(t)
	j := openJournal(t, dir, JournalOptions{FileSize: 1, Files: 2})
	appendAll(t, j, entry("1"))
	var got []uint64
	var damage []Damage
	c := cursor{reader: Reader{Dir: dir, Damaged: func(d Damage) { damage = append(damage, d) }}, from: 1}
	collect := func(e Entry) error { got = append(got, e.Seq); return nil }
	if err := c.advance(collect); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		appendAll(t, j, entry(fmt.Sprint(i+2)))
	}
	if err := c.advance(collect); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint64{1, 5, 6}, got); d != "" || len(damage) != 1 || !strings.Contains(damage[0].Reason, "records 2 to 4 are missing") {
		t.Fatalf("%s %v", d, damage)
	}
}

// Everything appended, in batches, with rotations, restarts and torn tails in between, is read once, in order.
func TestJournalAgainstAModel(t *testing.T) {
	root := memoryDir(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			rt.Fatal(err)
		}
		o := JournalOptions{FileSize: int64(rapid.IntRange(300, 5000).Draw(rt, "size")), Files: 1000}
		j, err := OpenJournal(dir, o)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { j.Close() }()
		var want []string
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var batch []Entry
				for _, text := range rapid.SliceOfN(rapid.StringN(0, 20, 100), 0, 4).Draw(rt, "texts") {
					text = strings.Repeat(text, rapid.SampledFrom([]int{1, 1, 300}).Draw(rt, "times"))
					e := entry(text)
					batch = append(batch, e)
					want = append(want, fmt.Sprintf("%d %s", len(want)+1, e.Data))
				}
				if err := j.Append(batch...); err != nil {
					rt.Fatal(err)
				}
			},
			"restart": func(rt *rapid.T) {
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				names, err := journalFiles(dir)
				if err != nil {
					rt.Fatal(err)
				}
				f, err := os.OpenFile(filepath.Join(dir, names[len(names)-1]), os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					rt.Fatal(err)
				}
				defer f.Close()
				if _, err := f.Write(rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(rt, "tail")); err != nil {
					rt.Fatal(err)
				}
				if j, err = OpenJournal(dir, o); err != nil {
					rt.Fatal(err)
				}
			},
		})
		got, damage := readAll(t, dir, 1)
		if d := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); d != "" || damage != nil {
			rt.Fatalf("%s %v", d, damage)
		}
	})
}

// FuzzJournal: no content of a journal file makes a reader or a writer panic or hang, every record that is
// read is in the file with its checksum, and a writer continues after it.
func FuzzJournal(f *testing.F) {
	dir := memoryDir(f)
	j := openJournal(f, dir, JournalOptions{})
	appendAll(f, j, entry("a"), entry("b"), entry(strings.Repeat("c", compressAbove+1)))
	content, err := os.ReadFile(onlyFile(f, dir))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add(content[:len(content)-3])
	f.Add(append(bytes.Clone(content[10:]), content...))
	f.Add(bytes.ReplaceAll(content, []byte("\n"), []byte(" ")))
	f.Add([]byte("00000000 1 400000000 {}\n00000000 18446744073709551615 2 {}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := memoryDir(t)
		path := filepath.Join(dir, fmt.Sprintf("%020d%s", 1, journalExt))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		before, _ := readAll(t, dir, 1)
		s := newScanner(bytes.NewReader(content), 0)
		for {
			r, _, ok := s.next()
			if !ok {
				break
			}
			if !bytes.Contains(content, r.json) {
				t.Fatalf("record %d %q is not in the file", r.seq, r.json)
			}
		}
		j, err := OpenJournal(dir, JournalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if err := j.Append(entry("next")); err != nil {
			t.Fatal(err)
		}
		after, _ := readAll(t, dir, 1)
		if len(after) != len(before)+1 || !strings.HasSuffix(after[len(after)-1], ` "next"`) {
			t.Fatalf("before %q, after %q", before, after)
		}
	})
}
