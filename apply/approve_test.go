package apply

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// A run whose first plan is refused ends with that, and has stored and launched nothing.
func TestARefusedPlanChangesNothing(t *testing.T) {
	refusal := errors.New("it is out of date")
	asked := 0
	b := newBench(t, func(o *Options) {
		o.Spawn, o.Clock = nil, nil
		o.Approve = func(in *plan.Input, p *plan.Plan) error {
			if asked++; len(in.Jobs) == 0 || len(p.Changes) == 0 {
				t.Error("it is not asked of the plan")
			}
			return refusal
		}
	})
	var launches atomic.Int32
	b.cluster.launch = func(context.Context, job.Launch) error { launches.Add(1); return nil }
	before, err := b.o.Store.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Run(t.Context(), nil)
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, refusal) || asked != 1 {
		t.Errorf("it ended with %v after %d questions", err, asked)
	}
	after, err := b.o.Store.Read(t.Context())
	if err != nil || after.Serial != before.Serial || launches.Load() != 0 {
		t.Errorf("serial %d became %d, with %d launches, %v", before.Serial, after.Serial, launches.Load(), err)
	}
}

// What comes after the first plan is the loop's own.
func TestApprovalIsAskedOnce(t *testing.T) {
	asked := 0
	b := newBench(t, func(o *Options) {
		o.Approve = func(*plan.Input, *plan.Plan) error { asked++; return nil }
	})
	for range 3 {
		if _, _, err := b.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}
