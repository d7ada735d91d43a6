package job

import (
	"encoding/json"
	"fmt"
	"math"
)

// Loss is a training loss. In JSON it is a number, or one of the texts "NaN", "Infinity" and "-Infinity", which protocol buffers
// use as well: JSON has no such numbers.
type Loss float64

// Finite returns the loss as a number; nil if it is unknown or not finite. In the latter case, other is its name.
func (l *Loss) Finite() (finite *float64, other string) {
	if l == nil {
		return nil, ""
	}
	switch f := float64(*l); {
	case math.IsNaN(f):
		return nil, "NaN"
	case math.IsInf(f, 1):
		return nil, "Infinity"
	case math.IsInf(f, -1):
		return nil, "-Infinity"
	default:
		return &f, ""
	}
}

// MarshalJSON writes a number or a name.
func (l Loss) MarshalJSON() ([]byte, error) {
	finite, other := l.Finite()
	if finite == nil {
		return json.Marshal(other)
	}
	return json.Marshal(*finite)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Loss) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*l = Loss(math.NaN())
	case `"Infinity"`:
		*l = Loss(math.Inf(1))
	case `"-Infinity"`:
		*l = Loss(math.Inf(-1))
	default:
		var f float64
		if err := json.Unmarshal(text, &f); err != nil {
			return fmt.Errorf(`a loss is a number, "NaN", "Infinity" or "-Infinity": %w`, err)
		}
		*l = Loss(f)
	}
	return nil
}
