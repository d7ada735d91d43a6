package progress

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/eltrain/eltrain/job"
)

// Said is the name of what a program says about its progress itself, in place of a recognizer's.
const Said = "said"

// notFinite is how Python and JavaScript's relatives write what JSON has no number for.
var notFinite = regexp.MustCompile(`(:\s*)(-?Infinity|NaN)\b`)

// Parse parses what a program says about its progress itself: a JSON object with the fields of a Reading. Other fields are ignored.
func Parse(line []byte) (r job.Reading, err error) {
	if len(line) > maxLine {
		return r, fmt.Errorf("the line has more than %d bytes", maxLine)
	}
	if err := json.Unmarshal(notFinite.ReplaceAll(line, []byte(`$1"$2"`)), &r); err != nil {
		return job.Reading{}, err
	}
	r.Counted = false
	switch {
	case r == job.Reading{}:
		return r, errors.New("nothing in it is known")
	case r.Step != nil && *r.Step < 0, r.Total != nil && *r.Total < 0:
		return job.Reading{}, errors.New("step and total must not be negative")
	case len(r.StateHash) > job.MaxStateHash:
		return job.Reading{}, fmt.Errorf("state_hash has more than %d bytes", job.MaxStateHash)
	}
	return r, nil
}

// Say takes what the program says itself, which from then on counts in place of its output.
func (r *Reader) Say(reading job.Reading) (seen Seen) {
	before := r.Reading().Step
	seen.Read = true
	now := reading
	if r.said != nil {
		now = r.said.With(reading)
	} else {
		seen.Name = Said
	}
	r.said = &now
	seen.Step = now.Step != nil && (before == nil || *before != *now.Step)
	return seen
}
