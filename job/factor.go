package job

import (
	"fmt"
	"strconv"
	"strings"
)

// Factor multiplies a reservation, written "x1.5". Zero means none.
type Factor float64

// ParseFactor parses "x" and a number above 1 and up to 10.
func ParseFactor(s string) (Factor, error) {
	digits, ok := strings.CutPrefix(s, "x")
	f, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(f > 1 && f <= 10) {
		return 0, fmt.Errorf(`%q is not a factor: write "x" and a number above 1 and up to 10, like "x1.5"`, s)
	}
	return Factor(f), nil
}

func (f Factor) String() string { return "x" + strconv.FormatFloat(float64(f), 'f', -1, 64) }

func (f Factor) MarshalText() ([]byte, error) {
	if f == 0 {
		return nil, nil
	}
	return []byte(f.String()), nil
}

func (f *Factor) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*f = 0
		return nil
	}
	*f, err = ParseFactor(string(b))
	return err
}
