package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/state"
)

// Form is the service's ledger: a world is stored before any member hears of it. The name is the one that the job was
// launched under.
func (r *Reconciler) Form(launched, uid string, w job.World) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	r.writing.Lock()
	defer r.writing.Unlock()
	jobName, old := recordOf(r.state.Jobs, uid)
	if old == nil {
		return fmt.Errorf("job %s with uid %s is not recorded", launched, uid)
	}
	rec := *old
	rec.World = w.Of(jobName)
	jobs := maps.Clone(r.state.Jobs)
	jobs[jobName] = &rec
	if err := r.write(ctx, func(next *state.State) { next.Jobs = jobs }); err != nil {
		return err
	}
	n := worldNotice("job."+jobName, &w)
	if old.World.Generation > 0 {
		n.Message += resized(&old.Spec, &old.World, &w)
	}
	r.unwritten = append(r.unwritten, n)
	return nil
}

// resized tells which elastic roles have more or fewer slots in a world than in the one before: ", worker 3 -> 4 slots
// within 1..8"; "" if none.
func resized(spec *job.Job, before, now *job.World) (text string) {
	for i := range spec.Roles {
		r := &spec.Roles[i]
		members := func(w *job.World) (n int) {
			for _, m := range w.Members {
				if m.Slot.Role == r.Name {
					n++
				}
			}
			return n
		}
		if had, has := members(before), members(now); r.Scaling != nil && had != has {
			text += fmt.Sprintf(", %s %d -> %s within %d..%d", r.Name, had, count(has, "slot"), r.Scaling.Min, r.Scaling.Max)
		}
	}
	return text
}

// worldNotice tells of a world that was formed, or that was found training and is looked after from now on. The latter
// happens when the record of a job was lost, or when it is imported.
func worldNotice(address string, w *job.World) job.Notice {
	processes := 0
	for _, m := range w.Members {
		processes += m.Processes
	}
	n := job.Notice{Time: w.Formed, Type: "world_formed", Address: address, Message: fmt.Sprintf("generation %d: %s, %s", w.Generation,
		count(len(w.Members), "slot"), count(processes, "process"))}
	if w.Adopted {
		n.Type = "world_adopted"
		n.Message += ", found training"
	}
	if w.MasterPort > 0 { // a member that was found may have no word on it
		n.Message += fmt.Sprintf(", rank 0 at %s:%d", w.MasterAddr, w.MasterPort)
	}
	return n
}

// recordOf finds a job by its UID; nil if it is not recorded.
func recordOf(records job.Records, uid string) (name string, rec *job.Record) {
	for name, rec := range records {
		if rec.UID == uid {
			return name, rec
		}
	}
	return "", nil
}

// count is a number of things: "1 slot", "2 processes".
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// storeTimeout bounds one write of the state, callTimeout one call of a provider that is not meant to wait.
const (
	storeTimeout = 30 * time.Second
	callTimeout  = time.Minute
)

// write stores the next state: all as it is, but for what edit changes. r.writing is held.
func (r *Reconciler) write(ctx context.Context, edit func(next *state.State)) error {
	if r.unsure {
		if err := r.reread(ctx); err != nil {
			return err
		}
	}
	next := r.state.Next(r.state.Jobs)
	edit(&next)
	if err := r.o.Store.Write(ctx, next, r.o.Lock); err != nil {
		r.unsure = true
		return fmt.Errorf("store the state: %w", err)
	}
	r.set(next)
	return nil
}

// set makes a state the newest. r.writing is held.
func (r *Reconciler) set(s state.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	r.names.set(s.Jobs)
}

// reread finds out whether the write that failed last is stored all the same: a store may fail after that.
func (r *Reconciler) reread(ctx context.Context) error {
	stored, err := r.o.Store.Read(ctx)
	if err != nil {
		return fmt.Errorf("read the state again: %w", err)
	}
	known := r.state
	ours := stored.Lineage == known.Lineage || known.Lineage == ""
	if ours && stored.Serial == known.Serial+1 && stored.Epoch == r.o.Lock.Info().Epoch {
		known.Lineage, known.Serial = stored.Lineage, stored.Serial
	}
	if stored.Serial == 0 {
		known.Serial = 0 // somebody removed it: all that was in it is known here, and is written anew
	}
	r.set(known)
	r.unsure = false
	return nil
}

// commit stores what the plan decided, before any of it is done, and journals what happened.
func (r *Reconciler) commit(ctx context.Context, in plan.Input, p *plan.Plan) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	r.writing.Lock()
	defer r.writing.Unlock()
	r.enterRefusals(p)
	if p.Dirty || !maps.EqualFunc(r.o.Outputs, r.state.Outputs, state.Output.Equal) {
		jobs := maps.Clone(r.state.Jobs)
		for name, rec := range in.Records {
			if !forgets(p, rec) {
				delete(jobs, name)
			}
		}
		stored := make(map[string]*job.Record, len(r.state.Jobs))
		for _, rec := range r.state.Jobs {
			stored[rec.UID] = rec // under another name, if the plan moves it
		}
		for name, rec := range p.Records {
			// A world may have formed while the plan was made.
			if now := stored[rec.UID]; now != nil && now.World.Generation > rec.World.Generation {
				rec.World = now.World.Of(name)
			}
			jobs[name] = rec
		}
		decided := func(next *state.State) { next.Jobs, next.Released, next.Outputs = jobs, p.Released, r.o.Outputs }
		if err := r.write(ctx, decided); err != nil {
			return err
		}
	}
	r.unwritten = slices.Concat(r.unwritten, p.Notices, r.removals(&in, p), r.failures(in.Now))
	// A world may have formed since the plan was made: what the plan found out came before it.
	slices.SortStableFunc(r.unwritten, func(a, b job.Notice) int { return a.Time.Compare(b.Time) })
	p.Notices = r.unwritten
	entries := make([]state.Entry, len(r.unwritten))
	for i := range r.unwritten {
		n := &r.unwritten[i]
		if n.Message == "" {
			n.Message = r.o.Words.Sentence(n.Reason)
		}
		data, err := json.Marshal(n)
		if err != nil {
			return fmt.Errorf("journal a notice: %w", err)
		}
		entries[i] = state.Entry{Time: n.Time, Kind: state.NoticeEntry, Data: data}
	}
	if len(entries) > 0 {
		if err := r.o.Journal.Append(entries...); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	r.unwritten = nil
	return nil
}

// forgets tells whether the plan has something of the job left to be forgotten by its provider. Its record is kept
// until then: where others share the infrastructure, nobody but the record knows whose the remains are.
func forgets(p *plan.Plan, rec *job.Record) bool {
	return slices.ContainsFunc(p.Changes, func(c plan.Change) bool { return c.UID == rec.UID && isForget(&c) })
}

// Decision is a plan with all that it was made from: plan.Make gives the same again.
type Decision struct {
	Input plan.Input `json:"input"`
	Plan  plan.Plan  `json:"plan"`
}

// Choice is what the journal keeps of a decision: all that it was made from, and what was chosen. plan.Make of the input
// gives the whole plan again, so what follows from the input (what is launched, the records) is not repeated: of 10,000
// slots that would be most of it.
type Choice struct {
	Input   plan.Input    `json:"input"`
	Changes []plan.Change `json:"changes"` // without Fields and Launch
	Waits   []plan.Wait   `json:"waits,omitempty"`
}

func choiceOf(in plan.Input, p *plan.Plan) Choice {
	c := Choice{Input: in, Changes: slices.Clone(p.Changes), Waits: p.Waits}
	for i := range c.Changes {
		c.Changes[i].Fields, c.Changes[i].Launch = nil, nil
	}
	return c
}

// chronicle journals a decision. It comes after the changes have begun: of a large job it takes longer than
// they may wait, and what matters of it is stored before.
func (r *Reconciler) chronicle(in plan.Input, p *plan.Plan) error {
	data, err := json.Marshal(choiceOf(in, p))
	if err != nil {
		return fmt.Errorf("journal a decision: %w", err)
	}
	if err := r.o.Journal.Append(state.Entry{Time: in.Now, Kind: state.DecisionEntry, Data: data}); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
