package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// A deletion that this master cannot have caused is somebody else's: it was never requested, or refused. One that may have
// been carried out is its own, whatever is answered later.
func TestWhoseADeletionIs(t *testing.T) {
	lost := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }
	busy := func(*http.Request) (*http.Response, error) {
		return refusedAs(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
	}
	forbidden := func(*http.Request) (*http.Response, error) {
		return refusedAs(http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	}
	webhook := func(*http.Request) (*http.Response, error) {
		return refusedAs(http.StatusInternalServerError, metav1.StatusReasonInternalError, webhookAway.Error())
	}
	silent := func(r *http.Request) (*http.Response, error) { return slowly(r, time.Hour, named) }
	for name, c := range map[string]struct {
		answers []answers // the last is repeated; none: its turn never comes
		own     bool
	}{
		"never asked for":      {nil, false},
		"refused":              {[]answers{forbidden}, false},
		"not let in":           {[]answers{webhook}, false},
		"too many":             {[]answers{busy}, false},
		"no answer":            {[]answers{silent}, true},
		"an answer lost":       {[]answers{lost}, true},
		"lost, then too many":  {[]answers{lost, busy}, true},
		"lost, then refused":   {[]answers{lost, forbidden}, true},
		"too many, then lost":  {[]answers{busy, lost}, true},
		"lost, then no answer": {[]answers{lost, silent}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for what, order := range map[string]func(context.Context, *Provider, *pod) error{
				"one":  func(ctx context.Context, p *Provider, one *pod) error { return p.remove(ctx, one, 30) },
				"many": func(ctx context.Context, p *Provider, one *pod) error { return p.removePods(ctx, one.key.uid) },
			} {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					p := answered(t, 1, func(r *http.Request) (*http.Response, error) {
						asked++
						return c.answers[min(asked, len(c.answers))-1](r)
					})
					o := gatedPod(t, uidOf(1), 0, 1)
					p.index.put(o)
					done := make(chan struct{})
					if c.answers == nil {
						go p.pacer.do(t.Context(), class{"another", "create pods"}, func(context.Context) error { <-done; return nil })
						synctest.Wait()
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute+busyWait/2) // while it waits for its turn
					defer cancel()
					if err := retryTransient(ctx, func() error { return order(ctx, p, p.index.entries[o.UID].pod) }); err == nil {
						t.Errorf("%s: it was carried out", what)
					}
					close(done)
					k, _, _ := identify(o)
					p.index.deleted(k, o.UID)
					if last := p.index.find(k).last; (last.Cause == job.Deletion) == c.own {
						t.Errorf("%s: its cause is %q: %q", what, last.Cause, last.Evidence)
					}
				})
			}
		})
	}
}
