package kubernetes

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/state"
)

func TestSilenceCountsAGapForSoMuch(t *testing.T) {
	const most = 5 * time.Second
	lease := func(uid, version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}
	}
	var w state.Silence[renewal]
	now := time.Unix(1000, 0)
	for i, look := range []struct {
		after time.Duration
		seen  *coordinationv1.Lease
		want  time.Duration
	}{
		{0, lease("a", "1"), 0},
		{time.Second, lease("a", "1"), time.Second},
		{4 * time.Second, lease("a", "1"), 5 * time.Second}, // the API server was slow to answer
		{time.Hour, lease("a", "1"), 10 * time.Second},      // suspended for an hour, possibly together with the holder
		{time.Second, lease("a", "2"), 0},                   // renewed
		{time.Second, lease("a", "2"), time.Second},
		{time.Second, lease("b", "2"), 0}, // recreated
	} {
		now = now.Add(look.after)
		if got := w.Observe(renewalOf(look.seen), now, most); got != look.want {
			t.Fatalf("observation %d: silent for %v, want %v", i, got, look.want)
		}
	}
}

// A permanent refusal is a missing permission. One followed by silence is reported as text only.
func TestARefusalThatDidNotStandIsNoMissingRight(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New(`User "ada" cannot get resource "secrets"`))
	failed := apierrors.NewInternalError(errors.New("etcd is away"))
	for name, c := range map[string]struct {
		answers []error // then silence
		missing bool
		says    string
	}{
		"once, then silence":      {[]error{refused}, false, `User "ada" cannot get resource "secrets"`},
		"a failure, then silence": {[]error{refused, failed}, false, "etcd is away"},
		"for long":                {make([]error, 100), true, `User "ada" cannot get resource "secrets"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := bounded(t.Context())
				defer cancel()
				asked := 0
				err := (&Store{namespace: "ml"}).call(ctx, "get", "secrets", "s", func(ctx context.Context) error {
					if asked++; asked <= len(c.answers) {
						if err := c.answers[asked-1]; err != nil {
							return err
						}
						return refused
					}
					<-ctx.Done()
					return &timeoutError{}
				})
				if errors.As(err, new(*ForbiddenError)) != c.missing || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error is %v", err)
				}
				if !c.missing && !strings.Contains(err.Error(), "the API server did not answer within "+patience.String()) {
					t.Errorf("the timeout is missing: %v", err)
				}
			})
		})
	}
}

// An API server that is killed in the middle of an answer has not answered.
func TestAnAnswerThatBreaksOffIsNoAnswer(t *testing.T) {
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if asked.Add(1) == 1 {
					io.WriteString(w, `{"kind": "Secret", `)
					http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
				if r.Proto != proto {
					t.Errorf("requested by %s", r.Proto)
				}
				w.WriteHeader(http.StatusNotFound)
				json.NewEncoder(w).Encode(apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "s").ErrStatus)
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			s := &Store{namespace: "ml", name: "training"}
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			if err := s.connect(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read(t.Context()); err != nil || asked.Load() != 2 {
				t.Errorf("asked %d times: %v", asked.Load(), err)
			}
		})
	}
}

// timeoutError is the error of a connection that hangs.
type timeoutError struct{}

func (*timeoutError) Error() string   { return "i/o timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }
