package elastic

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/eltrain/eltrain/internal/hang"
)

// hooked is a server whose POST /v1/reconcile requires the token "its-own-token" and is answered by answer.
func hooked(t *testing.T, answer func(context.Context, ReconcileRequest) ReconcileReply) (*Server, func(token, body string) (int, string)) {
	t.Helper()
	s := NewServer(ServerOptions{Reconcile: answer, Webhook: func() (string, error) { return "its-own-token", nil }})
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	client := &http.Client{Transport: newAPIChecker(t, web.URL)}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return s, func(token, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, web.URL+"/v1/reconcile", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
}

func TestReconcileWantsItsOwnTokenAndASmallBody(t *testing.T) {
	var asked []ReconcileRequest
	s, post := hooked(t, func(_ context.Context, r ReconcileRequest) ReconcileReply {
		asked = append(asked, r)
		return ReconcileReply{Status: ReconcilePlanned, Commit: `1a2b3c4 "Add gpt"`, Changes: &ReconcileChanges{Add: 2},
			Withheld: []Withheld{{Job: "job.gpt", Reason: "The files have errors."}}}
	})
	if status, body := post("its-own-token", ""); status != http.StatusServiceUnavailable {
		t.Errorf("before the service is ready: %d %s", status, body)
	}
	s.SetReady()
	s.Set("gpt", desiredOf("gpt", 2, 15*time.Second))
	for _, c := range []struct {
		name, token, body string
		status            int
	}{
		{"no token", "", "", 401},
		{"another token", "its-own-tokem", "", 401},
		{"the job's token", "secret", "", 401},
		{"a longer one", "its-own-token2", "", 401},
		{"no token and a body", "", `{"max_destroy": 1}`, 401},
		{"garbage", "its-own-token", "garbage", 400},
		{"two values", "its-own-token", "{} {}", 400},
		{"a mistyped field", "its-own-token", `{"max_destroi": 5}`, 400},
		{"a negative number", "its-own-token", `{"max_destroy": -1}`, 400},
		{"a number of another kind", "its-own-token", `{"max_destroy": "all"}`, 400},
		{"too large a number", "its-own-token", `{"max_destroy": 9999999999}`, 400},
		{"a large body", "its-own-token", `{"max_destroy": 1` + strings.Repeat(" ", maxBody) + `}`, 413},
	} {
		status, body := post(c.token, c.body)
		if status != c.status || c.name == "a mistyped field" && !strings.Contains(body, "max_destroi") {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
	if len(asked) > 0 {
		t.Fatalf("refused, and passed on: %+v", asked)
	}
	for _, body := range []string{"", "{}", `{"max_destroy": 3}`} {
		status, reply := post("its-own-token", body)
		if status != http.StatusAccepted || !strings.Contains(reply, `"changes":{"add":2,"change":0,"remove":0}`) {
			t.Errorf("%q: %d %s", body, status, reply)
		}
	}
	if len(asked) != 3 || asked[0].MaxDestroy != nil || asked[2].MaxDestroy == nil || *asked[2].MaxDestroy != 3 {
		t.Errorf("passed on %+v", asked)
	}
}

func TestReconcileIsRefusedWithoutATokenToHoldAgainst(t *testing.T) {
	for name, c := range map[string]struct {
		token func() (string, error)
		code  int
	}{
		"none":       {nil, http.StatusUnauthorized},
		"empty":      {func() (string, error) { return "", nil }, http.StatusUnauthorized},
		"unreadable": {func() (string, error) { return "", errors.New("permission denied") }, http.StatusServiceUnavailable}, // not the client's fault
	} {
		s := NewServer(ServerOptions{Webhook: c.token, Reconcile: func(context.Context, ReconcileRequest) ReconcileReply {
			t.Errorf("%s: passed on", name)
			return ReconcileReply{}
		}})
		s.SetReady()
		for _, header := range []string{"", "Bearer ", "Bearer x"} {
			req := httptest.NewRequest(http.MethodPost, "/v1/reconcile", nil)
			req.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, req)
			if w.Code != c.code || strings.Contains(w.Body.String(), "permission") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	}
}

// A master that shuts down does not wait for a plan that will no longer be made.
func TestReconcileEndsWithTheServer(t *testing.T) {
	begun := make(chan struct{})
	s, post := hooked(t, func(ctx context.Context, _ ReconcileRequest) ReconcileReply {
		close(begun)
		<-ctx.Done()
		return ReconcileReply{Status: ReconcileQueued}
	})
	s.SetReady()
	answered := make(chan int, 1)
	go func() {
		status, _ := post("its-own-token", "")
		answered <- status
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), hang.Bound)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case status := <-answered:
		if status != http.StatusAccepted {
			t.Errorf("answered %d", status)
		}
	case <-ctx.Done():
		t.Error("not answered")
	}
}
