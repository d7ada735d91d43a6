package volcano

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/eltrain/eltrain/kube"
)

// schedulerConf is what is read of the scheduler's configuration. What a plugin leaves out is on.
type schedulerConf struct {
	Actions string `json:"actions"`
	Tiers   []struct {
		Plugins []plugin `json:"plugins"`
	} `json:"tiers"`
}

type plugin struct {
	Name        string         `json:"name"`
	Preemptable *bool          `json:"enablePreemptable"`
	Reclaimable *bool          `json:"enableReclaimable"`
	JobReady    *bool          `json:"enableJobReady"`
	JobOrder    *bool          `json:"enableJobOrder"`
	JobEnqueued *bool          `json:"enableJobEnqueued"`
	Arguments   map[string]any `json:"arguments"`
}

func on(b *bool) bool { return b == nil || *b }

// confSuffix ends the key of the configuration in its ConfigMap: Volcano's own is volcano-scheduler.conf.
const confSuffix = ".conf"

// askScheduler reads the scheduler's configuration and gives what it means for jobs, in full sentences.
func (c Config) askScheduler(ctx context.Context, client *kube.Client) ([]string, error) {
	namespace, name := c.schedulerConfig()
	configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("Whether the scheduler preempts, and what of a gang it spares, is not known: %v. Name the ConfigMap with its configuration in scheduler_config, and let eltrain get it.", err)}, nil
	case err != nil:
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	for key, text := range configMap.Data {
		if strings.HasSuffix(key, confSuffix) {
			return c.meaning(text), nil
		}
	}
	return []string{fmt.Sprintf("ConfigMap %s/%s has no key that ends in %s: what the scheduler does is not known.", namespace, name, confSuffix)}, nil
}

// networkPlugin is the scheduler's plugin that obeys a PodGroup's networkTopology. The chart leaves it out.
const networkPlugin = "network-topology-aware"

// meaning says what a scheduler's configuration means for jobs. Where nothing is said, Volcano does what this provider is
// for.
func (c Config) meaning(text string) []string {
	var conf schedulerConf
	if err := yaml.Unmarshal([]byte(text), &conf); err != nil {
		return []string{fmt.Sprintf("The scheduler's configuration cannot be read: %v.", err)}
	}
	var actions []string
	for action := range strings.SplitSeq(conf.Actions, ",") {
		actions = append(actions, strings.TrimSpace(action))
	}
	plugins := map[string]plugin{}
	for _, tier := range conf.Tiers {
		for _, p := range tier.Plugins {
			plugins[p.Name] = p
		}
	}
	gang, gangs := plugins["gang"]
	_, proportion := plugins["proportion"]
	_, capacity := plugins["capacity"]
	preempts := slices.ContainsFunc(actions, func(a string) bool { return strings.HasPrefix(a, "preempt") || a == "gangpreempt" })

	var means []string
	say := func(sentence string) { means = append(means, sentence) }
	if !gangs || !on(gang.JobReady) {
		say("The scheduler's plugin gang is off: it may place only some of a gang.")
	}
	if !slices.Contains(actions, "enqueue") {
		say("The scheduler has no action enqueue: pods are made whether their queue has room or not.")
	}
	if drf, is := plugins["drf"]; is && on(drf.JobOrder) {
		say("The scheduler's plugin drf serves jobs that hold less first: what a gang of this job lost, a waiting job of another's may get before it is formed again. Give the provider a higher priority_class, or have drf's enableJobOrder be false.")
	}
	if !proportion && !capacity {
		say("The scheduler has neither the plugin proportion nor capacity: queues limit nothing.")
	}
	switch {
	case !preempts:
		say(fmt.Sprintf("The scheduler preempts nobody (its actions are %q): a priority_class puts this job ahead of others that wait, and takes no place from one that runs.", conf.Actions))
	case gangs && !on(gang.Preemptable):
		say("The scheduler preempts and its plugin gang has enablePreemptable: false: it may take pods of this job below its min. Those that eltrain marks as not preemptable, the first of each role up to min, it spares.")
	}
	if slices.ContainsFunc(actions, func(a string) bool { return strings.HasSuffix(a, "reclaim") }) && gangs && !on(gang.Reclaimable) {
		say("The scheduler reclaims what queues have beyond their share and its plugin gang has enableReclaimable: false: it may take pods of this job below its min. Those that eltrain marks as not preemptable, the first of each role up to min, it spares.")
	}
	if _, obeyed := plugins[networkPlugin]; c.NetworkTopology != nil && !obeyed {
		say(fmt.Sprintf("The scheduler's plugin %s is off: it places pods wherever they fit, whatever network_topology says. Add the plugin to its configuration.", networkPlugin))
	}
	if overcommit, is := plugins["overcommit"]; is && preempts && on(overcommit.JobEnqueued) && overcommit.Arguments["overcommit-factor"] == nil {
		say("The scheduler preempts, but its plugin overcommit lets nobody in while the cluster is full: what has a higher priority waits there and takes no place. Take overcommit out of the configuration, or raise its overcommit-factor.")
	}
	return means
}
