// Package sources asks the sources of scaling policies that are outside of eltrain for a value: Prometheus, HTTP servers and commands.
// It decides nothing and retries nothing. A source may hang, fail or answer without end: ctx and bounds of size limit each question.
package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/eltrain/eltrain/internal/command"
	"github.com/eltrain/eltrain/job"
)

// mostAnswer bounds an answer, in bytes.
const mostAnswer = 1 << 20

// Ask returns a source's value. Errors have neither the address nor headers in them, which may be secret.
func Ask(ctx context.Context, s *job.MetricSource) (float64, error) {
	switch s.Kind {
	case job.PrometheusSource:
		return query(ctx, s, time.Now())
	case job.HTTPSource:
		return get(ctx, s)
	case job.ExecSource:
		return run(ctx, s)
	}
	return 0, fmt.Errorf("the source %q is not asked from here", s.Kind)
}

// client follows no redirect: it would lead, with the headers, where the files do not say.
func client(s *job.MetricSource) *http.Client {
	return &http.Client{Transport: bounded{s.Headers}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// bounded sends the source's headers, and cuts long answers off.
type bounded struct{ headers map[string]string }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range b.headers {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, mostAnswer), resp.Body}
	return resp, nil
}

// plain returns an error without the URL.
func plain(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

// query is the value of an instant query: a scalar, or a vector of one element.
func query(ctx context.Context, s *job.MetricSource, now time.Time) (float64, error) {
	to, err := api.NewClient(api.Config{Address: s.Address, Client: client(s)})
	if err != nil {
		return 0, plain(err)
	}
	value, _, _, err := prometheus.NewAPI(to).Query(ctx, s.Query, now.Add(-s.Offset.Std()))
	switch wrong := (*prometheus.Error)(nil); {
	case errors.As(err, &wrong):
		return 0, fmt.Errorf("query: %s", strings.TrimSpace(wrong.Msg))
	case err != nil:
		return 0, fmt.Errorf("query: %w", plain(err))
	}
	switch value := value.(type) {
	case *model.Scalar:
		return float64(value.Value), nil
	case model.Vector:
		switch len(value) {
		case 0:
			return 0, errors.New("query: the result is empty")
		case 1:
			return float64(value[0].Value), nil
		}
		return 0, fmt.Errorf("query: the result has %d series, and one number is needed: aggregate it, as with avg(…)", len(value))
	}
	return 0, fmt.Errorf("query: the result is a %s, and one number is needed", value.Type())
}

// get is the number that an HTTP server answers with.
func get(ctx context.Context, s *job.MetricSource) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address, nil)
	if err != nil {
		return 0, errors.New("get: the address is invalid")
	}
	resp, err := client(s).Do(req)
	if err != nil {
		return 0, fmt.Errorf("get: %w", plain(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return 0, fmt.Errorf("get: the answer is %s", resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("get: %w", err)
	}
	if s.Field == "" {
		return parse("the answer", string(body))
	}
	return field(body, s.Field)
}

// field is a number in a JSON document, by its path.
func field(body []byte, path string) (float64, error) {
	var at any
	if err := json.Unmarshal(body, &at); err != nil {
		return 0, fmt.Errorf("get: the answer is not JSON: %w", err)
	}
	seen := "the document"
	for name := range strings.SplitSeq(path, ".") {
		var next any
		found := false
		switch in := at.(type) {
		case map[string]any:
			next, found = in[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(in) {
				next, found = in[i], true
			}
		}
		if !found {
			return 0, fmt.Errorf("get: %s has no %q", seen, name)
		}
		at, seen = next, name
	}
	switch v := at.(type) {
	case float64:
		return v, nil
	case string:
		return parse(path, v)
	}
	return 0, fmt.Errorf("get: %s is not a number", path)
}

// run is the number that a command prints.
func run(ctx context.Context, s *job.MetricSource) (float64, error) {
	var out bytes.Buffer
	if err := command.Run(ctx, s.Command, nil, &limited{&out}); err != nil {
		return 0, err
	}
	return parse("what the command prints", out.String())
}

// limited keeps as much of an output as an answer may have.
type limited struct{ *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, mostAnswer-l.Len()))])
	return len(p), nil
}

// parse reads a number, with white space around it.
func parse(what, text string) (float64, error) {
	text = strings.TrimSpace(text)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		const shown = 40
		if len(text) > shown {
			text = strings.ToValidUTF8(text[:shown], "") + "…"
		}
		return 0, fmt.Errorf("%s is not a number: %q", what, text)
	}
	return v, nil
}
