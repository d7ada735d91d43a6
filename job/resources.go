package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Add returns r + o.
func (r Resources) Add(o Resources) Resources { return r.combine(o, 1) }

// Sub returns r - o. Amounts may be negative.
func (r Resources) Sub(o Resources) Resources { return r.combine(o, -1) }

func (r Resources) combine(o Resources, sign int) Resources {
	r.CPU += CPU(sign) * o.CPU
	r.Memory += Bytes(sign) * o.Memory
	r.Shm += Bytes(sign) * o.Shm
	if len(o.Devices) > 0 {
		devices := make(map[string]int, len(r.Devices)+len(o.Devices))
		maps.Copy(devices, r.Devices)
		for name, n := range o.Devices {
			devices[name] += sign * n
		}
		r.Devices = devices
	}
	return r
}

// Equal reports whether r and o are the same amounts.
func (r Resources) Equal(o Resources) bool {
	return r.CPU == o.CPU && r.Memory == o.Memory && r.Shm == o.Shm && maps.Equal(r.Devices, o.Devices)
}

// Beyond returns r - o, with negative amounts set to 0.
func (r Resources) Beyond(o Resources) Resources {
	more := Resources{CPU: max(r.CPU-o.CPU, 0), Memory: max(r.Memory-o.Memory, 0), Shm: max(r.Shm-o.Shm, 0)}
	for name, n := range r.Devices {
		if n > o.Devices[name] {
			if more.Devices == nil {
				more.Devices = map[string]int{}
			}
			more.Devices[name] = n - o.Devices[name]
		}
	}
	return more
}

// Fits reports whether r fits into free.
func (r Resources) Fits(free Resources) bool {
	if r.CPU > free.CPU || r.Memory > free.Memory {
		return false
	}
	for name, n := range r.Devices {
		if n > free.Devices[name] {
			return false
		}
	}
	return true
}

// Within reports whether r is within the limits; a nil l is unlimited.
func (r Resources) Within(l *Limits) bool {
	if l == nil {
		return true
	}
	if l.CPU != nil && r.CPU > *l.CPU || l.Memory != nil && r.Memory > *l.Memory {
		return false
	}
	for name, most := range l.Devices {
		if r.Devices[name] > most {
			return false
		}
	}
	return true
}

// String is for messages: "2 cpu, 4GiB, 1 nvidia.com/gpu".
func (r Resources) String() string {
	var parts []string
	if r.CPU != 0 {
		parts = append(parts, r.CPU.String()+" cpu")
	}
	if r.Memory != 0 {
		parts = append(parts, r.Memory.Approx())
	}
	for _, name := range slices.Sorted(maps.Keys(r.Devices)) {
		if r.Devices[name] != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", r.Devices[name], name))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
