package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/apply"
	"github.com/eltrain/eltrain/conditions"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
)

const (
	// maxSingly is how many like changes of one plan get lines of their own; more are shown as a group.
	maxSingly = 8
	// stillEvery is how often a group shows that it is still in progress; Terraform's interval.
	stillEvery = 10 * time.Second
	// trainingEvery is the shortest interval between lines about one job's training.
	trainingEvery = 5 * time.Second
)

var _ apply.View = (*Progress)(nil)

// Progress shows what apply does as text, line by line, as it happens. Many similar changes of one plan are shown
// as a group. It is an apply.View: calls come from one goroutine at a time.
type Progress struct {
	screen   Screen
	redactor *Redactor
	now      func() time.Time

	total    plan.Summary         // what was done so far
	restarts map[job.Address]bool // restarts in place that a plan has shown and that are not done
	stopped  map[slotOf]int       // incarnations whose stop was counted, until the slot's next one is started
	bursts   map[burstKey]*burst
	trained  map[string]time.Time // when training progress of a job was last shown
	beside   bool                 // a master makes the changes
}

// burstKey identifies changes that are shown as a group.
type burstKey struct {
	job, role string
	words     actionWord // not the action: a replacement may be two changes, a stop and a start
}

// burst is a group of like changes. It outlives a plan: the next one may be made while the group is in progress.
type burst struct {
	began     time.Time    // when its first change started; zero before
	lastShown time.Time    // when it was last shown
	pending   map[int]bool // slots that are not done
	inFlight  map[int]bool // pending slots in progress
	failed    map[int]bool // pending slots that failed and may be retried
	first     string       // which failed first in this round, and why
	before    int          // how many failed in the previous round; 0 in the first
	done      int
}

// slotOf is a slot of one job, told apart by UID from other jobs' of the same name.
type slotOf struct {
	uid  string
	slot job.Address
}

// NewProgress writes to s. now is the clock that limits how often.
func NewProgress(s Screen, r *Redactor, now func() time.Time) *Progress {
	return &Progress{
		screen: s, redactor: r, now: now,
		bursts: map[burstKey]*burst{}, restarts: map[job.Address]bool{}, stopped: map[slotOf]int{}, trained: map[string]time.Time{},
	}
}

// Planned notes which changes form groups.
func (p *Progress) Planned(next *plan.Plan) {
	planned := map[burstKey]map[int]bool{}
	for i := range next.Changes {
		c := &next.Changes[i]
		if ofJob(c) || c.Wave > 0 { // later waves come in a later plan
			continue
		}
		if planned[key(c)] == nil {
			planned[key(c)] = map[int]bool{}
		}
		planned[key(c)][c.Slot.Index] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(p.bursts), compareBursts) {
		b := p.bursts[k]
		b.pending = maps.Clone(b.inFlight)
		maps.Copy(b.pending, planned[k])
		maps.DeleteFunc(b.failed, func(slot int, _ bool) bool { return !b.pending[slot] })
		p.endRound(k, b)
	}
	for k, slots := range planned {
		if p.bursts[k] == nil && len(slots) > maxSingly {
			p.bursts[k] = &burst{pending: slots, inFlight: map[int]bool{}, failed: map[int]bool{}}
		}
	}
}

// Shown records that a plan was shown in full: the restarts that it announced are counted.
func (p *Progress) Shown(shown *plan.Plan) {
	for i := range shown.Changes {
		if c := &shown.Changes[i]; c.Action == plan.Restart {
			p.restarts[c.Slot] = true
		}
	}
}

// wait shows what a job or role waits for, a line for each reason. That it no longer waits is shown by its changes.
func (p *Progress) wait(c *conditions.Change) {
	if c.Type == conditions.Cleared {
		return
	}
	for _, text := range folded(p.redactor.Sentences(conditions.Reasons(c.Reason))) {
		line := c.About + ": waiting: " + text + held(c)
		if c.Reason.Code == plan.Overridden { // it is as an operator asked
			line = c.About + ": " + text + held(c)
		}
		if plan.Waiting[c.Reason.Code] { // others end by themselves and need no attention
			line = p.screen.paint(line, yellow)
		}
		p.tell(line)
	}
}

// Started shows that a change was started.
func (p *Progress) Started(c *plan.Change) {
	b := p.bursts[key(c)]
	if b == nil {
		p.tell(p.screen.paint(ChangeAddress(c)+": "+words(c).doing+"...", bold) + p.because(c))
		return
	}
	if b.began.IsZero() {
		b.began = p.now()
		b.lastShown = b.began
		if b.before == 0 {
			p.tell(p.screen.paint(b.address(c)+": "+words(c).doing+"...", bold))
		}
	}
	b.pending[c.Slot.Index], b.inFlight[c.Slot.Index] = true, true
	delete(b.failed, c.Slot.Index)
}

// because returns a change's main reason, since a watch shows no plan.
func (p *Progress) because(c *plan.Change) string {
	why := c.Why()
	if why.IsZero() {
		return ""
	}
	return " (" + p.redactor.Text(strings.TrimSuffix(Sentence(why), ".")) + ")"
}

// Still shows that a change is still in progress.
func (p *Progress) Still(c *plan.Change, elapsed time.Duration) {
	b := p.bursts[key(c)]
	if b == nil {
		p.tell(fmt.Sprintf("%s: Still %s... [%s elapsed]", ChangeAddress(c), lower(words(c).doing), short(elapsed)))
		return
	}
	if p.now().Sub(b.lastShown) >= stillEvery && (b.done > 0 || b.before == 0) { // no news if all failed before and none succeeded since
		b.lastShown = p.now()
		p.tell(fmt.Sprintf("job.%s.%s: Still %s... [%s elapsed, %d of %d done%s]",
			c.Job, c.Slot.Role, lower(words(c).doing), short(p.now().Sub(b.began)), b.done, b.done+len(b.pending), b.failures()))
	}
}

// Finished shows how a change ended.
func (p *Progress) Finished(c *plan.Change, elapsed time.Duration, err error) {
	b := p.bursts[key(c)]
	if err != nil && b == nil {
		p.tell(p.screen.paint(fmt.Sprintf("%s: %s failed after %s: %s",
			ChangeAddress(c), words(c).done, short(elapsed), p.redactor.Text(err.Error())), red))
	}
	if err == nil {
		p.count(c)
	}
	if b == nil {
		if err == nil {
			p.tell(p.screen.paint(fmt.Sprintf("%s: %s complete after %s%s", ChangeAddress(c), words(c).done, short(elapsed), place(c)), bold))
		}
		return
	}
	delete(b.inFlight, c.Slot.Index)
	if err != nil {
		b.failed[c.Slot.Index] = true
		if b.first == "" {
			b.first = c.Slot.Short() + ": " + p.redactor.Text(err.Error())
		}
	} else {
		b.done++
		delete(b.pending, c.Slot.Index)
	}
	p.endRound(key(c), b)
}

// Withdrawn ends a change that is no longer needed.
func (p *Progress) Withdrawn(c *plan.Change, elapsed time.Duration) {
	b := p.bursts[key(c)]
	if b == nil {
		p.tell(fmt.Sprintf("%s: %s canceled after %s: no longer needed", ChangeAddress(c), words(c).done, short(elapsed)))
		return
	}
	delete(b.inFlight, c.Slot.Index)
	delete(b.pending, c.Slot.Index)
	delete(b.failed, c.Slot.Index)
	p.endRound(key(c), b)
}

// endRound sums up a group once all of it was tried. Those that failed stay a group, for the next try.
func (p *Progress) endRound(k burstKey, b *burst) {
	if len(b.pending) > len(b.failed) {
		return
	}
	p.sumUp(k, b)
	if len(b.failed) == 0 {
		delete(p.bursts, k)
		return
	}
	*b = burst{pending: b.failed, inFlight: b.inFlight, failed: map[int]bool{}, before: len(b.failed)}
}

// sumUp shows how a round went, unless everything failed again.
func (p *Progress) sumUp(k burstKey, b *burst) {
	if b.began.IsZero() || b.done == 0 && b.before > 0 && len(b.failed) == b.before {
		return
	}
	text := itoa(b.done)
	if len(b.pending) > 0 {
		text += " of " + itoa(b.done+len(b.pending))
	}
	text += " " + k.words.participle + " after " + short(p.now().Sub(b.began))
	shade := bold
	if len(b.failed) > 0 {
		shade = red
	}
	p.tell(p.screen.paint("job."+k.job+"."+k.role+": "+text+b.failures(), shade))
}

// failures says how many of a group failed, and why the first did: usually they all have the same reason.
func (b *burst) failures() string {
	if len(b.failed) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d failed, first: %s", len(b.failed), b.first)
}

// count counts what was done, each slot once: a replacement may be two changes, a stop and a start. Restarts in place count
// only if a plan announced them: they leave the slot as it was, and their number depends on when its program fails.
func (p *Progress) count(c *plan.Change) {
	if c.Action == plan.Restart && !p.restarts[c.Slot] {
		return
	}
	delete(p.restarts, c.Slot)
	s := (&plan.Plan{Changes: []plan.Change{*c}}).Summary()
	at := slotOf{c.UID, c.Slot}
	ended, counted := p.stopped[at]
	switch {
	case ofJob(c):
	case stops(c) || c.Action == plan.Delete:
		s.Add = 0
		if counted && ended == c.Incarnation { // a planned stop became a replacement, or the reverse
			s.Remove = 0
		}
		p.stopped[at] = c.Incarnation
	case c.Action == plan.Create || c.Action == plan.Replace:
		if counted {
			s.Remove = 0
		}
		delete(p.stopped, at)
	}
	p.total.Import += s.Import
	p.total.Add += s.Add
	p.total.Change += s.Change
	p.total.Remove += s.Remove
}

// Noticed shows a notice.
func (p *Progress) Noticed(n job.Notice) {
	if p.beside || !shownByChanges(n) {
		p.tell(p.screen.notice(n, p.redactor))
	}
}

// Condition shows a condition that was raised, changed or cleared.
func (p *Progress) Condition(c conditions.Change) {
	if c.Reason.Code == apply.OutputLeftOut { // perhaps the ends of these
		clear(p.bursts)
	}
	if shownElsewhere(&c.Condition) {
		return
	}
	if waits(&c.Condition) {
		p.wait(&c)
		return
	}
	if line, is := conditionLine(&c); is {
		p.tell(p.redactor.Text(line) + held(&c))
		return
	}
	summary, detail := conditionText(&c.Condition)
	if c.Type == conditions.Cleared {
		p.tell(p.screen.paint("Resolved: "+p.redactor.Text(summary), green))
		return
	}
	WriteDiagnostics(p.screen, []Diagnostic{Caution(p.redactor.Text(summary)+held(&c), p.redactor.Text(detail))})
}

// Progressed shows training progress, every few seconds.
func (p *Progress) Progressed(jobName string, far apply.Progress) {
	now := p.now()
	if last, shown := p.trained[jobName]; shown && now.Sub(last) < trainingEvery {
		return
	}
	p.trained[jobName] = now
	p.tell("job." + jobName + ": " + training(far.Step, far.Loss, far.StepRate))
}

// training returns the progress of a job: "step 120, loss 0.1234, 41.2 steps/s", as far as it is known.
func training(step int64, loss *job.Loss, stepsPerSecond float64) string {
	text := "step " + strconv.FormatInt(step, 10)
	if loss != nil {
		text += ", loss " + strconv.FormatFloat(float64(*loss), 'g', 4, 64)
	}
	if stepsPerSecond > 0 {
		text += ", " + rate(stepsPerSecond) + " steps/s"
	}
	return text
}

func rate(f float64) string {
	if f >= 0.1 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', 2, 64)
}

// Applied writes the last line of an apply that completed.
func (p *Progress) Applied() { p.conclude("Apply complete!", green) }

// Incomplete writes the last line of an apply that has nothing left to do although not all jobs run as configured.
func (p *Progress) Incomplete() {
	p.conclude("Apply ended, but not all jobs are running as configured.", yellow)
}

// Unwatched writes the last lines of an interrupted watch: what it leaves running, and how to continue.
func (p *Progress) Unwatched(left job.Records) {
	p.conclude("Watch ended.", bold)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(left)) {
		runs := func(s job.Slot) bool { return s.Phase.Live() && s.Incarnation > 0 }
		if slices.ContainsFunc(left[name].Slots, runs) {
			names = append(names, "job."+name)
		}
	}
	switch n := len(names); {
	case n == 0:
		p.tell("No job of the state is left running.") // forgotten jobs may be
	case n == 1:
		p.tell(names[0] + " keeps running, and nothing heals it" + afterWatch)
	default:
		if n > maxSingly {
			names = append(names[:maxSingly], fmt.Sprintf("%d more", n-maxSingly))
		}
		last := len(names) - 1
		p.tell(strings.Join(names[:last], ", ") + " and " + names[last] + " keep running, and nothing heals them" + afterWatch)
	}
}

// afterWatch ends the sentence about what a watch leaves.
const afterWatch = ". To continue, run eltrain apply -watch; to stop everything, run eltrain destroy."

// DestroyIncomplete writes the last line of a destroy that has nothing left to do although something is left.
func (p *Progress) DestroyIncomplete() {
	p.endBursts()
	p.tell("\n" + p.screen.paint("Destroy ended, but not everything is gone. Resources: "+destroyedCount(p.total), bold, yellow))
}

// Destroyed writes the last line of a destroy that completed.
func (p *Progress) Destroyed() {
	p.endBursts()
	p.tell("\n" + p.screen.paint("Destroy complete! Resources: "+destroyedCount(p.total), bold, green))
}

func (p *Progress) conclude(headline string, shade style) {
	p.endBursts()
	p.tell("\n" + p.screen.paint(headline+" Resources: "+doneCounts(p.total), bold, shade))
}

func (p *Progress) endBursts() {
	for _, k := range slices.SortedFunc(maps.Keys(p.bursts), compareBursts) {
		p.sumUp(k, p.bursts[k])
	}
	clear(p.bursts)
}

// Done returns what was done so far.
func (p *Progress) Done() plan.Summary { return p.total }

// Beside has it show notices of what a master does, whose changes it is not told.
func (p *Progress) Beside() { p.beside = true }

// CarriedOut sets the counts of the last line to the changes that a master made on request.
func (p *Progress) CarriedOut(done plan.Summary) { p.total = done }

func (p *Progress) tell(text string) {
	if text != "" {
		io.WriteString(p.screen, text+"\n")
	}
}

func key(c *plan.Change) burstKey { return burstKey{c.Job, c.Slot.Role, words(c)} }

func compareBursts(a, b burstKey) int {
	return strings.Compare(a.job+"\x00"+a.role+"\x00"+a.words.doing, b.job+"\x00"+b.role+"\x00"+b.words.doing)
}

func (b *burst) address(c *plan.Change) string {
	return "job." + c.Job + "." + fold(c.Slot.Role, slices.Collect(maps.Keys(b.pending)))
}

// ChangeAddress returns the address of the changed job or slot.
func ChangeAddress(c *plan.Change) string {
	if ofJob(c) {
		return "job." + c.Job
	}
	return c.Slot.String()
}

// place returns where a started incarnation is.
func place(c *plan.Change) string {
	if c.Action != plan.Create && c.Action != plan.Replace {
		return ""
	}
	if c.Node == "" || stops(c) {
		return fmt.Sprintf(" [incarnation=%d]", c.Incarnation)
	}
	return fmt.Sprintf(" [node=%s, incarnation=%d]", c.Node, c.Incarnation)
}

// actionWord is the forms of an action's verb.
type actionWord struct{ doing, done, participle string }

var actionWords = map[plan.Action]actionWord{
	plan.Create:  {"Creating", "Creation", "created"},
	plan.Update:  {"Modifying", "Modifications", "modified"},
	plan.Restart: {"Restarting", "Restart", "restarted"},
	plan.Replace: {"Replacing", "Replacement", "replaced"},
	plan.Delete:  {"Destroying", "Destruction", "destroyed"},
	plan.Forget:  {"Removing from the state", "Removal", "removed"},
	plan.NoOp:    {"Moving", "Move", "moved"},
}

// importing is the verb for a job that becomes managed.
var importing = actionWord{"Importing", "Import", "imported"}

// stopping is the verb for the first half of a planned replacement: the old incarnation gets its grace period.
var stopping = actionWord{"Stopping", "Stop", "stopped"}

func stops(c *plan.Change) bool { return c.Action == plan.Replace && c.Launch == nil }

func words(c *plan.Change) actionWord {
	if stops(c) {
		return stopping
	}
	switch {
	case ofJob(c) && c.Action == plan.Delete:
		return actionWords[plan.Forget]
	case c.Action == plan.NoOp && c.Import != "":
		return importing
	}
	return actionWords[c.Action]
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// short returns a duration as text: with tenths below ten seconds, else in whole seconds.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return job.Duration(d.Round(time.Second)).String()
}

// Quiet is an apply.View that shows nothing.
type Quiet struct{}

var _ apply.View = Quiet{}

func (Quiet) Planned(*plan.Plan)                          {}
func (Quiet) Started(*plan.Change)                        {}
func (Quiet) Still(*plan.Change, time.Duration)           {}
func (Quiet) Finished(*plan.Change, time.Duration, error) {}
func (Quiet) Withdrawn(*plan.Change, time.Duration)       {}
func (Quiet) Noticed(job.Notice)                          {}
func (Quiet) Condition(conditions.Change)                 {}
func (Quiet) Progressed(string, apply.Progress)           {}
