// Package replay makes the decisions of a journal again, and finds those that come out differently: with another version of the
// planner, or with other files. Each is made from its own recorded input; what would have followed from another decision is
// not simulated.
package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Replay says which decisions are made again, and from what.
type Replay struct {
	// Since and Until are the times of the first and last decisions; zero for all.
	Since, Until time.Time
	// Declared takes the place of what each decision's files declared; nil leaves that as it was.
	Declared *Declared
}

// Declared is what files declare.
type Declared struct {
	Jobs   []job.Job // sensitive values are sealed
	Blocks plan.Blocks
}

// Difference is a decision that comes out differently.
type Difference struct {
	Seq  uint64 // of its entry
	Time time.Time
	Jobs []string // names of those that Then and Now are about
	// Then has what was decided and is not now, and Now the reverse. If only their order or details differ, both are empty.
	Then, Now Choices
	// Parts are the parts of the plan that differ, by their names in JSON; nil if only changes and waits can be compared.
	Parts []string
	// Input is what Plan is made from now.
	Input plan.Input
	Plan  plan.Plan
}

// Choices are parts of a plan, as the journal keeps them.
type Choices struct {
	Changes []plan.Change
	Waits   []plan.Wait
}

// Skip is a decision that cannot be made again.
type Skip struct {
	Seq  uint64
	Time time.Time
	Err  error
}

// Counts is the outcome.
type Counts struct {
	Replayed, Equal, Different int
	Skipped                    int // not part of Replayed
}

// Read makes the decisions of a journal again, one at a time in their order. An error of differs or skips ends it, as does ctx.
func (r *Replay) Read(ctx context.Context, journal state.Reader, differs func(*Difference) error, skips func(Skip) error) (n Counts, err error) {
	err = journal.Read(0, func(e state.Entry) error {
		if e.Kind != state.DecisionEntry || e.Time.Before(r.Since) || !r.Until.IsZero() && e.Time.After(r.Until) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := r.again(e)
		switch {
		case err != nil:
			n.Skipped++
			return skips(Skip{e.Seq, e.Time, err})
		case found != nil:
			n.Replayed, n.Different = n.Replayed+1, n.Different+1
			return differs(found)
		}
		n.Replayed, n.Equal = n.Replayed+1, n.Equal+1
		return nil
	})
	return n, err
}

// again makes one decision again. It returns nil if it comes out equal.
func (r *Replay) again(e state.Entry) (*Difference, error) {
	kept, err := decode(e.Data)
	if err != nil {
		return nil, err
	}
	in := kept.Input
	in.NewUID = newUID(kept)
	if r.Declared != nil {
		in = r.Declared.in(in)
	}
	now, err := decide(in)
	if err != nil {
		return nil, err
	}
	d := &Difference{Seq: e.Seq, Time: e.Time, Input: in, Plan: now}
	why := func(reasons []job.Reason) []job.Reason { return reasons }
	if hasSentences(kept) {
		why = func([]job.Reason) []job.Reason { return nil }
	}
	d.Then.Changes, d.Now.Changes, err = apart(kept.Changes, apply.Brief(now.Changes), func(c plan.Change) any { c.Reasons = why(c.Reasons); return c })
	if err != nil {
		return nil, err
	}
	d.Then.Waits, d.Now.Waits, err = apart(kept.Waits, now.Waits, func(w plan.Wait) any { w.Reasons = why(w.Reasons); return w })
	if err != nil {
		return nil, err
	}
	if kept.Digests != nil && r.Declared == nil {
		digests, err := now.Digests()
		if err != nil {
			return nil, err
		}
		d.Parts = differing(kept.Digests, digests)
	}
	if len(d.Parts)+len(d.Then.Changes)+len(d.Now.Changes)+len(d.Then.Waits)+len(d.Now.Waits) == 0 {
		return nil, nil
	}
	d.Jobs = d.jobs()
	return d, nil
}

func (d *Difference) jobs() []string {
	names := map[string]bool{}
	for _, side := range []Choices{d.Then, d.Now} {
		for i := range side.Changes {
			names[side.Changes[i].Job] = true
		}
		for i := range side.Waits {
			names[side.Waits[i].Job] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// decode reads the entry of a decision. What it does not know is ignored.
func decode(data []byte) (*apply.Choice, error) {
	kept := new(apply.Choice)
	if err := json.Unmarshal(data, kept); err != nil {
		return nil, fmt.Errorf("decode it: %w", err)
	}
	switch in := &kept.Input; {
	case kept.Format > apply.ChoiceFormat:
		return nil, fmt.Errorf("it has the format %d, and this version knows formats up to %d", kept.Format, apply.ChoiceFormat)
	case in.Now.IsZero() || in.Capabilities == nil:
		return nil, errors.New("it has no input")
	default:
		if err := in.Records.Check(); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// decide plans. A planner that fails on an input, perhaps of an older version, does not end the replay.
func decide(in plan.Input) (p plan.Plan, err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("the planner failed: %v", failed)
		}
	}()
	return plan.Make(in), nil
}

// hasSentences reports whether a decision has sentences as reasons, as older versions stored them. They cannot be compared.
func hasSentences(kept *apply.Choice) bool {
	sentence := func(r job.Reason) bool { return r.Code == job.Verbatim }
	return kept.Format == 0 &&
		(slices.ContainsFunc(kept.Changes, func(c plan.Change) bool { return slices.ContainsFunc(c.Reasons, sentence) }) ||
			slices.ContainsFunc(kept.Waits, func(w plan.Wait) bool { return slices.ContainsFunc(w.Reasons, sentence) }))
}

// newUID returns the UIDs that a decision gave to new jobs. Those of jobs that are new only now are made of their names.
func newUID(kept *apply.Choice) func(string) string {
	uids := kept.UIDs
	if kept.Format == 0 {
		uids = map[string]string{}
		for i := range kept.Changes {
			if c := &kept.Changes[i]; c.Action == plan.Create {
				uids[c.Job] = c.UID
			}
		}
	}
	return func(name string) string { return cmp.Or(uids[name], "new-"+name) }
}

// in returns a decision's input as it would be with these files. A job that was recorded as it was declared then is recorded as it is
// declared now: the question is what is decided under these files, not that they were edited. Jobs of providers that were not
// observed are left out, as they were.
func (f *Declared) in(in plan.Input) plan.Input {
	then := in.Jobs
	in.Blocks, in.Withheld = f.Blocks, nil
	if in.Destroy {
		return in
	}
	in.Jobs, in.Records = nil, maps.Clone(in.Records)
	for _, j := range f.Jobs {
		if _, observed := in.Capabilities[j.Provider]; !observed {
			continue
		}
		in.Jobs = append(in.Jobs, j)
		rec, at := in.Records[j.Name], slices.IndexFunc(then, func(was job.Job) bool { return was.Name == j.Name })
		if rec == nil || at < 0 || len(job.Diff(rec.Spec, then[at])) > 0 {
			continue
		}
		as := *rec
		as.Spec = j
		in.Records[j.Name] = &as
	}
	return in
}

// differing returns the names under which two maps do not have the same.
func differing(then, now map[string]string) []string {
	names := map[string]bool{}
	for name, digest := range then {
		names[name] = digest != now[name]
	}
	for name, digest := range now {
		names[name] = digest != then[name]
	}
	maps.DeleteFunc(names, func(_ string, differs bool) bool { return !differs })
	return slices.Sorted(maps.Keys(names))
}

// apart returns what only one of two lists has. Elements are compared by the JSON of what of returns.
func apart[T any](then, now []T, of func(T) any) (onlyThen, onlyNow []T, err error) {
	count := map[string]int{}
	keys := make([]string, len(now))
	for i := range now {
		if keys[i], err = textOf(of(now[i])); err != nil {
			return nil, nil, err
		}
		count[keys[i]]++
	}
	for i := range then {
		key, err := textOf(of(then[i]))
		if err != nil {
			return nil, nil, err
		}
		if count[key]--; count[key] < 0 {
			onlyThen = append(onlyThen, then[i])
		}
	}
	for i := len(now) - 1; i >= 0; i-- {
		if count[keys[i]] > 0 {
			count[keys[i]]--
			onlyNow = append(onlyNow, now[i])
		}
	}
	slices.Reverse(onlyNow)
	return onlyThen, onlyNow, nil
}

func textOf(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}
