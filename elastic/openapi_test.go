package elastic

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/eltrain/eltrain/history"
	"github.com/eltrain/eltrain/job"
)

func loadAPI(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// wireTypes are all types on the wire.
var wireTypes = []any{
	RegisterRequest{}, RegisterReply{}, SyncRequest{}, SyncReply{}, Order{}, Place{}, Membership{}, MembershipItem{}, Peers{}, Peer{},
	ErrorReply{}, Health{}, job.Exit{}, job.Saved{}, job.CheckpointSight{}, job.FoundCheckpoint{}, job.Flaw{}, job.Act{}, job.ActResult{}, Check{}, Pair{}, job.Checked{}, job.Exchanged{}, job.RankReport{}, job.RankProgress{}, job.ProcessFigures{}, job.ThreadsByKind{}, job.SlotFigures{}, job.RDMAFigures{}, history.Recent{}, ReconcileRequest{}, ReconcileReply{}, ReconcileChanges{}, Withheld{},
}

// TestOpenAPIDescribesTheWireTypes: each JSON field of each type is a property of the schema of that name, with the same JSON
// type, required unless it may be omitted, and there are no other properties.
func TestOpenAPIDescribesTheWireTypes(t *testing.T) {
	schemas := loadAPI(t).Components.Schemas
	for _, v := range wireTypes {
		typ := reflect.TypeOf(v)
		ref := schemas[typ.Name()]
		if ref == nil {
			t.Errorf("%s has no schema", typ.Name())
			continue
		}
		fields := jsonFields(typ)
		described := slices.Sorted(maps.Keys(ref.Value.Properties))
		if names := slices.Sorted(maps.Keys(fields)); !slices.Equal(names, described) {
			t.Errorf("%s has the fields %v, its schema %v", typ.Name(), names, described)
			continue
		}
		for name, f := range fields {
			if want := jsonType(f.Type); !hasType(ref.Value.Properties[name].Value, want) {
				t.Errorf("%s.%s is a %s, in its schema %v", typ.Name(), name, want, ref.Value.Properties[name].Value.Type)
			}
			optional := strings.Contains(f.Tag.Get("json"), ",omit")
			// A request's zero fields may be omitted, even if Go writes them.
			if !optional && !slices.Contains(ref.Value.Required, name) {
				t.Errorf("%s.%s is always present, but its schema does not require it", typ.Name(), name)
			}
			if optional && slices.Contains(ref.Value.Required, name) {
				t.Errorf("%s.%s may be omitted, but its schema requires it", typ.Name(), name)
			}
		}
	}
}

func jsonFields(t reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[name] = f
	}
	return out
}

// hasType reports whether a value of the schema, or of one of its alternatives, is of a JSON type.
func hasType(s *openapi3.Schema, want string) bool {
	return s.Type.Is(want) || slices.ContainsFunc(s.OneOf, func(ref *openapi3.SchemaRef) bool { return hasType(ref.Value, want) })
}

func jsonType(t reflect.Type) string {
	if t.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
		return "string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Struct:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// TestOpenAPIHasTheRoutes: described and served routes are the same.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	doc := loadAPI(t)
	served := map[string]string{
		"/v1/jobs/{job}/register": "POST", "/v1/jobs/{job}/sync": "POST", "/v1/jobs/{job}/members": "GET", "/v1/reconcile": "POST",
		"/metrics": "GET", "/healthz": "GET", "/readyz": "GET",
	}
	s := startServer(t, "")
	for path, item := range doc.Paths.Map() {
		if len(item.Operations()) != 1 || item.Operations()[served[path]] == nil {
			t.Errorf("%s is described with %v, served with %s", path, slices.Sorted(maps.Keys(item.Operations())), served[path])
		}
	}
	for path, method := range served {
		if doc.Paths.Value(path) == nil {
			t.Errorf("%s is not described", path)
		}
		for _, m := range []string{"GET", "POST", "PUT", "DELETE"} {
			status, body := s.send(t, m, strings.ReplaceAll(path, "{job}", "gpt"), "", "")
			if (status == http.StatusMethodNotAllowed) != (m != method) {
				t.Errorf("%s %s is answered %d %s", m, path, status, body)
			}
		}
	}
	if status, body := s.send(t, "GET", "/v1/jobs", "", ""); status != 404 || !strings.Contains(body, `"no_such_path"`) {
		t.Errorf("an unknown path is answered %d %s", status, body)
	}
}

// TestOpenAPIListsEveryCode: each refusal's code is in the enumeration and has a status.
func TestOpenAPIListsEveryCode(t *testing.T) {
	enum := loadAPI(t).Components.Schemas["ErrorReply"].Value.Properties["code"].Value.Enum
	var listed []string
	for _, v := range enum {
		listed = append(listed, v.(string))
	}
	var known []string
	for code := range statusOf {
		known = append(known, string(code))
	}
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Errorf("described %v, known %v", listed, known)
	}
}

// apiChecker checks every exchange that passes through it against the OpenAPI description.
type apiChecker struct {
	t      testing.TB
	router routers.Router
	inner  http.RoundTripper
}

func newAPIChecker(t testing.TB, base string) *apiChecker {
	doc := loadAPI(t)
	doc.Servers = openapi3.Servers{{URL: base}}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &apiChecker{t: t, router: router, inner: http.DefaultTransport}
}

func (c *apiChecker) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := c.inner.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(res.Body)
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(answer))
	if err != nil {
		return nil, err
	}
	if r.Context().Err() != nil {
		return nil, r.Context().Err() // what was written after the client had gone is no reply
	}
	if err := c.check(r, body, res, answer); err != nil {
		c.t.Errorf("%s %s: %v\nrequest: %s\nreply: %s", r.Method, r.URL.Path, err, body, answer)
	}
	return res, nil
}

func (c *apiChecker) check(r *http.Request, body []byte, res *http.Response, answer []byte) error {
	ctx := r.Context()
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		return fmt.Errorf("the path is not described: %w", err)
	}
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if res.StatusCode != http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(ctx, in); err != nil {
			return fmt.Errorf("the request is not as described: %w", err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Options: in.Options,
	}
	if err := openapi3filter.ValidateResponse(ctx, out.SetBodyBytes(answer)); err != nil {
		return fmt.Errorf("the reply is not as described: %w", err)
	}
	return nil
}
