package kubernetes

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// gangOf enters a job, and pods that wait until all exist.
func (p *Provider) gangOf(t *testing.T, uid string, pods int) {
	for index := range pods {
		p.index.put(gatedPod(t, uid, index, 1))
	}
	p.prepared(gangOf(uid, pods))
}

// lifted counts the live pods of a job that are no longer gated.
func (p *Provider) lifted(uid string) (n int) {
	for _, one := range p.index.ofJob(uid) {
		if !one.gated {
			n++
		}
	}
	return n
}

// A webhook that takes ten seconds for each pod of a gang delays no other gang.
func TestASlowGangHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parallelism, takes = 4, 10 * time.Second
		slow, quick := uidOf(1), uidOf(2)
		p := answered(t, parallelism, func(r *http.Request) (*http.Response, error) {
			if jobOfPath(r) == slow[:5] {
				return slowly(r, takes, named)
			}
			return named(r)
		})
		if _, err := newGates(Site{p}); err != nil {
			t.Fatal(err)
		}
		p.gangOf(t, slow, 20*parallelism)
		time.Sleep(time.Second)
		p.gangOf(t, quick, 2)
		time.Sleep(takes) // until there is a free turn
		if n := p.lifted(quick); n != 2 {
			t.Errorf("of the quick gang %d of 2 pods are released", n)
		}
		time.Sleep(25 * takes)
		if n := p.lifted(slow); n != 20*parallelism {
			t.Errorf("of the slow gang %d pods are released", n)
		}
	})
}

// Why a gate cannot be removed is reported while others of its gang are still in flight, and no longer once it is removed or
// nothing waits for it.
func TestWhyAGateIsNotLiftedIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 10 * time.Second
		uid := uidOf(1)
		var refuses atomic.Bool
		refuses.Store(true)
		p := answered(t, 4, func(r *http.Request) (*http.Response, error) {
			switch {
			case !refuses.Load():
				return named(r)
			case strings.HasSuffix(r.URL.Path, "worker-0"):
				return refusedAs(http.StatusForbidden, metav1.StatusReasonForbidden, "no gate is lifted today")
			}
			return slowly(r, takes, named)
		})
		g, err := newGates(Site{p})
		if err != nil {
			t.Fatal(err)
		}
		reported := func() bool {
			o := &providers.Observation{Incarnations: job.Incarnations{{{UID: uid, Waiting: heldTogether}}}}
			g.Complete(o)
			return strings.Contains(o.Incarnations[0][0].Waiting, "no gate is lifted today")
		}
		p.gangOf(t, uid, 4)
		time.Sleep(takes / 2)
		if !reported() {
			t.Error("a refusal is not reported")
		}
		refuses.Store(false)
		time.Sleep(time.Minute)
		if n := p.lifted(uid); n != 4 || reported() {
			t.Errorf("%d are released; reported: %t", n, reported())
		}

		refuses.Store(true)
		next := gatedPod(t, uid, 0, 2)
		p.index.put(next)
		time.Sleep(time.Minute)
		if !reported() {
			t.Error("another refusal is not reported")
		}
		k, _, _ := identify(next)
		p.index.deleted(k, next.UID)
		time.Sleep(time.Minute)
		if reported() {
			t.Error("a failure is reported for a pod that is gone")
		}
	})
}

// A transient error delays no gate for long and is not reported unless it persists.
func TestAGateThatCannotBeLiftedForAMomentIsNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		fails    int32
		reported bool
	}{"a moment": {providers.Persists - 1, false}, "it persists": {1000, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				uid := uidOf(1)
				var asked atomic.Int32
				p := answered(t, 4, func(r *http.Request) (*http.Response, error) {
					if asked.Add(1) <= c.fails {
						return refusedAs(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd is away")
					}
					return named(r)
				})
				lifting, err := newGates(Site{p})
				if err != nil {
					t.Fatal(err)
				}
				p.gangOf(t, uid, 1)
				reported := false
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					g := lifting.(*gates)
					g.mu.Lock()
					reported = reported || g.failed[uid] != ""
					g.mu.Unlock()
				}
				if reported != c.reported || (p.lifted(uid) == 1) == c.reported {
					t.Errorf("reported: %t; %d released after %d attempts", reported, p.lifted(uid), asked.Load())
				}
			})
		})
	}
}

// A master that takes over finds a gang whose pods all exist. It releases it once it has prepared its job, even if nothing
// changes anymore, and even if another subscriber waits.
func TestAGangThatWasThereBeforeIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := answered(t, 4, func(r *http.Request) (*http.Response, error) {
			switch {
			case strings.Contains(r.URL.Path, "/pods/"):
				return named(r)
			case r.Method == http.MethodGet:
				return refusedAs(http.StatusNotFound, metav1.StatusReasonNotFound, "not there")
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			return jsonAnswer(http.StatusOK, json.RawMessage(body)) // created as requested
		})
		uid := uidOf(1)
		for index := range 2 {
			p.index.put(gatedPod(t, uid, index, 1))
		}
		p.owned.Go(p.activateLoop)
		time.Sleep(time.Minute) // so that it waits first
		gates, err := newGates(Site{p})
		if err != nil {
			t.Fatal(err)
		}
		p.gang = gates
		time.Sleep(time.Minute)
		if n := p.lifted(uid); n != 0 {
			t.Errorf("%d pods of an unprepared job are released", n)
		}
		if _, err := p.Prepare(t.Context(), gangOf(uid, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := p.lifted(uid); n != 2 {
			t.Errorf("%d of 2 pods are released", n)
		}
	})
}
