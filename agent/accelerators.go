package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

// paces of reading figures of accelerators. Tests have shorter ones.
type paces struct {
	every time.Duration // a source that has ended is read again
	most  time.Duration // likewise, if it keeps saying nothing usable
	quiet time.Duration // a command that says nothing usable for longer is killed
	trust time.Duration // figures are reported for so long
	end   time.Duration // a killed command is awaited for so long: one that waits for a dead driver does not die
}

var defaultPaces = paces{every: 5 * time.Second, most: time.Minute, quiet: time.Minute, trust: 30 * time.Second, end: time.Second}

// figuresPerSecond is how much of a command's output is read in a second, in bytes.
const figuresPerSecond = 64 << 10

// maxFailures bounds the lines about errors of devices in an exit.
const maxFailures = 8

// accelerators follows the figures of the slot's accelerators while training processes run. Their source may block, die, or say
// anything: that costs its figures and nothing else.
type accelerators struct {
	read    func(context.Context) error // returns why the source has no more figures; nil if there is none
	visible []string                    // beginnings of the UUIDs of the slot's devices; nil if not known
	shared  bool                        // the figures may be of devices that others use: they say nothing about the slot
	log     *slog.Logger
	paces   paces

	mu       sync.Mutex
	devices  map[int]dated // nil while no processes run
	errors   map[int]deviceErrors
	cancel   context.CancelFunc
	done     chan struct{} // of the newest begin
	starting bool          // a command
	child    *process      // the command that runs; nil if none does
}

// dated are figures and when they were said.
type dated struct {
	job.AcceleratorFigures
	at time.Time
}

// newAccelerators follows nothing if the configuration names no source.
func newAccelerators(c *job.AgentConfig, f *forker, log *slog.Logger) *accelerators {
	a := &accelerators{log: log, paces: defaultPaces, visible: visibleDevices()}
	switch {
	case len(c.Accelerators) > 0:
		a.read = func(ctx context.Context) error { return a.run(ctx, c, f) }
	case c.DCGM != "":
		a.shared = a.visible == nil
		a.read = func(ctx context.Context) error { return a.readDCGM(ctx, c.DCGM) }
	}
	return a
}

// begin begins to follow the figures, unless a command of before is still there.
func (a *accelerators) begin() {
	if a.read == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errors = nil
	if a.done != nil {
		select {
		case <-a.done:
		default:
			a.log.Warn("figures of accelerators are not read: the last command for them does not end")
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done, a.devices, a.errors = cancel, make(chan struct{}), map[int]dated{}, map[int]deviceErrors{}
	go a.follow(ctx, a.done)
}

// end forgets all figures and ends the command. One that cannot be killed is left behind.
func (a *accelerators) end() {
	a.mu.Lock()
	begun, cancel, done := a.devices != nil, a.cancel, a.done
	a.devices = nil
	a.mu.Unlock()
	if !begun {
		return
	}
	cancel()
	select {
	case <-done:
	case <-time.After(a.paces.end):
	}
}

// follow reads the source again and again.
func (a *accelerators) follow(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	pause, told := a.paces.every, ""
	for {
		began := time.Now()
		err := a.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if a.saidSince(began) {
			pause, told = a.paces.every, ""
		} else if pause = min(2*pause, a.paces.most); err.Error() != told {
			told = err.Error()
			a.log.Warn("figures of accelerators cannot be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (a *accelerators) saidSince(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.devices {
		if !d.at.Before(at) {
			return true
		}
	}
	return false
}

// said takes the figures of a device in place of older ones, unless it is not the slot's, or there are too many devices.
func (a *accelerators) said(figures job.AcceleratorFigures, now time.Time) {
	begins := func(id string) bool { return strings.HasPrefix(figures.UUID, id) }
	if a.visible != nil && figures.UUID != "" && !slices.ContainsFunc(a.visible, begins) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.devices == nil {
		return // ended
	}
	a.errors[figures.Device] = a.errors[figures.Device].with(&figures)
	for device, d := range a.devices {
		if now.Sub(d.at) > a.paces.trust {
			delete(a.devices, device)
		}
	}
	if _, known := a.devices[figures.Device]; known || len(a.devices) < job.MaxAccelerators {
		a.devices[figures.Device] = dated{figures, now}
	}
}

// deviceErrors are those that a device has had while the processes ran. They stay when its figures are too old: a lost device has none.
type deviceErrors struct {
	uuid        string
	before, xid *int64 // XID error that was said first, which may be of before the processes ran, and newest one; 0 is none
	count       *int64 // uncorrected memory errors as last said
	uncorrected int64  // of them, those since
}

func (e deviceErrors) with(f *job.AcceleratorFigures) deviceErrors {
	e.uuid = cmp.Or(f.UUID, e.uuid)
	if f.XID != nil {
		if e.before == nil || *f.XID == 0 { // none yet: its source may have begun anew
			e.before = f.XID
		}
		e.xid = f.XID
	}
	if n := f.ECCUncorrected; n != nil {
		if e.count != nil {
			e.uncorrected += max(0, *n-*e.count)
		}
		e.count = n
	}
	return e
}

// failures are lines about errors of the devices while the processes ran, for the output of one that failed. Package signature says
// which of them are the hardware's.
func (a *accelerators) failures() (lines []string) {
	if a.shared {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, device := range slices.Sorted(maps.Keys(a.errors)) {
		e := a.errors[device]
		name := fmt.Sprintf("[eltrain] accelerator %d", device)
		if e.uuid != "" {
			name += " (" + e.uuid + ")"
		}
		if e.xid != nil && *e.xid != *e.before {
			lines = append(lines, fmt.Sprintf("%s: Xid %d", name, *e.xid))
		}
		if e.uncorrected > 0 {
			lines = append(lines, fmt.Sprintf("%s: uncorrected memory errors: %d", name, e.uncorrected))
		}
	}
	return lines[max(0, len(lines)-maxFailures):]
}

// figures are those that are not too old, by device.
func (a *accelerators) figures(now time.Time) (all []job.AcceleratorFigures) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range a.devices {
		if now.Sub(d.at) <= a.paces.trust {
			all = append(all, d.AcceleratorFigures)
		}
	}
	slices.SortFunc(all, func(x, y job.AcceleratorFigures) int { return cmp.Compare(x.Device, y.Device) })
	return all
}

// work reports whether one of the devices does more than a little.
func (a *accelerators) work(now time.Time) bool {
	return !a.shared && slices.ContainsFunc(a.figures(now), func(f job.AcceleratorFigures) bool { return f.Utilization != nil && *f.Utilization > idleShare })
}

func (a *accelerators) runs(starting bool, child *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starting, a.child = starting, child
}

// reaps reports whether pid is, or may be, the command, which run reaps.
func (a *accelerators) reaps(pid int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.starting || a.child != nil && a.child.id.PID == pid
}

// run runs the command once, and takes what it prints. It returns once the command has exited.
func (a *accelerators) run(ctx context.Context, c *job.AgentConfig, f *forker) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(c.Accelerators[0], c.Accelerators[1:]...)
	cmd.Dir, cmd.Env = c.WorkingDir, os.Environ()
	if os.Getenv("PYTHONUNBUFFERED") == "" {
		cmd.Env = append(cmd.Env, "PYTHONUNBUFFERED=1") // or lines would come late
	}
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = attributes()
	a.runs(true, nil)
	err = f.start(cmd)
	in.Close()
	if err != nil {
		a.runs(false, nil)
		out.Close()
		return err
	}
	child := &process{cmd: cmd, id: identify(cmd.Process.Pid)}
	a.runs(false, child)

	exited, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(exited)
		awaitExit(child.id.PID)
		child.reap()
		a.runs(false, nil)
	}()
	lines := newReader(out, "", &throttle{until: over}, func(line []byte) {
		if figures, ok := parseFigures(line); ok {
			a.said(figures, time.Now())
		}
	})
	go lines.run()
	err = a.await(ctx, exited, lines.done)
	close(over)
	child.signal(unix.SIGKILL)
	<-exited
	lines.drain()
	if last := lines.last(); len(last) > 0 && err != nil {
		err = fmt.Errorf("%w; it last printed: %s", err, last[len(last)-1])
	}
	return err
}

// await returns once the command has ended, has closed its output, has said nothing for too long, or is not to run any more.
func (a *accelerators) await(ctx context.Context, exited, closed <-chan struct{}) error {
	look := time.NewTicker(a.paces.quiet)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-exited:
			return errors.New("the command has ended")
		case <-closed:
			return errors.New("the command has closed its output")
		case now := <-look.C:
			if !a.saidSince(now.Add(-a.paces.quiet)) {
				return fmt.Errorf("the command has printed no figures for %s", job.Duration(a.paces.quiet))
			}
		}
	}
}

// throttle takes so much in a second, so that a command that floods its output waits. After until it takes everything.
type throttle struct {
	until <-chan struct{}
	began time.Time
	taken int
}

func (t *throttle) Write(b []byte) (int, error) {
	if since := time.Since(t.began); since >= time.Second {
		t.began, t.taken = time.Now(), 0
	} else if t.taken > figuresPerSecond {
		select {
		case <-t.until:
		case <-time.After(time.Second - since):
		}
	}
	t.taken += len(b)
	return len(b), nil
}

// figureLine is a line that a command prints of one device: docs/metrics.md has the format.
type figureLine struct {
	Device         number `json:"device"`
	UUID           string `json:"uuid"`
	Utilization    number `json:"utilization"`
	MemoryUsed     number `json:"memory_used_bytes"`
	MemoryTotal    number `json:"memory_total_bytes"`
	Temperature    number `json:"temperature_celsius"`
	Clock          number `json:"clock_hz"`
	MemoryClock    number `json:"memory_clock_hz"`
	Power          number `json:"power_watts"`
	ECCCorrected   number `json:"ecc_corrected"`
	ECCUncorrected number `json:"ecc_uncorrected"`
	XID            number `json:"xid"`
}

// number is a finite number that is not negative; nil if there is none.
type number struct{ *float64 }

// UnmarshalJSON takes a number of any JSON form, and any other value, as "N/A", for none.
func (n *number) UnmarshalJSON(text []byte) error {
	n.float64 = nil
	if v, err := strconv.ParseFloat(string(text), 64); err == nil && v >= 0 {
		n.float64 = &v
	}
	return nil
}

// upTo is the number, unless it is larger.
func (n number) upTo(most float64) *float64 {
	if n.float64 == nil || *n.float64 > most {
		return nil
	}
	return n.float64
}

// exact is the largest integer below which JSON's numbers have all.
const exact = 1 << 53

// whole is the number without its fraction.
func (n number) whole() *int64 {
	if n.upTo(exact) == nil {
		return nil
	}
	return new(int64(*n.float64))
}

// parseFigures reads a line. ok is false if it is not about a device.
func parseFigures(line []byte) (out job.AcceleratorFigures, ok bool) {
	var l figureLine
	if err := json.Unmarshal(line, &l); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		return out, false
	}
	return l.figures()
}

// figures leaves out what cannot be. ok is false without a device.
func (l *figureLine) figures() (out job.AcceleratorFigures, ok bool) {
	device := l.Device.upTo(job.MaxDevice - 1)
	if device == nil || *device != math.Trunc(*device) {
		return out, false
	}
	out = job.AcceleratorFigures{
		Device: int(*device), Utilization: l.Utilization.upTo(1), MemoryUsed: l.MemoryUsed.whole(), MemoryTotal: l.MemoryTotal.whole(),
		Temperature: l.Temperature.float64, Clock: l.Clock.whole(), MemoryClock: l.MemoryClock.whole(), Power: l.Power.float64,
		ECCCorrected: l.ECCCorrected.whole(), ECCUncorrected: l.ECCUncorrected.whole(), XID: l.XID.whole(),
	}
	if job.ValidDeviceID(l.UUID) {
		out.UUID = l.UUID
	}
	return out, true
}
