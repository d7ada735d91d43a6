package importer

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// suffixes are those of Kubernetes' quantities, tried in order: the empty one matches everything.
var suffixes = []struct {
	text   string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
	{"", 1},
}

// parseQuantity parses a Kubernetes quantity: 4, 500m, 8Gi, 1e3.
func parseQuantity(s string) (float64, error) {
	for _, suffix := range suffixes {
		digits, ok := strings.CutSuffix(s, suffix.text)
		if !ok || digits == "" || strings.ContainsAny(digits, "xXpP_iInN") { // neither hexadecimal nor Inf
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || !(n >= 0) {
			continue
		}
		return n * suffix.factor, nil
	}
	return 0, fmt.Errorf(`%q is not an amount, like "4", "500m" or "8Gi"`, s)
}

func parseCPU(s string) (job.CPU, error) {
	n, err := parseQuantity(s)
	if err != nil {
		return 0, err
	}
	return job.Cores(n)
}

// maxMemory is lang's limit of a size, in bytes.
const maxMemory = math.MaxInt64 / 2

func parseMemory(s string) (job.Bytes, error) {
	n, err := parseQuantity(s)
	if err == nil && n >= maxMemory {
		err = fmt.Errorf("%q is too much memory", s)
	}
	return job.Bytes(math.Ceil(n)), err
}

// maxDevices is far above the number of devices of any host.
const maxDevices = 1 << 20

func parseDevices(s string) (int, error) {
	n, err := parseQuantity(s)
	if err == nil && (n != math.Trunc(n) || n > maxDevices) {
		err = fmt.Errorf("%q is not a number of whole devices", s)
	}
	return int(n), err
}
