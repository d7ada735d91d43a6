package logs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// Kept returns what is known of a job that is gone from the output that a provider keeps; nil if none does.
func Kept(name string, all map[string]providers.Provider) (*job.Record, error) {
	for _, provider := range slices.Sorted(maps.Keys(all)) {
		keeper, is := all[provider].(providers.Keeper)
		if !is {
			continue
		}
		if slots, err := keeper.Kept(name); err != nil || len(slots) > 0 {
			return &job.Record{Spec: job.Job{Name: name, Provider: provider}, Slots: slots}, err
		}
	}
	return nil, nil
}

// WhenOver returns a channel that is closed once a job is over, or gone, and nothing of it runs.
func WhenOver(ctx context.Context, record *job.Record, look func(context.Context) (view.Facts, error)) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		for {
			began := time.Now()
			if facts, err := look(ctx); err == nil && isOver(record, &facts) {
				close(over)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second + 10*time.Since(began)): // a large job must not keep the master busy
			}
		}
	}()
	return over
}

// isOver reports whether a job is over, or gone, and nothing of it runs. While its provider cannot be observed, it may run.
func isOver(record *job.Record, facts *view.Facts) bool {
	for _, rec := range facts.Records {
		if rec.UID == record.UID && !rec.Phase.Ended() {
			return false
		}
	}
	unseen := func(c conditions.Condition) bool {
		return c.Reason.Code == apply.ProviderUnobserved && c.About == "provider."+record.Spec.Provider
	}
	runs := func(i *job.Incarnation) bool { return i.UID == record.UID && i.State != job.Gone }
	return !facts.Snapshot.At.IsZero() && !slices.ContainsFunc(facts.Conditions, unseen) && !facts.Snapshot.Incarnations.Any(runs)
}

// WhyNone says why slots have no output, or none of an earlier incarnation, grouped by reason.
func WhyNone(record *job.Record, mute []job.Address, previous bool) string {
	type kind struct{ role, why string }
	var order []kind
	slots := map[kind][]int{}
	for _, a := range mute {
		k := kind{a.Role, "has no output"}
		switch s := record.Slot(a.Role, a.Index); {
		case !Launched(*s):
			k.why = "has not started"
		case previous:
			k.why = "no output of an earlier incarnation is left"
		case s.Exit != nil && s.Exit.NotStarted != "":
			k.why += "; could not be started: " + s.Exit.NotStarted
		}
		if slots[k] == nil {
			order = append(order, k)
		}
		slots[k] = append(slots[k], a.Index)
	}
	lines := make([]string, len(order))
	for i, k := range order {
		lines[i] = job.Fold(k.role, slots[k]) + ": " + k.why + "."
	}
	return strings.Join(lines, "\n")
}

// Sources returns the slots of a job that an address names or, unless it is -1, the one of them with a process rank.
func Sources(record *job.Record, on job.Selector, rank int) ([]Source, error) {
	holder, processes, err := HolderOf(record, rank)
	if err != nil {
		return nil, err
	}
	var sources []Source
	for i := range record.Slots {
		slot := record.Slots[i].Address
		if !on.Matches(slot) || rank >= 0 && slot != holder {
			continue
		}
		source := Source{Slot: slot}
		if processes > 1 { // the agent prefixes each line with its process's rank
			source.Only = fmt.Sprintf("[rank %d] ", rank)
		}
		sources = append(sources, source)
	}
	if len(sources) == 0 {
		if rank >= 0 {
			return nil, fmt.Errorf("rank %d is held by %s, which %s does not name", rank, holder, on)
		}
		return nil, view.NoSuchSlot(on, record)
	}
	if len(sources) > 1 {
		for i := range sources {
			sources[i].Prefix = sources[i].Slot.Short() + " "
		}
	}
	return sources, nil
}
