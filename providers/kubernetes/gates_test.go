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

// gangOf enters a job, and pods that wait until all are there.
func (p *Provider) gangOf(t *testing.T, uid string, pods int) {
	for index := range pods {
		p.index.put(gatedPod(t, uid, index, 1))
	}
	p.prepared(gangOf(uid, pods))
}

// lifted counts the live pods of a job that wait for it no more.
func (p *Provider) lifted(uid string) (n int) {
	for _, one := range p.index.ofJob(uid) {
		if !one.gated {
			n++
		}
	}
	return n
}

// Pods that a webhook takes ten seconds for each keep no other gang waiting until all of theirs are done.
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
		time.Sleep(takes) // until there is a place for them
		if n := p.lifted(quick); n != 2 {
			t.Errorf("of the quick gang %d of 2 pods are let go", n)
		}
		time.Sleep(25 * takes)
		if n := p.lifted(slow); n != 20*parallelism {
			t.Errorf("of the slow gang %d pods are let go", n)
		}
	})
}

// Why a gate cannot be removed is told while others of its gang are still asked for, and no more once it is removed or nothing
// waits for it.
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
		told := func() bool {
			o := &providers.Observation{Incarnations: []job.Incarnation{{UID: uid, Waiting: heldTogether}}}
			g.Complete(o)
			return strings.Contains(o.Incarnations[0].Waiting, "no gate is lifted today")
		}
		p.gangOf(t, uid, 4)
		time.Sleep(takes / 2)
		if !told() {
			t.Error("one was refused, and it is not told")
		}
		refuses.Store(false)
		time.Sleep(time.Minute)
		if n := p.lifted(uid); n != 4 || told() {
			t.Errorf("%d are let go; told that they are not: %t", n, told())
		}

		refuses.Store(true)
		next := gatedPod(t, uid, 0, 2)
		p.index.put(next)
		time.Sleep(time.Minute)
		if !told() {
			t.Error("another is refused, and it is not told")
		}
		k, _, _ := identify(next)
		p.index.deleted(k, next.UID)
		time.Sleep(time.Minute)
		if told() {
			t.Error("it is told of a pod that is no more")
		}
	})
}

// What may pass by itself keeps no gate long and is not told, unless it persists.
func TestAGateThatCannotBeLiftedForAMomentIsNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		fails int32
		told  bool
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
				told := false
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					g := lifting.(*gates)
					g.mu.Lock()
					told = told || g.failed[uid] != ""
					g.mu.Unlock()
				}
				if told != c.told || (p.lifted(uid) == 1) == c.told {
					t.Errorf("told: %t; %d let go after %d attempts", told, p.lifted(uid), asked.Load())
				}
			})
		})
	}
}

// A master that takes over finds a gang whose pods are all there. It lets it go once it has prepared its job, though nothing
// of it changes anymore, and whoever else waits for that.
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
			return jsonAnswer(http.StatusOK, json.RawMessage(body)) // it is made as it was asked for
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
			t.Errorf("%d are let go of a job that was not prepared", n)
		}
		if _, err := p.Prepare(t.Context(), gangOf(uid, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := p.lifted(uid); n != 2 {
			t.Errorf("%d of 2 pods are let go", n)
		}
	})
}
