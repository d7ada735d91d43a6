package kubernetes

import (
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
)

// apiOf is an API server that has a namespace, with nothing in it.
type apiOf struct {
	mu    sync.Mutex
	now   namespaceNow
	asked int // reads of the namespace
	wrote int // writes, which are refused
}

type namespaceNow struct {
	uid    types.UID // "" if it does not exist
	away   bool      // the API server does not answer
	secret bool      // this master may not read it
}

func (a *apiOf) set(now namespaceNow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = now
}

func (a *apiOf) counts() (asked, wrote int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked, a.wrote
}

func (a *apiOf) answer(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method != http.MethodGet {
		a.wrote++
		return refusedAs(http.StatusForbidden, metav1.StatusReasonForbidden, "")
	}
	if path.Base(r.URL.Path) != "ml" {
		return refusedAs(http.StatusNotFound, metav1.StatusReasonNotFound, "")
	}
	a.asked++
	switch {
	case a.now.away:
		return nil, errUnreachable
	case a.now.secret:
		return refusedAs(http.StatusForbidden, metav1.StatusReasonForbidden, "")
	case a.now.uid == "":
		return refusedAs(http.StatusNotFound, metav1.StatusReasonNotFound, "")
	}
	return jsonAnswer(http.StatusOK, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml", UID: a.now.uid}})
}

// locating is a provider that locates itself with such a server.
func locating(t *testing.T, a *apiOf) *Provider {
	t.Helper()
	p := answered(t, 1, a.answer)
	p.owned.Go(func() { p.locate(p.ctx) })
	return p
}

// The namespace may change under a master, and so may the permission to read it.
func TestANamespaceIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &apiOf{now: namespaceNow{uid: "a"}}
		p := locating(t, a)
		for _, step := range []struct {
			name          string
			now           namespaceNow
			site          string
			refused       bool
			caveat, woken bool
		}{
			{"it is there", namespaceNow{uid: "a"}, "a", false, false, true},
			{"nothing happens", namespaceNow{uid: "a"}, "a", false, false, false},
			{"the server is away", namespaceNow{away: true}, "a", false, false, false},
			{"it comes back", namespaceNow{uid: "a"}, "a", false, false, false},
			{"the namespace is deleted", namespaceNow{}, "", true, false, true},
			{"the server is away then", namespaceNow{away: true}, "", true, false, false},
			{"it is made anew", namespaceNow{uid: "b"}, "b", false, false, true},
			{"nobody may know", namespaceNow{secret: true}, "", false, true, true},
			{"the server is away as well", namespaceNow{away: true}, "", false, true, false},
			{"one may again", namespaceNow{uid: "b"}, "b", false, false, true},
			{"it is made anew, and nobody missed it", namespaceNow{uid: "c"}, "c", false, false, true},
		} {
			a.set(step.now)
			time.Sleep(2 * locateEach)
			synctest.Wait()
			woken := false
			select {
			case <-p.Changes():
				woken = true
			default:
			}
			var c job.Capabilities
			p.where.addTo(&c, "ml")
			if c.Site != step.site || strings.Contains(c.Refused, `namespace "ml" does not exist`) != step.refused || (len(c.Caveats) > 0) != step.caveat || woken != step.woken {
				t.Errorf("%s: capabilities %+v, woken %v", step.name, c, woken)
			}
			if err := p.where.ready(t.Context()); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		before, _ := a.counts()
		time.Sleep(time.Hour)
		if asked, _ := a.counts(); asked-before > int(time.Hour/locateEach) {
			t.Errorf("%d reads in an hour in which nothing happened", asked-before)
		}
		a.set(namespaceNow{secret: true})
		for before, _ = a.counts(); ; time.Sleep(firstRetry / 4) {
			synctest.Wait()
			if asked, _ := a.counts(); asked > before {
				break
			}
		}
		if p.where.known() == "" {
			t.Error("one refusal is believed: an API server that starts refuses everybody")
		}
	})
}

// A job is planned for the namespace in which it was started. A recreated namespace of the same name gets nothing of it, and
// its identity is read again at once, if it was not before.
func TestNothingIsMadeInANamespaceThatWasMadeAnew(t *testing.T) {
	g := job.Group{UID: testUID, Name: "gpt", Roles: []job.GroupRole{{Role: "worker", Min: 1}}}
	for _, test := range []struct {
		name  string
		begun bool // by this process
		now   namespaceNow
		wrote int
		site  string
		want  string
	}{
		{"as it was", true, namespaceNow{uid: "a"}, 1, "a", "write the anchor"},
		{"made anew", true, namespaceNow{uid: "b"}, 0, "b", `namespace "ml" was deleted and recreated`},
		{"made anew, and not prepared before", false, namespaceNow{uid: "b"}, 0, "b", `namespace "ml" was deleted and recreated`},
		{"deleted", true, namespaceNow{}, 0, "", "look up the namespace"},
		{"not to be known", true, namespaceNow{secret: true}, 1, "a", "write the anchor"},
		{"not to be reached", true, namespaceNow{away: true}, 0, "a", "connection refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &apiOf{now: namespaceNow{uid: "a"}}
				p := locating(t, a)
				synctest.Wait()
				if test.begun {
					p.jobs.put(prepared{group: g, site: p.where.known()})
				}
				a.set(test.now)
				if _, err := p.Prepare(t.Context(), g); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("the error is %v", err)
				}
				synctest.Wait()
				if _, wrote := a.counts(); wrote != test.wrote || p.where.known() != test.site {
					t.Errorf("%d writes, and the namespace is known as %q", wrote, p.where.known())
				}
				if test.begun && test.site == "b" { // an earlier plan may still be carried out
					p.Prepare(t.Context(), g)
					if _, wrote := a.counts(); wrote > 0 {
						t.Error("the job is started in a namespace known to be new")
					}
				}
			})
		})
	}
}
