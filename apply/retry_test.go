package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/eltrain/eltrain/providers"
)

// testdata/retry.txt: how failures are retried.
//
//	new                          nothing was tried yet
//	fail [passing|busy] [takes=5s] [jitter=1] TEXT
//	     an attempt begins as soon as it may, takes this long and fails; passing is transient, busy is rejected as busy
//
// Prints whether the failure is reported, after how long it is retried, and the last reported error.
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
