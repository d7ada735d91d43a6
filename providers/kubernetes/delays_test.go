package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eltrain/eltrain/providers"
)

var ofWorkers = class{"u", "create pods of worker"}

// An unanswered write is reported as delayed, then with the API server's error, and no longer once a write succeeded.
func TestWhatDoesNotComeAboutIsToldBeforeItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int64
		g := newPacer(1, slog.New(slog.DiscardHandler), func() { changes.Add(1) })
		defer g.close()
		failure := apierrors.NewInternalError(errors.New(`failed calling webhook "slow.example"`))
		answers := make(chan error)
		ended := make(chan error, 1)
		go func() {
			ended <- retryTransient(t.Context(), func() error {
				return g.do(t.Context(), ofWorkers, func(context.Context) error { return <-answers })
			})
		}()
		reported := func(want string, times int64) {
			t.Helper()
			synctest.Wait()
			all := g.delayedJobs()
			if want == "" && len(all) > 0 || !strings.Contains(all["u"], want) || changes.Load() != times {
				t.Errorf("after %d changes it says %q, not %q after %d", changes.Load(), all, want, times)
			}
		}
		time.Sleep(slowAfter - time.Millisecond)
		reported("", 0)
		time.Sleep(checkInterval)
		reported("create pods of worker: the API server has not answered for 5s", 1)
		answers <- failure
		time.Sleep(backoffMax)
		reported(`create pods of worker: the API server failed; retrying: Internal error occurred: failed calling webhook "slow.example"`, 2)
		answers <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(checkInterval)
		reported("", 3)
		time.Sleep(time.Minute)
		reported("", 3)
	})
}

// While many writes are slow one after the other the text stays; it goes once none was slow for a while.
func TestADelayOfManyWritesIsOne(t *testing.T) {
	now := time.Unix(0, 0)
	d := delays{}
	reported := func(want bool) {
		t.Helper()
		if text := d.byJob(now)["u"]; (text != "") != want || want && !strings.Contains(text, "has not answered for 5s") {
			t.Errorf("after %s the delay is %q", now.Sub(time.Unix(0, 0)), text)
		}
	}
	after := func(s int) { now = time.Unix(int64(s), 0) }
	next := func() *writing { w := d.begin(ofWorkers); w.ask(now); return w }
	end := func(w *writing) { w.answered(now, answer{}); d.end(now, ofWorkers, w) }
	waits := d.begin(ofWorkers) // for its turn, all the while
	first, second := next(), next()
	after(4)
	third := next()
	reported(false)
	after(6)
	reported(true)
	end(first)
	reported(true) // second still hangs
	after(7)
	end(second)
	reported(true) // third has not waited that long
	after(8)
	fourth := next()
	after(10)
	end(third)
	reported(true)
	after(12)
	reported(true)
	end(fourth)
	after(14)
	reported(true)
	after(15)
	reported(false)
	fifth := next()
	after(20)
	reported(true)
	end(fifth)
	d.end(now, ofWorkers, waits)
	reported(false) // none is left that could be delayed
	if len(d) > 0 {
		t.Errorf("left is %v", d)
	}
}

// Overload of the API server is reported once it lasts, and included in the error of a timeout.
func TestAnAPIServerThatIsTooBusyIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(1, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*slowAfter+busyWait/2) // while it waits
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			for {
				err := g.do(ctx, ofWorkers, func(context.Context) error { return apierrors.NewTooManyRequests("quite busy", 1) })
				if passing, may := errors.AsType[*providers.TransientError](err); !may || !passing.Busy {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(slowAfter / 2)
		if all := g.delayedJobs(); len(all) > 0 {
			t.Errorf("it is reported at once: %q", all)
		}
		time.Sleep(slowAfter)
		if text := g.delayedJobs()["u"]; !strings.Contains(text, "create pods of worker: the API server failed; retrying: quite busy") {
			t.Errorf("the delay is %q", text)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "quite busy") {
			t.Errorf("the final error is %v", err)
		}
	})
}

// If writes succeed while another waits there is no delay, however often the API server reports overload.
func TestBusyNowAndThenIsNoDelay(t *testing.T) {
	now := time.Unix(0, 0)
	d := delays{}
	w := d.begin(ofWorkers)
	for range 5 {
		w.ask(now)
		w.answered(now, judge(tooMany(1)))
		now = now.Add(slowAfter - time.Second)
		other := d.begin(ofWorkers)
		other.ask(now)
		other.answered(now, answer{})
		d.end(now, ofWorkers, other)
		if all := d.byJob(now); len(all) > 0 {
			t.Fatalf("the delay is %q", all)
		}
	}
}

// Two writes that fail for the same reason have the same text, whatever their objects and connections.
func TestADelaysTextStaysTheSame(t *testing.T) {
	through := func(object string, port int, err error) error {
		return &url.Error{Op: "Post", URL: "https://127.0.0.1:6443/api/v1/namespaces/ml/pods/" + object, Err: &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443}, Err: err,
		}}
	}
	for want, c := range map[string][2]error{
		"it is unreachable: connection refused":           {os.NewSyscallError("connect", syscall.ECONNREFUSED), os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"it is unreachable: it timed out":                 {os.ErrDeadlineExceeded, context.DeadlineExceeded},
		"it is unreachable: its name cannot be resolved":  {&net.DNSError{Err: "read udp 10.0.0.1:4001: i/o timeout"}, &net.DNSError{Err: "read udp 10.0.0.1:4002: i/o timeout"}},
		"it is unreachable: its certificate is not valid": {x509.CertificateInvalidError{Reason: x509.Expired, Detail: "at 10:00"}, x509.CertificateInvalidError{Reason: x509.Expired, Detail: "at 10:01"}},
		"it is unreachable: the connection broke":         {errors.New("stream 1 was closed"), errors.New("stream 3 was closed")},
	} {
		if one, other := commonText(through("gpt-worker-0", 40001, c[0])), commonText(through("gpt-worker-1", 40002, c[1])); one != want || other != want {
			t.Errorf("the texts are %q and %q, want %q", one, other, want)
		}
	}
}

// The error of a canceled write includes the previous error of similar writes.
func TestAWriteThatIsGivenUpSaysWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newPacer(1, slog.New(slog.DiscardHandler), func() {})
		defer g.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.do(ctx, ofWorkers, func(ctx context.Context) error {
			return apierrors.NewInternalError(errors.New("no endpoints for the webhook"))
		})
		if passing, may := errors.AsType[*providers.TransientError](err); !may || passing.Busy {
			t.Errorf("the error is %#v", err)
		}
		err = g.do(ctx, ofWorkers, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no endpoints for the webhook") {
			t.Errorf("the error is %v", err)
		}
		time.Sleep(slowAfter + checkInterval)
		if all := g.delayedJobs(); len(all) > 0 {
			t.Errorf("a canceled write is reported: %q", all)
		}
		if len(g.delays) > 0 || g.checking {
			t.Errorf("left is %v; it is looked at: %t", g.delays, g.checking)
		}
	})
}
