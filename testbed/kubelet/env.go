package kubelet

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultPath is the PATH that container runtimes set if the image sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is a list of variables in which a later value replaces an earlier one.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) list() []string {
	out := make([]string, len(e.names))
	for i, name := range e.names {
		out[i] = name + "=" + e.values[name]
	}
	return out
}

// expand replaces $(NAME) by its value. $$ is a dollar sign, and an unset name stays as it is written: the rule of
// Kubernetes for command, args and env.
func (e *environment) expand(text string) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i == len(text)-1 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		rest := text[i+1:]
		end := strings.IndexByte(rest, ')')
		value, set := "", false
		if rest[0] == '(' && end > 0 {
			value, set = e.values[rest[1:end]]
		}
		switch {
		case rest[0] == '$':
			out.WriteByte('$')
			text = rest[1:]
		case set:
			out.WriteString(value)
			text = rest[end+1:]
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

func (e *environment) expandAll(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = e.expand(word)
	}
	return out
}

// environment is the environment of the container's command. It fails if a Secret or ConfigMap, or a key of it, is
// missing.
func (p *pod) environment(ctx context.Context, object *corev1.Pod, c *corev1.Container, image Image) (*environment, error) {
	env := &environment{}
	env.set("PATH", defaultPath)
	env.set("HOME", "/root")
	env.set("HOSTNAME", hostname(object))
	env.set("KUBERNETES_SERVICE_HOST", p.apiHost)
	env.set("KUBERNETES_SERVICE_PORT", p.apiPort)
	for _, variable := range image.Env {
		name, value, _ := strings.Cut(variable, "=")
		env.set(name, value)
	}
	for _, source := range c.EnvFrom {
		values, err := p.envFrom(ctx, source)
		if err != nil {
			return nil, err
		}
		for _, name := range sortedKeys(values) {
			env.set(source.Prefix+name, values[name])
		}
	}
	for _, variable := range c.Env {
		if variable.ValueFrom == nil {
			env.set(variable.Name, env.expand(variable.Value))
			continue
		}
		value, set, err := p.envValue(ctx, object, c, variable.ValueFrom)
		if err != nil {
			return nil, err
		}
		if set {
			env.set(variable.Name, value)
		}
	}
	return env, nil
}

func (p *pod) envFrom(ctx context.Context, source corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case source.ConfigMapRef != nil:
		return p.configMap(ctx, source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
	case source.SecretRef != nil:
		return p.secret(ctx, source.SecretRef.Name, source.SecretRef.Optional)
	}
	return nil, nil
}

// envValue returns false if an optional source is missing.
func (p *pod) envValue(ctx context.Context, object *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource) (string, bool, error) {
	var values map[string]string
	var key, kind, name string
	var optional *bool
	var err error
	switch {
	case from.FieldRef != nil:
		value, err := p.field(object, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := p.node.resourceField(object, c, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		kind, name, key, optional = "ConfigMap", ref.Name, ref.Key, ref.Optional
		values, err = p.configMap(ctx, name, optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		kind, name, key, optional = "Secret", ref.Name, ref.Key, ref.Optional
		values, err = p.secret(ctx, name, optional)
	default:
		return "", false, fmt.Errorf("this source of a variable is not known to the process kubelet")
	}
	if err != nil {
		return "", false, err
	}
	value, ok := values[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, p.namespace, name)
	}
	return value, ok, nil
}

// configMap returns a ConfigMap's data, including binary data; none if it is optional and missing.
func (p *pod) configMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	object, err := p.configMaps.ConfigMaps(p.namespace).Get(name)
	if apierrors.IsNotFound(err) { // it may be newer than the cache
		object, err = p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range object.Data {
		values[key] = value
	}
	for key, value := range object.BinaryData {
		values[key] = string(value)
	}
	return values, nil
}

// secret is configMap for Secrets.
func (p *pod) secret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	object, err := p.secrets.Secrets(p.namespace).Get(name)
	if apierrors.IsNotFound(err) {
		object, err = p.client.CoreV1().Secrets(p.namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range object.Data {
		values[key] = string(value)
	}
	return values, nil
}

// field is the value of a downward API field.
func (p *pod) field(object *corev1.Pod, path string) (string, error) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return object.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return object.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return object.Name, nil
	case "metadata.namespace":
		return object.Namespace, nil
	case "metadata.uid":
		return string(object.UID), nil
	case "metadata.labels":
		return formatMap(object.Labels), nil
	case "metadata.annotations":
		return formatMap(object.Annotations), nil
	case "spec.nodeName":
		return object.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return p.node.ip, nil
	case "status.podIP", "status.podIPs":
		return p.ip, nil
	}
	return "", fmt.Errorf("the process kubelet does not support the field %s", path)
}

// subscript is the key in path['key'].
func subscript(path, of string) (string, bool) {
	rest, ok := strings.CutPrefix(path, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

// formatMap formats labels as the downward API does: key="value" lines, sorted.
func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range sortedKeys(m) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// resourceField is a request or limit in units of the divisor, rounded up. The default of a limit is the node's
// capacity.
func (n *node) resourceField(object *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		for i := range object.Spec.Containers {
			if object.Spec.Containers[i].Name == ref.ContainerName {
				c = &object.Spec.Containers[i]
			}
		}
	}
	if c == nil {
		return "", fmt.Errorf("no container %q", ref.ContainerName)
	}
	var quantity resource.Quantity
	switch kind, name, _ := strings.Cut(ref.Resource, "."); kind {
	case "limits":
		q, ok := c.Resources.Limits[corev1.ResourceName(name)]
		if !ok {
			q = n.capacity()[corev1.ResourceName(name)]
		}
		quantity = q
	case "requests":
		quantity = c.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("the process kubelet does not support the resource %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if strings.HasSuffix(ref.Resource, ".cpu") {
		return strconv.FormatInt(ceilDivide(quantity.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceilDivide(quantity.Value(), divisor.Value()), 10), nil
}

func ceilDivide(a, b int64) int64 { return (a + b - 1) / b }

func hostname(object *corev1.Pod) string {
	if object.Spec.Hostname != "" {
		return object.Spec.Hostname
	}
	// A host name has at most 63 characters (kubelet: truncatePodHostnameIfNeeded).
	const most = 63
	return strings.TrimRight(object.Name[:min(len(object.Name), most)], "-.")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
