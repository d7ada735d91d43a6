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

// specOf is the PodGroup of a job: what is to be placed whole or not at all. minMember is the sum of minTaskMember,
// or the scheduler ignores the latter (JobInfo.CheckTaskValid). minResources is never left out: a PodGroup without is
// let into its queue whether that has room or not (the action enqueue).
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
		resources[corev1.ResourceCPU] = resource.Quantity{} // a map whose last key goes would be null after a server-side apply
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

// fields are those of a PodGroup's spec that jobs cannot do without, each with what of the configuration asks for it.
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

// needed is a field that the server must know.
type needed struct{ field, by string }

// declared is the PodGroup as eltrain applies it. It is its anchor's, not its pods', and outlives them: a gang that is
// formed again keeps its age in the queue.
func declared(j kubernetes.Job, spec v1beta1.PodGroupSpec) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: j.Name, Labels: j.Labels, OwnerReferences: []metav1.OwnerReference{j.Owner}},
		Spec:       spec,
	}
}

// current reports whether what a PodGroup has of eltrain is already as it is to be. What others set and eltrain does not, as
// a priority class where the provider names none, is theirs: it is no reason to write, and an apply would leave it.
func current(there *v1beta1.PodGroup, j kubernetes.Job, spec v1beta1.PodGroupSpec) bool {
	if there.DeletionTimestamp != nil || len(there.OwnerReferences) != 1 || there.OwnerReferences[0].UID != j.Owner.UID {
		return false
	}
	if equality.Semantic.DeepEqual(there.Spec, spec) {
		return true
	}
	var ours v1beta1.PodGroup
	err := managedfields.ExtractInto(there, typed.DeducedParseableType, kubernetes.FieldManager, &ours, "")
	// A gang of nobody says so with a 0, which reads as a field that is not ours.
	return err == nil && there.Spec.MinMember == spec.MinMember && equality.Semantic.DeepEqual(ours.Spec, spec)
}
