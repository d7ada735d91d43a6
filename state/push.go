package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Parse reads a state as Encode writes it, from a place that is no store: every field is checked. One of an older version may
// have fields that are no more.
func Parse(text []byte) (State, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return State{}, noState(err)
	}
	switch {
	case head.Version > Version:
		return State{}, &VersionError{head.Version}
	case head.Version < 1:
		return State{}, errors.New("it is not a state as eltrain writes one: it has no version")
	}
	var s State
	d := json.NewDecoder(bytes.NewReader(text))
	if head.Version == Version {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(&s); err != nil {
		return State{}, noState(err)
	}
	if s.Lineage == "" || s.Serial == 0 {
		return State{}, errors.New("it is not a state: it has no lineage or no serial")
	}
	if err := s.Jobs.Check(); err != nil {
		return State{}, fmt.Errorf("the state cannot be used: %w", err)
	}
	return s, nil
}

// noState says of JSON's own errors what they mean for who has written the text: the names of Go's types do not help.
func noState(err error) error {
	if misfit := new(json.UnmarshalTypeError); errors.As(err, &misfit) {
		if misfit.Field == "" {
			return fmt.Errorf("it is not a state: its JSON type is %s, but a state is an object", misfit.Value)
		}
		return fmt.Errorf("it is not a state: %s has the wrong JSON type %s", misfit.Field, misfit.Value)
	}
	return fmt.Errorf("it is not a state: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// Encode is a state as people edit it and Parse reads it.
func Encode(s State) ([]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// CheckPush reports whether given may replace stored: it must be of its lineage and no older. An empty state may be
// replaced by any. The rules, and their words, are Terraform's.
func CheckPush(stored, given State) error {
	switch {
	case stored.Serial == 0 || len(stored.Jobs) == 0:
		return nil
	case stored.Lineage != given.Lineage:
		return fmt.Errorf("cannot import state with lineage %q over unrelated state with lineage %q", given.Lineage, stored.Lineage)
	case given.Serial < stored.Serial:
		return fmt.Errorf("cannot import state with serial %d over newer state with serial %d", given.Serial, stored.Serial)
	case given.Serial == stored.Serial && !Same(stored, given):
		return fmt.Errorf("cannot overwrite existing state with serial %d with a different state that has the same serial", stored.Serial)
	}
	return nil
}

// Same reports whether two states remember the same.
func Same(a, b State) bool {
	a.Serial, a.Epoch, a.Version, a.Lineage = b.Serial, b.Epoch, b.Version, b.Lineage
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// Pushed is the state to write when given replaces stored: its content, with the serial that follows in the place that
// it comes to. A place keeps its lineage, which saved plans and locks go by; one that never had a state takes the
// given one's.
func Pushed(stored, given State) State {
	next := given
	next.Serial = stored.Serial + 1
	if stored.Lineage != "" {
		next.Lineage = stored.Lineage
	}
	return next
}
