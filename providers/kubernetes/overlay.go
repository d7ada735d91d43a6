package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"github.com/eltrain/eltrain/job"
)

// overlay is what a user adds to the pods that eltrain creates: a pod template, metadata (labels and annotations) and
// spec. It is merged as kubectl patch does: lists with a key by that key (containers, volumes and env by name, mounts by
// path), others are replaced. What identifies a pod, and what runs the agent in it, cannot be changed.
type overlay struct {
	owner      string // whose it is, for messages: role "worker"
	fields     map[string]any
	scheduling Scheduling  // of the pod
	also       []protected // what it cannot change in addition to ours
}

// podTemplate is the schema of an overlay. It is stricter than Kubernetes': metadata has only labels and annotations.
type podTemplate struct {
	Metadata struct {
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec corev1.PodSpec `json:"spec"`
}

// check lists the overlay's mistakes, on any pod.
func (o overlay) check() []error {
	if len(o.fields) == 0 {
		return nil
	}
	some := job.Launch{UID: "template", Slot: job.Address{Job: "template", Role: "template"}, Incarnation: 1}
	pod, err := Config{}.pod(some, podContext{scheduling: Scheduling{Gated: true}})
	if err == nil {
		_, err = o.merge(pod)
	}
	if joined, many := err.(interface{ Unwrap() []error }); many {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// merge returns a copy of the pod with the overlay applied, or all mistakes joined.
func (o overlay) merge(pod *corev1.Pod) (*corev1.Pod, error) {
	if len(o.fields) == 0 {
		return pod, nil
	}
	patch, err := json.Marshal(o.fields)
	if err != nil {
		return nil, fmt.Errorf("pod of %s: %w", o.owner, err)
	}
	strict, err := kjson.UnmarshalStrict(patch, &podTemplate{})
	if misfit := new(json.UnmarshalTypeError); errors.As(err, &misfit) {
		return nil, fmt.Errorf("pod of %s: %s cannot be a %s: see the Kubernetes documentation", o.owner, misfit.Field, misfit.Value)
	}
	if err != nil {
		return nil, fmt.Errorf("pod of %s: %w", o.owner, err)
	}
	if len(strict) > 0 {
		for i, err := range strict {
			strict[i] = fmt.Errorf("pod of %s: %w: write it as a pod template, { metadata = { labels, annotations }, spec = { ... } }", o.owner, err)
		}
		return nil, errors.Join(strict...)
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("pod of %s: %w", o.owner, err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("pod of %s: %w", o.owner, err)
	}
	merged := &corev1.Pod{}
	if err := json.Unmarshal(after, merged); err != nil {
		return nil, fmt.Errorf("pod of %s: %w", o.owner, err)
	}
	if errs := o.violations(pod, merged); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return merged, nil
}

// protected is one part of a pod that an overlay cannot change, and what to do instead.
type protected struct {
	path    string
	of      func(*corev1.Pod) any
	instead string
}

// ours protects what identifies a pod's incarnation, and what installs, runs and stops its agent.
var ours = []protected{
	{"spec.restartPolicy", func(p *corev1.Pod) any { return p.Spec.RestartPolicy }, "the agent restarts processes, and eltrain replaces pods; remove it"},
	{"spec.hostname", func(p *corev1.Pod) any { return p.Spec.Hostname }, "peers find the slot by it; remove it"},
	{"spec.subdomain", func(p *corev1.Pod) any { return p.Spec.Subdomain }, "it is the job's Service; remove it"},
	{"spec.schedulingGates", func(p *corev1.Pod) any { return p.Spec.SchedulingGates }, "they hold the gang; remove them"},
	{"spec.nodeName", func(p *corev1.Pod) any { return p.Spec.NodeName }, "the scheduler decides; use nodeSelector"},
	{"spec.terminationGracePeriodSeconds", func(p *corev1.Pod) any { return p.Spec.TerminationGracePeriodSeconds }, "set the role's stop_grace"},
	{"spec.activeDeadlineSeconds", func(p *corev1.Pod) any { return p.Spec.ActiveDeadlineSeconds }, "it would end slots one by one; remove it"},
	{"the init container " + agentContainer, func(p *corev1.Pod) any { return containerOf(p.Spec.InitContainers, agentContainer) }, "it installs the agent; set the provider's agent_image or agent_path"},
	{"the command of container main", func(p *corev1.Pod) any { return mainOf(p).Command }, "set the role's command"},
	{"the args of container main", func(p *corev1.Pod) any { return mainOf(p).Args }, "set the role's command"},
	{"the image of container main", func(p *corev1.Pod) any { return mainOf(p).Image }, "set the role's image"},
	{"the terminationMessagePath of container main", func(p *corev1.Pod) any { return mainOf(p).TerminationMessagePath }, "the agent writes there how it ended; remove it"},
	{"the terminationMessagePolicy of container main", func(p *corev1.Pod) any { return mainOf(p).TerminationMessagePolicy }, "the agent writes there how it ended; remove it"},
}

// providersAlone is what the provider's overlay may change and a role's may not: the pod's identity to the API server. More
// people write job files than the provider's block, and a ServiceAccount may have permissions that they do not.
var providersAlone = []protected{
	{"spec.serviceAccountName", func(p *corev1.Pod) any { return p.Spec.ServiceAccountName }, "set it in the provider's pod"},
	{"spec.serviceAccount", func(p *corev1.Pod) any { return p.Spec.DeprecatedServiceAccount }, "set serviceAccountName in the provider's pod"},
	{"spec.automountServiceAccountToken", func(p *corev1.Pod) any { return p.Spec.AutomountServiceAccountToken }, "set it in the provider's pod"},
	{"the volumes with a serviceAccountToken", serviceAccountTokens, "add them in the provider's pod"},
}

// serviceAccountTokens are the volumes that project a token of the pod's ServiceAccount.
func serviceAccountTokens(p *corev1.Pod) any {
	var names []string
	for _, v := range p.Spec.Volumes {
		brings := func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, brings) {
			names = append(names, v.Name)
		}
	}
	return names
}

// violations lists the overlay's changes to protected parts.
func (o overlay) violations(before, after *corev1.Pod) []error {
	var errs []error
	bad := func(path, instead string) {
		errs = append(errs, fmt.Errorf("pod of %s: it cannot change %s: %s", o.owner, path, instead))
	}
	for _, p := range slices.Concat(ours, o.also) {
		if !equality.Semantic.DeepEqual(p.of(before), p.of(after)) {
			bad(p.path, p.instead)
		}
	}
	for _, changed := range changedKeys(before.Labels, after.Labels) {
		if strings.HasPrefix(changed, ourDomain) {
			bad(fmt.Sprintf("metadata.labels[%q]", changed), "eltrain identifies pods by it; choose another label")
		}
	}
	if o.scheduling.Scheduler != "" && after.Spec.SchedulerName != o.scheduling.Scheduler {
		bad("spec.schedulerName", "set the provider's scheduler_name")
	}
	for _, changed := range changedKeys(before.Annotations, after.Annotations) {
		if _, kept := o.scheduling.Annotations[changed]; kept {
			bad(fmt.Sprintf("metadata.annotations[%q]", changed), "the scheduler identifies the gang by it; remove it")
		}
		if strings.HasPrefix(changed, ourDomain) {
			bad(fmt.Sprintf("metadata.annotations[%q]", changed), "eltrain identifies pods by it; choose another annotation")
		}
	}
	for _, v := range before.Spec.Volumes {
		if !slices.ContainsFunc(after.Spec.Volumes, func(a corev1.Volume) bool { return equality.Semantic.DeepEqual(a, v) }) {
			instead := "rename your volume"
			if v.Name == shmVolume {
				instead = "set shm in the role's resources"
			}
			bad("the volume "+v.Name, instead)
		}
	}
	mainBefore, mainAfter := mainOf(before), mainOf(after)
	for _, m := range mainBefore.VolumeMounts {
		if !slices.ContainsFunc(mainAfter.VolumeMounts, func(a corev1.VolumeMount) bool { return equality.Semantic.DeepEqual(a, m) }) {
			bad("what container main mounts at "+m.MountPath, "use another mount path")
		}
	}
	for _, e := range mainBefore.Env {
		if e.ValueFrom != nil && !slices.ContainsFunc(mainAfter.Env, func(a corev1.EnvVar) bool { return equality.Semantic.DeepEqual(a, e) }) {
			bad("the variable "+e.Name+" of container main", "the agent needs it; use another name")
		}
	}
	for name := range mainBefore.Resources.Limits {
		request, limit := mainAfter.Resources.Requests[name], mainAfter.Resources.Limits[name]
		want := mainBefore.Resources.Limits[name]
		if request.Cmp(want) != 0 || limit.Cmp(want) != 0 {
			bad(fmt.Sprintf("the %s of container main", name), "eltrain plans with the role's resources; set it there")
		}
	}
	for _, c := range after.Spec.Containers {
		if c.Name != mainContainer {
			bad("the containers by adding "+c.Name, "the pod would not end with its agent; make it a sidecar: an init container with restartPolicy Always")
		}
	}
	return errs
}

// changedKeys lists the keys whose values differ, sorted.
func changedKeys(before, after map[string]string) []string {
	var changed []string
	for k, v := range after {
		if old, had := before[k]; !had || old != v {
			changed = append(changed, k)
		}
	}
	for k := range before {
		if _, has := after[k]; !has {
			changed = append(changed, k)
		}
	}
	slices.Sort(changed)
	return changed
}

// mainOf is the container that runs the agent; empty if an overlay removed it.
func mainOf(p *corev1.Pod) corev1.Container { return containerOf(p.Spec.Containers, mainContainer) }

func containerOf(all []corev1.Container, name string) corev1.Container {
	if i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return corev1.Container{}
}
