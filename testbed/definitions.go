package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// VolcanoDefinitions is a version of Volcano's API: the fields that the server supports. It drops other fields, or
// rejects them under strict validation.
type VolcanoDefinitions string

// Versions of the API. Those after the pinned one add the fields of the Go types of volcano.sh/apis: they are kept
// when Volcano's programs write the object, but have no effect.
const (
	Volcano110 VolcanoDefinitions = ""     // the pinned version: PodGroups without networkTopology
	Volcano112 VolcanoDefinitions = "1.12" // networkTopology{mode, highestTierAllowed} of PodGroups, and HyperNodes; 1.13 is the same
	Volcano114 VolcanoDefinitions = "1.14" // also highestTierName and subGroupPolicy
)

const (
	podGroupDefinition  = "podgroups.scheduling.volcano.sh"
	hyperNodeDefinition = "hypernodes.topology.volcano.sh"

	fieldManager = "testbed"
)

var (
	definitions      = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	mutatingPolicies = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies")
	mutatingBindings = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings")
)

// DefineVolcano changes the API to that of another version, as an upgrade does, and waits until the server has it.
// From then on, fields that the version does not support are dropped on reads and writes.
func (c *Cluster) DefineVolcano(t T, version VolcanoDefinitions) {
	t.Helper()
	c.volcanoLever(t, "define Volcano's resources", func(ctx context.Context) error { return c.define(ctx, version) })
}

func (c *Cluster) define(ctx context.Context, version VolcanoDefinitions) error {
	objects, err := c.definitions(version)
	if err != nil {
		return err
	}
	client := c.dynamic.Resource(definitions)
	for _, object := range objects {
		_, err := client.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return err
		}
	}
	if version == Volcano110 {
		if err := c.undefine(ctx, hyperNodeDefinition); err != nil {
			return err
		}
	}
	for _, object := range objects {
		if err := c.awaitEstablished(ctx, object.GetName()); err != nil {
			return err
		}
	}
	return c.awaitPodGroupFields(ctx, version)
}

// undefine returns when the definition is gone: one written before that would be deleted too.
func (c *Cluster) undefine(ctx context.Context, name string) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := c.dynamic.Resource(definitions).Delete(ctx, name, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

// definitions returns the definitions of the pinned version, with the additions of the given one.
func (c *Cluster) definitions(version VolcanoDefinitions) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(c.volcanoDir, definitionsDir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no definitions of Volcano's resources", c.volcanoDir)
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &object.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if object.GetName() == podGroupDefinition {
			if err := addPodGroupFields(object, version); err != nil {
				return nil, err
			}
		}
		objects = append(objects, object)
	}
	if version == Volcano110 {
		return objects, nil
	}
	content, err := configs.ReadFile("config/volcano/hypernodes.yaml")
	if err != nil {
		return nil, err
	}
	hyperNode := &unstructured.Unstructured{}
	return append(objects, hyperNode), yaml.Unmarshal(content, &hyperNode.Object)
}

func addPodGroupFields(definition *unstructured.Unstructured, version VolcanoDefinitions) error {
	if version == Volcano110 {
		return nil
	}
	content, err := configs.ReadFile("config/volcano/podgroup-" + string(version) + ".yaml")
	if err != nil {
		return fmt.Errorf("no definitions of version %q: %w", version, err)
	}
	var added map[string]any
	if err := yaml.Unmarshal(content, &added); err != nil {
		return err
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return fmt.Errorf("%s has %d versions, want 1: %w", definition.GetName(), len(versions), err)
	}
	path := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	fields, _, err := unstructured.NestedMap(versions[0].(map[string]any), path...)
	if err != nil {
		return err
	}
	maps.Copy(fields, added)
	if err := unstructured.SetNestedMap(versions[0].(map[string]any), fields, path...); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
}

// keepFields makes the API server keep fields that Volcano's programs do not know when they write objects.
func (c *Cluster) keepFields(ctx context.Context) error {
	content, err := configs.ReadFile("config/volcano/keep-fields.yaml")
	if err != nil {
		return err
	}
	for i, document := range bytes.Split(content, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return err
		}
		resource := []schema.GroupVersionResource{mutatingPolicies, mutatingBindings}[i]
		if _, err := c.dynamic.Resource(resource).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func (c *Cluster) awaitEstablished(ctx context.Context, name string) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		object, err := c.dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		value, _, err := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
		conditions, _ := value.([]any) // null at first
		return slices.ContainsFunc(conditions, func(condition any) bool {
			fields, _ := condition.(map[string]any)
			return fields["type"] == "Established" && fields["status"] == "True"
		}), err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", name, err)
	}
	return nil
}

// awaitPodGroupFields waits until the server accepts the version's PodGroups, and publishes them in its OpenAPI: a
// changed definition takes effect some time after it was written.
func (c *Cluster) awaitPodGroupFields(ctx context.Context, version VolcanoDefinitions) error {
	probes := []struct {
		field string // of networkTopology
		value any
		known bool
	}{
		{"highestTierAllowed", int64(1), version != Volcano110},
		{"highestTierName", "rack", version == Volcano114},
	}
	path := "/openapi/v3/apis/" + PodGroups.Group + "/" + PodGroups.Version
	var last error
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var published []byte
		if published, last = c.client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx); last != nil {
			return false, nil
		}
		for _, probe := range probes {
			_, last = c.dynamic.Resource(PodGroups).Namespace(metav1.NamespaceDefault).Create(ctx,
				&unstructured.Unstructured{Object: map[string]any{
					"apiVersion": PodGroups.GroupVersion().String(), "kind": "PodGroup", "metadata": map[string]any{"name": "probe"},
					"spec": map[string]any{"networkTopology": map[string]any{probe.field: probe.value}},
				}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			taken, refused := last == nil, apierrors.IsBadRequest(last)
			if taken != probe.known || refused == probe.known {
				return false, nil
			}
			if bytes.Contains(published, []byte(`"`+probe.field+`"`)) != probe.known {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the PodGroups of version %q: %w", version, errors.Join(err, last))
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
