package lang

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/scaling"
)

func (l *loader) checkScaling(r *job.Role, role, t *tree) {
	s := r.Scaling
	l.checkPace(s, t)
	for i := range s.Policies {
		if st := s.Policies[i].Strategy; st != nil && st.Kind == job.Efficiency && role.sound("ranked") && !r.Ranked {
			l.complain(&t.blocks["policy"][i].def, t, "Strategy for ranked roles", "How efficient a size is follows from how long the steps of a world take, and an unranked role has no world.")
		}
		l.checkPolicy(s, &s.Policies[i], t.blocks["policy"][i], t.sound("min", "max"))
	}
	sound := t.sound("min", "max", "step", "sizes")
	if t.sound("min") && s.Min < 1 {
		l.complain(t.at("min"), t, "Invalid minimum", "A role needs at least 1 slot, so min cannot be %d.", s.Min)
		sound = false
	}
	if t.sound("min", "max") && s.Max < s.Min {
		l.complain(t.at("max"), t, "Minimum above maximum", "max is %d and min is %d: max must be at least min.", s.Max, s.Min)
		sound = false
	}
	if t.sound("max") && s.Max > MaxSlots {
		sound = false // reported as too many slots
	}
	if t.sound("step") && s.Step < 1 {
		l.complain(t.at("step"), t, "Invalid step", "step must be at least 1, not %d.", s.Step)
		sound = false
	}
	if t.attrs["step"] != nil && t.attrs["sizes"] != nil {
		l.complain(t.at("sizes"), t, "Both step and sizes", "Legal sizes are either the multiples of step or a list. Remove one of the two.")
		sound = false
	}
	if t.sound("sizes") && t.attrs["sizes"] != nil {
		if len(s.Sizes) == 0 {
			l.complain(t.at("sizes"), t, "No legal size", "The list of sizes is empty. Remove it to allow all.")
			sound = false
		}
		for _, size := range s.Sizes {
			if t.sound("min", "max") && s.Min <= s.Max && (size < s.Min || size > s.Max) {
				l.complain(t.at("sizes"), t, "Size out of bounds", "The size %d is not between min = %d and max = %d.", size, s.Min, s.Max)
				sound = false
				break
			}
		}
	}
	if !sound {
		return
	}
	if r.Ceil(s.Min) == 0 {
		l.complain(&t.def, t, "No legal size", "No multiple of step = %d is between min = %d and max = %d.", s.Step, s.Min, s.Max)
		return
	}
	if !role.sound("replicas") || r.Legal(r.Replicas) {
		return
	}
	if r.Replicas < s.Min || r.Replicas > s.Max {
		l.complain(role.at("replicas"), role, "Replicas out of bounds", "The role starts with replicas = %d, which is not between min = %d and max = %d.", r.Replicas, s.Min, s.Max)
		return
	}
	l.complain(role.at("replicas"), role, "Not a legal size", "The role starts with replicas = %d, which is not a legal size: %s.", r.Replicas, legalSizes(s))
}

func legalSizes(s *job.Scaling) string {
	if len(s.Sizes) > 0 {
		return fmt.Sprintf("sizes lists %v", s.Sizes)
	}
	return fmt.Sprintf("it is not a multiple of step = %d", s.Step)
}

// minEvaluation keeps sources from being asked all the time.
const minEvaluation = job.Duration(time.Second)

// checkPace checks how often and how fast the size of a role changes.
func (l *loader) checkPace(s *job.Scaling, t *tree) {
	given := func(t *tree, name string) bool { return t.attrs[name] != nil && t.sound(name) }
	if given(t, "evaluation_interval") && s.EvaluationInterval < minEvaluation {
		l.complain(t.at("evaluation_interval"), t, "Interval too short", "Sources are asked at most every %s, not every %s.", minEvaluation, s.EvaluationInterval)
	}
	if given(t, "tolerance") && s.Tolerance != nil && (*s.Tolerance < 0 || *s.Tolerance >= 1) {
		l.complain(t.at("tolerance"), t, "Invalid tolerance", "It is a part of the target: at least 0 and below 1, as 0.1.")
	}
	for name, n := range map[string]int{"max_scale_up": s.MaxScaleUp, "max_scale_down": s.MaxScaleDown} {
		if given(t, name) && n < 1 {
			l.complain(t.at(name), t, "Invalid number of slots", "%s is at least 1; remove it for no limit.", name)
		}
	}
	if given(t, "explore") && s.Explore != nil && *s.Explore < 0 {
		l.complain(t.at("explore"), t, "Invalid number of sizes", "explore is 0 or more: 0 tries no size of which nothing was measured.")
	}
	if given(t, "batch") {
		oneOf(l, t, "batch", s.Batch, job.Batches)
	}
	if given(t, "on_check_error") {
		oneOf(l, t, "on_check_error", s.OnCheckError, job.OnErrors)
	}
	if b := t.block("stabilization_window"); s.Stabilization != nil && b != nil {
		l.checkSpan(s, b, "up", s.Stabilization.Up)
		l.checkSpan(s, b, "down", s.Stabilization.Down)
	}
	if b := t.block("fallback"); s.Fallback != nil && b != nil {
		if b.sound("failures") && s.Fallback.Failures < 1 {
			l.complain(b.at("failures"), b, "Invalid number of failures", "A source has to fail at least once before the fallback counts.")
		}
		if b.sound("replicas") && t.sound("min", "max") && (s.Fallback.Replicas < s.Min || s.Fallback.Replicas > s.Max) {
			l.complain(b.at("replicas"), b, "Replicas out of bounds", "The fallback of %d slots is not between min = %d and max = %d.", s.Fallback.Replicas, s.Min, s.Max)
		}
	}
	if window := s.Windows().Down.Std(); s.Stabilization == nil && given(t, "evaluation_interval") && len(s.Policies) > 0 && window/s.Interval() >= job.MaxEvaluations {
		l.complain(t.at("evaluation_interval"), t, "Interval too short", "The stabilization window of %s has more than %d evaluations of one every %s. Raise the interval, or set a shorter stabilization_window.",
			job.Duration(window), job.MaxEvaluations, s.EvaluationInterval)
	}
}

// checkSpan checks that values of so long ago are kept.
func (l *loader) checkSpan(s *job.Scaling, t *tree, name string, span job.Duration) {
	if t.sound(name) && span.Std()/s.Interval() >= job.MaxEvaluations {
		l.complain(t.at(name), t, "Window too long", "%s has more than %d evaluations of one every %s. Shorten it, or raise evaluation_interval.", span, job.MaxEvaluations, job.Duration(s.Interval()))
	}
}

// oneOf reports a text that is none of those possible.
func oneOf[T ~string](l *loader, t *tree, name string, is T, possible []T) bool {
	if slices.Contains(possible, is) {
		return true
	}
	known := texts(possible)
	l.complain(t.at(name), t, "Invalid "+name, "%q is not possible here; there are %s.%s", string(is), list(known), suggest(string(is), known))
	return false
}

// texts are values as they are written.
func texts[T ~string](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

// sourceArguments are those of each kind of source, the required ones first, up to "|".
var sourceArguments = map[job.SourceKind][]string{
	job.TrainingSource:   {"metric", "|", "ranks", "rank", "window"},
	job.PrometheusSource: {"address", "query", "|", "offset", "headers", "timeout", "window"},
	job.HTTPSource:       {"address", "|", "field", "headers", "timeout", "window"},
	job.ExecSource:       {"command", "|", "timeout", "window"},
	job.CapacitySource:   {"metric", "|", "label", "window"},
	job.QueueSource:      {"metric", "|", "window"},
}

// strategyArguments are those of each kind of strategy, in the same form.
var strategyArguments = map[job.StrategyKind][]string{
	job.TargetValue: {"target", "|", "rising"},
	job.Threshold:   {"|", "above", "below", "delta", "percent", "within"},
	job.FixedValue:  {"replicas", "|"},
	job.Efficiency:  {"|", "min_efficiency", "payback"},
	job.PassThrough: {"|"},
}

// checkArguments checks that a block has what its kind needs, and nothing else.
func (l *loader) checkArguments(t *tree, what, kind string, arguments []string) {
	at := slices.Index(arguments, "|")
	for _, name := range slices.Sorted(maps.Keys(t.attrs)) {
		if !slices.Contains(arguments, name) {
			known := slices.DeleteFunc(slices.Clone(arguments), func(a string) bool { return a == "|" })
			detail := "it has no arguments"
			if len(known) > 0 {
				detail = "its arguments are " + list(known)
			}
			l.complain(t.at(name), t, "Argument of another "+what, "The %s %q has no %s: %s.", what, kind, name, detail)
		}
	}
	for _, name := range arguments[:at] {
		if t.attrs[name] == nil {
			l.complain(&t.def, t, "Missing argument", "The %s %q needs %s.", what, kind, name)
		}
	}
}

// checkPolicy checks a policy; bounded reports whether the bounds of its role are known.
func (l *loader) checkPolicy(s *job.Scaling, p *job.Policy, t *tree, bounded bool) {
	if p.Name == "deadline" {
		l.complain(&t.labelRanges[0], t, "Reserved name", "What the job's deadline needs is shown under the name \"deadline\": choose another one.")
	}
	if p.Strategy == nil || t.block("strategy") == nil {
		if t.sound("strategy") {
			l.complain(&t.def, t, "Missing strategy", "A policy needs a strategy, which says what size follows: strategy \"target-value\" { target = … }.")
		}
		return
	}
	if b := t.block("source"); p.Source != nil && b != nil {
		l.checkSource(p.Source, b)
	}
	if b := t.block("schedule"); p.Schedule != nil && b != nil {
		l.checkSchedule(p.Schedule, b)
	}
	l.checkStrategy(p, t, t.block("strategy"))
	if st, b := p.Strategy, t.block("strategy"); bounded && b.attrs["replicas"] != nil && b.sound("replicas") && (st.Replicas < s.Min || st.Replicas > s.Max) && s.Min <= s.Max {
		l.complain(b.at("replicas"), b, "Replicas out of bounds", "%d slots are not between min = %d and max = %d.", st.Replicas, s.Min, s.Max)
	}
}

func (l *loader) checkLabelOf(t *tree, what, label string, possible []string) bool {
	if slices.Contains(possible, label) {
		return true
	}
	l.complain(&t.labelRanges[0], t, "Unknown "+what, "There is no %s %q; there are %s.%s", what, label, list(possible), suggest(label, possible))
	return false
}

func (l *loader) checkStrategy(p *job.Policy, policy, t *tree) {
	st := p.Strategy
	if !l.checkLabelOf(t, "strategy", string(st.Kind), texts(job.StrategyKinds)) {
		return
	}
	l.checkArguments(t, "strategy", string(st.Kind), strategyArguments[st.Kind])
	given := func(name string) bool { return t.attrs[name] != nil && t.sound(name) }
	sourced := st.Kind == job.TargetValue || st.Kind == job.Threshold || st.Kind == job.PassThrough
	switch {
	case sourced && p.Source == nil && policy.sound("source"):
		l.complain(&t.def, t, "Missing source", "The strategy %q judges a value: add a source to the policy, as source \"training\" { metric = \"tokens_per_second\" }.", st.Kind)
	case st.Kind == job.Efficiency && p.Source != nil:
		l.complain(&policy.block("source").def, policy, "Source without effect", "The strategy \"efficiency\" judges what was measured at each size, not a source. Remove it.")
	}
	if given("target") && *st.Target <= 0 {
		l.complain(t.at("target"), t, "Invalid target", "A target is above 0.")
	}
	if st.Kind == job.Threshold {
		switch {
		case t.attrs["above"] == nil && t.attrs["below"] == nil:
			l.complain(&t.def, t, "Missing threshold", "Set above or below, or both.")
		case (t.attrs["delta"] == nil) == (t.attrs["percent"] == nil):
			l.complain(&t.def, t, "Missing change", "Set one of delta and percent: by how much the size changes once the threshold is crossed.")
		}
		if given("delta") && st.Delta == 0 || given("percent") && st.Percent == 0 {
			l.complain(&t.def, t, "No change", "A change of 0 has no effect.")
		}
		if given("above") && given("below") && *st.Above >= *st.Below {
			l.complain(t.at("above"), t, "Threshold never crossed", "No value is above %g and below %g. For values outside of a range, write two policies.", *st.Above, *st.Below)
		}
		if given("within") && (st.Within < 1 || st.Within > job.MaxEvaluations) {
			l.complain(t.at("within"), t, "Invalid number of values", "within is from 1 to %d.", job.MaxEvaluations)
		}
	}
	if given("min_efficiency") && (st.MinEfficiency <= 0 || st.MinEfficiency > 1) {
		l.complain(t.at("min_efficiency"), t, "Invalid efficiency", "It is a part of perfect scaling: above 0 and at most 1, as 0.7.")
	}
	if given("payback") && st.Payback < job.Duration(time.Second) {
		l.complain(t.at("payback"), t, "Invalid payback", "No restart pays within %s.", st.Payback)
	}
}

func (l *loader) checkSource(s *job.MetricSource, t *tree) {
	if !l.checkLabelOf(t, "source", string(s.Kind), texts(job.SourceKinds)) {
		return
	}
	l.checkArguments(t, "source", string(s.Kind), sourceArguments[s.Kind])
	given := func(name string) bool { return t.attrs[name] != nil && t.sound(name) }
	if metrics := job.Metrics[s.Kind]; given("metric") && metrics != nil {
		oneOf(l, t, "metric", s.Metric, metrics)
	}
	if given("ranks") {
		oneOf(l, t, "ranks", s.Ranks, job.RankAggregates)
	}
	switch {
	case given("rank") && t.attrs["ranks"] != nil:
		l.complain(t.at("rank"), t, "Both rank and ranks", "The value is either of one rank or of all. Remove one of the two.")
	case given("rank") && *s.Rank < 0:
		l.complain(t.at("rank"), t, "Invalid rank", "Ranks are 0 and above.")
	}
	if given("address") {
		if u, err := url.Parse(s.Address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			l.complain(t.at("address"), t, "Invalid address", "%q is not the URL of an HTTP server, as \"http://prometheus:9090\".", s.Address)
		}
	}
	if given("query") && strings.TrimSpace(s.Query) == "" {
		l.complain(t.at("query"), t, "Empty query", "Write a query whose result is one number.")
	}
	if given("command") && (len(s.Command) == 0 || s.Command[0] == "") {
		l.complain(t.at("command"), t, "Missing program", "The first element is the program to run.")
	}
	if given("timeout") && s.Timeout < job.Duration(100*time.Millisecond) {
		l.complain(t.at("timeout"), t, "Timeout too short", "A source has at least 100ms.")
	}
	price := s.Kind == job.CapacitySource && s.Metric == job.PriceMetric
	if label, ok := strings.CutPrefix(s.Label, "node.labels."); given("label") && (!ok || label == "") {
		l.complain(t.at("label"), t, "Invalid label", "Write it as \"node.labels.NAME\".")
	}
	if price && t.attrs["label"] == nil {
		l.complain(&t.def, t, "Missing argument", "A price is a label of a node: set label, as \"node.labels.price\".")
	}
}

func (l *loader) checkSchedule(s *job.Schedule, t *tree) {
	if !t.sound("start", "duration", "timezone") {
		return
	}
	if s.Duration < job.Duration(time.Minute) {
		l.complain(t.at("duration"), t, "Schedule too short", "A schedule lasts at least a minute, not %s.", s.Duration)
	}
	calendar, err := scaling.ReadSchedule(s)
	if err != nil {
		at := t.at("start")
		if strings.Contains(err.Error(), "time zone") && t.attrs["timezone"] != nil {
			at = t.at("timezone")
		}
		l.complain(at, t, "Invalid schedule", "%s.", strings.ToUpper(err.Error()[:1])+err.Error()[1:])
		return
	}
	if !calendar.Fires(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)) { // a leap year
		l.complain(t.at("start"), t, "Schedule never begins", "There is no day with the date of %q.", s.Start)
	}
}

// checkEnds checks when a job has to be over, and what ends it.
func (l *loader) checkEnds(j *job.Job, t *tree) {
	if t.attrs["deadline"] != nil && t.sound("deadline") {
		if _, err := time.Parse(time.RFC3339, j.Deadline); err != nil {
			l.complain(t.at("deadline"), t, "Invalid deadline", "%q is not a date and time with its zone, as \"2026-12-01T08:00:00Z\".", j.Deadline)
		}
	}
	b := t.block("stop_when")
	if j.StopWhen == nil || b == nil {
		return
	}
	s, given := j.StopWhen, func(name string) bool { return b.attrs[name] != nil && b.sound(name) }
	if given("metric") {
		oneOf(l, b, "metric", s.Metric, job.Metrics[job.TrainingSource])
	}
	if given("ranks") {
		oneOf(l, b, "ranks", s.Ranks, job.RankAggregates)
	}
	if b.attrs["above"] == nil && b.attrs["below"] == nil {
		l.complain(&b.def, b, "Missing bound", "Set above or below: when the job has trained enough.")
	}
	if given("for") {
		if _, _, err := s.Lasts(); err != nil {
			l.complain(b.at("for"), b, "Invalid time", "%s.", strings.ToUpper(err.Error()[:1])+err.Error()[1:])
		}
	}
	if given("as") {
		oneOf(l, b, "as", s.As, []string{job.StopSucceeded, job.StopFailed})
	}
}
