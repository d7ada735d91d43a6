package volcano

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/kubernetes"
)

// specOf is the PodGroup of a job: the gang to place whole or not at all. minMember must be the sum of minTaskMember, or
// the scheduler ignores the latter (JobInfo.CheckTaskValid). minResources is always set: without it, the action enqueue
// admits a PodGroup to its queue whether that has room or not.
func (c Config) specOf(g job.Group, server *server) v1beta1.PodGroupSpec {
	resources := corev1.ResourceList{}
	spec := v1beta1.PodGroupSpec{Queue: c.queue(), PriorityClassName: c.PriorityClass, MinResources: &resources}
	for _, r := range g.Roles {
		if r.Min == 0 {
			continue
		}
		spec.MinMember += int32(r.Min)
		if server.knows("minTaskMember") {
			if spec.MinTaskMember == nil {
				spec.MinTaskMember = map[string]int32{}
			}
			spec.MinTaskMember[r.Role] = int32(r.Min)
		}
		for name, each := range kubernetes.Quantities(r.Each) {
			each.Mul(int64(r.Min))
			sum := resources[name]
			sum.Add(each)
			resources[name] = sum
		}
	}
	if len(resources) == 0 {
		resources[corev1.ResourceCPU] = resource.Quantity{} // a server-side apply that removed a map's last key would leave null
	}
	if t := c.NetworkTopology; t != nil {
		spec.NetworkTopology = &v1beta1.NetworkTopologySpec{
			Mode: v1beta1.NetworkTopologyMode(cmp.Or(t.Mode, string(v1beta1.HardNetworkTopologyMode))),
		}
		if t.HighestTier > 0 {
			spec.NetworkTopology.HighestTierAllowed = &t.HighestTier
		}
	}
	return spec
}

// fields are the fields of a PodGroup's spec that jobs require, each with the setting that needs it.
func (c Config) fields() []needed {
	all := []needed{{"minMember", "a gang"}, {"minResources", "a gang"}, {"queue", "queue"}}
	if c.PriorityClass != "" {
		all = append(all, needed{"priorityClassName", "priority_class"})
	}
	if t := c.NetworkTopology; t != nil {
		all = append(all, needed{"networkTopology.mode", "network_topology"})
		if t.HighestTier > 0 {
			all = append(all, needed{"networkTopology.highestTierAllowed", "highest_tier of network_topology"})
		}
	}
	return all
}

// needed is a field that the server must support.
type needed struct{ field, by string }

// declared is the PodGroup as eltrain applies it. The anchor owns it, not the pods, and it outlives them: a gang that forms
// again keeps its age in the queue.
func declared(j kubernetes.Job, spec v1beta1.PodGroupSpec) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Labels: j.Labels, OwnerReferences: []metav1.OwnerReference{j.Owner}},
		Spec:       spec,
	}
}

// current reports whether eltrain's fields of a PodGroup are up to date. Fields that only others set, such as a priority
// class if the provider names none, are ignored: an apply would keep them.
func current(there *v1beta1.PodGroup, j kubernetes.Job, spec v1beta1.PodGroupSpec) bool {
	if there.DeletionTimestamp != nil || len(there.OwnerReferences) != 1 || there.OwnerReferences[0].UID != j.Owner.UID {
		return false
	}
	if equality.Semantic.DeepEqual(there.Spec, spec) {
		return true
	}
	var ours v1beta1.PodGroup
	err := managedfields.ExtractInto(there, typed.DeducedParseableType, kubernetes.FieldManager, &ours, "")
	// A minMember of 0 is omitted, and so reads as a field that is not ours.
	return err == nil && there.Spec.MinMember == spec.MinMember && equality.Semantic.DeepEqual(ours.Spec, spec)
}
