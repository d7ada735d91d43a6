package kubernetes

import (
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/kube"
)

// Config is the block provider "kubernetes". Its tags define the language, read by job.Fields.
type Config struct {
	Kubeconfig    string         `hcl:"kubeconfig,optional" change:"update" doc:"The kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the service account of eltrain's own pod."`
	Context       string         `hcl:"context,optional" change:"update" doc:"A context of the kubeconfig. Default: its current one."`
	Namespace     string         `hcl:"namespace,optional" change:"update" doc:"Where objects are created. Default: the context's namespace, or the one that eltrain runs in."`
	Image         string         `hcl:"image,optional" change:"update" doc:"Container image of roles without one, so that a job written for the local provider runs here unchanged."`
	AgentImage    string         `hcl:"agent_image,optional" change:"update" doc:"Image with the static program eltrain-agent, which an init container copies into every pod. Set it, or agent_path: the default is a name that no registry has."`
	AgentPath     string         `hcl:"agent_path,optional" change:"update" doc:"Where eltrain-agent is in the jobs' own images, as \"/usr/local/bin/eltrain-agent\". With it there is no init container."`
	Pod           map[string]any `hcl:"pod,any" change:"update" doc:"Overlay on every pod, in the form of a pod template: metadata and spec. A role's pod overlay is merged after it."`
	PriorityClass string         `hcl:"priority_class,optional" change:"update" doc:"PriorityClass of the pods."`
	QPS           float64        `hcl:"qps,optional" change:"update" doc:"The maximum number of requests per second to the API server. 0 is no limit: the API server throttles by itself."`
	Parallelism   int            `hcl:"parallelism,optional" default:"128" change:"update" doc:"The maximum number of pods that are created, and deleted, at once."`
}

// DefaultParallelism is the number of writers, of 16, 64 and 128, with which an API server on four cores created most pods a
// second. It is an upper bound: the window of pace.go shrinks for an API server that is smaller or busy.
const DefaultParallelism = 128

// maxParallelism keeps a typo from taking every connection of an API server.
const maxParallelism = 1024

// Validate returns every mistake, each with what to do.
func (c Config) Validate() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Namespace != "" {
		if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
			bad("invalid namespace %q: use up to 63 lower case letters, digits and \"-\"", c.Namespace)
		}
	}
	for _, image := range []struct{ argument, value string }{{"image", c.Image}, {"agent_image", c.AgentImage}} {
		if image.value != strings.TrimSpace(image.value) || strings.ContainsAny(image.value, " \t\n") {
			bad("%s %q contains white space: write it as \"registry/name:tag\"", image.argument, image.value)
		}
	}
	if c.AgentPath != "" && !strings.HasPrefix(c.AgentPath, "/") {
		bad("agent_path %q is not absolute: write the path of eltrain-agent in the image, such as \"/usr/local/bin/eltrain-agent\"", c.AgentPath)
	}
	if path.Base(c.AgentPath) == "eltrain" {
		bad("agent_path %q is the full eltrain binary: use eltrain-agent beside it, which needs a quarter of the memory in every pod", c.AgentPath)
	}
	if c.AgentPath != "" && c.AgentImage != "" {
		bad("agent_path and agent_image cannot be used together: remove agent_image if eltrain-agent is in the jobs' images, otherwise agent_path")
	}
	if c.PriorityClass != "" {
		if why := validation.IsDNS1123Subdomain(c.PriorityClass); len(why) > 0 {
			bad("invalid priority_class %q: use lower case letters, digits, \"-\" and \".\"", c.PriorityClass)
		}
	}
	if c.QPS < 0 || math.IsNaN(c.QPS) || math.IsInf(c.QPS, 0) {
		bad("invalid qps %v: write a number of requests per second, or remove it for no limit", c.QPS)
	}
	if c.Parallelism < 0 || c.Parallelism > maxParallelism {
		bad("invalid parallelism %d: write a number from 1 to %d, or remove it for %d", c.Parallelism, maxParallelism, DefaultParallelism)
	}
	errs = append(errs, (overlay{owner: "the provider", fields: c.Pod}).check()...)
	return errs
}

// Check reports what is wrong with a role on this provider, before anything of it is started. It makes the role's pod as
// Launch would, and joins the mistakes of its overlay.
func (c Config) Check(r *job.Role) error {
	return c.CheckFor(r, Scheduling{})
}

// CheckFor is Check for pods with this Scheduling.
func (c Config) CheckFor(r *job.Role, s Scheduling) error {
	if err := checkNames(job.Address{Job: "job", Role: r.Name}); err != nil {
		return err
	}
	if err := checkSource(r); err != nil {
		return err
	}
	_, err := c.template(r, s)
	return err
}

// access is how to reach the cluster.
func (c Config) access() kube.Access {
	return kube.Access{Kubeconfig: c.Kubeconfig, Context: c.Context, Namespace: c.Namespace}
}

// parallelism is how many pods are created at once.
func (c Config) parallelism() int {
	if c.Parallelism == 0 {
		return DefaultParallelism
	}
	return c.Parallelism
}

var errNoImage = errors.New("it has no image: set image in the role, or in the provider for all roles")
