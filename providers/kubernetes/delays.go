package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// delays are the writes that are delayed: they have had no answer for a while, or the API server failed at them, or has
// too much to do, and they are retried. An admission webhook may take half a minute for each answer, and some attempts are
// made before a failure is told: a person is told before. It is a plain value: the time is an argument.
type delays map[class]*delay

// delay is what is known of the writes of a class.
type delay struct {
	what   string
	writes int         // under way, waiting for their turn or not
	asked  []time.Time // of those that wait for an answer: since when, in order
	// Of the last answer: it was a failure, or the API server has too much to do for any since then, and what it said. All are
	// zero once it answered one otherwise.
	failing bool
	busy    time.Time
	last    time.Time
	said    string
	// before was to be told, until then: of many writes one after the other is slow, and that is one delay.
	before string
	until  time.Time
}

// slowAfter is when a write counts as slow that has no answer, and when slow ones count as over, and failed ones as given up
// that are not retried. On an API server with more to do than it can, that of a benchmark on a machine that others used
// too, none took longer than three seconds.
const slowAfter = 5 * time.Second

// writing is one write, from when it waits for its turn to its end.
type writing struct {
	of    *delay
	asked time.Time // zero while it waits for no answer
}

func (d delays) begin(c class) *writing {
	if d[c] == nil {
		d[c] = &delay{what: c.what}
	}
	d[c].writes++
	return &writing{of: d[c]}
}

// end takes a write out that has ended. With the last one goes what was known of the class, unless it is retried.
func (d delays) end(now time.Time, c class, w *writing) (gone bool) {
	w.take(now)
	w.of.writes--
	return d.drop(now, c)
}

// prune drops the classes of which what failed was not retried.
func (d delays) prune(now time.Time) (gone []class) {
	for c := range d {
		if d.drop(now, c) {
			gone = append(gone, c)
		}
	}
	return gone
}

func (d delays) drop(now time.Time, c class) (gone bool) {
	of := d[c]
	gone = of.writes == 0 && (of.last.IsZero() || now.Sub(of.last) >= slowAfter)
	if gone {
		delete(d, c)
	}
	return gone
}

// said is what the API server said last of a class that it fails at, or has no time for; "" if it does neither.
func (d delays) said(c class) string {
	if d[c] == nil {
		return ""
	}
	return d[c].said
}

func (w *writing) ask(now time.Time) {
	w.asked = now
	w.of.asked = append(w.of.asked, now)
}

// answered records what the API server made of it.
func (w *writing) answered(now time.Time, a answer) {
	w.take(now)
	of := w.of
	if !a.verdict.passes() {
		of.heal()
		return
	}
	of.last, of.said = now, saying(a.err)
	switch {
	case a.verdict != busy:
		of.failing = true
	case of.busy.IsZero():
		of.busy = now
	}
}

// told is when those that would only hear the same again hear it: it is a failure then, and no delay.
func (d delays) told(c class) {
	if of := d[c]; of != nil {
		of.heal()
		of.before = ""
	}
}

// heal is after an answer that is no trouble.
func (of *delay) heal() { of.failing, of.busy, of.last, of.said = false, time.Time{}, time.Time{}, "" }

// take is before something changes: the write waits for no answer, and what was to be told is kept.
func (w *writing) take(now time.Time) {
	if text := w.of.trouble(now); text != "" {
		w.of.before, w.of.until = text, now.Add(slowAfter)
	}
	if i := slices.Index(w.of.asked, w.asked); i >= 0 {
		w.of.asked = slices.Delete(w.of.asked, i, i+1)
	}
	w.asked = time.Time{}
}

// trouble is what is delayed now, in words that stay the same as long as it is so; "" if all does.
func (of *delay) trouble(now time.Time) string {
	lasts := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= slowAfter }
	switch {
	case of.failing || lasts(of.busy):
		return fmt.Sprintf("%s: the API server failed; retrying: %s", of.what, of.said)
	case len(of.asked) > 0 && lasts(of.asked[0]):
		return fmt.Sprintf("%s: the API server has not answered for %s; an admission webhook may be slow", of.what, slowAfter)
	}
	return ""
}

// byJob says which writes of which job are delayed, by UID; nil if all does.
func (d delays) byJob(now time.Time) map[string]string {
	var all map[string]string
	for c, of := range d {
		text := of.trouble(now)
		if text == "" && now.Before(of.until) {
			text = of.before
		}
		if text == "" {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		if before, more := all[c.job]; !more || text < before { // one of a job will do, and always the same
			all[c.job] = text
		}
	}
	return all
}

// saying is an error without what differs between two writes that it hits alike: names, URLs, the ports of connections, the
// time of day.
func saying(err error) string {
	var (
		code        syscall.Errno
		certificate x509.CertificateInvalidError
		name        *net.DNSError
		network     net.Error
	)
	const way = "it is unreachable: "
	switch {
	case errors.As(err, new(apierrors.APIStatus)):
		return explain(err).Error()
	case errors.As(err, &code):
		return way + code.Error()
	case errors.As(err, &name):
		return way + "its name cannot be resolved"
	case errors.As(err, &certificate):
		return way + "its certificate is not valid"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return way + "it timed out"
	}
	return way + "the connection broke" // the log has how
}
