package kubernetes

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	policyapply "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/eltrain/eltrain/job"
)

// What a job has beside its pods, all of one name: an anchor (a ConfigMap, which also says where the service is)
// that owns everything else, so that deleting it deletes all; a Secret with the token; a headless Service, below
// which the pods have their names. And a PodDisruptionBudget for each role.

// anchor is the object that owns everything of a job, as what it owns names it.
type anchor struct {
	name string
	uid  types.UID
}

// reference names the anchor as owner. It does not block the anchor's deletion: that would need a right to its
// finalizers.
func (a anchor) reference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: a.name, UID: a.uid}
}

func (a anchor) owner() *metaapply.OwnerReferenceApplyConfiguration {
	return metaapply.OwnerReference().WithAPIVersion("v1").WithKind("ConfigMap").WithName(a.name).WithUID(a.uid)
}

// applyAs is how eltrain applies: what it sets is its own, whoever set it before.
var applyAs = metav1.ApplyOptions{FieldManager: FieldManager, Force: true}

// anchorOf is the anchor without the service's URL, which Publish writes.
func anchorOf(g job.Group, namespace, owner string) *coreapply.ConfigMapApplyConfiguration {
	labels, annotations := stateMarks(owner)
	return coreapply.ConfigMap(groupName(g.UID, g.Name), namespace).
		WithLabels(jobLabels(g.UID, g.Name)).WithLabels(labels).WithAnnotations(annotations)
}

// secretOf holds the token. It is created, not applied: of two masters that race, the second takes what the first
// has made.
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

// serviceOf gives every pod a name in the DNS as soon as it runs, ready or not: a world forms before its pods are ready.
func serviceOf(j prepared, namespace string) *coreapply.ServiceApplyConfiguration {
	return coreapply.Service(j.anchor.name, namespace).
		WithLabels(jobLabels(j.group.UID, j.group.Name)).
		WithOwnerReferences(j.anchor.owner()).
		WithSpec(coreapply.ServiceSpec().
			WithClusterIP(corev1.ClusterIPNone).
			WithPublishNotReadyAddresses(true).
			WithSelector(j.selects(map[string]string{labelUID: j.group.UID})))
}

// budgetOf lets a drain take a role's pods only down to the least with which it can train. One for all roles would let
// it take every ps as long as there are workers enough. A pod that cannot run is never in a drain's way.
func budgetOf(j prepared, r job.GroupRole, namespace string) *policyapply.PodDisruptionBudgetApplyConfiguration {
	return policyapply.PodDisruptionBudget(budgetName(j.group.UID, j.group.Name, r.Role), namespace).
		WithLabels(jobLabels(j.group.UID, j.group.Name)).WithLabels(map[string]string{labelRole: r.Role}).
		WithOwnerReferences(j.anchor.owner()).
		WithSpec(policyapply.PodDisruptionBudgetSpec().
			WithMinAvailable(intstr.FromInt(r.Min)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(j.selects(map[string]string{labelUID: j.group.UID, labelRole: r.Role}))))
}

// selects is what a Service or a budget selects: pods with these labels, or none as long as the job's are not up.
func (j prepared) selects(labels map[string]string) map[string]string {
	if !j.awake.Load() {
		labels[labelAsleep] = "true"
	}
	return labels
}
