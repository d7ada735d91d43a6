package job

// AcceleratorFigures are those of one accelerator that a slot uses, as a command or an exporter says them. What it does not say is
// nil.
type AcceleratorFigures struct {
	Device int    `json:"device"`         // its number, below MaxDevice
	UUID   string `json:"uuid,omitempty"` // as ValidDeviceID accepts it

	Utilization    *float64 `json:"utilization,omitempty"` // recent part of the time in which it worked, 0 to 1
	MemoryUsed     *int64   `json:"memory_used_bytes,omitempty"`
	MemoryTotal    *int64   `json:"memory_total_bytes,omitempty"`
	Temperature    *float64 `json:"temperature_celsius,omitempty"`
	Clock          *int64   `json:"clock_hz,omitempty"`
	MemoryClock    *int64   `json:"memory_clock_hz,omitempty"`
	Power          *float64 `json:"power_watts,omitempty"`
	ECCCorrected   *int64   `json:"ecc_corrected,omitempty"`   // errors of its memory since its driver was loaded
	ECCUncorrected *int64   `json:"ecc_uncorrected,omitempty"` // likewise
	XID            *int64   `json:"xid,omitempty"`             // number of its newest NVIDIA XID error; 0 if there was none
}

const (
	// MaxAccelerators is how many accelerators of a slot have figures.
	MaxAccelerators = 16
	// MaxDevice is above every number of a device.
	MaxDevice = 64
	// maxDeviceID bounds the length of a UUID.
	maxDeviceID = 64
)

// ValidDeviceID reports whether a text may be a device's UUID: "GPU-8f6d…", "0000:3b:00.0".
func ValidDeviceID(id string) bool {
	if len(id) > maxDeviceID {
		return false
	}
	for _, c := range []byte(id) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '.' && c != ':' && c != '_' && c != '/' {
			return false
		}
	}
	return true
}
