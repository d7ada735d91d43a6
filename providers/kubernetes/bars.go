package kubernetes

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/eltrain/eltrain/job"
)

// Fit lists the nodes that pods of a role can never be on, as they are now: those with a taint that the role's
// template does not tolerate, and those that its nodeSelector or its required node affinity leaves out. And it tells what
// they request beside what the role reserves: for sidecars, and the overhead of their RuntimeClass. What a webhook puts
// into a pod is known once the pod is there: it counts as load of others then.
//
// What hangs on other pods or on objects beside the pod is the scheduler's alone: affinity between pods, topology
// spread, volumes, quotas. It says so itself, in Incarnation.Waiting; of the first two, which are in the template, the
// caveats warn. What comes and goes closes a node for all
// (job.Node.Closed) and is no bar.
func (p *Provider) Fit(r *job.Role) job.Fit {
	p.index.askFor(r.Resources.Devices)
	key, err := json.Marshal(barKey{r.Pod, r.Resources})
	if err != nil {
		return job.Fit{} // Config.Check has refused it, with its reason
	}
	return p.bars.of(string(key), p.index, func() (barring, error) { return p.config.barring(r, p.index.runtimeClasses()) })
}

// barKey is what of a role says where its pods can be and what they take. To make a pod of it, with its overlays merged,
// takes far longer than to write this down.
type barKey struct {
	Pod       map[string]any
	Resources job.Resources
}

// barring is what of a role's pods keeps them off nodes.
func (c Config) barring(r *job.Role, classes runtimeClasses) (barring, error) {
	template, err := c.template(r, Scheduling{})
	if err != nil {
		return barring{}, err
	}
	template = classes.admitted(template)
	limits := barring{
		Tolerations: template.Spec.Tolerations, Selector: template.Spec.NodeSelector,
		Devices: slices.Sorted(maps.Keys(r.Resources.Devices)), Extra: extraOf(template, r.Resources),
		Caveats: append(classes.unknown(template), betweenPods(template)...),
	}
	if a := template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		limits.Required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return limits, nil
}

// barring is what of a pod keeps it off nodes, and what it takes there beside what its slot reserves.
type barring struct {
	Tolerations []corev1.Toleration
	Selector    map[string]string
	Required    *corev1.NodeSelector
	Devices     []string
	Extra       job.Resources
	Caveats     []string // what of this could not be seen, or is not reckoned with
}

// betweenPods says what of a template keeps its pods together or apart by where others are. Preferences keep nobody off.
func betweenPods(o *corev1.Pod) (caveats []string) {
	const alone = "only the scheduler reckons with that, so the plan may find room where it finds none."
	if a := o.Spec.Affinity; a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) {
		caveats = append(caveats, "The pod overlay has required affinity between pods: "+alone)
	}
	if slices.ContainsFunc(o.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }) {
		caveats = append(caveats, "The pod overlay spreads pods over a topology: "+alone)
	}
	return caveats
}

// barCache keeps the answers by barKey for as long as the nodes and RuntimeClasses stay as they are: Fit is called for each
// role in each turn.
type barCache struct {
	mu      sync.Mutex
	version int // of the nodes and RuntimeClasses
	known   map[string]job.Fit
}

func (c *barCache) of(key string, x *index, limits func() (barring, error)) job.Fit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version := x.nodesVersion(); version != c.version || c.known == nil {
		c.version, c.known = version, map[string]job.Fit{}
	}
	if fit, known := c.known[key]; known {
		return fit
	}
	b, err := limits()
	if err != nil {
		return job.Fit{} // Config.Check has refused it, with its reason
	}
	fit := job.Fit{Bars: b.bars(x.barNodes()), Extra: b.Extra, Caveats: b.Caveats}
	c.known[key] = fit
	return fit
}

// bars matches nodes. nil if it can be on all.
func (b barring) bars(nodes []*corev1.Node) map[string]string {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: b.Selector}}
	affinity := &corev1.Pod{}
	if b.Required != nil {
		affinity.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: b.Required}}
	}
	selector, required := nodeaffinity.GetRequiredNodeAffinity(pod), nodeaffinity.GetRequiredNodeAffinity(affinity)
	var bars map[string]string
	for _, n := range nodes {
		why := b.taint(n)
		if fits, _ := selector.Match(n); why == "" && !fits {
			why = "node selector " + mismatch(b.Selector, n.Labels)
		}
		if fits, err := required.Match(n); why == "" && !fits {
			why = "node affinity"
			if err != nil {
				why += ": " + err.Error()
			}
		}
		if why == "" {
			continue
		}
		if bars == nil {
			bars = map[string]string{}
		}
		bars[n.Name] = why
	}
	return bars
}

// taint is the first taint of a node that keeps the pod off; "" if none does. One that is named as a device that the
// pod asks for does not: the admission plugin ExtendedResourceToleration, which clouds use, has such pods tolerate it,
// and where it is off the scheduler says so.
func (b barring) taint(n *corev1.Node) string {
	taint, barred := helpers.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, b.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !isTransient(t) && !slices.Contains(b.Devices, t.Key)
	}, true) // an API server without the operators Gt and Lt refuses them in a pod
	if !barred {
		return ""
	}
	return taintText(&taint)
}

// mismatch is the first pair of a selector that labels do not have.
func mismatch(selector, labels map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(selector)) {
		if v, has := labels[k]; !has || v != selector[k] {
			return k + "=" + selector[k]
		}
	}
	return ""
}

// barNodes is every node that takes pods, as Bars reads them.
func (x *index) barNodes() []*corev1.Node {
	x.mu.Lock()
	defer x.mu.Unlock()
	nodes := make([]*corev1.Node, 0, len(x.cluster.nodes))
	for _, n := range x.cluster.nodes {
		if n.slots > 0 {
			nodes = append(nodes, n.kept)
		}
	}
	return nodes
}

// nodesVersion changes with the nodes and the RuntimeClasses.
func (x *index) nodesVersion() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cluster.version
}

// askFor notes which devices roles ask for.
func (x *index) askFor(devices map[string]int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cluster.ask(devices) {
		x.signal()
	}
}
