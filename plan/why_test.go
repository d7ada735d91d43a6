package plan

import (
	"testing"

	"github.com/eltrain/eltrain/job"
)

// While somebody watches no plan is shown: a line says what of a slot was edited, and does not count everything that a
// start is made of as that.
func TestALineSaysWhatWasEdited(t *testing.T) {
	slot := job.Address{Job: "a", Role: "worker"}
	fields := func(paths ...string) (out []job.FieldChange) {
		for _, path := range paths {
			out = append(out, job.FieldChange{Path: path})
		}
		return out
	}
	for _, test := range []struct {
		change Change
		want   string
	}{
		{Change{}, ""},
		{Change{Reasons: []string{"its node n1 was removed.", "more"}, Fields: fields("role.worker.command")}, "its node n1 was removed"},
		{Change{Reasons: []string{declarationChanged}}, "its declaration changed"},
		{Change{Reasons: []string{declarationChanged}, Fields: fields("role.worker.command", "checkpoint.signal")}, "its declaration changed: command, checkpoint.signal"},
		{Change{Reasons: []string{declarationChanged}, Fields: fields("role.worker.a", "role.worker.b", "role.worker.c", "role.worker.d", "role.worker.e")}, "its declaration changed: a, b, c, 2 more"},
		{Change{Reasons: []string{declarationChanged}, Fields: fields("role.worker.command"), Launch: &job.Launch{}}, "its declaration changed"},
	} {
		test.change.Slot = slot
		if got := test.change.Why(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
