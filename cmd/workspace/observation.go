package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/planfile"
	"github.com/eltrain/eltrain/internal/regular"
	"github.com/eltrain/eltrain/state/file"
)

// observationFile returns the path of the newest observation, for -refresh=false.
func observationFile() string { return filepath.Join(RunDirectory, "observation.json") }

// KeepObservation records the newest observation if it is complete.
func (w *Workspace) KeepObservation(o apply.Observation, whole bool) {
	if !whole {
		return
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = planfile.Replace(observationFile(), text)
	}
	if err != nil {
		w.log.Warn("recording the observation", "error", err)
	}
}

// LastObservation returns the newest recorded observation; nil if there is none.
func LastObservation() (*apply.Observation, error) {
	text, err := regular.Read(observationFile(), file.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := new(apply.Observation)
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("read the recorded observation %s: %w. Remove it, or run eltrain apply -refresh-only", observationFile(), err)
	}
	return o, nil
}
