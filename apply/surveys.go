package apply

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/elastic"
	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/scaling"
)

// stopEvery is how often the figure is read that ends a job.
const stopEvery = 10 * time.Second

// surveys ask the sources of scaling policies, those of a role together at its interval, and keep what they said. An evaluation is
// complete once each has answered or failed: a source that is slow delays none but its role's, and never a turn.
type surveys struct {
	of   map[surveyed]*survey
	turn int       // for which the jobs were looked through
	due  time.Time // when the next is to be taken; zero if none
}

type surveyed struct{ uid, role string }

type survey struct {
	next   time.Time
	open   *job.Evaluation // being taken; nil if none is
	awaits int
	asked  []job.Policy
	kept   []job.Evaluation
}

func newSurveys() surveys { return surveys{of: map[surveyed]*survey{}} }

// take begins the evaluations that are due, of the jobs that run.
func (s *surveys) take(l *Loop) {
	due := !s.due.IsZero() && !l.now.Before(s.due)
	if !l.setup.Watch || l.end.stage != running || s.turn == l.turn.number && !due {
		return
	}
	s.turn, s.due = l.turn.number, time.Time{}
	asked := map[surveyed]bool{}
	for _, name := range slices.Sorted(maps.Keys(l.book.state.Jobs)) {
		rec := l.book.state.Jobs[name]
		if rec.Phase.Idle() || rec.Phase == job.JobPending {
			continue
		}
		for role, policies := range plan.Asks(&rec.Spec) {
			key := surveyed{rec.UID, role}
			asked[key] = true
			one := s.of[key]
			if one == nil || !plan.SameSources(one.asked, policies) {
				one = &survey{next: l.now, asked: policies}
				s.of[key] = one
			}
			interval := stopEvery
			if role != "" {
				interval = rec.Spec.Role(role).Scaling.Interval()
			}
			if one.open == nil && !l.now.Before(one.next) {
				one.next = l.now.Truncate(interval).Add(interval) // all roles together
				one.begin(l, name, rec, role, policies, interval)
			}
			if one.open == nil {
				s.due = earliest(s.due, one.next)
			}
		}
	}
	maps.DeleteFunc(s.of, func(k surveyed, _ *survey) bool { return !asked[k] })
}

// begin begins an evaluation. What the loop knows itself is entered at once.
func (s *survey) begin(l *Loop, name string, rec *job.Record, role string, policies []job.Policy, interval time.Duration) {
	s.open = &job.Evaluation{At: l.now, Step: l.turn.gauged[rec.LaunchedAs(name)].Step, Size: trains(rec, role), Target: rec.Counts[role]}
	if decided := rec.Scaled[role]; decided.Size > 0 {
		s.open.Target = decided.Size
	}
	s.open.Pace = paceOf(rec, l.turn.gauged[rec.LaunchedAs(name)])
	for i := range policies {
		p := &policies[i]
		switch p.Source.Kind {
		case job.CapacitySource, job.QueueSource:
			v, err := plan.Gauge(&l.turn.decided.Input, name, role, p.Source)
			s.enter(p.Name, v, err)
		default:
			s.awaits++
			l.do(Sample{At: l.now, Job: rec.LaunchedAs(name), UID: rec.UID, Role: role, Policy: p.Name, Source: *p.Source, Bound: p.Source.Bound(interval)})
		}
	}
	s.close(l)
}

// paceOf is how long a step of a job's world takes; nil if it shows none.
func paceOf(rec *job.Record, shown Progress) *job.Pace {
	w := &rec.World
	if shown.StepRate <= 0 || w.Generation == 0 || w.Broken || w.FirstStep.IsZero() {
		return nil
	}
	p := &job.Pace{Generation: w.Generation, StepTime: 1 / shown.StepRate}
	if shown.BatchSize > 0 && shown.NoiseScale > 0 {
		p.Batch, p.NoiseScale = shown.BatchSize, shown.NoiseScale
	}
	nodes := map[string]bool{}
	for i := range w.Members {
		p.Replicas += w.Members[i].Processes
		if s := rec.Slot(w.Members[i].Slot.Role, w.Members[i].Slot.Index); s != nil && s.Node != "" {
			nodes[s.Node] = true
		}
	}
	p.Nodes = max(1, len(nodes))
	return p
}

// trains counts the slots of a role that are in a world that trains: one that is expected to show steps, and has shown one.
func trains(rec *job.Record, role string) (slots int) {
	if r := rec.Spec.Role(role); r != nil && !r.Ranked {
		for i := range rec.Slots {
			if rec.Slots[i].Address.Role == role && rec.Slots[i].Phase == job.Running {
				slots++
			}
		}
		return slots
	}
	if rec.World.Broken || !rec.Awaits.IsZero() {
		return 0
	}
	for i := range rec.World.Members {
		if rec.World.Members[i].Slot.Role == role {
			slots++
		}
	}
	return slots
}

// enter enters what a source said.
func (s *survey) enter(policy string, value float64, err error) {
	v := job.Value{Policy: policy}
	switch {
	case errors.Is(err, scaling.ErrNotTraining):
		v.Absent = true
	case err != nil:
		v.Error, v.Failures = shortened(err.Error()), 1
		if n := len(s.kept); n > 0 {
			if before := s.kept[n-1].Of(policy); before != nil {
				v.Failures = before.Failures + 1
			}
		}
	default:
		v.Value = value
	}
	s.open.Values = append(s.open.Values, v)
}

// mostError bounds what is kept of an error, in bytes.
const mostError = 300

func shortened(text string) string {
	if len(text) > mostError {
		return strings.ToValidUTF8(text[:mostError], "") + "…"
	}
	return text
}

// sampled handles what a source said. If its role is not asked any more, nobody waits for it.
func (s *surveys) sampled(l *Loop, e Sample, o Outcome) {
	one := s.of[surveyed{e.UID, e.Role}]
	if one == nil || one.open == nil || !one.open.At.Equal(e.At) {
		return
	}
	value, _ := o.Result.(float64)
	one.enter(e.Policy, value, o.Err)
	one.awaits--
	one.close(l)
}

// close completes the evaluation once no source is awaited. It is news for the planner.
func (s *survey) close(l *Loop) {
	if s.open == nil || s.awaits > 0 {
		return
	}
	s.kept = append(slices.Clip(s.kept[max(0, len(s.kept)+1-job.MaxEvaluations):]), *s.open) // plans keep what they were made from
	s.open = nil
	l.sight.surveys.due = earliest(l.sight.surveys.due, s.next)
	l.turn.dirty = true
}

// all are what sources said, by job and role.
func (s *surveys) all() (all []job.Survey) {
	for _, key := range slices.SortedFunc(maps.Keys(s.of), func(a, b surveyed) int {
		return cmp.Or(cmp.Compare(a.uid, b.uid), cmp.Compare(a.role, b.role))
	}) {
		if kept := s.of[key].kept; len(kept) > 0 {
			all = append(all, job.Survey{UID: key.uid, Role: key.role, Evaluations: kept})
		}
	}
	return all
}

// MeasureTraining is the value of a source about what a job's training processes show.
func MeasureTraining(f elastic.Facts, s *job.MetricSource) (float64, error) {
	members := make(map[job.Address]*elastic.MemberFacts, len(f.Members))
	for i := range f.Members {
		members[f.Members[i].Slot] = &f.Members[i]
	}
	return scaling.Training(&f.World, func(m job.WorldMember) (*job.Member, []job.AcceleratorFigures) {
		if shown := members[m.Slot]; shown != nil {
			return &shown.Member, shown.Accelerators
		}
		return nil, nil
	}, s)
}
