package notify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/internal/command"
	"github.com/eltrain/eltrain/internal/hang"
	"github.com/eltrain/eltrain/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func body() Body {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seal := "(sensitive value " + strings.Repeat("0a", 16) + ")"
	return BodyOf(job.Message{
		ID: "oncall/u1/failed/5", Notify: "oncall", Event: job.NotifyFailed, Job: "gpt", UID: "u1", Address: "job.gpt", Since: at, Time: at.Add(time.Minute),
		Reason: job.Because("exit_code", "code", "7", "message", seal),
	}, "{job} {event} since {since}: {message} ({code})", "exit code 7: "+seal)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The names are those that receivers rely on. A seal does not leave eltrain.
func TestBody(t *testing.T) {
	text, err := json.MarshalIndent(body(), "", " ")
	must(t, err)
	want := `{
 "format_version": "1.0",
 "id": "oncall/u1/failed/5",
 "notify": "oncall",
 "event": "failed",
 "job": "job.gpt",
 "uid": "u1",
 "address": "job.gpt",
 "since": "2026-01-02T03:04:05Z",
 "time": "2026-01-02T03:05:05Z",
 "message": "exit code 7: (sensitive value)",
 "reason_code": {
  "code": "exit_code",
  "args": {
   "code": "7",
   "message": "(sensitive value)"
  }
 },
 "text": "job.gpt failed since 2026-01-02T03:04:05Z: exit code 7: (sensitive value) (exit_code)"
}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}

// serve answers requests with do, and returns a hook that posts to it.
func serve(t *testing.T, do http.HandlerFunc) job.Hook {
	t.Helper()
	s := httptest.NewServer(do)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		client.CloseIdleConnections()
	})
	return job.Hook{URL: s.URL + "/secret-path", Headers: map[string]string{"Authorization": "Bearer secret-token"}}
}

func TestPost(t *testing.T) {
	var got Body
	var headers http.Header
	h := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		headers = r.Header
		text, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Errorf("posted %q", text)
		}
	})
	must(t, Deliver(t.Context(), h, body()))
	if diff := cmp.Diff(body(), got); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"Authorization": "Bearer secret-token", "Content-Type": "application/json", "Idempotency-Key": body().ID} {
		if headers.Get(name) != want {
			t.Errorf("the header %s is %q", name, headers.Get(name))
		}
	}
}

// A hook that fails twice succeeds when it is asked a third time: nothing is kept from the attempts before.
func TestPostAfterFailures(t *testing.T) {
	asked := 0
	h := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked <= 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for range 2 {
		if err := Deliver(t.Context(), h, body()); err == nil || !strings.Contains(err.Error(), "503") {
			t.Errorf("the error is %v", err)
		}
	}
	must(t, Deliver(t.Context(), h, body()))
}

// No error has the URL or a header in it.
func TestErrorsHaveNoSecrets(t *testing.T) {
	hangs := make(chan struct{})
	for name, h := range map[string]job.Hook{
		"refused": serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }),
		"redirected": serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}),
		"hangs": serve(t, func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // so that the server notices that the client has gone
			select {
			case <-hangs:
			case <-r.Context().Done():
			}
		}),
		"closed":  {URL: "http://127.0.0.1:1/secret-path"},
		"invalid": {URL: "http://secret-path:port/"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := Deliver(ctx, h, body())
		cancel()
		switch {
		case err == nil:
			t.Errorf("%s: no error", name)
		case strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the error is %v", name, err)
		case name == "hangs" && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("it hangs, and the error is %v", err)
		}
	}
	close(hangs)
}

// An answer without end is not read to its end.
func TestAnAnswerWithoutEndIsNotRead(t *testing.T) {
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	})
	must(t, Deliver(t.Context(), h, body()))
}

func sh(script string) job.Hook { return job.Hook{Command: []string{"sh", "-c", script}} }

func TestCommand(t *testing.T) {
	t.Setenv("ELTRAIN_VAR_token", "secret")
	path := filepath.Join(t.TempDir(), "got")
	h := sh(`cat > "$0"; test -z "$ELTRAIN_VAR_token"`)
	h.Command = append(h.Command, path)
	must(t, Deliver(t.Context(), h, body()))
	text, err := os.ReadFile(path)
	must(t, err)
	var got Body
	must(t, json.Unmarshal(text, &got))
	if diff := cmp.Diff(body(), got); diff != "" {
		t.Error(diff)
	}
	must(t, Deliver(t.Context(), sh("exec true"), body())) // it need not read anything
}

func TestACommandThatFailsSaysWhy(t *testing.T) {
	err := Deliver(t.Context(), sh("echo no pager >&2; exit 3"), body())
	if err == nil || err.Error() != "command: exit status 3: no pager" {
		t.Errorf("the error is %v", err)
	}
	if err := Deliver(t.Context(), job.Hook{Command: []string{"./not-there"}}, body()); err == nil {
		t.Error("a command that does not exist has no error")
	}
}

// A huge output fills no memory, and an error quotes only its end.
func TestAHugeOutputIsDropped(t *testing.T) {
	must(t, Deliver(t.Context(), sh("head -c 20000000 /dev/zero"), body()))
	err := Deliver(t.Context(), sh("head -c 20000000 /dev/zero | tr '\\0' x; echo the end; exit 1"), body())
	if err == nil || len(err.Error()) > 2*command.MostOutput || !strings.HasSuffix(err.Error(), "the end") {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// A command that hangs is killed with all that it has started.
func TestACommandThatHangsIsKilled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pid := filepath.Join(t.TempDir(), "pid")
	h := sh(`sleep 1000 & echo $! > "$0.new"; mv "$0.new" "$0"; wait`)
	h.Command = append(h.Command, pid)
	ended := make(chan error, 1)
	go func() { ended <- Deliver(ctx, h, body()) }()
	var text []byte
	eventually(t, "it has started", func() bool {
		var err error
		text, err = os.ReadFile(pid)
		return err == nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	stat := "/proc/" + strings.TrimSpace(string(text)) + "/stat"
	eventually(t, "what it started is killed", func() bool {
		state, err := os.ReadFile(stat)
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang.Bound); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
