package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/eltrain/eltrain/job"
)

// machine is the library of a machine with eight devices, of which the second says nothing, the third is lost, and the fourth counts more
// errors than a figure can have. Its XID errors are those that are sent to it.
func machine() (*server.Server, chan<- nvml.EventData) {
	s := dgxa100.New()
	events := make(chan nvml.EventData)
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			e, open := <-events
			switch {
			case !open:
				return e, nvml.ERROR_UNINITIALIZED
			case e.Device == nil:
				return e, nvml.ERROR_TIMEOUT
			}
			return e, nvml.SUCCESS
		}}, nvml.SUCCESS
	}
	for i := range s.Devices {
		d := s.Devices[i].(*server.Device)
		ret := nvml.SUCCESS
		if i == 1 {
			ret = nvml.ERROR_NOT_SUPPORTED
			d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, ret }
		}
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 93, Memory: 40}, ret }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, ret }
		d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
			return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1410, nvml.CLOCK_MEM: 1215}[c], ret
		}
		d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 412700, ret }
		d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, _ nvml.EccCounterType) (uint64, nvml.Return) {
			switch {
			case i == 3:
				return 1 << 63, ret
			case kind == nvml.MEMORY_ERROR_TYPE_CORRECTED:
				return 2, ret
			}
			return 0, ret
		}
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return ret }
	}
	byIndex := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 2 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return byIndex(i)
	}
	return s, events
}

func TestLines(t *testing.T) {
	s, events := machine()
	out, in := io.Pipe()
	ended := make(chan error)
	go func() { ended <- run(s, time.Hour, in) }()
	lines := bufio.NewScanner(out)
	next := func() (f job.AcceleratorFigures) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	id := func(i int) string { uuid, _ := s.Devices[i].GetUUID(); return uuid }
	same := func(got, want job.AcceleratorFigures) {
		t.Helper()
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if !bytes.Equal(g, w) {
			t.Errorf("got %s, want %s", g, w)
		}
	}
	full := func(i int) job.AcceleratorFigures {
		return job.AcceleratorFigures{
			Device: i, UUID: id(i), Utilization: new(0.93), MemoryUsed: new(int64(0)), MemoryTotal: new(int64(40 << 30)), Temperature: new(61.0), Clock: new(int64(1.41e9)),
			MemoryClock: new(int64(1.215e9)), Power: new(412.7), ECCCorrected: new(int64(2)), ECCUncorrected: new(int64(0)), XID: new(int64(0)),
		}
	}
	same(next(), full(0))
	same(next(), job.AcceleratorFigures{Device: 1, UUID: id(1)})
	fourth := full(3)
	fourth.ECCCorrected, fourth.ECCUncorrected = nil, nil
	same(next(), fourth)
	for i := 4; i < 8; i++ {
		same(next(), full(i))
	}

	events <- nvml.EventData{} // none for long
	events <- nvml.EventData{Device: s.Devices[0], EventType: nvml.EventTypePState, EventData: 5}
	events <- nvml.EventData{Device: s.Devices[1], EventType: nvml.EventTypeXidCriticalError, EventData: 13} // not registered
	events <- nvml.EventData{Device: s.Devices[0], EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	failed := full(0)
	failed.XID = new(int64(79))
	same(next(), failed)
	same(next(), job.AcceleratorFigures{Device: 1, UUID: id(1)})

	close(events)
	out.CloseWithError(errors.New("the agent has gone"))
	if err := <-ended; err == nil || err.Error() != "the agent has gone" {
		t.Errorf("it ends with %v", err)
	}
}

func TestWithoutDevices(t *testing.T) {
	s, _ := machine()
	s.DeviceGetHandleByIndexFunc = func(int) (nvml.Device, nvml.Return) { return nil, nvml.ERROR_GPU_IS_LOST }
	if err := run(s, time.Hour, io.Discard); err == nil || err.Error() != "there is no device" {
		t.Error(err)
	}
	s.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if err := run(s, time.Hour, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "cannot count the devices") {
		t.Error(err)
	}
}

// TestWithoutTheLibrary: the program says one line and fails.
func TestWithoutTheLibrary(t *testing.T) {
	if matches, _ := filepath.Glob("/usr/lib*/*/libnvidia-ml.so.1"); len(matches) > 0 {
		t.Skip("this machine has it")
	}
	program := filepath.Join(t.TempDir(), "eltrain-nvml")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var stderr, stdout bytes.Buffer
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != 1 || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "libnvidia-ml.so.1") {
		t.Errorf("%v, printed %q and %q", err, &stdout, &stderr)
	}
}
