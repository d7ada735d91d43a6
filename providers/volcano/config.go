package volcano

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"volcano.sh/apis/pkg/apis/batch/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers/kubernetes"
)

// Config is the block provider "volcano": all of provider "kubernetes", and what follows. All jobs of a directory use one
// queue. Its tags define the language, read by job.Fields.
type Config struct {
	kubernetes.Config `hcl:",inline"`

	Queue           string           `hcl:"queue,optional" default:"default" change:"update" doc:"The queue that jobs are admitted to. It must exist."`
	SchedulerName   string           `hcl:"scheduler_name,optional" default:"volcano" change:"update" doc:"The name of the Volcano scheduler."`
	SchedulerConfig string           `hcl:"scheduler_config,optional" default:"volcano-system/volcano-scheduler-configmap" change:"update" doc:"The ConfigMap with the scheduler's configuration, as \"NAMESPACE/NAME\". plan says what it means for jobs, if it may be read."`
	NetworkTopology *NetworkTopology `hcl:"network_topology,block" change:"update" doc:"The maximum network distance of a job's pods. Needs Volcano 1.12 with HyperNodes."`
}

// NetworkTopology limits how far apart the pods of a job may be.
type NetworkTopology struct {
	Mode        string `hcl:"mode,optional" default:"hard" change:"update" doc:"\"hard\": never further apart. \"soft\": no further than it has to be."`
	HighestTier int    `hcl:"highest_tier,optional" change:"update" doc:"The highest tier of HyperNodes that the pods may span: 1 is the closest."`
}

// Defaults of Volcano's own manifests.
const (
	defaultScheduler       = "volcano"
	defaultSchedulerConfig = "volcano-system/volcano-scheduler-configmap"
)

func (c Config) queue() string     { return cmp.Or(c.Queue, v1beta1.DefaultQueue) }
func (c Config) scheduler() string { return cmp.Or(c.SchedulerName, defaultScheduler) }

// schedulerConfig is the namespace and name of the ConfigMap.
func (c Config) schedulerConfig() (namespace, name string) {
	namespace, name, _ = strings.Cut(cmp.Or(c.SchedulerConfig, defaultSchedulerConfig), "/")
	return namespace, name
}

// Validate returns every mistake, each with what to do.
func (c Config) Validate() []error {
	errs := c.Config.Validate()
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if why := validation.IsDNS1123Subdomain(c.queue()); len(why) > 0 {
		bad("invalid queue %q: use lower case letters, digits, \"-\" and \".\"", c.Queue)
	}
	if why := validation.IsDNS1123Subdomain(c.scheduler()); len(why) > 0 {
		bad("invalid scheduler_name %q: use lower case letters, digits, \"-\" and \".\"", c.SchedulerName)
	}
	if namespace, name := c.schedulerConfig(); len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		bad("invalid scheduler_config %q: write it as %q", c.SchedulerConfig, defaultSchedulerConfig)
	}
	if t := c.NetworkTopology; t != nil {
		switch v1beta1.NetworkTopologyMode(t.Mode) {
		case "", v1beta1.HardNetworkTopologyMode, v1beta1.SoftNetworkTopologyMode:
		default:
			bad("invalid mode %q of network_topology: write \"hard\" or \"soft\"", t.Mode)
		}
		if t.HighestTier < 0 {
			bad("invalid highest_tier %d of network_topology: write a tier from 1, or remove it", t.HighestTier)
		}
	}
	return errs
}

// Check reports what is wrong with a role on this provider, before anything of it is started.
func (c Config) Check(r *job.Role) error {
	some := job.Group{UID: "template", Name: "template", Roles: []job.GroupRole{{Role: r.Name, Min: 1}}}
	return c.CheckFor(r, c.schedule("template", some, job.Address{Job: "template", Role: r.Name}))
}

// schedule is what the scheduler needs in the pod of a slot: its PodGroup, in the one annotation that the scheduler reads;
// its role, by which minTaskMember counts it; and whether it may be preempted, which the role's minimum may not.
func (c Config) schedule(podGroup string, g job.Group, slot job.Address) kubernetes.Scheduling {
	return kubernetes.Scheduling{
		Scheduler: c.scheduler(),
		Annotations: map[string]string{
			v1beta1.KubeGroupNameAnnotationKey: podGroup,
			v1alpha1.TaskSpecKey:               slot.Role,
			v1beta1.PodPreemptable:             strconv.FormatBool(slot.Index >= minOf(g, slot.Role)),
		},
	}
}

// minOf is the minimum of a role.
func minOf(g job.Group, role string) int {
	for _, r := range g.Roles {
		if r.Role == role {
			return r.Min
		}
	}
	return 0
}
