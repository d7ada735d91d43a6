package kube

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client accesses the kinds of objects that eltrain uses, with the method names of client-go's clientset. The clientset
// itself would register every version of every Kubernetes API at startup: 8 MiB of resident memory in each eltrain process.
type Client struct {
	core         CoreV1
	policy       PolicyV1
	coordination CoordinationV1
	node         NodeV1
}

// The API groups in use.
type (
	CoreV1         struct{ Group }
	PolicyV1       struct{ Group }
	CoordinationV1 struct{ Group }
	NodeV1         struct{ Group }
)

// NewClient returns a client without connecting. Its rate limit is shared by all groups.
func NewClient(config *rest.Config) (*Client, error) {
	config = Shared(config)
	core, err := NewGroup(config, corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	policy, err := NewGroup(config, policyv1.SchemeGroupVersion, policyv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	coordination, err := NewGroup(config, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	node, err := NewGroup(config, nodev1.SchemeGroupVersion, nodev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Client{CoreV1{core}, PolicyV1{policy}, CoordinationV1{coordination}, NodeV1{node}}, nil
}

func (c *Client) CoreV1() CoreV1                 { return c.core }
func (c *Client) PolicyV1() PolicyV1             { return c.policy }
func (c *Client) CoordinationV1() CoordinationV1 { return c.coordination }
func (c *Client) NodeV1() NodeV1                 { return c.node }

func (g CoreV1) ConfigMaps(namespace string) Resource[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return Of[corev1.ConfigMap, corev1.ConfigMapList](g.Group, "configmaps", namespace)
}

func (g CoreV1) Namespaces() Resource[*corev1.Namespace, *corev1.NamespaceList] {
	return Of[corev1.Namespace, corev1.NamespaceList](g.Group, "namespaces", metav1.NamespaceNone)
}

func (g CoreV1) Nodes() Resource[*corev1.Node, *corev1.NodeList] {
	return Of[corev1.Node, corev1.NodeList](g.Group, "nodes", metav1.NamespaceNone)
}

func (g CoreV1) Pods(namespace string) Resource[*corev1.Pod, *corev1.PodList] {
	return Of[corev1.Pod, corev1.PodList](g.Group, "pods", namespace)
}

// PodLogs returns a request for the log of a pod.
func (g CoreV1) PodLogs(namespace, name string, options *corev1.PodLogOptions) *rest.Request {
	return g.Get().Namespace(namespace).Resource("pods").Name(name).SubResource("log").VersionedParams(options, g.Parameters)
}

// PodExec returns a request to run a command in a pod, for its URL.
func (g CoreV1) PodExec(namespace, name string, options *corev1.PodExecOptions) *rest.Request {
	return g.Post().Namespace(namespace).Resource("pods").Name(name).SubResource("exec").VersionedParams(options, g.Parameters)
}

func (g CoreV1) Secrets(namespace string) Resource[*corev1.Secret, *corev1.SecretList] {
	return Of[corev1.Secret, corev1.SecretList](g.Group, "secrets", namespace)
}

func (g CoreV1) Services(namespace string) Resource[*corev1.Service, *corev1.ServiceList] {
	return Of[corev1.Service, corev1.ServiceList](g.Group, "services", namespace)
}

func (g PolicyV1) PodDisruptionBudgets(namespace string) Resource[*policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudgetList] {
	return Of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](g.Group, "poddisruptionbudgets", namespace)
}

func (g CoordinationV1) Leases(namespace string) Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return Of[coordinationv1.Lease, coordinationv1.LeaseList](g.Group, "leases", namespace)
}

func (g NodeV1) RuntimeClasses() Resource[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return Of[nodev1.RuntimeClass, nodev1.RuntimeClassList](g.Group, "runtimeclasses", metav1.NamespaceNone)
}

// Group is a client of one API group and version.
type Group struct {
	rest.Interface
	Parameters runtime.ParameterCodec // for request options
	scheme     *runtime.Scheme
}

// Writes are not retried here. client-go would silently retry requests that the API server rejects as too many, up to ten
// times; but the provider's pacer must see these errors to slow down, and the state store retries itself. Reads are retried.

func (g Group) Post() *rest.Request   { return g.Interface.Post().MaxRetries(0) }
func (g Group) Put() *rest.Request    { return g.Interface.Put().MaxRetries(0) }
func (g Group) Delete() *rest.Request { return g.Interface.Delete().MaxRetries(0) }

func (g Group) Patch(t types.PatchType) *rest.Request { return g.Interface.Patch(t).MaxRetries(0) }

// Shared returns a config whose rate limit is shared by all groups created from it.
func Shared(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil && config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	return config
}

// NewGroup returns a group's client without connecting. add registers the group's types.
func NewGroup(config *rest.Config, version schema.GroupVersion, add func(*runtime.Scheme) error) (Group, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return Group{}, fmt.Errorf("register %s: %w", version, err)
	}
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &version, "/apis"
	if version.Group == corev1.GroupName {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return Group{}, fmt.Errorf("reach %s: %w", version, err)
	}
	return Group{client, runtime.NewParameterCodec(scheme), scheme}, nil
}

// object is a pointer to an API type.
type object interface {
	runtime.Object
	metav1.Object
}

// Resource is a client of one kind of objects, in a namespace if the kind is namespaced.
type Resource[T object, L runtime.Object] struct {
	*gentype.ClientWithList[T, L]
	group Group
}

// Of returns the resource of that name, with objects of type T and lists of type L.
func Of[T, L any, PT interface {
	*T
	object
}, PL interface {
	*L
	runtime.Object
}](g Group, resource, namespace string) Resource[PT, PL] {
	one, list := func() PT { return new(T) }, func() PL { return new(L) }
	return Resource[PT, PL]{gentype.NewClientWithList(resource, g, g.Parameters, namespace, one, list), g}
}

// Apply sends the object by server-side apply, without its status. Fields with a zero value are left to other managers,
// except the named counts of its spec, for which 0 is a value. client-go's apply configurations, which distinguish the two
// for every field, would link the clientset.
func (r Resource[T, L]) Apply(ctx context.Context, o T, options metav1.ApplyOptions, counts ...string) (T, error) {
	var none T
	kinds, _, err := r.group.scheme.ObjectKinds(o)
	if err != nil {
		return none, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return none, err
	}
	fields["apiVersion"], fields["kind"] = kinds[0].ToAPIVersionAndKind()
	delete(fields, "status")
	for _, name := range counts {
		if _, set, _ := unstructured.NestedFieldNoCopy(fields, "spec", name); set {
			continue
		}
		if err := unstructured.SetNestedField(fields, int64(0), "spec", name); err != nil {
			return none, err
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return none, err
	}
	return r.Patch(ctx, o.GetName(), types.ApplyPatchType, text, options.ToPatchOptions())
}
