package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

// What happens to a job's world.
const (
	worldForms    = "forms"    // the first one
	worldRestarts = "restarts" // it ends, and the next one continues from a checkpoint
	worldStops    = "stops"    // it ends, and the next one cannot form before there is room for it
	worldSuspends = "suspends" // it ends, and the next one forms once its job is resumed
	worldEnds     = "ends"     // and no other follows
)

// JobCost is what a plan costs a job: recomputed steps and places that it gives up, as far as they are known. The step of the
// newest checkpoint is known if the script prints it and the job has a pattern for it.
type JobCost struct {
	Address string `json:"address"`
	World   string `json:"world,omitempty"` // "forms", "restarts", "stops" or "ends"; "" if it keeps training as it is
	// Generation and Slots are of the world that restarts, stops or ends.
	Generation int `json:"generation,omitempty"`
	Slots      int `json:"slots,omitempty"`
	// Broken: that world no longer trains, whatever the plan does: no checkpoint can be requested.
	Broken bool `json:"broken,omitempty"`
	// Starting: it is Broken only because it has just formed, and processes of it are still to start.
	Starting bool `json:"starting,omitempty"`
	// Unseen: it is unknown whether that world still trains; the signal goes to whatever does.
	Unseen bool `json:"unseen,omitempty"`
	// LastStep is the last step seen; 0 if none was. It is Live if a running master reported it, and otherwise that of the
	// last world that ended.
	LastStep int64 `json:"last_step,omitempty"`
	Live     bool  `json:"live,omitempty"`
	// CheckpointDir is where it continues from, CheckpointSignal the signal that requests a checkpoint before a planned stop;
	// "" if nothing is left running that could write one.
	CheckpointDir    string `json:"checkpoint_dir,omitempty"`
	CheckpointSignal string `json:"checkpoint_signal,omitempty"`
	// CheckpointStep is the step of the newest checkpoint seen; 0 if none was. Without a live last step there may be a newer
	// checkpoint.
	CheckpointStep int64 `json:"checkpoint_step,omitempty"`
	// CheckpointPath is that checkpoint in CheckpointDir; "" if no agent has seen it there.
	CheckpointPath string `json:"checkpoint_path,omitempty"`
	// StepsAgain is how many steps would be recomputed now; nil unless both a live last step and the checkpoint's are known, or
	// if a checkpoint is requested before the stop. SecondsAgain is how long that takes, 0 if no rate is known.
	StepsAgain   *int64  `json:"steps_again,omitempty"`
	SecondsAgain float64 `json:"seconds_again,omitempty"`
	// StepsSeen is how many of the seen steps are recomputed, for a broken world without a live last step: it may have
	// continued, and written a newer checkpoint, before it broke.
	StepsSeen int64 `json:"steps_again_seen,omitempty"`
	// StepsAtMost is how many steps are recomputed at most, if the last one is known, and SecondsAtMost how long
	// that takes: as above, or all that the job has trained so far.
	StepsAtMost   int64   `json:"steps_again_at_most,omitempty"`
	SecondsAtMost float64 `json:"seconds_again_at_most,omitempty"`
	// SecondsBefore is how long, on average, this job has recomputed steps after each restart so far.
	SecondsBefore float64 `json:"seconds_again_per_restart,omitempty"`
	// GivesUp is what the job, which continues, has less of afterwards; Takes what it has more of.
	GivesUp *Exchange `json:"gives_up,omitempty"`
	Takes   *Exchange `json:"takes,omitempty"`
}

// Exchange is places that a job gives up or takes.
type Exchange struct {
	Slots     int      `json:"slots"`
	Resources string   `json:"resources,omitempty"` // "2 cpu, 8 nvidia.com/gpu"
	Ranks     []int    `json:"ranks,omitempty"`     // of those that are given up and in the world
	Reasons   []string `json:"reasons,omitempty"`

	ReasonCodes []job.Reason `json:"reason_codes,omitempty"` // the same in codes; see docs/reasons.md
}

// costs returns the jobs with costs, in the plan's order.
func (b *planBuilder) costs() []JobCost {
	byJob := map[string][]*plan.Change{}
	var order []string
	for i := range b.facts.Plan.Changes {
		c := &b.facts.Plan.Changes[i]
		if byJob[c.Job] == nil {
			order = append(order, c.Job)
		}
		byJob[c.Job] = append(byJob[c.Job], c)
	}
	var out []JobCost
	for _, name := range order {
		cost := b.cost(name, byJob[name])
		if cost.World != "" || cost.GivesUp != nil || cost.Takes != nil {
			out = append(out, cost)
		}
	}
	return out
}

func (b *planBuilder) cost(name string, changes []*plan.Change) JobCost {
	rec, next := b.facts.Input.Records[name], b.facts.Plan.Records[name]
	cost := JobCost{Address: "job." + name, World: b.world(name, changes)}
	continues := rec != nil && next != nil && rec.UID == next.UID && b.continues(name)
	switch cost.World {
	case worldRestarts, worldStops, worldSuspends, worldEnds:
		trains, starts := b.trains(rec, next)
		cost.Broken, cost.Starting = !trains, starts
		b.again(&cost, rec)
	}
	ranks := map[job.Address]int{}
	if continues {
		for _, m := range rec.World.Members {
			ranks[m.Slot] = m.Rank
		}
	}
	var less, more exchange
	for _, c := range changes {
		switch {
		case ofJob(c):
		case c.Action == plan.Create && next != nil:
			more.add(next.Slot(c.Slot.Role, c.Slot.Index), c.Reasons)
		case c.Action == plan.Delete && continues:
			less.add(rec.Slot(c.Slot.Role, c.Slot.Index), c.Reasons)
			if rank, in := ranks[c.Slot]; in {
				less.ranks = append(less.ranks, rank)
			}
		}
	}
	cost.GivesUp, cost.Takes = less.sum(b.redactor), more.sum(b.redactor)
	return cost
}

// continues reports whether the job is wanted after the plan too.
func (b *planBuilder) continues(name string) bool { return b.jobs[name] != nil || b.kept(name) }

// world returns what happens to a job's world. Stopping one of its slots, or adding a slot of a ranked role, ends it.
func (b *planBuilder) world(name string, changes []*plan.Change) string {
	rec := b.facts.Input.Records[name]
	next := b.facts.Plan.Records[name]
	anew := rec != nil && next != nil && next.UID != rec.UID
	if rec == nil || anew || rec.World.Generation == 0 {
		if slices.ContainsFunc(changes, func(c *plan.Change) bool { return c.Action == plan.Create && b.ranked(c) }) {
			return worldForms
		}
		return ""
	}
	if rec.World.Broken || rec.Phase.Ended() {
		return "" // it does not train now: the plan loses nothing
	}
	members := map[job.Address]bool{}
	for _, m := range rec.World.Members {
		members[m.Slot] = true
	}
	ends := slices.ContainsFunc(changes, func(c *plan.Change) bool {
		switch c.Action {
		case plan.Create:
			return b.ranked(c)
		case plan.Restart, plan.Replace, plan.Delete:
			return members[c.Slot] && c.UID == rec.UID
		}
		return false
	})
	switch {
	case !ends:
		return ""
	case !b.continues(name) || next == nil:
		return worldEnds
	case next.Spec.Suspend:
		return worldSuspends
	case !forms(next, changes):
		return worldStops
	}
	return worldRestarts
}

// forms reports whether after the plan every ranked role has at least its min of slots that run or have a place.
func forms(next *job.Record, changes []*plan.Change) bool {
	comes := map[job.Address]bool{}
	for _, c := range changes {
		comes[c.Slot] = comes[c.Slot] || c.Action == plan.Create || c.Action == plan.Replace
	}
	placed := map[string]int{} // by role
	for i := range next.Slots {
		s := &next.Slots[i]
		stays := s.Phase.Live() && s.Phase != job.Pending && s.Phase != job.Canceling
		if stays || comes[s.Address] {
			placed[s.Address.Role]++
		}
	}
	for i := range next.Spec.Roles {
		r := &next.Spec.Roles[i]
		least, _ := r.Bounds()
		if r.Ranked && placed[r.Name] < max(least, r.Ceil(least)) {
			return false
		}
	}
	return true
}

// trains reports whether a job's world trains until the plan ends it: all its members are seen running. If a member is gone,
// the others can no longer write a checkpoint, and none is requested. starts reports that it does not only because some are still to start.
func (b *planBuilder) trains(rec, next *job.Record) (trains, starts bool) {
	for _, m := range rec.World.Members {
		inc := b.incarnation(rec.UID, m.Slot, m.Incarnation)
		if inc == nil || inc.State == job.Gone || inc.Member != nil && inc.Member.Expired {
			return false, false
		}
		if next != nil {
			if s := next.Slot(m.Slot.Role, m.Slot.Index); s == nil || s.Incarnation != m.Incarnation {
				return false, false // it is healed: the next incarnation has its slot
			}
		}
		waits := inc.Member == nil && inc.Idle || inc.Member != nil && inc.Member.State == job.MemberWaiting
		s := rec.Slot(m.Slot.Role, m.Slot.Index)
		switch {
		case waits && s != nil && s.Phase == job.Registered:
			starts = true
		case waits, inc.Member != nil && inc.Member.State != job.MemberRunning:
			return false, false
		}
	}
	return !starts, starts
}

// incarnation returns an observed incarnation; nil if it was not observed.
func (b *planBuilder) incarnation(uid string, slot job.Address, number int) *job.Incarnation {
	if b.seen == nil {
		all := b.facts.Input.Snapshot.Incarnations
		b.seen = make(map[incarnationAt]*job.Incarnation, all.Len())
		for inc := range all.All() {
			b.seen[incarnationAt{inc.UID, inc.Slot, inc.Number}] = inc
		}
	}
	return b.seen[incarnationAt{uid, slot, number}]
}

func (b *planBuilder) ranked(c *plan.Change) bool {
	rec := b.facts.Plan.Records[c.Job]
	if rec == nil {
		return false
	}
	r := rec.Spec.Role(c.Slot.Role)
	return r != nil && r.Ranked
}

// again fills in what is known of the work that is lost or recomputed.
func (b *planBuilder) again(cost *JobCost, rec *job.Record) {
	cost.Generation, cost.Slots = rec.World.Generation, len(rec.World.Members)
	cost.LastStep = rec.Goodput.Reached
	live := b.facts.Reached[rec.Spec.Name]
	if live.Step > 0 {
		cost.LastStep, cost.Live = live.Step, true
	}
	saved := rec.Goodput.Saved.Newest(live.Saved)
	if live.Path != "" { // what is there, whatever there was
		saved, cost.CheckpointPath = live.Saved, b.text(live.Path)
	}
	if cost.Live && saved.Generation < cost.Generation && saved.Step > cost.LastStep {
		saved, cost.CheckpointPath = job.Saved{}, "" // an earlier world's, at a later step: this world continued from another checkpoint
	}
	cost.CheckpointStep, cost.LastStep = saved.Step, max(cost.LastStep, saved.Step) // not every step is printed
	if c := rec.Spec.Checkpoint; c != nil {
		cost.CheckpointDir = b.text(c.Dir)
		if !cost.Broken {
			cost.CheckpointSignal, cost.Unseen = c.Signal, b.facts.Unseen
		}
	}
	if cost.World == worldEnds {
		return
	}
	name := rec.Spec.Name
	goodput := plan.Goodput(job.Records{name: rec}, &b.facts.Input.Snapshot, b.facts.Input.Now)[name]
	cost.SecondsAtMost = tenths(goodput.Productive + goodput.Unknown)
	if cost.Live {
		cost.StepsAtMost = cost.LastStep
	}
	if cost.Live && cost.CheckpointStep > 0 && cost.CheckpointSignal == "" {
		steps := cost.LastStep - cost.CheckpointStep
		cost.StepsAgain, cost.SecondsAgain = &steps, tenths(secondsOf(steps, live, goodput))
		cost.StepsAtMost, cost.SecondsAtMost = steps, cost.SecondsAgain
	}
	if cost.Broken && !cost.Live && cost.CheckpointStep > 0 {
		cost.StepsSeen = cost.LastStep - cost.CheckpointStep
	}
	if restarts := rec.World.Generation - 1; restarts > 0 {
		cost.SecondsBefore = tenths(goodput.Lost.RedoneSteps / float64(restarts))
	}
}

// secondsOf returns how long steps take at the recent rate, or, if none was measured, at the average rate of all training so
// far; 0 if unknown.
func secondsOf(steps int64, live Reached, g job.Goodput) float64 {
	if live.Rate > 0 {
		return float64(steps) / live.Rate
	}
	return g.Productive * float64(steps) / float64(live.Step)
}

func tenths(seconds float64) float64 { return float64(int64(seconds*10+0.5)) / 10 }

// exchange collects the slots of an Exchange.
type exchange struct {
	slots   int
	amount  job.Resources
	ranks   []int
	reasons []job.Reason
}

func (e *exchange) add(s *job.Slot, reasons []job.Reason) {
	e.slots++
	if s != nil {
		e.amount = e.amount.Add(s.Reserved)
	}
	if len(reasons) > 0 && !slices.ContainsFunc(e.reasons, reasons[0].Equal) && len(e.reasons) < maxReasons {
		e.reasons = append(e.reasons, reasons[0])
	}
}

func (e *exchange) sum(r *Redactor) *Exchange {
	if e.slots == 0 {
		return nil
	}
	sum := &Exchange{Slots: e.slots, Ranks: slices.Sorted(slices.Values(e.ranks)), Reasons: r.Sentences(e.reasons), ReasonCodes: r.Reasons(e.reasons)}
	if !e.amount.Equal(job.Resources{}) {
		sum.Resources = e.amount.String()
	}
	return sum
}

// sentences returns a job's cost as text. Taking free places costs nothing.
func (c *JobCost) sentences() []string {
	var out []string
	switch c.World {
	case worldRestarts, worldStops, worldSuspends:
		out = append(out, c.Address+": "+c.what()+", and "+c.next()+"resumes from "+c.from()+"."+c.howMuch())
	case worldEnds:
		out = append(out, c.Address+": "+c.what()+"."+c.stays())
	}
	if c.GivesUp != nil {
		held := plural(c.GivesUp.Slots, "slot") + c.GivesUp.ranks()
		if c.GivesUp.Resources != "" {
			held += " (" + c.GivesUp.Resources + ")"
		}
		out = append(out, fmt.Sprintf("%s: gives up %s: %s.", c.Address, held,
			strings.TrimSuffix(strings.Join(c.GivesUp.Reasons, "; "), ".")))
	}
	return out
}

// ranks returns the slots' ranks as text; "" if none is in the world.
func (e *Exchange) ranks() string {
	switch len(e.Ranks) {
	case 0:
		return ""
	case 1:
		return " of rank " + itoa(e.Ranks[0])
	}
	ranks := strings.Trim(job.Fold("", e.Ranks), "[]")
	if len(ranks) > maxFolded {
		ranks = ranks[:strings.LastIndexByte(ranks[:maxFolded], ',')+1] + "…"
	}
	return " of ranks " + ranks
}

// what says what happens to the world, and at which step.
func (c *JobCost) what() string {
	verb := "restarts"
	switch {
	case c.Starting:
		verb = "is still starting"
	case c.Broken:
		verb = "is already broken"
	case c.World != worldRestarts:
		verb = "ends"
	}
	text := fmt.Sprintf("its world of %s (generation %d) %s", plural(c.Slots, "slot"), c.Generation, verb)
	if c.LastStep == 0 {
		return text
	}
	if c.Live {
		return text + " at step " + strconv.FormatInt(c.LastStep, 10)
	}
	return text + ", at step " + strconv.FormatInt(c.LastStep, 10) + " or later"
}

// next says who continues, if it is not the world that restarts.
func (c *JobCost) next() string {
	switch {
	case c.World == worldStops:
		return "the next one, once there is room for it, "
	case c.World == worldSuspends:
		return "the next one, when the job is no longer suspended, "
	case c.Broken:
		return "the next one "
	}
	return ""
}

// unless says where it continues from if nothing is running that could write a checkpoint.
func (c *JobCost) unless() string {
	switch {
	case !c.Unseen:
		return ""
	case c.CheckpointStep > 0:
		return fmt.Sprintf(" if it is still running, otherwise from step %d or newer", c.CheckpointStep)
	}
	return " if it is still running; no other checkpoint is known"
}

func (c *JobCost) from() string {
	dir := ""
	if c.CheckpointDir != "" {
		dir = " in " + c.CheckpointDir
	}
	switch {
	case c.CheckpointSignal != "":
		return "the checkpoint" + dir + " that " + c.CheckpointSignal + " requests before the stop" + c.unless()
	case c.StepsAgain != nil:
		return fmt.Sprintf("the checkpoint of step %d%s; %s", c.CheckpointStep, dir, recomputed(*c.StepsAgain, c.SecondsAgain))
	case c.StepsSeen > 0:
		return fmt.Sprintf("the checkpoint of step %d%s or newer; recomputed of the steps seen: %d", c.CheckpointStep, dir, c.StepsSeen)
	case c.CheckpointStep > 0:
		return fmt.Sprintf("the checkpoint of step %d%s or newer", c.CheckpointStep, dir)
	case c.CheckpointPath != "":
		return "the newest checkpoint, " + c.CheckpointPath + dir + "; step unknown"
	case dir != "" && c.Broken:
		return "whatever was saved" + dir + "; no checkpoint is known"
	case dir != "":
		return "the newest checkpoint" + dir + "; step unknown"
	}
	return "whatever its script saved; no checkpoint directory is declared"
}

// howMuch says how much work may be recomputed if that is not known exactly. After a requested checkpoint it is almost none.
func (c *JobCost) howMuch() string {
	var parts []string
	if most := c.most(); c.CheckpointSignal == "" && c.StepsAgain == nil && most != "" {
		parts = append(parts, "Recomputed at most: "+most+".")
	}
	if c.SecondsBefore > 0 {
		parts = append(parts, "Recomputed per restart so far: "+seconds(c.SecondsBefore)+" on average.")
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, " ")
}

// recomputed says how many steps are recomputed, and how long that takes if known.
func recomputed(steps int64, took float64) string {
	if steps == 0 {
		return "nothing is recomputed"
	}
	text := "recomputed: " + plural(int(steps), "step")
	if took > 0 {
		text += " (" + seconds(took) + ")"
	}
	return text
}

// most says how much the job has trained so far, as far as it is known.
func (c *JobCost) most() string {
	switch {
	case c.StepsAtMost > 0 && c.SecondsAtMost > 0:
		return fmt.Sprintf("%d steps, %s of training", c.StepsAtMost, seconds(c.SecondsAtMost))
	case c.StepsAtMost > 0:
		return fmt.Sprintf("%d steps", c.StepsAtMost)
	case c.SecondsAtMost > 0:
		return "all training so far, " + seconds(c.SecondsAtMost)
	}
	return ""
}

func (c *JobCost) stays() string {
	if c.CheckpointDir == "" {
		return ""
	}
	return " Checkpoints stay in " + c.CheckpointDir + "."
}

func seconds(s float64) string {
	if s < 120 {
		return strconv.FormatFloat(s, 'f', -1, 64) + " s"
	}
	return strconv.FormatFloat(s/60, 'f', 0, 64) + " min"
}
