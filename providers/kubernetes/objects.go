package kubernetes

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eltrain/eltrain/job"
)

// A job's objects besides its pods: an anchor (a ConfigMap, which also says where the service is) that owns everything
// else, so that deleting it deletes all; a Secret with the token; a headless Service, in which the pods have their DNS
// names; all three with one name. And a PodDisruptionBudget for each role, and a ConfigMap for its source files.

// anchor identifies the object that owns everything of a job, for owner references.
type anchor struct {
	name string
	uid  types.UID
}

// reference is an owner reference to the anchor. It does not block the anchor's deletion: that would need permission for
// its finalizers.
func (a anchor) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: a.name, UID: a.uid}
}

// applyOptions: eltrain takes over every field that it sets, whoever set it before.
var applyOptions = metav1.ApplyOptions{FieldManager: FieldManager, Force: true}

// anchorOf is the anchor with the service's address, which is nil before it is published. moved is when the address last
// changed; "" if that is long ago. sources are the short digests of the source files that it owns.
func anchorOf(g job.Group, owner string, service map[string]string, moved string, sources []string) *corev1.ConfigMap {
	labels := jobLabels(g.UID, g.Name)
	marks, annotations := stateMarks(owner)
	maps.Copy(labels, marks)
	annotations = maps.Clone(annotations)
	note := func(name, text string) {
		if annotations == nil {
			annotations = map[string]string{}
		}
		if text != "" {
			annotations[name] = text
		}
	}
	note(annotationMoved, moved)
	note(annotationSources, strings.Join(sources, " "))
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: groupName(g.UID, g.Name), Labels: labels, Annotations: annotations},
		Data:       service,
	}
}

// secretOf holds the token. It is created, not applied: of two masters that race, the second uses the Secret of the first.
func secretOf(g job.Group, owner anchor, token string) *corev1.Secret {
	fixed := true
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: owner.name, Labels: jobLabels(g.UID, g.Name), OwnerReferences: []metav1.OwnerReference{owner.reference()},
		},
		Type:      corev1.SecretTypeOpaque,
		Immutable: &fixed,
		Data:      map[string][]byte{tokenKey: []byte(token)},
	}
}

// serviceOf gives every pod a DNS name as soon as it runs, ready or not: a world forms before its pods are ready.
func serviceOf(j prepared) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: j.anchor.name, Labels: jobLabels(j.group.UID, j.group.Name), OwnerReferences: []metav1.OwnerReference{j.anchor.reference()},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP:                corev1.ClusterIPNone,
			PublishNotReadyAddresses: true,
			Selector:                 j.selects(map[string]string{labelUID: j.group.UID}),
		},
	}
}

// budgetOf lets a drain evict a role's pods only down to the role's minimum. One budget for all roles would let it evict
// every ps while there are enough workers. A pod that cannot run never blocks a drain.
func budgetOf(j prepared, r job.GroupRole) *policyv1.PodDisruptionBudget {
	labels := jobLabels(j.group.UID, j.group.Name)
	labels[labelRole] = r.Role
	least, unhealthy := intstr.FromInt(r.Min), policyv1.AlwaysAllow
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name: budgetName(j.group.UID, j.group.Name, r.Role), Labels: labels, OwnerReferences: []metav1.OwnerReference{j.anchor.reference()},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:               &least,
			UnhealthyPodEvictionPolicy: &unhealthy,
			Selector:                   &metav1.LabelSelector{MatchLabels: j.selects(map[string]string{labelUID: j.group.UID, labelRole: r.Role})},
		},
	}
}

// selects is the selector of a Service or a budget: pods with these labels, or none until the job's pods are up.
func (j prepared) selects(labels map[string]string) map[string]string {
	if !j.awake.Load() {
		labels[labelAsleep] = "true"
	}
	return labels
}
