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

// schedulerConf is the part of the scheduler's configuration that is read. A plugin's options default to true.
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

// confSuffix is the suffix of the configuration's key in its ConfigMap: Volcano's own is volcano-scheduler.conf.
const confSuffix = ".conf"

// askScheduler reads the scheduler's configuration and returns what it means for jobs, in full sentences.
func (c Config) askScheduler(ctx context.Context, client *kube.Client) ([]string, error) {
	namespace, name := c.schedulerConfig()
	configMap, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("It is unknown whether the scheduler preempts parts of gangs: %v. Set scheduler_config to the ConfigMap with its configuration, and allow eltrain to get it.", err)}, nil
	case err != nil:
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	for key, text := range configMap.Data {
		if strings.HasSuffix(key, confSuffix) {
			return c.meaning(text), nil
		}
	}
	return []string{fmt.Sprintf("ConfigMap %s/%s has no key that ends in %s: the scheduler's behavior is unknown.", namespace, name, confSuffix)}, nil
}

// networkPlugin is the scheduler's plugin that implements a PodGroup's networkTopology. The chart does not enable it.
const networkPlugin = "network-topology-aware"

// meaning lists where a scheduler's configuration deviates from what this provider relies on.
func (c Config) meaning(text string) []string {
	var conf schedulerConf
	if err := yaml.Unmarshal([]byte(text), &conf); err != nil {
		return []string{fmt.Sprintf("Cannot read the scheduler's configuration: %v.", err)}
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
		say("The scheduler has no action enqueue: pods are created even if their queue is full.")
	}
	if drf, is := plugins["drf"]; is && on(drf.JobOrder) {
		say("The scheduler's plugin drf prefers jobs that hold less: another waiting job may get the places that a gang of this job lost. Give the provider a higher priority_class, or set drf's enableJobOrder to false.")
	}
	if !proportion && !capacity {
		say("The scheduler has neither the plugin proportion nor capacity: queues have no limits.")
	}
	switch {
	case !preempts:
		say(fmt.Sprintf("The scheduler does not preempt (its actions are %q): a priority_class puts this job ahead of waiting jobs but preempts no running one.", conf.Actions))
	case gangs && !on(gang.Preemptable):
		say("The scheduler preempts and its plugin gang has enablePreemptable: false: it may evict pods of this job below its min, except those that eltrain marks as not preemptable: the first of each role up to min.")
	}
	if slices.ContainsFunc(actions, func(a string) bool { return strings.HasSuffix(a, "reclaim") }) && gangs && !on(gang.Reclaimable) {
		say("The scheduler reclaims from queues above their share and its plugin gang has enableReclaimable: false: it may evict pods of this job below its min, except those that eltrain marks as not preemptable: the first of each role up to min.")
	}
	if _, obeyed := plugins[networkPlugin]; c.NetworkTopology != nil && !obeyed {
		say(fmt.Sprintf("The scheduler's plugin %s is off: it ignores network_topology. Add the plugin to its configuration.", networkPlugin))
	}
	if overcommit, is := plugins["overcommit"]; is && preempts && on(overcommit.JobEnqueued) && overcommit.Arguments["overcommit-factor"] == nil {
		say("The scheduler preempts, but its plugin overcommit admits no job while the cluster is full: a job of higher priority waits there and preempts nothing. Remove overcommit from the configuration, or raise its overcommit-factor.")
	}
	return means
}
