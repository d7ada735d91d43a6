package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/eltrain/eltrain/job"
)

const (
	// dcgmTime bounds a request to a DCGM exporter.
	dcgmTime = 5 * time.Second
	// maxDCGM is how much of its answer is read: of eight devices it is some 100 KB.
	maxDCGM = 4 << 20
	// maxDCGMLine bounds a line, and maxDCGMSeries how many of them are taken.
	maxDCGMLine   = 8 << 10
	maxDCGMSeries = 1024
)

// dcgmClient keeps no connection: requests are rare, and some exporter may be replaced by another one in between.
var dcgmClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: dcgmTime}

// dcgmFields are the metrics that are read of a DCGM exporter, in its units (etc/default-counters.csv and the reference of DCGM's field
// identifiers).
var dcgmFields = map[string]func(*job.AcceleratorFigures, number){
	"DCGM_FI_DEV_GPU_UTIL":          func(f *job.AcceleratorFigures, n number) { f.Utilization = n.times(0.01).upTo(1) },
	"DCGM_FI_DEV_FB_USED":           func(f *job.AcceleratorFigures, n number) { f.MemoryUsed = n.times(1 << 20).whole() },
	"DCGM_FI_DEV_FB_TOTAL":          func(f *job.AcceleratorFigures, n number) { f.MemoryTotal = n.times(1 << 20).whole() },
	"DCGM_FI_DEV_GPU_TEMP":          func(f *job.AcceleratorFigures, n number) { f.Temperature = n.float64 },
	"DCGM_FI_DEV_SM_CLOCK":          func(f *job.AcceleratorFigures, n number) { f.Clock = n.times(1e6).whole() },
	"DCGM_FI_DEV_MEM_CLOCK":         func(f *job.AcceleratorFigures, n number) { f.MemoryClock = n.times(1e6).whole() },
	"DCGM_FI_DEV_POWER_USAGE":       func(f *job.AcceleratorFigures, n number) { f.Power = n.float64 },
	"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": func(f *job.AcceleratorFigures, n number) { f.ECCCorrected = n.whole() },
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": func(f *job.AcceleratorFigures, n number) { f.ECCUncorrected = n.whole() },
	"DCGM_FI_DEV_XID_ERRORS":        func(f *job.AcceleratorFigures, n number) { f.XID = n.whole() },
}

// readDCGM takes the figures that a DCGM exporter has now.
func (a *accelerators) readDCGM(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := dcgmClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	all, err := parseDCGM(io.LimitReader(resp.Body, maxDCGM))
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	for _, f := range all {
		a.said(*f, time.Now())
	}
	return fmt.Errorf("%s has no figures of this slot's devices", url)
}

// parseDCGM reads the figures of whole devices by number. It leaves out those of MIG instances.
func parseDCGM(from io.Reader) (map[int]*job.AcceleratorFigures, error) {
	var wanted bytes.Buffer
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxDCGMLine)
	for n := 0; n < maxDCGMSeries && lines.Scan(); {
		name, _, _ := bytes.Cut(lines.Bytes(), []byte("{"))
		if dcgmFields[string(name)] != nil {
			wanted.Write(lines.Bytes())
			wanted.WriteByte('\n')
			n++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&wanted)
	if err != nil {
		return nil, errors.New("its answer is no text of Prometheus")
	}
	all := map[int]*job.AcceleratorFigures{}
	for name, family := range families {
		for _, m := range family.Metric {
			labels := labelsOf(m)
			device, err := strconv.Atoi(labels["gpu"])
			if err != nil || device < 0 || device >= job.MaxDevice || labels["GPU_I_ID"] != "" {
				continue
			}
			f := all[device]
			if f == nil {
				f = &job.AcceleratorFigures{Device: device}
				all[device] = f
			}
			if id := labels["UUID"]; job.ValidDeviceID(id) {
				f.UUID = id
			}
			if v := m.GetUntyped().GetValue(); v >= 0 && v <= maxFigure {
				dcgmFields[name](f, number{&v})
			}
		}
	}
	return all, nil
}

// maxFigure is above every figure; it leaves out infinity.
const maxFigure = 1e18

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.Label {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// times is the number in another unit.
func (n number) times(by float64) number {
	if n.float64 == nil {
		return n
	}
	return number{new(*n.float64 * by)}
}

// visibleDevices are the beginnings of the UUIDs of the devices that this process may use, as container runtimes and CUDA are told;
// nil if that is not said by UUID.
func visibleDevices() (ids []string) {
	for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} {
		for id := range strings.SplitSeq(os.Getenv(name), ",") {
			if id = strings.TrimSpace(id); strings.HasPrefix(id, "GPU-") {
				ids = append(ids, id)
			}
		}
		if ids != nil {
			break
		}
	}
	return ids
}
