package apply

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// oneJob is the status of one recorded job.
func oneJob() Live {
	l := New(jobtest.Epoch, Setup{State: state.State{}.Next(job.Records{"a": {UID: "u", Phase: job.JobRunning}})})
	return l.Live(jobtest.Epoch, nil)
}

// oneNode is what is known of a node.
func oneNode() Nodes {
	return Nodes{Nodes: []plan.NodeUse{{Node: jobtest.Node("n1", jobtest.Cores(2)), Free: jobtest.Cores(1)}}}
}

// oneRank is what is known of a training process, with the history that was asked for as its only point.
func oneRank(a UsageAsked) map[string]elastic.Usage {
	r := elastic.RankUsage{Slot: job.Address{Job: "a", Role: "worker", Index: 3}, Rank: 3, Process: &job.ProcessFigures{PID: 7, OpenFiles: new(int64(0))}}
	if a.wants(r.Slot) {
		r.Points = []history.Point{{Step: int64(a.History / time.Second)}}
	}
	return map[string]elastic.Usage{"a": {Ranks: []elastic.RankUsage{r}}}
}

func TestFetchGivesWhatTheMasterKnows(t *testing.T) {
	dir := t.TempDir()
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("without a master: %v", err)
	}
	s, err := ServeLive(oneJob, oneNode, oneRank, dir)
	must(t, err)
	live, err := Fetch(t.Context(), dir)
	if err != nil || live.Records["a"] == nil || live.Records["a"].Phase != job.JobRunning {
		t.Errorf("fetched %+v, %v", live, err)
	}
	nodes, err := FetchNodes(t.Context(), dir)
	if err != nil || len(nodes.Nodes) != 1 || nodes.Nodes[0].Name != "n1" || nodes.Nodes[0].Capacity.CPU != 2000 || nodes.Nodes[0].Free.CPU != 1000 {
		t.Errorf("fetched %+v, %v", nodes, err)
	}
	for of, points := range map[string]int{"": 0, "job.a.worker[0-2]": 0, "job.a": 1} {
		asked := UsageAsked{History: time.Hour}
		if of != "" {
			selector, err := job.ParseSelector(of)
			must(t, err)
			asked.Of = []job.Selector{selector}
		}
		usage, err := FetchUsage(t.Context(), dir, asked)
		if want := oneRank(asked); err != nil || !reflect.DeepEqual(usage, want) {
			t.Errorf("the usage with the history of %q is %+v, %v, not %+v", of, usage, err, want)
		}
		if got := len(usage["a"].Ranks[0].Points); got != points {
			t.Errorf("the history of %q has %d points", of, got)
		}
	}
	info, err := os.Stat(filepath.Join(dir, liveSocket))
	must(t, err)
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	s.Close()
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("after Close: %v", err)
	}
}

// A master that exits in the middle of its answer counts as none, like one that does not answer.
func TestAMasterThatEndsAmidItsAnswerIsNoMaster(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, liveSocket))
	must(t, err)
	dying := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"records": {"a": `))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})}
	ended := make(chan error)
	go func() { ended <- dying.Serve(listener) }()
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("after half an answer: %v", err)
	}
	dying.Close()
	<-ended
}

// What a killed master leaves is not a master, whoever listens meanwhile at whatever port; the next master replaces it, and
// outlives the end of one that was suspended.
func TestAKilledMastersSocketIsNoMaster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("a-long-name/", 12)) // a socket's path has at most 107 bytes
	must(t, os.MkdirAll(dir, 0o700))
	killed, err := ServeLive(oneJob, oneNode, oneRank, dir)
	must(t, err)
	killed.http.Close() // its socket stays
	killed.serving.Wait()
	write(t, filepath.Join(dir, "."+liveSocket+".17.tmp"), "")
	if _, err := Fetch(t.Context(), dir); !errors.Is(err, ErrNoMaster) {
		t.Errorf("of a killed master: %v", err)
	}
	next, err := ServeLive(oneJob, oneNode, oneRank, dir)
	must(t, err)
	defer next.Close()
	killed.Close()
	if live, err := Fetch(t.Context(), dir); err != nil || live.Records["a"] == nil {
		t.Errorf("of the next master: %+v, %v", live, err)
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 1 || left[0].Name() != liveSocket {
		t.Errorf("the run directory has %v", left)
	}
}
