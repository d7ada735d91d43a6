package planfile

import (
	"fmt"
	"strings"

	"github.com/eltrain/eltrain/job"
)

// MissingError is of sensitive values that are not there, or are others, when a plan is to be applied.
type MissingError struct{ Jobs []string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("sensitive values of job.%s differ from those the plan was made with, or are not set. They are not in the plan: set them as before; instead of -var use the environment (ELTRAIN_VAR_x)",
		strings.Join(e.Jobs, ", job."))
}

// Sealed reports whether any job needs a sensitive value to start.
func (f *File) Sealed() bool { return f.CheckSealed(nil) != nil }

// CheckSealed reports whether every sensitive value that a job needs to start is known, and is the one that the plan was
// made with: others have other seals. The error is a *MissingError.
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
