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

// delays are the classes whose writes are delayed: unanswered for a while, or failing, or refused by an overloaded API server,
// and retried. An admission webhook may take half a minute for each answer, and some attempts precede a reported failure:
// people are notified of the delay earlier. It is a plain value: the time is an argument.
type delays map[class]*delay

// delay is what is known of the writes of a class.
type delay struct {
	what   string
	writes int         // in flight or waiting for their turn
	asked  []time.Time // when each write that waits for an answer was sent, in order
	// The last answer: whether it was a failure, since when the API server is overloaded, and its text. All are zero after an
	// answer of neither kind.
	failing bool
	busy    time.Time
	last    time.Time
	said    string
	// before was the text to report, and still is until then: many slow writes one after the other are one delay.
	before string
	until  time.Time
}

// slowAfter is when an unanswered write counts as slow, when a former delay is no longer reported, and when a failed write that
// is not retried counts as given up. In a benchmark against an overloaded API server no write took longer than three seconds.
const slowAfter = 5 * time.Second

// writing is one write, from waiting for its turn to its end.
type writing struct {
	of    *delay
	asked time.Time // zero unless it waits for an answer
}

func (d delays) begin(c class) *writing {
	if d[c] == nil {
		d[c] = &delay{what: c.what}
	}
	d[c].writes++
	return &writing{of: d[c]}
}

// end removes a write that has ended. After the last one its class is dropped too, unless a retry is expected.
func (d delays) end(now time.Time, c class, w *writing) (gone bool) {
	w.stopWaiting(now)
	w.of.writes--
	return d.drop(now, c)
}

// prune drops the classes whose failed writes were not retried.
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

// said is the text of the last answer for a class that fails or meets an overloaded API server; else "".
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

// answered records the answer to a write.
func (w *writing) answered(now time.Time, a answer) {
	w.stopWaiting(now)
	of := w.of
	if !a.verdict.passes() {
		of.clear()
		return
	}
	of.last, of.said = now, commonText(a.err)
	switch {
	case a.verdict != busy:
		of.failing = true
	case of.busy.IsZero():
		of.busy = now
	}
}

// clear resets a class whose waiting writes fail at once: that is a failure, and no delay.
func (d delays) clear(c class) {
	if of := d[c]; of != nil {
		of.clear()
		of.before = ""
	}
}

// clear resets the trouble after a good answer.
func (of *delay) clear() { of.failing, of.busy, of.last, of.said = false, time.Time{}, time.Time{}, "" }

// stopWaiting ends a write's wait for an answer. It must come before other changes, as it keeps the text reported so far.
func (w *writing) stopWaiting(now time.Time) {
	if text := w.of.trouble(now); text != "" {
		w.of.before, w.of.until = text, now.Add(slowAfter)
	}
	if i := slices.Index(w.of.asked, w.asked); i >= 0 {
		w.of.asked = slices.Delete(w.of.asked, i, i+1)
	}
	w.asked = time.Time{}
}

// trouble describes the current delay, in words that stay the same while it lasts; "" if there is none.
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

// byJob describes the delayed writes of each job, by UID; nil if there are none.
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
		if before, more := all[c.job]; !more || text < before { // one for each job suffices, and always the same
			all[c.job] = text
		}
	}
	return all
}

// commonText is an error's text without what differs between similar writes: names, URLs, ports, the time of day.
func commonText(err error) string {
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
	return way + "the connection broke" // the log has the details
}
