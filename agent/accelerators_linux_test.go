package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

const fullLine = `{"device": 3, "uuid": "GPU-8f6d", "utilization": 0.93, "memory_used_bytes": 8.5e10, "memory_total_bytes": 85899345920, "temperature_celsius": 61.5,
 "clock_hz": 1980000000, "memory_clock_hz": 2619000000, "power_watts": 412.7, "ecc_corrected": 2, "ecc_uncorrected": 0, "xid": 0, "more": [1]}`

func TestParseLinesOfFigures(t *testing.T) {
	device := job.AcceleratorFigures{Device: 3}
	with := func(change func(*job.AcceleratorFigures)) *job.AcceleratorFigures {
		f := device
		change(&f)
		return &f
	}
	for line, want := range map[string]*job.AcceleratorFigures{
		strings.ReplaceAll(fullLine, "\n", ""): {
			Device: 3, UUID: "GPU-8f6d", Utilization: new(0.93), MemoryUsed: new(int64(85e9)), MemoryTotal: new(int64(80 << 30)), Temperature: new(61.5), Clock: new(int64(1.98e9)),
			MemoryClock: new(int64(2.619e9)), Power: new(412.7), ECCCorrected: new(int64(2)), ECCUncorrected: new(int64(0)), XID: new(int64(0)),
		},
		`{"device":3}`: &device,
		`{"device":3,"utilization":93,"temperature_celsius":-5,"clock_hz":1e300}`:          &device, // a percentage, and what cannot be
		`{"device":3,"utilization":"N/A","memory_used_bytes":null,"power_watts":1e999}`:    &device,
		`{"device":3,"utilization":[0.5],"xid":79.9}`:                                      with(func(f *job.AcceleratorFigures) { f.XID = new(int64(79)) }),
		`{"device":3,"uuid":"x\",evil=\"1"}`:                                               &device,
		`{"device":3,"uuid":"` + strings.Repeat("u", 65) + `"}`:                            &device,
		`{"device":3,"ecc_uncorrected":9007199254740992,"ecc_corrected":9007199254740994}`: with(func(f *job.AcceleratorFigures) { f.ECCUncorrected = new(int64(1 << 53)) }),
		`{"device":64}`:             nil,
		`{"device":-1}`:             nil,
		`{"device":1.5}`:            nil,
		`{"device":"0"}`:            nil,
		`{"utilization":0.5}`:       nil,
		`{"device":3,"xid":NaN}`:    nil, // no JSON
		`{"device":3}{"device":4}`:  nil,
		`[{"device":3}]`:            nil,
		`null`:                      nil,
		`Failed to initialize NVML`: nil,
		``:                          nil,
		"\xff\xfe{\"device\":3":     nil,
	} {
		got, ok := parseFigures([]byte(line))
		if ok != (want != nil) {
			t.Errorf("%s: %v", line, ok)
		}
		if want != nil {
			if diff := cmp.Diff(*want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", line, diff)
			}
		}
	}
}

// hurried are paces at which all of them pass in a test. Figures are trusted for longer than that.
var hurried = paces{every: time.Millisecond, most: 10 * time.Millisecond, quiet: 50 * time.Millisecond, trust: 2 * hang.Bound, end: hang.Bound}

// following follows a shell script's figures.
func following(t *testing.T, p paces, script string) *accelerators {
	t.Helper()
	f := newForker()
	a := newAccelerators(&job.AgentConfig{Accelerators: job.Words{"sh", "-c", script}}, f, quiet)
	a.paces = p
	a.begin()
	t.Cleanup(func() {
		a.end()
		f.close()
	})
	return a
}

// numbers are the devices that have figures.
func (a *accelerators) numbers() (numbers []int) {
	for _, f := range a.figures(time.Now()) {
		numbers = append(numbers, f.Device)
	}
	return numbers
}

func has(a *accelerators, want ...int) func() bool {
	return func() bool { return cmp.Equal(a.numbers(), want) }
}

func TestCommandForFigures(t *testing.T) {
	patient := hurried
	patient.quiet = hang.Bound
	ones := filepath.Join(t.TempDir(), "ones")
	lines := func() int {
		text, _ := os.ReadFile(ones)
		return strings.Count(string(text), "\n")
	}
	for name, test := range map[string]struct {
		paces  paces
		script string
		want   []int
	}{
		"goes on":                    {patient, `echo '{"device":1}'; echo '{"device":0}'; exec sleep 3600`, []int{0, 1}},
		"prints no line end":         {patient, `echo '{"device":1}'; printf '{"device":0}'; exec sleep 3600`, []int{1}},
		"ends, and is started again": {patient, `echo >>` + ones + `; test $(wc -l <` + ones + `) -lt 4 || echo '{"device":2}'`, []int{2}},
		"blocks, and is killed":      {hurried, `trap '' TERM; test -e ` + ones + `.blocks && echo '{"device":2}'; touch ` + ones + `.blocks; sleep 3600`, []int{2}},
		"floods with garbage":        {patient, `echo '{"device":4}'; exec yes '{"device":'`, []int{4}},
		"floods without a line end":  {patient, `echo '{"device":4}'; yes | tr -d '\n'`, []int{4}},
		"prints binary":              {patient, `head -c 100000 /dev/urandom; echo; echo '{"device":4}'; exec sleep 3600`, []int{4}},
		"has too many devices":       {patient, `for i in $(seq 0 70); do echo "{\"device\":$i}"; done; exec sleep 3600`, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
		"closes its output":          {patient, `echo '{"device":5}'; exec >&- 2>&-; sleep 3600`, []int{5}},
		"leaves its group":           {patient, `echo '{"device":6}'; setsid sleep 3600 & exit 7`, []int{6}},
	} {
		t.Run(name, func(t *testing.T) {
			a := following(t, test.paces, test.script)
			eventually(t, "the figures", has(a, test.want...))
			a.end()
			if left := a.numbers(); left != nil {
				t.Errorf("after the end there are figures of %d", left)
			}
		})
	}
	if lines() < 4 {
		t.Errorf("the command that ends was started %d times", lines())
	}
	if has := killedOf(t); has {
		t.Error("a command is left")
	}
}

// killedOf kills what commands left behind on purpose, and reports whether a command for figures still runs.
func killedOf(t *testing.T) (left bool) {
	t.Helper()
	for _, st := range descendants(os.Getpid()) {
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(st.pid) + "/cmdline")
		left = left || strings.Contains(string(text), `{"device"`)
	}
	return left
}

// TestFiguresFollowTheCommand: newer ones replace older ones, also of a counter that begins again, and old ones are forgotten.
func TestFiguresFollowTheCommand(t *testing.T) {
	a := &accelerators{paces: defaultPaces, devices: map[int]dated{}, errors: map[int]deviceErrors{}}
	at := time.Now()
	a.said(job.AcceleratorFigures{Device: 1, ECCUncorrected: new(int64(7)), Utilization: new(0.5)}, at)
	a.said(job.AcceleratorFigures{Device: 1, ECCUncorrected: new(int64(0))}, at.Add(time.Second))
	a.said(job.AcceleratorFigures{Device: 2}, at.Add(2*time.Second))
	want := []job.AcceleratorFigures{{Device: 1, ECCUncorrected: new(int64(0))}, {Device: 2}}
	if diff := cmp.Diff(want, a.figures(at.Add(31*time.Second))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], a.figures(at.Add(32*time.Second))); diff != "" {
		t.Errorf("once the first is old (-want +got):\n%s", diff)
	}
	for device := 10; device < 10+job.MaxAccelerators; device++ {
		a.said(job.AcceleratorFigures{Device: device}, at.Add(time.Minute))
	}
	if n := len(a.figures(at.Add(time.Minute))); n != job.MaxAccelerators {
		t.Errorf("old figures keep new ones out: there are %d", n)
	}
}

// TestCommandThatCannotDie: it is left behind, and no other is started beside it.
func TestCommandThatCannotDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, dies := 0, make(chan struct{})
		a := &accelerators{paces: defaultPaces, log: quiet, read: func(context.Context) error {
			reads++
			<-dies
			return errors.New("it has ended")
		}}
		a.begin()
		synctest.Wait()
		began := time.Now()
		a.end()
		if took := time.Since(began); took != defaultPaces.end {
			t.Errorf("the end took %s", took)
		}
		a.begin()
		synctest.Wait()
		if reads != 1 {
			t.Errorf("%d commands run", reads)
		}
		a.end() // takes no time: nothing was begun
		close(dies)
		synctest.Wait()
		a.begin()
		synctest.Wait()
		a.end()
		if reads != 2 || time.Since(began) != defaultPaces.end {
			t.Errorf("%d commands ran, the last until %s", reads, time.Since(began))
		}
	})
}

// TestFloodIsSlow: 1 MiB takes 15 s, unless the command is to end.
func TestFloodIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, over := time.Now(), make(chan struct{})
		slow := &throttle{until: over}
		flood := func() time.Duration {
			for range (1 << 20) / readSize {
				slow.Write(make([]byte, readSize))
			}
			return time.Since(began)
		}
		if took := flood(); took < 10*time.Second || took > 16*time.Second {
			t.Errorf("a flood was read in %s", took)
		}
		close(over)
		began = time.Now()
		if took := flood(); took > time.Second {
			t.Errorf("its rest was read in %s", took)
		}
	})
}

// TestAcceleratorsAreReportedWhileProcessesRun: with the beat, and not after the processes have ended. The command ends with them.
func TestAcceleratorsAreReportedWhileProcessesRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sh", "-c", "sleep 3600")
	b.config.WorkingDir = b.dir
	b.config.Accelerators = job.Words{"sh", "-c", `echo $$ >pid; echo '{"device":0,"utilization":0.5,"xid":0}'; sleep 3600`}
	b.launch(t)
	for generation := 1; generation <= 2; generation++ {
		b.service.run(generation, 1)
		r := b.service.await(t, "figures", func(r elastic.Report) bool {
			return r.Generation == generation && r.Figures != nil && len(r.Figures.Accelerators) == 1
		})
		want := []job.AcceleratorFigures{{Device: 0, Utilization: new(0.5), XID: new(int64(0))}}
		if diff := cmp.Diff(want, r.Figures.Accelerators); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		pid := strings.TrimSpace(b.read("pid"))
		b.service.give(elastic.Order{Do: elastic.Wait})
		b.service.await(t, "no figures", func(r elastic.Report) bool {
			return r.State == job.MemberWaiting && r.Generation == generation && r.Figures == nil
		})
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("the command %s still runs", pid)
		}
	}
}

// The names, labels and types are those of DCGM exporter 4.
const dcgmText = `# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-8f6d",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",container="train",namespace="ml",pod="a \"b\" {c}"} 1980
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-77aa",pci_bus_id="00000000:5E:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 345
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-8f6d",device="nvidia0"} 93
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-77aa",device="nvidia1"} NaN
DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-0001",device="nvidia2",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 50
DCGM_FI_DEV_MEM_CLOCK{gpu="0",UUID="GPU-8f6d"} 2619
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-8f6d"} 70000
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-8f6d"} 11000
DCGM_FI_DEV_FB_TOTAL{gpu="0",UUID="GPU-8f6d"} 81559
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-8f6d"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-8f6d"} 412.7
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{gpu="0",UUID="GPU-8f6d"} 2
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",UUID="GPU-8f6d"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-8f6d",err_code="79",err_msg="GPU has fallen off the bus"} 79
DCGM_FI_DEV_XID_ERRORS{gpu="x",UUID="GPU-8f6d"} 1
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-77aa"} +Inf
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-8f6d"} 0.5
`

var dcgmFirst = job.AcceleratorFigures{
	Device: 0, UUID: "GPU-8f6d", Utilization: new(0.93), MemoryUsed: new(int64(70000 << 20)), MemoryTotal: new(int64(81559 << 20)), Temperature: new(61.0), Clock: new(int64(1.98e9)),
	MemoryClock: new(int64(2.619e9)), Power: new(412.7), ECCCorrected: new(int64(2)), ECCUncorrected: new(int64(0)), XID: new(int64(79)),
}

func TestDCGMExporter(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   []job.AcceleratorFigures // nil for none
		fails  string
	}{
		"all": {
			answer: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, dcgmText) },
			want:   []job.AcceleratorFigures{dcgmFirst, {Device: 1, UUID: "GPU-77aa", Clock: new(int64(345e6))}}, fails: "no figures",
		},
		"other metrics":  {answer: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }, fails: "no figures"},
		"no text format": {answer: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "DCGM_FI_DEV_GPU_UTIL{gpu=0} 1\n") }, fails: "no text of Prometheus"},
		"an error":       {answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "GPU-", http.StatusInternalServerError) }, fails: "500"},
		"a long line": {
			answer: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", 1<<20)) }, fails: "token too long",
		},
		"no end": {
			answer: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, dcgmText); err != nil {
						return
					}
				}
			},
			want: []job.AcceleratorFigures{dcgmFirst, {Device: 1, UUID: "GPU-77aa", Clock: new(int64(345e6))}}, fails: "no figures",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(test.answer))
			defer s.Close()
			a := &accelerators{log: quiet, paces: defaultPaces, devices: map[int]dated{}, errors: map[int]deviceErrors{}}
			err := a.readDCGM(t.Context(), s.URL)
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("the error is %v, without %q", err, test.fails)
			}
			if diff := cmp.Diff(test.want, a.figures(time.Now())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDCGMExporterThatStalls: neither before its headers nor within its answer does it hold up the end of the processes.
func TestDCGMExporterThatStalls(t *testing.T) {
	for name, begins := range map[string]string{"at once": "", "within the answer": "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 93\n"} {
		t.Run(name, func(t *testing.T) {
			asked, over := make(chan struct{}, 1), make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begins != "" {
					io.WriteString(w, begins)
					w.(http.Flusher).Flush()
				}
				asked <- struct{}{}
				<-over
			}))
			defer s.Close()
			defer close(over)
			a := newAccelerators(&job.AgentConfig{DCGM: s.URL}, nil, quiet)
			a.paces.end = hang.Bound
			a.begin()
			<-asked
			a.end()
			select {
			case <-a.done:
			default:
				t.Error("the request still runs")
			}
		})
	}
}

// TestFiguresOfOtherSlotsDevices: an exporter has those of all devices of its node.
func TestFiguresOfOtherSlotsDevices(t *testing.T) {
	for visible, want := range map[string][]int{
		"": {1, 2, 3}, "all": {1, 2, 3}, "0,1": {1, 2, 3}, "MIG-8f6d": {1, 2, 3}, "GPU-8f6d-1": {1, 3}, "GPU-77aa-2, GPU-8f6d": {1, 2, 3}, "GPU-0": {3},
	} {
		t.Setenv("NVIDIA_VISIBLE_DEVICES", visible)
		t.Setenv("CUDA_VISIBLE_DEVICES", "")
		a := &accelerators{paces: defaultPaces, visible: visibleDevices(), devices: map[int]dated{}, errors: map[int]deviceErrors{}}
		for device, id := range map[int]string{1: "GPU-8f6d-1", 2: "GPU-77aa-2", 3: ""} {
			a.said(job.AcceleratorFigures{Device: device, UUID: id}, time.Now())
		}
		if got := a.numbers(); !cmp.Equal(got, want) {
			t.Errorf("%q: figures of %d, not %d", visible, got, want)
		}
	}
}

// TestErrorsOfDevices: those since the processes began count, also of a device that has no figures any more.
func TestErrorsOfDevices(t *testing.T) {
	at := time.Now()
	type said = job.AcceleratorFigures
	xid, ecc := func(n int64) said { return said{Device: 3, UUID: "GPU-8f6d", XID: &n} }, func(n int64) said { return said{ECCUncorrected: &n} }
	const failed, memory = "[eltrain] accelerator 3 (GPU-8f6d): Xid ", "[eltrain] accelerator 0: uncorrected memory errors: "
	for name, test := range map[string]struct {
		said []said
		want []string
	}{
		"none":                      {[]said{xid(0), ecc(0), {Device: 7}}, nil},
		"of before":                 {[]said{xid(79), ecc(4), xid(79), ecc(4)}, nil},
		"new":                       {[]said{xid(0), ecc(4), ecc(5), xid(79), ecc(7)}, []string{memory + "3", failed + "79"}},
		"newer than one of before":  {[]said{xid(31), xid(79)}, []string{failed + "79"}},
		"not known at first":        {[]said{{Device: 3}, xid(79), {}, ecc(4), ecc(5)}, []string{memory + "1"}},
		"a counter that begins":     {[]said{ecc(9), ecc(0), ecc(1)}, []string{memory + "1"}},
		"a source that begins":      {[]said{xid(79), xid(0), xid(79)}, []string{failed + "79"}},
		"no figures after the last": {[]said{xid(0), xid(79), {Device: 3}}, []string{failed + "79"}},
	} {
		a := &accelerators{paces: defaultPaces, devices: map[int]dated{}, errors: map[int]deviceErrors{}}
		for _, f := range test.said {
			a.said(f, at)
		}
		a.said(job.AcceleratorFigures{Device: 9}, at.Add(time.Hour))
		if diff := cmp.Diff(test.want, a.failures()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFailureHasTheErrorsOfDevices: after the last output of the process.
func TestFailureHasTheErrorsOfDevices(t *testing.T) {
	t.Parallel()
	b := newBench(t, 300*time.Millisecond, "sh", "-c", `i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; until test -e fail; do sleep 0.01; done; exit 1`)
	b.config.WorkingDir = b.dir
	b.config.Accelerators = job.Words{"sh", "-c", `echo '{"device":0,"xid":0}'; until test -e fall; do sleep 0.01; done; echo '{"device":0,"xid":79}'; sleep 3600`}
	b.launch(t)
	b.service.run(1, 1)
	xid := func(n int64) func(r elastic.Report) bool {
		return func(r elastic.Report) bool {
			return r.Figures != nil && len(r.Figures.Accelerators) == 1 && *r.Figures.Accelerators[0].XID == n
		}
	}
	b.service.await(t, "a device without errors", xid(0))
	b.write(t, "fall", "")
	b.service.await(t, "its error", xid(79))
	b.write(t, "fail", "")
	e := b.service.awaitState(t, job.MemberFailed, 1).Exit
	if n := len(e.Tail); n != tailLines || e.Tail[n-2] != "line 99" || e.Tail[n-1] != "[eltrain] accelerator 0: Xid 79" {
		t.Errorf("the last output has %d lines: %q", n, e.Tail)
	}
}
