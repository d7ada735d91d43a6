package metrics

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/job/jobtest"
	"github.com/eltrain/eltrain/plan"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md and testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// master is a source of everything that there is a metric of: a job that trains, two that wait, and nodes.
type master struct {
	live  apply.Live
	nodes apply.Nodes
	usage map[string]elastic.Usage
}

func (m *master) Live() apply.Live                                { return m.live }
func (m *master) Nodes() apply.Nodes                              { return m.nodes }
func (m *master) Usage(apply.UsageAsked) map[string]elastic.Usage { return m.usage }

func everything(t testing.TB) *master {
	slot := func(i int) job.Address { return job.Address{Job: "gpt", Role: "worker", Index: i} }
	record := func(name string, phase job.JobPhase, priority int, created time.Duration) *job.Record {
		spec := job.Job{Name: name, Provider: "local", Priority: priority, Roles: []job.Role{{Name: "worker", Replicas: 2, Processes: 1}}}
		spec.Heal.Budget.Restarts = 10
		return &job.Record{UID: "uid-" + name, Spec: spec, Phase: phase, Created: jobtest.Epoch.Add(created)}
	}
	gpt := record("gpt", job.JobRunning, 0, 0)
	gpt.Slots = []job.Slot{{Address: slot(0), Phase: job.Running, Incarnation: 1}, {Address: slot(1), Phase: job.Running, Incarnation: 1}}
	gpt.World = job.World{Generation: 3, Members: []job.WorldMember{{Slot: slot(0), Incarnation: 1, Processes: 1}, {Slot: slot(1), Incarnation: 1, Rank: 1, Processes: 1}}}
	gpt.Goodput = job.Goodput{Wall: 100, Productive: 90, Lost: job.LostTime{Scheduling: 4, RedoneSteps: 6}, Saved: job.Saved{Step: 1000, Generation: 3}}
	loss := job.Loss(math.NaN())
	incarnation := func(i int) job.Incarnation {
		m := &job.Member{State: job.MemberRunning, Generation: 3, Step: 1234, StepRate: 41.5, Loss: &loss}
		return job.Incarnation{Slot: slot(i), UID: gpt.UID, Number: 1, State: job.Up, Member: m}
	}
	rdma := &job.RDMAFigures{Received: new(int64(5)), Sent: new(int64(6)), LinkDowned: new(int64(1))}
	figures := &job.SlotFigures{
		At: jobtest.Epoch, MemoryLimit: new(int64(4 << 30)), MemoryUsed: new(int64(1 << 30)), MemoryStalled: new(0.5), CPUStalled: new(1.5), IOStalled: new(0.0), TCPRetransmits: new(int64(7)), RDMA: rdma,
		Accelerators: []job.AcceleratorFigures{{Device: 2}, {
			Device: 5, UUID: "GPU-8f6d", Utilization: new(0.93), MemoryUsed: new(int64(79 << 30)), MemoryTotal: new(int64(80 << 30)), Temperature: new(61.5), Clock: new(int64(1.98e9)),
			MemoryClock: new(int64(2.619e9)), Power: new(412.7), ECCCorrected: new(int64(2)), ECCUncorrected: new(int64(0)), XID: new(int64(79)),
		}},
	}
	process := &job.ProcessFigures{
		PID: 7, State: job.ThreadBlocked, Processes: 5, Threads: 96, OpenFiles: new(int64(0)), CPUSeconds: new(12.5), RSS: new(int64(1 << 30)), PSS: new(int64(1 << 29)), PeakRSS: new(int64(1 << 31)),
		Read: new(int64(1)), Written: new(int64(2)), ReadFromStorage: new(int64(3)), WrittenToStorage: new(int64(4)),
	}
	unused := jobtest.Cores(2)
	unused.Devices = map[string]int{"nvidia.com/gpu": 4}
	noRoom := job.Because(plan.NoRoom)
	return &master{
		live: apply.Live{
			Records: job.Records{
				"gpt": gpt, "late": record("late", job.JobPending, 0, time.Hour), "urgent": record("urgent", job.JobPending, 5, 2*time.Hour),
			},
			Snapshot: job.Snapshot{At: jobtest.Epoch, Incarnations: job.Incarnations{{incarnation(0), incarnation(1)}}},
			Waits:    []plan.Wait{{Job: "late", Reasons: []job.Reason{noRoom}}, {Job: "late", Role: "worker", Reasons: []job.Reason{noRoom, noRoom}}},
			Conditions: []conditions.Condition{{
				About: "job.late", Reason: noRoom, Since: jobtest.Epoch,
			}},
		},
		nodes: apply.Nodes{
			Nodes:      []plan.NodeUse{{Node: job.Node{Name: "n1", Provider: "local", Capacity: unused}, Free: unused, Usable: true}},
			Unobserved: map[string]string{"kubernetes": "connection refused"},
		},
		usage: map[string]elastic.Usage{"gpt": {
			UID: gpt.UID, Generation: 3, Saved: jobtest.Epoch, Service: members(t),
			Ranks: []elastic.RankUsage{
				{Slot: slot(0), Incarnation: 1, State: job.MemberRunning, Step: 1234, Process: process, Figures: figures},
				{Slot: slot(1), Incarnation: 1, Rank: -1, State: job.MemberRunning, Silent: true},
			},
		}},
	}
}

// members are the service's own figures of a job without members.
func members(t testing.TB) elastic.ServiceFigures {
	c := elastic.NewCoordinator()
	c.Set(jobtest.Epoch, "gpt", elastic.Desired{UID: "uid-gpt", Token: "x"})
	return c.Usage()["gpt"].Service
}

// exporter is one of a master that leads, which has seen an incident twice.
func exporter(t testing.TB, bySlot bool) *Exporter {
	t.Helper()
	s := elastic.NewServer(elastic.ServerOptions{})
	e := New(Options{Version: "1.2.3", BySlot: bySlot, Service: s.Traffic(), Redactor: new(view.Redactor), Log: slog.New(slog.DiscardHandler)})
	e.Lead(everything(t))
	for _, cause := range []job.Cause{job.ProcessFailed, job.AgentGone} { // an echo, and then its cause
		e.incidents.noticed(job.Notice{Type: "incident", Address: "job.gpt", Incident: &job.Incident{Time: jobtest.Epoch, Cause: cause, Action: job.RestartInPlace, Generation: 2}})
	}
	e.incidents.noticed(job.Notice{Type: "incident", Address: "job.gpt", Incident: &job.Incident{Time: jobtest.Epoch, Cause: job.Straggler, Action: job.Report, Generation: 2}}) // another one of that world
	e.incidents.noticed(job.Notice{Type: "incident", Address: "job.removed", Incident: &job.Incident{Time: jobtest.Epoch, Cause: job.ProcessFailed, Action: job.FailJob}})
	e.incidents.noticed(job.Notice{Type: "world_formed", Address: "job.gpt"})
	return e
}

// scraped is what an Exporter serves.
func scraped(t *testing.T, e *Exporter) string {
	t.Helper()
	if err := e.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	resp, err := http.Get("http://" + e.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v:\n%s", resp.Status, err, text)
	}
	return string(text)
}

func TestAScrapeHasEverything(t *testing.T) {
	text := scraped(t, exporter(t, true))
	var own strings.Builder // without the times of requests
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "eltrain_service_request_seconds") {
			own.WriteString(line)
		}
	}
	const file = "testdata/scrape.txt"
	if *update {
		os.MkdirAll("testdata", 0o755)
		os.WriteFile(file, []byte(own.String()), 0o644)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), own.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, f := range families {
		if !strings.Contains(text, "\n"+f.name+"{") {
			t.Errorf("%s is not in the scrape", f.name)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
}

// TestWithoutTheSwitchNoSlotHasMetrics: the number of series does not depend on that of slots.
func TestWithoutTheSwitchNoSlotHasMetrics(t *testing.T) {
	text := scraped(t, exporter(t, false))
	if strings.Contains(text, "eltrain_process_") || strings.Contains(text, "eltrain_slot_") || !strings.Contains(text, `eltrain_job_step{job_name="gpt"} 1234`) {
		t.Errorf("got\n%s", text)
	}
}

// TestAMasterThatWaitsHasNoJobs: a standby knows nothing yet.
func TestAMasterThatWaitsHasNoJobs(t *testing.T) {
	e := exporter(t, true)
	e.Lead(nil)
	if text := scraped(t, e); strings.Contains(text, "eltrain_job") || !strings.Contains(text, `eltrain_build_info{version="1.2.3"} 1`) {
		t.Errorf("got\n%s", text)
	}
}

// TestIncidentsOfRemovedJobsAreForgotten, or the labels would grow with each job that there ever was.
func TestIncidentsOfRemovedJobsAreForgotten(t *testing.T) {
	e := exporter(t, false)
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(collector{e})
	if _, err := own.Gather(); err != nil {
		t.Fatal(err)
	}
	if len(e.incidents.counts) != 2 || len(e.incidents.last) != 2 {
		t.Errorf("it keeps %v", e.incidents.counts)
	}
}

// TestAScrapeThatStallsHoldsNothingUp: a client that sends half a request, or reads no answer, is disconnected, and others are served.
func TestAScrapeThatStallsHoldsNothingUp(t *testing.T) {
	e := exporter(t, false)
	e.http.ReadHeaderTimeout, e.http.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	if err := e.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var stalled []net.Conn
	for range 2 * maxScrapes {
		conn, err := net.Dial("tcp", e.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n")
		stalled = append(stalled, conn)
	}
	resp, err := http.Get("http://" + e.Addr().String() + "/metrics")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("beside stalled ones: %v, %v", resp, err)
	}
	resp.Body.Close()
	for _, conn := range stalled {
		conn.SetReadDeadline(time.Now().Add(hang.Bound))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatalf("a client that sends half a request stays: %v", err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestEveryMetricIsDocumented: docs/metrics.md has the metrics that a scrape has, with their types, labels and help.
func TestEveryMetricIsDocumented(t *testing.T) {
	e := exporter(t, true)
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(collector{e})
	all, err := prometheus.Gatherers{own, e.options.Service}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	table.WriteString("| metric | type | labels | |\n|---|---|---|---|\n")
	for _, f := range all {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	const file = "../../docs/metrics.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marks := regexp.MustCompile(`(?s)(<!-- metrics -->\n).*(<!-- end -->)`)
	if !marks.Match(page) {
		t.Fatalf("%s has no table", file)
	}
	want := marks.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(table.String(), "$", "$$")+"${2}"))
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(want), string(page)); diff != "" {
		t.Errorf("%s is out of date; run: go test ./cmd/metrics -update (-want +got):\n%s", file, diff)
	}
}

// BenchmarkScrape10000 is a scrape of a job of 10,000 slots, with the metrics of each.
func BenchmarkScrape10000(b *testing.B) {
	const slots = 10000
	m := everything(b)
	gpt := m.live.Records["gpt"]
	u := m.usage["gpt"]
	process, figures := u.Ranks[0].Process, u.Ranks[0].Figures
	gpt.Slots, u.Ranks, m.live.Snapshot.Incarnations, gpt.World.Members = nil, nil, nil, nil
	for i := range slots {
		a := job.Address{Job: "gpt", Role: "worker", Index: i}
		gpt.Slots = append(gpt.Slots, job.Slot{Address: a, Phase: job.Running, Incarnation: 1})
		gpt.World.Members = append(gpt.World.Members, job.WorldMember{Slot: a, Incarnation: 1, Rank: i, Processes: 1})
		m.live.Snapshot.Incarnations = m.live.Snapshot.Incarnations.With(job.Incarnation{Slot: a, UID: gpt.UID, Number: 1, State: job.Up, Member: &job.Member{State: job.MemberRunning, Step: 7}})
		u.Ranks = append(u.Ranks, elastic.RankUsage{Slot: a, Incarnation: 1, Rank: i, State: job.MemberRunning, Step: 7, Process: process, Figures: figures})
	}
	m.usage["gpt"] = u
	for _, bySlot := range []bool{false, true} {
		b.Run(fmt.Sprintf("by_slot=%t", bySlot), func(b *testing.B) {
			e := exporter(b, bySlot)
			e.Lead(m)
			for b.Loop() {
				w := &counted{header: http.Header{}}
				e.http.Handler.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"}, Host: "x"})
				b.ReportMetric(float64(w.bytes)/1e6, "MB")
			}
		})
	}
}

// counted counts what is answered.
type counted struct {
	header http.Header
	bytes  int
}

func (c *counted) Header() http.Header         { return c.header }
func (c *counted) Write(b []byte) (int, error) { c.bytes += len(b); return len(b), nil }
func (c *counted) WriteHeader(int)             {}
