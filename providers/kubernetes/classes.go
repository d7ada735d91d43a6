package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// runtimeClasses are the cluster's RuntimeClasses. A value is immutable once it is in the index.
type runtimeClasses struct {
	byName map[string]*nodev1.RuntimeClass // nil until listed
	hidden bool                            // listing them is forbidden
}

// admitted is a pod as the API server will admit it: its admission plugin RuntimeClass adds an overhead, a selector and
// tolerations to pods that name a class. The created pod has none of them: if it set an overhead and the class has
// another by then, it would be rejected.
func (c runtimeClasses) admitted(o *corev1.Pod) *corev1.Pod {
	if o.Spec.RuntimeClassName == nil {
		return o
	}
	class := c.byName[*o.Spec.RuntimeClassName]
	if class == nil {
		return o
	}
	later := *o
	if class.Overhead != nil {
		later.Spec.Overhead = class.Overhead.PodFixed
	}
	if s := class.Scheduling; s != nil {
		selector := maps.Clone(s.NodeSelector)
		if selector == nil {
			selector = map[string]string{}
		}
		maps.Copy(selector, o.Spec.NodeSelector) // if both have a key they agree, or the pod is rejected
		later.Spec.NodeSelector = selector
		later.Spec.Tolerations = slices.Concat(o.Spec.Tolerations, s.Tolerations)
	}
	return &later
}

// unknown reports what a plan cannot count of pods like o; nil if all is known.
func (c runtimeClasses) unknown(o *corev1.Pod) []string {
	const let = "its role needs the verbs list and watch on runtimeclasses, as in deploy/"
	switch {
	case o.Spec.RuntimeClassName == nil:
		return nil
	case c.hidden && c.byName[*o.Spec.RuntimeClassName] != nil:
		return []string{fmt.Sprintf("The overhead of the RuntimeClass %q is as last seen by this master; to see it again %s.", *o.Spec.RuntimeClassName, let)}
	case c.byName[*o.Spec.RuntimeClassName] != nil:
		return nil
	case c.hidden && o.Spec.Overhead != nil:
		return nil // the overlay sets it
	case c.hidden:
		return []string{fmt.Sprintf("The overhead of the RuntimeClass %q is unknown, so the plan does not count it before the pod exists; set spec.overhead beside the class, or let this master see it: %s.", *o.Spec.RuntimeClassName, let)}
	case c.byName == nil:
		return nil // not yet
	}
	return []string{fmt.Sprintf("The RuntimeClass %q does not exist in the cluster: pods that use it are refused.", *o.Spec.RuntimeClassName)}
}

// classWatch watches them. If that is forbidden, places warns the roles that name a class.
func (p *Provider) classWatch() *watching {
	x, classes := p.index, p.client.NodeV1().RuntimeClasses()
	return &watching{
		what: "runtimeclasses", byRole: true, kind: &nodev1.RuntimeClass{}, hidden: x.hideClasses,
		strip: func(o runtime.Object) {
			c := o.(*nodev1.RuntimeClass)
			c.ObjectMeta = metav1.ObjectMeta{Name: c.Name, ResourceVersion: c.ResourceVersion}
		},
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return classes.List(ctx, o) },
		open: classes.Watch,
		one:  func(o runtime.Object, gone bool) { x.watchedClass(o.(*nodev1.RuntimeClass), gone) },
		all:  func(all []any, _ string) { x.listedClasses(typed[*nodev1.RuntimeClass](all)) },
	}
}

func (x *index) watchedClass(o *nodev1.RuntimeClass, gone bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := maps.Clone(x.cluster.classes.byName)
	if gone {
		delete(known, o.Name)
	} else {
		known[o.Name] = o
	}
	x.setClasses(runtimeClasses{byName: known, hidden: x.cluster.classes.hidden})
}

func (x *index) listedClasses(all []*nodev1.RuntimeClass) {
	known := make(map[string]*nodev1.RuntimeClass, len(all))
	for _, o := range all {
		known[o.Name] = o
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setClasses(runtimeClasses{byName: known, hidden: x.cluster.classes.hidden})
}

// hideClasses enters whether listing them is forbidden. Classes listed before stay.
func (x *index) hideClasses(hidden bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setClasses(runtimeClasses{byName: x.cluster.classes.byName, hidden: hidden})
}

// setClasses requires x.mu.
func (x *index) setClasses(c runtimeClasses) {
	if reflect.DeepEqual(c, x.cluster.classes) {
		return
	}
	x.cluster.classes, x.cluster.places = c, nil
	x.signal()
}

func (x *index) runtimeClasses() runtimeClasses {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cluster.classes
}
