package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// history is a journal of decisions about the job a on a node of eight cores.
type history struct {
	t       testing.TB
	dir     string
	journal *state.Journal
	in      plan.Input // of the next decision
}

func newHistory(t testing.TB) *history {
	t.Helper()
	h := &history{t: t, dir: t.TempDir()}
	var err error
	if h.journal, err = state.OpenJournal(h.dir, state.JournalOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.journal.Close() })
	h.in = plan.Input{
		Jobs: []job.Job{workers(2)}, Records: job.Records{}, Now: jobtest.Epoch, Since: jobtest.Epoch,
		Capabilities: map[string]job.Capabilities{"local": {Places: true}},
		Snapshot:     job.Snapshot{At: jobtest.Epoch, Nodes: []job.Node{jobtest.Node("n1", jobtest.Cores(8))}},
		NewUID:       func(name string) string { return "uid-" + name },
	}
	return h
}

func workers(n int) job.Job {
	return jobtest.Job("a", jobtest.Role("worker", n, jobtest.Needs(jobtest.Cores(1))))
}

// decide journals a decision. Its launches run at the next one, a minute later.
func (h *history) decide() plan.Plan {
	h.t.Helper()
	p := plan.Make(h.in)
	if err := apply.AppendDecision(h.journal, &apply.Decision{Input: h.in, Plan: p}); err != nil {
		h.t.Fatal(err)
	}
	h.in.Records, h.in.Now = p.Records, h.in.Now.Add(time.Minute)
	h.in.Snapshot.At = h.in.Now
	for _, c := range p.Changes {
		if l := c.Launch; l != nil {
			h.in.Snapshot.Incarnations = h.in.Snapshot.Incarnations.With(job.Incarnation{Slot: l.Slot, UID: l.UID, Number: l.Incarnation, Node: l.Node,
				Provider: "local", Fingerprint: l.Fingerprint, Reserved: l.Reserved, State: job.Up, Started: h.in.Now, Member: &job.Member{State: job.MemberWaiting}})
		}
	}
	return p
}

// edit replaces a text in the newest decision, as another version could have written it.
func (h *history) edit(old, new string) {
	h.t.Helper()
	var newest state.Entry
	if err := (state.Reader{Dir: h.dir}).Read(0, func(e state.Entry) error { newest = e; return nil }); err != nil {
		h.t.Fatal(err)
	}
	text := string(newest.Data)
	if strings.Count(text, old) == 0 {
		h.t.Fatalf("the entry has no %s: %s", old, text)
	}
	newest.Data = json.RawMessage(strings.Replace(text, old, new, 1))
	if err := h.journal.Append(newest); err != nil {
		h.t.Fatal(err)
	}
}

// append journals an entry of a decision.
func (h *history) append(data string) {
	h.t.Helper()
	if err := h.journal.Append(state.Entry{Time: h.in.Now, Kind: state.DecisionEntry, Data: json.RawMessage(data)}); err != nil {
		h.t.Fatal(err)
	}
}

// outcome is what a replay says.
type outcome struct {
	Counts
	differences []*Difference
	skips       []Skip
}

func replayed(t testing.TB, dir string, r Replay) (o outcome) {
	t.Helper()
	var err error
	o.Counts, err = r.Read(t.Context(), state.Reader{Dir: dir},
		func(d *Difference) error { o.differences = append(o.differences, d); return nil },
		func(s Skip) error { o.skips = append(o.skips, s); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o outcome) String() string {
	text := fmt.Sprintf("%+v", o.Counts)
	for _, d := range o.differences {
		text += fmt.Sprintf("\n%d %v %v: then %+v, now %+v", d.Seq, d.Jobs, d.Parts, d.Then, d.Now)
	}
	for _, s := range o.skips {
		text += fmt.Sprintf("\n%d: %v", s.Seq, s.Err)
	}
	return text
}

// A decision comes out the same, with the UIDs that it gave to new jobs.
func TestDecisionsComeOutTheSame(t *testing.T) {
	h := newHistory(t)
	if p := h.decide(); len(p.Changes) != 2 {
		t.Fatalf("it decides %v", p.Changes)
	}
	h.in.Jobs = append(h.in.Jobs, jobtest.Job("b", jobtest.Role("worker", 9, jobtest.Needs(jobtest.Cores(1)))))
	if p := h.decide(); len(p.Waits) != 1 {
		t.Fatalf("it decides %v %v", p.Changes, p.Waits) // nothing but the UIDs tells that of b
	}
	if o := replayed(t, h.dir, Replay{}); o.Counts != (Counts{Replayed: 2, Equal: 2}) {
		t.Error(o)
	}
}

// What differs is found: a change, a wait, or a part of the plan of which only the digest is kept.
func TestDifferencesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		says     func(d *Difference) bool
	}{
		"a change": {`"slot":"job.a.worker[1]","uid":"uid-a","provider":"local"`, `"slot":"job.a.worker[1]","uid":"uid-a","provider":"other"`, func(d *Difference) bool {
			return len(d.Then.Changes) == 1 && d.Then.Changes[0].Provider == "other" && len(d.Now.Changes) == 1 && d.Now.Changes[0].Provider == "local" &&
				d.Now.Changes[0].Slot.Index == 1 && len(d.Parts) == 0
		}},
		"a wait": {`"uids":`, `"waits":[{"job":"z","reasons":[]}],"uids":`, func(d *Difference) bool {
			return len(d.Then.Waits) == 1 && len(d.Now.Waits) == 0 && strings.Join(d.Jobs, " ") == "z"
		}},
		"the time of the input": {`"now":"2026`, `"now":"2027`, func(d *Difference) bool { return len(d.Parts) > 0 }},
		"records":               {`"digests":{"changes":`, `"digests":{"node_records":"0","changes":`, func(d *Difference) bool { return strings.Join(d.Parts, " ") == "node_records" }},
		"the UID of a new job":  {`"uids":{"a":"uid-a"}`, `"uids":{"a":"uid-b"}`, func(d *Difference) bool { return len(d.Now.Changes) == 2 && d.Now.Changes[0].UID == "uid-b" }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t)
			h.decide()
			h.edit(c.old, c.new)
			o := replayed(t, h.dir, Replay{})
			if o.Counts != (Counts{Replayed: 2, Equal: 1, Different: 1}) || o.differences[0].Seq != 2 || !c.says(o.differences[0]) {
				t.Error(o)
			}
		})
	}
}

// Other files take the place of those at the time. An edit alone is no difference, nor is it where nothing was observed.
func TestOtherFiles(t *testing.T) {
	h := newHistory(t)
	h.decide()
	seen := h.in.Snapshot.Incarnations.List()
	seen[0].Member.State, seen[1].Member.State = job.MemberFailed, job.MemberRunning
	seen[0].Member.Exit = &job.Exit{Code: 3, At: h.in.Now}
	if p := h.decide(); len(p.Changes) != 1 || p.Changes[0].Action != plan.Restart {
		t.Fatalf("it decides %v", p.Changes)
	}
	elsewhere := jobtest.Job("b", jobtest.Role("worker", 1))
	elsewhere.Provider = "volcano"
	strict, more := workers(2), workers(3)
	strict.Heal.Budget.Restarts = 0
	lenient := workers(2)
	lenient.Heal.Budget.Restarts = 99
	for name, c := range map[string]struct {
		jobs []job.Job
		want Counts
		says string // of the last difference
	}{
		"the same":     {[]job.Job{workers(2)}, Counts{Replayed: 2, Equal: 2}, ""},
		"an edit":      {[]job.Job{lenient}, Counts{Replayed: 2, Equal: 2}, ""},
		"a policy":     {[]job.Job{strict}, Counts{Replayed: 2, Equal: 1, Different: 1}, "[restart worker[0]] []"},
		"more slots":   {[]job.Job{more}, Counts{Replayed: 2, Different: 2}, "[] [create worker[2]]"},
		"undeclared":   {nil, Counts{Replayed: 2, Different: 2}, "[restart worker[0]] [delete worker[0] delete worker[1]]"},
		"not observed": {[]job.Job{workers(2), elsewhere}, Counts{Replayed: 2, Equal: 2}, ""},
		"another job":  {[]job.Job{workers(2), jobtest.Job("c", jobtest.Role("worker", 1))}, Counts{Replayed: 2, Different: 2}, "[] [create worker[0]]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := replayed(t, h.dir, Replay{Declared: &Declared{Jobs: c.jobs}})
			says := ""
			if n := len(o.differences); n > 0 {
				says = fmt.Sprintf("%v %v", brief(o.differences[n-1].Then), brief(o.differences[n-1].Now))
			}
			if o.Counts != c.want || says != c.says {
				t.Errorf("%s\n%v", says, o)
			}
		})
	}
}

func brief(c Choices) (out []string) {
	for i := range c.Changes {
		out = append(out, string(c.Changes[i].Action)+" "+c.Changes[i].Slot.Short())
	}
	return out
}

// Files say nothing about a destroy, which leaves their jobs out.
func TestOtherFilesOfADestroy(t *testing.T) {
	h := newHistory(t)
	h.decide()
	h.in.Destroy, h.in.Jobs = true, nil
	h.decide()
	o := replayed(t, h.dir, Replay{Since: h.in.Now.Add(-time.Minute), Declared: &Declared{Jobs: []job.Job{workers(5)}}})
	if o.Counts != (Counts{Replayed: 1, Equal: 1}) {
		t.Error(o)
	}
}

func TestDecisionsAreChosenByTime(t *testing.T) {
	h := newHistory(t)
	first := h.in.Now
	for range 4 {
		h.decide()
	}
	at := func(minutes int) time.Time { return first.Add(time.Duration(minutes) * time.Minute) }
	for _, c := range []struct {
		since, until time.Time
		want         int
	}{
		{time.Time{}, time.Time{}, 4}, {at(0), at(3), 4}, {at(1), time.Time{}, 3}, {time.Time{}, at(1), 2}, {at(1), at(2), 2}, {at(4), time.Time{}, 0},
		{at(1).Add(1), at(2).Add(-1), 0},
	} {
		if o := replayed(t, h.dir, Replay{Since: c.since, Until: c.until}); o.Replayed != c.want || o.Equal != c.want {
			t.Errorf("from %v to %v: %v", c.since, c.until, o)
		}
	}
}

// What cannot be decided again is named, and does not end the replay.
func TestWhatIsNotReplayableIsNamed(t *testing.T) {
	h := newHistory(t)
	said := []string{}
	for data, says := range map[string]string{
		`{"input":5}`:   "decode it",
		`{"format":99}`: "format 99",
		`{}`:            "no input",
		`{"input":{"now":"2026-01-02T03:00:00Z","capabilities":{},"records":{"a":null}}}`: "job.a is null",
	} {
		h.append(data)
		said = append(said, says)
	}
	h.decide()
	o := replayed(t, h.dir, Replay{})
	if o.Counts != (Counts{Replayed: 1, Equal: 1, Skipped: 4}) {
		t.Error(o)
	}
	for i, says := range said {
		if s := o.skips[i]; s.Seq != uint64(i+1) || !strings.Contains(s.Err.Error(), says) {
			t.Errorf("%d: %v, want %s", s.Seq, s.Err, says)
		}
	}
	h.in.NewUID, h.in.Records, h.in.Snapshot.Incarnations = nil, nil, nil // what no journal has: new jobs without UIDs
	if _, err := decide(h.in); err == nil {
		t.Error("a planner that fails is no error")
	}
}

// An entry without UIDs and digests, of an older version, is compared by its changes and waits; sentences for reasons are not compared.
func TestEntriesOfFormat0(t *testing.T) {
	h := newHistory(t)
	h.decide()
	var newest state.Entry
	if err := (state.Reader{Dir: h.dir}).Read(0, func(e state.Entry) error { newest = e; return nil }); err != nil {
		t.Fatal(err)
	}
	var entry map[string]any
	if err := json.Unmarshal(newest.Data, &entry); err != nil {
		t.Fatal(err)
	}
	delete(entry, "format")
	delete(entry, "uids")
	delete(entry, "digests")
	entry["of_another_version"] = true
	write := func() {
		text, err := json.Marshal(entry)
		if err != nil {
			t.Fatal(err)
		}
		h.append(string(text))
	}
	write()
	first := entry["changes"].([]any)[0].(map[string]any)
	first["reasons"] = []string{"in an older version's words"}
	write()
	first["node"] = "n9"
	write()
	o := replayed(t, h.dir, Replay{})
	if o.Counts != (Counts{Replayed: 4, Equal: 3, Different: 1}) || o.differences[0].Seq != 4 || o.differences[0].Parts != nil {
		t.Error(o)
	}
}

// testdata/journals has journals of older versions, by the date of the version, and of format 1.
func TestJournalsOfOlderVersionsAreRead(t *testing.T) {
	journals, err := os.ReadDir("testdata/journals")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"2026-11-22": 5, "2026-11-24": 6, "2026-11-27": 5, "format-1": 6}
	for _, j := range journals {
		o := replayed(t, copied(t, filepath.Join("testdata/journals", j.Name())), Replay{})
		if o.Skipped > 0 || o.Replayed != want[j.Name()] {
			t.Errorf("%s: %v", j.Name(), o)
		}
		delete(want, j.Name())
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

// copied copies a journal to a private directory, which one of a checkout may not be.
func copied(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// FuzzDecode: whatever an entry contains, decoding it ends with a decision or an error.
func FuzzDecode(f *testing.F) {
	for _, dir := range []string{"2026-11-22", "format-1"} {
		err := state.Reader{Dir: copied(f, filepath.Join("testdata/journals", dir))}.Read(0, func(e state.Entry) error { f.Add([]byte(e.Data)); return nil })
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, err := decode(data)
		if err != nil {
			return
		}
		newUID(kept)("a")
		hasSentences(kept)
		if _, err := json.Marshal(kept); err != nil {
			t.Errorf("it was decoded and cannot be encoded: %v", err)
		}
	})
}

// BenchmarkReplay replays 10,000 decisions about a hundred slots. heap-MB is the most that is in use at any of them.
func BenchmarkReplay(b *testing.B) {
	h := newHistory(b)
	h.in.Jobs, h.in.Snapshot.Nodes[0].Capacity = []job.Job{workers(100)}, jobtest.Cores(100)
	for range 10_000 {
		h.decide()
	}
	for b.Loop() {
		most, n := uint64(0), 0
		r := Replay{Declared: &Declared{}} // all differ
		_, err := r.Read(b.Context(), state.Reader{Dir: h.dir}, func(*Difference) error {
			if n++; n%100 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			return nil
		}, func(Skip) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(most)/1e6, "heap-MB")
		b.ReportMetric(float64(n), "decisions")
	}
}
