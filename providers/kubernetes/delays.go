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

// delays are the writes under way that do not come about: they have had no answer for a while, or the API server failed at
// them, or has too much to do, and they are tried again. An admission webhook may take half a minute for each answer, and
// four attempts are made before whoever asked hears of a failure: a person is told before. It is a plain value: the time is
// an argument.
type delays map[class]*delay

// delay is what is known of the writes of a class.
type delay struct {
	what    string
	writes  int         // under way, waiting for their turn or not
	asked   []time.Time // of those that wait for an answer: since when, in order
	failing int         // of those that the API server failed at
	busy    time.Time   // since when it has too much to do for any; zero once it took one
	said    string      // by it, last, of what is tried again
	// before was to be told, until then: of many writes one after the other is slow, and that is one delay.
	before string
	until  time.Time
}

// slowAfter is when a write counts as slow that has no answer, and when slow ones count as over. On an API server with more
// to do than it can, that of a benchmark on a machine that others used too, none took longer than three seconds.
const slowAfter = 5 * time.Second

// writing is one write, from when it waits for its first turn to its end.
type writing struct {
	of     *delay
	asked  time.Time // zero while it waits for no answer
	failed bool
}

func (d delays) begin(c class) *writing {
	if d[c] == nil {
		d[c] = &delay{what: c.what}
	}
	d[c].writes++
	return &writing{of: d[c]}
}

// end takes a write out that was carried out, refused or given up; with the last one goes what was known of the class.
func (d delays) end(now time.Time, c class, w *writing) {
	w.take(now)
	if w.failed {
		w.of.failing--
	}
	if w.of.writes--; w.of.writes == 0 {
		delete(d, c)
	}
}

func (w *writing) ask(now time.Time) {
	w.asked = now
	w.of.asked = append(w.of.asked, now)
}

// answered takes in what the API server made of it.
func (w *writing) answered(now time.Time, a answer) {
	w.take(now)
	switch of := w.of; a.verdict {
	case busy:
		of.said = saying(a.err)
		if of.busy.IsZero() {
			of.busy = now
		}
	case down, failedAll:
		of.said = saying(a.err)
		if !w.failed {
			w.failed = true
			of.failing++
		}
	default:
		of.busy = time.Time{}
	}
}

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

// trouble is what does not come about now, in words that stay the same as long as it is so; "" if all does.
func (of *delay) trouble(now time.Time) string {
	lasts := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) >= slowAfter }
	switch {
	case of.failing > 0 || lasts(of.busy):
		return fmt.Sprintf("%s: the API server could not, and is asked again: %s", of.what, of.said)
	case len(of.asked) > 0 && lasts(of.asked[0]):
		return fmt.Sprintf("%s: the API server has not answered for %s; an admission webhook may be what takes so long", of.what, slowAfter)
	}
	return ""
}

// byJob says what of which job does not come about, by UID; nil if all does.
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
	const way = "it cannot be reached: "
	switch {
	case errors.As(err, new(apierrors.APIStatus)):
		return explain(err).Error()
	case errors.As(err, &code):
		return way + code.Error()
	case errors.As(err, &name):
		return way + "its name cannot be looked up"
	case errors.As(err, &certificate):
		return way + "its certificate is not valid"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return way + "it takes too long"
	}
	return way + "the connection breaks" // the log has how
}
