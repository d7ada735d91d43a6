package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/plan"
	"github.com/eltrain/eltrain/providers"
)

// testdata/retry.txt: what becomes of what fails.
//
//	new                          nothing was tried yet
//	fail [passing|busy] [takes=5s] [jitter=1] TEXT
//	     an attempt that takes so long and fails; it begins when it may. Passing may pass by itself, busy was turned away
//
// Prints whether it is told, after how long it is tried again, and what was told last.
func TestRetry(t *testing.T) {
	var r retry
	now := time.Unix(0, 0)
	datadriven.RunTest(t, "testdata/retry.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			r = retry{}
			return ""
		case "fail":
			var b strings.Builder
			for line := range strings.Lines(d.Input) {
				b.WriteString(failOnce(t, &r, &now, strings.Fields(line)))
			}
			return b.String()
		}
		d.Fatalf(t, "unknown command")
		return ""
	})
}

func failOnce(t *testing.T, r *retry, now *time.Time, words []string) string {
	var text []string
	var takes time.Duration
	var jitter float64
	var err error
	passing := &providers.TransientError{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "passing", "busy":
			passing.Busy = key == "busy"
			err = passing
		case "takes":
			d, wrong := time.ParseDuration(value)
			must(t, wrong)
			takes = d
		case "jitter":
			jitter = 1
		default:
			text = append(text, word)
		}
	}
	plain := errors.New(strings.Join(text, " "))
	if err != nil {
		passing.Err = plain
		err = fmt.Errorf("launch: %w", passing)
	} else {
		err = plain
	}
	if r.until.After(*now) {
		*now = r.until
	}
	*r = r.begin(*now)
	*now = now.Add(takes)
	next, tell := r.next(*now, err, jitter)
	*r = next
	out := "quiet"
	if tell {
		out = fmt.Sprintf("told, %d in a row", r.failures)
	}
	out += fmt.Sprintf(", again after %s", r.until.Sub(*now))
	if r.err != nil {
		out += ": " + r.err.Error()
	}
	return out + "\n"
}

// outcomes are what the view is told of changes.
type outcomes struct {
	View
	ends []string
}

func (*outcomes) Planned(*plan.Plan)   {}
func (*outcomes) Started(*plan.Change) {}
func (o *outcomes) Finished(c *plan.Change, _ time.Duration, err error) {
	if err != nil {
		o.ends = append(o.ends, c.Slot.Short()+" failed: "+err.Error())
		return
	}
	o.ends = append(o.ends, c.Slot.Short()+" done")
}
func (o *outcomes) Warned(summary, detail string) { o.ends = append(o.ends, summary+": "+detail) }
func (o *outcomes) Recovered(string)              {}
func (o *outcomes) Noticed(job.Notice)            {}

// What may pass by itself is tried again, and told only when it persists: a launch, a stop, and a preparation.
func TestWhatPassesIsNotTold(t *testing.T) {
	down := &providers.TransientError{Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		fails int
		want  []string
	}{
		"passes":   {providers.Persists - 1, []string{"worker[0] done", "worker[1] done"}},
		"persists": {providers.Persists, []string{"worker[0] failed: launch job.a.worker[0], incarnation 1: connection refused", "worker[1] done"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			view := &outcomes{}
			b := newBench(t, func(o *Options) { o.View = view })
			left := c.fails
			b.cluster.launch = func(_ context.Context, l job.Launch) error {
				if l.Slot.Index == 0 && left > 0 {
					left--
					return fmt.Errorf("create its pod: %w", down)
				}
				return nil
			}
			b.turn(t)
			b.turn(t)
			for i := range view.ends {
				view.ends[i] = strings.Replace(view.ends[i], "create its pod: ", "", 1)
			}
			slices.Sort(view.ends)
			slices.Sort(c.want)
			if !slices.Equal(view.ends, c.want) || left > 0 {
				t.Errorf("%s: told of %q, %d failures left", name, view.ends, left)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			view := &outcomes{}
			b := newBench(t, func(o *Options) { o.View = view })
			left := c.fails
			b.cluster.prepare = func(job.Group) error {
				if left > 0 {
					left--
					return fmt.Errorf("make the Secret: %w", down)
				}
				return nil
			}
			b.turn(t)
			told := slices.ContainsFunc(view.ends, func(s string) bool {
				return strings.Contains(s, "Job a cannot be prepared: make the Secret: connection refused")
			})
			if told != (c.fails == providers.Persists) || left > 0 {
				t.Errorf("%s: told of %q, %d failures left", name, view.ends, left)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			view := &outcomes{}
			b := newBench(t, func(o *Options) { o.View = view })
			left := c.fails
			b.cluster.stop = func() error {
				if left > 0 {
					left--
					return down
				}
				return nil
			}
			stop := plan.Change{Action: plan.Delete, Job: "a", UID: "u", Incarnation: 1, Provider: "local", Stop: []int{1}, Slot: job.Address{Job: "a", Role: "worker"}}
			b.flights.look()
			b.flights.follow(t.Context(), b.now, b.flights.take(t.Context(), b.now, &plan.Plan{Changes: []plan.Change{stop}}))
			want := "worker[0] done"
			if c.fails == providers.Persists {
				want = "worker[0] failed: stop job.a.worker[0], incarnation 1: connection refused"
			}
			if len(view.ends) != 1 || view.ends[0] != want || left > 0 {
				t.Errorf("%s: told of %q, %d failures left", name, view.ends, left)
			}
		})
	}
}

// Who waits to try again ends with the run, and what failed is told then.
func TestARetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), quietPauseFirst/2)
		defer cancel()
		down := &providers.TransientError{Err: errors.New("connection refused")}
		begun := time.Now()
		failed, err := insist(ctx, time.Now, retry{}, func() error { return down })
		if !errors.Is(err, down) || failed.failures != 1 || time.Since(begun) != quietPauseFirst/2 {
			t.Errorf("after %s: %+v, %v", time.Since(begun), failed, err)
		}
	})
}
