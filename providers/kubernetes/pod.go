package kubernetes

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// Names of what eltrain puts into a pod. An overlay cannot change them.
const (
	agentContainer = "eltrain-agent"   // init container that copies the agent
	agentVolume    = "eltrain-agent"   // where it copies it to
	serviceVolume  = "eltrain-service" // the anchor: the service's current address
	tokenVolume    = "eltrain-token"   // the job's Secret
	shmVolume      = "eltrain-shm"

	agentProgram = "eltrain-agent" // what runs in every pod: with a quarter of the memory of the full eltrain
	agentDir     = "/eltrain/bin"
	serviceDir   = "/eltrain/service"
	tokenDir     = "/eltrain/token"

	serviceKey      = "service" // in the anchor: the service's URL
	certificatesKey = "ca.crt"  // the CA, in PEM; empty if the system's CAs apply
	tokenKey        = "token"   // in the Secret

	envPodIP    = "POD_IP"
	envNodeName = "NODE_NAME"

	lastWordPath = "/dev/termination-log" // Kubernetes' own default
)

const (
	// unreachableSeconds is how long a pod stays on a node that is not ready. The default would be 300, but the master acts
	// at its own lease, and a pod that it has replaced is not to stay for long.
	unreachableSeconds = 30
	// shmShare: the default size of /dev/shm is the slot's memory divided by it: half, as tmpfs has on a machine.
	shmShare = 2
	// stopMargin is what an agent may need beyond its processes' grace, to write its last word.
	stopMargin = 5 * time.Second
	// avoidWeight is the weight of the preference against the nodes to avoid, from 1 to 100: it outweighs every other
	// preference.
	avoidWeight = 100
)

// podContext is what a pod needs to know besides its Launch and the Config.
type podContext struct {
	namespace  string
	version    string // of eltrain, for the default agent image
	owner      string // the state under which it is created
	anchor     anchor
	scheduling Scheduling
	classes    runtimeClasses
	source     *corev1.ConfigMapVolumeSource // the role's source files; nil if it has none
}

// pod makes the pod of one incarnation. Errors are about what the role asks for and cannot have.
func (c Config) pod(l job.Launch, in podContext) (*corev1.Pod, error) {
	for _, name := range []string{envPodIP, envNodeName} {
		if _, taken := l.Program.Env[name]; taken {
			return nil, fmt.Errorf("env of role %q: %s is reserved, eltrain uses it to configure the agent; use another name", l.Slot.Role, name)
		}
	}
	k := key{l.UID, l.Slot.Role, l.Slot.Index, l.Incarnation}
	grace := stopSeconds(l)
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      podName(l.UID, l.Slot, l.Incarnation),
			Namespace: in.namespace,
			Labels:    podLabels(l.UID, l.Slot, l.Incarnation),
			Annotations: map[string]string{
				annotationSlot:         slotText(k, l.Slot),
				annotationSafeToEvict:  "false",
				annotationDoNotDisrupt: "true",
			},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			Hostname:                      hostName(l.Slot),
			Subdomain:                     groupName(l.UID, l.Slot.Job),
			TerminationGracePeriodSeconds: &grace,
			PriorityClassName:             c.PriorityClass,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers:                    []corev1.Container{c.mainContainer(l)},
			Volumes: []corev1.Volume{
				volume(serviceVolume, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: groupName(l.UID, l.Slot.Job)}}}),
				volume(tokenVolume, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: groupName(l.UID, l.Slot.Job)}}),
				volume(shmVolume, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
					Medium: corev1.StorageMediumMemory, SizeLimit: shmSize(l.Reserved)}}),
			},
		},
	}
	labels, annotations := stateMarks(in.owner)
	maps.Copy(pod.Labels, labels)
	maps.Copy(pod.Annotations, annotations)
	if l.Ranked && l.Slot.Index == 0 {
		pod.Labels["training.kubeflow.org/job-role"] = "master"
	}
	if in.anchor.uid != "" {
		owner := in.anchor.reference()
		owner.Controller = new(true) // without a controller, kubectl drain fails unless forced
		pod.OwnerReferences = []metav1.OwnerReference{owner}
	}
	if c.AgentPath == "" {
		pod.Spec.InitContainers = []corev1.Container{c.agentContainer(l, in.version)}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume(agentVolume, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}))
	}
	if in.source != nil {
		addSource(pod, in.source)
	}
	in.scheduling.applyTo(pod)
	for _, o := range []overlay{
		{owner: "the provider", fields: c.Pod, scheduling: in.scheduling},
		{owner: fmt.Sprintf("role %q", l.Slot.Role), fields: l.Pod, scheduling: in.scheduling, also: providersAlone},
	} {
		merged, err := o.merge(pod)
		if err != nil {
			return nil, err
		}
		pod = merged
	}
	pod.Annotations[annotationLaunch] = launched{
		Fingerprint: l.Fingerprint, Reserved: l.Reserved, Extra: extraOf(in.classes.admitted(pod), l.Reserved), Image: c.image(l.Program), InitImage: c.agentImage(in.version), Source: shortDigest(l.Source),
		SafeToEvict: pod.Annotations[annotationSafeToEvict], DoNotDisrupt: pod.Annotations[annotationDoNotDisrupt],
	}.text()
	// Lists without merge keys: ours are added to the result of the overlays.
	tolerate(&pod.Spec)
	avoid(&pod.Spec, l.Avoid)
	return pod, nil
}

// extraOf is what a pod requests beyond its slot's reservation: for sidecars, and its overhead.
func extraOf(o *corev1.Pod, reserved job.Resources) job.Resources {
	extra := requestsOf(o).Beyond(reserved)
	extra.Shm = 0 // part of memory, and counted there
	return extra
}

// template is the pod of a role as far as placement goes: what Bars matches against nodes, and Check checks.
func (c Config) template(r *job.Role, s Scheduling) (*corev1.Pod, error) {
	in := podContext{scheduling: s}
	if len(r.Source) > 0 {
		in.source = volumeOf("template", "template", &job.SourceFiles{Digest: r.Source.Digest(), Files: r.Source})
	}
	return c.pod(job.Launch{
		UID: "template", Slot: job.Address{Job: "template", Role: r.Name}, Incarnation: 1, Program: r.For(0),
		Processes: r.Processes, Ranked: r.Ranked, Reserved: r.Resources, StopGrace: r.StopGrace, Pod: r.Pod,
	}, in)
}

// mainContainer runs the agent. Users' strings are passed literally, as with every provider: Kubernetes would expand
// $(NAME) in them.
func (c Config) mainContainer(l job.Launch) corev1.Container {
	program := cmp.Or(c.AgentPath, agentDir+"/"+agentProgram)
	main := corev1.Container{
		Name:    mainContainer,
		Image:   c.image(l.Program),
		Command: append([]string{program}, agentConfig(l).Args()...),
		Env: []corev1.EnvVar{
			{Name: envPodIP, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: envNodeName, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		},
		Resources: resources(l.Reserved),
		VolumeMounts: []corev1.VolumeMount{
			{Name: serviceVolume, MountPath: serviceDir, ReadOnly: true},
			{Name: tokenVolume, MountPath: tokenDir, ReadOnly: true},
			{Name: shmVolume, MountPath: "/dev/shm"},
		},
		TerminationMessagePath:   lastWordPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		// No capability is dropped: most training images run as root, and root without DAC_OVERRIDE, CHOWN or SETUID can neither
		// read another user's data nor change to that user, as entry points do. An overlay can drop them.
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)},
	}
	if c.AgentPath == "" {
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: agentVolume, MountPath: agentDir, ReadOnly: true})
	}
	if strings.HasPrefix(l.Program.WorkingDir, "/") {
		main.WorkingDir = l.Program.WorkingDir
	}
	for _, name := range slices.Sorted(maps.Keys(l.Program.Env)) {
		main.Env = append(main.Env, corev1.EnvVar{Name: name, Value: literal(l.Program.Env[name])})
	}
	return main
}

// agentContainer copies the static agent out of its own image. It requests what the slot reserves: it runs before everything
// else, so that costs nothing, and the pod's requests stay equal to its limits. It meets the Pod Security Standard
// "restricted", except for its user, which the image or the pod sets.
func (c Config) agentContainer(l job.Launch, version string) corev1.Container {
	all := resources(l.Reserved)
	for name := range l.Reserved.Devices {
		delete(all.Requests, corev1.ResourceName(name))
		delete(all.Limits, corev1.ResourceName(name))
	}
	return corev1.Container{
		Name:         agentContainer,
		Image:        c.agentImage(version),
		Command:      []string{agentProgram, "-copy-to=" + agentDir + "/" + agentProgram},
		Resources:    all,
		VolumeMounts: []corev1.VolumeMount{{Name: agentVolume, MountPath: agentDir}},
		// The reason of a failure, such as a full disk, is in its output.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// agentConfig is the agent's command line as a value. Its output is the container's; it chooses its own directory. A
// relative working directory is relative to the image's, or to that of the source files.
func agentConfig(l job.Launch) job.AgentConfig {
	a := job.AgentConfig{
		Job: l.Slot.Job, UID: l.UID, Slot: l.Slot.Short(), Incarnation: l.Incarnation,
		Host: "$(" + envPodIP + ")", Node: "$(" + envNodeName + ")",
		ServiceFile: serviceDir + "/" + serviceKey, CAFile: serviceDir + "/" + certificatesKey, TokenFile: tokenDir + "/" + tokenKey, LastWordFile: lastWordPath,
		Processes: l.Processes, Ranked: l.Ranked, StopGrace: l.StopGrace, MaxRestarts: l.MaxRestarts,
	}
	if dir := l.Program.WorkingDir; dir != "" && dir != "." && !strings.HasPrefix(dir, "/") {
		a.WorkingDir = literal(dir)
	}
	if l.Checkpoint != nil {
		a.CheckpointDir, a.CheckpointSignal = literal(l.Checkpoint.Dir), l.Checkpoint.Signal
		a.CheckpointPattern = literal(l.Checkpoint.Pattern)
	}
	if l.Accelerators != nil {
		for _, word := range l.Accelerators.Command {
			a.Accelerators = append(a.Accelerators, literal(word))
		}
		a.DCGM = literal(l.Accelerators.DCGM)
	}
	for _, word := range l.Program.Command {
		a.Command = append(a.Command, literal(word))
	}
	return a
}

// literal escapes what Kubernetes would expand in commands and environment variables: "$$" is "$".
func literal(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// image is the image that a program runs in; "" if none is configured.
func (c Config) image(p job.Program) string { return cmp.Or(p.Image, c.Image) }

// unnamedImage is the agent's image where the configuration names none. RFC 2606 reserves "invalid": nobody can own the name
// and serve a program under it. A pod waits for it, and says so.
const unnamedImage = "eltrain.invalid/eltrain"

// agentImage is the image that the agent is copied from; "" if the jobs' own images have the agent.
func (c Config) agentImage(version string) string {
	if c.AgentPath != "" {
		return ""
	}
	return cmp.Or(c.AgentImage, unnamedImage+":v"+version)
}

// resources sets requests equal to limits: a slot may use what it reserves, and such a pod is evicted last.
func resources(r job.Resources) corev1.ResourceRequirements {
	list := Quantities(r)
	if len(list) == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Requests: list, Limits: maps.Clone(list)}
}

// Quantities converts what a slot reserves to Kubernetes quantities.
func Quantities(r job.Resources) corev1.ResourceList {
	list := corev1.ResourceList{}
	if r.CPU > 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(r.CPU), resource.DecimalSI)
	}
	if r.Memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(int64(r.Memory), resource.BinarySI)
	}
	for name, n := range r.Devices {
		if n > 0 {
			list[corev1.ResourceName(name)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	return list
}

// shmSize limits /dev/shm, which counts as the slot's memory; nil, so only the node limits it, if neither is given.
func shmSize(r job.Resources) *resource.Quantity {
	size := cmp.Or(r.Shm, r.Memory/shmShare)
	if size <= 0 {
		return nil
	}
	return resource.NewQuantity(int64(size), resource.BinarySI)
}

// stopSeconds is the grace period of a pod that somebody else deletes: its own grace, the same again for the checkpoint
// requested before, and the agent's margin.
func stopSeconds(l job.Launch) int64 {
	grace := l.StopGrace.Std()
	if l.Checkpoint != nil && l.Checkpoint.Signal != "" {
		grace *= 2
	}
	return int64(math.Ceil((grace + stopMargin).Seconds()))
}

// tolerate shortens how long a pod stays on an unreachable node, unless an overlay sets it.
func tolerate(spec *corev1.PodSpec) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		said := slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !said {
			seconds := int64(unreachableSeconds)
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
			})
		}
	}
}

// avoid makes the scheduler prefer every other node.
func avoid(spec *corev1.PodSpec, nodes []string) {
	if len(nodes) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	preferred := &spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	var fields []corev1.NodeSelectorRequirement
	for _, node := range nodes { // a field takes one value
		fields = append(fields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}})
	}
	*preferred = append(*preferred, corev1.PreferredSchedulingTerm{
		Weight: avoidWeight, Preference: corev1.NodeSelectorTerm{MatchFields: fields},
	})
}

func volume(name string, source corev1.VolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: source}
}
