package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Parse reads a state as Encode writes it, from outside a store, so it checks every field. A state of an older version may
// have fields that no longer exist.
func Parse(text []byte) (State, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return State{}, parseError(err)
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
		return State{}, parseError(err)
	}
	if s.Lineage == "" || s.Serial == 0 {
		return State{}, errors.New("it is not a state: it has no lineage or no serial")
	}
	if err := s.Jobs.Check(); err != nil {
		return State{}, fmt.Errorf("the state cannot be used: %w", err)
	}
	return s, nil
}

// parseError explains JSON's own errors to the author of the text, who does not know the names of Go's types.
func parseError(err error) error {
	if misfit := new(json.UnmarshalTypeError); errors.As(err, &misfit) {
		if misfit.Field == "" {
			return fmt.Errorf("it is not a state: its JSON type is %s, but a state is an object", misfit.Value)
		}
		return fmt.Errorf("it is not a state: %s has the wrong JSON type %s", misfit.Field, misfit.Value)
	}
	return fmt.Errorf("it is not a state: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// Encode formats a state for people to edit and Parse to read.
func Encode(s State) ([]byte, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// CheckPush returns an error unless given may replace stored: it must be of its lineage and not older. Any state may replace
// an empty one. The rules, and their wording, are Terraform's.
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

// Same reports whether two states have the same content, apart from version, lineage, serial and epoch.
func Same(a, b State) bool {
	a.Serial, a.Epoch, a.Version, a.Lineage = b.Serial, b.Epoch, b.Version, b.Lineage
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// Pushed is the state to write when given replaces stored: its content, with the next serial of its new place. A place
// keeps its lineage, to which saved plans and locks refer; one that never had a state takes that of given.
func Pushed(stored, given State) State {
	next := given
	next.Serial = stored.Serial + 1
	if stored.Lineage != "" {
		next.Lineage = stored.Lineage
	}
	return next
}
