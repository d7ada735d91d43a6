package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eltrain/eltrain/job"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }))
}

// server answers every request with a status and a body.
func server(t *testing.T, status int, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return s.URL
}

func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		status      int
		body, field string
		want        float64
		err         string
	}{
		{200, "12.5\n", "", 12.5, ""},
		{200, `{"queue": {"length": 7, "workers": [{"load": "0.5"}]}}`, "queue.length", 7, ""},
		{200, `{"queue": {"length": 7, "workers": [{"load": "0.5"}]}}`, "queue.workers.0.load", 0.5, ""},
		{200, `{"queue": {}}`, "queue.length", 0, `get: queue has no "length"`},
		{200, `{"queue": []}`, "queue.3", 0, `get: queue has no "3"`},
		{200, `{"queue": true}`, "queue", 0, "get: queue is not a number"},
		{200, `<html>`, "queue", 0, "get: the answer is not JSON: invalid character '<' looking for beginning of value"},
		{200, strings.Repeat("x", 100), "", 0, `the answer is not a number: "` + strings.Repeat("x", 40) + `…"`},
		{200, "", "", 0, `the answer is not a number: ""`},
		{503, "12", "", 0, "get: the answer is 503 Service Unavailable"},
	} {
		got, err := Ask(t.Context(), &job.MetricSource{Kind: job.HTTPSource, Address: server(t, c.status, c.body), Field: c.field})
		if text := fmt.Sprint(err); err != nil && text != c.err || err == nil && c.err != "" || got != c.want {
			t.Errorf("%s of %q: %v, %v", c.field, c.body, got, err)
		}
	}
}

// An answer without end is cut off; one that does not come ends with the context. Neither error names the address, which may be secret.
func TestHTTPIsBounded(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	if _, err := Ask(t.Context(), &job.MetricSource{Kind: job.HTTPSource, Address: endless.URL}); err == nil {
		t.Error("an answer without end has no error")
	}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then is it noticed that the client is gone
		<-r.Context().Done()
	}))
	defer silent.Close()
	for _, kind := range []job.SourceKind{job.HTTPSource, job.PrometheusSource} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := Ask(ctx, &job.MetricSource{Kind: kind, Address: silent.URL + "/secret", Query: "up"})
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error is %v", kind, err)
		}
	}
}

// Headers are sent to the address alone: no redirect is followed.
func TestHeadersGoNowhereElse(t *testing.T) {
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) }))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	for _, kind := range []job.SourceKind{job.HTTPSource, job.PrometheusSource} {
		_, err := Ask(t.Context(), &job.MetricSource{Kind: kind, Address: s.URL, Query: "up", Headers: map[string]string{"Authorization": "Bearer x"}})
		if err == nil || len(got) > 0 {
			t.Errorf("%s: %v; the other server got %q", kind, err, got)
		}
	}
}

func TestPrometheus(t *testing.T) {
	result := func(kind, value string) string {
		return `{"status": "success", "data": {"resultType": "` + kind + `", "result": ` + value + `}}`
	}
	for _, c := range []struct {
		status int
		body   string
		want   float64
		err    string
	}{
		{200, result("scalar", `[1, "3.5"]`), 3.5, ""},
		{200, result("vector", `[{"metric": {"a": "b"}, "value": [1, "42"]}]`), 42, ""},
		{200, result("vector", `[]`), 0, "query: the result is empty"},
		{200, result("vector", `[{"metric": {}, "value": [1, "1"]}, {"metric": {"a": "b"}, "value": [1, "2"]}]`), 0,
			"query: the result has 2 series, and one number is needed: aggregate it, as with avg(…)"},
		{200, result("string", `[1, "x"]`), 0, `query: unexpected value type "string"`},
		{400, `{"status": "error", "errorType": "bad_data", "error": "parse error at char 3"}`, 0, "query: parse error at char 3"},
		{500, `oops`, 0, "query: server error: 500"},
	} {
		got, err := Ask(t.Context(), &job.MetricSource{Kind: job.PrometheusSource, Address: server(t, c.status, c.body), Query: "x"})
		if text := fmt.Sprint(err); err != nil && text != c.err || err == nil && c.err != "" || got != c.want {
			t.Errorf("%s: %v, %v", c.body, got, err)
		}
	}
}

func TestExec(t *testing.T) {
	for _, c := range []struct {
		script string
		want   float64
		err    string
	}{
		{"echo ' 1e3 '", 1000, ""},
		{"echo 7; echo a warning >&2", 7, ""},
		{"echo many", 0, `what the command prints is not a number: "many"`},
		{"echo no queue >&2; exit 3", 0, "command: exit status 3: no queue"},
	} {
		got, err := Ask(t.Context(), &job.MetricSource{Kind: job.ExecSource, Command: []string{"sh", "-c", c.script}})
		if text := fmt.Sprint(err); err != nil && text != c.err || err == nil && c.err != "" || got != c.want {
			t.Errorf("%s: %v, %v", c.script, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Ask(ctx, &job.MetricSource{Kind: job.ExecSource, Command: []string{"sh", "-c", "sleep 1000 & wait"}})
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a command that hangs ends with %v", err)
	}
	_, err := Ask(t.Context(), &job.MetricSource{Kind: job.ExecSource, Command: []string{"sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 1"}})
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("a huge output: %v", err)
	}
}
