// Command eltrain-nvml prints the figures of NVIDIA devices as the agent reads them of a command: a line of JSON for each device at each
// interval, and one more at once after an XID error. See docs/metrics.md.
//
// It is a program and a module of its own, because the driver's library needs cgo and may block. It must not know agents or jobs beyond
// the format of a line.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/eltrain/eltrain/job"
)

func main() {
	every := flag.Duration("interval", 5*time.Second, "how often figures are printed")
	flag.Parse()
	if flag.NArg() > 0 || *every <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(nvml.New(), *every, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "eltrain-nvml:", err)
		os.Exit(1)
	}
}

// run prints figures until they cannot be written.
func run(lib nvml.Interface, every time.Duration, to io.Writer) error {
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("the NVIDIA driver's library (libnvidia-ml.so.1) cannot be used: %s", nvml.ErrorString(ret))
	}
	defer lib.Shutdown()
	devices, err := open(lib)
	if err != nil {
		return err
	}
	failed := make(chan struct{}, 1)
	xids := &xids{newest: map[string]int64{}}
	if set, watched := watch(lib, devices); len(watched) > 0 {
		xids.begin(watched)
		go xids.follow(set, failed)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	lines := json.NewEncoder(to)
	for {
		for i := range devices {
			if err := lines.Encode(devices[i].figures(xids)); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-failed:
		}
	}
}

// device is one that the driver shows to this process.
type device struct {
	nvml.Device
	number int
	uuid   string
}

func open(lib nvml.Interface) (all []device, err error) {
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("cannot count the devices: %s", nvml.ErrorString(ret))
	}
	for i := range min(count, job.MaxDevice) {
		d, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // the others have figures
		}
		uuid, _ := d.GetUUID()
		all = append(all, device{d, i, uuid})
	}
	if len(all) == 0 {
		return nil, errors.New("there is no device")
	}
	return all, nil
}

// figures are those of a device now. What the driver does not say is left out.
func (d device) figures(x *xids) job.AcceleratorFigures {
	f := job.AcceleratorFigures{Device: d.number, UUID: d.uuid, XID: x.of(d.uuid)}
	if use, ret := d.GetUtilizationRates(); ret == nvml.SUCCESS {
		f.Utilization = new(float64(use.Gpu) / 100)
	}
	if memory, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		f.MemoryUsed, f.MemoryTotal = whole(memory.Used), whole(memory.Total)
	}
	if celsius, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		f.Temperature = new(float64(celsius))
	}
	if mhz, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		f.Clock = new(int64(mhz) * 1e6)
	}
	if mhz, ret := d.GetClockInfo(nvml.CLOCK_MEM); ret == nvml.SUCCESS {
		f.MemoryClock = new(int64(mhz) * 1e6)
	}
	if milliwatts, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
		f.Power = new(float64(milliwatts) / 1000)
	}
	if n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
		f.ECCCorrected = whole(n)
	}
	if n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); ret == nvml.SUCCESS {
		f.ECCUncorrected = whole(n)
	}
	return f
}

// whole is a number as figures have it; nil if it does not fit.
func whole(n uint64) *int64 {
	if int64(n) < 0 {
		return nil
	}
	return new(int64(n))
}

// xids has the newest XID error of each device since this program began, by UUID. A device that is not watched has none, not 0.
type xids struct {
	mu     sync.Mutex
	newest map[string]int64
}

func (x *xids) begin(watched []device) {
	for _, d := range watched {
		x.newest[d.uuid] = 0
	}
}

func (x *xids) of(uuid string) *int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n, watched := x.newest[uuid]; watched {
		return &n
	}
	return nil
}

// set enters an XID error, and reports whether its device is watched.
func (x *xids) set(uuid string, n int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, watched := x.newest[uuid]
	if watched {
		x.newest[uuid] = n
	}
	return watched
}

// watch registers for XID errors, and returns the devices that have them.
func watch(lib nvml.Interface, devices []device) (set nvml.EventSet, watched []device) {
	set, ret := lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, nil
	}
	for _, d := range devices {
		if d.uuid != "" && d.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			watched = append(watched, d)
		}
	}
	return set, watched
}

// eventWait is how long the driver is asked to wait for an event, in milliseconds.
const eventWait = 5000

// follow takes XID errors until the driver has no events any more. failed gets a value after each.
func (x *xids) follow(set nvml.EventSet, failed chan<- struct{}) {
	for {
		e, ret := set.Wait(eventWait)
		switch {
		case ret == nvml.ERROR_TIMEOUT:
			continue
		case ret != nvml.SUCCESS:
			return
		case e.EventType != nvml.EventTypeXidCriticalError:
			continue
		}
		uuid, ret := e.Device.GetUUID()
		if ret != nvml.SUCCESS || !x.set(uuid, int64(e.EventData)) {
			continue
		}
		select {
		case failed <- struct{}{}:
		default:
		}
	}
}
