package elastic

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

// The benchmarks measure the service under many agents: real HTTP on loopback, no training processes. The agents run in a
// second process of this test binary, so that their cost is measured separately, and each process needs one file per agent. Run
// with:
//
//	go test ./elastic -run '^$' -bench 'Rendezvous|Beats' -benchtime 1x

// benchClientsEnv makes the test binary run agents: "ADDRESS COUNT". benchRootsEnv has the CA certificates that they verify the
// service by; empty is a service without TLS, which exists only here, for comparison.
const (
	benchClientsEnv = "ELTRAIN_BENCH_CLIENTS"
	benchRootsEnv   = "ELTRAIN_BENCH_ROOTS"
)

// withAndWithoutTLS runs a benchmark in turn with TLS, as shipped, and in clear.
func withAndWithoutTLS(b *testing.B, bench func(b *testing.B, encrypted bool)) {
	b.Run("tls", func(b *testing.B) { bench(b, true) })
	b.Run("clear", func(b *testing.B) { bench(b, false) })
}

// BenchmarkRendezvousHTTP: seconds from the first connection until every agent has the order to run, and the processor time of
// both sides.
func BenchmarkRendezvousHTTP(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			withAndWithoutTLS(b, func(b *testing.B, encrypted bool) {
				for range b.N {
					used := cpuSeconds(b)
					run := startBench(b, n, encrypted)
					took := run.await("running")
					b.ReportMetric(took, "s/rendezvous")
					b.ReportMetric(cpuSeconds(b)-used, "service-cpu-s")
					b.ReportMetric(run.cpuSeconds(), "agents-cpu-s")
					b.ReportMetric(run.ask("retries"), "retries")
					run.stop()
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// BenchmarkAuthorityStart: what the certificates add to the start of a master.
func BenchmarkAuthorityStart(b *testing.B) {
	for b.Loop() {
		if err := (&Authority{Key: newKey}).start(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBeats10000: the cost of 10,000 agents that beat every 5 s, once they train.
func BenchmarkBeats10000(b *testing.B) { withAndWithoutTLS(b, benchmarkBeats10000) }

func benchmarkBeats10000(b *testing.B, encrypted bool) {
	const window = 20 * time.Second
	for range b.N {
		run := startBench(b, 10000, encrypted)
		run.await("running")
		run.await("reported")
		beats := run.beats()
		begun, used, theirs := time.Now(), cpuSeconds(b), run.cpuSeconds()
		time.Sleep(window)
		wall := time.Since(begun).Seconds()
		b.ReportMetric((cpuSeconds(b)-used)/wall, "service-cores")
		b.ReportMetric((run.cpuSeconds()-theirs)/wall, "agents-cores")
		b.ReportMetric(float64(run.beats()-beats)/wall, "beats/s")
		b.ReportMetric(float64(residentKiB(b))/10000, "service-KiB/agent")
		run.stop()
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBeat is one beat of one of 10,000 members in the coordinator alone.
func BenchmarkBeat(b *testing.B) {
	const n = 10000
	c := NewCoordinator()
	now := time.Now()
	c.Set(now, "bench", desiredOf("bench", n, 15*time.Second))
	requests := make([]SyncRequest, n)
	for i := range requests {
		slot := job.Address{Role: "worker", Index: i}.Short()
		report := Report{State: job.MemberWaiting, Port: 1}
		if _, err := c.Register(now, "bench", RegisterRequest{UID: "u1", Slot: slot, Incarnation: 1, Host: "h", Report: report}); err != nil {
			b.Fatal(err)
		}
		report = Report{State: job.MemberRunning, Generation: 1, Rank: i, WorldSlots: n}
		requests[i] = SyncRequest{UID: "u1", Slot: slot, Incarnation: 1, Report: report}
	}
	for _, f := range c.Ready().Form {
		c.Formed(now, f, nil)
	}
	for i := 0; b.Loop(); i++ {
		now = now.Add(5 * time.Second / n)
		requests[i%n].Step++
		if _, err := c.Sync(now, "bench", requests[i%n]); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			c.Tick(now)
			c.Ready()
		}
	}
}

// benchRun is a server, and agents in another process.
type benchRun struct {
	b      *testing.B
	server *Server
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	stdin  io.WriteCloser
}

type noLedger struct{}

func (noLedger) Form(string, string, job.World) error { return nil }

func startBench(b *testing.B, agents int, encrypted bool) *benchRun {
	raiseFileLimit(b, uint64(agents)+200)
	s := NewServer(ServerOptions{Ledger: noLedger{}})
	if err := s.Start("127.0.0.1:0"); err != nil {
		b.Fatal(err)
	}
	s.SetReady()
	s.Set("bench", desiredOf("bench", agents, 15*time.Second))
	address, roots := s.Addr(), s.Certificates()
	if !encrypted {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		s.running.Go(func() { s.http.Serve(plain) })
		address, roots = plain.Addr(), nil
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", benchClientsEnv, address, agents), benchRootsEnv+"="+string(roots))
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := firstOf(err1, err2, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	return &benchRun{b: b, server: s, cmd: cmd, lines: bufio.NewScanner(stdout), stdin: stdin}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// await reads a line "WORD SECONDS" from the agents.
func (r *benchRun) await(word string) float64 {
	for r.lines.Scan() {
		if rest, ok := strings.CutPrefix(r.lines.Text(), word+" "); ok {
			seconds, err := strconv.ParseFloat(rest, 64)
			if err != nil {
				r.b.Fatal(err)
			}
			return seconds
		}
	}
	r.b.Fatalf("the agents ended before %q", word)
	return 0
}

func (r *benchRun) ask(question string) float64 {
	fmt.Fprintln(r.stdin, question)
	return r.await(question)
}

func (r *benchRun) beats() int          { return int(r.ask("beats")) }
func (r *benchRun) cpuSeconds() float64 { return r.ask("cpu") }

func (r *benchRun) stop() {
	r.stdin.Close()
	if err := r.cmd.Wait(); err != nil {
		r.b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	if err := r.server.Close(ctx); err != nil {
		r.b.Fatal(err)
	}
}

func raiseFileLimit(b testing.TB, want uint64) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	if limit.Cur >= want {
		return
	}
	limit.Cur, limit.Max = want, max(limit.Max, want)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Skipf("cannot raise the limit to %d open files: %v", want, err)
	}
}

func cpuSeconds(b testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// residentKiB is this process's resident memory, as the kernel counts it.
func residentKiB(b testing.TB) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc here")
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return kib
}

// benchClients is the agents' process: minimal agents, one connection and one goroutine each.
func benchClients() {
	var address string
	var n int
	if _, err := fmt.Sscan(os.Getenv(benchClientsEnv), &address, &n); err != nil {
		panic(err)
	}
	raiseFileLimit(benchless{}, uint64(n)+200)
	fleet := &benchFleet{address: address, n: n, dials: make(chan struct{}, 256), stopped: make(chan struct{})}
	if roots := x509.NewCertPool(); roots.AppendCertsFromPEM([]byte(os.Getenv(benchRootsEnv))) {
		fleet.tls = clientTLS(roots)
		fleet.tls.ServerName = "127.0.0.1"
	}
	fleet.begun = time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { fleet.agent(i) })
	}
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		switch questions.Text() {
		case "beats":
			fmt.Println("beats", fleet.beats.Load())
		case "retries":
			fmt.Println("retries", fleet.retries.Load())
		case "cpu":
			fmt.Println("cpu", cpuSeconds(benchless{}))
		}
	}
	close(fleet.stopped)
	all.Wait()
}

// benchless lets the agents' process use the benchmarks' helpers: a failure panics.
type benchless struct{ testing.TB }

func (benchless) Fatal(args ...any)           { panic(fmt.Sprint(args...)) }
func (benchless) Skip(args ...any)            { panic(fmt.Sprint(args...)) }
func (benchless) Skipf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

type benchFleet struct {
	address  string
	tls      *tls.Config // nil without TLS
	n        int
	dials    chan struct{} // bounds concurrent dials, as a kernel's backlog does
	begun    time.Time
	running  atomic.Int64
	reported atomic.Int64
	beats    atomic.Int64
	retries  atomic.Int64
	stopped  chan struct{}
}

func (f *benchFleet) agent(i int) {
	slot := "worker[" + strconv.Itoa(i) + "]"
	who := `{"uid":"u1","slot":"` + slot + `","incarnation":1,`
	conn, answers := f.register(who)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-f.stopped:
		case <-stop:
		}
		conn.Close()
	}()
	state, figures := `"state":"waiting","port":1`, "}"
	seen, placed := uint64(0), false
	for {
		answer, err := call(conn, answers, "sync", who+`"seen":`+strconv.FormatUint(seen, 10)+`,`+state+figures)
		var reply SyncReply
		if err == nil {
			err = json.Unmarshal(answer, &reply) // an empty answer is one to a connection that is being closed
		}
		if err != nil {
			select {
			case <-f.stopped:
				return
			default:
				panic(err)
			}
		}
		f.beats.Add(1)
		if placed {
			figures = "," + benchFigures(i)
		}
		if reply.Version == seen {
			if placed && f.reported.Add(1) == int64(f.n) {
				fmt.Println("reported", time.Since(f.begun).Seconds())
			}
			continue
		}
		seen = reply.Version
		if w := reply.Order.World; w != nil {
			placed = true
			state = fmt.Sprintf(`"state":"running","generation":%d,"rank":%d,"world_slots":%d,"pids":[4242],"step":1234,"loss":0.125,"step_rate":41.5,"cpu":987,"memory":"123456KiB"`,
				w.Generation, w.GroupRank, w.GroupSize)
			if f.running.Add(1) == int64(f.n) {
				fmt.Println("running", time.Since(f.begun).Seconds())
			}
		}
	}
}

// benchFigures are the figures of a rank, as an agent reports them.
func benchFigures(i int) string {
	now := time.Now()
	cpu := float64(now.UnixMilli()%1e9) / 1e3
	return fmt.Sprintf(`"ranks":[{"process":{"pid":%d,"state":"R","processes":5,"threads":96,"thread_states":{"running":2,"sleeping":94,"uninterruptible":0,"stopped":0,"zombie":0},`+
		`"open_files":112,"cpu_seconds":%.2f,"rss_bytes":%d,"pss_bytes":1468006400,"peak_rss_bytes":2147483648,"read_bytes":%d,"written_bytes":%d,"storage_read_bytes":0,"storage_written_bytes":0}}],`+
		`"figures":{"at":%q,"memory_limit_bytes":4294967296,"memory_used_bytes":1672864000,"memory_stalled_seconds":0.01,"cpu_stalled_seconds":12.5,"io_stalled_seconds":0.3,"tcp_retransmits":7}}`,
		4000+i, cpu, 1_500_000_000+now.UnixNano()%1e6, int64(cpu*1e6), int64(cpu*1e3), now.Format(time.RFC3339Nano))
}

// register connects and registers, again after a while if the service is too busy, as an agent does.
func (f *benchFleet) register(who string) (net.Conn, *bufio.Reader) {
	for backoff := 50 * time.Millisecond; ; backoff = min(2*backoff, 2*time.Second) {
		f.dials <- struct{}{}
		conn, err := net.Dial("tcp", f.address)
		<-f.dials
		if err != nil {
			panic(err)
		}
		if f.tls != nil {
			conn = tls.Client(conn, f.tls)
		}
		answers := bufio.NewReaderSize(conn, 512)
		if _, err = call(conn, answers, "register", who+`"host":"127.0.0.1","port":1,"state":"waiting"}`); err == nil {
			return conn, answers
		}
		conn.Close()
		f.retries.Add(1)
		time.Sleep(backoff/2 + rand.N(backoff))
	}
}

// call sends one request over a persistent connection.
func call(conn net.Conn, answers *bufio.Reader, verb, body string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/jobs/bench/%s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", verb, len(body), body)
	if _, err := conn.Write(b.Bytes()); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", verb, res.Status, raw)
	}
	return raw, err
}

// BenchmarkPass10000 is what one pass of the planning loop costs the service: an unchanged Set, and Observe.
func BenchmarkPass10000(b *testing.B) {
	c := NewCoordinator()
	now := time.Now()
	d := desiredOf("bench", 10000, 15*time.Second)
	c.Set(now, "bench", d)
	for i := range 10000 {
		slot := job.Address{Role: "worker", Index: i}.Short()
		req := RegisterRequest{UID: "u1", Slot: slot, Incarnation: 1, Host: "h", Report: Report{State: job.MemberWaiting, Port: 1}}
		if _, err := c.Register(now, "bench", req); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range c.Ready().Form {
		c.Formed(now, f, nil)
	}
	for b.Loop() {
		c.Set(now, "bench", d)
		c.Observe()
	}
}
