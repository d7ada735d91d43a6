package detect

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// pausePrecision is to which part of its length a pause is told.
const pausePrecision = 100

// finding is the ranks that evidence points at.
type finding struct {
	ranks    []*rank
	evidence []job.Reason
	certain  bool
}

// certain finds what cannot be an evaluation, a checkpoint or late data: it lasts for the floor. As long has a detector to hear of all
// processes of a world that it takes over.
func (d *Detector) certain() finding {
	if at := d.formed.Add(d.limits.Floor); d.now.Before(at) {
		d.lookBy(at)
		return finding{}
	}
	stops := d.held(job.ThreadStopped)
	if len(stops) > 0 {
		return finding{stops, []job.Reason{d.because(RankStopped, stops), d.lastProgress()}, true}
	}
	if blocks := d.blocked(); len(blocks.ranks) > 0 && !d.starts() {
		return finding{blocks.ranks, append(blocks.evidence, d.lastProgress()), true}
	}
	var silent []*rank
	for _, r := range d.ranks {
		if r.slot.silent.IsZero() {
			continue
		}
		if at := r.slot.silent.Add(d.limits.Floor); d.now.Before(at) {
			d.lookBy(at)
			continue
		}
		silent = append(silent, r)
	}
	if len(silent) > 0 && len(silent) < len(d.ranks) {
		return finding{silent, []job.Reason{d.because(RankSilent, silent), d.lastProgress()}, true}
	}
	return finding{}
}

// blocked finds ranks that are blocked while most others are not: where most are, storage that they share is at fault, and no restart
// helps.
func (d *Detector) blocked() finding {
	blocks := d.held(job.ThreadBlocked)
	if len(blocks) == 0 || 2*len(blocks) > len(d.ranks) && len(d.ranks) > 1 {
		return finding{}
	}
	return finding{ranks: blocks, evidence: []job.Reason{d.because(RankBlocked, blocks, "channel", blocks[0].Channel)}}
}

// startup is for how long a world that has shown no step is taken to start.
const startup = 5 * time.Minute

// starts reports whether the world still starts: its processes read their programs and data, on a busy disk for long.
func (d *Detector) starts() bool {
	if d.shown > 0 {
		return false
	}
	for _, r := range d.ranks {
		if until := r.began(d.formed).Add(startup); d.now.Before(until) {
			d.lookBy(until)
			return true
		}
	}
	return false
}

// began is when the process was started: its world may have formed under an earlier master.
func (r *rank) began(formed time.Time) time.Time {
	if r.start.IsZero() {
		return formed
	}
	return r.start
}

// held are the ranks that have been in a state for the floor.
func (d *Detector) held(state job.ThreadState) (found []*rank) {
	for _, r := range d.ranks {
		if r.State != state {
			continue
		}
		if at := r.held.Add(d.limits.Floor); d.now.Before(at) {
			d.lookBy(at)
			continue
		}
		found = append(found, r)
	}
	return found
}

// likely is the finding about ranks that differ from the others; about all if none does.
func (d *Detector) likely() finding {
	f := d.odd()
	if len(f.ranks) == 0 {
		f = finding{ranks: slices.Clone(d.ranks), evidence: []job.Reason{job.Because(NobodyDiffers)}}
	}
	f.evidence = append(f.evidence, d.lastProgress(), d.known())
	return f
}

// odd is the finding about ranks that differ from the others. Their own log of collectives says who waits for whom, and steps are facts
// about the training itself. The rest is looked at together: if processes differ in several ways, those that differ in more of them.
func (d *Detector) odd() (f finding) {
	if traces := d.held(job.ThreadTraced); len(traces) > 0 {
		return finding{ranks: traces, evidence: []job.Reason{d.because(RankTraced, traces)}}
	}
	if f := d.oddCollectives(); len(f.ranks) > 0 {
		return f
	}
	if f := d.blocked(); len(f.ranks) > 0 {
		return f
	}
	if f := d.among(d.behind); len(f.ranks) > 0 {
		return f
	}
	for _, odd := range []func([]*rank) finding{d.oddStacks, d.oddActivity, d.oddChannels} {
		f = f.narrowed(d.among(odd))
	}
	return f
}

// among looks for the odd ones among those that do the same at the same time.
func (d *Detector) among(odd func([]*rank) finding) (f finding) {
	for _, alike := range d.alikes {
		found := odd(alike)
		f.ranks = append(f.ranks, found.ranks...)
		if len(f.evidence) < mostQuoted {
			f.evidence = append(f.evidence, found.evidence...)
		}
	}
	slices.SortFunc(f.ranks, byNumber)
	return f
}

// narrowed returns the ranks that both findings have, with the evidence of both; f if there are none.
func (f finding) narrowed(by finding) finding {
	if len(f.ranks) == 0 {
		return by
	}
	var common []*rank
	for _, r := range f.ranks {
		if slices.Contains(by.ranks, r) {
			common = append(common, r)
		}
	}
	if len(common) == 0 {
		return f
	}
	return finding{ranks: common, evidence: append(f.evidence, by.evidence...)}
}

// oddActivity is the finding about ranks that differ by what they do.
func (d *Detector) oddActivity(alike []*rank) finding {
	odd := d.oddByActivity(alike)
	if len(odd) == 0 || len(odd) == len(alike) {
		return finding{}
	}
	code := RankWaits
	if d.activityOf(odd[0]) != waits {
		code = RankWorks
	}
	return finding{ranks: odd, evidence: []job.Reason{d.because(code, odd)}}
}

// lastProgress says since when nothing has happened.
func (d *Detector) lastProgress() job.Reason {
	since := d.pause.since.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	if d.shown == 0 && !d.paced {
		return job.Because(NoActivitySince, "since", since)
	}
	step := ""
	if newest, some := newestStep(d.ranks); some {
		step = strconv.FormatInt(newest, 10)
	}
	return job.Because(NoStepSince, "since", since, "step", step)
}

func newestStep(of []*rank) (step int64, some bool) {
	for _, r := range of {
		if r.Step != nil && (!some || *r.Step > step) {
			step, some = *r.Step, true
		}
	}
	return step, some
}

// known says what the pauses so far were like.
func (d *Detector) known() job.Reason {
	phase := d.pause.phase()
	p := d.telling(phase)
	if p == nil {
		n := 0
		if p := d.pauses[phase]; p != nil {
			n = p.n
		}
		return job.Because(PausesTooFew, "phase", string(phase), "count", strconv.Itoa(n))
	}
	longest := p.longest.Round(max(1, p.longest/pausePrecision))
	return job.Because(LongestPause, "phase", string(phase), "count", strconv.Itoa(p.n), "longest", job.Duration(longest).String())
}

// behind is the finding about ranks that show fewer steps than most others.
func (d *Detector) behind(alike []*rank) finding {
	most, some := newestStep(alike)
	if !some {
		return finding{}
	}
	at := 0
	var behind []*rank
	for _, r := range alike {
		switch {
		case r.Step == nil:
		case *r.Step == most:
			at++
		default:
			behind = append(behind, r)
		}
	}
	if len(behind) == 0 || len(behind) > at { // a few that are ahead of most do not show who is late
		return finding{}
	}
	return finding{ranks: behind, evidence: []job.Reason{
		d.because(RankBehind, behind, "step", strconv.FormatInt(*behind[0].Step, 10), "others", strconv.FormatInt(most, 10))}}
}

// activity is what a process does.
type activity int

const (
	unclear activity = iota
	waits
	works
	transfers // uses little of a processor, and reads or writes
)

func (d *Detector) activityOf(r *rank) activity {
	switch {
	case r.State.Held() != "", !r.slot.silent.IsZero():
		return waits
	case r.Busy == nil:
		return unclear
	case *r.Busy >= job.Works:
		return works
	case r.Idle != nil && *r.Idle < job.StillAfter(0):
		return transfers
	}
	return waits
}

// oddByActivity are the ranks that do not do what most do; nil if all do the same, all if there is no such majority. Of two processes of
// which one waits, the other one works by itself: a peer that waits for it usually sleeps.
func (d *Detector) oddByActivity(alike []*rank) (odd []*rank) {
	count := [transfers + 1]int{}
	for _, r := range alike {
		count[d.activityOf(r)]++
	}
	most := waits
	for _, a := range []activity{works, transfers} {
		if count[a] > count[most] {
			most = a
		}
	}
	for _, r := range alike {
		if count[unclear] > 0 || 2*count[most] < len(alike) || d.activityOf(r) != most {
			odd = append(odd, r)
		}
	}
	return odd
}

// oddChannels is the finding about ranks that wait in another kernel function than most do, where they have not waited while the world
// moved.
func (d *Detector) oddChannels(alike []*rank) finding {
	odd, most := minority(alike, func(r *rank) string {
		if d.activityOf(r) != waits {
			return ""
		}
		return r.Channel
	})
	odd = slices.DeleteFunc(odd, func(r *rank) bool { return r.usual[r.Channel] })
	if len(odd) == 0 || 2*len(odd) > len(alike) {
		return finding{}
	}
	return finding{ranks: odd, evidence: []job.Reason{d.because(RankElsewhere, odd, "channel", odd[0].Channel, "others", most)}}
}

// topFrames is how much of a stack says where a process is.
const topFrames = 4

// stackOf is where a process is, as the functions of its innermost frames; "" if that is unknown.
func stackOf(e *job.RankEvidence) string {
	if e == nil {
		return ""
	}
	var names []string
	for _, frame := range e.Frames[:min(len(e.Frames), topFrames)] {
		name, _, _ := strings.Cut(frame, " (") // without its place: lines of a loop differ
		names = append(names, name)
	}
	return strings.Join(names, " < ")
}

// mostQuoted is of how many suspected processes the evidence is quoted.
const mostQuoted = 4

// quote is what an agent found out about a process.
func (d *Detector) quote(r *rank) (facts []job.Reason) {
	e := r.Evidence
	if e == nil {
		return nil
	}
	of := []*rank{r}
	if e.Waits != "" {
		facts = append(facts, d.because(RankIn, of, "state", string(e.State), "waits", e.Waits))
	}
	if len(e.Frames) > 0 {
		facts = append(facts, d.because(RankStack, of, "source", string(e.Source), "stack", strings.Join(e.Frames, " < ")))
	}
	facts = append(facts, d.logOf(r)...)
	for _, line := range e.Output {
		facts = append(facts, d.because(RankOutput, of, "message", line))
	}
	return facts
}

// collective matches the names of functions in which a process waits for its peers, in any spelling: of torch.distributed, NCCL, gloo, MPI
// and plain sockets.
var collective = regexp.MustCompile(`(?i)all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|\b_?i?recv|\b_?i?send|synchronize|wait_tensor|\bwait_work|run_backward`)

// oddStacks is the finding about ranks whose stacks are not like those of most. Of those, ranks that wait for peers only show that they wait.
func (d *Detector) oddStacks(alike []*rank) finding {
	odd, most := minority(alike, func(r *rank) string { return r.stack })
	calls := map[string]bool{} // by stack
	waits := func(r *rank) bool {
		if _, known := calls[r.stack]; !known {
			calls[r.stack] = collective.MatchString(r.stack)
		}
		return calls[r.stack]
	}
	if slices.ContainsFunc(odd, func(r *rank) bool { return !waits(r) }) {
		odd = slices.DeleteFunc(odd, waits)
	}
	if len(odd) == 0 || 2*len(odd) > len(alike) {
		return finding{}
	}
	return finding{ranks: odd, evidence: []job.Reason{d.because(RankStacks, odd, "stack", odd[0].stack, "others", most)}}
}

// minority are the ranks whose value is not the one that most have, of those with a value.
func minority(alike []*rank, value func(*rank) string) (odd []*rank, most string) {
	count := map[string]int{}
	for _, r := range alike {
		if v := value(r); v != "" {
			count[v]++
		}
	}
	for v, n := range count {
		if n > count[most] || n == count[most] && v < most {
			most = v
		}
	}
	for _, r := range alike {
		if v := value(r); v != "" && (v != most || 2*count[most] <= len(alike)) {
			odd = append(odd, r)
		}
	}
	return odd, most
}

// because is a reason about ranks.
func (d *Detector) because(code job.Code, ranks []*rank, args ...string) job.Reason {
	numbers := make([]int, len(ranks))
	for i, r := range ranks {
		numbers[i] = r.number
	}
	slices.Sort(numbers)
	return job.Because(code, append([]string{"ranks", folded(numbers), "count", strconv.Itoa(len(ranks))}, args...)...)
}

// folded are numbers as "0-3,7".
func folded(numbers []int) string {
	return strings.TrimSuffix(strings.TrimPrefix(job.Fold("", numbers), "["), "]")
}
