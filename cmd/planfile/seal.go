package planfile

import (
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// MissingError is the error of a plan whose sensitive values are not set, or differ, when it is to be applied.
type MissingError struct{ Jobs []string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("sensitive values of job.%s differ from those the plan was made with, or are not set. They are not in the plan: set them as before; instead of -var use the environment (ELTRAIN_VAR_x)",
		strings.Join(e.Jobs, ", job."))
}

// Sealed reports whether any job needs a sensitive value to start.
func (f *File) Sealed() bool { return f.CheckSealed(nil) != nil }

// CheckSealed returns a *MissingError unless every sensitive value that a job needs to start is known and the same as when
// the plan was made: other values have other seals.
func (f *File) CheckSealed(known *job.Sealer) error {
	var missing []string
	for i := range f.Facts.Input.Jobs {
		if j := &f.Facts.Input.Jobs[i]; !known.Knows(j) {
			missing = append(missing, j.Name)
		}
	}
	if len(missing) > 0 {
		return &MissingError{missing}
	}
	return nil
}
