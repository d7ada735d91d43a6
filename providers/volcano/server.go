package volcano

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

// server is what the installed version of Volcano supports in PodGroups: the paths of the fields of their spec. It would
// reject other fields. nil is a server that has no PodGroups at all.
type server struct{ fields map[string]bool }

func (s *server) knows(field string) bool { return s != nil && s.fields[field] }

// lacks reports what the configuration requires and the server does not support; "" if nothing.
func (s *server) lacks(c Config) string {
	if s == nil {
		return fmt.Sprintf("This cluster has no Volcano: its API server has no PodGroups of %s. Install Volcano, or choose provider \"kubernetes\".", v1beta1.SchemeGroupVersion)
	}
	for _, n := range c.fields() {
		if !s.knows(n.field) {
			return fmt.Sprintf("Provider %q uses %s, but this cluster's Volcano is too old: its PodGroups have no spec.%s, only %s. Upgrade Volcano with its CustomResourceDefinitions, or remove the setting.",
				Name, n.by, n.field, strings.Join(s.top(), ", "))
		}
	}
	return ""
}

// top are the names of the top-level fields.
func (s *server) top() []string {
	var names []string
	for path := range s.fields {
		if !strings.Contains(path, ".") {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	return names
}

// askServer reads the schema that the API server publishes to every authenticated user.
func askServer(ctx context.Context, client rest.Interface) (*server, error) {
	path := "/openapi/v3/apis/" + v1beta1.SchemeGroupVersion.String()
	body, err := client.Get().AbsPath(path).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ask the API server which fields PodGroups have: %w", err)
	}
	s, err := readSchema(body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// schema is the part of a JSON schema that is read.
type schema struct {
	Kinds []struct {
		Kind string `json:"kind"`
	} `json:"x-kubernetes-group-version-kind"`
	Properties map[string]schema `json:"properties"`
	AllOf      []schema          `json:"allOf"`
}

// readSchema reads an OpenAPI v3 document; nil if it has no PodGroups.
func readSchema(document []byte) (*server, error) {
	var all struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &all); err != nil {
		return nil, err
	}
	for _, s := range all.Components.Schemas {
		if len(s.Kinds) == 1 && s.Kinds[0].Kind == "PodGroup" {
			known := &server{fields: map[string]bool{}}
			known.enter("", s.Properties["spec"])
			return known, nil
		}
	}
	return nil, nil
}

func (s *server) enter(prefix string, from schema) {
	for name, property := range from.Properties {
		s.fields[prefix+name] = true
		s.enter(prefix+name+".", property)
	}
	for _, part := range from.AllOf {
		s.enter(prefix, part)
	}
}
