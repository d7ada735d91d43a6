package plan

import (
	"testing"

	"github.com/eltrain/eltrain/job"
)

// The watch prints a line instead of a plan: it names what of a slot was edited, but not all the attributes of a start.
func TestALineSaysWhatWasEdited(t *testing.T) {
	slot := job.Address{Job: "a", Role: "worker"}
	fields := func(paths ...string) (out []job.FieldChange) {
		for _, path := range paths {
			out = append(out, job.FieldChange{Path: path})
		}
		return out
	}
	edited := []job.Reason{job.Because(DeclarationChanged)}
	for _, test := range []struct {
		change Change
		want   string
	}{
		{Change{}, ""},
		{Change{Reasons: []job.Reason{job.Because(NodeGone, "node", "n1"), job.Because(NoRoomToReturn)}, Fields: fields("role.worker.command")}, "node_gone(node=n1)"},
		{Change{Reasons: edited}, "declaration_changed"},
		{Change{Reasons: edited, Fields: fields("role.worker.command", "checkpoint.signal")}, `declaration_changed(fields="command, checkpoint.signal")`},
		{Change{Reasons: edited, Fields: fields("role.worker.a", "role.worker.b", "role.worker.c", "role.worker.d", "role.worker.e")}, `declaration_changed(fields="a, b, c" more=2)`},
		{Change{Reasons: edited, Fields: fields("role.worker.command"), Launch: &job.Launch{}}, "declaration_changed"},
	} {
		test.change.Slot = slot
		if got := test.change.Why().String(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
