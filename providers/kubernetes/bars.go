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

// places decides where the pods of a role can be, on the nodes and with the RuntimeClasses of an observation. It caches
// its answers: every plan asks for every role.
type places struct {
	config  Config
	nodes   []*corev1.Node // those that accept pods
	classes runtimeClasses

	mu    sync.Mutex
	known map[string]job.Fit // by fitKey
}

// Fit lists the nodes that pods of a role can never be on at present: those with a taint that the role's template does not
// tolerate, and those that its nodeSelector or required node affinity excludes. It also says what the pods request beyond
// the role's resources: for sidecars, and the overhead of their RuntimeClass. What a webhook adds to a pod counts as
// foreign load once the pod exists.
//
// What depends on other pods or objects is left to the scheduler: affinity between pods, topology spread, volumes, quotas.
// It reports it in Incarnation.Waiting; the caveats warn of the first two, which are in the template. Transient conditions
// close a node for all (job.Node.Closed) and are no bar.
func (s *places) Fit(r *job.Role) job.Fit {
	key, err := json.Marshal(fitKey{r.Pod, r.Resources})
	if err != nil {
		return job.Fit{} // Config.Check has rejected it, with the reason
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fit, known := s.known[string(key)]
	if !known {
		fit = s.fit(r)
		s.known[string(key)] = fit
	}
	return fit
}

func (s *places) fit(r *job.Role) job.Fit {
	b, err := s.config.constraints(r, s.classes)
	if err != nil {
		return job.Fit{} // Config.Check has rejected it, with the reason
	}
	return job.Fit{Bars: b.bars(s.nodes), Extra: b.Extra, Caveats: b.Caveats}
}

// fitKey is the part of a role that determines where its pods can be and what they take. Encoding it is far cheaper than
// making a pod and merging its overlays.
type fitKey struct {
	Pod       map[string]any
	Resources job.Resources
}

// constraints derives those of a role's pods.
func (c Config) constraints(r *job.Role, classes runtimeClasses) (constraints, error) {
	template, err := c.template(r, Scheduling{})
	if err != nil {
		return constraints{}, err
	}
	template = classes.admitted(template)
	limits := constraints{
		Tolerations: template.Spec.Tolerations, Selector: template.Spec.NodeSelector,
		Devices: slices.Sorted(maps.Keys(r.Resources.Devices)), Extra: extraOf(template, r.Resources),
		Caveats: append(classes.unknown(template), betweenPods(template)...),
	}
	if a := template.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		limits.Required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return limits, nil
}

// constraints is what keeps a pod off nodes, and what it requests beyond its slot's reservation.
type constraints struct {
	Tolerations []corev1.Toleration
	Selector    map[string]string
	Required    *corev1.NodeSelector
	Devices     []string
	Extra       job.Resources
	Caveats     []string // what could not be read, or is not taken into account
}

// betweenPods warns of a template's required constraints on where pods are relative to others. Preferences exclude nothing.
func betweenPods(o *corev1.Pod) (caveats []string) {
	const alone = "only the scheduler takes that into account, so the plan may find room where the scheduler finds none."
	if a := o.Spec.Affinity; a != nil && (a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0) {
		caveats = append(caveats, "The pod overlay has required affinity between pods: "+alone)
	}
	if slices.ContainsFunc(o.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }) {
		caveats = append(caveats, "The pod overlay spreads pods over a topology: "+alone)
	}
	return caveats
}

// bars maps the nodes that the pod cannot be on to the reason; nil if it can be on all.
func (b constraints) bars(nodes []*corev1.Node) map[string]string {
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

// taint is the first taint of a node that keeps the pod off; "" if none does. A taint whose key is a device that the pod
// requests does not: the admission plugin ExtendedResourceToleration, which clouds use, adds the toleration, and if it is
// off, the scheduler reports the taint.
func (b constraints) taint(n *corev1.Node) string {
	taint, barred := helpers.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, b.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !isTransient(t) && !slices.Contains(b.Devices, t.Key)
	}, true) // an API server without the operators Gt and Lt rejects them in a pod
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

// places returns the places for the current nodes and classes. x.mu is held.
func (x *index) places() *places {
	c := &x.cluster
	if c.places == nil {
		c.places = &places{config: x.config, classes: c.classes, known: map[string]job.Fit{}}
		for _, n := range c.nodes {
			if n.slots > 0 {
				c.places.nodes = append(c.places.nodes, n.kept)
			}
		}
	}
	return c.places
}
