package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/state"
)

// LookTimeout bounds one look at what runs, whatever a provider does.
const LookTimeout = 30 * time.Second

// lockPoll is how often AwaitApply checks whether the lock is free.
const lockPoll = 200 * time.Millisecond

// AwaitApply waits, for timeout at most, while an apply without -watch holds the lock. The plan is then made from what that
// apply has done so far.
func (w *Workspace) AwaitApply(ctx context.Context, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		holder, err := w.Store.Holder(ctx)
		if err != nil || holder == nil || view.Watching(holder) || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// Facts asks the running master, or else the state and the providers.
func (w *Workspace) Facts(ctx context.Context) (view.Facts, error) {
	holder, err := w.Store.Holder(ctx)
	if err != nil {
		return view.Facts{}, fmt.Errorf("read who holds the state's lock: %w", err)
	}
	live, err := apply.Fetch(ctx, RunDirectory)
	if errors.Is(err, apply.ErrNoMaster) {
		var stored state.State
		if stored, err = w.Store.Read(ctx); err == nil {
			live = w.planner(stored).Offline(ctx, time.Now())
		}
	}
	if err != nil {
		return view.Facts{}, err
	}
	facts := FactsOf(live)
	facts.Holder, facts.Capabilities = holder, make(map[string]job.Capabilities, len(w.Providers))
	for name, p := range w.Providers {
		facts.Capabilities[name] = p.Capabilities()
	}
	return facts, nil
}

// Nodes asks the running master, or else the state and the providers.
func (w *Workspace) Nodes(ctx context.Context) (apply.Nodes, error) {
	all, err := apply.FetchNodes(ctx, RunDirectory)
	if !errors.Is(err, apply.ErrNoMaster) {
		return all, err
	}
	stored, err := w.Store.Read(ctx)
	if err != nil {
		return apply.Nodes{}, err
	}
	return w.planner(stored).Nodes(ctx, time.Now()), nil
}

// planner plans from a state, without files.
func (w *Workspace) planner(stored state.State) *apply.Planner {
	return apply.NewPlanner(apply.Setup{State: stored, NewUID: NewUID, Words: view.Words{}}, w.Providers, nil)
}

// FactsOf returns the facts that a master has.
func FactsOf(live apply.Live) view.Facts {
	return view.Facts{Records: live.Records, Snapshot: live.Snapshot, Waits: live.Waits, Scaling: live.Scaling, Conditions: live.Conditions, Released: live.Released, Spent: live.Spent, Holder: live.Holder}
}

// PlanFacts returns what a plan is shown from.
func (w *Workspace) PlanFacts(decided apply.Decision, reached map[string]view.Reached) (facts view.PlanFacts, err error) {
	facts = view.PlanFacts{Input: decided.Input, Plan: decided.Plan, Version: w.version, Reached: reached}
	facts.Values, err = Given(w.Config)
	facts.PriorOutputs = w.Prior.Outputs
	facts.Checks = checks(w.Config, decided.Input.Destroy)
	switch {
	case !decided.Input.Destroy:
	case decided.Input.Scope.Limited():
		facts.Outputs = facts.PriorOutputs // they may belong to jobs that stay
	default:
		facts.Outputs = nil
	}
	return facts, err
}

// checks returns the results of the files' conditions. For a destroy they are unknown.
func checks(cfg *lang.Config, destroy bool) []view.CheckFact {
	var out []view.CheckFact
	for _, c := range cfg.Checked {
		fact := view.CheckFact(c)
		if destroy {
			fact.Status, fact.Problems = "unknown", nil
		}
		out = append(out, fact)
	}
	return out
}

// Reached returns the progress of jobs as reported by the running master; nil without one.
func Reached(ctx context.Context) map[string]view.Reached {
	live, err := apply.Fetch(ctx, RunDirectory)
	if err != nil {
		return nil // the plan does not depend on it
	}
	out, directories := map[string]view.Reached{}, map[string]*view.Directory{}
	for inc := range live.Snapshot.Incarnations.All() {
		m := inc.Member
		if rec := live.Records[inc.Slot.Job]; m == nil || rec == nil || rec.UID != inc.UID { // UID: of another job of that name
			continue
		}
		far := out[inc.Slot.Job]
		if m.State == job.MemberRunning && m.Step > far.Step {
			far.Step, far.Rate = m.Step, m.StepRate
		}
		if far.Saved = far.Saved.Newest(m.Saved); far != (view.Reached{}) {
			out[inc.Slot.Job] = far
		}
		if directories[inc.Slot.Job] == nil {
			directories[inc.Slot.Job] = &view.Directory{}
		}
		world := live.Snapshot.Worlds[inc.Slot.Job].Members
		directories[inc.Slot.Job].Add(m, len(world) > 0 && world[0].Slot == inc.Slot)
	}
	for name, d := range directories {
		c, checkpoint := d.Newest(), live.Records[name].Spec.Checkpoint
		if c == nil || checkpoint == nil {
			continue
		}
		far := out[name]
		switch {
		case checkpoint.Pattern == "":
			far.Saved, far.Path = d.Member.Saved, c.Path
		case far.Saved.Step == c.Step: // the output says when one is written
			far.Path = c.Path
		}
		out[name] = far
	}
	return out
}

// NewUID returns a different identifier each time: a job that was destroyed and is declared again is another job, even under
// the same name and the same master.
func NewUID(string) string { return uuid.NewString() }
